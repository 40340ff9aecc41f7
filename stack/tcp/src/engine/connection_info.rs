//! What an observer sees of a connection.

use ironwarp_port::Port;
use ironwarp_types::{Flow, Nanos};

use super::Tcp;
use crate::conn::{Conn, State};
use crate::ids::ConnId;

/// A connection at a moment, for observers. Reading it changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionInfo {
    /// The connection.
    pub id: ConnId,
    /// Both endpoints.
    pub flow: Flow,
    /// The state.
    pub state: State,
    /// Payload bytes that the peer has acknowledged.
    pub acked_bytes: u64,
    /// Payload bytes received in order, modulo 2^32.
    pub received_bytes: u32,
    /// Segments sent again, SYNs among them.
    pub retransmits: u32,
    /// When the last segment of the peer arrived; before that, when the connection was opened.
    pub last_rx_at: Nanos,
    /// The smoothed round-trip time (RFC 6298 s2); zero before the first sample.
    pub srtt: Nanos,
    /// The retransmission timeout.
    pub rto: Nanos,
    /// The congestion window.
    pub cwnd_bytes: u32,
    /// Sequence numbers sent and not acknowledged.
    pub flight_bytes: u32,
}

impl<P: Port> Tcp<P> {
    /// Returns the number of slots for connections.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns the connection in a slot, if there is one. Touches some cache lines of it.
    pub fn connection_info(&self, slot: u32) -> Option<ConnectionInfo> {
        let conn = self.slots.get(slot as usize)?.conn.as_ref()?;
        Some(conn.info(self.id_of(slot)?))
    }
}

impl Conn {
    fn info(&self, id: ConnId) -> ConnectionInfo {
        let (rcv, snd) = (&self.rcv, &self.snd);
        // RFC 9293 s3.4: SYN and FIN occupy a sequence number each.
        let fin_received = rcv.fin.is_some_and(|fin| fin.lt(rcv.rcv_nxt));
        let first = self.cold.irs.plus(1 + u32::from(fin_received));
        let received_bytes = if self.state == State::SynSent { 0 } else { rcv.rcv_nxt.since(first) };
        ConnectionInfo {
            id,
            flow: self.flow(),
            state: self.state,
            acked_bytes: snd.acked_bytes,
            received_bytes,
            retransmits: self.cold.retransmits,
            last_rx_at: self.last_rx_at,
            srtt: snd.rtt.srtt(),
            rto: snd.rtt.rto(),
            cwnd_bytes: snd.cc.cwnd(),
            flight_bytes: snd.flight(),
        }
    }
}
