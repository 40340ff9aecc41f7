//! Round trips of raw frames.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use ironwarp_port::{Burst, Frame, Port, TxMeta};

use super::format::{FrameTemplate, Kind, Layout, parse_header, to_pong};
use crate::{RoundTrip, ServerSlice, Slice, StopCondition, StopSignal, measure_round_trips};

/// A message that has not come back by then is lost. A server that lost its processor for a while replies sooner.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);
/// Polls between two looks at the clock and at the flag that ends the slice. A clock read takes longer than a poll.
const POLLS_PER_CLOCK_READ: u32 = 64;

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
    let template = FrameTemplate::new(port.caps().mac, Kind::Ping);
    let slice = measure_round_trips(layout.message_bytes(), until, |_| {
        let mut message = Message { layout, template, first: *sequence, sent: 0, tx: Burst::new() };
        *sequence += layout.frames;
        Ok::<_, Infallible>(match message.round_trip(port, until) {
            Some(rtt) => RoundTrip::Done { rtt, is_intact: true },
            None => RoundTrip::Lost,
        })
    });
    slice.unwrap_or_else(|never| match never {})
}

/// A message on its way.
struct Message<P: Port> {
    layout: Layout,
    template: FrameTemplate,
    /// The number of its first frame.
    first: u64,
    /// Frames built.
    sent: u64,
    tx: Burst<<P::Frame as Frame>::Sealed>,
}

impl<P: Port> Message<P> {
    /// Sends the message and waits until all of it is back; `None` when some of it was lost. The first burst is built
    /// before the clock starts.
    fn round_trip(&mut self, port: &mut P, until: StopCondition<'_>) -> Option<Duration> {
        let (mut arrived, mut returned, mut polls) = (Burst::new(), 0, 0_u32);
        self.fill(port);
        let start = Instant::now();
        loop {
            if !self.tx.is_empty() {
                port.tx_burst(&mut self.tx);
            }
            port.rx_burst(&mut arrived);
            returned += arrived.drain(..).filter(|frame| self.is_reply(frame.bytes())).count() as u64;
            if returned >= self.layout.frames {
                return Some(start.elapsed());
            }
            if self.sent < self.layout.frames {
                self.fill(port);
            }
            polls = polls.wrapping_add(1);
            let checks_clock = polls.is_multiple_of(POLLS_PER_CLOCK_READ);
            if checks_clock && (start.elapsed() > REPLY_TIMEOUT || until.halted()) {
                return None;
            }
        }
    }

    /// Builds frames until the burst is full or the message is complete.
    fn fill(&mut self, port: &mut P) {
        while self.sent < self.layout.frames && !self.tx.is_full() {
            let bytes = self.layout.frame_bytes(self.sent);
            let Some(frame) = self.template.build(port, bytes, self.first + self.sent) else { return };
            self.tx.push(frame);
            self.sent += 1;
        }
    }

    /// Whether a frame is a reply to this message and not to a lost one.
    fn is_reply(&self, frame: &[u8]) -> bool {
        matches!(parse_header(frame), Some((Kind::Pong, number)) if number >= self.first)
    }
}
