//! One way: Sends, Writes, Writes with Immediate or Reads, up to the depth in flight.
//!
//! Both ends run the same loop. The client sends messages, or both ends do. Work requests are posted in lists; every n-th is
//! signaled, and its completion covers all requests before it.
//!
//! Sends and Immediate Data consume receives of the peer, and iWARP has no receiver-not-ready. So each message costs the
//! sender a credit. An empty Send returns a fixed number of credits and costs none, since a few receives are kept beyond
//! the credits. Validated Writes are checked in batches of `depth` messages: an empty Send requests the check, and an
//! empty Send confirms it.

use std::ops::Range;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use ironwarp::{Completion, CompletionOpcode, SendWr};
use ironwarp_bench::{Budget, Case, ServerSlice, Slice, StopCondition, StopSignal, Test, nanos};
use ironwarp_types::limits::INLINE_BYTES_MAX;

use super::super::case::RdmaTest;
use super::super::endpoint::{Endpoint, Result};
use super::super::open_case::{Arrived, OpenCase, QpContext, QueueSizes, qp_and_slot, wr_id};
use super::ready_queue::ReadyQueue;
use super::timer::{Timer, linger};

/// Completions reaped at a time.
const REAP: usize = 32;
/// Work requests posted together, at most.
const LIST_MAX: usize = 64;
/// How long the server waits, after the stop, for the next message in flight.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(1);

/// One end of a bandwidth case.
pub struct BandwidthTest {
    open: OpenCase,
    /// Whether this end sends messages.
    sends: bool,
    qp_states: Vec<BandwidthQpState>,
    /// Queue pairs that can post.
    ready: ReadyQueue,
    /// Messages posted, over all queue pairs and slices.
    posted: u64,
    /// Messages of this end that completed in this slice.
    completed: u64,
    /// Messages that arrived in this slice and consumed receives.
    arrived: u64,
    errors: u64,
    verified_bytes: u64,
    /// Credits given back at a time.
    credit_batch: u64,
    /// Kept between polls: clearing it takes longer than polling an empty queue.
    reaped: Box<[Completion]>,
}

/// Counts of one queue pair, over all slices.
#[derive(Clone, Copy, Debug, Default)]
struct BandwidthQpState {
    /// Messages posted.
    posted: u64,
    /// Messages known to be complete.
    completed: u64,
    /// Receives that the other end has for our Sends.
    credits: u64,
    /// Messages received for which no credit was given back yet.
    credits_to_return: u64,
    /// Messages received.
    received: u64,
    /// A lot of validated Writes is being checked by the other end.
    awaiting_check: bool,
}

impl BandwidthTest {
    pub fn new(open: OpenCase, client: bool) -> Self {
        let receives = u64::from(QueueSizes::of(&open.case).receives);
        let qp_state = BandwidthQpState { credits: receives, ..BandwidthQpState::default() };
        BandwidthTest {
            sends: client || open.case.bidirectional,
            qp_states: vec![qp_state; open.qps.len()],
            ready: ReadyQueue::all(open.qps.len()),
            posted: 0,
            completed: 0,
            arrived: 0,
            errors: 0,
            verified_bytes: 0,
            credit_batch: (receives / 4).max(1),
            reaped: Box::new([Completion::default(); REAP]),
            open,
        }
    }

    fn begin(&mut self) {
        (self.completed, self.arrived, self.errors, self.verified_bytes) = (0, 0, 0, 0);
    }

    /// Messages of each queue pair that are complete, over all slices.
    fn completed_by_qp(&self) -> impl Iterator<Item = u64> {
        self.qp_states.iter().map(|qp_state| qp_state.completed)
    }

    fn on_receive(&mut self, endpoint: &mut Endpoint, completion: &Completion) -> Result<()> {
        let arrived = self.open.arrived(completion);
        match completion.opcode {
            CompletionOpcode::ReceiveImmediate => {
                self.on_immediate(arrived.index, completion.immediate)?;
            }
            _ if completion.byte_len == 0 => return self.on_empty_send(endpoint, arrived),
            _ => self.check_arrived(arrived.index, (arrived.memory_of, arrived.slot))?,
        }
        self.return_credit(endpoint, arrived)
    }

    /// Posts on every queue pair with free slots, at most `allowed` messages in all.
    fn post(&mut self, endpoint: &mut Endpoint, mut allowed: u64) -> Result<()> {
        // A list is posted whole: its cost is measured.
        let list = u64::from(self.open.case.post_list).min(LIST_MAX as u64);
        while allowed >= list
            && let Some(index) = self.ready.pop()
        {
            for _ in 0..self.free_slots(index).min(allowed) / list {
                self.post_list(endpoint, index, list)?;
                allowed -= list;
            }
            if self.free_slots(index) >= list {
                self.ready.push(index);
            }
        }
        Ok(())
    }

    /// Messages that a queue pair can post.
    fn free_slots(&self, index: usize) -> u64 {
        let (case, qp_state) = (&self.open.case, &self.qp_states[index]);
        let depth = u64::from(case.depth);
        let outstanding = qp_state.posted - qp_state.completed;
        let free_slots = depth.saturating_sub(outstanding);
        match case.test {
            test if test.consumes_receives() => free_slots.min(qp_state.credits),
            // A batch is checked before its slots are written again.
            Test::WriteBw if case.validate && qp_state.awaiting_check => 0,
            Test::WriteBw if case.validate => free_slots.min(depth - qp_state.posted % depth),
            _ => free_slots,
        }
    }

    fn post_list(&mut self, endpoint: &mut Endpoint, index: usize, list: u64) -> Result<()> {
        let (case, qp_ctx, qp_state) = (&self.open.case, &self.open.qps[index], &mut self.qp_states[index]);
        for message in qp_state.posted..qp_state.posted + list {
            let slot = slot_of(qp_ctx, message);
            match case.test {
                Test::ReadBw if case.validate => {
                    qp_ctx.sink.fill(slot * case.bytes as usize, case.bytes as usize, 0)?
                }
                Test::ReadBw => {}
                _ => qp_ctx.fill_source(case, slot, message)?,
            }
        }
        post_messages(endpoint, &self.open, index, qp_state.posted..qp_state.posted + list)?;
        qp_state.posted += list;
        self.posted += list;
        if case.test.consumes_receives() {
            qp_state.credits -= list;
        }
        if case.test == Test::WriteBw
            && case.validate
            && qp_state.posted.is_multiple_of(u64::from(case.depth))
        {
            qp_state.awaiting_check = true;
            self.post_empty_send(endpoint, index)?;
        }
        Ok(())
    }

    /// Posts an empty Send: credits, a request to check, or its confirmation.
    fn post_empty_send(&mut self, endpoint: &mut Endpoint, index: usize) -> Result<()> {
        let wr = SendWr::send_inline(wr_id(index, 0), &[]).unsignaled();
        Ok(endpoint.ctx.post_send(self.open.qps[index].qp, &wr)?)
    }

    fn on_empty_send(&mut self, endpoint: &mut Endpoint, arrived: Arrived) -> Result<()> {
        self.open.replace_receive(endpoint, arrived)?;
        let index = arrived.index;
        if self.open.case.test.consumes_receives() {
            self.qp_states[index].credits += self.credit_batch;
            self.ready.push(index);
        } else if self.qp_states[index].awaiting_check {
            self.qp_states[index].awaiting_check = false;
            self.ready.push(index);
        } else {
            // All Writes of the batch were placed before the Send that requests the check (RFC 5040
            // s5.5).
            for slot in 0..self.open.case.depth as usize {
                let message = self.qp_states[index].received;
                self.qp_states[index].received += 1;
                self.check(index, slot, message)?;
            }
            self.post_empty_send(endpoint, index)?;
        }
        Ok(())
    }

    fn check(&mut self, index: usize, slot: usize, message: u64) -> Result<()> {
        self.errors += u64::from(!self.open.qps[index].sink_matches(&self.open.case, slot, message, 0)?);
        self.verified_bytes += self.open.case.bytes;
        Ok(())
    }

    /// Immediate Data has the number of the message written before it (RFC 7306 s6).
    fn on_immediate(&mut self, index: usize, octets: [u8; 8]) -> Result<()> {
        let message = self.qp_states[index].received;
        self.errors += u64::from(octets != message.to_be_bytes());
        let slot = slot_of(&self.open.qps[index], message);
        self.check_arrived(index, (index, slot))
    }

    /// Counts a message of queue pair `index`, and checks the slot of memory that holds it where the case is validated.
    fn check_arrived(&mut self, index: usize, (memory_of, slot): (usize, usize)) -> Result<()> {
        let message = self.qp_states[index].received;
        self.qp_states[index].received += 1;
        self.arrived += 1;
        if self.open.case.validate {
            self.check(memory_of, slot, message)?;
        }
        Ok(())
    }

    /// Posts a receive for the one that a message consumed, and returns credits in batches. A credit is returned after its
    /// receive is posted. Receives of a queue pair's own are posted in batches too.
    fn return_credit(&mut self, endpoint: &mut Endpoint, arrived: Arrived) -> Result<()> {
        let Arrived { index, .. } = arrived;
        if self.open.has_srq() {
            self.open.replace_receive(endpoint, arrived)?;
        }
        self.qp_states[index].credits_to_return += 1;
        if self.qp_states[index].credits_to_return >= self.credit_batch {
            self.qp_states[index].credits_to_return -= self.credit_batch;
            if !self.open.has_srq() {
                self.open.post_receives(endpoint, index, self.credit_batch)?;
            }
            self.post_empty_send(endpoint, index)?;
        }
        Ok(())
    }

    /// A signaled message completed, and with it the unsignaled ones before it.
    fn on_complete(&mut self, index: usize) -> Result<()> {
        let every = u64::from(self.open.case.signal_every);
        if self.open.case.test == Test::ReadBw && self.open.case.validate {
            for message in self.qp_states[index].completed..self.qp_states[index].completed + every {
                // A Read always returns the server's message 0.
                self.check(index, slot_of(&self.open.qps[index], message), 0)?;
            }
        }
        self.qp_states[index].completed += every;
        self.completed += every;
        self.ready.push(index);
        Ok(())
    }

    /// Completes the current batch or run of unsignaled messages, and waits until no message is in flight.
    fn drain(&mut self, endpoint: &mut Endpoint, until: StopCondition<'_>) -> Result<()> {
        while !until.halted() {
            let mut waiting = false;
            for index in 0..self.qp_states.len() {
                let completion_unit = completion_unit(&self.open.case);
                let remainder = self.qp_states[index].posted % completion_unit;
                if remainder > 0 && self.free_slots(index) > 0 {
                    self.post_list(endpoint, index, 1)?;
                }
                let qp_state = &self.qp_states[index];
                waiting |= remainder > 0 || qp_state.posted != qp_state.completed || qp_state.awaiting_check;
            }
            if !waiting {
                return Ok(());
            }
            self.poll(endpoint)?;
        }
        Ok(())
    }

    /// After the stop: drains this end and waits for the peer's messages. Returns the number of missing messages.
    fn wait_for_remaining(&mut self, endpoint: &mut Endpoint, expected: u64) -> Result<u64> {
        if self.sends {
            self.drain(endpoint, StopCondition::unhalted(Budget::iterations(0, 0)))?;
        }
        let expected = if self.open.case.test.consumes_receives() { expected } else { 0 };
        let (mut seen, mut last_arrival) = (self.arrived, Instant::now());
        while self.arrived < expected && last_arrival.elapsed() < ARRIVAL_TIMEOUT {
            self.poll(endpoint)?;
            if self.arrived > seen {
                (seen, last_arrival) = (self.arrived, Instant::now());
            }
        }
        linger(|| self.poll(endpoint))?;
        Ok(expected.saturating_sub(self.arrived))
    }
}

impl RdmaTest for BandwidthTest {
    fn open(&self) -> &OpenCase {
        &self.open
    }

    fn open_mut(&mut self) -> &mut OpenCase {
        &mut self.open
    }

    fn run_client(&mut self, endpoint: &mut Endpoint, until: StopCondition<'_>) -> Result<(Slice, u64)> {
        self.begin();
        let posted_before = self.posted;
        let completed_before: Vec<u64> = self.completed_by_qp().collect();
        let mut timer = Timer::new(until, self.open.case.rate);
        while !timer.is_over(self.completed) {
            let allowed = timer.allowance(self.posted - posted_before);
            self.post(endpoint, allowed)?;
            self.poll(endpoint)?;
        }
        self.drain(endpoint, until)?;
        let slice = timer.slice(self.completed, self.open.case.bytes);
        let by_qp = self.completed_by_qp().zip(completed_before).map(|(after, before)| after - before);
        let slice = Slice {
            errors: self.errors,
            verified_bytes: self.verified_bytes,
            messages_by_qp: by_qp.collect(),
            ..slice
        };
        Ok((slice, self.posted - posted_before))
    }

    fn run_server(&mut self, endpoint: &mut Endpoint, stop: &StopSignal) -> Result<ServerSlice> {
        self.begin();
        let start = Instant::now();
        while stop.raised().is_none() {
            if self.sends {
                self.post(endpoint, u64::MAX)?;
            }
            self.poll(endpoint)?;
        }
        let elapsed_ns = nanos(start.elapsed());
        let missing = self.wait_for_remaining(endpoint, stop.raised().unwrap_or(0))?;
        Ok(ServerSlice {
            messages: self.completed,
            bytes: self.completed * self.open.case.bytes,
            elapsed_ns,
            errors: self.errors + missing,
            verified_bytes: self.verified_bytes,
            ..ServerSlice::default()
        })
    }

    /// Polls the worker, then handles completions.
    fn poll(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        let count = endpoint.poll_or_wait_completions(self.open.cq, &mut self.reaped)?;
        for index_in_batch in 0..count {
            let completion = self.reaped[index_in_batch];
            match completion.opcode {
                CompletionOpcode::Receive | CompletionOpcode::ReceiveImmediate => {
                    self.on_receive(endpoint, &completion)?;
                }
                _ => self.on_complete(qp_and_slot(completion.wr_id).0)?,
            }
        }
        Ok(())
    }
}

/// Posts a list of messages: a Send, Write or Read each, or a Write followed by Immediate Data with its number.
fn post_messages(endpoint: &mut Endpoint, open: &OpenCase, index: usize, messages: Range<u64>) -> Result<()> {
    let (case, qp_ctx) = (&open.case, &open.qps[index]);
    let mut buffer = [0; INLINE_BYTES_MAX];
    let inline = qp_ctx.inline_bytes(case, &mut buffer)?;
    let numbers: ArrayVec<[u8; 8], LIST_MAX> = messages.clone().map(u64::to_be_bytes).collect();
    let mut wrs = ArrayVec::<SendWr<'_>, { 2 * LIST_MAX }>::new();
    for (message, number) in messages.zip(&numbers) {
        let slot = slot_of(qp_ctx, message);
        let id = wr_id(index, slot);
        let is_read = case.test == Test::ReadWriteBw && message % 2 == 1;
        let mut wr =
            if is_read { qp_ctx.read_wr(id, slot) } else { qp_ctx.message_wr(case, id, slot, inline) };
        if case.test == Test::WriteImmBw {
            wrs.push(wr.unsignaled());
            wr = SendWr::immediate(id, number);
        }
        let is_signaled = (message + 1).is_multiple_of(u64::from(case.signal_every));
        wrs.push(if is_signaled { wr } else { wr.unsignaled() });
    }
    endpoint.ctx.post_sends(qp_ctx.qp, &wrs).map_err(|(_, error)| error.into())
}

fn slot_of(qp_ctx: &QpContext, message: u64) -> usize {
    (message % qp_ctx.gather.len() as u64) as usize
}

/// Messages after which a queue pair can stop: a batch, or a run up to a signaled message.
fn completion_unit(case: &Case) -> u64 {
    match case.test {
        Test::WriteBw if case.validate => u64::from(case.depth),
        _ => u64::from(case.signal_every),
    }
}
