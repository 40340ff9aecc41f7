//! DDP segment chunks as the framing of a stream: a DDP-SSN in front of each segment, no CRC and no
//! markers. SCTP keeps the boundaries of messages and has a CRC-32C of its own.

use super::chunk::SSN_BYTES;
use super::order::CHUNKS_IN_FLIGHT_MAX;
use crate::framing::{Framing, OnePassFrame};
use crate::setup::Terms;
use crate::stream::{Role, StreamStart};

/// The chunks of segments that may be in flight. Two more may follow: RDMAP's Terminate, and that
/// of the session.
const SEGMENTS_IN_FLIGHT_MAX: u16 = CHUNKS_IN_FLIGHT_MAX - 2;

/// The DDP segment chunks that one side of a session sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct SegmentChunk {
    next_ssn: u16,
    /// The user data of all chunks so far, in octets.
    sent_bytes: u64,
    /// All chunks up to this octet count as one acknowledgement.
    mark_bytes: u64,
    /// The chunks sent after the mark.
    after_mark: u16,
    /// The chunks that may be in flight: those after the mark before.
    in_flight: u16,
}

impl Default for SegmentChunk {
    fn default() -> Self {
        SegmentChunk::new(0)
    }
}

impl SegmentChunk {
    /// The chunks after a control message with `control_bytes` octets of user data, which had
    /// number 0.
    pub fn new(control_bytes: u64) -> Self {
        SegmentChunk {
            next_ssn: 1,
            sent_bytes: control_bytes,
            mark_bytes: control_bytes,
            after_mark: 0,
            in_flight: 1,
        }
    }

    /// Returns the DDP-SSN of the next chunk of this side.
    pub fn next_ssn(&self) -> u16 {
        self.next_ssn
    }
}

impl StreamStart<SegmentChunk> {
    /// A start with the terms of set-up, after a control message of `control_bytes` octets. Either
    /// side may send at once (RFC 5043 s6.2), unless the initiator has to send a ready-to-receive
    /// indication first (RFC 6581 s9.2).
    pub fn over_sctp(terms: &Terms, control_bytes: u64) -> Self {
        let Terms { reads, rtr_to_send, rtr_awaited, .. } = *terms;
        StreamStart {
            role: if rtr_awaited.is_empty() { Role::Initiator } else { Role::Responder },
            framing: SegmentChunk::new(control_bytes),
            reads: Some(reads),
            rtr_to_send,
            rtr_awaited,
            startup_bytes_sent: control_bytes,
        }
    }
}

impl Framing for SegmentChunk {
    #[inline(always)]
    fn head_bytes(&self) -> usize {
        SSN_BYTES
    }

    #[inline(always)]
    fn overhead_bytes(&self) -> usize {
        SSN_BYTES
    }

    #[inline(always)]
    fn shares_units(&self) -> bool {
        false
    }

    /// RFC 5043 s10: no segment is sent while as many chunks may be in flight as DDP-SSNs can tell
    /// apart.
    #[inline]
    fn usable(&self, room: usize) -> usize {
        if self.in_flight < SEGMENTS_IN_FLIGHT_MAX { room } else { 0 }
    }

    #[inline(always)]
    fn mulpdu(&self, usable: usize) -> usize {
        usable.saturating_sub(SSN_BYTES)
    }

    #[inline]
    fn complete(&mut self, room: &mut [u8], ulpdu_bytes: usize) -> usize {
        let bytes = SSN_BYTES + ulpdu_bytes;
        let Some(ssn) = room.get_mut(..bytes).and_then(|chunk| chunk.first_chunk_mut()) else { return 0 };
        *ssn = self.next_ssn.to_be_bytes();
        self.next_ssn = self.next_ssn.wrapping_add(1);
        // 64 bits count the octets of every connection. The other two are limited by `usable`.
        self.sent_bytes = self.sent_bytes.wrapping_add(bytes as u64);
        self.after_mark = self.after_mark.saturating_add(1);
        self.in_flight = self.in_flight.saturating_add(1);
        bytes
    }

    fn is_fast(&self) -> bool {
        true
    }

    #[inline(always)]
    fn complete_fast<const SUMMED: bool>(
        &mut self,
        room: &mut [u8],
        ulpdu_bytes: usize,
    ) -> (usize, Option<u32>) {
        let usable = self.usable(room.len());
        let room = room.get_mut(..usable).unwrap_or_default();
        (self.complete(room, ulpdu_bytes), None)
    }

    fn in_one_pass<'a>(&self, _: &'a mut [u8], _: usize, _: usize) -> Option<OnePassFrame<'a>> {
        None
    }

    /// Each message is a segment, and SCTP has checked its CRC.
    fn finds_frames_out_of_order(&self) -> bool {
        true
    }

    #[inline]
    fn on_acked(&mut self, total_bytes: u64) {
        if total_bytes >= self.sent_bytes {
            (self.in_flight, self.after_mark) = (0, 0);
        } else if total_bytes >= self.mark_bytes {
            self.in_flight = core::mem::take(&mut self.after_mark);
        } else {
            return;
        }
        self.mark_bytes = self.sent_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sctp::CHUNK_BYTES_MIN;

    /// RFC 5043 s9: DDP learns the largest segment that a chunk has room for. A longer one is
    /// refused, and nothing has changed.
    #[test]
    fn a_segment_longer_than_its_chunk_is_refused() {
        let mut framing = SegmentChunk::default();
        let mut room = [0; CHUNK_BYTES_MIN];
        let mulpdu = framing.mulpdu(framing.usable(room.len()));
        assert_eq!(mulpdu, 514);
        assert!(framing.fits(mulpdu, room.len()) && !framing.fits(mulpdu + 1, room.len()));
        let before = framing;
        assert_eq!(framing.complete(&mut room, mulpdu + 1), 0);
        assert_eq!(framing.complete_fast::<false>(&mut room, mulpdu + 1), (0, None));
        assert_eq!((framing, room), (before, [0; CHUNK_BYTES_MIN]));
        assert_eq!(framing.complete(&mut room, mulpdu), CHUNK_BYTES_MIN);
        assert_eq!((room[..2].to_vec(), framing.next_ssn()), (vec![0, 1], 2));
    }

    /// RFC 5043 s10: at most 32767 chunks of a stream are in flight, whatever the application does:
    /// segments stop before, so that both Terminates have room.
    #[test]
    fn segments_stop_before_ssns_are_ambiguous() {
        let mut framing = SegmentChunk::new(4);
        let mut room = [0; 20];
        for sent in 1..SEGMENTS_IN_FLIGHT_MAX {
            assert_eq!(framing.complete_fast::<false>(&mut room, 18), (20, None), "{sent}");
        }
        let before = framing;
        assert_eq!((framing.usable(20), framing.complete_fast::<false>(&mut room, 18)), (0, (0, None)));
        assert_eq!(framing, before);
        // The control message and 1000 segments are acknowledged: the mark is, so nothing before it
        // is in flight.
        framing.on_acked(4 + 1_000 * 20);
        assert_eq!(framing.in_flight, SEGMENTS_IN_FLIGHT_MAX - 1);
        assert_eq!(framing.complete_fast::<false>(&mut room, 18), (20, None));
        assert_eq!(framing.usable(20), 0, "the next mark is not acknowledged yet");
        framing.on_acked(framing.sent_bytes - 20);
        assert_eq!((framing.in_flight, framing.usable(20)), (1, 20));
        framing.on_acked(framing.sent_bytes);
        assert_eq!(framing.in_flight, 0);
    }

    /// The count of chunks in flight is never below the truth, and exact when all are acknowledged.
    #[test]
    fn the_chunks_in_flight_are_never_underestimated() {
        let mut framing = SegmentChunk::new(0);
        let mut room = [0; 64];
        let mut ends = std::collections::VecDeque::from([0]);
        for step in 0..5_000_u64 {
            let bytes = 14 + step as usize % 40;
            framing.complete(&mut room, bytes);
            ends.push_back(framing.sent_bytes);
            for _ in 0..(step * 7 % 5) {
                if let Some(end) = ends.pop_front() {
                    framing.on_acked(end);
                }
            }
            assert!(usize::from(framing.in_flight) >= ends.len(), "{step}");
            assert!(!ends.is_empty() || framing.in_flight == 0);
        }
    }
}
