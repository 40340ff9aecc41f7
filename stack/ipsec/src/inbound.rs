//! Packets that we receive: demultiplexing, replay check, tag, headers, policy.
//!
//! Source: RFC 4301 s5.2, RFC 4303 s3.4, RFC 3948 s2 and s3.2. Takes an IP packet and opens it in
//! place. The order is: association, replay check, integrity check value, replay window, padding,
//! inner headers, policy. Nothing behind the ESP header is read before its integrity check value is
//! right. Each step drops with a counter of its own and changes no state before the window.

use core::ops::Range;

use ironwarp_crypto::{ESP_HEADER_BYTES, HEADROOM_BYTES};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::association::{Association, Mode, Opening};
use crate::ip::{self, Header};
use crate::policy::{Action, SelectorValues};
use crate::{Ipsec, TRAILER_BYTES, UDP_BYTES};

/// What becomes of a packet that we received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inbound {
    /// It came in clear and may.
    Clear,
    /// It was protected; here is the IP packet.
    Opened(Range<usize>),
    /// It has a message of IKE, here (RFC 3948 s2.2).
    Ike(Range<usize>),
    /// It is dropped; this counter counted it.
    Dropped(Counter),
}

/// What is in a UDP datagram at our port, or in an IP packet.
enum Demultiplexed {
    Clear,
    Ike(Range<usize>),
    Esp { at: usize, in_udp: bool },
}

impl Ipsec {
    /// Applies associations and policies to an IP packet.
    pub fn inbound(&mut self, now: Nanos, packet: &mut [u8]) -> Inbound {
        match self.try_inbound(now, packet) {
            Ok(Inbound::Opened(range)) => {
                self.count(Counter::IpsecRxOpened);
                Inbound::Opened(range)
            }
            Ok(other) => other,
            Err(counter) => {
                self.count(counter);
                Inbound::Dropped(counter)
            }
        }
    }

    fn try_inbound(&mut self, now: Nanos, packet: &mut [u8]) -> Result<Inbound, Counter> {
        let header = Header::parse(packet).ok_or(Counter::IpsecDropMalformed)?;
        // RFC 4303 s3.4.1: no fragment of ESP. In clear the ports would be missing, and this stack
        // drops fragments anyway.
        if header.is_fragment {
            return Err(Counter::IpsecDropFragment);
        }
        match self.demultiplex(&header, packet)? {
            // RFC 4301 s4.4.1: a policy lets IKE pass, as other packets in clear.
            Demultiplexed::Ike(range) => {
                self.check_clear(&header, packet)?;
                self.count(Counter::IpsecRxIke);
                Ok(Inbound::Ike(range))
            }
            Demultiplexed::Clear => {
                self.check_clear(&header, packet)?;
                self.count(Counter::IpsecRxBypassed);
                Ok(Inbound::Clear)
            }
            Demultiplexed::Esp { at, in_udp } => {
                let range = self.open(now, &header, at, in_udp, packet)?;
                Ok(Inbound::Opened(range))
            }
        }
    }

    fn demultiplex(&self, header: &Header, packet: &[u8]) -> Result<Demultiplexed, Counter> {
        let start = header.payload.start;
        if header.protocol == ip::ESP {
            return Ok(Demultiplexed::Esp { at: start, in_udp: false });
        }
        let ports = header.ports(packet).ok_or(Counter::IpsecDropMalformed)?;
        let is_ours = ports.is_some_and(|(_, target)| Some(target) == self.config.udp_port);
        if header.protocol != ip::UDP || !is_ours {
            return Ok(Demultiplexed::Clear);
        }
        let udp = packet.get(header.payload.clone()).ok_or(Counter::IpsecDropMalformed)?;
        let &[_, _, _, _, l0, l1, _, _] = udp.first_chunk().ok_or(Counter::IpsecDropMalformed)?;
        let is_whole = usize::from(u16::from_be_bytes([l0, l1])) == udp.len();
        let datagram = udp.get(UDP_BYTES..).filter(|_| is_whole).ok_or(Counter::IpsecDropMalformed)?;
        let at = start + UDP_BYTES;
        match datagram {
            // RFC 3948 s2.3.
            [0xff] => Err(Counter::IpsecRxKeepalives),
            [0, 0, 0, 0, ..] => Ok(Demultiplexed::Ike(at + 4..header.payload.end)),
            // RFC 3948 s3.2: the checksum is not looked at, since ESP has its own.
            _ => Ok(Demultiplexed::Esp { at, in_udp: true }),
        }
    }

    /// RFC 4301 s5.2, step 3b: what should have been protected does not pass in clear.
    fn check_clear(&self, header: &Header, packet: &[u8]) -> Result<(), Counter> {
        let values = SelectorValues::inbound(header, packet).ok_or(Counter::IpsecDropMalformed)?;
        match self.policies.action(&values) {
            Action::Bypass => Ok(()),
            Action::Protect { .. } => Err(Counter::IpsecDropClear),
            Action::Discard => Err(Counter::IpsecDropPolicy),
        }
    }

    fn open(
        &mut self,
        now: Nanos,
        outer: &Header,
        at: usize,
        in_udp: bool,
        packet: &mut [u8],
    ) -> Result<Range<usize>, Counter> {
        let esp = packet.get(at..outer.payload.end).ok_or(Counter::IpsecDropMalformed)?;
        let &[s0, s1, s2, s3, n0, n1, n2, n3] =
            esp.first_chunk::<ESP_HEADER_BYTES>().ok_or(Counter::IpsecDropMalformed)?;
        let spi = u32::from_be_bytes([s0, s1, s2, s3]);
        let association = self.inbound.find(spi, outer.target);
        let association = association
            .filter(|one| one.is_alive(now) && one.endpoints.encapsulation.is_some() == in_udp)
            .ok_or(Counter::IpsecDropNoAssociation)?;
        let low = u32::from_be_bytes([n0, n1, n2, n3]);
        let (text, next_header) = association.authenticate(now, low, at, outer.payload.end, packet)?;
        if next_header == ip::NO_NEXT_HEADER {
            return Err(Counter::IpsecRxDummies);
        }
        let range = match association.mode {
            Mode::Transport => join_transport(outer, text, next_header, packet),
            Mode::Tunnel => inner_packet(outer, text, next_header, packet)?,
        };
        let range = range.ok_or(Counter::IpsecDropInner)?;
        let inner = packet.get(range.clone()).ok_or(Counter::IpsecDropInner)?;
        let header = Header::parse(inner).ok_or(Counter::IpsecDropInner)?;
        if header.is_fragment {
            return Err(Counter::IpsecDropInnerFragment);
        }
        // RFC 4301 s5.2, steps 4 and 5: an association delivers what its selectors and its policies
        // select, and nothing else.
        let values = SelectorValues::inbound(&header, inner).ok_or(Counter::IpsecDropInner)?;
        match self.policies.action(&values) {
            Action::Protect { reqid } if reqid == association.reqid && association.selects(&values) => {
                Ok(range)
            }
            _ => Err(Counter::IpsecDropPolicy),
        }
    }
}

impl Association<Opening> {
    /// Checks and opens an ESP packet at `at..end`. Returns where its text is, without padding and
    /// trailer, and the next header.
    fn authenticate(
        &mut self,
        now: Nanos,
        low: u32,
        at: usize,
        end: usize,
        packet: &mut [u8],
    ) -> Result<(Range<usize>, u8), Counter> {
        let sequence = self.key.window.check(low).ok_or(Counter::IpsecDropReplay)?;
        let start = at - HEADROOM_BYTES;
        let esp = packet.get_mut(start..end).ok_or(Counter::IpsecDropMalformed)?;
        let text = self.key.key.open((sequence >> 32) as u32, esp).map_err(|_| Counter::IpsecDropIcv)?;
        self.key.window.accept(sequence);
        self.count(now, text.len());
        let opened = esp.get(text.clone()).ok_or(Counter::IpsecDropPadding)?;
        let Some((front, &[pad, next_header])) = opened.split_last_chunk::<TRAILER_BYTES>() else {
            return Err(Counter::IpsecDropPadding);
        };
        let bytes = front.len().checked_sub(pad.into()).ok_or(Counter::IpsecDropPadding)?;
        // RFC 4303 s2.4: the receiver should inspect the padding.
        let padding = front.get(bytes..).ok_or(Counter::IpsecDropPadding)?;
        if !padding.iter().zip(1..=u8::MAX).all(|(found, expected)| *found == expected) {
            return Err(Counter::IpsecDropPadding);
        }
        let text_at = start + text.start;
        Ok((text_at..text_at + bytes, next_header))
    }
}

/// Moves the IP headers next to the payload. The headers are those of the arrived packet, and the
/// payload's protocol is the next header of ESP.
fn join_transport(
    outer: &Header,
    text: Range<usize>,
    next_header: u8,
    packet: &mut [u8],
) -> Option<Range<usize>> {
    let headers_bytes = outer.payload.start;
    let start = text.start.checked_sub(headers_bytes)?;
    packet.copy_within(..headers_bytes, start);
    outer.rewrite(packet.get_mut(start..text.start)?, next_header, text.len())?;
    Some(start..text.end)
}

/// Returns the packet in a tunnel, without what pads it for confidentiality of the traffic flow
/// (RFC 4303 s2.7), with the congestion that the outer header saw.
fn inner_packet(
    outer: &Header,
    text: Range<usize>,
    next_header: u8,
    packet: &mut [u8],
) -> Result<Option<Range<usize>>, Counter> {
    let Some(inner) = packet.get_mut(text.clone()) else { return Ok(None) };
    let Some(header) = Header::parse(inner) else { return Ok(None) };
    if next_header != if header.source.is_ipv4() { ip::IPV4 } else { ip::IPV6 } {
        return Ok(None);
    }
    ip::decapsulate_ecn(inner, outer.traffic_class).ok_or(Counter::IpsecDropEcn)?;
    Ok(Some(text.start..text.start + header.payload.end))
}
