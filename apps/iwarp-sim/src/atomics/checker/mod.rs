//! Whether a history can be: a search for an order of effects, after Wing and Gong, with Lowe's memory of what was tried.
//!
//! Takes a history and what the words hold at the end. There must be one order of effects in which every answer is right,
//! nothing takes effect before it was asked or after it was answered, each stream's requests take effect in its own order
//! (which RFC 7306 s5.4 and s7 promise, across words), and the words end as they are. A request without an answer may have
//! taken effect or not, and no later than it may still; those behind it in its stream have not, if it has not.
//!
//! [`search`] proposes an order and [`replay`], which knows nothing of the search, carries it out. So however the search
//! chooses what to try, no history passes that cannot be. It is bounded; a history that is not decided within the bound
//! counts as wrong, so that somebody looks.

mod replay;
mod search;
#[cfg(test)]
mod tests;

use super::history::{History, Op, OpKind};
use search::{Search, SearchResult};

/// One request, and where it stands in the history.
#[derive(Clone, Copy)]
struct Item<'a> {
    op: &'a Op,
    stream: usize,
    index: usize,
}

/// What is searched: streams without what cannot matter, and a last look at all words.
struct Case<'a> {
    streams: Vec<Vec<Item<'a>>>,
    words: usize,
}

/// Checks a history that began with zeros. Answers how many states the search came to know.
pub fn check(history: &History, end: &[u64]) -> Result<usize, String> {
    let last = Op::final_read(end);
    let case = Case::new(history, &last);
    // Most values never come back. Then nothing may change a word while somebody still has to see it as it is, and whoever
    // keeps to that hardly ever has to go back. If no order is found so, values are taken to come back.
    let strict = Search::new(&case, true).run();
    let (found, before) = match strict {
        SearchResult::Order(..) => (strict, 0),
        _ => (Search::new(&case, false).run(), strict.states()),
    };
    let states = before + found.states();
    match found {
        SearchResult::Order(order, _) => replay::verify(history, end, &order).map(|()| states),
        SearchResult::Nothing(deepest, _) => {
            Err(format!("no order of effects explains what was answered; {deepest}"))
        }
        SearchResult::Undecided(deepest, states) => {
            Err(format!("no order found among {states} states; {deepest}"))
        }
    }
}

impl<'a> Case<'a> {
    /// A look that nobody was answered has no effect, and nothing waits for it.
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

/// Words that an answered request has seen, and their values.
fn observations(op: &Op) -> impl Iterator<Item = (usize, u64)> + '_ {
    let (first, _) = op.kind.words();
    op.seen.iter().enumerate().map(move |(at, value)| (first + at, *value))
}
