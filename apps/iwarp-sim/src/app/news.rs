//! What a context is told, and which of it may be told when.

use ironwarp::{ConnectFailure, DisconnectReason, Event, PrivateData, QueuePair, Terminate};
use ironwarp_types::Nanos;

use super::ledger::Attacked;
use super::life::{ATTEMPTS_MAX, REGRETS, WELCOME};
use super::{App, Ledger, Session, Side, Stage};
use crate::plan::Ending;

impl App {
    pub(super) fn on_event(&mut self, now: Nanos, event: Event) {
        let ledger = self.ledger.clone();
        let mut ledger = ledger.borrow_mut();
        if let Event::ConnectRequest { request, private_data, .. } = event {
            return self.on_request(now, &mut ledger, request, &private_data);
        }
        if let (Event::ListenFailed { .. }, true) = (&event, self.has_restarted) {
            // The listener of the context before this one is still there.
            self.listens = false;
            return;
        }
        if let (Event::SharedReceiveLimit { .. }, Some(pool)) = (&event, &self.pool) {
            let outcome = pool.borrow_mut().on_low();
            ledger.note(now, 0, 0, &[0xfd]);
            return outcome.unwrap_or_else(|fault| ledger.blame(usize::MAX, 0, &fault));
        }
        let Some((qp, what)) = of_queue_pair(&event) else {
            return ledger.blame(usize::MAX, 0, &format!("unexpected news: {event:?}"));
        };
        let Some(&(number, side)) = self.by_qp.get(&qp.num().0) else {
            return ledger.blame(usize::MAX, 0, &format!("news of no queue pair: {event:?}"));
        };
        ledger.note(now, number, side, &[0xff, what]);
        let outcome = match event {
            Event::Established { private_data, .. } => {
                on_established(&mut ledger, number, side, &private_data)
            }
            Event::Communicating { .. } => on_communicating(&ledger.sessions[number], side),
            Event::Rejected { private_data, .. } => {
                on_rejected(now, &mut ledger.sessions[number], side, &private_data)
            }
            Event::ConnectFailed { reason, .. } => on_connect_failed(now, &mut ledger, number, side, reason),
            Event::Terminated { sent, terminate, .. } => {
                ledger.totals.terminated += 1;
                let is_well = sent && !ledger.faulty;
                ledger.sessions[number].sides[side].terminated_well = is_well;
                on_terminated(&mut ledger.sessions[number], side, sent, terminate)
            }
            Event::LastReceiveReached { .. } => on_last_receive(&mut ledger.sessions[number].sides[side]),
            Event::QueuePairFatal { .. } => on_fatal(&ledger.sessions[number], side),
            Event::Disconnected { reason, .. } => on_disconnected(now, &mut ledger, number, side, reason),
            _ => Err(format!("unexpected news: {event:?}")),
        };
        if let Err(fault) = outcome {
            ledger.blame(number, side, &fault);
        }
    }
}

fn on_established(
    ledger: &mut Ledger,
    number: usize,
    side: usize,
    private_data: &PrivateData,
) -> Result<(), String> {
    let ours = &mut ledger.sessions[number].sides[side];
    if ours.stage != Stage::Connecting {
        return Err(format!("established in {:?}", ours.stage));
    }
    ours.stage = Stage::Up;
    let expected = if side == 0 { WELCOME } else { &[] };
    if private_data[..] != *expected && !ledger.unseen {
        return Err(format!("established with {private_data:?}"));
    }
    ledger.totals.established += u64::from(side == 0);
    Ok(())
}

/// The first message came: to the accepting side. Where the message is the ready-to-receive indication, connected is what
/// it makes this side, so that news comes second.
fn on_communicating(session: &Session, side: usize) -> Result<(), String> {
    let stage = session.sides[side].stage;
    if side == 0 || stage == Stage::Waiting {
        Err(format!("told of a first message in {stage:?}"))
    } else {
        Ok(())
    }
}

/// RFC 5040 s5.4: the error has a name, whoever finds it says so, and only once.
fn on_terminated(session: &mut Session, side: usize, sent: bool, terminate: Terminate) -> Result<(), String> {
    session.sides[side].terminates += 1;
    if session.sides[side].terminates > 1 {
        return Err(format!("a second Terminate: {terminate}"));
    }
    let expected = match (session.offended, session.attacked) {
        (Some((by, offence)), _) => Some(((side == by) == offence.is_local(), offence.terminate())),
        (None, Some(Attacked::Answered(terminate))) => Some((true, terminate)),
        (None, Some(Attacked::Told(terminate))) => Some((false, terminate)),
        (None, Some(Attacked::Silent) | None) => None,
    };
    if session.unseen || expected == Some((sent, terminate)) {
        return Ok(());
    }
    Err(format!(
        "a Terminate {terminate}, sent {sent}, where {expected:?} was expected of {:?}",
        session.plan.ending
    ))
}

/// Told once of a queue pair on a shared receive queue, before it is told that its connection has ended.
fn on_last_receive(ours: &mut Side) -> Result<(), String> {
    if ours.pool.is_none() || core::mem::replace(&mut ours.last_receive, true) {
        return Err("told again, or for nothing, that it takes no more receives".into());
    }
    Ok(())
}

/// A request of our own was wrong: only one that was meant to be.
fn on_fatal(session: &Session, side: usize) -> Result<(), String> {
    match session.offended {
        Some((by, offence)) if by == side && offence.is_local() => Ok(()),
        _ => Err("told that a request of its own was wrong".into()),
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
    let wanted = session.plan.ending == Ending::Reject && private_data[..] == *REGRETS;
    session.excused |= session.plan.crowded;
    if wanted || session.excused || session.unseen {
        Ok(())
    } else {
        Err(format!("rejected with {private_data:?}"))
    }
}

fn on_connect_failed(
    now: Nanos,
    ledger: &mut Ledger,
    number: usize,
    side: usize,
    reason: ConnectFailure,
) -> Result<(), String> {
    let (faulty, unseen) = (ledger.faulty, ledger.unseen);
    let session = &mut ledger.sessions[number];
    // Whoever closed and was not heard in time resets: that may arrive after the links are well.
    let was_faulty = faulty || session.tried_at < ledger.healed_at;
    session.sides[side].stage = Stage::Ended;
    session.ended_at.get_or_insert(now);
    if !session.sides[side].is_settled() {
        return Err("requests have no completion though the attempt has failed".into());
    }
    let silent = matches!(reason, ConnectFailure::Unreachable | ConnectFailure::TimedOut);
    let peer = session.sides[1 - side].stage;
    if side == 0 && silent && peer == Stage::Waiting && session.attempts < ATTEMPTS_MAX {
        session.retry = true;
        ledger.totals.retried += 1;
        return Ok(());
    }
    session.excused |= was_faulty || unseen || session.plan.crowded || session.attacked.is_some();
    let left = matches!(peer, Stage::Closing | Stage::Ended | Stage::Destroyed | Stage::Gone);
    if session.excused || left { Ok(()) } else { Err(format!("connecting failed: {reason:?}")) }
}

fn on_disconnected(
    now: Nanos,
    ledger: &mut Ledger,
    number: usize,
    side: usize,
    reason: DisconnectReason,
) -> Result<(), String> {
    let unseen = ledger.unseen;
    let session = &mut ledger.sessions[number];
    let was = core::mem::replace(&mut session.sides[side].stage, Stage::Ended);
    session.ended_at.get_or_insert(now);
    let is_cut_off = matches!(reason, DisconnectReason::Reset | DisconnectReason::TimedOut);
    session.sides[side].was_cut_off = is_cut_off;
    let ours = &session.sides[side];
    if !ours.is_settled() {
        return Err(format!("requests have no completion though the connection has ended: {reason:?}"));
    }
    if ours.pool.is_some() && !ours.last_receive {
        return Err("not told that it takes no more shared receives".into());
    }
    let failed = ours.send_failed;
    let left = |stage: Stage| !matches!(stage, Stage::Waiting | Stage::Connecting | Stage::Up);
    let planned = match session.plan.ending {
        Ending::Graceful { .. } => session.was_done,
        Ending::Early { by, .. } if by == side && was == Stage::Closing => {
            // What was posted before a disconnect is carried out.
            !failed || reason != DisconnectReason::Closed
        }
        Ending::Early { by, .. } | Ending::Destroy { by, .. } => left(session.sides[by].stage),
        Ending::Reject => false,
        Ending::Offend { .. } => session.offended.is_some(),
        Ending::Attack { .. } => true,
    };
    let left_alone = left(session.sides[1 - side].stage);
    session.excused |= !planned && unseen;
    if planned || unseen || (left_alone && session.excused) {
        return Ok(());
    }
    Err(format!("the connection ended in {was:?} by {reason:?}, with work left"))
}

/// The queue pair that news are about, and a number for the kind of news.
fn of_queue_pair(event: &Event) -> Option<(QueuePair, u8)> {
    match event {
        Event::Established { qp, .. } => Some((*qp, 1)),
        Event::Rejected { qp, .. } => Some((*qp, 2)),
        Event::ConnectFailed { qp, .. } => Some((*qp, 3)),
        Event::Terminated { qp, .. } => Some((*qp, 4)),
        Event::Disconnected { qp, .. } => Some((*qp, 5)),
        Event::Communicating { qp } => Some((*qp, 6)),
        Event::QueuePairFatal { qp } => Some((*qp, 7)),
        Event::LastReceiveReached { qp } => Some((*qp, 8)),
        _ => None,
    }
}
