//! One end of a connection while it has a queue pair: what was posted, and what must come of it.

use std::collections::VecDeque;

use ironwarp::{Completion, CompletionFlags, CompletionOpcode, CompletionStatus, QueuePair, Sge};

use super::{Memory, Operator, RECEIVE_BYTES, RECEIVES, SCRATCH_BYTES, SCRATCHES, UNTOUCHED};
use crate::atomics::desk::Message;
use crate::atomics::store::Names;

/// An end of a connection.
pub struct Line {
    /// Its queue pair.
    pub qp: QueuePair,
    /// Requests without a completion, oldest first.
    pub out: VecDeque<Request>,
    /// The number of the next request.
    pub next: u64,
    /// Receives without a completion, oldest first.
    pub receives: VecDeque<u64>,
    /// A request completed with an error: all later ones must.
    pub has_failed: bool,
    /// Requests that count, and messages, that were posted.
    pub posted: u32,
    /// The keeper's names of the words for this connection.
    pub names: Option<Names>,
}

/// A request that was posted.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Its number, counted from 0.
    pub wr_id: u64,
    /// What it is.
    pub opcode: CompletionOpcode,
    /// Whether success is told.
    pub signaled: bool,
    /// What comes of it.
    pub what: What,
}

/// What comes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// So many words, for this request of the history.
    Words(usize, usize),
    /// A message, a Write before one, or a name of the words.
    Nothing,
    /// The names of the words are there.
    Named,
    /// It must not succeed.
    Failure,
}

impl Memory {
    /// The first `bytes` of a request's scratch.
    pub fn scratch(&self, call: usize, wr_id: u64, bytes: usize) -> Sge {
        match self.scratch.slice(scratch_at(call, wr_id), bytes as u32) {
            Ok(sge) => sge,
            Err(error) => unreachable!("scratch of its own: {error}"),
        }
    }

    /// The last of it, which holds `bytes` from now on.
    pub fn source(&self, call: usize, wr_id: u64, bytes: &[u8]) -> Sge {
        let at = scratch_at(call, wr_id) + SCRATCH_BYTES - bytes.len();
        match self.scratch.write_at(at, bytes).and_then(|()| self.scratch.slice(at, bytes.len() as u32)) {
            Ok(sge) => sge,
            Err(error) => unreachable!("scratch of its own: {error}"),
        }
    }

    /// Nothing has been answered there.
    pub fn clear(&self, call: usize, wr_id: u64) {
        if self.scratch.fill(scratch_at(call, wr_id), SCRATCH_BYTES, UNTOUCHED).is_err() {
            unreachable!("scratch of its own");
        }
    }

    /// So many words that were answered, and nothing behind them.
    fn answered(&self, call: usize, wr_id: u64, count: usize) -> Result<Vec<u64>, String> {
        let mut bytes = [0; SCRATCH_BYTES];
        if self.scratch.read_at(scratch_at(call, wr_id), &mut bytes).is_err() {
            unreachable!("scratch of its own");
        }
        let (words, rest) = bytes.split_at(8 * count);
        if rest.iter().any(|byte| *byte != UNTOUCHED) {
            return Err(format!("request {wr_id} brought more than {count} words: {bytes:02x?}"));
        }
        let words = words.as_chunks::<8>().0;
        Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
    }

    /// A receive's memory.
    pub fn landing(&self, call: usize, receive: u64) -> Sge {
        match self.landing.slice(landing_at(call, receive), RECEIVE_BYTES as u32) {
            Ok(sge) => sge,
            Err(error) => unreachable!("a receive's own memory: {error}"),
        }
    }

    /// What has landed in a receive, and its memory is as if nothing had.
    pub fn take_landed(&self, call: usize, receive: u64) -> [u8; RECEIVE_BYTES] {
        let (at, mut bytes) = (landing_at(call, receive), [0; RECEIVE_BYTES]);
        let outcome = self.landing.read_at(at, &mut bytes);
        if outcome.and_then(|()| self.landing.fill(at, RECEIVE_BYTES, UNTOUCHED)).is_err() {
            unreachable!("a receive's own memory");
        }
        bytes
    }
}

fn scratch_at(call: usize, wr_id: u64) -> usize {
    (call * SCRATCHES + wr_id as usize % SCRATCHES) * SCRATCH_BYTES
}

fn landing_at(call: usize, receive: u64) -> usize {
    (call * RECEIVES + receive as usize % RECEIVES) * RECEIVE_BYTES
}

impl Operator {
    /// A completion of one of this end's requests or receives.
    pub(super) fn settle(&mut self, call: usize, completion: &Completion) -> Result<(), String> {
        match completion.opcode {
            CompletionOpcode::Receive | CompletionOpcode::ReceiveImmediate => {
                self.settle_receive(call, completion)
            }
            _ => self.settle_request(call, completion),
        }
    }

    /// Requests complete in the order in which they were posted; those that tell only failure are passed over.
    fn settle_request(&mut self, call: usize, completion: &Completion) -> Result<(), String> {
        loop {
            let Some(line) = self.lines.get_mut(&call) else { return Ok(()) };
            let Some(request) = line.out.pop_front() else {
                return Err(format!("a completion of nothing that was posted: {completion:?}"));
            };
            if request.wr_id != completion.wr_id || request.opcode != completion.opcode {
                if request.signaled {
                    return Err(format!("{request:?} was passed over by {completion:?}"));
                }
                self.succeed(call, request)?;
                continue;
            }
            return match completion.status {
                CompletionStatus::Success if !request.signaled => {
                    Err(format!("an unsignaled success was told: {completion:?}"))
                }
                CompletionStatus::Success if line.has_failed => {
                    Err(format!("{request:?} succeeded behind one that failed"))
                }
                CompletionStatus::Success => self.succeed(call, request),
                CompletionStatus::FlushedInError => {
                    line.has_failed = true;
                    self.ledger.borrow_mut().totals.flushed += 1;
                    Ok(())
                }
                status => Err(format!("{request:?} failed with {status:?}")),
            };
        }
    }

    /// What was posted and never told has succeeded: a failure is always told.
    pub(super) fn settle_silent(&mut self, call: usize) -> Result<(), String> {
        while let Some(request) = self.lines.get_mut(&call).and_then(|line| line.out.pop_front()) {
            if request.signaled {
                return Err(format!("{request:?} never completed"));
            }
            self.succeed(call, request)?;
        }
        match self.lines.get(&call).map(|line| line.receives.len()) {
            Some(0) | None => Ok(()),
            Some(left) => Err(format!("{left} receives never completed")),
        }
    }

    fn succeed(&mut self, call: usize, request: Request) -> Result<(), String> {
        self.ledger.borrow_mut().totals.succeeded += 1;
        match request.what {
            What::Nothing => Ok(()),
            What::Failure => Err(format!("{request:?} succeeded")),
            What::Named => {
                self.publish(call);
                Ok(())
            }
            What::Words(op, count) => {
                let Some(memory) = &self.memory else { return Ok(()) };
                let seen = memory.answered(call, request.wr_id, count)?;
                let desk = &mut *self.desk.borrow_mut();
                let stream = desk.calls[call].stream;
                let asked = &desk.history.streams[stream][op];
                if asked.until < asked.asked {
                    return Err(format!("{asked:?} saw {seen:x?} by a name that had ended"));
                }
                let (first, _) = asked.act.words();
                desk.latest[first..first + count].copy_from_slice(&seen);
                desk.history.answer(stream, op, seen);
                self.ledger.borrow_mut().totals.atomics += 1;
                Ok(())
            }
        }
    }

    /// Messages come in the order in which they were sent, each once, with its eight octets.
    fn settle_receive(&mut self, call: usize, completion: &Completion) -> Result<(), String> {
        let (Some(line), Some(memory)) = (self.lines.get_mut(&call), &self.memory) else { return Ok(()) };
        let receive = line.receives.pop_front();
        if receive != Some(completion.wr_id) {
            return Err(format!("receive {receive:?} was passed over by {completion:?}"));
        }
        let landed = memory.take_landed(call, completion.wr_id);
        if completion.status == CompletionStatus::FlushedInError {
            line.has_failed = true;
            // The first one flushed may hold what was arriving.
            return Ok(());
        }
        if completion.status != CompletionStatus::Success {
            return Err(format!("a receive failed: {completion:?}"));
        }
        let message = self.desk.borrow_mut().calls[call].ends[self.role].incoming.pop_front();
        let Some(message) = message else {
            return Err(format!("a message that nobody sent: {completion:?}"));
        };
        self.ledger.borrow_mut().totals.messages += 1;
        compare(completion, landed, &message)?;
        match (message.written, &self.store) {
            (Some((place, bytes)), Some(store)) if store.written(call, place) != bytes => Err(format!(
                "an immediate came before the Write of {bytes:02x?}: {:02x?}",
                store.written(call, place)
            )),
            _ => Ok(()),
        }
    }
}

fn compare(completion: &Completion, landed: [u8; RECEIVE_BYTES], message: &Message) -> Result<(), String> {
    let is_immediate = completion.opcode == CompletionOpcode::ReceiveImmediate;
    let (octets, rest) = match is_immediate {
        true => (completion.immediate, landed == [UNTOUCHED; RECEIVE_BYTES]),
        false => (landed, completion.immediate == [0; 8]),
    };
    let solicited = completion.flags.contains(CompletionFlags::SOLICITED);
    let kind = (is_immediate, solicited, completion.byte_len);
    if kind == (message.immediate, message.solicited, 8) && octets == message.octets && rest {
        return Ok(());
    }
    Err(format!("{message:?} came as {completion:?} with {landed:02x?} in its memory"))
}
