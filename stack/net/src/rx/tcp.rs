//! From a datagram to a TCP segment: length, checksum and flow.
//!
//! Source: RFC 9293 s3.1 (data offset, checksum with pseudo-header).

use core::net::SocketAddr;

use ironwarp_port::Frame;
use ironwarp_stats::Counter;
use ironwarp_types::{Ecn, Flow};

use super::Datagram;
use crate::checksum;
use crate::family::Address;
use crate::ip;
use crate::net::Net;
use crate::received::Received;
use crate::segment::TcpSegment;
use crate::tcp_header::TCP_HEADER_BYTES;

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
        match tcp_ports(&frame, &datagram) {
            Ok(ports) => Some(Received::Segment(self.tcp_segment(frame, &datagram, ports))),
            Err(reason) => self.drop_tcp(reason),
        }
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

/// Returns the ports of a segment with valid length, data offset and checksum.
#[inline]
fn tcp_ports<F: Frame, A: Address>(frame: &F, datagram: &Datagram<A>) -> Result<Ports, Counter> {
    let segment = datagram.payload(frame.bytes()).ok_or(Counter::NetDropTcpHeader)?;
    let header = segment.first_chunk::<TCP_HEADER_BYTES>().ok_or(Counter::NetDropTcpHeader)?;
    let [r0, r1, l0, l1, .., offset, _, _, _, _, _, _, _] = *header;
    let header_bytes = usize::from(offset >> 4) * 4;
    if header_bytes < TCP_HEADER_BYTES || header_bytes > segment.len() {
        return Err(Counter::NetDropTcpHeader);
    }
    if !checksum::is_correct(frame.rx().l4_checksum, || tcp_sum(segment, datagram)) {
        return Err(Counter::NetDropTcpChecksum);
    }
    Ok(Ports { remote: u16::from_be_bytes([r0, r1]), local: u16::from_be_bytes([l0, l1]) })
}

fn tcp_sum<A: Address>(segment: &[u8], datagram: &Datagram<A>) -> u32 {
    let addresses = datagram.local.sum() + datagram.remote.sum();
    addresses + u32::from(ip::TCP) + segment.len() as u32 + checksum::sum(segment)
}
