//! Atomic operations on words that other cores own: asked for by mail, so that nothing is locked.
//!
//! A request whose word is another core's is handed to [`CompletionSink::forward_atomic`] as soon as the order of its stream allows
//! ([`ResponderQueue`](crate::rdmap::PendingResponses)), and its response leaves when the answer has come and its turn is
//! there. The owner looks the word up again, so a tag that was revoked meanwhile is refused there, and the stream ends when
//! that refusal is the next thing to be told: what was asked before has been answered then. Answers to a stream that has
//! ended find nothing and are dropped; the operation itself may have been done (RFC 5040 s6.2.1 leaves that open).
//!
//! A stream that is refused a credit waits until the core loop says that there is one, and asks for nothing before.

use ironwarp_mem::WordError;
use ironwarp_types::CoreId;

use super::{AtomicForwarder, Io, NoCredit, Stream};

impl Stream {
    /// Asks other cores for everything that may be asked for now.
    #[cold]
    #[inline(never)]
    pub(super) fn forward_atomics<C: AtomicForwarder>(&mut self, io: &mut Io<'_, C>) {
        while !self.awaits_forward_credit
            && let Some((request, msn, owner)) = self.responses.next_to_forward()
        {
            match io.callbacks.forward_atomic(owner, msn, &self.atomic_target(&request), request.operation) {
                Ok(()) => self.responses.mark_forwarded(),
                Err(NoCredit) => self.awaits_forward_credit = true,
            }
        }
    }

    /// An owner's answer to the request that was asked for by number `serial`. Answers whether it was waited for.
    pub fn on_forwarded_atomic<C: AtomicForwarder>(
        &mut self,
        serial: u32,
        outcome: Result<u64, WordError>,
        io: &mut Io<'_, C>,
    ) -> bool {
        let awaited = self.responses.complete_forwarded(serial, outcome);
        if awaited {
            if let Some(out_of_order) = &mut self.out_of_order {
                // Where the word was is not asked again: whatever was placed early is placed once more in its turn.
                out_of_order.on_overwrite(&(0..usize::MAX), io.stats);
            }
            self.forward_atomics(io);
        }
        awaited
    }

    /// There may be a credit again.
    pub fn on_forward_credit<C: AtomicForwarder>(&mut self, io: &mut Io<'_, C>) {
        self.awaits_forward_credit = false;
        self.forward_atomics(io);
    }

    /// Whether it waits for a credit.
    pub fn awaits_forward_credit(&self) -> bool {
        self.awaits_forward_credit
    }

    /// Whether that core has been asked for something that it has not answered.
    pub fn has_forwarded_to(&self, owner: CoreId) -> bool {
        self.responses.has_forwarded_to(owner)
    }

    /// Requests that owners have been asked to carry out and have not answered.
    pub fn forwarded(&self) -> usize {
        self.responses.forwarded()
    }
}
