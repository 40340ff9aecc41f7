//! The server's own work: it observes its words, executes local operations on them, and invalidates their tags.
//!
//! Its own operations form one history stream per cache line, because they are ordered per cache line. An invalidation
//! takes effect at once: a request by the tag has taken effect by then, or never does.

use std::collections::BTreeMap;

use ironwarp::{AtomicOp, Completion, CompletionOpcode, CompletionStatus, VerbsError};
use ironwarp_types::Nanos;

use super::post::{ignore_queue_full, operation};
use super::{AtomicsApp, QUIET_TIME, SERVER};
use crate::atomics::atomics_oracle::{AtomicsOracle, EndpointStage, NAMES};
use crate::atomics::history::OpKind;

/// State of the server's own work.
#[derive(Default)]
pub struct ServerState {
    /// The words at its last observation.
    observed: Vec<u64>,
    /// Its operations without a completion: each with its history stream and its index there.
    open: BTreeMap<u64, (CompletionOpcode, usize, usize)>,
    /// Number of its operations posted.
    posted: u32,
    /// History streams, indexed by cache line.
    stream_by_cache_line: BTreeMap<usize, usize>,
    /// The words' region was invalidated.
    page_revoked: bool,
    /// A tag that is invalidated soon, between two steps of the cores.
    due: Option<Revocation>,
}

/// What is invalidated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Revocation {
    /// One of a connection's tags.
    Name(usize, usize),
    /// The words' region, and every tag of it.
    Page,
}

/// Chance per core step, in a million, that a due invalidation happens.
const REVOKE_PPM: u32 = 250_000;

/// Chance per poll, in a million, that the server posts an operation of its own.
const LOCAL_OP_PPM: u32 = 300_000;

impl AtomicsApp {
    /// New operations start from the words' current values until a completion returns newer ones.
    pub(super) fn observe(&mut self) {
        let Some(word_memory) = &self.word_memory else { return };
        let words = word_memory.words();
        if self.server_state.observed != words {
            self.atomics_oracle.borrow_mut().latest.clone_from(&words);
            self.server_state.observed = words;
        }
    }

    /// Checks the history once every connection is over and a short time has passed.
    pub(super) fn check_history_at_end(&mut self, now: Nanos) {
        let Some(word_memory) = &self.word_memory else { return };
        if !self.atomics_oracle.borrow().is_over() {
            return;
        }
        if now < *self.over_at.get_or_insert(now) + QUIET_TIME {
            return;
        }
        if !self.server_state.open.is_empty() {
            let open = self.server_state.open.len();
            return self.report_failure(
                usize::MAX,
                &format!("{open} of the server's own operations never completed"),
            );
        }
        let outcome =
            word_memory.check().and_then(|()| self.atomics_oracle.borrow().check(&word_memory.words()));
        self.word_memory = None;
        let mut oracle = self.oracle.borrow_mut();
        oracle.open -= 1;
        match outcome {
            Ok(states) => oracle.totals.states = states as u64,
            Err(fault) => oracle.report_failure(usize::MAX, SERVER, &fault),
        }
    }

    /// Posts local operations and invalidates all tags, where planned.
    pub(super) fn run_local_ops(&mut self) {
        if self.word_memory.is_none() || self.atomics_oracle.borrow().is_over() {
            return;
        }
        let (local_ops, ends_after) = {
            let plan = &self.atomics_oracle.borrow().plan;
            (plan.local_ops, plan.page_revoked_after)
        };
        if self.server_state.posted < local_ops && self.rng.chance(LOCAL_OP_PPM) {
            for _ in 0..1 + self.rng.below(4).min((local_ops - self.server_state.posted - 1).into()) {
                if let Err(error) = self.post_local_op() {
                    self.report_failure(usize::MAX, &format!("an operation of the server failed: {error}"));
                }
            }
        }
        if ends_after
            .is_some_and(|after| !self.server_state.page_revoked && self.atomics_oracle.borrow().is_up(after))
        {
            self.server_state.due.get_or_insert(Revocation::Page);
        }
    }

    /// The server observes its words between any two steps of its cores. A due invalidation happens at such a moment,
    /// when one core may have a request pending at another core for that tag.
    pub(super) fn record_words(&mut self) {
        let Some(word_memory) = &self.word_memory else { return };
        self.atomics_oracle.borrow_mut().history.observe(self.stream, &word_memory.words());
        if self.server_state.due.is_none() || !self.rng.chance(REVOKE_PPM) {
            return;
        }
        match self.server_state.due.take() {
            Some(Revocation::Name(conn, name)) => self.revoke_name(conn, name),
            Some(Revocation::Page) => self.revoke_page(),
            None => {}
        }
    }

    /// Schedules the invalidation of one of a connection's tags.
    pub(super) fn schedule_revocation(&mut self, conn: usize, name: usize) {
        if !self.atomics_oracle.borrow().conns[conn].revoked_names[name] {
            self.server_state.due.get_or_insert(Revocation::Name(conn, name));
        }
    }

    fn post_local_op(&mut self) -> Result<(), VerbsError> {
        let Some(word_memory) = &self.word_memory else { return Ok(()) };
        let atomics_oracle = &mut *self.atomics_oracle.borrow_mut();
        let word = self.rng.below(atomics_oracle.plan.words as u64) as usize;
        let operation =
            operation(atomics_oracle.plan.values, atomics_oracle.latest[word], true, &mut self.rng);
        let wr_id = self.server_state.posted.into();
        if !ignore_queue_full(self.ctx.atomic(self.cq, wr_id, word_memory.word_location(word), &operation))? {
            return Ok(());
        }
        (self.server_state.posted, self.work) = (self.server_state.posted + 1, self.work + 1);
        let stream = *self
            .server_state
            .stream_by_cache_line
            .entry(word_memory.cache_line(word))
            .or_insert_with(|| atomics_oracle.history.new_stream());
        let op = atomics_oracle.history.invoke(stream, OpKind::Modify(word, operation), 0);
        if self.server_state.page_revoked {
            atomics_oracle.history.invoke_without_effect(stream);
        }
        self.server_state.open.insert(wr_id, (opcode_of(&operation), stream, op));
        Ok(())
    }

    /// One of the server's own operations has completed, or failed because its region was invalidated.
    pub(super) fn on_local_completion(&mut self, now: Nanos, completion: &Completion) {
        let what = [completion.opcode as u8, completion.status as u8, completion.wr_id as u8];
        self.oracle.borrow_mut().hash_event(now, usize::MAX, SERVER, &what);
        let known = self
            .server_state
            .open
            .remove(&completion.wr_id)
            .filter(|server_state| server_state.0 == completion.opcode);
        let atomics_oracle = &mut *self.atomics_oracle.borrow_mut();
        let outcome = match (known, completion.status, completion.original()) {
            (Some((_, stream, op)), CompletionStatus::Success, Some(original)) => {
                let op_record = &atomics_oracle.history.streams[stream][op];
                let (in_vain, (word, _)) =
                    (op_record.effect_deadline < op_record.invoked_at, op_record.kind.words());
                atomics_oracle.latest[word] = original;
                atomics_oracle.history.complete(stream, op, vec![original]);
                self.oracle.borrow_mut().totals.atomics += 1;
                !in_vain
            }
            (Some((_, stream, op)), CompletionStatus::LocalProtection, None) => {
                atomics_oracle.history.mark_without_effect(stream, op);
                self.server_state.page_revoked
            }
            _ => false,
        };
        if !outcome {
            self.report_failure(
                usize::MAX,
                &format!("an unexpected completion of a server operation: {completion:?}"),
            );
        }
    }

    /// Invalidates one of a connection's tags.
    fn revoke_name(&mut self, conn: usize, name: usize) {
        if self.atomics_oracle.borrow().conns[conn].endpoints[SERVER].stage != EndpointStage::Up {
            return;
        }
        let Some(names) = self.conn_qps.get(&conn).and_then(|conn_qp| conn_qp.names.as_ref()) else { return };
        // No core runs while this thread is here, so there is nothing to wait for.
        let token = if name == 1 { names.window.invalidate() } else { names.fast.invalidate() };
        drop(token);
        let atomics_oracle = &mut *self.atomics_oracle.borrow_mut();
        atomics_oracle.conns[conn].revoked_names[name] = true;
        atomics_oracle.history.end_name(atomics_oracle.conns[conn].stream, name);
    }

    /// Invalidates the words' region, and its windows and fast regions with it.
    fn revoke_page(&mut self) {
        let Some(word_memory) = &self.word_memory else { return };
        drop(word_memory.revoke());
        self.server_state.page_revoked = true;
        let atomics_oracle = &mut *self.atomics_oracle.borrow_mut();
        let conns = atomics_oracle.conns.iter_mut();
        conns.for_each(|conn| conn.revoked_names = [true; NAMES]);
        let streams = atomics_oracle.history.streams.len();
        // The server's observations go on: they need no tag.
        for stream in (0..streams).filter(|stream| *stream != self.stream) {
            (0..NAMES).for_each(|name| atomics_oracle.history.end_name(stream, name));
        }
    }
}

impl AtomicsOracle {
    /// Returns whether every connection is established or over, and this many requests have been posted.
    fn is_up(&self, after: u32) -> bool {
        let is_up = |stage: &[EndpointStage; 2]| *stage == [EndpointStage::Up; 2];
        let all = self.conns.iter().all(|conn| {
            conn.is_over
                || is_up(&[conn.endpoints[0].stage, conn.endpoints[1].stage]) && !conn.names.is_empty()
        });
        all && self.conns.iter().map(|conn| conn.endpoints[0].posted_count).sum::<u32>() >= after
    }
}

fn opcode_of(operation: &AtomicOp) -> CompletionOpcode {
    match operation {
        AtomicOp::FetchAdd { .. } => CompletionOpcode::FetchAdd,
        AtomicOp::CmpSwap { .. } => CompletionOpcode::CmpSwap,
        AtomicOp::Swap { .. } => CompletionOpcode::Swap,
    }
}
