//! A request that has its memory and is not posted yet, and chains of such requests that one call
//! posts.

use ironwarp::{
    Access, AtomicOp, CompletionOpcode, Context, PostError, QueuePair, RemoteMemory, STag, SendWr, Sge,
    VerbsError,
};

use crate::app::memory::{Grant, GrantState, GrantUse, Pattern, Tag};
use crate::app::{Message, Posted, Side};
use crate::atomics::{SessionWords, Words};

/// A request that is not posted yet.
pub struct Draft {
    /// The record for the oracle. The request gets its number when it is posted.
    pub posted: Posted,
    pub list: Vec<Sge>,
    /// Its bytes, where they are inline.
    pub inline: Option<Vec<u8>>,
    pub remote: RemoteMemory,
    pub kind: RequestKind,
    pub solicited: bool,
    /// Whether it waits for earlier Reads.
    pub fenced: bool,
    /// Whether it waits for everything before it.
    pub locally_fenced: bool,
    /// Whether its local buffer uses the tag that the previous request binds.
    pub by_tag: bool,
    /// Whether it counts as one of the session's planned requests.
    pub counts: bool,
}

/// The operation of a request.
pub enum RequestKind {
    Send,
    /// A Send that invalidates a tag of the peer.
    SendInvalidate(STag),
    Write,
    /// A Write that the next request, an immediate, reports.
    WriteBeforeImmediate,
    /// Immediate Data.
    Immediate,
    Atomic(AtomicOp),
    Read,
    /// A Read that invalidates the tag of its local buffer.
    ReadInvalidate,
    /// A bind of a tag to a piece of memory.
    Bind(BindRequest),
    Invalidate(STag),
    /// An invalidation of the tag that was bound last.
    InvalidateLast,
}

/// A tag and the purpose of its bind.
pub struct BindRequest {
    /// The tag, until the request is posted.
    pub tag: Option<Tag>,
    pub access: Access,
    /// Whether only one stream may use it.
    pub for_stream: bool,
    /// Whether the peer has only the right of the grant.
    pub only: bool,
    /// The grant's use; `None` for a tag that only its owner uses.
    pub grants_for: Option<GrantUse>,
}

impl Draft {
    /// A request of `opcode` with `len` bytes of a pattern.
    pub fn new(opcode: CompletionOpcode, kind: RequestKind, len: usize, pattern: Pattern) -> Self {
        Draft {
            posted: Posted::new(0, opcode, len, pattern),
            list: Vec::new(),
            inline: None,
            remote: RemoteMemory { stag: STag(0), tagged_offset: 0 },
            kind,
            solicited: false,
            fenced: false,
            locally_fenced: false,
            by_tag: false,
            counts: false,
        }
    }

    /// A request that sends nothing to the peer.
    pub fn local(opcode: CompletionOpcode, kind: RequestKind) -> Self {
        Self::new(opcode, kind, 0, Pattern::new(0, 0))
    }

    /// The work request. `last` is the tag that was bound last.
    fn request(&mut self, last: &mut STag) -> SendWr<'_> {
        let id = self.posted.wr_id;
        if self.by_tag {
            self.list.iter_mut().for_each(|sge| sge.lkey = *last);
        }
        let one = || self.list.first_chunk().unwrap_or(&NOWHERE);
        if let RequestKind::Bind(binding) = &mut self.kind {
            let tag = binding.tag.as_mut().unwrap_or_else(|| unreachable!("a tag leaves when it is posted"));
            let wr = tag.bind(id, one(), binding.access, binding.for_stream);
            *last = tag.stag();
            return self.flagged(wr);
        }
        let wr = match (&self.kind, &self.inline) {
            (RequestKind::WriteBeforeImmediate, _) => {
                let [write, _] = SendWr::write_with_immediate(id, &self.list, self.remote, &[0; 8]);
                return write;
            }
            (RequestKind::Immediate, Some(octets)) => {
                SendWr::immediate(id, octets.first_chunk().unwrap_or(&[0; 8]))
            }
            (RequestKind::Atomic(operation), _) => SendWr::atomic(id, one(), self.remote, operation),
            (RequestKind::Write, Some(bytes)) => SendWr::write_inline(id, bytes, self.remote),
            (RequestKind::Write, None) => SendWr::write(id, &self.list, self.remote),
            (RequestKind::Read, _) => SendWr::read(id, one(), self.remote),
            (RequestKind::ReadInvalidate, _) => SendWr::read_with_invalidate(id, one(), self.remote),
            (RequestKind::Invalidate(stag), _) => SendWr::invalidate(id, *stag),
            (RequestKind::InvalidateLast, _) => SendWr::invalidate(id, *last),
            (_, Some(bytes)) => SendWr::send_inline(id, bytes),
            (_, None) => SendWr::send(id, &self.list),
        };
        self.flagged(wr)
    }

    fn flagged<'a>(&self, mut wr: SendWr<'a>) -> SendWr<'a> {
        if !self.posted.signaled {
            wr = wr.unsignaled();
        }
        if self.solicited {
            wr = wr.solicited();
        }
        if let RequestKind::SendInvalidate(stag) = self.kind {
            wr = wr.with_invalidate(stag);
        }
        if self.fenced {
            wr = wr.fenced();
        }
        if self.locally_fenced {
            wr = wr.locally_fenced();
        }
        wr
    }

    /// The request was posted. Request `ends_by` invalidates a local tag.
    fn on_posted(mut self, ours: &mut Side, ends_by: u64, words: Option<(&mut Words, &mut SessionWords)>) {
        let wr_id = self.posted.wr_id;
        if let (Some(op), Some((words, session_words))) = (&mut self.posted.word_op, words) {
            words.invoke(session_words, op);
        }
        self.posted.locally_fenced = self.locally_fenced;
        match &mut self.kind {
            RequestKind::Bind(binding) => {
                let Some(tag) = binding.tag.take() else { return };
                match binding.grants_for {
                    Some(usage) => {
                        let tagged_offset = self.list.first().map_or(0, |over| over.addr);
                        let remote = RemoteMemory { stag: tag.stag(), tagged_offset };
                        ours.grants.push(Grant {
                            id: wr_id,
                            tag,
                            remote,
                            piece: self.posted.target,
                            usage,
                            only: binding.only,
                            for_stream: binding.for_stream,
                            state: GrantState::Binding,
                            ended_by: None,
                            uses: 0,
                        });
                    }
                    None => ours.local_tags.push((ends_by, tag)),
                }
            }
            RequestKind::Invalidate(_) => {
                if let Some(grant) = self.posted.grant.and_then(|id| ours.grant_mut(id)) {
                    grant.ended_by = Some(wr_id);
                }
            }
            RequestKind::Send | RequestKind::SendInvalidate(_) | RequestKind::Immediate => {
                let Posted { len, pattern, grant, .. } = self.posted;
                let (solicited, immediate) = (self.solicited, matches!(self.kind, RequestKind::Immediate));
                ours.messages.push_back(Message { wr_id, len, pattern, solicited, grant, immediate });
            }
            _ => {}
        }
        ours.posted = wr_id + 1;
        ours.sends.push_back(self.posted);
    }

    /// Releases what was allocated for a request that was not posted.
    pub fn roll_back(self, ours: &mut Side, theirs: &mut Side) {
        if self.counts {
            ours.left += 1;
            ours.bytes_left += self.posted.len;
        }
        let posted = &self.posted;
        if let Some(memory) = &mut ours.memory {
            posted.sources.iter().for_each(|piece| memory.source.release(*piece));
        }
        match (self.kind, posted.grant) {
            (RequestKind::Send | RequestKind::Immediate, _) => theirs.return_credit(ours),
            (RequestKind::SendInvalidate(_), grant) => {
                theirs.return_credit(ours);
                grant.into_iter().for_each(|id| theirs.reopen_grant(id));
            }
            (RequestKind::Write | RequestKind::WriteBeforeImmediate, grant) => {
                theirs.release_written(posted.target, grant)
            }
            (RequestKind::Read | RequestKind::ReadInvalidate | RequestKind::Atomic(_), grant) => {
                if let Some(memory) = &mut ours.memory {
                    memory.sink.release(posted.target);
                }
                grant.into_iter().for_each(|id| theirs.end_use(id));
            }
            (RequestKind::Bind(binding), _) => {
                if let (Some(_), Some(memory)) = (binding.grants_for, &mut ours.memory) {
                    memory.shared.release(posted.target);
                }
                binding.tag.into_iter().for_each(|tag| ours.keep_spare_tag(tag));
            }
            (RequestKind::Invalidate(_), grant) => grant.into_iter().for_each(|id| ours.reopen_grant(id)),
            (RequestKind::InvalidateLast, _) => {}
        }
    }
}

/// Posts a chain. Returns how many were posted, or the first error other than a full queue.
pub fn post(
    chain: Vec<Draft>,
    qp: QueuePair,
    ctx: &mut Context,
    (ours, theirs): (&mut Side, &mut Side),
    mut words: Option<(&mut Words, &mut SessionWords)>,
) -> Result<usize, VerbsError> {
    let mut chain = chain;
    let first = ours.posted;
    for (index, draft) in chain.iter_mut().enumerate() {
        draft.posted.wr_id = first + index as u64;
    }
    let mut last = STag(0);
    let wrs: Vec<SendWr<'_>> = chain.iter_mut().map(|draft| draft.request(&mut last)).collect();
    let outcome = ctx.post_sends(qp, &wrs);
    drop(wrs);
    let (posted, outcome) = match outcome {
        Ok(()) => (chain.len(), Ok(true)),
        Err((posted, error)) => (posted, ignore_queue_full(error)),
    };
    let rest = chain.split_off(posted);
    let ends: Vec<u64> = (0..chain.len()).map(|index| ends_by(&chain, index)).collect();
    for (draft, ends_by) in chain.into_iter().zip(ends) {
        draft.on_posted(
            ours,
            ends_by,
            words.as_mut().map(|(words, of_session)| (&mut **words, &mut **of_session)),
        );
    }
    rest.into_iter().rev().for_each(|draft| draft.roll_back(ours, theirs));
    outcome.map(|_| posted)
}

/// The number of the request in the chain that invalidates the tag which request `index` binds, or
/// `u64::MAX`.
fn ends_by(chain: &[Draft], index: usize) -> u64 {
    let mut later = chain.iter().skip(index + 1);
    let ends =
        later.find(|draft| matches!(draft.kind, RequestKind::ReadInvalidate | RequestKind::InvalidateLast));
    ends.map_or(u64::MAX, |draft| draft.posted.wr_id)
}

/// A full queue is expected; any other error is not.
pub fn ignore_queue_full(error: PostError) -> Result<bool, VerbsError> {
    match error {
        PostError::QueueFull | PostError::CqFull | PostError::WrongState(_) => Ok(false),
        error => Err(error.into()),
    }
}

const NOWHERE: [Sge; 1] = [Sge { addr: 0, len: 0, lkey: STag(0) }];
