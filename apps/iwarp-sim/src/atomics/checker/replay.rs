//! An order of effects is carried out, step by step, against the history that it is to explain.
//!
//! Takes the history, the words at the end and places in the history; gives the first thing that is wrong. It is what a
//! history is believed for, so it shares nothing with the search that found the order.

use super::observations;
use crate::atomics::history::{History, Op, OpKind};

/// Whether the order explains everything.
pub fn verify(history: &History, end: &[u64], order: &[(usize, usize)]) -> Result<(), String> {
    let all = || order.iter().filter_map(|&(stream, index)| history.streams.get(stream)?.get(index));
    if all().count() != order.len() {
        return Err("the order names what is not in the history".into());
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

/// Nothing takes effect after it had to, where what was asked later still comes before it.
fn in_time<'a>(order: impl Iterator<Item = &'a Op>) -> Result<(), String> {
    let mut invoked_at = 0;
    for op in order {
        invoked_at = invoked_at.max(op.invoked_at);
        if op.latest() < invoked_at {
            return Err(format!("{op:?} comes behind what was asked at {invoked_at}"));
        }
    }
    Ok(())
}

/// Every answer is explained, once, and each stream keeps its order and leaves out nothing but its end.
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
