//! What must hold when a completion comes: order, number, length, and every byte where it belongs.

use ironwarp::{Completion, CompletionFlags, CompletionOpcode, CompletionStatus};

use crate::plan::{BadRequest, Placement};

use super::memory::{Piece, ShadowedRegion};
use super::oracle::{
    AttackOutcome, Message, Posted, Receive, Session, Side, SideMemory, Stage, UnverifiedWrite,
};

/// What a completion did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckedCompletion {
    /// Requests that succeeded, those that did so silently included.
    pub succeeded: u64,
    /// Requests that were flushed.
    pub flushed: u64,
    /// Pieces of memory that were lent.
    pub bound: u64,
    /// Messages that landed in a shared receive.
    pub shared: u64,
    /// Bytes that were compared.
    pub bytes: u64,
}

impl Session {
    /// A completion for one side.
    pub fn check_completion(
        &mut self,
        side: usize,
        completion: &Completion,
    ) -> Result<CheckedCompletion, String> {
        match completion.opcode {
            CompletionOpcode::Receive => self.check_receive_completion(side, completion),
            _ => self.check_send_completion(side, completion),
        }
    }

    fn check_send_completion(
        &mut self,
        side: usize,
        completion: &Completion,
    ) -> Result<CheckedCompletion, String> {
        let mut checked = CheckedCompletion::default();
        loop {
            let Some(posted) = self.sides[side].sends.pop_front() else {
                return Err(format!("a completion of nothing that was posted: {completion:?}"));
            };
            if posted.wr_id == completion.wr_id {
                self.check_posted(side, posted, completion, &mut checked)?;
                return Ok(checked);
            }
            // Requests that tell only failure are passed over when they succeeded.
            if posted.signaled {
                return Err(format!("request {} was passed over by {completion:?}", posted.wr_id));
            }
            self.succeed(side, posted, &mut checked)?;
        }
    }

    /// What was posted and never told must have succeeded: a failure is always told.
    pub fn complete_unsignaled(&mut self, side: usize) -> Result<CheckedCompletion, String> {
        let mut checked = CheckedCompletion::default();
        while let Some(posted) = self.sides[side].sends.pop_front() {
            if posted.signaled {
                return Err(format!("request {} never completed", posted.wr_id));
            }
            self.succeed(side, posted, &mut checked)?;
        }
        Ok(checked)
    }

    fn check_posted(
        &mut self,
        side: usize,
        posted: Posted,
        completion: &Completion,
        checked: &mut CheckedCompletion,
    ) -> Result<(), String> {
        if posted.opcode != completion.opcode {
            return Err(format!("request {} was a {:?}: {completion:?}", posted.wr_id, posted.opcode));
        }
        if let Some(bad_request) = posted.bad_request {
            return self.check_bad_request(side, posted, bad_request, completion, checked);
        }
        match completion.status {
            CompletionStatus::Success if !posted.signaled => {
                Err(format!("an unsignaled success was told: {completion:?}"))
            }
            CompletionStatus::Success if completion.byte_len as usize != posted.len => {
                Err(format!("the request was of {} bytes: {completion:?}", posted.len))
            }
            CompletionStatus::Success => self.succeed(side, posted, checked),
            CompletionStatus::FlushedInError => {
                checked.flushed += 1;
                self.flush(side, posted)
            }
            status => Err(format!("request {} failed with {status:?}", posted.wr_id)),
        }
    }

    /// A Write or Send that the peer refuses may have been acknowledged by its TCP before; all else must fail.
    fn check_bad_request(
        &mut self,
        side: usize,
        posted: Posted,
        bad_request: BadRequest,
        completion: &Completion,
        checked: &mut CheckedCompletion,
    ) -> Result<(), String> {
        let may_succeed = !bad_request.is_local() && posted.opcode != CompletionOpcode::Read;
        match completion.status {
            CompletionStatus::Success if may_succeed => {
                self.sides[side].release_sources(&posted);
                Ok(())
            }
            CompletionStatus::Success => Err(format!("{bad_request:?} succeeded")),
            // Whoever is told of an error of its own is told which; what the peer found wrong is only flushed.
            status if status != bad_request.status() && status != CompletionStatus::FlushedInError => {
                Err(format!("{bad_request:?} failed with {status:?} and not {:?}", bad_request.status()))
            }
            status => {
                self.sides[side].bad_request_flushed = status != bad_request.status();
                checked.flushed += 1;
                self.flush(side, posted)
            }
        }
    }

    fn succeed(
        &mut self,
        side: usize,
        posted: Posted,
        checked: &mut CheckedCompletion,
    ) -> Result<(), String> {
        // Behind an offence the peer's TCP acknowledges what its stream discards.
        let is_inconclusive = self.plan.complete_on_copy
            || self.undetected_corruption
            || self.posted_bad_request.is_some()
            || self.attack_outcome.is_some();
        let several_cores = self.plan.cores[1 - side] > 1;
        let (ours, theirs) = self.pair(side);
        let is_inconclusive = is_inconclusive || (several_cores && ours.may_stall_peer(&posted));
        if ours.send_failed {
            return Err(format!("request {} succeeded behind one that failed", posted.wr_id));
        }
        checked.succeeded += 1;
        checked.bytes += posted.len as u64;
        let wr_id = posted.wr_id;
        let named = |fault: String| format!("{:?} {wr_id}: {fault}", posted.opcode);
        ours.release_sources(&posted);
        match posted.opcode {
            CompletionOpcode::Read => {
                let Some(memory) = &mut ours.memory else { return Ok(()) };
                memory
                    .sink
                    .expect_pattern(posted.target, posted.pattern, posted.read_source_offset)
                    .map_err(named)?;
                memory.sink.release(posted.target);
                ours.on_local_tag_done(wr_id);
                posted.grant.into_iter().for_each(|id| theirs.end_use(id));
            }
            CompletionOpcode::Bind | CompletionOpcode::FastRegister | CompletionOpcode::Invalidate => {
                checked.bound += u64::from(posted.opcode != CompletionOpcode::Invalidate);
                ours.on_grant_request(&posted, true);
                ours.on_local_tag_done(wr_id);
            }
            CompletionOpcode::Write if posted.placed => theirs.release_target(&posted),
            // The peer's TCP has it. While the peer's stream runs, so has its memory.
            CompletionOpcode::Write if theirs.stage == Stage::Up && !is_inconclusive => {
                theirs.expect_write(&posted).map_err(named)?;
                theirs.release_target(&posted);
            }
            CompletionOpcode::Write => ours.unverified.push(UnverifiedWrite::of(&posted)),
            _ => {}
        }
        Ok(())
    }

    fn flush(&mut self, side: usize, posted: Posted) -> Result<(), String> {
        let placement = self.plan.placement[side];
        let (ours, theirs) = self.pair(side);
        ours.send_failed = true;
        ours.release_sources(&posted);
        let wr_id = posted.wr_id;
        if matches!(
            posted.opcode,
            CompletionOpcode::Bind | CompletionOpcode::FastRegister | CompletionOpcode::Invalidate
        ) {
            ours.on_grant_request(&posted, false);
        }
        match (posted.opcode, &mut ours.memory) {
            (CompletionOpcode::Read, Some(memory)) => {
                let (target, offset) = (posted.target, posted.read_source_offset);
                let outcome = memory.sink.expect_partial(target, posted.pattern, offset, placement);
                memory.sink.release(posted.target);
                // Its request may still be on the way: the peer's stream has not ended.
                ours.pending_read_grants.extend(posted.grant);
                outcome.map_err(|fault| format!("flushed Read {wr_id}: {fault}"))
            }
            (CompletionOpcode::Write, _) if posted.placed => {
                theirs.release_target(&posted);
                Ok(())
            }
            (CompletionOpcode::Write, _) => {
                ours.unverified.push(UnverifiedWrite::of(&posted));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check_receive_completion(
        &mut self,
        side: usize,
        completion: &Completion,
    ) -> Result<CheckedCompletion, String> {
        let mut checked = CheckedCompletion::default();
        let provoked = self.expected_error_status(side);
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
                checked.succeeded += 1;
                checked.shared += u64::from(ours.app_srq.is_some());
                checked.bytes += message.len as u64;
                ours.expect_earlier_writes(theirs, &message)?;
            }
            status
                if status == CompletionStatus::FlushedInError
                    || (Some(status) == provoked && !ours.receive_failed) =>
            {
                // The first may hold the beginning of the message that was arriving; the others hold nothing new.
                let arriving = if ours.receive_failed { None } else { theirs.messages.front() };
                ours.receive_failed = true;
                checked.flushed += 1;
                ours.with_receive_memory(|landing| check_flushed_receive(landing, &receive, arriving))?;
            }
            status => return Err(format!("receive {} failed with {status:?}", receive.wr_id)),
        }
        Ok(checked)
    }

    /// Both sides are gone: everything that is left must be explained by what was under way.
    pub fn check_end(&mut self) -> Result<(), String> {
        self.check_terminates()?;
        for side in [0, 1] {
            if self.sides[side].context_dropped {
                self.check_unreported(side)?;
            }
        }
        for side in [0, 1] {
            let placement = self.plan.placement[1 - side];
            let (ours, theirs) = self.pair(side);
            for unverified in core::mem::take(&mut ours.unverified) {
                let Some(memory) = &mut theirs.memory else { continue };
                let outcome =
                    memory.shared.expect_partial(unverified.target, unverified.pattern, 0, placement);
                outcome.map_err(|fault| format!("side {side}, Write {}: {fault}", unverified.wr_id))?;
                theirs.release_written(unverified.target, unverified.grant);
            }
            core::mem::take(&mut ours.pending_read_grants).into_iter().for_each(|id| theirs.end_use(id));
        }
        self.release_credits();
        self.sides.iter_mut().try_for_each(Side::close_grants)?;
        for (number, side) in self.sides.iter_mut().enumerate() {
            let Some(mut memory) = side.memory.take() else { continue };
            memory.close().map_err(|fault| format!("side {number} at the end: {fault}"))?;
        }
        Ok(())
    }
}

impl Session {
    /// What a context that was dropped had posted may have been carried out, wholly, in part or not at all.
    fn check_unreported(&mut self, side: usize) -> Result<(), String> {
        while let Some(posted) = self.sides[side].sends.pop_front() {
            self.flush(side, posted)?;
        }
        let (ours, theirs) = self.pair(side);
        while let Some(receive) = ours.receives.pop_front() {
            let message = theirs.messages.pop_front();
            ours.with_receive_memory(|landing| check_flushed_receive(landing, &receive, message.as_ref()))?;
        }
        Ok(())
    }

    /// Messages that were never received need no shared receives any more.
    fn release_credits(&mut self) {
        let number = self.number;
        for side in [0, 1] {
            let (ours, theirs) = self.pair(side);
            let count = theirs.messages.drain(..).count();
            if let Some(app_srq) = ours.app_srq.take() {
                let mut app_srq = app_srq.borrow_mut();
                app_srq.unreserve(count);
                app_srq.end_exhaustion(number);
                app_srq.qp_count -= 1;
            }
        }
    }

    /// RFC 5040 s5.4: whoever finds an error says so once, and what was wrong. A side that has vanished tells nobody, and
    /// where payload is damaged anything may have been wrong.
    fn check_terminates(&self) -> Result<(), String> {
        let vanished = self.sides.iter().any(|side| side.context_dropped);
        if self.undetected_corruption || vanished || self.any_end_allowed {
            return Ok(());
        }
        if self.sides.iter().any(|side| side.bad_request_flushed) {
            return Err(format!(
                "{:?} was flushed, and nothing had ended the connection before",
                self.posted_bad_request
            ));
        }
        // What was sent when links did no harm cannot have been lost, however the connection ended.
        if self.terminate_missing && self.sides[1].terminated_on_clean_link {
            return Err(format!("{:?} is told to have been sent, and never came", self.attack_outcome));
        }
        let due = match (self.posted_bad_request, self.attack_outcome) {
            (Some((by, bad_request)), _) => Some(if bad_request.is_local() { by } else { 1 - by }),
            (None, Some(AttackOutcome::VictimTerminates(_))) => Some(1),
            _ => None,
        };
        let told = match (self.posted_bad_request, self.attack_outcome) {
            (Some(_), _) => due.map(|side| 1 - side),
            // What an attacker is told, it judges itself.
            (None, Some(AttackOutcome::VictimReports(_))) => Some(1),
            _ => None,
        };
        let told = told.filter(|side| !self.may_have_missed(*side));
        match due.into_iter().chain(told).find(|side| self.sides[*side].terminates != 1) {
            Some(side) => {
                let count = self.sides[side].terminates;
                let cause = (self.posted_bad_request, self.attack_outcome);
                Err(format!("side {side} was told of {count} Terminates after {cause:?}"))
            }
            None => Ok(()),
        }
    }

    /// Whether the peer's Terminate may have been lost on its way to a side: only with the connection, and while links
    /// did harm. An orderly end comes behind it, and a stack that resets before it has been heard has told nobody.
    fn may_have_missed(&self, side: usize) -> bool {
        self.sides[side].was_aborted && !self.sides[1 - side].terminated_on_clean_link
    }
}

impl Side {
    /// Whether the peer may still be waiting until all its cores know of a tag that a message of ours has ended: until
    /// then its TCP takes what comes behind the message, and its stream does not.
    fn may_stall_peer(&self, posted: &Posted) -> bool {
        self.messages.iter().any(|message| message.grant.is_some() && message.wr_id < posted.wr_id)
    }

    fn release_sources(&mut self, posted: &Posted) {
        if let Some(memory) = &mut self.memory {
            posted.sources.iter().for_each(|piece| memory.source.release(*piece));
        }
    }

    fn release_target(&mut self, posted: &Posted) {
        self.release_written(posted.target, posted.grant);
    }

    /// The peer's Write is in our memory.
    fn expect_write(&mut self, posted: &Posted) -> Result<(), String> {
        match &mut self.memory {
            Some(memory) => memory.shared.expect_pattern(posted.target, posted.pattern, 0),
            None => Ok(()),
        }
    }

    /// Whatever was written before a Send is in our memory when the Send is delivered (RFC 5040 s5.5).
    fn expect_earlier_writes(&mut self, theirs: &mut Side, message: &Message) -> Result<(), String> {
        let Some(memory) = &mut self.memory else { return Ok(()) };
        let named = |wr_id: u64| move |fault| format!("Write {wr_id} before a Send: {fault}");
        for posted in theirs.sends.iter_mut().take_while(|posted| posted.wr_id < message.wr_id) {
            if posted.opcode == CompletionOpcode::Write && !posted.placed {
                posted.placed = true;
                memory
                    .shared
                    .expect_pattern(posted.target, posted.pattern, 0)
                    .map_err(named(posted.wr_id))?;
            }
        }
        for unverified in theirs.unverified.extract_if(.., |unverified| unverified.wr_id < message.wr_id) {
            let Some(memory) = &mut self.memory else { break };
            memory
                .shared
                .expect_pattern(unverified.target, unverified.pattern, 0)
                .map_err(named(unverified.wr_id))?;
            self.release_written(unverified.target, unverified.grant);
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
        let ended = message.grant.and_then(|id| self.on_grant_invalidated(id));
        let told = completion.flags.contains(CompletionFlags::INVALIDATED).then_some(completion.invalidated);
        if told != ended {
            return Err(format!("message {} ends {ended:?} and is told to end {told:?}", message.wr_id));
        }
        if let Some(app_srq) = &self.app_srq {
            app_srq.borrow_mut().unreserve(1);
        }
        self.with_receive_memory(|landing| check_filled_receive(landing, receive, message))
    }

    /// The receive that a completion is about: the oldest of a queue's own, or any of a shared one.
    fn take_receive(&mut self, completion: &Completion) -> Result<Receive, String> {
        let wr_id = completion.wr_id;
        let found = match &self.app_srq {
            Some(app_srq) => app_srq.borrow_mut().take(wr_id),
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
    fn with_receive_memory(
        &mut self,
        check: impl FnOnce(&mut ShadowedRegion) -> Result<(), String>,
    ) -> Result<(), String> {
        match (&self.app_srq, &mut self.memory) {
            (Some(app_srq), _) => check(&mut app_srq.borrow_mut().landing),
            (None, Some(memory)) => check(&mut memory.landing),
            (None, None) => Ok(()),
        }
    }
}

/// A receive that holds a message, and nothing behind it.
fn check_filled_receive(
    landing: &mut ShadowedRegion,
    receive: &Receive,
    message: &Message,
) -> Result<(), String> {
    let mut offset = 0;
    for piece in &receive.pieces {
        let taken = piece.len.min(message.len - offset);
        let (filled, rest) = piece.split(taken);
        let named = |fault| format!("Send {} in receive {}: {fault}", message.wr_id, receive.wr_id);
        landing.expect_pattern(filled, message.pattern, offset).map_err(named)?;
        landing.verify(rest).map_err(named)?;
        landing.release(*piece);
        offset += taken;
    }
    Ok(())
}

/// A flushed receive: the first of them may hold the beginning of the message that was arriving.
fn check_flushed_receive(
    landing: &mut ShadowedRegion,
    receive: &Receive,
    arriving: Option<&Message>,
) -> Result<(), String> {
    let mut offset = 0;
    for piece in &receive.pieces {
        let named = |fault| format!("flushed receive {}: {fault}", receive.wr_id);
        if let Some(message) = arriving {
            let taken = piece.len.min(message.len - offset);
            let (touched, rest) = piece.split(taken);
            // Untagged segments wait for their turn on every host.
            landing.expect_partial(touched, message.pattern, offset, Placement::InOrder).map_err(named)?;
            landing.verify(rest).map_err(named)?;
            offset += taken;
        } else {
            landing.verify(*piece).map_err(named)?;
        }
        landing.release(*piece);
    }
    Ok(())
}

impl UnverifiedWrite {
    fn of(posted: &Posted) -> Self {
        UnverifiedWrite {
            wr_id: posted.wr_id,
            target: posted.target,
            pattern: posted.pattern,
            grant: posted.grant,
        }
    }
}

impl SideMemory {
    fn close(&mut self) -> Result<(), String> {
        self.shared.verify(self.read_source).map_err(|fault| format!("the library: {fault}"))?;
        self.shared.release(self.read_source);
        let memory =
            [&mut self.source, &mut self.landing, &mut self.sink, &mut self.shared, &mut self.foreign];
        for (shadowed_region, name) in
            memory.into_iter().zip(["source", "landing", "sink", "shared", "vault"])
        {
            shadowed_region.close().map_err(|fault| format!("{name}: {fault}"))?;
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
