//! Ethernet, VLAN, ARP, neighbour discovery, IPv4, IPv6 and ICMP; routes, neighbours, and the table that finds a
//! connection.
//!
//! Takes received frames and answers the TCP segments among them, and what ICMP errors say about ours; answers ARP
//! requests, neighbour solicitations and echo requests itself; gives TCP the header template that leads to a peer. One
//! [`Net`] a core, sans-IO: time and the wire are arguments.
//!
//! Source: RFC 894 and RFC 2464 (Ethernet), RFC 826 and RFC 5227 (ARP), RFC 791 and RFC 1122 s3 (IPv4), RFC 8200, RFC 4861 and
//! RFC 4862 (IPv6), RFC 792 and RFC 4443 (ICMP), RFC 1191 and RFC 8201 (path MTU), RFC 1071 and RFC 1624 (checksums). Every
//! frame is answered, learnt from, given to TCP or dropped, each under exactly one counter (TCP counts its own); none can
//! panic.
//!
//! Cost: a TCP segment takes one pass over 34 or 54 header bytes, one keyed hash, and a checksum pass where the device
//! does not verify. Everything else is cold.
#![forbid(unsafe_code)]

mod checksum;
mod config;
mod core_message;
mod family;
mod flow;
mod ip;
mod link;
mod neighbour;
mod net;
mod own;
mod path;
mod pmtu;
mod rate_limit;
mod received;
mod route;
mod rx;
mod segment;
#[cfg(test)]
mod testing;

pub use config::{
    ADDRESSES_MAX, DuplicateProbes, Marking, NeighbourConfig, NetConfig, Prefix, ROUTES_MAX, StaticRoute,
};
pub use core_message::{CoreMessage, CoreRole};
pub use flow::{FlowHasher, FlowTable, Steering, TableFull};
pub use link::VlanTag;
pub use net::Net;
pub use own::AddressState;
pub use path::{Path, Station};
pub use received::{IcmpError, IcmpErrorKind, Received};
pub use route::Route;
pub use segment::TcpSegment;
