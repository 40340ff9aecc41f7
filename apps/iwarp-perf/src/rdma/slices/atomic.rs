//! Atomic operations on words of the server, one at a time or many in flight.
//!
//! All queue pairs visit all words, each in order from its own first word. FetchAdd adds 1. CmpSwap
//! replaces the expected value by the next one, and fails after a change by another queue pair. So
//! the value of a word is the number of operations that changed it, and after every slice the sum
//! of the server's words must equal the client's count. A value returned to a queue pair must be
//! larger than its previous value of the same word, since its operations execute in order
//! (RFC 7306 s7).

use std::time::{Duration, Instant};

use ironwarp::{AtomicOp, Region, SendWr};
use ironwarp_bench::{
    AtomicKind, RoundTrip, ServerSlice, Slice, StopCondition, StopSignal, measure_round_trips,
};

use super::super::case::RdmaTest;
use super::super::endpoint::Endpoint;
use super::super::open_case::{OpenCase, WORD_STRIDE, qp_and_slot, wr_id};
use super::ready_queue::ReadyQueue;
use super::timer::{Timer, linger};
use crate::error::{Error, Result};

/// After a halt, operations in flight may take this time.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
const POLLS_PER_HALT_CHECK: u32 = 1 << 10;
/// Distance between the first words of two queue pairs: a prime, so first words differ.
const WORD_STEP_PER_QP: u64 = 7919;

/// One end of an atomic case.
pub struct AtomicTest {
    open: OpenCase,
    /// What each queue pair knows of the words.
    values: Vec<KnownValues>,
    /// Queue pairs that can post.
    ready: ReadyQueue,
    /// Operations posted, over all queue pairs and slices.
    posted: u64,
    in_flight: u64,
    completed: u64,
    /// Operations that changed their word, over all slices.
    changed: u64,
    /// Impossible values in this slice.
    errors: u64,
}

struct KnownValues {
    expected: Vec<u64>,
    /// The compare value of CmpSwap, by slot.
    compared: Vec<u64>,
}

impl AtomicTest {
    pub fn new(open: OpenCase) -> Self {
        let (words, depth) = (open.case.words as usize, open.case.depth as usize);
        let known = |_| KnownValues { expected: vec![0; words], compared: vec![0; depth] };
        AtomicTest {
            values: open.qps.iter().map(known).collect(),
            ready: ReadyQueue::all(open.qps.len()),
            posted: 0,
            in_flight: 0,
            completed: 0,
            changed: 0,
            errors: 0,
            open,
        }
    }

    fn run_bandwidth(&mut self, endpoint: &mut Endpoint, until: StopCondition<'_>) -> Result<Slice> {
        let (before, depth) = (self.posted, u64::from(self.open.case.depth));
        let mut timer = Timer::new(until, self.open.case.rate);
        while !timer.is_over(self.completed) {
            let mut allowed = timer.allowance(self.posted - before);
            while allowed > 0
                && let Some(index) = self.ready.pop()
            {
                let qp_ctx = &self.open.qps[index];
                let free_slots = depth - (qp_ctx.sent - qp_ctx.completed);
                for _ in 0..free_slots.min(allowed) {
                    self.post(endpoint, index)?;
                }
                if free_slots > allowed {
                    self.ready.push(index);
                }
                allowed = allowed.saturating_sub(free_slots);
            }
            self.poll(endpoint)?;
        }
        let slice = timer.slice(self.completed, self.open.case.bytes);
        self.drain(endpoint, until)?;
        Ok(slice)
    }

    fn run_latency(&mut self, endpoint: &mut Endpoint, until: StopCondition<'_>) -> Result<Slice> {
        let mut number = 0;
        measure_round_trips(self.open.case.bytes, until, |_| {
            let start = Instant::now();
            self.post(endpoint, number % self.values.len())?;
            self.drain(endpoint, until)?;
            number += 1;
            Ok(RoundTrip::Done { rtt: start.elapsed(), is_intact: true })
        })
    }

    fn post(&mut self, endpoint: &mut Endpoint, index: usize) -> Result<()> {
        let (qp_ctx, known) = (&mut self.open.qps[index], &mut self.values[index]);
        let word = word_of(index, qp_ctx.sent, self.open.case.words);
        let slot = (qp_ctx.sent % u64::from(self.open.case.depth)) as usize;
        let operation = match self.open.case.operation {
            Some(AtomicKind::CmpSwap) => {
                let expected = known.expected[word];
                // The next one on this word expects that this one succeeds.
                (known.compared[slot], known.expected[word]) = (expected, expected.wrapping_add(1));
                AtomicOp::compare_and_swap(expected, expected.wrapping_add(1))
            }
            _ => AtomicOp::add(1),
        };
        let there = qp_ctx.remote.sink((word * WORD_STRIDE) as u64);
        qp_ctx.sent += 1;
        self.posted += 1;
        self.in_flight += 1;
        let wr = SendWr::atomic(wr_id(index, slot), &qp_ctx.scatter[slot], there, &operation);
        Ok(endpoint.ctx.post_send(qp_ctx.qp, &wr)?)
    }

    /// Handles a returned value of a word. Operations of a queue pair complete in order.
    fn on_value(&mut self, index: usize, slot: usize, value: u64) {
        let (qp_ctx, known) = (&mut self.open.qps[index], &mut self.values[index]);
        let word = word_of(index, qp_ctx.completed, self.open.case.words);
        qp_ctx.completed += 1;
        self.completed += 1;
        self.in_flight -= 1;
        self.ready.push(index);
        if self.open.case.operation == Some(AtomicKind::CmpSwap) {
            if value == known.compared[slot] {
                self.changed += 1;
            } else {
                // Another queue pair changed the word; operations in flight fail too.
                known.expected[word] = value;
            }
            return;
        }
        self.changed += 1;
        self.errors += u64::from(value < known.expected[word]);
        known.expected[word] = value.wrapping_add(1);
    }

    /// Waits until no operation is in flight, without a time limit: the owner of a word may be
    /// descheduled. The stack closes the connection of an operation that makes no progress.
    fn drain(&mut self, endpoint: &mut Endpoint, until: StopCondition<'_>) -> Result<()> {
        let (mut polls, mut halted) = (0_u32, None);
        while self.in_flight > 0 {
            self.poll(endpoint)?;
            polls = polls.wrapping_add(1);
            let halted = polls.is_multiple_of(POLLS_PER_HALT_CHECK)
                && until.halted()
                && halted.get_or_insert_with(Instant::now).elapsed() > DRAIN_TIMEOUT;
            if halted || endpoint.is_control_lost() {
                return Err(Error::Halted);
            }
        }
        Ok(())
    }
}

impl RdmaTest for AtomicTest {
    fn open(&mut self) -> &mut OpenCase {
        &mut self.open
    }

    /// The client's part of a slice. Also returns the expected sum of the server's words.
    fn run_client(&mut self, endpoint: &mut Endpoint, until: StopCondition<'_>) -> Result<(Slice, u64)> {
        (self.completed, self.errors) = (0, 0);
        let before = self.open.completed_by_qp();
        let slice = match self.open.case.test.is_latency() {
            true => self.run_latency(endpoint, until)?,
            false => self.run_bandwidth(endpoint, until)?,
        };
        let (errors, messages_by_qp) = (self.errors, self.open.completed_since(&before));
        Ok((Slice { errors, verified_bytes: slice.bytes, messages_by_qp, ..slice }, self.changed))
    }

    /// The server's part of a slice. The stack alone executes operations; in the end the sum of the
    /// words is checked.
    fn run_server(&mut self, endpoint: &mut Endpoint, stop: &StopSignal) -> Result<ServerSlice> {
        while stop.raised().is_none() {
            self.poll(endpoint)?;
        }
        linger(|| self.poll(endpoint))?;
        let (sum, expected) = (sum_of(&self.open.words)?, stop.raised().unwrap_or(0));
        tracing::info!("the words add up to {sum}; {expected} operations changed them");
        Ok(ServerSlice { errors: sum.abs_diff(expected), ..ServerSlice::default() })
    }

    /// Polls the worker, then handles completions.
    fn poll(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        for index_in_batch in 0..self.open.poll(endpoint)? {
            let (index, slot) = qp_and_slot(self.open.reaped[index_in_batch].wr_id);
            let mut value = [0; 8];
            self.open.qps[index].sink.read_at(slot * value.len(), &mut value)?;
            self.on_value(index, slot, u64::from_ne_bytes(value));
        }
        Ok(())
    }
}

pub fn sum_of(words: &[Region]) -> Result<u64> {
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
