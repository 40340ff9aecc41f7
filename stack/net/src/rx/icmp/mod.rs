//! ICMP of both families: replies to echo requests, errors for TCP, and neighbour discovery.
//!
//! An echo reply is written in the frame of its request. It has the data and the type of service of
//! the request, but not its options and extension headers. RFC 1122 requires this only for source
//! routes, and packets with these are dropped. Echo requests to a multicast address get no reply,
//! because replies would let anybody list the stations. Errors go to TCP, which validates them.
//!
//! Source: RFC 792 "Echo", RFC 1122 s3.2.2.6, RFC 4443 s4.

mod error;

use core::net::Ipv4Addr;

use ironwarp_port::{Checksum, Frame, Port, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::ipv6::Packet;
use super::{Datagram, Outcome};
use crate::checksum;
use crate::family::{Address, is_unicast_v6};
use crate::ip::{self, HOP_LIMIT, ICMPV6, IPV4_BYTES, IPV6_BYTES};
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

impl Net {
    #[cold]
    pub(super) fn on_icmp<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        datagram: Datagram<Ipv4Addr>,
        wire: &mut Wire<P>,
    ) -> Outcome<P::Frame> {
        let message = datagram.payload(frame.bytes()).unwrap_or_default();
        let (kind, code) = self.check_message(now, message, 0, error::is_error_v4)?;
        match (kind, code) {
            _ if error::is_error_v4(kind) => {
                return self.icmp_error_v4(message).map(|error| Some(Received::IcmpError(error)));
            }
            (ECHO_REQUEST_V4, 0) => self.check_echo_rate(now)?,
            _ => return Err(Counter::NetDropIcmpOther),
        }
        let addresses = (datagram.local, datagram.remote);
        // RFC 1122 s3.2.2.6: the reply has the type of service of the request. It does not include
        // the ECN bits (RFC 3168 s5).
        let header = ip::v4_header(addresses, ip::ICMP, datagram.traffic_class & !3, message.len());
        self.echo::<P, _, IPV4_BYTES>(frame, &datagram, (TYPE_IPV4, header, ECHO_REPLY_V4), wire)
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
        let message = datagram.payload(frame.bytes()).unwrap_or_default();
        // RFC 8200 s8.1: the sum includes a pseudo-header, unlike in ICMPv4.
        let pseudo = datagram.local.sum() + datagram.remote.sum() + u32::from(ICMPV6) + message.len() as u32;
        let (kind, code) = self.check_message(now, message, pseudo, error::is_error_v6)?;
        match (kind, code) {
            _ if error::is_error_v6(kind) => {
                return self.icmp_error_v6(message).map(|error| Some(Received::IcmpError(error)));
            }
            (nd::ROUTER_SOLICITATION..=nd::REDIRECT, _) => return self.on_nd(now, frame, packet, wire),
            (ECHO_REQUEST_V6, 0) => self.check_echo_rate(now)?,
            _ => return Err(Counter::NetDropIcmpOther),
        }
        if datagram.local.is_multicast() || !is_unicast_v6(datagram.remote) {
            return Err(Counter::NetDropIpSource);
        }
        let addresses = (datagram.local, datagram.remote);
        let class = datagram.traffic_class & !3;
        let header = ip::v6_header(addresses, (ICMPV6, HOP_LIMIT), class, message.len());
        self.echo::<P, _, IPV6_BYTES>(frame, &datagram, (TYPE_IPV6, header, ECHO_REPLY_V6), wire)
    }

    /// Checks the length, the rate of errors, and the checksum. `pseudo` is the sum of the
    /// pseudo-header. Returns type and code.
    fn check_message(
        &mut self,
        now: Nanos,
        message: &[u8],
        pseudo: u32,
        is_error: fn(u8) -> bool,
    ) -> Result<(u8, u8), Counter> {
        let [kind, code, ..] = *message.first_chunk::<ICMP_BYTES_MIN>().ok_or(Counter::NetDropIcmpShort)?;
        if is_error(kind) && !self.icmp_error_limit.allows(now) {
            return Err(Counter::NetDropIcmpRateLimited);
        }
        if !checksum::is_correct(Checksum::Unknown, || pseudo + checksum::sum(message)) {
            return Err(Counter::NetDropIcmpChecksum);
        }
        Ok((kind, code))
    }

    fn check_echo_rate(&mut self, now: Nanos) -> Result<(), Counter> {
        if self.echo_limit.allows(now) { Ok(()) } else { Err(Counter::NetDropEchoRateLimited) }
    }

    /// Replies to an echo request in its frame, without options and padding. `ethertype`, `header`
    /// and `reply` are those of the reply.
    fn echo<P: Port, A: Address, const H: usize>(
        &self,
        mut frame: P::Frame,
        datagram: &Datagram<A>,
        (ethertype, header, reply): (u16, [u8; H], u8),
        wire: &mut Wire<P>,
    ) -> Outcome<P::Frame> {
        let span = usize::from(datagram.l4_offset)..usize::from(datagram.l4_end);
        let (l4_at, l4_bytes) = (self.link.header_bytes() + H, span.len());
        // A priority tag of the request is omitted and no tag is added, so the reply is not longer
        // than the request.
        frame.bytes_mut().copy_within(span, l4_at);
        frame.resize(l4_at + l4_bytes);
        let packet = self.link.write(frame.bytes_mut(), datagram.remote_mac, ethertype).unwrap_or_default();
        if let Some((front, message)) = packet.split_first_chunk_mut::<H>() {
            *front = header;
            write_reply_type(message, reply);
        }
        self.send_reply(true, frame, Counter::NetEchoRepliesSent, wire)
    }
}

/// Changes the type of a message and updates its checksum (RFC 1624 s3). The exchange of the
/// addresses in the pseudo-header of IPv6 does not change the sum.
fn write_reply_type(message: &mut [u8], reply: u8) {
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
