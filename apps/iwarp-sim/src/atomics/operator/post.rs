//! What an application asks for next.

use ironwarp::{Access, AtomicOp, CompletionOpcode, RecvWr, RemoteMemory, STag, SendWr, VerbsError};
use ironwarp_types::{Entropy, SeededEntropy};

use super::line::{Request, What};
use super::{CALLER, Operator, RECEIVES};
use crate::atomics::desk::{Message, Stage, WRITE_BYTES};
use crate::atomics::history::Act;
use crate::atomics::store::{Names, PLACES};
use crate::plan::{CallEnding, Values, Wrong};

/// Places of a send queue that stay free: a Write and its immediate take two at once.
const SPARE: usize = 2;

const _: () = assert!(PLACES == RECEIVES);

impl Operator {
    /// Posts receives and requests, a few at a time.
    pub(super) fn post(&mut self, call: usize) -> Result<(), VerbsError> {
        if self.lines.get(&call).is_none_or(|line| line.has_failed) {
            return Ok(());
        }
        self.post_receives(call)?;
        for _ in 0..1 + self.dice.below(self.plan.batch.into()) {
            let posted = if self.role == CALLER { self.ask(call)? } else { self.tell(call)? };
            if !posted {
                break;
            }
            self.work += 1;
        }
        self.count_open(call);
        Ok(())
    }

    /// Posts what is missing of the receives.
    pub(super) fn post_receives(&mut self, call: usize) -> Result<(), VerbsError> {
        let (Some(line), Some(memory)) = (self.lines.get_mut(&call), &self.memory) else { return Ok(()) };
        let end = &mut self.desk.borrow_mut().calls[call];
        let wanted = end.plan.receives as usize;
        let end = &mut end.ends[self.role];
        while line.receives.len() < wanted {
            let number = end.receives;
            memory.take_landed(call, number);
            if !taken(self.ctx.post_recv(line.qp, &RecvWr::new(number, &[memory.landing(call, number)])))? {
                break;
            }
            line.receives.push_back(number);
            end.receives += 1;
            self.work += 1;
        }
        Ok(())
    }

    pub(super) fn count_open(&mut self, call: usize) {
        let open = self.lines.get(&call).map_or(0, |line| line.out.iter().filter(|one| one.signaled).count());
        let (asked, end) = (self.lines.get(&call).map_or(0, |line| line.posted), self.role);
        let end = &mut self.desk.borrow_mut().calls[call].ends[end];
        (end.open, end.asked) = (open, asked);
    }

    /// Whether a request may be posted, of those that are planned.
    fn has_room(&self, call: usize, most: u32) -> bool {
        let Some(line) = self.lines.get(&call) else { return false };
        let depth = self.desk.borrow().calls[call].plan.send_depth as usize;
        line.posted < most && line.out.len() + SPARE <= depth
    }

    /// The caller's next request. Answers whether there was one.
    fn ask(&mut self, call: usize) -> Result<bool, VerbsError> {
        let (most, weights, named, is_wrong) = {
            let call = &self.desk.borrow().calls[call];
            let most = match call.plan.ending {
                CallEnding::Wrong { after, .. } => after,
                _ => call.plan.ops,
            };
            (most, call.plan.weights, !call.names.is_empty(), call.is_wrong)
        };
        if is_wrong || !named || !self.has_room(call, most) {
            return Ok(false);
        }
        let last = self.lines.get(&call).is_some_and(|line| line.posted + 1 >= most);
        let pick = self.dice.below(weights.iter().sum());
        if pick < weights[0] {
            self.change(call, last)
        } else if pick < weights[0] + weights[1] {
            self.read(call, last)
        } else {
            self.message(call, last)
        }
    }

    /// The keeper's next message, if it has one.
    fn tell(&mut self, call: usize) -> Result<bool, VerbsError> {
        let most = self.desk.borrow().calls[call].plan.messages;
        if !self.has_room(call, most) {
            return Ok(false);
        }
        let last = self.lines.get(&call).is_some_and(|line| line.posted + 1 >= most);
        self.message(call, last)
    }

    /// An atomic operation.
    fn change(&mut self, call: usize, last: bool) -> Result<bool, VerbsError> {
        let (word, operation) = {
            let desk = self.desk.borrow();
            let word = self.dice.below(desk.plan.words as u64) as usize;
            let swaps = desk.plan.extensions != ironwarp::Extensions::Rfc7306;
            (word, operation(desk.plan.values, desk.latest[word], swaps, &mut self.dice))
        };
        let (name, remote) = self.name_of(call, word);
        let opcode = match operation {
            AtomicOp::FetchAdd { .. } => CompletionOpcode::FetchAdd,
            AtomicOp::CmpSwap { .. } => CompletionOpcode::CmpSwap,
            AtomicOp::Swap { .. } => CompletionOpcode::Swap,
        };
        let Some(wr_id) = self.next_number(call) else { return Ok(false) };
        let sink = [self.sink(call, wr_id, 8)];
        let wr = SendWr::atomic(wr_id, &sink, remote, &operation);
        let posted = self.send(call, wr, (wr_id, opcode, last), What::Nothing)?;
        self.note(call, posted, Act::Change(word, operation), name);
        Ok(posted)
    }

    /// A Read of one word, or of several that lie side by side.
    fn read(&mut self, call: usize, last: bool) -> Result<bool, VerbsError> {
        let (first, count) = {
            let plan = &self.desk.borrow().plan;
            let first = self.dice.below(plan.words as u64) as usize;
            let most = if plan.stride == 8 { plan.words - first } else { 1 };
            (first, 1 + self.dice.below(most as u64) as usize)
        };
        let (name, remote) = self.name_of(call, first);
        let Some(wr_id) = self.next_number(call) else { return Ok(false) };
        let sink = [self.sink(call, wr_id, 8 * count)];
        let wr = SendWr::read(wr_id, &sink, remote);
        let posted = self.send(call, wr, (wr_id, CompletionOpcode::Read, last), What::Nothing)?;
        self.note(call, posted, Act::Look(first, count), name);
        Ok(posted)
    }

    /// A Send, an immediate, or a Write and an immediate; the other end must have a receive. Answers whether it has.
    fn message(&mut self, call: usize, last: bool) -> Result<bool, VerbsError> {
        let (number, area) = {
            let calls = &mut self.desk.borrow_mut().calls[call];
            let area = calls.area;
            let (ours, theirs) = calls.split(self.role);
            if theirs.stage == Stage::Waiting || theirs.receives <= ours.sent {
                return Ok(false);
            }
            (ours.sent, area)
        };
        let Some(wr_id) = self.next_number(call) else { return Ok(false) };
        let octets = self.dice.next_u64().to_ne_bytes();
        let solicited = self.dice.chance(300_000);
        let kind = self.dice.below(if self.role == CALLER { 3 } else { 2 });
        let place = number as usize % PLACES;
        let bytes = core::array::from_fn(|at| octets[at % 8] ^ at as u8);
        let written = (kind == 2).then_some((place, bytes));
        let message = Message { octets, immediate: kind > 0, solicited, written };
        let offset = (place * WRITE_BYTES) as u64;
        let posted = match kind {
            0 => {
                let wr = SendWr::send_inline(wr_id, &octets);
                let wr = if solicited { wr.solicited() } else { wr };
                self.send(call, wr, (wr_id, CompletionOpcode::Send, last), What::Nothing)?
            }
            1 => {
                let wr = SendWr::immediate(wr_id, &octets);
                let wr = if solicited { wr.solicited() } else { wr };
                self.send(call, wr, (wr_id, CompletionOpcode::Immediate, last), What::Nothing)?
            }
            _ => {
                let remote = RemoteMemory { tagged_offset: area.tagged_offset + offset, ..area };
                self.write(call, (wr_id, last), &message, remote)?
            }
        };
        if posted {
            let (ours, theirs) = (self.role, 1 - self.role);
            let ends = &mut self.desk.borrow_mut().calls[call].ends;
            ends[ours].sent += 1;
            ends[theirs].incoming.push_back(message);
        }
        Ok(posted)
    }

    /// A Write and an immediate, by one call.
    fn write(
        &mut self,
        call: usize,
        (wr_id, last): (u64, bool),
        message: &Message,
        remote: RemoteMemory,
    ) -> Result<bool, VerbsError> {
        let signaled = self.is_signaled(call, last);
        let (Some(line), Some(memory), Some((_, bytes))) =
            (self.lines.get_mut(&call), &self.memory, message.written)
        else {
            return Ok(false);
        };
        memory.clear(call, wr_id);
        let source = [memory.source(call, wr_id, &bytes)];
        let [write, immediate] = SendWr::write_with_immediate(wr_id, &source, remote, &message.octets);
        let immediate = if message.solicited { immediate.solicited() } else { immediate };
        let immediate = if signaled { immediate } else { immediate.unsignaled() };
        if !taken(self.ctx.post_all(line.qp, &[write, immediate]))? {
            return Ok(false);
        }
        let what = What::Nothing;
        line.out.push_back(Request { wr_id, opcode: CompletionOpcode::Write, signaled: false, what });
        line.out.push_back(Request { wr_id, opcode: CompletionOpcode::Immediate, signaled, what });
        line.posted += 1;
        Ok(true)
    }

    /// A request that must not be: the keeper ends the connection over it, and no word changes.
    pub(super) fn post_wrong(&mut self, call: usize) -> Result<(), VerbsError> {
        if !self.has_room(call, u32::MAX) || self.desk.borrow().calls[call].names.is_empty() {
            return Ok(());
        }
        let CallEnding::Wrong { wrong, .. } = self.desk.borrow().calls[call].plan.ending else {
            return Ok(());
        };
        let name = self.desk.borrow().calls[call].names[0];
        let (area, beyond) = (self.desk.borrow().calls[call].area, self.desk.borrow().calls[call].beyond);
        let remote = match wrong {
            Wrong::Misaligned => RemoteMemory { tagged_offset: name.tagged_offset + 4, ..name },
            Wrong::Beyond => beyond,
            Wrong::NoRight => area,
            Wrong::Unknown => RemoteMemory { stag: STag(self.dice.next_u64() as u32), ..name },
        };
        let Some(wr_id) = self.next_number(call) else { return Ok(()) };
        let sink = [self.sink(call, wr_id, 8)];
        let operation = AtomicOp::add(1);
        let wr = SendWr::atomic(wr_id, &sink, remote, &operation);
        if self.send(call, wr, (wr_id, CompletionOpcode::FetchAdd, true), What::Failure)? {
            self.begin_end(call, Stage::Up);
            self.desk.borrow_mut().calls[call].is_wrong = true;
        }
        Ok(())
    }

    /// The keeper gives a connection names of the words that nobody else has. They are told when they are there.
    pub(super) fn name_words(&mut self, call: usize) -> Result<(), VerbsError> {
        let Some(store) = &self.store else { return Ok(()) };
        let piece = [store.piece()];
        let (mut window, mut fast) =
            (self.ctx.create_window(self.pd)?, self.ctx.create_fast_region(self.pd)?);
        let rights = Access::REMOTE_ATOMIC | Access::REMOTE_READ;
        let first = self.next_number(call).unwrap_or_default();
        let bind = SendWr::bind(first, &mut window, &piece, rights).unsignaled();
        let request =
            Request { wr_id: first, opcode: CompletionOpcode::Bind, signaled: false, what: What::Nothing };
        self.put(call, bind, request)?;
        let second = self.next_number(call).unwrap_or_default();
        let mut register = SendWr::fast_register(second, &mut fast, &piece, rights | Access::LOCAL_WRITE);
        if self.dice.chance(500_000) {
            register = register.for_this_stream();
        }
        let (opcode, what) = (CompletionOpcode::FastRegister, What::Named);
        self.put(call, register, Request { wr_id: second, opcode, signaled: true, what })?;
        if let Some(line) = self.lines.get_mut(&call) {
            line.names = Some(Names { window, fast });
        }
        Ok(())
    }

    /// They are there.
    pub(super) fn publish(&mut self, call: usize) {
        let names = self.lines.get(&call).and_then(|line| line.names.as_ref());
        let (Some(store), Some(names)) = (&self.store, names) else { return };
        let base = store.name();
        let tags = [base.stag, names.window.stag(), names.fast.stag()];
        let calls = &mut self.desk.borrow_mut().calls[call];
        calls.names = tags.map(|stag| RemoteMemory { stag, ..base }).to_vec();
        (calls.area, calls.beyond) = (store.area(call), store.beyond());
    }

    /// One of a word's names.
    fn name_of(&mut self, call: usize, word: usize) -> (usize, RemoteMemory) {
        let desk = self.desk.borrow();
        let names = &desk.calls[call].names;
        let which = self.dice.below(names.len() as u64) as usize;
        let tagged_offset = names[which].tagged_offset + (word * desk.plan.stride) as u64;
        (which, RemoteMemory { tagged_offset, ..names[which] })
    }

    /// What was posted last asks something of the words. Nothing has run since.
    fn note(&mut self, call: usize, posted: bool, act: Act, name: usize) {
        let Some(request) = self.lines.get_mut(&call).filter(|_| posted).and_then(|line| line.out.back_mut())
        else {
            return;
        };
        let desk = &mut *self.desk.borrow_mut();
        let stream = desk.calls[call].stream;
        let (_, count) = act.words();
        request.what = What::Words(desk.history.ask(stream, act, name), count);
        if desk.calls[call].ended_names[name] {
            desk.history.ask_in_vain(stream);
        }
    }

    fn next_number(&mut self, call: usize) -> Option<u64> {
        let line = self.lines.get_mut(&call)?;
        line.next += 1;
        Some(line.next - 1)
    }

    fn sink(&self, call: usize, wr_id: u64, bytes: usize) -> ironwarp::Sge {
        let Some(memory) = &self.memory else { unreachable!("nobody posts who has closed") };
        memory.clear(call, wr_id);
        memory.scratch(call, wr_id, bytes)
    }

    /// A queue full of requests that tell only failure would tell nothing, and never have room again.
    fn is_signaled(&mut self, call: usize, last: bool) -> bool {
        let (ppm, depth) = {
            let plan = &self.desk.borrow().calls[call].plan;
            (plan.unsignaled_ppm, plan.send_depth as usize)
        };
        let crowded = self.lines.get(&call).is_some_and(|line| line.out.len() + 2 * SPARE > depth);
        !self.dice.chance(ppm) || last || crowded
    }

    /// Posts a request that counts. Answers whether it was taken.
    fn send(
        &mut self,
        call: usize,
        wr: SendWr<'_>,
        (wr_id, opcode, last): (u64, CompletionOpcode, bool),
        what: What,
    ) -> Result<bool, VerbsError> {
        let signaled = self.is_signaled(call, last);
        let fence_ppm = self.desk.borrow().calls[call].plan.fence_ppm;
        let wr = if signaled { wr } else { wr.unsignaled() };
        let wr = if self.dice.chance(fence_ppm) { wr.fenced() } else { wr };
        let posted = self.put(call, wr, Request { wr_id, opcode, signaled, what })?;
        if let Some(line) = self.lines.get_mut(&call).filter(|_| posted) {
            line.posted += 1;
        }
        Ok(posted)
    }

    fn put(&mut self, call: usize, wr: SendWr<'_>, request: Request) -> Result<bool, VerbsError> {
        let Some(line) = self.lines.get_mut(&call) else { return Ok(false) };
        let posted = taken(self.ctx.post_send(line.qp, &wr))?;
        if posted {
            line.out.push_back(request);
        }
        Ok(posted)
    }
}

/// Whether a post was taken. A queue's places come back when its core has passed; one that ends takes nothing more.
pub(super) fn taken(outcome: Result<(), VerbsError>) -> Result<bool, VerbsError> {
    match outcome {
        Err(VerbsError::QueueFull | VerbsError::CqFull | VerbsError::WrongState(_)) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

/// An operation on a word that was last heard to be `latest`.
pub(super) fn operation(values: Values, latest: u64, swaps: bool, dice: &mut SeededEntropy) -> AtomicOp {
    let small = values == Values::Small;
    // A Swap fits any value, so among small ones it would fit anywhere.
    let kind = dice.below(if swaps && !small { 5 } else { 4 });
    let number = |dice: &mut SeededEntropy| if small { dice.below(8) } else { dice.next_u64() };
    match kind {
        0 | 1 => {
            let masks = [0, 0, 1 << 63, 0x8000_0000_8000_0000, dice.next_u64() & dice.next_u64(), u64::MAX];
            let mask = masks[dice.below(if small { 2 } else { 6 }) as usize];
            AtomicOp::FetchAdd { add: number(dice), mask }
        }
        2 | 3 => {
            let (compare_mask, swap_mask) = if small || dice.chance(400_000) {
                (u64::MAX, u64::MAX)
            } else {
                ([0, u64::MAX, dice.next_u64() & dice.next_u64()][dice.below(3) as usize], dice.next_u64())
            };
            let compare = if dice.chance(800_000) { latest } else { number(dice) };
            AtomicOp::CmpSwap { compare, compare_mask, swap: number(dice), swap_mask }
        }
        _ => AtomicOp::Swap { swap: number(dice) },
    }
}
