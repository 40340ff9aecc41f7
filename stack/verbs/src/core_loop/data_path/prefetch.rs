//! Prefetches the state of connections that are about to be used, on a core with many of them.
//!
//! The state of a queue pair and its connection is about twenty cache lines. The state of a few
//! hundred fits the second-level cache. With more, each message waits for memory once for almost
//! every line, unless the lines of several messages are on their way at the same time. Below
//! [`CONNECTIONS_MIN`] nothing is prefetched.

use arrayvec::ArrayVec;
use ironwarp_llp::Transport;
use ironwarp_port::Burst;
use ironwarp_types::limits::BURST_FRAMES;

use crate::core_loop::lower::{FrameOf, Lower};

use super::{ConnOwner, DataPath, TxSource};

/// Connections of a core from which on prefetches pay.
const CONNECTIONS_MIN: u32 = 256;

/// How many frames or rounds before its own a queue pair or connection is prefetched.
const AHEAD: usize = 3;

/// How many rounds before its own the queue pair is prefetched that names the connection and the
/// send ring.
const QP_AHEAD: usize = 2 * AHEAD;

/// How much of a burst is prefetched, in three stages: the flow table for all of its frames; the
/// connection and the queue pair [`AHEAD`] frames before their own; what the queue pair points to
/// one frame before.
#[derive(Default)]
pub(crate) struct BurstPrefetch {
    /// The flow hashes of the frames before the second stage, the last frame first.
    hashes: ArrayVec<u32, BURST_FRAMES>,
    /// The queue pairs of frames before the third stage, the next frame first.
    qps: [Option<u32>; AHEAD - 1],
}

impl<L: Lower> DataPath<L> {
    /// Computes the flow hashes of a burst and prefetches their slots in the flow table, then the
    /// state of the first frames.
    pub(crate) fn hash_burst(&mut self, port: u8, burst: &Burst<FrameOf<L>>) {
        let net = self.nets.at(port);
        // Any other frame has the hash 0, which only costs a useless prefetch.
        let hash_of = |frame| net.fast_frame(frame).map_or(0, |fast| net.hash_of(fast.key()));
        self.burst_prefetch.hashes = burst.iter().rev().map(hash_of).collect();
        self.burst_prefetch.hashes.iter().for_each(|hash| self.llp.prefetch_flow(*hash));
        (0..AHEAD).for_each(|_| self.prefetch_next_frame());
    }

    /// Prefetches the state for the frame of the burst that is [`AHEAD`] frames after the one that
    /// is handled, and the rest for the next one.
    #[inline(never)]
    pub(crate) fn prefetch_next_frame(&mut self) {
        let hash = self.burst_prefetch.hashes.pop();
        let conn = hash.and_then(|hash| self.llp.prefetch_by_hash(hash));
        let qp = match conn.and_then(|conn| self.conn_owners.get(conn as usize)) {
            Some(&ConnOwner::Qp(slot)) => Some(slot),
            _ => None,
        };
        if let Some(slot) = qp {
            self.qps.prefetch(slot);
        }
        let [next, after] = self.burst_prefetch.qps;
        self.burst_prefetch.qps = [after, qp];
        if let Some(slot) = next {
            self.qps.prefetch_for_segment(slot);
        }
    }

    /// Prefetches the state of senders that are served after the next one.
    pub(crate) fn prefetch_senders(&self) {
        if let Some(TxSource::Qp(slot)) = self.tx_ready.get(QP_AHEAD) {
            self.qps.prefetch(*slot);
        }
        if let Some(TxSource::Qp(slot)) = self.tx_ready.get(AHEAD) {
            self.prefetch_connection_of(*slot);
        }
        if let Some(TxSource::Qp(slot)) = self.tx_ready.get(1) {
            self.qps.prefetch_request(*slot);
        }
    }

    /// Prefetches the state of a queue pair that has new work, all lines at a time: the caller
    /// needs them one after the other.
    #[inline(never)]
    pub(crate) fn prefetch_sender(&self, slot: u32) {
        self.qps.prefetch(slot);
        self.prefetch_connection_of(slot);
    }

    /// Prefetches the connection and the send ring that a queue pair names.
    fn prefetch_connection_of(&self, slot: u32) {
        if let Some(conn) = self.qps.prefetch_ring(slot) {
            self.llp.prefetch(conn);
        }
    }

    /// Returns whether the state of all connections is too large for the second-level cache.
    #[inline(always)]
    pub(crate) fn has_many_connections(&self) -> bool {
        self.many_connections
    }

    /// Counts the connections. Called in the timer stage, which is often enough.
    pub(crate) fn count_connections(&mut self) {
        self.many_connections = self.llp.connections() >= CONNECTIONS_MIN;
    }
}
