//! Raw frames there and back.

use std::time::{Duration, Instant};

use ironwarp_port::{Burst, Frame, Port, TxMeta};

use super::format::{Kind, Layout, parse_header, to_pong, write_header};
use crate::{Latency, ServerSlice, Slice, StopCondition, StopSignal};

/// A message that has not come back by then is lost. A far end that lost its processor for a while comes back sooner.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);
/// Losses in a row after which the far end is taken to be gone.
const CONSECUTIVE_LOSSES_MAX: u32 = 4;

/// The far end: sends every ping back, until the signal is raised.
pub fn echo<P: Port>(port: &mut P, stop: &StopSignal) -> ServerSlice {
    let mut server = ServerSlice::default();
    let (mut arrived, mut tx) = (Burst::new(), Burst::new());
    while stop.raised().is_none() {
        port.rx_burst(&mut arrived);
        for mut frame in arrived.drain(..) {
            if let Some((Kind::Ping, _)) = parse_header(frame.bytes()) {
                to_pong(frame.bytes_mut());
                server.messages += 1;
                server.bytes += frame.bytes().len() as u64;
                // Room: both bursts are of one size, and this one was emptied before the last receive.
                let _ = tx.try_push(frame.seal(TxMeta::default()));
            }
        }
        while !tx.is_empty() && stop.raised().is_none() {
            port.tx_burst(&mut tx);
        }
    }
    server
}

/// The near end: one message at a time, timed from before its first frame leaves to after its last one is back.
pub fn latency<P: Port>(port: &mut P, layout: Layout, until: StopCondition<'_>, sequence: &mut u64) -> Slice {
    let mut slice = Slice { latency: Some(Latency::new()), ..Slice::default() };
    let mut losses = 0;
    let (begun, mut warm) = (Instant::now(), 0);
    while !until.budget.is_warm(warm, nanos(begun.elapsed()))
        && losses < CONSECUTIVE_LOSSES_MAX
        && !until.halted()
    {
        warm += 1;
        losses = if round_trip(port, layout, sequence, until).is_some() { 0 } else { losses + 1 };
    }
    let start = Instant::now();
    while losses < CONSECUTIVE_LOSSES_MAX
        && !until.is_spent(slice.messages + slice.errors, nanos(start.elapsed()))
    {
        match round_trip(port, layout, sequence, until) {
            Some(rtt) => {
                losses = 0;
                slice.messages += 1;
                slice.bytes += layout.message_bytes();
                slice.latency.get_or_insert_default().record(nanos(rtt));
            }
            None => {
                losses += 1;
                slice.errors += 1;
            }
        }
    }
    slice.elapsed_ns = nanos(start.elapsed());
    slice
}

/// Sends one message and waits until all of it is back; `None` when some of it was lost.
fn round_trip<P: Port>(
    port: &mut P,
    layout: Layout,
    sequence: &mut u64,
    until: StopCondition<'_>,
) -> Option<Duration> {
    let first = *sequence;
    *sequence += layout.frames;
    let start = Instant::now();
    let (mut sent, mut returned) = (0, 0);
    let (mut arrived, mut tx) = (Burst::new(), Burst::new());
    while returned < layout.frames {
        while sent < layout.frames && !tx.is_full() {
            let Some(frame) = ping(port, layout, sent, first + sent) else { break };
            tx.push(frame);
            sent += 1;
        }
        if !tx.is_empty() {
            port.tx_burst(&mut tx);
        }
        port.rx_burst(&mut arrived);
        for frame in arrived.drain(..) {
            returned += u64::from(matches!(parse_header(frame.bytes()), Some((Kind::Pong, n)) if n >= first));
        }
        if start.elapsed() > REPLY_TIMEOUT || until.halted() {
            return None;
        }
    }
    Some(start.elapsed())
}

/// A frame of a message; `None` while the pool is empty.
fn ping<P: Port>(
    port: &mut P,
    layout: Layout,
    frame_index: u64,
    sequence: u64,
) -> Option<<P::Frame as Frame>::Sealed> {
    let source = port.caps().mac;
    let mut frame = port.alloc()?;
    frame.resize(layout.frame_bytes(frame_index));
    write_header(frame.bytes_mut(), source, Kind::Ping, sequence);
    Some(frame.seal(TxMeta::default()))
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
