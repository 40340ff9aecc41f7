//! Offloads of a network card: fills in checksums of sent frames, verifies those of received frames
//! and hashes flows.

use super::packet::{self, Ipv4Tcp};
use crate::{Checksum, RxMeta, TxMeta, TxOffloads};

/// The metadata that a receiving device computes.
#[derive(Clone, Copy)]
pub(super) struct Verdicts {
    pub(super) checksum: bool,
    pub(super) rss_hash: bool,
}

impl Verdicts {
    /// Returns whether the device computes nothing.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        !(self.checksum || self.rss_hash)
    }

    /// Returns the metadata of a received frame.
    #[inline(never)]
    pub(super) fn of(self, frame: &[u8]) -> RxMeta {
        let segment = Ipv4Tcp::locate(frame);
        let mut rx = RxMeta::default();
        if self.checksum {
            rx.ip_checksum = packet::ipv4_header(frame).map_or(Checksum::Unknown, |l3| ip_verdict(frame, l3));
            rx.l4_checksum = match segment {
                Some(segment) => tcp_verdict(frame, &segment),
                None => packet::ipv6_tcp(frame).map_or(Checksum::Unknown, |at| ipv6_tcp_verdict(frame, at)),
            };
        }
        if self.rss_hash {
            rx.rss_hash = segment.and_then(|segment| flow_hash(frame, &segment));
        }
        rx
    }
}

/// Fills in the checksums that `tx` requests, at the offsets in `tx`.
pub(crate) fn fill_checksums(frame: &mut [u8], tx: TxMeta) {
    let l3 = usize::from(tx.l2_bytes);
    let l4 = l3 + usize::from(tx.l3_bytes);
    if tx.offloads.contains(TxOffloads::IPV4_CHECKSUM) {
        let header = frame.get(l3..l4).map_or(0, packet::sum);
        put(frame, l3 + 10, !header);
    }
    if tx.offloads.contains(TxOffloads::TCP_CHECKSUM) {
        // The field holds the pseudo-header's sum, so one sum over the segment covers both. The
        // packet ends where its header says: padding after it is not summed.
        let end = packet::word(frame, l3 + 2).map_or(frame.len(), |total| l3 + usize::from(total));
        let segment = frame.get(l4..end.min(frame.len())).map_or(0, packet::sum);
        put(frame, l4 + 16, !segment);
    }
    if tx.offloads.contains(TxOffloads::TCP_CHECKSUM_IPV6) {
        let end = packet::word(frame, l3 + 4).map_or(frame.len(), |payload| l3 + 40 + usize::from(payload));
        let segment = frame.get(l4..end.min(frame.len())).map_or(0, packet::sum);
        put(frame, l4 + 16, !segment);
    }
}

fn put(frame: &mut [u8], at: usize, word: u16) {
    if let Some(field) = frame.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *field = word.to_be_bytes();
    }
}

/// RFC 1071 s1: the sum over a header with a right checksum is all ones.
fn verdict(sum: u16) -> Checksum {
    if sum == 0xffff { Checksum::Good } else { Checksum::Bad }
}

fn ip_verdict(frame: &[u8], l3: usize) -> Checksum {
    let header_bytes = frame.get(l3).map_or(0, |first| 4 * usize::from(first & 0x0f));
    frame.get(l3..l3 + header_bytes).map_or(Checksum::Bad, |header| verdict(packet::sum(header)))
}

fn tcp_verdict(frame: &[u8], segment: &Ipv4Tcp) -> Checksum {
    let bytes = frame.get(segment.l4..segment.end).unwrap_or_default();
    verdict(packet::combine(packet::sum(bytes), packet::pseudo_header_sum(frame, segment)))
}

/// The segment begins after the 40 bytes of the header at `l3`, and ends at `end`.
fn ipv6_tcp_verdict(frame: &[u8], (l3, end): (usize, usize)) -> Checksum {
    let sum = |range| frame.get(range).map_or(0, packet::sum);
    let length = (end - l3 - 40) as u16;
    let pseudo = packet::combine(packet::combine(sum(l3 + 8..l3 + 40), 6), length);
    verdict(packet::combine(sum(l3 + 40..end), pseudo))
}

/// Returns the Toeplitz hash of addresses and ports under the default key of network cards.
fn flow_hash(frame: &[u8], segment: &Ipv4Tcp) -> Option<u32> {
    let addresses = frame.get(segment.l3 + 12..segment.l3 + 20)?;
    let ports = frame.get(segment.l4..segment.l4 + 4)?;
    Some(toeplitz(&TOEPLITZ_KEY, addresses.iter().chain(ports)))
}

/// Returns the Toeplitz hash under the symmetric key, which is equal for both directions of a flow.
pub(super) fn symmetric_hash(frame: &[u8], segment: &Ipv4Tcp) -> Option<u32> {
    let addresses = frame.get(segment.l3 + 12..segment.l3 + 20)?;
    let ports = frame.get(segment.l4..segment.l4 + 4)?;
    Some(toeplitz(&SYMMETRIC_KEY, addresses.iter().chain(ports)))
}

/// XORs, for each set bit of the input, the 32 bits of the key from that bit's position.
fn toeplitz<'a>(key: &[u8; 16], input: impl Iterator<Item = &'a u8>) -> u32 {
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut hash = 0;
    for (byte, next) in input.zip(&key[4..]) {
        for bit in (0..8).rev() {
            if byte >> bit & 1 == 1 {
                hash ^= window;
            }
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    hash
}

/// The key of Microsoft's "Verifying the RSS hash calculation", the default of most drivers; the
/// first 16 bytes are all that addresses and ports of IPv4 use.
const TOEPLITZ_KEY: [u8; 16] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, //
];

/// A repeated two-byte key: exchanging source and destination does not change the hash.
const SYMMETRIC_KEY: [u8; 16] = [
    0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, //
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_that_network_cards_compute() {
        // Microsoft's test vectors, IPv4 with TCP.
        let first = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
        assert_eq!(toeplitz(&TOEPLITZ_KEY, first.iter()), 0x51cc_c178);
        let second = [199, 92, 111, 2, 65, 69, 140, 83, 0x37, 0x96, 0x12, 0x83];
        assert_eq!(toeplitz(&TOEPLITZ_KEY, second.iter()), 0xc626_b0ea);
    }
}
