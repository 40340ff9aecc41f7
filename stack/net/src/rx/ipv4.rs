//! Parses the IPv4 header.
//!
//! Source: RFC 791 s3.1, RFC 1122 s3.2.1. The time to live of a received packet is not checked
//! (RFC 1122 s3.2.1.7). Unknown options are skipped (s3.2.1.8). Packets with source routes are
//! dropped, as RFC 7126 s4.3 and s4.4 advise, because they let a sender choose the route of the
//! reply.

use core::net::Ipv4Addr;

use ironwarp_port::Checksum;
use ironwarp_stats::Counter;

use super::Datagram;
use super::link::LinkHeader;
use crate::checksum;
use crate::ip::IPV4_BYTES;
use crate::net::Net;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_LOOSE_SOURCE_ROUTE: u8 = 131;
const OPTION_STRICT_SOURCE_ROUTE: u8 = 137;

impl Net {
    /// Returns the packet in a frame, or the first reason to drop it. `verdict` is the device's on
    /// the header checksum.
    #[inline(always)]
    pub(super) fn parse_ipv4(
        &self,
        frame: &[u8],
        verdict: Checksum,
        link: &LinkHeader,
    ) -> Result<Datagram<Ipv4Addr>, Counter> {
        let packet = frame.get(link.l2_bytes..).ok_or(Counter::NetDropShort)?;
        let fixed = packet.first_chunk::<IPV4_BYTES>().ok_or(Counter::NetDropShort)?;
        let [v, tos, n0, n1, _, _, f0, f1, _, protocol, _, _, a0, a1, a2, a3, b0, b1, b2, b3] = *fixed;
        // RFC 1122 s3.2.1.1: the version is checked first.
        if v >> 4 != 4 {
            return Err(Counter::NetDropIpVersion);
        }
        let header = packet.get(..usize::from(v & 0x0f) * 4).ok_or(Counter::NetDropIpHeader)?;
        let options = header.get(IPV4_BYTES..).ok_or(Counter::NetDropIpHeader)?;
        let total = usize::from(u16::from_be_bytes([n0, n1]));
        if total < header.len() || total > packet.len() {
            return Err(Counter::NetDropIpLength);
        }
        // RFC 1122 s3.2.1.2: a wrong header checksum drops the packet without a reply.
        let sum_options = || if options.is_empty() { 0 } else { checksum::sum(options) };
        if !checksum::is_correct(verdict, || checksum::sum_header(fixed) + sum_options()) {
            return Err(Counter::NetDropIpChecksum);
        }
        let (remote, local) = (Ipv4Addr::new(a0, a1, a2, a3), Ipv4Addr::new(b0, b1, b2, b3));
        self.check_addresses_v4(remote, local, link)?;
        if !options.is_empty() {
            check_options(options)?;
        }
        // "More fragments", or an offset.
        if u16::from_be_bytes([f0, f1]) & 0x3fff != 0 {
            return Err(Counter::NetDropIpFragment);
        }
        let offset = |at: usize| u16::try_from(link.l2_bytes + at).map_err(|_| Counter::NetDropIpLength);
        Ok(Datagram {
            remote_mac: link.remote_mac,
            local,
            remote,
            l4_offset: offset(header.len())?,
            l4_end: offset(total)?,
            traffic_class: tos,
            protocol,
        })
    }

    /// RFC 1122 s3.2.1.3: the destination is local, the source is unicast, and it is local only in
    /// the loopback.
    #[inline(always)]
    fn check_addresses_v4(
        &self,
        remote: Ipv4Addr,
        local: Ipv4Addr,
        link: &LinkHeader,
    ) -> Result<(), Counter> {
        if !self.local.has_v4(local) {
            return Err(Counter::NetDropIpNotOurs);
        }
        // RFC 1122 s3.3.6: a link broadcast must be a network broadcast too.
        if link.is_group {
            return Err(Counter::NetDropIpBroadcastFrame);
        }
        if self.local.has_v4(remote) != link.is_loopback || !self.local.is_unicast_v4(remote) {
            return Err(Counter::NetDropIpSource);
        }
        Ok(())
    }
}

/// Checks that the lengths of the options are valid and that there is no source route.
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

/// Returns the bytes after an option of kind, length and data. The length includes all three, so it
/// is at least 2.
fn skip_option(options: &[u8]) -> Result<&[u8], Counter> {
    match options {
        [_, bytes, ..] if *bytes >= 2 => options.get(usize::from(*bytes)..).ok_or(Counter::NetDropIpOptions),
        _ => Err(Counter::NetDropIpOptions),
    }
}
