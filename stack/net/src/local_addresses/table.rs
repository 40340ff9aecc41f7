//! The states of the local addresses: probed if configured, then used, announced and defended.
//!
//! ```text
//!               link up                  no reply
//!   NotStarted ---------> Probing{left} -----------> Usable{announcements left}
//!       |                     | conflict                 | conflict: defended, at most once in 10 s
//!       '- no probes: Usable  '-> Duplicate              '
//! ```
//! Two short lists hold the usable addresses. Received packets are compared with these only.
//!
//! IPv4 addresses are announced and defended (RFC 5227). They are probed only if
//! `net.dad_probes_ipv4` is set, because probing takes five to nine seconds. IPv6 addresses are
//! probed by default (RFC 4862), which takes one to two seconds. An address that another station
//! has is not used; `net_addresses_duplicate` counts it.
//!
//! Source: RFC 5227 (IPv4), RFC 4862 s5.4 (IPv6). The time is an argument; messages go out through
//! a closure.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use ironwarp_types::Nanos;

use crate::config::{ADDRESSES_MAX, DuplicateProbes, NetConfig, Prefix};
use crate::family::{is_link_local, shares_prefix, solicited_node};
use crate::flow::FlowHasher;
use crate::link;

/// The configured addresses and one link-local address.
pub(crate) const LOCAL_ADDRESSES_MAX: usize = ADDRESSES_MAX + 1;

/// RFC 5227 s1.1 (ANNOUNCE_NUM). RFC 4861 s7.2.6 allows three.
const ANNOUNCEMENTS: u8 = 2;
/// RFC 5227 s1.1: ANNOUNCE_INTERVAL and ANNOUNCE_WAIT.
const ANNOUNCE_INTERVAL: Nanos = Nanos::from_secs(2);
/// RFC 5227 s1.1: PROBE_MIN; RFC 4861 s10: RETRANS_TIMER.
const PROBE_INTERVAL: Nanos = Nanos::from_secs(1);
/// RFC 5227 s1.1: DEFEND_INTERVAL.
const DEFEND_INTERVAL: Nanos = Nanos::from_secs(10);

/// The state of a local address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AddressState {
    /// Not in use yet: it is being probed, or the link is not up.
    Tentative,
    /// In use.
    Usable,
    /// Not in use: another station has it.
    Duplicate,
}

/// A message of address conflict detection (RFC 5227, RFC 4862) to all stations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AcdMessage {
    /// Asks whether another station has the address.
    Probe,
    /// Says that we use the address.
    Announcement,
}

/// The result of [`LocalAddresses::on_conflict`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConflictOutcome {
    /// The address is not ours.
    NotLocal,
    /// We give the address up.
    GivenUp,
    /// We announce the address again.
    Defended,
    /// We defended the address less than ten seconds ago, or do not use it yet.
    Ignored,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    NotStarted,
    Probing { left: u8 },
    Usable { announcements: u8 },
    Duplicate,
}

struct LocalAddress {
    prefix: Prefix,
    state: State,
    due: Nanos,
    /// The address is not defended before this time.
    defend_after: Nanos,
}

/// A usable IPv4 address.
#[derive(Clone, Copy)]
struct UsableV4 {
    addr: Ipv4Addr,
    /// The two broadcast addresses of its network, as bits. 0 if the prefix leaves no room for them
    /// (RFC 3021).
    broadcasts: [u32; 2],
}

const NO_ADDRESS_V4: UsableV4 = UsableV4 { addr: Ipv4Addr::UNSPECIFIED, broadcasts: [0; 2] };

impl UsableV4 {
    fn new(addr: Ipv4Addr, prefix_len: u8) -> Self {
        let host_mask = u32::MAX.checked_shr(prefix_len.into()).unwrap_or(0);
        let bits = addr.to_bits();
        let broadcasts = if host_mask > 1 { [bits & !host_mask, bits | host_mask] } else { [0; 2] };
        UsableV4 { addr, broadcasts }
    }

    #[inline]
    fn is_broadcast(&self, bits: u32) -> bool {
        self.broadcasts.contains(&bits)
    }
}

/// All addresses of a port.
pub(crate) struct LocalAddresses {
    /// The first usable address, nearly always the only one.
    primary_v4: UsableV4,
    /// The bits of the primary address. `u64::MAX`, which no address equals, if there is none.
    primary_v4_key: u64,
    /// The other usable addresses.
    secondary_v4: ArrayVec<UsableV4, ADDRESSES_MAX>,
    usable_v6: ArrayVec<Ipv6Addr, LOCAL_ADDRESSES_MAX>,
    all: ArrayVec<LocalAddress, LOCAL_ADDRESSES_MAX>,
    probes: DuplicateProbes,
    hasher: FlowHasher,
    next_due: Nanos,
}

impl LocalAddresses {
    /// Returns the configured addresses, and a link-local one if there is IPv6 and none is
    /// configured. Addresses without probes are usable at once.
    pub(crate) fn new(cfg: &NetConfig, hasher: FlowHasher) -> Self {
        let mut addresses = LocalAddresses {
            primary_v4: NO_ADDRESS_V4,
            primary_v4_key: u64::MAX,
            secondary_v4: ArrayVec::new(),
            usable_v6: ArrayVec::new(),
            all: ArrayVec::new(),
            probes: cfg.duplicate_probes,
            hasher,
            next_due: Nanos::MAX,
        };
        let has_ipv6 = cfg.addresses.iter().any(|prefix| prefix.addr.is_ipv6());
        let has_link_local = cfg.addresses.iter().any(|prefix| is_link_local(prefix.addr));
        let link_local = Prefix { addr: link::link_local(cfg.mac).into(), len: 64 };
        let generated = (has_ipv6 && !has_link_local).then_some(link_local);
        for prefix in cfg.addresses.iter().copied().chain(generated) {
            if addresses.probes_for(prefix.addr) == 0 {
                addresses.add_usable(prefix);
            }
            let state = State::NotStarted;
            // The capacity includes the generated address, so the push succeeds.
            let _ = addresses.all.try_push(LocalAddress {
                prefix,
                state,
                due: Nanos::MAX,
                defend_after: Nanos::ZERO,
            });
        }
        addresses
    }

    fn probes_for(&self, addr: IpAddr) -> u8 {
        if addr.is_ipv4() { self.probes.ipv4 } else { self.probes.ipv6 }
    }

    /// Starts to accept packets for the address.
    fn add_usable(&mut self, prefix: Prefix) {
        // The lists have room for all addresses, so the pushes succeed.
        match prefix.addr {
            IpAddr::V4(addr) if self.primary_v4.addr.is_unspecified() => {
                self.primary_v4 = UsableV4::new(addr, prefix.len);
                self.primary_v4_key = addr.to_bits().into();
            }
            IpAddr::V4(addr) => {
                let _ = self.secondary_v4.try_push(UsableV4::new(addr, prefix.len));
            }
            IpAddr::V6(addr) => {
                let _ = self.usable_v6.try_push(addr);
            }
        }
    }

    /// Returns whether the address is a usable local one.
    #[inline]
    pub(crate) fn has_v4(&self, addr: Ipv4Addr) -> bool {
        u64::from(addr.to_bits()) == self.primary_v4_key || self.is_secondary_v4(addr)
    }

    #[inline]
    fn is_secondary_v4(&self, addr: Ipv4Addr) -> bool {
        !self.secondary_v4.is_empty() && self.secondary_v4.iter().any(|local| local.addr == addr)
    }

    /// Returns whether segments of a connection are acceptable: they come from an address that is
    /// not ours, to a usable address of ours. The remote address was unicast when the connection
    /// was opened.
    #[inline(always)]
    pub(crate) fn accepts_connected_v4(&self, remote: Ipv4Addr, local: Ipv4Addr) -> bool {
        if remote == self.primary_v4.addr {
            return false;
        }
        let to_primary = u64::from(local.to_bits()) == self.primary_v4_key;
        match self.secondary_v4.is_empty() {
            true => to_primary,
            false => self.accepts_secondary(remote, local, to_primary),
        }
    }

    /// The rest of [`LocalAddresses::accepts_connected_v4`] if there are secondary addresses.
    #[inline(never)]
    fn accepts_secondary(&self, remote: Ipv4Addr, local: Ipv4Addr, to_primary: bool) -> bool {
        !self.is_secondary_v4(remote)
            && self.is_unicast_v4(remote)
            && (to_primary || self.is_secondary_v4(local))
    }

    /// Returns whether the address is a usable local one.
    #[inline]
    pub(crate) fn has_v6(&self, addr: Ipv6Addr) -> bool {
        self.usable_v6.contains(&addr)
    }

    /// Returns whether the address is a usable local one.
    pub(crate) fn has(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(v4) => self.has_v4(v4),
            IpAddr::V6(v6) => self.has_v6(v6),
        }
    }

    /// Returns whether the address is unicast (RFC 1122 s3.2.1.3). The two broadcast addresses of a
    /// local network are not, unless its prefix leaves no room for them (RFC 3021).
    #[inline]
    pub(crate) fn is_unicast_v4(&self, addr: Ipv4Addr) -> bool {
        let bits = addr.to_bits();
        // 1.0.0.0 to 223.255.255.255, without 127/8.
        let valid = bits.wrapping_sub(1 << 24) < 223 << 24 && bits >> 24 != 127;
        valid
            && !self.primary_v4.is_broadcast(bits)
            && !self.secondary_v4.iter().any(|local| local.is_broadcast(bits))
    }

    /// Returns whether there is an IPv6 address, in use or not.
    pub(crate) fn has_ipv6(&self) -> bool {
        self.all.iter().any(|local| local.prefix.addr.is_ipv6())
    }

    /// Returns whether a port with these addresses must receive the multicast address
    /// (RFC 4861 s7.2.1, RFC 4862 s5.4.2).
    pub(crate) fn in_group(&self, group: Ipv6Addr) -> bool {
        let solicits =
            |local: &LocalAddress| matches!(local.prefix.addr, IpAddr::V6(v6) if solicited_node(v6) == group);
        group == crate::family::ALL_NODES || self.all.iter().any(solicits)
    }

    /// Returns all addresses with their networks and states, in the configured order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Prefix, AddressState)> + '_ {
        self.all.iter().map(|local| (local.prefix, self.state(local)))
    }

    fn state(&self, local: &LocalAddress) -> AddressState {
        match local.state {
            State::NotStarted if self.has(local.prefix.addr) => AddressState::Usable,
            State::NotStarted | State::Probing { .. } => AddressState::Tentative,
            State::Usable { .. } => AddressState::Usable,
            State::Duplicate => AddressState::Duplicate,
        }
    }

    /// Returns the state of a local address, or `None` if the address is not local.
    pub(crate) fn state_of(&self, addr: IpAddr) -> Option<AddressState> {
        self.all.iter().find(|local| local.prefix.addr == addr).map(|local| self.state(local))
    }

    /// Returns whether the address is on a local network.
    pub(crate) fn is_on_link(&self, addr: IpAddr) -> bool {
        self.all.iter().any(|local| shares_prefix(local.prefix.addr, addr, local.prefix.len))
    }

    /// Starts to probe or to announce the addresses.
    pub(crate) fn on_link_up(&mut self, now: Nanos) {
        for at in 0..self.all.len() {
            let Some(local) = self.all.get(at) else { break };
            let addr = local.prefix.addr;
            let left = self.probes_for(addr);
            let (state, due) = match left {
                0 => (State::Usable { announcements: ANNOUNCEMENTS }, now),
                // RFC 5227 s2.1.1, RFC 4862 s5.4.2: hosts that start together do not probe
                // together.
                _ => (State::Probing { left }, now + self.jitter(addr, left)),
            };
            self.set(at, state, due);
        }
    }

    /// Applies the state of an address that the leader core found. Returns whether it is new here.
    pub(crate) fn set_state(&mut self, addr: IpAddr, state: AddressState) -> bool {
        let Some((at, local)) = self.all.iter().enumerate().find(|(_, local)| local.prefix.addr == addr)
        else {
            return false;
        };
        let prefix = local.prefix;
        if self.state(local) == state {
            return false;
        }
        match state {
            AddressState::Usable => {
                self.add_usable(prefix);
                self.set(at, State::Usable { announcements: 0 }, Nanos::MAX);
            }
            AddressState::Duplicate => self.set(at, State::Duplicate, Nanos::MAX),
            AddressState::Tentative => {}
        }
        true
    }

    /// Returns the time from which [`LocalAddresses::on_due`] has work to do.
    pub(crate) fn next_due(&self) -> Nanos {
        self.next_due
    }

    /// Sends the due probes and announcements through `send`. Returns how many addresses became
    /// usable.
    pub(crate) fn on_due(&mut self, now: Nanos, mut send: impl FnMut(AcdMessage, IpAddr)) -> u32 {
        let mut usable = 0;
        self.next_due = Nanos::MAX;
        for at in 0..self.all.len() {
            let Some(local) = self.all.get(at) else { break };
            let (prefix, due) = (local.prefix, local.due);
            if due > now {
                self.next_due = self.next_due.min(due);
                continue;
            }
            match local.state {
                State::Probing { left: 0 } => {
                    self.add_usable(prefix);
                    usable += 1;
                    send(AcdMessage::Announcement, prefix.addr);
                    self.set(at, State::Usable { announcements: ANNOUNCEMENTS - 1 }, now + ANNOUNCE_INTERVAL);
                }
                State::Probing { left } => {
                    send(AcdMessage::Probe, prefix.addr);
                    let left = left - 1;
                    self.set(at, State::Probing { left }, now + self.probe_wait(prefix.addr, left));
                }
                State::Usable { announcements } => {
                    send(AcdMessage::Announcement, prefix.addr);
                    let announcements = announcements.saturating_sub(1);
                    let due = if announcements == 0 { Nanos::MAX } else { now + ANNOUNCE_INTERVAL };
                    self.set(at, State::Usable { announcements }, due);
                }
                State::NotStarted | State::Duplicate => self.set(at, local.state, Nanos::MAX),
            }
        }
        usable
    }

    /// Returns the time from a probe to the next step. `left` is the number of further probes.
    fn probe_wait(&self, addr: IpAddr, left: u8) -> Nanos {
        match (addr, left) {
            (IpAddr::V6(_), _) => PROBE_INTERVAL,
            (IpAddr::V4(_), 0) => ANNOUNCE_INTERVAL,
            (IpAddr::V4(_), _) => PROBE_INTERVAL + self.jitter(addr, left),
        }
    }

    /// Returns less than a second, different for each address, host and step.
    fn jitter(&self, addr: IpAddr, step: u8) -> Nanos {
        let bits = self.hasher.hash_addr(addr).rotate_left(step.into());
        Nanos((u64::from(bits) * 1_000_000_000) >> 32)
    }

    /// Handles another station's claim to an address that may be ours (RFC 5227 s2.1.1 and s2.4,
    /// RFC 4862 s5.4.3 and s5.4.4). A tentative address is given up. A usable one is kept and
    /// announced again, but at most once in ten seconds, because connections use it (RFC 5227 s2.4
    /// (c)).
    pub(crate) fn on_conflict(&mut self, now: Nanos, addr: IpAddr) -> ConflictOutcome {
        let in_use = self.has(addr);
        let found = self.all.iter_mut().enumerate().find(|(_, local)| local.prefix.addr == addr);
        let Some((at, local)) = found else { return ConflictOutcome::NotLocal };
        match local.state {
            State::Probing { .. } => {
                self.set(at, State::Duplicate, Nanos::MAX);
                ConflictOutcome::GivenUp
            }
            State::Usable { .. } | State::NotStarted if in_use && now >= local.defend_after => {
                local.defend_after = now + DEFEND_INTERVAL;
                ConflictOutcome::Defended
            }
            State::Usable { .. } | State::NotStarted => ConflictOutcome::Ignored,
            // The other station has it and is a neighbour like any other.
            State::Duplicate => ConflictOutcome::NotLocal,
        }
    }

    fn set(&mut self, at: usize, state: State, due: Nanos) {
        self.next_due = self.next_due.min(due);
        if let Some(local) = self.all.get_mut(at) {
            (local.state, local.due) = (state, due);
        }
    }
}
