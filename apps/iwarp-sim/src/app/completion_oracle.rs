//! Checks each completion: its order, its number, its length, and every byte of the memory it
//! covers.

use ironwarp::{Completion, CompletionFlags, CompletionOpcode, CompletionStatus};

use crate::atomics::Words;
use crate::plan::{BadRequest, Placement};

use super::memory::ShadowedRegion;
use super::oracle::{Session, Totals};
use super::side::{Message, Posted, Receive, Side, Stage, UnverifiedWrite};

impl Session {
    /// Checks a completion of one side. Returns what it covered: requests, unsignaled ones
    /// included, bytes that were compared, messages.
    pub fn check_completion(
        &mut self,
        side: usize,
        completion: &Completion,
        words: Option<&mut Words>,
    ) -> Result<Totals, String> {
        match completion.opcode {
            CompletionOpcode::Receive | CompletionOpcode::ReceiveImmediate => {
                self.check_receive_completion(side, completion)
            }
            _ => self.check_send_completion(side, completion, words),
        }
    }

    fn check_send_completion(
        &mut self,
        side: usize,
        completion: &Completion,
        mut words: Option<&mut Words>,
    ) -> Result<Totals, String> {
        let mut checked = Totals::default();
        loop {
            let Some(posted) = self.sides[side].sends.pop_front() else {
                return Err(format!("a completion without a posted request: {completion:?}"));
            };
            if posted.wr_id == completion.wr_id {
                self.check_posted(side, posted, completion, &mut checked, words)?;
                return Ok(checked);
            }
            // Unsignaled requests that succeeded have no completion of their own.
            if posted.signaled {
                return Err(format!("request {} was skipped by {completion:?}", posted.wr_id));
            }
            // The next may be reported by the one after it in turn: a list that did not fit was cut
            // between the two.
            let before = |next: &&Posted| next.wr_id != completion.wr_id;
            let mut between = self.sides[side].sends.iter().take_while(before);
            let is_reported = posted.is_reported_by_next && between.all(|next| next.is_reported_by_next);
            if is_reported && completion.status != CompletionStatus::Success {
                self.flush(side, posted)?;
                continue;
            }
            self.succeed(side, posted, &mut checked, words.as_deref_mut())?;
        }
    }

    /// Checks that unsignaled requests without a completion succeeded: a failure always has a
    /// completion.
    pub fn complete_unsignaled(
        &mut self,
        side: usize,
        mut words: Option<&mut Words>,
    ) -> Result<Totals, String> {
        let mut checked = Totals::default();
        while let Some(posted) = self.sides[side].sends.pop_front() {
            if posted.signaled {
                return Err(format!("request {} never completed", posted.wr_id));
            }
            self.succeed(side, posted, &mut checked, words.as_deref_mut())?;
        }
        Ok(checked)
    }

    fn check_posted(
        &mut self,
        side: usize,
        posted: Posted,
        completion: &Completion,
        checked: &mut Totals,
        words: Option<&mut Words>,
    ) -> Result<(), String> {
        if posted.opcode != completion.opcode {
            return Err(format!("request {} was a {:?}: {completion:?}", posted.wr_id, posted.opcode));
        }
        if let Some(bad_request) = posted.bad_request {
            return self.check_bad_request(side, posted, bad_request, completion, checked);
        }
        match completion.status {
            CompletionStatus::Success if !posted.signaled => {
                Err(format!("an unsignaled request has a success completion: {completion:?}"))
            }
            CompletionStatus::Success if completion.byte_len as usize != posted.len => {
                Err(format!("the request was of {} bytes: {completion:?}", posted.len))
            }
            CompletionStatus::Success => self.succeed(side, posted, checked, words),
            CompletionStatus::FlushedInError => {
                checked.flushed += 1;
                self.flush(side, posted)
            }
            status => Err(format!("request {} failed with {status:?}", posted.wr_id)),
        }
    }

    /// A Write or Send that the peer rejects may have been acknowledged by the peer's TCP before.
    /// All other bad requests must fail.
    fn check_bad_request(
        &mut self,
        side: usize,
        posted: Posted,
        bad_request: BadRequest,
        completion: &Completion,
        checked: &mut Totals,
    ) -> Result<(), String> {
        let is_answered = posted.opcode == CompletionOpcode::Read || posted.reads_words();
        let may_succeed = !bad_request.is_local() && !is_answered;
        match completion.status {
            CompletionStatus::Success if may_succeed => {
                self.sides[side].release_sources(&posted);
                Ok(())
            }
            CompletionStatus::Success => Err(format!("{bad_request:?} succeeded")),
            // A side's own error has its own status. An error that the peer detects only flushes
            // the request.
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
        checked: &mut Totals,
        words: Option<&mut Words>,
    ) -> Result<(), String> {
        if posted.publishes_words {
            self.words.publish();
        }
        // After a bad request, the peer's TCP acknowledges what its stream discards.
        let is_inconclusive = self.plan.complete_on_copy
            || self.undetected_corruption
            || self.posted_bad_request.is_some()
            || self.attack_outcome.is_some();
        let several_cores = self.plan.cores[1 - side] > 1;
        let (_, of_session, [ours, theirs]) = self.split(side);
        let is_inconclusive = is_inconclusive || (several_cores && ours.may_stall_peer(&posted));
        if ours.send_failed {
            return Err(format!("request {} succeeded after one that failed", posted.wr_id));
        }
        checked.succeeded += 1;
        checked.bytes += posted.len as u64;
        let wr_id = posted.wr_id;
        let named = |fault: String| format!("{:?} {wr_id}: {fault}", posted.opcode);
        ours.release_sources(&posted);
        if let (Some(op), Some(words), Some(memory)) = (posted.word_op, words, &mut ours.memory) {
            checked.atomics += 1;
            let seen = memory.sink.take(posted.target);
            memory.sink.release(posted.target);
            return words.complete(of_session, op, &seen);
        }
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
            // The peer's TCP has the bytes. While the peer's stream runs, the peer's memory has
            // them too.
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
            // Whether it has taken effect is not known.
            (_, Some(memory)) if posted.reads_words() => {
                memory.sink.take(posted.target);
                memory.sink.release(posted.target);
                Ok(())
            }
            (CompletionOpcode::Read, Some(memory)) => {
                let (target, offset) = (posted.target, posted.read_source_offset);
                let outcome = memory.sink.expect_partial(target, posted.pattern, offset, placement);
                memory.sink.release(posted.target);
                // The Read Request may still be in flight: the peer's stream has not ended.
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

    fn check_receive_completion(&mut self, side: usize, completion: &Completion) -> Result<Totals, String> {
        let mut checked = Totals::default();
        let provoked = self.expected_error_status(side);
        let is_on_words = self.plan.words.is_some();
        let (ours, theirs) = self.pair(side);
        let receive = ours.take_receive(completion)?;
        match completion.status {
            CompletionStatus::Success if ours.receive_failed => {
                return Err(format!("receive {} succeeded after one that failed", receive.wr_id));
            }
            CompletionStatus::Success => {
                let Some(message) = theirs.messages.pop_front() else {
                    return Err(format!("a completion of a message that was not sent: {completion:?}"));
                };
                ours.take_message(&receive, &message, completion)?;
                checked.succeeded += 1;
                checked.shared += u64::from(ours.app_srq.is_some());
                checked.messages += u64::from(is_on_words);
                checked.bytes += message.len as u64;
                ours.expect_earlier_writes(theirs, &message)?;
            }
            status
                if status == CompletionStatus::FlushedInError
                    || (Some(status) == provoked && !ours.receive_failed) =>
            {
                // The first flushed receive may hold the beginning of the message that was
                // arriving. The others hold nothing new.
                let arriving = if ours.receive_failed { None } else { theirs.messages.front() };
                ours.receive_failed = true;
                checked.flushed += 1;
                ours.with_receive_memory(|landing| check_flushed_receive(landing, &receive, arriving))?;
            }
            status => return Err(format!("receive {} failed with {status:?}", receive.wr_id)),
        }
        Ok(checked)
    }

    /// Both sides have ended: everything left must be explained by operations that were in flight.
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
        self.words.release();
        self.sides.iter_mut().try_for_each(Side::close_grants)?;
        for (number, side) in self.sides.iter_mut().enumerate() {
            let Some(mut memory) = side.memory.take() else { continue };
            memory.close().map_err(|fault| format!("side {number} at the end: {fault}"))?;
        }
        Ok(())
    }
}

impl Session {
    /// What a dropped context had posted may have been executed fully, partly or not at all.
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

    /// Returns the shared receives that were reserved for messages which never arrived.
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
}

impl Side {
    /// Returns whether the peer's stream may still wait until all its cores have seen the
    /// invalidation of a tag by one of our messages. Until then the peer's TCP takes the bytes
    /// after that message, and its stream does not.
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

    /// Expects the peer's Write in our memory.
    fn expect_write(&mut self, posted: &Posted) -> Result<(), String> {
        match &mut self.memory {
            Some(memory) => memory.shared.expect_pattern(posted.target, posted.pattern, 0),
            None => Ok(()),
        }
    }

    /// RFC 5040 s5.5: every Write before a Send is in memory when the Send is delivered.
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
            return Err(format!(
                "message {} has the wrong solicited flag, expected {}",
                message.wr_id, message.solicited
            ));
        }
        let ended = message.grant.and_then(|id| self.on_grant_invalidated(id));
        let reported =
            completion.flags.contains(CompletionFlags::INVALIDATED).then_some(completion.invalidated);
        if reported != ended {
            return Err(format!(
                "message {} invalidates {ended:?}, but its completion names {reported:?}",
                message.wr_id
            ));
        }
        if let Some(app_srq) = &self.app_srq {
            app_srq.borrow_mut().unreserve(1);
        }
        // RFC 7306 s6: Immediate Data is in the completion, and the receive's memory is unchanged.
        let mut octets = [0; 8];
        if message.immediate {
            message.pattern.fill(0, &mut octets);
        }
        let is_immediate = completion.opcode == CompletionOpcode::ReceiveImmediate;
        if (is_immediate, completion.immediate) != (message.immediate, octets) {
            return Err(format!(
                "message {}, immediate {}: {completion:?}",
                message.wr_id, message.immediate
            ));
        }
        let placed = Message { len: if is_immediate { 0 } else { message.len }, ..*message };
        self.with_receive_memory(|landing| check_filled_receive(landing, receive, &placed))
    }

    /// The receive that a completion names: the oldest of the queue pair's own, or any of a shared
    /// queue.
    fn take_receive(&mut self, completion: &Completion) -> Result<Receive, String> {
        let wr_id = completion.wr_id;
        let found = match &self.app_srq {
            Some(app_srq) => app_srq.borrow_mut().take(wr_id),
            None => self.receives.pop_front(),
        };
        let found = found.ok_or_else(|| format!("a completion without a posted request: {completion:?}"))?;
        if found.wr_id == wr_id {
            return Ok(found);
        }
        Err(format!("receive {} was skipped by {completion:?}", found.wr_id))
    }

    /// Gives access to the memory of this side's receives.
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

/// Checks that a receive holds its message and that the bytes after it are unchanged.
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

/// Checks a flushed receive. The first flushed one may hold the beginning of the message that was
/// arriving.
fn check_flushed_receive(
    landing: &mut ShadowedRegion,
    receive: &Receive,
    arriving: Option<&Message>,
) -> Result<(), String> {
    let mut offset = 0;
    for piece in &receive.pieces {
        let named = |fault| format!("flushed receive {}: {fault}", receive.wr_id);
        if let Some(message) = arriving {
            let len = if message.immediate { 0 } else { message.len };
            let taken = piece.len.min(len - offset);
            let (touched, rest) = piece.split(taken);
            // Every host places untagged segments in order.
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
