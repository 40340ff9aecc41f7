//! Pieces of memory that one side lends to the other for a time: windows and fast regions.
//!
//! The owner binds a tag to a piece of `shared`; when that has completed the peer may write to the piece by it, one Write
//! at a time, or read what the owner has written there. Either the owner ends the tag when nobody uses it, or the peer
//! does, where the tag is its stream's alone, by a Send that invalidates it: behind its own Writes, and fenced behind its
//! own Reads. The piece is the owner's again when the tag has ended and every use of it is accounted for.
//!
//! Sources: RFC 5040 s5.2 and s5.3, RFC 5042 s6.

use ironwarp::{RemoteMemory, STag};

use super::{Pattern, Piece, Tag};
use crate::app::ledger::{Posted, Side};

/// A piece that is lent.
pub struct Loan {
    /// The number of the request that binds it names it.
    pub id: u64,
    /// What its tag belongs to.
    pub tag: Tag,
    /// What the peer uses.
    pub remote: RemoteMemory,
    /// Where in the owner's `shared`.
    pub piece: Piece,
    /// What for.
    pub usage: Use,
    /// Whether the peer has that right alone.
    pub only: bool,
    /// Whether the peer may end it.
    pub for_stream: bool,
    /// Where it is in its life.
    pub state: State,
    /// The number of the request that ends it, where the owner does.
    pub ended_by: Option<u64>,
    /// Writes and Reads that are not accounted for.
    pub uses: u32,
}

/// What a loan is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// The peer writes.
    Write,
    /// The peer reads what is there.
    Read(Pattern),
}

/// Where a loan is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Being bound.
    Binding,
    /// The peer may use it.
    Lent,
    /// Being ended.
    Ending,
    /// Nobody may use it.
    Ended,
}

/// Tags that have ended and are remembered, to be tried again.
const ENDED_MAX: usize = 4;

/// Tags that are kept to be bound again.
const SPARE_MAX: usize = 8;

impl Side {
    /// A loan that the peer may write to now.
    pub fn writable_loan(&mut self) -> Option<&mut Loan> {
        let free = |loan: &&mut Loan| loan.state == State::Lent && loan.usage == Use::Write && loan.uses == 0;
        self.loans.iter_mut().find(free)
    }

    /// A loan that the peer may read now.
    pub fn readable_loan(&mut self) -> Option<&mut Loan> {
        let readable = |loan: &&mut Loan| loan.state == State::Lent && matches!(loan.usage, Use::Read(_));
        self.loans.iter_mut().rev().find(readable)
    }

    /// A loan that the peer may end now.
    pub fn endable_loan(&mut self) -> Option<&mut Loan> {
        self.loans.iter_mut().find(|loan| loan.state == State::Lent && loan.for_stream)
    }

    /// A loan by its number.
    pub fn loan_mut(&mut self, id: u64) -> Option<&mut Loan> {
        self.loans.iter_mut().find(|loan| loan.id == id)
    }

    /// The tag of a loan.
    pub fn loan_remote(&self, id: u64) -> Option<RemoteMemory> {
        self.loans.iter().find(|loan| loan.id == id).map(|loan| loan.remote)
    }

    /// The request that was to end a loan was not posted.
    pub fn reopen_loan(&mut self, id: u64) {
        if let Some(loan) = self.loan_mut(id) {
            loan.state = State::Lent;
        }
    }

    /// A binding or an ending has completed, well or not.
    pub fn on_loan_request(&mut self, posted: &Posted, succeeded: bool) {
        for loan in &mut self.loans {
            if loan.id == posted.wr_id && loan.state == State::Binding {
                loan.state = if succeeded { State::Lent } else { State::Ended };
            } else if loan.ended_by == Some(posted.wr_id) {
                loan.state = State::Ended;
                if succeeded {
                    remember(&mut self.ended, loan.remote);
                }
            }
        }
        self.sweep_loans(succeeded);
    }

    /// The peer's Send has ended a loan: its tag, for comparison.
    pub fn on_loan_invalidated(&mut self, id: u64) -> Option<STag> {
        let loan = self.loans.iter_mut().find(|loan| loan.id == id)?;
        loan.state = State::Ended;
        let remote = loan.remote;
        remember(&mut self.ended, remote);
        self.sweep_loans(true);
        Some(remote.stag)
    }

    /// A piece that a Write went to is free again: the peer's own, or a loan's.
    pub fn give_written(&mut self, target: Piece, loan: Option<u64>) {
        match loan {
            Some(id) => self.end_use(id),
            None => {
                if let Some(plots) = &mut self.plots {
                    plots.shared.give(target);
                }
            }
        }
    }

    /// A Write to a loan, or a Read of it, is accounted for.
    pub fn end_use(&mut self, id: u64) {
        if let Some(loan) = self.loan_mut(id) {
            loan.uses = loan.uses.saturating_sub(1);
        }
        self.sweep_loans(false);
    }

    /// The session is over: whatever was lent is not any more.
    pub fn close_loans(&mut self) -> Result<(), String> {
        if let Some(loan) = self.loans.iter().find(|loan| loan.uses > 0) {
            return Err(format!("a use of loan {} is not accounted for", loan.id));
        }
        self.loans.iter_mut().for_each(|loan| loan.state = State::Ended);
        self.sweep_loans(false);
        self.errands.clear();
        self.spare.clear();
        Ok(())
    }

    /// The request that ends a tag of ours alone has succeeded.
    pub fn on_errand_done(&mut self, wr_id: u64) {
        let done = self.errands.iter().position(|(ends_by, _)| *ends_by == wr_id);
        if let Some((_, tag)) = done.map(|index| self.errands.swap_remove(index)) {
            self.stale = Some(tag.stag());
            self.put_by(tag);
        }
    }

    /// Keeps a tag that is not bound, to be bound again.
    pub fn put_by(&mut self, tag: Tag) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(tag);
        }
    }

    /// `quiet` tells whether tags that have ended did so in good order, so that they can be bound again.
    fn sweep_loans(&mut self, quiet: bool) {
        let Some(plots) = &mut self.plots else { return };
        let over = self.loans.extract_if(.., |loan| loan.state == State::Ended && loan.uses == 0);
        let over: Vec<Loan> = over.collect();
        for loan in over {
            plots.shared.give(loan.piece);
            if quiet && self.spare.len() < SPARE_MAX {
                self.spare.push(loan.tag);
            }
        }
    }
}

fn remember(ended: &mut Vec<RemoteMemory>, remote: RemoteMemory) {
    if ended.len() == ENDED_MAX {
        ended.remove(0);
    }
    ended.push(remote);
}
