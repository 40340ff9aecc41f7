//! Parses the IPv6 header and its extension headers.
//!
//! Source: RFC 8200 s3 and s4. At most [`EXTENSIONS_MAX`] extension headers are accepted:
//! hop-by-hop options in the first place only, destination options, and routing headers with no
//! segments left. Fragments are dropped, also those that are a whole packet (RFC 6946), because our
//! peers send none. The hop limit of a received packet is not checked.

use core::net::Ipv6Addr;

use ironwarp_stats::Counter;

use super::Datagram;
use super::link::LinkHeader;
use crate::family::is_unicast_v6;
use crate::ip::{ICMPV6, IPV6_BYTES};
use crate::net::Net;

/// A sender needs four at most: hop-by-hop options, a routing header, and destination options
/// before and after it.
const EXTENSIONS_MAX: usize = 4;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

const OPTION_PAD_1: u8 = 0;

/// A packet to us, with the fields that neighbour discovery checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) datagram: Datagram<Ipv6Addr>,
    pub(super) hop_limit: u8,
    /// There are extension headers between the header and the payload.
    pub(super) has_extensions: bool,
}

impl Net {
    /// Returns the packet in a frame, or the first reason to drop it.
    pub(super) fn parse_ipv6(&self, frame: &[u8], link: &LinkHeader) -> Result<Packet, Counter> {
        let packet = frame.get(link.l2_bytes..).ok_or(Counter::NetDropShort)?;
        let (header, rest) = packet.split_first_chunk::<IPV6_BYTES>().ok_or(Counter::NetDropShort)?;
        let [v, class, _, _, n0, n1, next, hop_limit, addresses @ ..] = *header;
        if v >> 4 != 6 {
            return Err(Counter::NetDropIpVersion);
        }
        let payload =
            rest.get(..usize::from(u16::from_be_bytes([n0, n1]))).ok_or(Counter::NetDropIpLength)?;
        let (remote, local) = split_addresses(addresses);
        self.check_addresses_v6(remote, local, link)?;
        let (protocol, upper) = skip_extensions(next, payload)?;
        if remote.is_unspecified() && protocol != ICMPV6 {
            return Err(Counter::NetDropIpSource);
        }
        let l4_end = link.l2_bytes + IPV6_BYTES + payload.len();
        let offset = |at: usize| u16::try_from(at).map_err(|_| Counter::NetDropIpLength);
        let datagram = Datagram {
            remote_mac: link.remote_mac,
            local,
            remote,
            l4_offset: offset(l4_end - upper.len())?,
            l4_end: offset(l4_end)?,
            traffic_class: v << 4 | class >> 4,
            protocol,
        };
        Ok(Packet { datagram, hop_limit, has_extensions: upper.len() != payload.len() })
    }

    /// The destination is a local address or a multicast address that we receive. The source is
    /// unicast, and it is local only in the loopback. A probe for an address has no source address
    /// (RFC 4862 s5.4.2).
    fn check_addresses_v6(
        &self,
        remote: Ipv6Addr,
        local: Ipv6Addr,
        link: &LinkHeader,
    ) -> Result<(), Counter> {
        let to_group = local.is_multicast() && self.local.in_group(local);
        if !to_group && !self.local.has_v6(local) {
            return Err(Counter::NetDropIpNotOurs);
        }
        if link.is_group != to_group {
            return Err(Counter::NetDropIpBroadcastFrame);
        }
        if self.local.has_v6(remote) != link.is_loopback
            || !(is_unicast_v6(remote) || remote.is_unspecified())
        {
            return Err(Counter::NetDropIpSource);
        }
        Ok(())
    }
}

/// Returns source and destination.
fn split_addresses(addresses: [u8; 32]) -> (Ipv6Addr, Ipv6Addr) {
    match addresses.as_chunks::<16>().0 {
        [source, dst] => (Ipv6Addr::from(*source), Ipv6Addr::from(*dst)),
        _ => (Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED),
    }
}

/// Returns the upper protocol and its bytes, after all extension headers.
fn skip_extensions(first: u8, payload: &[u8]) -> Result<(u8, &[u8]), Counter> {
    let (mut kind, mut rest) = (first, payload);
    for skipped in 0..=EXTENSIONS_MAX {
        match kind {
            // RFC 8200 s4.3: hop-by-hop options come first.
            HOP_BY_HOP if skipped > 0 => return Err(Counter::NetDropIpOptions),
            HOP_BY_HOP | DESTINATION | ROUTING => {}
            FRAGMENT => return Err(Counter::NetDropIpFragment),
            _ => return Ok((kind, rest)),
        }
        let (extension, after) = split_extension(rest)?;
        let [next, _, body @ ..] = extension else { return Err(Counter::NetDropIpOptions) };
        if kind == ROUTING {
            check_routing(body)?
        } else {
            check_options(body)?
        }
        (kind, rest) = (*next, after);
    }
    Err(Counter::NetDropIpOptions)
}

/// Returns an extension header and the bytes after it. Its length field counts units of 8 bytes,
/// without the first.
fn split_extension(rest: &[u8]) -> Result<(&[u8], &[u8]), Counter> {
    let units = usize::from(*rest.get(1).ok_or(Counter::NetDropIpOptions)?);
    rest.split_at_checked((units + 1) * 8).ok_or(Counter::NetDropIpOptions)
}

/// RFC 8200 s4.4: a routing header without segments left is skipped, any other is unknown here.
/// RFC 5095 s3: type 0 is rejected in both cases.
fn check_routing(body: &[u8]) -> Result<(), Counter> {
    match body {
        [kind, 0, ..] if *kind != 0 => Ok(()),
        _ => Err(Counter::NetDropIpOptions),
    }
}

/// RFC 8200 s4.2: options are kind, length and data. The two highest bits of an unknown kind say
/// whether the packet is dropped. Only padding is known.
fn check_options(mut options: &[u8]) -> Result<(), Counter> {
    while let [kind, rest @ ..] = options {
        if *kind == OPTION_PAD_1 {
            options = rest;
            continue;
        }
        let bytes = usize::from(*rest.first().ok_or(Counter::NetDropIpOptions)?);
        if kind >> 6 != 0 {
            return Err(Counter::NetDropIpOptions);
        }
        options = rest.get(1 + bytes..).ok_or(Counter::NetDropIpOptions)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: u8 = 6;
    const BAD: Result<(u8, &[u8]), Counter> = Err(Counter::NetDropIpOptions);

    #[test]
    fn extension_headers_are_skipped() {
        assert_eq!(skip_extensions(TCP, b"tcp"), Ok((TCP, &b"tcp"[..])));
        let options = [DESTINATION, 0, 1, 4, 0, 0, 0, 0, TCP, 0, 1, 2, 0, 0, 0, 0, b't', b'c', b'p'];
        assert_eq!(skip_extensions(HOP_BY_HOP, &options), Ok((TCP, &b"tcp"[..])));
        let routed = [TCP, 0, 4, 0, 0, 0, 0, 0, b't'];
        assert_eq!(skip_extensions(ROUTING, &routed), Ok((TCP, &b"t"[..])));
    }

    /// RFC 8200 s4.2: the two highest bits of the kind of an option.
    #[test]
    fn the_kind_of_an_unknown_option_decides_whether_it_is_skipped() {
        let with = |kind| [TCP, 0, kind, 4, 0, 0, 0, 0];
        assert_eq!(skip_extensions(DESTINATION, &with(0x1e)), Ok((TCP, &[][..])));
        for kind in [0x5e, 0x9e, 0xde] {
            assert_eq!(skip_extensions(DESTINATION, &with(kind)), BAD);
        }
    }

    /// RFC 5095 s3, RFC 8200 s4.4.
    #[test]
    fn a_routing_header_with_segments_left_or_of_type_0_is_rejected() {
        for (kind, left) in [(0, 0), (0, 1), (2, 1), (4, 255)] {
            assert_eq!(skip_extensions(ROUTING, &[TCP, 0, kind, left, 0, 0, 0, 0]), BAD);
        }
    }

    /// RFC 8200 s4.3 and s4.5, RFC 6946.
    #[test]
    fn fragments_and_late_hop_by_hop_options_are_rejected() {
        assert_eq!(skip_extensions(FRAGMENT, &[TCP, 0, 0, 0, 0, 0, 0, 9]), Err(Counter::NetDropIpFragment));
        let late = [HOP_BY_HOP, 0, 1, 4, 0, 0, 0, 0, TCP, 0, 1, 4, 0, 0, 0, 0];
        assert_eq!(skip_extensions(DESTINATION, &late), BAD);
    }

    #[test]
    fn lengths_beyond_the_packet_and_long_chains_are_rejected() {
        for cut in [
            &[][..],
            &[TCP],
            &[TCP, 0, 1, 4, 0, 0, 0],
            &[TCP, 1, 1, 4, 0, 0, 0, 0],
            &[TCP, 0, 1, 5, 0, 0, 0, 0],
        ] {
            assert_eq!(skip_extensions(DESTINATION, cut), BAD, "{cut:?}");
        }
        let chain = [DESTINATION, 0, 1, 4, 0, 0, 0, 0].repeat(9);
        assert_eq!(skip_extensions(DESTINATION, &chain), BAD);
    }
}
