//! What net is started with.

use core::net::Ipv4Addr;

use ironwarp_types::{MacAddr, Nanos};

/// Our place on the network, and the limits of this layer.
#[derive(Clone)]
pub struct NetConfig {
    /// Our link address.
    pub mac: MacAddr,
    /// Our network address.
    pub addr: Ipv4Addr,
    /// Bits of `addr` that name the network; more than 32 count as 32.
    pub prefix_len: u8,
    /// Where packets for other networks go. Without one they are unreachable.
    pub gateway: Option<Ipv4Addr>,
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
}

impl NetConfig {
    /// A station with the usual limits.
    pub fn new(mac: MacAddr, addr: Ipv4Addr, prefix_len: u8, mtu_bytes: u16, hash_secret: [u64; 2]) -> Self {
        NetConfig {
            mac,
            addr,
            prefix_len,
            gateway: None,
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

impl Default for NeighbourConfig {
    /// RFC 1122 s2.3.2.1 recommends a time-out of the order of a minute, and at most one request a second to one
    /// destination.
    fn default() -> Self {
        NeighbourConfig {
            entries_max: 1_024,
            fresh_for: Nanos::from_secs(60),
            retry_every: Nanos::from_secs(1),
            tries_max: 3,
            absent_for: Nanos::from_secs(3),
        }
    }
}
