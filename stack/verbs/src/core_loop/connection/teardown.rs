//! The end of connections: disconnecting, Terminate, resets, time-outs, destruction.
//!
//! ```text
//! Running --disconnect--> Draining --all sent, answered, acknowledged: FIN--> HalfClosed --peer's FIN--+
//!    |                                                                                             v
//!    +--error found, or Terminate received--> Terminating --Terminate out: FIN------------------> Closing --> Ended
//!    +--peer's FIN: FIN (from Draining: once all is sent, if the peer still can take it)------------^
//!    +--reset, user timeout--> Ended
//! ```
//! Whatever the way, every posted request has its completion before the context hears that it is over. While a
//! Terminate is on its way, incoming data is acknowledged and discarded: a reset would destroy it.

use super::*;
use crate::core_loop::qp::Phase;
use ironwarp_iwarp::StreamError;
use ironwarp_iwarp::stream::StreamState;

use crate::channel::Notification;
use crate::event::{ConnectFailure, DisconnectReason, Event};

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// The application closes the connection: what was posted is carried out first.
    pub(in crate::core_loop) fn disconnect(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        match qp.phase {
            Phase::Running => {
                qp.enter(Phase::Draining);
                qp.drain_deadline = now + qp.timeouts.resolve(self.timeouts).user_timeout;
                let acked = qp.conn.map_or(0, |conn| self.tcp.acked_bytes(conn));
                qp.drain_progress = (acked, qp.stream.read_progress());
                // A hold-off that still runs keeps the timer; draining takes it over when the hold-off ends.
                let deadline = if now < qp.holdoff_until { qp.holdoff_until } else { qp.drain_deadline };
                self.arm_qp(slot, deadline);
                self.enqueue_tx(TxSource::Qp(slot));
            }
            Phase::Setup(_) => self.fail_connect(now, slot, ConnectFailure::Closed),
            _ => {}
        }
    }

    /// Sends FIN once a draining queue pair has nothing left to do, or nothing that a peer which has closed could answer.
    pub(in crate::core_loop) fn close_if_drained(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        if !matches!(qp.phase, Phase::Draining) {
            return;
        }
        let Some(conn) = qp.conn else { return };
        let peer_closed = qp.peer_closed;
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        let drained = stream.is_drained(&mut io) && self.tcp.all_acked(conn);
        let in_vain = stream.read_progress().is_some() || !stream.may_send();
        match (drained, peer_closed) {
            (true, false) => self.half_close(now, slot, conn),
            (true, true) => self.close(now, slot, conn),
            (false, true) if in_vain => self.close(now, slot, conn),
            (false, _) => {}
        }
    }

    /// Sends FIN. What the peer has sent before it answers with its own has been acknowledged, so it is placed and
    /// delivered (RFC 5041 s6.2.1): a disconnect takes nothing back that the peer was told has arrived.
    fn half_close(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        if let Some(qp) = self.qps.at(slot) {
            qp.enter(Phase::HalfClosed);
            qp.rx_since_timer = false;
            qp.drain_deadline = now + qp.timeouts.resolve(self.timeouts).user_timeout;
        }
        self.send_fin(now, slot, conn);
    }

    /// Sends FIN and waits for the peer's, but not for ever. Nothing that comes meanwhile counts.
    fn close(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        self.abort_stream(slot);
        if let Some(qp) = self.qps.at(slot) {
            qp.enter(Phase::Closing);
        }
        self.send_fin(now, slot, conn);
    }

    fn send_fin(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        self.arm_qp(slot, now + self.mpa.terminate_timeout());
        let events = self.tcp.close(now, conn, &mut self.wire);
        if events.intersects(TcpEvents::ENDED) {
            self.on_qp_closing(now, slot, conn, events);
        }
    }

    /// Sends FIN on a connection that nobody owns any more. Its end, or TCP's patience, releases it.
    pub(in crate::core_loop) fn close_unowned(&mut self, now: Nanos, conn: ConnId) {
        self.set_owner(conn, ConnOwner::Unowned);
        let timeouts = TcpTimeouts { user_timeout: self.mpa.terminate_timeout(), keep_alive: None };
        self.tcp.set_timeouts(conn, timeouts);
        let events = self.tcp.close(now, conn, &mut self.wire);
        if events.intersects(TcpEvents::ENDED) {
            self.tcp.release(conn);
        }
    }

    /// The stream ended itself: it found an error, or the peer's Terminate came.
    #[cold]
    pub(in crate::core_loop) fn on_stream_end(&mut self, now: Nanos, slot: u32, end: StreamError) {
        let Some(qp) = self.qps.at(slot) else { return };
        let half_closed = matches!(qp.phase, Phase::HalfClosed);
        if half_closed || matches!(qp.phase, Phase::Running | Phase::Draining) {
            qp.enter(Phase::Terminating);
            self.arm_qp(slot, now + self.mpa.terminate_timeout());
            self.report_stream_end(slot, end, half_closed);
        }
        if half_closed && matches!(end, StreamError::Failed(_)) {
            return self.reset(now, slot);
        }
        self.enqueue_tx(TxSource::Qp(slot));
    }

    /// Tells the context of an error that was found here, or of the peer's, and whether a Terminate names it.
    fn report_stream_end(&mut self, slot: u32, end: StreamError, half_closed: bool) {
        let Some(qp) = self.qps.at(slot) else { return };
        let (handle, context) = (qp.handle, qp.context);
        let (terminate, found_here) = match end {
            StreamError::Failed(terminate) => (terminate, true),
            StreamError::PeerTerminated(terminate) => (terminate, false),
        };
        // No Terminate goes behind our FIN.
        let has_terminate = !found_here || (qp.stream.may_send_terminate(terminate) && !half_closed);
        qp.reason = if has_terminate {
            DisconnectReason::Terminated
        } else {
            DisconnectReason::LocalError(terminate)
        };
        if let Some(cq) = self.queues.take_overflowed_cq() {
            self.send_event(context, Event::CompletionQueueError { cq, qp: handle });
        } else if found_here && terminate.is_local_catastrophic() {
            self.send_event(context, Event::QueuePairFatal { qp: handle });
        }
        self.report_no_peer_atomics(slot);
        if has_terminate {
            self.send_event(context, Event::Terminated { qp: handle, sent: found_here, terminate });
        }
    }

    /// RFC 7306 s1.1: the peer turned out to have no atomic operations.
    fn report_no_peer_atomics(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot).filter(|qp| qp.stream.peer_lacks_atomics()) else { return };
        let (context, handle) = (qp.context, qp.handle);
        if let Some(flow) = qp.conn.and_then(|conn| self.tcp.flow(conn)) {
            self.send_event(context, Event::PeerLacksAtomics { qp: handle, peer: flow.remote.ip() });
        }
    }

    /// A peer has answered its first atomic operation: whoever remembers that it has none is wrong.
    #[cold]
    pub(in crate::core_loop) fn on_peer_with_atomics(&mut self, slot: u32) {
        if !self.shared.may_lack_atomics() {
            return;
        }
        let Some(qp) = self.qps.at(slot) else { return };
        let context = qp.context;
        if let Some(flow) = qp.conn.and_then(|conn| self.tcp.flow(conn)) {
            self.send_notification(context, Notification::PeerHasAtomics(flow.remote.ip()));
        }
    }

    /// After a turn at sending: an ended stream whose Terminate is out closes, a drained one too.
    #[cold]
    pub(in crate::core_loop) fn after_tx(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        match (&qp.phase, qp.stream.state(), qp.conn) {
            (Phase::Terminating, StreamState::Ended, Some(conn)) => self.close(now, slot, conn),
            (Phase::Setup(_), ..) => self.complete_accept(now, slot),
            (Phase::Draining, StreamState::Open, _) => self.close_if_drained(now, slot),
            (Phase::Running | Phase::Draining, StreamState::Terminating | StreamState::Ended, _) => {
                if let Some(end) = qp.stream.error() {
                    self.on_stream_end(now, slot, end);
                }
            }
            _ => {}
        }
    }

    /// What came in order before an orderly end is delivered first (RFC 5040 s5.5): a delivery that waits until nobody
    /// uses the steering tag that it ended, and what has arrived behind it. A reset waits for nothing.
    pub(in crate::core_loop) fn defer_close(&mut self, slot: u32, conn: ConnId, events: TcpEvents) -> bool {
        let orderly = !events.intersects(TcpEvents::ENDED.difference(TcpEvents::CLOSED));
        let Some(qp) = self.qps.at(slot).filter(|qp| qp.conn == Some(conn)) else { return false };
        let waits = orderly && qp.stream.has_pending_delivery();
        if waits {
            qp.deferred_close |= events & TcpEvents::PEER_CLOSED.union(TcpEvents::CLOSED);
        }
        waits
    }

    /// Nothing is held any more: the end that waited for it takes its course.
    #[cold]
    pub(in crate::core_loop) fn resume_deferred_close(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        let Some(qp) = self.qps.at(slot) else { return };
        let events = core::mem::take(&mut qp.deferred_close);
        if !events.is_empty() {
            self.on_qp_closing(now, slot, conn, events);
        }
    }

    /// The peer's FIN: we close too. RFC 5041 s6.2.1: what was posted before a disconnect goes out first, since a peer
    /// that has closed its half still takes it.
    pub(in crate::core_loop) fn on_peer_closed(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        let Some(qp) = self.qps.at(slot) else { return };
        match qp.phase {
            _ if qp.is_connecting() => self.on_setup_disconnected(now, slot, ConnectFailure::Closed),
            Phase::Running | Phase::HalfClosed => self.close(now, slot, conn),
            Phase::Draining => {
                qp.peer_closed = true;
                self.close_if_drained(now, slot);
            }
            _ => {}
        }
    }

    /// TCP has let go of the connection.
    pub(in crate::core_loop) fn on_tcp_closed(
        &mut self,
        now: Nanos,
        slot: u32,
        conn: ConnId,
        events: TcpEvents,
    ) {
        self.set_owner(conn, ConnOwner::Unowned);
        self.tcp.release(conn);
        let Some(qp) = self.qps.at(slot) else { return };
        qp.conn = None;
        if qp.is_connecting() {
            return self.on_setup_disconnected(now, slot, ConnectFailure::from_events(events));
        }
        if !qp.reason.is_error() {
            qp.reason = DisconnectReason::from_events(events);
        }
        self.enter_ended(slot);
    }

    /// The end of a connection that was up: everything is flushed, then the context is told.
    fn enter_ended(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        if matches!(qp.phase, Phase::Ended) {
            return;
        }
        qp.enter(Phase::Ended);
        let (context, handle, reason) = (qp.context, qp.handle, qp.reason);
        let event = match qp.rtr_awaited {
            false => Event::Disconnected { qp: handle, reason },
            // What came instead of the indication has ended what never was up.
            true => Event::ConnectFailed { qp: handle, reason: reason.into() },
        };
        let last = qp.uses_srq().then_some(Event::LastWqeReached { qp: qp.handle });
        self.arm_qp(slot, Nanos::MAX);
        self.abort_stream(slot);
        if let Some(last) = last {
            self.send_event(context, last);
        }
        self.send_event(context, event);
    }

    /// A connection that never came up.
    pub(in crate::core_loop) fn fail_connect(&mut self, now: Nanos, slot: u32, reason: ConnectFailure) {
        self.abort_conn(now, slot);
        self.resolving.retain(|waiting| *waiting != slot);
        let Some(qp) = self.qps.at(slot) else { return };
        let (context, event) = (qp.context, Event::ConnectFailed { qp: qp.handle, reason });
        let phase = core::mem::replace(&mut qp.phase, Phase::Idle);
        qp.enter(Phase::Ended);
        if let Phase::Setup(setup) = phase {
            self.return_params(context, setup);
        }
        self.arm_qp(slot, Nanos::MAX);
        self.abort_stream(slot);
        self.send_event(context, event);
    }

    /// Resets whatever connection a queue pair still has.
    pub(super) fn abort_conn(&mut self, now: Nanos, slot: u32) {
        let Some(conn) = self.qps.at(slot).and_then(|qp| qp.conn.take()) else { return };
        self.set_owner(conn, ConnOwner::Unowned);
        self.tcp.abort(now, conn, &mut self.wire);
        self.tcp.release(conn);
    }

    /// The queue pair's patience has run out: closing took too long, or start-up did.
    pub(in crate::core_loop) fn on_qp_timer(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        match qp.phase {
            _ if qp.is_connecting() => self.fail_connect(now, slot, ConnectFailure::TimedOut),
            Phase::HalfClosed if core::mem::take(&mut qp.rx_since_timer) && now < qp.drain_deadline => {
                let deadline = qp.drain_deadline.min(now + self.mpa.terminate_timeout());
                self.arm_qp(slot, deadline);
            }
            Phase::HalfClosed | Phase::Terminating | Phase::Closing => self.end_on_timeout(now, slot),
            Phase::Draining if now >= qp.drain_deadline => self.on_drain_timer(now, slot),
            Phase::Running => self.on_running_timer(now, slot),
            Phase::Draining => {
                let deadline = qp.drain_deadline;
                self.arm_qp(slot, deadline);
                self.enqueue_tx(TxSource::Qp(slot));
            }
            Phase::Idle | Phase::Setup(_) | Phase::Ended => {}
        }
    }

    /// What drains has the user timeout for each step, however long all of it takes.
    fn on_drain_timer(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        let acked = qp.conn.map_or(0, |conn| self.tcp.acked_bytes(conn));
        let seen = (acked, qp.stream.read_progress());
        if core::mem::replace(&mut qp.drain_progress, seen) == seen {
            return self.end_on_timeout(now, slot);
        }
        qp.drain_deadline = now + qp.timeouts.resolve(self.timeouts).user_timeout;
        let deadline = qp.drain_deadline;
        self.arm_qp(slot, deadline);
    }

    /// A hold-off is over, a Read has had its time, or the initiator's first message has.
    fn on_running_timer(&mut self, now: Nanos, slot: u32) {
        if self.responder_sends_timed_out(now, slot) || self.reads_timed_out(now, slot) {
            self.end_on_timeout(now, slot);
        } else {
            self.enqueue_tx(TxSource::Qp(slot));
        }
    }

    /// Resets a connection that does not come to its end.
    fn end_on_timeout(&mut self, now: Nanos, slot: u32) {
        if let Some(qp) = self.qps.at(slot)
            && !qp.reason.is_error()
        {
            qp.reason = DisconnectReason::TimedOut;
        }
        self.reset(now, slot);
    }

    fn reset(&mut self, now: Nanos, slot: u32) {
        self.abort_conn(now, slot);
        self.enter_ended(slot);
    }

    /// The application gave the queue pair up: its half goes back, with everything flushed.
    pub(in crate::core_loop) fn destroy_qp(&mut self, now: Nanos, slot: u32) {
        self.abort_conn(now, slot);
        self.abort_stream(slot);
        self.resolving.retain(|waiting| *waiting != slot);
        self.arm_qp(slot, Nanos::MAX);
        if let Some(qp) = self.qps.remove(slot) {
            if qp.tx_queued {
                self.tx_ready.retain(|source| *source != TxSource::Qp(slot));
            }
            if qp.stream.awaits_forward_credit()
                && let Some(remote_atomics) = &mut self.queues.remote_atomics
            {
                remote_atomics.remove_credit_waiter(slot);
            }
            if qp.awaits_memory {
                self.memory_waiters.retain(|waiting| *waiting != slot);
            }
            self.send_notification(qp.context, Notification::QpReturned(qp));
        }
    }

    /// Ends the stream, where it has not ended, and completes everything posted as flushed.
    pub(in crate::core_loop) fn abort_stream(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        stream.abort(&mut io);
    }

    /// Completes as flushed what was posted after the end.
    #[cold]
    #[inline(never)]
    pub(in crate::core_loop) fn flush(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        stream.flush(&mut io);
    }
}

impl DisconnectReason {
    /// Whether it is known better than by how TCP ended.
    fn is_error(self) -> bool {
        matches!(self, DisconnectReason::Terminated | DisconnectReason::LocalError(_))
    }

    fn from_events(events: TcpEvents) -> Self {
        match () {
            () if events.contains(TcpEvents::RESET) => DisconnectReason::Reset,
            () if events.contains(TcpEvents::TIMED_OUT) => DisconnectReason::TimedOut,
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
            DisconnectReason::TimedOut => ConnectFailure::TimedOut,
            DisconnectReason::Closed | DisconnectReason::Reset => ConnectFailure::Closed,
        }
    }
}

impl ConnectFailure {
    fn from_events(events: TcpEvents) -> Self {
        match () {
            () if events.contains(TcpEvents::REFUSED) => ConnectFailure::Refused,
            () if events.contains(TcpEvents::TIMED_OUT) => ConnectFailure::TimedOut,
            () => ConnectFailure::Closed,
        }
    }
}
