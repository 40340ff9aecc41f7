//! Calls from a stream to the core loop: completions, shared receives and remote atomic operations.
//!
//! One trait for each. [`StreamCallbacks`] is all three, for the calls that may need any of them.

use ironwarp_mem::{AtomicOp, AtomicTarget};
use ironwarp_rings::slots::SlotProducer;
use ironwarp_types::CoreId;

use crate::completion::Completion;
use crate::wr::RecvWqe;

/// Takes completions. An entry is reserved when a request is posted, so no completion is ever
/// refused.
pub trait CompletionSink {
    /// Takes the completion of a send-queue request.
    fn on_send_completion(&mut self, completion: Completion);

    /// Takes the completion of a receive.
    fn on_receive_completion(&mut self, completion: Completion);
}

/// Supplies receives from a shared receive queue.
pub trait SharedReceives {
    /// Moves the next request of the shared receive queue into `rq_producer`, the producer of the
    /// queue pair's receive ring, and reserves an entry for its completion.
    ///
    /// Called once for each message, and only for queue pairs whose [`Io`](super::Io) has an
    /// `rq_producer`. The default has no shared receive queue.
    fn take_from_srq(&mut self, rq_producer: &mut SlotProducer<RecvWqe>) -> Result<(), SrqError> {
        let _ = rq_producer;
        Err(SrqError::Empty)
    }
}

/// Forwards the peer's atomic operations to the cores that own the words. Used only where a stack
/// has several cores.
pub trait AtomicForwarder {
    /// The peer has sent its first Atomic Response, so it supports atomic operations. Called once
    /// for each connection.
    fn on_peer_atomics(&mut self) {}

    /// A request to `owner` follows. An implementation may prefetch what it needs for that.
    fn prepare_forward(&mut self, owner: CoreId) {
        let _ = owner;
    }

    /// Asks the core that owns a word for an operation on it.
    ///
    /// The outcome goes to [`Stream::on_forwarded_atomic`](super::Stream::on_forwarded_atomic) with
    /// the same `serial`. One core returns its outcomes in the order of the calls. [`NoCredit`]
    /// means that nothing was sent; call
    /// [`Stream::on_forward_credit`](super::Stream::on_forward_credit) once there is a credit. The
    /// default never has one.
    fn forward_atomic(
        &mut self,
        owner: CoreId,
        serial: u32,
        target: &AtomicTarget,
        operation: AtomicOp,
    ) -> Result<(), NoCredit> {
        let _ = (owner, serial, target, operation);
        Err(NoCredit)
    }
}

/// All calls from a stream to the core loop.
pub trait StreamCallbacks: CompletionSink + SharedReceives + AtomicForwarder {}

impl<C: CompletionSink + SharedReceives + AtomicForwarder> StreamCallbacks for C {}

/// The owner core already has as many outstanding requests as it allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoCredit;

/// Why a shared receive queue supplies no receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SrqError {
    /// No receive is posted.
    Empty,
    /// The completion queue has no entry left to reserve.
    CqFull,
}
