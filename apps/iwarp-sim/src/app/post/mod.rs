//! What an application posts: a side's memory and receives, and chains of requests.

mod choose;
mod draft;
mod offend;

use ironwarp::{Access, Context, ProtectionDomain, RecvWr, Sge, VerbsError};
use ironwarp_types::{Entropy, SeededEntropy};

use super::ledger::{Plots, Receive, Session};
use super::memory::{Pattern, Piece, Plot};
use choose::Chooser;
pub(super) use draft::refused;

/// Bytes that a request may carry itself.
const INLINE_BYTES: usize = 256;

impl Session {
    /// Makes a side's memory in `pd`, and a little in a domain that no queue pair has.
    pub fn lay_out(
        &mut self,
        side: usize,
        ctx: &Context,
        pd: ProtectionDomain,
        nobodys: ProtectionDomain,
    ) -> Result<(), VerbsError> {
        let plan = &self.plan;
        let whole = plan.bytes_max.max(256);
        let remote = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        // Receives that come from a shared queue land in its memory.
        let landing = if plan.shared[side] { INLINE_BYTES } else { plan.receives as usize * whole };
        let mut plots = Plots {
            source: Plot::new(ctx, pd, 2 * whole, Access::BIND)?,
            landing: Plot::new(ctx, pd, landing, Access::LOCAL_WRITE)?,
            sink: Plot::new(ctx, pd, 2 * whole, Access::LOCAL_WRITE | Access::BIND)?,
            shared: Plot::new(ctx, pd, 3 * whole, remote | Access::BIND)?,
            vault: Plot::new(ctx, nobodys, 256, remote)?,
            library: Piece { at: 0, len: whole },
            library_pattern: Pattern::new(plan.key ^ LIBRARY, side as u64),
            windows: Vec::new(),
        };
        plots.library = plots.shared.take_first(whole);
        plots.shared.write(plots.library, plots.library_pattern, 0);
        self.sides[side].plots = Some(plots);
        Ok(())
    }

    /// Posts one receive, if there may be one more. Answers whether it did.
    pub fn post_receive(
        &mut self,
        side: usize,
        ctx: &mut Context,
        dice: &mut SeededEntropy,
    ) -> Result<bool, VerbsError> {
        let (room, sges, most) = (self.plan.bytes_max, self.plan.sges, self.plan.receives as usize);
        let ours = &mut self.sides[side];
        let (Some(qp), Some(plots)) = (ours.qp, &mut ours.plots) else { return Ok(false) };
        if ours.receives.len() >= most || ours.pool.is_some() {
            return Ok(false);
        }
        let Some(piece) = plots.landing.take(room, dice) else { return Ok(false) };
        let pieces = cut(piece, sges, dice);
        let scatter: Vec<Sge> = pieces.iter().map(|piece| plots.landing.sge(*piece)).collect();
        let wr_id = ours.receives_posted;
        match ctx.post_recv(qp, &RecvWr::new(wr_id, &scatter)) {
            Ok(()) => {
                ours.receives_posted += 1;
                ours.receives.push_back(Receive { wr_id, pieces });
                Ok(true)
            }
            Err(error) => {
                plots.landing.give(piece);
                refused(error)
            }
        }
    }

    /// Posts a chain of at most `most` requests to the send queue, as far as they can be. Answers how many were.
    pub fn post_sends(
        &mut self,
        side: usize,
        most: usize,
        ctx: &mut Context,
        pd: ProtectionDomain,
        dice: &mut SeededEntropy,
    ) -> Result<usize, VerbsError> {
        let (plan, ours, theirs) = self.split(side);
        let (Some(qp), Some(_)) = (ours.qp, &ours.plots) else { return Ok(0) };
        let mut chain = Vec::new();
        let mut chooser = Chooser { plan, side, ctx, pd, dice };
        while chain.len() < most && ours.left > 0 {
            let next = chooser.next(ours, theirs)?;
            if next.is_empty() {
                break;
            }
            chain.extend(next);
        }
        if chain.is_empty() { Ok(0) } else { draft::post(chain, qp, ctx, ours, theirs) }
    }
}

/// Cuts a piece into at most `most` parts, some of them empty, in any order.
pub(super) fn cut(piece: Piece, most: usize, dice: &mut SeededEntropy) -> Vec<Piece> {
    let count = 1 + dice.below(most.max(1) as u64) as usize;
    let mut edges: Vec<usize> = (1..count).map(|_| dice.below(piece.len as u64 + 1) as usize).collect();
    edges.extend([0, piece.len]);
    edges.sort_unstable();
    let part = |edge: &[usize]| Piece { at: piece.at + edge[0], len: edge[1] - edge[0] };
    let mut parts: Vec<Piece> = edges.windows(2).map(part).collect();
    for last in (1..parts.len()).rev() {
        parts.swap(last, (dice.next_u64() % (last as u64 + 1)) as usize);
    }
    parts
}

/// Sets a library's key apart from those of messages.
const LIBRARY: u64 = 0x1b_0a2e_5a17_0000;
