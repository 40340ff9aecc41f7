//! The SCTP engine: RFC 9260, as a lower layer of DDP (RFC 5043).
//!
//! Takes received packets and the time. Gives events and frames. Each core has one [`Sctp`]. The
//! engine is sans-IO: the wire and the clock are arguments. It allocates nothing after
//! [`Sctp::new`].
//!
//! | part | state |
//! | --- | --- |
//! | formats: [`packet`] | all chunks, parameters and error causes of RFC 9260, and the adaptation layer indication of RFC 5061 |
//! | associations | set-up with state cookies, restart, collisions, packets out of the blue, shutdown, abort, HEARTBEATs |
//! | receiving | DATA of one chunk a message, unordered and ordered; TSN map, SACK, receive window |
//! | sending | messages pulled packet by packet, windows, congestion control, fast retransmit, T3-rtx |
//! | several paths | addresses in INIT and INIT ACK, confirmation, failure and return of a path |
//! | path MTU discovery | probes of HEARTBEAT and PAD, reports of routers, black holes |
//!
//! Not planned: dynamic addresses (RFC 5061 but for the indication), authentication (RFC 4895),
//! partial reliability (RFC 3758), fragments of messages: a DDP segment fits a packet.
//!
//! What can fail: an unacceptable packet or chunk is dropped and counted by one counter. An
//! association ends with exactly one of the events CLOSED, RESET, REFUSED and TIMED_OUT, and does
//! not affect others. A peer that restarts ends its association with RESET, and begins another.
//!
//! The modules, in the order in which a packet passes them: `packet` (octets to values), `engine`
//! (demultiplexing, set-up, the chunks of an association, packets without one), `association` (its
//! state), `cookie` and `secrets`, `inbound` (DATA and its SACKs), `outbound` (SACKs and what they
//! acknowledge, transmission), `paths` (windows, timers and HEARTBEATs of each), `streams`,
//! `output` (packets that are sent).
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod association;
mod config;
mod cookie;
mod engine;
mod inbound;
mod message;
mod outbound;
mod output;
pub mod packet;
mod paths;
mod secrets;
mod slot_queue;
mod streams;

pub use association::State;
pub use config::{A_RWND_BYTES_MIN, ADDRESSES_MAX, SctpConfig, SctpConfigError};
pub use engine::{AssociationInfo, PathInfo, Sctp};
pub use message::{Message, MessageHeader, UpperLayer};
pub use paths::PathState;
