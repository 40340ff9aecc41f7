//! Ethernet, VLAN, ARP, neighbour discovery, IPv4, IPv6 and ICMP, with routes, neighbours and the
//! table that maps a flow to its connection.
//!
//! Takes received frames. Returns the packets of one transport among them and the ICMP errors about
//! ours. Replies to ARP requests, neighbour solicitations and echo requests itself. Gives the
//! transport the header template of the route to a peer. Which protocol it is, is data
//! ([`TransportProtocol`]); only fast frames and the writer of headers know TCP. Each core has one
//! [`Net`] per port. The crate is sans-IO: the time and the wire are arguments.
//!
//! Source: RFC 894 and RFC 2464 (Ethernet), RFC 826 and RFC 5227 (ARP), RFC 791 and RFC 1122 s3
//! (IPv4), RFC 8200, RFC 4861 and RFC 4862 (IPv6), RFC 792 and RFC 4443 (ICMP), RFC 1191 and
//! RFC 8201 (path MTU), RFC 1071 and RFC 1624 (checksums).
//!
//! No frame can cause a panic. Each frame is replied to, used for an update, returned or dropped,
//! and exactly one counter counts it, unless it is returned: then the transport counts it.
//!
//! Cost: a TCP segment takes one pass over 34 or 54 header bytes, one keyed hash, and a checksum
//! pass if the device does not verify checksums. Everything else is off the data path.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod address_table;
mod checksum;
mod config;
mod core_message;
mod family;
mod flow;
mod ip;
mod link;
mod local_addresses;
mod neighbour;
mod net;
mod packet;
mod path;
mod pmtu;
mod rate_limit;
mod received;
mod route;
mod rx;
mod tcp_header;
#[cfg(test)]
mod testing;

pub use config::{
    ADDRESSES_MAX, DuplicateProbes, IpHeaderDefaults, NeighbourConfig, NetConfig, Prefix, ROUTES_MAX,
    StaticRoute, TransportProtocol,
};
pub use core_message::{CoreMessage, CoreRole};
pub use flow::{FlowHasher, FlowTable, Steering, TableFull};
pub use link::VlanTag;
pub use net::Net;
pub use packet::Packet;
#[cfg(test)]
pub(crate) use path::Station;
pub use path::{FAST_HEADER_BYTES, Path, TxSegment};
pub use rate_limit::RateLimiter;
pub use received::{IcmpError, IcmpErrorKind, Received};
pub use route::Route;
pub use rx::FastFrame;
pub use tcp_header::{TCP_HEADER_BYTES, TIMESTAMPS_BYTES, TIMESTAMPS_HEAD, TcpFlags, Timestamps, TxHeader};
