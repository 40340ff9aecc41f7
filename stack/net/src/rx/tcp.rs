//! From a datagram to a TCP segment: length, checksum and flow.
//!
//! Source: RFC 9293 s3.1 (data offset, checksum with pseudo-header).

use core::net::SocketAddr;

use ironwarp_port::Frame;
use ironwarp_stats::Counter;
use ironwarp_types::{Ecn, Flow};

use super::{Datagram, Outcome};
use crate::checksum;
use crate::family::Address;
use crate::ip;
use crate::net::Net;
use crate::received::Received;
use crate::segment::TcpSegment;
use crate::tcp_header::TCP_HEADER_BYTES;

impl Net {
    /// Returns the segment in a packet, if its length, data offset and checksum are valid.
    #[inline]
    pub(super) fn on_tcp<F: Frame, A: Address>(&self, frame: F, datagram: Datagram<A>) -> Outcome<F> {
        let segment = datagram.payload(frame.bytes()).ok_or(Counter::NetDropTcpHeader)?;
        let header = segment.first_chunk::<TCP_HEADER_BYTES>().ok_or(Counter::NetDropTcpHeader)?;
        let [r0, r1, l0, l1, .., offset, _, _, _, _, _, _, _] = *header;
        let header_bytes = usize::from(offset >> 4) * 4;
        if header_bytes < TCP_HEADER_BYTES || header_bytes > segment.len() {
            return Err(Counter::NetDropTcpHeader);
        }
        if !checksum::is_correct(frame.rx().l4_checksum, || tcp_sum(segment, &datagram)) {
            return Err(Counter::NetDropTcpChecksum);
        }
        let (remote, local) = (u16::from_be_bytes([r0, r1]), u16::from_be_bytes([l0, l1]));
        Ok(Some(Received::Segment(TcpSegment {
            hash: A::hash(&self.hasher, (datagram.local, local), (datagram.remote, remote)),
            flow: Flow {
                local: SocketAddr::new(datagram.local.into(), local),
                remote: SocketAddr::new(datagram.remote.into(), remote),
            },
            l4_offset: datagram.l4_offset,
            l4_end: datagram.l4_end,
            remote_mac: datagram.remote_mac,
            ecn: Ecn::from_bits(datagram.traffic_class),
            frame,
        })))
    }
}

#[inline]
fn tcp_sum<A: Address>(segment: &[u8], datagram: &Datagram<A>) -> u32 {
    let addresses = datagram.local.sum() + datagram.remote.sum();
    addresses + u32::from(ip::TCP) + segment.len() as u32 + checksum::sum(segment)
}
