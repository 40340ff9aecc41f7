//! Completion queues.

use std::io;
use std::task::{Context as TaskContext, Poll};

use ironwarp::{Completion, CompletionQueue, Context, VerbsError};

use crate::AsyncContext;
use crate::descriptor::Descriptor;

/// A completion queue whose descriptor tokio watches. The queue belongs to its context; this only
/// waits for it.
pub struct AsyncCq {
    cq: CompletionQueue,
    descriptor: Descriptor,
}

impl AsyncCq {
    /// Registers the descriptor of a queue of `context` with tokio.
    ///
    /// # Errors
    ///
    /// - An error of kind [`io::ErrorKind::InvalidInput`] if `cq` is not a queue of this context.
    /// - The system's error if it refuses the descriptor.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with its I/O driver enabled.
    pub fn new(context: &AsyncContext, cq: CompletionQueue) -> io::Result<Self> {
        let descriptor = Descriptor::of(context.cq_fd(cq).map_err(unknown)?)?;
        Ok(AsyncCq { cq, descriptor })
    }

    /// Returns the queue.
    pub fn queue(&self) -> CompletionQueue {
        self.cq
    }

    pub(crate) fn reap(&self, context: &mut Context, into: &mut [Completion]) -> io::Result<usize> {
        context.poll_cq(self.cq, into).map_err(unknown)
    }

    pub(crate) fn arm(&self, context: &mut Context) -> io::Result<()> {
        context.arm_cq(self.cq, false).map_err(unknown)
    }

    pub(crate) fn poll_reset(&self, task: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        self.descriptor.poll_reset(task)
    }
}

/// The queue was destroyed, or belongs to another context.
fn unknown(error: VerbsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
