//! Checks the events of a context: which events may occur, and in which state.

use ironwarp::{ConnectFailure, DisconnectReason, Event, PrivateData, QueuePair, Terminate};
use ironwarp_types::Nanos;

use super::lifecycle::{ACCEPT_DATA, ATTEMPTS_MAX, REJECT_DATA};
use super::{App, AttackOutcome, NO_SESSION, Oracle, Session, Side, Stage};
use crate::plan::Ending;

impl App {
    pub(super) fn on_event(&mut self, now: Nanos, event: Event) {
        let oracle = self.oracle.clone();
        let mut oracle = oracle.borrow_mut();
        if let Event::ConnectRequest { request, private_data, .. } = event {
            self.on_request(now, &mut oracle, &request, &private_data);
            return self.requests.push(request);
        }
        if let Event::RequestEnded { request } = &event {
            oracle.hash_event(now, 0, 1, &[0xfc]);
            match self.requests.iter().position(|open| open == request) {
                Some(index) => drop(self.requests.swap_remove(index)),
                None => {
                    let fault = format_args!("the end of a request that is not open: {request:?}");
                    oracle.report_failure(NO_SESSION, 1, fault);
                }
            }
            return;
        }
        if let (Event::ListenFailed { .. }, true) = (&event, self.has_restarted) {
            // The listener of the previous context still exists.
            self.listens = false;
            return;
        }
        if let (Event::SrqLimitReached { .. }, Some(app_srq)) = (&event, &self.app_srq) {
            oracle.hash_event(now, 0, 0, &[0xfd]);
            return oracle.record(NO_SESSION, 0, app_srq.borrow_mut().on_limit_event());
        }
        let Some((qp, what)) = of_queue_pair(&event) else {
            return oracle.report_failure(NO_SESSION, 0, format_args!("unexpected event: {event:?}"));
        };
        let Some(&(number, side)) = self.by_qp.get(&qp.num().0) else {
            let fault = format_args!("an event for an unknown queue pair: {event:?}");
            return oracle.report_failure(NO_SESSION, 0, fault);
        };
        oracle.hash_event(now, number, side, &[0xff, what]);
        let outcome = match event {
            Event::Established { private_data, .. } => {
                on_established(&mut oracle, number, side, &private_data)
            }
            Event::CommunicationEstablished { .. } => on_communicating(&oracle.sessions[number], side),
            Event::Rejected { private_data, .. } => {
                on_rejected(now, &mut oracle.sessions[number], side, &private_data)
            }
            Event::ConnectFailed { reason, .. } => on_connect_failed(now, &mut oracle, number, side, reason),
            Event::Terminated { sent, terminate, .. } => {
                oracle.totals.terminated += 1;
                let is_well = sent && !oracle.faulty;
                oracle.sessions[number].sides[side].terminated_on_clean_link = is_well;
                on_terminated(&mut oracle.sessions[number], side, sent, terminate)
            }
            Event::LastWqeReached { .. } => on_last_receive(&mut oracle.sessions[number].sides[side]),
            Event::QueuePairFatal { .. } => on_fatal(&oracle.sessions[number], side),
            Event::Path { .. } if !self.plan.config.fabrics.is_empty() => Ok(()),
            Event::Disconnected { reason, .. } => on_disconnected(now, &mut oracle, number, side, reason),
            _ => Err(format!("unexpected event: {event:?}")),
        };
        oracle.record(number, side, outcome);
    }
}

fn on_established(
    oracle: &mut Oracle,
    number: usize,
    side: usize,
    private_data: &PrivateData,
) -> Result<(), String> {
    let ours = &mut oracle.sessions[number].sides[side];
    match ours.stage {
        Stage::Connecting => ours.stage = Stage::Up,
        // The RTR was on its way.
        Stage::Closing if core::mem::take(&mut ours.left_before_rtr) => {}
        stage => return Err(format!("established in {stage:?}")),
    }
    let expected = if side == 0 { ACCEPT_DATA } else { &[] };
    if private_data[..] != *expected && !oracle.undetected_corruption {
        return Err(format!("established with {private_data:?}"));
    }
    oracle.totals.established += u64::from(side == 0);
    Ok(())
}

/// The first message arrived at the accepting side. Where that message is the ready-to-receive
/// indication, it also establishes the connection, so this event comes second.
fn on_communicating(session: &Session, side: usize) -> Result<(), String> {
    let stage = session.sides[side].stage;
    if side == 0 || stage == Stage::Waiting {
        Err(format!("a first-message event in {stage:?}"))
    } else {
        Ok(())
    }
}

/// RFC 5040 s5.4: a Terminate names the error, the side that detects it sends it, and only once.
fn on_terminated(session: &mut Session, side: usize, sent: bool, terminate: Terminate) -> Result<(), String> {
    session.sides[side].terminates += 1;
    if session.sides[side].terminates > 1 {
        return Err(format!("a second Terminate: {terminate}"));
    }
    if session.is_refused_by(side, sent, terminate) {
        return Ok(());
    }
    let expected = match (session.posted_bad_request, session.attack_outcome) {
        (Some((by, bad_request)), _) => {
            Some(((side == by) == bad_request.is_local(), bad_request.terminate()))
        }
        (None, Some(AttackOutcome::VictimTerminates(terminate))) => Some((true, terminate)),
        (None, Some(AttackOutcome::VictimReports(terminate))) => Some((false, terminate)),
        (None, Some(AttackOutcome::NoTerminate) | None) => None,
    };
    if session.undetected_corruption || expected == Some((sent, terminate)) {
        return Ok(());
    }
    Err(format!(
        "a Terminate {terminate}, sent {sent}, where {expected:?} was expected of {:?}",
        session.plan.ending
    ))
}

/// The last-receive event: raised once for a queue pair on a shared receive queue, before its
/// disconnect event.
fn on_last_receive(ours: &mut Side) -> Result<(), String> {
    if ours.app_srq.is_none() || core::mem::replace(&mut ours.last_receive, true) {
        return Err("a second or unexpected last-receive event".into());
    }
    Ok(())
}

/// A fatal error of a local request: only a request that was meant to be bad may cause it.
fn on_fatal(session: &Session, side: usize) -> Result<(), String> {
    match session.posted_bad_request {
        Some((by, bad_request)) if by == side && bad_request.is_local() => Ok(()),
        _ => Err("an unexpected fatal-error event".into()),
    }
}

fn on_rejected(
    now: Nanos,
    session: &mut Session,
    side: usize,
    private_data: &PrivateData,
) -> Result<(), String> {
    session.sides[side].stage = Stage::Ended;
    session.ended_at.get_or_insert(now);
    let wanted = session.plan.ending == Ending::Reject && private_data[..] == *REJECT_DATA;
    session.any_end_allowed |= session.plan.over_limits;
    if wanted || session.any_end_allowed || session.undetected_corruption {
        Ok(())
    } else {
        Err(format!("rejected with {private_data:?}"))
    }
}

fn on_connect_failed(
    now: Nanos,
    oracle: &mut Oracle,
    number: usize,
    side: usize,
    reason: ConnectFailure,
) -> Result<(), String> {
    let (faulty, undetected_corruption) = (oracle.faulty, oracle.undetected_corruption);
    let session = &mut oracle.sessions[number];
    // A peer that closed and got no reply in time resets: the reset may arrive after the links have
    // healed.
    let was_faulty = faulty || session.tried_at < oracle.healed_at;
    session.sides[side].stage = Stage::Ended;
    session.ended_at.get_or_insert(now);
    if !session.sides[side].has_no_signaled_pending() {
        return Err("requests have no completion after the connection attempt failed".into());
    }
    let silent = matches!(reason, ConnectFailure::Unreachable | ConnectFailure::TimedOut);
    let peer = session.sides[1 - side].stage;
    if side == 0 && silent && peer == Stage::Waiting && session.attempts < ATTEMPTS_MAX {
        session.retry = true;
        oracle.totals.retried += 1;
        return Ok(());
    }
    session.any_end_allowed |=
        was_faulty || undetected_corruption || session.plan.over_limits || session.attack_outcome.is_some();
    let left = matches!(peer, Stage::Closing | Stage::Ended | Stage::Destroyed | Stage::Gone);
    if session.any_end_allowed || left { Ok(()) } else { Err(format!("connecting failed: {reason:?}")) }
}

fn on_disconnected(
    now: Nanos,
    oracle: &mut Oracle,
    number: usize,
    side: usize,
    reason: DisconnectReason,
) -> Result<(), String> {
    let undetected_corruption = oracle.undetected_corruption;
    let session = &mut oracle.sessions[number];
    let was = core::mem::replace(&mut session.sides[side].stage, Stage::Ended);
    session.ended_at.get_or_insert(now);
    let is_cut_off = matches!(
        reason,
        DisconnectReason::Reset | DisconnectReason::TimedOut | DisconnectReason::Unreachable
    );
    session.sides[side].was_aborted = is_cut_off;
    // The reason that stands for a Terminate that might not be sent.
    let own_fault =
        session.posted_bad_request.is_some_and(|(by, bad_request)| by == side && bad_request.is_local());
    session.sides[side].failed_before_first_fpdu =
        side == 1 && own_fault && matches!(reason, DisconnectReason::LocalError(_));
    let ours = &session.sides[side];
    if !ours.has_no_signaled_pending() {
        return Err(format!("requests have no completion after the connection ended: {reason:?}"));
    }
    if ours.app_srq.is_some() && !ours.last_receive {
        return Err("no last-receive event before the disconnect event".into());
    }
    let failed = ours.send_failed;
    let left = |stage: Stage| !matches!(stage, Stage::Waiting | Stage::Connecting | Stage::Up);
    // A request on words may be refused whatever ending is planned.
    let is_refused = session.plan.words.is_some() && session.posted_bad_request.is_some();
    let planned = match session.plan.ending {
        _ if is_refused => true,
        Ending::Graceful { .. } => session.was_done,
        Ending::Early { by, .. } if by == side && was == Stage::Closing => {
            // Requests that were posted before a disconnect complete.
            !failed || reason != DisconnectReason::Closed
        }
        Ending::Early { by, .. } | Ending::Destroy { by, .. } => left(session.sides[by].stage),
        Ending::Reject => false,
        Ending::BadRequest { .. } => session.posted_bad_request.is_some(),
        Ending::Attack { .. } => true,
    };
    let left_alone = left(session.sides[1 - side].stage);
    session.any_end_allowed |= !planned && undetected_corruption;
    let gives_up = session.plan.may_be_cut_off && is_cut_off;
    session.any_end_allowed |= gives_up;
    if planned || gives_up || undetected_corruption || (left_alone && session.any_end_allowed) {
        return Ok(());
    }
    Err(format!("the connection ended in {was:?} by {reason:?}, with work left"))
}

fn of_queue_pair(event: &Event) -> Option<(QueuePair, u8)> {
    match event {
        Event::Established { qp, .. } => Some((*qp, 1)),
        Event::Rejected { qp, .. } => Some((*qp, 2)),
        Event::ConnectFailed { qp, .. } => Some((*qp, 3)),
        Event::Terminated { qp, .. } => Some((*qp, 4)),
        Event::Disconnected { qp, .. } => Some((*qp, 5)),
        Event::CommunicationEstablished { qp } => Some((*qp, 6)),
        Event::QueuePairFatal { qp } => Some((*qp, 7)),
        Event::LastWqeReached { qp } => Some((*qp, 8)),
        Event::Path { qp, .. } => Some((*qp, 9)),
        _ => None,
    }
}
