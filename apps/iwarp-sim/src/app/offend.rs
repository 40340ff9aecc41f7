//! Work requests that must not succeed, each of which ends its own connection and nothing else.
//!
//! Takes an [`Offence`] that the plan drew; posts the request and notes that it was posted. What is allowed to come of it
//! stands in `settle`: no byte changes anywhere, and nobody but the two sides of the session notices.
//!
//! Sources: RFC 5040 s7 and s8.2 (errors found by the remote peer), RFC 5041 s7 (untagged buffers), the verbs of M2.

use ironwarp::{Access, CompletionOpcode, RemoteMemory, STag, SendWr, Sge, VerbsError};
use ironwarp_types::{Entropy, SeededEntropy};

use super::ledger::{Message, Plots, Posted, Side};
use super::pattern::Pattern;
use super::plot::Piece;
use super::{App, Session};
use crate::plan::Offence;

/// Bytes of an offending message that fits one segment.
const FEW: usize = 16;

impl App {
    /// Posts the request that ends the connection, if it can be posted now.
    pub(super) fn offend(
        &mut self,
        session: &mut Session,
        side: usize,
        offence: Offence,
    ) -> Result<(), VerbsError> {
        let (long, reads) = (session.plan.bytes_max + 1, session.plan.reads);
        let key = session.plan.key;
        let (ours, theirs) = session.pair(side);
        let offence = ours.possible(theirs, offence, reads);
        let (Some(qp), Some(near), Some(far)) = (ours.qp, &mut ours.plots, &theirs.plots) else {
            return Ok(());
        };
        let Some(mut posted) = prepare(near, ours.posted, offence, long, key, &mut self.dice) else {
            return Ok(());
        };
        let gather = [posted.gather(near, offence)];
        let remote = aim(far, offence, &mut self.dice);
        let few = [0xee; FEW];
        let id = posted.wr_id;
        let mut window = match offence {
            Offence::BindNoRight => match self.ctx.create_window(self.pd) {
                Ok(window) => Some(window),
                // Places for regions may be few.
                Err(VerbsError::Register(_)) => return Ok(()),
                Err(error) => return Err(error),
            },
            _ => None,
        };
        let wr = match (offence, &mut window) {
            (Offence::BindNoRight, Some(window)) => SendWr::bind(id, window, &gather, Access::REMOTE_READ),
            (Offence::InvalidateUnknown, _) => SendWr::invalidate(id, remote.stag),
            (Offence::SendTooLong, _) => SendWr::send(id, &gather),
            (Offence::SendUnexpected, _) => SendWr::send_inline(id, &few),
            (Offence::InvalidateForeign, _) => SendWr::send_inline(id, &few).invalidating(remote.stag),
            (Offence::LocalKey | Offence::LocalBeyond, _) => SendWr::write(id, &gather, remote),
            _ if posted.opcode == CompletionOpcode::Read => SendWr::read(id, &gather, remote),
            _ => SendWr::write_inline(id, &few, remote),
        };
        let outcome = self.ctx.post_send(qp, &wr);
        match outcome {
            Ok(()) => {
                near.windows.extend(window);
                self.work += 1;
                if posted.opcode == CompletionOpcode::Send {
                    ours.sends_posted += 1;
                    let (wr_id, len, pattern) = (id, posted.len, posted.pattern);
                    ours.messages.push_back(Message { wr_id, len, pattern, solicited: false, loan: None });
                }
                ours.posted += 1;
                posted.offence = Some(offence);
                ours.sends.push_back(posted);
                session.offended = Some((side, offence));
                Ok(())
            }
            Err(VerbsError::QueueFull | VerbsError::CqFull | VerbsError::WrongState(_)) => {
                posted.sources.iter().for_each(|piece| near.source.give(*piece));
                if posted.opcode == CompletionOpcode::Read {
                    near.sink.give(posted.target);
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Side {
    /// The offence itself, or another one where it would be none.
    fn possible(&self, theirs: &Side, offence: Offence, reads: u16) -> Offence {
        let has_receive = theirs.receives_posted > self.sends_posted;
        match offence {
            Offence::SendTooLong | Offence::InvalidateForeign if !has_receive => Offence::WriteUnknown,
            Offence::SendUnexpected if has_receive => Offence::WriteBeyond,
            Offence::ReadUnknown | Offence::ReadNoRight | Offence::ReadBeyond | Offence::LocalNoRight
                if reads == 0 =>
            {
                Offence::WriteNoRight
            }
            offence => offence,
        }
    }
}

/// The request as it is remembered, with the memory that it takes.
fn prepare(
    near: &mut Plots,
    wr_id: u64,
    offence: Offence,
    long: usize,
    key: u64,
    dice: &mut SeededEntropy,
) -> Option<Posted> {
    let mut posted = Posted {
        wr_id,
        opcode: offence.opcode(),
        signaled: true,
        len: FEW,
        pattern: Pattern::new(key ^ OFFENCE, wr_id),
        sources: Vec::new(),
        target: Piece { at: 0, len: 0 },
        library_offset: 0,
        placed: false,
        offence: Some(offence),
        loan: None,
    };
    match offence {
        Offence::SendTooLong => {
            let piece = near.source.take(long, dice)?;
            near.source.write(piece, posted.pattern, 0);
            (posted.len, posted.sources) = (long, vec![piece]);
        }
        Offence::ReadUnknown | Offence::ReadNoRight | Offence::ReadBeyond => {
            posted.target = near.sink.take(FEW, dice)?;
        }
        _ => {}
    }
    Some(posted)
}

impl Posted {
    /// The one element of the request, wrong where that is the offence.
    fn gather(&self, near: &Plots, offence: Offence) -> Sge {
        let first = Piece { at: 0, len: FEW };
        match offence {
            Offence::SendTooLong => near.source.sge(self.sources[0]),
            Offence::LocalKey => {
                let sge = near.source.sge(first);
                Sge { lkey: STag(sge.lkey.0 ^ 0x0100_0100), ..sge }
            }
            Offence::LocalBeyond => {
                let last = near.source.sge(Piece { at: near.source.len() - 1, len: 1 });
                Sge { len: FEW as u32, ..last }
            }
            // A region without a right to be written, or to be lent.
            Offence::LocalNoRight | Offence::BindNoRight => near.source.sge(first),
            _ if self.opcode == CompletionOpcode::Read => near.sink.sge(self.target),
            _ => near.source.sge(first),
        }
    }
}

/// Where the request is aimed at.
fn aim(far: &Plots, offence: Offence, dice: &mut SeededEntropy) -> RemoteMemory {
    let first = far.shared.remote(Piece { at: 0, len: FEW });
    let wrong = STag(first.stag.0 ^ (1 + dice.below(u64::from(u32::MAX)) as u32));
    let end = far.shared.len();
    match offence {
        Offence::WriteUnknown | Offence::ReadUnknown | Offence::InvalidateUnknown => {
            RemoteMemory { stag: wrong, ..first }
        }
        Offence::WriteBeyond | Offence::ReadBeyond => {
            // Behind the region, across its end, and before it.
            let at = [end, end - 1, end - FEW + 1][dice.below(3) as usize];
            let remote = far.shared.remote(Piece { at, len: FEW });
            let before = first.tagged_offset.wrapping_sub(1 + dice.below(FEW as u64));
            if dice.next_u64() & 3 == 0 { RemoteMemory { tagged_offset: before, ..remote } } else { remote }
        }
        Offence::WriteNoRight => far.sink.remote(Piece { at: 0, len: FEW }),
        Offence::ReadNoRight => far.source.remote(Piece { at: 0, len: FEW }),
        _ => first,
    }
}

/// Sets an offence's bytes apart from those of messages.
const OFFENCE: u64 = 0x0ff3_0000_0000_0000;
