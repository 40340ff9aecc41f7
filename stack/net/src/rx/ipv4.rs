//! The IPv4 header, check by check.
//!
//! Source: RFC 791 s3.1, RFC 1122 s3.2.1. The time to live of a packet that has arrived is no reason to drop it
//! (RFC 1122 s3.2.1.7). Unknown options are skipped (s3.2.1.8); source routes are refused, as RFC 7126 s4.3 and s4.4
//! advise: what they ask for could only mislead.

use core::net::Ipv4Addr;

use ironwarp_port::Checksum;
use ironwarp_stats::Counter;
use smoltcp::wire::Ipv4Packet;

use super::Datagram;
use super::link::Arrived;
use crate::checksum;
use crate::ip::IPV4_BYTES;
use crate::net::Net;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_LOOSE_SOURCE_ROUTE: u8 = 131;
const OPTION_STRICT_SOURCE_ROUTE: u8 = 137;

impl Net {
    /// The packet in a frame, or the first reason to drop it. `verdict` is the device's on the header checksum.
    pub(super) fn datagram_v4(
        &self,
        frame: &[u8],
        verdict: Checksum,
        arrived: &Arrived,
    ) -> Result<Datagram<Ipv4Addr>, Counter> {
        let packet = frame.get(arrived.l2_bytes..).ok_or(Counter::NetDropShort)?;
        let header = header(packet)?;
        let view = Ipv4Packet::new_unchecked(packet);
        let total = total_bytes(&view, header.len(), packet.len())?;
        check_sum(header, verdict)?;
        self.check_addresses_v4(view.src_addr(), view.dst_addr(), arrived)?;
        check_options(header.get(IPV4_BYTES..).unwrap_or_default())?;
        if view.more_frags() || view.frag_offset() != 0 {
            return Err(Counter::NetDropIpFragment);
        }
        let at = |bytes: usize| u16::try_from(arrived.l2_bytes + bytes).map_err(|_| Counter::NetDropIpLength);
        Ok(Datagram {
            remote_mac: arrived.remote_mac,
            local: view.dst_addr(),
            remote: view.src_addr(),
            l4_offset: at(header.len())?,
            l4_end: at(total)?,
            traffic_class: view.dscp() << 2 | view.ecn(),
            protocol: view.next_header().into(),
        })
    }

    /// RFC 1122 s3.2.1.3: to an address of ours, from an address that one station can have, and not ours unless we sent it.
    fn check_addresses_v4(&self, source: Ipv4Addr, to: Ipv4Addr, arrived: &Arrived) -> Result<(), Counter> {
        if !self.own.has_v4(to) {
            return Err(Counter::NetDropIpNotOurs);
        }
        // RFC 1122 s3.3.6: a broadcast on the link must be one in the network too.
        if arrived.group {
            return Err(Counter::NetDropIpBroadcastFrame);
        }
        if self.own.has_v4(source) != arrived.own || !self.own.is_unicast_v4(source) {
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
