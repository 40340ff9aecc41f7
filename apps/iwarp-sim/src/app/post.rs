//! What an application posts: which operation, how many bytes, from where, to where.

use ironwarp::{
    Access, CompletionOpcode, Context, ProtectionDomain, RecvWr, RemoteMemory, STag, SendWr, Sge, VerbsError,
};
use ironwarp_types::{Entropy, SeededEntropy};

use super::ledger::{Message, Plots, Posted, Receive, Session, Side};
use super::loan::State;
use super::pattern::Pattern;
use super::plot::{Piece, Plot};
use crate::plan::SessionPlan;

/// Bytes that a request may carry itself.
const INLINE_BYTES: usize = 256;

impl Session {
    /// Makes a side's memory.
    pub fn lay_out(&mut self, side: usize, ctx: &Context, pd: ProtectionDomain) -> Result<(), VerbsError> {
        let plan = &self.plan;
        let whole = plan.bytes_max.max(256);
        let remote = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::BIND;
        let mut plots = Plots {
            source: Plot::new(ctx, pd, 2 * whole, Access::empty())?,
            landing: Plot::new(ctx, pd, plan.receives as usize * whole, Access::LOCAL_WRITE)?,
            sink: Plot::new(ctx, pd, 2 * whole, Access::LOCAL_WRITE)?,
            shared: Plot::new(ctx, pd, 3 * whole, remote)?,
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
        if ours.receives.len() >= most {
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

    /// Posts one request to the send queue, if one can be. Answers whether it did.
    pub fn post_send(
        &mut self,
        side: usize,
        ctx: &mut Context,
        pd: ProtectionDomain,
        dice: &mut SeededEntropy,
    ) -> Result<bool, VerbsError> {
        let plan = self.plan.clone();
        if dice.chance(plan.loan_ppm) && self.post_loan(side, ctx, pd, dice)? {
            return Ok(true);
        }
        let (ours, theirs) = self.pair(side);
        let (Some(qp), Some(_)) = (ours.qp, &ours.plots) else { return Ok(false) };
        let Some(request) = ours.choose(theirs, &plan, side, dice) else { return Ok(false) };
        let gather = ours.gather(&request);
        let inline = request.inline_bytes();
        let mut wr = request.work_request(&gather, inline.as_deref(), theirs);
        let mut posted = request.posted;
        // The last one tells its success, so that the end is known.
        posted.signaled = ours.left == 1 || !dice.chance(plan.unsignaled_ppm);
        if !posted.signaled {
            wr = wr.unsignaled();
        }
        if request.solicited {
            wr = wr.solicited();
        }
        if let (CompletionOpcode::Send, Some(id)) = (posted.opcode, posted.loan) {
            wr = theirs.loan_remote(id).map_or(wr, |loan| wr.invalidating(loan.stag));
        }
        if dice.chance(plan.fence_ppm) {
            wr = wr.fenced();
        }
        match ctx.post_send(qp, &wr) {
            Ok(()) => {
                ours.on_posted(posted, request.solicited);
                Ok(true)
            }
            Err(error) => {
                ours.take_back(theirs, &posted);
                refused(error)
            }
        }
    }
}

/// A request that has its pieces and is not posted yet.
struct Request {
    posted: Posted,
    solicited: bool,
    inline: bool,
}

impl Request {
    fn inline_bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.posted.len];
        self.inline.then(|| {
            self.posted.pattern.fill(0, &mut bytes);
            bytes
        })
    }

    fn work_request<'a>(&self, gather: &'a [Sge], inline: Option<&'a [u8]>, theirs: &Side) -> SendWr<'a> {
        let wr_id = self.posted.wr_id;
        let lent = self.posted.loan.and_then(|id| theirs.loan_remote(id));
        let remote = |piece: Piece| match &theirs.plots {
            _ if lent.is_some() => lent.unwrap_or(RemoteMemory { stag: STag(0), tagged_offset: 0 }),
            Some(plots) => plots.shared.remote(piece),
            None => unreachable!("a tagged request is chosen for a peer that has memory"),
        };
        match (self.posted.opcode, inline) {
            (CompletionOpcode::Write, None) => SendWr::write(wr_id, gather, remote(self.posted.target)),
            (CompletionOpcode::Write, Some(bytes)) => {
                SendWr::write_inline(wr_id, bytes, remote(self.posted.target))
            }
            (CompletionOpcode::Read, _) => match (gather.first_chunk(), &theirs.plots) {
                (Some(sink), Some(plots)) => {
                    let at = plots.library.at + self.posted.library_offset;
                    SendWr::read(wr_id, sink, remote(Piece { at, len: self.posted.len }))
                }
                _ => unreachable!("a Read has one sink"),
            },
            (_, None) => SendWr::send(wr_id, gather),
            (_, Some(bytes)) => SendWr::send_inline(wr_id, bytes),
        }
    }
}

impl Side {
    /// Decides on the next request and takes the memory that it needs.
    fn choose(
        &mut self,
        theirs: &mut Side,
        plan: &SessionPlan,
        side: usize,
        dice: &mut SeededEntropy,
    ) -> Option<Request> {
        let len = plan.message_bytes(self.bytes_left, dice);
        let opcode = self.choose_opcode(theirs, plan, dice)?;
        let plots = self.plots.as_mut()?;
        let mut request = Request {
            posted: Posted {
                wr_id: self.posted,
                opcode,
                signaled: true,
                len,
                pattern: Pattern::new(plan.key ^ side as u64, self.posted),
                sources: Vec::new(),
                target: Piece { at: 0, len },
                library_offset: 0,
                placed: false,
                offence: None,
                loan: None,
            },
            solicited: opcode == CompletionOpcode::Send && dice.chance(plan.solicited_ppm),
            inline: opcode != CompletionOpcode::Read && len <= INLINE_BYTES && dice.chance(500_000),
        };
        let posted = &mut request.posted;
        match opcode {
            CompletionOpcode::Read => {
                let library = theirs.plots.as_ref()?;
                posted.library_offset = dice.below((library.library.len - len) as u64 + 1) as usize;
                posted.pattern = library.library_pattern;
                posted.target = plots.sink.take(len, dice)?;
                return Some(request);
            }
            CompletionOpcode::Write => match theirs.open_loan() {
                Some(loan) if dice.chance(600_000) => {
                    posted.len = len.min(loan.piece.len);
                    posted.target = Piece { len: posted.len, ..loan.piece };
                    posted.loan = Some(loan.id);
                    loan.uses = 1;
                }
                _ => posted.target = theirs.plots.as_mut()?.shared.take(len, dice)?,
            },
            // Now and then the last that is heard of a loan.
            CompletionOpcode::Send if dice.chance(plan.loan_ppm) => {
                if let Some(loan) = theirs.open_loan() {
                    loan.state = State::Ending;
                    posted.loan = Some(loan.id);
                }
            }
            _ => {}
        }
        if !request.inline {
            match plots.source.take(request.posted.len, dice) {
                Some(piece) => request.posted.sources = cut(piece, plan.sges, dice),
                None => {
                    self.take_back(theirs, &request.posted);
                    return None;
                }
            }
        }
        Some(request)
    }

    /// What the next request is, when there is anything that may be asked for: the far end without memory takes Sends
    /// alone, and a Send needs a receive.
    fn choose_opcode(
        &self,
        theirs: &Side,
        plan: &SessionPlan,
        dice: &mut SeededEntropy,
    ) -> Option<CompletionOpcode> {
        let may_send = theirs.receives_posted > self.sends_posted;
        match plan.opcode(dice) {
            _ if theirs.plots.is_none() && !may_send => None,
            _ if theirs.plots.is_none() => Some(CompletionOpcode::Send),
            CompletionOpcode::Send if !may_send => None,
            CompletionOpcode::Read if plan.reads == 0 => Some(CompletionOpcode::Write),
            opcode => Some(opcode),
        }
    }

    /// The request's list, with its bytes in place.
    fn gather(&mut self, request: &Request) -> Vec<Sge> {
        let Some(plots) = &mut self.plots else { return Vec::new() };
        if request.posted.opcode == CompletionOpcode::Read {
            return vec![plots.sink.sge(request.posted.target)];
        }
        let mut offset = 0;
        let mut list = Vec::with_capacity(request.posted.sources.len());
        for piece in &request.posted.sources {
            plots.source.write(*piece, request.posted.pattern, offset);
            offset += piece.len;
            list.push(plots.source.sge(*piece));
        }
        list
    }

    fn on_posted(&mut self, posted: Posted, solicited: bool) {
        if posted.opcode == CompletionOpcode::Send {
            self.sends_posted += 1;
            let (wr_id, len, pattern, loan) = (posted.wr_id, posted.len, posted.pattern, posted.loan);
            self.messages.push_back(Message { wr_id, len, pattern, solicited, loan });
        }
        self.posted += 1;
        self.left = self.left.saturating_sub(1);
        self.bytes_left = self.bytes_left.saturating_sub(posted.len);
        self.sends.push_back(posted);
    }

    /// Gives back what was taken for a request that was not posted.
    fn take_back(&mut self, theirs: &mut Side, posted: &Posted) {
        if let Some(plots) = &mut self.plots {
            posted.sources.iter().for_each(|piece| plots.source.give(*piece));
            if posted.opcode == CompletionOpcode::Read {
                plots.sink.give(posted.target);
            }
        }
        match (posted.opcode, posted.loan) {
            (CompletionOpcode::Write, loan) => theirs.give_written(posted.target, loan),
            (_, Some(id)) => theirs.reopen_loan(id),
            _ => {}
        }
    }
}

/// A full queue is an ordinary answer, anything else is not.
pub(super) fn refused(error: VerbsError) -> Result<bool, VerbsError> {
    match error {
        VerbsError::QueueFull | VerbsError::CqFull | VerbsError::WrongState(_) => Ok(false),
        error => Err(error),
    }
}

/// Cuts a piece into at most `most` parts, some of them empty, in any order.
fn cut(piece: Piece, most: usize, dice: &mut SeededEntropy) -> Vec<Piece> {
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
