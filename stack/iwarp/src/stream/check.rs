//! Invariants of a stream between two calls. Always compiled; tests and the simulator call it.

use super::{Io, Stream, StreamState};
use crate::framing::Framing;

impl<F: Framing> Stream<F> {
    /// Checks that the parts of the stream agree with each other and with the rings.
    pub fn check<C>(&self, io: &Io<'_, C>) -> Result<(), &'static str> {
        let begun = self.sender.next.wrapping_sub(io.sends.head());
        let posted = io.sends.tail().wrapping_sub(io.sends.head());
        let holds = |what: &'static str, holds: bool| if holds { Ok(()) } else { Err(what) };
        holds("more sends were begun than posted", begun <= posted)?;
        holds("a send in progress was not posted", !self.sender.under_way || begun < posted)?;
        let limit = self.outstanding.ord().max(usize::from(self.send_progress.rtr_read));
        holds("more Reads are outstanding than ORD", self.outstanding.len() <= limit)?;
        let consistent = self.out_of_order.as_ref().is_none_or(|out_of_order| out_of_order.is_consistent());
        holds("runs placed out of order overlap or are empty", consistent)?;
        holds("forwarded and completed responses are out of order", self.responses.is_consistent())?;
        match self.state {
            StreamState::Open => {
                holds("more octets are acknowledged than were sent", self.send_progress.is_consistent())?;
                holds("a sent Read is neither outstanding nor answered", self.reads_accounted_for(io))
            }
            StreamState::Idle => holds("a request was sent before the start", begun == 0),
            StreamState::Terminating | StreamState::Ended => {
                holds("an ended stream has outstanding requests", self.outstanding.is_empty())?;
                holds("an ended stream has pending responses", self.responses.is_empty())
            }
        }
    }

    /// Returns whether every sent Read is outstanding, or answered and not yet reported.
    fn reads_accounted_for<C>(&self, io: &Io<'_, C>) -> bool {
        let (mut seq, mut reads) = (io.sends.head(), 0);
        while seq != self.sender.next {
            reads += usize::from(io.sends.at(seq).is_some_and(|wqe| wqe.opcode.expects_response()));
            seq = seq.wrapping_add(1);
        }
        let posted = self.outstanding.len() - usize::from(self.send_progress.rtr_read);
        reads == posted + self.send_progress.reads_done as usize
    }
}
