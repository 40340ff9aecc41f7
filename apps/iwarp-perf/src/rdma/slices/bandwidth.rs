//! One way: Sends, Writes, Writes with Immediate or Reads, up to the depth in flight.
//!
//! Both ends run the same loop. The client sends messages, or both ends do. Work requests are
//! posted in lists; every n-th is signaled, and its completion covers all requests before it.
//!
//! Sends and Immediate Data consume receives of the peer, and iWARP has no receiver-not-ready. So
//! each message costs the sender a credit. An empty Send returns a fixed number of credits and
//! costs none, since a few receives are kept beyond the credits. Validated Writes are checked in
//! batches of `depth` messages: an empty Send requests the check, and an empty Send confirms it.

use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use ironwarp::{Completion, CompletionOpcode, SendWr};
use ironwarp_bench::{Budget, Case, ServerSlice, Slice, StopCondition, StopSignal, Test, nanos};
use ironwarp_types::limits::INLINE_BYTES_MAX;

use super::super::case::RdmaTest;
use super::super::endpoint::Endpoint;
use super::super::open_case::{Arrived, OpenCase, QpContext, QueueSizes, qp_and_slot, wr_id};
use super::ready_queue::ReadyQueue;
use super::timer::{Timer, linger};
use crate::error::Result;

/// Work requests posted together, at most.
const LIST_MAX: usize = 64;
/// How long the server waits, after the stop, for the next message in flight.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(1);

/// One end of a bandwidth case.
pub struct BandwidthTest {
    open: OpenCase,
    sends: bool,
    credits: Vec<Credits>,
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
}

/// What a queue pair may send.
#[derive(Clone, Copy, Debug, Default)]
struct Credits {
    /// Receives that the other end has for our Sends.
    ours: u64,
    /// Messages received for which no credit was given back yet.
    to_return: u64,
    /// A batch of validated Writes is being checked by the other end.
    awaiting_check: bool,
}

impl BandwidthTest {
    pub fn new(open: OpenCase, client: bool) -> Self {
        let receives = u64::from(QueueSizes::of(&open.case).receives);
        BandwidthTest {
            sends: client || open.case.bidirectional,
            credits: vec![Credits { ours: receives, ..Credits::default() }; open.qps.len()],
            ready: ReadyQueue::all(open.qps.len()),
            posted: 0,
            completed: 0,
            arrived: 0,
            errors: 0,
            verified_bytes: 0,
            credit_batch: (receives / 4).max(1),
            open,
        }
    }

    fn begin(&mut self) {
        (self.completed, self.arrived, self.errors, self.verified_bytes) = (0, 0, 0, 0);
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
        let (case, qp_ctx, credits) = (&self.open.case, &self.open.qps[index], &self.credits[index]);
        let depth = u64::from(case.depth);
        let free_slots = depth.saturating_sub(qp_ctx.sent - qp_ctx.completed);
        match case.test {
            test if test.consumes_receives() => free_slots.min(credits.ours),
            // A batch is checked before its slots are written again.
            Test::WriteBw if case.validate && credits.awaiting_check => 0,
            Test::WriteBw if case.validate => free_slots.min(depth - qp_ctx.sent % depth),
            _ => free_slots,
        }
    }

    fn post_list(&mut self, endpoint: &mut Endpoint, index: usize, list: u64) -> Result<()> {
        let (case, qp_ctx) = (&self.open.case, &mut self.open.qps[index]);
        for message in qp_ctx.sent..qp_ctx.sent + list {
            let slot = slot_of(qp_ctx, message);
            match case.test {
                Test::ReadBw if case.validate => {
                    qp_ctx.sink.fill(slot * case.bytes as usize, case.bytes as usize, 0)?
                }
                Test::ReadBw => {}
                _ => qp_ctx.fill_source(case, slot, message)?,
            }
        }
        post_messages(endpoint, case, index, qp_ctx, list)?;
        qp_ctx.sent += list;
        self.posted += list;
        if case.test.consumes_receives() {
            self.credits[index].ours -= list;
        }
        let is_batch_posted = qp_ctx.sent.is_multiple_of(u64::from(case.depth));
        if case.test == Test::WriteBw && case.validate && is_batch_posted {
            self.credits[index].awaiting_check = true;
            self.post_empty_send(endpoint, index)?;
        }
        Ok(())
    }

    /// Posts an empty Send: credits, a request to check, or its confirmation.
    fn post_empty_send(&mut self, endpoint: &mut Endpoint, index: usize) -> Result<()> {
        let wr = SendWr::send_inline(wr_id(index, 0), &[]).unsignaled();
        Ok(endpoint.ctx.post_send(self.open.qps[index].qp, &wr)?)
    }

    fn on_receive(&mut self, endpoint: &mut Endpoint, completion: &Completion) -> Result<()> {
        let arrived = self.open.arrived(completion);
        let Arrived { index, memory_of, slot } = arrived;
        match completion.opcode {
            // Immediate Data has the number of the message written before it (RFC 7306 s6).
            CompletionOpcode::ReceiveImmediate => {
                let message = self.open.qps[index].received;
                self.errors += u64::from(completion.immediate != message.to_be_bytes());
                let slot = slot_of(&self.open.qps[index], message);
                self.on_message(index, (index, slot))?;
            }
            _ if completion.byte_len == 0 => return self.on_empty_send(endpoint, arrived),
            _ => self.on_message(index, (memory_of, slot))?,
        }
        self.return_credit(endpoint, arrived)
    }

    fn on_empty_send(&mut self, endpoint: &mut Endpoint, arrived: Arrived) -> Result<()> {
        self.open.replace_receive(endpoint, arrived)?;
        let index = arrived.index;
        if self.open.case.test.consumes_receives() {
            self.credits[index].ours += self.credit_batch;
            self.ready.push(index);
        } else if self.credits[index].awaiting_check {
            self.credits[index].awaiting_check = false;
            self.ready.push(index);
        } else {
            // All Writes of the batch were placed before the Send that requests the check
            // (RFC 5040 s5.5).
            for slot in 0..self.open.case.depth as usize {
                let message = self.open.qps[index].received;
                self.open.qps[index].received += 1;
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

    /// Counts a message of queue pair `index`, and checks the slot of memory that holds it where
    /// the case is validated.
    fn on_message(&mut self, index: usize, (memory_of, slot): (usize, usize)) -> Result<()> {
        let message = self.open.qps[index].received;
        self.open.qps[index].received += 1;
        self.arrived += 1;
        if self.open.case.validate { self.check(memory_of, slot, message) } else { Ok(()) }
    }

    /// Posts a receive for the one that a message consumed, and returns credits in batches. A
    /// credit is returned after its receive is posted. Receives of a queue pair's own are posted in
    /// batches too.
    fn return_credit(&mut self, endpoint: &mut Endpoint, arrived: Arrived) -> Result<()> {
        let index = arrived.index;
        if self.open.has_srq() {
            self.open.replace_receive(endpoint, arrived)?;
        }
        self.credits[index].to_return += 1;
        if self.credits[index].to_return < self.credit_batch {
            return Ok(());
        }
        self.credits[index].to_return -= self.credit_batch;
        if !self.open.has_srq() {
            self.open.post_receives(endpoint, index, self.credit_batch)?;
        }
        self.post_empty_send(endpoint, index)
    }

    /// A signaled message completed, and with it the unsignaled ones before it.
    fn on_complete(&mut self, index: usize) -> Result<()> {
        let every = u64::from(self.open.case.signal_every);
        if self.open.case.test == Test::ReadBw && self.open.case.validate {
            let completed = self.open.qps[index].completed;
            for message in completed..completed + every {
                // A Read always returns the server's message 0.
                self.check(index, slot_of(&self.open.qps[index], message), 0)?;
            }
        }
        self.open.qps[index].completed += every;
        self.completed += every;
        self.ready.push(index);
        Ok(())
    }

    /// Completes the current batch or run of unsignaled messages, and waits until no message is in
    /// flight.
    fn drain(&mut self, endpoint: &mut Endpoint, until: StopCondition<'_>) -> Result<()> {
        // Messages after which a queue pair can stop: a batch, or a run up to a signaled message.
        let unit = match self.open.case.test {
            Test::WriteBw if self.open.case.validate => self.open.case.depth,
            _ => self.open.case.signal_every,
        };
        while !until.halted() {
            let mut waiting = false;
            for index in 0..self.open.qps.len() {
                let remainder = self.open.qps[index].sent % u64::from(unit);
                if remainder > 0 && self.free_slots(index) > 0 {
                    self.post_list(endpoint, index, 1)?;
                }
                let (qp_ctx, credits) = (&self.open.qps[index], &self.credits[index]);
                waiting |= remainder > 0 || qp_ctx.sent != qp_ctx.completed || credits.awaiting_check;
            }
            if !waiting {
                return Ok(());
            }
            self.poll(endpoint)?;
        }
        Ok(())
    }

    /// After the stop: drains this end and waits for the peer's messages. Returns the number of
    /// missing messages.
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
    fn open(&mut self) -> &mut OpenCase {
        &mut self.open
    }

    fn run_client(&mut self, endpoint: &mut Endpoint, until: StopCondition<'_>) -> Result<(Slice, u64)> {
        self.begin();
        let posted_before = self.posted;
        let completed_before = self.open.completed_by_qp();
        let mut timer = Timer::new(until, self.open.case.rate);
        while !timer.is_over(self.completed) {
            let allowed = timer.allowance(self.posted - posted_before);
            self.post(endpoint, allowed)?;
            self.poll(endpoint)?;
        }
        self.drain(endpoint, until)?;
        let slice = timer.slice(self.completed, self.open.case.bytes);
        let slice = Slice {
            errors: self.errors,
            verified_bytes: self.verified_bytes,
            messages_by_qp: self.open.completed_since(&completed_before),
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
        for index_in_batch in 0..self.open.poll(endpoint)? {
            let completion = self.open.reaped[index_in_batch];
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

/// Posts the next messages in a list: a Send, Write or Read each, or a Write followed by Immediate
/// Data with its number.
fn post_messages(
    endpoint: &mut Endpoint,
    case: &Case,
    index: usize,
    qp_ctx: &QpContext,
    list: u64,
) -> Result<()> {
    let messages = qp_ctx.sent..qp_ctx.sent + list;
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
