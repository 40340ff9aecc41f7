//! The transmit stage: whoever has something to send takes a turn.
//!
//! Deficit round robin by bytes: each turn of a queue pair is worth [`QUANTUM_BYTES`]. Its last unit may pass that, and
//! what it took too much is missing in its next turn, so that queue pairs get equal bytes whatever the sizes of their
//! messages. A long Write or Read Response on one queue pair so delays a small message on another by a bounded number
//! of segments. Who was stopped by a full device ring or an empty pool keeps the place in the list; who was stopped by
//! a window or by congestion comes back when TCP says so.

use super::qp::Phase;
use super::*;
use ironwarp_iwarp::stream::StreamState;
use ironwarp_tcp::Blocked;

/// Bytes of FPDUs that a queue pair gets for each turn: four full segments of 9000 bytes or 23 of 1500.
const QUANTUM_BYTES: i64 = 32 * 1024;

/// Segments in a turn, those that go again included: bounds what tiny messages cost, whose bytes hardly count.
const ROUND_UNITS_MAX: usize = 64;

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// Puts a sender into the list unless it is there.
    #[inline(never)]
    pub(super) fn enqueue_tx(&mut self, source: TxSource) {
        let tx_queued = match source {
            TxSource::Qp(slot) => self.qps.at(slot).map(|qp| &mut qp.tx_queued),
            TxSource::Passive(slot) => self.passives.at(slot).map(|passive| &mut passive.tx_queued),
        };
        if tx_queued.is_some_and(|tx_queued| !core::mem::replace(tx_queued, true)) {
            self.tx_ready.push_back(source);
        }
    }

    pub(super) fn transmit(&mut self, now: Nanos) {
        for _ in 0..self.tx_ready.len() {
            // Of several ports one may be full: TCP asks again for the sender's.
            if !P::SEVERAL && !self.wire.has_room() {
                return;
            }
            let Some(source) = self.tx_ready.pop_front() else { return };
            match source {
                TxSource::Qp(slot) => self.serve_qp(now, slot),
                TxSource::Passive(slot) => self.serve_passive(now, slot),
            }
        }
    }

    fn serve_qp(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        qp.tx_queued = false;
        let Some(conn) = qp.conn else { return };
        match qp.phase {
            // Held back, but what was sent before may have to go again.
            Phase::Running | Phase::Draining if now < qp.holdoff_until => {
                self.serve_without_stream(now, slot, conn)
            }
            Phase::Running | Phase::Draining | Phase::Terminating => self.serve_stream(now, slot, conn),
            _ => self.serve_without_stream(now, slot, conn),
        }
    }

    /// The turn of a queue pair that sends nothing of a stream: frames of the start-up, a unit again, a FIN.
    #[cold]
    #[inline(never)]
    fn serve_without_stream(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        let Some(qp) = self.qps.at(slot) else { return };
        let sent = match &mut qp.phase {
            Phase::Setup(setup) => self.tcp.transmit(now, conn, setup, &mut self.wire, ROUND_UNITS_MAX),
            _ => self.tcp.transmit(now, conn, &mut (), &mut self.wire, ROUND_UNITS_MAX),
        };
        self.work += sent.units;
        if matches!(sent.blocked, Blocked::Pool | Blocked::Wire) || sent.units == ROUND_UNITS_MAX {
            self.enqueue_tx(TxSource::Qp(slot));
        }
        self.after_tx(now, slot);
    }

    /// The turn of a queue pair whose stream runs.
    fn serve_stream(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        let Some(qp) = self.qps.at(slot) else { return };
        let allowance = qp.deficit + QUANTUM_BYTES;
        let (stream, io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        let mut source = stream.unit_source(io).with_byte_limit(allowance);
        let sent = self.tcp.transmit(now, conn, &mut source, &mut self.wire, ROUND_UNITS_MAX);
        let left = source.remaining_bytes();
        self.work += sent.units;
        // Who has nothing more to send saves nothing up for later.
        qp.deficit = left.min(0);
        let (waits, reads) = (qp.stream.awaits_epoch(), qp.stream.read_progress().is_some());
        let watch = reads && qp.read_progress_at_arm.is_none() && matches!(qp.phase, Phase::Running);
        let simply_runs = matches!(qp.phase, Phase::Running) && qp.stream.state() == StreamState::Open;
        let stopped = matches!(sent.blocked, Blocked::Pool | Blocked::Wire);
        if stopped || left <= 0 || sent.units == ROUND_UNITS_MAX {
            self.enqueue_tx(TxSource::Qp(slot));
        }
        if waits {
            self.wait_for_memory(slot);
        }
        if watch {
            self.arm_read_timer(now, slot);
        }
        if !simply_runs {
            self.after_tx(now, slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn serve_passive(&mut self, now: Nanos, slot: u32) {
        let Some(passive) = self.passives.at(slot) else { return };
        passive.tx_queued = false;
        let sent = self.tcp.transmit(now, passive.conn, passive, &mut self.wire, ROUND_UNITS_MAX);
        self.work += sent.units;
        if matches!(sent.blocked, Blocked::Pool | Blocked::Wire) {
            self.enqueue_tx(TxSource::Passive(slot));
        }
        self.close_after_reject(now, slot);
    }
}
