//! The positions of the headers of a TCP segment in a frame, and the checksums over them.
//!
//! The in-memory device needs this for its offloads, and the simulator to damage payload without
//! damaging headers. Independent of the stack's parser on purpose: each checks the other.
//!
//! Sources: RFC 791 s3.1, RFC 9293 s3.1, RFC 1071. Any other frame gives `None`.

use std::ops::Range;

/// An IPv4 packet with an unfragmented TCP segment, as offsets into its frame in bytes. All offsets
/// are within the frame, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Tcp {
    /// Start of the IPv4 header.
    pub l3: usize,
    /// Start of the TCP header.
    pub l4: usize,
    /// Start of the TCP payload.
    pub payload: usize,
    /// End of the packet; padding may follow.
    pub end: usize,
}

impl Ipv4Tcp {
    /// Finds the segment in a frame that starts with an Ethernet header, with or without one VLAN
    /// tag.
    pub fn locate(frame: &[u8]) -> Option<Ipv4Tcp> {
        let l3 = ipv4_header(frame)?;
        let l4 = l3 + 4 * usize::from(frame.get(l3)? & 0x0f);
        let end = l3 + usize::from(word(frame, l3 + 2)?);
        let fragment = word(frame, l3 + 6)? & 0x3fff;
        if *frame.get(l3 + 9)? != PROTOCOL_TCP || fragment != 0 || l4 < l3 + 20 || end > frame.len() {
            return None;
        }
        let payload = l4 + 4 * usize::from(frame.get(l4 + 12)? >> 4);
        (payload >= l4 + 20 && payload <= end).then_some(Ipv4Tcp { l3, l4, payload, end })
    }

    /// Returns the payload's bytes in the frame.
    pub fn payload_range(&self) -> Range<usize> {
        self.payload..self.end
    }
}

/// Returns the start of the IPv4 header, if the frame has one.
pub(super) fn ipv4_header(frame: &[u8]) -> Option<usize> {
    let tagged = word(frame, 12)? == ETHERTYPE_VLAN;
    let l3 = if tagged { 18 } else { 14 };
    (word(frame, l3 - 2)? == ETHERTYPE_IPV4 && frame.get(l3)? >> 4 == 4).then_some(l3)
}

/// Returns the start of an IPv6 packet whose header is followed by a TCP segment, and the packet's
/// end.
pub(super) fn ipv6_tcp(frame: &[u8]) -> Option<(usize, usize)> {
    let tagged = word(frame, 12)? == ETHERTYPE_VLAN;
    let l3 = if tagged { 18 } else { 14 };
    let end = l3 + 40 + usize::from(word(frame, l3 + 4)?);
    let found = word(frame, l3 - 2)? == ETHERTYPE_IPV6
        && frame.get(l3)? >> 4 == 6
        && *frame.get(l3 + 6)? == PROTOCOL_TCP
        && end <= frame.len();
    found.then_some((l3, end))
}

/// Returns the bytes of a frame with a TCP segment that a checksum covers, in IPv4 or IPv6. The
/// IPv6 header has no checksum, so the part before its addresses is omitted.
pub(crate) fn checksummed(frame: &[u8]) -> Option<Range<usize>> {
    match Ipv4Tcp::locate(frame) {
        Some(packet) => Some(packet.l3..packet.end),
        None => ipv6_tcp(frame).map(|(l3, end)| l3 + 8..end),
    }
}

/// Returns the ones' complement sum of `bytes` as big-endian words, not inverted.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let last = odd.first().map_or(0, |byte| u64::from(*byte) << 8);
    let total: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
    fold(total + last)
}

/// Returns the sum of the pseudo-header: addresses, protocol, length of the segment
/// (RFC 9293 s3.1).
pub(super) fn pseudo_header_sum(frame: &[u8], packet: &Ipv4Tcp) -> u16 {
    let addresses = frame.get(packet.l3 + 12..packet.l3 + 20).map_or(0, sum);
    let length = (packet.end - packet.l4) as u64;
    fold(u64::from(addresses) + u64::from(PROTOCOL_TCP) + length)
}

/// Adds two sums.
pub(super) fn combine(a: u16, b: u16) -> u16 {
    fold(u64::from(a) + u64::from(b))
}

/// Returns the big-endian word at `at`.
pub(super) fn word(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*bytes))
}

fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const PROTOCOL_TCP: u8 = 6;
