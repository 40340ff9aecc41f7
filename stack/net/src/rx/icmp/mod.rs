//! ICMP of both families: echo requests are answered in the frame that brought them, errors are reported, neighbour
//! discovery goes its own way.
//!
//! Source: RFC 792 "Echo", RFC 1122 s3.2.2.6, RFC 4443 s4. A reply carries the request's data and type of service; options
//! and extension headers of the request do not come back (source routes, the one kind that would have to, are refused
//! before). An echo request to a group is not answered: it would tell everybody who asks who is there.
//!
//! Router advertisements, redirects and fragments are counted and dropped. ICMP errors go to TCP, which decides whether to believe
//! them.

mod error;

use core::net::Ipv4Addr;

use ironwarp_port::{Frame, Port, TxMeta, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::Datagram;
use super::ipv6::Packet;
use crate::checksum;
use crate::family::{Address, is_unicast_v6};
use crate::ip::{self, HOP_LIMIT, HOP_LIMIT_MAX, ICMPV6, IPV4_BYTES, IPV6_BYTES};
use crate::link::{TYPE_IPV4, TYPE_IPV6};
use crate::neighbour::nd;
use crate::net::Net;
use crate::received::Received;

/// Type, code, checksum, and a word that depends on the type.
const ICMP_BYTES_MIN: usize = 8;

const ECHO_REPLY_V4: u8 = 0;
const ECHO_REQUEST_V4: u8 = 8;
const ECHO_REQUEST_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;

/// What a received message makes of a frame, or the counter of its drop.
type Outcome<F> = Result<Option<Received<F>>, Counter>;

impl Net {
    #[cold]
    pub(super) fn on_icmp<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        datagram: Datagram<Ipv4Addr>,
        wire: &mut Wire<P>,
    ) -> Outcome<P::Frame> {
        let message = message(frame.bytes(), &datagram);
        let [kind, code] = first_bytes(message)?;
        let is_error = error::is_error_v4(kind);
        self.may_read(now, is_error)?;
        check_sum(message, 0)?;
        match (kind, code) {
            _ if is_error => {
                return self.icmp_error_v4(message).map(|error| Some(Received::IcmpError(error)));
            }
            (ECHO_REQUEST_V4, 0) => self.may_echo(now)?,
            _ => return Err(Counter::NetDropIcmpOther),
        }
        let ends = (datagram.local, datagram.remote);
        let l4_bytes = message.len();
        // RFC 1122 s3.2.2.6 wants the type of service back; the congestion bits are not part of it (RFC 3168 s5).
        let header = ip::v4_header(ends, ip::ICMP, datagram.traffic_class & !3, l4_bytes);
        self.echo::<P, _, IPV4_BYTES>(frame, &datagram, (TYPE_IPV4, header, ECHO_REPLY_V4), wire);
        Ok(None)
    }

    #[cold]
    pub(super) fn on_icmpv6<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        packet: Packet,
        wire: &mut Wire<P>,
    ) -> Outcome<P::Frame> {
        let datagram = packet.datagram;
        let message = message(frame.bytes(), &datagram);
        let [kind, code] = first_bytes(message)?;
        let is_error = error::is_error_v6(kind);
        self.may_read(now, is_error)?;
        // RFC 8200 s8.1: unlike IPv4's, the sum covers a pseudo-header.
        let pseudo = datagram.local.sum() + datagram.remote.sum() + u32::from(ICMPV6) + message.len() as u32;
        check_sum(message, pseudo)?;
        match (kind, code) {
            _ if is_error => {
                return self.icmp_error_v6(message).map(|error| Some(Received::IcmpError(error)));
            }
            (nd::ROUTER_SOLICITATION..=nd::REDIRECT, _) if self.outbox.follows() => {
                return Ok(Some(Received::ForLeader(frame)));
            }
            (nd::ROUTER_SOLICITATION..=nd::REDIRECT, _) => {
                self.on_discovery(now, frame, packet, wire);
                return Ok(None);
            }
            (ECHO_REQUEST_V6, 0) => self.may_echo(now)?,
            _ => return Err(Counter::NetDropIcmpOther),
        }
        if datagram.local.is_multicast() || !is_unicast_v6(datagram.remote) {
            return Err(Counter::NetDropIpSource);
        }
        let ends = (datagram.local, datagram.remote);
        let class = datagram.traffic_class & !3;
        let header = ip::v6_header(ends, (ICMPV6, HOP_LIMIT), class, message.len());
        self.echo::<P, _, IPV6_BYTES>(frame, &datagram, (TYPE_IPV6, header, ECHO_REPLY_V6), wire);
        Ok(None)
    }

    fn on_discovery<P: Port>(&mut self, now: Nanos, frame: P::Frame, packet: Packet, wire: &mut Wire<P>) {
        let message = message(frame.bytes(), &packet.datagram);
        let kind = message.first().copied().unwrap_or_default();
        // RFC 4861 s7.1: what has passed a router is no neighbour's. Nothing may lie in front of it (RFC 6980 s5).
        if packet.hop_limit != HOP_LIMIT_MAX || packet.extended {
            return self.stats.count(Counter::NetDropNdMalformed);
        }
        match kind {
            nd::SOLICITATION | nd::ADVERTISEMENT => self.on_nd(now, frame, &packet.datagram, wire),
            _ => self.stats.count(Counter::NetDropNdRouter),
        }
    }

    /// Errors are read within a rate; whatever else a message is, it has its own.
    fn may_read(&mut self, now: Nanos, is_error: bool) -> Result<(), Counter> {
        if !is_error || self.icmp_errors.allows(now) { Ok(()) } else { Err(Counter::NetDropIcmpRateLimited) }
    }

    fn may_echo(&mut self, now: Nanos) -> Result<(), Counter> {
        if self.echo.allows(now) { Ok(()) } else { Err(Counter::NetDropEchoRateLimited) }
    }

    /// Answers an echo request: addresses turned round, options and padding gone, type changed and the checksum with it.
    /// `ethertype`, `header` and `reply` are the network's.
    fn echo<P: Port, A: Address, const H: usize>(
        &self,
        mut frame: P::Frame,
        datagram: &Datagram<A>,
        (ethertype, header, reply): (u16, [u8; H], u8),
        wire: &mut Wire<P>,
    ) {
        let span = usize::from(datagram.l4_offset)..usize::from(datagram.l4_end);
        let (l4_at, l4_bytes) = (self.link.header_bytes() + H, span.len());
        // A tag that only carried a priority goes, one never comes: the reply is not longer than the request.
        frame.bytes_mut().copy_within(span, l4_at);
        frame.resize(l4_at + l4_bytes);
        let packet = self.link.write(frame.bytes_mut(), datagram.remote_mac, ethertype).unwrap_or_default();
        if let Some((front, message)) = packet.split_first_chunk_mut::<H>() {
            *front = header;
            turn_into_reply(message, reply);
        }
        let sent = wire.push(frame.seal(TxMeta::default()));
        self.stats.count(if sent { Counter::NetEchoRepliesSent } else { Counter::NetDropTxRingFull });
    }
}

/// RFC 1624 s3: only the type changes; the addresses of IPv6's pseudo-header change places, which no sum notices.
fn turn_into_reply(message: &mut [u8], reply: u8) {
    if let Some([kind, _, c0, c1]) = message.first_chunk_mut::<4>() {
        let sum = checksum::update(
            u16::from_be_bytes([*c0, *c1]),
            u16::from_be_bytes([*kind, 0]),
            u16::from_be_bytes([reply, 0]),
        );
        *kind = reply;
        [*c0, *c1] = sum.to_be_bytes();
    }
}

fn message<'a, A>(frame: &'a [u8], datagram: &Datagram<A>) -> &'a [u8] {
    frame.get(usize::from(datagram.l4_offset)..usize::from(datagram.l4_end)).unwrap_or_default()
}

/// Type and code.
fn first_bytes(message: &[u8]) -> Result<[u8; 2], Counter> {
    let [kind, code, ..] = *message.first_chunk::<ICMP_BYTES_MIN>().ok_or(Counter::NetDropIcmpShort)?;
    Ok([kind, code])
}

fn check_sum(message: &[u8], pseudo: u32) -> Result<(), Counter> {
    let right = checksum::fold(pseudo + checksum::sum(message)) == checksum::RIGHT;
    if right { Ok(()) } else { Err(Counter::NetDropIcmpChecksum) }
}
