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

use crate::event::{ConnectFailure, DisconnectReason, Event};
use crate::link::Notice;

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// The application closes the connection: what was posted is carried out first.
    pub(in crate::core_loop) fn disconnect(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        match qp.phase {
            Phase::Running => {
                qp.enter(Phase::Draining);
                qp.drain_until = now + qp.patience.over(self.patience).user_timeout;
                let acked = qp.conn.map_or(0, |conn| self.tcp.acked_bytes(conn));
                qp.drain_seen = (acked, qp.stream.read_progress());
                // A hold-off that still runs keeps the timer; draining takes it over when the hold-off ends.
                let deadline = if now < qp.hold_until { qp.hold_until } else { qp.drain_until };
                self.arm_qp(slot, deadline);
                self.make_ready(Sender::Qp(slot));
            }
            Phase::Setup(_) => self.give_up(now, slot, ConnectFailure::Closed),
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
        let (stream, mut io) = qp.stream_io(&mut self.cqs, &self.mem, &self.stats);
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
            qp.heard = false;
            qp.drain_until = now + qp.patience.over(self.patience).user_timeout;
        }
        self.send_fin(now, slot, conn);
    }

    /// Sends FIN and waits for the peer's, but not for ever. Nothing that comes meanwhile counts.
    fn close(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        self.flush_all(slot);
        if let Some(qp) = self.qps.at(slot) {
            qp.enter(Phase::Closing);
        }
        self.send_fin(now, slot, conn);
    }

    fn send_fin(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        self.arm_qp(slot, now + self.mpa.terminate_timeout());
        let events = self.tcp.close(now, conn, &mut self.wire);
        if events.intersects(TcpEvents::OVER) {
            self.on_qp_closing(now, slot, conn, events);
        }
    }

    /// Sends FIN on a connection that nobody owns any more. Its end, or TCP's patience, releases it.
    pub(in crate::core_loop) fn let_close(&mut self, now: Nanos, conn: ConnId) {
        self.set_owner(conn, Owner::Nobody);
        let patience = Patience { user_timeout: self.mpa.terminate_timeout(), keep_alive: None };
        self.tcp.set_patience(conn, patience);
        let events = self.tcp.close(now, conn, &mut self.wire);
        if events.intersects(TcpEvents::OVER) {
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
            self.tell_stream_end(slot, end, half_closed);
        }
        if half_closed && matches!(end, StreamError::Failed(_)) {
            return self.reset(now, slot);
        }
        self.make_ready(Sender::Qp(slot));
    }

    /// Tells the context of an error that was found here, or of the peer's, and whether a Terminate names it.
    fn tell_stream_end(&mut self, slot: u32, end: StreamError, half_closed: bool) {
        let Some(qp) = self.qps.at(slot) else { return };
        let (handle, context) = (qp.handle, qp.context);
        let (terminate, found_here) = match end {
            StreamError::Failed(terminate) => (terminate, true),
            StreamError::PeerTerminated(terminate) => (terminate, false),
        };
        // No Terminate goes behind our FIN.
        let is_told = !found_here || (qp.stream.may_tell(terminate) && !half_closed);
        qp.reason = if is_told { DisconnectReason::Terminated } else { DisconnectReason::Failed(terminate) };
        if let Some(cq) = self.cqs.take_full() {
            self.tell_event(context, Event::CompletionQueueError { cq, qp: handle });
        } else if found_here && terminate.is_local() {
            self.tell_event(context, Event::QueuePairFatal { qp: handle });
        }
        self.tell_lacking(slot);
        if is_told {
            self.tell_event(context, Event::Terminated { qp: handle, sent: found_here, terminate });
        }
    }

    /// RFC 7306 s1.1: the peer turned out to have no atomic operations.
    fn tell_lacking(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot).filter(|qp| qp.stream.peer_lacks_atomics()) else { return };
        let (context, handle) = (qp.context, qp.handle);
        if let Some(flow) = qp.conn.and_then(|conn| self.tcp.flow(conn)) {
            self.tell_event(context, Event::PeerLacksAtomics { qp: handle, peer: flow.remote.ip() });
        }
    }

    /// A peer has answered its first atomic operation: whoever remembers that it has none is wrong.
    #[cold]
    pub(in crate::core_loop) fn on_peer_with_atomics(&mut self, slot: u32) {
        if !self.shared.remembers_lacking() {
            return;
        }
        let Some(qp) = self.qps.at(slot) else { return };
        let context = qp.context;
        if let Some(flow) = qp.conn.and_then(|conn| self.tcp.flow(conn)) {
            self.tell(context, Notice::HasAtomics(flow.remote.ip()));
        }
    }

    /// After a turn at sending: an ended stream whose Terminate is out closes, a drained one too.
    #[cold]
    pub(in crate::core_loop) fn after_sending(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        match (&qp.phase, qp.stream.state(), qp.conn) {
            (Phase::Terminating, StreamState::Ended, Some(conn)) => self.close(now, slot, conn),
            (Phase::Setup(_), ..) => self.after_startup(now, slot),
            (Phase::Draining, StreamState::Open, _) => self.close_if_drained(now, slot),
            (Phase::Running | Phase::Draining, StreamState::Terminating | StreamState::Ended, _) => {
                if let Some(end) = qp.stream.end() {
                    self.on_stream_end(now, slot, end);
                }
            }
            _ => {}
        }
    }

    /// What came in order before an orderly end is delivered first (RFC 5040 s5.5): a delivery that waits until nobody
    /// uses the steering tag that it ended, and what has arrived behind it. A reset waits for nothing.
    pub(in crate::core_loop) fn waits_to_close(
        &mut self,
        slot: u32,
        conn: ConnId,
        events: TcpEvents,
    ) -> bool {
        let orderly = !events.intersects(TcpEvents::OVER.difference(TcpEvents::CLOSED));
        let Some(qp) = self.qps.at(slot).filter(|qp| qp.conn == Some(conn)) else { return false };
        let waits = orderly && qp.stream.holds_delivery();
        if waits {
            qp.closing |= events & TcpEvents::PEER_CLOSED.union(TcpEvents::CLOSED);
        }
        waits
    }

    /// Nothing is held any more: the end that waited for it takes its course.
    #[cold]
    pub(in crate::core_loop) fn resume_closing(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        let Some(qp) = self.qps.at(slot) else { return };
        let events = core::mem::take(&mut qp.closing);
        if !events.is_empty() {
            self.on_qp_closing(now, slot, conn, events);
        }
    }

    /// The peer's FIN: we close too. RFC 5041 s6.2.1: what was posted before a disconnect goes out first, since a peer
    /// that has closed its half still takes it.
    pub(in crate::core_loop) fn on_peer_closed(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        let Some(qp) = self.qps.at(slot) else { return };
        match qp.phase {
            _ if qp.is_coming_up() => self.on_setup_lost(now, slot, ConnectFailure::Closed),
            Phase::Running | Phase::HalfClosed => self.close(now, slot, conn),
            Phase::Draining => {
                qp.peer_closed = true;
                self.close_if_drained(now, slot);
            }
            _ => {}
        }
    }

    /// TCP has let go of the connection.
    pub(in crate::core_loop) fn on_ended(&mut self, now: Nanos, slot: u32, conn: ConnId, events: TcpEvents) {
        self.set_owner(conn, Owner::Nobody);
        self.tcp.release(conn);
        let Some(qp) = self.qps.at(slot) else { return };
        qp.conn = None;
        if qp.is_coming_up() {
            return self.on_setup_lost(now, slot, ConnectFailure::from_events(events));
        }
        if !qp.reason.is_error() {
            qp.reason = DisconnectReason::from_events(events);
        }
        self.end(slot);
    }

    /// The end of a connection that was up: everything is flushed, then the context is told.
    fn end(&mut self, slot: u32) {
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
        let last = qp.shares_receives().then_some(Event::LastReceiveReached { qp: qp.handle });
        self.arm_qp(slot, Nanos::MAX);
        self.flush_all(slot);
        if let Some(last) = last {
            self.tell_event(context, last);
        }
        self.tell_event(context, event);
    }

    /// A connection that never came up.
    pub(in crate::core_loop) fn give_up(&mut self, now: Nanos, slot: u32, reason: ConnectFailure) {
        self.let_go(now, slot);
        self.resolving.retain(|waiting| *waiting != slot);
        let Some(qp) = self.qps.at(slot) else { return };
        let (context, event) = (qp.context, Event::ConnectFailed { qp: qp.handle, reason });
        let phase = core::mem::replace(&mut qp.phase, Phase::Idle);
        qp.enter(Phase::Ended);
        if let Phase::Setup(setup) = phase {
            self.spend(context, setup);
        }
        self.arm_qp(slot, Nanos::MAX);
        self.flush_all(slot);
        self.tell_event(context, event);
    }

    /// Resets whatever connection a queue pair still has.
    pub(super) fn let_go(&mut self, now: Nanos, slot: u32) {
        let Some(conn) = self.qps.at(slot).and_then(|qp| qp.conn.take()) else { return };
        self.set_owner(conn, Owner::Nobody);
        self.tcp.abort(now, conn, &mut self.wire);
        self.tcp.release(conn);
    }

    /// The queue pair's patience has run out: closing took too long, or start-up did.
    pub(in crate::core_loop) fn on_patience_ended(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        match qp.phase {
            _ if qp.is_coming_up() => self.give_up(now, slot, ConnectFailure::TimedOut),
            Phase::HalfClosed if core::mem::take(&mut qp.heard) && now < qp.drain_until => {
                let deadline = qp.drain_until.min(now + self.mpa.terminate_timeout());
                self.arm_qp(slot, deadline);
            }
            Phase::HalfClosed | Phase::Terminating | Phase::Closing => self.end_by_patience(now, slot),
            Phase::Draining if now >= qp.drain_until => self.on_drain_timer(now, slot),
            Phase::Running => self.on_running_timer(now, slot),
            Phase::Draining => {
                let deadline = qp.drain_until;
                self.arm_qp(slot, deadline);
                self.make_ready(Sender::Qp(slot));
            }
            Phase::Idle | Phase::Setup(_) | Phase::Ended => {}
        }
    }

    /// What drains has the user timeout for each step, however long all of it takes.
    fn on_drain_timer(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        let acked = qp.conn.map_or(0, |conn| self.tcp.acked_bytes(conn));
        let seen = (acked, qp.stream.read_progress());
        if core::mem::replace(&mut qp.drain_seen, seen) == seen {
            return self.end_by_patience(now, slot);
        }
        qp.drain_until = now + qp.patience.over(self.patience).user_timeout;
        let deadline = qp.drain_until;
        self.arm_qp(slot, deadline);
    }

    /// A hold-off is over, a Read has had its time, or the initiator's first message has.
    fn on_running_timer(&mut self, now: Nanos, slot: u32) {
        if self.sends_are_stuck(now, slot) || self.reads_are_stuck(now, slot) {
            self.end_by_patience(now, slot);
        } else {
            self.make_ready(Sender::Qp(slot));
        }
    }

    /// Resets a connection that does not come to its end.
    fn end_by_patience(&mut self, now: Nanos, slot: u32) {
        if let Some(qp) = self.qps.at(slot)
            && !qp.reason.is_error()
        {
            qp.reason = DisconnectReason::TimedOut;
        }
        self.reset(now, slot);
    }

    fn reset(&mut self, now: Nanos, slot: u32) {
        self.let_go(now, slot);
        self.end(slot);
    }

    /// The application gave the queue pair up: its half goes back, with everything flushed.
    pub(in crate::core_loop) fn destroy_qp(&mut self, now: Nanos, slot: u32) {
        self.let_go(now, slot);
        self.flush_all(slot);
        self.resolving.retain(|waiting| *waiting != slot);
        self.arm_qp(slot, Nanos::MAX);
        if let Some(qp) = self.qps.remove(slot) {
            if qp.queued {
                self.ready.retain(|sender| *sender != Sender::Qp(slot));
            }
            if qp.stream.awaits_credit()
                && let Some(owners) = &mut self.cqs.owners
            {
                owners.leave_line(slot);
            }
            if qp.waiting {
                self.waiting.retain(|waiting| *waiting != slot);
            }
            self.tell(qp.context, Notice::QpGone(qp));
        }
    }

    /// Ends the stream, where it has not ended, and completes everything posted as flushed.
    pub(in crate::core_loop) fn flush_all(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        let (stream, mut io) = qp.stream_io(&mut self.cqs, &self.mem, &self.stats);
        stream.abort(&mut io);
    }

    /// Completes as flushed what was posted after the end.
    #[cold]
    #[inline(never)]
    pub(in crate::core_loop) fn flush(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        let (stream, mut io) = qp.stream_io(&mut self.cqs, &self.mem, &self.stats);
        stream.flush(&mut io);
    }
}

impl DisconnectReason {
    /// Whether it is known better than by how TCP ended.
    fn is_error(self) -> bool {
        matches!(self, DisconnectReason::Terminated | DisconnectReason::Failed(_))
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
            DisconnectReason::Failed(error) if error.is_local() => ConnectFailure::Failed,
            DisconnectReason::Failed(_) => ConnectFailure::Protocol,
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
