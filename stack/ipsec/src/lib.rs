//! IPsec: ESP (RFC 4303) with the policies of RFC 4301, over IPv4 and IPv6, in UDP too (RFC 3948).
//!
//! Takes whole IP packets and the time. Gives IP packets: a protected one in a second buffer, an
//! opened one in its own. Sans-IO, as the transports are; each core has one [`Ipsec`], and an
//! association lives on one core, so that its packets arrive nearly in order.
//!
//! | part | what |
//! | --- | --- |
//! | policies | in order, by prefix, protocol and ports: protect, bypass, discard; without one, discard |
//! | associations | transport and tunnel mode, keys by a key exchange or, for tests, static |
//! | sequence numbers | 32 and 64 bits, a window of 32 to 4096 packets, no wrap |
//! | limits | in packets, bytes and time, each soft with an event and hard with an end |
//! | not here | the key exchange, AH, reassembly, multicast, ICMP types as selectors |
//!
//! What can fail: every packet that does not pass is dropped and counted by one counter. Until its
//! integrity check value is right it changes nothing else; then it moves the window, and counts for
//! its association. A protected flow never falls back to clear text.
//!
//! Nothing allocates but what adds to a table or removes from it; tables are bounded by
//! [`IpsecConfig`]. Lookups are linear in them.
//!
//! The modules, in the order in which a packet passes them: `policy`, `association`, `outbound`;
//! `inbound`, `replay`. `port` puts them around a port, `ip` has the headers, `engine` the
//! interface of the tables.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod association;
mod engine;
mod inbound;
mod ip;
mod outbound;
mod policy;
mod port;
mod replay;

pub use association::{
    AddError, AssociationConfig, Endpoints, KeySource, Lifetime, Mode, UdpEncapsulation, Usage,
};
pub use engine::{Direction, Event, Ipsec, IpsecConfig};
pub use inbound::Inbound;
pub use ironwarp_crypto::{AesBits, Hmac, KeyMaterial, Suite};
pub use outbound::Outbound;
pub use policy::{Action, Policy, Prefix, Selector};
pub use port::{OVERHEAD_BYTES_MAX, SecurePort};

/// Pad length and next header.
const TRAILER_BYTES: usize = 2;
/// RFC 768.
const UDP_BYTES: usize = 8;
