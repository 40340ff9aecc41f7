//! Words of other cores: what the cores of one stack ask each other to do.
//!
//! Every cache line of memory has one owner among the cores, which alone changes words in it on behalf of peers, with plain
//! loads and stores. A request that arrives elsewhere is mailed there; the owner looks the word up again, does what is asked
//! and mails back what was there before. Between any two cores go at most [`CREDITS`] calls at a time; a queue pair that
//! finds none left waits in line for that core. Nothing ever waits for room: a credit is a place for the reply.
//!
//! Whoever waits for a word waits for its owner's next look, so a core looks for calls twice an iteration, behind the receive
//! stage and last of all; for answers at the first of these, so that the responses leave in the same iteration. A request that
//! came alone is waited for there, for a bounded number of looks, in which the core answers others.
//!
//! What comes behind a call of its stream that is refused is refused too, though it may be in the mail already.
//!
//! An answer finds its queue pair by place and number, so that one which has gone is not mistaken for another. A core that
//! is not polled keeps others waiting for its words, as it keeps its own connections waiting. One that has gone for good
//! ends the streams that ask for them.
//!
//! A stack of one core has none of this. Cost with several: a cache line's way there and one back for an operation that is
//! waited for, a few nanoseconds for one of a batch; a load for each other core at each look.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use crossbeam_utils::CachePadded;
use ironwarp_iwarp::NoCredit;
use ironwarp_iwarp::rdmap::RdmapFault;
use ironwarp_iwarp::stream::StreamState;
use ironwarp_mem::{AccessError, AtomicCall, AtomicOp, AtomicReply, AtomicTarget, CoreMem, WordError};
use ironwarp_rings::mailbox::{self, Mailboxes};
use ironwarp_types::{CoreId, QpNum};

use super::*;
use crate::config::AtomicExecution;

/// Operations that one core may wait for from one other: as many as a burst brings. A pair of cores takes 8 KiB.
const CREDITS: usize = 32;

/// How often a core looks for the answer to a request that came alone, before it goes on: about a microsecond, three times what
/// an owner takes that has nothing else to do.
const REPLY_SPINS_MAX: u32 = 200;

/// One core's mail about words, in both directions. On cache lines of its own: another core's may lie beside it.
#[repr(align(128))]
pub(crate) struct RemoteAtomics {
    mailboxes: Mailboxes<AtomicCall, AtomicReply>,
    /// By the core that asks, what it has been refused.
    refused_streams: Box<[RefusedStreams]>,
    /// By the core that is asked, places of queue pairs that wait for a credit; each in one list, once.
    credit_waiters: Box<[CachePadded<VecDeque<u32>>]>,
    /// How many those are.
    credit_waiter_count: usize,
    /// Whether a call was made and its answer not waited for yet.
    request_sent: bool,
    /// Whoever asks now is the one whose turn it is.
    serving_waiter: bool,
}

/// What each core has of the mail about words; nothing where there is one core. For `queue_pairs` queue pairs each.
pub(crate) fn remote_atomics_mesh(cores: u16, queue_pairs: u32) -> Vec<Option<Box<RemoteAtomics>>> {
    if cores == 1 {
        return vec![None];
    }
    let waiters = |_| CachePadded::new(VecDeque::with_capacity(queue_pairs as usize));
    let waiter_lists = || (0..cores).map(waiters).collect();
    let refused_streams = || (0..cores).map(|_| RefusedStreams::default()).collect();
    let ends = mailbox::mesh(cores.into(), CREDITS).into_iter();
    ends.map(|mailboxes| {
        Some(Box::new(RemoteAtomics {
            mailboxes,
            refused_streams: refused_streams(),
            credit_waiters: waiter_lists(),
            credit_waiter_count: 0,
            request_sent: false,
            serving_waiter: false,
        }))
    })
    .collect()
}

/// Streams of one other core that had a call refused here, and the number of that call.
///
/// What a stream asks behind it must have no effect (RFC 7306 s5.4: what is behind has not happened if what is ahead has
/// not), and may be in the mail already. After [`CREDITS`] calls more it is not: the caller has heard by then.
#[derive(Default)]
struct RefusedStreams {
    streams: ArrayVec<(QpNum, u32), CREDITS>,
    calls: u32,
}

impl RefusedStreams {
    /// Does what is asked, unless something ahead of it was refused.
    fn execute(&mut self, call: &AtomicCall, mem: &CoreMem) -> AtomicReply {
        self.calls = self.calls.wrapping_add(1);
        if !self.streams.is_empty() && self.has_earlier_refusal(call.qp()) {
            return call.refuse();
        }
        let reply = call.run(mem);
        if reply.outcome.is_err() {
            self.record_refusal(call.qp());
        }
        reply
    }

    /// Forgets those that have heard. Says whether this one has not.
    #[cold]
    fn has_earlier_refusal(&mut self, qp: QpNum) -> bool {
        let calls = self.calls;
        self.streams.retain(|(_, at)| calls.wrapping_sub(*at) < CREDITS as u32);
        self.streams.iter().any(|(stream, _)| *stream == qp)
    }

    #[cold]
    fn record_refusal(&mut self, qp: QpNum) {
        // Room: each is of another one of the last calls.
        let _ = self.streams.try_push((qp, self.calls));
    }
}

impl RemoteAtomics {
    /// Asks `owner` on behalf of the queue pair at `slot`, or puts it in line.
    pub(super) fn send_request(
        &mut self,
        (slot, serial): (u32, u32),
        owner: CoreId,
        target: &AtomicTarget,
        operation: AtomicOp,
    ) -> Result<(), NoCredit> {
        let Some(waiters) = self.credit_waiters.get_mut(usize::from(owner.0)) else { return Err(NoCredit) };
        let token = u64::from(slot) << 32 | u64::from(serial);
        let may_send = self.serving_waiter || waiters.is_empty();
        if may_send && self.mailboxes.call(owner.0, AtomicCall::new(token, target, operation)).is_ok() {
            self.request_sent = true;
            return Ok(());
        }
        waiters.push_back(slot);
        self.credit_waiter_count += 1;
        Err(NoCredit)
    }

    /// The owner is asked soon.
    #[inline]
    pub(super) fn prepare_request(&self, owner: CoreId) {
        self.mailboxes.prefetch(owner.0);
    }

    /// The next in line for a core that may be asked again.
    fn next_credit_waiter(&mut self, owner: usize) -> Option<u32> {
        let waiters = self.credit_waiters.get_mut(owner)?;
        if waiters.is_empty() || !self.mailboxes.has_credit(owner as u16) {
            return None;
        }
        self.credit_waiter_count -= 1;
        waiters.pop_front()
    }

    /// Whether somebody waits for a core.
    #[inline]
    fn has_outstanding_to(&self, owner: usize) -> bool {
        let waits_for_credit = self.credit_waiters.get(owner).is_some_and(|waiters| !waiters.is_empty());
        waits_for_credit || self.mailboxes.outstanding_to(owner as u16) > 0
    }

    /// Does what other cores ask for. Says how much that was.
    #[inline]
    fn serve_requests(&mut self, mem: &CoreMem) -> usize {
        let refused_streams = &mut self.refused_streams;
        self.mailboxes.serve(|core, call| match refused_streams.get_mut(usize::from(core)) {
            Some(refused_streams) => refused_streams.execute(&call, mem),
            None => call.refuse(),
        })
    }

    /// Whether a call has just been made, and its answer is all that is waited for. Says so once.
    #[inline]
    fn take_single_request(&mut self) -> bool {
        core::mem::take(&mut self.request_sent)
            && self.credit_waiter_count == 0
            && self.mailboxes.outstanding() == 1
    }

    /// Calls that have not been answered.
    pub(super) fn outstanding(&self) -> usize {
        self.mailboxes.outstanding()
    }

    /// How often the queue pair at `slot` is in line.
    pub(super) fn credit_wait_count(&self, slot: u32) -> usize {
        self.credit_waiters
            .iter()
            .flat_map(|waiters| waiters.iter())
            .filter(|waiting| **waiting == slot)
            .count()
    }

    /// Whether it is in line for that core.
    fn is_waiting_for_credit(&self, slot: u32, owner: u16) -> bool {
        self.credit_waiters.get(usize::from(owner)).is_some_and(|waiters| waiters.contains(&slot))
    }

    /// Nobody waits for a core any more.
    fn cancel_requests_to(&mut self, owner: u16) {
        self.mailboxes.abandon_calls(owner);
        if let Some(waiters) = self.credit_waiters.get_mut(usize::from(owner)) {
            self.credit_waiter_count -= waiters.len();
            waiters.clear();
        }
    }

    /// How many are in line.
    pub(super) fn waiting_for_credit(&self) -> usize {
        self.credit_waiter_count
    }

    /// Whether other cores have something to do for this one.
    #[inline]
    pub(super) fn has_outstanding(&self) -> bool {
        self.mailboxes.outstanding() | self.credit_waiter_count != 0
    }

    /// The queue pair at a place is gone.
    pub(super) fn remove_credit_waiter(&mut self, slot: u32) {
        self.credit_waiters.iter_mut().for_each(|waiters| waiters.retain(|waiting| *waiting != slot));
        self.credit_waiter_count = self.credit_waiters.iter().map(|waiters| waiters.len()).sum();
    }
}

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// An application's atomic operation on its own memory, which comes to the word's owner like any other.
    #[cold]
    pub(super) fn execute_local_atomic(
        &mut self,
        target: &AtomicTarget,
        operation: &AtomicOp,
    ) -> Result<u64, WordError> {
        self.stats.count(Counter::AtomicsApplication);
        let word = self.mem.word(target)?;
        if self.shared.config.rdmap.atomic_execution == AtomicExecution::Locked {
            return Ok(word.apply_locked(operation));
        }
        // A word that is not ours by now was given up and registered again since.
        let owned = word.claim().map_err(|_| AccessError::Revoked)?;
        Ok(owned.apply(operation))
    }

    /// Changes words of this core for others.
    #[inline(never)]
    pub(super) fn serve_remote_atomics(&mut self) {
        let Some(remote_atomics) = self.queues.remote_atomics.as_deref_mut() else { return };
        let answered = remote_atomics.serve_requests(&self.mem);
        if answered > 0 {
            self.work += answered;
            self.stats.add(Counter::AtomicsServedRemote, answered as u64);
        }
    }

    /// Does so, passes on what others have done, and asks for what had to wait.
    #[inline(never)]
    pub(super) fn poll_remote_atomics(&mut self, now: Nanos) {
        self.serve_remote_atomics();
        if self.queues.has_outstanding_remote_atomics() {
            self.spin_for_reply();
            self.poll_replies(now);
        }
    }

    /// Stays a moment with a request that came alone: its answer is on its way for no longer than another iteration takes, and
    /// the response leaves in this one. What others ask meanwhile is done. Whoever has more to do or to wait for goes on.
    #[inline(never)]
    fn spin_for_reply(&mut self) {
        let single_request =
            self.queues.remote_atomics.as_deref_mut().is_some_and(RemoteAtomics::take_single_request);
        let mut spins_left =
            if single_request && self.work == self.posted_work + 1 { REPLY_SPINS_MAX } else { 0 };
        while spins_left > 0
            && self
                .queues
                .remote_atomics
                .as_deref()
                .is_some_and(|remote_atomics| !remote_atomics.mailboxes.has_reply())
        {
            spins_left -= 1;
            self.serve_remote_atomics();
        }
    }

    /// Passes on what other cores have done.
    fn poll_replies(&mut self, now: Nanos) {
        for core in 0..self.shared.cores.len() {
            let remote_atomics = self
                .queues
                .remote_atomics
                .as_deref()
                .filter(|remote_atomics| remote_atomics.has_outstanding_to(core));
            let Some(remote_atomics) = remote_atomics else { continue };
            let is_gone = remote_atomics.mailboxes.is_abandoned(core as u16);
            self.take_replies(core);
            if is_gone {
                self.on_core_gone(now, core as u16);
            }
            self.send_waiting_requests(core);
        }
    }

    fn take_replies(&mut self, core: usize) {
        for _ in 0..CREDITS {
            let remote_atomics = self.queues.remote_atomics.as_deref_mut();
            let Some(reply) =
                remote_atomics.and_then(|remote_atomics| remote_atomics.mailboxes.reply(core as u16))
            else {
                return;
            };
            self.work += 1;
            if !self.on_atomic_reply(reply) {
                self.stats.count(Counter::AtomicsStaleReplies);
            }
        }
    }

    /// Another core has answered. Says whether anybody waited for it.
    fn on_atomic_reply(&mut self, reply: AtomicReply) -> bool {
        let (slot, serial) = ((reply.token >> 32) as u32, reply.token as u32);
        let Some(qp) = self.qps.at(slot).filter(|qp| qp.handle.num() == reply.qp) else { return false };
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        let awaited = stream.on_forwarded_atomic(serial, reply.outcome, &mut io);
        if awaited && stream.wants_tx(&mut io) {
            self.enqueue_tx(TxSource::Qp(slot));
        }
        awaited
    }

    /// A core has gone for good, and its last answers have been taken: whoever waits for it waits for nothing.
    #[cold]
    fn on_core_gone(&mut self, now: Nanos, core: u16) {
        for slot in 0..self.qps.capacity() {
            let waits_for_credit = self
                .queues
                .remote_atomics
                .as_ref()
                .is_some_and(|remote_atomics| remote_atomics.is_waiting_for_credit(slot, core));
            let mailed = self.qps.at(slot).is_some_and(|qp| qp.stream.has_forwarded_to(CoreId(core)));
            if waits_for_credit || mailed {
                self.terminate_without_owner(now, slot);
            }
        }
        if let Some(remote_atomics) = &mut self.queues.remote_atomics {
            remote_atomics.cancel_requests_to(core);
        }
    }

    /// What a peer has asked for can neither be done nor be refused as its own fault (RFC 5040 s7.1).
    fn terminate_without_owner(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        let was_open = qp.stream.state() == StreamState::Open;
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        stream.terminate(RdmapFault::LocalCatastrophic.into(), &mut io);
        stream.on_forward_credit(&mut io);
        if let Some(end) = stream.error().filter(|_| was_open) {
            self.work += 1;
            self.on_stream_end(now, slot, end);
        }
    }

    /// Those in line for a core ask, as long as there are credits.
    fn send_waiting_requests(&mut self, core: usize) {
        while let Some(slot) = self
            .queues
            .remote_atomics
            .as_mut()
            .and_then(|remote_atomics| remote_atomics.next_credit_waiter(core))
        {
            self.work += 1;
            let Some(qp) = self.qps.at(slot) else { continue };
            self.queues.set_serving_waiter(true);
            let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
            stream.on_forward_credit(&mut io);
            self.queues.set_serving_waiter(false);
        }
    }
}

impl QueueTable {
    fn set_serving_waiter(&mut self, serving_waiter: bool) {
        if let Some(remote_atomics) = &mut self.remote_atomics {
            remote_atomics.serving_waiter = serving_waiter;
        }
    }
}
