//! A connection's timer, its aborts and queries.

use ironwarp_port::{Port, Wires};
use ironwarp_types::Nanos;

use super::Tcp;
use crate::conn::{Conn, State};
use crate::{ConnId, TcpEvents};

impl<P: Port> Tcp<P> {
    #[cold]
    pub(super) fn on_timer(
        &mut self,
        now: Nanos,
        at: u32,
        wires: &mut Wires<P>,
        events: &mut impl FnMut(ConnId, TcpEvents),
    ) {
        let Some(id) = self.id_of(at) else { return };
        let Some((conn, mut io)) = self.conn_and_io(id, now, wires) else { return };
        let before = conn.state;
        let happened = conn.on_timer(&mut io);
        self.on_state_change(at, before, now);
        if !happened.is_empty() {
            events(id, happened);
        }
    }

    /// Aborts a connection with a reset. No event follows.
    pub fn abort(&mut self, now: Nanos, id: ConnId, wires: &mut Wires<P>) {
        let Some((conn, mut io)) = self.conn_and_io(id, now, wires) else { return };
        let before = conn.state;
        conn.abort(&mut io);
        self.on_state_change(id.slot, before, now);
    }

    /// Ends a connection with a reset before its user took anything from it, so that nothing needs
    /// an acknowledgement of its own. No event follows.
    pub fn refuse(&mut self, now: Nanos, id: ConnId, wires: &mut Wires<P>) {
        let Some((conn, mut io)) = self.conn_and_io(id, now, wires) else { return };
        let before = conn.state;
        conn.refuse(&mut io);
        self.on_state_change(id.slot, before, now);
    }

    /// Returns whether `transmit` has something to send even with an empty source: a
    /// retransmission, the rest of a unit, or a FIN.
    #[inline]
    pub fn wants_transmit(&self, id: ConnId) -> bool {
        self.conn(id).is_some_and(Conn::wants_transmit)
    }

    /// Returns the payload bytes that the peer has acknowledged since the connection opened.
    #[inline]
    pub fn acked_bytes(&self, id: ConnId) -> u64 {
        self.conn(id).map_or(0, |conn| conn.snd.acked_bytes)
    }

    /// Returns the maximum size of a unit in bytes: the effective maximum segment size. At least
    /// 144.
    pub fn emss(&self, id: ConnId) -> usize {
        self.conn(id).map_or(0, |conn| usize::from(conn.snd.emss))
    }

    /// Returns whether everything pulled so far is acknowledged.
    pub fn all_acked(&self, id: ConnId) -> bool {
        self.conn(id).is_none_or(|conn| conn.snd.payload_acked())
    }

    /// Returns the state. CLOSED for a stale id and for a connection whose TIME-WAIT continues
    /// without it.
    pub fn state(&self, id: ConnId) -> State {
        self.conn(id).map_or(State::Closed, |conn| conn.state)
    }
}
