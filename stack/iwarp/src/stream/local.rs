//! Requests that change local steering tags and send nothing, and requests that wait for
//! quiescence.
//!
//! Invalidations, bindings and fast registrations take effect in the order of the send queue:
//! before any later request begins, and without waiting for earlier ones unless a fence is set.
//!
//! An invalidated tag fails every later resolution at once. Epochs show when no core is still
//! copying. A completion that reports an invalidation waits for that, and all later ones wait for
//! it. The core loop calls [`Stream::retry_after_quiescence`] while [`Stream::awaits_quiescence`]
//! is true.

use ironwarp_mem::{BindError, Epoch, Invalidator};
use ironwarp_stats::Counter;
use ironwarp_types::STag;

use super::complete::DoneWhen;
use super::{CompletionSink, Io, Stream, StreamState};
use crate::completion::{Completion, CompletionStatus};
use crate::framing::Framing;
use crate::rdmap::{OutstandingRequest, RdmapFault};
use crate::wr::{CompletesWhen, SendWqe};

/// Why a request that sends nothing was not carried out.
enum LocalError {
    /// A core may still use the tag; the request is tried again.
    TryLater,
    /// The request fails with this status.
    Failed(CompletionStatus),
}

/// A received Send with Invalidate whose completion waits. No more FPDUs are read meanwhile.
#[derive(Clone, Copy)]
pub(super) struct PendingDelivery {
    completion: Completion,
    epoch: Epoch,
}

impl<F: Framing> Stream<F> {
    /// Returns whether a completion or request waits until no core uses an invalidated steering
    /// tag.
    pub fn awaits_quiescence(&self) -> bool {
        // While segments are accepted or have not begun, none is pending, and its cache line is not
        // read.
        (!self.receiving && self.framing.is_ready() && self.has_pending_delivery())
            || self.sender.awaits_quiescence
            || self.send_progress.awaits_quiescence
    }

    /// Returns whether a delivery waits for that, and so do all bytes after it. Tuning: not
    /// inlined, as the field would be read in all cases.
    #[cold]
    #[inline(never)]
    pub fn has_pending_delivery(&self) -> bool {
        self.pending_delivery.is_some()
    }

    /// Returns a number that changes with every progress of a local Read; `None` while none is
    /// outstanding.
    pub fn read_progress(&self) -> Option<u64> {
        let head = self.outstanding.front()?;
        Some(u64::from(head.seq) << 32 | u64::from(head.placed))
    }

    /// Retries what waits for quiescence. Afterwards more bytes may be readable and more units may
    /// be available.
    pub fn retry_after_quiescence<C: CompletionSink>(&mut self, io: &mut Io<'_, C>) {
        self.sender.awaits_quiescence = false;
        if self.state == StreamState::Open {
            self.resume_delivery(io);
            self.complete(io);
        }
    }

    /// Completes a pending delivery once its epoch has passed. Returns whether reading continues.
    #[cold]
    pub(super) fn resume_delivery<C: CompletionSink>(&mut self, io: &mut Io<'_, C>) -> bool {
        let Some(pending_delivery) = self.pending_delivery else { return self.receiving };
        if !io.memory.is_quiescent(pending_delivery.epoch) {
            return false;
        }
        self.pending_delivery = None;
        self.receiving = self.state == StreamState::Open;
        self.complete_receive(pending_delivery.completion, io);
        self.receiving
    }

    /// Invalidates the tag that the peer's Send names. The receive completes once no core uses the
    /// tag (RFC 5040 s5.3).
    #[cold]
    pub(super) fn deliver_invalidating<C: CompletionSink>(
        &mut self,
        completion: Completion,
        stag: STag,
        io: &mut Io<'_, C>,
    ) -> Result<(), RdmapFault> {
        let epoch = io.memory.invalidate(stag, self.access_scope(), Invalidator::Remote)?;
        io.stats.count(Counter::IwarpRxInvalidates);
        if io.memory.is_quiescent(epoch) {
            self.complete_receive(completion, io);
        } else {
            self.pending_delivery = Some(PendingDelivery { completion, epoch });
            self.receiving = false;
        }
        Ok(())
    }

    /// Invalidates the sink of an answered Read with Invalidate, before the Read completes.
    #[cold]
    pub(super) fn invalidate_sink<C>(
        &mut self,
        read: &OutstandingRequest,
        io: &Io<'_, C>,
    ) -> Result<(), RdmapFault> {
        // The sink of an empty Read is not checked, except for the tag to invalidate.
        let epoch = io.memory.invalidate(read.sink_stag, self.access_scope(), Invalidator::Local);
        let epoch = epoch.map_err(|_| RdmapFault::LocalCatastrophic)?;
        self.send_progress.set_done_when(read.seq, DoneWhen::Quiescent(epoch));
        Ok(())
    }

    /// Carries out the request at the front of the send queue, which sends nothing. Returns whether
    /// the next request may be considered.
    #[cold]
    pub(super) fn run_local_request<C: CompletionSink>(&mut self, io: &mut Io<'_, C>) -> bool {
        let seq = self.sender.next;
        let Some(wqe) = io.sends.at(seq) else { return false };
        match self.execute_local(wqe, io) {
            Ok(condition) => {
                io.stats.count(Counter::IwarpLocalOperations);
                self.send_progress.set_done_when(seq, condition);
                self.sender.skip_to(seq.wrapping_add(1));
                self.complete(io);
                true
            }
            Err(LocalError::TryLater) => {
                self.sender.awaits_quiescence = true;
                true
            }
            Err(LocalError::Failed(status)) => {
                self.fail_send(seq, status, io);
                false
            }
        }
    }

    /// Carries out a request that sends nothing. Returns when it is done.
    fn execute_local<C>(&self, wqe: &SendWqe, io: &Io<'_, C>) -> Result<DoneWhen, LocalError> {
        match wqe.opcode.spec().completes {
            CompletesWhen::Invalidated => {
                let epoch = io.memory.invalidate(wqe.remote_stag, self.access_scope(), Invalidator::Local);
                let epoch = epoch.map_err(|_| LocalError::Failed(CompletionStatus::LocalProtection))?;
                Ok(DoneWhen::Quiescent(epoch))
            }
            CompletesWhen::CarriedOut => {
                let binding = wqe.binding().ok_or(LocalError::Failed(CompletionStatus::LocalOperation))?;
                match io.memory.bind(&binding, self.access_scope()) {
                    Ok(()) => Ok(DoneWhen::Now),
                    Err(BindError::NotQuiescent) => Err(LocalError::TryLater),
                    Err(BindError::NotBindable | BindError::Region(_)) => {
                        Err(LocalError::Failed(CompletionStatus::MemoryBind))
                    }
                }
            }
            CompletesWhen::Acked | CompletesWhen::Answered | CompletesWhen::AnsweredAndInvalidated => {
                Err(LocalError::Failed(CompletionStatus::LocalOperation))
            }
        }
    }
}
