//! Checks the frames that hosts send, by code that shares nothing with the stack.
//!
//! Every frame has valid checksums. A retransmission equals the first transmission. The right edge
//! of the window never moves left, and no sender exceeds it. Every FPDU has a valid CRC where a
//! side requested CRCs, and valid markers where the peer requested markers. Every segment holds
//! whole FPDUs, unless a small window or path MTU requires a cut. Messages are numbered and
//! segmented as RDMAP requires, and every response matches a request. A Terminate shows the error,
//! is sent once, and is the last message.

pub(crate) mod message;
pub(crate) mod stream;
mod terminate;
#[cfg(test)]
mod tests;

use core::net::SocketAddr;
use std::collections::BTreeMap;

use ironwarp_testkit::{ACK, RST, SYN, Segment};
use message::ReplyClaim;
use stream::StreamChecker;

/// Source and destination.
type Direction = (SocketAddr, SocketAddr);

/// Checks the frames that hosts send.
pub struct FrameChecker {
    streams: BTreeMap<Direction, StreamChecker>,
    scales: BTreeMap<Direction, u8>,
    /// The largest unit.
    unit_bytes: u64,
    /// Whether the path MTU may become smaller than the units.
    mtu_may_shrink: bool,
    /// Whether links join and cut segments.
    pub regroups: bool,
    /// Whether start-up frames may be corrupted without detection.
    pub startup_may_change: bool,
    /// Whether it checks messages. Where payload may be corrupted without detection, a reply may
    /// not match the request.
    pub checks_messages: bool,
}

impl FrameChecker {
    /// A checker of hosts with packets of at most `mtu_bytes`.
    pub fn new(mtu_bytes: u16, mtu_may_shrink: bool) -> Self {
        FrameChecker {
            streams: BTreeMap::new(),
            scales: BTreeMap::new(),
            unit_bytes: mtu_bytes.into(),
            mtu_may_shrink,
            regroups: false,
            startup_may_change: false,
            checks_messages: true,
        }
    }

    /// Checks a frame that a host sends. Returns an error that describes the fault.
    pub fn on_frame(&mut self, frame: &[u8]) -> Result<(), String> {
        let Some((route, segment)) = Segment::parse(frame)? else { return Ok(()) };
        let [from, to] = route.ips;
        let ends = (SocketAddr::new(from, segment.src_port), SocketAddr::new(to, segment.dst_port));
        let named = |fault: String| format!("{} to {}: {fault}", ends.0, ends.1);
        self.on_segment(ends, &segment).map_err(named)
    }

    fn on_segment(&mut self, ours: Direction, segment: &Segment) -> Result<(), String> {
        let theirs = (ours.1, ours.0);
        let scale = scale_of(&segment.options)?;
        if segment.has(RST) {
            return Ok(());
        }
        let is_syn = segment.has(SYN);
        if is_syn {
            self.scales.insert(ours, scale.unwrap_or(0));
        }
        if is_syn && !self.streams.get(&ours).is_some_and(|stream| stream.is_started_by(segment)) {
            let mut stream = StreamChecker::new(segment);
            stream.may_be_unaligned = self.mtu_may_shrink;
            stream.retransmits_may_be_unaligned = self.regroups;
            stream.checks_messages = self.checks_messages;
            self.streams.insert(ours, stream);
            if !segment.has(ACK) {
                // A new connection with ports that were used before.
                self.streams.remove(&theirs);
            }
        }
        if let Some(stream) = self.streams.get_mut(&theirs) {
            // The window of a SYN is never scaled (RFC 7323 s2.2), nor is any where one side does
            // not offer it.
            let both = self.scales.get(&ours).zip(self.scales.get(&theirs)).map_or(0, |(scale, _)| *scale);
            stream.on_peer_segment(segment, if is_syn { 0 } else { both }, self.unit_bytes)?;
        }
        let peer_startup_request = self.streams.get(&theirs).and_then(|stream| stream.startup_request);
        let Some(stream) = self.streams.get_mut(&ours) else { return Ok(()) };
        stream.peer_startup_request = peer_startup_request;
        let outcome = stream.on_own_segment(segment);
        if outcome.is_err() && self.startup_may_change && stream.framed {
            // The start-up request that this sender received may not be the one that the peer sent.
            stream.framed = false;
            return Ok(());
        }
        let reply_claims = core::mem::take(&mut stream.reply_claims);
        outcome?;
        reply_claims.iter().try_for_each(|claim| self.check_reply(theirs, claim))
    }

    /// Checks a message that must match an earlier one of the other direction.
    fn check_reply(&mut self, theirs: Direction, claim: &ReplyClaim) -> Result<(), String> {
        let Some(peer) = self.streams.get_mut(&theirs) else {
            return Err(format!("{claim:?} to a peer that has sent nothing"));
        };
        match *claim {
            ReplyClaim::Response { stag, to, bytes, last } => {
                peer.rdmap_sender.check_read_response(stag, to, bytes, last)
            }
            ReplyClaim::Atomic(identifier) => peer.rdmap_sender.check_atomic_response(identifier),
            ReplyClaim::Terminate(ref payload) => terminate::check(payload, &peer.rdmap_sender),
        }
    }
}

/// The window scale among the options of a segment (RFC 7323 s2.2).
fn scale_of(mut options: &[u8]) -> Result<Option<u8>, String> {
    loop {
        match options {
            [] | [0, ..] => return Ok(None),
            [1, rest @ ..] => options = rest,
            [3, 3, scale, ..] => return Ok(Some(*scale)),
            [_, len, ..] if (2..=options.len()).contains(&usize::from(*len)) => {
                options = &options[usize::from(*len)..]
            }
            _ => return Err(format!("invalid TCP options: {options:?}")),
        }
    }
}
