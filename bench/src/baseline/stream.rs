//! Tests over a stream of bytes: round trips, and one way. Both ends of every such baseline.
//!
//! A client ends when its budget is spent, a server when its signal is raised. A peer that does not
//! take or send bytes for `PEER_TIMEOUT` is gone, and what is missing is an error of the slice.

use std::time::{Duration, Instant};

use crate::pattern::Pattern;
use crate::{
    Case, RoundTrip, ServerSlice, Slice, StopCondition, StopSignal, Wait, measure_round_trips, nanos,
};

/// The pattern seed of both ends.
const SEED: u64 = 0x7c9;
const PEER_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that the server of a stream takes at a time.
const READ_BYTES: usize = 256 << 10;

/// One end of a connected stream.
pub trait ByteStream {
    /// Why the stream failed.
    type Error;

    /// Queues bytes for sending. Returns how many fitted.
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Self::Error>;

    /// Takes received bytes. Returns how many there were.
    fn recv(&mut self, into: &mut [u8]) -> Result<usize, Self::Error>;

    /// Selects how this end waits, where it can.
    fn set_wait(&mut self, _wait: Wait) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Whether queued bytes reach the peer without this end. Sends some of those that do not.
    fn is_flushed(&mut self) -> bool {
        true
    }
}

/// The client's part of a slice. Also returns the bytes that the server must wait for.
pub fn client<S: ByteStream>(
    stream: &mut S,
    case: &Case,
    until: StopCondition<'_>,
) -> Result<(Slice, u64), S::Error> {
    stream.set_wait(case.wait)?;
    // Not zero, so that no page is touched for the first time by a message.
    let mut buffer = vec![1; message_bytes(case)];
    if !case.test.is_latency() {
        return bandwidth(stream, case, &mut buffer, until);
    }
    let mut is_lost = false;
    let slice = measure_round_trips(case.bytes, until, |measured| {
        let message = measured.map_or(u64::MAX, |(_, message)| message);
        // After a loss the stream is out of step.
        let outcome = match is_lost {
            true => RoundTrip::Lost,
            false => round_trip(stream, case, &mut buffer, message, until)?,
        };
        is_lost |= matches!(outcome, RoundTrip::Lost);
        Ok(outcome)
    })?;
    Ok((Slice { verified_bytes: if case.validate { slice.bytes } else { 0 }, ..slice }, 0))
}

/// Sends one message and waits for its echo.
fn round_trip<S: ByteStream>(
    stream: &mut S,
    case: &Case,
    buffer: &mut [u8],
    message: u64,
    until: StopCondition<'_>,
) -> Result<RoundTrip, S::Error> {
    let pattern = Pattern::new(SEED, message);
    if case.validate {
        pattern.fill(buffer, 0);
    }
    let start = Instant::now();
    let (mut sent, mut received) = (0, 0);
    while received < buffer.len() {
        let before = sent + received;
        if sent < buffer.len() {
            sent += stream.send(&buffer[sent..])?;
        } else {
            // The server echoes a message when it has all of it.
            received += stream.recv(&mut buffer[received..])?;
        }
        if sent + received > before {
            continue;
        }
        if until.halted() {
            return Ok(RoundTrip::Halted);
        }
        if start.elapsed() > PEER_TIMEOUT {
            return Ok(RoundTrip::Lost);
        }
    }
    let rtt = start.elapsed();
    let is_intact = !case.validate || pattern.first_mismatch(buffer, 0).is_none();
    Ok(RoundTrip::Done { rtt, is_intact })
}

fn bandwidth<S: ByteStream>(
    stream: &mut S,
    case: &Case,
    buffer: &mut [u8],
    until: StopCondition<'_>,
) -> Result<(Slice, u64), S::Error> {
    let (mut slice, start) = (Slice::default(), Instant::now());
    while !until.is_spent(slice.messages, nanos(start.elapsed())) {
        if case.validate {
            Pattern::new(SEED, 0).fill(buffer, slice.bytes);
        }
        let sent = send_all(stream, buffer)?;
        slice.bytes += sent as u64;
        if sent < buffer.len() {
            slice.errors += 1;
            break;
        }
        slice.messages += 1;
    }
    slice.elapsed_ns = nanos(start.elapsed());
    let drain_start = Instant::now();
    while !stream.is_flushed() && drain_start.elapsed() < PEER_TIMEOUT {}
    let sent = slice.bytes;
    Ok((slice, sent))
}

/// Queues a message. Returns less than its length if the peer takes nothing more.
fn send_all<S: ByteStream>(stream: &mut S, bytes: &[u8]) -> Result<usize, S::Error> {
    let (mut sent, mut stalled) = (0, None);
    while sent < bytes.len() {
        match stream.send(&bytes[sent..])? {
            0 if stalled.get_or_insert_with(Instant::now).elapsed() > PEER_TIMEOUT => break,
            0 => {}
            count => (sent, stalled) = (sent + count, None),
        }
    }
    Ok(sent)
}

/// The server's part of a slice: echoes each message when all of it has arrived, or reads until it
/// has all sent bytes.
pub fn server<S: ByteStream>(
    stream: &mut S,
    case: &Case,
    stop: &StopSignal,
) -> Result<ServerSlice, S::Error> {
    stream.set_wait(case.wait)?;
    if case.test.is_latency() { echo(stream, case, stop) } else { sink(stream, case, stop) }
}

fn echo<S: ByteStream>(stream: &mut S, case: &Case, stop: &StopSignal) -> Result<ServerSlice, S::Error> {
    let mut buffer = vec![0; message_bytes(case)];
    let mut server = ServerSlice::default();
    let (mut received, mut sent) = (0, 0);
    while stop.raised().is_none() {
        if received < buffer.len() {
            received += stream.recv(&mut buffer[received..])?;
            continue;
        }
        sent += stream.send(&buffer[sent..])?;
        if sent == buffer.len() {
            (received, sent) = (0, 0);
            server.messages += 1;
            server.bytes += case.bytes;
        }
    }
    Ok(server)
}

fn sink<S: ByteStream>(stream: &mut S, case: &Case, stop: &StopSignal) -> Result<ServerSlice, S::Error> {
    let mut buffer = vec![0; READ_BYTES];
    let mut server = ServerSlice::default();
    let (mut span, mut last_rx): (Option<(Instant, Instant)>, _) = (None, Instant::now());
    loop {
        let count = stream.recv(&mut buffer)?;
        if count > 0 {
            last_rx = Instant::now();
            span = Some((span.map_or(last_rx, |(first, _)| first), last_rx));
            if case.validate {
                let mismatch = Pattern::new(SEED, 0).first_mismatch(&buffer[..count], server.bytes);
                server.errors += u64::from(mismatch.is_some());
                server.verified_bytes += count as u64;
            }
            server.bytes += count as u64;
            continue;
        }
        let Some(sent) = stop.raised() else { continue };
        if server.bytes >= sent || last_rx.elapsed() > PEER_TIMEOUT {
            server.errors += sent.saturating_sub(server.bytes).div_ceil(case.bytes.max(1));
            break;
        }
    }
    server.messages = server.bytes / case.bytes.max(1);
    server.elapsed_ns = span.map_or(0, |(first, last)| nanos(last.duration_since(first)));
    Ok(server)
}

fn message_bytes(case: &Case) -> usize {
    case.bytes.max(1) as usize
}
