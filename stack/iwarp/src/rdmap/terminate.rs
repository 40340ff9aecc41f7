//! The Terminate message (RFC 5040 s4.8, s5.4).
//!
//! ```text
//! | Layer:4 EType:4 | Code:8 | M D R 0.. | 0 |  [ segment length:u16 | DDP header:14/18 | [ Read Request header:28 ] ]
//! ```
//! Figure 10 says which headers are included. MPA errors and local errors include none. DDP errors
//! and operation errors include the DDP header of the segment. Protection errors of a Read Request
//! also include the header of the request.

use super::read::READ_REQUEST_BYTES;
use crate::ddp::{Header, UNTAGGED_BYTES};
use crate::mpa::MpaFault;
use crate::terminate::Terminate;

/// Octets of the largest Terminate header.
pub const TERMINATE_BYTES_MAX: usize = CONTROL_BYTES + 2 + UNTAGGED_BYTES + READ_REQUEST_BYTES;

const CONTROL_BYTES: usize = 4;
/// The segment length is valid.
const M: u8 = 0x80;
/// The segment's DDP header is included.
const D: u8 = 0x40;
/// The Read Request's header is included.
const R: u8 = 0x20;

impl Terminate {
    /// Decodes the error in a received Terminate; `None` if the payload is shorter than the control
    /// field and the reserved octets after it.
    ///
    /// Linux siw lays out its bit fields in the machine's order, so the two nibbles are swapped and
    /// the three header bits are at the wrong end. Any of these marks such a message: header bits
    /// at the low end only, a layer that does not exist, or a start-up error (RFC 6581 s8) when
    /// `starting` is false. The last is needed because siw includes no header and its "unexpected
    /// opcode" has the octets of "insufficient IRD".
    pub fn decode(payload: &[u8], starting: bool) -> Option<Terminate> {
        let [kinds, code, bits, _, ..] = *payload else { return None };
        let (high, low) = (kinds >> 4, kinds & 0x0f);
        let bits_swapped = bits & (M | D | R) == 0 && bits & 0x07 != 0;
        let nibbles_swapped = high > Self::LAYER_LLP && low <= Self::LAYER_LLP;
        // RFC 6581 s8: an initiator sends codes 6 and 7 before anything else. MPA has no higher
        // codes.
        let last = if starting { MpaFault::NoMatchingRtr } else { MpaFault::LocalCatastrophic };
        let not_of_mpa = (high, low) == (Self::LAYER_LLP, 0) && code > last as u8 && bits & (M | D | R) == 0;
        let (layer, etype) =
            if bits_swapped || nibbles_swapped || not_of_mpa { (low, high) } else { (high, low) };
        Some(Terminate { layer, etype, code })
    }

    /// Returns the control octet of the untagged segment that a received Terminate includes, if it
    /// includes one.
    pub fn terminated_control_octet(payload: &[u8]) -> Option<u8> {
        let (control, included) = payload.split_first_chunk::<{ CONTROL_BYTES + 2 }>()?;
        match Header::decode(included).ok()? {
            (Header::Untagged(header), _) if control[2] & D != 0 => Some(header.ulp),
            _ => None,
        }
    }

    /// Returns whether this is a local error of the sender, not caused by a message of the other
    /// side.
    pub fn is_local_catastrophic(self) -> bool {
        let start_up =
            Terminate { layer: Self::LAYER_LLP, etype: 0, code: MpaFault::LocalCatastrophic as u8 };
        (self.layer == Self::LAYER_RDMA && self.etype == 0) || self == start_up
    }

    /// Returns whether a message of the other side named memory that it may not use.
    pub fn is_protection_error(self) -> bool {
        // The remote protection errors of RDMAP, and the tagged buffer errors of DDP.
        matches!((self.layer, self.etype), (Self::LAYER_RDMA | Self::LAYER_DDP, 1))
    }
}

/// The headers of the message that caused an error, for a Terminate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TerminatedHeaders {
    ulpdu_bytes: u16,
    header: [u8; UNTAGGED_BYTES],
    /// 0 if there is no header.
    header_bytes: u8,
    request: Option<[u8; READ_REQUEST_BYTES]>,
}

impl TerminatedHeaders {
    /// Takes the header of the segment in `ulpdu`. A truncated header is not included.
    pub fn segment(ulpdu: &[u8]) -> Self {
        let mut terminated_headers = TerminatedHeaders::default();
        let Some(octets) = Header::header_octets(ulpdu) else { return terminated_headers };
        if let Some(header) = terminated_headers.header.get_mut(..octets.len()) {
            header.copy_from_slice(octets);
            terminated_headers.header_bytes = octets.len() as u8;
            terminated_headers.ulpdu_bytes = u16::try_from(ulpdu.len()).unwrap_or(u16::MAX);
        }
        terminated_headers
    }

    /// Adds the header of the Read Request in the segment.
    #[must_use]
    pub fn with_request(mut self, request: [u8; READ_REQUEST_BYTES]) -> Self {
        self.request = Some(request);
        self
    }

    /// Writes the Terminate header for `error` to the front of `out`. Returns its length, or 0 if
    /// `out` is too short.
    pub fn encode(&self, error: Terminate, out: &mut [u8]) -> usize {
        let Some(out) = out.get_mut(..TERMINATE_BYTES_MAX) else { return 0 };
        let Some((control, rest)) = out.split_first_chunk_mut::<CONTROL_BYTES>() else { return 0 };
        let (mut bits, mut included) = (0, 0);
        let mut include = |octets: &[u8]| {
            if let Some(place) = rest.get_mut(included..included + octets.len()) {
                place.copy_from_slice(octets);
                included += octets.len();
            }
        };
        // RFC 5040 s4.8, figure 10: errors of a segment, and protection errors of a Read Request.
        let is_rdma = error.layer == Terminate::LAYER_RDMA;
        let includes_ddp_header = error.layer == Terminate::LAYER_DDP || (is_rdma && error.etype != 0);
        if includes_ddp_header && self.header_bytes > 0 {
            bits |= M | D;
            include(&self.ulpdu_bytes.to_be_bytes());
            include(self.header.get(..self.header_bytes.into()).unwrap_or_default());
        }
        if let Some(request) = self.request.filter(|_| is_rdma && error.etype == 1) {
            bits |= R;
            include(&request);
        }
        // RFC 5040 s4.8: the 13 bits after the header bits are reserved and sent as zeros.
        *control = [error.layer << 4 | (error.etype & 0x0f), error.code, bits, 0];
        CONTROL_BYTES + included
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::{DdpFault, Tagged};
    use crate::rdmap::RdmapFault;
    use ironwarp_types::STag;

    fn tagged_ulpdu() -> [u8; 40] {
        let mut ulpdu = [0xaa; 40];
        Tagged { last: true, ulp: 0x40, stag: STag(9), tagged_offset: 3 }.encode(&mut ulpdu);
        ulpdu
    }

    fn encoded(terminated_headers: TerminatedHeaders, error: impl Into<Terminate>) -> Vec<u8> {
        let mut out = [0xee; TERMINATE_BYTES_MAX];
        let len = terminated_headers.encode(error.into(), &mut out);
        out[..len].to_vec()
    }

    /// RFC 5040 s4.8, figure 10: a DDP error includes the segment length and the DDP header only.
    #[test]
    fn a_ddp_error_includes_the_segment_header() {
        let ulpdu = tagged_ulpdu();
        let out = encoded(TerminatedHeaders::segment(&ulpdu).with_request([1; 28]), DdpFault::BaseOrBounds);
        assert_eq!(out[..6], [0x11, 0x01, 0xc0, 0x00, 0x00, 40]);
        assert_eq!(out[6..], ulpdu[..14]);
    }

    /// RFC 5040 s4.8, figure 10: a protection error of a Read Request includes its header too.
    #[test]
    fn a_protection_error_includes_the_request_header() {
        let out =
            encoded(TerminatedHeaders::segment(&[0x41; 46]).with_request([7; 28]), RdmapFault::AccessRights);
        assert_eq!(out[..4], [0x01, 0x02, 0xe0, 0x00]);
        assert_eq!(out.len(), 4 + 2 + 18 + 28);
        assert_eq!(out[24..], [7; 28]);
    }

    /// RFC 5040 s4.8, figure 10: MPA errors and local errors include no header.
    #[test]
    fn mpa_and_local_errors_include_no_header() {
        let terminated_headers = TerminatedHeaders::segment(&tagged_ulpdu()).with_request([7; 28]);
        assert_eq!(encoded(terminated_headers, MpaFault::Crc), [0x20, 0x02, 0, 0]);
        assert_eq!(encoded(terminated_headers, RdmapFault::LocalCatastrophic), [0, 0, 0, 0]);
    }

    /// RFC 5040 s4.8: a header is included if possible.
    #[test]
    fn a_truncated_segment_header_is_not_included() {
        assert_eq!(
            encoded(TerminatedHeaders::segment(&[0x41; 17]), DdpFault::LocalCatastrophic),
            [0x10, 0, 0, 0]
        );
    }

    #[test]
    fn terminates_in_both_octet_orders_are_decoded() {
        let decode = |payload: &[u8]| Terminate::decode(payload, true);
        let crc = Terminate { layer: 2, etype: 0, code: 2 };
        assert_eq!(decode(&[0x20, 0x02, 0, 0]), Some(crc));
        let no_buffer = Terminate { layer: 1, etype: 2, code: 2 };
        assert_eq!(decode(&[0x12, 0x02, 0xc0, 0]), Some(no_buffer));
        assert_eq!(decode(&[0x21, 0x02, 0x03, 0]), Some(no_buffer));
        // RFC 5040 s4.8: the reserved bits are ignored if the header bits are at their positions.
        assert_eq!(decode(&[0x12, 0x02, 0xdf, 0xff]), Some(no_buffer));
        assert_eq!(decode(&[0x31, 0, 0, 0]), Some(Terminate { layer: 1, etype: 3, code: 0 }));
        assert_eq!([&[0x12, 0x02][..], &[0x12, 0x02, 0xc0]].map(decode), [None; 2]);
    }

    /// RFC 5040 s4.8, figure 10: one header bit at its position shows that the octets are in order,
    /// whatever the code.
    #[test]
    fn one_header_bit_in_its_place_is_enough() {
        for bit in [M, D, R] {
            for (kinds, layer) in [(0x10, 1), (0x20, 2)] {
                let payload = [kinds, 9, bit | 0x01, 0];
                assert_eq!(Terminate::decode(&payload, false), Some(Terminate { layer, etype: 0, code: 9 }));
            }
        }
    }

    /// RFC 6581 s8: an initiator reports an error in the reply before it sends anything else.
    /// Later, the same octets are siw's "unexpected opcode" without a header (RFC 5040 s4.8).
    #[test]
    fn a_start_up_error_after_start_up_has_swapped_octets() {
        let of_rdmap = |code| Some(Terminate { layer: 0, etype: 2, code });
        let of_mpa = |code| Some(Terminate { layer: 2, etype: 0, code });
        for code in [6, 7] {
            assert_eq!(Terminate::decode(&[0x20, code, 0, 0], true), of_mpa(code));
            assert_eq!(Terminate::decode(&[0x20, code, 0, 0], false), of_rdmap(code));
        }
        for starting in [true, false] {
            assert_eq!(Terminate::decode(&[0x20, 5, 0, 0], starting), of_mpa(5));
            assert_eq!(Terminate::decode(&[0x20, 9, 0, 0], starting), of_rdmap(9));
        }
    }
}
