//! One queue of a DPDK device.
//!
//! Bursts are moved in place: the driver reads and writes the memory of the caller's [`Burst`].
//! Allocation uses a stash of 32 frames that one bulk call refills, which halves its cost. A
//! received mbuf is owned as it is if it is one segment with one owner. A chain, or a buffer that
//! its sender still shares, is copied into one new frame, or counted and dropped. So a received
//! super-segment is one frame of up to 64 KiB, in which each FPDU lies whole.
//!
//! Where the device cuts super-segments, consecutive segments of a flow leave as one chain: a
//! buffer with their joint headers, and the payload of each frame by reference.

use arrayvec::ArrayVec;
use core::ptr;
use std::sync::Arc;

use dpdk_sys::{Mbuf, dsys_alloc_bulk, dsys_rx_burst, dsys_tx_burst};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::limits::BURST_FRAMES;

use super::device::{Device, QueuePools};
use super::pool::Pool;
use super::rx_interrupt::QueueInterrupt;
use super::{DeviceCounts, DpdkError, Eal, MbufFrame, PortSettings, SealedMbuf, Wakes};
use crate::super_segment::SuperSegment;
use crate::{Burst, LinkState, Port, PortCaps, TxOffloads, WakeSource};

/// One queue of one device, with its own receive and transmit pool.
pub struct DpdkPort {
    port: u16,
    queue: u16,
    /// The driver is called only while the link is up.
    follows_link: bool,
    /// The end of a ring pair whose frames need no checksum.
    leaves_checksums_out: bool,
    /// Empty frames, allocated in advance.
    stash: Burst<MbufFrame>,
    pools: QueuePools,
    stats: CoreStats,
    caps: PortCaps,
    wake_source: Option<WakeSource>,
    // Last: the stash must be back in its pool before the device is closed.
    device: Arc<Device>,
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
    /// Starts the device of that name with one queue. `stats` is the page of the core that will
    /// poll it.
    ///
    /// # Errors
    /// [`DpdkError::UnknownDevice`], [`DpdkError::Mtu`], [`DpdkError::Setting`],
    /// [`DpdkError::Pool`], and [`DpdkError::Device`] for whatever the driver refuses; a device
    /// that is open already is busy.
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

    /// Starts the device with one queue for each page of counters, and gives each queue to one
    /// port. The device spreads flows over them as [`PortCaps::spread`] states.
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
        let mut ports = Self::over_all(Device::start(eal, device, settings, queues)?, stats);
        // One for each queue, or none.
        let sources: Option<Vec<WakeSource>> = match settings.wakes {
            Wakes::Nothing => None,
            Wakes::Files => eal.new_files(device, ports.len()),
            Wakes::Interrupts => ports.iter().map(Self::interrupt).collect(),
        };
        for (port, source) in ports.iter_mut().zip(sources.into_iter().flatten()) {
            port.wake_source = Some(source);
        }
        Ok(ports)
    }

    fn interrupt(&self) -> Option<WakeSource> {
        Some(WakeSource::Interrupt(Box::new(QueueInterrupt::of(&self.device, self.queue)?)))
    }

    /// Creates one port for each queue of a device.
    pub(super) fn over_all(device: Device, stats: Vec<CoreStats>) -> Vec<Self> {
        let device = Arc::new(device);
        let pools = device.queues().to_vec();
        let queues = (0..).zip(pools).zip(stats);
        queues.map(|((queue, pools), stats)| Self::over(device.clone(), queue, pools, stats)).collect()
    }

    fn over(device: Arc<Device>, queue: u16, pools: QueuePools, stats: CoreStats) -> Self {
        let (port, caps, follows_link) = (device.port(), device.caps().clone(), device.follows_link());
        let (stash, wake_source, leaves_checksums_out) = (Burst::new(), None, false);
        DpdkPort {
            port,
            queue,
            follows_link,
            leaves_checksums_out,
            stash,
            pools,
            stats,
            caps,
            wake_source,
            device,
        }
    }

    /// The other end is of this library, and nothing in between can damage a frame.
    pub(super) fn leave_checksums_out(&mut self) {
        self.leaves_checksums_out = true;
        self.caps.rx_checksum = true;
        self.caps.tx_offloads = TxOffloads::TCP_CHECKSUM | TxOffloads::TCP_CHECKSUM_IPV6;
    }

    /// Returns whether the device has a link. With memif: whether the peer is connected.
    pub fn link_up(&self) -> bool {
        self.link().up
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

    /// Whether the driver may be called.
    #[inline]
    fn is_open(&self) -> bool {
        !self.follows_link || self.link_up()
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self) {
        for frames in [BURST_FRAMES, 1] {
            let places = self.stash.as_mut_ptr().cast::<*mut Mbuf>();
            // SAFETY: the stash is empty, so it has room for 32 pointers; the pool lives with the
            // port. On success every entry is a new mbuf of one segment with one owner.
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

    /// Copies a chain or a shared buffer into one new frame, if it fits and there is one.
    #[cold]
    fn own_copy(&self, frame: MbufFrame) -> Option<MbufFrame> {
        if let Some(segment_bytes) = frame.segment_bytes() {
            if !(1..=self.caps.mtu_bytes).contains(&segment_bytes) {
                self.stats.count(Counter::PortRxBadOffload);
                return None;
            }
            self.stats.count(Counter::PortRxSuperSegments);
        }
        let long = self.pools.long.as_ref().filter(|_| frame.is_chain());
        let Some(mut copy) = MbufFrame::alloc(long.unwrap_or(&self.pools.rx)) else {
            self.stats.count(Counter::PortRxNoBuffer);
            return None;
        };
        let fits = frame.copy_to(&mut copy);
        self.stats.count(if fits { Counter::PortRxCopied } else { Counter::PortRxTooLong });
        fits.then_some(copy)
    }
}

impl Port for DpdkPort {
    type Frame = MbufFrame;

    /// Virtual devices report a nominal speed.
    fn link(&self) -> LinkState {
        self.device.link()
    }

    fn take_wake_source(&mut self) -> Option<WakeSource> {
        self.wake_source.take()
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
        // SAFETY: `into` has room for this many pointers after its `before` ones, and the driver
        // fills the number that it returns with mbufs that we own. `make_exclusive` restores the
        // invariant for those that are shared.
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
        if self.leaves_checksums_out {
            let fresh = into.get_mut(before..).unwrap_or_default();
            fresh.iter_mut().for_each(MbufFrame::accept_partial_checksum);
        }
    }

    #[inline]
    fn tx_burst(&mut self, from: &mut Burst<SealedMbuf>) {
        if from.is_empty() || !self.is_open() {
            return;
        }
        let sent = match self.join(from) {
            None => self.send(from),
            Some((mut packets, frames)) => match self.send(&mut packets) {
                // A device may refuse what it has offered to cut: DPDK's tap does so with segments
                // that fill the MTU. A full device takes no plain frame either.
                0 => self.send(from),
                taken => {
                    let sent = frames.iter().take(taken);
                    let joined = sent.clone().filter(|&&frames| frames > 1).count();
                    self.stats.add(Counter::PortTxSuperSegments, joined as u64);
                    let sent = sent.sum();
                    from.drain(..sent);
                    sent
                }
            },
        };
        self.stats.add(Counter::PortTxFrames, sent as u64);
    }

    #[inline]
    fn alloc(&mut self) -> Option<MbufFrame> {
        if self.stash.is_empty() {
            self.refill();
        }
        self.stash.pop()
    }
}

impl DpdkPort {
    /// Gives the device what it takes from the front of a burst, and returns how much that is.
    #[inline]
    fn send(&self, from: &mut Burst<SealedMbuf>) -> usize {
        let count = from.len();
        // SAFETY: `from` holds `count` pointers to live mbufs. The driver now owns our reference to
        // each of the first `sent`, so they leave the burst without being dropped, and the rest
        // moves to the front.
        unsafe {
            let frames = from.as_mut_ptr();
            let sent = dsys_tx_burst(self.port, self.queue, frames.cast(), count as u16);
            let rest = count - usize::from(sent);
            ptr::copy(frames.add(sent.into()), frames, rest);
            from.set_len(rest);
            sent.into()
        }
    }

    /// Returns what replaces a burst, and of how many frames each consists, unless all frames leave
    /// alone. The frames stay in the burst until the device has taken what they are part of.
    #[inline]
    fn join(&self, burst: &[SealedMbuf]) -> Option<(Burst<SealedMbuf>, ArrayVec<usize, BURST_FRAMES>)> {
        let joins = self.pools.joins.as_ref().filter(|_| burst.len() > 1)?;
        let (mut packets, mut frames, mut rest) = (Burst::new(), ArrayVec::new(), burst);
        while let [first, ..] = rest {
            let joined = SuperSegment::join(rest.get(..joins.frames_max).unwrap_or(rest));
            let joined =
                joined.and_then(|joined| Some((self.chain(&joins.pool, rest, &joined)?, joined.frames)));
            let (packet, count) = joined.unwrap_or_else(|| (first.clone(), 1));
            packets.push(packet);
            frames.push(count);
            rest = rest.get(count..).unwrap_or_default();
        }
        (packets.len() < burst.len()).then_some((packets, frames))
    }

    /// Returns a super-segment, unless its pool is empty or the driver refuses it.
    fn chain(&self, pool: &Pool, frames: &[SealedMbuf], joined: &SuperSegment) -> Option<SealedMbuf> {
        let chain = SealedMbuf::join(pool, frames, joined)?;
        // SAFETY: a live mbuf whose first buffer is new and has no other owner; drivers change
        // headers alone.
        let is_ready = unsafe { dpdk_sys::dsys_prepare(self.port, self.queue, chain.as_ptr()) != 0 };
        is_ready.then_some(chain)
    }
}
