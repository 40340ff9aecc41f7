//! A router's ICMP message about a packet that exceeds the MTU of its next link (RFC 792 with
//! RFC 1191 s4, RFC 4443 s3.2).
//!
//! Its source is the destination of the packet: hosts check the quoted packet, and a simulated link
//! has no address of its own.

use super::packet::{PROTOCOL_ICMPV6, Packet, Version, checksum, put, word};

/// Returns the message about `frame` as its sender receives it; `None` if none may be sent.
pub(super) fn answer(frame: &[u8], mtu_bytes: u16) -> Option<Vec<u8>> {
    let packet = Packet::locate(frame)?;
    if !packet.may_be_answered() {
        return None;
    }
    match packet.version {
        // Without "don't fragment" a router would fragment the packet.
        Version::V4 if word(frame, packet.l3 + 6)? & DONT_FRAGMENT == 0 => None,
        Version::V4 => answer_v4(frame, &packet, mtu_bytes),
        Version::V6 => answer_v6(frame, &packet, mtu_bytes),
    }
}

fn answer_v4(frame: &[u8], packet: &Packet, mtu_bytes: u16) -> Option<Vec<u8>> {
    let quoted = frame.get(packet.l3..packet.end.min(packet.l4 + QUOTED_V4_BYTES))?;
    let mut answer = link_header(frame, packet.l3)?;
    let total = (20 + 8 + quoted.len()) as u16;
    let l3 = answer.len();
    answer.extend([0x45, 0]);
    answer.extend(total.to_be_bytes());
    answer.extend([0, 0, 0, 0, 64, 1, 0, 0]);
    answer.extend(frame.get(packet.l3 + 16..packet.l3 + 20)?);
    answer.extend(frame.get(packet.l3 + 12..packet.l3 + 16)?);
    let sum = checksum(0, answer.get(l3..)?);
    put(&mut answer, l3 + 10, sum);
    // Destination unreachable, fragmentation needed.
    answer.extend([3, 4, 0, 0, 0, 0]);
    answer.extend(mtu_bytes.to_be_bytes());
    answer.extend(quoted);
    let sum = checksum(0, answer.get(l3 + 20..)?);
    put(&mut answer, l3 + 22, sum);
    Some(answer)
}

fn answer_v6(frame: &[u8], packet: &Packet, mtu_bytes: u16) -> Option<Vec<u8>> {
    let quoted = frame.get(packet.l3..packet.end.min(packet.l3 + QUOTED_V6_BYTES))?;
    let mut answer = link_header(frame, packet.l3)?;
    let payload = (8 + quoted.len()) as u16;
    let l3 = answer.len();
    answer.extend([0x60, 0, 0, 0]);
    answer.extend(payload.to_be_bytes());
    answer.extend([PROTOCOL_ICMPV6, 64]);
    answer.extend(frame.get(packet.l3 + 24..packet.l3 + 40)?);
    answer.extend(frame.get(packet.l3 + 8..packet.l3 + 24)?);
    // Packet too big.
    answer.extend([2, 0, 0, 0, 0, 0]);
    answer.extend(mtu_bytes.to_be_bytes());
    answer.extend(quoted);
    // The pseudo-header: addresses, length, next header (RFC 8200 s8.1).
    let pseudo = u64::from(payload) + u64::from(PROTOCOL_ICMPV6);
    let sum = checksum(pseudo, answer.get(l3 + 8..)?);
    put(&mut answer, l3 + 42, sum);
    Some(answer)
}

/// Returns the frame's link header with exchanged addresses, tags included.
fn link_header(frame: &[u8], l3: usize) -> Option<Vec<u8>> {
    let mut header = Vec::with_capacity(128);
    header.extend(frame.get(6..12)?);
    header.extend(frame.get(..6)?);
    header.extend(frame.get(12..l3)?);
    Some(header)
}

const DONT_FRAGMENT: u16 = 0x4000;

/// The part of the IPv4 payload that RFC 792 quotes: TCP's ports and sequence number.
const QUOTED_V4_BYTES: usize = 8;

/// As much as fits the minimum MTU of IPv6 (RFC 4443 s2.4).
const QUOTED_V6_BYTES: usize = 1_280 - 48;
