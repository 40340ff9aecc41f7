//! Atomic operations on words that other cores own: asked for by mail, so that nothing is locked.
//!
//! A request whose word is another core's is handed to [`CompletionSink::ask`] as soon as the order of its stream allows
//! ([`PendingResponses`](crate::rdmap::PendingResponses)), and its response leaves when the answer has come and its turn is
//! there. The owner looks the word up again, so a tag that was revoked meanwhile is refused there, and the stream ends when
//! that refusal is the next thing to be told: what was asked before has been answered then. Answers to a stream that has
//! ended find nothing and are dropped; the operation itself may have been done (RFC 5040 s6.2.1 leaves that open).
//!
//! A stream that is refused a credit waits until the core loop says that there is one, and asks for nothing before.

use ironwarp_mem::WordError;
use ironwarp_types::CoreId;

use super::{CompletionSink, Io, NoCredit, Stream};

impl Stream {
    /// Asks other cores for everything that may be asked for now.
    #[cold]
    #[inline(never)]
    pub(super) fn ask_owners<C: CompletionSink>(&mut self, io: &mut Io<'_, C>) {
        while !self.awaits_credit
            && let Some((request, msn, owner)) = self.responses.to_mail()
        {
            match io.completions.ask(owner, msn, &self.target(&request), request.operation) {
                Ok(()) => self.responses.mail(),
                Err(NoCredit) => self.awaits_credit = true,
            }
        }
    }

    /// An owner's answer to the request that was asked for by number `serial`. Answers whether it was waited for.
    pub fn on_answer<C: CompletionSink>(
        &mut self,
        serial: u32,
        outcome: Result<u64, WordError>,
        io: &mut Io<'_, C>,
    ) -> bool {
        let awaited = self.responses.answer(serial, outcome);
        if awaited {
            if let Some(early) = &mut self.early {
                // Where the word was is not asked again: whatever was placed early is placed once more in its turn.
                early.overwrite(&(0..usize::MAX), io.stats);
            }
            self.ask_owners(io);
        }
        awaited
    }

    /// There may be a credit again.
    pub fn on_credit<C: CompletionSink>(&mut self, io: &mut Io<'_, C>) {
        self.awaits_credit = false;
        self.ask_owners(io);
    }

    /// Whether it waits for a credit.
    pub fn awaits_credit(&self) -> bool {
        self.awaits_credit
    }

    /// Whether that core has been asked for something that it has not answered.
    pub fn has_mailed_to(&self, owner: CoreId) -> bool {
        self.responses.has_mailed_to(owner)
    }

    /// Requests that owners have been asked to carry out and have not answered.
    pub fn mailed(&self) -> usize {
        self.responses.mailed()
    }
}
