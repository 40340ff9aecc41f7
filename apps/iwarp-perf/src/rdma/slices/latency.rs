//! Round trips: Send, Write, Read, Immediate Data, and Write with Immediate.
//!
//! One message is in flight at a time, on each queue pair in turn. iWARP has no receiver-not-ready, so both ends post
//! receives ahead and replace each one used. Both ends poll the last byte of a Write, which changes with every message. An
//! end that waits for events cannot poll a byte, so each Write is followed by an empty Send, which is delivered after it
//! (RFC 5040 s5.5).

use std::time::{Duration, Instant};

use ironwarp::{Completion, CompletionOpcode, SendWr};
use ironwarp_bench::{
    RoundTrip, ServerSlice, Slice, StopCondition, StopSignal, Test, Wait, measure_round_trips,
};
use ironwarp_types::limits::INLINE_BYTES_MAX;

use super::super::endpoint::{Endpoint, RdmaError, Result};
use super::super::open_case::{OpenCase, qp_and_slot, wr_id};

/// Completions reaped at a time.
const REAP: usize = 16;
/// Buffer for polled completions. The poller keeps it, since clearing it takes longer than polling an empty queue.
pub type Reaped = [Completion; REAP];
/// How long the server keeps polling after the stop, so that its last messages are acknowledged.
const LINGER: Duration = Duration::from_millis(20);

/// The client's part of a slice. In an open loop a round trip is timed from its intended start.
pub fn latency_client(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    until: StopCondition<'_>,
) -> Result<Slice> {
    let (bytes, validate) = (open.case.bytes, open.case.validate);
    let period = open.case.rate.map(|rate| Duration::from_secs_f64(1.0 / rate));
    let slice = measure_round_trips(bytes, until, |measured| {
        let intended_start = match (period, measured) {
            (Some(period), Some((start, done))) => wait_until(endpoint, start + period.mul_f64(done as f64)),
            _ => Instant::now(),
        };
        let is_intact = match round_trip(endpoint, open, reaped, until) {
            Err(RdmaError::Halted) => return Ok(RoundTrip::Halted),
            outcome => outcome?,
        };
        let rtt = intended_start.elapsed();
        repost_receive(endpoint, open)?;
        Ok::<_, RdmaError>(RoundTrip::Done { rtt, is_intact })
    })?;
    Ok(Slice { verified_bytes: if validate { slice.bytes } else { 0 }, ..slice })
}

/// Polls until the intended start of a message, and returns that time.
fn wait_until(endpoint: &mut Endpoint, intended: Instant) -> Instant {
    while Instant::now() < intended {
        endpoint.poll();
    }
    intended
}

/// Sends one message and waits for the reply. Returns whether all compared bytes were right.
fn round_trip(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    until: StopCondition<'_>,
) -> Result<bool> {
    let index = open.next_qp();
    let message = open.qps[index].sent + 1;
    open.qps[index].sent = message;
    post_message(endpoint, open, index, message)?;
    let kind = match open.case.test {
        Test::SendLat | Test::WriteLat => CompletionOpcode::Receive,
        Test::ReadLat => CompletionOpcode::Read,
        _ => CompletionOpcode::ReceiveImmediate,
    };
    if open.case.test == Test::WriteLat && !open.is_announced() {
        wait_for_last_byte((endpoint, open), reaped, (index, message), until)?;
    } else {
        let completion = wait_for((endpoint, open), reaped, kind, until)?;
        if open.case.test.is_immediate() && completion.immediate != message.to_be_bytes() {
            return Ok(false);
        }
    }
    open.qps[index].received += 1;
    // A Read always returns the server's message 0.
    is_intact(open, index, if open.case.test == Test::ReadLat { 0 } else { message })
}

/// Whether the last message that arrived holds the pattern of number `message`, where the case is validated.
fn is_intact(open: &OpenCase, index: usize, message: u64) -> Result<bool> {
    let qp_ctx = &open.qps[index];
    let (slot, skipped_tail_bytes) = match open.case.test {
        // Immediate Data is not placed in memory.
        Test::ImmLat => return Ok(true),
        Test::SendLat => ((qp_ctx.received - 1) % qp_ctx.scatter.len() as u64, 0),
        // The last byte is the message number.
        Test::WriteLat => (0, 1),
        _ => (0, 0),
    };
    Ok(!open.case.validate || qp_ctx.sink_matches(&open.case, slot as usize, message, skipped_tail_bytes)?)
}

/// Posts a message. Only a Read is signaled: for the others the reply implies completion, and a sleeping end must be
/// woken by arrivals only. A request that fails completes in any case.
fn post_message(endpoint: &mut Endpoint, open: &OpenCase, index: usize, message: u64) -> Result<()> {
    let (case, qp_ctx, id, octets) = (&open.case, &open.qps[index], wr_id(index, 0), message.to_be_bytes());
    match case.test {
        Test::ImmLat => {}
        Test::ReadLat if case.validate => qp_ctx.sink.fill(0, case.bytes as usize, 0)?,
        Test::ReadLat => {}
        _ => qp_ctx.fill_source(case, 0, message)?,
    }
    if case.test == Test::WriteLat {
        qp_ctx.source.write_at(case.bytes as usize - 1, &[message as u8])?;
    }
    let mut buffer = [0; INLINE_BYTES_MAX];
    let inline = qp_ctx.inline_bytes(case, &mut buffer)?;
    let wr = match case.test {
        Test::ImmLat => SendWr::immediate(id, &octets).unsignaled(),
        Test::ReadLat => qp_ctx.message_wr(case, id, 0, None),
        _ => qp_ctx.message_wr(case, id, 0, inline).unsignaled(),
    };
    let second = match case.test {
        Test::WriteImmLat => SendWr::immediate(id, &octets),
        _ if open.is_announced() => SendWr::send_inline(id, &[]),
        _ => return Ok(endpoint.ctx.post_send(qp_ctx.qp, &wr)?),
    };
    endpoint.ctx.post_sends(qp_ctx.qp, &[wr, second.unsignaled()]).map_err(|(_, error)| error.into())
}

/// Polls until one completion of a kind has come.
fn wait_for(
    (endpoint, open): (&mut Endpoint, &OpenCase),
    reaped: &mut Reaped,
    kind: CompletionOpcode,
    until: StopCondition<'_>,
) -> Result<Completion> {
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
) -> Result<()> {
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
fn repost_receive(endpoint: &mut Endpoint, open: &mut OpenCase) -> Result<()> {
    let consumes_receive =
        open.case.test == Test::SendLat || open.case.test.is_immediate() || open.is_announced();
    if !consumes_receive {
        return Ok(());
    }
    // The queue pair before the next one.
    let index = open.next_index.checked_sub(1).unwrap_or(open.qps.len() - 1);
    open.post_receive(endpoint, index)
}

/// The server's part of a slice.
pub fn latency_server(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    stop: &StopSignal,
) -> Result<ServerSlice> {
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
) -> Result<()> {
    match open.case.test {
        Test::SendLat | Test::ImmLat | Test::WriteImmLat => reply_to_sends(endpoint, open, reaped, server),
        Test::WriteLat if open.is_announced() => reply_to_sends(endpoint, open, reaped, server),
        Test::WriteLat => reply_to_write(endpoint, open, reaped, server),
        // The stack alone answers Reads.
        _ => poll_or_sleep(endpoint, open, reaped),
    }
}

fn poll_or_sleep(endpoint: &mut Endpoint, open: &OpenCase, reaped: &mut Reaped) -> Result<()> {
    if endpoint.waits_for_events() {
        endpoint.poll_or_wait_completions(open.cq, reaped)?;
    } else {
        endpoint.poll();
    }
    Ok(())
}

/// Replies to each message of a Send or Immediate Data, and to each announced Write. Replies are sent before the used
/// receives are replaced, since others are posted.
fn reply_to_sends(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    server: &mut ServerSlice,
) -> Result<()> {
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
) -> Result<()> {
    let (index, _) = qp_and_slot(completion.wr_id);
    let Some(qp_ctx) = open.qps.get(index) else { return Ok(()) };
    if open.case.test.is_immediate() {
        server.errors += u64::from(completion.immediate != (qp_ctx.received + 1).to_be_bytes());
    }
    reply(endpoint, open, index, server)
}

fn reply_to_write(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    server: &mut ServerSlice,
) -> Result<()> {
    endpoint.poll();
    let index = open.next_index;
    let message = open.qps[index].received + 1;
    let last = open.case.bytes as usize - 1;
    if open.qps[index].sink.load_u8_acquire(last)? == message as u8 {
        open.next_qp();
        reply(endpoint, open, index, server)?;
        endpoint.reap(open.cq, reaped)?;
    }
    Ok(())
}

/// Counts an arrived message, compares it where the case is validated, and sends the reply.
fn reply(endpoint: &mut Endpoint, open: &mut OpenCase, index: usize, server: &mut ServerSlice) -> Result<()> {
    open.qps[index].received += 1;
    let message = open.qps[index].received;
    server.messages += 1;
    server.bytes += open.case.bytes;
    if open.case.validate && open.case.test != Test::ImmLat {
        server.errors += u64::from(!is_intact(open, index, message)?);
        server.verified_bytes += open.case.bytes;
    }
    post_message(endpoint, open, index, message)
}

/// Polls until the client has acknowledged the last messages, or for [`LINGER`].
fn linger(endpoint: &mut Endpoint, open: &OpenCase) -> Result<()> {
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
    /// Returns the current queue pair and advances to the next one.
    fn next_qp(&mut self) -> usize {
        let next = if self.next_index + 1 == self.qps.len() { 0 } else { self.next_index + 1 };
        std::mem::replace(&mut self.next_index, next)
    }

    /// Whether an empty Send follows each Write.
    fn is_announced(&self) -> bool {
        self.case.test == Test::WriteLat && self.case.wait == Wait::Block
    }
}
