//! The configuration of [`Net`](crate::Net).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use ironwarp_types::{MacAddr, Nanos};

use crate::core_message::CoreRole;
use crate::link::VlanTag;

/// The maximum number of configured addresses of one port. Each received packet is compared with
/// the addresses of its family, in the configured order. A generated link-local address is not
/// counted.
pub const ADDRESSES_MAX: usize = 8;

/// The maximum number of static routes, without the gateways. A look-up scans all of them, once for
/// each path.
pub const ROUTES_MAX: usize = 32;

/// An address and the length of its network prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// An address in the network.
    pub addr: IpAddr,
    /// The number of leading bits that all addresses of the network share. Larger values mean all
    /// bits of the address.
    pub len: u8,
}

/// A route to a network through a router.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StaticRoute {
    /// The destination network.
    pub to: Prefix,
    /// The router: an address of the same family on one of our networks.
    pub via: IpAddr,
}

/// How many probes are sent for a local address before it is used (duplicate address detection).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DuplicateProbes {
    /// RFC 5227 s2.1.1 has 3, which takes five to nine seconds. 0, the default, announces the
    /// address at once. In both cases conflicts are counted and the address is defended.
    pub ipv4: u8,
    /// RFC 4862 s5.1, DupAddrDetectTransmits: 1, the default, takes one to two seconds. 0 uses
    /// addresses at once.
    pub ipv6: u8,
}

/// Addresses and limits of one port.
#[derive(Clone)]
pub struct NetConfig {
    /// The role of this core in ARP and neighbour discovery.
    pub role: CoreRole,
    /// The number of the port, from 0. Paths contain it.
    pub port: u8,
    /// The local link address.
    pub mac: MacAddr,
    /// The local addresses with their networks. The first of a family is the usual source address.
    pub addresses: ArrayVec<Prefix, ADDRESSES_MAX>,
    /// The router for IPv4 packets to other networks. Without one they are unreachable.
    pub gateway: Option<Ipv4Addr>,
    /// The router for IPv6 packets to other networks. Without one they are unreachable.
    pub gateway6: Option<Ipv6Addr>,
    /// Networks behind other routers. The longest prefix wins.
    pub routes: ArrayVec<StaticRoute, ROUTES_MAX>,
    /// The VLAN of the port. With `None` tagged frames are dropped, otherwise frames of no VLAN or
    /// of another one.
    pub vlan: Option<VlanTag>,
    /// Duplicate address detection.
    pub duplicate_probes: DuplicateProbes,
    /// The protocol whose packets are received and sent.
    pub transport: TransportProtocol,
    /// Another one whose packets are received, too. Its transport puts its number into paths.
    pub other_transport: Option<TransportProtocol>,
    /// The UDP port whose packets hold packets of the transport, of the other one if there is one
    /// (RFC 6951). 0: none.
    pub udp_port: u16,
    /// Hop limit and DSCP of the transport's packets.
    pub ip_header: IpHeaderDefaults,
    /// The largest IP packet that is sent, in bytes.
    pub mtu_bytes: u16,
    /// The key of the flow hash. It is secret, and each process draws a new one.
    pub hash_secret: [u64; 2],
    /// Limits and timers of the neighbour table.
    pub neighbours: NeighbourConfig,
    /// Echo requests that are replied to per second, on average. 0 disables replies.
    pub echo_per_second: u32,
    /// Echo requests that are replied to in one burst.
    pub echo_burst: u32,
    /// ICMP errors that are read per second, on average. 0 ignores all of them.
    pub icmp_errors_per_second: u32,
    /// The capacity of the path MTU cache in destinations, at least 1.
    pub path_mtus_max: u16,
    /// Reads and writes the headers of fast segments at fixed offsets. Off: every frame takes the
    /// general path, with the same results.
    pub fast_path: bool,
}

/// What IP must know of a transport. Its header begins with the two ports and a word that ICMP
/// errors are compared by, as TCP's, SCTP's and UDP's do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportProtocol {
    /// The number in the IP header.
    pub number: u8,
    /// The length of the shortest header in bytes. Shorter packets are dropped.
    pub header_bytes_min: u8,
    /// Packets have the Internet checksum, which covers the pseudo-header. Otherwise the transport
    /// verifies its own.
    pub has_internet_checksum: bool,
}

impl TransportProtocol {
    /// RFC 9293 s3.1.
    pub const TCP: Self = TransportProtocol { number: 6, header_bytes_min: 20, has_internet_checksum: true };

    /// RFC 9260 s3.1.
    pub const SCTP: Self =
        TransportProtocol { number: 132, header_bytes_min: 12, has_internet_checksum: false };
}

/// Fields of the IP header of the transport's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpHeaderDefaults {
    /// IPv4 time to live or IPv6 hop limit. RFC 1122 s3.2.1.7 requires that it can be configured;
    /// 64 is usual.
    pub hop_limit: u8,
    /// The differentiated services code point, 0 to 63 (RFC 2474 s3; RFC 9293 s3.9.2.2).
    pub dscp: u8,
}

impl Default for IpHeaderDefaults {
    fn default() -> Self {
        IpHeaderDefaults { hop_limit: crate::ip::HOP_LIMIT, dscp: 0 }
    }
}

impl IpHeaderDefaults {
    /// Returns the type of service or traffic class, with the ECN bits 0.
    pub(crate) fn traffic_class(self) -> u8 {
        self.dscp << 2
    }
}

/// Limits and timers of the neighbour table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighbourConfig {
    /// The capacity in neighbours, unresolved ones included: 1 to 65 536. Other values are clamped.
    pub entries_max: u32,
    /// How long a confirmed entry is valid. Then a neighbour in use is probed, and one that is not
    /// in use is removed.
    pub reachable_time: Nanos,
    /// The time between two requests to one neighbour.
    pub retrans_timer: Nanos,
    /// The number of requests without a reply after which a neighbour is unreachable, at least 1.
    pub solicitations_max: u8,
    /// How long no request is sent to an unreachable neighbour.
    pub failed_hold_time: Nanos,
    /// How long a neighbour that is used, but has not replied to a request, is not probed yet.
    pub delay_first_probe: Nanos,
}

impl NetConfig {
    /// Returns a configuration with one address and default limits.
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
            transport: TransportProtocol::TCP,
            other_transport: None,
            udp_port: 0,
            ip_header: IpHeaderDefaults::default(),
            mtu_bytes,
            hash_secret,
            neighbours: NeighbourConfig::default(),
            echo_per_second: 1_000,
            echo_burst: 100,
            icmp_errors_per_second: 1_000,
            path_mtus_max: 256,
            fast_path: true,
        }
    }
}

impl Default for DuplicateProbes {
    fn default() -> Self {
        DuplicateProbes { ipv4: 0, ipv6: 1 }
    }
}

impl Default for NeighbourConfig {
    /// RFC 1122 s2.3.2.1 recommends a timeout of about a minute, and at most one request per second
    /// to one destination. RFC 4861 s10 has the same second (RETRANS_TIMER), three requests
    /// (MAX_UNICAST_SOLICIT) and five seconds (DELAY_FIRST_PROBE_TIME).
    fn default() -> Self {
        NeighbourConfig {
            entries_max: 1_024,
            reachable_time: Nanos::from_secs(60),
            retrans_timer: Nanos::from_secs(1),
            solicitations_max: 3,
            failed_hold_time: Nanos::from_secs(3),
            delay_first_probe: Nanos::from_secs(5),
        }
    }
}
