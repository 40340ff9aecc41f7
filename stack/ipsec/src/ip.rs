//! IPv4 and IPv6 headers around ESP: where the payload is, and the fields that change.
//!
//! Source: RFC 791 s3.1, RFC 8200 s4, RFC 4303 s3.1. Takes a whole IP packet. Extension headers
//! ahead of the payload are passed over; ESP is inserted behind them (RFC 4303 s3.1.1).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;

use ironwarp_arch::checksum;
use ironwarp_types::Ecn;

pub(crate) const IPV4: u8 = 4;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const IPV6: u8 = 41;
pub(crate) const ESP: u8 = 50;
pub(crate) const NO_NEXT_HEADER: u8 = 59;
pub(crate) const SCTP: u8 = 132;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const HOP_LIMIT: u8 = 64;

/// What the headers of an IP packet say.
pub(crate) struct Header {
    pub(crate) source: IpAddr,
    pub(crate) target: IpAddr,
    /// The protocol of the payload, and where the octet that names it is.
    pub(crate) protocol: u8,
    protocol_at: usize,
    /// Ends with the IP packet, which may be shorter than the buffer.
    pub(crate) payload: Range<usize>,
    pub(crate) traffic_class: u8,
    pub(crate) is_fragment: bool,
}

impl Header {
    /// Returns `None` if the headers do not fit the packet.
    pub(crate) fn parse(packet: &[u8]) -> Option<Header> {
        match packet.first()? >> 4 {
            4 => Header::parse_v4(packet),
            6 => Header::parse_v6(packet),
            _ => None,
        }
    }

    fn parse_v4(packet: &[u8]) -> Option<Header> {
        let &[first, class, l0, l1, _, _, f0, f1, _, protocol, _, _, s0, s1, s2, s3, t0, t1, t2, t3] =
            packet.first_chunk::<IPV4_BYTES>()?;
        let header_bytes = usize::from(first & 0xf) * 4;
        let end = usize::from(u16::from_be_bytes([l0, l1]));
        let flags = u16::from_be_bytes([f0, f1]);
        let header = packet.get(..end)?.get(..header_bytes)?;
        // RFC 1122 s3.2.1.2: checked here, since a changed header gets a checksum that is right.
        let is_whole = header_bytes >= IPV4_BYTES && checksum::fold(checksum::sum(header)) == u16::MAX;
        is_whole.then(|| Header {
            source: Ipv4Addr::new(s0, s1, s2, s3).into(),
            target: Ipv4Addr::new(t0, t1, t2, t3).into(),
            protocol,
            protocol_at: 9,
            payload: header_bytes..end,
            traffic_class: class,
            // More fragments, or an offset.
            is_fragment: flags & 0x3fff != 0,
        })
    }

    fn parse_v6(packet: &[u8]) -> Option<Header> {
        let fixed = packet.first_chunk::<IPV6_BYTES>()?;
        let (&[c0, c1, _, _, l0, l1, next, _], addresses) = fixed.split_first_chunk()?;
        let (source, target) = addresses.split_first_chunk::<16>()?;
        let end = IPV6_BYTES + usize::from(u16::from_be_bytes([l0, l1]));
        let mut header = Header {
            source: Ipv6Addr::from(*source).into(),
            target: Ipv6Addr::from(*target.first_chunk::<16>()?).into(),
            protocol: next,
            protocol_at: 6,
            payload: IPV6_BYTES..end,
            traffic_class: c0 << 4 | c1 >> 4,
            is_fragment: false,
        };
        let packet = packet.get(..end)?;
        // Each header has 8 bytes or more, so the packet bounds the walk.
        while let HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | FRAGMENT = header.protocol {
            let start = header.payload.start;
            let &[next, length] = packet.get(start..start + 2)?.first_chunk()?;
            let bytes = if header.protocol == FRAGMENT { 8 } else { 8 + usize::from(length) * 8 };
            header.is_fragment |= header.protocol == FRAGMENT;
            (header.protocol, header.protocol_at) = (next, start);
            header.payload.start = start + bytes;
        }
        (header.payload.start <= end).then_some(header)
    }

    /// Returns source and target port of TCP, UDP and SCTP, `Some(None)` of another protocol, and
    /// `None` if the ports are missing.
    pub(crate) fn ports(&self, packet: &[u8]) -> Option<Option<(u16, u16)>> {
        if !has_ports(self.protocol) {
            return Some(None);
        }
        let &[s0, s1, t0, t1] = packet.get(self.payload.clone())?.first_chunk()?;
        Some(Some((u16::from_be_bytes([s0, s1]), u16::from_be_bytes([t0, t1]))))
    }

    /// Writes protocol and length into a copy of these headers, and the checksum of IPv4.
    /// `payload_bytes` follow the headers.
    pub(crate) fn rewrite(&self, headers: &mut [u8], protocol: u8, payload_bytes: usize) -> Option<()> {
        *headers.get_mut(self.protocol_at)? = protocol;
        let total = u16::try_from(headers.len() + payload_bytes).ok()?;
        if self.source.is_ipv4() {
            headers.get_mut(2..4)?.copy_from_slice(&total.to_be_bytes());
            complete_v4_checksum(headers)
        } else {
            let length = total.checked_sub(IPV6_BYTES as u16)?;
            headers.get_mut(4..6)?.copy_from_slice(&length.to_be_bytes());
            Some(())
        }
    }
}

/// Whether selectors compare the ports of a protocol.
pub(crate) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | SCTP)
}

/// Returns the bytes of the header that [`write_outer`] writes.
pub(crate) fn outer_bytes(source: IpAddr) -> usize {
    if source.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES }
}

/// Writes the outer header of tunnel mode (RFC 4301 s5.1.2): the traffic class `class` is that of
/// the inner packet, with its ECN (RFC 6040 s4.1, normal mode); options and the hop limit are not.
/// IPv4 has "do not fragment" set, so an identification of 0 is right (RFC 6864 s4.1).
pub(crate) fn write_outer(
    headers: &mut [u8],
    (source, target): (IpAddr, IpAddr),
    protocol: u8,
    class: u8,
    payload_bytes: usize,
) -> Option<()> {
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let [l0, l1] = u16::try_from(headers.len() + payload_bytes).ok()?.to_be_bytes();
            let ([a, b, c, d], [e, f, g, h]) = (source.octets(), target.octets());
            *headers.first_chunk_mut()? =
                [0x45, class, l0, l1, 0, 0, 0x40, 0, HOP_LIMIT, protocol, 0, 0, a, b, c, d, e, f, g, h];
            complete_v4_checksum(headers)
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            let [l0, l1] = u16::try_from(payload_bytes).ok()?.to_be_bytes();
            let (fixed, addresses) = headers.split_first_chunk_mut()?;
            *fixed = [0x60 | class >> 4, class << 4, 0, 0, l0, l1, protocol, HOP_LIMIT];
            let (source_place, target_place) = addresses.split_first_chunk_mut()?;
            *source_place = source.octets();
            *target_place.first_chunk_mut()? = target.octets();
            Some(())
        }
        _ => None,
    }
}

/// Combines the ECN field of a decapsulated packet with that of its outer header (RFC 6040 s4.2).
/// Returns `None` if the packet must be dropped.
pub(crate) fn decapsulate_ecn(inner: &mut [u8], outer_class: u8) -> Option<()> {
    let is_v4 = inner.first()? >> 4 == 4;
    // The field is in the lowest bits of octet 1 of IPv4, and in bits 4 and 5 of that of IPv6.
    let shift = if is_v4 { 0 } else { 4 };
    let octet = inner.get_mut(1)?;
    let ecn = match (Ecn::from_bits(*octet >> shift), Ecn::from_bits(outer_class)) {
        (Ecn::NotEct, Ecn::Ce) => return None,
        (Ecn::Ect0 | Ecn::Ect1, Ecn::Ce) => Ecn::Ce,
        (Ecn::Ect0, Ecn::Ect1) => Ecn::Ect1,
        _ => return Some(()),
    };
    *octet = *octet & !(0b11 << shift) | ecn.bits() << shift;
    if is_v4 {
        let header_bytes = usize::from(inner.first()? & 0xf) * 4;
        complete_v4_checksum(inner.get_mut(..header_bytes)?)?;
    }
    Some(())
}

fn complete_v4_checksum(header: &mut [u8]) -> Option<()> {
    header.get_mut(10..12)?.fill(0);
    let sum = !checksum::fold(checksum::sum(header));
    header.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
    Some(())
}
