//! What the core loop does with a connection: transmit, acknowledge, close, ask.

use ironwarp_net::{IcmpError, Path};
use ironwarp_port::{Port, Wire};
use ironwarp_types::{Flow, Nanos};

use super::Tcp;
use crate::conn::{Conn, KeepAliveTimer, State, TcpTimeouts};
use crate::events::{TcpEvents, Transmitted};
use crate::ids::{ConnId, ListenerId};
use crate::output::{AckQueue, TcpIo};
use crate::stream::UnitSource;

impl<P: Port> Tcp<P> {
    /// Sends up to `segments_max` segments of a connection: first what must go again, then units pulled from `source`
    /// while both windows take a whole one, last a FIN that is due.
    #[inline]
    pub fn transmit(
        &mut self,
        now: Nanos,
        id: ConnId,
        source: &mut impl UnitSource,
        wire: &mut Wire<P>,
        segments_max: usize,
    ) -> Transmitted {
        match self.conn_and_io(id, now, wire) {
            Some((conn, mut io)) => conn.transmit(&mut io, source, segments_max),
            None => Transmitted::default(),
        }
    }

    /// Sends the ACKs that have been owed for a whole iteration and that no payload carried, and those that may not
    /// wait. Once an iteration.
    pub fn flush_acks(&mut self, now: Nanos, wire: &mut Wire<P>) {
        if self.shared.acks.is_empty() {
            return;
        }
        AckQueue::flush(
            self,
            |tcp| &mut tcp.shared.acks,
            |tcp, slot, round| {
                let conn = tcp.slots.get_mut(slot as usize).and_then(|slot| slot.conn.as_mut());
                conn.is_some_and(|conn| {
                    let mut io = TcpIo::for_path(&conn.path, now, wire, &mut tcp.shared);
                    conn.send_due_acks(&mut io, round)
                })
            },
        );
    }

    /// Lets time pass: what must be sent again is, and what happened to connections is told to `events`.
    pub fn on_timers(&mut self, now: Nanos, wire: &mut Wire<P>, events: &mut impl FnMut(ConnId, TcpEvents)) {
        TcpIo { now, wire, shared: &mut self.shared }.ensure_terminate_reserve();
        while let Some(at) = self.shared.wheel.pop_expired(now) {
            self.on_timer(now, at, wire, events);
        }
        let base = self.shared.config.connections_max;
        self.time_wait.expire(now, &mut self.flows, base);
    }

    /// Whether fewer frames are kept for the last units of sources than there should be, since the pool had none:
    /// [`Tcp::on_timers`] tries again.
    pub fn needs_terminate_reserve(&self) -> bool {
        self.shared.needs_terminate_reserve()
    }

    #[cold]
    fn on_timer(
        &mut self,
        now: Nanos,
        at: u32,
        wire: &mut Wire<P>,
        events: &mut impl FnMut(ConnId, TcpEvents),
    ) {
        let Some(id) = self.id_of(at) else { return };
        let Some((conn, mut io)) = self.conn_and_io(id, now, wire) else { return };
        let before = conn.state;
        let happened = conn.on_timer(&mut io);
        self.on_state_change(at, before, now);
        if !happened.is_empty() {
            events(id, happened);
        }
    }

    /// When to call [`Tcp::on_timers`] next, if time alone can make a difference. May be early by a lazily moved timer.
    ///
    /// Owed ACKs are not counted: they leave with the next [`Tcp::flush_acks`], see [`Tcp::has_pending_acks`].
    pub fn next_deadline(&self) -> Option<Nanos> {
        let timers = self.shared.wheel.next_deadline().unwrap_or(Nanos::MAX);
        let next = timers.min(self.time_wait.next_deadline().unwrap_or(Nanos::MAX));
        (next != Nanos::MAX).then_some(next)
    }

    /// Whether an ACK waits for the next iteration: the loop must not sleep before it.
    pub fn has_pending_acks(&self) -> bool {
        !self.shared.acks.is_empty()
    }

    /// Closes our direction: the FIN follows everything pulled so far, and nothing more is pulled. Answers CLOSED when the
    /// connection is over at once, which is so before the peer has answered; otherwise that event follows.
    pub fn close(&mut self, now: Nanos, id: ConnId, wire: &mut Wire<P>) -> TcpEvents {
        let Some((conn, mut io)) = self.conn_and_io(id, now, wire) else { return TcpEvents::empty() };
        let before = conn.state;
        conn.close(&mut io);
        let over = conn.state == State::Closed && before != State::Closed;
        self.on_state_change(id.slot, before, now);
        if over { TcpEvents::CLOSED } else { TcpEvents::empty() }
    }

    /// Ends a connection at once with a reset. No event follows.
    pub fn abort(&mut self, now: Nanos, id: ConnId, wire: &mut Wire<P>) {
        let Some((conn, mut io)) = self.conn_and_io(id, now, wire) else { return };
        let before = conn.state;
        conn.abort(&mut io);
        self.on_state_change(id.slot, before, now);
    }

    /// Gives the connection's place back. One that is not over is forgotten without a word to the peer, whose next
    /// segment meets a reset.
    pub fn release(&mut self, id: ConnId) {
        let Some(conn) = self.conn(id) else { return };
        if conn.state == State::SynReceived && conn.cold.listener.is_some() {
            self.half_open = self.half_open.saturating_sub(1);
        }
        self.unlink(id.slot);
        self.free_slot(id.slot);
    }

    /// Sets how long the connection waits for a silent peer, from now on.
    pub fn set_timeouts(&mut self, id: ConnId, timeouts: TcpTimeouts) {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation);
        let Some(conn) = slot.and_then(|slot| slot.conn.as_mut()) else { return };
        conn.cold.user_timeout = timeouts.user_timeout;
        conn.cold.keep_alive = KeepAliveTimer::new(timeouts.keep_alive);
        if conn.state.is_live() {
            self.shared.wheel.arm(id.slot, conn.deadline());
        }
    }

    /// Lends the paths of the connections at up to `slots_max` places from `from` on, each with the MTU that its connection
    /// keeps to, so that their neighbours can be looked up again. Answers where to go on, and nothing at the end.
    pub fn update_paths(
        &mut self,
        from: u32,
        slots_max: u32,
        mut update: impl FnMut(&mut Path, u16),
    ) -> Option<u32> {
        let end = from.saturating_add(slots_max);
        let slots = self.slots.get_mut(from as usize..).unwrap_or_default();
        for conn in slots.iter_mut().take(slots_max as usize).filter_map(|slot| slot.conn.as_mut()) {
            let mtu_bytes = conn.mtu_bytes();
            update(&mut conn.path, mtu_bytes);
        }
        ((end as usize) < self.slots.len()).then_some(end)
    }

    /// Whether the connection that an ICMP error is about keeps to the limit that it reports.
    pub fn is_mtu_at_most(&self, error: &IcmpError, mtu_bytes: u16) -> bool {
        let slot = self.find(error.hash, &error.flow).and_then(|at| self.slots.get(at as usize));
        slot.and_then(|slot| slot.conn.as_ref()).is_some_and(|conn| conn.mtu_bytes() <= mtu_bytes)
    }

    /// Whether [`Tcp::transmit`] has something to send whatever the source holds: a unit again, the rest of one, a FIN.
    #[inline]
    pub fn wants_transmit(&self, id: ConnId) -> bool {
        self.conn(id).is_some_and(Conn::wants_transmit)
    }

    /// Payload bytes of ours that the peer has acknowledged since the connection began.
    #[inline]
    pub fn acked_bytes(&self, id: ConnId) -> u64 {
        self.conn(id).map_or(0, |conn| conn.snd.acked_bytes)
    }

    /// The largest unit, in bytes: the effective maximum segment size. At least 144.
    pub fn emss(&self, id: ConnId) -> usize {
        self.conn(id).map_or(0, |conn| usize::from(conn.snd.emss))
    }

    /// Whether everything pulled so far is acknowledged.
    pub fn all_acked(&self, id: ConnId) -> bool {
        self.conn(id).is_none_or(|conn| conn.snd.payload_acked())
    }

    /// Both ends, while the id is valid.
    pub fn flow(&self, id: ConnId) -> Option<Flow> {
        self.conn(id).map(|conn| conn.flow)
    }

    /// The listener that the connection came from, when the peer opened it.
    pub fn listener(&self, id: ConnId) -> Option<ListenerId> {
        self.conn(id).and_then(|conn| conn.cold.listener)
    }

    /// The state; CLOSED for a stale id and for a connection whose TIME-WAIT goes on without it.
    pub fn state(&self, id: ConnId) -> State {
        self.conn(id).map_or(State::Closed, |conn| conn.state)
    }
}
