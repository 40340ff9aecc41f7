//! The transmit stage: scheduling rounds of senders.
//!
//! Deficit round robin by bytes: each round of a queue pair has a
//! [`Quantum`](super::quantum::Quantum). The last unit may exceed it; the overdraft is deducted
//! from the next quantum, so that queue pairs get equal bytes whatever the sizes of their messages.
//! A long Write or Read Response on one queue pair delays a small message on another by a bounded
//! number of segments. A sender that is stopped by a full device ring or an empty pool stays
//! listed; one that is stopped by a window or by congestion is listed again on TCP's event.

use ironwarp_iwarp::stream::StreamState;
use ironwarp_llp::{Blocked, ConnId, Transport};
use ironwarp_types::Nanos;

use super::{DataPath, TxSource};
use crate::core_loop::lifecycle::{Draining, Lifecycle, Running};
use crate::core_loop::lower::Lower;
use crate::objects::QpState;

/// Limits a round by segments too, retransmissions included: many small messages stay below the
/// byte quantum.
pub(crate) const ROUND_UNITS_MAX: usize = 64;

/// What is left for the connection manager after a scheduling round of a queue pair.
#[derive(Clone, Copy, Default)]
#[must_use]
pub(crate) struct TxOutcome {
    /// A Read is outstanding and its timer is not armed.
    pub(crate) read_started: bool,
    /// The connection is not in `Running`, or the stream failed: its state may change, since the
    /// last unit of the state may just have been sent.
    pub(crate) check_state: bool,
}

impl TxOutcome {
    /// Returns whether nothing is left to do.
    #[inline]
    pub(crate) fn is_done(self) -> bool {
        !(self.read_started | self.check_state)
    }
}

impl<L: Lower> DataPath<L> {
    /// New work of a queue pair: the transmit stage sends it, or it is flushed if the connection
    /// has ended.
    #[inline(always)]
    pub(crate) fn on_doorbell(&mut self, slot: u32) {
        if self.has_many_connections() {
            self.prefetch_sender(slot);
        }
        if self.on_single_doorbell(slot)
            && let Some(qp) = self.qps.at(slot)
            && !core::mem::replace(&mut qp.tx_queued, true)
        {
            self.tx_ready.push_back(TxSource::Qp(slot));
        }
    }

    /// [`DataPath::on_doorbell`] without listing the queue pair as a sender: returns whether it is
    /// to be served.
    #[inline(always)]
    pub(crate) fn on_single_doorbell(&mut self, slot: u32) -> bool {
        let Some(qp) = self.qps.at(slot) else { return false };
        // The doorbell is cleared before the rings are read, so that later work rings it again.
        qp.shared.bell.clear();
        if qp.shared.state() == QpState::Error {
            self.flush(slot);
            return false;
        }
        true
    }

    /// Lists a queue pair as a sender unless it is listed.
    #[inline(never)]
    pub(crate) fn enqueue_tx(&mut self, slot: u32) {
        let tx_queued = self.qps.at(slot).map(|qp| &mut qp.tx_queued);
        if tx_queued.is_some_and(|tx_queued| !core::mem::replace(tx_queued, true)) {
            self.tx_ready.push_back(TxSource::Qp(slot));
        }
    }

    /// The scheduling round of a queue pair.
    #[inline]
    pub(crate) fn serve_qp(&mut self, now: Nanos, slot: u32) -> TxOutcome {
        let Some(qp) = self.qps.at(slot) else { return TxOutcome::default() };
        qp.tx_queued = false;
        let Some(conn) = qp.conn else { return TxOutcome::default() };
        // Until the end of the hold-off FPDUs are held back; sent bytes may need a retransmission.
        let stream_runs = match &qp.lifecycle {
            Lifecycle::Running(Running { holdoff_until, .. }) => now >= *holdoff_until,
            other => stream_runs(other, now),
        };
        if !stream_runs {
            return self.serve_without_stream(now, slot, conn);
        }
        let allowance = i64::from(qp.deficit) + self.quantum.bytes(slot);
        let (stream, io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        let mut source = stream.limited_source(io, allowance);
        let sent = self.llp.transmit(now, conn, &mut source, &mut self.wires, ROUND_UNITS_MAX);
        let left = source.remaining_bytes();
        // As `count_work`, while the queue pair is borrowed.
        self.work = self.work.wrapping_add(sent.units);
        self.quantum.on_round(slot, sent.bytes, sent.blocked == Blocked::Source && left > 0);
        // A sender with nothing left to send does not save its quantum.
        qp.deficit = left.min(0) as i32;
        let (waits, reads) = (qp.stream.awaits_quiescence(), qp.stream.read_progress().is_some());
        let running = if let Lifecycle::Running(running) = &qp.lifecycle { Some(running) } else { None };
        let read_started = reads && running.is_some_and(|running| running.read_progress_at_arm.is_none());
        let in_full_operation = running.is_some() && qp.stream.state() == StreamState::Open;
        let stopped = matches!(sent.blocked, Blocked::Pool | Blocked::Wire);
        if stopped || left <= 0 || sent.units == ROUND_UNITS_MAX {
            self.enqueue_tx(slot);
        }
        if waits {
            self.wait_for_quiescence(slot);
        }
        TxOutcome { read_started, check_state: !in_full_operation }
    }

    /// The round of a queue pair whose stream sends nothing: start-up frames, retransmissions, a
    /// FIN.
    #[cold]
    #[inline(never)]
    fn serve_without_stream(&mut self, now: Nanos, slot: u32, conn: ConnId) -> TxOutcome {
        let Some(qp) = self.qps.at(slot) else { return TxOutcome::default() };
        let sent = match &mut qp.lifecycle {
            Lifecycle::Setup(setup) => self.llp.transmit(now, conn, setup, &mut self.wires, ROUND_UNITS_MAX),
            _ => self.llp.transmit(now, conn, &mut (), &mut self.wires, ROUND_UNITS_MAX),
        };
        self.count_work(sent.units);
        if matches!(sent.blocked, Blocked::Pool | Blocked::Wire) || sent.units == ROUND_UNITS_MAX {
            self.enqueue_tx(slot);
        }
        TxOutcome { check_state: true, ..TxOutcome::default() }
    }
}

/// Returns whether a stream that is not in full operation sends.
#[cold]
#[inline(never)]
fn stream_runs<L: Lower>(lifecycle: &Lifecycle<L>, now: Nanos) -> bool {
    match lifecycle {
        Lifecycle::Draining(Draining { holdoff_until, .. }) => now >= *holdoff_until,
        other => matches!(other, Lifecycle::AwaitingRtr | Lifecycle::Terminating { .. }),
    }
}
