//! Demultiplexing of arriving segments: to a connection, to TIME-WAIT, to a listener, or to none of
//! them.

use core::convert::Infallible;

use ironwarp_llp::{Arrival, Lent, PayloadReader};
use ironwarp_net::{Packet, Path};
use ironwarp_port::{Port, Wires};
use ironwarp_stats::Counter;
use ironwarp_types::{Flow, Nanos};

use super::Tcp;
use super::fast::LentBytes;
use crate::header::{Flags, Segment};
use crate::output::TcpIo;
use crate::{ConnId, TcpEvents};

impl<P: Port> Tcp<P> {
    /// Processes a segment from `net`. Returns the connection and its events, if there are any.
    ///
    /// `path` returns the route back to the sender. It is called only to answer a segment without a
    /// connection, or to open one.
    pub fn on_segment(
        &mut self,
        now: Nanos,
        arrived: Packet<P::Frame>,
        path: impl FnOnce() -> Path,
        wires: &mut Wires<P>,
    ) -> Option<(ConnId, TcpEvents)> {
        match self.on_segment_lending(now, arrived, path, wires, |_: Lent<'_, LentBytes<P::Frame>>| {
            None::<Infallible>
        })? {
            Arrival::Events(conn, events) => (!events.is_empty()).then_some((conn, events)),
        }
    }

    /// [`Tcp::on_segment`] that lends the payload of a fast segment to `reader`, as
    /// [`Tcp::on_fast_frame`] does.
    #[inline]
    pub fn on_segment_lending<R>(
        &mut self,
        now: Nanos,
        arrived: Packet<P::Frame>,
        path: impl FnOnce() -> Path,
        wires: &mut Wires<P>,
        reader: impl PayloadReader<LentBytes<P::Frame>, R>,
    ) -> Option<Arrival<R>> {
        self.shared.stats.count(Counter::TcpRxSegments);
        let Some(segment) = Segment::parse(&arrived) else {
            self.shared.stats.count(Counter::TcpDropBadHeader);
            return None;
        };
        match self.find(arrived.hash, &arrived.flow) {
            Some(at) if at < self.shared.config.connections_max => {
                self.on_connection_segment(now, at, (segment, arrived), wires, reader)
            }
            Some(at) => {
                self.on_segment_in_time_wait(now, at, &segment, &arrived, path(), wires);
                None
            }
            None => self.on_unknown_flow(now, (segment, arrived), path, wires, reader),
        }
    }

    /// No connection and no TIME-WAIT entry, or a stale one.
    #[cold]
    fn on_unknown_flow<R>(
        &mut self,
        now: Nanos,
        (segment, arrived): (Segment, Packet<P::Frame>),
        path: impl FnOnce() -> Path,
        wires: &mut Wires<P>,
        reader: impl PayloadReader<LentBytes<P::Frame>, R>,
    ) -> Option<Arrival<R>> {
        let path = path();
        match self.accept_syn_cookie(now, &segment, &arrived, &path) {
            Some(at) => return self.on_connection_segment(now, at?, (segment, arrived), wires, reader),
            None => self.on_no_connection(now, &segment, &arrived, path, wires),
        }
        None
    }

    /// Returns the flow table's value: the slot of a connection, or an entry of the TIME-WAIT
    /// table after the slots.
    #[inline]
    pub(super) fn find(&self, hash: u32, flow: &Flow) -> Option<u32> {
        self.flows.lookup(hash, |at| match self.slots.get(at as usize) {
            Some(slot) => {
                slot.conn.as_ref().is_some_and(|conn| conn.ports == flow.ports() && conn.flow().same_as(flow))
            }
            None => self.time_wait.flow(at - self.shared.config.connections_max) == Some(flow),
        })
    }

    // Tuning: inlined into the receive path of the core loop. Called, it copies its arguments, 50
    // instructions a segment.
    #[inline(always)]
    fn on_connection_segment<R>(
        &mut self,
        now: Nanos,
        at: u32,
        (segment, arrived): (Segment, Packet<P::Frame>),
        wires: &mut Wires<P>,
        mut reader: impl PayloadReader<LentBytes<P::Frame>, R>,
    ) -> Option<Arrival<R>> {
        let slot = self.slots.get_mut(at as usize)?;
        let conn = slot.conn.as_mut()?;
        let id = ConnId { slot: at, generation: slot.generation };
        let before = conn.state;
        let mut io = TcpIo::for_path(&conn.path, now, wires, &mut self.shared);
        let mut events = TcpEvents::empty();
        let read = if io.shared.config.fast_path && conn.is_fast(&segment) {
            conn.on_fast_segment(&mut io, id, &segment, arrived.frame, &mut events, &mut reader)
        } else {
            conn.on_general_segment(&mut io, segment, arrived, &mut events);
            None
        };
        if conn.state != before {
            self.on_state_change(at, before, now);
        }
        match read {
            Some(read) => Some(Arrival::Delivered(read)),
            None => (!events.is_empty()).then_some(Arrival::Events(id, events)),
        }
    }

    #[cold]
    fn on_segment_in_time_wait(
        &mut self,
        now: Nanos,
        at: u32,
        segment: &Segment,
        arrived: &Packet<P::Frame>,
        path: Path,
        wires: &mut Wires<P>,
    ) {
        self.shared.stats.count(Counter::TcpRxTimeWait);
        let base = self.shared.config.connections_max;
        let wanted = self.listeners.find(arrived.flow.local).is_some();
        let iss_is_free = !self.is_half_open_full();
        if wanted && self.time_wait.may_reuse_for_syn(at - base, segment, iss_is_free) {
            self.reused_snd_nxt = self.time_wait.remove(at - base, &mut self.flows, base);
            self.on_no_connection(now, segment, arrived, path, wires);
            self.reused_snd_nxt = None;
            return;
        }
        let answer = self.time_wait.on_segment(at - base, now, segment);
        let mut io = TcpIo::for_path(&path, now, wires, &mut self.shared);
        if let Some(header) = answer
            && io.may_reply()
        {
            io.send_control(&path, arrived.flow.ports(), header, &[]);
        }
    }

    /// RFC 9293 s3.10.7.1 and s3.10.7.2: no connection. A SYN for a listener opens one; any other
    /// segment but a reset is answered with a reset.
    #[cold]
    fn on_no_connection(
        &mut self,
        now: Nanos,
        segment: &Segment,
        arrived: &Packet<P::Frame>,
        path: Path,
        wires: &mut Wires<P>,
    ) {
        if !segment.has(Flags::RST | Flags::ACK)
            && segment.has(Flags::SYN)
            && let Some(listener) = self.listeners.find(arrived.flow.local)
        {
            return self.open_passively(now, listener, segment, arrived, path, wires);
        }
        self.shared.stats.count(Counter::TcpDropNoConnection);
        let mut io = TcpIo::for_path(&path, now, wires, &mut self.shared);
        if !segment.has(Flags::RST) && io.may_reply() {
            let ack = segment.has(Flags::ACK).then_some(segment.ack);
            io.send_reset(&path, arrived.flow.ports(), (ack, segment.seq.plus(segment.seq_len())));
        }
    }
}
