//! Work requests that must fail. Each ends its own connection and affects no other.
//!
//! Takes a [`BadRequest`] from the plan, posts the request and records it. `check_completion` holds
//! the allowed results: no byte of memory changes, and only the two sides of the session are
//! affected.
//!
//! Sources: RFC 5040 s7 and s8.2 (errors found by the remote peer), RFC 5041 s7 (untagged buffers),
//! the verbs of M2.

use ironwarp::{Access, CompletionOpcode, RemoteMemory, STag, SendWr, Sge, VerbsError};
use ironwarp_types::{Entropy, SeededEntropy};

use super::draft::{ignore_queue_full, post};
use crate::app::memory::{Grant, Pattern, Piece, Tag};
use crate::app::side::SideMemory;
use crate::app::{App, Message, Posted, Session, Side};
use crate::plan::{BadAtomic, BadRequest, SessionPlan};

/// Bytes of a bad message that fits one segment.
const SHORT_LEN: usize = 16;

/// The payload of such a message.
const BYTES: [u8; SHORT_LEN] = [0xee; SHORT_LEN];

impl App {
    /// Posts the bad request, if it can be posted now.
    pub(in crate::app) fn post_bad_request(
        &mut self,
        session: &mut Session,
        side: usize,
        bad_request: BadRequest,
    ) -> Result<(), VerbsError> {
        if let BadRequest::Atomic(bad_atomic) = bad_request {
            return self.post_bad_atomic(session, bad_atomic);
        }
        let (plan, _, [ours, theirs]) = session.split(side);
        let bad_request = ours.feasible(theirs, bad_request, plan.reads);
        let grant = theirs.grant_misused_by(bad_request);
        let bad_remote = theirs.bad_remote(bad_request, grant, &mut self.rng);
        let (Some(qp), Some(remote)) = (ours.qp, bad_remote) else { return Ok(()) };
        let stale = ours.stale.unwrap_or(STag(0));
        let Some(near) = &mut ours.memory else { return Ok(()) };
        let prepared = prepare(near, ours.posted, bad_request, plan, &mut self.rng);
        let Some(posted) = prepared else { return Ok(()) };
        let gather = [posted.gather(near, bad_request, stale)];
        let mut tag = None;
        if bad_request == BadRequest::BindNoRight {
            tag = Tag::make(&self.ctx, self.pd, true)?;
            // The host may have no free region.
            if tag.is_none() {
                return self.post_bad_request(session, side, BadRequest::LocalKey);
            }
        }
        let wr = request(&posted, bad_request, &gather, remote, &mut tag);
        match self.ctx.post_send(qp, &wr).map_or_else(ignore_queue_full, |()| Ok(true)) {
            Ok(true) => {
                self.work += 1;
                tag.into_iter().for_each(|tag| ours.local_tags.push((u64::MAX, tag)));
                // The owner may not reuse it before the session ends: a use of it may still be
                // pending.
                theirs.add_grant_use(grant);
                ours.pending_read_grants.extend(grant);
                ours.on_bad_request_posted(theirs, posted);
                session.posted_bad_request = Some((side, bad_request));
                Ok(())
            }
            other => {
                posted.sources.iter().for_each(|piece| near.source.release(*piece));
                if bad_request.is_read() {
                    near.sink.release(posted.target);
                }
                other.map(|_| ())
            }
        }
    }
}

impl App {
    fn post_bad_atomic(&mut self, session: &mut Session, bad_atomic: BadAtomic) -> Result<(), VerbsError> {
        let Some(draft) = session.bad_atomic(bad_atomic, &mut self.rng) else { return Ok(()) };
        let (ours, theirs) = session.pair(0);
        let Some(qp) = ours.qp else { return Ok(()) };
        if post(vec![draft], qp, &mut self.ctx, (ours, theirs), None)? > 0 {
            self.work += 1;
            session.posted_bad_request = Some((0, BadRequest::Atomic(bad_atomic)));
        }
        Ok(())
    }
}

fn request<'a>(
    posted: &Posted,
    bad_request: BadRequest,
    gather: &'a [Sge; 1],
    remote: RemoteMemory,
    tag: &mut Option<Tag>,
) -> SendWr<'a> {
    let id = posted.wr_id;
    match (bad_request, tag) {
        (BadRequest::BindNoRight, Some(tag)) => tag.bind(id, gather, Access::REMOTE_READ, true),
        (BadRequest::InvalidateUnknown, _) => SendWr::invalidate(id, remote.stag),
        (BadRequest::SendTooLong, _) => SendWr::send(id, gather),
        (BadRequest::SendUnexpected, _) => SendWr::send_inline(id, &BYTES),
        (BadRequest::InvalidateForeign | BadRequest::InvalidateStale, _) => {
            SendWr::send_inline(id, &BYTES[..posted.len]).with_invalidate(remote.stag)
        }
        (BadRequest::LocalKey | BadRequest::LocalBeyond | BadRequest::LocalStale, _) => {
            SendWr::write(id, gather, remote)
        }
        (bad_request, _) if bad_request.is_read() => SendWr::read(id, gather, remote),
        _ => SendWr::write_inline(id, &BYTES, remote),
    }
}

impl Side {
    /// Returns the bad request, or another one where it would be valid.
    fn feasible(&self, theirs: &Side, bad_request: BadRequest, reads: u16) -> BadRequest {
        let has_receive = theirs.has_receive(self);
        let has_no_grant = theirs.grant_misused_by(bad_request).is_none();
        let fitting = match bad_request {
            BadRequest::SendTooLong if !has_receive || theirs.app_srq.is_some() => BadRequest::WriteUnknown,
            BadRequest::InvalidateForeign | BadRequest::InvalidateStale if !theirs.has_credit(self) => {
                BadRequest::WriteUnknown
            }
            BadRequest::InvalidateStale if theirs.ended.is_empty() => BadRequest::InvalidateForeign,
            BadRequest::SendUnexpected if has_receive => BadRequest::WriteBeyond,
            BadRequest::WriteStale if theirs.ended.is_empty() => BadRequest::WriteForeign,
            BadRequest::ReadStale if theirs.ended.is_empty() => BadRequest::ReadForeign,
            BadRequest::LocalStale if self.stale.is_none() => BadRequest::LocalKey,
            BadRequest::WriteGrantBeyond if has_no_grant => BadRequest::WriteWrap,
            BadRequest::WriteGrantNoRight if has_no_grant => BadRequest::WriteNoRight,
            BadRequest::ReadGrantBeyond if has_no_grant => BadRequest::ReadWrap,
            BadRequest::ReadGrantNoRight if has_no_grant => BadRequest::ReadNoRight,
            bad_request => bad_request,
        };
        if fitting.is_read() && reads == 0 { BadRequest::WriteNoRight } else { fitting }
    }

    /// Returns whether a Send would find a receive.
    fn has_receive(&self, sender: &Side) -> bool {
        match &self.app_srq {
            Some(app_srq) => !app_srq.borrow().is_empty(),
            None => self.receives_posted > sender.sends_posted,
        }
    }

    fn on_bad_request_posted(&mut self, theirs: &mut Side, posted: Posted) {
        if posted.opcode == CompletionOpcode::Send {
            if posted.bad_request == Some(BadRequest::SendUnexpected) {
                self.sends_posted += 1;
            } else {
                theirs.take_credit(self);
            }
            let Posted { wr_id, len, pattern, .. } = posted;
            self.messages.push_back(Message::new(wr_id, len, pattern));
        }
        self.posted += 1;
        self.sends.push_back(posted);
    }

    fn grant_misused_by(&self, bad_request: BadRequest) -> Option<u64> {
        let fits = |grant: &&Grant| match bad_request {
            BadRequest::WriteGrantBeyond => grant.is_writable(),
            BadRequest::ReadGrantBeyond => grant.is_readable(),
            BadRequest::WriteGrantNoRight => grant.is_readable() && grant.only,
            BadRequest::ReadGrantNoRight => grant.is_writable() && grant.only,
            _ => false,
        };
        self.grants.iter().find(fits).map(|grant| grant.id)
    }

    fn add_grant_use(&mut self, grant: Option<u64>) {
        if let Some(grant) = grant.and_then(|id| self.grant_mut(id)) {
            grant.uses += 1;
        }
    }

    /// The remote address of a bad request against this side.
    fn bad_remote(
        &self,
        bad_request: BadRequest,
        grant: Option<u64>,
        rng: &mut SeededEntropy,
    ) -> Option<RemoteMemory> {
        let far = self.memory.as_ref()?;
        let first = far.shared.remote(Piece { at: 0, len: SHORT_LEN });
        let ended = || self.ended.last().copied();
        let beyond = |remote: RemoteMemory, len: usize| RemoteMemory {
            tagged_offset: remote.tagged_offset + len as u64 - 1,
            ..remote
        };
        let grant = || grant.and_then(|id| self.grants.iter().find(|grant| grant.id == id));
        Some(match bad_request {
            BadRequest::WriteUnknown | BadRequest::ReadUnknown | BadRequest::InvalidateUnknown => {
                let wrong = 1 + rng.below(u64::from(u32::MAX)) as u32;
                RemoteMemory { stag: STag(first.stag.0 ^ wrong), ..first }
            }
            BadRequest::WriteBeyond | BadRequest::ReadBeyond => outside(far, rng),
            BadRequest::WriteWrap | BadRequest::ReadWrap => {
                RemoteMemory { tagged_offset: u64::MAX - rng.below(SHORT_LEN as u64 - 1), ..first }
            }
            BadRequest::WriteNoRight => far.sink.remote(Piece { at: 0, len: SHORT_LEN }),
            BadRequest::ReadNoRight => far.source.remote(Piece { at: 0, len: SHORT_LEN }),
            BadRequest::WriteForeign | BadRequest::ReadForeign => {
                far.foreign.remote(Piece { at: 0, len: SHORT_LEN })
            }
            BadRequest::WriteStale | BadRequest::ReadStale | BadRequest::InvalidateStale => ended()?,
            BadRequest::WriteGrantBeyond | BadRequest::ReadGrantBeyond => {
                grant().map(|grant| beyond(grant.remote, grant.piece.len))?
            }
            BadRequest::WriteGrantNoRight | BadRequest::ReadGrantNoRight => grant()?.remote,
            _ => first,
        })
    }
}

/// An address after the shared region, across its end, or before it.
fn outside(far: &SideMemory, rng: &mut SeededEntropy) -> RemoteMemory {
    let end = far.shared.len();
    let at = [end, end - 1, end - SHORT_LEN + 1][rng.below(3) as usize];
    let remote = far.shared.remote(Piece { at, len: SHORT_LEN });
    let first = far.shared.remote(Piece { at: 0, len: SHORT_LEN }).tagged_offset;
    let before = first.wrapping_sub(1 + rng.below(SHORT_LEN as u64));
    if rng.next_u64() & 3 == 0 { RemoteMemory { tagged_offset: before, ..remote } } else { remote }
}

/// The request as the oracle records it, with the memory that it uses.
fn prepare(
    near: &mut SideMemory,
    wr_id: u64,
    bad_request: BadRequest,
    plan: &SessionPlan,
    rng: &mut SeededEntropy,
) -> Option<Posted> {
    let pattern = Pattern::new(plan.key ^ BAD_REQUEST_KEY, wr_id);
    let mut posted = Posted::new(wr_id, bad_request.opcode(), SHORT_LEN, pattern);
    posted.bad_request = Some(bad_request);
    if bad_request == BadRequest::SendTooLong {
        let piece = near.source.alloc(plan.bytes_max + 1, rng)?;
        near.source.write(piece, posted.pattern, 0);
        (posted.len, posted.sources) = (piece.len, vec![piece]);
    } else if posted.opcode == CompletionOpcode::Send {
        // It must fit its receive.
        posted.len = SHORT_LEN.min(plan.bytes_max);
    } else if bad_request.is_read() && bad_request != BadRequest::LocalNoRight {
        posted.target = near.sink.alloc(SHORT_LEN, rng)?;
    }
    Some(posted)
}

impl Posted {
    /// The request's scatter/gather element, invalid where that is the defect.
    fn gather(&self, near: &SideMemory, bad_request: BadRequest, stale: STag) -> Sge {
        let first = Piece { at: 0, len: SHORT_LEN };
        match bad_request {
            BadRequest::SendTooLong => near.source.sge(self.sources[0]),
            BadRequest::LocalKey => {
                let sge = near.source.sge(first);
                Sge { lkey: STag(sge.lkey.0 ^ 0x0100_0100), ..sge }
            }
            BadRequest::LocalStale => Sge { lkey: stale, ..near.source.sge(first) },
            BadRequest::LocalBeyond => {
                let last = near.source.sge(Piece { at: near.source.len() - 1, len: 1 });
                Sge { len: SHORT_LEN as u32, ..last }
            }
            // A region without the right to be written, or to be bound.
            BadRequest::LocalNoRight => near.source.sge(first),
            BadRequest::BindNoRight => near.landing.sge(first),
            bad_request if bad_request.is_read() => near.sink.sge(self.target),
            _ => near.source.sge(first),
        }
    }
}

/// Makes the pattern keys of bad requests differ from those of messages.
const BAD_REQUEST_KEY: u64 = 0x0ff3_0000_0000_0000;
