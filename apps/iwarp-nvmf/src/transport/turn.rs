//! The parts of a turn that are not about one completion: its budget, what waits, deadlines.

use super::Reactor;
use super::wait::{Resource, Who};
use crate::NvmfError;
use crate::target::TargetCounter;

/// The interval of housekeeping: keep-alive timers, ended controllers, events.
const HOUSEKEEPING_MS: u64 = 20;
/// A core that was not polled for so long was paused: stopped, migrated, or starved of its
/// processor.
const PAUSE_MS: u64 = 100;
/// The time that a core has at most to read the frames that waited while it was paused.
const CATCH_UP_MS: u64 = 1000;

impl Reactor {
    /// Begins a turn: its time and its budget.
    pub(super) fn begin_turn(&mut self, worked: bool) {
        let before_ms = self.io.now_ms;
        self.io.now_ns = self.worker.now().0;
        self.io.now_ms = self.io.now_ns / 1_000_000;
        self.io.count_latencies();
        self.io.parties.begin_turn();
        self.requests.begin_turn(self.io.parties.are_several());
        if self.io.now_ms > before_ms + PAUSE_MS {
            self.io.count(TargetCounter::Pauses);
            self.catching_up_until_ms = Some(self.io.now_ms + CATCH_UP_MS);
        }
        if let Some(until_ms) = self.catching_up_until_ms {
            self.catch_up(worked, until_ms);
        }
    }

    /// Base 1.4, 7.12: a host is silent if it sent nothing. What it sent during a pause is still to
    /// be read, so no timer is judged until the worker has found nothing more.
    #[cold]
    fn catch_up(&mut self, worked: bool, until_ms: u64) {
        if worked && self.io.now_ms < until_ms {
            self.target.judge_keep_alive_from(self.io.now_ms + PAUSE_MS);
        } else {
            self.catching_up_until_ms = None;
        }
    }

    /// Tries again what waits for room, then spends what is left of the turn, on the host that has
    /// spent least. Returns whether commands wait for the next turn.
    pub(super) fn resume_waiting(&mut self) -> Result<bool, NvmfError> {
        if self.io.waits.len() == 0 {
            return Ok(false);
        }
        self.io.is_resuming = true;
        for resource in [Resource::Reads, Resource::Send, Resource::Buffers, Resource::Job] {
            self.resume_list(resource)?;
        }
        for at in 0..self.io.waits.devices.len() {
            self.resume_list(Resource::Device(at))?;
        }
        self.io.is_resuming = false;
        while self.io.parties.left() > 0 {
            let parties = &self.io.parties;
            let next = self.io.waits.turn.pop_least(|party| parties.spent(party));
            let Some((who, slot)) = next else { break };
            self.resume(who, slot)?;
        }
        Ok(!self.io.waits.turn.is_empty())
    }

    /// Tries each slot of a list once, until every connection in it has failed in a row.
    fn resume_list(&mut self, resource: Resource) -> Result<(), NvmfError> {
        let (tries, connections) =
            (self.io.waits.list(resource).len(), self.io.waits.list(resource).connections());
        let mut failures = 0;
        for _ in 0..tries {
            let Some((who, slot)) = self.io.waits.list(resource).pop() else { break };
            let before = self.io.waits.list(resource).len();
            self.resume(who, slot)?;
            if self.io.waits.list(resource).len() == before {
                failures = 0;
                continue;
            }
            // It waits again, and keeps its position among those of its connection.
            self.io.waits.list(resource).put_first(who);
            failures += 1;
            if failures >= connections {
                break;
            }
        }
        Ok(())
    }

    fn resume(&mut self, who: Who, slot: u16) -> Result<(), NvmfError> {
        let connection = self.connections.get_mut(who.connection as usize).and_then(Option::as_mut);
        let Some(connection) = connection.filter(|one| !one.is_ended) else { return Ok(()) };
        connection.resume(&mut self.io, slot)
    }

    #[cold]
    pub(super) fn housekeeping(&mut self) -> Result<(), NvmfError> {
        self.next_housekeeping_ms = self.io.now_ms + HOUSEKEEPING_MS;
        self.io.publish_waits();
        self.io.parties.recount();
        self.target.expire_keep_alive(self.io.now_ms);
        self.target.check();
        self.apply_changes();
        self.check_disks()?;
        for index in 0..self.connections.len() {
            let Some(reason) = self.reason_to_end(index) else { continue };
            let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { continue };
            if let Reason::Late(counter) = reason
                && !connection.must_end
            {
                self.io.count(counter);
                if self.target.may_log(self.io.now_ms) {
                    tracing::warn!("queue {} ends: {}", connection.queue.qid(), counter.name());
                }
            }
            match reason {
                Reason::Late(_) | Reason::Ended => connection.end(&mut self.io)?,
                Reason::None => connection.send_events(&mut self.io)?,
            }
        }
        Ok(())
    }

    /// Returns whether a connection has to end. `None`: there is nothing to do for it.
    fn reason_to_end(&mut self, index: usize) -> Option<Reason> {
        let connection = self.connections.get_mut(index)?.as_mut().filter(|one| !one.is_ended)?;
        let (now_ms, limits) = (self.io.now_ms, &self.limits);
        // What was sent during a pause is read first.
        let is_judged = self.catching_up_until_ms.is_none();
        if is_judged {
            connection.queue.expire_exchange(now_ms);
        }
        if connection.must_end || connection.queue.is_ended() || connection.queue.is_refused(now_ms) {
            return Some(Reason::Ended);
        }
        let waited_ms = connection.waits_since().map_or(0, |since| now_ms.saturating_sub(since));
        let who = connection.who;
        let is_new = connection.queue.controller().is_none();
        let age_ms = now_ms.saturating_sub(connection.accepted_ms);
        let is_admin = connection.queue.qid() == 0;
        if is_judged && is_new && age_ms > limits.connect_timeout_ms {
            let counter = match connection.queue.awaits_authentication() {
                true => TargetCounter::AuthenticationTimeouts,
                false => TargetCounter::ConnectTimeouts,
            };
            return Some(Reason::Late(counter));
        }
        if is_judged && waited_ms > limits.peer_timeout_ms {
            return Some(Reason::Late(TargetCounter::PeerTimeouts));
        }
        if is_judged && waited_ms > limits.contended_timeout_ms {
            let others_wait = self.io.waits.buffers.has_other_than(who.party);
            if others_wait && self.io.memory.buffers().shared_of(who) > 0 {
                return Some(Reason::Late(TargetCounter::ContendedTimeouts));
            }
        }
        is_admin.then_some(Reason::None)
    }
}

/// Why housekeeping looks after a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    /// A deadline is over.
    Late(TargetCounter),
    /// It has to end, or its controller has.
    Ended,
    /// It may have events to send.
    None,
}
