//! MPA as the framing of a stream: CRCs and markers as start-up negotiated them.

use ironwarp_arch::one_pass::BYTES_MIN;
use ironwarp_llp::ByteStream;

use super::MpaFault;
use super::fpdu::{self, CRC_BYTES, LENGTH_BYTES, MULPDU_BYTES_MAX};
use super::marker::{self, MarkerState};
use super::startup::Markers;
use crate::framing::{Framing, OnePassFrame};

/// The FPDUs of both directions of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Mpa {
    /// CRCs are in use.
    pub(crate) crc: bool,
    /// The position of the sent markers, if there are any.
    tx_markers: Option<MarkerState>,
    /// The position of the received markers, if there are any.
    pub(crate) rx_markers: Option<MarkerState>,
    /// No octets have arrived in full operation. The first ones may be a repeated start-up frame.
    pub(crate) awaits_first_octets: bool,
}

impl Default for Mpa {
    /// RFC 5044 s7.1: CRCs are used and markers are not, until start-up says otherwise.
    fn default() -> Self {
        Mpa::new(true, Markers::default())
    }
}

impl Mpa {
    /// The framing that start-up negotiated, at the start of full operation.
    pub fn new(crc: bool, markers: Markers) -> Self {
        Mpa {
            crc,
            tx_markers: markers.sent.then(MarkerState::new),
            rx_markers: markers.received.then(MarkerState::new),
            awaits_first_octets: true,
        }
    }

    /// Returns whether CRCs are in use.
    pub fn crc(&self) -> bool {
        self.crc
    }

    /// Returns the directions in which markers are in use.
    pub fn markers(&self) -> Markers {
        Markers { sent: self.tx_markers.is_some(), received: self.rx_markers.is_some() }
    }

    /// Returns the length of the FPDU at the front of `bytes` once all of it has arrived.
    #[inline]
    pub fn whole_fpdu_bytes(&self, bytes: &impl ByteStream) -> Option<usize> {
        match &self.rx_markers {
            None => fpdu::whole_fpdu_bytes(bytes),
            Some(markers) => markers.whole_fpdu_bytes(bytes),
        }
    }

    /// Checks the FPDU of `size` octets at the front of `bytes` and returns its ULPDU. Without
    /// markers and in one piece it is not copied. Others are gathered in `scratch`, of
    /// `FPDU_MARKED_BYTES_MAX` octets.
    #[inline]
    pub fn decode<'a>(
        &mut self,
        size: usize,
        bytes: &'a impl ByteStream,
        scratch: &'a mut [u8],
    ) -> Result<&'a [u8], MpaFault> {
        match (bytes.front().get(..size), &self.rx_markers) {
            (Some(whole), None) => fpdu::decode(whole, self.crc),
            _ => self.decode_in_scratch(size, bytes, scratch),
        }
    }

    #[inline(never)]
    fn decode_in_scratch<'a>(
        &mut self,
        size: usize,
        bytes: &'a impl ByteStream,
        scratch: &'a mut [u8],
    ) -> Result<&'a [u8], MpaFault> {
        if let (Some(whole), Some(markers)) = (bytes.front().get(..size), &mut self.rx_markers) {
            return markers.decode(whole, scratch, self.crc);
        }
        let whole = scratch.get_mut(..size).ok_or(MpaFault::LocalCatastrophic)?;
        bytes.peek(whole);
        match &mut self.rx_markers {
            None => fpdu::decode(whole, self.crc),
            Some(markers) => markers.decode_gathered(whole, self.crc),
        }
    }
}

impl AsRef<Mpa> for Mpa {
    #[inline(always)]
    fn as_ref(&self) -> &Mpa {
        self
    }
}

impl AsMut<Mpa> for Mpa {
    #[inline(always)]
    fn as_mut(&mut self) -> &mut Mpa {
        self
    }
}

/// Out of line, because few streams have markers.
#[cold]
#[inline(never)]
fn beside_markers(room: usize) -> usize {
    marker::bytes_beside_markers(room)
}

impl Framing for Mpa {
    #[inline(always)]
    fn head_bytes(&self) -> usize {
        LENGTH_BYTES
    }

    #[inline(always)]
    fn overhead_bytes(&self) -> usize {
        LENGTH_BYTES + CRC_BYTES
    }

    #[inline(always)]
    fn shares_units(&self) -> bool {
        true
    }

    fn is_ready(&self) -> bool {
        !self.awaits_first_octets
    }

    #[inline(always)]
    fn usable(&self, room: usize) -> usize {
        if self.tx_markers.is_some() { beside_markers(room) } else { room }
    }

    /// RFC 5044 s4.5.
    #[inline(always)]
    fn mulpdu(&self, usable: usize) -> usize {
        fpdu::mulpdu(usable)
    }

    /// The length of the frame is needed in any case.
    #[inline(always)]
    fn fits(&self, ulpdu_bytes: usize, usable: usize) -> bool {
        ulpdu_bytes <= MULPDU_BYTES_MAX && fpdu::fpdu_bytes(ulpdu_bytes) <= usable
    }

    #[inline(always)]
    fn complete(&mut self, room: &mut [u8], ulpdu_bytes: usize) -> usize {
        match &mut self.tx_markers {
            None => fpdu::encode(room, ulpdu_bytes, self.crc),
            Some(markers) => markers.encode(room, ulpdu_bytes, self.crc),
        }
    }

    fn is_fast(&self) -> bool {
        self.tx_markers.is_none()
    }

    #[inline(always)]
    fn complete_fast<const SUMMED: bool>(
        &mut self,
        room: &mut [u8],
        ulpdu_bytes: usize,
    ) -> (usize, Option<u32>) {
        match SUMMED && self.crc && ulpdu_bytes < BYTES_MIN {
            true => {
                let (written, sum) = fpdu::encode_with::<true>(room, ulpdu_bytes, true);
                (written, Some(sum))
            }
            false => (fpdu::encode(room, ulpdu_bytes, self.crc), None),
        }
    }

    /// One pass needs the headers before the payload, and no pad or marker behind them: only the
    /// last segment of a message may have a pad.
    #[inline(always)]
    fn in_one_pass<'a>(
        &self,
        room: &'a mut [u8],
        header_bytes: usize,
        payload_bytes: usize,
    ) -> Option<OnePassFrame<'a>> {
        if payload_bytes < BYTES_MIN || !self.crc || self.tx_markers.is_some() {
            return None;
        }
        fpdu::in_one_pass(room, header_bytes, payload_bytes)
    }

    /// RFC 5044 s6: only a marker locates an FPDU beyond a gap, and rule 2 requires a valid CRC.
    fn finds_frames_out_of_order(&self) -> bool {
        self.crc && self.rx_markers.is_some()
    }
}
