//! Damage to the bytes of a frame.

use ironwarp_types::SeededEntropy;

use super::packet::Packet;

/// Changes one byte of a packet of TCP or SCTP. Returns `false` for any other frame.
///
/// A difference within one byte always changes a ones' complement sum (RFC 1071) and a CRC, so a
/// checksum shows it. Two could cancel in a sum: a packet whose sums another link has damaged stays
/// as it is.
pub(super) fn corrupt(frame: &mut [u8], dice: &mut SeededEntropy) -> bool {
    let Some(packet) = Packet::locate(frame) else { return false };
    let Some(covered) = packet.covered() else { return false };
    if !packet.sums_hold(frame) {
        return true;
    }
    let at = covered.start + dice.below(covered.len() as u64) as usize;
    let difference = 1 + dice.below(255) as u8;
    if let Some(byte) = frame.get_mut(at) {
        *byte ^= difference;
    }
    true
}

/// Changes two words of a TCP payload so that the checksum still matches: one grows by what the
/// other loses. Returns `false` if there are no two whole words.
pub(super) fn corrupt_unseen(frame: &mut [u8], dice: &mut SeededEntropy) -> bool {
    let range = Packet::locate(frame).and_then(|packet| packet.tcp_payload(frame));
    // The TCP header is a multiple of four bytes long, so these are the words that the checksum
    // adds up.
    let Some(payload) = range.and_then(|range| frame.get_mut(range)) else { return false };
    let (words, _) = payload.as_chunks_mut::<2>();
    let count = words.len() as u64;
    if count < 2 {
        return false;
    }
    let first = dice.below(count);
    let second = (first + 1 + dice.below(count - 1)) % count;
    // Neither is zero modulo 2^16 - 1, and their sum is.
    let difference = 1 + dice.below(0xfffe) as u16;
    for (at, added) in [(first, difference), (second, !difference)] {
        if let Some(word) = words.get_mut(at as usize) {
            *word = ones_complement_sum(u16::from_be_bytes(*word), added).to_be_bytes();
        }
    }
    true
}

/// Cuts the frame after its Ethernet header at a random length. Returns `false` if there is nothing
/// to cut.
pub(super) fn truncate(frame: &mut Vec<u8>, dice: &mut SeededEntropy) -> bool {
    let Some(behind) = frame.len().checked_sub(LINK_HEADER_BYTES).filter(|behind| *behind > 0) else {
        return false;
    };
    frame.truncate(LINK_HEADER_BYTES + dice.below(behind as u64) as usize);
    true
}

fn ones_complement_sum(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

const LINK_HEADER_BYTES: usize = 14;
