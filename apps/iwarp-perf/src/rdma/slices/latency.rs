//! Round trips: Send and Send, Write and Write, Read, Immediate Data and the same behind a Write.
//!
//! One message is on its way at a time, on each queue pair in turn. Receives are posted before the message that they
//! are for, since iWARP has no receiver-not-ready: both ends begin with some and post one for each one used. A Write
//! has arrived when its last byte has, so both ends poll that byte, which changes with every message. Nobody can sleep
//! on a byte: ends that wait for events announce each Write by an empty Send, which is delivered behind it (RFC 5040
//! s5.5).

use std::time::{Duration, Instant};

use ironwarp::{Completion, CompletionOpcode, SendWr};
use ironwarp_bench::{Latency, ServerSlice, Slice, StopCondition, StopSignal, Test, Wait};

use super::super::endpoint::{Endpoint, RdmaError};
use super::super::open_case::{OpenCase, qp_and_slot, wr_id};
use super::timer::nanos;

/// Completions reaped at a time.
const REAP: usize = 16;
/// Buffer for polled completions. The poller keeps it, since clearing it takes longer than polling an empty queue.
pub type Reaped = [Completion; REAP];
/// How long the far end keeps polling after the stop, so that its last messages are acknowledged.
const LINGER: Duration = Duration::from_millis(20);

/// The near end of a slice.
pub fn latency_client(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    until: StopCondition<'_>,
) -> Result<Slice, RdmaError> {
    let mut slice = Slice { latency: Some(Latency::new()), ..Slice::default() };
    let begun = Instant::now();
    let mut warm = 0;
    while !until.budget.is_warm(warm, nanos(begun.elapsed())) {
        warm += 1;
        match round_trip(endpoint, open, reaped, until) {
            Ok(_) => repost_receive(endpoint, open)?,
            Err(RdmaError::Halted) => return Ok(slice),
            Err(error) => return Err(error),
        }
    }
    let start = Instant::now();
    let period = open.case.rate.map(|rate| Duration::from_secs_f64(1.0 / rate));
    while !until.is_spent(slice.messages, nanos(start.elapsed())) {
        let intended_start = match period {
            Some(period) => wait_until(endpoint, start + period.mul_f64(slice.messages as f64)),
            None => Instant::now(),
        };
        let is_intact = match round_trip(endpoint, open, reaped, until) {
            Ok(is_intact) => is_intact,
            Err(RdmaError::Halted) => break,
            Err(error) => return Err(error),
        };
        slice.latency.get_or_insert_default().record(nanos(intended_start.elapsed()));
        slice.messages += 1;
        slice.bytes += open.case.bytes;
        slice.errors += u64::from(!is_intact);
        slice.verified_bytes += if open.case.validate { open.case.bytes } else { 0 };
        repost_receive(endpoint, open)?;
    }
    slice.elapsed_ns = nanos(start.elapsed());
    Ok(slice)
}

/// Polls until the intended start of a message, and answers it: what comes late counts from when it should have been.
fn wait_until(endpoint: &mut Endpoint, intended: Instant) -> Instant {
    while Instant::now() < intended {
        endpoint.poll();
    }
    intended
}

/// One message there and back; whether every byte of it was right.
fn round_trip(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    until: StopCondition<'_>,
) -> Result<bool, RdmaError> {
    let index = open.next_qp();
    let message = open.qps[index].sent + 1;
    open.qps[index].sent = message;
    match open.case.test {
        Test::SendLat => {
            post_send(endpoint, open, index, message)?;
            wait_for((endpoint, open), reaped, CompletionOpcode::Receive, until)?;
            open.qps[index].received += 1;
            check(open, index, message, 0)
        }
        Test::WriteLat => {
            post_write(endpoint, open, index, message)?;
            if open.is_announced() {
                wait_for((endpoint, open), reaped, CompletionOpcode::Receive, until)?;
            } else {
                wait_for_last_byte((endpoint, open), reaped, (index, message), until)?;
            }
            check(open, index, message, 1)
        }
        Test::ImmLat | Test::WriteImmLat => {
            post_immediate(endpoint, open, index, message)?;
            let completion = wait_for((endpoint, open), reaped, CompletionOpcode::ReceiveImmediate, until)?;
            Ok(completion.immediate == message.to_be_bytes() && check(open, index, message, 0)?)
        }
        _ => {
            post_read(endpoint, open, index)?;
            wait_for((endpoint, open), reaped, CompletionOpcode::Read, until)?;
            // What is read is always the far end's message 0.
            check(open, index, 0, 0)
        }
    }
}

fn check(open: &OpenCase, index: usize, message: u64, skipped_tail_bytes: usize) -> Result<bool, RdmaError> {
    // Immediate Data has no memory.
    if !open.case.validate || open.case.test == Test::ImmLat {
        return Ok(true);
    }
    let qp_ctx = &open.qps[index];
    let slot = match open.case.test {
        Test::SendLat => ((qp_ctx.received - 1) % qp_ctx.scatter.len() as u64) as usize,
        _ => 0,
    };
    qp_ctx.sink_matches(&open.case, slot, message, skipped_tail_bytes)
}

fn post_send(endpoint: &mut Endpoint, open: &OpenCase, index: usize, message: u64) -> Result<(), RdmaError> {
    let qp_ctx = &open.qps[index];
    qp_ctx.fill_source(&open.case, 0, message)?;
    if open.is_inline() {
        let bytes = qp_ctx.inline_bytes(open.case.bytes)?;
        post(endpoint, open, index, SendWr::send_inline(wr_id(index, 0), &bytes))
    } else {
        post(endpoint, open, index, SendWr::send(wr_id(index, 0), &qp_ctx.gather[0]))
    }
}

fn post_write(endpoint: &mut Endpoint, open: &OpenCase, index: usize, message: u64) -> Result<(), RdmaError> {
    let qp_ctx = &open.qps[index];
    qp_ctx.fill_source(&open.case, 0, message)?;
    qp_ctx.source.write_at(open.case.bytes as usize - 1, &[message as u8])?;
    if open.is_inline() {
        let bytes = qp_ctx.inline_bytes(open.case.bytes)?;
        post(endpoint, open, index, SendWr::write_inline(wr_id(index, 0), &bytes, qp_ctx.remote.sink(0)))
    } else {
        post(endpoint, open, index, SendWr::write(wr_id(index, 0), &qp_ctx.gather[0], qp_ctx.remote.sink(0)))
    }
}

/// Posts Immediate Data that says which message it is, behind a Write where the test has one.
fn post_immediate(
    endpoint: &mut Endpoint,
    open: &OpenCase,
    index: usize,
    message: u64,
) -> Result<(), RdmaError> {
    let (qp_ctx, id, octets) = (&open.qps[index], wr_id(index, 0), message.to_be_bytes());
    if open.case.test == Test::ImmLat {
        return post(endpoint, open, index, SendWr::immediate(id, &octets));
    }
    qp_ctx.fill_source(&open.case, 0, message)?;
    let [write, immediate] =
        SendWr::write_with_immediate(id, &qp_ctx.gather[0], qp_ctx.remote.sink(0), &octets);
    Ok(endpoint.ctx.post_all(qp_ctx.qp, &[write, immediate.unsignaled()])?)
}

/// Posts a message. Its answer says all that a completion would say, and who sleeps is to be woken by what arrives, not by what
/// was sent. One that fails completes all the same.
fn post(endpoint: &mut Endpoint, open: &OpenCase, index: usize, wr: SendWr<'_>) -> Result<(), RdmaError> {
    let (qp, wr) = (open.qps[index].qp, wr.unsignaled());
    if !open.is_announced() {
        return Ok(endpoint.ctx.post_send(qp, &wr)?);
    }
    let announcement = SendWr::send_inline(wr_id(index, 0), &[]).unsignaled();
    endpoint.ctx.post_sends(qp, &[wr, announcement]).map_err(|(_, error)| error.into())
}

fn post_read(endpoint: &mut Endpoint, open: &OpenCase, index: usize) -> Result<(), RdmaError> {
    let qp_ctx = &open.qps[index];
    if open.case.validate {
        qp_ctx.sink.fill(0, open.case.bytes as usize, 0)?;
    }
    endpoint
        .ctx
        .post_send(qp_ctx.qp, &SendWr::read(wr_id(index, 0), &qp_ctx.scatter[0], qp_ctx.remote.source(0)))?;
    Ok(())
}

/// Polls until one completion of a kind has come.
fn wait_for(
    (endpoint, open): (&mut Endpoint, &OpenCase),
    reaped: &mut Reaped,
    kind: CompletionOpcode,
    until: StopCondition<'_>,
) -> Result<Completion, RdmaError> {
    loop {
        let count = endpoint.poll_or_wait_completions(open.cq, reaped)?;
        if let Some(completion) = reaped[..count].iter().find(|completion| completion.opcode == kind) {
            return Ok(*completion);
        }
        if until.halted() {
            return Err(RdmaError::Halted);
        }
    }
}

/// Polls until the last byte of the sink is that of a message.
fn wait_for_last_byte(
    (endpoint, open): (&mut Endpoint, &OpenCase),
    reaped: &mut Reaped,
    (index, message): (usize, u64),
    until: StopCondition<'_>,
) -> Result<(), RdmaError> {
    let last = open.case.bytes as usize - 1;
    loop {
        endpoint.poll();
        if open.qps[index].sink.load_u8_acquire(last)? == message as u8 {
            return Ok(());
        }
        endpoint.reap(open.cq, reaped)?;
        if until.halted() {
            return Err(RdmaError::Halted);
        }
    }
}

/// Posts a receive for the one that the last round trip used.
fn repost_receive(endpoint: &mut Endpoint, open: &mut OpenCase) -> Result<(), RdmaError> {
    let consumes_receive =
        open.case.test == Test::SendLat || open.case.test.is_immediate() || open.is_announced();
    if !consumes_receive {
        return Ok(());
    }
    // The lane whose turn it was is the one before the lane whose turn it is.
    let index = open.next_index.checked_sub(1).unwrap_or(open.qps.len() - 1);
    open.post_receive(endpoint, index)
}

/// The far end of a slice.
pub fn latency_server(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    stop: &StopSignal,
) -> Result<ServerSlice, RdmaError> {
    let mut server = ServerSlice::default();
    while stop.raised().is_none() {
        poll_latency_server(endpoint, open, reaped, &mut server)?;
    }
    linger(endpoint, open)?;
    Ok(server)
}

/// One iteration of the server: answers all received requests.
pub fn poll_latency_server(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    server: &mut ServerSlice,
) -> Result<(), RdmaError> {
    match open.case.test {
        Test::SendLat | Test::ImmLat | Test::WriteImmLat => reply_to_sends(endpoint, open, reaped, server),
        Test::WriteLat if open.is_announced() => reply_to_sends(endpoint, open, reaped, server),
        Test::WriteLat => reply_to_write(endpoint, open, reaped, server),
        // Reads are answered by the stack alone.
        _ => poll_or_sleep(endpoint, open, reaped),
    }
}

/// A turn with nothing to wait for.
fn poll_or_sleep(endpoint: &mut Endpoint, open: &OpenCase, reaped: &mut Reaped) -> Result<(), RdmaError> {
    if endpoint.waits_for_events() {
        endpoint.poll_or_wait_completions(open.cq, reaped)?;
    } else {
        endpoint.poll();
    }
    Ok(())
}

/// Answers each message that a Send or Immediate Data brings or announces. The answers leave before receives are posted in place
/// of those used, of which there are more.
fn reply_to_sends(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    server: &mut ServerSlice,
) -> Result<(), RdmaError> {
    let count = endpoint.poll_or_wait_completions(open.cq, reaped)?;
    if count == 0 {
        return Ok(());
    }
    let received = || reaped.iter().take(count).filter(|completion| is_received(completion));
    for completion in received() {
        reply_to(endpoint, open, completion, server)?;
    }
    endpoint.poll();
    for completion in received() {
        open.post_receive(endpoint, qp_and_slot(completion.wr_id).0)?;
    }
    Ok(())
}

fn is_received(completion: &Completion) -> bool {
    matches!(completion.opcode, CompletionOpcode::Receive | CompletionOpcode::ReceiveImmediate)
}

fn reply_to(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    completion: &Completion,
    server: &mut ServerSlice,
) -> Result<(), RdmaError> {
    let (index, slot) = qp_and_slot(completion.wr_id);
    let Some(qp_ctx) = open.qps.get_mut(index) else { return Ok(()) };
    qp_ctx.received += 1;
    let message = qp_ctx.received;
    if open.case.test.is_immediate() {
        server.errors += u64::from(completion.immediate != message.to_be_bytes());
        record_arrival(open, index, 0, message, 0, server)?;
        post_immediate(endpoint, open, index, message)
    } else if open.is_announced() {
        record_arrival(open, index, 0, message, 1, server)?;
        post_write(endpoint, open, index, message)
    } else {
        record_arrival(open, index, slot, message, 0, server)?;
        post_send(endpoint, open, index, message)
    }
}

fn reply_to_write(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    server: &mut ServerSlice,
) -> Result<(), RdmaError> {
    endpoint.poll();
    let index = open.next_index;
    let message = open.qps[index].received + 1;
    let last = open.case.bytes as usize - 1;
    if open.qps[index].sink.load_u8_acquire(last)? == message as u8 {
        open.qps[index].received = message;
        open.next_qp();
        record_arrival(open, index, 0, message, 1, server)?;
        post_write(endpoint, open, index, message)?;
        endpoint.reap(open.cq, reaped)?;
    }
    Ok(())
}

/// Takes an arrived message into the account, checked where the case is validated.
fn record_arrival(
    open: &OpenCase,
    index: usize,
    slot: usize,
    message: u64,
    skipped_tail_bytes: usize,
    server: &mut ServerSlice,
) -> Result<(), RdmaError> {
    server.messages += 1;
    server.bytes += open.case.bytes;
    if open.case.validate && open.case.test != Test::ImmLat {
        server.errors +=
            u64::from(!open.qps[index].sink_matches(&open.case, slot, message, skipped_tail_bytes)?);
        server.verified_bytes += open.case.bytes;
    }
    Ok(())
}

/// Polls on until nothing of ours waits for the near end, for a while.
fn linger(endpoint: &mut Endpoint, open: &OpenCase) -> Result<(), RdmaError> {
    let mut reaped = [Completion::default(); REAP];
    let start = Instant::now();
    let mut quiet = Instant::now();
    while start.elapsed() < LINGER && quiet.elapsed() < LINGER / 20 {
        endpoint.poll();
        if endpoint.reap(open.cq, &mut reaped)? > 0 {
            quiet = Instant::now();
        }
    }
    Ok(())
}

impl OpenCase {
    /// The lane whose turn it is, and the next one's begins.
    fn next_qp(&mut self) -> usize {
        let next = if self.next_index + 1 == self.qps.len() { 0 } else { self.next_index + 1 };
        std::mem::replace(&mut self.next_index, next)
    }

    /// Whether an empty Send stands behind each Write.
    fn is_announced(&self) -> bool {
        self.case.test == Test::WriteLat && self.case.wait == Wait::Block
    }

    /// Whether messages are posted inline.
    pub fn is_inline(&self) -> bool {
        self.case.bytes <= u64::from(self.case.inline)
    }
}
