//! Segments that cross a link in other pieces than they were sent: joined as receive offload joins
//! them, and cut anywhere.
//!
//! Consecutive segments of a flow become one packet with the checksums of the whole, which is cut
//! into packets of random lengths. RFC 9293 s3.7 allows any segmentation, and RFC 5044 s5.1 has
//! receivers take FPDUs that begin anywhere.

use ironwarp_types::SeededEntropy;

use super::packet::{Packet, Version, checksum, put};

/// The positions in a segment with payload that may be joined.
struct Segment {
    packet: Packet,
    payload: usize,
}

impl Segment {
    /// Finds a segment with payload, right checksums, no flag but ACK and PSH, and nothing behind
    /// the packet.
    fn locate(frame: &[u8]) -> Option<Segment> {
        let packet = Packet::locate(frame)?;
        let payload = packet.tcp_payload(frame)?;
        let is_plain = frame.get(packet.l4 + FLAGS_AT).is_some_and(|flags| flags & !PSH == ACK);
        let joins = is_plain && !payload.is_empty() && payload.end == frame.len() && packet.sums_hold(frame);
        joins.then_some(Segment { packet, payload: payload.start })
    }

    fn seq(&self, frame: &[u8]) -> u32 {
        let seq = frame.get(self.packet.l4 + SEQ_AT..).and_then(<[u8]>::first_chunk);
        seq.map_or(0, |seq| u32::from_be_bytes(*seq))
    }

    /// Returns the headers without the fields in which two segments of a flow differ.
    fn common(&self, frame: &[u8]) -> Vec<u8> {
        let mut headers = frame.get(..self.payload).unwrap_or_default().to_vec();
        self.describe(&mut headers, 0, 0);
        let l3 = self.packet.l3;
        if self.packet.version == Version::V4 {
            put(&mut headers, l3 + 4, 0);
            put(&mut headers, l3 + 10, 0);
        }
        put(&mut headers, self.packet.l4 + CHECKSUM_AT, 0);
        if let Some(flags) = headers.get_mut(self.packet.l4 + FLAGS_AT) {
            *flags = ACK;
        }
        headers
    }

    /// Sets the length of a packet with `payload` bytes, and its sequence number.
    fn describe(&self, frame: &mut [u8], payload: usize, seq: u32) {
        let (l3, l4) = (self.packet.l3, self.packet.l4);
        let (at, from) = match self.packet.version {
            Version::V4 => (l3 + 2, l3),
            Version::V6 => (l3 + 4, l4),
        };
        put(frame, at, (self.payload - from + payload) as u16);
        put(frame, l4 + SEQ_AT, (seq >> 16) as u16);
        put(frame, l4 + SEQ_AT + 2, seq as u16);
    }

    /// Returns a packet of a flow: these headers, `payload`, and right checksums.
    fn packet(&self, headers: &[u8], payload: &[u8], seq: u32) -> Vec<u8> {
        let mut frame = [headers, payload].concat();
        self.describe(&mut frame, payload.len(), seq);
        let (l3, l4) = (self.packet.l3, self.packet.l4);
        let (addresses, is_v4) = match self.packet.version {
            Version::V4 => (l3 + 12..l3 + 20, true),
            Version::V6 => (l3 + 8..l3 + 40, false),
        };
        if is_v4 {
            put(&mut frame, l3 + 10, 0);
            let sum = checksum(0, frame.get(l3..l4).unwrap_or_default());
            put(&mut frame, l3 + 10, sum);
        }
        put(&mut frame, l4 + CHECKSUM_AT, 0);
        let pseudo = !checksum(6 + (frame.len() - l4) as u64, frame.get(addresses).unwrap_or_default());
        let sum = checksum(pseudo.into(), frame.get(l4..).unwrap_or_default());
        put(&mut frame, l4 + CHECKSUM_AT, sum);
        frame
    }
}

/// Replaces each run of consecutive segments of a flow, with a probability of `ppm` in a million
/// for each segment that goes on, by packets of the same bytes. Frames are at most `frame_bytes`
/// long.
pub(super) fn regroup(frames: &mut Vec<Vec<u8>>, ppm: u32, frame_bytes: usize, dice: &mut SeededEntropy) {
    let mut rest = core::mem::take(frames).into_iter().peekable();
    while let Some(mut frame) = rest.next() {
        let Some(segment) = Segment::locate(&frame) else {
            frames.push(frame);
            continue;
        };
        let (common, first) = (segment.common(&frame), segment.seq(&frame));
        let headers = frame.get(..segment.payload).unwrap_or_default().to_vec();
        let mut payload = frame.split_off(segment.payload);
        let mut count = 1;
        while let Some(next) = rest.next_if(|next| {
            let end = first.wrapping_add(payload.len() as u32);
            let goes_on = Segment::locate(next)
                .is_some_and(|other| other.seq(next) == end && other.common(next) == common);
            goes_on && dice.chance(ppm)
        }) {
            payload.extend_from_slice(next.get(segment.payload..).unwrap_or_default());
            count += 1;
        }
        if count == 1 {
            frame.append(&mut payload);
            frames.push(frame);
            continue;
        }
        let room = frame_bytes.min(usize::from(u16::MAX)).saturating_sub(segment.payload).max(1);
        let mut seq = first;
        while !payload.is_empty() {
            // Whole, as far as it fits, or cut anywhere.
            let most = payload.len().min(room);
            let bytes = if dice.chance(500_000) { most } else { 1 + dice.below(most as u64) as usize };
            let behind = payload.split_off(bytes);
            frames.push(segment.packet(&headers, &payload, seq));
            (payload, seq) = (behind, seq.wrapping_add(bytes as u32));
        }
    }
}

const SEQ_AT: usize = 4;
const FLAGS_AT: usize = 13;
const CHECKSUM_AT: usize = 16;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
