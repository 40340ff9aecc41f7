//! The history: every invocation and completion of an operation on the words, in one total order.
//!
//! A run is one thread, so every invocation and every completion has a number in one order. An
//! operation that completed before the invocation of another one took effect before it.

use ironwarp::AtomicOp;

/// All operations on the words.
#[derive(Default)]
pub struct History {
    /// The operations of each connection, or of each observer, in stream order.
    pub streams: Vec<Vec<Op>>,
    ticks: u64,
}

#[derive(Debug)]
pub struct Op {
    pub invoked_at: u64,
    /// Time of its completion; [`NEVER`] if the connection ended first: it may or may not have
    /// taken effect.
    pub returned_at: u64,
    /// Which tag of its word it uses.
    pub name: usize,
    /// Its deadline: it takes effect before this, or never; [`NEVER`] unless its tag was
    /// invalidated.
    pub effect_deadline: u64,
    pub kind: OpKind,
    /// The values of its words, once it has completed.
    pub seen: Vec<u64>,
}

/// The time of an event that did not happen.
pub const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    Modify(usize, AtomicOp),
    /// A Read of this many words from this one on.
    Read(usize, usize),
}

impl History {
    pub fn new_stream(&mut self) -> usize {
        self.streams.push(Vec::new());
        self.streams.len() - 1
    }

    /// Records an invocation by one of the words' tags. Returns its index in its stream.
    pub fn invoke(&mut self, stream: usize, kind: OpKind, name: usize) -> usize {
        let (invoked_at, returned_at, effect_deadline, seen) = (self.tick(), NEVER, NEVER, Vec::new());
        self.streams[stream].push(Op { invoked_at, returned_at, name, effect_deadline, kind, seen });
        self.streams[stream].len() - 1
    }

    pub fn complete(&mut self, stream: usize, op: usize, seen: Vec<u64>) {
        let now = self.tick();
        let op = &mut self.streams[stream][op];
        (op.returned_at, op.seen) = (now, seen);
    }

    /// A tag of a stream was invalidated: operations by it have taken effect, or never do.
    pub fn end_name(&mut self, stream: usize, name: usize) {
        let now = self.tick();
        let ops = self.streams[stream].iter_mut().filter(|op| op.name == name);
        ops.for_each(|op| op.effect_deadline = op.effect_deadline.min(now));
    }

    /// The operation never takes effect: it was rejected, or its tag was invalidated before.
    pub fn mark_without_effect(&mut self, stream: usize, op: usize) {
        self.streams[stream][op].effect_deadline = 0;
    }

    /// Records a direct read of all words. An unchanged value is kept only as first and last
    /// observation.
    pub fn observe(&mut self, stream: usize, words: &[u64]) {
        let now = self.tick();
        let looks = &mut self.streams[stream];
        let same = looks.iter().rev().take(2).take_while(|look| look.seen == words).count();
        match looks.last_mut() {
            // Nothing was invoked or completed since, or the first observation is already there.
            Some(last) if same > 0 && (same > 1 || last.returned_at + 1 == now) => {
                (last.invoked_at, last.returned_at) = (now, now);
            }
            _ => looks.push(Op::look(now, words)),
        }
    }

    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }
}

impl Op {
    /// A direct read of all words at one time.
    fn look(at: u64, words: &[u64]) -> Self {
        let (kind, seen) = (OpKind::Read(0, words.len()), words.to_vec());
        Op { invoked_at: at, returned_at: at, name: 0, effect_deadline: NEVER, kind, seen }
    }

    /// The final read of all words, after everything else.
    pub fn final_read(end: &[u64]) -> Self {
        Op::look(NEVER - 1, end)
    }

    pub fn has_returned(&self) -> bool {
        self.returned_at != NEVER
    }

    /// The latest time at which it takes effect.
    pub fn latest(&self) -> u64 {
        self.returned_at.min(self.effect_deadline)
    }
}

impl OpKind {
    pub fn words(self) -> (usize, usize) {
        match self {
            OpKind::Modify(word, _) => (word, 1),
            OpKind::Read(first, count) => (first, count),
        }
    }

    /// The new value of the word.
    pub fn apply(self, value: u64) -> u64 {
        match self {
            OpKind::Read(..) => value,
            OpKind::Modify(_, op) => model(op, value),
        }
    }
}

/// The new value of a word, bit by bit as RFC 7306 s5.1 describes it, without the stack's code.
fn model(op: AtomicOp, word: u64) -> u64 {
    match op {
        AtomicOp::FetchAdd { add, mask } => {
            let (mut sum, mut carry) = (0, 0);
            for bit in 0..64 {
                let total = (word >> bit & 1) + (add >> bit & 1) + carry;
                sum |= (total & 1) << bit;
                carry = if mask >> bit & 1 == 1 { 0 } else { total >> 1 };
            }
            sum
        }
        AtomicOp::CmpSwap { compare, compare_mask, swap, swap_mask } => {
            let equal =
                (0..64).all(|bit| compare_mask >> bit & 1 == 0 || word >> bit & 1 == compare >> bit & 1);
            if equal { word & !swap_mask | swap & swap_mask } else { word }
        }
        AtomicOp::Swap { swap } => swap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(history: &History) -> Vec<(u64, u64)> {
        history.streams[0].iter().map(|look| (look.invoked_at, look.seen[0])).collect()
    }

    /// An unchanged value is kept as first and last observation, if another event happened in
    /// between.
    #[test]
    fn observations_keep_the_first_and_the_last_time_of_a_value() {
        let mut history = History::default();
        let (server, client) = (history.new_stream(), history.new_stream());
        history.observe(server, &[0]);
        history.observe(server, &[0]);
        assert_eq!(seen(&history), [(2, 0)], "nothing happened in between");
        let op = history.invoke(client, OpKind::Modify(0, AtomicOp::add(1)), 0);
        history.observe(server, &[0]);
        history.observe(server, &[0]);
        assert_eq!(seen(&history), [(2, 0), (5, 0)]);
        history.observe(server, &[1]);
        history.complete(client, op, vec![0]);
        history.observe(server, &[1]);
        assert_eq!(seen(&history), [(2, 0), (5, 0), (6, 1), (8, 1)]);
    }

    /// An operation by an invalidated tag took effect before the invalidation, or never does.
    #[test]
    fn invalidating_a_tag_sets_the_deadline_of_its_operations() {
        let mut history = History::default();
        let stream = history.new_stream();
        let ask =
            |history: &mut History, name| history.invoke(stream, OpKind::Modify(0, AtomicOp::add(1)), name);
        let ops = [ask(&mut history, 1), ask(&mut history, 2), ask(&mut history, 1)];
        history.complete(stream, ops[0], vec![0]);
        history.end_name(stream, 1);
        history.complete(stream, ops[2], vec![2]);
        let latest: Vec<u64> = history.streams[stream].iter().map(Op::latest).collect();
        assert_eq!(latest, [4, NEVER, 5], "a completion may arrive after the deadline of its effect");
        let late = ask(&mut history, 1);
        history.mark_without_effect(stream, late);
        assert_eq!(history.streams[stream][3].latest(), 0);
    }
}
