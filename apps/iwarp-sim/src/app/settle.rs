//! What must hold when a completion comes: order, number, length, and every byte where it belongs.

use ironwarp::{Completion, CompletionFlags, CompletionOpcode, CompletionStatus};

use crate::plan::{Offence, Placing};

use super::ledger::{Attacked, Message, Plots, Posted, Receive, Session, Side, Stage, Unsure};
use super::memory::{Piece, Plot};

/// What a completion did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settled {
    /// Requests that succeeded, those that did so silently included.
    pub succeeded: u64,
    /// Requests that were flushed.
    pub flushed: u64,
    /// Pieces of memory that were lent.
    pub lent: u64,
    /// Messages that landed in a shared receive.
    pub shared: u64,
    /// Bytes that were compared.
    pub bytes: u64,
}

impl Session {
    /// A completion for one side.
    pub fn settle(&mut self, side: usize, completion: &Completion) -> Result<Settled, String> {
        match completion.opcode {
            CompletionOpcode::Receive => self.settle_receive(side, completion),
            _ => self.settle_send(side, completion),
        }
    }

    fn settle_send(&mut self, side: usize, completion: &Completion) -> Result<Settled, String> {
        let mut settled = Settled::default();
        loop {
            let Some(posted) = self.sides[side].sends.pop_front() else {
                return Err(format!("a completion of nothing that was posted: {completion:?}"));
            };
            if posted.wr_id == completion.wr_id {
                self.settle_posted(side, posted, completion, &mut settled)?;
                return Ok(settled);
            }
            // Requests that tell only failure are passed over when they succeeded.
            if posted.signaled {
                return Err(format!("request {} was passed over by {completion:?}", posted.wr_id));
            }
            self.succeed(side, posted, &mut settled)?;
        }
    }

    /// What was posted and never told must have succeeded: a failure is always told.
    pub fn settle_silent(&mut self, side: usize) -> Result<Settled, String> {
        let mut settled = Settled::default();
        while let Some(posted) = self.sides[side].sends.pop_front() {
            if posted.signaled {
                return Err(format!("request {} never completed", posted.wr_id));
            }
            self.succeed(side, posted, &mut settled)?;
        }
        Ok(settled)
    }

    fn settle_posted(
        &mut self,
        side: usize,
        posted: Posted,
        completion: &Completion,
        settled: &mut Settled,
    ) -> Result<(), String> {
        if posted.opcode != completion.opcode {
            return Err(format!("request {} was a {:?}: {completion:?}", posted.wr_id, posted.opcode));
        }
        if let Some(offence) = posted.offence {
            return self.settle_offence(side, posted, offence, completion, settled);
        }
        match completion.status {
            CompletionStatus::Success if !posted.signaled => {
                Err(format!("an unsignaled success was told: {completion:?}"))
            }
            CompletionStatus::Success if completion.byte_len as usize != posted.len => {
                Err(format!("the request was of {} bytes: {completion:?}", posted.len))
            }
            CompletionStatus::Success => self.succeed(side, posted, settled),
            CompletionStatus::FlushedInError => {
                settled.flushed += 1;
                self.flush(side, posted)
            }
            status => Err(format!("request {} failed with {status:?}", posted.wr_id)),
        }
    }

    /// A Write or Send that the peer refuses may have been acknowledged by its TCP before; all else must fail.
    fn settle_offence(
        &mut self,
        side: usize,
        posted: Posted,
        offence: Offence,
        completion: &Completion,
        settled: &mut Settled,
    ) -> Result<(), String> {
        let may_succeed = !offence.is_local() && posted.opcode != CompletionOpcode::Read;
        match completion.status {
            CompletionStatus::Success if may_succeed => {
                self.sides[side].give_sources(&posted);
                Ok(())
            }
            CompletionStatus::Success => Err(format!("{offence:?} succeeded")),
            // Whoever is told of an error of its own is told which; what the peer found wrong is only flushed.
            status if status != offence.status() && status != CompletionStatus::FlushedInError => {
                Err(format!("{offence:?} failed with {status:?} and not {:?}", offence.status()))
            }
            status => {
                self.sides[side].offence_missed = status != offence.status();
                settled.flushed += 1;
                self.flush(side, posted)
            }
        }
    }

    fn succeed(&mut self, side: usize, posted: Posted, settled: &mut Settled) -> Result<(), String> {
        // Behind an offence the peer's TCP acknowledges what its stream discards.
        let says_nothing =
            self.plan.complete_on_copy || self.unseen || self.offended.is_some() || self.attacked.is_some();
        let several_cores = self.plan.cores[1 - side] > 1;
        let (ours, theirs) = self.pair(side);
        let says_nothing = says_nothing || (several_cores && ours.may_hold_up(&posted));
        if ours.send_failed {
            return Err(format!("request {} succeeded behind one that failed", posted.wr_id));
        }
        settled.succeeded += 1;
        settled.bytes += posted.len as u64;
        let wr_id = posted.wr_id;
        let named = |fault: String| format!("{:?} {wr_id}: {fault}", posted.opcode);
        ours.give_sources(&posted);
        match posted.opcode {
            CompletionOpcode::Read => {
                let Some(plots) = &mut ours.plots else { return Ok(()) };
                plots.sink.expect(posted.target, posted.pattern, posted.library_offset).map_err(named)?;
                plots.sink.give(posted.target);
                ours.on_errand_done(wr_id);
                posted.loan.into_iter().for_each(|id| theirs.end_use(id));
            }
            CompletionOpcode::Bind | CompletionOpcode::FastRegister | CompletionOpcode::Invalidate => {
                settled.lent += u64::from(posted.opcode != CompletionOpcode::Invalidate);
                ours.on_loan_request(&posted, true);
                ours.on_errand_done(wr_id);
            }
            CompletionOpcode::Write if posted.placed => theirs.give_target(&posted),
            // The peer's TCP has it. While the peer's stream runs, so has its memory.
            CompletionOpcode::Write if theirs.stage == Stage::Up && !says_nothing => {
                theirs.expect_write(&posted).map_err(named)?;
                theirs.give_target(&posted);
            }
            CompletionOpcode::Write => ours.unsure.push(Unsure::of(&posted)),
            _ => {}
        }
        Ok(())
    }

    fn flush(&mut self, side: usize, posted: Posted) -> Result<(), String> {
        let placing = self.plan.placing[side];
        let (ours, theirs) = self.pair(side);
        ours.send_failed = true;
        ours.give_sources(&posted);
        let wr_id = posted.wr_id;
        if matches!(
            posted.opcode,
            CompletionOpcode::Bind | CompletionOpcode::FastRegister | CompletionOpcode::Invalidate
        ) {
            ours.on_loan_request(&posted, false);
        }
        match (posted.opcode, &mut ours.plots) {
            (CompletionOpcode::Read, Some(plots)) => {
                let (target, offset) = (posted.target, posted.library_offset);
                let outcome = plots.sink.expect_part(target, posted.pattern, offset, placing);
                plots.sink.give(posted.target);
                // Its request may still be on the way: the peer's stream has not ended.
                ours.unanswered.extend(posted.loan);
                outcome.map_err(|fault| format!("flushed Read {wr_id}: {fault}"))
            }
            (CompletionOpcode::Write, _) if posted.placed => {
                theirs.give_target(&posted);
                Ok(())
            }
            (CompletionOpcode::Write, _) => {
                ours.unsure.push(Unsure::of(&posted));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn settle_receive(&mut self, side: usize, completion: &Completion) -> Result<Settled, String> {
        let mut settled = Settled::default();
        let provoked = self.provoked_status(side);
        let (ours, theirs) = self.pair(side);
        let receive = ours.take_receive(completion)?;
        match completion.status {
            CompletionStatus::Success if ours.receive_failed => {
                return Err(format!("receive {} succeeded behind one that failed", receive.wr_id));
            }
            CompletionStatus::Success => {
                let Some(message) = theirs.messages.pop_front() else {
                    return Err(format!("a message that nobody sent: {completion:?}"));
                };
                ours.take_message(&receive, &message, completion)?;
                settled.succeeded += 1;
                settled.shared += u64::from(ours.pool.is_some());
                settled.bytes += message.len as u64;
                ours.expect_earlier_writes(theirs, &message)?;
            }
            status
                if status == CompletionStatus::FlushedInError
                    || (Some(status) == provoked && !ours.receive_failed) =>
            {
                // The first may hold the beginning of the message that was arriving; the others hold nothing new.
                let arriving = if ours.receive_failed { None } else { theirs.messages.front() };
                ours.receive_failed = true;
                settled.flushed += 1;
                ours.on_landing(|landing| leave(landing, &receive, arriving))?;
            }
            status => return Err(format!("receive {} failed with {status:?}", receive.wr_id)),
        }
        Ok(settled)
    }

    /// Both sides are gone: everything that is left must be explained by what was under way.
    pub fn settle_end(&mut self) -> Result<(), String> {
        self.settle_terminates()?;
        for side in [0, 1] {
            if self.sides[side].has_vanished {
                self.settle_untold(side)?;
            }
        }
        for side in [0, 1] {
            let placing = self.plan.placing[1 - side];
            let (ours, theirs) = self.pair(side);
            for unsure in core::mem::take(&mut ours.unsure) {
                let Some(plots) = &mut theirs.plots else { continue };
                let outcome = plots.shared.expect_part(unsure.target, unsure.pattern, 0, placing);
                outcome.map_err(|fault| format!("side {side}, Write {}: {fault}", unsure.wr_id))?;
                theirs.give_written(unsure.target, unsure.loan);
            }
            core::mem::take(&mut ours.unanswered).into_iter().for_each(|id| theirs.end_use(id));
        }
        self.release_credits();
        self.sides.iter_mut().try_for_each(Side::close_loans)?;
        for (number, side) in self.sides.iter_mut().enumerate() {
            let Some(mut plots) = side.plots.take() else { continue };
            plots.close().map_err(|fault| format!("side {number} at the end: {fault}"))?;
        }
        Ok(())
    }
}

impl Session {
    /// What a context that was dropped had posted may have been carried out, wholly, in part or not at all.
    fn settle_untold(&mut self, side: usize) -> Result<(), String> {
        while let Some(posted) = self.sides[side].sends.pop_front() {
            self.flush(side, posted)?;
        }
        let (ours, theirs) = self.pair(side);
        while let Some(receive) = ours.receives.pop_front() {
            let message = theirs.messages.pop_front();
            ours.on_landing(|landing| leave(landing, &receive, message.as_ref()))?;
        }
        Ok(())
    }

    /// Messages that were never received need no shared receives any more.
    fn release_credits(&mut self) {
        let number = self.number;
        for side in [0, 1] {
            let (ours, theirs) = self.pair(side);
            let count = theirs.messages.drain(..).count();
            if let Some(pool) = ours.pool.take() {
                let mut pool = pool.borrow_mut();
                pool.unclaim(count);
                pool.forget(number);
                pool.users -= 1;
            }
        }
    }

    /// RFC 5040 s5.4: whoever finds an error says so once, and what was wrong. A side that has vanished tells nobody, and
    /// where payload is damaged anything may have been wrong.
    fn settle_terminates(&self) -> Result<(), String> {
        let vanished = self.sides.iter().any(|side| side.has_vanished);
        if self.unseen || vanished || self.excused {
            return Ok(());
        }
        if self.sides.iter().any(|side| side.offence_missed) {
            return Err(format!(
                "{:?} was flushed, and nothing had ended the connection before",
                self.offended
            ));
        }
        // What was sent when links did no harm cannot have been lost, however the connection ended.
        if self.unanswered && self.sides[1].terminated_well {
            return Err(format!("{:?} is told to have been sent, and never came", self.attacked));
        }
        let due = match (self.offended, self.attacked) {
            (Some((by, offence)), _) => Some(if offence.is_local() { by } else { 1 - by }),
            (None, Some(Attacked::Answered(_))) => Some(1),
            _ => None,
        };
        let told = match (self.offended, self.attacked) {
            (Some(_), _) => due.map(|side| 1 - side),
            // What an attacker is told, it judges itself.
            (None, Some(Attacked::Told(_))) => Some(1),
            _ => None,
        };
        let told = told.filter(|side| !self.may_have_missed(*side));
        match due.into_iter().chain(told).find(|side| self.sides[*side].terminates != 1) {
            Some(side) => {
                let count = self.sides[side].terminates;
                let cause = (self.offended, self.attacked);
                Err(format!("side {side} was told of {count} Terminates after {cause:?}"))
            }
            None => Ok(()),
        }
    }

    /// Whether the peer's Terminate may have been lost on its way to a side: only with the connection, and while links
    /// did harm. An orderly end comes behind it, and a stack that resets before it has been heard has told nobody.
    fn may_have_missed(&self, side: usize) -> bool {
        self.sides[side].was_cut_off && !self.sides[1 - side].terminated_well
    }
}

impl Side {
    /// Whether the peer may still be waiting until all its cores know of a tag that a message of ours has ended: until
    /// then its TCP takes what comes behind the message, and its stream does not.
    fn may_hold_up(&self, posted: &Posted) -> bool {
        self.messages.iter().any(|message| message.loan.is_some() && message.wr_id < posted.wr_id)
    }

    fn give_sources(&mut self, posted: &Posted) {
        if let Some(plots) = &mut self.plots {
            posted.sources.iter().for_each(|piece| plots.source.give(*piece));
        }
    }

    fn give_target(&mut self, posted: &Posted) {
        self.give_written(posted.target, posted.loan);
    }

    /// The peer's Write is in our memory.
    fn expect_write(&mut self, posted: &Posted) -> Result<(), String> {
        match &mut self.plots {
            Some(plots) => plots.shared.expect(posted.target, posted.pattern, 0),
            None => Ok(()),
        }
    }

    /// Whatever was written before a Send is in our memory when the Send is delivered (RFC 5040 s5.5).
    fn expect_earlier_writes(&mut self, theirs: &mut Side, message: &Message) -> Result<(), String> {
        let Some(plots) = &mut self.plots else { return Ok(()) };
        let named = |wr_id: u64| move |fault| format!("Write {wr_id} before a Send: {fault}");
        for posted in theirs.sends.iter_mut().take_while(|posted| posted.wr_id < message.wr_id) {
            if posted.opcode == CompletionOpcode::Write && !posted.placed {
                posted.placed = true;
                plots.shared.expect(posted.target, posted.pattern, 0).map_err(named(posted.wr_id))?;
            }
        }
        for unsure in theirs.unsure.extract_if(.., |unsure| unsure.wr_id < message.wr_id) {
            let Some(plots) = &mut self.plots else { break };
            plots.shared.expect(unsure.target, unsure.pattern, 0).map_err(named(unsure.wr_id))?;
            self.give_written(unsure.target, unsure.loan);
        }
        Ok(())
    }

    fn take_message(
        &mut self,
        receive: &Receive,
        message: &Message,
        completion: &Completion,
    ) -> Result<(), String> {
        if completion.byte_len as usize != message.len {
            return Err(format!("a message of {} bytes was received as {completion:?}", message.len));
        }
        if completion.flags.contains(CompletionFlags::SOLICITED) != message.solicited {
            return Err(format!("message {} was solicited {}", message.wr_id, message.solicited));
        }
        let ended = message.loan.and_then(|id| self.on_loan_invalidated(id));
        let told = completion.flags.contains(CompletionFlags::INVALIDATED).then_some(completion.invalidated);
        if told != ended {
            return Err(format!("message {} ends {ended:?} and is told to end {told:?}", message.wr_id));
        }
        if let Some(pool) = &self.pool {
            pool.borrow_mut().unclaim(1);
        }
        self.on_landing(|landing| fill(landing, receive, message))
    }

    /// The receive that a completion is about: the oldest of a queue's own, or any of a shared one.
    fn take_receive(&mut self, completion: &Completion) -> Result<Receive, String> {
        let wr_id = completion.wr_id;
        let found = match &self.pool {
            Some(pool) => pool.borrow_mut().take(wr_id),
            None => self.receives.pop_front(),
        };
        let found =
            found.ok_or_else(|| format!("a completion of nothing that was posted: {completion:?}"))?;
        if found.wr_id == wr_id {
            return Ok(found);
        }
        Err(format!("receive {} was passed over by {completion:?}", found.wr_id))
    }

    /// Looks at the memory that this side's receives land in.
    fn on_landing(&mut self, look: impl FnOnce(&mut Plot) -> Result<(), String>) -> Result<(), String> {
        match (&self.pool, &mut self.plots) {
            (Some(pool), _) => look(&mut pool.borrow_mut().landing),
            (None, Some(plots)) => look(&mut plots.landing),
            (None, None) => Ok(()),
        }
    }
}

/// A receive that holds a message, and nothing behind it.
fn fill(landing: &mut Plot, receive: &Receive, message: &Message) -> Result<(), String> {
    let mut offset = 0;
    for piece in &receive.pieces {
        let taken = piece.len.min(message.len - offset);
        let (filled, rest) = piece.split(taken);
        let named = |fault| format!("Send {} in receive {}: {fault}", message.wr_id, receive.wr_id);
        landing.expect(filled, message.pattern, offset).map_err(named)?;
        landing.verify(rest).map_err(named)?;
        landing.give(*piece);
        offset += taken;
    }
    Ok(())
}

/// A flushed receive: the first of them may hold the beginning of the message that was arriving.
fn leave(landing: &mut Plot, receive: &Receive, arriving: Option<&Message>) -> Result<(), String> {
    let mut offset = 0;
    for piece in &receive.pieces {
        let named = |fault| format!("flushed receive {}: {fault}", receive.wr_id);
        if let Some(message) = arriving {
            let taken = piece.len.min(message.len - offset);
            let (touched, rest) = piece.split(taken);
            // Untagged segments wait for their turn on every host.
            landing.expect_part(touched, message.pattern, offset, Placing::InOrder).map_err(named)?;
            landing.verify(rest).map_err(named)?;
            offset += taken;
        } else {
            landing.verify(*piece).map_err(named)?;
        }
        landing.give(*piece);
    }
    Ok(())
}

impl Unsure {
    fn of(posted: &Posted) -> Self {
        Unsure { wr_id: posted.wr_id, target: posted.target, pattern: posted.pattern, loan: posted.loan }
    }
}

impl Plots {
    fn close(&mut self) -> Result<(), String> {
        self.shared.verify(self.library).map_err(|fault| format!("the library: {fault}"))?;
        self.shared.give(self.library);
        let plots = [&mut self.source, &mut self.landing, &mut self.sink, &mut self.shared, &mut self.vault];
        for (plot, name) in plots.into_iter().zip(["source", "landing", "sink", "shared", "vault"]) {
            plot.close().map_err(|fault| format!("{name}: {fault}"))?;
        }
        Ok(())
    }
}

impl Piece {
    /// The first `len` bytes, and the others.
    fn split(self, len: usize) -> (Self, Self) {
        let len = len.min(self.len);
        (Self { at: self.at, len }, Self { at: self.at + len, len: self.len - len })
    }
}
