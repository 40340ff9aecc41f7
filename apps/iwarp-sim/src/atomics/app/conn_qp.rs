//! One endpoint of a connection while it has a queue pair: its posted requests and their expected results.

use std::collections::VecDeque;

use ironwarp::{Completion, CompletionFlags, CompletionOpcode, CompletionStatus, QueuePair, Sge};

use super::{AtomicsApp, Memory, RECEIVE_BYTES, RECEIVES, SCRATCH_BYTES, SCRATCHES, UNTOUCHED};
use crate::atomics::atomics_oracle::Message;
use crate::atomics::word_memory::ConnTags;

/// The queue pair of an endpoint.
pub struct ConnQp {
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
    /// Planned requests and messages that were posted.
    pub posted: u32,
    /// The server's tags of the words for this connection.
    pub names: Option<ConnTags>,
}

/// A request that was posted.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Its number, counted from 0.
    pub wr_id: u64,
    /// What it is.
    pub opcode: CompletionOpcode,
    /// Whether a success has a completion.
    pub signaled: bool,
    /// Its expected result.
    pub what: RequestEffect,
}

/// The expected result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestEffect {
    /// This many words, for this request of the history.
    Words(usize, usize),
    /// A message, a Write before one, or a bind of a tag.
    Nothing,
    /// The last bind: the tags of the words are valid.
    TagsBound,
    /// It must fail.
    Failure,
}

impl Memory {
    /// The first `bytes` of a request's scratch.
    pub fn scratch(&self, conn: usize, wr_id: u64, bytes: usize) -> Sge {
        match self.scratch.slice(scratch_at(conn, wr_id), bytes as u32) {
            Ok(sge) => sge,
            Err(error) => unreachable!("scratch of its own: {error}"),
        }
    }

    /// The last part of the scratch, into which `bytes` are written.
    pub fn source(&self, conn: usize, wr_id: u64, bytes: &[u8]) -> Sge {
        let at = scratch_at(conn, wr_id) + SCRATCH_BYTES - bytes.len();
        match self.scratch.write_at(at, bytes).and_then(|()| self.scratch.slice(at, bytes.len() as u32)) {
            Ok(sge) => sge,
            Err(error) => unreachable!("scratch of its own: {error}"),
        }
    }

    /// Resets the scratch of a request to its fill pattern.
    pub fn clear(&self, conn: usize, wr_id: u64) {
        if self.scratch.fill(scratch_at(conn, wr_id), SCRATCH_BYTES, UNTOUCHED).is_err() {
            unreachable!("scratch of its own");
        }
    }

    /// Returns the words that were read, and checks that nothing after them was written.
    fn read_result(&self, conn: usize, wr_id: u64, count: usize) -> Result<Vec<u64>, String> {
        let mut bytes = [0; SCRATCH_BYTES];
        if self.scratch.read_at(scratch_at(conn, wr_id), &mut bytes).is_err() {
            unreachable!("scratch of its own");
        }
        let (words, rest) = bytes.split_at(8 * count);
        if rest.iter().any(|byte| *byte != UNTOUCHED) {
            return Err(format!("request {wr_id} wrote more than {count} words: {bytes:02x?}"));
        }
        let words = words.as_chunks::<8>().0;
        Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
    }

    /// The memory of a receive.
    pub fn landing(&self, conn: usize, receive: u64) -> Sge {
        match self.landing.slice(landing_at(conn, receive), RECEIVE_BYTES as u32) {
            Ok(sge) => sge,
            Err(error) => unreachable!("a receive's own memory: {error}"),
        }
    }

    /// Returns the contents of a receive's memory and resets it.
    pub fn take_landed(&self, conn: usize, receive: u64) -> [u8; RECEIVE_BYTES] {
        let (at, mut bytes) = (landing_at(conn, receive), [0; RECEIVE_BYTES]);
        let outcome = self.landing.read_at(at, &mut bytes);
        if outcome.and_then(|()| self.landing.fill(at, RECEIVE_BYTES, UNTOUCHED)).is_err() {
            unreachable!("a receive's own memory");
        }
        bytes
    }
}

fn scratch_at(conn: usize, wr_id: u64) -> usize {
    (conn * SCRATCHES + wr_id as usize % SCRATCHES) * SCRATCH_BYTES
}

fn landing_at(conn: usize, receive: u64) -> usize {
    (conn * RECEIVES + receive as usize % RECEIVES) * RECEIVE_BYTES
}

impl AtomicsApp {
    /// Checks a completion of one of this endpoint's requests or receives.
    pub(super) fn check_completion(&mut self, conn: usize, completion: &Completion) -> Result<(), String> {
        match completion.opcode {
            CompletionOpcode::Receive | CompletionOpcode::ReceiveImmediate => {
                self.check_receive_completion(conn, completion)
            }
            _ => self.check_request_completion(conn, completion),
        }
    }

    /// Requests complete in posting order. Unsignaled requests that succeed have no completion.
    fn check_request_completion(&mut self, conn: usize, completion: &Completion) -> Result<(), String> {
        loop {
            let Some(conn_qp) = self.conn_qps.get_mut(&conn) else { return Ok(()) };
            let Some(request) = conn_qp.out.pop_front() else {
                return Err(format!("a completion without a posted request: {completion:?}"));
            };
            if request.wr_id != completion.wr_id || request.opcode != completion.opcode {
                if request.signaled {
                    return Err(format!("{request:?} was skipped by {completion:?}"));
                }
                self.succeed(conn, request)?;
                continue;
            }
            return match completion.status {
                CompletionStatus::Success if !request.signaled => {
                    Err(format!("an unsignaled request has a success completion: {completion:?}"))
                }
                CompletionStatus::Success if conn_qp.has_failed => {
                    Err(format!("{request:?} succeeded after one that failed"))
                }
                CompletionStatus::Success => self.succeed(conn, request),
                CompletionStatus::FlushedInError => {
                    conn_qp.has_failed = true;
                    self.oracle.borrow_mut().totals.flushed += 1;
                    Ok(())
                }
                // The error that a failed CRC or a damaged header has become.
                _ if self.oracle.borrow().undetected_corruption => {
                    conn_qp.has_failed = true;
                    Ok(())
                }
                status => Err(format!("{request:?} failed with {status:?}")),
            };
        }
    }

    /// Checks that unsignaled requests without a completion succeeded: a failure always has a completion.
    pub(super) fn complete_unsignaled(&mut self, conn: usize) -> Result<(), String> {
        while let Some(request) = self.conn_qps.get_mut(&conn).and_then(|conn_qp| conn_qp.out.pop_front()) {
            if request.signaled {
                return Err(format!("{request:?} never completed"));
            }
            self.succeed(conn, request)?;
        }
        match self.conn_qps.get(&conn).map(|conn_qp| conn_qp.receives.len()) {
            Some(0) | None => Ok(()),
            Some(left) => Err(format!("{left} receives never completed")),
        }
    }

    fn succeed(&mut self, conn: usize, request: Request) -> Result<(), String> {
        self.oracle.borrow_mut().totals.succeeded += 1;
        match request.what {
            RequestEffect::Nothing => Ok(()),
            RequestEffect::Failure => Err(format!("{request:?} succeeded")),
            RequestEffect::TagsBound => {
                self.publish_names(conn);
                Ok(())
            }
            RequestEffect::Words(op, count) => {
                let Some(memory) = &self.memory else { return Ok(()) };
                let seen = memory.read_result(conn, request.wr_id, count)?;
                let atomics_oracle = &mut *self.atomics_oracle.borrow_mut();
                let stream = atomics_oracle.conns[conn].stream;
                let op_record = &atomics_oracle.history.streams[stream][op];
                if op_record.effect_deadline < op_record.invoked_at {
                    return Err(format!("{op_record:?} saw {seen:x?} by a tag that was invalid"));
                }
                let (first, _) = op_record.kind.words();
                atomics_oracle.latest[first..first + count].copy_from_slice(&seen);
                atomics_oracle.history.complete(stream, op, seen);
                self.oracle.borrow_mut().totals.atomics += 1;
                Ok(())
            }
        }
    }

    /// Messages arrive in the order in which they were sent, each once, with its eight octets.
    fn check_receive_completion(&mut self, conn: usize, completion: &Completion) -> Result<(), String> {
        let (Some(conn_qp), Some(memory)) = (self.conn_qps.get_mut(&conn), &self.memory) else {
            return Ok(());
        };
        let receive = conn_qp.receives.pop_front();
        if receive != Some(completion.wr_id) {
            return Err(format!("receive {receive:?} was skipped by {completion:?}"));
        }
        let landed = memory.take_landed(conn, completion.wr_id);
        if completion.status == CompletionStatus::FlushedInError {
            conn_qp.has_failed = true;
            // The first flushed receive may hold the message that was arriving.
            return Ok(());
        }
        if completion.status != CompletionStatus::Success {
            return Err(format!("a receive failed: {completion:?}"));
        }
        let message = self.atomics_oracle.borrow_mut().conns[conn].endpoints[self.role].incoming.pop_front();
        let Some(message) = message else {
            return Err(format!("a completion of a message that was not sent: {completion:?}"));
        };
        self.oracle.borrow_mut().totals.messages += 1;
        compare(completion, landed, &message)?;
        match (message.written, &self.word_memory) {
            (Some((slot, bytes)), Some(word_memory)) if word_memory.written(conn, slot) != bytes => {
                Err(format!(
                    "an immediate came before the Write of {bytes:02x?}: {:02x?}",
                    word_memory.written(conn, slot)
                ))
            }
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
