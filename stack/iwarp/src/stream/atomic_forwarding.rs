//! Atomic operations on words that other cores own. They are forwarded in core messages, so no lock
//! is needed.
//!
//! A request for another core's word goes to [`AtomicForwarder::forward_atomic`] as soon as the
//! order of its stream allows ([`ResponderQueue`](crate::rdmap::ResponderQueue)). Its response is
//! sent after the outcome has arrived, in the order of the requests. The owner core resolves the
//! STag again, so it refuses a tag that was revoked in the meantime. The stream then ends after the
//! responses to all earlier requests. Outcomes for a stream that has ended are dropped, although
//! the operation may have been done (RFC 5040 s6.2.1 leaves that open).
//!
//! A stream without a credit forwards nothing until the core loop calls
//! [`Stream::on_forward_credit`].

use ironwarp_mem::WordError;
use ironwarp_types::CoreId;

use super::{AtomicForwarder, Io, NoCredit, Stream};
use crate::framing::Framing;

impl<F: Framing> Stream<F> {
    /// Forwards every operation that may be forwarded now.
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

    /// Takes the outcome of the operation that was forwarded with `serial`. Returns whether the
    /// stream was waiting for it.
    pub fn on_forwarded_atomic<C: AtomicForwarder>(
        &mut self,
        serial: u32,
        outcome: Result<u64, WordError>,
        io: &mut Io<'_, C>,
    ) -> bool {
        let awaited = self.responses.complete_forwarded(serial, outcome);
        if awaited {
            if let Some(out_of_order) = &mut self.out_of_order {
                // The address of the word is not known here, so every segment placed out of order
                // is copied again in order.
                out_of_order.on_overwrite(&(0..usize::MAX), io.stats);
            }
            self.forward_atomics(io);
        }
        awaited
    }

    /// A credit may be available again.
    pub fn on_forward_credit<C: AtomicForwarder>(&mut self, io: &mut Io<'_, C>) {
        self.awaits_forward_credit = false;
        self.forward_atomics(io);
    }

    /// Returns whether the stream waits for a credit.
    pub fn awaits_forward_credit(&self) -> bool {
        self.awaits_forward_credit
    }

    /// Returns whether `owner` has a forwarded operation without an outcome.
    pub fn has_forwarded_to(&self, owner: CoreId) -> bool {
        self.responses.has_forwarded_to(owner)
    }

    /// Returns the number of forwarded operations without an outcome.
    pub fn forwarded(&self) -> usize {
        self.responses.forwarded()
    }
}
