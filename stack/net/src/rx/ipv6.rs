//! The IPv6 header and its extensions, check by check.
//!
//! Source: RFC 8200 s3 and s4. Extension headers are walked in their order of appearance, at most [`EXTENSIONS_MAX`] of them:
//! hop-by-hop options straight behind the header alone, destination options, routing headers that ask for nothing any
//! more. A fragment is dropped, one that is whole too (RFC 6946), since none that we want is ever made. The hop limit of
//! a packet that has arrived is no reason to drop it.

use core::net::Ipv6Addr;

use ironwarp_stats::Counter;

use super::Datagram;
use super::link::Arrived;
use crate::family::is_unicast_v6;
use crate::ip::{ICMPV6, IPV6_BYTES};
use crate::net::Net;

/// A sender has use for three: hop-by-hop options, and destination options before and behind a routing header.
const EXTENSIONS_MAX: usize = 4;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

const OPTION_PAD_1: u8 = 0;

/// A packet to us, and what neighbour discovery wants to know beside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) datagram: Datagram<Ipv6Addr>,
    pub(super) hop_limit: u8,
    /// Whether anything lies between the header and the payload.
    pub(super) extended: bool,
}

impl Net {
    /// The packet in a frame, or the first reason to drop it.
    pub(super) fn datagram_v6(&self, frame: &[u8], arrived: &Arrived) -> Result<Packet, Counter> {
        let packet = frame.get(arrived.l2_bytes..).ok_or(Counter::NetDropShort)?;
        let (header, rest) = packet.split_first_chunk::<IPV6_BYTES>().ok_or(Counter::NetDropShort)?;
        let [v, class, _, _, n0, n1, next, hop_limit, addresses @ ..] = *header;
        if v >> 4 != 6 {
            return Err(Counter::NetDropIpVersion);
        }
        let payload =
            rest.get(..usize::from(u16::from_be_bytes([n0, n1]))).ok_or(Counter::NetDropIpLength)?;
        let (source, to) = ends(addresses);
        self.check_addresses_v6(source, to, arrived)?;
        let (protocol, upper) = walk(next, payload)?;
        if source.is_unspecified() && protocol != ICMPV6 {
            return Err(Counter::NetDropIpSource);
        }
        let l4_end = arrived.l2_bytes + IPV6_BYTES + payload.len();
        let at = |bytes: usize| u16::try_from(bytes).map_err(|_| Counter::NetDropIpLength);
        let datagram = Datagram {
            remote_mac: arrived.remote_mac,
            local: to,
            remote: source,
            l4_offset: at(l4_end - upper.len())?,
            l4_end: at(l4_end)?,
            traffic_class: v << 4 | class >> 4,
            protocol,
        };
        Ok(Packet { datagram, hop_limit, extended: upper.len() != payload.len() })
    }

    /// To an address or a group of ours, from an address that one station can have, and not ours unless we sent it. A
    /// station without an address yet asks for one with none as its source (RFC 4862 s5.4.2).
    fn check_addresses_v6(&self, source: Ipv6Addr, to: Ipv6Addr, arrived: &Arrived) -> Result<(), Counter> {
        let to_group = to.is_multicast() && self.own.in_group(to);
        if !to_group && !self.own.has_v6(to) {
            return Err(Counter::NetDropIpNotOurs);
        }
        if arrived.group != to_group {
            return Err(Counter::NetDropIpBroadcastFrame);
        }
        if self.own.has_v6(source) != arrived.own || !(is_unicast_v6(source) || source.is_unspecified()) {
            return Err(Counter::NetDropIpSource);
        }
        Ok(())
    }
}

/// Source and destination.
#[inline(always)]
pub(super) fn ends(addresses: [u8; 32]) -> (Ipv6Addr, Ipv6Addr) {
    match addresses.as_chunks::<16>().0 {
        [source, to] => (Ipv6Addr::from(*source), Ipv6Addr::from(*to)),
        _ => (Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED),
    }
}

/// The upper protocol and its bytes, behind every extension header.
fn walk(first: u8, payload: &[u8]) -> Result<(u8, &[u8]), Counter> {
    let (mut kind, mut rest) = (first, payload);
    for place in 0..=EXTENSIONS_MAX {
        match kind {
            // RFC 8200 s4.3: hop-by-hop options come first or not at all.
            HOP_BY_HOP if place > 0 => return Err(Counter::NetDropIpOptions),
            HOP_BY_HOP | DESTINATION | ROUTING => {}
            FRAGMENT => return Err(Counter::NetDropIpFragment),
            _ => return Ok((kind, rest)),
        }
        let (extension, behind) = extension(rest)?;
        let [next, _, body @ ..] = extension else { return Err(Counter::NetDropIpOptions) };
        if kind == ROUTING {
            check_routing(body)?
        } else {
            check_options(body)?
        }
        (kind, rest) = (*next, behind);
    }
    Err(Counter::NetDropIpOptions)
}

/// An extension header, and what follows it: its length counts units of eight bytes beyond the first.
fn extension(rest: &[u8]) -> Result<(&[u8], &[u8]), Counter> {
    let units = usize::from(*rest.get(1).ok_or(Counter::NetDropIpOptions)?);
    rest.split_at_checked((units + 1) * 8).ok_or(Counter::NetDropIpOptions)
}

/// RFC 8200 s4.4: a routing header with nothing left to visit is skipped whatever its type, any other is none that we
/// know. RFC 5095 s3: type 0 is not processed, in either case.
fn check_routing(body: &[u8]) -> Result<(), Counter> {
    match body {
        [kind, 0, ..] if *kind != 0 => Ok(()),
        _ => Err(Counter::NetDropIpOptions),
    }
}

/// RFC 8200 s4.2: options are kind, length, data; the two highest bits of an unknown kind say whether the packet may go
/// on without it. We know padding alone.
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
    fn extension_headers_are_walked_to_the_protocol_behind_them() {
        assert_eq!(walk(TCP, b"tcp"), Ok((TCP, &b"tcp"[..])));
        let options = [DESTINATION, 0, 1, 4, 0, 0, 0, 0, TCP, 0, 1, 2, 0, 0, 0, 0, b't', b'c', b'p'];
        assert_eq!(walk(HOP_BY_HOP, &options), Ok((TCP, &b"tcp"[..])));
        let routed = [TCP, 0, 4, 0, 0, 0, 0, 0, b't'];
        assert_eq!(walk(ROUTING, &routed), Ok((TCP, &b"t"[..])));
    }

    /// RFC 8200 s4.2: the two highest bits of an option's kind.
    #[test]
    fn unknown_options_are_skipped_or_drop_the_packet_as_they_say() {
        let with = |kind| [TCP, 0, kind, 4, 0, 0, 0, 0];
        assert_eq!(walk(DESTINATION, &with(0x1e)), Ok((TCP, &[][..])));
        for kind in [0x5e, 0x9e, 0xde] {
            assert_eq!(walk(DESTINATION, &with(kind)), BAD);
        }
    }

    /// RFC 5095 s3, RFC 8200 s4.4.
    #[test]
    fn a_routing_header_that_asks_for_something_is_refused_and_type_0_always() {
        for (kind, left) in [(0, 0), (0, 1), (2, 1), (4, 255)] {
            assert_eq!(walk(ROUTING, &[TCP, 0, kind, left, 0, 0, 0, 0]), BAD);
        }
    }

    /// RFC 8200 s4.3 and s4.5, RFC 6946.
    #[test]
    fn fragments_and_headers_out_of_place_are_refused() {
        assert_eq!(walk(FRAGMENT, &[TCP, 0, 0, 0, 0, 0, 0, 9]), Err(Counter::NetDropIpFragment));
        let late = [HOP_BY_HOP, 0, 1, 4, 0, 0, 0, 0, TCP, 0, 1, 4, 0, 0, 0, 0];
        assert_eq!(walk(DESTINATION, &late), BAD);
    }

    #[test]
    fn lengths_beyond_the_packet_and_endless_chains_are_refused() {
        for cut in [
            &[][..],
            &[TCP],
            &[TCP, 0, 1, 4, 0, 0, 0],
            &[TCP, 1, 1, 4, 0, 0, 0, 0],
            &[TCP, 0, 1, 5, 0, 0, 0, 0],
        ] {
            assert_eq!(walk(DESTINATION, cut), BAD, "{cut:?}");
        }
        let chain = [DESTINATION, 0, 1, 4, 0, 0, 0, 0].repeat(9);
        assert_eq!(walk(DESTINATION, &chain), BAD);
    }
}
