//! Handles the data path's outcomes, TCP's events of a queue pair's connection in the order of its
//! life, and its timers.

use ironwarp_llp::{ConnId, Events, Transport};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::ConnectionManager;
use crate::core_loop::channel::Notification;
use crate::core_loop::data_path::{DataPath, RxOutcome, TxOutcome};
use crate::core_loop::lifecycle::Lifecycle;
use crate::core_loop::lower::Lower;

impl<L: Lower> ConnectionManager<L> {
    /// Received bytes whose [outcome](RxOutcome::concerns_connection) concerns the connection:
    /// FPDUs arrived before the first-FPDU gate was open or after a disconnect, or they ended the
    /// stream, or there are no FPDUs.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_rx_outcome(&mut self, dp: &mut DataPath<L>, now: Nanos, outcome: RxOutcome) {
        let slot = outcome.slot;
        let Some(qp) = dp.qps.at(slot) else { return };
        if outcome.has(RxOutcome::NOT_FPDUS) {
            return qp.conn.map_or((), |conn| self.on_non_fpdu_bytes(dp, now, slot, conn));
        }
        if let Lifecycle::HalfClosed(half_closed) = &mut qp.lifecycle {
            half_closed.rx_since_timer = true;
        }
        let end = qp.stream.error().filter(|_| outcome.has(RxOutcome::ENDED));
        let established = qp.lifecycle.established();
        let opened_gate = outcome.has(RxOutcome::GATE_CLOSED) && qp.stream.may_send();
        if opened_gate && (end.is_none() || established) {
            let (context, event) = (qp.context, Notification::CommunicationEstablished { qp: qp.handle });
            self.send_event(context, event);
            if !established {
                self.on_rtr(dp, slot);
            }
        }
        match end {
            Some(end) => self.on_stream_end(dp, now, slot, end),
            None => self.close_if_drained(dp, now, slot),
        }
    }

    /// Reads received bytes on the data path and handles the outcome.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_readable(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, conn: ConnId) {
        let outcome = dp.on_readable(slot, conn);
        dp.after_reading(outcome);
        if outcome.concerns_connection() {
            self.on_rx_outcome(dp, now, outcome);
        }
    }

    /// Bytes of a connection that carries no FPDUs, or not yet.
    #[cold]
    #[inline(never)]
    fn on_non_fpdu_bytes(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, conn: ConnId) {
        if let Some(Lifecycle::Setup(_)) = dp.qps.at(slot).map(|qp| &qp.lifecycle) {
            self.on_startup_bytes(dp, now, slot, conn);
        }
        let Some(qp) = dp.qps.at(slot) else { return };
        match qp.lifecycle {
            // FPDUs follow the start-up frame in the same segment.
            _ if qp.lifecycle.takes_fpdus() => self.on_readable(dp, now, slot, conn),
            Lifecycle::Idle | Lifecycle::Setup(_) => {}
            // Bytes after the end are acknowledged and discarded: a reset would destroy our
            // Terminate.
            _ => {
                dp.llp.discard(conn);
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn on_rare_qp_events(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        conn: ConnId,
        events: Events,
    ) {
        if events.contains(Events::OUT_OF_ORDER) && dp.owns_conn(slot, conn) {
            dp.on_out_of_order(slot, conn);
        }
        self.on_qp_closing(dp, now, slot, conn, events);
    }

    /// The peer's FIN, or the end of the TCP connection. Handling the bytes of this segment may
    /// have ended this connection or started another one (revision 1). Then the FIN belongs to the
    /// old one.
    #[cold]
    pub(crate) fn on_qp_closing(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        conn: ConnId,
        events: Events,
    ) {
        if dp.defer_close(slot, conn, events) {
            return;
        }
        if events.contains(Events::PEER_CLOSED) && dp.owns_conn(slot, conn) {
            self.on_peer_closed(dp, now, slot, conn);
        }
        if !events.intersects(Events::ENDED) {
            return;
        }
        if dp.owns_conn(slot, conn) {
            self.on_tcp_closed(dp, now, slot, conn, events);
        } else {
            dp.llp.release(conn);
        }
    }

    /// The result of a scheduling round that concerns the state of the connection or its timer.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_tx_outcome(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, outcome: TxOutcome) {
        if outcome.read_started {
            self.arm_read_timer(dp, now, slot);
        }
        if outcome.check_state {
            self.advance_after_round(dp, now, slot);
        }
    }

    /// Arms the timer of an outstanding Read: without progress within the user timeout the
    /// connection ends. TCP does not detect this, since the peer may have acknowledged everything.
    #[inline(never)]
    pub(crate) fn arm_read_timer(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        if let Lifecycle::Running(running) = &mut qp.lifecycle
            && running.read_progress_at_arm.is_none()
        {
            running.read_progress_at_arm = qp.stream.read_progress();
            let deadline = now + qp.timeouts(self.timeouts).user_timeout;
            self.arm_qp(slot, deadline);
        }
    }

    /// The user timeout of a queue pair.
    pub(crate) fn user_timeout_of(&mut self, dp: &mut DataPath<L>, slot: u32) -> Nanos {
        dp.qps.at(slot).map_or(Nanos::MAX, |qp| qp.timeouts(self.timeouts).user_timeout)
    }

    /// RFC 5044 s7.1.2: a responder's sends wait for the initiator's first FPDU, and TCP has no
    /// unacknowledged data that could time out. If sends already waited when the timer was armed
    /// and still wait now, the connection times out. Returns whether it does.
    pub(crate) fn responder_sends_timed_out(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) -> bool {
        let Some(qp) = dp.qps.at(slot).filter(|qp| !qp.stream.may_send()) else { return false };
        let Lifecycle::Running(running) = &mut qp.lifecycle else { return false };
        let waits = qp.sq.refresh() != qp.sq.head();
        if core::mem::replace(&mut running.sends_waited_at_arm, waits) && waits {
            return true;
        }
        let silence = self.user_timeout_of(dp, slot);
        self.arm_qp(slot, now + silence);
        false
    }

    /// The timer of a running queue pair: a hold-off is over, or a Read had its time. Returns
    /// whether the Read made no progress.
    pub(crate) fn reads_timed_out(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) -> bool {
        let Some(qp) = dp.qps.at(slot) else { return false };
        let Lifecycle::Running(running) = &mut qp.lifecycle else { return false };
        let seen = running.read_progress_at_arm.take();
        if seen.is_some() && seen == qp.stream.read_progress() {
            dp.stats.count(Counter::VerbsReadTimeouts);
            return true;
        }
        if qp.stream.read_progress().is_some() {
            self.arm_read_timer(dp, now, slot);
        }
        false
    }

    /// Arms a queue pair's deadline; [`Nanos::MAX`] disarms it.
    pub(crate) fn arm_qp(&mut self, slot: u32, deadline: Nanos) {
        self.wheel.arm(slot, deadline);
    }

    /// Arms an incoming connection's deadline; [`Nanos::MAX`] disarms it.
    pub(crate) fn arm_passive(&mut self, slot: u32, deadline: Nanos) {
        self.wheel.arm(self.qps_max + slot, deadline);
    }
}
