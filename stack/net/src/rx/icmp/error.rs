//! Parses ICMP errors about packets that we may have sent.
//!
//! An error quotes the packet that caused it. The quote must be a packet of the transport: from a
//! local address, no fragment, and long enough for the ports and the word after them. It may be
//! encapsulated in UDP (RFC 6951 s5.5): then the port is as unreachable as the protocol. Only the
//! transport knows whether the packet is in flight, so it validates the returned report (RFC 5927
//! s4.1).
//!
//! Source: RFC 792, RFC 1122 s3.2.2 and s4.2.3.9, RFC 1191; RFC 4443 s3, RFC 8201. Each error is
//! returned or dropped under one counter. Errors above a rate are dropped unread, because anybody
//! can send them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ironwarp_stats::Counter;
use ironwarp_types::Flow;

use crate::ip::{IPV4_BYTES, IPV6_BYTES, UDP, UDP_BYTES};
use crate::net::Net;
use crate::pmtu;
use crate::received::{IcmpError, IcmpErrorKind};

/// Type, code, checksum, and a word that depends on the type.
const HEADER_BYTES: usize = 8;

/// The shortest quote: ports and the word after them (RFC 792, RFC 1122 s3.2.2).
const QUOTED_BYTES: usize = 8;

const UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

const V6_UNREACHABLE: u8 = 1;
const V6_TOO_BIG: u8 = 2;
const V6_TIME_EXCEEDED: u8 = 3;
const V6_PARAMETER_PROBLEM: u8 = 4;
/// From this type on, errors are unknown.
const V6_UNKNOWN_MIN: u8 = 5;

/// The problem that a message reports, before its quote is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Report {
    /// The MTU of the next link, or 0 if the router does not report it.
    TooBig(u32),
    Soft,
    Hard,
}

/// The packet that an error quotes.
struct Quote {
    source: IpAddr,
    dst: IpAddr,
    /// The length of the whole packet in its header.
    packet_bytes: u16,
    local_port: u16,
    remote_port: u16,
    protocol: u8,
    quoted: u32,
}

/// Returns whether a message of this type is an error.
pub(super) fn is_error_v4(kind: u8) -> bool {
    matches!(kind, UNREACHABLE | TIME_EXCEEDED | PARAMETER_PROBLEM)
}

/// Returns whether a message of this type is an error: RFC 4443 s2.1 gives errors the types below
/// 128.
pub(super) fn is_error_v6(kind: u8) -> bool {
    kind < 128
}

impl Net {
    /// Parses an ICMPv4 error with a correct checksum.
    #[cold]
    pub(super) fn icmp_error_v4(&self, message: &[u8]) -> Result<IcmpError, Counter> {
        self.icmp_error(message, report_v4, quote_v4)
    }

    /// Parses an ICMPv6 error with a correct checksum.
    #[cold]
    pub(super) fn icmp_error_v6(&self, message: &[u8]) -> Result<IcmpError, Counter> {
        self.icmp_error(message, report_v6, quote_v6)
    }

    fn icmp_error(
        &self,
        message: &[u8],
        report: fn([u8; HEADER_BYTES]) -> Option<Report>,
        quote: fn(&Net, &[u8]) -> Option<Quote>,
    ) -> Result<IcmpError, Counter> {
        let (header, quoted) =
            message.split_first_chunk::<HEADER_BYTES>().ok_or(Counter::NetDropIcmpShort)?;
        let report = report(*header).ok_or(Counter::NetDropIcmpOther)?;
        let ours = quote(self, quoted).filter(|quote| self.local.has(quote.source));
        let quote = ours.ok_or(Counter::NetDropIcmpQuote)?;
        let kind = kind(report, &quote).ok_or(Counter::NetDropIcmpMtu)?;
        let flow = Flow {
            local: SocketAddr::new(quote.source, quote.local_port),
            remote: SocketAddr::new(quote.dst, quote.remote_port),
        };
        let Quote { protocol, quoted, .. } = quote;
        Ok(IcmpError { flow, hash: self.hasher.hash(&flow), protocol, quoted, kind })
    }
}

impl Net {
    /// Returns what follows the IP header of a quote from the transport's header on, and the number
    /// of the transport, if it is a packet of one.
    fn quoted_transport<'a>(&self, protocol: u8, upper: &'a [u8]) -> Option<(u8, &'a [u8])> {
        if protocol == self.transport.number || self.other_transport.is_some_and(|it| it.number == protocol) {
            return Some((protocol, upper));
        }
        let (udp, inner) = upper.split_first_chunk::<UDP_BYTES>()?;
        let is_ours = protocol == UDP && self.udp_port != 0 && udp.starts_with(&self.udp_port.to_be_bytes());
        is_ours.then_some((self.encapsulated_transport().number, inner))
    }
}

/// RFC 1122 s4.2.3.9: some codes of destination unreachable are hard. The others, time exceeded and
/// parameter problem are soft.
fn report_v4([kind, code, _, _, _, _, m0, m1]: [u8; HEADER_BYTES]) -> Option<Report> {
    match (kind, code) {
        // RFC 1191 s4: the MTU of the next hop is in the low half of the word.
        (UNREACHABLE, 4) => Some(Report::TooBig(u16::from_be_bytes([m0, m1]).into())),
        // Protocol and port unreachable, and the three forms of administratively prohibited
        // (RFC 1812 s5.2.7.1).
        (UNREACHABLE, 2 | 3 | 9 | 10 | 13) => Some(Report::Hard),
        (UNREACHABLE, 0..=15) | (TIME_EXCEEDED, 0 | 1) | (PARAMETER_PROBLEM, 0..=2) => Some(Report::Soft),
        _ => None,
    }
}

/// RFC 4443 s3, divided as in RFC 1122: a decision of an administrator or a host is hard, a state
/// of the network is soft.
fn report_v6([kind, code, _, _, m0, m1, m2, m3]: [u8; HEADER_BYTES]) -> Option<Report> {
    match (kind, code) {
        // RFC 4443 s3.2: the code is ignored.
        (V6_TOO_BIG, _) => Some(Report::TooBig(u32::from_be_bytes([m0, m1, m2, m3]))),
        // Prohibited, port unreachable, and the two policies of RFC 4443. A parameter problem of
        // code 1: the peer has no TCP.
        (V6_UNREACHABLE, 1 | 4 | 5 | 6) | (V6_PARAMETER_PROBLEM, 1) => Some(Report::Hard),
        (V6_UNREACHABLE, 0..=7) | (V6_TIME_EXCEEDED, 0 | 1) | (V6_PARAMETER_PROBLEM, 0..=3) => {
            Some(Report::Soft)
        }
        // RFC 4443 s2.4 (a): an error of unknown type reaches the layer that sent the packet.
        (0 | V6_UNKNOWN_MIN.., _) => Some(Report::Soft),
        _ => None,
    }
}

/// Returns the quoted IPv4 packet, if it is one of this transport and no fragment. The header
/// checksum is not checked: routers change the time to live, and some do not update the checksum of
/// the quote.
fn quote_v4(net: &Net, packet: &[u8]) -> Option<Quote> {
    let header = packet.first_chunk::<IPV4_BYTES>()?;
    let [v, _, n0, n1, _, _, f0, f1, _, protocol, _, _, a0, a1, a2, a3, b0, b1, b2, b3] = *header;
    let header_bytes = usize::from(v & 0x0f) * 4;
    let fragment = u16::from_be_bytes([f0, f1]) & 0x3fff != 0;
    if v >> 4 != 4 || header_bytes < IPV4_BYTES || fragment {
        return None;
    }
    let addresses = (Ipv4Addr::new(a0, a1, a2, a3).into(), Ipv4Addr::new(b0, b1, b2, b3).into());
    let upper = net.quoted_transport(protocol, packet.get(header_bytes..)?)?;
    quote(addresses, u16::from_be_bytes([n0, n1]), upper)
}

/// Returns the quoted IPv6 packet, if it is one of this transport without extension headers, as all
/// of ours are.
fn quote_v6(net: &Net, packet: &[u8]) -> Option<Quote> {
    let (front, rest) = packet.split_first_chunk::<8>()?;
    let [v, _, _, _, n0, n1, next, _] = *front;
    let (source, rest) = rest.split_first_chunk::<16>()?;
    let (dst, upper) = rest.split_first_chunk::<16>()?;
    if v >> 4 != 6 {
        return None;
    }
    let upper = net.quoted_transport(next, upper)?;
    let packet_bytes = u16::from_be_bytes([n0, n1]).checked_add(IPV6_BYTES as u16)?;
    quote((Ipv6Addr::from(*source).into(), Ipv6Addr::from(*dst).into()), packet_bytes, upper)
}

fn quote(
    (source, dst): (IpAddr, IpAddr),
    packet_bytes: u16,
    (protocol, upper): (u8, &[u8]),
) -> Option<Quote> {
    let [l0, l1, r0, r1, q0, q1, q2, q3] = *upper.first_chunk::<QUOTED_BYTES>()?;
    Some(Quote {
        source,
        dst,
        packet_bytes,
        local_port: u16::from_be_bytes([l0, l1]),
        remote_port: u16::from_be_bytes([r0, r1]),
        protocol,
        quoted: u32::from_be_bytes([q0, q1, q2, q3]),
    })
}

/// Returns the report for the transport, or `None` if the quoted packet fits the reported MTU: such
/// a report is invalid.
fn kind(report: Report, quote: &Quote) -> Option<IcmpErrorKind> {
    match report {
        Report::Soft => Some(IcmpErrorKind::Soft),
        Report::Hard => Some(IcmpErrorKind::Hard),
        Report::TooBig(reported) => pmtu::limit_from_report(quote.dst, reported, quote.packet_bytes)
            .map(|mtu_bytes| IcmpErrorKind::TooBig { mtu_bytes }),
    }
}
