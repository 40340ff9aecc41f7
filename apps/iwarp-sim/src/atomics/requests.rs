//! The requests of sessions on the words.

use ironwarp::{
    Access, AtomicOp, CompletionOpcode, Context, PostError, ProtectionDomain, RemoteMemory, STag, SendWr,
    VerbsError,
};
use ironwarp_types::{Entropy, SeededEntropy};

use super::history::OpKind;
use super::word_memory::WordMemory;
use super::{SessionWords, WordOp, Words, opcode_of};
use crate::app::{Draft, Pattern, Piece, Posted, RequestGenerator, RequestKind, Session, Side, Tag};
use crate::plan::{BadAtomic, BadRequest};

/// Most requests without a completion after a signaled one: their results keep their memory.
const UNSIGNALED_MAX: usize = 8;

/// Bytes of a Write before an immediate.
const WRITE_BYTES: usize = 16;

impl RequestGenerator<'_> {
    /// Chooses the next request of a session on the words: an atomic operation, a Read of words, or
    /// a message.
    pub fn next_on_words(
        &mut self,
        words: &Words,
        session_words: &SessionWords,
        ours: &mut Side,
        theirs: &mut Side,
    ) -> Option<Vec<Draft>> {
        let mut drafts = match self.plan.words.as_ref().filter(|_| self.side == 0) {
            Some(mix) => {
                let names = session_words.published?.0;
                let pick = self.rng.below(mix.weights.iter().sum());
                if pick < mix.weights[0] + mix.weights[1] {
                    vec![self.word_request(pick < mix.weights[0], words, names, ours)?]
                } else {
                    self.message(ours, theirs)?
                }
            }
            None => self.message(ours, theirs)?,
        };
        if let Some(last) = drafts.last_mut() {
            let unsignaled = ours.sends.iter().rev().take_while(|posted| !posted.signaled).count();
            last.counts = true;
            ours.left = ours.left.saturating_sub(1);
            last.posted.signaled = ours.left == 0
                || unsignaled >= UNSIGNALED_MAX
                || ours.sends.len() + 4 > self.plan.send_depth as usize
                || !self.rng.chance(self.plan.unsignaled_ppm);
            last.fenced = self.rng.chance(self.plan.fence_ppm);
        }
        Some(drafts)
    }

    /// An atomic operation, or a Read of one word or of several adjacent ones.
    fn word_request(
        &mut self,
        modifies: bool,
        words: &Words,
        names: [RemoteMemory; super::NAMES],
        ours: &mut Side,
    ) -> Option<Draft> {
        let plan = &words.plan;
        let first = self.rng.below(plan.words as u64) as usize;
        let (opcode, kind, op) = if modifies {
            let swaps = plan.extensions != ironwarp::Extensions::Rfc7306;
            let operation = words.operation(first, swaps, self.rng);
            (opcode_of(&operation), RequestKind::Atomic(operation), OpKind::Modify(first, operation))
        } else {
            let most = if plan.stride == 8 { plan.words - first } else { 1 };
            let count = 1 + self.rng.below(most as u64) as usize;
            (CompletionOpcode::Read, RequestKind::Read, OpKind::Read(first, count))
        };
        let name = self.rng.below(names.len() as u64) as usize;
        let memory = ours.memory.as_mut()?;
        let target = memory.sink.alloc(8 * op.words().1, self.rng)?;
        let mut draft = Draft::new(opcode, kind, target.len, Pattern::new(0, 0));
        draft.list = vec![memory.sink.sge(target)];
        draft.posted.target = target;
        draft.posted.word_op = Some(WordOp { kind: op, name, index: 0 });
        let tagged_offset = names[name].tagged_offset + (first * plan.stride) as u64;
        draft.remote = RemoteMemory { tagged_offset, ..names[name] };
        Some(draft)
    }

    /// A Send, an immediate, or a Write with an immediate, if the peer has a receive for it.
    fn message(&mut self, ours: &mut Side, theirs: &mut Side) -> Option<Vec<Draft>> {
        if !theirs.has_credit(ours) {
            return None;
        }
        let kind = self.rng.below(if self.side == 0 { 3 } else { 2 });
        let pattern = Pattern::new(self.plan.key ^ self.side as u64, ours.patterns);
        ours.patterns += 1;
        let solicited = self.rng.chance(self.plan.solicited_ppm);
        if kind == 0 {
            let len = self.rng.below(self.plan.bytes_max as u64 + 1) as usize;
            let send = self.send(len, pattern, ours, theirs);
            return Some(vec![self.with_source(send, ours, theirs)?]);
        }
        let mut drafts = Vec::new();
        if kind == 2 {
            let mut write = self.write(WRITE_BYTES, pattern, theirs)?;
            (write.kind, write.posted.signaled) = (RequestKind::WriteBeforeImmediate, false);
            write.posted.is_reported_by_next = true;
            drafts.push(self.with_source(write, ours, theirs)?);
        }
        theirs.take_credit(ours);
        let mut immediate = Draft::new(CompletionOpcode::Immediate, RequestKind::Immediate, 8, pattern);
        let mut octets = vec![0; 8];
        pattern.fill(0, &mut octets);
        (immediate.inline, immediate.solicited) = (Some(octets), solicited);
        drafts.push(immediate);
        Some(drafts)
    }

    /// The request with its bytes in memory.
    fn with_source(&mut self, mut draft: Draft, ours: &mut Side, theirs: &mut Side) -> Option<Draft> {
        if self.fill_source(&mut draft, ours) {
            return Some(draft);
        }
        draft.roll_back(ours, theirs);
        None
    }
}

impl Session {
    /// A bad atomic request of the client: the server ends the connection over it, and no word
    /// changes.
    pub fn bad_atomic(&mut self, bad_atomic: BadAtomic, rng: &mut SeededEntropy) -> Option<Draft> {
        let (names, beyond) = self.words.published?;
        let (ours, theirs) = self.pair(0);
        let (near, far) = (ours.memory.as_mut()?, theirs.memory.as_ref()?);
        let remote = match bad_atomic {
            BadAtomic::Misaligned => RemoteMemory { tagged_offset: names[0].tagged_offset + 4, ..names[0] },
            BadAtomic::Beyond => beyond,
            BadAtomic::NoRight => {
                let any = far.shared.remote(Piece { at: 0, len: 0 });
                RemoteMemory { tagged_offset: any.tagged_offset.next_multiple_of(8), ..any }
            }
            BadAtomic::Unknown => RemoteMemory { stag: STag(rng.next_u64() as u32), ..names[0] },
        };
        let target = near.sink.alloc(8, rng)?;
        let kind = RequestKind::Atomic(AtomicOp::add(1));
        let mut draft = Draft::new(CompletionOpcode::FetchAdd, kind, 8, Pattern::new(0, 0));
        draft.list = vec![near.sink.sge(target)];
        (draft.posted.target, draft.remote) = (target, remote);
        draft.posted.bad_request = Some(BadRequest::Atomic(bad_atomic));
        Some(draft)
    }

    /// The server binds tags of the words for this session alone. They are published when the binds
    /// have completed.
    pub fn bind_words(
        &mut self,
        memory: &WordMemory,
        ctx: &mut Context,
        pd: ProtectionDomain,
        rng: &mut SeededEntropy,
    ) -> Result<(), VerbsError> {
        let ours = &mut self.sides[1];
        let Some(qp) = ours.qp else { return Ok(()) };
        let piece = [memory.piece()];
        let mut tags = [Tag::Window(ctx.create_window(pd)?), Tag::Fast(ctx.create_fast_region(pd)?)];
        let rights = Access::REMOTE_ATOMIC | Access::REMOTE_READ;
        let for_stream = rng.chance(500_000);
        let opcodes = [CompletionOpcode::Bind, CompletionOpcode::FastRegister];
        for ((tag, opcode), is_last) in tags.iter_mut().zip(opcodes).zip([false, true]) {
            let access = if is_last { rights | Access::LOCAL_WRITE } else { rights };
            let wr = tag.bind(ours.posted, &piece, access, for_stream);
            let wr: SendWr<'_> = if is_last { wr } else { wr.unsignaled() };
            ctx.post_send(qp, &wr).map_err(|error: PostError| VerbsError::from(error))?;
            let mut posted = Posted::new(ours.posted, opcode, 0, Pattern::new(0, 0));
            (posted.signaled, posted.publishes_words) = (is_last, is_last);
            ours.sends.push_back(posted);
            ours.posted += 1;
        }
        let base = memory.name();
        let names = [base.stag, tags[0].stag(), tags[1].stag()].map(|stag| RemoteMemory { stag, ..base });
        self.words.bound = Some((names, memory.beyond()));
        self.words.tags = Some(tags);
        Ok(())
    }
}
