//! What an observer sees of a connection.

use ironwarp_llp::ConnectionInfo;
use ironwarp_net::TransportProtocol;

use crate::ConnId;
use crate::conn::{Conn, State};

impl Conn {
    pub(super) fn info(&self, id: ConnId) -> ConnectionInfo {
        let (rcv, snd) = (&self.rcv, &self.snd);
        // RFC 9293 s3.4: SYN and FIN occupy a sequence number each.
        let fin_received = rcv.fin.is_some_and(|fin| fin.lt(rcv.rcv_nxt));
        let first = self.cold.irs.plus(1 + u32::from(fin_received));
        let received_bytes = if self.state == State::SynSent { 0 } else { rcv.rcv_nxt.since(first) };
        ConnectionInfo {
            id,
            protocol: TransportProtocol::TCP.number,
            flow: self.flow(),
            acked_bytes: snd.acked_bytes,
            received_bytes,
            retransmits: self.snd.retransmits,
            last_rx_at: self.last_rx_at,
            srtt: snd.rtt.srtt(),
            rto: snd.rtt.rto(),
            cwnd_bytes: snd.cc.cwnd(),
            flight_bytes: snd.flight(),
            paths: 1,
            paths_up: 1,
        }
    }
}
