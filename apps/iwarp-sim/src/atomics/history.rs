//! What was asked of the words and what came back, with the order in which all of it happened.
//!
//! A run is one thread, so every asking and every answer has a number in one order: what was answered before something else
//! was asked took effect before it.

use ironwarp::AtomicOp;

/// Everything that was asked of the words.
#[derive(Default)]
pub struct History {
    /// What each connection, or each observer, asked, in its own order.
    pub streams: Vec<Vec<Op>>,
    ticks: u64,
}

/// One request.
#[derive(Debug)]
pub struct Op {
    /// When it was asked.
    pub invoked_at: u64,
    /// When it was answered; [`NEVER`] where the connection ended before: it may have taken effect or not.
    pub returned_at: u64,
    /// Which name of its word it uses.
    pub name: usize,
    /// By when it has taken effect, if it ever does, answered or not; [`NEVER`] unless what it names has ended.
    pub effect_deadline: u64,
    /// What it is.
    pub kind: OpKind,
    /// What each of its words was, once it is answered.
    pub seen: Vec<u64>,
}

/// Of what has no answer.
pub const NEVER: u64 = u64::MAX;

/// What is asked of the words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// An operation on a word.
    Modify(usize, AtomicOp),
    /// A look at so many words from this one on.
    Read(usize, usize),
}

impl History {
    /// One more stream.
    pub fn new_stream(&mut self) -> usize {
        self.streams.push(Vec::new());
        self.streams.len() - 1
    }

    /// Something is asked, by one of the names that its words have. Answers which of its stream's requests it is.
    pub fn invoke(&mut self, stream: usize, kind: OpKind, name: usize) -> usize {
        let op = Op {
            invoked_at: self.tick(),
            returned_at: NEVER,
            name,
            effect_deadline: NEVER,
            kind,
            seen: Vec::new(),
        };
        self.streams[stream].push(op);
        self.streams[stream].len() - 1
    }

    /// The answer has come.
    pub fn complete(&mut self, stream: usize, op: usize, seen: Vec<u64>) {
        let now = self.tick();
        let op = &mut self.streams[stream][op];
        (op.returned_at, op.seen) = (now, seen);
    }

    /// A name that a stream uses ends: what was asked by it has taken effect, or never does.
    pub fn end_name(&mut self, stream: usize, name: usize) {
        let now = self.tick();
        let ops = self.streams[stream].iter_mut().filter(|op| op.name == name);
        ops.for_each(|op| op.effect_deadline = op.effect_deadline.min(now));
    }

    /// What is asked last of a stream must never take effect: its name has ended.
    pub fn invoke_without_effect(&mut self, stream: usize) {
        if let Some(op) = self.streams[stream].last_mut() {
            op.effect_deadline = 0;
        }
    }

    /// It was refused, so it has had no effect.
    pub fn mark_without_effect(&mut self, stream: usize, op: usize) {
        self.streams[stream][op].effect_deadline = 0;
    }

    /// Somebody sees every word at once, directly. What stays as it was is kept as seen first and seen last.
    pub fn observe(&mut self, stream: usize, words: &[u64]) {
        let now = self.tick();
        let looks = &mut self.streams[stream];
        let same = looks.iter().rev().take(2).take_while(|look| look.seen == words).count();
        match looks.last_mut() {
            // Nothing was asked or answered since, or the first time stands there too.
            Some(last) if same > 0 && (same > 1 || last.returned_at + 1 == now) => {
                (last.invoked_at, last.returned_at) = (now, now);
            }
            _ => looks.push(Op {
                invoked_at: now,
                returned_at: now,
                name: 0,
                effect_deadline: NEVER,
                kind: OpKind::Read(0, words.len()),
                seen: words.to_vec(),
            }),
        }
    }

    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }
}

impl Op {
    /// All words are as they are when nothing more can happen.
    pub fn final_read(end: &[u64]) -> Self {
        let invoked_at = NEVER - 1;
        Op {
            invoked_at,
            returned_at: invoked_at,
            name: 0,
            effect_deadline: NEVER,
            kind: OpKind::Read(0, end.len()),
            seen: end.to_vec(),
        }
    }

    /// Whether it was answered.
    pub fn has_returned(&self) -> bool {
        self.returned_at != NEVER
    }

    /// When it takes effect at the latest.
    pub fn latest(&self) -> u64 {
        self.returned_at.min(self.effect_deadline)
    }
}

impl OpKind {
    /// The first of its words, and how many.
    pub fn words(self) -> (usize, usize) {
        match self {
            OpKind::Modify(word, _) => (word, 1),
            OpKind::Read(first, count) => (first, count),
        }
    }

    /// What the word is then.
    pub fn apply(self, value: u64) -> u64 {
        match self {
            OpKind::Read(..) => value,
            OpKind::Modify(_, op) => model(op, value),
        }
    }
}

/// What an operation makes of a word, bit by bit as RFC 7306 s5.1 describes it; none of the stack's code.
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

    /// A word that stays as it was is kept as seen first and seen last, once something else has happened in between.
    #[test]
    fn looks_keep_when_a_value_came_and_when_it_was_still_there() {
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

    /// What was asked by a name that has ended took effect before, or never does.
    #[test]
    fn the_end_of_a_name_is_the_end_of_what_was_asked_by_it() {
        let mut history = History::default();
        let stream = history.new_stream();
        let ask =
            |history: &mut History, name| history.invoke(stream, OpKind::Modify(0, AtomicOp::add(1)), name);
        let ops = [ask(&mut history, 1), ask(&mut history, 2), ask(&mut history, 1)];
        history.complete(stream, ops[0], vec![0]);
        history.end_name(stream, 1);
        history.complete(stream, ops[2], vec![2]);
        let latest: Vec<u64> = history.streams[stream].iter().map(Op::latest).collect();
        assert_eq!(latest, [4, NEVER, 5], "an answer may come later than what it tells of");
        ask(&mut history, 1);
        history.invoke_without_effect(stream);
        assert_eq!(history.streams[stream][3].latest(), 0);
    }
}
