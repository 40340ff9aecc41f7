//! Reads and writes the solicitations and advertisements of neighbour discovery.
//!
//! ```text
//! | type 135 or 136 | code 0 | checksum | flags, reserved: 4 | target: 16 | options: type, units of 8 bytes, ... |
//! ```
//! Source: RFC 4861 s4.3, s4.4, s4.6.1, s7.1. The caller has checked the IP header and the
//! checksum.

use core::net::Ipv6Addr;

use ironwarp_port::Frame;
use ironwarp_types::MacAddr;

use crate::checksum;
use crate::family::{ALL_NODES, is_unicast_v6, solicited_node};
use crate::ip::{self, HOP_LIMIT_MAX, ICMPV6, IPV6_BYTES};
use crate::link::{Link, TYPE_IPV6, group_mac, is_group};

pub(crate) const ROUTER_SOLICITATION: u8 = 133;
pub(crate) const SOLICITATION: u8 = 135;
pub(crate) const ADVERTISEMENT: u8 = 136;
pub(crate) const REDIRECT: u8 = 137;

const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// The length of both messages without options.
const FIXED_BYTES: usize = 24;
/// The length of a link address option, the only one that is written.
const OPTION_BYTES: usize = 8;
const OPTION_SOURCE_MAC: u8 = 1;
const OPTION_TARGET_MAC: u8 = 2;

/// A valid received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReceivedNd {
    /// A request for the link address of `target`. `mac` is the link address of the sender.
    Solicitation { target: Ipv6Addr, mac: Option<MacAddr> },
    /// `target` has the link address `mac`.
    Advertisement { target: Ipv6Addr, mac: Option<MacAddr>, solicited: bool, overrides: bool },
}

impl ReceivedNd {
    /// Parses a message from `source` to `to`. Returns `None` if it is invalid by RFC 4861 s7.1.1
    /// or s7.1.2.
    pub(crate) fn parse(message: &[u8], source: Ipv6Addr, to: Ipv6Addr) -> Option<ReceivedNd> {
        let (fixed, options) = message.split_first_chunk::<FIXED_BYTES>()?;
        let [kind, code, _, _, flags, _, _, _, target @ ..] = *fixed;
        let target = Ipv6Addr::from(target);
        if code != 0 || !is_unicast_v6(target) {
            return None;
        }
        if kind == SOLICITATION {
            let mac = link_address(options, OPTION_SOURCE_MAC).ok()?;
            // A probe has no source address: it goes to the solicited-node address and has no link
            // address option.
            let probe = source.is_unspecified();
            return (!probe || (to == solicited_node(target) && mac.is_none()))
                .then_some(ReceivedNd::Solicitation { target, mac });
        }
        let mac = link_address(options, OPTION_TARGET_MAC).ok()?;
        let (solicited, overrides) = (flags & SOLICITED != 0, flags & OVERRIDE != 0);
        let valid = is_unicast_v6(source) && !(to.is_multicast() && solicited);
        valid.then_some(ReceivedNd::Advertisement { target, mac, solicited, overrides })
    }
}

/// An option that makes the message invalid.
struct Malformed;

/// Returns the link address of the option `wanted`, if there is one. RFC 4861 s4.6: an option of
/// length 0 makes the message invalid, and unknown options are skipped.
fn link_address(mut options: &[u8], wanted: u8) -> Result<Option<MacAddr>, Malformed> {
    let mut found = None;
    while let [kind, units, ..] = *options {
        let bytes = usize::from(units) * 8;
        let (option, rest) = options.split_at_checked(bytes).ok_or(Malformed)?;
        if bytes == 0 {
            return Err(Malformed);
        }
        if let ([_, _, mac @ ..], true) = (option, kind == wanted)
            && let Ok(mac) = <[u8; 6]>::try_from(mac)
        {
            let mac = MacAddr(mac);
            let valid = !is_group(mac) && mac != MacAddr::default();
            found = Some(valid.then_some(mac).ok_or(Malformed)?);
        }
        options = rest;
    }
    if options.is_empty() { Ok(found) } else { Err(Malformed) }
}

/// Writes a solicitation for `target`: by unicast to `mac` if it is known, otherwise to the
/// solicited-node address. An unspecified `source` makes it a probe (RFC 4862 s5.4.2). Returns
/// `false` if the frame is too short.
pub(crate) fn write_solicitation<F: Frame>(
    frame: &mut F,
    link: &Link,
    source: Ipv6Addr,
    target: Ipv6Addr,
    mac: Option<MacAddr>,
) -> bool {
    let group = solicited_node(target);
    let (to, to_mac) = mac.map_or((group, group_mac(group)), |mac| (target, mac));
    let option = (!source.is_unspecified()).then_some(OPTION_SOURCE_MAC);
    write(frame, link, to_mac, (source, to), Body { kind: SOLICITATION, flags: 0, target, option })
}

/// Writes an advertisement of the local address `local` to `requester`, or to all nodes
/// (RFC 4861 s7.2.4 and s7.2.6). Returns `false` if the frame is too short.
pub(crate) fn write_advertisement<F: Frame>(
    frame: &mut F,
    link: &Link,
    local: Ipv6Addr,
    requester: Option<(Ipv6Addr, MacAddr)>,
) -> bool {
    let (to, mac) = requester.unwrap_or((ALL_NODES, group_mac(ALL_NODES)));
    let flags = OVERRIDE | if requester.is_some() { SOLICITED } else { 0 };
    let body = Body { kind: ADVERTISEMENT, flags, target: local, option: Some(OPTION_TARGET_MAC) };
    write(frame, link, mac, (local, to), body)
}

struct Body {
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
    /// The kind of the option with the local link address.
    option: Option<u8>,
}

fn write<F: Frame>(
    frame: &mut F,
    link: &Link,
    to_mac: MacAddr,
    addresses: (Ipv6Addr, Ipv6Addr),
    body: Body,
) -> bool {
    let bytes = FIXED_BYTES + if body.option.is_some() { OPTION_BYTES } else { 0 };
    frame.resize(link.header_bytes() + IPV6_BYTES + bytes);
    let packet = link.write(frame.bytes_mut(), to_mac, TYPE_IPV6).unwrap_or_default();
    let Some((header, message)) = packet.split_first_chunk_mut::<IPV6_BYTES>() else { return false };
    *header = ip::v6_header(addresses, (ICMPV6, HOP_LIMIT_MAX), 0, bytes);
    let Some((fixed, options)) = message.split_first_chunk_mut::<FIXED_BYTES>() else { return false };
    *fixed = [0; FIXED_BYTES];
    (fixed[0], fixed[4]) = (body.kind, body.flags);
    fixed[8..].copy_from_slice(&body.target.octets());
    if let (Some(kind), Some(option)) = (body.option, options.first_chunk_mut::<OPTION_BYTES>()) {
        let [a, b, c, d, e, f] = link.mac.0;
        *option = [kind, 1, a, b, c, d, e, f];
    }
    let pseudo = u32::from(ip::pseudo_sum(addresses.0.into(), addresses.1.into(), ICMPV6)) + bytes as u32;
    let sum = !checksum::fold(pseudo + checksum::sum(message));
    message.get_mut(2..4).is_some_and(|field| {
        field.copy_from_slice(&sum.to_be_bytes());
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    fn message(kind: u8, flags: u8, options: &[u8]) -> Vec<u8> {
        let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
        message.extend(v6("fd00::1").octets());
        message.extend(options);
        message
    }

    fn parse_solicitation(source: &str, to: &str, options: &[u8]) -> Option<ReceivedNd> {
        ReceivedNd::parse(&message(SOLICITATION, 0, options), v6(source), v6(to))
    }

    const SOURCE_MAC: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 9];

    #[test]
    fn a_solicitation_contains_the_link_address_of_its_sender() {
        let expected =
            ReceivedNd::Solicitation { target: v6("fd00::1"), mac: Some(MacAddr([2, 0, 0, 0, 0, 9])) };
        assert_eq!(parse_solicitation("fd00::2", "fd00::1", &SOURCE_MAC), Some(expected));
        // An unknown option, 14 (nonce), comes first.
        let options = [&[14, 1, 0, 0, 0, 0, 0, 0][..], &SOURCE_MAC].concat();
        assert_eq!(parse_solicitation("fd00::2", "ff02::1:ff00:1", &options), Some(expected));
    }

    /// RFC 4861 s7.1.1: without a source address, only to the solicited-node address and without a
    /// link address.
    #[test]
    fn a_probe_goes_to_the_solicited_node_address_without_a_link_address() {
        assert!(parse_solicitation("::", "ff02::1:ff00:1", &[]).is_some());
        assert_eq!(parse_solicitation("::", "ff02::1:ff00:1", &SOURCE_MAC), None);
        assert_eq!(parse_solicitation("::", "fd00::1", &[]), None);
    }

    /// RFC 4861 s7.1.2: an advertisement to a multicast address is not solicited.
    #[test]
    fn an_advertisement_to_all_nodes_is_not_solicited() {
        let parse = |flags, to| ReceivedNd::parse(&message(ADVERTISEMENT, flags, &[]), v6("fd00::2"), v6(to));
        assert_eq!(parse(SOLICITED, "ff02::1"), None);
        assert!(matches!(
            parse(SOLICITED | OVERRIDE, "fd00::9"),
            Some(ReceivedNd::Advertisement { solicited: true, overrides: true, mac: None, .. })
        ));
        assert!(matches!(parse(0, "ff02::1"), Some(ReceivedNd::Advertisement { solicited: false, .. })));
    }

    /// RFC 4861 s4.3, s4.4, s4.6 and s9: reserved bits and unknown options change nothing, wherever
    /// they stand.
    #[test]
    fn reserved_bits_and_unknown_options_are_ignored() {
        let target_mac = [2, 1, 2, 0, 0, 0, 0, 9];
        let unknown = [200, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
        let advertised = Some(ReceivedNd::Advertisement {
            target: v6("fd00::1"),
            mac: Some(MacAddr([2, 0, 0, 0, 0, 9])),
            solicited: true,
            overrides: false,
        });
        for options in [[&unknown[..], &target_mac].concat(), [&target_mac[..], &unknown].concat()] {
            let mut reserved = message(ADVERTISEMENT, SOLICITED | 0x1f, &options);
            reserved[5..8].fill(0xff);
            assert_eq!(ReceivedNd::parse(&reserved, v6("fd00::2"), v6("fd00::9")), advertised);
        }
        let mut reserved = message(SOLICITATION, 0xff, &SOURCE_MAC);
        reserved[5..8].fill(0xff);
        let plain = parse_solicitation("fd00::2", "fd00::1", &SOURCE_MAC);
        assert!(plain.is_some());
        assert_eq!(ReceivedNd::parse(&reserved, v6("fd00::2"), v6("fd00::1")), plain);
    }

    /// RFC 4861 s4.6 and s7.1.
    #[test]
    fn malformed_messages_are_rejected() {
        let to = "ff02::1:ff00:1";
        for options in
            [&[1u8, 0, 2, 0, 0, 0, 0, 9][..], &[1, 2, 2, 0, 0, 0, 0, 9], &[1], &[1, 1, 3, 0, 0, 0, 0, 9]]
        {
            assert_eq!(parse_solicitation("fd00::2", to, options), None, "{options:?}");
        }
        let mut coded = message(SOLICITATION, 0, &[]);
        coded[1] = 1;
        assert_eq!(ReceivedNd::parse(&coded, v6("fd00::2"), v6(to)), None);
        let mut group = message(SOLICITATION, 0, &[]);
        group[8] = 0xff;
        assert_eq!(ReceivedNd::parse(&group, v6("fd00::2"), v6(to)), None);
        assert_eq!(ReceivedNd::parse(&message(SOLICITATION, 0, &[])[..23], v6("fd00::2"), v6(to)), None);
    }
}
