//! Raw frames one way, as fast as the device takes them.
//!
//! Counted where they arrive: the rate is the received frames over the time from the first arrival to the last.

use std::time::{Duration, Instant};

use ironwarp_port::{Burst, Frame, Port, TxMeta};
use ironwarp_types::MacAddr;

use super::format::{Kind, Layout, parse_header, write_header};
use crate::{ServerSlice, StopCondition, StopSignal};

/// How long the far end waits for frames that were sent and have not arrived, after the last one that did.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a device may take nothing before the blast is given up.
const TX_STALL_TIMEOUT: Duration = Duration::from_millis(500);
/// Bursts between two looks at the clock.
const BURSTS_PER_CLOCK_READ: u64 = 16;

/// What left the near end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Frames that the device took.
    pub frames: u64,
    /// Time in nanoseconds.
    pub elapsed_ns: u64,
}

/// The near end: whole messages until the budget is spent. Warm-up does not apply: arrivals are what counts.
pub fn send_frames<P: Port>(port: &mut P, layout: Layout, until: StopCondition<'_>) -> Sent {
    let start = Instant::now();
    let mut segmenter = Segmenter::new(layout, port.caps().mac);
    let mut tx: Burst<<P::Frame as Frame>::Sealed> = Burst::new();
    let mut progress = (0, start);
    let mut polls = 0_u64;
    let mut over = until.is_spent(0, 0);
    while !over || segmenter.frame_index > 0 {
        // A message that was begun is sent to its end.
        while !tx.is_full() && (!over || segmenter.frame_index > 0) {
            let Some(frame) = segmenter.next(port) else { break };
            tx.push(frame);
            over = over || until.budget.iterations.is_some_and(|limit| segmenter.messages >= limit);
        }
        port.tx_burst(&mut tx);
        polls += 1;
        if polls.is_multiple_of(BURSTS_PER_CLOCK_READ) {
            over = over || until.is_spent(segmenter.messages, nanos(start.elapsed()));
            if segmenter.frames_built > progress.0 {
                progress = (segmenter.frames_built, Instant::now());
            } else if progress.1.elapsed() > TX_STALL_TIMEOUT {
                break;
            }
        }
    }
    let frames = segmenter.frames_built - drain(port, &mut tx) as u64;
    Sent { frames, elapsed_ns: nanos(start.elapsed()) }
}

/// Cuts messages into frames, one after the other.
pub(super) struct Segmenter {
    layout: Layout,
    source: MacAddr,
    /// Frames filled.
    frames_built: u64,
    /// Messages whose last frame is filled.
    messages: u64,
    /// The next frame's place in its message.
    frame_index: u64,
}

impl Segmenter {
    pub(super) fn new(layout: Layout, source: MacAddr) -> Self {
        Segmenter { layout, source, frames_built: 0, messages: 0, frame_index: 0 }
    }

    /// Frames filled.
    pub(super) fn frames_built(&self) -> u64 {
        self.frames_built
    }

    /// Messages whose last frame is filled.
    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    /// Whether a message was begun and not ended.
    pub(super) fn is_mid_message(&self) -> bool {
        self.frame_index > 0
    }

    /// The next frame; `None` while the pool is empty.
    pub(super) fn next<P: Port>(&mut self, port: &mut P) -> Option<<P::Frame as Frame>::Sealed> {
        let mut frame = port.alloc()?;
        frame.resize(self.layout.frame_bytes(self.frame_index));
        write_header(frame.bytes_mut(), self.source, Kind::Data, self.frames_built);
        self.frames_built += 1;
        self.frame_index += 1;
        if self.frame_index == self.layout.frames {
            self.frame_index = 0;
            self.messages += 1;
        }
        Some(frame.seal(TxMeta::default()))
    }
}

/// Gives the device the last burst and answers how many frames it would not take.
fn drain<P: Port>(port: &mut P, tx: &mut Burst<<P::Frame as Frame>::Sealed>) -> usize {
    let start = Instant::now();
    while !tx.is_empty() && start.elapsed() < TX_STALL_TIMEOUT {
        port.tx_burst(tx);
    }
    tx.len()
}

/// The far end: counts until as many frames came as were sent, or no more come.
pub fn receive_frames<P: Port>(port: &mut P, layout: Layout, stop: &StopSignal) -> ServerSlice {
    let (mut frames, mut wire_bytes) = (0_u64, 0_u64);
    let mut arrived = Burst::new();
    let mut span: Option<(Instant, Instant)> = None;
    let mut quiet_since: Option<Instant> = None;
    let expected = loop {
        port.rx_burst(&mut arrived);
        let before = frames;
        for frame in arrived.drain(..) {
            if let Some((Kind::Data, _)) = parse_header(frame.bytes()) {
                frames += 1;
                wire_bytes += frame.bytes().len() as u64;
            }
        }
        if frames > before {
            let now = Instant::now();
            span = Some((span.map_or(now, |(first, _)| first), now));
            quiet_since = None;
            continue;
        }
        let Some(expected) = stop.raised() else { continue };
        let quiet = quiet_since.get_or_insert_with(Instant::now).elapsed();
        if frames >= expected || quiet > ARRIVAL_TIMEOUT {
            break expected;
        }
    };
    let messages = frames / layout.frames;
    ServerSlice {
        messages,
        bytes: application_bytes(layout, frames, wire_bytes),
        elapsed_ns: span.map_or(0, |(first, last)| nanos(last.duration_since(first))),
        errors: expected.saturating_sub(frames),
        ..ServerSlice::default()
    }
}

/// What arrived without link headers and padding.
fn application_bytes(layout: Layout, frames: u64, wire_bytes: u64) -> u64 {
    let whole = frames / layout.frames;
    let padded: u64 = (0..layout.frames)
        .map(|frame_index| (layout.frame_bytes(frame_index) - layout.payload_bytes(frame_index)) as u64)
        .sum();
    let part = (frames % layout.frames) * padded / layout.frames;
    wire_bytes.saturating_sub(whole * padded + part)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
