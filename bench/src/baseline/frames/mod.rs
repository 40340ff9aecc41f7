//! Raw frames over a [`Port`](ironwarp_port::Port): the floor of every latency, the ceiling of every bandwidth.
//!
//! A message is sent as frames of an EtherType reserved for experiments (IEEE 802, 0x88b5), each with at most an MTU of
//! payload. The ends touch only the header and the first bytes of the payload, so the figures are those of the device
//! and the two cores. Other frames are dropped.
//!
//! Layout of a frame: destination (broadcast), source, EtherType, kind (1 byte), unused (1 byte), sequence number
//! (8 bytes, big-endian), payload as the buffer held it.

mod echo;
mod format;
mod send_frames;

pub use echo::{echo, latency};
pub use format::Layout;
pub use send_frames::{Sent, one_core_transfer, receive_frames, send_frames};

#[cfg(test)]
mod tests;
