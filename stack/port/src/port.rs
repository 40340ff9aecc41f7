//! One queue pair of one device.

use arrayvec::ArrayVec;
use ironwarp_types::MacAddr;
use ironwarp_types::limits::BURST_FRAMES;

use crate::{Frame, TxOffloads, WakeSource};

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

    /// Sends frames from the front of `from` and removes those that the device accepted. Frames
    /// that did not fit stay in `from`. Never blocks.
    fn tx_burst(&mut self, from: &mut Burst<<Self::Frame as Frame>::Sealed>);

    /// Returns an empty frame from the transmit pool, or `None` if the pool is empty.
    fn alloc(&mut self) -> Option<Self::Frame>;

    /// [`Port::alloc`] of a frame that will be about as long as the link allows. A device may
    /// return a buffer that it sends without a copy, where a peer can change what was written. So
    /// it is written once, and read again only to be copied.
    #[inline]
    fn alloc_long(&mut self) -> Option<Self::Frame> {
        self.alloc()
    }

    /// Returns what the device fills in of frames that are made now. It may depend on the peer of
    /// the link. Frames that were made for another peer are filled in all the same.
    fn tx_offloads(&self) -> TxOffloads {
        self.caps().tx_offloads
    }

    /// Returns the state of the link. Some drivers ask the kernel. A device without a link to watch
    /// is always up.
    fn link(&self) -> LinkState {
        LinkState { up: true, speed_mbps: None }
    }

    /// Returns what wakes a thread that waits for frames of this queue, at the first call. A device
    /// without is polled by a timer.
    fn take_wake_source(&mut self) -> Option<WakeSource> {
        None
    }
}

/// What a device can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortCaps {
    /// The device's own address.
    pub mac: MacAddr,
    /// The largest network-layer packet, in bytes: 1500 for ordinary Ethernet.
    pub mtu_bytes: u16,
    /// Whether received frames carry the status of IPv4 and TCP checksums.
    pub rx_checksum: bool,
    /// Checksums that the device can fill in.
    pub tx_offloads: TxOffloads,
    /// Whether received frames carry a receive-side-scaling hash.
    pub rss_hash: bool,
    /// How the device selects the receive queue of a TCP flow.
    pub spread: Spread,
    /// The NUMA node of the device, if known.
    pub numa_node: Option<u16>,
}

/// The state of a device's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkState {
    /// Whether the device has a link. With memif: whether the peer is connected.
    pub up: bool,
    /// The speed in Mbit/s, if the device reports one. A virtual device reports a nominal speed.
    pub speed_mbps: Option<u32>,
}

/// The first two bytes of the key of links between two stacks, each of which sends from the core of
/// the flow.
pub const SHARED_RSS_KEY: u16 = 0x6d5a;

/// How a device spreads received TCP flows over its queues. Software forwards a flow that arrives
/// on another queue, so this affects cost alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Spread {
    /// The queue of a flow cannot be predicted.
    #[default]
    Unknown,
    /// By the Toeplitz hash of addresses and ports under a key that repeats two bytes, so that both
    /// directions of a flow have the same hash. The hash modulo `entries` selects an entry of the
    /// redirection table; entry `i` selects queue `i` modulo the number of queues.
    Toeplitz {
        /// Entries of the table, at least one.
        entries: u16,
        /// The first two bytes of the key, with an odd number of ones. A card's key is secret and
        /// different in each process, so that a peer cannot choose ports whose flows are all on one
        /// core. Over links whose other end computes the same function it is [`SHARED_RSS_KEY`].
        key: u16,
    },
}
