//! Packets that we send: policy, association, headers, padding, seal.
//!
//! Source: RFC 4301 s5.1, RFC 4303 s3.3, RFC 3948 s3. Takes an IP packet, which is not changed, and
//! a second buffer. The payload is read once, by the cipher.

use core::net::IpAddr;

use ironwarp_arch::checksum;
use ironwarp_crypto::{HEADROOM_BYTES, SealError, SealingKey};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::association::{Association, Mode, UdpEncapsulation};
use crate::ip::{self, Header};
use crate::policy::{Action, SelectorValues};
use crate::{Ipsec, TRAILER_BYTES};

/// What becomes of a packet that we send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outbound {
    /// It is sent as it is.
    Clear,
    /// So many bytes of the second buffer are sent in its place.
    Sealed(usize),
    /// It is not sent; this counter counted it.
    Dropped(Counter),
}

/// Pad bytes are 1, 2, 3 and so on (RFC 4303 s2.4). CBC needs up to 15.
const PAD: [u8; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

impl Ipsec {
    /// Applies the policies to an IP packet. If it is protected, writes what is sent into `out`.
    pub fn outbound(&mut self, now: Nanos, packet: &[u8], out: &mut [u8]) -> Outbound {
        match self.try_outbound(now, packet, out) {
            Ok(None) => Outbound::Clear,
            Ok(Some(bytes)) => {
                self.count(Counter::IpsecTxSealed);
                Outbound::Sealed(bytes)
            }
            Err(counter) => {
                self.count(counter);
                Outbound::Dropped(counter)
            }
        }
    }

    fn try_outbound(&mut self, now: Nanos, packet: &[u8], out: &mut [u8]) -> Result<Option<usize>, Counter> {
        let header = Header::parse(packet).ok_or(Counter::IpsecDropTxMalformed)?;
        // Selectors need the ports, which later fragments lack (RFC 4301 s7), and RFC 4303 s3.3.4
        // applies transport mode to whole packets only. This stack sends no fragments.
        if header.is_fragment {
            return Err(Counter::IpsecDropTxMalformed);
        }
        let values = SelectorValues::outbound(&header, packet).ok_or(Counter::IpsecDropTxMalformed)?;
        let reqid = match self.policies.action(&values) {
            Action::Bypass => {
                self.count(Counter::IpsecTxBypassed);
                return Ok(None);
            }
            Action::Discard => return Err(Counter::IpsecDropTxPolicy),
            Action::Protect { reqid } => reqid,
        };
        let Some(association) = self.outbound.newest(now, reqid, &values) else {
            self.acquire(now, reqid, &values);
            return Err(Counter::IpsecDropTxNoAssociation);
        };
        let packet = packet.get(..header.payload.end).ok_or(Counter::IpsecDropTxMalformed)?;
        association.seal(now, &header, packet, out).map(Some)
    }

    /// Writes a dummy packet of an association into `out`, with `text_bytes` of nothing (RFC 4303
    /// s2.6). Returns its bytes. The peer drops it.
    pub fn dummy(
        &mut self,
        now: Nanos,
        spi: u32,
        target: IpAddr,
        text_bytes: usize,
        out: &mut [u8],
    ) -> Outbound {
        const ZEROS: [u8; 1024] = [0; 1024];
        let sealed = (|| {
            let association = self.outbound.find(spi, target).filter(|one| one.is_alive(now));
            let association = association.ok_or(Counter::IpsecDropTxNoAssociation)?;
            let text = ZEROS.get(..text_bytes).ok_or(Counter::IpsecDropTxMalformed)?;
            // An outer header between the association's addresses, in either mode.
            let ends = association.ends();
            let write =
                |headers: &mut [u8], protocol, bytes| ip::write_outer(headers, ends, protocol, 0, bytes);
            association.seal_behind(now, ip::outer_bytes(ends.0), text, ip::NO_NEXT_HEADER, out, write)
        })();
        match sealed {
            Ok(bytes) => {
                self.count(Counter::IpsecTxDummies);
                Outbound::Sealed(bytes)
            }
            Err(counter) => {
                self.count(counter);
                Outbound::Dropped(counter)
            }
        }
    }
}

impl Association<SealingKey> {
    fn ends(&self) -> (IpAddr, IpAddr) {
        (self.endpoints.source, self.endpoints.target)
    }

    fn seal(&mut self, now: Nanos, header: &Header, packet: &[u8], out: &mut [u8]) -> Result<usize, Counter> {
        match self.mode {
            Mode::Transport => {
                let (headers, payload) =
                    packet.split_at_checked(header.payload.start).ok_or(Counter::IpsecDropTxMalformed)?;
                self.seal_behind(
                    now,
                    headers.len(),
                    payload,
                    header.protocol,
                    out,
                    |place, protocol, bytes| {
                        place.copy_from_slice(headers);
                        header.rewrite(place, protocol, bytes)
                    },
                )
            }
            Mode::Tunnel => {
                let next_header = if header.source.is_ipv4() { ip::IPV4 } else { ip::IPV6 };
                let ends = self.ends();
                self.seal_behind(
                    now,
                    ip::outer_bytes(ends.0),
                    packet,
                    next_header,
                    out,
                    |place, protocol, bytes| {
                        ip::write_outer(place, ends, protocol, header.traffic_class, bytes)
                    },
                )
            }
        }
    }

    /// Seals `text` behind `headers_bytes` of IP headers, which `write` fills in: it takes their
    /// place, the protocol that follows, and the bytes behind them.
    fn seal_behind(
        &mut self,
        now: Nanos,
        headers_bytes: usize,
        text: &[u8],
        next_header: u8,
        out: &mut [u8],
        write: impl FnOnce(&mut [u8], u8, usize) -> Option<()>,
    ) -> Result<usize, Counter> {
        let (trailer, trailer_bytes) = trailer(text.len(), self.suite.text_multiple_bytes(), next_header);
        let trailer = trailer.get(..trailer_bytes).ok_or(Counter::IpsecDropTxMalformed)?;
        let payload_bytes = self.header_bytes() + text.len() + trailer.len() + self.suite.icv_bytes();
        let total = headers_bytes + payload_bytes;
        let out = out.get_mut(..total).ok_or(Counter::IpsecDropTxTooBig)?;
        let encapsulation = self.endpoints.encapsulation;
        let protocol = if encapsulation.is_some() { ip::UDP } else { ip::ESP };
        let (headers, _) = out.split_at_mut(headers_bytes);
        // Ahead of the seal: a packet that is too long uses no sequence number.
        write(headers, protocol, payload_bytes).ok_or(Counter::IpsecDropTxTooBig)?;
        let esp_at = headers_bytes + self.udp_bytes();
        let esp = out.get_mut(esp_at - HEADROOM_BYTES..).ok_or(Counter::IpsecDropTxTooBig)?;
        match self.key.seal(text, trailer, esp) {
            Ok(()) => self.count(now, text.len() + trailer.len()),
            Err(SealError::SequenceEnded) => {
                self.end();
                return Err(Counter::IpsecDropTxSequence);
            }
            Err(SealError::Length) => return Err(Counter::IpsecDropTxMalformed),
        }
        if let Some(ports) = encapsulation {
            let udp = out.get_mut(headers_bytes..).ok_or(Counter::IpsecDropTxMalformed)?;
            write_udp(udp, ports, self.ends()).ok_or(Counter::IpsecDropTxTooBig)?;
        }
        Ok(total)
    }
}

/// RFC 4303 s2.4 to s2.6: padding up to the multiple, its length, the next header. Returns the
/// trailer and its bytes.
fn trailer(text_bytes: usize, multiple: usize, next_header: u8) -> ([u8; PAD.len() + TRAILER_BYTES], usize) {
    let length = (text_bytes + TRAILER_BYTES).next_multiple_of(multiple) - text_bytes;
    let pad = length - TRAILER_BYTES;
    let mut trailer = [0; PAD.len() + TRAILER_BYTES];
    trailer.iter_mut().zip(PAD).take(pad).for_each(|(place, byte)| *place = byte);
    trailer.iter_mut().skip(pad).zip([pad as u8, next_header]).for_each(|(place, byte)| *place = byte);
    (trailer, length)
}

/// RFC 3948 s2.1: with IPv4 the checksum is zero. IPv6 requires one (RFC 8200 s8.1).
fn write_udp(udp: &mut [u8], ports: UdpEncapsulation, ends: (IpAddr, IpAddr)) -> Option<()> {
    let [l0, l1] = u16::try_from(udp.len()).ok()?.to_be_bytes();
    let ([s0, s1], [t0, t1]) = (ports.source_port.to_be_bytes(), ports.target_port.to_be_bytes());
    *udp.first_chunk_mut()? = [s0, s1, t0, t1, l0, l1, 0, 0];
    if let (IpAddr::V6(source), IpAddr::V6(target)) = ends {
        let addresses = checksum::sum(&source.octets()) + checksum::sum(&target.octets());
        let sum = addresses + udp.len() as u32 + u32::from(ip::UDP) + checksum::sum(udp);
        // A sum of zero is sent as all ones.
        let sum = match !checksum::fold(sum) {
            0 => u16::MAX,
            sum => sum,
        };
        udp.get_mut(6..8)?.copy_from_slice(&sum.to_be_bytes());
    }
    Some(())
}
