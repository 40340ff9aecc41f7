//! The in-memory port, and the test's end of a detached port.

use std::collections::VecDeque;
use std::sync::Arc;

use super::control::{Knobs, MemoryControl, count};
use super::lane::{Lane, QueueRule, Queues, TABLE_ENTRIES};
use super::{LINK_BYTES_MAX, MemoryConfig, MemoryFrame, MemorySealed};
use crate::pool::Pool;
use crate::{Burst, LinkState, Port, PortCaps, RxMeta, SHARED_RSS_KEY, Sealed, Spread, TxMeta};

/// A port that moves frames between pools in memory.
pub struct MemoryPort {
    caps: PortCaps,
    tx_pool: Pool,
    tx_ring: VecDeque<MemorySealed>,
    tx_ring_frames: usize,
    to_port: Arc<Lane>,
    from_port: WayOut,
    control: MemoryControl,
    /// Empty polls until the thread yields.
    polls_to_yield: u32,
}

/// Empty polls after which a port yields its thread.
const POLLS_TO_YIELD: u32 = 1024;

/// Where frames go that a port sends.
enum WayOut {
    One(Arc<Lane>),
    /// The receiver's queues, and the number of the sending queue.
    Several(Arc<Queues>, usize),
}

impl MemoryPort {
    /// Returns the port of queue `queue` of a device that receives from `to_port` and sends to
    /// `from_port`.
    pub(super) fn new(config: &MemoryConfig, queue: usize, to_port: &Queues, from_port: Arc<Queues>) -> Self {
        let tx_pool = Pool::new(config.tx_frames, config.frame_bytes());
        let to_port = to_port.lane(queue).clone();
        let control = MemoryControl::new(tx_pool.level(), to_port.clone(), from_port.lane(queue).clone());
        let from_port = match from_port.lanes() {
            [lane] => WayOut::One(lane.clone()),
            _ => WayOut::Several(from_port, queue),
        };
        MemoryPort {
            caps: caps_of(config),
            tx_pool,
            tx_ring: VecDeque::with_capacity(config.tx_ring_frames),
            tx_ring_frames: config.tx_ring_frames,
            to_port,
            from_port,
            control,
            polls_to_yield: POLLS_TO_YIELD,
        }
    }

    /// Yields the thread now and then, so that both ends may share a processor.
    #[inline]
    fn on_empty_poll(&mut self) {
        // Never 0 here.
        self.polls_to_yield = self.polls_to_yield.wrapping_sub(1);
        if self.polls_to_yield == 0 {
            self.polls_to_yield = POLLS_TO_YIELD;
            std::thread::yield_now();
        }
    }

    /// Returns the controls and counters of this port.
    pub fn control(&self) -> MemoryControl {
        self.control.clone()
    }

    /// Returns the number of frames in the transmit ring, which wait for room in the peer's receive
    /// ring.
    pub fn tx_held_frames(&self) -> usize {
        self.tx_ring.len()
    }

    /// Returns whether the link is up.
    pub fn link_up(&self) -> bool {
        self.control.knobs().link_up()
    }

    /// Returns the longest frame that may be sent.
    #[inline]
    fn frame_bytes_max(&self) -> usize {
        usize::from(self.caps.mtu_bytes) + LINK_BYTES_MAX
    }

    /// Sends a burst, directly into the peer's receive ring as far as possible.
    #[inline(never)]
    fn send_several(&mut self, from: &mut Burst<MemorySealed>) {
        let mut sent = 0;
        if let WayOut::One(lane) = &self.from_port
            && self.tx_ring.is_empty()
        {
            let frames = from.get(..self.tx_ring_frames).unwrap_or(from);
            sent = lane.deliver_fast(frames, self.frame_bytes_max());
            if sent == from.len() {
                return from.clear();
            }
            drop(from.drain(..sent));
        }
        self.send(from, sent);
    }

    /// Sends the rest of a burst on the general path: frames wait in the transmit ring for room in
    /// the peer's receive ring. `sent` frames of the burst have left.
    #[inline(never)]
    fn send(&mut self, from: &mut Burst<MemorySealed>, sent: usize) {
        self.drain();
        let knobs = self.control.knobs();
        let room = self.tx_ring_frames.saturating_sub(self.tx_ring.len() + sent);
        let count = from.len().min(room).min(knobs.tx_burst_frames());
        for sealed in from.drain(..count) {
            if let Some(tx) = accept(&self.caps, knobs, sealed.bytes(), sealed.tx()) {
                self.tx_ring.push_back(sealed.with_tx(tx));
            }
        }
        self.drain();
    }

    /// Sends the frames in the transmit ring, as far as the peer's receive ring has room.
    #[inline]
    fn drain(&mut self) {
        if !self.tx_ring.is_empty() {
            self.deliver();
        }
    }

    #[inline(never)]
    fn deliver(&mut self) {
        match &self.from_port {
            WayOut::One(lane) => lane.deliver(&mut self.tx_ring, usize::MAX),
            WayOut::Several(queues, queue) => queues.deliver(*queue, &mut self.tx_ring),
        }
    }
}

/// Returns what the device fills in of a frame, or `None` if it is too long or lost, or if the link
/// is down.
fn accept(caps: &PortCaps, knobs: &Knobs, bytes: &[u8], asked: TxMeta) -> Option<TxMeta> {
    count(&knobs.taken);
    if bytes.len() > usize::from(caps.mtu_bytes) + LINK_BYTES_MAX {
        count(&knobs.too_long);
        return None;
    }
    if !knobs.link_up() || knobs.loses_next() {
        return None;
    }
    let claimed = caps.tx_offloads & asked.offloads;
    if claimed == asked.offloads {
        return Some(asked);
    }
    count(&knobs.offloads_refused);
    Some(TxMeta { offloads: claimed, ..asked })
}

impl Port for MemoryPort {
    type Frame = MemoryFrame;

    fn link(&self) -> LinkState {
        LinkState { up: self.link_up(), speed_mbps: None }
    }

    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    #[inline(always)]
    fn rx_burst(&mut self, into: &mut Burst<MemoryFrame>) {
        self.drain();
        self.to_port.receive(into);
        if into.is_empty() {
            self.on_empty_poll();
        } else if !self.link_up() {
            into.clear();
        }
    }

    fn tx_burst(&mut self, from: &mut Burst<MemorySealed>) {
        if let ([sealed], WayOut::One(lane)) = (&from[..], &self.from_port)
            && self.tx_ring.is_empty()
            && self.tx_ring_frames > 0
            && lane.deliver_single(sealed, self.frame_bytes_max())
        {
            drop(from.pop());
            return;
        }
        self.send_several(from);
    }

    #[inline]
    fn alloc(&mut self) -> Option<MemoryFrame> {
        if !self.control.knobs().may_allocate() {
            return None;
        }
        self.tx_pool.take_any()
    }
}

/// The peer of a detached port: a test injects received frames here and collects sent ones.
pub struct FarEnd {
    to_port: Arc<Queues>,
    from_port: Arc<Queues>,
}

impl FarEnd {
    pub(super) fn new(to_port: Arc<Queues>, from_port: Arc<Queues>) -> Self {
        FarEnd { to_port, from_port }
    }

    /// Injects a frame, with the checksum status that the device computes. Returns `false`, and
    /// drops the frame, if the receive ring is full, the receive pool is empty or the frame is
    /// longer than a buffer.
    pub fn inject(&mut self, frame: &[u8]) -> bool {
        self.to_port.choose(0, frame).inject(frame, None)
    }

    /// Injects a frame with the metadata `rx`, correct or not.
    pub fn inject_with(&mut self, frame: &[u8], rx: RxMeta) -> bool {
        self.to_port.choose(0, frame).inject(frame, Some(rx))
    }

    /// Appends frames that the port has sent to `into`, up to its room. The device's checksums are
    /// filled in. Frames that the caller keeps use buffers of this end's pool, which is as large as
    /// the port's receive pool.
    pub fn collect(&mut self, into: &mut Burst<MemoryFrame>) {
        self.from_port.lanes().iter().for_each(|lane| lane.receive(into));
    }
}

fn caps_of(config: &MemoryConfig) -> PortCaps {
    PortCaps {
        mac: config.mac,
        mtu_bytes: config.mtu_bytes,
        rx_checksum: config.rx_checksum,
        tx_offloads: config.tx_offloads,
        rss_hash: config.rss_hash,
        spread: match config.queue_rule {
            // The peer sends from the queue of the core that owns the flow.
            QueueRule::AsSent | QueueRule::Toeplitz => {
                Spread::Toeplitz { entries: TABLE_ENTRIES, key: SHARED_RSS_KEY }
            }
            QueueRule::All(_) => Spread::Unknown,
        },
        numa_node: None,
    }
}
