//! Markers: pointers to the start of the FPDU, one every 512 octets of the stream (RFC 5044 s4.2,
//! s4.3, s4.4).
//!
//! ```text
//! marker    | reserved:u16 = 0 | FPDUPTR:u16 | octets from the length field to the marker's first octet
//! stream    |M 508 octets of FPDUs|M 508 octets of FPDUs|M ...     the first marker is before the first FPDU
//! FPDU      |M?| n | ULPDU .. |M| .. ULPDU | pad |M?| CRC          a marker in front has FPDUPTR 0 and belongs to it
//! ```
//! Each direction has its own [`MarkerState`], which starts with full operation. Everything in the
//! stream is a multiple of four octets, so a marker never splits a length field, another marker or
//! a CRC.
//!
//! The sender builds the FPDU without markers, then opens the gaps from the back. The receiver
//! checks the CRC, which covers the markers, then the markers, then closes the gaps. Both move the
//! octets after the first marker once. Streams without markers do not use this module. A marker
//! that does not point to the start of its FPDU ends the stream with code 3.

use ironwarp_arch::crc32c;
use ironwarp_llp::ByteStream;

use super::MpaFault;
use super::fpdu::{self, CRC_BYTES, LENGTH_BYTES};

#[cfg(test)]
mod tests;

/// Octets of a marker (RFC 5044 s4.2).
pub const MARKER_BYTES: usize = 4;

/// Octets of the stream from the start of one marker to the start of the next (RFC 5044 s4.3).
pub const INTERVAL_BYTES: usize = 512;

/// [`INTERVAL_BYTES`] as a distance in the stream.
const INTERVAL: u32 = INTERVAL_BYTES as u32;

/// Octets since the start of the last marker, at a length field that follows it directly.
const LENGTH_AFTER_MARKER: u16 = MARKER_BYTES as u16;

/// Octets of FPDUs between two markers.
const BETWEEN_MARKERS_BYTES: usize = INTERVAL_BYTES - MARKER_BYTES;

/// The octets of FPDUs that fit in `room` octets with their markers, for any position of the
/// markers: a multiple of four.
///
/// RFC 5044 s4.5: MULPDU = EMSS - (6 + 4 * ceiling(EMSS / 512) + EMSS mod 4) is [`fpdu::mulpdu`] of
/// this value.
pub const fn bytes_beside_markers(room: usize) -> usize {
    (room - room % 4).saturating_sub(MARKER_BYTES * room.div_ceil(INTERVAL_BYTES))
}

/// The position of one direction of a stream between two markers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct MarkerState {
    /// Octets since the start of the last marker: a multiple of four below 512. With 0, a marker is
    /// next.
    since_marker: u16,
}

impl TryFrom<u16> for MarkerState {
    type Error = &'static str;

    fn try_from(since_marker: u16) -> Result<Self, Self::Error> {
        let is_position = usize::from(since_marker) < INTERVAL_BYTES && since_marker.is_multiple_of(4);
        if is_position { Ok(MarkerState { since_marker }) } else { Err("no position between two markers") }
    }
}

impl From<MarkerState> for u16 {
    fn from(state: MarkerState) -> u16 {
        state.since_marker
    }
}

impl MarkerState {
    /// RFC 5044 s7.1.2, rule 7: a marker is the first thing in full operation.
    pub const fn new() -> Self {
        MarkerState { since_marker: 0 }
    }

    /// Completes the FPDU whose ULPDU is at `room[2..2 + ulpdu_bytes]` and inserts its markers.
    /// Returns the total length, or 0 if `room` is too short; then the state is unchanged.
    #[inline(never)]
    pub fn encode(&mut self, room: &mut [u8], ulpdu_bytes: usize, crc: bool) -> usize {
        let layout = self.layout(fpdu::fpdu_bytes(ulpdu_bytes));
        let Some(framed) = room.get_mut(..layout.framed_bytes()) else { return 0 };
        if fpdu::encode(framed, ulpdu_bytes, false) == 0 || layout.insert_markers(framed).is_none() {
            return 0;
        }
        if crc {
            fpdu::set_crc(framed);
        }
        self.advance(framed.len());
        framed.len()
    }

    /// Returns the length of the FPDU at the front of `bytes`, with its markers, once all of it has
    /// arrived.
    #[inline(never)]
    pub fn whole_fpdu_bytes(&self, bytes: &impl ByteStream) -> Option<usize> {
        let mut head = [0; Self::HEAD_BYTES_MAX];
        let head = head.get_mut(..self.head_bytes())?;
        if !bytes.peek(head) {
            return None;
        }
        let whole = self.framed_bytes(head)?;
        (bytes.available() >= whole).then_some(whole)
    }

    /// The largest result of [`MarkerState::head_bytes`].
    pub const HEAD_BYTES_MAX: usize = MARKER_BYTES + LENGTH_BYTES;

    /// Returns the octets up to the end of the next FPDU's length field.
    pub fn head_bytes(&self) -> usize {
        self.length_at() + LENGTH_BYTES
    }

    /// Returns the length of the next FPDU with its markers. `head` is its first
    /// [`MarkerState::head_bytes`] octets.
    pub fn framed_bytes(&self, head: &[u8]) -> Option<usize> {
        Some(self.layout_of(head)?.framed_bytes())
    }

    /// Returns the state `distance` octets further on.
    #[must_use]
    pub fn advanced_by(&self, distance: u32) -> MarkerState {
        // 512 divides 2^32, and the remainder is below 512.
        MarkerState { since_marker: (distance.wrapping_add(self.since_marker.into()) % INTERVAL) as u16 }
    }

    /// Returns the distance of the first marker at or after `from`.
    pub fn marker_from(&self, from: u32) -> u32 {
        let since = u32::from(self.advanced_by(from).since_marker);
        from.saturating_add((INTERVAL - since) % INTERVAL)
    }

    /// Returns the distance of the marker after the one at `marker`.
    pub fn marker_after(&self, marker: u32) -> u32 {
        self.marker_from(marker.saturating_add(1))
    }

    /// Returns the distance of the last marker before `from`, if it is not before the current
    /// position.
    pub fn marker_before(&self, from: u32) -> Option<u32> {
        let last = from.checked_sub(1)?;
        last.checked_sub(self.advanced_by(last).since_marker.into())
    }

    /// Returns the start of the FPDU to which the marker at `marker` with these octets belongs. If
    /// a marker is directly in front of the length field, the FPDU starts with that marker
    /// (RFC 5044 s4.3). `None` if the start is before the current position or not possible.
    pub fn fpdu_start(&self, marker: u32, octets: [u8; MARKER_BYTES]) -> Option<u32> {
        let [_, _, high, low] = octets;
        let length_at = match u16::from_be_bytes([high, low & !3]) {
            0 => return Some(marker),
            pointer => marker.checked_sub(pointer.into())?,
        };
        match self.advanced_by(length_at).since_marker {
            0 => None,
            LENGTH_AFTER_MARKER => length_at.checked_sub(LENGTH_AFTER_MARKER.into()),
            _ => Some(length_at),
        }
    }

    /// Checks the CRC and the markers of a whole contiguous FPDU and returns its ULPDU. With
    /// markers inside, the ULPDU is assembled in `scratch`.
    #[inline(never)]
    pub fn decode<'a>(
        &mut self,
        framed: &'a [u8],
        scratch: &'a mut [u8],
        crc: bool,
    ) -> Result<&'a [u8], MpaFault> {
        let layout = self.verify(framed, crc)?;
        self.advance(framed.len());
        if layout.is_undivided() {
            return ulpdu(framed.get(layout.length_at()..).unwrap_or_default());
        }
        let content = layout.copy_without_markers(framed, scratch).ok_or(MpaFault::Marker)?;
        ulpdu(content)
    }

    /// Like [`MarkerState::decode`], for an FPDU that was gathered from several pieces. Its octets
    /// may be moved.
    #[inline(never)]
    pub fn decode_gathered<'a>(&mut self, framed: &'a mut [u8], crc: bool) -> Result<&'a [u8], MpaFault> {
        let layout = self.verify(framed, crc)?;
        self.advance(framed.len());
        let content = layout.remove_markers(framed).ok_or(MpaFault::Marker)?;
        ulpdu(content)
    }

    /// RFC 5044 s6, s8: the CRC is checked first, because only a correct CRC shows that the peer
    /// sent a wrong marker.
    fn verify(&self, framed: &[u8], crc: bool) -> Result<Layout, MpaFault> {
        let (covered, field) = framed.split_last_chunk::<CRC_BYTES>().ok_or(MpaFault::Crc)?;
        if crc && crc32c(covered).to_le_bytes() != *field {
            return Err(MpaFault::Crc);
        }
        let layout = self.layout_of(framed).filter(|layout| layout.framed_bytes() == framed.len());
        let layout = layout.ok_or(MpaFault::Crc)?;
        let agree = (0..layout.markers()).all(|index| layout.marker_matches(framed, index));
        if agree { Ok(layout) } else { Err(MpaFault::Marker) }
    }

    /// Returns the offset of the next FPDU's length field, which is after the marker if one is
    /// next.
    fn length_at(&self) -> usize {
        if self.since_marker == 0 { MARKER_BYTES } else { 0 }
    }

    fn layout_of(&self, head: &[u8]) -> Option<Layout> {
        let length = head.get(self.length_at()..)?.first_chunk()?;
        Some(self.layout(fpdu::fpdu_bytes(u16::from_be_bytes(*length).into())))
    }

    fn layout(&self, content_bytes: usize) -> Layout {
        let first = (INTERVAL_BYTES - usize::from(self.since_marker)) % INTERVAL_BYTES;
        Layout { first, content_bytes }
    }

    /// Moves past `framed_bytes` octets of the stream.
    fn advance(&mut self, framed_bytes: usize) {
        // The remainder is below 512.
        self.since_marker = ((usize::from(self.since_marker) + framed_bytes) % INTERVAL_BYTES) as u16;
    }
}

/// The division of one FPDU by markers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    /// Octets before the first marker.
    first: usize,
    /// Octets of the FPDU without markers.
    content_bytes: usize,
}

impl Layout {
    /// Returns the number of markers in the FPDU. A marker directly after the CRC belongs to the
    /// next FPDU (RFC 5044 s4.3).
    fn markers(&self) -> usize {
        self.content_bytes.saturating_sub(self.first).div_ceil(BETWEEN_MARKERS_BYTES)
    }

    fn framed_bytes(&self) -> usize {
        self.content_bytes + MARKER_BYTES * self.markers()
    }

    /// Returns the offset of the length field.
    fn length_at(&self) -> usize {
        if self.first == 0 { MARKER_BYTES } else { 0 }
    }

    /// Returns whether there is no marker between the length field and the end of the FPDU.
    fn is_undivided(&self) -> bool {
        self.markers() == usize::from(self.first == 0)
    }

    /// Returns the offset of marker `index`.
    fn marker_at(&self, index: usize) -> usize {
        self.first + INTERVAL_BYTES * index
    }

    /// RFC 5044 s4.3: octets from the length field to the marker, 0 for a marker between two FPDUs.
    /// 16 bits are enough for a ULPDU of up to 64 768 octets.
    fn pointer(&self, index: usize) -> Option<u16> {
        u16::try_from(self.marker_at(index).saturating_sub(self.length_at())).ok()
    }

    /// Returns whether marker `index` of a received FPDU points to its start. RFC 5044 s4.2: the
    /// reserved field is ignored and the two low bits of the pointer count as zeros.
    fn marker_matches(&self, framed: &[u8], index: usize) -> bool {
        let marker = framed.get(self.marker_at(index)..).and_then(<[u8]>::first_chunk::<MARKER_BYTES>);
        let Some([_, _, high, low]) = marker else { return false };
        self.pointer(index) == Some(u16::from_be_bytes([*high, *low & !3]))
    }

    /// Returns offset and length of the piece after marker `index`, in the FPDU without markers.
    fn piece(&self, index: usize) -> (usize, usize) {
        let begin = self.first + BETWEEN_MARKERS_BYTES * index;
        (begin, self.content_bytes.saturating_sub(begin).min(BETWEEN_MARKERS_BYTES))
    }

    /// Spreads the FPDU at the front of `framed` over all of `framed` and writes the markers,
    /// starting with the last piece.
    fn insert_markers(&self, framed: &mut [u8]) -> Option<()> {
        for index in (0..self.markers()).rev() {
            let (begin, bytes) = self.piece(index);
            let by = MARKER_BYTES * (index + 1);
            framed.get_mut(begin..begin + by + bytes)?.copy_within(..bytes, by);
            let [high, low] = self.pointer(index)?.to_be_bytes();
            let marker = framed.get_mut(self.marker_at(index)..)?.first_chunk_mut::<MARKER_BYTES>()?;
            // RFC 5044 s4.2: the reserved field is sent as zero.
            *marker = [0, 0, high, low];
        }
        Some(())
    }

    /// Moves the pieces of the FPDU together at the front and returns them.
    fn remove_markers<'a>(&self, framed: &'a mut [u8]) -> Option<&'a [u8]> {
        for index in 0..self.markers() {
            let (begin, bytes) = self.piece(index);
            let by = MARKER_BYTES * (index + 1);
            framed.get_mut(begin..begin + by + bytes)?.copy_within(by.., 0);
        }
        framed.get(..self.content_bytes)
    }

    /// Copies the pieces of the FPDU to `out`, without markers.
    fn copy_without_markers<'a>(&self, framed: &[u8], out: &'a mut [u8]) -> Option<&'a [u8]> {
        let head = self.first.min(self.content_bytes);
        out.get_mut(..head)?.copy_from_slice(framed.get(..head)?);
        for index in 0..self.markers() {
            let (begin, bytes) = self.piece(index);
            let from = begin + MARKER_BYTES * (index + 1);
            out.get_mut(begin..begin + bytes)?.copy_from_slice(framed.get(from..from + bytes)?);
        }
        out.get(..self.content_bytes)
    }
}

/// Returns the ULPDU of an FPDU whose CRC was checked and whose markers were removed.
fn ulpdu(content: &[u8]) -> Result<&[u8], MpaFault> {
    let (length, rest) = content.split_first_chunk::<LENGTH_BYTES>().ok_or(MpaFault::Crc)?;
    rest.get(..u16::from_be_bytes(*length).into()).ok_or(MpaFault::Crc)
}
