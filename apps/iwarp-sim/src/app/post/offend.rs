//! Work requests that must not succeed, each of which ends its own connection and nothing else.
//!
//! Takes an [`Offence`] that the plan drew; posts the request and notes that it was posted. What is allowed to come of it
//! stands in `settle`: no byte changes anywhere, and nobody but the two sides of the session notices.
//!
//! Sources: RFC 5040 s7 and s8.2 (errors found by the remote peer), RFC 5041 s7 (untagged buffers), the verbs of M2.

use ironwarp::{Access, CompletionOpcode, RemoteMemory, STag, SendWr, Sge, VerbsError};
use ironwarp_types::{Entropy, SeededEntropy};

use super::draft::refused;
use crate::app::ledger::{Message, Plots, Posted, Side};
use crate::app::memory::{Loan, Pattern, Piece, State, Tag, Use};
use crate::app::{App, Session};
use crate::plan::{Offence, SessionPlan};

/// Bytes of an offending message that fits one segment.
const FEW: usize = 16;

/// What such a message holds.
const BYTES: [u8; FEW] = [0xee; FEW];

impl App {
    /// Posts the request that ends the connection, if it can be posted now.
    pub(in crate::app) fn offend(
        &mut self,
        session: &mut Session,
        side: usize,
        offence: Offence,
    ) -> Result<(), VerbsError> {
        let (plan, ours, theirs) = session.split(side);
        let offence = ours.possible(theirs, offence, plan.reads);
        let loan = theirs.loan_against(offence);
        let aimed = theirs.aim(offence, loan, &mut self.dice);
        let (Some(qp), Some(remote)) = (ours.qp, aimed) else { return Ok(()) };
        let stale = ours.stale.unwrap_or(STag(0));
        let Some(near) = &mut ours.plots else { return Ok(()) };
        let prepared = prepare(near, ours.posted, offence, plan, &mut self.dice);
        let Some(posted) = prepared else { return Ok(()) };
        let gather = [posted.gather(near, offence, stale)];
        let mut tag = None;
        if offence == Offence::BindNoRight {
            tag = Tag::make(&self.ctx, self.pd, true)?;
            // Places for regions may be few.
            if tag.is_none() {
                return self.offend(session, side, Offence::LocalKey);
            }
        }
        let wr = request(&posted, offence, &gather, remote, &mut tag);
        match self.ctx.post_send(qp, &wr).map_or_else(refused, |()| Ok(true)) {
            Ok(true) => {
                self.work += 1;
                tag.into_iter().for_each(|tag| ours.errands.push((u64::MAX, tag)));
                // Until the end its owner does not know that nobody uses it.
                theirs.hold_loan(loan);
                ours.unanswered.extend(loan);
                ours.on_offence_posted(theirs, posted);
                session.offended = Some((side, offence));
                Ok(())
            }
            other => {
                posted.sources.iter().for_each(|piece| near.source.give(*piece));
                if offence.is_read() {
                    near.sink.give(posted.target);
                }
                other.map(|_| ())
            }
        }
    }
}

/// The work request.
fn request<'a>(
    posted: &Posted,
    offence: Offence,
    gather: &'a [Sge; 1],
    remote: RemoteMemory,
    tag: &mut Option<Tag>,
) -> SendWr<'a> {
    let id = posted.wr_id;
    match (offence, tag) {
        (Offence::BindNoRight, Some(tag)) => tag.bind(id, gather, Access::REMOTE_READ, true),
        (Offence::InvalidateUnknown, _) => SendWr::invalidate(id, remote.stag),
        (Offence::SendTooLong, _) => SendWr::send(id, gather),
        (Offence::SendUnexpected, _) => SendWr::send_inline(id, &BYTES),
        (Offence::InvalidateForeign | Offence::InvalidateStale, _) => {
            SendWr::send_inline(id, &BYTES[..posted.len]).invalidating(remote.stag)
        }
        (Offence::LocalKey | Offence::LocalBeyond | Offence::LocalStale, _) => {
            SendWr::write(id, gather, remote)
        }
        (offence, _) if offence.is_read() => SendWr::read(id, gather, remote),
        _ => SendWr::write_inline(id, &BYTES, remote),
    }
}

impl Side {
    /// The offence itself, or another one where it would be none.
    fn possible(&self, theirs: &Side, offence: Offence, reads: u16) -> Offence {
        let has_receive = theirs.has_receive(self);
        let reads_loan = |loan: &&_| is_lent(loan) && loan.only && matches!(loan.usage, Use::Read(_));
        let writes_loan = |loan: &&_| is_lent(loan) && loan.only && loan.usage == Use::Write;
        let fitting = match offence {
            Offence::SendTooLong if !has_receive || theirs.pool.is_some() => Offence::WriteUnknown,
            Offence::InvalidateForeign | Offence::InvalidateStale if !theirs.has_credit(self) => {
                Offence::WriteUnknown
            }
            Offence::InvalidateStale if theirs.ended.is_empty() => Offence::InvalidateForeign,
            Offence::SendUnexpected if has_receive => Offence::WriteBeyond,
            Offence::WriteStale if theirs.ended.is_empty() => Offence::WriteForeign,
            Offence::ReadStale if theirs.ended.is_empty() => Offence::ReadForeign,
            Offence::LocalStale if self.stale.is_none() => Offence::LocalKey,
            Offence::WriteLoanBeyond if !theirs.loans.iter().any(is_writable) => Offence::WriteWrap,
            Offence::WriteLoanNoRight if theirs.loans.iter().find(reads_loan).is_none() => {
                Offence::WriteNoRight
            }
            Offence::ReadLoanBeyond if !theirs.loans.iter().any(is_readable) => Offence::ReadWrap,
            Offence::ReadLoanNoRight if theirs.loans.iter().find(writes_loan).is_none() => {
                Offence::ReadNoRight
            }
            offence => offence,
        };
        if fitting.is_read() && reads == 0 { Offence::WriteNoRight } else { fitting }
    }

    /// Whether a Send would find a receive.
    fn has_receive(&self, sender: &Side) -> bool {
        match &self.pool {
            Some(pool) => !pool.borrow().is_empty(),
            None => self.receives_posted > sender.sends_posted,
        }
    }

    fn on_offence_posted(&mut self, theirs: &mut Side, posted: Posted) {
        if posted.opcode == CompletionOpcode::Send {
            if posted.offence == Some(Offence::SendUnexpected) {
                self.sends_posted += 1;
            } else {
                theirs.take_credit(self);
            }
            let Posted { wr_id, len, pattern, .. } = posted;
            self.messages.push_back(Message { wr_id, len, pattern, solicited: false, loan: None });
        }
        self.posted += 1;
        self.sends.push_back(posted);
    }

    /// The loan of this side that an offence misuses.
    fn loan_against(&self, offence: Offence) -> Option<u64> {
        let fits = |loan: &&Loan| match offence {
            Offence::WriteLoanBeyond => is_writable(loan),
            Offence::ReadLoanBeyond => is_readable(loan),
            Offence::WriteLoanNoRight => is_readable(loan) && loan.only,
            Offence::ReadLoanNoRight => is_writable(loan) && loan.only,
            _ => false,
        };
        self.loans.iter().find(fits).map(|loan| loan.id)
    }

    fn hold_loan(&mut self, loan: Option<u64>) {
        if let Some(loan) = loan.and_then(|id| self.loan_mut(id)) {
            loan.uses += 1;
        }
    }

    /// Where an offence against this side is aimed at.
    fn aim(&self, offence: Offence, loan: Option<u64>, dice: &mut SeededEntropy) -> Option<RemoteMemory> {
        let far = self.plots.as_ref()?;
        let first = far.shared.remote(Piece { at: 0, len: FEW });
        let ended = || self.ended.last().copied();
        let beyond = |remote: RemoteMemory, len: usize| RemoteMemory {
            tagged_offset: remote.tagged_offset + len as u64 - 1,
            ..remote
        };
        let loan = || loan.and_then(|id| self.loans.iter().find(|loan| loan.id == id));
        Some(match offence {
            Offence::WriteUnknown | Offence::ReadUnknown | Offence::InvalidateUnknown => {
                let wrong = 1 + dice.below(u64::from(u32::MAX)) as u32;
                RemoteMemory { stag: STag(first.stag.0 ^ wrong), ..first }
            }
            Offence::WriteBeyond | Offence::ReadBeyond => outside(far, dice),
            Offence::WriteWrap | Offence::ReadWrap => {
                RemoteMemory { tagged_offset: u64::MAX - dice.below(FEW as u64 - 1), ..first }
            }
            Offence::WriteNoRight => far.sink.remote(Piece { at: 0, len: FEW }),
            Offence::ReadNoRight => far.source.remote(Piece { at: 0, len: FEW }),
            Offence::WriteForeign | Offence::ReadForeign => far.vault.remote(Piece { at: 0, len: FEW }),
            Offence::WriteStale | Offence::ReadStale | Offence::InvalidateStale => ended()?,
            Offence::WriteLoanBeyond | Offence::ReadLoanBeyond => {
                loan().map(|loan| beyond(loan.remote, loan.piece.len))?
            }
            Offence::WriteLoanNoRight | Offence::ReadLoanNoRight => loan()?.remote,
            _ => first,
        })
    }
}

fn is_lent(loan: &Loan) -> bool {
    loan.state == State::Lent
}

fn is_writable(loan: &Loan) -> bool {
    is_lent(loan) && loan.usage == Use::Write
}

fn is_readable(loan: &Loan) -> bool {
    is_lent(loan) && matches!(loan.usage, Use::Read(_))
}

/// Behind the shared region, across its end, or before it.
fn outside(far: &Plots, dice: &mut SeededEntropy) -> RemoteMemory {
    let end = far.shared.len();
    let at = [end, end - 1, end - FEW + 1][dice.below(3) as usize];
    let remote = far.shared.remote(Piece { at, len: FEW });
    let first = far.shared.remote(Piece { at: 0, len: FEW }).tagged_offset;
    let before = first.wrapping_sub(1 + dice.below(FEW as u64));
    if dice.next_u64() & 3 == 0 { RemoteMemory { tagged_offset: before, ..remote } } else { remote }
}

/// The request as it is remembered, with the memory that it takes.
fn prepare(
    near: &mut Plots,
    wr_id: u64,
    offence: Offence,
    plan: &SessionPlan,
    dice: &mut SeededEntropy,
) -> Option<Posted> {
    let mut posted = Posted {
        wr_id,
        opcode: offence.opcode(),
        signaled: true,
        locally_fenced: false,
        len: FEW,
        pattern: Pattern::new(plan.key ^ OFFENCE, wr_id),
        sources: Vec::new(),
        target: Piece { at: 0, len: 0 },
        library_offset: 0,
        placed: false,
        offence: Some(offence),
        loan: None,
    };
    if offence == Offence::SendTooLong {
        let piece = near.source.take(plan.bytes_max + 1, dice)?;
        near.source.write(piece, posted.pattern, 0);
        (posted.len, posted.sources) = (piece.len, vec![piece]);
    } else if posted.opcode == CompletionOpcode::Send {
        // It must fit the receive that it finds.
        posted.len = FEW.min(plan.bytes_max);
    } else if offence.is_read() && offence != Offence::LocalNoRight {
        posted.target = near.sink.take(FEW, dice)?;
    }
    Some(posted)
}

impl Posted {
    /// The one element of the request, wrong where that is the offence.
    fn gather(&self, near: &Plots, offence: Offence, stale: STag) -> Sge {
        let first = Piece { at: 0, len: FEW };
        match offence {
            Offence::SendTooLong => near.source.sge(self.sources[0]),
            Offence::LocalKey => {
                let sge = near.source.sge(first);
                Sge { lkey: STag(sge.lkey.0 ^ 0x0100_0100), ..sge }
            }
            Offence::LocalStale => Sge { lkey: stale, ..near.source.sge(first) },
            Offence::LocalBeyond => {
                let last = near.source.sge(Piece { at: near.source.len() - 1, len: 1 });
                Sge { len: FEW as u32, ..last }
            }
            // A region without a right to be written, or to be lent.
            Offence::LocalNoRight => near.source.sge(first),
            Offence::BindNoRight => near.landing.sge(first),
            offence if offence.is_read() => near.sink.sge(self.target),
            _ => near.source.sge(first),
        }
    }
}

/// Sets an offence's bytes apart from those of messages.
const OFFENCE: u64 = 0x0ff3_0000_0000_0000;
