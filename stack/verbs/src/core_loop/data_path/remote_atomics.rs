//! Remote atomics: atomic operations on words that another core owns.
//!
//! Every cache line of memory has one owner among the cores. Only the owner changes words in it on
//! behalf of peers, with plain loads and stores, until it shares the line because other cores want
//! it often. Then every core changes them, and no request is forwarded. A request that arrives at
//! another core goes to the owner's mailbox; the owner resolves the word again, executes the
//! operation and replies with the old value. At most [`CREDITS`] requests are outstanding between
//! two cores; a queue pair without a credit waits in a list for that core. No core waits for room:
//! a credit reserves the slot of the reply.
//!
//! A request waits until its owner polls, so a core serves requests twice an iteration: after the
//! receive stage and at the end. It takes replies at the first of these, so that the responses
//! leave in the same iteration. For the reply to a single request it spins, for a bounded number of
//! polls, and serves requests meanwhile.
//!
//! A request after a refused one of the same stream is refused too, even if it is in the mailbox
//! already.
//!
//! A reply names its queue pair by slot and number, so that a new occupant of the slot does not get
//! it. A core that is not polled delays requests for its words as it delays its own connections. A
//! core that is gone ends the streams that wait for it.
//!
//! A stack of one core has none of this. Cost with several: a cache line each way for a single
//! operation, a few nanoseconds for one of a batch, and a load for each other core at each poll.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use crossbeam_utils::CachePadded;
use ironwarp_iwarp::NoCredit;
use ironwarp_mem::{AccessError, AtomicCall, AtomicOp, AtomicReply, AtomicTarget, CoreMem, WordError};
use ironwarp_rings::mailbox::{self, Mailboxes};
use ironwarp_stats::Counter;
use ironwarp_types::{CoreId, QpNum};

use super::DataPath;
use super::queues::QueueTable;
use crate::config::AtomicExecution;
use crate::core_loop::lower::Lower;

/// Requests that one core may have outstanding at one other: as many as a burst brings. A pair of
/// cores takes 8 KiB.
const CREDITS: usize = 32;

/// Polls for the reply to a single request before the core goes on: about a microsecond, three
/// times what an idle owner takes.
const REPLY_SPINS_MAX: u32 = 200;

/// One core's mailboxes, in both directions. On cache lines of its own, since another core's may be
/// its neighbour in memory.
#[repr(align(128))]
pub(crate) struct RemoteAtomics {
    mailboxes: Mailboxes<AtomicCall, AtomicReply>,
    /// By requesting core, the streams that were refused.
    refused_streams: Box<[RefusedStreams]>,
    /// By owner, the slots of queue pairs that wait for a credit; each in one list, once.
    credit_waiters: Box<[CachePadded<VecDeque<u32>>]>,
    /// The length of all these lists.
    credit_waiter_count: usize,
    /// A request was sent and its reply was not spun for yet.
    request_sent: bool,
    /// Owners that requests were sent to since they were last woken, one bit each.
    to_wake: u64,
    /// The queue pair that sends now is the first of its list.
    serving_waiter: bool,
}

/// The mailboxes of each core, for `queue_pairs` queue pairs each; `None` on a stack of one core.
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
            to_wake: 0,
            serving_waiter: false,
        }))
    })
    .collect()
}

/// Streams of one other core that had a request refused here, and the number of that request.
///
/// Later requests of the stream must have no effect (RFC 7306 s5.4: an operation does not happen if
/// an earlier one did not), and may be in the mailbox already. After [`CREDITS`] more requests none
/// is: the requesting core has the reply by then.
#[derive(Default)]
struct RefusedStreams {
    streams: ArrayVec<(QpNum, u32), CREDITS>,
    calls: u32,
}

impl RefusedStreams {
    /// Executes a request, unless an earlier one of its stream was refused.
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

    /// Removes streams whose core has the reply. Returns whether `qp` remains.
    #[cold]
    fn has_earlier_refusal(&mut self, qp: QpNum) -> bool {
        let calls = self.calls;
        self.streams.retain(|(_, at)| calls.wrapping_sub(*at) < CREDITS as u32);
        self.streams.iter().any(|(stream, _)| *stream == qp)
    }

    #[cold]
    fn record_refusal(&mut self, qp: QpNum) {
        // There is room: each entry belongs to a different one of the last requests.
        let _ = self.streams.try_push((qp, self.calls));
    }
}

impl RemoteAtomics {
    /// Sends a request to `owner` for the queue pair at `slot`, or lists the queue pair.
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
            self.to_wake |= 1 << owner.0;
            return Ok(());
        }
        waiters.push_back(slot);
        self.credit_waiter_count += 1;
        Err(NoCredit)
    }

    /// Prefetches for a request that follows soon.
    #[inline]
    pub(super) fn prepare_request(&self, owner: CoreId) {
        self.mailboxes.prefetch(owner.0);
    }

    /// The next queue pair that waits for a core with a free credit.
    fn next_credit_waiter(&mut self, owner: usize) -> Option<u32> {
        let waiters = self.credit_waiters.get_mut(owner)?;
        if waiters.is_empty() || !self.mailboxes.has_credit(owner as u16) {
            return None;
        }
        self.credit_waiter_count -= 1;
        waiters.pop_front()
    }

    /// Returns whether requests to a core are outstanding or wait for a credit.
    #[inline]
    fn has_outstanding_to(&self, owner: usize) -> bool {
        let waits_for_credit = self.credit_waiters.get(owner).is_some_and(|waiters| !waiters.is_empty());
        waits_for_credit || self.mailboxes.outstanding_to(owner as u16) > 0
    }

    /// Executes the requests of other cores. Returns their number.
    #[inline]
    fn serve_requests(&mut self, mem: &CoreMem) -> usize {
        let refused_streams = &mut self.refused_streams;
        self.mailboxes.serve(|core, call| match refused_streams.get_mut(usize::from(core)) {
            Some(refused_streams) => refused_streams.execute(&call, mem),
            None => call.refuse(),
        })
    }

    /// Returns once whether the only outstanding request was just sent.
    #[inline]
    fn take_single_request(&mut self) -> bool {
        core::mem::take(&mut self.request_sent)
            && self.credit_waiter_count == 0
            && self.mailboxes.outstanding() == 1
    }

    /// Requests without a reply.
    pub(crate) fn outstanding(&self) -> usize {
        self.mailboxes.outstanding()
    }

    /// The cores of the stack.
    fn cores(&self) -> u16 {
        self.credit_waiters.len() as u16
    }

    /// How often the queue pair at `slot` is listed.
    pub(crate) fn credit_wait_count(&self, slot: u32) -> usize {
        self.credit_waiters
            .iter()
            .flat_map(|waiters| waiters.iter())
            .filter(|waiting| **waiting == slot)
            .count()
    }

    /// Returns whether it is listed for that core.
    fn is_waiting_for_credit(&self, slot: u32, owner: u16) -> bool {
        self.credit_waiters.get(usize::from(owner)).is_some_and(|waiters| waiters.contains(&slot))
    }

    /// Forgets all requests to a core.
    fn cancel_requests_to(&mut self, owner: u16) {
        self.mailboxes.abandon_calls(owner);
        if let Some(waiters) = self.credit_waiters.get_mut(usize::from(owner)) {
            self.credit_waiter_count -= waiters.len();
            waiters.clear();
        }
    }

    /// The number of listed queue pairs.
    pub(crate) fn waiting_for_credit(&self) -> usize {
        self.credit_waiter_count
    }

    /// Returns whether any request is outstanding or waits.
    #[inline]
    pub(super) fn has_outstanding(&self) -> bool {
        self.mailboxes.outstanding() | self.credit_waiter_count != 0
    }

    /// Removes a queue pair from all lists.
    pub(crate) fn remove_credit_waiter(&mut self, slot: u32) {
        self.credit_waiters.iter_mut().for_each(|waiters| waiters.retain(|waiting| *waiting != slot));
        self.credit_waiter_count = self.credit_waiters.iter().map(|waiters| waiters.len()).sum();
    }
}

impl<L: Lower> DataPath<L> {
    /// An application's atomic operation on its own memory, which the word's owner executes as it
    /// does a peer's.
    #[cold]
    pub(crate) fn execute_local_atomic(
        &mut self,
        target: &AtomicTarget,
        operation: &AtomicOp,
    ) -> Result<u64, WordError> {
        self.stats.count(Counter::AtomicsApplication);
        let word = self.mem.word(target)?;
        if self.atomic_execution == AtomicExecution::Locked {
            return Ok(word.apply_locked(operation)?);
        }
        // A word that this core may not change was deregistered and registered again since.
        let claimed = word.claim().map_err(|_| AccessError::Revoked)?;
        Ok(claimed.apply(operation)?)
    }

    /// Takes the set of owners that requests were sent to. A core with requests outstanding does
    /// not sleep, so replies wake nobody.
    #[inline]
    pub(crate) fn take_owners_to_wake(&mut self) -> u64 {
        self.queues.remote_atomics.as_deref_mut().map_or(0, |atomics| core::mem::take(&mut atomics.to_wake))
    }

    /// Executes atomic operations for other cores.
    #[inline(never)]
    pub(crate) fn serve_remote_atomics(&mut self) {
        let Some(remote_atomics) = self.queues.remote_atomics.as_deref_mut() else { return };
        let answered = remote_atomics.serve_requests(&self.mem);
        if answered > 0 {
            self.count_work(answered);
            self.stats.add(Counter::AtomicsServedRemote, answered as u64);
        }
    }

    /// Spins for the reply to a single request: it takes no longer than another iteration, and the
    /// response leaves in this one. Requests of other cores are served meanwhile. A core with other
    /// work does not spin.
    #[inline(never)]
    pub(crate) fn spin_for_reply(&mut self) {
        let single_request =
            self.queues.remote_atomics.as_deref_mut().is_some_and(RemoteAtomics::take_single_request);
        let mut spins_left =
            if single_request && self.work == self.doorbell_stage_work + 1 { REPLY_SPINS_MAX } else { 0 };
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

    /// The number of cores with mailboxes.
    pub(crate) fn atomics_cores(&self) -> u16 {
        self.queues.remote_atomics.as_deref().map_or(0, |remote_atomics| remote_atomics.cores())
    }

    /// Returns whether requests to a core are not answered, or wait for a credit.
    pub(crate) fn has_outstanding_to(&self, core: u16) -> bool {
        let remote_atomics = self.queues.remote_atomics.as_deref();
        remote_atomics.is_some_and(|remote_atomics| remote_atomics.has_outstanding_to(usize::from(core)))
    }

    /// Handles the replies of a core. Returns whether the core has ended, so that no more replies
    /// come.
    pub(crate) fn take_replies(&mut self, core: u16) -> bool {
        let remote_atomics = self.queues.remote_atomics.as_deref();
        let is_gone =
            remote_atomics.is_some_and(|remote_atomics| remote_atomics.mailboxes.is_abandoned(core));
        for _ in 0..CREDITS {
            let remote_atomics = self.queues.remote_atomics.as_deref_mut();
            let Some(reply) = remote_atomics.and_then(|remote_atomics| remote_atomics.mailboxes.reply(core))
            else {
                break;
            };
            self.count_work(1);
            if !self.on_atomic_reply(reply) {
                self.stats.count(Counter::AtomicsStaleReplies);
            }
        }
        is_gone
    }

    /// Returns whether the queue pair at `slot` waits for a reply of a core or for a credit to it.
    pub(crate) fn waits_for_core(&mut self, slot: u32, core: u16) -> bool {
        let remote_atomics = self.queues.remote_atomics.as_ref();
        remote_atomics.is_some_and(|remote_atomics| remote_atomics.is_waiting_for_credit(slot, core))
            || self.qps.at(slot).is_some_and(|qp| qp.stream.has_forwarded_to(CoreId(core)))
    }

    /// Forgets all requests to a core.
    pub(crate) fn cancel_requests_to(&mut self, core: u16) {
        if let Some(remote_atomics) = &mut self.queues.remote_atomics {
            remote_atomics.cancel_requests_to(core);
        }
    }

    /// A reply of another core. Returns whether a queue pair waited for it.
    fn on_atomic_reply(&mut self, reply: AtomicReply) -> bool {
        let (slot, serial) = ((reply.token >> 32) as u32, reply.token as u32);
        let Some(qp) = self.qps.at(slot).filter(|qp| qp.handle.num() == reply.qp) else { return false };
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        let awaited = stream.on_forwarded_atomic(serial, reply.outcome, &mut io);
        if awaited && stream.wants_tx(&mut io) {
            self.enqueue_tx(slot);
        }
        awaited
    }

    /// Listed queue pairs send their requests as long as there are credits.
    pub(crate) fn send_waiting_requests(&mut self, core: u16) {
        while let Some(slot) = self
            .queues
            .remote_atomics
            .as_mut()
            .and_then(|remote_atomics| remote_atomics.next_credit_waiter(usize::from(core)))
        {
            self.count_work(1);
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
