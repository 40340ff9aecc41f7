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
use crate::config::AtomicsBy;

/// Operations that one core may wait for from one other: as many as a burst brings. A pair of cores takes 8 KiB.
const CREDITS: usize = 32;

/// How often a core looks for the answer to a request that came alone, before it goes on: about a microsecond, three times what
/// an owner takes that has nothing else to do.
const LOOKS: u32 = 200;

/// One core's mail about words, in both directions. On cache lines of its own: another core's may lie beside it.
#[repr(align(128))]
pub(crate) struct Owners {
    mail: Mailboxes<AtomicCall, AtomicReply>,
    /// By the core that asks, what it has been refused.
    refused: Box<[Refused]>,
    /// By the core that is asked, places of queue pairs that wait for a credit; each in one list, once.
    waiting: Box<[CachePadded<VecDeque<u32>>]>,
    /// How many those are.
    in_line: usize,
    /// Whether a call was made and its answer not waited for yet.
    asked: bool,
    /// Whoever asks now is the one whose turn it is.
    in_turn: bool,
}

/// What each core has of the mail about words; nothing where there is one core. For `places` queue pairs each.
pub(crate) fn owners(cores: u16, places: u32) -> Vec<Option<Box<Owners>>> {
    if cores == 1 {
        return vec![None];
    }
    let line = |_| CachePadded::new(VecDeque::with_capacity(places as usize));
    let lines = || (0..cores).map(line).collect();
    let refused = || (0..cores).map(|_| Refused::default()).collect();
    let ends = mailbox::mesh(cores.into(), CREDITS).into_iter();
    ends.map(|mail| {
        Some(Box::new(Owners {
            mail,
            refused: refused(),
            waiting: lines(),
            in_line: 0,
            asked: false,
            in_turn: false,
        }))
    })
    .collect()
}

/// Streams of one other core that had a call refused here, and the number of that call.
///
/// What a stream asks behind it must have no effect (RFC 7306 s5.4: what is behind has not happened if what is ahead has
/// not), and may be in the mail already. After [`CREDITS`] calls more it is not: the caller has heard by then.
#[derive(Default)]
struct Refused {
    streams: ArrayVec<(QpNum, u32), CREDITS>,
    calls: u32,
}

impl Refused {
    /// Does what is asked, unless something ahead of it was refused.
    fn answer(&mut self, call: &AtomicCall, mem: &CoreMem) -> AtomicReply {
        self.calls = self.calls.wrapping_add(1);
        if !self.streams.is_empty() && self.is_behind(call.qp()) {
            return call.refuse();
        }
        let reply = call.run(mem);
        if reply.outcome.is_err() {
            self.note(call.qp());
        }
        reply
    }

    /// Forgets those that have heard. Says whether this one has not.
    #[cold]
    fn is_behind(&mut self, qp: QpNum) -> bool {
        let calls = self.calls;
        self.streams.retain(|(_, at)| calls.wrapping_sub(*at) < CREDITS as u32);
        self.streams.iter().any(|(refused, _)| *refused == qp)
    }

    #[cold]
    fn note(&mut self, qp: QpNum) {
        // Room: each is of another one of the last calls.
        let _ = self.streams.try_push((qp, self.calls));
    }
}

impl Owners {
    /// Asks `owner` on behalf of the queue pair at `place`, or puts it in line.
    pub(super) fn ask(
        &mut self,
        (place, serial): (u32, u32),
        owner: CoreId,
        target: &AtomicTarget,
        operation: AtomicOp,
    ) -> Result<(), NoCredit> {
        let Some(line) = self.waiting.get_mut(usize::from(owner.0)) else { return Err(NoCredit) };
        let token = u64::from(place) << 32 | u64::from(serial);
        let may_ask = self.in_turn || line.is_empty();
        if may_ask && self.mail.call(owner.0, AtomicCall::new(token, target, operation)).is_ok() {
            self.asked = true;
            return Ok(());
        }
        line.push_back(place);
        self.in_line += 1;
        Err(NoCredit)
    }

    /// The owner is asked soon.
    #[inline]
    pub(super) fn will_ask(&self, owner: CoreId) {
        self.mail.prepare(owner.0);
    }

    /// The next in line for a core that may be asked again.
    fn next_in_line(&mut self, owner: usize) -> Option<u32> {
        let line = self.waiting.get_mut(owner)?;
        if line.is_empty() || !self.mail.has_credit(owner as u16) {
            return None;
        }
        self.in_line -= 1;
        line.pop_front()
    }

    /// Whether somebody waits for a core.
    #[inline]
    fn is_waiting_for(&self, owner: usize) -> bool {
        let in_line = self.waiting.get(owner).is_some_and(|line| !line.is_empty());
        in_line || self.mail.unanswered_by(owner as u16) > 0
    }

    /// Does what other cores ask for. Says how much that was.
    #[inline]
    fn answer(&mut self, mem: &CoreMem) -> usize {
        let refused = &mut self.refused;
        self.mail.answer(|core, call| match refused.get_mut(usize::from(core)) {
            Some(refused) => refused.answer(&call, mem),
            None => call.refuse(),
        })
    }

    /// Whether a call has just been made, and its answer is all that is waited for. Says so once.
    #[inline]
    fn has_asked_alone(&mut self) -> bool {
        core::mem::take(&mut self.asked) && self.in_line == 0 && self.mail.unanswered() == 1
    }

    /// Calls that have not been answered.
    pub(super) fn unanswered(&self) -> usize {
        self.mail.unanswered()
    }

    /// How often the queue pair at `place` is in line.
    pub(super) fn times_in_line(&self, place: u32) -> usize {
        self.waiting.iter().flat_map(|line| line.iter()).filter(|waiting| **waiting == place).count()
    }

    /// Whether it is in line for that core.
    fn is_in_line(&self, place: u32, owner: u16) -> bool {
        self.waiting.get(usize::from(owner)).is_some_and(|line| line.contains(&place))
    }

    /// Nobody waits for a core any more.
    fn give_up(&mut self, owner: u16) {
        self.mail.give_up(owner);
        if let Some(line) = self.waiting.get_mut(usize::from(owner)) {
            self.in_line -= line.len();
            line.clear();
        }
    }

    /// How many are in line.
    pub(super) fn in_line(&self) -> usize {
        self.in_line
    }

    /// Whether other cores have something to do for this one.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.mail.unanswered() | self.in_line != 0
    }

    /// The queue pair at a place is gone.
    pub(super) fn leave_line(&mut self, place: u32) {
        self.waiting.iter_mut().for_each(|line| line.retain(|waiting| *waiting != place));
        self.in_line = self.waiting.iter().map(|line| line.len()).sum();
    }
}

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// An application's atomic operation on its own memory, which comes to the word's owner like any other.
    #[cold]
    pub(super) fn change_word(
        &mut self,
        target: &AtomicTarget,
        operation: &AtomicOp,
    ) -> Result<u64, WordError> {
        self.stats.count(Counter::AtomicsLocal);
        let word = self.mem.word(target)?;
        if self.shared.config.rdmap.atomics == AtomicsBy::Locked {
            return Ok(word.apply_locked(operation));
        }
        // A word that is not ours by now was given up and registered again since.
        let owned = word.claim().map_err(|_| AccessError::Revoked)?;
        Ok(owned.apply(operation))
    }

    /// Changes words of this core for others.
    #[inline(never)]
    pub(super) fn answer_words(&mut self) {
        let Some(owners) = self.cqs.owners.as_deref_mut() else { return };
        let answered = owners.answer(&self.mem);
        if answered > 0 {
            self.work += answered;
            self.stats.add(Counter::AtomicsAnswered, answered as u64);
        }
    }

    /// Does so, passes on what others have done, and asks for what had to wait.
    #[inline(never)]
    pub(super) fn serve_words(&mut self, now: Nanos) {
        self.answer_words();
        if self.cqs.waits_for_owners() {
            self.await_answer();
            self.hear_owners(now);
        }
    }

    /// Stays a moment with a request that came alone: its answer is on its way for no longer than another iteration takes, and
    /// the response leaves in this one. What others ask meanwhile is done. Whoever has more to do or to wait for goes on.
    #[inline(never)]
    fn await_answer(&mut self) {
        let asked_alone = self.cqs.owners.as_deref_mut().is_some_and(Owners::has_asked_alone);
        let mut looks = if asked_alone && self.work == self.posted + 1 { LOOKS } else { 0 };
        while looks > 0 && self.cqs.owners.as_deref().is_some_and(|owners| !owners.mail.has_reply()) {
            looks -= 1;
            self.answer_words();
        }
    }

    /// Passes on what other cores have done.
    fn hear_owners(&mut self, now: Nanos) {
        for core in 0..self.shared.cores.len() {
            let owners = self.cqs.owners.as_deref().filter(|owners| owners.is_waiting_for(core));
            let Some(owners) = owners else { continue };
            let is_gone = owners.mail.is_abandoned(core as u16);
            self.take_answers(core);
            if is_gone {
                self.give_up_owner(now, core as u16);
            }
            self.ask_in_line(core);
        }
    }

    fn take_answers(&mut self, core: usize) {
        for _ in 0..CREDITS {
            let owners = self.cqs.owners.as_deref_mut();
            let Some(reply) = owners.and_then(|owners| owners.mail.reply(core as u16)) else { return };
            self.work += 1;
            if !self.on_answer(reply) {
                self.stats.count(Counter::AtomicsUnheard);
            }
        }
    }

    /// Another core has answered. Says whether anybody waited for it.
    fn on_answer(&mut self, reply: AtomicReply) -> bool {
        let (slot, serial) = ((reply.token >> 32) as u32, reply.token as u32);
        let Some(qp) = self.qps.at(slot).filter(|qp| qp.handle.num() == reply.qp) else { return false };
        let (stream, mut io) = qp.stream_io(&mut self.cqs, &self.mem, &self.stats);
        let awaited = stream.on_answer(serial, reply.outcome, &mut io);
        if awaited && stream.wants_tx(&mut io) {
            self.make_ready(Sender::Qp(slot));
        }
        awaited
    }

    /// A core has gone for good, and its last answers have been taken: whoever waits for it waits for nothing.
    #[cold]
    fn give_up_owner(&mut self, now: Nanos, core: u16) {
        for slot in 0..self.qps.places() {
            let in_line = self.cqs.owners.as_ref().is_some_and(|owners| owners.is_in_line(slot, core));
            let mailed = self.qps.at(slot).is_some_and(|qp| qp.stream.has_mailed_to(CoreId(core)));
            if in_line || mailed {
                self.end_without_owner(now, slot);
            }
        }
        if let Some(owners) = &mut self.cqs.owners {
            owners.give_up(core);
        }
    }

    /// What a peer has asked for can neither be done nor be refused as its own fault (RFC 5040 s7.1).
    fn end_without_owner(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        let was_open = qp.stream.state() == StreamState::Open;
        let (stream, mut io) = qp.stream_io(&mut self.cqs, &self.mem, &self.stats);
        stream.terminate(RdmapFault::LocalCatastrophic.into(), &mut io);
        stream.on_credit(&mut io);
        if let Some(end) = stream.end().filter(|_| was_open) {
            self.work += 1;
            self.on_stream_end(now, slot, end);
        }
    }

    /// Those in line for a core ask, as long as there are credits.
    fn ask_in_line(&mut self, core: usize) {
        while let Some(slot) = self.cqs.owners.as_mut().and_then(|owners| owners.next_in_line(core)) {
            self.work += 1;
            let Some(qp) = self.qps.at(slot) else { continue };
            self.cqs.set_in_turn(true);
            let (stream, mut io) = qp.stream_io(&mut self.cqs, &self.mem, &self.stats);
            stream.on_credit(&mut io);
            self.cqs.set_in_turn(false);
        }
    }
}

impl Queues {
    fn set_in_turn(&mut self, in_turn: bool) {
        if let Some(owners) = &mut self.owners {
            owners.in_turn = in_turn;
        }
    }
}
