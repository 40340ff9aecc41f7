//! Marking a packet instead of dropping it (RFC 3168 s5): congestion experienced, on packets whose
//! sender can hear it.

use super::packet::{Packet, Version, checksum, put};

/// Marks a packet whose sender said that it understands. Answers `false` for any other frame.
pub(super) fn mark(frame: &mut [u8]) -> bool {
    let Some(packet) = Packet::locate(frame) else { return false };
    let (at, shift) = match packet.version {
        Version::V4 => (packet.l3 + 1, 0),
        // The traffic class lies across two bytes; its low bits are the high ones of the second
        // (RFC 8200 s3).
        Version::V6 => (packet.l3 + 1, 4),
    };
    let Some(byte) = frame.get_mut(at) else { return false };
    if !matches!(*byte >> shift & 3, CAPABLE_1 | CAPABLE_0) {
        return false;
    }
    *byte |= EXPERIENCED << shift;
    if packet.version == Version::V4 {
        put(frame, packet.l3 + 10, 0);
        let sum = frame.get(packet.l3..packet.l4).map_or(0, |header| checksum(0, header));
        put(frame, packet.l3 + 10, sum);
    }
    true
}

const CAPABLE_1: u8 = 1;
const CAPABLE_0: u8 = 2;
const EXPERIENCED: u8 = 3;
