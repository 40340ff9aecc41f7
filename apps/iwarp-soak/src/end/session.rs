//! A session of the client: a queue pair and its successors, the operations under way, and what
//! each must return.
//!
//! It has a copy of what its memory at the server must contain. Operations of a connection take
//! effect in order, except that a Write may overtake an earlier Read (RFC 5040 s5.5): a Write
//! behind one is fenced.

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::time::Instant;

use ironwarp::{
    Access, AtomicOp, Completion, CompletionOpcode, PostError, PrivateData, QueuePair, Region, RemoteMemory,
    SendWr, VerbsError,
};
use ironwarp_types::{Entropy, SeededEntropy};

use super::EndError;
use super::message::{
    ARENA_BYTES, Advertisement, HEADER_BYTES, Header, MESSAGE_BYTES_MAX, WINDOW, WORDS, difference, fill,
    immediate,
};
use super::node::{Node, RECEIVES, receive, receive_at};

/// Operations of a session that are posted and not complete, at most.
const SLOTS: usize = 8;
/// The memory of an operation.
const SLOT_BYTES: usize = 32 << 10;
/// Operations of a connection, at most.
const OPERATIONS_MAX: u64 = 4000;
/// An answer has the seed of its message, changed by this.
pub(super) const ANSWER: u64 = 0xa5a5_5a5a_0f0f_f0f0;

/// What a posted operation must return.
pub(super) enum Operation {
    /// Nothing: a Write, a Send or Immediate Data.
    Plain,
    Read(Vec<u8>),
    Atomic(u64),
}

impl Operation {
    fn name(&self) -> &'static str {
        match self {
            Operation::Plain => "plain",
            Operation::Read(_) => "read",
            Operation::Atomic(_) => "atomic",
        }
    }
}

/// What the server must answer.
enum Answer {
    Message { seed: u64, len: u32 },
    Immediate(u64),
}

/// Where a session stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Not connected, until then.
    Waiting(Instant),
    Connecting,
    Connected,
    /// This side has closed or aborted the connection.
    Closing,
    /// The connection has ended; the queue pair is to be destroyed.
    Ended,
    /// It does not connect again.
    Done,
}

/// A queue pair, and its successors.
pub(super) struct Session {
    rng: SeededEntropy,
    pub(super) phase: Phase,
    /// The time of its last completion or change of phase.
    pub(super) progress_at: Instant,
    pub(super) qp: Option<QueuePair>,
    memory: Region,
    messages: Region,
    remote: Option<Advertisement>,
    /// The server's memory as it must be.
    arena: Vec<u8>,
    words: [u64; WORDS],
    pub(super) slots: [Option<Operation>; SLOTS],
    /// Reads and atomic operations among them.
    pub(super) reading: usize,
    sent: u64,
    answered: u64,
    answers: VecDeque<Answer>,
    pub(super) operations_left: u64,
    pub(super) aborts: bool,
}

impl Session {
    pub(super) fn new(node: &Node, seed: u64) -> Result<Self, EndError> {
        Ok(Session {
            rng: SeededEntropy::new(seed),
            phase: Phase::Waiting(Instant::now()),
            progress_at: Instant::now(),
            qp: None,
            memory: node.register(SLOTS * SLOT_BYTES, Access::LOCAL_WRITE)?,
            messages: node.register(RECEIVES * MESSAGE_BYTES_MAX, Access::LOCAL_WRITE)?,
            remote: None,
            arena: vec![0; ARENA_BYTES],
            words: [0; WORDS],
            slots: [const { None }; SLOTS],
            reading: 0,
            sent: 0,
            answered: 0,
            answers: VecDeque::new(),
            operations_left: 0,
            aborts: false,
        })
    }

    pub(super) fn connect(&mut self, node: &mut Node, at: SocketAddr) -> Result<QueuePair, EndError> {
        let qp = node.ctx.create_qp(node.pd, &node.attr(None))?;
        for slot in 0..RECEIVES {
            node.ctx.post_recv(qp, &receive(slot, &receive_at(&self.messages, slot)?))?;
        }
        self.qp = Some(qp);
        self.enter(Phase::Connecting);
        node.ctx.connect(qp, at, b"")?;
        Ok(qp)
    }

    pub(super) fn on_connected(&mut self, private_data: &PrivateData) -> Result<(), EndError> {
        let remote = Advertisement::decode(private_data);
        self.remote = Some(remote.ok_or_else(|| EndError("no memory is advertised".to_owned()))?);
        self.arena.fill(0);
        self.words = [0; WORDS];
        self.slots = [const { None }; SLOTS];
        (self.reading, self.sent, self.answered) = (0, 0, 0);
        self.answers.clear();
        self.operations_left = 1 + self.rng.next_u64() % OPERATIONS_MAX;
        self.aborts = self.rng.next_u64().is_multiple_of(4);
        self.enter(Phase::Connected);
        Ok(())
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        (self.phase, self.progress_at) = (phase, Instant::now());
    }

    pub(super) fn describe(&self, node: &mut Node) -> String {
        let posted: Vec<&str> = self.slots.iter().flatten().map(Operation::name).collect();
        let core = match self.qp.map(|qp| node.ctx.query_qp(qp)) {
            Some(Ok(info)) => format!(
                "{:?} with {} requests and {} receives, port {}",
                info.state,
                info.sends_outstanding,
                info.receives_outstanding,
                info.local.map_or(0, |local| local.port()),
            ),
            Some(Err(error)) => error.to_string(),
            None => "no queue pair".to_owned(),
        };
        format!(
            "{:?}, posted {posted:?}, {} answers missing, queue pair {core}",
            self.phase,
            self.answers.len()
        )
    }

    /// A quarter of the connections is aborted with operations under way; the others are idle when
    /// they are closed.
    pub(super) fn is_to_close(&self) -> bool {
        let is_idle = self.answers.is_empty() && self.slots.iter().all(Option::is_none);
        self.operations_left == 0 && (self.aborts || is_idle)
    }

    pub(super) fn close(&mut self, node: &mut Node) -> Result<(), EndError> {
        let Some(qp) = self.qp else { return Ok(()) };
        let outcome = if self.aborts { node.ctx.abort(qp) } else { node.ctx.disconnect(qp) };
        match outcome {
            // The connection ends already.
            Err(VerbsError::WrongState(_)) => {}
            outcome => {
                outcome?;
                self.enter(Phase::Closing);
            }
        }
        Ok(())
    }

    /// Posts one operation if there is room. Returns whether it did.
    pub(super) fn post(&mut self, node: &mut Node) -> Result<bool, EndError> {
        let (Some(qp), Some(remote)) = (self.qp, self.remote) else { return Ok(false) };
        let Some(slot) = self.slots.iter().position(Option::is_none) else { return Ok(false) };
        let (base, wr_id) = (slot * SLOT_BYTES, slot as u64);
        let kind = self.rng.next_u64() % 8;
        if kind >= 6 && self.answers.len() == WINDOW {
            return Ok(false);
        }
        let posted = match kind {
            0 | 1 => {
                let (offset, len) = self.piece(SLOT_BYTES);
                fill(self.rng.next_u64(), &mut self.arena[offset..offset + len]);
                self.memory.write_at(base, &self.arena[offset..offset + len])?;
                self.slots[slot] = Some(Operation::Plain);
                let gather = [self.memory.slice(base, len as u32)?];
                let write = SendWr::write(wr_id, &gather, beyond(remote.arena, offset));
                node.ctx.post_send(qp, &if self.reading > 0 { write.fenced() } else { write })
            }
            2 | 3 => {
                let (offset, len) = self.piece(SLOT_BYTES);
                self.slots[slot] = Some(Operation::Read(self.arena[offset..offset + len].to_vec()));
                self.reading += 1;
                let sink = [self.memory.slice(base, len as u32)?];
                node.ctx.post_send(qp, &SendWr::read(wr_id, &sink, beyond(remote.arena, offset)))
            }
            4 | 5 => {
                let (word, value) = (self.rng.next_u64() as usize % WORDS, self.rng.next_u64());
                let original = self.words[word];
                let operation = match self.rng.next_u64() % 3 {
                    0 => AtomicOp::add(value),
                    1 => AtomicOp::compare_and_swap(original, value),
                    _ => AtomicOp::compare_and_swap(!original, value),
                };
                self.words[word] = operation.apply(original);
                self.slots[slot] = Some(Operation::Atomic(original));
                self.reading += 1;
                let sink = [self.memory.slice(base, 8)?];
                let place = beyond(remote.words, word * 8);
                node.ctx.post_send(qp, &SendWr::atomic(wr_id, &sink, place, &operation))
            }
            6 => {
                let (seed, len) = (self.rng.next_u64(), self.length(MESSAGE_BYTES_MAX - HEADER_BYTES) as u32);
                let mut message = [0; MESSAGE_BYTES_MAX];
                let bytes = Header { seq: self.sent, seed, len }.write(&mut message);
                self.memory.write_at(base, &message[..bytes])?;
                self.slots[slot] = Some(Operation::Plain);
                self.answers.push_back(Answer::Message { seed: seed ^ ANSWER, len });
                self.sent += 1;
                let gather = [self.memory.slice(base, bytes as u32)?];
                node.ctx.post_send(qp, &SendWr::send(wr_id, &gather))
            }
            _ => {
                self.slots[slot] = Some(Operation::Plain);
                self.answers.push_back(Answer::Immediate(self.sent));
                let octets = immediate(self.sent);
                self.sent += 1;
                node.ctx.post_send(qp, &SendWr::immediate(wr_id, &octets))
            }
        };
        self.operations_left -= 1;
        match posted {
            Ok(()) => Ok(true),
            // The connection ends; its event follows.
            Err(PostError::WrongState(_)) => {
                self.slots[slot] = None;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A random piece of the arena, small ones as often as large ones.
    fn piece(&mut self, bytes_max: usize) -> (usize, usize) {
        let len = self.length(bytes_max).max(1);
        (self.rng.next_u64() as usize % (ARENA_BYTES - len + 1), len)
    }

    fn length(&mut self, bytes_max: usize) -> usize {
        let bits = self.rng.next_u64() % u64::from(bytes_max.ilog2() + 1);
        (self.rng.next_u64() as usize % (2 << bits)).min(bytes_max)
    }

    pub(super) fn check(&self, done: &Completion, operation: &Operation) -> Result<(), EndError> {
        let base = done.wr_id as usize * SLOT_BYTES;
        let wrong = match operation {
            Operation::Plain => None,
            Operation::Read(wanted) => {
                let mut found = vec![0; wanted.len()];
                self.memory.read_at(base, &mut found)?;
                difference(&found, wanted)
            }
            Operation::Atomic(wanted) => {
                let mut found = [0; 8];
                self.memory.read_at(base, &mut found)?;
                let found = u64::from_ne_bytes(found);
                (found != *wanted).then(|| format!("the word was {found:#x} instead of {wanted:#x}"))
            }
        };
        wrong.map_or(Ok(()), |what| Err(EndError(format!("{:?}: {what}", done.opcode))))
    }

    pub(super) fn on_answer(&mut self, node: &mut Node, done: &Completion) -> Result<(), EndError> {
        let (slot, seq) = (done.wr_id as usize, self.answered);
        let (Some(qp), Some(wanted)) = (self.qp, self.answers.pop_front()) else {
            return Err(EndError(format!("an answer to nothing: {done:?}")));
        };
        self.answered += 1;
        match (wanted, done.opcode) {
            (Answer::Immediate(number), CompletionOpcode::ReceiveImmediate)
                if done.immediate == immediate(number) => {}
            (Answer::Message { seed, len }, CompletionOpcode::Receive) => {
                let mut message = [0; MESSAGE_BYTES_MAX];
                let message = &mut message[..done.byte_len as usize];
                self.messages.read_at(slot * MESSAGE_BYTES_MAX, message)?;
                let header = Header::check(message, seq).map_err(EndError)?;
                if (header.seed, header.len) != (seed, len) {
                    return Err(EndError(format!("answer {seq} answers something else: {header:?}")));
                }
            }
            _ => return Err(EndError(format!("answer {seq} is of another kind: {done:?}"))),
        }
        match node.ctx.post_recv(qp, &receive(slot, &receive_at(&self.messages, slot)?)) {
            Err(PostError::WrongState(_)) => Ok(()),
            outcome => Ok(outcome?),
        }
    }
}

fn beyond(memory: RemoteMemory, offset: usize) -> RemoteMemory {
    RemoteMemory { tagged_offset: memory.tagged_offset + offset as u64, ..memory }
}
