//! Completions of the send queue, in the order of posting (RFC 5040 s5.5).
//!
//! A Send or Write is done when the peer's TCP has acknowledged its last octet. A Read or atomic
//! operation is done when the last octet of its response was placed. A request that is done waits
//! for all earlier ones. An error completes all requests at once: one may have failed, and the
//! others are flushed.

use ironwarp_mem::{CoreMem, Epoch};
use ironwarp_stats::Counter;
use serde::{Deserialize, Serialize};

use super::{CompletionSink, Io, Stream, StreamState};
use crate::completion::{Completion, CompletionOpcode, CompletionStatus};
use crate::framing::Framing;
use crate::wr::{CompletesWhen, SendFlags, SendOpcode, SendWqe};

/// The condition under which a request of the send queue is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum DoneWhen {
    /// Done when its turn in the queue comes. Also the value before any condition is set.
    #[default]
    Now,
    /// The peer has acknowledged this many payload octets of the stream.
    Acked(u64),
    /// This epoch has passed, so no core uses the invalidated memory.
    Quiescent(Epoch),
}

/// A saved [`SendProgress`].
#[derive(Serialize, Deserialize)]
pub(super) struct SavedProgress {
    /// For each begun request the octet that the peer has to acknowledge, if it waits for one.
    acked_at: Vec<Option<u64>>,
    pulled_bytes: u64,
    acked_bytes: u64,
    pub(super) reads_done: u32,
    pub(super) rtr_read: bool,
}

/// What was acknowledged, and the condition of each request. First what a receiver reads.
#[repr(C)]
pub(super) struct SendProgress {
    /// The oldest request waits only until no core uses its memory.
    pub(super) awaits_quiescence: bool,
    /// The oldest outstanding Read is the ready-to-receive indication, which no application posted.
    pub(super) rtr_read: bool,
    /// Completely answered Reads whose completion was not reported.
    pub(super) reads_done: u32,
    /// Payload octets that TCP has pulled.
    pulled_bytes: u64,
    /// Payload octets that the peer has acknowledged.
    acked_bytes: u64,
    /// One entry for each slot of the send ring, a power of two. The entry of request `seq` is at
    /// `seq` modulo their number.
    done_when: Box<[DoneWhen]>,
}

impl SendProgress {
    pub(super) fn new(send_depth: u32) -> Self {
        let slots = send_depth.max(1).next_power_of_two();
        SendProgress {
            done_when: vec![DoneWhen::Now; slots as usize].into_boxed_slice(),
            pulled_bytes: 0,
            acked_bytes: 0,
            reads_done: 0,
            awaits_quiescence: false,
            rtr_read: false,
        }
    }

    pub(super) fn start(&mut self, startup_bytes_sent: u64) {
        self.pulled_bytes = startup_bytes_sent;
        // An earlier connection, which fell back to revision 1, may have had more octets
        // acknowledged.
        self.acked_bytes = self.acked_bytes.min(startup_bytes_sent);
    }

    /// Returns the progress of the begun requests `begun`; `None` while a core may use memory whose
    /// tag one of them invalidated.
    pub(super) fn save(
        &self,
        mut begun: impl Iterator<Item = u32>,
        memory: &CoreMem,
    ) -> Option<SavedProgress> {
        let mut acked_at = Vec::new();
        begun.try_for_each(|seq| {
            acked_at.push(match self.done_when(seq)? {
                DoneWhen::Acked(end) => Some(*end),
                DoneWhen::Quiescent(epoch) if !memory.is_quiescent(*epoch) => return None,
                DoneWhen::Now | DoneWhen::Quiescent(_) => None,
            });
            Some(())
        })?;
        let SendProgress { pulled_bytes, acked_bytes, reads_done, rtr_read, .. } = *self;
        Some(SavedProgress { acked_at, pulled_bytes, acked_bytes, reads_done, rtr_read })
    }

    /// Continues with the saved progress of `begun` requests from `head` on. Returns whether it is
    /// possible.
    pub(super) fn restore(&mut self, head: u32, begun: u32, saved: &SavedProgress) -> bool {
        for (seq, end) in (0..).map(|at| head.wrapping_add(at)).zip(&saved.acked_at) {
            self.set_done_when(seq, end.map_or(DoneWhen::Now, DoneWhen::Acked));
        }
        let SavedProgress { pulled_bytes, acked_bytes, reads_done, rtr_read, .. } = *saved;
        (self.pulled_bytes, self.acked_bytes) = (pulled_bytes, acked_bytes);
        (self.reads_done, self.rtr_read) = (reads_done, rtr_read);
        saved.acked_at.len() == begun as usize
            && saved.acked_at.len() <= self.done_when.len()
            && saved.acked_at.iter().flatten().all(|end| *end <= pulled_bytes)
            && self.is_consistent()
            // The indication is answered before all requests.
            && !(rtr_read && reads_done > 0)
    }

    /// TCP has pulled `bytes` more.
    #[inline]
    pub(super) fn on_pulled(&mut self, bytes: usize) {
        // 64 bits count the octets of every connection.
        self.pulled_bytes = self.pulled_bytes.wrapping_add(bytes as u64);
    }

    /// Request `seq` is done when everything pulled so far is acknowledged.
    #[inline]
    pub(super) fn set_done_when_acked(&mut self, seq: u32) {
        self.set_done_when(seq, DoneWhen::Acked(self.pulled_bytes));
    }

    #[inline(always)]
    fn index_of(&self, seq: u32) -> usize {
        // The number of slots is a power of two, so not 0.
        seq as usize & self.done_when.len().wrapping_sub(1)
    }

    /// Sets the condition of request `seq`.
    #[inline]
    pub(super) fn set_done_when(&mut self, seq: u32, condition: DoneWhen) {
        if let Some(entry) = self.done_when.get_mut(self.index_of(seq)) {
            *entry = condition;
        }
    }

    #[inline]
    fn done_when(&self, seq: u32) -> Option<&DoneWhen> {
        self.done_when.get(self.index_of(seq))
    }

    /// Returns whether no core uses the memory whose tag request `seq` invalidated.
    #[cold]
    fn is_quiescent(&mut self, seq: u32, memory: &CoreMem) -> bool {
        self.awaits_quiescence = match self.done_when(seq) {
            Some(&DoneWhen::Quiescent(epoch)) => !memory.is_quiescent(epoch),
            _ => false,
        };
        !self.awaits_quiescence
    }

    /// One more Read is completely answered. The indication is the first and completes nothing.
    #[inline]
    pub(super) fn read_done(&mut self) {
        self.reads_done += u32::from(!core::mem::take(&mut self.rtr_read));
    }

    /// Consumes one answered Read for the oldest request. Returns whether there was one.
    fn take_done_read(&mut self) -> bool {
        let Some(left) = self.reads_done.checked_sub(1) else { return false };
        self.reads_done = left;
        true
    }

    pub(super) fn is_consistent(&self) -> bool {
        self.acked_bytes <= self.pulled_bytes
    }

    fn is_acked(&self, seq: u32) -> bool {
        matches!(self.done_when(seq), Some(&DoneWhen::Acked(end)) if end <= self.acked_bytes)
    }
}

impl<F: Framing> Stream<F> {
    /// Prefetches the condition of request `seq`.
    #[inline]
    pub fn prefetch_request(&self, seq: u32) {
        if let Some(condition) = self.send_progress.done_when(seq) {
            ironwarp_arch::prefetch_read(condition);
        }
    }

    /// The peer has acknowledged `total` payload octets since the connection began. Completes the
    /// requests that this covers.
    pub fn on_acked<C: CompletionSink>(&mut self, total: u64, io: &mut Io<'_, C>) {
        self.send_progress.acked_bytes = self.send_progress.acked_bytes.max(total);
        self.framing.on_acked(total);
        if self.state == StreamState::Open {
            self.complete(io);
        }
    }

    /// Reports the requests at the front of the send queue that are done.
    #[inline(never)]
    pub(super) fn complete<C: CompletionSink>(&mut self, io: &mut Io<'_, C>) {
        let head = io.sends.head();
        // Fast: one message. The loop would keep its values in memory.
        if self.sender.next.wrapping_sub(head) == self.fast.completes as u32
            && let Some(wqe) = io.sends.at(head)
            && wqe.opcode.is_send_or_write()
        {
            return self.complete_fast(head, io);
        }
        self.complete_general(head, io);
    }

    /// Reports the only message that was sent, if it is done.
    #[inline(always)]
    fn complete_fast<C: CompletionSink>(&mut self, seq: u32, io: &mut Io<'_, C>) {
        if !self.is_acked(seq) {
            return;
        }
        let Some(wqe) = io.sends.at(seq) else { return };
        let is_signaled = wqe.flags.contains(SendFlags::SIGNALED);
        if is_signaled {
            io.callbacks.on_send_completion(self.send_completion(wqe, CompletionStatus::Success));
        }
        release(io, seq.wrapping_add(1), u32::from(!is_signaled));
    }

    #[inline(never)]
    fn complete_general<C: CompletionSink>(&mut self, head: u32, io: &mut Io<'_, C>) {
        let (mut seq, mut unsignaled) = (head, 0u32);
        while seq != self.sender.next {
            let Some(wqe) = io.sends.at(seq) else { break };
            if !self.is_done(seq, wqe.opcode, io.memory) {
                break;
            }
            if wqe.flags.contains(SendFlags::SIGNALED) {
                io.callbacks.on_send_completion(self.send_completion_general(wqe, CompletionStatus::Success));
            } else {
                // At most the depth of the queue.
                unsignaled = unsignaled.wrapping_add(1);
            }
            seq = seq.wrapping_add(1);
        }
        if seq != head {
            release(io, seq, unsignaled);
        }
    }

    #[inline]
    fn is_done(&mut self, seq: u32, opcode: SendOpcode, memory: &CoreMem) -> bool {
        if opcode.is_send_or_write() {
            self.is_acked(seq)
        } else {
            self.is_non_message_done(seq, opcode, memory)
        }
    }

    #[inline]
    fn is_acked(&self, seq: u32) -> bool {
        self.config.complete_on_copy || self.send_progress.is_acked(seq)
    }

    /// [`Stream::is_done`] for a request that waits for a response, for memory, or for nothing.
    #[inline(never)]
    fn is_non_message_done(&mut self, seq: u32, opcode: SendOpcode, memory: &CoreMem) -> bool {
        match opcode.spec().completes {
            CompletesWhen::Acked => self.is_acked(seq),
            CompletesWhen::Answered => self.send_progress.take_done_read(),
            CompletesWhen::AnsweredAndInvalidated => {
                self.send_progress.reads_done > 0
                    && self.send_progress.is_quiescent(seq, memory)
                    && self.send_progress.take_done_read()
            }
            CompletesWhen::Invalidated => self.send_progress.is_quiescent(seq, memory),
            CompletesWhen::CarriedOut => true,
        }
    }

    /// Completes every posted request as flushed, on a stream that has ended. The application may
    /// post until it learns of the end.
    pub fn flush<C: CompletionSink>(&mut self, io: &mut Io<'_, C>) {
        if self.has_ended() {
            self.flush_sends(None, io);
            self.flush_receives(None, io);
        }
    }

    /// Completes every posted send: the one at `failed` with its own status, the others as flushed.
    /// Unsignalled requests get a completion too, but not those that the next request reports for.
    #[cold]
    pub(super) fn flush_sends<C: CompletionSink>(
        &mut self,
        failed: Option<(u32, CompletionStatus)>,
        io: &mut Io<'_, C>,
    ) {
        let tail = io.sends.refresh();
        let (mut seq, mut silent) = (io.sends.head(), 0);
        // The status of an earlier request that the next one reports.
        let mut reported = None;
        while seq != tail {
            let Some(wqe) = io.sends.at(seq) else { break };
            let status = reported.take().unwrap_or_else(|| status_of(seq, failed));
            io.stats.count(Counter::IwarpWrsFlushed);
            seq = seq.wrapping_add(1);
            if wqe.flags.contains(SendFlags::REPORTED_BY_NEXT) && seq != tail {
                reported = (status != CompletionStatus::FlushedInError).then_some(status);
                silent += 1;
            } else {
                io.callbacks.on_send_completion(self.send_completion_general(wqe, status));
            }
        }
        release(io, seq, silent);
        self.sender.skip_to(seq);
        self.send_progress.awaits_quiescence = false;
    }

    /// Completes every posted receive, like [`Stream::flush_sends`].
    #[cold]
    pub(super) fn flush_receives<C: CompletionSink>(
        &mut self,
        failed: Option<(u32, CompletionStatus)>,
        io: &mut Io<'_, C>,
    ) {
        let tail = io.receives.refresh();
        let mut seq = io.receives.head();
        while seq != tail {
            let Some(wqe) = io.receives.at(seq) else { break };
            let status = status_of(seq, failed);
            io.callbacks.on_receive_completion(self.receive_completion(wqe.wr_id, 0, status));
            io.stats.count(Counter::IwarpWrsFlushed);
            seq = seq.wrapping_add(1);
        }
        io.receives.release_to(seq);
    }

    fn send_completion(&self, wqe: &SendWqe, status: CompletionStatus) -> Completion {
        let moved_data = status == CompletionStatus::Success && !wqe.opcode.is_local();
        Completion {
            wr_id: wqe.wr_id,
            qp: self.config.qp,
            byte_len: if moved_data { wqe.message_bytes() } else { 0 },
            status,
            opcode: wqe.opcode.into(),
            ..Completion::default()
        }
    }

    /// [`Stream::send_completion`] of any request, with the octets of Immediate Data.
    fn send_completion_general(&self, wqe: &SendWqe, status: CompletionStatus) -> Completion {
        let is_immediate = wqe.opcode.spec().completion == CompletionOpcode::Immediate;
        let octets = wqe.inline_bytes().filter(|_| is_immediate);
        let immediate = octets.and_then(|octets| octets.first_chunk().copied()).unwrap_or_default();
        Completion { immediate, ..self.send_completion(wqe, status) }
    }

    pub(super) fn receive_completion(
        &self,
        wr_id: u64,
        byte_len: u32,
        status: CompletionStatus,
    ) -> Completion {
        let (qp, opcode) = (self.config.qp, CompletionOpcode::Receive);
        Completion { wr_id, qp, byte_len, status, opcode, ..Completion::default() }
    }
}

fn status_of(seq: u32, failed: Option<(u32, CompletionStatus)>) -> CompletionStatus {
    match failed {
        Some((at, status)) if at == seq => status,
        _ => CompletionStatus::FlushedInError,
    }
}

/// Returns the slots before `seq` to the application. Completions are reported first, so no slot is
/// free while its completion is pending.
fn release<C>(io: &mut Io<'_, C>, seq: u32, unsignaled: u32) {
    if unsignaled > 0 {
        io.sends.add_unsignaled(unsignaled);
    }
    io.sends.release_to(seq);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6581 s10: a connection may fall back to revision 1. Acknowledgements of its longer
    /// revision 2 request do not count for the second connection.
    #[test]
    fn an_earlier_connection_acknowledges_nothing() {
        let mut send_progress = SendProgress::new(1);
        send_progress.acked_bytes = 32;
        send_progress.start(28);
        assert!(send_progress.is_consistent());
        send_progress.on_pulled(4);
        send_progress.set_done_when_acked(0);
        assert!(!send_progress.is_acked(0), "four octets are not acknowledged");
    }
}
