//! Whether a history can be: a search for an order of effects, after Wing and Gong, with Lowe's memory of what was tried.
//!
//! Takes a history and what the words hold at the end. There must be one order of effects in which every answer is right,
//! nothing takes effect before it was asked or after it was answered, each stream's requests take effect in its own order
//! (which RFC 7306 s5.4 and s7 promise, across words), and the words end as they are. A request without an answer may have
//! taken effect or not; those behind it in its stream have not, if it has not.
//!
//! The streams' own order keeps the search small: only the first request of each stream can be next. What changes nothing
//! is taken as soon as it fits, since that can only help. The search is bounded; a history that is not decided within the
//! bound counts as wrong, so that somebody looks.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::history::{Act, History, NEVER, Op};

/// Steps of a search.
const STEPS_MAX: usize = 3_000_000;

/// Checks a history that began with zeros.
pub fn check(history: &History, end: &[u64]) -> Result<(), String> {
    // Most values never come back. Then nothing may change a word while somebody still has to see it as it is, and whoever
    // keeps to that hardly ever has to go back. An order that is found so is an order; if there is none, all are tried.
    if Search::new(history, end, true).run() == Some(true) {
        return Ok(());
    }
    let mut search = Search::new(history, end, false);
    match search.run() {
        Some(true) => Ok(()),
        Some(false) => Err(format!("no order of effects explains what was answered; {}", search.deepest)),
        None => Err(format!("no order found in {STEPS_MAX} steps; {}", search.deepest)),
    }
}

struct Search<'a> {
    streams: &'a [Vec<Op>],
    end: &'a [u64],
    /// Whether no value counts as coming back.
    strict: bool,
    /// The first request of each stream that has not taken effect.
    next: Vec<usize>,
    words: Vec<u64>,
    /// Answered requests that have not taken effect.
    left: usize,
    /// How many of those still have to see a word with a value.
    wanted: BTreeMap<(usize, u64), usize>,
    tried: HashSet<u64>,
    /// The streams whose requests took effect, in order, each with what its word was before.
    path: Vec<(usize, u64)>,
    steps: usize,
    most: usize,
    deepest: String,
}

impl<'a> Search<'a> {
    fn new(history: &'a History, end: &'a [u64], strict: bool) -> Self {
        let streams = &history.streams[..];
        let answered = streams.iter().flatten().filter(|op| op.answered != NEVER);
        let (mut wanted, mut left) = (BTreeMap::new(), 0);
        for op in answered {
            left += 1;
            sights(op).for_each(|sight| *wanted.entry(sight).or_default() += 1);
        }
        Search {
            streams,
            end,
            strict,
            next: vec![0; streams.len()],
            words: vec![0; end.len()],
            left,
            wanted,
            tried: HashSet::new(),
            path: Vec::new(),
            steps: 0,
            most: usize::MAX,
            deepest: String::new(),
        }
    }

    /// Whether there is an order; `None` where that took too long to find out.
    fn run(&mut self) -> Option<bool> {
        // What can be next, at each place of the path where there was a choice.
        let mut choices: Vec<(usize, Vec<usize>)> = Vec::new();
        loop {
            self.take_what_changes_nothing();
            if self.left == 0 && self.words == self.end {
                return Some(true);
            }
            let mut open = if self.is_new() { self.candidates() } else { Vec::new() };
            open.reverse();
            choices.push((self.path.len(), open));
            loop {
                self.steps += 1;
                if self.steps > STEPS_MAX {
                    return None;
                }
                let Some((length, open)) = choices.last_mut() else { return Some(false) };
                let (length, choice) = (*length, open.pop());
                self.undo_to(length);
                match choice {
                    Some(stream) => break self.advance(stream),
                    None => choices.pop(),
                };
            }
        }
    }

    /// Notes the state. Answers whether nothing was tried from here.
    fn is_new(&mut self) -> bool {
        if self.left < self.most {
            self.most = self.left;
            self.deepest = self.describe();
        }
        let mut hasher = DefaultHasher::new();
        (&self.next, &self.words).hash(&mut hasher);
        self.tried.insert(hasher.finish())
    }

    /// Nothing may take effect that was asked after this: something that has not taken effect was answered then.
    fn bound(&self) -> u64 {
        let heads = (0..self.next.len()).filter_map(|stream| self.head(stream));
        heads.map(|op| op.answered).min().unwrap_or(NEVER)
    }

    fn head(&self, stream: usize) -> Option<&'a Op> {
        self.streams[stream].get(self.next[stream])
    }

    fn take_what_changes_nothing(&mut self) {
        let mut again = true;
        while again {
            again = false;
            let bound = self.bound();
            for stream in 0..self.next.len() {
                let Some(op) = self.head(stream) else { continue };
                // What nobody has heard of may still change something later, unless it is a look.
                let is_plain = op.answered != NEVER || matches!(op.act, Act::Look(..));
                if is_plain && op.asked <= bound && self.fits(op) && !self.changes(op) {
                    self.advance(stream);
                    again = true;
                }
            }
        }
    }

    /// Streams whose next request may take effect now, the likeliest first.
    fn candidates(&self) -> Vec<usize> {
        let bound = self.bound();
        let mut open: Vec<_> = (0..self.next.len())
            .filter_map(|stream| {
                let op = self.head(stream)?;
                let may_be = op.asked <= bound && self.fits(op) && self.is_of_use(op);
                let awaited = self.is_awaited(op);
                (may_be && !(self.strict && awaited)).then(|| (self.rank(op), stream))
            })
            .collect();
        open.sort_unstable();
        open.into_iter().map(|(_, stream)| stream).collect()
    }

    /// What has no answer comes last, and of that what nobody is known to have seen.
    fn rank(&self, op: &Op) -> (bool, bool, bool, u64) {
        let is_unheard = op.answered == NEVER;
        let (word, _) = op.act.words();
        let is_seen = self.wants(word, op.act.apply(self.words[word])) > 0;
        (is_unheard, is_unheard && !is_seen, self.is_awaited(op), op.answered)
    }

    /// Whether others have to see what the request changes, before it does.
    fn is_awaited(&self, op: &Op) -> bool {
        let (word, _) = op.act.words();
        let own = usize::from(op.answered != NEVER);
        self.changes(op) && self.wants(word, self.words[word]) > own
    }

    /// How many answered requests still have to see a word with this value.
    fn wants(&self, word: usize, value: u64) -> usize {
        self.wanted.get(&(word, value)).copied().unwrap_or_default()
    }

    fn fits(&self, op: &Op) -> bool {
        op.answered == NEVER || sights(op).all(|(word, value)| self.words[word] == value)
    }

    fn changes(&self, op: &Op) -> bool {
        let (word, _) = op.act.words();
        op.act.apply(self.words[word]) != self.words[word]
    }

    /// What nobody has heard of is worth a try where what it makes of its word is seen, or changed further by another of
    /// its kind, or stays; or to let those behind it have their turn.
    fn is_of_use(&self, op: &Op) -> bool {
        if op.answered != NEVER {
            return true;
        }
        let (word, _) = op.act.words();
        let then = op.act.apply(self.words[word]);
        let seen = self.wants(word, then) > 0;
        let others = (0..self.next.len())
            .flat_map(|stream| self.streams[stream].get(self.next[stream]..).unwrap_or_default());
        let unheard = others.filter(|other| other.answered == NEVER && other.act.words().0 == word).count();
        seen || self.end[word] == then || unheard > 1 || then == self.words[word]
    }

    fn advance(&mut self, stream: usize) {
        let Some(op) = self.head(stream) else { return };
        let (word, _) = op.act.words();
        self.path.push((stream, self.words[word]));
        self.words[word] = op.act.apply(self.words[word]);
        self.next[stream] += 1;
        self.count(op, false);
    }

    fn undo_to(&mut self, length: usize) {
        while self.path.len() > length {
            let Some((stream, before)) = self.path.pop() else { return };
            self.next[stream] -= 1;
            let Some(op) = self.head(stream) else { return };
            self.words[op.act.words().0] = before;
            self.count(op, true);
        }
    }

    /// An answered request is open again, or no longer.
    fn count(&mut self, op: &Op, again: bool) {
        if op.answered == NEVER {
            return;
        }
        for sight in sights(op) {
            let count = self.wanted.entry(sight).or_default();
            *count = if again { *count + 1 } else { *count - 1 };
        }
        self.left = if again { self.left + 1 } else { self.left - 1 };
    }

    fn describe(&self) -> String {
        let words: Vec<String> = self.words.iter().map(|word| format!("{word:#x}")).collect();
        let heads = (0..self.next.len()).filter_map(|stream| {
            let op = self.head(stream)?;
            let seen: Vec<String> = op.seen.iter().map(|word| format!("{word:#x}")).collect();
            Some(format!("{stream}: {:x?} saw {seen:?}, {} to {}", op.act, op.asked, op.answered as i64))
        });
        let heads: Vec<String> = heads.take(12).collect();
        format!(
            "{} answers are left with the words at {words:?} and to end as {:x?}; next are {heads:#?}",
            self.left, self.end
        )
    }
}

/// Words that an answered request has seen, and their values.
fn sights(op: &Op) -> impl Iterator<Item = (usize, u64)> + '_ {
    let (first, _) = op.act.words();
    op.seen.iter().enumerate().map(move |(at, value)| (first + at, *value))
}

#[cfg(test)]
mod tests {
    use ironwarp::AtomicOp;

    use super::super::history::{Act, History, NEVER, Op};
    use super::check;

    /// Asked, answered, what, and what was seen.
    fn op(asked: u64, answered: u64, act: Act, seen: &[u64]) -> Op {
        Op { asked, answered, act, seen: seen.to_vec() }
    }

    fn add(word: usize, by: u64) -> Act {
        Act::Change(word, AtomicOp::add(by))
    }

    fn swap(word: usize, from: u64, to: u64) -> Act {
        Act::Change(word, AtomicOp::compare_and_swap(from, to))
    }

    fn holds(streams: Vec<Vec<Op>>, end: &[u64]) -> bool {
        let mut history = History::default();
        history.streams = streams;
        check(&history, end).is_ok()
    }

    #[test]
    fn additions_at_once_may_happen_in_either_order() {
        for seen in [[0, 5], [3, 0]] {
            let streams = vec![vec![op(1, 9, add(0, 5), &seen[..1])], vec![op(2, 8, add(0, 3), &seen[1..])]];
            assert!(holds(streams, &[8]));
        }
    }

    #[test]
    fn a_lost_addition_is_found() {
        let both_first = vec![vec![op(1, 9, add(0, 5), &[0])], vec![op(2, 8, add(0, 3), &[0])]];
        assert!(!holds(both_first, &[8]));
        assert!(!holds(vec![vec![op(1, 2, add(0, 5), &[0])]], &[0]), "the end lacks it");
        assert!(!holds(vec![vec![op(1, 2, add(0, 5), &[0])]], &[10]), "the end has it twice");
    }

    #[test]
    fn an_effect_outside_of_its_time_is_found() {
        let late = vec![vec![op(1, 2, add(0, 5), &[3])], vec![op(3, 4, add(0, 3), &[0])]];
        assert!(!holds(late, &[8]), "the first was answered before the second was asked");
    }

    /// RFC 7306 s5.4: an observer sees one stream's effects on several words in that stream's order.
    #[test]
    fn effects_of_one_stream_out_of_its_order_are_found() {
        let stream = || vec![op(1, 20, add(0, 1), &[0]), op(2, 21, add(1, 1), &[0])];
        let sees = |first: u64, second: u64| {
            vec![op(5, 6, Act::Look(1, 1), &[second]), op(7, 8, Act::Look(0, 1), &[first])]
        };
        for (first, second) in [(0, 0), (1, 0), (1, 1)] {
            assert!(holds(vec![stream(), sees(first, second)], &[1, 1]), "{first} {second}");
        }
        assert!(!holds(vec![stream(), sees(0, 1)], &[1, 1]));
        assert!(!holds(vec![stream(), vec![op(5, 6, Act::Look(0, 2), &[0, 1])]], &[1, 1]));
    }

    #[test]
    fn what_was_never_answered_may_have_happened_or_not() {
        let lost = || vec![op(1, NEVER, add(0, 5), &[]), op(2, NEVER, add(0, 7), &[])];
        for end in [0, 5, 12] {
            assert!(holds(vec![lost()], &[end]), "{end}");
        }
        assert!(!holds(vec![lost()], &[7]), "the second without the first");
        assert!(holds(vec![lost(), vec![op(3, 4, swap(0, 5, 1), &[5])]], &[8]));
        assert!(!holds(vec![lost(), vec![op(3, 4, swap(0, 5, 1), &[5])]], &[6]));
    }

    #[test]
    fn a_comparison_that_fails_changes_nothing() {
        let streams =
            |end: u64| (vec![vec![op(1, 2, swap(0, 4, 9), &[0]), op(3, 4, add(0, 1), &[0])]], [end]);
        let (good, end) = streams(1);
        assert!(holds(good, &end));
        let (wrong, end) = streams(9);
        assert!(!holds(wrong, &end));
    }

    /// Values that come back: the search has to go back as well.
    #[test]
    fn a_value_that_comes_back_is_no_trap() {
        let streams = vec![
            vec![op(1, 20, swap(0, 0, 1), &[0]), op(2, 21, swap(0, 0, 2), &[0])],
            vec![op(3, 22, swap(0, 1, 0), &[1])],
            vec![op(4, 23, Act::Look(0, 1), &[1]), op(5, 24, Act::Look(0, 1), &[2])],
        ];
        assert!(holds(streams, &[2]));
    }
}
