//! Atomic operations on words of the far end, one at a time or many on their way.
//!
//! All queue pairs share the words and walk through them, each from another place. FetchAdd adds 1; CmpSwap replaces what
//! this queue pair expects by one more, which fails where somebody else was there meanwhile. Each word's value is so the
//! number of operations that succeeded on it: at the end of every slice the far end adds its words up, and that sum must be
//! the near end's count exactly. Before that, each value that comes back must be larger than the one that the same queue
//! pair had from the same word, since its operations are carried out in order (RFC 7306 s7).

use std::time::{Duration, Instant};

use ironwarp::{AtomicOp, Completion, Region, SendWr};
use ironwarp_bench::{AtomicKind, FarSlice, Latency, Pace, Slice, StopSignal};

use super::super::endpoint::{Endpoint, RdmaError};
use super::super::lanes::{OpenCase, WORD_STRIDE, lane_and_slot, wr_id};
use super::rota::Rota;
use super::timer::{Timer, nanos};

/// Completions reaped at a time.
const REAP: usize = 64;
/// What is on its way when the user, or an end that goes, says halt is waited for so long.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// Turns between two looks at whether somebody said so.
const TURNS_A_LOOK: u32 = 1 << 10;
/// How long the far end polls on so that what came last is acknowledged.
const SETTLE: Duration = Duration::from_millis(1);
/// From one queue pair's first word to the next one's: prime to every number of words that is none of its multiples.
const LANE_STEP: u64 = 7919;

/// One end of an atomic case.
pub struct Atomics {
    lanes: Vec<Flow>,
    /// Lanes that may begin operations.
    rota: Rota,
    /// Operations posted, over all lanes and slices.
    posted: u64,
    /// Of those, the ones that are not complete.
    on_their_way: u64,
    /// Operations complete in this slice.
    completed: u64,
    /// Operations that changed their word, over all slices.
    changed: u64,
    /// Values that cannot be, in this slice.
    errors: u64,
    /// Where completions are reaped to: kept, since clearing it takes longer than a look at an empty queue.
    reaped: Box<[Completion]>,
}

/// One queue pair's account, over all slices.
struct Flow {
    posted: u64,
    completed: u64,
    /// What each word is expected to be next.
    expected: Vec<u64>,
    /// What CmpSwap compared with, by slot.
    compared: Vec<u64>,
}

impl Atomics {
    /// This end's side of a case.
    pub fn new(open: &OpenCase) -> Self {
        let (words, depth) = (open.case.words as usize, open.case.depth as usize);
        let flow = || Flow { posted: 0, completed: 0, expected: vec![0; words], compared: vec![0; depth] };
        let lanes = open.lanes.iter().map(|_| flow()).collect();
        Atomics {
            lanes,
            rota: Rota::all(open.lanes.len()),
            posted: 0,
            on_their_way: 0,
            completed: 0,
            changed: 0,
            errors: 0,
            reaped: Box::new([Completion::default(); REAP]),
        }
    }

    /// The near end of a slice. Answers it, and what the far end's words must add up to.
    pub fn near(
        &mut self,
        endpoint: &mut Endpoint,
        open: &OpenCase,
        pace: Pace<'_>,
    ) -> Result<(Slice, u64), RdmaError> {
        (self.completed, self.errors) = (0, 0);
        let slice = match open.case.test.is_latency() {
            true => self.one_by_one(endpoint, open, pace)?,
            false => self.many(endpoint, open, pace)?,
        };
        let slice = Slice { errors: self.errors, verified_bytes: slice.bytes, ..slice };
        Ok((slice, self.changed))
    }

    fn many(&mut self, endpoint: &mut Endpoint, open: &OpenCase, pace: Pace<'_>) -> Result<Slice, RdmaError> {
        let (before, depth) = (self.posted, u64::from(open.case.depth));
        let mut timer = Timer::new(pace, open.case.rate);
        while !timer.is_over(self.completed) {
            let mut allowed = timer.allowance(self.posted - before);
            while allowed > 0
                && let Some(index) = self.rota.take()
            {
                let flow = &self.lanes[index];
                let room = depth - (flow.posted - flow.completed);
                for _ in 0..room.min(allowed) {
                    self.post(endpoint, open, index)?;
                }
                if room > allowed {
                    self.rota.add(index);
                }
                allowed = allowed.saturating_sub(room);
            }
            self.turn(endpoint, open)?;
        }
        let slice = timer.slice(self.completed, open.case.bytes);
        self.drain(endpoint, open, pace)?;
        Ok(slice)
    }

    fn one_by_one(
        &mut self,
        endpoint: &mut Endpoint,
        open: &OpenCase,
        pace: Pace<'_>,
    ) -> Result<Slice, RdmaError> {
        let mut latency = Latency::new();
        let begun = Instant::now();
        let mut counted: Option<(Instant, u64)> = None;
        let mut number = 0_u64;
        loop {
            if counted.is_none() && pace.budget.is_warm(number, nanos(begun.elapsed())) {
                counted = Some((Instant::now(), number));
            }
            let is_spent =
                |(start, base): (Instant, u64)| pace.is_spent(number - base, nanos(start.elapsed()));
            if counted.is_some_and(is_spent) || pace.halted() {
                break;
            }
            let began = Instant::now();
            self.post(endpoint, open, (number % self.lanes.len() as u64) as usize)?;
            self.drain(endpoint, open, pace)?;
            if counted.is_some() {
                latency.record(nanos(began.elapsed()));
            }
            number += 1;
        }
        let messages = counted.map_or(0, |(_, base)| number - base);
        let elapsed_ns = counted.map_or(0, |(start, _)| nanos(start.elapsed()));
        let bytes = messages * open.case.bytes;
        Ok(Slice { latency: Some(latency), messages, bytes, elapsed_ns, ..Slice::default() })
    }

    fn post(&mut self, endpoint: &mut Endpoint, open: &OpenCase, index: usize) -> Result<(), RdmaError> {
        let (lane, flow) = (&open.lanes[index], &mut self.lanes[index]);
        let word = word_of(index, flow.posted, open.case.words);
        let slot = (flow.posted % u64::from(open.case.depth)) as usize;
        let operation = match open.case.operation {
            Some(AtomicKind::CmpSwap) => {
                let expected = flow.expected[word];
                // The next one on this word expects that this one succeeds.
                (flow.compared[slot], flow.expected[word]) = (expected, expected.wrapping_add(1));
                AtomicOp::compare_and_swap(expected, expected.wrapping_add(1))
            }
            _ => AtomicOp::add(1),
        };
        let there = lane.remote.sink((word * WORD_STRIDE) as u64);
        flow.posted += 1;
        self.posted += 1;
        self.on_their_way += 1;
        let wr = SendWr::atomic(wr_id(index, slot), &lane.scatter[slot], there, &operation);
        Ok(endpoint.ctx.post_send(lane.qp, &wr)?)
    }

    /// One turn of the loop: the workers, then what has completed.
    pub fn turn(&mut self, endpoint: &mut Endpoint, open: &OpenCase) -> Result<(), RdmaError> {
        let count = endpoint.await_completions(open.cq, &mut self.reaped)?;
        for place in 0..count {
            let completion = self.reaped[place];
            let (index, slot) = lane_and_slot(completion.wr_id);
            let mut value = [0; 8];
            open.lanes[index].sink.read_at(slot * value.len(), &mut value)?;
            self.on_value(open, index, slot, u64::from_ne_bytes(value));
        }
        Ok(())
    }

    /// A word's value before an operation came back: operations of a queue pair complete in order.
    fn on_value(&mut self, open: &OpenCase, index: usize, slot: usize, value: u64) {
        let flow = &mut self.lanes[index];
        let word = word_of(index, flow.completed, open.case.words);
        flow.completed += 1;
        self.completed += 1;
        self.on_their_way -= 1;
        self.rota.add(index);
        if open.case.operation == Some(AtomicKind::CmpSwap) {
            if value == flow.compared[slot] {
                self.changed += 1;
            } else {
                // Somebody was there before; what is on its way already fails too.
                flow.expected[word] = value;
            }
            return;
        }
        self.changed += 1;
        self.errors += u64::from(value < flow.expected[word]);
        flow.expected[word] = value.wrapping_add(1);
    }

    /// Waits until nothing is on its way. The owner of a word may have to wait for a processor, however long; an operation
    /// that gets no further ends its connection, which the stack sees to.
    fn drain(&mut self, endpoint: &mut Endpoint, open: &OpenCase, pace: Pace<'_>) -> Result<(), RdmaError> {
        let (mut turns, mut halted) = (0_u32, None);
        while self.on_their_way > 0 {
            self.turn(endpoint, open)?;
            turns = turns.wrapping_add(1);
            let halted = turns.is_multiple_of(TURNS_A_LOOK)
                && pace.halted()
                && halted.get_or_insert_with(Instant::now).elapsed() > LEAVE_WITHIN;
            if halted || endpoint.is_cut_off() {
                return Err(RdmaError::Halted);
            }
        }
        Ok(())
    }

    /// The far end of a slice: operations are answered by the stack alone. Its words must add up in the end.
    pub fn far(
        &mut self,
        endpoint: &mut Endpoint,
        open: &OpenCase,
        stop: &StopSignal,
    ) -> Result<FarSlice, RdmaError> {
        while stop.raised().is_none() {
            self.turn(endpoint, open)?;
        }
        let rest = Instant::now();
        while rest.elapsed() < SETTLE {
            self.turn(endpoint, open)?;
        }
        let (sum, expected) = (sum(open)?, stop.raised().unwrap_or(0));
        tracing::info!("the words add up to {sum}; {expected} operations changed them");
        Ok(FarSlice { errors: sum.abs_diff(expected), ..FarSlice::default() })
    }
}

/// The words of this end together.
fn sum(open: &OpenCase) -> Result<u64, RdmaError> {
    sum_of(&open.words)
}

/// All words together.
pub fn sum_of(words: &[Region]) -> Result<u64, RdmaError> {
    let mut sum = 0_u64;
    for set in words {
        for at in (0..set.len()).step_by(WORD_STRIDE) {
            let mut value = [0; 8];
            set.read_at(at, &mut value)?;
            sum = sum.wrapping_add(u64::from_ne_bytes(value));
        }
    }
    Ok(sum)
}

/// The word that a queue pair's operation goes to.
fn word_of(lane: usize, operation: u64, words: u32) -> usize {
    ((operation + lane as u64 * LANE_STEP) % u64::from(words)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_walks_through_every_word_in_turn() {
        for lane in [0, 1, 9] {
            let mut seen: Vec<usize> = (0..16).map(|operation| word_of(lane, operation, 16)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..16).collect::<Vec<_>>());
        }
        assert_eq!(word_of(3, 7, 1), 0);
        assert_ne!(word_of(0, 0, 16), word_of(1, 0, 16), "two queue pairs begin apart");
    }
}
