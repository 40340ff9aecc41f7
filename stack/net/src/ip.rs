//! Writing the two network headers.
//!
//! Source: RFC 791 s3.1, RFC 8200 s3. Both for packets that are never fragmented on their way: "do not fragment" is set in
//! IPv4, and the path's MTU is learnt, never worked around (RFC 1191 s3).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum;
use crate::config::Marking;

pub(crate) const IPV4_BYTES: usize = 20;
pub(crate) const IPV6_BYTES: usize = 40;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const ICMPV6: u8 = 58;

/// RFC 1122 s3.2.1.7 asks for a settable default; 64 is the recommended one (RFC 1700).
pub(crate) const HOP_LIMIT: u8 = 64;

/// RFC 4861 s7.1: neighbour discovery says that it never passed a router.
pub(crate) const HOP_LIMIT_MAX: u8 = 255;

/// Version 4, five words.
const V4_FIRST: u8 = 0x45;
/// Flags: "do not fragment".
const V4_FLAGS: u8 = 0x40;
/// Version 6; traffic class and flow label zero. RFC 6437 s3 allows a source that has no label to leave it so.
const V6_FIRST: u8 = 0x60;

/// What the words of our IPv4 headers add up to beside addresses, protocol, type of service, time to live, length and
/// identification.
pub(crate) const V4_FIXED_SUM: u32 =
    u32::from_be_bytes([0, 0, V4_FIRST, 0]) + u32::from_be_bytes([0, 0, V4_FLAGS, 0]);

/// An IPv4 header whose length, identification and checksum are zero.
pub(crate) fn v4_template(
    (source, target): (Ipv4Addr, Ipv4Addr),
    protocol: u8,
    marking: Marking,
) -> [u8; IPV4_BYTES] {
    let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (source.octets(), target.octets());
    let addresses = [a0, a1, a2, a3, b0, b1, b2, b3];
    let [a0, a1, a2, a3, b0, b1, b2, b3] = addresses;
    let Marking { hop_limit, .. } = marking;
    let class = marking.class();
    [V4_FIRST, class, 0, 0, 0, 0, V4_FLAGS, 0, hop_limit, protocol, 0, 0, a0, a1, a2, a3, b0, b1, b2, b3]
}

/// A whole IPv4 header, identification zero (RFC 6864 s4.1: any will do).
pub(crate) fn v4_header(
    ends: (Ipv4Addr, Ipv4Addr),
    protocol: u8,
    traffic_class: u8,
    l4_bytes: usize,
) -> [u8; IPV4_BYTES] {
    let mut header = v4_template(ends, protocol, Marking::default());
    let total = (l4_bytes + IPV4_BYTES) as u16;
    header[1] = traffic_class;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = !checksum::fold(checksum::sum_header(&header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// A whole IPv6 header.
pub(crate) fn v6_header(
    (source, target): (Ipv6Addr, Ipv6Addr),
    (next_header, hop_limit): (u8, u8),
    traffic_class: u8,
    l4_bytes: usize,
) -> [u8; IPV6_BYTES] {
    let mut header = [0; IPV6_BYTES];
    let [n0, n1] = (l4_bytes as u16).to_be_bytes();
    let (class_high, class_low) = (traffic_class >> 4, traffic_class << 4);
    header[..8].copy_from_slice(&[V6_FIRST | class_high, class_low, 0, 0, n0, n1, next_header, hop_limit]);
    header[8..24].copy_from_slice(&source.octets());
    header[24..].copy_from_slice(&target.octets());
    header
}

/// The sum of a pseudo-header without its length: addresses and protocol (RFC 9293 s3.1, RFC 8200 s8.1). Folded.
pub(crate) fn pseudo_sum(source: IpAddr, target: IpAddr, protocol: u8) -> u16 {
    let sum = |addr: IpAddr| match addr {
        IpAddr::V4(v4) => checksum::sum(&v4.octets()),
        IpAddr::V6(v6) => checksum::sum(&v6.octets()),
    };
    checksum::fold(sum(source) + sum(target) + u32::from(protocol))
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::wire::{Ipv4Packet, Ipv6Packet};

    #[test]
    fn an_ipv4_header_reads_as_it_was_meant() {
        let ends = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 168, 1, 2));
        let mut packet = v4_header(ends, TCP, 0xb8, 12).to_vec();
        packet.resize(32, 0);
        let view = Ipv4Packet::new_checked(&packet[..]).expect("a packet");
        assert!(view.verify_checksum() && view.dont_frag());
        assert_eq!(
            (view.src_addr(), view.dst_addr(), view.hop_limit(), view.dscp()),
            (ends.0, ends.1, 64, 0x2e)
        );
        assert_eq!((view.total_len(), u8::from(view.next_header())), (32, TCP));
        let template = v4_template(ends, TCP, Marking { hop_limit: 0, dscp: 0 });
        let sum = u32::from(pseudo_sum(ends.0.into(), ends.1.into(), TCP)) + V4_FIXED_SUM;
        assert_eq!(checksum::fold(sum), checksum::fold(checksum::sum(&template)));
    }

    #[test]
    fn an_ipv6_header_reads_as_it_was_meant() {
        let ends: (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().expect("v6"), "2001:db8::2".parse().expect("v6"));
        let mut packet = v6_header(ends, (ICMPV6, 255), 0xb9, 12).to_vec();
        packet.resize(52, 0);
        let view = Ipv6Packet::new_checked(&packet[..]).expect("a packet");
        assert_eq!((view.version(), view.traffic_class(), view.flow_label()), (6, 0xb9, 0));
        assert_eq!((view.src_addr(), view.dst_addr(), view.hop_limit()), (ends.0, ends.1, 255));
        assert_eq!((view.payload_len(), u8::from(view.next_header())), (12, ICMPV6));
    }
}
