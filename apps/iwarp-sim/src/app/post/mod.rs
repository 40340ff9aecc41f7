//! Posts requests: registers a side's memory, posts its receives, and posts chains of send
//! requests.

mod bad_request;
mod draft;
mod generate;

use ironwarp::{Access, Context, ProtectionDomain, RecvWr, VerbsError};
use ironwarp_types::{Entropy, SeededEntropy};

use super::memory::{Pattern, Piece, ShadowedRegion};
use super::oracle::Session;
use super::side::{Receive, SideMemory};
use crate::atomics::Words;
use draft::post;
pub(crate) use draft::{Draft, RequestKind, ignore_queue_full};
pub(crate) use generate::RequestGenerator;

const INLINE_BYTES: usize = 256;

impl Session {
    /// Registers a side's memory in `pd`, and a small region in a protection domain without queue
    /// pairs.
    pub fn register_memory(
        &mut self,
        side: usize,
        ctx: &Context,
        pd: ProtectionDomain,
        foreign_pd: ProtectionDomain,
    ) -> Result<(), VerbsError> {
        let plan = &self.plan;
        let whole = plan.bytes_max.max(256);
        let remote = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        // Receives of a shared queue use that queue's memory.
        let landing = if plan.shared[side] { INLINE_BYTES } else { plan.receives as usize * whole };
        let mut memory = SideMemory {
            source: ShadowedRegion::new(ctx, pd, 2 * whole, Access::BIND)?,
            landing: ShadowedRegion::new(ctx, pd, landing, Access::LOCAL_WRITE)?,
            sink: ShadowedRegion::new(ctx, pd, 2 * whole, Access::LOCAL_WRITE | Access::BIND)?,
            shared: ShadowedRegion::new(ctx, pd, 3 * whole, remote | Access::BIND)?,
            foreign: ShadowedRegion::new(ctx, foreign_pd, 256, remote)?,
            read_source: Piece { at: 0, len: whole },
            read_source_pattern: Pattern::new(plan.key ^ READ_SOURCE_KEY, side as u64),
        };
        memory.read_source = memory.shared.alloc_first(whole);
        memory.shared.write(memory.read_source, memory.read_source_pattern, 0);
        self.sides[side].memory = Some(memory);
        Ok(())
    }

    /// Posts one receive, if another one is planned. Returns whether it did.
    pub fn post_receive(
        &mut self,
        side: usize,
        ctx: &mut Context,
        rng: &mut SeededEntropy,
    ) -> Result<bool, VerbsError> {
        let (room, sges, most) = (self.plan.bytes_max, self.plan.sges, self.plan.receives as usize);
        let ours = &mut self.sides[side];
        let (Some(qp), Some(memory)) = (ours.qp, &mut ours.memory) else { return Ok(false) };
        if ours.receives.len() >= most || ours.app_srq.is_some() {
            return Ok(false);
        }
        let allocated = memory.landing.alloc_receive(room, sges, rng);
        let Some((pieces, scatter)) = allocated else { return Ok(false) };
        let wr_id = ours.receives_posted;
        match ctx.post_recv(qp, &RecvWr::new(wr_id, &scatter)) {
            Ok(()) => {
                ours.receives_posted += 1;
                ours.receives.push_back(Receive { wr_id, pieces });
                Ok(true)
            }
            Err(error) => {
                pieces.into_iter().for_each(|piece| memory.landing.release(piece));
                ignore_queue_full(error)
            }
        }
    }

    /// Posts a chain of at most `most` requests to the send queue, until it is full. Returns how
    /// many were posted.
    pub fn post_sends(
        &mut self,
        side: usize,
        most: usize,
        ctx: &mut Context,
        (pd, rng): (ProtectionDomain, &mut SeededEntropy),
        words: Option<&mut Words>,
    ) -> Result<usize, VerbsError> {
        let (plan, of_session, [ours, theirs]) = self.split(side);
        let (Some(qp), Some(_)) = (ours.qp, &ours.memory) else { return Ok(0) };
        let mut chain = Vec::new();
        let known = words.as_deref().map(|words| (words, &*of_session));
        let mut generator = RequestGenerator { plan, side, ctx, pd, rng, words: known };
        while chain.len() < most && ours.left > 0 {
            let next = generator.next(ours, theirs)?;
            if next.is_empty() {
                break;
            }
            chain.extend(next);
        }
        let words = words.map(|words| (words, of_session));
        if chain.is_empty() { Ok(0) } else { post(chain, qp, ctx, (ours, theirs), words) }
    }
}

/// Splits a piece into at most `most` parts in random order, some of them empty.
pub(super) fn split_randomly(piece: Piece, most: usize, rng: &mut SeededEntropy) -> Vec<Piece> {
    let count = 1 + rng.below(most.max(1) as u64) as usize;
    let mut edges: Vec<usize> = (1..count).map(|_| rng.below(piece.len as u64 + 1) as usize).collect();
    edges.extend([0, piece.len]);
    edges.sort_unstable();
    let part = |edge: &[usize]| Piece { at: piece.at + edge[0], len: edge[1] - edge[0] };
    let mut parts: Vec<Piece> = edges.windows(2).map(part).collect();
    for last in (1..parts.len()).rev() {
        parts.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
    }
    parts
}

/// Makes a library's pattern key differ from those of messages.
const READ_SOURCE_KEY: u64 = 0x1b_0a2e_5a17_0000;
