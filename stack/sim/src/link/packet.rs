//! The positions of the headers of a packet in a frame.
//!
//! IPv4 and IPv6 after an Ethernet header with up to two VLAN tags. Sources: RFC 791 s3.1,
//! RFC 8200 s3, RFC 9293 s3.1, IEEE 802.1Q. Independent of the stack's parser on purpose: each
//! checks the other.

use std::ops::Range;

/// The version of IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Version {
    V4,
    V6,
}

/// An IP packet, as offsets into its frame in bytes, in ascending order and within the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) version: Version,
    /// Start of the IP header.
    pub(super) l3: usize,
    /// Start of the payload.
    pub(super) l4: usize,
    /// End of the packet; padding may follow.
    pub(super) end: usize,
    /// The payload's protocol; not set for a fragment.
    protocol: Option<u8>,
}

impl Packet {
    /// Finds the packet in a frame.
    pub(super) fn locate(frame: &[u8]) -> Option<Packet> {
        let (l3, ethertype) = behind_tags(frame)?;
        match ethertype {
            ETHERTYPE_IPV4 => Self::locate_v4(frame, l3),
            ETHERTYPE_IPV6 => Self::locate_v6(frame, l3),
            _ => None,
        }
    }

    fn locate_v4(frame: &[u8], l3: usize) -> Option<Packet> {
        let first = *frame.get(l3)?;
        let l4 = l3 + 4 * usize::from(first & 0x0f);
        let end = l3 + usize::from(word(frame, l3 + 2)?);
        let is_fragment = word(frame, l3 + 6)? & 0x3fff != 0;
        let protocol = (!is_fragment).then_some(*frame.get(l3 + 9)?);
        let fits = first >> 4 == 4 && l4 >= l3 + 20 && l4 <= end && end <= frame.len();
        fits.then_some(Packet { version: Version::V4, l3, l4, end, protocol })
    }

    fn locate_v6(frame: &[u8], l3: usize) -> Option<Packet> {
        let l4 = l3 + 40;
        let end = l4 + usize::from(word(frame, l3 + 4)?);
        let protocol = Some(*frame.get(l3 + 6)?);
        let fits = frame.get(l3)? >> 4 == 6 && end <= frame.len();
        fits.then_some(Packet { version: Version::V6, l3, l4, end, protocol })
    }

    /// Returns the bytes of the packet.
    pub(super) fn bytes(&self) -> usize {
        self.end - self.l3
    }

    /// Returns the payload of the TCP segment, if it is one.
    pub(super) fn tcp_payload(&self, frame: &[u8]) -> Option<Range<usize>> {
        if self.protocol != Some(PROTOCOL_TCP) {
            return None;
        }
        let payload = self.l4 + 4 * usize::from(frame.get(self.l4 + 12)? >> 4);
        (payload >= self.l4 + 20 && payload <= self.end).then_some(payload..self.end)
    }

    /// Returns the bytes that a checksum covers: all of the packet with TCP or SCTP, except what
    /// none covers of an IPv6 header (RFC 8200 s8.1, RFC 9260 s6.8).
    pub(super) fn covered(&self) -> Option<Range<usize>> {
        match (self.protocol?, self.version) {
            (PROTOCOL_TCP | PROTOCOL_SCTP, Version::V4) => Some(self.l3..self.end),
            (PROTOCOL_TCP, Version::V6) => Some(self.l3 + 8..self.end),
            (PROTOCOL_SCTP, Version::V6) => Some(self.l4..self.end),
            _ => None,
        }
    }

    /// Returns whether the sums of a packet match: that of the IPv4 header, and TCP's (RFC 9293
    /// s3.1, RFC 8200 s8.1).
    pub(super) fn sums_hold(&self, frame: &[u8]) -> bool {
        let (Some(header), Some(segment)) = (frame.get(self.l3..self.l4), frame.get(self.l4..self.end))
        else {
            return false;
        };
        let (header_holds, addresses) = match self.version {
            Version::V4 => (checksum(0, header) == 0, header.get(12..20)),
            Version::V6 => (true, header.get(8..40)),
        };
        let pseudo_header = addresses.unwrap_or_default().as_chunks::<2>().0.iter();
        let addresses_sum = pseudo_header.map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        let start = addresses_sum + u64::from(PROTOCOL_TCP) + segment.len() as u64;
        header_holds && (self.protocol != Some(PROTOCOL_TCP) || checksum(start, segment) == 0)
    }

    /// Returns whether a router may report that it is too large: it is not an ICMP message
    /// (RFC 1122 s3.2.2, RFC 4443 s2.4).
    pub(super) fn may_be_answered(&self) -> bool {
        self.protocol.is_some_and(|protocol| protocol != PROTOCOL_ICMP && protocol != PROTOCOL_ICMPV6)
    }
}

/// Returns the start of the network header, and its type.
fn behind_tags(frame: &[u8]) -> Option<(usize, u16)> {
    let mut at = 12;
    let mut ethertype = word(frame, at)?;
    for _ in 0..2 {
        if ethertype != ETHERTYPE_VLAN && ethertype != ETHERTYPE_SERVICE_VLAN {
            break;
        }
        at += 4;
        ethertype = word(frame, at)?;
    }
    Some((at + 2, ethertype))
}

/// Returns the big-endian word at `at`.
pub(super) fn word(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

/// Writes a big-endian word.
pub(super) fn put(frame: &mut [u8], at: usize, value: u16) {
    if let Some(field) = frame.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *field = value.to_be_bytes();
    }
}

/// Returns the checksum over `bytes`, added to `start` (RFC 1071).
pub(super) fn checksum(start: u64, bytes: &[u8]) -> u16 {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let last = odd.first().map_or(0, |byte| u64::from(*byte) << 8);
    let mut sum = start + last + pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum::<u64>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_SCTP: u8 = 132;
pub(super) const PROTOCOL_ICMPV6: u8 = 58;
