//! Raw frames over a [`Port`]: the floor of every latency, the ceiling of every bandwidth.
//!
//! A message is sent as frames of an EtherType reserved for experiments (IEEE 802, 0x88b5), each
//! with at most an MTU of payload. The ends touch only the header and the first bytes of the
//! payload, so the figures are those of the device and the two cores. Other frames are dropped.
//!
//! Layout of a frame: destination (broadcast), source, EtherType, kind (1 byte), unused (1 byte),
//! sequence number (8 bytes, big-endian), payload as the buffer held it.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use ironwarp_port::{Burst, Frame, Port, TxMeta};
use ironwarp_types::MacAddr;

use crate::{RoundTrip, ServerSlice, Slice, StopCondition, StopSignal, measure_round_trips, nanos};

/// Link header.
const HEADER_BYTES: usize = 14;
/// The offsets of kind and sequence number.
const KIND_AT: usize = HEADER_BYTES;
const SEQUENCE_AT: usize = HEADER_BYTES + 2;
/// Link header, kind, unused byte, sequence number.
const PREFIX_BYTES: usize = SEQUENCE_AT + 8;
/// The shortest Ethernet frame without its checksum (IEEE 802.3).
const FRAME_BYTES_MIN: usize = 60;
/// IEEE 802: for local experiments.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// A message that has not come back by then is lost. A server that lost its processor for a while
/// replies sooner.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);
/// Polls between two looks at the clock and at the flag that ends the slice. A clock read takes
/// longer than a poll.
const POLLS_PER_CLOCK_READ: u32 = 64;
/// How long a receiver waits for the next frame after the last one that arrived.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(500);
/// The sender gives up when the device takes no frame for this time.
const TX_STALL_TIMEOUT: Duration = Duration::from_millis(500);
const BURSTS_PER_CLOCK_READ: u64 = 16;

/// The purpose of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Kind {
    /// The server sends it back.
    Ping = 1,
    /// A ping that was sent back.
    Pong = 2,
    /// The server counts it.
    Data = 3,
}

/// How messages of one size are divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub frames: u64,
    /// Payload bytes of every frame but the last.
    full_bytes: usize,
    last_bytes: usize,
}

impl Layout {
    /// A message of `bytes` over frames with at most `mtu` bytes of payload.
    pub fn new(bytes: u64, mtu: u16) -> Self {
        let full = u64::from(mtu.max(1));
        let frames = bytes.div_ceil(full).max(1);
        Layout { frames, full_bytes: full as usize, last_bytes: (bytes - (frames - 1) * full) as usize }
    }

    /// Bytes of the frame at `frame_index` in its message.
    fn frame_bytes(&self, frame_index: u64) -> usize {
        (HEADER_BYTES + self.payload_bytes(frame_index)).max(FRAME_BYTES_MIN)
    }

    /// Application bytes of the frame at `frame_index` in its message.
    fn payload_bytes(&self, frame_index: u64) -> usize {
        if frame_index + 1 < self.frames { self.full_bytes } else { self.last_bytes }
    }

    pub fn message_bytes(&self) -> u64 {
        (self.frames - 1) * self.full_bytes as u64 + self.last_bytes as u64
    }

    /// Received bytes without link headers and padding.
    fn application_bytes(&self, frames: u64, wire_bytes: u64) -> u64 {
        let padding = |index| (self.frame_bytes(index) - self.payload_bytes(index)) as u64;
        let padded: u64 = (0..self.frames).map(padding).sum();
        let part = (frames % self.frames) * padded / self.frames;
        wire_bytes.saturating_sub(frames / self.frames * padded + part)
    }
}

/// The bytes that all frames of a sender begin with, up to the sequence number.
#[derive(Clone, Copy, Debug)]
struct FrameTemplate([u8; SEQUENCE_AT]);

impl FrameTemplate {
    /// Frames of one kind, sent by `source`.
    fn new(source: MacAddr, kind: Kind) -> Self {
        let mut head = [0; SEQUENCE_AT];
        head[..6].fill(0xff);
        head[6..12].copy_from_slice(&source.0);
        head[12..14].copy_from_slice(&ETHERTYPE);
        head[KIND_AT] = kind as u8;
        FrameTemplate(head)
    }

    /// Builds a frame of `bytes`; `None` while the pool is empty.
    #[inline]
    fn build<P: Port>(
        &self,
        port: &mut P,
        bytes: usize,
        sequence: u64,
    ) -> Option<<P::Frame as Frame>::Sealed> {
        let mut frame = port.alloc()?;
        frame.resize(bytes);
        self.write(frame.bytes_mut(), sequence);
        Some(frame.seal(TxMeta::default()))
    }

    #[inline]
    fn write(&self, frame: &mut [u8], sequence: u64) {
        let Some(head) = frame.first_chunk_mut::<PREFIX_BYTES>() else { return };
        head[..SEQUENCE_AT].copy_from_slice(&self.0);
        head[SEQUENCE_AT..].copy_from_slice(&sequence.to_be_bytes());
    }
}

/// Whether a frame is one that the server counts.
#[inline]
fn is_data(frame: &[u8]) -> bool {
    frame
        .first_chunk::<PREFIX_BYTES>()
        .is_some_and(|head| head[12..14] == ETHERTYPE && head[KIND_AT] == Kind::Data as u8)
}

/// Returns the kind and sequence number; `None` for frames of other programs.
fn parse_header(frame: &[u8]) -> Option<(Kind, u64)> {
    let head = frame.first_chunk::<PREFIX_BYTES>()?;
    if head[12..14] != ETHERTYPE {
        return None;
    }
    let kind = [Kind::Ping, Kind::Pong, Kind::Data].into_iter().find(|&kind| kind as u8 == head[KIND_AT])?;
    let sequence = head[SEQUENCE_AT..].try_into().ok()?;
    Some((kind, u64::from_be_bytes(sequence)))
}

fn to_pong(frame: &mut [u8]) {
    if let Some(head) = frame.first_chunk_mut::<PREFIX_BYTES>() {
        head[KIND_AT] = Kind::Pong as u8;
    }
}

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
                // Cannot fail: both bursts have one size, and `tx` was empty before the last
                // receive.
                let _ = tx.try_push(frame.seal(TxMeta::default()));
            }
        }
        while !tx.is_empty() && stop.raised().is_none() {
            port.tx_burst(&mut tx);
        }
    }
    server
}

/// The client: one message at a time, timed from before its first frame is sent until its last
/// frame is back.
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
    first: u64,
    sent: u64,
    tx: Burst<<P::Frame as Frame>::Sealed>,
}

impl<P: Port> Message<P> {
    /// Sends the message and waits until all of it is back; `None` when some of it was lost. The
    /// first burst is built before the clock starts.
    fn round_trip(&mut self, port: &mut P, until: StopCondition<'_>) -> Option<Duration> {
        let (mut arrived, mut returned, mut polls) = (Burst::new(), 0, 0_u32);
        self.fill(port);
        let start = Instant::now();
        loop {
            if !self.tx.is_empty() {
                port.tx_burst(&mut self.tx);
            }
            port.rx_burst(&mut arrived);
            // A smaller number is of a message that was lost.
            let is_reply = |frame: &P::Frame| matches!(parse_header(frame.bytes()), Some((Kind::Pong, number)) if number >= self.first);
            returned += arrived.drain(..).filter(is_reply).count() as u64;
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
}

/// The client: whole messages until the budget is spent. Without a warm-up, since only arrivals
/// count. Also returns the frames that the device took.
pub fn send_frames<P: Port>(port: &mut P, layout: Layout, until: StopCondition<'_>) -> (Slice, u64) {
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
    let elapsed_ns = nanos(sender.start.elapsed());
    (Slice { elapsed_ns, ..Slice::default() }, sender.frames_built - sender.tx.len() as u64)
}

/// Sends whole messages from `client` to `server` on one thread, a burst out and a burst in, until
/// the budget is spent: the rate of one core that runs both ends. Frames that do not arrive are
/// errors.
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

    /// Gives a burst to the device, a new one if the device took all of the last one. Returns the
    /// time on every sixteenth call, and on all after the slice.
    ///
    /// A device that copies has returned the last burst's frames, so the new burst uses the same
    /// ones, and 32 frames of 9000 bytes stay in the second-level cache. A burst that is filled up
    /// while frames wait in it needs twice as many.
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
    let (mut frames, mut wire_bytes, mut arrived) = (0_u64, 0_u64, Burst::new());
    // The first arrival, and the end of the last run of bursts. Bursts that follow each other need
    // no clock: a reading takes as long as two frames.
    let (mut span, mut is_flowing): (Option<(Instant, Instant)>, _) = (None, false);
    let mut quiet_since: Option<Instant> = None;
    let expected = loop {
        port.rx_burst(&mut arrived);
        let before = frames;
        for frame in arrived.drain(..).filter(|frame| is_data(frame.bytes())) {
            frames += 1;
            wire_bytes += frame.bytes().len() as u64;
        }
        if frames > before {
            span = span.or_else(|| Some((Instant::now(), Instant::now())));
            (is_flowing, quiet_since) = (true, None);
            continue;
        }
        // The poll before this one had the last frames.
        if let Some((_, last)) = span.as_mut().filter(|_| is_flowing) {
            *last = Instant::now();
        }
        is_flowing = false;
        let Some(expected) = stop.raised() else { continue };
        let quiet = quiet_since.get_or_insert_with(Instant::now).elapsed();
        if frames >= expected || quiet > ARRIVAL_TIMEOUT {
            break expected;
        }
    };
    ServerSlice {
        messages: frames / layout.frames,
        bytes: layout.application_bytes(frames, wire_bytes),
        elapsed_ns: span.map_or(0, |(first, last)| nanos(last.duration_since(first))),
        errors: expected.saturating_sub(frames),
        ..ServerSlice::default()
    }
}

#[cfg(test)]
mod tests;
