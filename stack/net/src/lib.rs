//! Ethernet, ARP, IPv4 and ICMP; routes, neighbours, and the table that finds a connection.
//!
//! Takes received frames and answers the TCP segments among them; answers ARP requests and echo requests itself;
//! gives TCP the header template that leads to a peer. One [`Net`] a core, sans-IO: time and the wire are arguments.
//!
//! Source: RFC 894 (Ethernet), RFC 826 (ARP), RFC 791 and RFC 1122 s3 (IPv4), RFC 792 (ICMP), RFC 1071 and RFC 1624
//! (checksums). Every frame is answered, learnt from, given to TCP or dropped, each under exactly one counter (TCP
//! counts its own); none can panic.
//!
//! Cost: a TCP segment takes one pass over 34 header bytes, one keyed hash, and a checksum pass where the device
//! does not verify. Everything else is cold.
#![forbid(unsafe_code)]

mod checksum;
mod config;
mod flow;
mod neighbour;
mod net;
mod pace;
mod path;
mod pmtu;
mod received;
mod route;
mod rx;
mod segment;
#[cfg(test)]
mod testing;

pub use config::{NeighbourConfig, NetConfig};
pub use flow::{FlowHasher, FlowTable, TableFull};
pub use net::Net;
pub use path::{Path, Station};
pub use received::{IcmpError, IcmpErrorKind, Received};
pub use route::Route;
pub use segment::TcpSegment;
