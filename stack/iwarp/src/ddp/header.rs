//! DDP segment headers (RFC 5041 s4.1 to s4.3), with the octets in them that belong to RDMAP
//! (RFC 5040 s4.1).
//!
//! ```text
//! tagged    | T L rsvd DV | ULP | STag:u32 | TO:u64 |
//! untagged  | T L rsvd DV | ULP | ULP:u32  | QN:u32 | MSN:u32 | MO:u32 |
//! ```

use ironwarp_types::STag;
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::DdpFault;

/// Octets of a tagged header.
pub const TAGGED_BYTES: usize = size_of::<TaggedWire>();

/// Octets of an untagged header.
pub const UNTAGGED_BYTES: usize = size_of::<UntaggedWire>();

const _: () = assert!(TAGGED_BYTES == 14 && UNTAGGED_BYTES == 18);

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;
const VERSION: u8 = 1;

/// The first octet of an untagged segment that ends its message, with reserved bits zero.
pub(crate) const LAST_UNTAGGED: u8 = LAST | VERSION;

/// The first octet of a tagged segment, with reserved bits zero: one that ends its message, and any
/// other.
pub(crate) const LAST_TAGGED: u8 = TAGGED | LAST | VERSION;
pub(crate) const MORE_TAGGED: u8 = TAGGED | VERSION;

/// The header of a tagged segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tagged {
    /// The segment ends the message.
    pub last: bool,
    /// The octet that RDMAP uses: version and operation.
    pub ulp: u8,
    /// The steering tag of the buffer.
    pub stag: STag,
    /// The offset in the buffer at which the payload starts.
    pub tagged_offset: u64,
}

/// The header of an untagged segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Untagged {
    /// The segment ends the message.
    pub last: bool,
    /// The octet that RDMAP uses: version and operation.
    pub ulp: u8,
    /// The four octets that RDMAP uses: a steering tag to invalidate, or zeros.
    pub ulp_word: u32,
    /// The queue number.
    pub qn: u32,
    /// The message sequence number on that queue.
    pub msn: u32,
    /// The offset in the message at which the payload starts.
    pub mo: u32,
}

/// The header of a segment of either kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// A tagged segment.
    Tagged(Tagged),
    /// An untagged segment.
    Untagged(Untagged),
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct TaggedWire {
    control: u8,
    ulp: u8,
    stag: U32,
    tagged_offset: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct UntaggedWire {
    control: u8,
    ulp: u8,
    ulp_word: U32,
    qn: U32,
    msn: U32,
    mo: U32,
}

impl Header {
    /// Splits a ULPDU into header and payload.
    #[inline]
    pub fn decode(ulpdu: &[u8]) -> Result<(Header, &[u8]), DdpFault> {
        let &control = ulpdu.first().ok_or(DdpFault::LocalCatastrophic)?;
        // RFC 5041 s4.1: reserved bits are not checked on receive. The version is, and must be 1.
        if control & VERSION_MASK != VERSION {
            return Err(if control & TAGGED != 0 {
                DdpFault::TaggedVersion
            } else {
                DdpFault::UntaggedVersion
            });
        }
        let last = control & LAST != 0;
        if control & TAGGED != 0 {
            let (wire, payload) =
                TaggedWire::ref_from_prefix(ulpdu).map_err(|_| DdpFault::LocalCatastrophic)?;
            let (stag, tagged_offset) = (STag(wire.stag.get()), wire.tagged_offset.get());
            Ok((Header::Tagged(Tagged { last, ulp: wire.ulp, stag, tagged_offset }), payload))
        } else {
            let (wire, payload) =
                UntaggedWire::ref_from_prefix(ulpdu).map_err(|_| DdpFault::LocalCatastrophic)?;
            Ok((Header::Untagged(wire.untagged(last)), payload))
        }
    }

    /// Returns the header octets at the front of `ulpdu`. Its first bit gives the length. `None` if
    /// the header is truncated.
    pub fn header_octets(ulpdu: &[u8]) -> Option<&[u8]> {
        let tagged = ulpdu.first()? & TAGGED != 0;
        ulpdu.get(..if tagged { TAGGED_BYTES } else { UNTAGGED_BYTES })
    }
}

impl UntaggedWire {
    fn untagged(&self, last: bool) -> Untagged {
        Untagged {
            last,
            ulp: self.ulp,
            ulp_word: self.ulp_word.get(),
            qn: self.qn.get(),
            msn: self.msn.get(),
            mo: self.mo.get(),
        }
    }
}

impl Tagged {
    /// Writes the header to the front of `out`. Returns its length, or 0 if `out` is too short.
    #[inline]
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let wire = TaggedWire {
            control: TAGGED | control(self.last),
            ulp: self.ulp,
            stag: self.stag.0.into(),
            tagged_offset: self.tagged_offset.into(),
        };
        wire.write_to_prefix(out).map_or(0, |()| TAGGED_BYTES)
    }
}

impl Untagged {
    /// Returns the header of a message of one segment, whose word for RDMAP is zero.
    pub const fn whole(ulp: u8, qn: u32, msn: u32) -> Self {
        Untagged { last: true, ulp, ulp_word: 0, qn, msn, mo: 0 }
    }

    /// Writes the header to the front of `out`. Returns its length, or 0 if `out` is too short.
    #[inline]
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let wire = UntaggedWire {
            control: control(self.last),
            ulp: self.ulp,
            ulp_word: self.ulp_word.into(),
            qn: self.qn.into(),
            msn: self.msn.into(),
            mo: self.mo.into(),
        };
        wire.write_to_prefix(out).map_or(0, |()| UNTAGGED_BYTES)
    }
}

/// RFC 5041 s4.1: version 1, the reserved bits zero.
fn control(last: bool) -> u8 {
    if last { LAST | VERSION } else { VERSION }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 5044 s4.4, figure 5 shows this header: Send, last, queue 0, message 1.
    /// RFC 5040 s3.1.
    #[test]
    fn the_send_header_of_figure_5_round_trips() {
        let printed = [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        let header = Untagged { last: true, ulp: 0x43, ulp_word: 0, qn: 0, msn: 1, mo: 0 };
        assert_eq!(Header::decode(&printed), Ok((Header::Untagged(header), &[][..])));
        let mut out = [0xff; 18];
        assert_eq!((header.encode(&mut out), out), (18, printed));
    }

    /// RFC 5041 s4.2.
    #[test]
    fn a_tagged_header_has_the_layout_of_figure_4() {
        let header =
            Tagged { last: true, ulp: 0x40, stag: STag(0x0102_0304), tagged_offset: 0x1112_1314_1516_1718 };
        let mut out = [0; 14];
        assert_eq!(header.encode(&mut out), 14);
        assert_eq!(out, [0xc1, 0x40, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
    }

    /// RFC 5041 s4.1: reserved bits are not checked on receive.
    #[test]
    fn reserved_bits_are_ignored() {
        let mut ulpdu = [0; 20];
        Tagged { last: false, ulp: 0, stag: STag(7), tagged_offset: 9 }.encode(&mut ulpdu);
        let plain = Header::decode(&ulpdu).unwrap().0;
        ulpdu[0] |= 0x3c;
        assert_eq!(Header::decode(&ulpdu).unwrap().0, plain);
    }

    /// RFC 5041 s7.2: version errors are code 0x04 of type 1 and code 0x06 of type 2.
    /// RFC 5044 sC.1.
    #[test]
    fn each_kind_of_segment_has_its_own_version_error() {
        for version in [0, 2, 3] {
            assert_eq!(Header::decode(&[0x80 | version; 20]), Err(DdpFault::TaggedVersion));
            assert_eq!(Header::decode(&[version; 20]), Err(DdpFault::UntaggedVersion));
        }
    }

    #[test]
    fn a_ulpdu_shorter_than_its_header_is_refused() {
        assert_eq!(Header::decode(&[]), Err(DdpFault::LocalCatastrophic));
        assert_eq!(Header::decode(&[0x81; 13]), Err(DdpFault::LocalCatastrophic));
        assert_eq!(Header::decode(&[0x01; 17]), Err(DdpFault::LocalCatastrophic));
    }

    proptest! {
        /// RFC 5041 s4.2.
        #[test]
        fn tagged_headers_round_trip(last: bool, ulp: u8, stag: u32, tagged_offset: u64) {
            let header = Tagged { last, ulp, stag: STag(stag), tagged_offset };
            let mut out = [0; 17];
            prop_assert_eq!(header.encode(&mut out), 14);
            prop_assert_eq!(Header::decode(&out), Ok((Header::Tagged(header), &[0u8; 3][..])));
        }

        #[test]
        fn untagged_headers_round_trip(last: bool, ulp: u8, ulp_word: u32, qn: u32, msn: u32, mo: u32) {
            let header = Untagged { last, ulp, ulp_word, qn, msn, mo };
            let mut out = [0; 18];
            prop_assert_eq!(header.encode(&mut out), 18);
            prop_assert_eq!(Header::decode(&out), Ok((Header::Untagged(header), &[][..])));
        }
    }
}
