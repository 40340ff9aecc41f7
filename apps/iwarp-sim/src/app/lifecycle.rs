//! The life of a session: how it connects, how it ends, and which endings are allowed.

use ironwarp::{AcceptParams, ConnectParams, ConnectionRequest, PrivateData, QpAttr, QueuePair, VerbsError};
use ironwarp_types::Nanos;

use super::{App, NO_SESSION, Oracle, Session, Side, Stage};
use crate::atomics::Words;
use crate::plan::{BadRequest, Ending, addresses_of};

/// How long after the peer has ended a side without an event closes too: a reset may have been
/// lost.
const PEER_GONE_TIMEOUT: Nanos = Nanos::from_millis(30);

/// How long a destroyed queue pair may still complete requests: hundreds of loop iterations of its
/// core.
const LAST_COMPLETIONS_TIME: Nanos = Nanos::from_micros(100);

/// Delay between a failed connection attempt and the next one.
const RETRY_DELAY: Nanos = Nanos::from_millis(200);

/// Most connection attempts while links are faulty.
pub(super) const ATTEMPTS_MAX: u32 = 60;

/// The responder's private data.
pub(super) const ACCEPT_DATA: &[u8] = b"come in";

pub(super) const REJECT_DATA: &[u8] = b"not today";

impl App {
    /// Connects now, or later when a resource is missing.
    pub(super) fn connect(
        &mut self,
        now: Nanos,
        session: &mut Session,
        number: usize,
    ) -> Result<(), VerbsError> {
        session.tried_at = now;
        match self.try_connect(session, number) {
            Err(VerbsError::LimitReached(_) | VerbsError::Register(_)) if session.plan.over_limits => {
                self.undo_side(session, 0)?;
                session.not_before = now + RETRY_DELAY;
                // The session waits only a bounded time for resources.
                session.attempts += 1;
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Resets a side that found no resources to its initial state.
    fn undo_side(&mut self, session: &mut Session, side: usize) -> Result<(), VerbsError> {
        let fresh = Side::new(&session.plan, side);
        let old = core::mem::replace(&mut session.sides[side], fresh);
        if let Some(app_srq) = old.app_srq {
            app_srq.borrow_mut().qp_count -= 1;
        }
        match old.qp {
            Some(qp) => {
                self.by_qp.remove(&qp.num().0);
                self.ctx.destroy_qp(qp)
            }
            None => Ok(()),
        }
    }

    fn try_connect(&mut self, session: &mut Session, number: usize) -> Result<(), VerbsError> {
        self.work += 1;
        let qp = self.make_qp(session, number, 0)?;
        session.attempts += 1;
        let [v4, v6] = addresses_of(session.plan.hosts[1]);
        let mut there = if session.plan.by_v6 { v6 } else { v4 };
        there.set_port(session.plan.port);
        let private_data = &session_private_data(number);
        let extensions = session.plan.extensions;
        self.ctx.connect_with(
            qp,
            there,
            &ConnectParams { private_data, extensions, ..Default::default() },
        )?;
        session.sides[0].stage = Stage::Connecting;
        Ok(())
    }

    fn make_qp(
        &mut self,
        session: &mut Session,
        number: usize,
        side: usize,
    ) -> Result<QueuePair, VerbsError> {
        let plan = &session.plan;
        let app_srq = self.app_srq.clone().filter(|_| plan.shared[side]);
        let own = self.plan.completion_queues;
        let cq = self.cqs[number % own].cq();
        // The last queue is for shared receives: they have reserved entries there, whatever else is
        // posted.
        let other = if app_srq.is_some() { own } else { (number + side) % own };
        let attr = QpAttr {
            recv_cq: self.cqs[other].cq(),
            srq: app_srq.as_ref().map(|app_srq| app_srq.borrow().srq()),
            send_depth: plan.send_depth,
            recv_depth: plan.receives.max(1),
            ird: plan.reads,
            ord: plan.reads,
            complete_on_copy: plan.complete_on_copy,
            ..QpAttr::new(cq)
        };
        session.register_memory(side, &self.ctx, self.pd, self.foreign_pd)?;
        let qp = self.ctx.create_qp(self.pd, &attr)?;
        self.by_qp.insert(qp.num().0, (number, side));
        session.sides[side].qp = Some(qp);
        if let Some(app_srq) = &app_srq {
            app_srq.borrow_mut().qp_count += 1;
        }
        session.sides[side].app_srq = app_srq;
        // A responder's receives must be posted before the first Send can arrive.
        for _ in 0..session.plan.receives {
            session.post_receive(side, &mut self.ctx, &mut self.rng)?;
        }
        Ok(qp)
    }

    /// A connection request: the session that its private data names decides.
    pub(super) fn on_request(
        &mut self,
        now: Nanos,
        oracle: &mut Oracle,
        request: &ConnectionRequest,
        private_data: &PrivateData,
    ) {
        let named = session_of(private_data).filter(|number| *number < oracle.sessions.len());
        let Some(number) = named else {
            if !oracle.undetected_corruption {
                let fault = format_args!("a connection request has the private data {private_data:?}");
                oracle.report_failure(NO_SESSION, 1, fault);
            }
            let _ = self.ctx.reject(request, REJECT_DATA);
            return;
        };
        oracle.hash_event(now, number, 1, &[0xfe]);
        let session = &mut oracle.sessions[number];
        let is_free = session.sides[1].stage == Stage::Waiting && session.plan.hosts[1] == self.host;
        let is_free = is_free && !session.is_over;
        let outcome = if session.plan.ending == Ending::Reject || !is_free {
            self.ctx.reject(request, REJECT_DATA)
        } else {
            self.make_qp(session, number, 1).and_then(|qp| {
                session.sides[1].stage = Stage::Connecting;
                let (private_data, extensions) = (ACCEPT_DATA, session.plan.extensions);
                let params = AcceptParams { private_data, extensions, ..AcceptParams::default() };
                self.ctx.accept_with(request, qp, &params)?;
                // The tags are bound before the client's first message can arrive.
                match self.word_server.as_ref().filter(|_| session.plan.words.is_some()) {
                    Some(server) => session.bind_words(&server.memory, &mut self.ctx, self.pd, &mut self.rng),
                    None => Ok(()),
                }
            })
        };
        let session = &mut oracle.sessions[number];
        let outcome = match outcome {
            Err(VerbsError::LimitReached(_) | VerbsError::Register(_)) if session.plan.over_limits => {
                self.undo_side(session, 1).and_then(|()| self.ctx.reject(request, REJECT_DATA))
            }
            outcome => outcome,
        };
        let failed = |error| format!("a connection request could not be accepted or rejected: {error}");
        oracle.record(number, 1, outcome.map_err(failed));
    }

    /// Ends the connection as planned, or when the peer has ended and its close was lost.
    pub(super) fn end_if_due(
        &mut self,
        now: Nanos,
        session: &mut Session,
        side: usize,
    ) -> Result<(), VerbsError> {
        if let Some(server) = self.word_server.as_mut().filter(|_| side == 1) {
            server.revoke_if_due(session);
        }
        let (ours, theirs) = session.pair(side);
        let both_up = ours.stage == Stage::Up && theirs.stage == Stage::Up;
        let both_done = both_up && ours.is_done() && theirs.is_done();
        let posted = ours.posted;
        let used_up = theirs.app_srq.is_none() && theirs.receives_posted == ours.sends_posted;
        let unexpected =
            matches!(session.plan.ending, Ending::BadRequest { bad_request: BadRequest::SendUnexpected, .. });
        let spent = unexpected && used_up;
        let left_alone = session.ended_at.is_some_and(|at| now >= at + PEER_GONE_TIMEOUT);
        match session.plan.ending {
            Ending::Graceful { by } if by == side && both_done => {
                session.was_done = true;
                self.disconnect(session, side)
            }
            Ending::Early { by, after } if by == side && both_up && posted >= after => {
                self.disconnect(session, side)
            }
            Ending::Destroy { by, after } if by == side && both_up && posted >= after => {
                session.ended_at = Some(now);
                self.destroy(now, session, side)
            }
            Ending::BadRequest { by, after, bad_request }
                if by == side && both_up && (posted >= after || spent) =>
            {
                if session.posted_bad_request.is_none() && session.is_ready(side, bad_request) {
                    self.post_bad_request(session, side, bad_request)
                } else {
                    Ok(())
                }
            }
            _ if left_alone => self.disconnect(session, side),
            _ => Ok(()),
        }
    }

    fn disconnect(&mut self, session: &mut Session, side: usize) -> Result<(), VerbsError> {
        let Some(qp) = session.sides[side].qp else { return Ok(()) };
        self.work += 1;
        let ours = &mut session.sides[side];
        ours.left_before_rtr = ours.stage == Stage::Connecting;
        ours.stage = Stage::Closing;
        self.ctx.disconnect(qp)
    }

    /// The connection has ended: posts a few more requests, which must be flushed, and destroys the
    /// queue pair.
    pub(super) fn post_and_destroy(
        &mut self,
        now: Nanos,
        session: &mut Session,
        side: usize,
        words: Option<&mut Words>,
    ) -> Result<(), VerbsError> {
        if self.rng.chance(300_000) && self.state(session, side) == Some(ironwarp::QpState::Error) {
            session.post_receive(side, &mut self.ctx, &mut self.rng)?;
            session.sides[side].left += 1;
            let posted = session.post_sends(side, 1, &mut self.ctx, (self.pd, &mut self.rng), words)?;
            if posted == 0 {
                session.sides[side].left -= 1;
            }
        }
        self.destroy(now, session, side)
    }

    /// Gives up a session that will never end by itself.
    pub(super) fn abandon(
        &mut self,
        now: Nanos,
        session: &mut Session,
        side: usize,
    ) -> Result<(), VerbsError> {
        session.any_end_allowed = true;
        session.ended_at.get_or_insert(now);
        self.destroy(now, session, side)
    }

    fn destroy(&mut self, now: Nanos, session: &mut Session, side: usize) -> Result<(), VerbsError> {
        let Some(qp) = session.sides[side].qp else { return Ok(()) };
        self.work += 1;
        let ours = &mut session.sides[side];
        ours.left_without_event = ours.stage != Stage::Ended;
        ours.stage = Stage::Destroyed;
        ours.destroyed_at = now;
        self.ctx.destroy_qp(qp)
    }

    /// Ends one side: nothing more can happen on it.
    pub(super) fn finish_side(&mut self, now: Nanos, oracle: &mut Oracle, number: usize, side: usize) {
        let session = &mut oracle.sessions[number];
        // The last completions may still be in flight from the core.
        if now < session.sides[side].destroyed_at + LAST_COMPLETIONS_TIME {
            return;
        }
        self.work += 1;
        if let Some(qp) = session.sides[side].qp {
            self.by_qp.remove(&qp.num().0);
        }
        match session.complete_unsignaled(side, oracle.words.as_mut()) {
            Ok(checked) => oracle.totals.atomics += checked.atomics,
            Err(fault) => return oracle.report_failure(number, side, fault),
        }
        let session = &mut oracle.sessions[number];
        session.sides[side].stage = Stage::Gone;
        session.ended_at.get_or_insert(now);
        if session.is_ended() {
            finish(now, oracle, number);
        }
    }
}

impl Session {
    /// Returns whether the bad request can be posted now. A message that must find no shared
    /// receive waits until none is left. Until then its sender goes on and uses them up.
    fn is_ready(&mut self, side: usize, bad_request: BadRequest) -> bool {
        let number = self.number;
        let (ours, theirs) = self.pair(side);
        let Some(app_srq) = theirs.app_srq.as_ref().filter(|_| bad_request == BadRequest::SendUnexpected)
        else {
            return true;
        };
        let is_exhausted = app_srq.borrow_mut().exhaust_for(number);
        if !is_exhausted && ours.left == 0 {
            ours.left = 1;
        }
        is_exhausted
    }
}

/// Gives up a session that never gets its resources, such as one from a small host to itself.
pub(super) fn cancel_if_never_connected(oracle: &mut Oracle, number: usize) {
    let session = &mut oracle.sessions[number];
    let waits = session.sides.iter().all(|side| side.stage == Stage::Waiting);
    if session.plan.over_limits && waits && session.attempts >= ATTEMPTS_MAX {
        session.is_over = true;
        oracle.open -= 1;
    }
}

/// The context of a side is gone with its queue pair: neither reports anything more.
pub(super) fn on_context_dropped(now: Nanos, oracle: &mut Oracle, number: usize, host: usize) {
    let session = &mut oracle.sessions[number];
    if session.is_over || !session.plan.hosts.contains(&host) {
        return;
    }
    // A peer may be refused until this host listens again, and may get no event when its connection
    // ends.
    session.any_end_allowed = true;
    let mut changed = false;
    for side in [0, 1] {
        let waits = matches!(session.sides[side].stage, Stage::Waiting | Stage::Gone);
        if session.plan.hosts[side] == host && !waits {
            session.sides[side].stage = Stage::Gone;
            session.sides[side].context_dropped = true;
            session.ended_at.get_or_insert(now);
            changed = true;
        }
    }
    if changed && session.is_ended() {
        finish(now, oracle, number);
    }
}

/// Both sides have ended: checks memory for the last time, and ends or restarts the session.
pub(crate) fn finish(now: Nanos, oracle: &mut Oracle, number: usize) {
    let session = &mut oracle.sessions[number];
    let outcome = session.check_end();
    if core::mem::take(&mut session.retry) {
        session.reset(now + RETRY_DELAY);
    } else {
        session.is_over = true;
        oracle.open -= 1;
    }
    oracle.record(number, 0, outcome);
}

/// The initiator's private data: the session number, twice, because nothing else protects a
/// start-up frame.
pub(crate) fn session_private_data(number: usize) -> [u8; 8] {
    let number = number as u32;
    let mut words = [0; 8];
    words[..4].copy_from_slice(&number.to_be_bytes());
    words[4..].copy_from_slice(&(!number).to_be_bytes());
    words
}

pub(crate) fn session_of(private_data: &[u8]) -> Option<usize> {
    let (number, check) = private_data.split_first_chunk::<4>()?;
    let number = u32::from_be_bytes(*number);
    (*check == (!number).to_be_bytes()).then_some(number as usize)
}
