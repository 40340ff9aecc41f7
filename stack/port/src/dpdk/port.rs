//! One queue of a DPDK device.
//!
//! Bursts are moved in place: the driver reads and writes the memory of the caller's [`Burst`]. Allocation uses a
//! stash of 32 frames that one bulk call refills, which halves its cost. A received mbuf is owned as it is if it is
//! one segment with one owner. A chain, or a buffer that its sender still shares, is copied into one new frame, or
//! counted and dropped.

use core::ptr::{self, NonNull};
use std::sync::Arc;

use dpdk_sys::{Mbuf, dsys_alloc_bulk, dsys_rx_burst, dsys_tx_burst};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::limits::BURST_FRAMES;

use super::device::{Device, QueuePools};
use super::{DeviceCounts, DpdkError, Eal, MbufFrame, PortSettings, RxInterrupt, SealedMbuf};
use crate::{Burst, LinkState, Port, PortCaps};

/// One queue of one device, with its own receive and transmit pool.
pub struct DpdkPort {
    port: u16,
    queue: u16,
    gate: Gate,
    /// Empty frames, allocated in advance.
    stash: Burst<MbufFrame>,
    pools: QueuePools,
    stats: CoreStats,
    caps: PortCaps,
    // Last: the stash must be back in its pool before the device is closed.
    device: Arc<Device>,
}

/// Whether the driver may be called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gate {
    Open,
    /// Not until its link is up for the first time.
    AwaitsLink,
    /// Not until it is resumed.
    Quiesced,
}

/// The frames in a port's pools at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolLevels {
    /// In the receive pool.
    pub rx_available: u32,
    /// Capacity of the receive pool; the device holds some frames while it runs.
    pub rx_frames: u32,
    /// In the transmit pool or in the port's stash.
    pub tx_available: u32,
    /// Capacity of the transmit pool.
    pub tx_frames: u32,
}

impl DpdkPort {
    /// Starts the device of that name with one queue. `stats` is the page of the core that will poll it.
    ///
    /// # Errors
    /// [`DpdkError::UnknownDevice`], [`DpdkError::Mtu`], [`DpdkError::Setting`], [`DpdkError::Pool`], and
    /// [`DpdkError::Device`] for whatever the driver refuses; a device that is open already is busy.
    pub fn open(
        eal: &Eal,
        device: &str,
        settings: &PortSettings,
        stats: CoreStats,
    ) -> Result<Self, DpdkError> {
        let ports = Self::open_queues(eal, device, settings, vec![stats])?;
        let none = DpdkError::Setting { key: "queues", value: "0".into(), allowed: "at least one" };
        ports.into_iter().next().ok_or(none)
    }

    /// Starts the device with one queue for each page of counters, and gives each queue to one port. The device
    /// spreads flows over them as [`PortCaps::spread`] states.
    ///
    /// # Errors
    /// As [`DpdkPort::open`]; [`DpdkError::Queues`] for a device with fewer queues.
    pub fn open_queues(
        eal: &Eal,
        device: &str,
        settings: &PortSettings,
        stats: Vec<CoreStats>,
    ) -> Result<Vec<Self>, DpdkError> {
        let queues = u16::try_from(stats.len()).unwrap_or(u16::MAX);
        let allowed = "one page of counters a queue, at least one";
        super::vdev::require(queues > 0, "queues", stats.len(), allowed)?;
        Ok(Self::over_all(Device::start(eal, device, settings, queues)?, stats))
    }

    /// Creates one port for each queue of a device.
    pub(super) fn over_all(device: Device, stats: Vec<CoreStats>) -> Vec<Self> {
        let device = Arc::new(device);
        let pools = device.queues().to_vec();
        let queues = (0..).zip(pools).zip(stats);
        queues.map(|((queue, pools), stats)| Self::over(device.clone(), queue, pools, stats)).collect()
    }

    fn over(device: Arc<Device>, queue: u16, pools: QueuePools, stats: CoreStats) -> Self {
        let gate = if device.waits_for_link() { Gate::AwaitsLink } else { Gate::Open };
        let (port, caps) = (device.port(), device.caps().clone());
        DpdkPort { port, queue, gate, stash: Burst::new(), pools, stats, caps, device }
    }

    /// Returns whether the device has a link. With memif: whether the peer is connected.
    pub fn link_up(&self) -> bool {
        self.link().up
    }

    /// Stops calls of the driver: no frame is received or sent. Call it before a memif peer goes away; see the
    /// module.
    pub fn quiesce(&mut self) {
        self.gate = Gate::Quiesced;
    }

    /// Allows calls of the driver again.
    pub fn resume(&mut self) {
        self.gate = if self.device.waits_for_link() { Gate::AwaitsLink } else { Gate::Open };
    }

    /// Returns the queue's receive interrupt. `None` unless the device was started with
    /// [`PortSettings::rx_interrupts`] and its driver has them.
    pub fn rx_interrupt(&self) -> Option<RxInterrupt> {
        RxInterrupt::of(&self.device, self.queue)
    }

    /// Returns the queue's number on its device.
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Returns the device's counters, over all its queues.
    pub fn device_counts(&self) -> DeviceCounts {
        self.device.counts()
    }

    /// Returns the levels of the pools. Walks every thread's cache: not for the data path.
    pub fn pool_levels(&self) -> PoolLevels {
        let stashed = self.stash.len() as u32;
        PoolLevels {
            rx_available: self.pools.rx.available(),
            rx_frames: self.pools.rx.frames(),
            tx_available: self.pools.tx.available() + stashed,
            tx_frames: self.pools.tx.frames(),
        }
    }

    #[inline]
    fn is_open(&mut self) -> bool {
        self.gate == Gate::Open || self.opens_now()
    }

    #[cold]
    fn opens_now(&mut self) -> bool {
        if self.gate == Gate::AwaitsLink && self.link_up() {
            self.gate = Gate::Open;
        }
        self.gate == Gate::Open
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self) {
        for frames in [BURST_FRAMES, 1] {
            let places = self.stash.as_mut_ptr().cast::<*mut Mbuf>();
            // SAFETY: the stash is empty, so it has room for 32 pointers; the pool lives with the port. On success
            // every entry is a new mbuf of one segment with one owner.
            unsafe {
                if dsys_alloc_bulk(self.pools.tx.as_ptr(), places, frames as u32) == 0 {
                    return self.stash.set_len(frames);
                }
            }
        }
    }

    /// Makes every frame from `from` on exclusively owned, or counts and drops it.
    #[cold]
    #[inline(never)]
    fn make_exclusive(&self, burst: &mut Burst<MbufFrame>, from: usize) {
        let delivered: Burst<MbufFrame> = burst.drain(from..).collect();
        let owned = |frame: MbufFrame| if frame.is_exclusive() { Some(frame) } else { self.own_copy(frame) };
        burst.extend(delivered.into_iter().filter_map(owned));
    }

    /// Copies the bytes into one new frame, if they fit and there is one.
    #[cold]
    fn own_copy(&self, frame: MbufFrame) -> Option<MbufFrame> {
        let pool = self.pools.rx.as_ptr();
        let source = frame.into_raw().as_ptr();
        // SAFETY: a live mbuf, chained or shared, that others may read and none writes; one reference is ours and is
        // released. The copy is a new mbuf, or a chain of them.
        let copy = unsafe {
            let copy = dpdk_sys::rte_pktmbuf_copy(source, pool, 0, u32::MAX);
            dpdk_sys::dsys_free(source);
            NonNull::new(copy).map(|mbuf| MbufFrame::from_raw(mbuf))
        };
        let reason = match &copy {
            Some(frame) if frame.is_exclusive() => Counter::PortRxCopied,
            Some(_) => Counter::PortRxTooLong,
            None => Counter::PortRxNoBuffer,
        };
        self.stats.count(reason);
        copy.filter(MbufFrame::is_exclusive)
    }
}

impl Port for DpdkPort {
    type Frame = MbufFrame;

    /// Virtual devices report a nominal speed.
    fn link(&self) -> LinkState {
        let mut speed_mbps = 0;
        // SAFETY: the port is valid while the device lives; the speed is a local variable.
        let up = unsafe { dpdk_sys::dsys_link(self.port, &mut speed_mbps) == 1 };
        LinkState { up, speed_mbps: (speed_mbps != 0).then_some(speed_mbps) }
    }

    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    #[inline]
    fn rx_burst(&mut self, into: &mut Burst<MbufFrame>) {
        let (before, room) = (into.len(), into.remaining_capacity());
        if !self.is_open() {
            return;
        }
        // SAFETY: `into` has room for this many pointers after its `before` ones, and the driver fills the number
        // that it returns with mbufs that we own. `make_exclusive` restores the invariant for those that are shared.
        let received = unsafe {
            let places = into.as_mut_ptr().add(before).cast::<*mut Mbuf>();
            let received = dsys_rx_burst(self.port, self.queue, places, room as u16);
            into.set_len(before + usize::from(received));
            received
        };
        if received == 0 {
            return;
        }
        self.stats.add(Counter::PortRxFrames, received.into());
        let fresh = into.get(before..).unwrap_or_default();
        if !fresh.iter().all(MbufFrame::is_exclusive) {
            self.make_exclusive(into, before);
        }
    }

    #[inline]
    fn tx_burst(&mut self, from: &mut Burst<SealedMbuf>) {
        if from.is_empty() || !self.is_open() {
            return;
        }
        let count = from.len();
        // SAFETY: `from` holds `count` pointers to live mbufs. The driver now owns our reference to each of the
        // first `sent`, so they leave the burst without being dropped, and the rest moves to the front.
        let sent = unsafe {
            let frames = from.as_mut_ptr();
            let sent = dsys_tx_burst(self.port, self.queue, frames.cast(), count as u16);
            let rest = count - usize::from(sent);
            ptr::copy(frames.add(sent.into()), frames, rest);
            from.set_len(rest);
            sent
        };
        self.stats.add(Counter::PortTxFrames, sent.into());
    }

    #[inline]
    fn alloc(&mut self) -> Option<MbufFrame> {
        if self.stash.is_empty() {
            self.refill();
        }
        self.stash.pop()
    }
}
