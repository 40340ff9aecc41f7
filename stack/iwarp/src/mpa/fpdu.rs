//! FPDUs without markers: length, ULPDU, pad, CRC (RFC 5044 s4.1, s4.4, s4.5, s6).
//!
//! ```text
//! 0       2                    2+n        multiple of 4
//! | n:u16 | ULPDU, n octets     | 0..3 zeros | CRC32c, least significant octet first |
//! ```
//! Encodes into the payload of a TCP segment and decodes from the in-order stream. A contiguous
//! FPDU is used in place; a split one is gathered in the core's scratch buffer first. A wrong CRC
//! ends the stream, and nothing of that FPDU is used.

use ironwarp_arch::crc32c;
use ironwarp_arch::one_pass::{self, CrcAndSum, PrefixCrc};
use ironwarp_llp::ByteStream;
use ironwarp_types::limits::MULPDU_BYTES_MIN;

use super::MpaFault;
use crate::framing::OnePassFrame;

/// Octets of the length field.
pub const LENGTH_BYTES: usize = 2;

/// Octets of the CRC field, which is present even if CRCs are not in use (RFC 5044 s4.1).
pub const CRC_BYTES: usize = 4;

/// Words of a TCP header without options, and with timestamps (RFC 9293 s3.1, RFC 7323 appendix A).
const BARE_HEADER_WORDS: usize = 5;
const TIMESTAMPS_HEADER_WORDS: usize = 8;

/// RFC 5044 s3: the longest ULPDU that may be sent.
pub const MULPDU_BYTES_MAX: usize = 64_768;

/// The segment payload that TCP must offer so that MULPDU is at least 128 octets (RFC 5044 s4.5).
pub const SEGMENT_BYTES_MIN: usize = fpdu_bytes(MULPDU_BYTES_MIN);

/// Octets of the FPDU for a ULPDU of `ulpdu_bytes`: always a multiple of four (RFC 5044 s4.1).
#[inline(always)]
pub const fn fpdu_bytes(ulpdu_bytes: usize) -> usize {
    // `next_multiple_of` takes eight instructions.
    ((LENGTH_BYTES + ulpdu_bytes + 3) & !3) + CRC_BYTES
}

/// The longest ULPDU whose FPDU fits in `room` octets: EMSS - (6 + EMSS mod 4), without markers
/// (RFC 5044 s4.5).
pub const fn mulpdu(room: usize) -> usize {
    let ulpdu = room.saturating_sub(LENGTH_BYTES + CRC_BYTES + room % 4);
    if ulpdu < MULPDU_BYTES_MAX { ulpdu } else { MULPDU_BYTES_MAX }
}

/// Completes the FPDU whose ULPDU is at `room[2..2 + ulpdu_bytes]`. Returns its length, or 0 if
/// `room` is too short.
///
/// The CRC covers this private copy, so memory that changes during the call cannot put a wrong CRC
/// on the wire.
#[inline(always)]
pub fn encode(room: &mut [u8], ulpdu_bytes: usize, crc: bool) -> usize {
    encode_with::<false>(room, ulpdu_bytes, crc).0
}

/// [`encode`], which with `SUMMED` also returns the sum of the words of an FPDU with a CRC, for
/// TCP's checksum, from the same pass. It pays for an FPDU of less than
/// [`BYTES_MIN`](one_pass::BYTES_MIN) octets.
#[inline(always)]
pub fn encode_with<const SUMMED: bool>(room: &mut [u8], ulpdu_bytes: usize, crc: bool) -> (usize, u32) {
    let Ok(length) = u16::try_from(ulpdu_bytes) else { return (0, 0) };
    let whole = fpdu_bytes(length.into());
    let Some((covered, field)) = room.get_mut(..whole).and_then(<[u8]>::split_last_chunk_mut::<CRC_BYTES>)
    else {
        return (0, 0);
    };
    let Some((head, rest)) = covered.split_first_chunk_mut::<LENGTH_BYTES>() else { return (0, 0) };
    *head = length.to_be_bytes();
    // RFC 5044 s4.1: the pad is sent as zeros.
    if let Some(pad) = rest.get_mut(ulpdu_bytes..).filter(|pad| !pad.is_empty()) {
        pad.fill(0);
    }
    let both = match (SUMMED, crc) {
        (true, _) => one_pass::seal_short(covered.as_chunks().0),
        (false, true) => CrcAndSum { crc: crc32c(covered), sum: 0 },
        // RFC 5044 s4.1: with CRCs off the field is still present. Its value does not matter; peers
        // send zeros.
        (false, false) => CrcAndSum { crc: 0, sum: 0 },
    };
    *field = both.crc.to_le_bytes();
    (whole, both.sum)
}

/// Returns the FPDU at the front of `room`, for one pass over its payload; `None` if it has a pad
/// or takes several passes.
pub(super) fn in_one_pass(
    room: &mut [u8],
    header_bytes: usize,
    payload_bytes: usize,
) -> Option<OnePassFrame<'_>> {
    let length = u16::try_from(header_bytes + payload_bytes).ok()?;
    let covered_bytes = LENGTH_BYTES + usize::from(length);
    if !covered_bytes.is_multiple_of(CRC_BYTES) {
        return None;
    }
    let fpdu = room.get_mut(..covered_bytes + CRC_BYTES)?;
    OnePassFrame::new(fpdu, &length.to_be_bytes(), header_bytes)
}

/// Writes the CRC of a whole FPDU, markers included, to its last octets.
pub(crate) fn set_crc(framed: &mut [u8]) {
    if let Some((covered, field)) = framed.split_last_chunk_mut::<CRC_BYTES>() {
        *field = crc32c(covered).to_le_bytes();
    }
}

/// Returns the length of the FPDU at the front of `bytes` once all of it has arrived.
pub fn whole_fpdu_bytes(bytes: &impl ByteStream) -> Option<usize> {
    let mut length = [0; LENGTH_BYTES];
    match bytes.front().first_chunk() {
        Some(first) => length = *first,
        None if bytes.peek(&mut length) => {}
        None => return None,
    }
    // RFC 5044 s6: in an in-order stream the length field alone says where an FPDU ends.
    let whole = fpdu_bytes(u16::from_be_bytes(length).into());
    (bytes.available() >= whole).then_some(whole)
}

/// Splits contiguous bytes after the FPDU at their front; `None` if not all of it is there.
#[inline(always)]
pub fn split_whole(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = bytes.first_chunk::<LENGTH_BYTES>()?;
    bytes.split_at_checked(fpdu_bytes(u16::from_be_bytes(*length).into()))
}

/// Returns how many bytes the CRC of the FPDU at the front of `bytes` covers; 0 if not all of it is
/// there.
pub fn covered_bytes(bytes: &[u8]) -> usize {
    split_whole(bytes).map_or(0, |(whole, _)| whole.len() - CRC_BYTES)
}

/// Returns the sum of a short segment whose payload, behind `header_bytes`, is one whole FPDU, and
/// the CRC of that, from one pass. `None` for any other segment, or a header with options other
/// than timestamps. Whether the stream uses CRCs is not known here.
#[inline(always)]
pub fn sum_and_crc(segment: &[u8], header_bytes: usize) -> Option<(u32, PrefixCrc)> {
    let (front, payload) = segment.split_at_checked(header_bytes)?;
    let length = payload.first_chunk::<LENGTH_BYTES>()?;
    let (covered, field) = payload.split_last_chunk::<CRC_BYTES>()?;
    if fpdu_bytes(u16::from_be_bytes(*length).into()) != payload.len() {
        return None;
    }
    let words = covered.as_chunks().0;
    let header = front.as_chunks().0;
    let CrcAndSum { crc, sum } = match <&[_; TIMESTAMPS_HEADER_WORDS]>::try_from(header) {
        Ok(header) => one_pass::open_short(header, words, *field),
        Err(_) => {
            let header = <&[_; BARE_HEADER_WORDS]>::try_from(header).ok()?;
            one_pass::open_short(header, words, *field)
        }
    };
    Some((sum, PrefixCrc { bytes: covered.len() as u32, crc }))
}

/// Checks the CRC of a whole FPDU and returns its ULPDU.
#[inline]
pub fn decode(fpdu: &[u8], crc: bool) -> Result<&[u8], MpaFault> {
    decode_with(fpdu, crc, PrefixCrc::default())
}

/// [`decode`] with a CRC that was computed before, if it is that of the FPDU.
#[inline(always)]
pub fn decode_with(fpdu: &[u8], crc: bool, known: PrefixCrc) -> Result<&[u8], MpaFault> {
    let (covered, field) = fpdu.split_last_chunk::<CRC_BYTES>().ok_or(MpaFault::Crc)?;
    // RFC 5044 s4.4: a mismatch makes the FPDU invalid. s4.1: the CRC is not checked when CRCs are
    // off.
    if crc {
        let value = if known.bytes as usize == covered.len() { known.crc } else { crc32c(covered) };
        if value != u32::from_le_bytes(*field) {
            return Err(MpaFault::Crc);
        }
    }
    let (length, rest) = covered.split_first_chunk::<LENGTH_BYTES>().ok_or(MpaFault::Crc)?;
    rest.get(..u16::from_be_bytes(*length).into()).ok_or(MpaFault::Crc)
}

#[cfg(test)]
mod tests {
    use ironwarp_arch::checksum;

    use super::*;

    /// RFC 5044 s4.1: every length of a pad, and segments that are no whole FPDU.
    #[test]
    fn one_pass_over_a_short_segment_gives_the_sum_and_the_crc_of_two() {
        for ulpdu_bytes in 0..100 {
            let header: Vec<u8> = (0..32).map(|byte| byte * 7 + 1).collect();
            let mut segment = [header, vec![0xa5; fpdu_bytes(ulpdu_bytes)]].concat();
            let (written, sum) = encode_with::<true>(&mut segment[32..], ulpdu_bytes, true);
            assert_eq!(written, fpdu_bytes(ulpdu_bytes));
            assert_eq!(checksum::fold(sum), checksum::fold(checksum::sum(&segment[32..])));
            let mut separate = vec![0xa5; fpdu_bytes(ulpdu_bytes)];
            assert_eq!(encode(&mut separate, ulpdu_bytes, true), written);
            assert_eq!(segment[32..], separate);
            let (sum, crc) = sum_and_crc(&segment, 32).unwrap();
            assert_eq!(checksum::fold(sum), checksum::fold(checksum::sum(&segment)));
            assert_eq!(decode_with(&segment[32..], true, crc), decode(&separate, true));
            *segment.last_mut().unwrap() ^= 1;
            assert_eq!(
                decode_with(&segment[32..], true, sum_and_crc(&segment, 32).unwrap().1),
                Err(MpaFault::Crc)
            );
            assert_eq!(sum_and_crc(&segment[..segment.len() - 1], 32), None);
            segment.push(0);
            assert_eq!(sum_and_crc(&segment, 32), None);
        }
        assert_eq!(sum_and_crc(&[0; 20], 20), None, "an ACK");
        assert_eq!(sum_and_crc(&[0; 8], 20), None);
    }

    /// RFC 5044 s4.4, figure 5: a Send of 24 zero octets. The CRC also covers the marker at its
    /// front. RFC 5041 s3.
    #[test]
    fn the_crc_of_the_first_example_matches_the_rfc() {
        let mut covered =
            vec![0, 0, 0, 0, 0x00, 0x2a, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        covered.extend([0; 24]);
        assert_eq!(crc32c(&covered).to_le_bytes(), [0x52, 0x23, 0x99, 0x83]);
    }

    /// RFC 5044 s4.4, figure 6: a second Send, with a marker inside.
    #[test]
    fn the_crc_of_the_second_example_matches_the_rfc() {
        let mut covered = vec![0x00, 0x2a, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0];
        covered.extend([0, 0, 0, 0x14]);
        covered.extend([0; 24]);
        assert_eq!(crc32c(&covered).to_le_bytes(), [0x84, 0x92, 0x58, 0x98]);
    }

    /// RFC 5044 s4.1: an FPDU is a multiple of four octets for any ULPDU, and the pad is zero.
    #[test]
    fn every_length_is_padded_with_zeros_to_a_multiple_of_four() {
        for ulpdu in 0..64 {
            let mut room = [0xee; 80];
            let whole = encode(&mut room, ulpdu, true);
            assert_eq!((whole % 4, whole), (0, fpdu_bytes(ulpdu)));
            assert!(whole >= ulpdu + 6 && whole < ulpdu + 10);
            assert!(room[2 + ulpdu..whole - 4].iter().all(|&pad| pad == 0));
            assert_eq!(decode(&room[..whole], true), Ok(&[0xee; 80][..ulpdu]));
            assert!(room[whole..].iter().all(|&beyond| beyond == 0xee));
        }
    }

    /// RFC 5044 s4.5: MULPDU = EMSS - (6 + EMSS mod 4).
    /// RFC 5044 s3 and s5.1.
    #[test]
    fn mulpdu_is_the_largest_ulpdu_that_fits() {
        assert_eq!([mulpdu(1460), mulpdu(1448), mulpdu(1459), mulpdu(8948)], [1454, 1442, 1450, 8942]);
        for room in 8..3000 {
            assert!(fpdu_bytes(mulpdu(room)) <= room);
            assert!(room % 4 != 0 || fpdu_bytes(mulpdu(room) + 1) > room);
        }
        assert_eq!(mulpdu(70_000), MULPDU_BYTES_MAX);
        assert!(
            mulpdu(SEGMENT_BYTES_MIN) >= MULPDU_BYTES_MIN && mulpdu(SEGMENT_BYTES_MIN - 1) < MULPDU_BYTES_MIN
        );
    }

    /// RFC 5044 s4.4: every bit of an FPDU is covered.
    #[test]
    fn any_flipped_bit_is_detected() {
        let mut fpdu = [0x5a; 28];
        assert_eq!(encode(&mut fpdu, 21, true), 28);
        for bit in 0..28 * 8 {
            let mut bad = fpdu;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad, true), Err(MpaFault::Crc), "bit {bit}");
        }
    }

    /// RFC 5044 s4.1: the value of the pad does not matter, but the CRC covers it.
    #[test]
    fn a_pad_that_is_not_zero_is_accepted_with_a_correct_crc() {
        for ulpdu in 3..6 {
            let mut fpdu = [0x5a; 12];
            assert_eq!(encode(&mut fpdu, ulpdu, true), 12);
            fpdu[LENGTH_BYTES + ulpdu..8].fill(0xff);
            assert_eq!(decode(&fpdu, true), Err(MpaFault::Crc));
            set_crc(&mut fpdu);
            assert_eq!(decode(&fpdu, true), Ok(&[0x5a; 5][..ulpdu]));
        }
    }

    /// RFC 5044 s4.1: with CRCs off the field is present, sent as zeros and never checked.
    /// RFC 5044 s7.1.1.
    #[test]
    fn without_crc_the_field_is_zero_and_ignored() {
        let mut fpdu = [1; 12];
        assert_eq!(encode(&mut fpdu, 4, false), 12);
        assert_eq!(fpdu[8..], [0; 4]);
        fpdu[9] = 77;
        assert_eq!(decode(&fpdu, false), Ok(&[1; 4][..]));
    }

    /// RFC 5044 s3.
    #[test]
    fn a_buffer_that_is_too_short_is_not_changed() {
        let mut room = [9; 11];
        assert_eq!(encode(&mut room, 4, true), 0);
        assert_eq!(room, [9; 11]);
    }
}
