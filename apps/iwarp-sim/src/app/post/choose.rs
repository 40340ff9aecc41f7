//! What an application asks for next: which operation, how many bytes, from where, to where, by which tag.

use ironwarp::{Access, CompletionOpcode, Context, ProtectionDomain, RemoteMemory, STag, VerbsError};
use ironwarp_types::{Entropy, SeededEntropy};

use super::draft::{Act, Binding, Draft};
use super::{INLINE_BYTES, cut};
use crate::app::ledger::Side;
use crate::app::memory::{Pattern, Piece, State, Tag, Use};
use crate::plan::SessionPlan;

/// Pieces that a side lends at a time.
const LOANS_MAX: usize = 3;

/// Bytes of the largest.
const LOAN_BYTES_MAX: usize = 8_192;

/// What choosing needs beside the two sides.
pub struct Chooser<'a> {
    /// What the session is to do.
    pub plan: &'a SessionPlan,
    /// Whose turn it is.
    pub side: usize,
    /// The side's own context and domain.
    pub ctx: &'a Context,
    /// Its protection domain.
    pub pd: ProtectionDomain,
    /// Chance.
    pub dice: &'a mut SeededEntropy,
}

impl Chooser<'_> {
    /// The next requests, one or several that belong together; none where nothing can be asked for now.
    pub fn next(&mut self, ours: &mut Side, theirs: &mut Side) -> Result<Vec<Draft>, VerbsError> {
        if self.dice.chance(self.plan.loan_ppm) {
            let loan = self.lend_or_end(ours)?;
            if loan.is_some() {
                return Ok(loan.into_iter().collect());
            }
        }
        let Some(mut main) = self.main(ours, theirs) else { return Ok(Vec::new()) };
        main.posted.signaled = ours.left == 0 || !self.dice.chance(self.plan.unsignaled_ppm);
        main.fenced |= self.dice.chance(self.plan.fence_ppm);
        main.locally_fenced = self.dice.chance(self.plan.fence_ppm / 4);
        if self.dice.chance(self.plan.errand_ppm) {
            return self.with_own_tag(main, ours);
        }
        Ok(vec![main])
    }

    /// The request itself, with the memory that it takes.
    fn main(&mut self, ours: &mut Side, theirs: &mut Side) -> Option<Draft> {
        let len = self.plan.message_bytes(ours.bytes_left, self.dice);
        let opcode = self.opcode(ours, theirs)?;
        let pattern = Pattern::new(self.plan.key ^ self.side as u64, ours.patterns);
        ours.patterns += 1;
        let mut draft = match opcode {
            CompletionOpcode::Read => self.read(len, ours, theirs)?,
            CompletionOpcode::Write => self.write(len, pattern, theirs)?,
            _ => self.send(len, pattern, ours, theirs),
        };
        let charged = draft.posted.len;
        if opcode != CompletionOpcode::Read && !self.load(&mut draft, ours) {
            draft.take_back(ours, theirs);
            return None;
        }
        draft.counts = true;
        ours.left = ours.left.saturating_sub(1);
        ours.bytes_left = ours.bytes_left.saturating_sub(charged);
        Some(draft)
    }

    /// What the next request is, when there is anything that may be asked for: the far end without memory takes Sends
    /// alone, and a Send needs a receive.
    fn opcode(&mut self, ours: &Side, theirs: &Side) -> Option<CompletionOpcode> {
        let may_send = theirs.has_credit(ours);
        match self.plan.opcode(self.dice) {
            _ if theirs.plots.is_none() && !may_send => None,
            _ if theirs.plots.is_none() => Some(CompletionOpcode::Send),
            CompletionOpcode::Send if !may_send => None,
            CompletionOpcode::Read if self.plan.reads == 0 => Some(CompletionOpcode::Write),
            opcode => Some(opcode),
        }
    }

    fn read(&mut self, len: usize, ours: &mut Side, theirs: &mut Side) -> Option<Draft> {
        let by_loan = self.dice.chance(400_000);
        let (remote, pattern, offset, len, loan) = match theirs.readable_loan() {
            Some(loan) if by_loan => {
                let Use::Read(pattern) = loan.usage else { return None };
                let len = len.min(loan.piece.len);
                let offset = self.dice.below((loan.piece.len - len) as u64 + 1) as usize;
                let tagged_offset = loan.remote.tagged_offset + offset as u64;
                loan.uses += 1;
                (RemoteMemory { tagged_offset, ..loan.remote }, pattern, offset, len, Some(loan.id))
            }
            _ => {
                let far = theirs.plots.as_ref()?;
                let offset = self.dice.below((far.library.len - len) as u64 + 1) as usize;
                let remote = far.shared.remote(Piece { at: far.library.at + offset, len });
                (remote, far.library_pattern, offset, len, None)
            }
        };
        let plots = ours.plots.as_mut()?;
        let Some(target) = plots.sink.take(len, self.dice) else {
            loan.into_iter().for_each(|id| theirs.end_use(id));
            return None;
        };
        let mut draft = Draft::new(CompletionOpcode::Read, Act::Read, len, pattern);
        draft.list = vec![plots.sink.sge(target)];
        (draft.posted.target, draft.posted.library_offset, draft.posted.loan) = (target, offset, loan);
        draft.remote = self.aim(remote, len);
        Some(draft)
    }

    fn write(&mut self, len: usize, pattern: Pattern, theirs: &mut Side) -> Option<Draft> {
        let mut draft = Draft::new(CompletionOpcode::Write, Act::Write, len, pattern);
        let by_loan = self.dice.chance(600_000);
        match theirs.writable_loan() {
            Some(loan) if by_loan => {
                let len = len.min(loan.piece.len);
                loan.uses += 1;
                (draft.posted.len, draft.posted.loan) = (len, Some(loan.id));
                (draft.posted.target, draft.remote) = (Piece { len, ..loan.piece }, loan.remote);
            }
            _ => {
                let far = theirs.plots.as_mut()?;
                draft.posted.target = far.shared.take(len, self.dice)?;
                draft.remote = far.shared.remote(draft.posted.target);
            }
        }
        draft.remote = self.aim(draft.remote, draft.posted.len);
        Some(draft)
    }

    /// RFC 5041 s5.2: of what is empty neither tag nor offset is looked at.
    fn aim(&mut self, remote: RemoteMemory, len: usize) -> RemoteMemory {
        if len > 0 || self.dice.chance(500_000) {
            return remote;
        }
        RemoteMemory { stag: STag(self.dice.next_u64() as u32), tagged_offset: self.dice.next_u64() }
    }

    fn send(&mut self, len: usize, pattern: Pattern, ours: &mut Side, theirs: &mut Side) -> Draft {
        let mut draft = Draft::new(CompletionOpcode::Send, Act::Send, len, pattern);
        draft.solicited = self.dice.chance(self.plan.solicited_ppm);
        theirs.take_credit(ours);
        // Now and then the last that is heard of a loan.
        if self.dice.chance(self.plan.loan_ppm)
            && let Some(loan) = theirs.endable_loan()
        {
            loan.state = State::Ending;
            // The owner ends the tag when the Send comes; answers that are under way would end with it.
            draft.fenced = loan.uses > 0 && matches!(loan.usage, Use::Read(_));
            draft.posted.loan = Some(loan.id);
            draft.act = Act::SendEnding(loan.remote.stag);
        }
        draft
    }

    /// Puts the request's bytes where they are to be taken from. Answers whether there was room.
    fn load(&mut self, draft: &mut Draft, ours: &mut Side) -> bool {
        let Some(plots) = &mut ours.plots else { return false };
        let (len, pattern) = (draft.posted.len, draft.posted.pattern);
        if len <= INLINE_BYTES && self.dice.chance(400_000) {
            let mut bytes = vec![0; len];
            pattern.fill(0, &mut bytes);
            draft.inline = Some(bytes);
            return true;
        }
        let Some(piece) = plots.source.take(len, self.dice) else { return false };
        draft.posted.sources = cut(piece, self.plan.sges, self.dice);
        let mut offset = 0;
        for piece in &draft.posted.sources {
            plots.source.write(*piece, pattern, offset);
            offset += piece.len;
            draft.list.push(plots.source.sge(*piece));
        }
        true
    }

    /// Gives the request's own memory a tag for it alone: bound before it, ended by it or behind it.
    fn with_own_tag(&mut self, mut main: Draft, ours: &mut Side) -> Result<Vec<Draft>, VerbsError> {
        let len = main.posted.len;
        let (Some(plots), true) = (&ours.plots, len > 0 && main.inline.is_none()) else {
            return Ok(vec![main]);
        };
        let reads = matches!(main.act, Act::Read);
        let (plot, piece) = if reads {
            (&plots.sink, main.posted.target)
        } else {
            let at = main.posted.sources.iter().map(|piece| piece.at).min().unwrap_or(0);
            (&plots.source, Piece { at, len })
        };
        let over = plot.sge(piece);
        let tag = Tag::find(&mut ours.spare, self.ctx, self.pd, false, self.dice)?;
        let Some(tag) = tag else { return Ok(vec![main]) };
        let access = if reads { Access::LOCAL_WRITE } else { Access::empty() };
        let for_stream = self.dice.chance(500_000);
        let binding = Binding { tag: Some(tag), access, for_stream, only: false, lends: None };
        let mut bind = Draft::local(CompletionOpcode::FastRegister, Act::Bind(binding));
        bind.list = vec![over];
        bind.posted.signaled = !self.dice.chance(self.plan.unsignaled_ppm);
        main.by_tag = true;
        if reads {
            (main.act, main.posted.signaled) = (Act::ReadEnding, true);
            return Ok(vec![bind, main]);
        }
        let mut end = Draft::local(CompletionOpcode::Invalidate, Act::EndLast);
        end.locally_fenced = true;
        Ok(vec![bind, main, end])
    }

    /// Lends a piece or ends a loan, if either can be.
    fn lend_or_end(&mut self, ours: &mut Side) -> Result<Option<Draft>, VerbsError> {
        let idle = ours.loans.iter_mut().find(|loan| loan.state == State::Lent && loan.uses == 0);
        if let Some(loan) = idle.filter(|_| self.dice.chance(400_000)) {
            loan.state = State::Ending;
            let mut draft = Draft::local(CompletionOpcode::Invalidate, Act::End(loan.remote.stag));
            draft.posted.loan = Some(loan.id);
            draft.locally_fenced = self.dice.chance(self.plan.fence_ppm);
            return Ok(Some(draft));
        }
        if ours.loans.len() >= LOANS_MAX { Ok(None) } else { self.lend(ours) }
    }

    fn lend(&mut self, ours: &mut Side) -> Result<Option<Draft>, VerbsError> {
        let window = self.dice.chance(500_000);
        let Some(tag) = Tag::find(&mut ours.spare, self.ctx, self.pd, window, self.dice)? else {
            return Ok(None);
        };
        let Some(plots) = &mut ours.plots else { return Ok(None) };
        let len = 1 + self.dice.below(LOAN_BYTES_MAX.min(plots.library.len) as u64) as usize;
        let Some(piece) = plots.shared.take(len, self.dice) else {
            ours.put_by(tag);
            return Ok(None);
        };
        let (reads, only) = (self.dice.chance(500_000), self.dice.chance(500_000));
        let mut access = if reads { Access::REMOTE_READ } else { Access::REMOTE_WRITE };
        if !only {
            access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        }
        if !window {
            access |= Access::LOCAL_WRITE;
        }
        let usage = if reads {
            let pattern = Pattern::new(self.plan.key ^ LENT ^ self.side as u64, ours.patterns);
            ours.patterns += 1;
            plots.shared.write(piece, pattern, 0);
            Use::Read(pattern)
        } else {
            Use::Write
        };
        let for_stream = window || self.dice.chance(600_000);
        let binding = Binding { tag: Some(tag), access, for_stream, only, lends: Some(usage) };
        let opcode = if window { CompletionOpcode::Bind } else { CompletionOpcode::FastRegister };
        let mut draft = Draft::local(opcode, Act::Bind(binding));
        draft.list = vec![plots.shared.sge(piece)];
        draft.posted.target = piece;
        draft.locally_fenced = self.dice.chance(self.plan.fence_ppm);
        Ok(Some(draft))
    }
}

/// Sets what is lent apart from messages.
const LENT: u64 = 0x1e_0000_0000_0000;
