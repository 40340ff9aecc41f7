//! Received packets: to an association, chunk by chunk.

use core::ops::ControlFlow;

use ironwarp_llp::{ConnId, Events};
use ironwarp_net::{Packet, Path};
use ironwarp_port::{Port, Wires};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::Sctp;
use crate::association::State;
use crate::output::{Io, Replies, Route};
use crate::packet::{CauseCode, Chunk, ChunkType, Chunks, PacketError, PacketView, RawChunk};

impl<P: Port> Sctp<P> {
    /// Processes a packet from `net`, and reports events to `events`.
    ///
    /// `path` returns the route back to the sender. It is called only to answer a packet without an
    /// association, or to open one.
    pub fn on_packet(
        &mut self,
        now: Nanos,
        arrived: Packet<P::Frame>,
        path: impl FnOnce() -> Path,
        wires: &mut Wires<P>,
        events: &mut impl FnMut(ConnId, Events),
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
        let found = self.find(arrived.hash, &arrived.flow);
        if view.tag == 0 {
            // RFC 9260 s8.5.1 A: only an INIT, and nothing else.
            if first.kind != ChunkType::INIT || !rest.rest().is_empty() {
                return self.shared.count(Counter::SctpDropTag);
            }
            return self.on_init(now, found, first, &arrived, path, wires);
        }
        match (first.kind, found) {
            (ChunkType::COOKIE_ECHO, _) => {
                let known = self.on_cookie_echo(now, found, (first, view.tag), &arrived, path, wires, events);
                if let Some((slot, replies)) = known {
                    self.on_chunks(now, slot, (view.tag, rest), replies, wires, events);
                }
            }
            (ChunkType::INIT_ACK, Some(slot)) => self.on_init_ack(now, slot, arrived, wires, events),
            (_, Some(slot)) => {
                self.on_chunks(now, slot, (view.tag, view.chunks()), Replies::default(), wires, events);
            }
            (_, None) => {
                let (path, ports) = (path(), arrived.flow.ports());
                let mut io = Io { now, wires, shared: &mut self.shared };
                Self::on_no_association(view, Route { path: &path, ports, tag: view.tag }, &mut io);
            }
        }
    }

    /// Processes chunks in their order, and sends `replies` and what the chunks add to them.
    fn on_chunks<'a>(
        &mut self,
        now: Nanos,
        slot: u32,
        (tag, mut chunks): (u32, Chunks<'a>),
        mut replies: Replies<'a>,
        wires: &mut Wires<P>,
        events: &mut impl FnMut(ConnId, Events),
    ) {
        // RFC 9260 s9.1: a packet with an ABORT is not answered, even if the ABORT does not count.
        let has_abort = chunks.into_iter().any(|chunk| chunk.kind == ChunkType::ABORT);
        let flow = chunks
            .by_ref()
            .try_for_each(|chunk| self.on_chunk(now, slot, (tag, chunk), &mut replies, wires, events));
        if flow.is_continue() && !chunks.rest().is_empty() {
            self.shared.count(Counter::SctpDropBadChunk);
        }
        let Some((association, mut io)) = self.association_and_io(slot, now, wires) else { return };
        if !has_abort && association.state != State::Closed && !association.state.is_set_up() {
            replies.send(&mut io, association.route());
        }
    }

    /// Processes one chunk of an association. Returns whether those after it count.
    fn on_chunk<'a>(
        &mut self,
        now: Nanos,
        slot: u32,
        (tag, chunk): (u32, RawChunk<'a>),
        replies: &mut Replies<'a>,
        wires: &mut Wires<P>,
        events: &mut impl FnMut(ConnId, Events),
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
        match (chunk, state) {
            // RFC 9260 s3.3.7: an ABORT with a format error is dropped.
            (Chunk::Abort { causes, .. }, _) if !causes.is_whole() => {
                io.shared.count(Counter::SctpDropBadChunk);
            }
            (Chunk::Abort { .. }, _) => {
                io.shared.count(Counter::SctpRxAborts);
                self.end(slot, if state.is_set_up() { Events::REFUSED } else { Events::RESET }, events);
            }
            (Chunk::CookieAck, State::CookieEchoed) => self.establish(now, slot, wires, events),
            // RFC 9260 s5.2.6, the second alternative.
            (Chunk::Error(causes), State::CookieEchoed) if causes.has_cause(CauseCode::STALE_COOKIE) => {
                self.end(slot, Events::REFUSED, events);
            }
            (Chunk::Error(_), _) => io.shared.count(Counter::SctpRxErrors),
            // RFC 9260 s8.3: the value returns as it is. s5.1 C: nothing is sent in set-up.
            (Chunk::Heartbeat(value), _) if !state.is_set_up() => {
                replies.heartbeat.get_or_insert(value);
            }
            // RFC 9260 s9.2. The peer repeats it until our SHUTDOWN ACK arrives.
            (Chunk::Shutdown { .. }, State::Established | State::ShutdownSent) => {
                association.enter(State::ShutdownAckSent, &mut io);
                self.report(slot, Events::PEER_CLOSED, events);
            }
            (Chunk::Shutdown { .. }, State::ShutdownAckSent) => replies.shutdown_ack = true,
            (Chunk::ShutdownAck, State::ShutdownSent | State::ShutdownAckSent) => {
                io.send_shutdown_complete(association.route(), false);
                self.end(slot, Events::CLOSED, events);
            }
            (Chunk::ShutdownComplete { .. }, State::ShutdownAckSent) => {
                self.end(slot, Events::CLOSED, events)
            }
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
}
