//! Round trips: Send and Send, Write and Write, Read, Immediate Data and the same behind a Write.
//!
//! One message is on its way at a time, on each queue pair in turn. Receives are posted before the message that they
//! are for, since iWARP has no receiver-not-ready: both ends begin with some and post one for each one used. A Write
//! has arrived when its last byte has, so both ends poll that byte, which changes with every message. Nobody can sleep
//! on a byte: ends that wait for events announce each Write by an empty Send, which is delivered behind it (RFC 5040
//! s5.5).

use std::time::{Duration, Instant};

use ironwarp::{Completion, CompletionOpcode, SendWr};
use ironwarp_bench::{FarSlice, Latency, Pace, Slice, StopSignal, Test, Wait};

use super::super::endpoint::{Endpoint, RdmaError};
use super::super::lanes::{OpenCase, lane_and_slot, wr_id};
use super::timer::nanos;

/// Completions reaped at a time.
const REAP: usize = 16;
/// Where they go: kept by whoever polls, since clearing it takes longer than a look at an empty queue.
pub type Reaped = [Completion; REAP];
/// How long the far end keeps polling after the stop, so that its last messages are acknowledged.
const SETTLE: Duration = Duration::from_millis(20);

/// The near end of a slice.
pub fn latency_near(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    pace: Pace<'_>,
) -> Result<Slice, RdmaError> {
    let mut slice = Slice { latency: Some(Latency::new()), ..Slice::default() };
    let begun = Instant::now();
    let mut warm = 0;
    while !pace.budget.is_warm(warm, nanos(begun.elapsed())) {
        warm += 1;
        match round_trip(endpoint, open, reaped, pace) {
            Ok(_) => settle_receives(endpoint, open)?,
            Err(RdmaError::Halted) => return Ok(slice),
            Err(error) => return Err(error),
        }
    }
    let start = Instant::now();
    let period = open.case.rate.map(|rate| Duration::from_secs_f64(1.0 / rate));
    while !pace.is_spent(slice.messages, nanos(start.elapsed())) {
        let began = match period {
            Some(period) => wait_until(endpoint, start + period.mul_f64(slice.messages as f64)),
            None => Instant::now(),
        };
        let whole = match round_trip(endpoint, open, reaped, pace) {
            Ok(whole) => whole,
            Err(RdmaError::Halted) => break,
            Err(error) => return Err(error),
        };
        slice.latency.get_or_insert_default().record(nanos(began.elapsed()));
        slice.messages += 1;
        slice.bytes += open.case.bytes;
        slice.errors += u64::from(!whole);
        slice.verified_bytes += if open.case.validate { open.case.bytes } else { 0 };
        settle_receives(endpoint, open)?;
    }
    slice.elapsed_ns = nanos(start.elapsed());
    Ok(slice)
}

/// Polls until the intended start of a message, and answers it: what comes late counts from when it should have been.
fn wait_until(endpoint: &mut Endpoint, intended: Instant) -> Instant {
    while Instant::now() < intended {
        endpoint.turn();
    }
    intended
}

/// One message there and back; whether every byte of it was right.
fn round_trip(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    pace: Pace<'_>,
) -> Result<bool, RdmaError> {
    let index = open.take_turn();
    let message = open.lanes[index].begun + 1;
    open.lanes[index].begun = message;
    match open.case.test {
        Test::SendLat => {
            post_send(endpoint, open, index, message)?;
            wait_for((endpoint, open), reaped, CompletionOpcode::Receive, pace)?;
            open.lanes[index].received += 1;
            check(open, index, message, 0)
        }
        Test::WriteLat => {
            post_write(endpoint, open, index, message)?;
            if open.is_announced() {
                wait_for((endpoint, open), reaped, CompletionOpcode::Receive, pace)?;
            } else {
                wait_for_last_byte((endpoint, open), reaped, (index, message), pace)?;
            }
            check(open, index, message, 1)
        }
        Test::ImmLat | Test::WriteImmLat => {
            post_immediate(endpoint, open, index, message)?;
            let came = wait_for((endpoint, open), reaped, CompletionOpcode::ReceiveImmediate, pace)?;
            Ok(came.immediate == message.to_be_bytes() && check(open, index, message, 0)?)
        }
        _ => {
            post_read(endpoint, open, index)?;
            wait_for((endpoint, open), reaped, CompletionOpcode::Read, pace)?;
            // What is read is always the far end's message 0.
            check(open, index, 0, 0)
        }
    }
}

fn check(open: &OpenCase, index: usize, message: u64, spared: usize) -> Result<bool, RdmaError> {
    // Immediate Data has no memory.
    if !open.case.validate || open.case.test == Test::ImmLat {
        return Ok(true);
    }
    let lane = &open.lanes[index];
    let slot = match open.case.test {
        Test::SendLat => ((lane.received - 1) % lane.scatter.len() as u64) as usize,
        _ => 0,
    };
    lane.holds(&open.case, slot, message, spared)
}

fn post_send(endpoint: &mut Endpoint, open: &OpenCase, index: usize, message: u64) -> Result<(), RdmaError> {
    let lane = &open.lanes[index];
    lane.fill(&open.case, 0, message)?;
    if open.is_inline() {
        let bytes = lane.inline_bytes(open.case.bytes)?;
        post(endpoint, open, index, SendWr::send_inline(wr_id(index, 0), &bytes))
    } else {
        post(endpoint, open, index, SendWr::send(wr_id(index, 0), &lane.gather[0]))
    }
}

fn post_write(endpoint: &mut Endpoint, open: &OpenCase, index: usize, message: u64) -> Result<(), RdmaError> {
    let lane = &open.lanes[index];
    lane.fill(&open.case, 0, message)?;
    lane.source.write_at(open.case.bytes as usize - 1, &[message as u8])?;
    if open.is_inline() {
        let bytes = lane.inline_bytes(open.case.bytes)?;
        post(endpoint, open, index, SendWr::write_inline(wr_id(index, 0), &bytes, lane.remote.sink(0)))
    } else {
        post(endpoint, open, index, SendWr::write(wr_id(index, 0), &lane.gather[0], lane.remote.sink(0)))
    }
}

/// Posts Immediate Data that says which message it is, behind a Write where the test has one.
fn post_immediate(
    endpoint: &mut Endpoint,
    open: &OpenCase,
    index: usize,
    message: u64,
) -> Result<(), RdmaError> {
    let (lane, id, octets) = (&open.lanes[index], wr_id(index, 0), message.to_be_bytes());
    if open.case.test == Test::ImmLat {
        return post(endpoint, open, index, SendWr::immediate(id, &octets));
    }
    lane.fill(&open.case, 0, message)?;
    let [write, immediate] = SendWr::write_with_immediate(id, &lane.gather[0], lane.remote.sink(0), &octets);
    Ok(endpoint.ctx.post_all(lane.qp, &[write, immediate.unsignaled()])?)
}

/// Posts a message. Its answer says all that a completion would say, and who sleeps is to be woken by what arrives, not by what
/// was sent. One that fails completes all the same.
fn post(endpoint: &mut Endpoint, open: &OpenCase, index: usize, wr: SendWr<'_>) -> Result<(), RdmaError> {
    let (qp, wr) = (open.lanes[index].qp, wr.unsignaled());
    if !open.is_announced() {
        return Ok(endpoint.ctx.post_send(qp, &wr)?);
    }
    let announcement = SendWr::send_inline(wr_id(index, 0), &[]).unsignaled();
    endpoint.ctx.post_sends(qp, &[wr, announcement]).map_err(|(_, error)| error.into())
}

fn post_read(endpoint: &mut Endpoint, open: &OpenCase, index: usize) -> Result<(), RdmaError> {
    let lane = &open.lanes[index];
    if open.case.validate {
        lane.sink.fill(0, open.case.bytes as usize, 0)?;
    }
    endpoint
        .ctx
        .post_send(lane.qp, &SendWr::read(wr_id(index, 0), &lane.scatter[0], lane.remote.source(0)))?;
    Ok(())
}

/// Polls until one completion of a kind has come.
fn wait_for(
    (endpoint, open): (&mut Endpoint, &OpenCase),
    reaped: &mut Reaped,
    kind: CompletionOpcode,
    pace: Pace<'_>,
) -> Result<Completion, RdmaError> {
    loop {
        let count = endpoint.await_completions(open.cq, reaped)?;
        if let Some(came) = reaped[..count].iter().find(|completion| completion.opcode == kind) {
            return Ok(*came);
        }
        if pace.halted() {
            return Err(RdmaError::Halted);
        }
    }
}

/// Polls until the last byte of the sink is that of a message.
fn wait_for_last_byte(
    (endpoint, open): (&mut Endpoint, &OpenCase),
    reaped: &mut Reaped,
    (index, message): (usize, u64),
    pace: Pace<'_>,
) -> Result<(), RdmaError> {
    let last = open.case.bytes as usize - 1;
    loop {
        endpoint.turn();
        if open.lanes[index].sink.load_u8_acquire(last)? == message as u8 {
            return Ok(());
        }
        endpoint.reap(open.cq, reaped)?;
        if pace.halted() {
            return Err(RdmaError::Halted);
        }
    }
}

/// Posts a receive for the one that the last round trip used.
fn settle_receives(endpoint: &mut Endpoint, open: &mut OpenCase) -> Result<(), RdmaError> {
    let takes = open.case.test == Test::SendLat || open.case.test.is_immediate() || open.is_announced();
    if !takes {
        return Ok(());
    }
    // The lane whose turn it was is the one before the lane whose turn it is.
    let index = open.turn.checked_sub(1).unwrap_or(open.lanes.len() - 1);
    open.post_receive(endpoint, index)
}

/// The far end of a slice.
pub fn latency_far(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    stop: &StopSignal,
) -> Result<FarSlice, RdmaError> {
    let mut far = FarSlice::default();
    while stop.raised().is_none() {
        latency_turn(endpoint, open, reaped, &mut far)?;
    }
    settle(endpoint, open)?;
    Ok(far)
}

/// A turn of the far end: what has come is answered.
pub fn latency_turn(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    far: &mut FarSlice,
) -> Result<(), RdmaError> {
    match open.case.test {
        Test::SendLat | Test::ImmLat | Test::WriteImmLat => answer_sends(endpoint, open, reaped, far),
        Test::WriteLat if open.is_announced() => answer_sends(endpoint, open, reaped, far),
        Test::WriteLat => answer_write(endpoint, open, reaped, far),
        // Reads are answered by the stack alone.
        _ => rest(endpoint, open, reaped),
    }
}

/// A turn with nothing to wait for.
fn rest(endpoint: &mut Endpoint, open: &OpenCase, reaped: &mut Reaped) -> Result<(), RdmaError> {
    if endpoint.waits_for_events() {
        endpoint.await_completions(open.cq, reaped)?;
    } else {
        endpoint.turn();
    }
    Ok(())
}

/// Answers each message that a Send or Immediate Data brings or announces. The answers leave before receives are posted in place
/// of those used, of which there are more.
fn answer_sends(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    far: &mut FarSlice,
) -> Result<(), RdmaError> {
    let count = endpoint.await_completions(open.cq, reaped)?;
    if count == 0 {
        return Ok(());
    }
    let received = || reaped.iter().take(count).filter(|completion| is_received(completion));
    for completion in received() {
        answer(endpoint, open, completion, far)?;
    }
    endpoint.turn();
    for completion in received() {
        open.post_receive(endpoint, lane_and_slot(completion.wr_id).0)?;
    }
    Ok(())
}

fn is_received(completion: &Completion) -> bool {
    matches!(completion.opcode, CompletionOpcode::Receive | CompletionOpcode::ReceiveImmediate)
}

fn answer(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    completion: &Completion,
    far: &mut FarSlice,
) -> Result<(), RdmaError> {
    let (index, slot) = lane_and_slot(completion.wr_id);
    let Some(lane) = open.lanes.get_mut(index) else { return Ok(()) };
    lane.received += 1;
    let message = lane.received;
    if open.case.test.is_immediate() {
        far.errors += u64::from(completion.immediate != message.to_be_bytes());
        count_in(open, index, 0, message, 0, far)?;
        post_immediate(endpoint, open, index, message)
    } else if open.is_announced() {
        count_in(open, index, 0, message, 1, far)?;
        post_write(endpoint, open, index, message)
    } else {
        count_in(open, index, slot, message, 0, far)?;
        post_send(endpoint, open, index, message)
    }
}

fn answer_write(
    endpoint: &mut Endpoint,
    open: &mut OpenCase,
    reaped: &mut Reaped,
    far: &mut FarSlice,
) -> Result<(), RdmaError> {
    endpoint.turn();
    let index = open.turn;
    let message = open.lanes[index].received + 1;
    let last = open.case.bytes as usize - 1;
    if open.lanes[index].sink.load_u8_acquire(last)? == message as u8 {
        open.lanes[index].received = message;
        open.take_turn();
        count_in(open, index, 0, message, 1, far)?;
        post_write(endpoint, open, index, message)?;
        endpoint.reap(open.cq, reaped)?;
    }
    Ok(())
}

/// Takes an arrived message into the account, checked where the case is validated.
fn count_in(
    open: &OpenCase,
    index: usize,
    slot: usize,
    message: u64,
    spared: usize,
    far: &mut FarSlice,
) -> Result<(), RdmaError> {
    far.messages += 1;
    far.bytes += open.case.bytes;
    if open.case.validate && open.case.test != Test::ImmLat {
        far.errors += u64::from(!open.lanes[index].holds(&open.case, slot, message, spared)?);
        far.verified_bytes += open.case.bytes;
    }
    Ok(())
}

/// Polls on until nothing of ours waits for the near end, for a while.
fn settle(endpoint: &mut Endpoint, open: &OpenCase) -> Result<(), RdmaError> {
    let mut reaped = [Completion::default(); REAP];
    let start = Instant::now();
    let mut quiet = Instant::now();
    while start.elapsed() < SETTLE && quiet.elapsed() < SETTLE / 20 {
        endpoint.turn();
        if endpoint.reap(open.cq, &mut reaped)? > 0 {
            quiet = Instant::now();
        }
    }
    Ok(())
}

impl OpenCase {
    /// The lane whose turn it is, and the next one's begins.
    fn take_turn(&mut self) -> usize {
        let next = if self.turn + 1 == self.lanes.len() { 0 } else { self.turn + 1 };
        std::mem::replace(&mut self.turn, next)
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
