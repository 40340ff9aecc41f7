//! Shared memory between two processes of one host: the memif protocol, version 2.0, without DPDK.
//!
//! It works with DPDK's net_memif and with VPP at the other end. [`MemifPort::open_queues`] returns
//! one port for each queue pair, and each core polls one. The server creates the socket; the client
//! owns the memory. Each may start first, end and come back: a new peer is a new link, over new
//! memory.
//!
//! The peer is not trusted. What it writes is copied once and checked before use; its memory is
//! taken only if it cannot be taken away again and all its pages exist; a peer that breaks a rule
//! is counted by reason and dropped, as is one that was killed. A received frame is copied to a
//! private buffer, so it cannot change while it is parsed. A frame to send is copied too, but for
//! the long frames of a client: they are built in its memory, where the server reads them. Those
//! buffers are apart from the rings' own, since a frame keeps its buffer until it is acknowledged:
//! when they are used up, frames are copied again, so connections that wait for acknowledgements
//! stop no other.
//!
//! Two ends of this library are one host to each other: they leave TCP checksums out, as the kernel
//! does on a veth. Each declares so in its name, and each frame says so in its descriptor. Every
//! other peer gets complete checksums, and its own are verified.
//!
//! The port has no other offloads and no interrupts: both ends poll. Source: the public `memif.h`
//! of the protocol. Cost: an idle poll is two loads; a frame is one copy at each end, and each
//! index is written once a burst.
#![allow(unsafe_code)]

mod handshake;
#[cfg(any(test, fuzzing))]
mod hostile;
mod port;
mod region;
mod ring;
mod socket;
#[cfg(test)]
mod tests;
mod wire;

use crate::pool::{PoolFrame, PoolSealed};
#[cfg(fuzzing)]
pub use hostile::{Reached, hostile_peer, hostile_rings};
pub use port::MemifPort;

/// A frame with one owner.
pub type MemifFrame = PoolFrame;

/// A frame whose bytes are fixed; clones share them.
pub type MemifSealed = PoolSealed;

use core::fmt;
use std::path::PathBuf;

use ironwarp_types::MacAddr;

/// What this end calls itself.
const NAME: &str = "ironwarp";
/// The same, if it is the last to receive what it receives. Two ends of this name leave TCP
/// checksums out: nothing between them can damage a frame.
const END_HOST_NAME: &str = "ironwarp end host";
/// The largest ring: 2^14 descriptors, as in other implementations.
const RING_LOG2_MAX: u8 = 14;
/// An Ethernet header with one VLAN tag.
const LINK_BYTES_MAX: usize = 18;
/// The most bytes of a client's memory.
const MEMORY_BYTES_MAX: usize = region::REGION_BYTES_MAX as usize;

/// The ends of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum MemifRole {
    /// Creates the socket.
    Server,
    /// Connects to it, and owns the memory.
    Client,
}

/// A secret of a link. It is not printed.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
pub struct MemifSecret(pub String);

impl fmt::Debug for MemifSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// One end of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemifConfig {
    /// The role of this end.
    pub role: MemifRole,
    /// The socket of both ends; a name that begins with `@` is abstract.
    pub socket: PathBuf,
    /// The number of the interface on that socket, the same at both ends.
    pub id: u32,
    /// What a client must know; at most 23 bytes.
    pub secret: Option<MemifSecret>,
    /// The link address of this end.
    pub mac: MacAddr,
    /// The largest network-layer packet, in bytes.
    pub mtu_bytes: u16,
    /// Bytes of one shared buffer, at least 64. A longer frame takes several.
    pub buffer_bytes: u16,
    /// Descriptors in each ring, as a power of two, 1 to 14. The client's value counts.
    pub ring_log2: u8,
    /// Private buffers for received frames, for each queue pair.
    pub rx_frames: usize,
    /// Private buffers for frames to send, for each queue pair.
    pub tx_frames: usize,
    /// Queue pairs, the same number at both ends.
    pub queues: u16,
    /// A server takes memory whose pages its client has not written yet, and pays for them. Clients
    /// of DPDK and VPP have such memory. It is for peers that may use this process's memory.
    pub sparse: bool,
    /// TCP checksums may be left out, if the other end says the same. Other implementations never
    /// do.
    pub partial_checksums: bool,
}

impl MemifConfig {
    /// Returns a server with jumbo buffers and 1024 descriptors in each ring, MTU 1500 and one
    /// queue pair.
    pub fn server(socket: impl Into<PathBuf>) -> Self {
        MemifConfig {
            role: MemifRole::Server,
            socket: socket.into(),
            id: 0,
            secret: None,
            mac: MacAddr([0x02, 0xfe, 0, 0, 0, 1]),
            mtu_bytes: 1500,
            buffer_bytes: 10_240,
            ring_log2: 10,
            rx_frames: 1024,
            tx_frames: 1024,
            queues: 1,
            sparse: false,
            partial_checksums: true,
        }
    }

    /// Returns the client of [`MemifConfig::server`].
    pub fn client(socket: impl Into<PathBuf>) -> Self {
        let mac = MacAddr([0x02, 0xfe, 0, 0, 0, 2]);
        MemifConfig { role: MemifRole::Client, mac, ..Self::server(socket) }
    }

    /// Returns what this end calls itself.
    fn name(&self) -> &'static str {
        if self.partial_checksums { END_HOST_NAME } else { NAME }
    }

    /// Returns whether this end and one of this name leave TCP checksums out.
    fn partial_checksums_with(&self, name: &[u8; 32]) -> bool {
        self.partial_checksums && *name == wire::padded(END_HOST_NAME.as_bytes())
    }

    /// Returns the bytes of a private buffer.
    fn frame_bytes(&self) -> usize {
        (usize::from(self.mtu_bytes) + LINK_BYTES_MAX).next_multiple_of(64)
    }

    /// Returns the bytes of a shared buffer, in whole cache lines.
    fn slot_bytes(&self) -> usize {
        usize::from(self.buffer_bytes).next_multiple_of(64)
    }

    fn validate(&self) -> Result<(), MemifError> {
        let secret_bytes = self.secret.as_ref().map_or(0, |secret| secret.0.len());
        let rings = usize::from(self.queues) * 2;
        let bytes =
            rings * ((self.slot_bytes() + region::DESCRIPTOR_BYTES) << self.ring_log2.min(RING_LOG2_MAX));
        let problem = if !(1..=RING_LOG2_MAX).contains(&self.ring_log2) {
            "the ring has 2 to 16384 descriptors"
        } else if self.buffer_bytes < 64 {
            "a shared buffer has at least 64 bytes"
        } else if secret_bytes > wire::SECRET_BYTES_MAX {
            "the secret has at most 23 bytes"
        } else if !(1..=255).contains(&self.queues) {
            "a link has 1 to 255 queue pairs"
        } else if self.role == MemifRole::Client && bytes > MEMORY_BYTES_MAX - (1 << 20) {
            "the shared memory is at most 1 GiB: make the rings or the buffers smaller"
        } else {
            return Ok(());
        };
        Err(MemifError::Setting(problem))
    }
}

impl MemifError {
    fn system(source: rustix::io::Errno) -> Self {
        MemifError::System(source.into())
    }
}

/// Why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum MemifError {
    /// A value is not allowed.
    #[error("memif: {0}")]
    Setting(&'static str),
    /// Another process listens at the socket.
    #[error(
        "memif: {0} is in use, another process listens there: end it, or name another socket at both ends"
    )]
    InUse(PathBuf),
    /// The system refused a descriptor or the thread of the control side.
    #[error("memif: {0}")]
    System(std::io::Error),
    /// The socket cannot be created.
    #[error("memif: the socket {path} cannot be created: {source}")]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What the system reports.
        source: std::io::Error,
    },
}
