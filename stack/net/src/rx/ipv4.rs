//! The IPv4 header, check by check.
//!
//! Source: RFC 791 s3.1, RFC 1122 s3.2.1. The time to live of a packet that has arrived is no reason to drop it
//! (RFC 1122 s3.2.1.7). Unknown options are skipped (s3.2.1.8); source routes are refused, as RFC 7126 s4.3 and s4.4
//! advise: what they ask for could only mislead.

use core::net::Ipv4Addr;

use ironwarp_port::Checksum;
use ironwarp_stats::Counter;
use ironwarp_types::MacAddr;
use smoltcp::wire::Ipv4Packet;

use super::Datagram;
use crate::checksum;
use crate::net::Net;
use crate::path::{ETHERNET_BYTES, IPV4_BYTES};

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_LOOSE_SOURCE_ROUTE: u8 = 131;
const OPTION_STRICT_SOURCE_ROUTE: u8 = 137;

impl Net {
    /// The packet in a frame, or the first reason to drop it. `verdict` is the device's on the header checksum.
    pub(super) fn datagram(
        &self,
        frame: &[u8],
        verdict: Checksum,
        broadcast: bool,
    ) -> Result<Datagram, Counter> {
        let (link, packet) = frame.split_first_chunk::<ETHERNET_BYTES>().ok_or(Counter::NetDropShort)?;
        let header = header(packet)?;
        let view = Ipv4Packet::new_unchecked(packet);
        let total = total_bytes(&view, header.len(), packet.len())?;
        check_sum(header, verdict)?;
        self.check_addresses(view.src_addr(), view.dst_addr(), broadcast)?;
        check_options(header.get(IPV4_BYTES..).unwrap_or_default())?;
        if view.more_frags() || view.frag_offset() != 0 {
            return Err(Counter::NetDropIpFragment);
        }
        let [.., s0, s1, s2, s3, s4, s5, _, _] = *link;
        let at = |bytes: usize| u16::try_from(ETHERNET_BYTES + bytes).map_err(|_| Counter::NetDropIpLength);
        Ok(Datagram {
            remote_mac: MacAddr([s0, s1, s2, s3, s4, s5]),
            source: view.src_addr(),
            l4_offset: at(header.len())?,
            l4_end: at(total)?,
            traffic_class: view.dscp() << 2 | view.ecn(),
            protocol: view.next_header().into(),
        })
    }

    /// RFC 1122 s3.2.1.3: to our address, from an address that one station can have, and not ours.
    fn check_addresses(&self, source: Ipv4Addr, to: Ipv4Addr, broadcast: bool) -> Result<(), Counter> {
        if to != self.ours.addr {
            return Err(Counter::NetDropIpNotOurs);
        }
        // RFC 1122 s3.3.6: a broadcast on the link must be one in the network too.
        if broadcast {
            return Err(Counter::NetDropIpBroadcastFrame);
        }
        if source == self.ours.addr || !self.is_unicast(source) {
            return Err(Counter::NetDropIpSource);
        }
        Ok(())
    }
}

/// The header with its options. RFC 1122 s3.2.1.1: another version is dropped first.
fn header(packet: &[u8]) -> Result<&[u8], Counter> {
    let (fixed, _) = packet.split_first_chunk::<IPV4_BYTES>().ok_or(Counter::NetDropShort)?;
    let [version_ihl, ..] = *fixed;
    if version_ihl >> 4 != 4 {
        return Err(Counter::NetDropIpVersion);
    }
    let header_bytes = usize::from(version_ihl & 0x0f) * 4;
    if header_bytes < IPV4_BYTES {
        return Err(Counter::NetDropIpHeader);
    }
    packet.get(..header_bytes).ok_or(Counter::NetDropIpHeader)
}

/// Bytes of the packet: header and payload without link padding.
fn total_bytes(view: &Ipv4Packet<&[u8]>, header_bytes: usize, room: usize) -> Result<usize, Counter> {
    let total = usize::from(view.total_len());
    if total < header_bytes || total > room { Err(Counter::NetDropIpLength) } else { Ok(total) }
}

/// RFC 1122 s3.2.1.2: a wrong header checksum drops the packet silently.
fn check_sum(header: &[u8], verdict: Checksum) -> Result<(), Counter> {
    let right = match verdict {
        Checksum::Good => true,
        Checksum::Bad => false,
        Checksum::Unknown => checksum::fold(checksum::sum(header)) == checksum::RIGHT,
    };
    if right { Ok(()) } else { Err(Counter::NetDropIpChecksum) }
}

/// Walks the options: lengths must hold, and none may ask for a route.
fn check_options(mut options: &[u8]) -> Result<(), Counter> {
    while let [kind, rest @ ..] = options {
        options = match *kind {
            OPTION_END => return Ok(()),
            OPTION_NOP => rest,
            OPTION_LOOSE_SOURCE_ROUTE | OPTION_STRICT_SOURCE_ROUTE => return Err(Counter::NetDropIpOptions),
            _ => skip_option(options)?,
        };
    }
    Ok(())
}

/// What follows an option of kind, length and data. The length counts all three, so it is never below 2.
fn skip_option(options: &[u8]) -> Result<&[u8], Counter> {
    match options {
        [_, bytes, ..] if *bytes >= 2 => options.get(usize::from(*bytes)..).ok_or(Counter::NetDropIpOptions),
        _ => Err(Counter::NetDropIpOptions),
    }
}
