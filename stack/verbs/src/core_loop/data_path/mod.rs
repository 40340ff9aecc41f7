//! The data path of a core: frames to registered memory and back.
//!
//! [`DataPath`] owns every layer from the wire to the streams. It takes frames, doorbells and time;
//! it gives frames and completions. It never calls the connection manager: what only that can
//! handle is returned, as [`RxOutcome`] after received bytes, as [`TxOutcome`] after a scheduling
//! round, as TCP's events elsewhere. The core loop passes it on.
//!
//! The tables of a port's network, [`Net`], belong here, since every frame reads them; housekeeping
//! borrows them.

mod ports;
pub(super) mod prefetch;
pub(super) mod qp;
pub(super) mod quantum;
pub(super) mod queues;
pub(super) mod remote_atomics;
mod rx;
mod tx;

use std::collections::VecDeque;

use ironwarp_llp::{Abort, ConnId, Events, Transport};
use ironwarp_mem::CoreMem;
use ironwarp_net::{Net, Steering};
use ironwarp_port::{Burst, PerPort, Wires};
use ironwarp_stats::CoreStats;
use ironwarp_types::Nanos;

pub(super) use rx::RxOutcome;
pub(super) use tx::{ROUND_UNITS_MAX, TxOutcome};

use super::cores::{InterCoreMessage, OtherCores};
use super::lower::{FrameOf, Lower};
use crate::config::AtomicExecution;
use qp::QpTable;
use queues::QueueTable;

/// The owner of a connection of the transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnOwner {
    Unowned,
    /// A queue pair, by slot.
    Qp(u32),
    /// An incoming connection without a queue pair, by slot.
    Passive(u32),
}

/// A sender that may have bytes to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TxSource {
    Qp(u32),
    Passive(u32),
}

/// The data path of one core over the lower layer `L`.
pub(super) struct DataPath<L: Lower> {
    pub(super) core: u16,
    /// The rings to the other cores; `None` on a stack of one core, and while they are read.
    pub(super) other_cores: Option<Box<OtherCores<FrameOf<L>>>>,
    /// The map from flows to cores; `None` on a stack of one core.
    pub(super) steering: Option<Steering>,
    /// The network of each port: addresses, neighbours, routes.
    pub(super) nets: PerPort<Net>,
    pub(super) llp: L::Transport,
    pub(super) mem: CoreMem,
    pub(super) atomic_execution: AtomicExecution,
    /// Received frames that wait for the receive stage; `None` while several of them are handled.
    /// Boxed, so that taking it moves one pointer.
    pub(super) rx_burst: Option<Box<Burst<FrameOf<L>>>>,
    /// Where an FPDU of several segments is assembled before its CRC is checked.
    pub(super) scratch: Box<[u8]>,
    pub(super) qps: QpTable<L>,
    pub(super) queues: QueueTable,
    pub(super) conn_owners: Box<[ConnOwner]>,
    /// Events of TCP's timers, until they are handled: at most one entry a connection.
    pub(super) timer_events: Vec<(ConnId, Events)>,
    /// Senders with something to send, in scheduling order, each at most once.
    pub(super) tx_ready: VecDeque<TxSource>,
    pub(super) quantum: quantum::Quantum,
    /// Queue pairs that wait until no core uses a steering tag, each at most once.
    pub(super) quiescence_waiters: Vec<u32>,
    pub(super) stats: CoreStats,
    /// The longest list of frames or senders that is handled without the loop for more: 1, or 0 if
    /// the fast path is off.
    pub(super) single_max: usize,
    /// An iteration may end before its stages: one port, one core.
    pub(super) may_be_quiet: bool,
    /// Units of work in this iteration: frames, messages, events.
    pub(super) work: usize,
    /// The state of all connections is too large for the second-level cache.
    pub(super) many_connections: bool,
    /// How much of the burst is prefetched.
    pub(super) burst_prefetch: prefetch::BurstPrefetch,
    /// How much of it the doorbell stage did.
    pub(super) doorbell_stage_work: usize,
    /// Dropped last: the frames that the other fields hold must be back in the ports' pools.
    pub(super) wires: Wires<L::Port>,
}

impl<L: Lower> DataPath<L> {
    /// Counts work of this iteration, which a budget limits.
    #[inline(always)]
    pub(crate) fn count_work(&mut self, pieces: usize) {
        self.work = self.work.wrapping_add(pieces);
    }

    pub(super) fn owner(&self, conn: ConnId) -> ConnOwner {
        self.conn_owners.get(conn.index()).copied().unwrap_or(ConnOwner::Unowned)
    }

    pub(super) fn set_owner(&mut self, conn: ConnId, owner: ConnOwner) {
        if let Some(entry) = self.conn_owners.get_mut(conn.index()) {
            *entry = owner;
        }
    }

    /// Returns whether a connection is still the queue pair's.
    pub(super) fn owns_conn(&mut self, slot: u32, conn: ConnId) -> bool {
        self.qps.at(slot).is_some_and(|qp| qp.conn == Some(conn))
    }

    /// Resets the connection of a queue pair, if it has one.
    pub(super) fn abort_conn(&mut self, now: Nanos, slot: u32) {
        let Some(conn) = self.qps.at(slot).and_then(|qp| qp.conn.take()) else { return };
        self.set_owner(conn, ConnOwner::Unowned);
        self.llp.abort(now, conn, Abort::Used, &mut self.wires);
    }

    /// Ends the stream, unless it has ended, and completes every work request as flushed.
    pub(super) fn abort_stream(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        stream.abort(&mut io);
    }

    /// Completes as flushed what was posted after the end.
    #[cold]
    #[inline(never)]
    pub(super) fn flush(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        stream.flush(&mut io);
    }

    /// RFC 5040 s5.5: bytes that arrived in order before an orderly end are delivered first. If a
    /// delivery still waits for quiescence, stores the events in `deferred_close` and returns true.
    /// A reset does not wait.
    pub(super) fn defer_close(&mut self, slot: u32, conn: ConnId, events: Events) -> bool {
        let orderly = !events.intersects(Events::ENDED.difference(Events::CLOSED));
        let Some(qp) = self.qps.at(slot).filter(|qp| qp.conn == Some(conn)) else { return false };
        let waits = orderly && qp.stream.has_pending_delivery();
        if waits {
            qp.deferred_close |= events & Events::PEER_CLOSED.union(Events::CLOSED);
        }
        waits
    }

    /// Lists a queue pair that waits until no core uses a steering tag.
    #[cold]
    pub(super) fn wait_for_quiescence(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        if !core::mem::replace(&mut qp.awaits_quiescence, true) {
            self.quiescence_waiters.push(slot);
        }
    }

    /// Looks through the memory waiters below `index`, from the end, for one that no longer waits.
    /// Removes and returns it.
    pub(super) fn next_quiescence_over(&mut self, index: &mut usize) -> Option<u32> {
        while *index > 0 {
            *index -= 1;
            let Some(&slot) = self.quiescence_waiters.get(*index) else { continue };
            if !self.still_awaits_quiescence(slot) {
                self.quiescence_waiters.swap_remove(*index);
                return Some(slot);
            }
        }
        None
    }

    fn still_awaits_quiescence(&mut self, slot: u32) -> bool {
        let Some(qp) = self.qps.at(slot) else { return false };
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        stream.retry_after_quiescence(&mut io);
        // The transmit stage tries a held binding again and lists the queue pair again if it still
        // waits.
        qp.awaits_quiescence = stream.awaits_quiescence();
        qp.awaits_quiescence
    }

    /// Removes a queue pair from every list. Its connection and its stream have ended.
    pub(super) fn remove_qp(&mut self, slot: u32) -> Option<Box<qp::QpCore<L>>> {
        self.unlist_qp(slot);
        self.qps.remove(slot)
    }

    /// Removes a queue pair from the lists of those that wait to send or for something.
    pub(super) fn unlist_qp(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        if core::mem::take(&mut qp.tx_queued) {
            self.tx_ready.retain(|source| *source != TxSource::Qp(slot));
        }
        if qp.stream.awaits_forward_credit()
            && let Some(remote_atomics) = &mut self.queues.remote_atomics
        {
            remote_atomics.remove_credit_waiter(slot);
        }
        if core::mem::take(&mut qp.awaits_quiescence) {
            self.quiescence_waiters.retain(|waiting| *waiting != slot);
        }
    }

    /// Sends a message that must arrive to all other cores.
    #[cold]
    pub(super) fn broadcast(&mut self, message: InterCoreMessage) {
        if let Some(other_cores) = self.other_cores.as_deref_mut() {
            other_cores.broadcast(message);
        }
    }

    /// Returns whether all messages that must arrive are in the other cores' rings; until then
    /// contexts have to wait.
    pub(super) fn all_messages_sent(&self) -> bool {
        self.other_cores.as_ref().is_none_or(|other_cores| !other_cores.has_backlog())
    }
}
