//! The in-memory backend: ports for tests, for the simulator and for linking two stacks inside one
//! process.
//!
//! [`pair`] links two ports back to back. [`detached`] returns one port and its [`FarEnd`], where a
//! test injects and collects frames. [`pair_of_queues`] and [`detached_queues`] do the same for
//! devices with several queues, a port each. The properties of a device are modelled: separate
//! receive and transmit pools, a transmit ring that holds frames until they are sent, a receive
//! ring of fixed depth, checksum offloads, a receive-side-scaling hash. A [`MemoryControl`] makes
//! allocations fail, limits bursts, loses frames and counts them.
//!
//! A frame is copied from the sender's buffer to one of the receiver's pool, as by a device. So the
//! two ends share no bytes and may run on two threads.
//!
//! Errors: frames without room are dropped and counted; the caller gets no error. [`pair`] and
//! [`detached`] allocate all memory; traffic allocates nothing. A frame costs a copy and two
//! uncontended locks, its buffers none.
#![forbid(unsafe_code)]

mod control;
mod device;
mod lane;
mod packet;
mod port;
mod ring;
#[cfg(test)]
mod tests;

pub use control::{MemoryControl, MemoryCounts, PoolLevels};
pub(crate) use device::fill_checksums;
pub use lane::QueueRule;
pub use packet::Ipv4Tcp;
pub(crate) use packet::checksummed;
pub use port::{FarEnd, MemoryPort};

use std::sync::Arc;

use ironwarp_types::MacAddr;

use crate::TxOffloads;
use crate::pool::{Pool, PoolFrame, PoolSealed};
use control::Knobs;
use lane::{Lane, Queues};

/// A frame with one owner.
pub type MemoryFrame = PoolFrame;

/// A frame whose bytes are fixed; clones share them.
pub type MemorySealed = PoolSealed;

/// The properties of an in-memory port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryConfig {
    /// The port's link address.
    pub mac: MacAddr,
    /// The largest network-layer packet it sends, in bytes.
    pub mtu_bytes: u16,
    /// The longest frame that it receives, in bytes. Zero: as long as those that it sends.
    pub rx_frame_bytes: usize,
    /// Buffers for received frames. Each frame in the receive ring or held by the stack takes one.
    pub rx_frames: usize,
    /// Buffers for frames to send.
    pub tx_frames: usize,
    /// Frames that may wait to be received.
    pub rx_ring_frames: usize,
    /// Frames that may wait to be sent while the peer's receive ring is full.
    pub tx_ring_frames: usize,
    /// Whether received frames carry a checksum status.
    pub rx_checksum: bool,
    /// The checksum offloads of the port.
    pub tx_offloads: TxOffloads,
    /// Whether received TCP segments carry a receive-side-scaling hash.
    pub rss_hash: bool,
    /// The receive queue of a frame, if there are several.
    pub queue_rule: QueueRule,
}

impl Default for MemoryConfig {
    /// Returns a plain device without offloads, MTU 1500, rings of 256 frames.
    fn default() -> Self {
        MemoryConfig {
            mac: MacAddr([0x02, 0, 0, 0, 0, 1]),
            mtu_bytes: 1500,
            rx_frame_bytes: 0,
            rx_frames: 1024,
            tx_frames: 1024,
            rx_ring_frames: 256,
            tx_ring_frames: 256,
            rx_checksum: false,
            tx_offloads: TxOffloads::empty(),
            rss_hash: false,
            queue_rule: QueueRule::default(),
        }
    }
}

impl MemoryConfig {
    /// Returns the same port with every offload.
    #[must_use]
    pub fn offloading(self) -> Self {
        MemoryConfig { rx_checksum: true, tx_offloads: TxOffloads::all(), rss_hash: true, ..self }
    }

    /// Returns the bytes of one buffer: the largest packet with an Ethernet header and a VLAN tag,
    /// in whole cache lines.
    fn frame_bytes(&self) -> usize {
        (usize::from(self.mtu_bytes) + LINK_BYTES_MAX).next_multiple_of(64)
    }
}

/// An Ethernet header with one VLAN tag.
const LINK_BYTES_MAX: usize = 18;

/// Links two ports back to back: what one sends, the other receives.
///
/// ```
/// use ironwarp_port::memory::{self, MemoryConfig};
/// use ironwarp_port::{Burst, Frame, Port, TxMeta};
///
/// let (mut left, mut right) = memory::pair(&MemoryConfig::default(), &MemoryConfig::default());
/// let mut frame = left.alloc().expect("a fresh pool has frames");
/// frame.resize(60);
/// frame.bytes_mut().fill(7);
///
/// let mut out = Burst::new();
/// out.push(frame.seal(TxMeta::default()));
/// left.tx_burst(&mut out);
///
/// let mut got = Burst::new();
/// right.rx_burst(&mut got);
/// assert_eq!(got[0].bytes(), [7; 60]);
/// ```
pub fn pair(left: &MemoryConfig, right: &MemoryConfig) -> (MemoryPort, MemoryPort) {
    let (to_left, to_right) = (queues_to(left, 1), queues_to(right, 1));
    let left = MemoryPort::new(left, 0, &to_left, to_right.clone());
    (left, MemoryPort::new(right, 0, &to_right, to_left))
}

/// Links two devices with several queues each back to back, a port for each queue. Each queue has
/// its own pools and rings.
pub fn pair_of_queues(
    (left, left_queues): (&MemoryConfig, usize),
    (right, right_queues): (&MemoryConfig, usize),
) -> (Vec<MemoryPort>, Vec<MemoryPort>) {
    let (to_left, to_right) = (queues_to(left, left_queues), queues_to(right, right_queues));
    (ports_over(left, &to_left, &to_right), ports_over(right, &to_right, &to_left))
}

/// Returns a port and its test end.
pub fn detached(config: &MemoryConfig) -> (MemoryPort, FarEnd) {
    let (to_port, to_far) = (queues_to(config, 1), queues_to(&far_of(config), 1));
    (MemoryPort::new(config, 0, &to_port, to_far.clone()), FarEnd::new(to_port, to_far))
}

/// Returns the ports of a device with several queues and their test end.
pub fn detached_queues(config: &MemoryConfig, queues: usize) -> (Vec<MemoryPort>, FarEnd) {
    let (to_port, to_far) = (queues_to(config, queues), queues_to(&far_of(config), queues));
    (ports_over(config, &to_port, &to_far), FarEnd::new(to_port, to_far))
}

/// The test end is no device: it accepts frames of any size that the port can send, unchanged.
fn far_of(config: &MemoryConfig) -> MemoryConfig {
    let queue_rule = QueueRule::AsSent;
    MemoryConfig { rx_frame_bytes: 0, rx_checksum: false, rss_hash: false, queue_rule, ..config.clone() }
}

fn ports_over(config: &MemoryConfig, to: &Queues, from: &Arc<Queues>) -> Vec<MemoryPort> {
    (0..to.lanes().len()).map(|queue| MemoryPort::new(config, queue, to, from.clone())).collect()
}

/// Returns the receive queues of a device with this configuration, at least one.
fn queues_to(config: &MemoryConfig, queues: usize) -> Arc<Queues> {
    let lane = |_| {
        let pool = Pool::new(config.rx_frames, config.frame_bytes().max(config.rx_frame_bytes));
        let verdicts = device::Verdicts { checksum: config.rx_checksum, rss_hash: config.rss_hash };
        Arc::new(Lane::new(config.rx_ring_frames, pool, verdicts, Knobs::new()))
    };
    Queues::new((0..queues.max(1)).map(lane).collect(), config.queue_rule)
}
