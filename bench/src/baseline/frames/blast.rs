//! Raw frames one way, as fast as the device takes them.
//!
//! Counted where they arrive: the rate is what came in over the time from the first arrival to the last.

use std::time::{Duration, Instant};

use ironwarp_port::{Burst, Frame, Port, TxMeta};
use ironwarp_types::MacAddr;

use super::format::{Kind, Layout, mark, read};
use crate::{FarSlice, Pace, StopSignal};

/// How long the far end waits for frames that were sent and have not arrived, after the last one that did.
const LATE_AFTER: Duration = Duration::from_millis(500);
/// How long a device may take nothing before the blast is given up.
const STUCK_AFTER: Duration = Duration::from_millis(500);
/// Bursts between two looks at the clock.
const BURSTS_A_LOOK: u64 = 16;

/// What left the near end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Frames that the device took.
    pub frames: u64,
    /// Time in nanoseconds.
    pub elapsed_ns: u64,
}

/// The near end: whole messages until the budget is spent. Warm-up does not apply: arrivals are what counts.
pub fn blast<P: Port>(port: &mut P, layout: Layout, pace: Pace<'_>) -> Sent {
    let start = Instant::now();
    let mut cutter = Cutter::new(layout, port.caps().mac);
    let mut leaving: Burst<<P::Frame as Frame>::Sealed> = Burst::new();
    let mut progress = (0, start);
    let mut turns = 0_u64;
    let mut over = pace.is_spent(0, 0);
    while !over || cutter.place > 0 {
        // A message that was begun is sent to its end.
        while !leaving.is_full() && (!over || cutter.place > 0) {
            let Some(frame) = cutter.next(port) else { break };
            leaving.push(frame);
            over = over || pace.budget.iterations.is_some_and(|limit| cutter.messages >= limit);
        }
        port.tx_burst(&mut leaving);
        turns += 1;
        if turns.is_multiple_of(BURSTS_A_LOOK) {
            over = over || pace.is_spent(cutter.messages, nanos(start.elapsed()));
            if cutter.filled > progress.0 {
                progress = (cutter.filled, Instant::now());
            } else if progress.1.elapsed() > STUCK_AFTER {
                break;
            }
        }
    }
    let frames = cutter.filled - drain(port, &mut leaving) as u64;
    Sent { frames, elapsed_ns: nanos(start.elapsed()) }
}

/// Cuts messages into frames, one after the other.
pub(super) struct Cutter {
    layout: Layout,
    source: MacAddr,
    /// Frames filled.
    filled: u64,
    /// Messages whose last frame is filled.
    messages: u64,
    /// The next frame's place in its message.
    place: u64,
}

impl Cutter {
    pub(super) fn new(layout: Layout, source: MacAddr) -> Self {
        Cutter { layout, source, filled: 0, messages: 0, place: 0 }
    }

    /// Frames filled.
    pub(super) fn filled(&self) -> u64 {
        self.filled
    }

    /// Messages whose last frame is filled.
    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    /// Whether a message was begun and not ended.
    pub(super) fn is_midway(&self) -> bool {
        self.place > 0
    }

    /// The next frame; `None` while the pool is empty.
    pub(super) fn next<P: Port>(&mut self, port: &mut P) -> Option<<P::Frame as Frame>::Sealed> {
        let mut frame = port.alloc()?;
        frame.resize(self.layout.frame_bytes(self.place));
        mark(frame.bytes_mut(), self.source, Kind::Blast, self.filled);
        self.filled += 1;
        self.place += 1;
        if self.place == self.layout.frames {
            self.place = 0;
            self.messages += 1;
        }
        Some(frame.seal(TxMeta::default()))
    }
}

/// Gives the device the last burst and answers how many frames it would not take.
fn drain<P: Port>(port: &mut P, leaving: &mut Burst<<P::Frame as Frame>::Sealed>) -> usize {
    let start = Instant::now();
    while !leaving.is_empty() && start.elapsed() < STUCK_AFTER {
        port.tx_burst(leaving);
    }
    leaving.len()
}

/// The far end: counts until as many frames came as were sent, or no more come.
pub fn sink<P: Port>(port: &mut P, layout: Layout, stop: &StopSignal) -> FarSlice {
    let (mut frames, mut wire_bytes) = (0_u64, 0_u64);
    let mut arrived = Burst::new();
    let mut span: Option<(Instant, Instant)> = None;
    let mut quiet_since: Option<Instant> = None;
    let expected = loop {
        port.rx_burst(&mut arrived);
        let before = frames;
        for frame in arrived.drain(..) {
            if let Some((Kind::Blast, _)) = read(frame.bytes()) {
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
        if frames >= expected || quiet > LATE_AFTER {
            break expected;
        }
    };
    let messages = frames / layout.frames;
    FarSlice {
        messages,
        bytes: application_bytes(layout, frames, wire_bytes),
        elapsed_ns: span.map_or(0, |(first, last)| nanos(last.duration_since(first))),
        errors: expected.saturating_sub(frames),
        ..FarSlice::default()
    }
}

/// What arrived without link headers and padding.
fn application_bytes(layout: Layout, frames: u64, wire_bytes: u64) -> u64 {
    let whole = frames / layout.frames;
    let padded: u64 = (0..layout.frames)
        .map(|place| (layout.frame_bytes(place) - layout.payload_bytes(place)) as u64)
        .sum();
    let part = (frames % layout.frames) * padded / layout.frames;
    wire_bytes.saturating_sub(whole * padded + part)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
