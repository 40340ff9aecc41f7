//! The search for an order of effects.
//!
//! A state is how far each stream has got and what the words hold; none is looked at twice. The streams' own order keeps
//! them few: only the first request of each can be next. What was answered and changes nothing is taken as soon as it fits,
//! since that can only help. Of all states the one with the fewest answers left is next, where an effect that nobody has
//! seen yet counts for several answers: what was never answered is tried where something needs it, one request before two,
//! and hardly ever as a long chain of which nobody saw a link.

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Case, Item, sights};
use crate::atomics::history::{Act, NEVER, Op};

/// States that a search comes to know at most.
const STATES_MAX: usize = 1_000_000;

/// What an effect that nobody has seen yet counts for, in answers.
const UNSEEN_COST: usize = 4;

/// What a search came to, each with how many states it knew.
pub enum Found {
    /// Places in the history, in the order of their effects.
    Order(Vec<(usize, usize)>, usize),
    /// Everything was tried; how far it went.
    Nothing(String, usize),
    /// Not everything could be tried.
    Undecided(String, usize),
}

/// A search.
pub struct Search<'a> {
    case: &'a Case<'a>,
    /// Whether no value counts as coming back.
    strict: bool,
    /// Who sees a word with a value: streams, and the last of its requests that does.
    sights: BTreeMap<(usize, u64), Vec<(usize, usize)>>,
    /// For each word, streams that change it unheard, and the last of its requests that does.
    unheard: Vec<Vec<(usize, usize)>>,
    /// For each stream and place, by when something answered from there on must have taken effect.
    latest: Vec<Vec<u64>>,
    /// For each stream, places that were never answered and have their time, and that time.
    dated: Vec<Vec<(usize, u64)>>,
    /// How each state came about: from which one, and by how many steps of which streams.
    nodes: Vec<Node>,
    steps: Vec<u16>,
    /// The states themselves, side by side.
    nexts: Vec<u16>,
    words: Vec<u64>,
    unseen: Vec<u16>,
    /// States to go on from; the least cost comes first, and of those the latest.
    open: BinaryHeap<(std::cmp::Reverse<usize>, usize)>,
    /// States that are known, and the cost of the cheapest way to each.
    known: HashMap<u64, usize>,
    deepest: usize,
}

struct Node {
    parent: usize,
    /// Where its steps begin, from its parent.
    steps: usize,
    /// Answered requests that have not taken effect.
    left: usize,
}

/// A state while it is worked on.
#[derive(Clone)]
struct State {
    next: Vec<u16>,
    words: Vec<u64>,
    /// For each word, changes that nobody was told of and nobody has seen.
    unseen: Vec<u16>,
    left: usize,
    /// Steps since the state that this one came from.
    steps: Vec<u16>,
}

impl Found {
    /// How many states the search knew.
    pub fn states(&self) -> usize {
        match self {
            Found::Order(_, states) | Found::Nothing(_, states) | Found::Undecided(_, states) => *states,
        }
    }
}

impl<'a> Search<'a> {
    pub fn new(case: &'a Case<'a>, strict: bool) -> Self {
        let mut search = Search {
            case,
            strict,
            sights: BTreeMap::new(),
            unheard: vec![Vec::new(); case.words],
            latest: case.streams.iter().map(|items| latest(items)).collect(),
            dated: case.streams.iter().map(|items| dated(items)).collect(),
            nodes: Vec::new(),
            steps: Vec::new(),
            nexts: Vec::new(),
            words: Vec::new(),
            unseen: Vec::new(),
            open: BinaryHeap::new(),
            known: HashMap::new(),
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
        if op.is_heard() {
            sights(op).for_each(|sight| note(self.sights.entry(sight).or_default()));
        } else {
            note(&mut self.unheard[op.act.words().0]);
        }
    }

    /// Tries states until one explains everything.
    pub fn run(mut self) -> Found {
        let streams = self.case.streams.len();
        let left = self.case.streams.iter().flatten().filter(|item| item.op.is_heard()).count();
        let words = vec![0; self.case.words];
        let unseen = vec![0; self.case.words];
        self.reach(usize::MAX, State { next: vec![0; streams], words, unseen, left, steps: Vec::new() });
        while let Some((_, node)) = self.open.pop() {
            if self.nodes[node].left == 0 {
                return Found::Order(self.order(node), self.nodes.len());
            }
            if self.nodes.len() >= STATES_MAX {
                return Found::Undecided(self.describe(), self.nodes.len());
            }
            let state = self.state(node);
            for stream in self.candidates(&state) {
                let mut state = state.clone();
                self.advance(&mut state, stream);
                self.reach(node, state);
            }
        }
        Found::Nothing(self.describe(), self.nodes.len())
    }

    /// A state that can be, if it is new.
    fn reach(&mut self, parent: usize, mut state: State) {
        self.take_what_changes_nothing(&mut state);
        let unseen: usize = state.unseen.iter().copied().map(usize::from).sum();
        let cost = state.left + UNSEEN_COST * unseen;
        // Two states that hash alike would be taken for one; then an order may be missed, and a right history is looked at.
        let mut hasher = DefaultHasher::new();
        (&state.next, &state.words).hash(&mut hasher);
        let known = self.known.entry(hasher.finish()).or_insert(usize::MAX);
        if *known <= cost {
            return;
        }
        *known = cost;
        let node = self.nodes.len();
        if self.nodes.get(self.deepest).is_some_and(|deepest| state.left < deepest.left) {
            self.deepest = node;
        }
        self.nodes.push(Node { parent, steps: self.steps.len(), left: state.left });
        self.steps.extend(&state.steps);
        self.nexts.extend(&state.next);
        self.words.extend(&state.words);
        self.unseen.extend(&state.unseen);
        self.open.push((std::cmp::Reverse(cost), node));
    }

    fn state(&self, node: usize) -> State {
        let (streams, words) = (self.case.streams.len(), self.case.words);
        State {
            next: self.nexts[node * streams..][..streams].to_vec(),
            words: self.words[node * words..][..words].to_vec(),
            unseen: self.unseen[node * words..][..words].to_vec(),
            left: self.nodes[node].left,
            steps: Vec::new(),
        }
    }

    fn head(&self, state: &State, stream: usize) -> Option<&'a Op> {
        let next = usize::from(state.next[stream]);
        self.case.streams[stream].get(next).map(|item| item.op)
    }

    fn heads(&self, state: &State) -> impl Iterator<Item = (usize, &'a Op)> {
        (0..state.next.len()).filter_map(|stream| Some((stream, self.head(state, stream)?)))
    }

    /// Nothing may take effect that was asked after this: something that has not taken effect must have by then.
    fn bound(&self, state: &State) -> u64 {
        let ahead = state.next.iter().zip(&self.latest);
        ahead.filter_map(|(next, latest)| latest.get(usize::from(*next)).copied()).min().unwrap_or(NEVER)
    }

    /// When the latest was asked of what has taken effect: what had to before can no longer.
    fn clock(&self, state: &State) -> u64 {
        let taken = state.next.iter().zip(&self.case.streams);
        let last = taken.filter_map(|(next, items)| items.get(usize::from(*next).checked_sub(1)?));
        last.map(|item| item.op.asked).max().unwrap_or(0)
    }

    /// The earliest time by which something that nobody has heard of must have taken effect, if it still can.
    fn soonest(&self, state: &State, clock: u64) -> u64 {
        let ahead = |(next, dated): (&u16, &'_ [(usize, u64)])| {
            let left = dated.iter().filter(|(at, until)| *at >= usize::from(*next) && *until >= clock);
            left.map(|(_, until)| *until).min()
        };
        let dated = self.dated.iter().map(Vec::as_slice);
        state.next.iter().zip(dated).filter_map(ahead).min().unwrap_or(NEVER)
    }

    fn take_what_changes_nothing(&self, state: &mut State) {
        let mut again = true;
        while again {
            again = false;
            let bound = self.bound(state);
            let soonest = self.soonest(state, self.clock(state));
            for stream in 0..state.next.len() {
                let Some(op) = self.head(state, stream).filter(|op| op.is_heard()) else { continue };
                // It would only keep others from having been before it.
                let in_time = op.asked <= bound && op.asked <= soonest;
                if in_time && fits(op, state) && !changes(op, state) {
                    self.advance(state, stream);
                    again = true;
                    break;
                }
            }
        }
    }

    /// Streams whose next request may take effect now, the likeliest last.
    fn candidates(&self, state: &State) -> Vec<usize> {
        let (bound, clock) = (self.bound(state), self.clock(state));
        let mut open = Vec::new();
        for (stream, op) in self.heads(state) {
            let in_time = op.asked <= bound && op.latest() >= clock.max(op.asked);
            if in_time && fits(op, state) && self.is_of_use(state, stream, op) {
                let awaited = changes(op, state) && self.is_awaited(state, stream, op);
                if !(self.strict && awaited) {
                    open.push((!op.is_heard(), awaited, op.answered, stream));
                }
            }
        }
        open.sort_unstable();
        open.into_iter().rev().map(|(.., stream)| stream).collect()
    }

    /// Whether others have to see the word as it is, before the request changes it.
    fn is_awaited(&self, state: &State, stream: usize, op: &Op) -> bool {
        let (word, _) = op.act.words();
        let own = op.is_heard().then(|| (stream, usize::from(state.next[stream])));
        self.wants(state, word, state.words[word], own)
    }

    /// Whether an answered request still has to see a word with this value, other than this one.
    fn wants(&self, state: &State, word: usize, value: u64, but: Option<(usize, usize)>) -> bool {
        let sights = self.sights.get(&(word, value)).map_or(&[][..], |sights| sights);
        is_ahead(state, sights, but)
    }

    /// What nobody has heard of is worth a try where what it makes of its word is seen, or can be changed further by another
    /// of its kind, or stays. Else it is a dead end, since the last look sees every word.
    fn is_of_use(&self, state: &State, stream: usize, op: &Op) -> bool {
        if op.is_heard() {
            return true;
        }
        let (word, _) = op.act.words();
        let then = op.act.apply(state.words[word]);
        let own = Some((stream, usize::from(state.next[stream])));
        then == state.words[word]
            || self.wants(state, word, then, None)
            || is_ahead(state, &self.unheard[word], own)
    }

    fn advance(&self, state: &mut State, stream: usize) {
        let Some(op) = self.head(state, stream) else { return };
        let (word, _) = op.act.words();
        if op.is_heard() {
            state.left -= 1;
            sights(op).for_each(|(word, _)| state.unseen[word] = 0);
        } else {
            state.unseen[word] += 1;
        }
        state.words[word] = op.act.apply(state.words[word]);
        state.next[stream] += 1;
        state.steps.push(stream as u16);
    }

    /// The way to a state, as places in the history. The look at the end is none of them.
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
            format!("{stream}: {:x?} saw {seen:?}, {} to {latest}", op.act, op.asked)
        });
        let heads: Vec<String> = heads.take(12).collect();
        format!("{} answers are left with the words at {:#x?} and next {heads:#?}", state.left, state.words)
    }
}

/// For each place, by when the soonest of what was answered from there on must have taken effect.
fn latest(items: &[Item<'_>]) -> Vec<u64> {
    let mut soonest = NEVER;
    let mut latest: Vec<u64> = Vec::with_capacity(items.len());
    for item in items.iter().rev() {
        if item.op.is_heard() {
            soonest = soonest.min(item.op.latest());
        }
        latest.push(soonest);
    }
    latest.reverse();
    latest
}

/// Places that were never answered and have their time.
fn dated(items: &[Item<'_>]) -> Vec<(usize, u64)> {
    let unheard = items.iter().enumerate().filter(|(_, item)| !item.op.is_heard());
    unheard.map(|(at, item)| (at, item.op.until)).filter(|(_, until)| *until != NEVER).collect()
}

/// Whether one of these requests has not taken effect, other than this one.
fn is_ahead(state: &State, requests: &[(usize, usize)], but: Option<(usize, usize)>) -> bool {
    requests
        .iter()
        .any(|&(stream, last)| usize::from(state.next[stream]) <= last && but != Some((stream, last)))
}

fn fits(op: &Op, state: &State) -> bool {
    sights(op).all(|(word, value)| state.words[word] == value)
}

fn changes(op: &Op, state: &State) -> bool {
    let (word, _) = op.act.words();
    matches!(op.act, Act::Change(..)) && op.act.apply(state.words[word]) != state.words[word]
}
