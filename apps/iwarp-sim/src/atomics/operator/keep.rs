//! What the keeper does beside answering: it looks at its words, changes them itself, and ends their names.
//!
//! Its own operations are a stream of the history for each cache line, since that is the order they promise to be done in.
//! A name ends at once: what was asked by it has taken effect by then, or never does.

use std::collections::BTreeMap;

use ironwarp::{AtomicOp, Completion, CompletionOpcode, CompletionStatus, VerbsError};
use ironwarp_types::Nanos;

use super::post::{operation, taken};
use super::{KEEPER, Operator, REST};
use crate::atomics::desk::{Desk, NAMES, Stage};
use crate::atomics::history::Act;

/// What the keeper does beside keeping.
#[derive(Default)]
pub struct Own {
    /// What the words were at its last look.
    observed: Vec<u64>,
    /// Its operations without a completion: what each is, its stream of the history and its place there.
    open: BTreeMap<u64, (CompletionOpcode, usize, usize)>,
    /// How many it has posted.
    posted: u32,
    /// Streams of the history, by cache line.
    lines: BTreeMap<usize, usize>,
    /// The words' region has ended.
    page_has_ended: bool,
    /// A name that ends soon, in the middle of whatever the cores do.
    due: Option<End>,
}

/// What ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// One of a connection's names.
    Name(usize, usize),
    /// The words' region, and every name with it.
    Page,
}

/// Steps of a core in a million behind which what is due to end does.
const END_PPM: u32 = 250_000;

/// Looks in a million at which the keeper posts operations of its own.
const OWN_PPM: u32 = 300_000;

impl Operator {
    /// What the words are now is what operations are made of, until an answer says more.
    pub(super) fn observe(&mut self) {
        let Some(store) = &self.store else { return };
        let words = store.words();
        if self.own.observed != words {
            self.desk.borrow_mut().latest.clone_from(&words);
            self.own.observed = words;
        }
    }

    /// Once every connection is over and a little time has passed, the history must be one that can be.
    pub(super) fn conclude(&mut self, now: Nanos) {
        let Some(store) = &self.store else { return };
        if !self.desk.borrow().is_over() {
            return;
        }
        if now < *self.over_at.get_or_insert(now) + REST {
            return;
        }
        if !self.own.open.is_empty() {
            let open = self.own.open.len();
            return self.blame(usize::MAX, &format!("{open} operations of the keeper's own never completed"));
        }
        let outcome = store.check().and_then(|()| self.desk.borrow().check(&store.words()));
        self.store = None;
        let mut ledger = self.ledger.borrow_mut();
        ledger.open -= 1;
        match outcome {
            Ok(states) => ledger.totals.states = states as u64,
            Err(fault) => ledger.blame(usize::MAX, KEEPER, &fault),
        }
    }

    /// Operations of its own, and the end of every name, where they are planned.
    pub(super) fn act(&mut self) {
        if self.store.is_none() || self.desk.borrow().is_over() {
            return;
        }
        let (locals, ends_after) = {
            let plan = &self.desk.borrow().plan;
            (plan.locals, plan.page_ends_after)
        };
        if self.own.posted < locals && self.dice.chance(OWN_PPM) {
            for _ in 0..1 + self.dice.below(4).min((locals - self.own.posted - 1).into()) {
                if let Err(error) = self.post_own() {
                    self.blame(usize::MAX, &format!("an operation of the keeper's own: {error}"));
                }
            }
        }
        if ends_after.is_some_and(|after| !self.own.page_has_ended && self.desk.borrow().is_up(after)) {
            self.own.due.get_or_insert(End::Page);
        }
    }

    /// The keeper sees what its words are, between any two steps of its cores. A name that is due ends at such a moment,
    /// when one core may have asked another for what it names.
    pub(super) fn see(&mut self) {
        let Some(store) = &self.store else { return };
        self.desk.borrow_mut().history.see(self.stream, &store.words());
        if self.own.due.is_none() || !self.dice.chance(END_PPM) {
            return;
        }
        match self.own.due.take() {
            Some(End::Name(call, name)) => self.end_name(call, name),
            Some(End::Page) => self.end_page(),
            None => {}
        }
    }

    /// One of a connection's names is to end.
    pub(super) fn let_end(&mut self, call: usize, name: usize) {
        if !self.desk.borrow().calls[call].ended_names[name] {
            self.own.due.get_or_insert(End::Name(call, name));
        }
    }

    fn post_own(&mut self) -> Result<(), VerbsError> {
        let Some(store) = &self.store else { return Ok(()) };
        let desk = &mut *self.desk.borrow_mut();
        let word = self.dice.below(desk.plan.words as u64) as usize;
        let operation = operation(desk.plan.values, desk.latest[word], true, &mut self.dice);
        let wr_id = self.own.posted.into();
        if !taken(self.ctx.atomic(self.cq, wr_id, store.place(word), &operation))? {
            return Ok(());
        }
        (self.own.posted, self.work) = (self.own.posted + 1, self.work + 1);
        let stream = *self.own.lines.entry(store.line(word)).or_insert_with(|| desk.history.begin());
        let op = desk.history.ask(stream, Act::Change(word, operation), 0);
        if self.own.page_has_ended {
            desk.history.ask_in_vain(stream);
        }
        self.own.open.insert(wr_id, (opcode_of(&operation), stream, op));
        Ok(())
    }

    /// One of the keeper's own operations has been done, or refused because its region has ended.
    pub(super) fn settle_own(&mut self, now: Nanos, completion: &Completion) {
        let what = [completion.opcode as u8, completion.status as u8, completion.wr_id as u8];
        self.ledger.borrow_mut().note(now, usize::MAX, KEEPER, &what);
        let known = self.own.open.remove(&completion.wr_id).filter(|own| own.0 == completion.opcode);
        let desk = &mut *self.desk.borrow_mut();
        let outcome = match (known, completion.status, completion.original()) {
            (Some((_, stream, op)), CompletionStatus::Success, Some(original)) => {
                let asked = &desk.history.streams[stream][op];
                let (in_vain, (word, _)) = (asked.until < asked.asked, asked.act.words());
                desk.latest[word] = original;
                desk.history.answer(stream, op, vec![original]);
                self.ledger.borrow_mut().totals.atomics += 1;
                !in_vain
            }
            (Some((_, stream, op)), CompletionStatus::LocalProtection, None) => {
                desk.history.refuse(stream, op);
                self.own.page_has_ended
            }
            _ => false,
        };
        if !outcome {
            self.blame(usize::MAX, &format!("of the keeper's own operations: {completion:?}"));
        }
    }

    /// One of a connection's names ends.
    fn end_name(&mut self, call: usize, name: usize) {
        if self.desk.borrow().calls[call].ends[KEEPER].stage != Stage::Up {
            return;
        }
        let Some(names) = self.lines.get(&call).and_then(|line| line.names.as_ref()) else { return };
        // Nobody else is in the middle of anything while this thread is here, so nothing need be waited for.
        let token = if name == 1 { names.window.invalidate() } else { names.fast.invalidate() };
        drop(token);
        let desk = &mut *self.desk.borrow_mut();
        desk.calls[call].ended_names[name] = true;
        desk.history.end_name(desk.calls[call].stream, name);
    }

    /// The words' region ends under everybody: windows and fast regions end with it.
    fn end_page(&mut self) {
        let Some(store) = &self.store else { return };
        drop(store.end());
        self.own.page_has_ended = true;
        let desk = &mut *self.desk.borrow_mut();
        let calls = desk.calls.iter_mut();
        calls.for_each(|call| call.ended_names = [true; NAMES]);
        let streams = desk.history.streams.len();
        // The keeper's looks go on: they need no name.
        for stream in (0..streams).filter(|stream| *stream != self.stream) {
            (0..NAMES).for_each(|name| desk.history.end_name(stream, name));
        }
    }
}

impl Desk {
    /// Whether every connection is up or over, and so many requests have been posted.
    fn is_up(&self, after: u32) -> bool {
        let is_up = |stage: &[Stage; 2]| *stage == [Stage::Up; 2];
        let all = self.calls.iter().all(|call| {
            call.is_over || is_up(&[call.ends[0].stage, call.ends[1].stage]) && !call.names.is_empty()
        });
        all && self.calls.iter().map(|call| call.ends[0].asked).sum::<u32>() >= after
    }
}

fn opcode_of(operation: &AtomicOp) -> CompletionOpcode {
    match operation {
        AtomicOp::FetchAdd { .. } => CompletionOpcode::FetchAdd,
        AtomicOp::CmpSwap { .. } => CompletionOpcode::CmpSwap,
        AtomicOp::Swap { .. } => CompletionOpcode::Swap,
    }
}
