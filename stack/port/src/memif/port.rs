//! The port of one queue pair.
//!
//! The control side of the device is a thread of its own, which sleeps unless a peer comes, speaks
//! or goes. It hands the rings of a link over by a generation number, which each port compares once
//! a burst.
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering;
use std::sync::Arc;

use ironwarp_stats::{CoreStats, Counter};

use super::handshake::{Control, ControlThread, QueueRings, Shared};
use super::ring::RingFault;
use super::{MemifConfig, MemifError};
use super::{MemifFrame, MemifSealed};
use crate::pool::Pool;
use crate::{Burst, LinkState, Port, PortCaps, SHARED_RSS_KEY, Spread, TxOffloads};

/// Entries of the table between hashes and queues: the peer sends from the queue of the core that
/// owns the flow.
const TABLE_ENTRIES: u16 = 128;
/// Empty polls after which a port yields its thread, so that both ends may share a processor.
const POLLS_TO_YIELD: u32 = 1024;
/// What is fetched of the next long frame while this one is built: an ordinary one. Its lines are
/// still with the core that has read them. The processor itself runs ahead of longer stores.
const PREFETCH_BYTES: usize = 2048;

/// One queue pair of a memif.
pub struct MemifPort {
    rings: Option<QueueRings>,
    /// The link that the rings belong to.
    generation: u64,
    polls_to_yield: u32,
    rx_pool: Pool,
    tx_pool: Pool,
    stats: CoreStats,
    caps: PortCaps,
    queue: usize,
    shared: Arc<Shared>,
    control: Arc<ControlThread>,
}

impl MemifPort {
    /// Opens one end of a link: one port for each queue pair, which counts into its page of
    /// `stats`. A server creates its socket now.
    ///
    /// # Errors
    /// [`MemifError`].
    pub fn open_queues(config: &MemifConfig, stats: Vec<CoreStats>) -> Result<Vec<Self>, MemifError> {
        config.validate()?;
        if stats.len() != usize::from(config.queues) {
            return Err(MemifError::Setting("one page of counters for each queue pair"));
        }
        let shared = Shared::new();
        let control = Control::new(config.clone(), shared.clone())?;
        let first = stats.first().cloned().unwrap_or_else(CoreStats::detached);
        let control = Arc::new(ControlThread::start(control, first)?);
        let port = |(queue, stats)| MemifPort {
            rings: None,
            generation: 0,
            polls_to_yield: POLLS_TO_YIELD,
            rx_pool: Pool::new(config.rx_frames.max(1), config.frame_bytes()),
            tx_pool: Pool::new(config.tx_frames.max(1), config.frame_bytes()),
            stats,
            caps: caps_of(config),
            queue,
            shared: shared.clone(),
            control: control.clone(),
        };
        Ok(stats.into_iter().enumerate().map(port).collect())
    }

    /// Opens one end of a link with one queue pair.
    ///
    /// # Errors
    /// As [`MemifPort::open_queues`].
    pub fn open(config: &MemifConfig, stats: CoreStats) -> Result<Self, MemifError> {
        let mut ports = Self::open_queues(config, vec![stats])?;
        ports.pop().ok_or(MemifError::Setting("a link has 1 to 255 queue pairs"))
    }

    /// Returns who drops the memory of the link that is up.
    #[cfg(test)]
    pub(super) fn memory_dropped_by(&self) -> super::region::DroppedBy {
        self.rings.as_ref().expect("a link").rx.dropped_by()
    }

    /// Returns the numbers of free private buffers: to receive, and to send. Walks the pools.
    pub fn free_frames(&self) -> (usize, usize) {
        (self.rx_pool.free_frames(), self.tx_pool.free_frames())
    }

    /// Takes the rings of a new link.
    #[inline]
    fn keep_up(&mut self) {
        if self.shared.generation.load(Ordering::Acquire) != self.generation {
            self.take_rings();
        }
    }

    #[cold]
    fn take_rings(&mut self) {
        self.retire_rings();
        (self.generation, self.rings) = self.shared.take(self.queue);
    }

    /// Gives the rings up. The control thread drops them.
    fn retire_rings(&mut self) {
        if let Some(rings) = self.rings.take() {
            self.shared.retire(rings);
            self.control.wake();
        }
    }

    /// Ends the link of a peer that broke it.
    #[cold]
    fn on_fault(&mut self, RingFault(reason): RingFault) {
        self.stats.count(reason);
        self.shared.broken.store(self.generation, Ordering::Release);
        self.retire_rings();
    }

    #[inline]
    fn alloc_in_place(&mut self) -> Option<MemifFrame> {
        let pool = self.rings.as_mut()?.in_place.as_mut()?;
        let frame = pool.take();
        pool.prefetch_next(PREFETCH_BYTES);
        frame
    }

    #[cold]
    fn drop_all(&mut self, from: &mut Burst<MemifSealed>) {
        self.stats.add(Counter::PortMemifNoPeer, from.len() as u64);
        from.clear();
    }

    #[cold]
    fn yield_thread(&mut self) {
        self.polls_to_yield = POLLS_TO_YIELD;
        std::thread::yield_now();
    }
}

impl Port for MemifPort {
    type Frame = MemifFrame;

    /// Up while the peer is connected.
    fn link(&self) -> LinkState {
        LinkState { up: self.shared.up.load(Ordering::Acquire), speed_mbps: None }
    }

    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn tx_offloads(&self) -> TxOffloads {
        if self.shared.partial_checksums.load(Ordering::Acquire) {
            TxOffloads::TCP_CHECKSUM | TxOffloads::TCP_CHECKSUM_IPV6
        } else {
            TxOffloads::empty()
        }
    }

    #[inline]
    fn rx_burst(&mut self, into: &mut Burst<MemifFrame>) {
        self.keep_up();
        let before = into.len();
        if let Some(rings) = &mut self.rings
            && let Err(fault) = rings.rx.receive(into, &mut self.rx_pool, &self.stats)
        {
            self.on_fault(fault);
        }
        if into.len() != before {
            self.polls_to_yield = POLLS_TO_YIELD;
            return;
        }
        self.polls_to_yield -= 1;
        if self.polls_to_yield == 0 {
            self.yield_thread();
        }
    }

    /// Sends frames. Without a peer they are dropped and counted, as by a cable that is not plugged
    /// in.
    #[inline]
    fn tx_burst(&mut self, from: &mut Burst<MemifSealed>) {
        if from.is_empty() {
            return;
        }
        self.keep_up();
        let Some(rings) = &mut self.rings else { return self.drop_all(from) };
        match rings.tx.send(from) {
            Ok(sent) => self.stats.add(Counter::PortTxFrames, sent as u64),
            Err(fault) => self.on_fault(fault),
        }
    }

    #[inline]
    fn alloc(&mut self) -> Option<MemifFrame> {
        self.tx_pool.take()
    }

    /// Returns a buffer of the client's memory, which the server reads where it is.
    #[inline]
    fn alloc_long(&mut self) -> Option<MemifFrame> {
        self.alloc_in_place().or_else(|| self.alloc())
    }
}

fn caps_of(config: &MemifConfig) -> PortCaps {
    PortCaps {
        mac: config.mac,
        mtu_bytes: config.mtu_bytes,
        rx_checksum: false,
        tx_offloads: TxOffloads::empty(),
        rss_hash: false,
        spread: Spread::Toeplitz { entries: TABLE_ENTRIES, key: SHARED_RSS_KEY },
        numa_node: None,
    }
}
