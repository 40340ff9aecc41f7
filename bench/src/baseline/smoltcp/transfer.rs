//! Round trips and one-way streams. A server ends when its signal is raised, a client when its budget is spent.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use ironwarp_port::Port;

use super::node::Node;
use crate::pattern::Pattern;
use crate::{Case, RoundTrip, ServerSlice, Slice, StopCondition, StopSignal, measure_round_trips, nanos};

/// The pattern seed of both ends.
const SEED: u64 = 0x5310;
/// A peer that does not connect, reply or acknowledge within this time is gone.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes that the server of a stream takes at a time.
const READ_BYTES: usize = 64 << 10;

/// The client of a ping-pong. `number` differs from slice to slice.
pub fn latency<P: Port>(port: &mut P, case: &Case, until: StopCondition<'_>, number: &mut u64) -> Slice {
    let Some(mut node) = connect(port, number) else { return connect_failed() };
    let mut buffer = vec![0; case.bytes as usize];
    let mut is_lost = false;
    let slice = measure_round_trips(case.bytes, until, |measured| {
        let message = measured.map_or(u64::MAX, |(_, message)| message);
        // After a loss the stream is out of step.
        let outcome =
            if is_lost { RoundTrip::Lost } else { round_trip(&mut node, case, &mut buffer, message, until) };
        is_lost |= matches!(outcome, RoundTrip::Lost);
        Ok::<_, Infallible>(outcome)
    });
    let slice = slice.unwrap_or_else(|never| match never {});
    Slice { verified_bytes: if case.validate { slice.bytes } else { 0 }, ..slice }
}

/// Sends one message and waits for its echo.
fn round_trip<P: Port>(
    node: &mut Node<'_, P>,
    case: &Case,
    buffer: &mut [u8],
    message: u64,
    until: StopCondition<'_>,
) -> RoundTrip {
    if case.validate {
        Pattern::new(SEED, message).fill(buffer, 0);
    }
    let start = Instant::now();
    let (mut sent, mut received) = (0, 0);
    while received < buffer.len() {
        sent += node.send(&buffer[sent..]);
        node.poll();
        // The server echoes a message when it has all of it, so nothing arrives before everything was sent.
        received += node.recv(&mut buffer[received..]);
        if until.halted() {
            return RoundTrip::Halted;
        }
        if start.elapsed() > PEER_TIMEOUT {
            return RoundTrip::Lost;
        }
    }
    let rtt = start.elapsed();
    let is_intact = !case.validate || Pattern::new(SEED, message).first_mismatch(buffer, 0).is_none();
    RoundTrip::Done { rtt, is_intact }
}

/// The server of a ping-pong: echoes each message when all of it has arrived.
pub fn echo<P: Port>(port: &mut P, case: &Case, stop: &StopSignal) -> ServerSlice {
    let mut node = Node::server(port);
    let mut buffer = vec![0; case.bytes as usize];
    let mut server = ServerSlice::default();
    let (mut received, mut sent) = (0, 0);
    while stop.raised().is_none() {
        node.poll();
        received += node.recv(&mut buffer[received..]);
        if received < buffer.len() {
            continue;
        }
        sent += node.send(&buffer[sent..]);
        if sent == buffer.len() {
            (received, sent) = (0, 0);
            server.messages += 1;
            server.bytes += case.bytes;
            node.poll();
        }
    }
    server
}

/// The client of a one-way stream. Returns the slice and the bytes that the server must wait for.
pub fn bandwidth<P: Port>(
    port: &mut P,
    case: &Case,
    until: StopCondition<'_>,
    number: &mut u64,
) -> (Slice, u64) {
    let Some(mut node) = connect(port, number) else { return (connect_failed(), 0) };
    let mut buffer = vec![0; case.bytes as usize];
    let (mut slice, start) = (Slice::default(), Instant::now());
    while !until.is_spent(slice.messages, nanos(start.elapsed())) {
        if case.validate {
            Pattern::new(SEED, 0).fill(&mut buffer, slice.bytes);
        }
        let written = write_all(&mut node, &buffer);
        slice.bytes += written as u64;
        if written < buffer.len() {
            slice.errors += 1;
            break;
        }
        slice.messages += 1;
    }
    slice.elapsed_ns = nanos(start.elapsed());
    let drain_start = Instant::now();
    while node.unacknowledged_bytes() > 0 && drain_start.elapsed() < PEER_TIMEOUT {
        node.poll();
    }
    let sent = slice.bytes;
    (slice, sent)
}

/// Queues a message. Returns less than its length if the peer takes nothing more.
fn write_all<P: Port>(node: &mut Node<'_, P>, bytes: &[u8]) -> usize {
    let (mut written, mut progress) = (0, None);
    while written < bytes.len() {
        match node.send(&bytes[written..]) {
            0 => {
                node.poll();
                if progress.get_or_insert_with(Instant::now).elapsed() > PEER_TIMEOUT {
                    break;
                }
            }
            count => {
                written += count;
                progress = None;
            }
        }
    }
    written
}

/// The server of a one-way stream: reads until it has all sent bytes.
pub fn sink<P: Port>(port: &mut P, case: &Case, stop: &StopSignal) -> ServerSlice {
    let mut node = Node::server(port);
    let mut buffer = vec![0; READ_BYTES];
    let mut server = ServerSlice::default();
    let (mut span, mut last_rx): (Option<(Instant, Instant)>, _) = (None, Instant::now());
    loop {
        node.poll();
        let count = node.recv(&mut buffer);
        if count > 0 {
            last_rx = Instant::now();
            span = Some((span.map_or(last_rx, |(first, _)| first), last_rx));
            check(case, &buffer[..count], &mut server);
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
    server
}

fn check(case: &Case, bytes: &[u8], server: &mut ServerSlice) {
    if case.validate {
        server.errors += u64::from(Pattern::new(SEED, 0).first_mismatch(bytes, server.bytes).is_some());
        server.verified_bytes += bytes.len() as u64;
    }
}

/// Connects, or returns `None` if no server accepts in time.
fn connect<'p, P: Port>(port: &'p mut P, number: &mut u64) -> Option<Node<'p, P>> {
    let mut node = Node::client(port, *number);
    *number += 1;
    let start = Instant::now();
    while !node.may_send() {
        node.poll();
        if start.elapsed() > PEER_TIMEOUT {
            return None;
        }
    }
    Some(node)
}

/// A slice in which nothing could be sent.
#[cold]
fn connect_failed() -> Slice {
    Slice { errors: 1, ..Slice::default() }
}
