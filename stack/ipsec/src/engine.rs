//! The databases of one core, and how they are changed and watched.

use core::net::IpAddr;

use ironwarp_crypto::SealingKey;
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::Nanos;

use crate::association::{AddError, Association, AssociationConfig, Limit, Opening, Sad, Usage};
use crate::ip::Header;
use crate::policy::{Action, Policy, SelectorValues, Spd};

/// Bounds of the tables, and our port of ESP in UDP.
#[derive(Clone, Copy, Debug)]
pub struct IpsecConfig {
    /// Associations of each direction. A lookup is linear in them.
    pub associations_max: usize,
    /// Policies.
    pub policies_max: usize,
    /// The local port at which UDP has ESP and IKE (RFC 3948 s2); none is read otherwise.
    pub udp_port: Option<u16>,
}

/// Which way packets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To us.
    Inbound,
    /// From us.
    Outbound,
}

/// What the owner of the keys has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A policy has no association. The packet was dropped. Raised once, until one is added.
    Acquire {
        /// The policy's request identifier.
        reqid: u32,
        /// Our address in the packet that needs it.
        local: IpAddr,
        /// The peer's address.
        remote: IpAddr,
    },
    /// An association reached a limit of its lifetime.
    Expired {
        /// Its direction.
        direction: Direction,
        /// Its SPI.
        spi: u32,
        /// Its destination.
        target: IpAddr,
        /// Whether it passes no more packets.
        is_hard: bool,
    },
}

/// IPsec of one core.
pub struct Ipsec {
    pub(crate) config: IpsecConfig,
    pub(crate) policies: Spd,
    pub(crate) inbound: Sad<Opening>,
    pub(crate) outbound: Sad<SealingKey>,
    pub(crate) stats: CoreStats,
    /// Request identifiers that lack an association: at most one a policy.
    acquires: Vec<Acquire>,
}

struct Acquire {
    reqid: u32,
    local: IpAddr,
    remote: IpAddr,
    is_reported: bool,
}

impl Ipsec {
    /// Makes empty databases. Without policies every packet is dropped.
    pub fn new(config: IpsecConfig, stats: CoreStats) -> Self {
        Ipsec {
            config,
            policies: Spd::new(config.policies_max),
            inbound: Sad::new(config.associations_max),
            outbound: Sad::new(config.associations_max),
            stats,
            acquires: Vec::with_capacity(config.policies_max),
        }
    }

    /// Inserts a policy ahead of that at `position`, or last.
    pub fn add_policy(&mut self, position: usize, policy: Policy) -> Result<(), AddError> {
        if !policy.selector.is_valid() {
            return Err(AddError::Selector);
        }
        if self.policies.insert(position, policy) { Ok(()) } else { Err(AddError::Full) }
    }

    /// Removes the first policy that is the same. Returns whether there was one.
    pub fn remove_policy(&mut self, policy: &Policy) -> bool {
        self.policies.remove(policy)
    }

    /// Adds an association of one direction.
    pub fn add(
        &mut self,
        now: Nanos,
        direction: Direction,
        config: AssociationConfig,
    ) -> Result<(), AddError> {
        let (fingerprint, reqid) = (config.key.fingerprint(), config.reqid);
        // RFC 4106 s10: one key for two associations repeats nonces, and reflects packets.
        if self.inbound.has_key(fingerprint) || self.outbound.has_key(fingerprint) {
            return Err(AddError::KeyRepeated);
        }
        match direction {
            Direction::Inbound => self.inbound.add(Association::inbound(config, now)?),
            Direction::Outbound => {
                self.outbound.add(Association::outbound(config, now)?)?;
                self.acquires.retain(|acquire| acquire.reqid != reqid);
                Ok(())
            }
        }
    }

    /// Removes an association and zeroes its keys. Returns whether there was one.
    pub fn remove(&mut self, direction: Direction, spi: u32, target: IpAddr) -> bool {
        match direction {
            Direction::Inbound => self.inbound.remove(spi, target),
            Direction::Outbound => self.outbound.remove(spi, target),
        }
    }

    /// Returns what the associations have done: direction, SPI, destination.
    pub fn usages(&self) -> impl Iterator<Item = (Direction, u32, IpAddr, Usage)> {
        let inbound = self.inbound.iter().map(|one| (Direction::Inbound, one.spi, one.target, one.usage));
        let outbound = self.outbound.iter().map(|one| (Direction::Outbound, one.spi, one.target, one.usage));
        inbound.chain(outbound)
    }

    /// Returns the next event. Call it until there is none.
    pub fn next_event(&mut self) -> Option<Event> {
        if let Some(acquire) = self.acquires.iter_mut().find(|acquire| !acquire.is_reported) {
            acquire.is_reported = true;
            let &mut Acquire { reqid, local, remote, .. } = acquire;
            return Some(Event::Acquire { reqid, local, remote });
        }
        next_expired(&mut self.inbound, Direction::Inbound)
            .or_else(|| next_expired(&mut self.outbound, Direction::Outbound))
    }

    /// Returns the bytes of the largest IP packet like `packet` that fits `mtu` once it is
    /// protected, or `None` if it would not be sent. In clear that is `mtu`.
    pub fn packet_bytes_max(&mut self, packet: &[u8], mtu: usize) -> Option<usize> {
        let header = Header::parse(packet)?;
        match self.policies.action(&SelectorValues::outbound(&header, packet)?) {
            Action::Bypass => Some(mtu),
            Action::Discard => None,
            Action::Protect { reqid } => {
                Some(self.outbound.newest(reqid)?.packet_bytes_max(mtu, header.payload.start))
            }
        }
    }

    /// Asks for an association, once.
    #[cold]
    pub(crate) fn acquire(&mut self, reqid: u32, values: &SelectorValues) {
        let is_known = self.acquires.iter().any(|acquire| acquire.reqid == reqid);
        if !is_known && self.acquires.len() < self.config.policies_max {
            let SelectorValues { local, remote, .. } = *values;
            self.acquires.push(Acquire { reqid, local, remote, is_reported: false });
        }
    }

    pub(crate) fn count(&self, counter: Counter) {
        self.stats.count(counter);
    }
}

fn next_expired<K>(associations: &mut Sad<K>, direction: Direction) -> Option<Event> {
    for one in associations.iter_mut() {
        for (is_hard, limit) in [(true, &mut one.hard), (false, &mut one.soft)] {
            if *limit == Limit::Reached {
                *limit = Limit::Reported;
                return Some(Event::Expired { direction, spi: one.spi, target: one.target, is_hard });
            }
        }
    }
    None
}
