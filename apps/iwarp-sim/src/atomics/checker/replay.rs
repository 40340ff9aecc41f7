//! An order of effects is carried out, step by step, against the history that it is to explain.
//!
//! Takes the history, the words at the end and places in the history; gives the first thing that is wrong. It is what a
//! history is believed for, so it shares nothing with the search that found the order.

use super::sights;
use crate::atomics::history::{Act, History, Op};

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
        if let Some((word, value)) = sights(op).find(|&(word, value)| words[word] != value) {
            return Err(format!("{op:?} did not see {value:#x} in word {word}, but {:#x}", words[word]));
        }
        let (word, _) = op.act.words();
        words[word] = op.act.apply(words[word]);
    }
    if words == end { Ok(()) } else { Err(format!("the order ends with {words:x?}, memory with {end:x?}")) }
}

/// Nothing takes effect after it had to, where what was asked later still comes before it.
fn in_time<'a>(order: impl Iterator<Item = &'a Op>) -> Result<(), String> {
    let mut asked = 0;
    for op in order {
        asked = asked.max(op.asked);
        if op.latest() < asked {
            return Err(format!("{op:?} comes behind what was asked at {asked}"));
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
            let matters = op.is_heard() || *index < past && !matches!(op.act, Act::Look(..));
            matters && taken.binary_search(index).is_err()
        });
        if let Some((index, op)) = missed {
            return Err(format!("request {index} of stream {stream} was left out: {op:?}"));
        }
    }
    Ok(())
}
