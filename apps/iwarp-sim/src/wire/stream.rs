//! One direction of a connection, as its sender puts it on the wire: what each byte is, and where FPDUs begin.
//!
//! Sources: RFC 5044 s4 (framing), s7.1.1 (start-up frames), RFC 9293 s3.8.6 (windows).

use std::collections::{BTreeMap, BTreeSet};

use super::frame::Segment;
use super::message::{RdmapSender, ReplyClaim};

/// One direction.
pub struct StreamChecker {
    /// The sequence number of the first byte.
    first: u32,
    /// Every byte from the first on that was sent without a gap.
    bytes: Vec<u8>,
    /// What was sent beyond a gap: a segment that found no buffer at its device comes later.
    out_of_order: BTreeMap<u64, Vec<u8>>,
    /// Where the next FPDU, or the start-up frame, begins.
    parsed: u64,
    /// Where FPDUs begin, the one that is not complete included.
    boundaries: BTreeSet<u64>,
    /// Segments that cannot be judged before their bytes are parsed.
    unchecked_segments: Vec<(u64, u64)>,
    /// Whether the sender may have had to cut a unit: the peer's window was once too small, or the way too narrow.
    pub may_be_unaligned: bool,
    /// Units that begin before this may have been cut: the sender may take the way for a black hole of large packets.
    unaligned_below: u64,
    /// How often segments were sent, by where they begin.
    sent: BTreeMap<u64, u32>,
    /// Whether the sender's FIN was sent.
    has_ended: bool,
    /// What the sender asked for in its start-up frame, once that is known.
    pub startup_request: Option<StartupRequest>,
    /// What its peer asked for.
    pub peer_startup_request: Option<StartupRequest>,
    /// Where the first FPDU begins, or the marker before it.
    full_operation: u64,
    /// Whether FPDUs are looked at.
    framed: bool,
    /// The byte behind the last that the peer allows, as the peer has sent it; counted as `bytes` is.
    right_edge: Option<u64>,
    /// Whether messages are looked at.
    pub checks_messages: bool,
    /// What this side has said.
    pub rdmap_sender: RdmapSender,
    /// What of that the other direction has to justify.
    pub reply_claims: Vec<ReplyClaim>,
}

/// What one side asks for in its start-up frame (RFC 5044 s7.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartupRequest {
    /// Markers in what it receives.
    pub markers: bool,
    /// CRCs both ways.
    pub crc: bool,
}

/// From one marker to the next, the marker included (RFC 5044 s4.3).
pub(crate) const MARKER_STEP: u64 = 512;

/// Transmissions of one segment after which its sender may suspect its size.
const RETRANSMITS_MIN: u32 = 2;

/// Bytes of a start-up frame before its private data.
const STARTUP_BYTES: usize = 20;

impl StreamChecker {
    /// A direction that begins with a SYN.
    pub fn new(syn: &Segment<'_>) -> Self {
        StreamChecker {
            first: syn.seq.wrapping_add(1),
            bytes: Vec::new(),
            out_of_order: BTreeMap::new(),
            parsed: 0,
            boundaries: BTreeSet::from([0]),
            unchecked_segments: Vec::new(),
            may_be_unaligned: false,
            unaligned_below: 0,
            sent: BTreeMap::new(),
            has_ended: false,
            startup_request: None,
            peer_startup_request: None,
            full_operation: 0,
            framed: true,
            right_edge: None,
            checks_messages: true,
            rdmap_sender: RdmapSender::default(),
            reply_claims: Vec::new(),
        }
    }

    /// Whether a SYN is the one that began this direction.
    pub fn is_started_by(&self, syn: &Segment<'_>) -> bool {
        self.first == syn.seq.wrapping_add(1)
    }

    /// A segment of this direction.
    pub fn on_own_segment(&mut self, segment: &Segment<'_>) -> Result<(), String> {
        self.has_ended |= segment.fin;
        if segment.payload.is_empty() || segment.syn {
            return Ok(());
        }
        let at = self.offset_of(segment.seq);
        let end = at + segment.payload.len() as u64;
        // One byte may probe a window that is closed.
        if self.right_edge.is_some_and(|right_edge| end > right_edge + 1) {
            return Err(format!("bytes to {end} though the peer allows {:?}", self.right_edge));
        }
        self.count_retransmits(at);
        self.store_bytes(at, segment.payload)?;
        if !self.framed {
            return Ok(());
        }
        self.parse()?;
        self.unchecked_segments.push((at, end));
        let (parsed, may_be_unaligned, unaligned_below) =
            (self.parsed, self.may_be_unaligned, self.unaligned_below);
        for (at, end) in self.unchecked_segments.extract_if(.., |(_, end)| *end <= parsed || may_be_unaligned)
        {
            let whole = self.boundaries.contains(&at) && self.boundaries.contains(&end);
            if !whole && !may_be_unaligned && at >= unaligned_below {
                return Err(format!("bytes {at} to {end} are no whole FPDUs, and nothing asked for a cut"));
            }
        }
        Ok(())
    }

    /// What the peer says about this direction.
    /// `scale` is the scale of the window that it names, `unit_bytes` more than any unit has.
    pub fn on_peer_segment(
        &mut self,
        segment: &Segment<'_>,
        scale: u8,
        unit_bytes: u64,
    ) -> Result<(), String> {
        let Some(ack) = segment.ack.filter(|_| !segment.rst) else { return Ok(()) };
        let window = u64::from(segment.window) << scale;
        let right_edge = self.offset_of(ack) + window;
        // A SYN that is sent again cannot say as much as segments behind it did, whose windows are scaled.
        if segment.syn && self.right_edge.is_some() {
            return Ok(());
        }
        // Behind the last byte there is nothing to allow.
        if self.has_ended {
            return Ok(());
        }
        if self.right_edge.is_some_and(|before| right_edge < before) {
            return Err(format!("the window shrinks from {:?} to {right_edge}", self.right_edge));
        }
        self.right_edge = Some(right_edge);
        self.may_be_unaligned |= window < unit_bytes;
        Ok(())
    }

    /// Whether FPDUs are looked at.
    pub fn has_framing(&self) -> bool {
        self.framed
    }

    /// From now on they are not.
    pub fn disable_framing(&mut self) {
        self.framed = false;
    }

    /// RFC 4821 s7.7: whoever sends a segment again and again without an answer may try smaller ones. Other segments may go
    /// between, and some of the attempts find no buffer and are never seen. Alignment returns with what was not sent
    /// before.
    fn count_retransmits(&mut self, at: u64) {
        let sent = self.sent.entry(at).or_default();
        *sent += 1;
        if *sent >= RETRANSMITS_MIN {
            self.unaligned_below = self.bytes.len() as u64;
        }
    }

    /// The place of a sequence number, near what was sent last.
    fn offset_of(&self, seq: u32) -> u64 {
        let known = self.bytes.len() as u64;
        let near = self.first.wrapping_add(known as u32);
        let distance = i64::from(seq.wrapping_sub(near) as i32);
        known.saturating_add_signed(distance)
    }

    /// Compares what was sent before, and keeps what is new.
    fn store_bytes(&mut self, at: u64, payload: &[u8]) -> Result<(), String> {
        let known = self.bytes.len() as u64;
        if at > known {
            self.out_of_order.insert(at, payload.to_vec());
            return Ok(());
        }
        let again = ((known - at) as usize).min(payload.len());
        let (old, new) = payload.split_at(again);
        if self.bytes[at as usize..at as usize + again] != *old {
            return Err(format!("bytes {at} to {} are sent again and differ", at + again as u64));
        }
        self.bytes.extend_from_slice(new);
        while let Some((at, payload)) =
            self.out_of_order.first_key_value().filter(|(at, _)| **at <= self.bytes.len() as u64)
        {
            let (at, payload) = (*at, payload.clone());
            self.out_of_order.remove(&at);
            self.store_bytes(at, &payload)?;
        }
        Ok(())
    }

    /// Finds the beginnings of FPDUs as far as bytes are known, and checks each whole one's markers and CRC.
    fn parse(&mut self) -> Result<(), String> {
        loop {
            let rest = &self.bytes[self.parsed as usize..];
            let mut marker_offset = None;
            let whole = if self.parsed == 0 {
                startup_bytes(rest)?
            } else {
                // Nobody sends an FPDU before both start-up frames.
                let Some((startup_request, peer)) = self.startup_request.zip(self.peer_startup_request)
                else {
                    return Ok(());
                };
                marker_offset = peer.markers.then(|| self.parsed - self.full_operation);
                fpdu(rest, marker_offset, startup_request.crc || peer.crc)
                    .map_err(|fault| format!("FPDU at {}: {fault}", self.parsed))?
            };
            let Some(whole) = whole.filter(|whole| *whole <= rest.len()) else { return Ok(()) };
            if self.parsed > 0 && self.checks_messages {
                let said = self.rdmap_sender.on_ulpdu(&ulpdu(&rest[..whole], marker_offset));
                self.reply_claims.extend(said.map_err(|fault| format!("FPDU at {}: {fault}", self.parsed))?);
            }
            if self.parsed == 0 {
                let flags = rest[16];
                self.startup_request =
                    Some(StartupRequest { markers: flags & 0x80 != 0, crc: flags & 0x40 != 0 });
                self.full_operation = whole as u64;
            }
            self.parsed += whole as u64;
            self.boundaries.insert(self.parsed);
        }
    }
}

/// Bytes of the start-up frame that a stream begins with.
fn startup_bytes(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(frame) = bytes.first_chunk::<STARTUP_BYTES>() else { return Ok(None) };
    if !frame.starts_with(b"MPA ID Re") {
        return Err(format!("the stream begins with {frame:?}"));
    }
    Ok(Some(STARTUP_BYTES + usize::from(u16::from_be_bytes([frame[18], frame[19]]))))
}

/// Bytes of the FPDU that begins here, once it is whole: length, ULPDU, padding to four, CRC, and every marker that falls
/// within it or stands right before it. `marker_offset` counts from the first marker, where there are markers.
pub(crate) fn fpdu(bytes: &[u8], marker_offset: Option<u64>, has_crc: bool) -> Result<Option<usize>, String> {
    let is_marker = |at: usize| {
        marker_offset.is_some_and(|marker_offset| (marker_offset + at as u64).is_multiple_of(MARKER_STEP))
    };
    let head = if is_marker(0) { 4 } else { 0 };
    let Some(length) = bytes.get(head..head + 2) else { return Ok(None) };
    let length = u16::from_be_bytes([length[0], length[1]]);
    // Everything of an FPDU that is no marker comes in words of four bytes.
    let mut words = (2 + usize::from(length)).div_ceil(4) + 1;
    let mut at = 0;
    while words > 0 {
        let Some(word) = bytes.get(at..at + 4) else { return Ok(None) };
        if is_marker(at) {
            // RFC 5044 s4.3: from the length field to the marker, 0 right before the length field.
            let right = at.saturating_sub(head) as u16;
            if *word != [0, 0, (right >> 8) as u8, right as u8] {
                return Err(format!("the marker at {at} of {length} bytes is {word:?} and not {right}"));
            }
        } else {
            words -= 1;
        }
        at += 4;
    }
    if has_crc {
        check_crc(&bytes[..at])?;
    }
    Ok(Some(at))
}

/// What a whole FPDU carries, without length, markers, padding and CRC.
pub(crate) fn ulpdu(fpdu: &[u8], marker_offset: Option<u64>) -> Vec<u8> {
    if marker_offset.is_none() {
        let length = usize::from(u16::from_be_bytes([fpdu[0], fpdu[1]]));
        return fpdu[2..2 + length].to_vec();
    }
    let is_marker = |word: &usize| {
        marker_offset
            .is_some_and(|marker_offset| (marker_offset + 4 * *word as u64).is_multiple_of(MARKER_STEP))
    };
    let words = fpdu.chunks(4).enumerate().filter(|(word, _)| !is_marker(word));
    let mut bytes: Vec<u8> = words.flat_map(|(_, bytes)| bytes).copied().collect();
    let length = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    bytes.truncate(2 + length);
    bytes.drain(..2);
    bytes
}

fn check_crc(fpdu: &[u8]) -> Result<(), String> {
    let Some((covered, crc)) = fpdu.split_last_chunk::<4>() else { return Err("too short".into()) };
    let found = u32::from_be_bytes(*crc);
    // The CRC's bytes go out as those of iSCSI do: the least significant bits first (RFC 5044 s4.4).
    let right = crc32c(covered).swap_bytes();
    if found == right { Ok(()) } else { Err(format!("the CRC is {found:#010x} and not {right:#010x}")) }
}

/// CRC32c, bit by bit eight at a time, from its polynomial (RFC 3385 s4).
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_is_castagnolis() {
        // RFC 3720 B.4: 32 bytes of zeros.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
