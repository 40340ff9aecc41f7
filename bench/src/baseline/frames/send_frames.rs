//! Raw frames one way, as fast as the device takes them.
//!
//! Counted at the receiver: the rate is the received frames over the time from the first arrival to the last.

use std::time::{Duration, Instant};

use ironwarp_port::{Burst, Frame, Port};

use super::format::{FrameTemplate, Kind, Layout, is_data};
use crate::{ServerSlice, Slice, StopCondition, StopSignal, nanos};

/// How long a receiver waits for the next frame after the last one that arrived.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(500);
/// The sender gives up when the device takes no frame for this time.
const TX_STALL_TIMEOUT: Duration = Duration::from_millis(500);
/// Bursts between two clock reads.
const BURSTS_PER_CLOCK_READ: u64 = 16;

/// What the client sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Frames that the device took.
    pub frames: u64,
    /// Time in nanoseconds.
    pub elapsed_ns: u64,
}

/// The client: whole messages until the budget is spent. Without a warm-up, since only arrivals count.
pub fn send_frames<P: Port>(port: &mut P, layout: Layout, until: StopCondition<'_>) -> Sent {
    let mut sender = FrameSender::new(port, layout, until);
    let mut progress = (0, sender.start);
    while !sender.is_done() {
        let Some(now) = sender.send_burst(port) else { continue };
        if sender.frames_built > progress.0 {
            progress = (sender.frames_built, now);
        } else if now.duration_since(progress.1) > TX_STALL_TIMEOUT {
            break;
        }
    }
    let drain_start = Instant::now();
    while !sender.tx.is_empty() && drain_start.elapsed() < TX_STALL_TIMEOUT {
        port.tx_burst(&mut sender.tx);
    }
    let frames = sender.frames_built - sender.tx.len() as u64;
    Sent { frames, elapsed_ns: nanos(sender.start.elapsed()) }
}

/// Sends whole messages from `client` to `server` on one thread, a burst out and a burst in, until the budget is spent:
/// the rate of one core that runs both ends. Frames that do not arrive are errors.
pub fn one_core_transfer<N: Port, F: Port>(
    client: &mut N,
    server: &mut F,
    layout: Layout,
    until: StopCondition<'_>,
) -> Slice {
    let mut sender = FrameSender::new(client, layout, until);
    let mut arrived = Burst::new();
    let (mut frames, mut last) = (0_u64, sender.start);
    loop {
        let now = sender.send_burst(client);
        server.rx_burst(&mut arrived);
        let received = arrived.drain(..).filter(|frame| is_data(frame.bytes())).count() as u64;
        frames += received;
        let Some(now) = now else { continue };
        if received > 0 {
            last = now;
        }
        let all = sender.is_done() && sender.tx.is_empty() && frames >= sender.frames_built;
        if all || now.duration_since(last) > ARRIVAL_TIMEOUT {
            break;
        }
    }
    let (messages, errors) = (frames / layout.frames, sender.frames_built.saturating_sub(frames));
    let (bytes, elapsed_ns) = (messages * layout.message_bytes(), nanos(last.duration_since(sender.start)));
    Slice { messages, bytes, elapsed_ns, errors, ..Slice::default() }
}

/// Divides messages into frames and sends them in bursts until the slice is over.
struct FrameSender<'a, P: Port> {
    layout: Layout,
    template: FrameTemplate,
    until: StopCondition<'a>,
    start: Instant,
    tx: Burst<<P::Frame as Frame>::Sealed>,
    frames_built: u64,
    /// Messages whose last frame is built.
    messages: u64,
    /// The index of the next frame in its message.
    frame_index: u64,
    bursts: u64,
    is_over: bool,
}

impl<'a, P: Port> FrameSender<'a, P> {
    fn new(port: &P, layout: Layout, until: StopCondition<'a>) -> Self {
        FrameSender {
            layout,
            template: FrameTemplate::new(port.caps().mac, Kind::Data),
            until,
            start: Instant::now(),
            tx: Burst::new(),
            frames_built: 0,
            messages: 0,
            frame_index: 0,
            bursts: 0,
            is_over: until.is_spent(0, 0),
        }
    }

    /// Whether the slice is over and the last message is complete.
    fn is_done(&self) -> bool {
        self.is_over && self.frame_index == 0
    }

    /// Gives a burst to the device, a new one if the device took all of the last one. Returns the time on every sixteenth
    /// call, and on all after the slice.
    ///
    /// A device that copies has returned the last burst's frames, so the new burst uses the same ones, and 32 frames of
    /// 9000 bytes stay in the second-level cache. A burst that is filled up while frames wait in it needs twice as many.
    #[inline]
    fn send_burst(&mut self, port: &mut P) -> Option<Instant> {
        if self.tx.is_empty() {
            self.build_burst(port);
        }
        port.tx_burst(&mut self.tx);
        self.bursts += 1;
        if !self.is_over && !self.bursts.is_multiple_of(BURSTS_PER_CLOCK_READ) {
            return None;
        }
        let now = Instant::now();
        self.is_over |= self.until.is_spent(self.messages, nanos(now.duration_since(self.start)));
        Some(now)
    }

    /// Builds frames until the burst is full, the slice is over or the pool is empty.
    #[inline]
    fn build_burst(&mut self, port: &mut P) {
        while !self.tx.is_full() && !self.is_done() {
            let bytes = self.layout.frame_bytes(self.frame_index);
            let Some(frame) = self.template.build(port, bytes, self.frames_built) else { break };
            self.tx.push(frame);
            self.frames_built += 1;
            self.frame_index += 1;
            if self.frame_index == self.layout.frames {
                self.frame_index = 0;
                self.messages += 1;
                self.is_over |= self.until.budget.iterations.is_some_and(|limit| self.messages >= limit);
            }
        }
    }
}

/// The server: counts until all sent frames have arrived, or no more arrive.
pub fn receive_frames<P: Port>(port: &mut P, layout: Layout, stop: &StopSignal) -> ServerSlice {
    let (mut frames, mut wire_bytes) = (0_u64, 0_u64);
    let (mut arrived, mut clock) = (Burst::new(), ArrivalClock::default());
    let mut quiet_since: Option<Instant> = None;
    let expected = loop {
        port.rx_burst(&mut arrived);
        let before = frames;
        for frame in arrived.drain(..).filter(|frame| is_data(frame.bytes())) {
            frames += 1;
            wire_bytes += frame.bytes().len() as u64;
        }
        if frames > before {
            clock.on_arrival();
            quiet_since = None;
            continue;
        }
        clock.on_gap();
        let Some(expected) = stop.raised() else { continue };
        let quiet = quiet_since.get_or_insert_with(Instant::now).elapsed();
        if frames >= expected || quiet > ARRIVAL_TIMEOUT {
            break expected;
        }
    };
    ServerSlice {
        messages: frames / layout.frames,
        bytes: application_bytes(layout, frames, wire_bytes),
        elapsed_ns: clock.span.map_or(0, |(first, last)| nanos(last.duration_since(first))),
        errors: expected.saturating_sub(frames),
        ..ServerSlice::default()
    }
}

/// The time from the first arrival to the last.
#[derive(Default)]
struct ArrivalClock {
    /// The first arrival, and the end of the last run of bursts.
    span: Option<(Instant, Instant)>,
    /// The last poll had frames.
    is_flowing: bool,
}

impl ArrivalClock {
    /// Bursts that follow each other need no clock: a reading takes as long as two frames.
    #[inline]
    fn on_arrival(&mut self) {
        self.is_flowing = true;
        if self.span.is_none() {
            let now = Instant::now();
            self.span = Some((now, now));
        }
    }

    /// A poll without frames: the one before it had the last ones.
    #[inline]
    fn on_gap(&mut self) {
        if let Some((_, last)) = self.span.as_mut().filter(|_| self.is_flowing) {
            *last = Instant::now();
        }
        self.is_flowing = false;
    }
}

/// Received bytes without link headers and padding.
fn application_bytes(layout: Layout, frames: u64, wire_bytes: u64) -> u64 {
    let whole = frames / layout.frames;
    let padded: u64 = (0..layout.frames)
        .map(|frame_index| (layout.frame_bytes(frame_index) - layout.payload_bytes(frame_index)) as u64)
        .sum();
    let part = (frames % layout.frames) * padded / layout.frames;
    wire_bytes.saturating_sub(whole * padded + part)
}
