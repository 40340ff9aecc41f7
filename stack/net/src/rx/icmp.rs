//! ICMP: echo requests are answered in the frame that brought them.
//!
//! Source: RFC 792 "Echo", RFC 1122 s3.2.2.6. The reply carries the request's data and type of service; options of
//! the request do not come back (source routes, the one kind that would have to, are refused before).

use ironwarp_port::{Frame, Port, TxMeta, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;
use smoltcp::wire::{Icmpv4Message, Icmpv4Packet, IpProtocol, Ipv4Packet};

use super::Datagram;
use crate::checksum;
use crate::net::Net;
use crate::path::{ETHERNET_BYTES, HEADER_BYTES, Station, emit_headers};

/// Type, code, checksum, identifier, sequence number.
const ECHO_BYTES_MIN: usize = 8;

impl Net {
    #[cold]
    pub(super) fn on_icmp<P: Port>(
        &mut self,
        now: Nanos,
        mut frame: P::Frame,
        datagram: Datagram,
        wire: &mut Wire<P>,
    ) {
        if let Err(reason) = self.may_answer_echo(now, frame.bytes(), &datagram) {
            return self.stats.count(reason);
        }
        self.turn_into_reply(&mut frame, &datagram);
        let sent = wire.push(frame.seal(TxMeta::default()));
        self.stats.count(if sent { Counter::NetEchoAnswered } else { Counter::NetDropReplyRing });
    }

    /// Whether the message is an echo request that holds, within the rate.
    fn may_answer_echo(&mut self, now: Nanos, frame: &[u8], datagram: &Datagram) -> Result<(), Counter> {
        let span = usize::from(datagram.l4_offset)..usize::from(datagram.l4_end);
        let message = frame.get(span).unwrap_or_default();
        if message.len() < ECHO_BYTES_MIN {
            return Err(Counter::NetDropIcmpShort);
        }
        if checksum::fold(checksum::sum(message)) != checksum::RIGHT {
            return Err(Counter::NetDropIcmpChecksum);
        }
        let view = Icmpv4Packet::new_unchecked(message);
        if view.msg_type() != Icmpv4Message::EchoRequest || view.msg_code() != 0 {
            return Err(Counter::NetDropIcmpOther);
        }
        if self.echo.allows(now) { Ok(()) } else { Err(Counter::NetDropEchoRate) }
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
