//! ICMP: echo requests are answered in the frame that brought them, errors are reported.
//!
//! Source: RFC 792 "Echo", RFC 1122 s3.2.2.6. The reply carries the request's data and type of service; options of
//! the request do not come back (source routes, the one kind that would have to, are refused before).

use ironwarp_port::{Frame, Port, TxMeta, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;
use smoltcp::wire::{Icmpv4Message, Icmpv4Packet, IpProtocol, Ipv4Packet};

use super::{Datagram, icmp_error};
use crate::checksum;
use crate::net::Net;
use crate::path::{ETHERNET_BYTES, HEADER_BYTES, Station, emit_headers};
use crate::received::IcmpError;

/// Type, code, checksum, and a word that depends on the type.
const ICMP_BYTES_MIN: usize = 8;

impl Net {
    #[cold]
    pub(super) fn on_icmp<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        datagram: Datagram,
        wire: &mut Wire<P>,
    ) -> Option<IcmpError> {
        match self.icmp_report(now, frame.bytes(), &datagram) {
            Ok(Some(error)) => return Some(error),
            Ok(None) => self.answer_echo(frame, &datagram, wire),
            Err(reason) => self.stats.count(reason),
        }
        None
    }

    /// The error that a message reports, or nothing for an echo request; both within their rates.
    fn icmp_report(
        &mut self,
        now: Nanos,
        frame: &[u8],
        datagram: &Datagram,
    ) -> Result<Option<IcmpError>, Counter> {
        let span = usize::from(datagram.l4_offset)..usize::from(datagram.l4_end);
        let message = frame.get(span).unwrap_or_default();
        let [kind, code, ..] = *message.first_chunk::<ICMP_BYTES_MIN>().ok_or(Counter::NetDropIcmpShort)?;
        if icmp_error::is_error(kind) && !self.icmp_errors.allows(now) {
            return Err(Counter::NetDropIcmpRate);
        }
        if checksum::fold(checksum::sum(message)) != checksum::RIGHT {
            return Err(Counter::NetDropIcmpChecksum);
        }
        match (Icmpv4Message::from(kind), code) {
            (Icmpv4Message::EchoRequest, 0) if self.echo.allows(now) => Ok(None),
            (Icmpv4Message::EchoRequest, 0) => Err(Counter::NetDropEchoRate),
            _ => self.icmp_error(message).map(Some),
        }
    }

    fn answer_echo<P: Port>(&self, mut frame: P::Frame, datagram: &Datagram, wire: &mut Wire<P>) {
        self.turn_into_reply(&mut frame, datagram);
        let sent = wire.push(frame.seal(TxMeta::default()));
        self.stats.count(if sent { Counter::NetEchoAnswered } else { Counter::NetDropReplyRing });
    }

    /// Addresses turned round, options and padding gone, type changed and the checksum with it.
    fn turn_into_reply<F: Frame>(&self, frame: &mut F, datagram: &Datagram) {
        let span = usize::from(datagram.l4_offset)..usize::from(datagram.l4_end);
        let l4_bytes = span.len();
        frame.bytes_mut().copy_within(span, HEADER_BYTES);
        frame.resize(HEADER_BYTES + l4_bytes);
        let Some((header, message)) = frame.bytes_mut().split_first_chunk_mut::<HEADER_BYTES>() else {
            return;
        };
        let theirs = Station { mac: datagram.remote_mac, addr: datagram.source };
        emit_headers(header, self.ours, theirs, IpProtocol::Icmp, l4_bytes);
        let mut ip = Ipv4Packet::new_unchecked(&mut header[ETHERNET_BYTES..]);
        ip.set_dscp(datagram.traffic_class >> 2);
        ip.fill_checksum();
        let mut echo = Icmpv4Packet::new_unchecked(message);
        let sum = checksum::update(echo.checksum(), u16::from_be_bytes([8, 0]), 0);
        echo.set_msg_type(Icmpv4Message::EchoReply);
        echo.set_checksum(sum);
    }
}
