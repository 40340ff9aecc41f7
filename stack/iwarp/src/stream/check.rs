//! Invariants of a stream between two calls. Always compiled; tests and the simulator call it.

use super::{Io, Stream, StreamState};

impl Stream {
    /// Checks that the parts of the stream agree with each other and with the rings.
    pub fn check<C>(&self, io: &Io<'_, C>) -> Result<(), &'static str> {
        let begun = self.sender.next().wrapping_sub(io.sends.head());
        let posted = io.sends.tail().wrapping_sub(io.sends.head());
        let holds = |what: &'static str, holds: bool| if holds { Ok(()) } else { Err(what) };
        holds("more sends were begun than posted", begun <= posted)?;
        holds("a send is under way that was not posted", !self.sender.is_under_way() || begun < posted)?;
        let limit = self.outstanding.ord().max(usize::from(self.send_progress.awaits_rtr_read()));
        holds("more Reads are outstanding than ORD", self.outstanding.len() <= limit)?;
        let sound = self.out_of_order.as_ref().is_none_or(|out_of_order| out_of_order.is_consistent());
        holds("notes of early placements overlap or are empty", sound)?;
        holds("what was mailed and what was answered are mixed up", self.responses.is_consistent())?;
        match self.state {
            StreamState::Open => {
                holds("more is acknowledged than was sent", self.send_progress.is_consistent())?;
                holds("a Read is neither outstanding nor done", self.reads_accounted_for(io))
            }
            StreamState::Idle => holds("something was sent before the start", begun == 0),
            StreamState::Terminating | StreamState::Ended => {
                holds("an ended stream still waits for something", self.outstanding.is_empty())?;
                holds("an ended stream still owes an answer", self.responses.is_empty())
            }
        }
    }

    /// Returns whether every sent Read is outstanding, or answered and not yet reported.
    fn reads_accounted_for<C>(&self, io: &Io<'_, C>) -> bool {
        let (mut seq, mut reads) = (io.sends.head(), 0);
        while seq != self.sender.next() {
            reads += usize::from(io.sends.at(seq).is_some_and(|wqe| wqe.opcode.expects_response()));
            seq = seq.wrapping_add(1);
        }
        let ours = self.outstanding.len() - usize::from(self.send_progress.awaits_rtr_read());
        reads == ours + self.send_progress.reads_done() as usize
    }
}
