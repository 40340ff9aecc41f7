//! Chooses and posts the application's next requests.

use ironwarp::{
    Access, AtomicOp, CompletionOpcode, PostError, RecvWr, RemoteMemory, STag, SendWr, VerbsError,
};
use ironwarp_types::{Entropy, SeededEntropy};

use super::conn_qp::{Request, RequestEffect};
use super::{AtomicsApp, CLIENT, RECEIVES};
use crate::atomics::atomics_oracle::{EndpointStage, Message, WRITE_BYTES};
use crate::atomics::history::OpKind;
use crate::atomics::word_memory::{AREA_SLOTS, ConnTags};
use crate::plan::{AtomicsConnEnding, BadAtomic, Values};

/// Send queue entries that stay free: a Write and its immediate take two at once.
const SPARE: usize = 2;

const _: () = assert!(AREA_SLOTS == RECEIVES);

impl AtomicsApp {
    /// Posts receives and requests, a few at a time.
    pub(super) fn post(&mut self, conn: usize) -> Result<(), VerbsError> {
        if self.conn_qps.get(&conn).is_none_or(|conn_qp| conn_qp.has_failed) {
            return Ok(());
        }
        self.post_receives(conn)?;
        for _ in 0..1 + self.rng.below(self.plan.batch.into()) {
            let posted = if self.role == CLIENT {
                self.post_client_request(conn)?
            } else {
                self.post_server_message(conn)?
            };
            if !posted {
                break;
            }
            self.work += 1;
        }
        self.count_open(conn);
        Ok(())
    }

    /// Posts receives up to the planned number.
    pub(super) fn post_receives(&mut self, conn: usize) -> Result<(), VerbsError> {
        let (Some(conn_qp), Some(memory)) = (self.conn_qps.get_mut(&conn), &self.memory) else {
            return Ok(());
        };
        let end = &mut self.atomics_oracle.borrow_mut().conns[conn];
        let wanted = end.plan.receives as usize;
        let end = &mut end.endpoints[self.role];
        while conn_qp.receives.len() < wanted {
            let number = end.receives;
            memory.take_landed(conn, number);
            if !ignore_queue_full(
                self.ctx.post_recv(conn_qp.qp, &RecvWr::new(number, &[memory.landing(conn, number)])),
            )? {
                break;
            }
            conn_qp.receives.push_back(number);
            end.receives += 1;
            self.work += 1;
        }
        Ok(())
    }

    pub(super) fn count_open(&mut self, conn: usize) {
        let open = self
            .conn_qps
            .get(&conn)
            .map_or(0, |conn_qp| conn_qp.out.iter().filter(|one| one.signaled).count());
        let (posted_count, end) = (self.conn_qps.get(&conn).map_or(0, |conn_qp| conn_qp.posted), self.role);
        let end = &mut self.atomics_oracle.borrow_mut().conns[conn].endpoints[end];
        (end.open, end.posted_count) = (open, posted_count);
    }

    /// Returns whether another planned request may be posted.
    fn has_room(&self, conn: usize, most: u32) -> bool {
        let Some(conn_qp) = self.conn_qps.get(&conn) else { return false };
        let depth = self.atomics_oracle.borrow().conns[conn].plan.send_depth as usize;
        conn_qp.posted < most && conn_qp.out.len() + SPARE <= depth
    }

    /// Posts the client's next request. Returns whether there was one.
    fn post_client_request(&mut self, conn: usize) -> Result<bool, VerbsError> {
        let (most, weights, named, bad_atomic_posted) = {
            let conn = &self.atomics_oracle.borrow().conns[conn];
            let most = match conn.plan.ending {
                AtomicsConnEnding::BadAtomic { after, .. } => after,
                _ => conn.plan.ops,
            };
            (most, conn.plan.weights, !conn.names.is_empty(), conn.bad_atomic_posted)
        };
        if bad_atomic_posted || !named || !self.has_room(conn, most) {
            return Ok(false);
        }
        let last = self.conn_qps.get(&conn).is_some_and(|conn_qp| conn_qp.posted + 1 >= most);
        let pick = self.rng.below(weights.iter().sum());
        if pick < weights[0] {
            self.post_atomic(conn, last)
        } else if pick < weights[0] + weights[1] {
            self.read(conn, last)
        } else {
            self.message(conn, last)
        }
    }

    /// Posts the server's next message, if it has one.
    fn post_server_message(&mut self, conn: usize) -> Result<bool, VerbsError> {
        let most = self.atomics_oracle.borrow().conns[conn].plan.messages;
        if !self.has_room(conn, most) {
            return Ok(false);
        }
        let last = self.conn_qps.get(&conn).is_some_and(|conn_qp| conn_qp.posted + 1 >= most);
        self.message(conn, last)
    }

    /// An atomic operation.
    fn post_atomic(&mut self, conn: usize, last: bool) -> Result<bool, VerbsError> {
        let (word, operation) = {
            let atomics_oracle = self.atomics_oracle.borrow();
            let word = self.rng.below(atomics_oracle.plan.words as u64) as usize;
            let swaps = atomics_oracle.plan.extensions != ironwarp::Extensions::Rfc7306;
            (word, operation(atomics_oracle.plan.values, atomics_oracle.latest[word], swaps, &mut self.rng))
        };
        let (name, remote) = self.name_of(conn, word);
        let opcode = match operation {
            AtomicOp::FetchAdd { .. } => CompletionOpcode::FetchAdd,
            AtomicOp::CmpSwap { .. } => CompletionOpcode::CmpSwap,
            AtomicOp::Swap { .. } => CompletionOpcode::Swap,
        };
        let Some(wr_id) = self.next_number(conn) else { return Ok(false) };
        let sink = [self.sink(conn, wr_id, 8)];
        let wr = SendWr::atomic(wr_id, &sink, remote, &operation);
        let posted = self.send(conn, wr, (wr_id, opcode, last), RequestEffect::Nothing)?;
        self.record_op(conn, posted, OpKind::Modify(word, operation), name);
        Ok(posted)
    }

    /// A Read of one word, or of several adjacent ones.
    fn read(&mut self, conn: usize, last: bool) -> Result<bool, VerbsError> {
        let (first, count) = {
            let plan = &self.atomics_oracle.borrow().plan;
            let first = self.rng.below(plan.words as u64) as usize;
            let most = if plan.stride == 8 { plan.words - first } else { 1 };
            (first, 1 + self.rng.below(most as u64) as usize)
        };
        let (name, remote) = self.name_of(conn, first);
        let Some(wr_id) = self.next_number(conn) else { return Ok(false) };
        let sink = [self.sink(conn, wr_id, 8 * count)];
        let wr = SendWr::read(wr_id, &sink, remote);
        let posted = self.send(conn, wr, (wr_id, CompletionOpcode::Read, last), RequestEffect::Nothing)?;
        self.record_op(conn, posted, OpKind::Read(first, count), name);
        Ok(posted)
    }

    /// A Send, an immediate, or a Write with an immediate. Returns whether the peer had a receive for it.
    fn message(&mut self, conn: usize, last: bool) -> Result<bool, VerbsError> {
        let (number, area) = {
            let conns = &mut self.atomics_oracle.borrow_mut().conns[conn];
            let area = conns.area;
            let (ours, theirs) = conns.split(self.role);
            if theirs.stage == EndpointStage::Waiting || theirs.receives <= ours.sent {
                return Ok(false);
            }
            (ours.sent, area)
        };
        let Some(wr_id) = self.next_number(conn) else { return Ok(false) };
        let octets = self.rng.next_u64().to_ne_bytes();
        let solicited = self.rng.chance(300_000);
        let kind = self.rng.below(if self.role == CLIENT { 3 } else { 2 });
        let slot = number as usize % AREA_SLOTS;
        let bytes = core::array::from_fn(|at| octets[at % 8] ^ at as u8);
        let written = (kind == 2).then_some((slot, bytes));
        let message = Message { octets, immediate: kind > 0, solicited, written };
        let offset = (slot * WRITE_BYTES) as u64;
        let posted = match kind {
            0 => {
                let wr = SendWr::send_inline(wr_id, &octets);
                let wr = if solicited { wr.solicited() } else { wr };
                self.send(conn, wr, (wr_id, CompletionOpcode::Send, last), RequestEffect::Nothing)?
            }
            1 => {
                let wr = SendWr::immediate(wr_id, &octets);
                let wr = if solicited { wr.solicited() } else { wr };
                self.send(conn, wr, (wr_id, CompletionOpcode::Immediate, last), RequestEffect::Nothing)?
            }
            _ => {
                let remote = RemoteMemory { tagged_offset: area.tagged_offset + offset, ..area };
                self.write(conn, (wr_id, last), &message, remote)?
            }
        };
        if posted {
            let (ours, theirs) = (self.role, 1 - self.role);
            let endpoints = &mut self.atomics_oracle.borrow_mut().conns[conn].endpoints;
            endpoints[ours].sent += 1;
            endpoints[theirs].incoming.push_back(message);
        }
        Ok(posted)
    }

    /// A Write and an immediate, posted by one call.
    fn write(
        &mut self,
        conn: usize,
        (wr_id, last): (u64, bool),
        message: &Message,
        remote: RemoteMemory,
    ) -> Result<bool, VerbsError> {
        let signaled = self.is_signaled(conn, last);
        let (Some(conn_qp), Some(memory), Some((_, bytes))) =
            (self.conn_qps.get_mut(&conn), &self.memory, message.written)
        else {
            return Ok(false);
        };
        memory.clear(conn, wr_id);
        let source = [memory.source(conn, wr_id, &bytes)];
        let [write, immediate] = SendWr::write_with_immediate(wr_id, &source, remote, &message.octets);
        let immediate = if message.solicited { immediate.solicited() } else { immediate };
        let immediate = if signaled { immediate } else { immediate.unsignaled() };
        if !ignore_queue_full(self.ctx.post_all(conn_qp.qp, &[write, immediate]))? {
            return Ok(false);
        }
        let what = RequestEffect::Nothing;
        conn_qp.out.push_back(Request { wr_id, opcode: CompletionOpcode::Write, signaled: false, what });
        conn_qp.out.push_back(Request { wr_id, opcode: CompletionOpcode::Immediate, signaled, what });
        conn_qp.posted += 1;
        Ok(true)
    }

    /// Posts a bad atomic request: the server ends the connection over it, and no word changes.
    pub(super) fn post_bad_atomic(&mut self, conn: usize) -> Result<(), VerbsError> {
        if !self.has_room(conn, u32::MAX) || self.atomics_oracle.borrow().conns[conn].names.is_empty() {
            return Ok(());
        }
        let AtomicsConnEnding::BadAtomic { bad_atomic, .. } =
            self.atomics_oracle.borrow().conns[conn].plan.ending
        else {
            return Ok(());
        };
        let name = self.atomics_oracle.borrow().conns[conn].names[0];
        let (area, beyond) =
            (self.atomics_oracle.borrow().conns[conn].area, self.atomics_oracle.borrow().conns[conn].beyond);
        let remote = match bad_atomic {
            BadAtomic::Misaligned => RemoteMemory { tagged_offset: name.tagged_offset + 4, ..name },
            BadAtomic::Beyond => beyond,
            BadAtomic::NoRight => area,
            BadAtomic::Unknown => RemoteMemory { stag: STag(self.rng.next_u64() as u32), ..name },
        };
        let Some(wr_id) = self.next_number(conn) else { return Ok(()) };
        let sink = [self.sink(conn, wr_id, 8)];
        let operation = AtomicOp::add(1);
        let wr = SendWr::atomic(wr_id, &sink, remote, &operation);
        if self.send(conn, wr, (wr_id, CompletionOpcode::FetchAdd, true), RequestEffect::Failure)? {
            self.start_ending(conn, EndpointStage::Up);
            self.atomics_oracle.borrow_mut().conns[conn].bad_atomic_posted = true;
        }
        Ok(())
    }

    /// The server binds tags of the words for this connection alone. It publishes them when the binds have completed.
    pub(super) fn bind_names(&mut self, conn: usize) -> Result<(), VerbsError> {
        let Some(word_memory) = &self.word_memory else { return Ok(()) };
        let piece = [word_memory.piece()];
        let (mut window, mut fast) =
            (self.ctx.create_window(self.pd)?, self.ctx.create_fast_region(self.pd)?);
        let rights = Access::REMOTE_ATOMIC | Access::REMOTE_READ;
        let first = self.next_number(conn).unwrap_or_default();
        let bind = SendWr::bind(first, &mut window, &piece, rights).unsignaled();
        let request = Request {
            wr_id: first,
            opcode: CompletionOpcode::Bind,
            signaled: false,
            what: RequestEffect::Nothing,
        };
        self.put(conn, bind, request)?;
        let second = self.next_number(conn).unwrap_or_default();
        let mut register = SendWr::fast_register(second, &mut fast, &piece, rights | Access::LOCAL_WRITE);
        if self.rng.chance(500_000) {
            register = register.stream_scoped();
        }
        let (opcode, what) = (CompletionOpcode::FastRegister, RequestEffect::TagsBound);
        self.put(conn, register, Request { wr_id: second, opcode, signaled: true, what })?;
        if let Some(conn_qp) = self.conn_qps.get_mut(&conn) {
            conn_qp.names = Some(ConnTags { window, fast });
        }
        Ok(())
    }

    /// Publishes the tags: their binds have completed.
    pub(super) fn publish_names(&mut self, conn: usize) {
        let names = self.conn_qps.get(&conn).and_then(|conn_qp| conn_qp.names.as_ref());
        let (Some(word_memory), Some(names)) = (&self.word_memory, names) else { return };
        let base = word_memory.name();
        let tags = [base.stag, names.window.stag(), names.fast.stag()];
        let conns = &mut self.atomics_oracle.borrow_mut().conns[conn];
        conns.names = tags.map(|stag| RemoteMemory { stag, ..base }).to_vec();
        (conns.area, conns.beyond) = (word_memory.area(conn), word_memory.beyond());
    }

    /// Chooses one of a word's tags.
    fn name_of(&mut self, conn: usize, word: usize) -> (usize, RemoteMemory) {
        let atomics_oracle = self.atomics_oracle.borrow();
        let names = &atomics_oracle.conns[conn].names;
        let which = self.rng.below(names.len() as u64) as usize;
        let tagged_offset = names[which].tagged_offset + (word * atomics_oracle.plan.stride) as u64;
        (which, RemoteMemory { tagged_offset, ..names[which] })
    }

    /// Records the request that was posted last in the history. Nothing has run since.
    fn record_op(&mut self, conn: usize, posted: bool, kind: OpKind, name: usize) {
        let Some(request) =
            self.conn_qps.get_mut(&conn).filter(|_| posted).and_then(|conn_qp| conn_qp.out.back_mut())
        else {
            return;
        };
        let atomics_oracle = &mut *self.atomics_oracle.borrow_mut();
        let stream = atomics_oracle.conns[conn].stream;
        let (_, count) = kind.words();
        request.what = RequestEffect::Words(atomics_oracle.history.invoke(stream, kind, name), count);
        if atomics_oracle.conns[conn].revoked_names[name] {
            atomics_oracle.history.invoke_without_effect(stream);
        }
    }

    fn next_number(&mut self, conn: usize) -> Option<u64> {
        let conn_qp = self.conn_qps.get_mut(&conn)?;
        conn_qp.next += 1;
        Some(conn_qp.next - 1)
    }

    fn sink(&self, conn: usize, wr_id: u64, bytes: usize) -> ironwarp::Sge {
        let Some(memory) = &self.memory else { unreachable!("a closed application does not post") };
        memory.clear(conn, wr_id);
        memory.scratch(conn, wr_id, bytes)
    }

    /// A queue full of unsignaled requests would never report a completion and never have room again.
    fn is_signaled(&mut self, conn: usize, last: bool) -> bool {
        let (ppm, depth) = {
            let plan = &self.atomics_oracle.borrow().conns[conn].plan;
            (plan.unsignaled_ppm, plan.send_depth as usize)
        };
        let over_limits =
            self.conn_qps.get(&conn).is_some_and(|conn_qp| conn_qp.out.len() + 2 * SPARE > depth);
        !self.rng.chance(ppm) || last || over_limits
    }

    /// Posts a planned request. Returns whether the queue accepted it.
    fn send(
        &mut self,
        conn: usize,
        wr: SendWr<'_>,
        (wr_id, opcode, last): (u64, CompletionOpcode, bool),
        what: RequestEffect,
    ) -> Result<bool, VerbsError> {
        let signaled = self.is_signaled(conn, last);
        let fence_ppm = self.atomics_oracle.borrow().conns[conn].plan.fence_ppm;
        let wr = if signaled { wr } else { wr.unsignaled() };
        let wr = if self.rng.chance(fence_ppm) { wr.fenced() } else { wr };
        let posted = self.put(conn, wr, Request { wr_id, opcode, signaled, what })?;
        if let Some(conn_qp) = self.conn_qps.get_mut(&conn).filter(|_| posted) {
            conn_qp.posted += 1;
        }
        Ok(posted)
    }

    fn put(&mut self, conn: usize, wr: SendWr<'_>, request: Request) -> Result<bool, VerbsError> {
        let Some(conn_qp) = self.conn_qps.get_mut(&conn) else { return Ok(false) };
        let posted = ignore_queue_full(self.ctx.post_send(conn_qp.qp, &wr))?;
        if posted {
            conn_qp.out.push_back(request);
        }
        Ok(posted)
    }
}

/// Returns whether a post was accepted. A full queue has room again after its core has run; a queue in error accepts
/// nothing more.
pub(super) fn ignore_queue_full(outcome: Result<(), impl Into<VerbsError>>) -> Result<bool, VerbsError> {
    match outcome.map_err(Into::into) {
        Err(VerbsError::Post(PostError::QueueFull) | VerbsError::CqFull | VerbsError::WrongState(_)) => {
            Ok(false)
        }
        outcome => outcome.map(|()| true),
    }
}

/// An operation on a word whose last known value is `latest`.
pub(super) fn operation(values: Values, latest: u64, swaps: bool, rng: &mut SeededEntropy) -> AtomicOp {
    let small = values == Values::Small;
    // A Swap matches any value, so among small values it could take effect anywhere in the order.
    let kind = rng.below(if swaps && !small { 5 } else { 4 });
    let number = |rng: &mut SeededEntropy| if small { rng.below(8) } else { rng.next_u64() };
    match kind {
        0 | 1 => {
            let masks = [0, 0, 1 << 63, 0x8000_0000_8000_0000, rng.next_u64() & rng.next_u64(), u64::MAX];
            let mask = masks[rng.below(if small { 2 } else { 6 }) as usize];
            AtomicOp::FetchAdd { add: number(rng), mask }
        }
        2 | 3 => {
            let (compare_mask, swap_mask) = if small || rng.chance(400_000) {
                (u64::MAX, u64::MAX)
            } else {
                ([0, u64::MAX, rng.next_u64() & rng.next_u64()][rng.below(3) as usize], rng.next_u64())
            };
            let compare = if rng.chance(800_000) { latest } else { number(rng) };
            AtomicOp::CmpSwap { compare, compare_mask, swap: number(rng), swap_mask }
        }
        _ => AtomicOp::Swap { swap: number(rng) },
    }
}
