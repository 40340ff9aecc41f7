//! The end of connections: disconnect, Terminate, reset, timeout, destruction.
//!
//! The states and their edges are in [`lifecycle`](crate::core_loop::lifecycle). Before the context
//! learns of the end, every posted work request has its completion. While a Terminate is being
//! sent, received data is acknowledged and discarded: a reset would destroy the Terminate.

use super::ConnectionManager;
use crate::core_loop::data_path::{ConnOwner, DataPath};
use crate::core_loop::lifecycle::{Draining, HalfClosed, Lifecycle, ProgressMark};
use crate::core_loop::lower::Lower;
use ironwarp_iwarp::StreamError;
use ironwarp_iwarp::rdmap::RdmapFault;
use ironwarp_iwarp::stream::StreamState;
use ironwarp_llp::{ConnId, Events, Timeouts, Transport};
use ironwarp_types::Nanos;

use crate::core_loop::channel::{Handover, Notification};
use crate::event::{ConnectFailure, DisconnectReason};
use crate::shared::SlotTable;

impl<L: Lower> ConnectionManager<L> {
    /// The application disconnects: posted work requests are carried out first.
    pub(crate) fn disconnect(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        match qp.lifecycle {
            Lifecycle::Running(_) | Lifecycle::AwaitingRtr => {
                let deadline = now + qp.timeouts(self.timeouts).user_timeout;
                let acked_bytes = qp.conn.map_or(0, |conn| dp.llp.progress(conn).acked_bytes);
                let progress = ProgressMark { acked_bytes, read: qp.stream.read_progress() };
                qp.enter(qp.lifecycle.draining(deadline, progress));
                // A hold-off keeps the timer until it ends.
                let holdoff_until = qp.lifecycle.holdoff_until();
                self.arm_qp(slot, if now < holdoff_until { holdoff_until } else { deadline });
                dp.enqueue_tx(slot);
            }
            Lifecycle::Setup(_) => self.fail_connect(dp, now, slot, ConnectFailure::Closed),
            _ => {}
        }
    }

    /// The application aborts: the peer sees a reset, and every work request is flushed.
    pub(crate) fn abort(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        match qp.lifecycle {
            Lifecycle::Setup(_) => self.fail_connect(dp, now, slot, ConnectFailure::Closed),
            Lifecycle::Idle => self.abort_idle(dp, slot),
            Lifecycle::Ended => {}
            _ => {
                dp.abort_conn(now, slot);
                self.enter_ended(dp, slot, DisconnectReason::Aborted);
            }
        }
    }

    /// The core will not run again: resets every connection, flushes every work request, and
    /// reports both.
    pub(crate) fn end_all(&mut self, dp: &mut DataPath<L>, now: Nanos) {
        for slot in dp.qps.slots() {
            let Some(qp) = dp.qps.at(slot) else { continue };
            match qp.lifecycle {
                Lifecycle::Setup(_) => self.fail_connect(dp, now, slot, ConnectFailure::WorkerDropped),
                Lifecycle::Idle => self.end_idle(dp, slot),
                Lifecycle::Ended => dp.flush(slot),
                _ => {
                    dp.abort_conn(now, slot);
                    self.enter_ended(dp, slot, DisconnectReason::WorkerDropped);
                }
            }
        }
        self.abort_passives(dp, now);
    }

    /// The worker of a queue pair that never had a connection ends: its receives are flushed.
    fn end_idle(&mut self, dp: &mut DataPath<L>, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let (context, handle) = (qp.context, qp.handle);
        qp.enter(Lifecycle::Ended);
        dp.abort_stream(slot);
        self.send_event(context, Notification::QueuePairFatal { qp: handle });
    }

    /// The application moved a queue pair without a connection to the error state.
    fn abort_idle(&mut self, dp: &mut DataPath<L>, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let (context, handle, uses_srq) = (qp.context, qp.handle, qp.uses_srq());
        qp.enter(Lifecycle::Ended);
        dp.abort_stream(slot);
        if uses_srq {
            self.send_event(context, Notification::LastWqeReached { qp: handle });
        }
    }

    /// Sends FIN once a draining queue pair has nothing left to send, or only what a peer that has
    /// closed cannot answer.
    pub(crate) fn close_if_drained(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let Lifecycle::Draining(Draining { peer_closed, .. }) = qp.lifecycle else { return };
        let Some(conn) = qp.conn else { return };
        let (stream, mut io) = qp.stream_io(&mut dp.queues, &dp.mem, &dp.stats);
        let drained = stream.is_drained(&mut io) && dp.llp.progress(conn).all_acked;
        let peer_cannot_reply = stream.read_progress().is_some() || !stream.may_send();
        match (drained, peer_closed) {
            (true, false) => self.half_close(dp, now, slot, conn),
            (true, true) => self.close(dp, now, slot, conn),
            (false, true) if peer_cannot_reply => self.close(dp, now, slot, conn),
            (false, _) => {}
        }
    }

    /// Sends FIN. FPDUs that the peer sends before its own FIN are acknowledged, so they are placed
    /// and delivered (RFC 5041 s6.2.1): the peer may rely on an acknowledgement.
    fn half_close(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, conn: ConnId) {
        if let Some(qp) = dp.qps.at(slot) {
            let deadline = now + qp.timeouts(self.timeouts).user_timeout;
            qp.enter(qp.lifecycle.half_closed(deadline));
        }
        self.send_fin(dp, now, slot, conn);
    }

    /// Sends FIN and waits for the peer's until a timeout. Received data is discarded.
    fn close(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, conn: ConnId) {
        dp.abort_stream(slot);
        if let Some(qp) = dp.qps.at(slot) {
            qp.enter(qp.lifecycle.closing());
        }
        self.send_fin(dp, now, slot, conn);
    }

    fn send_fin(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, conn: ConnId) {
        self.arm_qp(slot, now + self.mpa.terminate_timeout());
        let events = dp.llp.close(now, conn, &mut dp.wires);
        if events.intersects(Events::ENDED) {
            self.on_qp_closing(dp, now, slot, conn, events);
        }
    }

    /// Sends FIN on a connection without an owner. It is released when it ends or at TCP's timeout.
    pub(crate) fn close_unowned(&mut self, dp: &mut DataPath<L>, now: Nanos, conn: ConnId) {
        dp.set_owner(conn, ConnOwner::Unowned);
        let timeout = self.mpa.terminate_timeout();
        let timeouts = Timeouts { user_timeout: timeout, zero_window_timeout: timeout, keep_alive: None };
        dp.llp.set_timeouts(conn, timeouts);
        let events = dp.llp.close(now, conn, &mut dp.wires);
        if events.intersects(Events::ENDED) {
            dp.llp.release(conn);
        }
    }

    /// The stream ended: it found an error, or the peer's Terminate arrived.
    #[cold]
    pub(crate) fn on_stream_end(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, end: StreamError) {
        let Some(qp) = dp.qps.at(slot) else { return };
        if qp.lifecycle.takes_fpdus() {
            let half_closed = matches!(qp.lifecycle, Lifecycle::HalfClosed(_));
            let cause = match end {
                // No Terminate may follow our FIN.
                StreamError::Failed(terminate) if half_closed || !qp.stream.may_send_terminate(terminate) => {
                    DisconnectReason::LocalError(terminate)
                }
                StreamError::Failed(_) | StreamError::PeerTerminated(_) => DisconnectReason::Terminated,
            };
            qp.enter(qp.lifecycle.terminating(cause));
            if matches!(end, StreamError::Failed(terminate) if terminate.is_protection_error()) {
                let flow = qp.conn.and_then(|conn| dp.llp.flow(conn));
                flow.into_iter().for_each(|flow| self.protection_backoff.record(now, flow.remote.ip()));
            }
            self.arm_qp(slot, now + self.mpa.terminate_timeout());
            self.report_stream_end(dp, slot, end, cause);
            if half_closed && matches!(end, StreamError::Failed(_)) {
                dp.abort_conn(now, slot);
                return self.enter_ended(dp, slot, cause);
            }
        }
        dp.enqueue_tx(slot);
    }

    /// Reports the error to the context, and whether a Terminate carries it.
    fn report_stream_end(
        &mut self,
        dp: &mut DataPath<L>,
        slot: u32,
        end: StreamError,
        cause: DisconnectReason,
    ) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let (handle, context) = (qp.handle, qp.context);
        let (terminate, found_here) = match end {
            StreamError::Failed(terminate) => (terminate, true),
            StreamError::PeerTerminated(terminate) => (terminate, false),
        };
        if let Some(cq) = dp.queues.take_overflowed_cq() {
            self.send_event(context, Notification::CompletionQueueError { cq, qp: handle });
        } else if found_here && terminate.is_local_catastrophic() {
            self.send_event(context, Notification::QueuePairFatal { qp: handle });
        }
        self.report_no_peer_atomics(dp, slot);
        if cause == DisconnectReason::Terminated {
            self.send_event(context, Notification::Terminated { qp: handle, sent: found_here, terminate });
        }
    }

    /// RFC 7306 s1.1: the peer does not support atomic operations.
    fn report_no_peer_atomics(&mut self, dp: &mut DataPath<L>, slot: u32) {
        let Some(qp) = dp.qps.at(slot).filter(|qp| qp.stream.peer_lacks_atomics()) else { return };
        let (context, handle) = (qp.context, qp.handle);
        if let Some(flow) = qp.conn.and_then(|conn| dp.llp.flow(conn)) {
            self.send_event(context, Notification::PeerLacksAtomics { qp: handle, peer: flow.remote.ip() });
        }
    }

    /// The peer replied to its first atomic operation: a cached entry that it supports none is
    /// wrong.
    #[cold]
    pub(crate) fn on_peer_with_atomics(&mut self, dp: &mut DataPath<L>, slot: u32) {
        if !self.shared.may_lack_atomics() {
            return;
        }
        let Some(qp) = dp.qps.at(slot) else { return };
        let context = qp.context;
        if let Some(flow) = qp.conn.and_then(|conn| dp.llp.flow(conn)) {
            self.send_notification(context, Notification::PeerHasAtomics(flow.remote.ip()));
        }
    }

    /// After a scheduling round: closes a stream whose Terminate is sent, or that is drained.
    #[cold]
    pub(crate) fn advance_after_round(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        match (&qp.lifecycle, qp.stream.state(), qp.conn) {
            (Lifecycle::Terminating { .. }, StreamState::Ended, Some(conn)) => {
                self.close(dp, now, slot, conn)
            }
            (Lifecycle::Setup(_), ..) => self.complete_accept(dp, now, slot),
            (Lifecycle::Draining(_), StreamState::Open, _) => self.close_if_drained(dp, now, slot),
            (
                Lifecycle::Running(_) | Lifecycle::AwaitingRtr | Lifecycle::Draining(_),
                StreamState::Terminating | StreamState::Ended,
                _,
            ) => {
                if let Some(end) = qp.stream.error() {
                    self.on_stream_end(dp, now, slot, end);
                }
            }
            _ => {}
        }
    }

    /// No delivery is held any more: handles the end that waited for it.
    #[cold]
    pub(crate) fn resume_deferred_close(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        conn: ConnId,
    ) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let events = core::mem::take(&mut qp.deferred_close);
        if !events.is_empty() {
            self.on_qp_closing(dp, now, slot, conn, events);
        }
    }

    /// The peer's FIN: this side closes too. RFC 5041 s6.2.1: work requests that were posted before
    /// a disconnect are sent first, since a peer that has closed its half still receives.
    pub(crate) fn on_peer_closed(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, conn: ConnId) {
        let Some(qp) = dp.qps.at(slot) else { return };
        match &mut qp.lifecycle {
            Lifecycle::Setup(_) | Lifecycle::AwaitingRtr => {
                self.on_setup_disconnected(dp, now, slot, ConnectFailure::Closed)
            }
            Lifecycle::Running(_) | Lifecycle::HalfClosed(_) => self.close(dp, now, slot, conn),
            Lifecycle::Draining(draining) => {
                draining.peer_closed = true;
                self.close_if_drained(dp, now, slot);
            }
            _ => {}
        }
    }

    /// The TCP connection has ended.
    pub(crate) fn on_tcp_closed(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        conn: ConnId,
        events: Events,
    ) {
        dp.set_owner(conn, ConnOwner::Unowned);
        dp.llp.release(conn);
        let Some(qp) = dp.qps.at(slot) else { return };
        qp.conn = None;
        if qp.lifecycle.is_connecting() {
            return self.on_setup_disconnected(dp, now, slot, ConnectFailure::from_events(events));
        }
        self.enter_ended(dp, slot, DisconnectReason::from_events(events));
    }

    /// The end of a connection after set-up: flushes every work request, then reports the error
    /// that was found, else `reason`.
    fn enter_ended(&mut self, dp: &mut DataPath<L>, slot: u32, reason: DisconnectReason) {
        let Some(qp) = dp.qps.at(slot) else { return };
        if matches!(qp.lifecycle, Lifecycle::Ended) {
            return;
        }
        let before = qp.enter(Lifecycle::Ended);
        let (context, handle, reason) = (qp.context, qp.handle, before.cause().unwrap_or(reason));
        let event = match before.established() {
            true => Notification::Disconnected { qp: handle, reason },
            // No RTR arrived: the application does not know the connection.
            false => Notification::ConnectFailed { qp: handle, reason: reason.into() },
        };
        let last = qp.uses_srq().then_some(Notification::LastWqeReached { qp: qp.handle });
        self.arm_qp(slot, Nanos::MAX);
        dp.abort_stream(slot);
        if let Some(last) = last {
            self.send_event(context, last);
        }
        self.send_event(context, event);
    }

    /// Set-up failed: the connection was never up.
    pub(crate) fn fail_connect(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        reason: ConnectFailure,
    ) {
        dp.abort_conn(now, slot);
        self.resolving.retain(|waiting| *waiting != slot);
        let Some(qp) = dp.qps.at(slot) else { return };
        let (context, event) = (qp.context, Notification::ConnectFailed { qp: qp.handle, reason });
        if let Lifecycle::Setup(setup) = qp.enter(Lifecycle::Ended) {
            self.return_params(context, slot, setup.into_params());
        }
        self.arm_qp(slot, Nanos::MAX);
        dp.abort_stream(slot);
        self.send_event(context, event);
    }

    /// The deadline of a queue pair expired.
    pub(crate) fn on_qp_timer(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        match &mut qp.lifecycle {
            Lifecycle::Setup(_) | Lifecycle::AwaitingRtr => {
                self.fail_connect(dp, now, slot, ConnectFailure::TimedOut)
            }
            Lifecycle::Running(_) => self.on_running_timer(dp, now, slot),
            Lifecycle::Draining(Draining { deadline, .. }) if now < *deadline => {
                let deadline = *deadline;
                self.arm_qp(slot, deadline);
                dp.enqueue_tx(slot);
            }
            Lifecycle::Draining(_) => self.on_drain_timer(dp, now, slot),
            Lifecycle::HalfClosed(HalfClosed { deadline, rx_since_timer: received @ true, .. })
                if now < *deadline =>
            {
                *received = false;
                let deadline = (*deadline).min(now + self.mpa.terminate_timeout());
                self.arm_qp(slot, deadline);
            }
            Lifecycle::HalfClosed(_) | Lifecycle::Terminating { .. } | Lifecycle::Closing { .. } => {
                self.end_on_timeout(dp, now, slot)
            }
            Lifecycle::Idle | Lifecycle::Ended => {}
        }
    }

    /// A disconnect has the user timeout for each step of progress, however long it takes in total.
    fn on_drain_timer(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let acked_bytes = qp.conn.map_or(0, |conn| dp.llp.progress(conn).acked_bytes);
        let seen = ProgressMark { acked_bytes, read: qp.stream.read_progress() };
        let next = now + qp.timeouts(self.timeouts).user_timeout;
        let Lifecycle::Draining(Draining { progress, deadline, .. }) = &mut qp.lifecycle else { return };
        if core::mem::replace(progress, seen) == seen {
            return self.end_on_timeout(dp, now, slot);
        }
        *deadline = next;
        self.arm_qp(slot, next);
    }

    /// A hold-off is over, or a Read or the initiator's first FPDU had its time.
    fn on_running_timer(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        if self.responder_sends_timed_out(dp, now, slot) || self.reads_timed_out(dp, now, slot) {
            self.end_on_timeout(dp, now, slot);
        } else {
            dp.enqueue_tx(slot);
        }
    }

    /// RFC 5040 s7.1: a peer's request can neither be executed nor be refused as the peer's error.
    pub(crate) fn terminate_for_lost_core(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let was_open = qp.stream.state() == StreamState::Open;
        let (stream, mut io) = qp.stream_io(&mut dp.queues, &dp.mem, &dp.stats);
        stream.terminate(RdmapFault::LocalCatastrophic.into(), &mut io);
        stream.on_forward_credit(&mut io);
        if let Some(end) = stream.error().filter(|_| was_open) {
            dp.count_work(1);
            self.on_stream_end(dp, now, slot, end);
        }
    }

    /// Resets a connection that did not end in time.
    fn end_on_timeout(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        dp.abort_conn(now, slot);
        self.enter_ended(dp, slot, DisconnectReason::TimedOut);
    }

    /// The application destroyed the queue pair: returns the core's half with all work requests
    /// flushed.
    pub(crate) fn destroy_qp(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        dp.abort_conn(now, slot);
        dp.abort_stream(slot);
        self.resolving.retain(|waiting| *waiting != slot);
        self.arm_qp(slot, Nanos::MAX);
        let Some(qp) = dp.remove_qp(slot) else { return };
        let context = qp.context;
        let place = |handover: &Handover| handover.qps.put(slot, qp);
        self.return_half(context, place, SlotTable::QueuePairs, slot);
    }
}

impl DisconnectReason {
    fn from_events(events: Events) -> Self {
        match () {
            () if events.contains(Events::RESET) => DisconnectReason::Reset,
            // RFC 9293 MUST-47, RFC 1122 s4.2.3.9: a soft error is reported when the connection has
            // failed.
            () if events.contains(Events::UNREACHABLE) => DisconnectReason::Unreachable,
            () if events.contains(Events::TIMED_OUT) => DisconnectReason::TimedOut,
            () => DisconnectReason::Closed,
        }
    }
}

impl From<DisconnectReason> for ConnectFailure {
    fn from(reason: DisconnectReason) -> Self {
        match reason {
            DisconnectReason::Terminated => ConnectFailure::Terminated,
            DisconnectReason::LocalError(error) if error.is_local_catastrophic() => {
                ConnectFailure::LocalError
            }
            DisconnectReason::LocalError(_) => ConnectFailure::Protocol,
            DisconnectReason::WorkerDropped => ConnectFailure::WorkerDropped,
            DisconnectReason::TimedOut => ConnectFailure::TimedOut,
            DisconnectReason::Unreachable => ConnectFailure::Unreachable,
            DisconnectReason::Closed | DisconnectReason::Reset | DisconnectReason::Aborted => {
                ConnectFailure::Closed
            }
        }
    }
}

impl ConnectFailure {
    fn from_events(events: Events) -> Self {
        match () {
            () if events.contains(Events::REFUSED) => ConnectFailure::Refused,
            () if events.contains(Events::UNREACHABLE) => ConnectFailure::Unreachable,
            () if events.contains(Events::TIMED_OUT) => ConnectFailure::TimedOut,
            () => ConnectFailure::Closed,
        }
    }
}
