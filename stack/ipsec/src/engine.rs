//! The databases of one core, and how they are changed and watched.

use core::net::IpAddr;
use std::collections::VecDeque;

use ironwarp_crypto::SealingKey;
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::Nanos;

use crate::association::{
    AddError, Association, AssociationConfig, Endpoints, Fingerprint, KeySource, Opening, Sad, Usage,
};
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
    /// A policy has no association. The packet was dropped. Raised once, and
    /// again with a packet 30 s later, until one is added.
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
    /// Flows that lack an association: at most as many as policies.
    acquires: Vec<Acquire>,
    /// The negotiated keys of associations that were removed, the oldest first.
    retired: VecDeque<Fingerprint>,
}

struct Acquire {
    reqid: u32,
    local: IpAddr,
    remote: IpAddr,
    asked_at: Nanos,
    is_reported: bool,
}

/// How long a key exchange may take before it is asked for again. IKE gives up after minutes, and
/// does not report that here.
const ACQUIRE_AGAIN: Nanos = Nanos::from_millis(30_000);

/// Removed keys that are refused: 16 KiB, and months of associations that last an hour.
const RETIRED_MAX: usize = 1024;

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
            retired: VecDeque::with_capacity(RETIRED_MAX),
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
        let is_removed = self.policies.remove(policy);
        self.acquires.retain(|acquire| self.policies.has_reqid(acquire.reqid));
        is_removed
    }

    /// Adds an association of one direction.
    pub fn add(
        &mut self,
        now: Nanos,
        direction: Direction,
        config: AssociationConfig,
    ) -> Result<(), AddError> {
        let fingerprint = config.key.fingerprint();
        // RFC 4106 s10: one key for two associations repeats nonces, and reflects packets. So does
        // a key that comes back, and it opens its old packets again.
        if self.inbound.has_key(fingerprint)
            || self.outbound.has_key(fingerprint)
            || self.retired.contains(&fingerprint)
        {
            return Err(AddError::KeyRepeated);
        }
        let (reqid, mode) = (config.reqid, config.mode);
        if self.inbound.has_other_mode(reqid, mode) || self.outbound.has_other_mode(reqid, mode) {
            return Err(AddError::Mode);
        }
        match direction {
            Direction::Inbound => self.inbound.add(Association::inbound(config, now)?),
            Direction::Outbound => {
                let selector = config.selector.clone();
                self.outbound.add(Association::outbound(config, now)?)?;
                self.acquires.retain(|acquire| {
                    acquire.reqid != reqid || !selector.has_addresses(acquire.local, acquire.remote)
                });
                Ok(())
            }
        }
    }

    /// Moves an association to other addresses or ports, as when a NAT changes them (RFC 7296
    /// s2.23). It keeps its key, its sequence numbers and its window.
    pub fn set_endpoints(
        &mut self,
        direction: Direction,
        spi: u32,
        target: IpAddr,
        endpoints: Endpoints,
    ) -> Result<(), AddError> {
        match direction {
            Direction::Inbound => self.inbound.set_endpoints(spi, target, endpoints),
            Direction::Outbound => self.outbound.set_endpoints(spi, target, endpoints),
        }
    }

    /// Removes an association and zeroes its keys, which are refused from then on if they were
    /// negotiated. Returns whether there was one.
    pub fn remove(&mut self, direction: Direction, spi: u32, target: IpAddr) -> bool {
        let removed = match direction {
            Direction::Inbound => self.inbound.remove(spi, target),
            Direction::Outbound => self.outbound.remove(spi, target),
        };
        if let Some((fingerprint, KeySource::Negotiated)) = removed {
            if self.retired.len() == RETIRED_MAX {
                self.retired.pop_front();
            }
            self.retired.push_back(fingerprint);
        }
        removed.is_some()
    }

    /// Returns what the associations have done: direction, SPI, destination.
    pub fn usages(&self) -> impl Iterator<Item = (Direction, u32, IpAddr, Usage)> {
        self.inbound.usages().chain(self.outbound.usages())
    }

    /// Returns the next event. Call it until there is none.
    pub fn next_event(&mut self, now: Nanos) -> Option<Event> {
        if let Some(acquire) = self.acquires.iter_mut().find(|acquire| !acquire.is_reported) {
            acquire.is_reported = true;
            let &mut Acquire { reqid, local, remote, .. } = acquire;
            return Some(Event::Acquire { reqid, local, remote });
        }
        self.inbound.next_event(now).or_else(|| self.outbound.next_event(now))
    }

    /// Returns the bytes of the largest IP packet like `packet` that fits `mtu` once it is
    /// protected, or `None` if it would not be sent. In clear that is `mtu`.
    pub fn packet_bytes_max(&mut self, now: Nanos, packet: &[u8], mtu: usize) -> Option<usize> {
        let header = Header::parse(packet)?;
        let values = SelectorValues::outbound(&header, packet)?;
        match self.policies.action(&values) {
            Action::Bypass => Some(mtu),
            Action::Discard => None,
            Action::Protect { reqid } => {
                let association = self.outbound.newest(now, reqid, &values)?;
                Some(association.packet_bytes_max(mtu, header.payload.start))
            }
        }
    }

    /// Asks for an association, once in [`ACQUIRE_AGAIN`].
    #[cold]
    pub(crate) fn acquire(&mut self, now: Nanos, reqid: u32, values: &SelectorValues) {
        let flow = (reqid, values.local, values.remote);
        let is_old = |acquire: &Acquire| now.since(acquire.asked_at) >= ACQUIRE_AGAIN;
        let known = self.acquires.iter().position(|one| (one.reqid, one.local, one.remote) == flow);
        let is_full = self.acquires.len() >= self.config.policies_max;
        let place = known.or_else(|| self.acquires.iter().position(is_old).filter(|_| is_full));
        let acquire =
            Acquire { reqid, local: values.local, remote: values.remote, asked_at: now, is_reported: false };
        match place.and_then(|place| self.acquires.get_mut(place)) {
            Some(one) if is_old(one) => *one = acquire,
            Some(_) => {}
            None if is_full => {}
            None => self.acquires.push(acquire),
        }
    }

    pub(crate) fn count(&self, counter: Counter) {
        self.stats.count(counter);
    }
}
