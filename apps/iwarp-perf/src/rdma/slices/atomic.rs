//! Atomic operations on words of the far end, one at a time or many on their way.
//!
//! All queue pairs share the words and walk through them, each from another place. FetchAdd adds 1; CmpSwap replaces what
//! this queue pair expects by one more, which fails where somebody else was there meanwhile. Each word's value is so the
//! number of operations that succeeded on it: at the end of every slice the far end adds its words up, and that sum must be
//! the near end's count exactly. Before that, each value that comes back must be larger than the one that the same queue
//! pair had from the same word, since its operations are carried out in order (RFC 7306 s7).

use std::time::{Duration, Instant};

use ironwarp::{AtomicOp, Completion, Region, SendWr};
use ironwarp_bench::{
    AtomicKind, RoundTrip, ServerSlice, Slice, StopCondition, StopSignal, measure_round_trips,
};

use super::super::endpoint::{Endpoint, RdmaError};
use super::super::open_case::{OpenCase, WORD_STRIDE, qp_and_slot, wr_id};
use super::ready_queue::ReadyQueue;
use super::timer::Timer;

/// Completions reaped at a time.
const REAP: usize = 64;
/// What is on its way when the user, or an end that goes, says halt is waited for so long.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Turns between two looks at whether somebody said so.
const POLLS_PER_HALT_CHECK: u32 = 1 << 10;
/// How long the server polls on so that the last received data is acknowledged.
const LINGER: Duration = Duration::from_millis(1);
/// From one queue pair's first word to the next one's: prime to every number of words that is none of its multiples.
const WORD_STEP_PER_QP: u64 = 7919;

/// One end of an atomic case.
pub struct AtomicTest {
    qp_states: Vec<AtomicQpState>,
    /// Lanes that may begin operations.
    ready: ReadyQueue,
    /// Operations posted, over all lanes and slices.
    posted: u64,
    /// Of those, the ones that are not complete.
    in_flight: u64,
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
struct AtomicQpState {
    posted: u64,
    completed: u64,
    /// What each word is expected to be next.
    expected: Vec<u64>,
    /// What CmpSwap compared with, by slot.
    compared: Vec<u64>,
}

impl AtomicTest {
    /// This end's side of a case.
    pub fn new(open: &OpenCase) -> Self {
        let (words, depth) = (open.case.words as usize, open.case.depth as usize);
        let qp_state =
            || AtomicQpState { posted: 0, completed: 0, expected: vec![0; words], compared: vec![0; depth] };
        let qp_states = open.qps.iter().map(|_| qp_state()).collect();
        AtomicTest {
            qp_states,
            ready: ReadyQueue::all(open.qps.len()),
            posted: 0,
            in_flight: 0,
            completed: 0,
            changed: 0,
            errors: 0,
            reaped: Box::new([Completion::default(); REAP]),
        }
    }

    /// The near end of a slice. Answers it, and what the far end's words must add up to.
    pub fn run_client(
        &mut self,
        endpoint: &mut Endpoint,
        open: &OpenCase,
        until: StopCondition<'_>,
    ) -> Result<(Slice, u64), RdmaError> {
        (self.completed, self.errors) = (0, 0);
        let slice = match open.case.test.is_latency() {
            true => self.run_latency(endpoint, open, until)?,
            false => self.run_bandwidth(endpoint, open, until)?,
        };
        let slice = Slice { errors: self.errors, verified_bytes: slice.bytes, ..slice };
        Ok((slice, self.changed))
    }

    fn run_bandwidth(
        &mut self,
        endpoint: &mut Endpoint,
        open: &OpenCase,
        until: StopCondition<'_>,
    ) -> Result<Slice, RdmaError> {
        let (before, depth) = (self.posted, u64::from(open.case.depth));
        let mut timer = Timer::new(until, open.case.rate);
        while !timer.is_over(self.completed) {
            let mut allowed = timer.allowance(self.posted - before);
            while allowed > 0
                && let Some(index) = self.ready.pop()
            {
                let qp_state = &self.qp_states[index];
                let free_slots = depth - (qp_state.posted - qp_state.completed);
                for _ in 0..free_slots.min(allowed) {
                    self.post(endpoint, open, index)?;
                }
                if free_slots > allowed {
                    self.ready.push(index);
                }
                allowed = allowed.saturating_sub(free_slots);
            }
            self.poll(endpoint, open)?;
        }
        let slice = timer.slice(self.completed, open.case.bytes);
        self.drain(endpoint, open, until)?;
        Ok(slice)
    }

    fn run_latency(
        &mut self,
        endpoint: &mut Endpoint,
        open: &OpenCase,
        until: StopCondition<'_>,
    ) -> Result<Slice, RdmaError> {
        let mut number = 0;
        measure_round_trips(open.case.bytes, until, |_| {
            let start = Instant::now();
            self.post(endpoint, open, number % self.qp_states.len())?;
            self.drain(endpoint, open, until)?;
            number += 1;
            Ok(RoundTrip::Done { rtt: start.elapsed(), is_intact: true })
        })
    }

    fn post(&mut self, endpoint: &mut Endpoint, open: &OpenCase, index: usize) -> Result<(), RdmaError> {
        let (qp_ctx, qp_state) = (&open.qps[index], &mut self.qp_states[index]);
        let word = word_of(index, qp_state.posted, open.case.words);
        let slot = (qp_state.posted % u64::from(open.case.depth)) as usize;
        let operation = match open.case.operation {
            Some(AtomicKind::CmpSwap) => {
                let expected = qp_state.expected[word];
                // The next one on this word expects that this one succeeds.
                (qp_state.compared[slot], qp_state.expected[word]) = (expected, expected.wrapping_add(1));
                AtomicOp::compare_and_swap(expected, expected.wrapping_add(1))
            }
            _ => AtomicOp::add(1),
        };
        let there = qp_ctx.remote.sink((word * WORD_STRIDE) as u64);
        qp_state.posted += 1;
        self.posted += 1;
        self.in_flight += 1;
        let wr = SendWr::atomic(wr_id(index, slot), &qp_ctx.scatter[slot], there, &operation);
        Ok(endpoint.ctx.post_send(qp_ctx.qp, &wr)?)
    }

    /// One turn of the loop: the workers, then what has completed.
    pub fn poll(&mut self, endpoint: &mut Endpoint, open: &OpenCase) -> Result<(), RdmaError> {
        let count = endpoint.poll_or_wait_completions(open.cq, &mut self.reaped)?;
        for index_in_batch in 0..count {
            let completion = self.reaped[index_in_batch];
            let (index, slot) = qp_and_slot(completion.wr_id);
            let mut value = [0; 8];
            open.qps[index].sink.read_at(slot * value.len(), &mut value)?;
            self.on_value(open, index, slot, u64::from_ne_bytes(value));
        }
        Ok(())
    }

    /// A word's value before an operation came back: operations of a queue pair complete in order.
    fn on_value(&mut self, open: &OpenCase, index: usize, slot: usize, value: u64) {
        let qp_state = &mut self.qp_states[index];
        let word = word_of(index, qp_state.completed, open.case.words);
        qp_state.completed += 1;
        self.completed += 1;
        self.in_flight -= 1;
        self.ready.push(index);
        if open.case.operation == Some(AtomicKind::CmpSwap) {
            if value == qp_state.compared[slot] {
                self.changed += 1;
            } else {
                // Somebody was there before; what is on its way already fails too.
                qp_state.expected[word] = value;
            }
            return;
        }
        self.changed += 1;
        self.errors += u64::from(value < qp_state.expected[word]);
        qp_state.expected[word] = value.wrapping_add(1);
    }

    /// Waits until nothing is on its way. The owner of a word may have to wait for a processor, however long; an operation
    /// that gets no further ends its connection, which the stack sees to.
    fn drain(
        &mut self,
        endpoint: &mut Endpoint,
        open: &OpenCase,
        until: StopCondition<'_>,
    ) -> Result<(), RdmaError> {
        let (mut polls, mut halted) = (0_u32, None);
        while self.in_flight > 0 {
            self.poll(endpoint, open)?;
            polls = polls.wrapping_add(1);
            let halted = polls.is_multiple_of(POLLS_PER_HALT_CHECK)
                && until.halted()
                && halted.get_or_insert_with(Instant::now).elapsed() > DRAIN_TIMEOUT;
            if halted || endpoint.is_control_lost() {
                return Err(RdmaError::Halted);
            }
        }
        Ok(())
    }

    /// The far end of a slice: operations are answered by the stack alone. Its words must add up in the end.
    pub fn run_server(
        &mut self,
        endpoint: &mut Endpoint,
        open: &OpenCase,
        stop: &StopSignal,
    ) -> Result<ServerSlice, RdmaError> {
        while stop.raised().is_none() {
            self.poll(endpoint, open)?;
        }
        let linger_start = Instant::now();
        while linger_start.elapsed() < LINGER {
            self.poll(endpoint, open)?;
        }
        let (sum, expected) = (sum_of(&open.words)?, stop.raised().unwrap_or(0));
        tracing::info!("the words add up to {sum}; {expected} operations changed them");
        Ok(ServerSlice { errors: sum.abs_diff(expected), ..ServerSlice::default() })
    }
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
fn word_of(qp_index: usize, operation: u64, words: u32) -> usize {
    ((operation + qp_index as u64 * WORD_STEP_PER_QP) % u64::from(words)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_walks_through_every_word_in_turn() {
        for qp_index in [0, 1, 9] {
            let mut seen: Vec<usize> = (0..16).map(|operation| word_of(qp_index, operation, 16)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..16).collect::<Vec<_>>());
        }
        assert_eq!(word_of(3, 7, 1), 0);
        assert_ne!(word_of(0, 0, 16), word_of(1, 0, 16), "two queue pairs begin apart");
    }
}
