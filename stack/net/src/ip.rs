//! Writes IPv4 and IPv6 headers.
//!
//! Source: RFC 791 s3.1, RFC 8200 s3. The packets are never fragmented: IPv4 headers have "do not
//! fragment", and path MTU discovery finds the size (RFC 1191 s3).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum;
use crate::config::IpHeaderDefaults;
use crate::family::Address;

pub(crate) const IPV4_BYTES: usize = 20;
pub(crate) const IPV6_BYTES: usize = 40;

pub(crate) const ICMP: u8 = 1;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// RFC 768: ports, length and checksum.
pub(crate) const UDP_BYTES: usize = 8;

/// The default hop limit. RFC 1700 recommends 64.
pub(crate) const HOP_LIMIT: u8 = 64;

/// RFC 4861 s7.1: a neighbour discovery message with this hop limit has not passed a router.
pub(crate) const HOP_LIMIT_MAX: u8 = 255;

/// Version 4, header length five words.
const V4_FIRST: u8 = 0x45;
/// Flags: "do not fragment".
const V4_FLAGS: u8 = 0x40;
/// Version 6. The flow label is 0, as RFC 6437 s3 allows.
const V6_FIRST: u8 = 0x60;

/// The sum of the constant words of an IPv4 header: all but addresses, protocol, type of service,
/// time to live, length and identification.
pub(crate) const V4_FIXED_SUM: u32 =
    u32::from_be_bytes([0, 0, V4_FIRST, 0]) + u32::from_be_bytes([0, 0, V4_FLAGS, 0]);

/// Returns an IPv4 header with length, identification and checksum 0.
pub(crate) fn v4_template(
    (source, target): (Ipv4Addr, Ipv4Addr),
    protocol: u8,
    defaults: IpHeaderDefaults,
) -> [u8; IPV4_BYTES] {
    let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (source.octets(), target.octets());
    let (class, hop_limit) = (defaults.traffic_class(), defaults.hop_limit);
    [V4_FIRST, class, 0, 0, 0, 0, V4_FLAGS, 0, hop_limit, protocol, 0, 0, a0, a1, a2, a3, b0, b1, b2, b3]
}

/// Returns a complete IPv4 header. The identification is 0: RFC 6864 s4.1 allows any value.
pub(crate) fn v4_header(
    addresses: (Ipv4Addr, Ipv4Addr),
    protocol: u8,
    traffic_class: u8,
    l4_bytes: usize,
) -> [u8; IPV4_BYTES] {
    let mut header = v4_template(addresses, protocol, IpHeaderDefaults::default());
    let total = (l4_bytes + IPV4_BYTES) as u16;
    header[1] = traffic_class;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = !checksum::fold(checksum::sum_header(&header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Returns a complete IPv6 header.
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

/// Returns the folded sum of a pseudo-header without its length: addresses and protocol
/// (RFC 9293 s3.1, RFC 8200 s8.1).
pub(crate) fn pseudo_sum(source: IpAddr, target: IpAddr, protocol: u8) -> u16 {
    let sum = |addr: IpAddr| match addr {
        IpAddr::V4(v4) => v4.sum(),
        IpAddr::V6(v6) => v6.sum(),
    };
    checksum::fold(sum(source) + sum(target) + u32::from(protocol))
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::wire::{Ipv4Packet, Ipv6Packet};

    #[test]
    fn an_ipv4_header_is_correct_in_every_field() {
        let addresses = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 168, 1, 2));
        let mut packet = v4_header(addresses, 6, 0xb8, 12).to_vec();
        packet.resize(32, 0);
        let view = Ipv4Packet::new_checked(&packet[..]).expect("a packet");
        assert!(view.verify_checksum() && view.dont_frag());
        assert_eq!(
            (view.src_addr(), view.dst_addr(), view.hop_limit(), view.dscp()),
            (addresses.0, addresses.1, 64, 0x2e)
        );
        assert_eq!((view.total_len(), u8::from(view.next_header())), (32, 6));
        let template = v4_template(addresses, 6, IpHeaderDefaults { hop_limit: 0, dscp: 0 });
        let sum = u32::from(pseudo_sum(addresses.0.into(), addresses.1.into(), 6)) + V4_FIXED_SUM;
        assert_eq!(checksum::fold(sum), checksum::fold(checksum::sum(&template)));
    }

    #[test]
    fn an_ipv6_header_is_correct_in_every_field() {
        let addresses: (Ipv6Addr, Ipv6Addr) =
            ("fd00::1".parse().expect("v6"), "2001:db8::2".parse().expect("v6"));
        let mut packet = v6_header(addresses, (ICMPV6, 255), 0xb9, 12).to_vec();
        packet.resize(52, 0);
        let view = Ipv6Packet::new_checked(&packet[..]).expect("a packet");
        assert_eq!((view.version(), view.traffic_class(), view.flow_label()), (6, 0xb9, 0));
        assert_eq!((view.src_addr(), view.dst_addr(), view.hop_limit()), (addresses.0, addresses.1, 255));
        assert_eq!((view.payload_len(), u8::from(view.next_header())), (12, ICMPV6));
    }
}
