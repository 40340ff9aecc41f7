//! Chooses the application's next requests: operation, length, source, target and tag.

use ironwarp::{Access, CompletionOpcode, Context, ProtectionDomain, RemoteMemory, STag, VerbsError};
use ironwarp_types::{Entropy, SeededEntropy};

use super::draft::{BindRequest, Draft, RequestKind};
use super::{INLINE_BYTES, split_randomly};
use crate::app::Side;
use crate::app::memory::{GrantState, GrantUse, Pattern, Piece, Tag};
use crate::atomics::{SessionWords, Words};
use crate::plan::SessionPlan;

const GRANTS_MAX: usize = 3;

const GRANT_BYTES_MAX: usize = 8_192;

/// The inputs of the choice, besides the two sides.
pub struct RequestGenerator<'a> {
    pub plan: &'a SessionPlan,
    pub side: usize,
    pub ctx: &'a Context,
    pub pd: ProtectionDomain,
    pub rng: &'a mut SeededEntropy,
    /// The words, and the session's use of them.
    pub words: Option<(&'a Words, &'a SessionWords)>,
}

impl RequestGenerator<'_> {
    /// Returns the next request, or several that belong together. Returns none where nothing can be
    /// posted now.
    pub fn next(&mut self, ours: &mut Side, theirs: &mut Side) -> Result<Vec<Draft>, VerbsError> {
        if let (Some((words, of_session)), Some(_)) = (self.words, &self.plan.words) {
            return Ok(self.next_on_words(words, of_session, ours, theirs).unwrap_or_default());
        }
        if self.rng.chance(self.plan.grant_ppm) {
            let grant = self.grant_or_revoke(ours)?;
            if grant.is_some() {
                return Ok(grant.into_iter().collect());
            }
        }
        let Some(mut main) = self.main(ours, theirs) else { return Ok(Vec::new()) };
        main.posted.signaled = ours.left == 0 || !self.rng.chance(self.plan.unsignaled_ppm);
        main.fenced |= self.rng.chance(self.plan.fence_ppm);
        main.locally_fenced = self.rng.chance(self.plan.fence_ppm / 4);
        if self.rng.chance(self.plan.local_tag_ppm) {
            return self.with_local_tag(main, ours);
        }
        Ok(vec![main])
    }

    /// Returns the request with the memory that it uses.
    fn main(&mut self, ours: &mut Side, theirs: &mut Side) -> Option<Draft> {
        let len = self.plan.message_bytes(ours.bytes_left, self.rng);
        let opcode = self.opcode(ours, theirs)?;
        let pattern = Pattern::new(self.plan.key ^ self.side as u64, ours.patterns);
        ours.patterns += 1;
        let mut draft = match opcode {
            CompletionOpcode::Read => self.read(len, ours, theirs)?,
            CompletionOpcode::Write => self.write(len, pattern, theirs)?,
            _ => self.send(len, pattern, ours, theirs),
        };
        let charged = draft.posted.len;
        if opcode != CompletionOpcode::Read && !self.fill_source(&mut draft, ours) {
            draft.roll_back(ours, theirs);
            return None;
        }
        draft.counts = true;
        ours.left = ours.left.saturating_sub(1);
        ours.bytes_left = ours.bytes_left.saturating_sub(charged);
        Some(draft)
    }

    /// Chooses the next operation, if any is possible. A peer without memory takes only Sends, and
    /// a Send needs a receive.
    fn opcode(&mut self, ours: &Side, theirs: &Side) -> Option<CompletionOpcode> {
        let may_send = theirs.has_credit(ours);
        match self.plan.opcode(self.rng) {
            _ if theirs.memory.is_none() && !may_send => None,
            _ if theirs.memory.is_none() => Some(CompletionOpcode::Send),
            CompletionOpcode::Send if !may_send => None,
            CompletionOpcode::Read if self.plan.reads == 0 => Some(CompletionOpcode::Write),
            opcode => Some(opcode),
        }
    }

    fn read(&mut self, len: usize, ours: &mut Side, theirs: &mut Side) -> Option<Draft> {
        let by_grant = self.rng.chance(400_000);
        let (remote, pattern, offset, len, grant) = match theirs.readable_grant() {
            Some(grant) if by_grant => {
                let GrantUse::Read(pattern) = grant.usage else { return None };
                let len = len.min(grant.piece.len);
                let offset = self.rng.below((grant.piece.len - len) as u64 + 1) as usize;
                let tagged_offset = grant.remote.tagged_offset + offset as u64;
                grant.uses += 1;
                (RemoteMemory { tagged_offset, ..grant.remote }, pattern, offset, len, Some(grant.id))
            }
            _ => {
                let far = theirs.memory.as_ref()?;
                let offset = self.rng.below((far.read_source.len - len) as u64 + 1) as usize;
                let remote = far.shared.remote(Piece { at: far.read_source.at + offset, len });
                (remote, far.read_source_pattern, offset, len, None)
            }
        };
        let memory = ours.memory.as_mut()?;
        let Some(target) = memory.sink.alloc(len, self.rng) else {
            grant.into_iter().for_each(|id| theirs.end_use(id));
            return None;
        };
        let mut draft = Draft::new(CompletionOpcode::Read, RequestKind::Read, len, pattern);
        draft.list = vec![memory.sink.sge(target)];
        (draft.posted.target, draft.posted.read_source_offset, draft.posted.grant) = (target, offset, grant);
        draft.remote = self.remote_or_random(remote, len);
        Some(draft)
    }

    pub(crate) fn write(&mut self, len: usize, pattern: Pattern, theirs: &mut Side) -> Option<Draft> {
        let mut draft = Draft::new(CompletionOpcode::Write, RequestKind::Write, len, pattern);
        let by_grant = self.rng.chance(600_000);
        match theirs.writable_grant() {
            Some(grant) if by_grant => {
                let len = len.min(grant.piece.len);
                grant.uses += 1;
                (draft.posted.len, draft.posted.grant) = (len, Some(grant.id));
                (draft.posted.target, draft.remote) = (Piece { len, ..grant.piece }, grant.remote);
            }
            _ => {
                let far = theirs.memory.as_mut()?;
                draft.posted.target = far.shared.alloc(len, self.rng)?;
                draft.remote = far.shared.remote(draft.posted.target);
            }
        }
        draft.remote = self.remote_or_random(draft.remote, draft.posted.len);
        Some(draft)
    }

    /// Replaces the address of some empty messages: RFC 5041 s5.2 does not check their tag and
    /// offset.
    fn remote_or_random(&mut self, remote: RemoteMemory, len: usize) -> RemoteMemory {
        if len > 0 || self.rng.chance(500_000) {
            return remote;
        }
        RemoteMemory { stag: STag(self.rng.next_u64() as u32), tagged_offset: self.rng.next_u64() }
    }

    pub(crate) fn send(&mut self, len: usize, pattern: Pattern, ours: &mut Side, theirs: &mut Side) -> Draft {
        let mut draft = Draft::new(CompletionOpcode::Send, RequestKind::Send, len, pattern);
        draft.solicited = self.rng.chance(self.plan.solicited_ppm);
        theirs.take_credit(ours);
        // Some Sends invalidate a grant.
        if self.rng.chance(self.plan.grant_ppm)
            && let Some(grant) = theirs.endable_grant()
        {
            grant.state = GrantState::Ending;
            // The owner invalidates the tag when the Send arrives; Reads of it that are in flight
            // would fail.
            draft.fenced = grant.uses > 0 && matches!(grant.usage, GrantUse::Read(_));
            draft.posted.grant = Some(grant.id);
            draft.kind = RequestKind::SendInvalidate(grant.remote.stag);
        }
        draft
    }

    /// Writes the request's bytes to its source buffer. Returns whether there was room.
    pub(crate) fn fill_source(&mut self, draft: &mut Draft, ours: &mut Side) -> bool {
        let Some(memory) = &mut ours.memory else { return false };
        let (len, pattern) = (draft.posted.len, draft.posted.pattern);
        let may_be_inline = len <= INLINE_BYTES && !draft.posted.is_reported_by_next;
        if may_be_inline && self.rng.chance(400_000) {
            let mut bytes = vec![0; len];
            pattern.fill(0, &mut bytes);
            draft.inline = Some(bytes);
            return true;
        }
        let Some(piece) = memory.source.alloc(len, self.rng) else { return false };
        draft.posted.sources = split_randomly(piece, self.plan.sges, self.rng);
        let mut offset = 0;
        for piece in &draft.posted.sources {
            memory.source.write(*piece, pattern, offset);
            offset += piece.len;
            draft.list.push(memory.source.sge(*piece));
        }
        true
    }

    /// Gives the request's local buffer a tag of its own. The tag is bound before the request, and
    /// invalidated by it or after it.
    fn with_local_tag(&mut self, mut main: Draft, ours: &mut Side) -> Result<Vec<Draft>, VerbsError> {
        let len = main.posted.len;
        let (Some(memory), true) = (&ours.memory, len > 0 && main.inline.is_none()) else {
            return Ok(vec![main]);
        };
        let reads = matches!(main.kind, RequestKind::Read);
        let (shadowed_region, piece) = if reads {
            (&memory.sink, main.posted.target)
        } else {
            let at = main.posted.sources.iter().map(|piece| piece.at).min().unwrap_or(0);
            (&memory.source, Piece { at, len })
        };
        let over = shadowed_region.sge(piece);
        let tag = Tag::find(&mut ours.spare, self.ctx, self.pd, false, self.rng)?;
        let Some(tag) = tag else { return Ok(vec![main]) };
        let access = if reads { Access::LOCAL_WRITE } else { Access::empty() };
        let for_stream = self.rng.chance(500_000);
        let binding = BindRequest { tag: Some(tag), access, for_stream, only: false, grants_for: None };
        let mut bind = Draft::local(CompletionOpcode::FastRegister, RequestKind::Bind(binding));
        bind.list = vec![over];
        bind.posted.signaled = !self.rng.chance(self.plan.unsignaled_ppm);
        main.by_tag = true;
        if reads {
            (main.kind, main.posted.signaled) = (RequestKind::ReadInvalidate, true);
            return Ok(vec![bind, main]);
        }
        let mut end = Draft::local(CompletionOpcode::Invalidate, RequestKind::InvalidateLast);
        end.locally_fenced = true;
        Ok(vec![bind, main, end])
    }

    /// Grants a piece or invalidates a grant, if either is possible.
    fn grant_or_revoke(&mut self, ours: &mut Side) -> Result<Option<Draft>, VerbsError> {
        let idle = ours.grants.iter_mut().find(|grant| grant.state == GrantState::Granted && grant.uses == 0);
        if let Some(grant) = idle.filter(|_| self.rng.chance(400_000)) {
            grant.state = GrantState::Ending;
            let mut draft =
                Draft::local(CompletionOpcode::Invalidate, RequestKind::Invalidate(grant.remote.stag));
            draft.posted.grant = Some(grant.id);
            draft.locally_fenced = self.rng.chance(self.plan.fence_ppm);
            return Ok(Some(draft));
        }
        if ours.grants.len() >= GRANTS_MAX { Ok(None) } else { self.make_grant(ours) }
    }

    fn make_grant(&mut self, ours: &mut Side) -> Result<Option<Draft>, VerbsError> {
        let window = self.rng.chance(500_000);
        let Some(tag) = Tag::find(&mut ours.spare, self.ctx, self.pd, window, self.rng)? else {
            return Ok(None);
        };
        let Some(memory) = &mut ours.memory else { return Ok(None) };
        let len = 1 + self.rng.below(GRANT_BYTES_MAX.min(memory.read_source.len) as u64) as usize;
        let Some(piece) = memory.shared.alloc(len, self.rng) else {
            ours.keep_spare_tag(tag);
            return Ok(None);
        };
        let (reads, only) = (self.rng.chance(500_000), self.rng.chance(500_000));
        let mut access = if reads { Access::REMOTE_READ } else { Access::REMOTE_WRITE };
        if !only {
            access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        }
        if !window {
            access |= Access::LOCAL_WRITE;
        }
        let usage = if reads {
            let pattern = Pattern::new(self.plan.key ^ GRANT_KEY ^ self.side as u64, ours.patterns);
            ours.patterns += 1;
            memory.shared.write(piece, pattern, 0);
            GrantUse::Read(pattern)
        } else {
            GrantUse::Write
        };
        let for_stream = window || self.rng.chance(600_000);
        let binding = BindRequest { tag: Some(tag), access, for_stream, only, grants_for: Some(usage) };
        let opcode = if window { CompletionOpcode::Bind } else { CompletionOpcode::FastRegister };
        let mut draft = Draft::local(opcode, RequestKind::Bind(binding));
        draft.list = vec![memory.shared.sge(piece)];
        draft.posted.target = piece;
        draft.locally_fenced = self.rng.chance(self.plan.fence_ppm);
        Ok(Some(draft))
    }
}

/// Makes the pattern keys of grants differ from those of messages.
const GRANT_KEY: u64 = 0x1e_0000_0000_0000;
