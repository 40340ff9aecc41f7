//! What hosts put on the wire, looked at by code that shares nothing with the stack.
//!
//! Every frame has right checksums. What is sent again is what was sent before. The window never shrinks from the right
//! and nobody sends beyond it. Every FPDU has a right CRC where a side asked for CRCs, and right markers where the peer
//! asked for markers; every segment is whole FPDUs, unless a window too small or a way too narrow asked for a cut.
//! Messages are numbered and cut as RDMAP has it, answers are answers to what was asked, and a Terminate shows what was
//! wrong, is sent once, and nothing comes behind it.

mod frame;
pub(crate) mod message;
pub(crate) mod stream;
mod terminate;
#[cfg(test)]
mod tests;

use core::net::SocketAddr;
use std::collections::BTreeMap;

pub use frame::{Segment, read};
use message::ReplyClaim;
use stream::StreamChecker;

/// From whom, to whom.
type Direction = (SocketAddr, SocketAddr);

/// Whoever watches the frames that hosts send.
pub struct FrameChecker {
    streams: BTreeMap<Direction, StreamChecker>,
    /// What each side's windows are scaled by.
    scales: BTreeMap<Direction, u8>,
    /// No unit is larger.
    unit_bytes: u64,
    /// Whether the way may become narrower than units are.
    mtu_may_shrink: bool,
    /// Whether start-up frames may arrive otherwise than they were sent, unnoticed.
    pub startup_may_change: bool,
    /// Whether it looks into FPDUs. Where payload may change unnoticed, what a side answers may not be what was asked.
    pub checks_messages: bool,
}

impl FrameChecker {
    /// A watcher of hosts whose packets have at most `mtu_bytes`.
    pub fn new(mtu_bytes: u16, mtu_may_shrink: bool) -> Self {
        FrameChecker {
            streams: BTreeMap::new(),
            scales: BTreeMap::new(),
            unit_bytes: mtu_bytes.into(),
            mtu_may_shrink,
            startup_may_change: false,
            checks_messages: true,
        }
    }

    /// A host sends a frame. Says what is wrong with it.
    pub fn on_frame(&mut self, frame: &[u8]) -> Result<(), String> {
        let Some(segment) = read(frame)? else { return Ok(()) };
        let named = |fault: String| format!("{} to {}: {fault}", segment.from, segment.to);
        self.on_segment(&segment).map_err(named)
    }

    fn on_segment(&mut self, segment: &Segment<'_>) -> Result<(), String> {
        let (ours, theirs) = ((segment.from, segment.to), (segment.to, segment.from));
        if segment.rst {
            return Ok(());
        }
        if segment.syn {
            self.scales.insert(ours, segment.scale.unwrap_or(0));
        }
        if segment.syn && !self.streams.get(&ours).is_some_and(|stream| stream.is_started_by(segment)) {
            let mut stream = StreamChecker::new(segment);
            stream.may_be_unaligned = self.mtu_may_shrink;
            stream.checks_messages = self.checks_messages;
            self.streams.insert(ours, stream);
            if segment.ack.is_none() {
                // A new connection of ports that were used before.
                self.streams.remove(&theirs);
            }
        }
        if let Some(stream) = self.streams.get_mut(&theirs) {
            // The window of a SYN is never scaled (RFC 7323 s2.2), nor is any where one side does not offer it.
            let both = self.scales.get(&ours).zip(self.scales.get(&theirs)).map_or(0, |(scale, _)| *scale);
            stream.on_peer_segment(segment, if segment.syn { 0 } else { both }, self.unit_bytes)?;
        }
        let peer_startup_request = self.streams.get(&theirs).and_then(|stream| stream.startup_request);
        let Some(stream) = self.streams.get_mut(&ours) else { return Ok(()) };
        stream.peer_startup_request = peer_startup_request;
        let outcome = stream.on_own_segment(segment);
        if outcome.is_err() && self.startup_may_change && stream.has_framing() {
            // What this sender heard of its peer's wishes may not be what the peer said.
            stream.disable_framing();
            return Ok(());
        }
        let reply_claims = core::mem::take(&mut stream.reply_claims);
        outcome?;
        reply_claims.iter().try_for_each(|claim| self.check_reply(theirs, claim))
    }

    /// Something was said because of what the other direction said before.
    fn check_reply(&mut self, theirs: Direction, claim: &ReplyClaim) -> Result<(), String> {
        let Some(peer) = self.streams.get_mut(&theirs) else {
            return Err(format!("{claim:?} to a peer that has said nothing"));
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
