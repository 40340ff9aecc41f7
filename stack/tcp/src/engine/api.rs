//! The calls of the core loop on a connection: transmit, acknowledge, close and queries.

use ironwarp_llp::UnitSource;
use ironwarp_port::{Port, Wires};
use ironwarp_types::{Flow, Nanos};

use super::Tcp;
use crate::conn::{Conn, KeepAliveTimer, State};
use crate::output::{AckQueue, TcpIo};
use crate::{ConnId, ListenerId, TcpEvents, TcpTimeouts, Transmitted};

impl<P: Port> Tcp<P> {
    /// Returns the number of connections, without those in TIME-WAIT.
    #[inline]
    pub fn connections(&self) -> u32 {
        // A slot is in the free list once.
        self.slots.len().wrapping_sub(self.free.len()) as u32
    }

    /// Sends up to `segments_max` segments of a connection. The order is: retransmissions, units
    /// pulled from `source` while both windows take a whole one, a due FIN.
    #[inline]
    pub fn transmit(
        &mut self,
        now: Nanos,
        id: ConnId,
        source: &mut impl UnitSource,
        wires: &mut Wires<P>,
        segments_max: usize,
    ) -> Transmitted {
        match self.conn_and_io(id, now, wires) {
            Some((conn, mut io)) => conn.transmit(&mut io, source, segments_max),
            None => Transmitted::default(),
        }
    }

    /// Sends the ACKs that have been pending for a whole iteration without payload to carry them,
    /// and those that must not wait. Call once per iteration.
    pub fn flush_acks(&mut self, now: Nanos, wires: &mut Wires<P>) {
        if self.shared.acks.is_empty() {
            return;
        }
        AckQueue::flush(
            self,
            |tcp| &mut tcp.shared.acks,
            |tcp, slot, round| {
                let conn = tcp.slots.get_mut(slot as usize).and_then(|slot| slot.conn.as_mut());
                conn.is_some_and(|conn| {
                    if conn.may_wait_for_reply(round) {
                        return conn.ack.pending;
                    }
                    let mut io = TcpIo::for_path(&conn.path, now, wires, &mut tcp.shared);
                    conn.send_due_acks(&mut io, round)
                })
            },
        );
    }

    /// Runs the expired timers: retransmits, and reports events of connections to `events`.
    pub fn on_timers(
        &mut self,
        now: Nanos,
        wires: &mut Wires<P>,
        events: &mut impl FnMut(ConnId, TcpEvents),
    ) {
        TcpIo { now, wire: wires.first_mut(), shared: &mut self.shared }.ensure_terminate_reserve();
        while let Some(at) = self.shared.wheel.pop_expired(now) {
            if let Some(slot) =
                self.shared.wheel.next_in_slot().and_then(|next| self.slots.get(next as usize))
            {
                ironwarp_arch::prefetch_read_all(slot);
            }
            self.on_timer(now, at, wires, events);
        }
        self.relieve_shortages(now, wires, events);
        let base = self.shared.config.connections_max;
        self.time_wait.expire(now, &mut self.flows, base);
    }

    #[cold]
    fn on_timer(
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

    /// Returns when to call [`Tcp::on_timers`] next. May be early, since timers are re-armed
    /// lazily.
    ///
    /// Pending ACKs are not included: they leave with the next [`Tcp::flush_acks`], see
    /// [`Tcp::has_pending_acks`].
    pub fn next_deadline(&self) -> Option<Nanos> {
        let timers = self.shared.wheel.next_deadline().unwrap_or(Nanos::MAX);
        let next = timers.min(self.time_wait.next_deadline().unwrap_or(Nanos::MAX));
        (next != Nanos::MAX).then_some(next)
    }

    /// Returns whether an ACK waits for the next iteration. The loop must not sleep before it.
    pub fn has_pending_acks(&self) -> bool {
        !self.shared.acks.is_empty()
    }

    /// Closes our direction. The FIN follows everything pulled so far, and nothing more is pulled.
    /// Returns CLOSED when the connection ends at once, which happens before the peer has answered;
    /// otherwise that event follows.
    pub fn close(&mut self, now: Nanos, id: ConnId, wires: &mut Wires<P>) -> TcpEvents {
        let Some((conn, mut io)) = self.conn_and_io(id, now, wires) else { return TcpEvents::empty() };
        let before = conn.state;
        conn.close(&mut io);
        let over = conn.state == State::Closed && before != State::Closed;
        self.on_state_change(id.slot, before, now);
        if over { TcpEvents::CLOSED } else { TcpEvents::empty() }
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

    /// Releases the connection's slot. A connection that has not ended is removed silently; the
    /// peer's next segment is answered with a reset.
    pub fn release(&mut self, id: ConnId) {
        let Some(conn) = self.conn(id) else { return };
        if conn.state == State::SynReceived && conn.cold.listener.is_some() {
            self.half_open = self.half_open.saturating_sub(1);
        }
        self.unlink(id.slot);
        self.free_slot(id.slot);
    }

    /// Sets the connection's timeouts from now on.
    pub fn set_timeouts(&mut self, id: ConnId, timeouts: TcpTimeouts) {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation);
        let Some(conn) = slot.and_then(|slot| slot.conn.as_mut()) else { return };
        conn.cold.user_timeout = timeouts.user_timeout;
        conn.cold.zero_window_timeout = timeouts.zero_window_timeout;
        conn.cold.keep_alive = KeepAliveTimer::new(timeouts.keep_alive);
        if conn.state.is_live() {
            self.shared.wheel.arm(id.slot, conn.deadline());
        }
    }

    /// Returns whether [`Tcp::transmit`] has something to send even with an empty source: a
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

    /// Returns both endpoints while the id is valid.
    pub fn flow(&self, id: ConnId) -> Option<Flow> {
        self.conn(id).map(Conn::flow)
    }

    /// Returns the listener of a connection that the peer opened.
    pub fn listener(&self, id: ConnId) -> Option<ListenerId> {
        self.conn(id).and_then(|conn| conn.cold.listener)
    }

    /// Returns the state. CLOSED for a stale id and for a connection whose TIME-WAIT continues
    /// without it.
    pub fn state(&self, id: ConnId) -> State {
        self.conn(id).map_or(State::Closed, |conn| conn.state)
    }
}
