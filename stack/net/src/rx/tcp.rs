//! The way from a packet to a TCP segment: length, checksum, flow.
//!
//! Source: RFC 9293 s3.1 (data offset, checksum with pseudo-header).

use core::net::SocketAddr;

use ironwarp_port::{Checksum, Frame};
use ironwarp_stats::Counter;
use ironwarp_types::{Ecn, Flow};

use super::Datagram;
use crate::checksum;
use crate::family::Address;
use crate::ip;
use crate::net::Net;
use crate::received::Received;
use crate::segment::TcpSegment;

const TCP_BYTES_MIN: usize = 20;

/// Both ports of a segment that holds: the remote one, and ours.
struct Ports {
    remote: u16,
    local: u16,
}

impl Net {
    #[inline]
    pub(super) fn on_tcp<F: Frame, A: Address>(
        &self,
        frame: F,
        datagram: Datagram<A>,
    ) -> Option<Received<F>> {
        match self.tcp_ports(&frame, &datagram) {
            Ok(ports) => Some(Received::Segment(self.tcp_segment(frame, &datagram, ports))),
            Err(reason) => self.drop_tcp(reason),
        }
    }

    /// The ports of a segment whose length, data offset and checksum hold.
    #[inline]
    fn tcp_ports<F: Frame, A: Address>(&self, frame: &F, datagram: &Datagram<A>) -> Result<Ports, Counter> {
        let span = usize::from(datagram.l4_offset)..usize::from(datagram.l4_end);
        let segment = frame.bytes().get(span).ok_or(Counter::NetDropTcpHeader)?;
        let header = segment.first_chunk::<TCP_BYTES_MIN>().ok_or(Counter::NetDropTcpHeader)?;
        let [r0, r1, l0, l1, .., offset, _, _, _, _, _, _, _] = *header;
        let header_bytes = usize::from(offset >> 4) * 4;
        if header_bytes < TCP_BYTES_MIN || header_bytes > segment.len() {
            return Err(Counter::NetDropTcpHeader);
        }
        let right = match frame.rx().l4_checksum {
            Checksum::Good => true,
            Checksum::Bad => false,
            Checksum::Unknown => tcp_sum_is_right(segment, datagram),
        };
        if !right {
            return Err(Counter::NetDropTcpChecksum);
        }
        Ok(Ports { remote: u16::from_be_bytes([r0, r1]), local: u16::from_be_bytes([l0, l1]) })
    }

    #[inline]
    fn tcp_segment<F: Frame, A: Address>(
        &self,
        frame: F,
        datagram: &Datagram<A>,
        ports: Ports,
    ) -> TcpSegment<F> {
        TcpSegment {
            hash: A::hash(&self.hasher, (datagram.local, ports.local), (datagram.remote, ports.remote)),
            flow: Flow {
                local: SocketAddr::new(datagram.local.into(), ports.local),
                remote: SocketAddr::new(datagram.remote.into(), ports.remote),
            },
            l4_offset: datagram.l4_offset,
            l4_end: datagram.l4_end,
            remote_mac: datagram.remote_mac,
            ecn: Ecn::from_bits(datagram.traffic_class),
            frame,
        }
    }

    #[cold]
    fn drop_tcp<F>(&self, reason: Counter) -> Option<Received<F>> {
        self.stats.count(reason);
        None
    }
}

fn tcp_sum_is_right<A: Address>(segment: &[u8], datagram: &Datagram<A>) -> bool {
    let addresses = datagram.local.sum() + datagram.remote.sum();
    let pseudo = addresses + u32::from(ip::TCP) + segment.len() as u32;
    checksum::fold(pseudo + checksum::sum(segment)) == checksum::RIGHT
}
