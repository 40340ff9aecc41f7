//! Received packets: to an association, chunk by chunk.

use core::net::IpAddr;
use core::ops::ControlFlow;

use ironwarp_llp::Events;
use ironwarp_net::{Packet, Path};
use ironwarp_port::{Port, Wires};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::{Sctp, encapsulated};
use crate::association::State;
use crate::inbound::Carrier;
use crate::message::UpperLayer;
use crate::output::{Io, Replies, Route};
use crate::packet::{
    CauseCode, Chunk, ChunkType, Chunks, DATA_HEADER_BYTES, Data, PacketError, PacketView, RawChunk, Sack,
};

impl<P: Port> Sctp<P> {
    /// Processes a packet from `net`, and reports to the layer above. A message is
    /// offered in its frame.
    ///
    /// `path` returns the route back to the sender. It is called only to answer a packet without an
    /// association, or to open one.
    pub fn on_packet(
        &mut self,
        now: Nanos,
        arrived: Packet<P::Frame>,
        path: impl FnOnce() -> Path,
        wires: &mut Wires<P>,
        user: &mut impl UpperLayer,
    ) {
        self.shared.count(Counter::SctpRxPackets);
        let view = match PacketView::parse(arrived.l4()) {
            Ok(view) => view,
            Err(PacketError::Checksum) => return self.shared.count(Counter::SctpDropChecksum),
            Err(PacketError::Short | PacketError::PortZero) => {
                return self.shared.count(Counter::SctpDropBadHeader);
            }
        };
        let mut rest = view.chunks();
        let Some(first) = rest.next() else { return self.shared.count(Counter::SctpDropBadHeader) };
        let udp_port = arrived.udp_port;
        let path = || encapsulated(path(), udp_port);
        if view.tag == 0 {
            // RFC 9260 s8.5.1 A: only an INIT, and nothing else.
            if first.kind != ChunkType::INIT || !rest.rest().is_empty() {
                return self.shared.count(Counter::SctpDropTag);
            }
            return self.on_init(now, first, &arrived, path, wires);
        }
        let found = match first.kind {
            ChunkType::INIT_ACK => self.owner_of_init_ack(view.tag, first, &arrived),
            _ => self.find_tagged(arrived.hash, &arrived.flow, view.tag),
        };
        match (first.kind, found) {
            (ChunkType::COOKIE_ECHO, _) => {
                let known = self.on_cookie_echo(now, (first, view.tag), &arrived, path, wires, user);
                if let Some((slot, replies)) = known {
                    let carrier = self.on_chunks(now, slot, (view.tag, rest), replies, &arrived, wires, user);
                    self.shared.held.keep(carrier, arrived.frame);
                }
            }
            (ChunkType::INIT_ACK, Some(slot)) => self.on_init_ack(now, slot, arrived, wires, user),
            (_, Some(slot)) => {
                let (chunks, replies) = ((view.tag, view.chunks()), Replies::default());
                let carrier = self.on_chunks(now, slot, chunks, replies, &arrived, wires, user);
                self.shared.held.keep(carrier, arrived.frame);
            }
            (_, None) => {
                let (path, ports) = (path(), arrived.flow.ports());
                let mut io = Io { now, wires, shared: &mut self.shared };
                Self::on_no_association(view, Route::new(&path, ports, view.tag), &mut io);
            }
        }
    }

    /// Processes chunks in their order, and sends `replies` and what the chunks add to them.
    /// Returns what is held of the packet.
    #[allow(clippy::too_many_arguments, reason = "the packet, its way back and the layer above")]
    fn on_chunks<'a>(
        &mut self,
        now: Nanos,
        slot: u32,
        (tag, mut chunks): (u32, Chunks<'a>),
        mut replies: Replies<'a>,
        arrived: &Packet<P::Frame>,
        wires: &mut Wires<P>,
        user: &mut impl UpperLayer,
    ) -> Carrier {
        let mut carrier = Carrier::new(&arrived.frame);
        let mut has_abort = false;
        let mut at = arrived.l4_end.saturating_sub(chunks.rest().len() as u16);
        while let Some(chunk) = chunks.next() {
            let outcome = match self.on_data_or_sack(
                now,
                slot,
                (tag, chunk, at),
                &mut carrier,
                &mut replies,
                wires,
                user,
            ) {
                Some(outcome) => outcome,
                None => {
                    has_abort |= chunk.kind == ChunkType::ABORT;
                    let from = arrived.flow.remote.ip();
                    self.on_other_chunk(now, slot, (tag, chunk), from, &mut replies, wires, user)
                }
            };
            if outcome.is_break() {
                has_abort |= chunks.any(|chunk| chunk.kind == ChunkType::ABORT);
                chunks = Chunks::default();
            }
            at = arrived.l4_end.saturating_sub(chunks.rest().len() as u16);
        }
        if !chunks.rest().is_empty() {
            self.shared.count(Counter::SctpDropBadChunk);
        }
        let Some((association, mut io)) = self.association_and_io(slot, now, wires) else { return carrier };
        if io.shared.config.udp_local_port != 0 && association.accepts_tag(tag, false) {
            association.paths.set_udp_port(arrived.flow.remote.ip(), arrived.udp_port);
        }
        // RFC 9260 s9.1: a packet with an ABORT is not answered, even if the ABORT does not count.
        if has_abort || association.state == State::Closed || association.state.is_set_up() {
            return carrier;
        }
        let from = association.path_from(arrived.flow.remote.ip());
        if replies.are_any() {
            association.reply(&mut io, replies, from);
        }
        let has_data = association.after_packet(&mut io, from);
        if association.state == State::ShutdownSent {
            association.on_packet_in_shutdown_sent(&mut io, has_data);
        }
        carrier
    }

    /// Processes a DATA chunk or a SACK of an association, which begins at `at` in its frame.
    /// Returns whether the chunks after it count, or `None` for any chunk that is dropped, or of
    /// another type.
    #[allow(clippy::too_many_arguments, reason = "the packet, its way back and the layer above")]
    #[inline(always)]
    fn on_data_or_sack(
        &mut self,
        now: Nanos,
        slot: u32,
        (tag, chunk, at): (u32, RawChunk<'_>, u16),
        carrier: &mut Carrier,
        replies: &mut Replies<'_>,
        wires: &mut Wires<P>,
        user: &mut impl UpperLayer,
    ) -> Option<ControlFlow<()>> {
        let (association, mut io) = self.association_and_io(slot, now, wires)?;
        if !association.accepts_tag(tag, false) {
            return None;
        }
        let handled = match chunk.kind {
            ChunkType::DATA if association.state.may_receive() => {
                let data = Data::parse(chunk.flags, chunk.value)?;
                association.on_data(
                    &mut io,
                    (data, at.saturating_add(DATA_HEADER_BYTES)),
                    carrier,
                    replies,
                    user,
                )
            }
            ChunkType::SACK if association.state.may_send_again() => {
                association.on_sack(&mut io, Sack::parse(chunk.value)?, user)
            }
            _ => return None,
        };
        Some(match handled {
            Ok(()) => ControlFlow::Continue(()),
            Err(cause) => {
                self.abort_for(now, slot, cause, wires, user);
                ControlFlow::Break(())
            }
        })
    }

    /// Processes any other chunk of an association. Returns whether those after it count.
    #[allow(clippy::too_many_arguments, reason = "the packet, its way back and the layer above")]
    #[inline(never)]
    fn on_other_chunk<'a>(
        &mut self,
        now: Nanos,
        slot: u32,
        (tag, chunk): (u32, RawChunk<'a>),
        from: IpAddr,
        replies: &mut Replies<'a>,
        wires: &mut Wires<P>,
        user: &mut impl UpperLayer,
    ) -> ControlFlow<()> {
        let Some((association, mut io)) = self.association_and_io(slot, now, wires) else {
            return ControlFlow::Break(());
        };
        let Some(chunk) = chunk.parse() else {
            io.shared.count(Counter::SctpDropBadChunk);
            return ControlFlow::Break(());
        };
        let (state, reflected) = match chunk {
            Chunk::Abort { reflected, .. } | Chunk::ShutdownComplete { reflected } => {
                (association.state, reflected)
            }
            _ => (association.state, false),
        };
        // RFC 9260 s8.5.1 E and s9.2: the peer ends an older association, and the timer goes on.
        if matches!(chunk, Chunk::ShutdownAck) && state.is_set_up() {
            if io.may_reply() {
                io.send_shutdown_complete(Route { tag, ..association.route() }, true);
            }
            return ControlFlow::Break(());
        }
        if !association.accepts_tag(tag, reflected) {
            io.shared.count(Counter::SctpDropTag);
            return ControlFlow::Break(());
        }
        // So answers a HEARTBEAT who has an address that the peer has listed, and is another host.
        if reflected && !association.is_confirmed(from) {
            association.paths.forget(from);
            association.arm(&mut io);
            io.shared.count(Counter::SctpDropTag);
            return ControlFlow::Break(());
        }
        match (chunk, state) {
            // RFC 9260 s3.3.7: an ABORT with a format error is dropped.
            (Chunk::Abort { causes, .. }, _) if !causes.is_whole() => {
                io.shared.count(Counter::SctpDropBadChunk);
            }
            (Chunk::Abort { .. }, _) => {
                io.shared.count(Counter::SctpRxAborts);
                // The timer sends the INIT again.
                if state == State::CookieWait && association.tries < io.shared.config.refused_retries {
                    return ControlFlow::Break(());
                }
                self.end(slot, if state.is_set_up() { Events::REFUSED } else { Events::RESET }, user);
            }
            (Chunk::CookieAck, State::CookieEchoed) => self.establish(now, slot, wires, user),
            // RFC 9260 s5.2.6, the second alternative.
            (Chunk::Error(causes), State::CookieEchoed) if causes.has_cause(CauseCode::STALE_COOKIE) => {
                self.end(slot, Events::REFUSED, user);
            }
            (Chunk::Error(_), _) => io.shared.count(Counter::SctpRxErrors),
            // RFC 9260 s8.3: the value returns as it is. s5.1 C: nothing is sent in set-up.
            (Chunk::Heartbeat(value), _) if !state.is_set_up() => {
                replies.heartbeat.get_or_insert(value);
            }
            (Chunk::Shutdown { .. }, State::ShutdownSent) => {
                association.enter(State::ShutdownAckSent, &mut io);
                self.report(slot, Events::PEER_CLOSED, user);
            }
            (Chunk::HeartbeatAck(value), _) if state.may_send_again() => {
                association.on_heartbeat_ack(&mut io, value, user);
            }
            // RFC 9260 s9.2. The peer repeats it until our SHUTDOWN ACK arrives.
            (Chunk::Shutdown { cum_tsn_ack }, _) if state.may_send_again() => {
                association.state = State::ShutdownReceived;
                association.on_shutdown(&mut io, cum_tsn_ack, user);
                if association.state == State::ShutdownReceived && association.outbound.is_all_acked() {
                    association.enter(State::ShutdownAckSent, &mut io);
                }
                if state != State::ShutdownReceived {
                    self.report(slot, Events::PEER_CLOSED, user);
                }
            }
            (Chunk::Shutdown { .. }, State::ShutdownAckSent) => replies.shutdown_ack = true,
            (Chunk::ShutdownAck, State::ShutdownSent | State::ShutdownAckSent) => {
                io.send_shutdown_complete(association.route(), false);
                self.end(slot, Events::CLOSED, user);
            }
            (Chunk::ShutdownComplete { .. }, State::ShutdownAckSent) => self.end(slot, Events::CLOSED, user),
            (Chunk::Unrecognized(octets, action), _) => {
                if action.reports {
                    replies.error.get_or_insert((CauseCode::UNRECOGNIZED_CHUNK_TYPE, octets));
                }
                if action.stops {
                    return ControlFlow::Break(());
                }
            }
            _ => io.shared.count(Counter::SctpDropUnexpectedChunk),
        }
        match self.is_live(slot) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }

    /// The peer breaks the protocol: ends the association, and tells the peer why.
    #[cold]
    fn abort_for(
        &mut self,
        now: Nanos,
        slot: u32,
        (cause, value): (CauseCode, [u8; 4]),
        wires: &mut Wires<P>,
        user: &mut impl UpperLayer,
    ) {
        let Some((association, mut io)) = self.association_and_io(slot, now, wires) else { return };
        io.shared.count(Counter::SctpDropBadChunk);
        io.send_abort_with(association.route(), false, Some((cause, &value)));
        self.end(slot, Events::RESET, user);
    }
}
