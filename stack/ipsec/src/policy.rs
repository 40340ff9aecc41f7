//! The security policy database: which packets are protected, pass or are dropped.
//!
//! Source: RFC 4301 s4.4.1. Policies are in order, and the first that matches decides; without one
//! the packet is dropped (RFC 4301 s5.2). A policy names local and remote, so it applies to both
//! directions. A lookup is linear in the policies.

use core::net::IpAddr;
use core::ops::RangeInclusive;

use crate::ip::{self, Header};

/// Addresses that share their first bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// An address of the prefix.
    pub addr: IpAddr,
    /// Leading bits that count: at most 32 or 128.
    pub bits: u8,
}

/// What a packet must have for a policy to apply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selector {
    /// Our addresses.
    pub local: Prefix,
    /// The peer's addresses.
    pub remote: Prefix,
    /// The protocol behind the IP headers, or any.
    pub protocol: Option<u8>,
    /// Our ports. The whole range matches packets without ports, too.
    pub local_ports: RangeInclusive<u16>,
    /// The peer's ports.
    pub remote_ports: RangeInclusive<u16>,
}

/// What a policy does with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It passes by an association with this request identifier, and no other way.
    Protect {
        /// What links policies to associations, as in Linux.
        reqid: u32,
    },
    /// It passes in clear.
    Bypass,
    /// It is dropped.
    Discard,
}

/// A policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Which packets.
    pub selector: Selector,
    /// What becomes of them.
    pub action: Action,
}

/// The fields of a packet that selectors compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SelectorValues {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    pub(crate) protocol: u8,
    /// Local and remote, of TCP, UDP and SCTP.
    pub(crate) ports: Option<(u16, u16)>,
}

const ALL_PORTS: RangeInclusive<u16> = 0..=u16::MAX;

impl Prefix {
    /// The prefix of one address.
    pub const fn host(addr: IpAddr) -> Self {
        Prefix { addr, bits: if addr.is_ipv4() { 32 } else { 128 } }
    }

    fn contains(&self, addr: IpAddr) -> bool {
        let common = match (self.addr, addr) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => return false,
        };
        common >= u32::from(self.bits)
    }

    fn is_valid(&self) -> bool {
        self.bits <= Prefix::host(self.addr).bits
    }
}

impl Selector {
    /// Returns the selector of every packet between two prefixes.
    pub const fn between(local: Prefix, remote: Prefix) -> Self {
        Selector { local, remote, protocol: None, local_ports: ALL_PORTS, remote_ports: ALL_PORTS }
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.local.is_valid()
            && self.remote.is_valid()
            && self.local.addr.is_ipv4() == self.remote.addr.is_ipv4()
            && !self.local_ports.is_empty()
            && !self.remote_ports.is_empty()
            && (self.has_all_ports() || self.protocol.is_none_or(ip::has_ports))
    }

    fn has_all_ports(&self) -> bool {
        self.local_ports == ALL_PORTS && self.remote_ports == ALL_PORTS
    }

    /// Whether packets between two addresses may match.
    pub(crate) fn has_addresses(&self, local: IpAddr, remote: IpAddr) -> bool {
        self.local.contains(local) && self.remote.contains(remote)
    }

    pub(crate) fn matches(&self, values: &SelectorValues) -> bool {
        let ports_match = match values.ports {
            Some((local, remote)) => self.local_ports.contains(&local) && self.remote_ports.contains(&remote),
            None => self.has_all_ports(),
        };
        self.protocol.is_none_or(|protocol| protocol == values.protocol)
            && ports_match
            && self.has_addresses(values.local, values.remote)
    }
}

impl SelectorValues {
    /// Returns those of a packet that we send, or `None` if its ports are missing.
    pub(crate) fn outbound(header: &Header, packet: &[u8]) -> Option<Self> {
        let ports = header.ports(packet)?;
        Some(SelectorValues { local: header.source, remote: header.target, protocol: header.protocol, ports })
    }

    /// Returns those of a packet that we received.
    pub(crate) fn inbound(header: &Header, packet: &[u8]) -> Option<Self> {
        let ports = header.ports(packet)?.map(|(source, target)| (target, source));
        Some(SelectorValues { local: header.target, remote: header.source, protocol: header.protocol, ports })
    }
}

/// The policies in their order.
pub(crate) struct Spd {
    policies: Vec<Policy>,
    max: usize,
}

impl Spd {
    pub(crate) fn new(max: usize) -> Self {
        Spd { policies: Vec::with_capacity(max), max }
    }

    /// Inserts a policy ahead of that at `position`, or last. Returns whether there was room.
    pub(crate) fn insert(&mut self, position: usize, policy: Policy) -> bool {
        let has_room = self.policies.len() < self.max;
        if has_room {
            self.policies.insert(position.min(self.policies.len()), policy);
        }
        has_room
    }

    pub(crate) fn remove(&mut self, policy: &Policy) -> bool {
        let found = self.policies.iter().position(|one| one == policy);
        found.map(|position| self.policies.remove(position)).is_some()
    }

    pub(crate) fn has_reqid(&self, reqid: u32) -> bool {
        self.policies.iter().any(|policy| policy.action == Action::Protect { reqid })
    }

    /// RFC 4301 s4.4.1: what matches no policy is discarded.
    pub(crate) fn action(&self, values: &SelectorValues) -> Action {
        let found = self.policies.iter().find(|policy| policy.selector.matches(values));
        found.map_or(Action::Discard, |policy| policy.action)
    }
}
