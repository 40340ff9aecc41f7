//! ICMP errors: what somebody on the way says about a packet that we may have sent.
//!
//! An error quotes the packet it is about. The quote must be one of ours: from one of our addresses, TCP, no fragment,
//! with the ports and the sequence number there. Whether the segment is really in flight only TCP knows, so what comes
//! out is a report that TCP believes or not (RFC 5927 s4.1).
//!
//! Source: RFC 792, RFC 1122 s3.2.2 and s4.2.3.9, RFC 1191; RFC 4443 s3, RFC 8201. Every error is reported or dropped under one
//! counter; beyond a rate they are dropped unread, since anybody can send them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ironwarp_stats::Counter;
use ironwarp_types::{Flow, Seq};

use crate::ip::{self, IPV4_BYTES, IPV6_BYTES};
use crate::net::Net;
use crate::pmtu;
use crate::received::{IcmpError, IcmpErrorKind};

/// Type, code, checksum, and a word whose use depends on the type.
const HEADER_BYTES: usize = 8;

/// What every quote holds of the layer above: ports and sequence number (RFC 792, RFC 1122 s3.2.2).
const QUOTED_BYTES: usize = 8;

const UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

const V6_UNREACHABLE: u8 = 1;
const V6_TOO_BIG: u8 = 2;
const V6_TIME_EXCEEDED: u8 = 3;
const V6_PARAMETER_PROBLEM: u8 = 4;

/// What a message reports, before its quote has been looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Report {
    /// The MTU of the next link; 0 where the router does not say.
    TooBig(u32),
    Soft,
    Hard,
}

/// The packet that an error quotes.
struct Quote {
    source: IpAddr,
    target: IpAddr,
    /// Bytes of the whole packet, by its own header.
    packet_bytes: u16,
    local_port: u16,
    remote_port: u16,
    seq: Seq,
}

/// Whether a message of this type is an error.
pub(super) fn is_error_v4(kind: u8) -> bool {
    matches!(kind, UNREACHABLE | TIME_EXCEEDED | PARAMETER_PROBLEM)
}

/// RFC 4443 s2.1: errors have types below 128. Unknown ones are for the layer above, which could make nothing of them.
pub(super) fn is_error_v6(kind: u8) -> bool {
    kind < 128
}

impl Net {
    /// The report of an ICMPv4 error whose checksum holds.
    #[cold]
    pub(super) fn icmp_error_v4(&self, message: &[u8]) -> Result<IcmpError, Counter> {
        let (header, quoted) =
            message.split_first_chunk::<HEADER_BYTES>().ok_or(Counter::NetDropIcmpShort)?;
        let report = report_v4(*header).ok_or(Counter::NetDropIcmpOther)?;
        self.icmp_error(report, quote_v4(quoted))
    }

    /// The report of an ICMPv6 error whose checksum holds.
    #[cold]
    pub(super) fn icmp_error_v6(&self, message: &[u8]) -> Result<IcmpError, Counter> {
        let (header, quoted) =
            message.split_first_chunk::<HEADER_BYTES>().ok_or(Counter::NetDropIcmpShort)?;
        let report = report_v6(*header).ok_or(Counter::NetDropIcmpOther)?;
        self.icmp_error(report, quote_v6(quoted))
    }

    fn icmp_error(&self, report: Report, quote: Option<Quote>) -> Result<IcmpError, Counter> {
        let ours = quote.filter(|quote| self.own.has(quote.source));
        let quote = ours.ok_or(Counter::NetDropIcmpQuote)?;
        let kind = kind(report, &quote).ok_or(Counter::NetDropIcmpMtu)?;
        let flow = Flow {
            local: SocketAddr::new(quote.source, quote.local_port),
            remote: SocketAddr::new(quote.target, quote.remote_port),
        };
        Ok(IcmpError { flow, hash: self.hasher.hash(&flow), seq: quote.seq, kind })
    }
}

/// RFC 1122 s4.2.3.9 says which unreachable destinations are soft; time exceeded and parameter problem are.
fn report_v4([kind, code, _, _, _, _, m0, m1]: [u8; HEADER_BYTES]) -> Option<Report> {
    match (kind, code) {
        // RFC 1191 s4: the next hop's MTU is in the low half of the formerly unused word.
        (UNREACHABLE, 4) => Some(Report::TooBig(u16::from_be_bytes([m0, m1]).into())),
        // Protocol and port unreachable; communication administratively prohibited in three forms (RFC 1812 s5.2.7.1).
        (UNREACHABLE, 2 | 3 | 9 | 10 | 13) => Some(Report::Hard),
        (UNREACHABLE, 0..=15) | (TIME_EXCEEDED, 0 | 1) | (PARAMETER_PROBLEM, 0..=2) => Some(Report::Soft),
        _ => None,
    }
}

/// RFC 4443 s3, with RFC 1122's division: what somebody has decided is hard, what the network is in is soft.
fn report_v6([kind, code, _, _, m0, m1, m2, m3]: [u8; HEADER_BYTES]) -> Option<Report> {
    match (kind, code) {
        // RFC 4443 s3.2: the code is ignored.
        (V6_TOO_BIG, _) => Some(Report::TooBig(u32::from_be_bytes([m0, m1, m2, m3]))),
        // Prohibited, port unreachable, and the two policies of RFC 4443; the peer does not know TCP.
        (V6_UNREACHABLE, 1 | 4 | 5 | 6) | (V6_PARAMETER_PROBLEM, 1) => Some(Report::Hard),
        (V6_UNREACHABLE, 0..=7) | (V6_TIME_EXCEEDED, 0 | 1) | (V6_PARAMETER_PROBLEM, 0..=3) => {
            Some(Report::Soft)
        }
        _ => None,
    }
}

/// The quoted IPv4 packet, if it is a TCP segment and no fragment. Its header checksum is not looked at: routers have
/// changed the time to live, and some do not repair what they quote.
fn quote_v4(packet: &[u8]) -> Option<Quote> {
    let header = packet.first_chunk::<IPV4_BYTES>()?;
    let [v, _, n0, n1, _, _, f0, f1, _, protocol, _, _, a0, a1, a2, a3, b0, b1, b2, b3] = *header;
    let header_bytes = usize::from(v & 0x0f) * 4;
    let fragment = u16::from_be_bytes([f0, f1]) & 0x3fff != 0;
    if v >> 4 != 4 || header_bytes < IPV4_BYTES || protocol != ip::TCP || fragment {
        return None;
    }
    let ends = (Ipv4Addr::new(a0, a1, a2, a3).into(), Ipv4Addr::new(b0, b1, b2, b3).into());
    quote(ends, u16::from_be_bytes([n0, n1]), packet.get(header_bytes..)?)
}

/// The quoted IPv6 packet, if it is a TCP segment straight behind its header, as all of ours are.
fn quote_v6(packet: &[u8]) -> Option<Quote> {
    let (front, rest) = packet.split_first_chunk::<8>()?;
    let [v, _, _, _, n0, n1, next, _] = *front;
    let (source, rest) = rest.split_first_chunk::<16>()?;
    let (target, upper) = rest.split_first_chunk::<16>()?;
    if v >> 4 != 6 || next != ip::TCP {
        return None;
    }
    let packet_bytes = u16::from_be_bytes([n0, n1]).checked_add(IPV6_BYTES as u16)?;
    quote((Ipv6Addr::from(*source).into(), Ipv6Addr::from(*target).into()), packet_bytes, upper)
}

fn quote((source, target): (IpAddr, IpAddr), packet_bytes: u16, upper: &[u8]) -> Option<Quote> {
    let [l0, l1, r0, r1, s0, s1, s2, s3] = *upper.first_chunk::<QUOTED_BYTES>()?;
    Some(Quote {
        source,
        target,
        packet_bytes,
        local_port: u16::from_be_bytes([l0, l1]),
        remote_port: u16::from_be_bytes([r0, r1]),
        seq: Seq(u32::from_be_bytes([s0, s1, s2, s3])),
    })
}

/// The report for TCP. `None` for an MTU that the quoted packet fits: such a report is wrong.
fn kind(report: Report, quote: &Quote) -> Option<IcmpErrorKind> {
    match report {
        Report::Soft => Some(IcmpErrorKind::Soft),
        Report::Hard => Some(IcmpErrorKind::Hard),
        Report::TooBig(said) => pmtu::reported(quote.target, said, quote.packet_bytes)
            .map(|mtu_bytes| IcmpErrorKind::TooBig { mtu_bytes }),
    }
}
