//! Pieces of memory that one side lends to the other for a time: windows and fast regions of one stream.
//!
//! The owner binds a tag of its own to a piece of `shared`; when that has completed the peer may write to the piece by it,
//! one Write at a time. Either the owner ends the tag when nobody uses it, or the peer does, by a Send that invalidates
//! it. The piece is the owner's again when the tag has ended and every Write to it is accounted for.
//!
//! Sources: RFC 5040 s5.2 and s5.3, RFC 5042 s6.

use ironwarp::{
    Access, CompletionOpcode, Context, FastRegion, ProtectionDomain, QueuePair, RemoteMemory, STag, SendWr,
    VerbsError, Window,
};
use ironwarp_types::SeededEntropy;

use super::ledger::{Posted, Session, Side};
use super::pattern::Pattern;
use super::plot::Piece;
use super::post::refused;

/// A piece that is lent.
pub struct Loan {
    /// The number of the request that binds it names it.
    pub id: u64,
    /// Kept for its tag.
    _tag: Tag,
    /// What the peer uses.
    pub remote: RemoteMemory,
    /// Where in the owner's `shared`.
    pub piece: Piece,
    /// Where it is in its life.
    pub state: State,
    /// The number of the request that ends it, where the owner does.
    ended_by: Option<u64>,
    /// Writes that are not accounted for.
    pub uses: u32,
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

/// What has a tag of its own.
enum Tag {
    Window(Window),
    Fast(FastRegion),
}

/// Pieces that a side lends at a time.
const LOANS_MAX: usize = 3;

/// Bytes of the largest.
const LOAN_BYTES_MAX: usize = 8_192;

impl Session {
    /// Lends a piece or ends a loan, if either can be. Answers whether it did.
    pub fn post_loan(
        &mut self,
        side: usize,
        ctx: &mut Context,
        pd: ProtectionDomain,
        dice: &mut SeededEntropy,
    ) -> Result<bool, VerbsError> {
        let ours = &mut self.sides[side];
        let Some(qp) = ours.qp else { return Ok(false) };
        let idle = |loan: &Loan| loan.state == State::Lent && loan.uses == 0;
        match ours.loans.iter().position(idle) {
            Some(index) if dice.chance(400_000) => ours.end_loan(qp, index, ctx),
            _ if ours.loans.len() < LOANS_MAX => ours.lend(qp, ctx, pd, dice),
            _ => Ok(false),
        }
    }
}

impl Side {
    fn lend(
        &mut self,
        qp: QueuePair,
        ctx: &mut Context,
        pd: ProtectionDomain,
        dice: &mut SeededEntropy,
    ) -> Result<bool, VerbsError> {
        let Some(plots) = &mut self.plots else { return Ok(false) };
        let len = 1 + dice.below(LOAN_BYTES_MAX.min(plots.library.len) as u64) as usize;
        let made = if dice.chance(500_000) {
            ctx.create_window(pd).map(Tag::Window)
        } else {
            ctx.create_fast_region(pd).map(Tag::Fast)
        };
        let mut tag = match made {
            Err(VerbsError::Register(_)) => return Ok(false),
            made => made?,
        };
        let Some(piece) = plots.shared.take(len, dice) else { return Ok(false) };
        let over = [plots.shared.sge(piece)];
        let id = self.posted;
        let (wr, opcode) = match &mut tag {
            Tag::Window(window) => {
                (SendWr::bind(id, window, &over, Access::REMOTE_WRITE), CompletionOpcode::Bind)
            }
            Tag::Fast(region) => {
                let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
                let wr = SendWr::fast_register(id, region, &over, access).for_this_stream();
                (wr, CompletionOpcode::FastRegister)
            }
        };
        if let Err(error) = ctx.post_send(qp, &wr) {
            plots.shared.give(piece);
            return refused(error);
        }
        let remote = RemoteMemory { stag: tag.stag(), tagged_offset: over[0].addr };
        let state = State::Binding;
        self.loans.push(Loan { id, _tag: tag, remote, piece, state, ended_by: None, uses: 0 });
        self.on_silent_post(opcode);
        Ok(true)
    }

    fn end_loan(&mut self, qp: QueuePair, index: usize, ctx: &mut Context) -> Result<bool, VerbsError> {
        let id = self.posted;
        let loan = &mut self.loans[index];
        if let Err(error) = ctx.post_send(qp, &SendWr::invalidate(id, loan.remote.stag)) {
            return refused(error);
        }
        (loan.state, loan.ended_by) = (State::Ending, Some(id));
        self.on_silent_post(CompletionOpcode::Invalidate);
        Ok(true)
    }

    /// A request that puts nothing on the wire was posted.
    fn on_silent_post(&mut self, opcode: CompletionOpcode) {
        let posted = Posted {
            wr_id: self.posted,
            opcode,
            signaled: true,
            len: 0,
            pattern: Pattern::new(0, 0),
            sources: Vec::new(),
            target: Piece { at: 0, len: 0 },
            library_offset: 0,
            placed: false,
            offence: None,
            loan: None,
        };
        self.posted += 1;
        self.sends.push_back(posted);
    }

    /// A loan that the peer may use now.
    pub fn open_loan(&mut self) -> Option<&mut Loan> {
        self.loans.iter_mut().find(|loan| loan.state == State::Lent && loan.uses == 0)
    }

    /// The tag of a loan.
    pub fn loan_remote(&self, id: u64) -> Option<RemoteMemory> {
        self.loans.iter().find(|loan| loan.id == id).map(|loan| loan.remote)
    }

    /// The Send that was to end a loan was not posted.
    pub fn reopen_loan(&mut self, id: u64) {
        if let Some(loan) = self.loans.iter_mut().find(|loan| loan.id == id) {
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
            }
        }
        self.sweep_loans();
    }

    /// The peer's Send has ended a loan: its tag, for comparison.
    pub fn on_loan_invalidated(&mut self, id: u64) -> Option<STag> {
        let loan = self.loans.iter_mut().find(|loan| loan.id == id)?;
        loan.state = State::Ended;
        let stag = loan.remote.stag;
        self.sweep_loans();
        Some(stag)
    }

    /// A piece that a Write went to is free again: the peer's own, or a loan's.
    pub fn give_written(&mut self, target: Piece, loan: Option<u64>) {
        match loan {
            Some(id) => {
                let used = self.loans.iter_mut().find(|loan| loan.id == id);
                if let Some(loan) = used {
                    loan.uses = loan.uses.saturating_sub(1);
                }
                self.sweep_loans();
            }
            None => {
                if let Some(plots) = &mut self.plots {
                    plots.shared.give(target);
                }
            }
        }
    }

    /// The session is over: whatever was lent is not any more.
    pub fn close_loans(&mut self) -> Result<(), String> {
        if let Some(loan) = self.loans.iter().find(|loan| loan.uses > 0) {
            return Err(format!("a Write to loan {} is not accounted for", loan.id));
        }
        self.loans.iter_mut().for_each(|loan| loan.state = State::Ended);
        self.sweep_loans();
        Ok(())
    }

    fn sweep_loans(&mut self) {
        let Some(plots) = &mut self.plots else { return };
        for loan in self.loans.extract_if(.., |loan| loan.state == State::Ended && loan.uses == 0) {
            plots.shared.give(loan.piece);
        }
    }
}

impl Tag {
    fn stag(&self) -> STag {
        match self {
            Tag::Window(window) => window.stag(),
            Tag::Fast(region) => region.stag(),
        }
    }
}
