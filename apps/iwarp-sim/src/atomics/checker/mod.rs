//! Linearizability checker: searches for an order of effects, after Wing and Gong, with Lowe's
//! memory of visited states.
//!
//! Takes a history and the words at the end. A valid order explains every result, and no operation
//! takes effect before its invocation or after its completion. Each stream's operations take effect
//! in stream order, across words (RFC 7306 s5.4 and s7), and the words end as they are. An
//! operation without a result may or may not have taken effect before its deadline. If it has not,
//! no later operation of its stream has.
//!
//! [`search`] proposes an order and [`replay`], which shares no code with the search, executes it.
//! So an invalid history never passes, whatever the search tries. The search is bounded; a history
//! that is not decided within the bound counts as invalid, so that it is investigated.

mod replay;
mod search;
#[cfg(test)]
mod tests;

use super::history::{History, Op, OpKind};
use search::{Search, SearchResult};

/// One operation and its index in the history.
#[derive(Clone, Copy)]
struct Item<'a> {
    op: &'a Op,
    stream: usize,
    index: usize,
}

/// The input of the search: the streams without irrelevant operations, and a final read of all
/// words.
struct Case<'a> {
    streams: Vec<Vec<Item<'a>>>,
    words: usize,
}

/// Checks a history that began with zeros. Returns how many states the search visited.
pub fn check(history: &History, end: &[u64]) -> Result<usize, String> {
    let last = Op::final_read(end);
    let case = Case::new(history, &last);
    // Most values never recur. Then no operation may change a word while another one still has to
    // read its value, and this rule makes backtracking rare. If no order is found under it, the
    // search runs again without it.
    let strict = Search::new(&case, true).run();
    let (found, before) = match strict {
        SearchResult::Order(..) => (strict, 0),
        _ => (Search::new(&case, false).run(), strict.states()),
    };
    let states = before + found.states();
    match found {
        SearchResult::Order(order, _) => replay::verify(history, end, &order).map(|()| states),
        SearchResult::Nothing(deepest, _) => {
            Err(format!("no order of effects explains the results; {deepest}"))
        }
        SearchResult::Undecided(deepest, states) => {
            Err(format!("no order found among {states} states; {deepest}"))
        }
    }
}

impl<'a> Case<'a> {
    /// A Read without a result has no effect, and nothing depends on it.
    fn new(history: &'a History, last: &'a Op) -> Self {
        let items = |(stream, ops): (usize, &'a Vec<Op>)| -> Vec<Item<'a>> {
            let items = ops.iter().enumerate().map(|(index, op)| Item { op, stream, index });
            items.filter(|item| item.op.has_returned() || !matches!(item.op.kind, OpKind::Read(..))).collect()
        };
        let mut streams: Vec<_> = history.streams.iter().enumerate().map(items).collect();
        streams.push(vec![Item { op: last, stream: history.streams.len(), index: 0 }]);
        streams.retain(|items| !items.is_empty());
        Case { streams, words: last.seen.len() }
    }
}

/// The words that a completed operation has read, and their values.
fn observations(op: &Op) -> impl Iterator<Item = (usize, u64)> + '_ {
    let (first, _) = op.kind.words();
    op.seen.iter().enumerate().map(move |(at, value)| (first + at, *value))
}
