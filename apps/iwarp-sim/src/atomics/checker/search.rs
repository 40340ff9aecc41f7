//! The search for an order of effects.
//!
//! A state is how far each stream has advanced and the value of each word; none is visited twice.
//! Stream order keeps states few: only the first pending operation of each stream can be next. A
//! completed operation that changes nothing is taken as soon as it matches, which never hurts. The
//! search continues from the state with the fewest results left. An effect that no operation has
//! read yet costs several results. So an operation without a result is tried where another one
//! needs it, one before two, and rarely as a long chain of unread effects.

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Case, Item, observations};
use crate::atomics::history::{NEVER, Op, OpKind};

/// Most states that a search visits.
const STATES_MAX: usize = 1_000_000;

/// Cost of an effect that no operation has read yet, in results.
const UNOBSERVED_COST: usize = 4;

/// The result of a search, each variant with the number of states visited.
pub enum SearchResult {
    /// Indices into the history, in the order of their effects.
    Order(Vec<(usize, usize)>, usize),
    /// Every state was visited without success; how far the search got.
    Nothing(String, usize),
    /// The bound was reached.
    Undecided(String, usize),
}

pub struct Search<'a> {
    case: &'a Case<'a>,
    /// Whether values are assumed never to recur.
    strict: bool,
    /// For each word and value, the streams that read it, and the last operation of each that does.
    observations: BTreeMap<(usize, u64), Vec<(usize, usize)>>,
    /// For each word, the streams that change it without a result, and the last operation of each
    /// that does.
    unreturned: Vec<Vec<(usize, usize)>>,
    /// For each stream and index, the earliest deadline of the completed operations from there on.
    latest: Vec<Vec<u64>>,
    /// For each stream, the indices of operations without a result but with a deadline, and the
    /// deadline.
    deadlines: Vec<Vec<(usize, u64)>>,
    /// The origin of each state: its parent, and the number of steps of each stream.
    nodes: Vec<Node>,
    steps: Vec<u16>,
    /// The states themselves, adjacent.
    nexts: Vec<u16>,
    words: Vec<u64>,
    unobserved: Vec<u16>,
    /// States to continue from: the lowest cost first, and the latest of equal cost.
    open: BinaryHeap<(std::cmp::Reverse<usize>, usize)>,
    /// Visited states, and the cost of the cheapest path to each.
    visited: HashMap<u64, usize>,
    deepest: usize,
}

struct Node {
    parent: usize,
    /// Index of its first step after its parent.
    steps: usize,
    /// Completed operations that have not taken effect.
    left: usize,
}

/// A state in its working form.
#[derive(Clone)]
struct SearchState {
    next: Vec<u16>,
    words: Vec<u64>,
    /// For each word, changes without a result that no operation has read.
    unobserved: Vec<u16>,
    left: usize,
    /// Steps since the parent state.
    steps: Vec<u16>,
}

impl SearchResult {
    pub fn states(&self) -> usize {
        match self {
            SearchResult::Order(_, states)
            | SearchResult::Nothing(_, states)
            | SearchResult::Undecided(_, states) => *states,
        }
    }
}

impl<'a> Search<'a> {
    pub fn new(case: &'a Case<'a>, strict: bool) -> Self {
        let mut search = Search {
            case,
            strict,
            observations: BTreeMap::new(),
            unreturned: vec![Vec::new(); case.words],
            latest: case.streams.iter().map(|items| latest(items)).collect(),
            deadlines: case.streams.iter().map(|items| deadlines(items)).collect(),
            nodes: Vec::new(),
            steps: Vec::new(),
            nexts: Vec::new(),
            words: Vec::new(),
            unobserved: Vec::new(),
            open: BinaryHeap::new(),
            visited: HashMap::new(),
            deepest: 0,
        };
        for (stream, items) in case.streams.iter().enumerate() {
            for (at, item) in items.iter().enumerate() {
                search.index(stream, at, item.op);
            }
        }
        search
    }

    fn index(&mut self, stream: usize, at: usize, op: &Op) {
        let note = |list: &mut Vec<(usize, usize)>| match list.last_mut().filter(|last| last.0 == stream) {
            Some(last) => last.1 = at,
            None => list.push((stream, at)),
        };
        if op.has_returned() {
            observations(op).for_each(|sight| note(self.observations.entry(sight).or_default()));
        } else {
            note(&mut self.unreturned[op.kind.words().0]);
        }
    }

    /// Visits states until one explains everything.
    pub fn run(mut self) -> SearchResult {
        let streams = self.case.streams.len();
        let left = self.case.streams.iter().flatten().filter(|item| item.op.has_returned()).count();
        let words = vec![0; self.case.words];
        let unobserved = vec![0; self.case.words];
        self.visit(
            usize::MAX,
            SearchState { next: vec![0; streams], words, unobserved, left, steps: Vec::new() },
        );
        while let Some((_, node)) = self.open.pop() {
            if self.nodes[node].left == 0 {
                return SearchResult::Order(self.order(node), self.nodes.len());
            }
            if self.nodes.len() >= STATES_MAX {
                return SearchResult::Undecided(self.describe(), self.nodes.len());
            }
            let state = self.state(node);
            for stream in self.candidates(&state) {
                let mut state = state.clone();
                self.advance(&mut state, stream);
                self.visit(node, state);
            }
        }
        SearchResult::Nothing(self.describe(), self.nodes.len())
    }

    /// Records a reachable state, if it is new.
    fn visit(&mut self, parent: usize, mut state: SearchState) {
        self.apply_ops_without_change(&mut state);
        let unobserved: usize = state.unobserved.iter().copied().map(usize::from).sum();
        let cost = state.left + UNOBSERVED_COST * unobserved;
        // Two states with the same hash count as one. Then an order may be missed, and a valid
        // history is investigated.
        let mut hasher = DefaultHasher::new();
        (&state.next, &state.words).hash(&mut hasher);
        let visited = self.visited.entry(hasher.finish()).or_insert(usize::MAX);
        if *visited <= cost {
            return;
        }
        *visited = cost;
        let node = self.nodes.len();
        if self.nodes.get(self.deepest).is_some_and(|deepest| state.left < deepest.left) {
            self.deepest = node;
        }
        self.nodes.push(Node { parent, steps: self.steps.len(), left: state.left });
        self.steps.extend(&state.steps);
        self.nexts.extend(&state.next);
        self.words.extend(&state.words);
        self.unobserved.extend(&state.unobserved);
        self.open.push((std::cmp::Reverse(cost), node));
    }

    fn state(&self, node: usize) -> SearchState {
        let (streams, words) = (self.case.streams.len(), self.case.words);
        SearchState {
            next: self.nexts[node * streams..][..streams].to_vec(),
            words: self.words[node * words..][..words].to_vec(),
            unobserved: self.unobserved[node * words..][..words].to_vec(),
            left: self.nodes[node].left,
            steps: Vec::new(),
        }
    }

    fn head(&self, state: &SearchState, stream: usize) -> Option<&'a Op> {
        let next = usize::from(state.next[stream]);
        self.case.streams[stream].get(next).map(|item| item.op)
    }

    fn heads(&self, state: &SearchState) -> impl Iterator<Item = (usize, &'a Op)> {
        (0..state.next.len()).filter_map(|stream| Some((stream, self.head(state, stream)?)))
    }

    /// The latest invocation that may take effect now: a pending operation has its deadline then.
    fn bound(&self, state: &SearchState) -> u64 {
        let ahead = state.next.iter().zip(&self.latest);
        ahead.filter_map(|(next, latest)| latest.get(usize::from(*next)).copied()).min().unwrap_or(NEVER)
    }

    /// The latest invocation that has taken effect: deadlines before it have passed.
    fn clock(&self, state: &SearchState) -> u64 {
        let taken = state.next.iter().zip(&self.case.streams);
        let last = taken.filter_map(|(next, items)| items.get(usize::from(*next).checked_sub(1)?));
        last.map(|item| item.op.invoked_at).max().unwrap_or(0)
    }

    /// The earliest deadline of an operation without a result that can still take effect.
    fn earliest_deadline(&self, state: &SearchState, clock: u64) -> u64 {
        let ahead = |(next, deadlines): (&u16, &'_ [(usize, u64)])| {
            let left = deadlines
                .iter()
                .filter(|(at, effect_deadline)| *at >= usize::from(*next) && *effect_deadline >= clock);
            left.map(|(_, effect_deadline)| *effect_deadline).min()
        };
        let deadlines = self.deadlines.iter().map(Vec::as_slice);
        state.next.iter().zip(deadlines).filter_map(ahead).min().unwrap_or(NEVER)
    }

    fn apply_ops_without_change(&self, state: &mut SearchState) {
        let mut again = true;
        while again {
            again = false;
            let bound = self.bound(state);
            let earliest_deadline = self.earliest_deadline(state, self.clock(state));
            for stream in 0..state.next.len() {
                let Some(op) = self.head(state, stream).filter(|op| op.has_returned()) else { continue };
                // Taking it would only exclude other operations from preceding it.
                let in_time = op.invoked_at <= bound && op.invoked_at <= earliest_deadline;
                if in_time && is_consistent(op, state) && !modifies_word(op, state) {
                    self.advance(state, stream);
                    again = true;
                    break;
                }
            }
        }
    }

    /// Streams whose next operation may take effect now, the most likely last.
    fn candidates(&self, state: &SearchState) -> Vec<usize> {
        let (bound, clock) = (self.bound(state), self.clock(state));
        let mut open = Vec::new();
        for (stream, op) in self.heads(state) {
            let in_time = op.invoked_at <= bound && op.latest() >= clock.max(op.invoked_at);
            if in_time && is_consistent(op, state) && self.is_useful(state, stream, op) {
                let awaited = modifies_word(op, state) && self.is_awaited(state, stream, op);
                if !(self.strict && awaited) {
                    open.push((!op.has_returned(), awaited, op.returned_at, stream));
                }
            }
        }
        open.sort_unstable();
        open.into_iter().rev().map(|(.., stream)| stream).collect()
    }

    /// Returns whether another operation has to read the word before this one changes it.
    fn is_awaited(&self, state: &SearchState, stream: usize, op: &Op) -> bool {
        let (word, _) = op.kind.words();
        let own = op.has_returned().then(|| (stream, usize::from(state.next[stream])));
        self.is_value_needed(state, word, state.words[word], own)
    }

    /// Returns whether another completed operation still has to read this value of the word.
    fn is_value_needed(
        &self,
        state: &SearchState,
        word: usize,
        value: u64,
        but: Option<(usize, usize)>,
    ) -> bool {
        let observations = self.observations.get(&(word, value)).map_or(&[][..], |observations| observations);
        is_ahead(state, observations, but)
    }

    /// An operation without a result is worth trying only if its new value is read, is final, or
    /// can be changed by another such operation. Otherwise it is a dead end, because the final read
    /// covers every word.
    fn is_useful(&self, state: &SearchState, stream: usize, op: &Op) -> bool {
        if op.has_returned() {
            return true;
        }
        let (word, _) = op.kind.words();
        let then = op.kind.apply(state.words[word]);
        let own = Some((stream, usize::from(state.next[stream])));
        then == state.words[word]
            || self.is_value_needed(state, word, then, None)
            || is_ahead(state, &self.unreturned[word], own)
    }

    fn advance(&self, state: &mut SearchState, stream: usize) {
        let Some(op) = self.head(state, stream) else { return };
        let (word, _) = op.kind.words();
        if op.has_returned() {
            state.left -= 1;
            observations(op).for_each(|(word, _)| state.unobserved[word] = 0);
        } else {
            state.unobserved[word] += 1;
        }
        state.words[word] = op.kind.apply(state.words[word]);
        state.next[stream] += 1;
        state.steps.push(stream as u16);
    }

    /// The path to a state, as indices into the history. The final read is not part of it.
    fn order(&self, node: usize) -> Vec<(usize, usize)> {
        let mut ways = Vec::new();
        let mut at = node;
        while let Some(node) = self.nodes.get(at) {
            let end = self.nodes.get(at + 1).map_or(self.steps.len(), |next| next.steps);
            ways.push(&self.steps[node.steps..end]);
            at = node.parent;
        }
        let mut next = vec![0; self.case.streams.len()];
        let steps = ways.into_iter().rev().flatten().map(|stream| usize::from(*stream));
        let items = steps.map(|stream| {
            next[stream] += 1;
            let Item { stream, index, .. } = self.case.streams[stream][next[stream] - 1];
            (stream, index)
        });
        let last = self.case.streams.last().and_then(|items| items.first()).map(|item| item.stream);
        items.filter(|(stream, _)| Some(*stream) != last).collect()
    }

    fn describe(&self) -> String {
        let state = self.state(self.deepest);
        let heads = self.heads(&state).map(|(stream, op)| {
            let seen: Vec<String> = op.seen.iter().map(|word| format!("{word:#x}")).collect();
            let latest = op.latest() as i64;
            format!("{stream}: {:x?} saw {seen:?}, {} to {latest}", op.kind, op.invoked_at)
        });
        let heads: Vec<String> = heads.take(12).collect();
        format!("{} results are left with the words at {:#x?} and next {heads:#?}", state.left, state.words)
    }
}

/// For each index, the earliest deadline of the completed operations from there on.
fn latest(items: &[Item<'_>]) -> Vec<u64> {
    let mut earliest_deadline = NEVER;
    let mut latest: Vec<u64> = Vec::with_capacity(items.len());
    for item in items.iter().rev() {
        if item.op.has_returned() {
            earliest_deadline = earliest_deadline.min(item.op.latest());
        }
        latest.push(earliest_deadline);
    }
    latest.reverse();
    latest
}

/// Indices of operations without a result but with a deadline.
fn deadlines(items: &[Item<'_>]) -> Vec<(usize, u64)> {
    let unreturned = items.iter().enumerate().filter(|(_, item)| !item.op.has_returned());
    unreturned
        .map(|(at, item)| (at, item.op.effect_deadline))
        .filter(|(_, effect_deadline)| *effect_deadline != NEVER)
        .collect()
}

/// Returns whether another one of these operations has not taken effect.
fn is_ahead(state: &SearchState, requests: &[(usize, usize)], but: Option<(usize, usize)>) -> bool {
    requests
        .iter()
        .any(|&(stream, last)| usize::from(state.next[stream]) <= last && but != Some((stream, last)))
}

fn is_consistent(op: &Op, state: &SearchState) -> bool {
    observations(op).all(|(word, value)| state.words[word] == value)
}

fn modifies_word(op: &Op, state: &SearchState) -> bool {
    let (word, _) = op.kind.words();
    matches!(op.kind, OpKind::Modify(..)) && op.kind.apply(state.words[word]) != state.words[word]
}
