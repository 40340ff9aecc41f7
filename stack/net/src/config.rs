//! What net is started with.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use ironwarp_types::{MacAddr, Nanos};

use crate::core_message::CoreRole;
use crate::link::VlanTag;

/// Addresses of one port, the link-local one that is made for it not counted. Every received packet is compared with
/// those of its family, the first one first.
pub const ADDRESSES_MAX: usize = 8;

/// Static routes beside the gateways. A look-up passes over all of them, once for every path.
pub const ROUTES_MAX: usize = 32;

/// An address and the bits of it that name its network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// An address in the network.
    pub addr: IpAddr,
    /// Leading bits that all addresses of the network share; more than the address has count as all.
    pub len: u8,
}

/// Packets for a network go through a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StaticRoute {
    /// The network.
    pub to: Prefix,
    /// The router: an address of the same family on a network of ours.
    pub via: IpAddr,
}

/// How often an address of ours is asked for before it is used, so that nobody else's is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DuplicateProbes {
    /// RFC 5227 s2.1.1 has 3, which takes five to nine seconds. 0, the default, announces the address at once; conflicts
    /// are counted and the address defended in any case.
    pub ipv4: u8,
    /// RFC 4862 s5.1, DupAddrDetectTransmits: 1, the default, takes one to two seconds. 0 uses addresses at once.
    pub ipv6: u8,
}

/// Our place on the network, and the limits of this layer.
#[derive(Clone)]
pub struct NetConfig {
    /// What this core has to do with ARP and neighbour discovery.
    pub role: CoreRole,
    /// The number of our port, from 0, which paths name.
    pub port: u8,
    /// Our link address.
    pub mac: MacAddr,
    /// Our network addresses with their networks. The first of a family is the usual source.
    pub addresses: ArrayVec<Prefix, ADDRESSES_MAX>,
    /// Where IPv4 packets for other networks go. Without one they are unreachable.
    pub gateway: Option<Ipv4Addr>,
    /// Where IPv6 packets for other networks go.
    pub gateway6: Option<Ipv6Addr>,
    /// Networks behind other routers. The longest prefix wins.
    pub routes: ArrayVec<StaticRoute, ROUTES_MAX>,
    /// The VLAN that we are in. Without one, tagged frames are dropped; with one, all others.
    pub vlan: Option<VlanTag>,
    /// Whether addresses are asked for before they are used.
    pub duplicate_probes: DuplicateProbes,
    /// What our TCP packets say beside their addresses.
    pub marking: Marking,
    /// The largest IP packet we send, in bytes.
    pub mtu_bytes: u16,
    /// Keys the flow hash: secret, and chosen anew by every process.
    pub hash_secret: [u64; 2],
    /// The neighbour table.
    pub neighbours: NeighbourConfig,
    /// Echo requests answered a second, on average; 0 answers none.
    pub echo_per_second: u32,
    /// Echo requests answered at once after a pause.
    pub echo_burst: u32,
    /// ICMP errors read a second, on average; 0 reads none.
    pub icmp_errors_per_second: u32,
    /// Destinations whose path MTU is remembered; at least one.
    pub path_mtus_max: u16,
}

/// What our TCP packets say beside their addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marking {
    /// Routers that a packet may pass. RFC 1122 s3.2.1.7 asks for a settable number; 64 is the usual one.
    pub hop_limit: u8,
    /// The differentiated services code point, 0 to 63 (RFC 2474 s3; RFC 9293 s3.9.2.2).
    pub dscp: u8,
}

impl Default for Marking {
    fn default() -> Self {
        Marking { hop_limit: crate::ip::HOP_LIMIT, dscp: 0 }
    }
}

impl Marking {
    /// The type of service or traffic class, without congestion bits.
    pub(crate) fn class(self) -> u8 {
        self.dscp << 2
    }
}

/// The neighbour table's limits and times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighbourConfig {
    /// Neighbours remembered, asked ones included: 1 to 65 536, and brought into that range.
    pub entries_max: u32,
    /// How long an answer is believed. After it a neighbour in use is asked again, the others are forgotten.
    pub fresh_for: Nanos,
    /// The time between two requests to one neighbour.
    pub retry_every: Nanos,
    /// Requests without an answer after which a neighbour counts as absent. At least one.
    pub tries_max: u8,
    /// How long an absent neighbour is not asked again.
    pub absent_for: Nanos,
    /// How long a neighbour that is used, but has not answered us itself, is believed before it is asked.
    pub doubt_after: Nanos,
}

impl NetConfig {
    /// A station with the usual limits and one address.
    pub fn new(
        mac: MacAddr,
        addr: impl Into<IpAddr>,
        prefix_len: u8,
        mtu_bytes: u16,
        hash_secret: [u64; 2],
    ) -> Self {
        NetConfig {
            role: CoreRole::Single,
            port: 0,
            mac,
            addresses: ArrayVec::from_iter([Prefix { addr: addr.into(), len: prefix_len }]),
            gateway: None,
            gateway6: None,
            routes: ArrayVec::new(),
            vlan: None,
            duplicate_probes: DuplicateProbes::default(),
            marking: Marking::default(),
            mtu_bytes,
            hash_secret,
            neighbours: NeighbourConfig::default(),
            echo_per_second: 1_000,
            echo_burst: 100,
            icmp_errors_per_second: 1_000,
            path_mtus_max: 256,
        }
    }
}

impl Default for DuplicateProbes {
    fn default() -> Self {
        DuplicateProbes { ipv4: 0, ipv6: 1 }
    }
}

impl Default for NeighbourConfig {
    /// RFC 1122 s2.3.2.1 recommends a time-out of the order of a minute, and at most one request a second to one
    /// destination; RFC 4861 s10 the same second, three requests, and five seconds of doubt.
    fn default() -> Self {
        NeighbourConfig {
            entries_max: 1_024,
            fresh_for: Nanos::from_secs(60),
            retry_every: Nanos::from_secs(1),
            tries_max: 3,
            absent_for: Nanos::from_secs(3),
            doubt_after: Nanos::from_secs(5),
        }
    }
}
