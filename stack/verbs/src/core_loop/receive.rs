//! The receive stage: frames in, placements, deliveries and answers out.
//!
//! A frame goes through net (headers, checksums), TCP (order) and, when its connection has whole FPDUs, through the
//! queue pair's stream, which checks, places and delivers them. What TCP reports about a connection is handled
//! here, in the order in which a connection's life has it.

use super::cores::Steered;
use super::qp::Phase;
use super::*;
use ironwarp_net::{IcmpError, IcmpErrorKind, Received};
use ironwarp_tcp::ByteStream;

use crate::event::Event;

impl<P: Port, C: Clock> CoreLoop<P, C> {
    pub(super) fn receive(&mut self, now: Nanos, bursts: usize) {
        for port in 0..self.wire.devices() {
            self.wire.select(port);
            self.receive_from(now, port, bursts);
        }
    }

    /// From one port. What a frame leads to may select another.
    #[inline(always)]
    fn receive_from(&mut self, now: Nanos, port: u8, bursts: usize) {
        if self.wire.has_own() {
            self.receive_loopback(now, port);
        }
        for _ in 0..bursts.max(1) {
            let Some(mut burst) = self.rx_burst.take() else { return };
            self.wire.select(port);
            self.wire.rx_burst(&mut burst);
            let frames = burst.len();
            if frames > 0 {
                self.work += frames;
                for frame in burst.drain(..) {
                    self.on_frame(now, port, frame);
                }
            }
            self.rx_burst = Some(burst);
            if frames == 0 {
                return;
            }
        }
    }

    /// One burst of what connections to ourselves have sent.
    #[cold]
    fn receive_loopback(&mut self, now: Nanos, port: u8) {
        let Some(mut burst) = self.rx_burst.take() else { return };
        self.wire.rx_own(&mut burst);
        self.work += burst.len();
        for frame in burst.drain(..) {
            self.wire.select(port);
            if let Some(received) = self.nets.at_mut::<P>(port).on_own_frame(now, frame, &mut self.wire) {
                self.on_received(now, received);
            }
        }
        self.rx_burst = Some(burst);
    }

    #[inline]
    fn on_frame(&mut self, now: Nanos, port: u8, frame: P::Frame) {
        self.wire.select(port);
        if let Some(received) = self.nets.at_mut::<P>(port).on_frame(now, frame, &mut self.wire) {
            self.on_received(now, received);
        }
    }

    #[inline]
    pub(super) fn on_received(&mut self, now: Nanos, received: Received<P::Frame>) {
        let segment = match received {
            Received::Segment(segment) => segment,
            Received::IcmpError(error) => return self.steer_icmp_error(now, error),
            Received::ForLeader(frame) => return self.steer_to_leader(frame),
        };
        if let Some(other_cores) = &mut self.other_cores
            && let Some(to) = other_cores.other_core_of(&segment.flow, segment.hash)
        {
            return other_cores.steer(to, Steered::Segment(self.wire.selected(), segment), &self.stats);
        }
        let (net, wire) = (self.nets.at::<P>(self.wire.selected()), &mut self.wire);
        let (flow, mac) = (segment.flow, segment.remote_mac);
        let path = || net.path_to(&flow, mac);
        if let Some((conn, events)) = self.tcp.on_segment(now, segment, path, wire) {
            self.on_tcp_events(now, conn, events);
        }
    }

    /// Somebody on the way reports. What TCP believes of the path's MTU holds for later connections too.
    #[cold]
    pub(super) fn on_icmp_error(&mut self, now: Nanos, error: &IcmpError) {
        let port = self.wire.selected();
        if let Some((conn, events)) = self.tcp.on_icmp_error(now, error, &mut self.wire) {
            self.on_tcp_events(now, conn, events);
        }
        if let IcmpErrorKind::TooBig { mtu_bytes } = error.kind
            && self.tcp.is_mtu_at_most(error, mtu_bytes)
        {
            self.wire.select(port);
            self.net().lower_path_mtu(now, error.flow.remote.ip(), mtu_bytes);
        }
    }

    /// Passes on what TCP found out about a connection.
    pub(super) fn on_tcp_events(&mut self, now: Nanos, conn: ConnId, events: TcpEvents) {
        match self.owner(conn) {
            ConnOwner::Qp(slot) => self.on_qp_events(now, slot, conn, events),
            ConnOwner::Passive(slot) => self.on_passive_events(now, slot, conn, events),
            ConnOwner::Unowned if events.contains(TcpEvents::ESTABLISHED) => {
                self.on_incoming_connection(now, conn, events)
            }
            ConnOwner::Unowned => self.on_orphan_events(conn, events),
        }
    }

    /// A connection that nobody waits for any more: it only has to end.
    #[cold]
    fn on_orphan_events(&mut self, conn: ConnId, events: TcpEvents) {
        if events.contains(TcpEvents::READABLE) {
            self.tcp.rx(conn).consume(usize::MAX);
        }
        if events.intersects(TcpEvents::ENDED) {
            self.tcp.release(conn);
        }
    }

    fn on_qp_events(&mut self, now: Nanos, slot: u32, conn: ConnId, events: TcpEvents) {
        if events.contains(TcpEvents::ESTABLISHED) {
            self.on_tcp_established(slot);
        }
        if events.contains(TcpEvents::ACKED) {
            self.on_acked(now, slot, conn);
        }
        if events.contains(TcpEvents::READABLE) {
            self.on_readable(now, slot, conn);
        }
        if events.intersects(TcpEvents::WRITABLE | TcpEvents::RETRANSMIT) {
            self.enqueue_tx(TxSource::Qp(slot));
        }
        if events.intersects(TcpEvents::ENDED | TcpEvents::PEER_CLOSED | TcpEvents::OUT_OF_ORDER) {
            self.on_rare_qp_events(now, slot, conn, events);
        }
    }

    #[cold]
    #[inline(never)]
    fn on_rare_qp_events(&mut self, now: Nanos, slot: u32, conn: ConnId, events: TcpEvents) {
        if events.contains(TcpEvents::OUT_OF_ORDER) && self.owns_conn(slot, conn) {
            self.on_out_of_order(slot, conn);
        }
        self.on_qp_closing(now, slot, conn, events);
    }

    /// The peer's FIN, or TCP's end. What arrived before it in the same segment may have ended the connection already,
    /// or put another in its place: that one has nothing to do with this end.
    #[cold]
    pub(super) fn on_qp_closing(&mut self, now: Nanos, slot: u32, conn: ConnId, events: TcpEvents) {
        if self.defer_close(slot, conn, events) {
            return;
        }
        if events.contains(TcpEvents::PEER_CLOSED) && self.owns_conn(slot, conn) {
            self.on_peer_closed(now, slot, conn);
        }
        if !events.intersects(TcpEvents::ENDED) {
            return;
        }
        if self.owns_conn(slot, conn) {
            self.on_tcp_closed(now, slot, conn, events);
        } else {
            self.tcp.release(conn);
        }
    }

    /// Whether a connection is still the queue pair's.
    fn owns_conn(&mut self, slot: u32, conn: ConnId) -> bool {
        self.qps.at(slot).is_some_and(|qp| qp.conn == Some(conn))
    }

    /// Bytes beyond a gap, on a connection that asked to hear of them.
    fn on_out_of_order(&mut self, slot: u32, conn: ConnId) {
        let Some(qp) = self.qps.at(slot) else { return };
        if qp.phase.takes_fpdus() {
            let (stream, io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
            stream.on_out_of_order(&self.tcp.rx(conn), &mut self.scratch, &io);
        }
    }

    /// Whole FPDUs are checked, placed and delivered; what is left of one stays with TCP.
    pub(super) fn on_readable(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        let Some(qp) = self.qps.at(slot) else { return };
        if !qp.phase.takes_fpdus() {
            return self.on_non_fpdu_bytes(now, slot, conn);
        }
        qp.rx_since_timer = true;
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        let mut bytes = self.tcp.rx(conn);
        let outcome = stream.on_readable(&mut bytes, &mut self.scratch, &mut io);
        let wants_tx = stream.wants_tx(&mut io);
        let waits = stream.awaits_epoch();
        let rtr_awaited = qp.rtr_awaited;
        let draining = matches!(qp.phase, Phase::Draining);
        if qp.awaits_first_message && (outcome.is_ok() || !rtr_awaited) {
            self.on_first_message(slot);
        }
        if waits {
            self.wait_for_memory(slot);
        }
        if rtr_awaited && outcome.is_ok() {
            self.on_rtr(slot);
        }
        if let Err(end) = outcome {
            return self.on_stream_end(now, slot, end);
        }
        if wants_tx {
            self.enqueue_tx(TxSource::Qp(slot));
        }
        if draining || rtr_awaited {
            self.close_if_drained(now, slot);
        }
    }

    /// Bytes of a connection that carries no FPDUs, or not yet.
    #[cold]
    #[inline(never)]
    fn on_non_fpdu_bytes(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        if let Some(Phase::Setup(_)) = self.qps.at(slot).map(|qp| &qp.phase) {
            self.on_startup_bytes(now, slot, conn);
        }
        let Some(qp) = self.qps.at(slot) else { return };
        match qp.phase {
            // FPDUs came right behind the start-up frame.
            Phase::Running | Phase::Draining | Phase::HalfClosed => self.on_readable(now, slot, conn),
            // What arrives behind the end is acknowledged and discarded: a reset would destroy our Terminate.
            Phase::Terminating | Phase::Closing | Phase::Ended => {
                let mut bytes = self.tcp.rx(conn);
                bytes.consume(usize::MAX);
            }
            Phase::Idle | Phase::Setup(_) => {}
        }
    }

    /// TCP has more of ours acknowledged: requests complete, and a window may have opened.
    fn on_acked(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        let acked = self.tcp.acked_bytes(conn);
        let Some(qp) = self.qps.at(slot) else { return };
        let draining = matches!(qp.phase, Phase::Draining);
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        stream.on_acked(acked, &mut io);
        let waits = stream.awaits_epoch();
        if stream.wants_tx(&mut io) || self.tcp.wants_transmit(conn) {
            self.enqueue_tx(TxSource::Qp(slot));
        }
        if waits {
            self.wait_for_memory(slot);
        }
        if draining {
            self.close_if_drained(now, slot);
        }
    }

    /// The accepting side has heard the peer: both are in full operation.
    #[cold]
    fn on_first_message(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        if qp.stream.may_send() {
            qp.awaits_first_message = false;
            let (context, event) = (qp.context, Event::CommunicationEstablished { qp: qp.handle });
            self.send_event(context, event);
        }
    }
}
