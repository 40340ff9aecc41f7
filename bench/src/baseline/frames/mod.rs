//! Raw frames over a [`Port`](ironwarp_port::Port): the floor of every latency, the ceiling of every bandwidth.
//!
//! A message of N bytes goes as frames of an EtherType kept for experiments (IEEE 802, 0x88b5), each with at most
//! an MTU of payload. The programs touch the header and the first bytes of the payload and nothing else, so that
//! what is measured is the device and the two cores. Frames of anybody else are dropped.
//!
//! Layout of a frame: destination (broadcast), source, EtherType, kind (1 byte), 1 byte free, sequence number
//! (8 bytes, big-endian), payload as the buffer held it.

mod echo;
mod format;
mod one_core_transfer;
mod send_frames;

pub use echo::{echo, latency};
pub use format::Layout;
pub use one_core_transfer::one_core_transfer;
pub use send_frames::{Sent, receive_frames, send_frames};

#[cfg(test)]
mod tests;
