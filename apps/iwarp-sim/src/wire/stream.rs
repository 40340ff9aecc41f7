//! Checks one direction of a connection on the wire: its bytes, and where its FPDUs begin.
//!
//! Sources: RFC 5044 s4 (framing), s7.1.1 (start-up frames), RFC 9293 s3.8.6 (windows).

use std::collections::{BTreeMap, BTreeSet};

use ironwarp_testkit::{ACK, FIN, RST, SYN, Segment, mpa};

use super::message::{RdmapSender, ReplyClaim};

/// One direction.
#[derive(Default)]
pub struct StreamChecker {
    first: u32,
    /// All contiguous bytes from the first on.
    bytes: Vec<u8>,
    /// Data after a gap: a segment without a buffer at its device is sent later.
    out_of_order: BTreeMap<u64, Vec<u8>>,
    /// The offset of the next FPDU or of the start-up frame.
    parsed: u64,
    /// Offsets of FPDUs, including the incomplete one.
    boundaries: BTreeSet<u64>,
    /// Segments that can be checked only after their bytes are parsed.
    unchecked_segments: Vec<(u64, u64)>,
    /// Whether the sender may have had to cut a unit: the peer's window or the path MTU was too
    /// small.
    pub may_be_unaligned: bool,
    /// Whether the peer may get, and acknowledge, parts of units: what is sent again may be cut.
    pub retransmits_may_be_unaligned: bool,
    /// Units that begin before this may have been cut: the sender may suspect a path MTU black
    /// hole.
    unaligned_below: u64,
    /// Number of transmissions, by the start of the segment.
    sent: BTreeMap<u64, u32>,
    /// Whether the sender's FIN was sent.
    has_ended: bool,
    /// The sender's start-up request, once it is known.
    pub startup_request: Option<StartupRequest>,
    pub peer_startup_request: Option<StartupRequest>,
    /// Where the first FPDU begins, or the marker before it.
    full_operation: u64,
    /// Whether FPDUs are checked.
    pub framed: bool,
    /// The right edge of the window that the peer has advertised, as an offset in `bytes`.
    right_edge: Option<u64>,
    pub checks_messages: bool,
    pub rdmap_sender: RdmapSender,
    /// Those of its messages that must match the other direction.
    pub reply_claims: Vec<ReplyClaim>,
}

/// The request of one side in its start-up frame (RFC 5044 s7.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartupRequest {
    /// Markers in what it receives.
    pub markers: bool,
    /// CRCs in both directions.
    pub crc: bool,
}

/// Distance between two markers, one marker included (RFC 5044 s4.3).
pub(crate) const MARKER_STEP: u64 = 512;

/// Transmissions of one segment after which its sender may suspect its size.
const RETRANSMITS_MIN: u32 = 2;

/// Bytes of a start-up frame before its private data.
const STARTUP_BYTES: usize = 20;

impl StreamChecker {
    /// The state of a direction after its SYN.
    pub fn new(syn: &Segment) -> Self {
        StreamChecker {
            first: syn.seq.wrapping_add(1),
            boundaries: BTreeSet::from([0]),
            framed: true,
            checks_messages: true,
            ..StreamChecker::default()
        }
    }

    /// Returns whether this SYN began this direction.
    pub fn is_started_by(&self, syn: &Segment) -> bool {
        self.first == syn.seq.wrapping_add(1)
    }

    pub fn on_own_segment(&mut self, segment: &Segment) -> Result<(), String> {
        self.has_ended |= segment.has(FIN);
        if segment.payload.is_empty() || segment.has(SYN) {
            return Ok(());
        }
        let at = self.offset_of(segment.seq);
        let end = at + segment.payload.len() as u64;
        // One byte may probe a closed window.
        if self.right_edge.is_some_and(|right_edge| end > right_edge + 1) {
            return Err(format!("bytes up to {end}, but the peer's window ends at {:?}", self.right_edge));
        }
        self.count_retransmits(at);
        let is_retransmit = at < self.bytes.len() as u64;
        self.store_bytes(at, &segment.payload)?;
        if !self.framed {
            return Ok(());
        }
        self.parse()?;
        if !(is_retransmit && self.retransmits_may_be_unaligned) {
            self.unchecked_segments.push((at, end));
        }
        let (parsed, may_be_unaligned, unaligned_below) =
            (self.parsed, self.may_be_unaligned, self.unaligned_below);
        for (at, end) in self.unchecked_segments.extract_if(.., |(_, end)| *end <= parsed || may_be_unaligned)
        {
            let whole = self.boundaries.contains(&at) && self.boundaries.contains(&end);
            if !whole && !may_be_unaligned && at >= unaligned_below {
                return Err(format!("bytes {at} to {end} are no whole FPDUs, and nothing required a cut"));
            }
        }
        Ok(())
    }

    /// Handles a segment of the peer, which acknowledges this direction and advertises its window.
    /// `scale` is the window scale, `unit_bytes` exceeds every unit.
    pub fn on_peer_segment(&mut self, segment: &Segment, scale: u8, unit_bytes: u64) -> Result<(), String> {
        if !segment.has(ACK) || segment.has(RST) {
            return Ok(());
        }
        let window = u64::from(segment.window) << scale;
        let right_edge = self.offset_of(segment.ack) + window;
        // A retransmitted SYN has an unscaled window and an old acknowledgement, so it does not
        // count.
        if segment.has(SYN) && self.right_edge.is_some() {
            return Ok(());
        }
        // After the FIN, the window no longer matters.
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

    /// RFC 4821 s7.7: a sender that retransmits a segment repeatedly without an acknowledgement may
    /// try smaller ones. Other segments may be sent in between, and attempts without a buffer are
    /// not visible here. Alignment returns with the first new data.
    fn count_retransmits(&mut self, at: u64) {
        let sent = self.sent.entry(at).or_default();
        *sent += 1;
        if *sent >= RETRANSMITS_MIN {
            self.unaligned_below = self.bytes.len() as u64;
        }
    }

    /// The offset of a sequence number, near the latest data.
    fn offset_of(&self, seq: u32) -> u64 {
        let known = self.bytes.len() as u64;
        let near = self.first.wrapping_add(known as u32);
        let distance = i64::from(seq.wrapping_sub(near) as i32);
        known.saturating_add_signed(distance)
    }

    /// Compares retransmitted bytes and stores new ones.
    fn store_bytes(&mut self, at: u64, payload: &[u8]) -> Result<(), String> {
        let known = self.bytes.len() as u64;
        if at > known {
            self.out_of_order.insert(at, payload.to_vec());
            return Ok(());
        }
        let again = ((known - at) as usize).min(payload.len());
        let (old, new) = payload.split_at(again);
        if self.bytes[at as usize..at as usize + again] != *old {
            return Err(format!("bytes {at} to {} differ from the first transmission", at + again as u64));
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

    /// Finds the FPDUs in the known bytes, and checks the markers and the CRC of each complete one.
    fn parse(&mut self) -> Result<(), String> {
        loop {
            let rest = &self.bytes[self.parsed as usize..];
            let mut marker_offset = None;
            let whole = if self.parsed == 0 {
                startup_bytes(rest)?
            } else {
                // No FPDU is sent before both start-up frames.
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

/// The length of the start-up frame at the beginning of a stream.
fn startup_bytes(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(frame) = bytes.first_chunk::<STARTUP_BYTES>() else { return Ok(None) };
    if !frame.starts_with(b"MPA ID Re") {
        return Err(format!("the stream begins with {frame:?}"));
    }
    Ok(Some(STARTUP_BYTES + usize::from(u16::from_be_bytes([frame[18], frame[19]]))))
}

/// The length of the FPDU that begins here, once it is complete: length field, ULPDU, padding to
/// four bytes, CRC, and every marker within it or right before it. `marker_offset` counts from the
/// first marker, where there are markers.
pub(crate) fn fpdu(bytes: &[u8], marker_offset: Option<u64>, has_crc: bool) -> Result<Option<usize>, String> {
    let is_marker = |at: usize| {
        marker_offset.is_some_and(|marker_offset| (marker_offset + at as u64).is_multiple_of(MARKER_STEP))
    };
    let head = if is_marker(0) { 4 } else { 0 };
    let Some(length) = bytes.get(head..head + 2) else { return Ok(None) };
    let length = u16::from_be_bytes([length[0], length[1]]);
    // Everything in an FPDU except markers consists of words of four bytes.
    let mut words = (2 + usize::from(length)).div_ceil(4) + 1;
    let mut at = 0;
    while words > 0 {
        let Some(word) = bytes.get(at..at + 4) else { return Ok(None) };
        if is_marker(at) {
            // RFC 5044 s4.3: a marker holds its distance from the length field, and 0 right before
            // the length field.
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

/// The ULPDU of a complete FPDU, without length, markers, padding and CRC.
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
    let [found, right] = [*crc, mpa::crc(covered)].map(u32::from_be_bytes);
    if found == right { Ok(()) } else { Err(format!("the CRC is {found:#010x} and not {right:#010x}")) }
}
