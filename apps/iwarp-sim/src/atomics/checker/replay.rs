//! Executes an order of effects step by step against the history that it must explain.
//!
//! Takes the history, the words at the end, and the order as indices into the history. Returns the
//! first contradiction. The verdict rests on this module, so it shares no code with the search that
//! found the order.

use super::observations;
use crate::atomics::history::{History, Op, OpKind};

/// Checks that the order explains everything.
pub fn verify(history: &History, end: &[u64], order: &[(usize, usize)]) -> Result<(), String> {
    let all = || order.iter().filter_map(|&(stream, index)| history.streams.get(stream)?.get(index));
    if all().count() != order.len() {
        return Err("the order has an index that is not in the history".into());
    }
    in_time(all())?;
    in_streams(history, order)?;
    let mut words = vec![0; end.len()];
    for op in all() {
        if let Some((word, value)) = observations(op).find(|&(word, value)| words[word] != value) {
            return Err(format!("{op:?} did not see {value:#x} in word {word}, but {:#x}", words[word]));
        }
        let (word, _) = op.kind.words();
        words[word] = op.kind.apply(words[word]);
    }
    if words == end { Ok(()) } else { Err(format!("the order ends with {words:x?}, memory with {end:x?}")) }
}

/// No operation takes effect after its deadline: none that was invoked later than that precedes it.
fn in_time<'a>(order: impl Iterator<Item = &'a Op>) -> Result<(), String> {
    let mut invoked_at = 0;
    for op in order {
        invoked_at = invoked_at.max(op.invoked_at);
        if op.latest() < invoked_at {
            return Err(format!("{op:?} follows an operation that was invoked at {invoked_at}"));
        }
    }
    Ok(())
}

/// Every result is explained once. Each stream keeps its order and omits only operations at its
/// end.
fn in_streams(history: &History, order: &[(usize, usize)]) -> Result<(), String> {
    for (stream, ops) in history.streams.iter().enumerate() {
        let taken: Vec<usize> = order.iter().filter(|at| at.0 == stream).map(|at| at.1).collect();
        if !taken.is_sorted_by(|a, b| a < b) {
            return Err(format!("stream {stream} is out of order"));
        }
        let past = taken.last().map_or(0, |last| last + 1);
        let missed = ops.iter().enumerate().find(|(index, op)| {
            let matters = op.has_returned() || *index < past && !matches!(op.kind, OpKind::Read(..));
            matters && taken.binary_search(index).is_err()
        });
        if let Some((index, op)) = missed {
            return Err(format!("request {index} of stream {stream} was left out: {op:?}"));
        }
    }
    Ok(())
}
