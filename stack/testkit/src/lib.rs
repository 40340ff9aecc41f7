//! Packets that are built and read octet by octet, from Ethernet to RDMAP.
//!
//! For tests and for the hostile hosts of the simulator. Every field may have
//! any value, checksums and lengths too. Nothing here uses an encoder of the stack, so that a wrong
//! encoder cannot hide itself.
//!
//! [`Route`] builds frames, [`Segment`] TCP segments, [`mpa`] start-up frames and FPDUs, [`rdmap`]
//! messages. [`Conn`] is one end of a TCP connection that a script drives. [`messages`] is a
//! transport of its own.
#![forbid(unsafe_code)]

mod conn;
mod frame;
pub mod messages;
pub mod mpa;
pub mod rdmap;
mod segment;

pub use conn::{Conn, ConnState, Frames, WINDOW_BYTES};
pub use frame::{ICMP, ICMP6, Route, TCP, checksum, pseudo_header, repair};
pub use segment::{ACK, FIN, PSH, RST, SYN, Segment, URG};
