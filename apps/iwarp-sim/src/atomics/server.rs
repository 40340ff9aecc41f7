//! The server's own work: it observes its words, executes local operations on them, and invalidates
//! their tags.
//!
//! Its own operations form one history stream per cache line, because they are ordered per cache
//! line. An invalidation takes effect at once: a request by the tag has taken effect by then, or
//! never does.

use std::collections::BTreeMap;

use ironwarp::{
    Completion, CompletionOpcode, CompletionQueue, CompletionStatus, Context, ProtectionDomain, VerbsError,
};
use ironwarp_types::{Nanos, SeededEntropy};

use super::history::OpKind;
use super::word_memory::WordMemory;
use super::{NAMES, Words, checker, opcode_of};
use crate::app::{Oracle, Session, Stage, ignore_queue_full};
use crate::plan::AtomicsPlan;

/// The words' memory and the server's own work on them.
pub struct WordServer {
    pub memory: WordMemory,
    /// The history stream of its observations.
    stream: usize,
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
    over_at: Option<Nanos>,
}

/// What is invalidated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Revocation {
    /// One of a session's tags.
    Name(usize, usize),
    /// The words' region, and every tag of it.
    Page,
}

/// Chance per core step, in a million, that a due invalidation happens.
const REVOKE_PPM: u32 = 250_000;

/// Chance per poll, in a million, that the server posts an operation of its own.
const LOCAL_OP_PPM: u32 = 300_000;

/// Time between the end of the last session and the server's last check.
const QUIET_TIME: Nanos = Nanos::from_millis(20);

impl WordServer {
    pub fn new(ctx: &Context, pd: ProtectionDomain, words: &mut Words) -> Result<Self, VerbsError> {
        Ok(WordServer {
            memory: WordMemory::new(ctx, pd, &words.plan)?,
            stream: words.history.new_stream(),
            observed: Vec::new(),
            open: BTreeMap::new(),
            posted: 0,
            stream_by_cache_line: BTreeMap::new(),
            page_revoked: false,
            due: None,
            over_at: None,
        })
    }

    /// New operations start from the words' current values until a completion returns newer ones.
    pub fn observe(&mut self, words: &mut Words) {
        let observed = self.memory.words();
        if self.observed != observed {
            words.latest.clone_from(&observed);
            self.observed = observed;
        }
    }

    /// Checks the history once every session is over and a short time has passed. Returns how many
    /// states it visited.
    pub fn check_at_end(&mut self, now: Nanos, words: &Words) -> Option<Result<usize, String>> {
        if now < *self.over_at.get_or_insert(now) + QUIET_TIME {
            return None;
        }
        if !self.open.is_empty() {
            let open = self.open.len();
            return Some(Err(format!("{open} of the server's own operations never completed")));
        }
        let outcome = self.memory.check();
        Some(outcome.and_then(|()| checker::check(&words.history, &self.memory.words())))
    }

    /// Posts local operations and invalidates all tags, where planned. Returns the number of
    /// operations.
    pub fn run_local_ops(
        &mut self,
        oracle: &mut Oracle,
        (ctx, cq): (&mut Context, CompletionQueue),
        rng: &mut SeededEntropy,
    ) -> Result<u32, VerbsError> {
        let before = self.posted;
        let Some(words) = &mut oracle.words else { return Ok(0) };
        let AtomicsPlan { local_ops, page_revoked_after, .. } = words.plan;
        if self.posted < local_ops && rng.chance(LOCAL_OP_PPM) {
            for _ in 0..1 + rng.below(4).min((local_ops - self.posted - 1).into()) {
                self.post_local_op(words, ctx, cq, rng)?;
            }
        }
        let posted: u64 = oracle.sessions.iter().map(|session| session.sides[0].posted).sum();
        let is_up = || oracle.sessions.iter().all(Session::has_words);
        if page_revoked_after.is_some_and(|after| posted >= after.into()) && !self.page_revoked && is_up() {
            self.due.get_or_insert(Revocation::Page);
        }
        Ok(self.posted - before)
    }

    fn post_local_op(
        &mut self,
        words: &mut Words,
        ctx: &mut Context,
        cq: CompletionQueue,
        rng: &mut SeededEntropy,
    ) -> Result<(), VerbsError> {
        let word = rng.below(words.plan.words as u64) as usize;
        let operation = words.operation(word, true, rng);
        let wr_id = self.posted.into();
        match ctx.atomic(cq, wr_id, self.memory.word_location(word), &operation) {
            Ok(()) => {}
            Err(VerbsError::CqFull | VerbsError::WrongState(_)) => return Ok(()),
            Err(VerbsError::Post(error)) => return ignore_queue_full(error).map(|_| ()),
            Err(error) => return Err(error),
        }
        self.posted += 1;
        let stream = *self
            .stream_by_cache_line
            .entry(self.memory.cache_line(word))
            .or_insert_with(|| words.history.new_stream());
        let op = words.history.invoke(stream, OpKind::Modify(word, operation), 0);
        if self.page_revoked {
            words.history.mark_without_effect(stream, op);
        }
        self.open.insert(wr_id, (opcode_of(&operation), stream, op));
        Ok(())
    }

    /// One of the server's own operations has completed, or failed because its region was
    /// invalidated.
    pub fn on_local_completion(&mut self, completion: &Completion, words: &mut Words) -> Result<(), String> {
        let known = self.open.remove(&completion.wr_id).filter(|known| known.0 == completion.opcode);
        let is_right = match (known, completion.status, completion.original()) {
            (Some((_, stream, op)), CompletionStatus::Success, Some(original)) => {
                let record = &words.history.streams[stream][op];
                let (in_vain, (word, _)) = (record.effect_deadline < record.invoked_at, record.kind.words());
                words.latest[word] = original;
                words.history.complete(stream, op, vec![original]);
                !in_vain
            }
            (Some((_, stream, op)), CompletionStatus::LocalProtection, None) => {
                words.history.mark_without_effect(stream, op);
                self.page_revoked
            }
            _ => false,
        };
        let fault = || format!("an unexpected completion of a server operation: {completion:?}");
        if is_right { Ok(()) } else { Err(fault()) }
    }

    /// Schedules the invalidation of one of a session's tags, when it is due and the client waits
    /// for a request.
    pub fn revoke_if_due(&mut self, session: &Session) {
        let Some((after, name)) = session.plan.words.as_ref().and_then(|mix| mix.revoked) else { return };
        let client = &session.sides[0];
        let is_up = session.sides.iter().all(|side| side.stage == Stage::Up);
        let is_busy = client.sends.iter().any(|posted| posted.signaled);
        if is_up && client.posted >= after && is_busy && !session.words.revoked[name] {
            self.due.get_or_insert(Revocation::Name(session.number, name));
        }
    }

    /// The server observes its words between any two steps of its cores. A due invalidation happens
    /// at such a moment, when one core may have a request pending at another core for that tag.
    pub fn on_core_polled(&mut self, oracle: &mut Oracle, rng: &mut SeededEntropy) {
        let Some(words) = &mut oracle.words else { return };
        words.history.observe(self.stream, &self.memory.words());
        if self.due.is_none() || !rng.chance(REVOKE_PPM) {
            return;
        }
        match self.due.take() {
            Some(Revocation::Name(number, name)) => revoke_name(&mut oracle.sessions[number], name, words),
            Some(Revocation::Page) => self.revoke_page(&mut oracle.sessions, words),
            None => {}
        }
    }

    /// Invalidates the words' region, and its windows and fast regions with it.
    fn revoke_page(&mut self, sessions: &mut [Session], words: &mut Words) {
        drop(self.memory.revoke());
        self.page_revoked = true;
        sessions.iter_mut().for_each(|session| session.words.revoked = [true; NAMES]);
        // The server's observations go on: they need no tag.
        for stream in (0..words.history.streams.len()).filter(|stream| *stream != self.stream) {
            (0..NAMES).for_each(|name| words.history.end_name(stream, name));
        }
    }
}

/// Invalidates one of a session's tags.
fn revoke_name(session: &mut Session, name: usize, words: &mut Words) {
    let is_up = session.sides[1].stage == Stage::Up;
    let Some(tags) = session.words.tags.as_ref().filter(|_| is_up) else { return };
    tags[name - 1].invalidate();
    session.words.revoked[name] = true;
    if let Some(stream) = session.words.stream {
        words.history.end_name(stream, name);
    }
}
