//! The controller's side of DH-HMAC-CHAP on a queue (Base 2.0, 8.13.5).
//!
//! ```text
//! Idle --Negotiate--> Busy -> Ready(Challenge) -> Reply --Reply--> Busy -> Ready(Success1) -> Idle
//!                                                            Success2 --Success2--> Idle <-+
//! ```
//!
//! The host sends its messages by Authentication Send and fetches those of the controller by
//! Authentication Receive. While a message is `Busy`, a thread that is no polled core computes, and
//! the command waits. A message that is not due, or is wrong, ends the exchange: the host fetches
//! the reason, and the connection ends [`FAILURE_LINGER_MS`] later. An exchange on a queue that is
//! authenticated already uses the secrets of that moment; commands go on meanwhile. A host that
//! does not go on in time loses the exchange, whose secrets are dropped, and nothing else. The time
//! that the target computes is not the host's.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use super::TargetCounter;
use super::queue::{CapsuleLimits, PIECE_BYTES, Queue, Step, pointer_of, pointer_to_host};
use crate::auth::jobs::Job;
use crate::auth::{DhKey, Exchange, Group, Hash, HostSecrets, Nonce, is_same};
use crate::wire::auth::{Body, Explanation, Message, bytes_of};
use crate::wire::sgl::DataPointer;
use crate::wire::{Status, SubmissionQueueEntry};

/// The time between two messages of an exchange, of a host without a keep-alive timeout.
const STEP_TIMEOUT_MS: u64 = 120_000;
/// The time that a host has to fetch the reason before its connection ends.
const FAILURE_LINGER_MS: u64 = 100;

/// The exchange of a queue.
#[derive(Default)]
pub(super) struct Authentication {
    stage: Stage,
    t_id: u16,
    /// When the stage began.
    since_ms: u64,
}

/// What is due.
#[derive(Default)]
enum Stage {
    /// A Negotiate.
    #[default]
    Idle,
    /// The result of a job, which `job` is until it finds a place.
    Busy { job: Option<Job>, result: Receiver<Computed>, _awaited: Arc<()> },
    /// A Receive of this message, and then the next stage.
    Ready { message: Vec<u8>, next: Box<Stage> },
    /// A Reply.
    Reply(Run),
    /// A Success2.
    Success2,
    /// A Negotiate. The host did not go on in time: what it still sends of that exchange is late.
    Expired,
    /// The end of the connection, after this time.
    Failed { explanation: Explanation, at_ms: u64 },
}

/// The next stage after a job.
type Computed = Result<Stage, Explanation>;

/// What the controller keeps between its Challenge and the Reply.
struct Run {
    exchange: Exchange,
    secrets: Arc<HostSecrets>,
    key: DhKey,
    nonce: Nonce,
}

impl Queue {
    pub(super) fn auth_send(
        &self,
        entry: &SubmissionQueueEntry,
        capsule: CapsuleLimits,
    ) -> Result<Step, Status> {
        let bytes = bytes_of(entry).ok_or(Status::INVALID_FIELD)?;
        let pointer = pointer_of(entry, capsule, bytes)?;
        // Of a message that is too long, the beginning is enough.
        Ok(Step::FromHost { pointer, bytes: bytes.min(PIECE_BYTES) })
    }

    /// The data of an Authentication Send has arrived. A wrong message is no failure of the
    /// command.
    #[cold]
    pub(super) fn auth_message(&mut self, entry: &SubmissionQueueEntry, data: &[u8], now_ms: u64) -> Step {
        // The host of an I/O queue is not known before its proof.
        if let Some(member) = self.member().filter(|_| self.qid == 0) {
            member.controller().seen(now_ms);
        }
        if matches!(self.auth.stage, Stage::Failed { .. }) {
            return Step::Respond(Status::SUCCESS.into());
        }
        let is_whole = bytes_of(entry).is_some_and(|bytes| bytes as usize == data.len());
        let stage = core::mem::take(&mut self.auth.stage);
        let next = match Message::decode(data) {
            Ok((message, [])) if is_whole => self.next_stage(stage, message),
            Ok(_) => Err(Explanation::Payload),
            Err(explanation) => Err(explanation),
        };
        // Success2 is the last message of an exchange that goes both ways.
        if matches!(next, Ok(Stage::Idle)) && !self.admit(now_ms) {
            return Step::End;
        }
        self.enter(next, now_ms);
        self.authenticating(now_ms)
    }

    /// Ends an exchange whose host has not gone on in time, and drops its secrets. For housekeeping.
    pub fn expire_exchange(&mut self, now_ms: u64) {
        let step_timeout_ms = match self.member().map_or(0, |member| member.controller().kato_ms()) {
            0 => STEP_TIMEOUT_MS,
            kato_ms => kato_ms.into(),
        };
        let waits_for_host =
            matches!(self.auth.stage, Stage::Ready { .. } | Stage::Reply(_) | Stage::Success2);
        if waits_for_host && now_ms.saturating_sub(self.auth.since_ms) > step_timeout_ms {
            self.target.counters.add(TargetCounter::AuthenticationTimeouts);
            self.auth.stage = Stage::Expired;
        }
    }

    fn next_stage(&mut self, stage: Stage, message: Message) -> Computed {
        let Message { t_id, body } = message;
        if !matches!(stage, Stage::Idle | Stage::Expired) && t_id != self.auth.t_id {
            return Err(Explanation::Payload);
        }
        match (stage, body) {
            (Stage::Idle | Stage::Expired, Body::Negotiate { sc_c, offer }) => {
                self.auth.t_id = t_id;
                self.challenge(sc_c, offer)
            }
            (Stage::Reply(run), Body::Reply { response, nonce, public }) => {
                verify(run, response, nonce, public)
            }
            (Stage::Success2, Body::Success2) => Ok(Stage::Idle),
            (_, Body::Failure2(explanation)) => Err(explanation),
            (Stage::Expired, _) => Ok(Stage::Expired),
            _ => Err(Explanation::Message),
        }
    }

    /// Chooses the strongest of what the host offers and the target allows.
    fn challenge(&self, sc_c: u8, offer: Option<(Vec<u8>, Vec<u8>)>) -> Computed {
        let (hashes, groups) = offer.ok_or(Explanation::Protocol)?;
        if sc_c != 0 {
            return Err(Explanation::SecureChannel);
        }
        let policy = self.target.auth_policy();
        let hashes = hashes.into_iter().filter_map(Hash::of).filter(|one| policy.hashes.contains(one));
        let groups = groups.into_iter().filter_map(Group::of).filter(|one| policy.groups.contains(one));
        let hash = hashes.max().ok_or(Explanation::Hash)?;
        let group = groups.max().ok_or(Explanation::Group)?;
        let controller = self.member().ok_or(Explanation::Failed)?.controller();
        let hostnqn = controller.hostnqn().to_owned();
        let secrets = policy.hosts.get(&hostnqn).cloned().ok_or(Explanation::Failed)?;
        let (t_id, subnqn) = (self.auth.t_id, controller.subsystem().nqn().to_owned());
        let exchange = Exchange { hash, group, t_id, hostnqn, subnqn };
        Ok(busy(move || {
            let key = DhKey::generate(group).map_err(|_| Explanation::Failed)?;
            let nonce = Nonce::random(hash).map_err(|_| Explanation::Failed)?;
            let body = Body::Challenge { hash, group, nonce: nonce.clone(), public: key.public().to_vec() };
            let next = Box::new(Stage::Reply(Run { exchange, secrets, key, nonce }));
            Ok(Stage::Ready { message: Message { t_id, body }.encode(), next })
        }))
    }

    /// Continues an Authentication Send that waits for a job.
    #[cold]
    pub fn authenticating(&mut self, now_ms: u64) -> Step {
        if self.is_ended() {
            return Step::End;
        }
        if let Stage::Busy { job, result, .. } = &mut self.auth.stage {
            if let Some(waiting) = job.take() {
                *job = self.target.jobs.submit(self.address, waiting).err();
            }
            let next = match result.try_recv() {
                Err(TryRecvError::Empty) => return Step::Authenticating,
                Err(TryRecvError::Disconnected) => Err(Explanation::Failed),
                Ok(computed) => computed,
            };
            self.enter(next, now_ms);
        }
        Step::Respond(Status::SUCCESS.into())
    }

    fn enter(&mut self, next: Computed, now_ms: u64) {
        self.auth.since_ms = now_ms;
        self.auth.stage = next.unwrap_or_else(|explanation| {
            self.target.counters.add(match explanation {
                Explanation::Payload | Explanation::Message => TargetCounter::AuthenticationMessagesInvalid,
                _ => TargetCounter::AuthenticationFailures,
            });
            if let Some(member) = self.member().filter(|_| self.target.may_log(now_ms)) {
                let (controller, qid, from) = (member.controller(), self.qid, self.address);
                tracing::warn!("{controller}: queue {qid} from {from}: {explanation}");
            }
            Stage::Failed { explanation, at_ms: now_ms + FAILURE_LINGER_MS }
        });
    }

    #[cold]
    pub(super) fn auth_receive(
        &mut self,
        entry: &SubmissionQueueEntry,
        capsule: CapsuleLimits,
    ) -> Result<Step, Status> {
        let room = bytes_of(entry).ok_or(Status::INVALID_FIELD)?;
        let pointer = pointer_to_host(entry, capsule, room)?;
        let failure =
            |explanation| Message { t_id: self.auth.t_id, body: Body::Failure1(explanation) }.encode();
        // The shortest message must fit, or the host would not learn of any.
        if (room as usize) < failure(Explanation::Failed).len() {
            return Err(Status::INVALID_FIELD);
        }
        let (data, next) = match core::mem::take(&mut self.auth.stage) {
            Stage::Expired => (failure(Explanation::Message), Ok(Stage::Expired)),
            Stage::Ready { message, next } if message.len() <= room as usize => (message, Ok(*next)),
            Stage::Ready { .. } => (failure(Explanation::Payload), Err(Explanation::Payload)),
            Stage::Failed { explanation, at_ms } => {
                (failure(explanation), Ok(Stage::Failed { explanation, at_ms }))
            }
            _ => (failure(Explanation::Message), Err(Explanation::Message)),
        };
        if matches!(next, Ok(Stage::Idle)) && !self.admit(capsule.now_ms) {
            return Ok(Step::End);
        }
        self.enter(next, capsule.now_ms);
        let pointer = match pointer {
            DataPointer::Keyed { address, key, invalidate, .. } => {
                DataPointer::Keyed { address, length: data.len() as u32, key, invalidate }
            }
            in_capsule => in_capsule,
        };
        Ok(Step::ToHost { data, pointer })
    }

    /// Returns whether its connection has to end because its authentication failed.
    pub fn is_refused(&self, now_ms: u64) -> bool {
        matches!(self.auth.stage, Stage::Failed { at_ms, .. } if now_ms >= at_ms)
    }
}

/// Checks the Reply in a job.
fn verify(run: Run, response: Vec<u8>, nonce: Option<Nonce>, public: Vec<u8>) -> Computed {
    let hash_bytes = run.exchange.hash.bytes();
    if response.len() != hash_bytes || nonce.as_ref().is_some_and(|nonce| nonce.seqnum == 0) {
        return Err(Explanation::Payload);
    }
    if nonce.is_some() && run.secrets.controller.is_none() {
        return Err(Explanation::Failed);
    }
    Ok(busy(move || {
        let Run { exchange, secrets, key, nonce: own } = run;
        let shared = key.agree(&public).ok_or(Explanation::Payload)?;
        if !is_same(&exchange.host_response(&secrets.host, &shared, &own), &response) {
            return Err(Explanation::Failed);
        }
        let response = nonce.zip(secrets.controller.as_ref());
        let response =
            response.map(|(nonce, secret)| exchange.controller_response(secret, &shared, &nonce).to_vec());
        let next = if response.is_some() { Stage::Success2 } else { Stage::Idle };
        let body = Body::Success1 { hash_bytes: hash_bytes as u8, response };
        let message = Message { t_id: exchange.t_id, body }.encode();
        Ok(Stage::Ready { message, next: Box::new(next) })
    }))
}

fn busy(compute: impl FnOnce() -> Computed + Send + 'static) -> Stage {
    let (sender, result) = sync_channel(1);
    let awaited = Arc::new(());
    let is_awaited = Arc::downgrade(&awaited);
    let job = move || {
        // Nobody receives what a queue that has ended would have used.
        if is_awaited.strong_count() > 0 {
            drop(sender.send(compute()));
        }
    };
    Stage::Busy { job: Some(Box::new(job)), result, _awaited: awaited }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_of_a_queue_that_has_ended_computes_nothing() {
        for is_ended in [false, true] {
            let (sender, computed) = sync_channel(1);
            let mut stage = busy(move || {
                sender.send(()).expect("the test receives");
                Ok(Stage::Idle)
            });
            let Stage::Busy { job, .. } = &mut stage else { panic!("a job") };
            let job = job.take().expect("a job");
            if is_ended {
                drop(stage);
            }
            job();
            assert_eq!(computed.try_recv().is_err(), is_ended);
        }
    }
}
