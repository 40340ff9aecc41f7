//! Round trips of raw frames.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use ironwarp_port::{Burst, Frame, Port, TxMeta};

use super::format::{Kind, Layout, build_frame, parse_header, to_pong};
use crate::{RoundTrip, ServerSlice, Slice, StopCondition, StopSignal, measure_round_trips};

/// A message that has not come back by then is lost. A server that lost its processor for a while replies sooner.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);

/// The server: sends every ping back, until the signal is raised.
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
                // Cannot fail: both bursts have one size, and `tx` was empty before the last receive.
                let _ = tx.try_push(frame.seal(TxMeta::default()));
            }
        }
        while !tx.is_empty() && stop.raised().is_none() {
            port.tx_burst(&mut tx);
        }
    }
    server
}

/// The client: one message at a time, timed from before its first frame is sent until its last frame is back.
pub fn latency<P: Port>(port: &mut P, layout: Layout, until: StopCondition<'_>, sequence: &mut u64) -> Slice {
    let slice = measure_round_trips(layout.message_bytes(), until, |_| {
        Ok::<_, Infallible>(match round_trip(port, layout, sequence, until) {
            Some(rtt) => RoundTrip::Done { rtt, is_intact: true },
            None => RoundTrip::Lost,
        })
    });
    slice.unwrap_or_else(|never| match never {})
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
            let Some(frame) = build_frame(port, layout.frame_bytes(sent), Kind::Ping, first + sent) else {
                break;
            };
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
