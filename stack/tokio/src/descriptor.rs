//! An event descriptor that tokio watches: a duplicate of the library's, so that both may be closed
//! in any order.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context as TaskContext, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Lets tokio watch a duplicate of a descriptor.
#[allow(
    deprecated,
    reason = "an OwnedFd stays open for as long as AsyncFd has it, which is what the successor asks for"
)]
pub(crate) fn watch(fd: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd.try_clone_to_owned()?, Interest::READABLE)
}

/// An eventfd.
pub(crate) struct Descriptor(AsyncFd<OwnedFd>);

impl Descriptor {
    pub(crate) fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Descriptor(watch(fd)?))
    }

    /// Waits until the descriptor was written, and resets it.
    pub(crate) fn poll_reset(&self, task: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(task))?;
            let read = ready.try_io(|fd| {
                let mut counter = [0; 8];
                Ok(rustix::io::read(fd, &mut counter).map(drop)?)
            });
            match read {
                Ok(outcome) => return Poll::Ready(outcome),
                // It was reset before; tokio watches it again.
                Err(_would_block) => {}
            }
        }
    }
}
