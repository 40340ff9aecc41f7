//! One queue pair of one device.

use arrayvec::ArrayVec;
use ironwarp_types::MacAddr;
use ironwarp_types::limits::BURST_FRAMES;

use crate::{Frame, TxOffloads};

/// Frames moved together.
pub type Burst<T> = ArrayVec<T, BURST_FRAMES>;

/// One receive queue and one transmit queue of one device, polled by one core.
pub trait Port: 'static {
    /// The device's frame buffer.
    type Frame: Frame;

    /// What the device can do. Constant while the port runs.
    fn caps(&self) -> &PortCaps;

    /// Appends received frames to `into`, up to its remaining room. Never blocks.
    fn rx_burst(&mut self, into: &mut Burst<Self::Frame>);

    /// Sends frames from the front of `from` and removes those that the device took. Never blocks; what stays in
    /// `from` did not fit.
    fn tx_burst(&mut self, from: &mut Burst<<Self::Frame as Frame>::Sealed>);

    /// An empty frame from the transmit pool, or `None` when the pool is empty.
    fn alloc(&mut self) -> Option<Self::Frame>;
}

/// What a device can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortCaps {
    /// The device's own address.
    pub mac: MacAddr,
    /// The largest network-layer packet, in bytes: 1500 for ordinary Ethernet.
    pub mtu_bytes: u16,
    /// Whether received frames carry a verdict on IPv4 and TCP checksums.
    pub rx_checksum: bool,
    /// Checksums that the device can fill in.
    pub tx_offloads: TxOffloads,
    /// Whether received frames carry a receive-side-scaling hash.
    pub rss_hash: bool,
    /// Which of its receive queues the device puts a TCP flow into.
    pub spread: Spread,
    /// The memory node nearest to the device, where there is one.
    pub numa_node: Option<u16>,
}

/// How a device spreads received TCP flows over its queues. A flow that comes elsewhere is handed on in software, so this
/// is about cost alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Spread {
    /// Nobody can foretell it.
    #[default]
    Unknown,
    /// By the Toeplitz hash of addresses and ports under the key of two bytes `6d 5a` repeated, under which both
    /// directions of a flow have one hash: the hash modulo `entries` names an entry of a table, and entry `i` leads to
    /// queue `i` modulo the number of queues.
    Toeplitz {
        /// Entries of the table, at least one.
        entries: u16,
    },
}
