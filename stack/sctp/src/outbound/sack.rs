//! Received SACKs: what is acknowledged, what is missing, and what the windows are then.
//!
//! A SACK of a TSN that was never sent aborts the association. A SACK with blocks out of order is
//! dropped, so that one pass over what is retained suffices.
//!
//! RFC 9260 s7.2.4, item 5, retransmits a chunk fast once. Here a retransmission is lost, too,
//! after three reports of chunks that were sent after it, without a further reduction of the
//! window: otherwise it costs a timeout, which TCP's RACK saves.
//!
//! Source: RFC 9260 s6.2.1, s6.3.2 and s7.2.4. Cost: without gap blocks, one list node for each
//! acknowledged chunk; with them, two passes over what is retained.

use ironwarp_llp::Events;
use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::{Nanos, Seq};

use super::ChunkState;
use crate::association::{Association, State};
use crate::message::UpperLayer;
use crate::output::Io;
use crate::packet::{CauseCode, Sack};
use crate::paths::{PATHS_MAX, PathId, PerPath};

/// RFC 9260 s7.2.4: reports after which a chunk is lost.
const MISSES_MAX: u8 = 3;

/// What an acknowledgement says for the first time.
#[derive(Default)]
struct Newly {
    /// The size of chunks acknowledged, by the path that they were sent over.
    acked: PerPath<u32>,
    /// The highest TSN acknowledged (HTNA), of each path: packets of several overtake each other.
    highest: PerPath<Option<Seq>>,
    /// The earliest chunk of a path is acknowledged.
    has_first: PerPath<bool>,
    /// The cumulative TSN has moved.
    advances: bool,
}

impl Newly {
    fn on_acked(&mut self, path: PathId, size: u32, is_first: bool) {
        let path = usize::from(path);
        if let (Some(acked), Some(has_first)) = (self.acked.get_mut(path), self.has_first.get_mut(path)) {
            *acked = acked.saturating_add(size);
            *has_first |= is_first;
        }
    }
}

impl<F: Frame> Association<F> {
    /// Processes a SACK. Returns the cause to abort the association with.
    pub(crate) fn on_sack<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        sack: Sack<'_>,
        user: &mut impl UpperLayer,
    ) -> Result<(), (CauseCode, [u8; 4])> {
        let cum = sack.cum_tsn_ack;
        self.outbound.heard = true;
        // RFC 9260 s6.2.1, rule D i.
        if cum.lt(self.outbound.cum_acked) {
            return Ok(());
        }
        let mut end = 0;
        for (first, last) in sack.gap_blocks() {
            if first <= end || last < first {
                io.shared.count(Counter::SctpDropBadChunk);
                return Ok(());
            }
            end = last;
        }
        let next_tsn = self.outbound.next_tsn;
        if cum.geq(next_tsn) || cum.plus(end.into()).geq(next_tsn) {
            return Err((CauseCode::PROTOCOL_VIOLATION, cum.0.to_be_bytes()));
        }
        if io.shared.config.fast_path && end == 0 && cum != self.outbound.cum_acked && self.is_in_sequence() {
            self.on_sack_in_sequence(io, sack, user);
            return Ok(());
        }
        let flights = self.flights();
        let mut newly = self.acknowledge(io, cum, user);
        self.mark_gap_blocks(io, &sack, &mut newly);
        self.on_newly_acked(io, flights, &newly, user);
        self.count_misses(io, cum.plus(end.into()), &newly);
        // RFC 9260 s6.2.1, rule D ii.
        self.outbound.is_window_closed = sack.a_rwnd < self.paths.pmdcs();
        self.outbound.rwnd = sack.a_rwnd.saturating_sub(self.outbound.flight_bytes);
        self.after_acknowledgement(io, &newly, user);
        Ok(())
    }

    /// Returns whether all that is retained is in flight on the only path, outside recovery.
    fn is_in_sequence(&self) -> bool {
        let outbound = &self.outbound;
        !(outbound.has_lost() || outbound.has_gap_acked || outbound.fast_recovery.is_some())
            && self.state == State::Established
            && !self.paths.are_several()
    }

    /// Fast: a SACK without blocks acknowledges the first chunks of those in flight.
    fn on_sack_in_sequence<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        sack: Sack<'_>,
        user: &mut impl UpperLayer,
    ) {
        let (outbound, path) = (&mut self.outbound, self.paths.current_mut());
        let mut acked = 0;
        // Messages of one stream are reported together.
        let (mut stream, mut bytes) = (0, 0);
        while let Some(chunk) = io.shared.retained.front(&outbound.retained)
            && chunk.tsn.leq(sack.cum_tsn_ack)
        {
            if chunk.stream != stream && bytes > 0 {
                user.acked(self.id, stream, core::mem::take(&mut bytes));
            }
            stream = chunk.stream;
            (acked, bytes) = (acked + chunk.size(), bytes + chunk.message_bytes());
            io.shared.streams.on_acked(self.id.slot, stream);
            io.shared.retained.pop_front(&mut outbound.retained);
        }
        user.acked(self.id, stream, bytes);
        let (config, flight) = (&io.shared.config, path.flight_bytes);
        path.flight_bytes -= acked;
        path.rtt.on_ack(io.now, sack.cum_tsn_ack.plus(1), config.rto_min);
        path.congestion.on_acked(acked, flight, false);
        path.sacks = path.sacks.saturating_add(path.congestion.sacks_of(acked));
        path.after_timeout = false;
        path.mtu.on_acked();
        if path.flight_bytes == 0 {
            path.congestion.on_all_acked();
            if !outbound.is_probing() {
                path.rtx_at = Nanos::MAX;
            }
        } else {
            path.restart_rtx_timer(io.now);
            path.begin_burst(config);
        }
        outbound.clear_errors();
        (outbound.cum_acked, outbound.flight_bytes) = (sack.cum_tsn_ack, path.flight_bytes);
        outbound.is_window_closed = sack.a_rwnd < path.congestion.pmdcs();
        outbound.rwnd = sack.a_rwnd.saturating_sub(outbound.flight_bytes);
        let mut events = Events::ACKED;
        events.set(Events::WRITABLE, core::mem::take(&mut outbound.is_blocked));
        self.on_path_answer(io, self.paths.current_id(), user);
        self.arm(io);
        user.event(self.id, events);
    }

    /// RFC 9260 s9.2: a SHUTDOWN acknowledges, too. It has no window and no blocks.
    pub(crate) fn on_shutdown<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        cum: Seq,
        user: &mut impl UpperLayer,
    ) {
        if self.outbound.cum_acked.leq(cum) && cum.lt(self.outbound.next_tsn) {
            let flights = self.flights();
            let newly = self.acknowledge(io, cum, user);
            self.on_newly_acked(io, flights, &newly, user);
            self.after_acknowledgement(io, &newly, user);
        }
    }

    /// Returns what is in flight on each path.
    fn flights(&self) -> PerPath<u32> {
        let mut flights = [0; PATHS_MAX];
        flights.iter_mut().zip(self.paths.iter()).for_each(|(flight, path)| *flight = path.flight_bytes);
        flights
    }

    /// Releases the chunks up to the cumulative TSN.
    fn acknowledge<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        cum: Seq,
        user: &mut impl UpperLayer,
    ) -> Newly {
        let outbound = &mut self.outbound;
        let mut newly = Newly { advances: cum != outbound.cum_acked, ..Newly::default() };
        outbound.cum_acked = cum;
        while io.shared.retained.front(&outbound.retained).is_some_and(|chunk| chunk.tsn.leq(cum)) {
            let Some(chunk) = io.shared.retained.pop_front(&mut outbound.retained) else { break };
            match chunk.state {
                ChunkState::InFlight => {
                    outbound.flight_bytes -= chunk.size();
                    self.paths.at_mut(chunk.path).flight_bytes -= chunk.size();
                }
                ChunkState::Lost => outbound.lost -= 1,
                ChunkState::Acked => {}
            }
            if chunk.state != ChunkState::Acked {
                newly.on_acked(chunk.path, chunk.size(), true);
            }
            io.shared.streams.on_acked(self.id.slot, chunk.stream);
            user.acked(self.id, chunk.stream, chunk.message_bytes());
        }
        newly
    }

    /// Marks what the blocks acknowledge, and what they do not any more.
    fn mark_gap_blocks<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        sack: &Sack<'_>,
        newly: &mut Newly,
    ) {
        let outbound = &mut self.outbound;
        let mut blocks = sack.gap_blocks().peekable();
        if blocks.peek().is_none() && !outbound.has_gap_acked {
            return;
        }
        outbound.has_gap_acked = false;
        let mut is_first: PerPath<bool> = [true; PATHS_MAX];
        let mut at = outbound.retained.head();
        while let Some(chunk) = io.shared.retained.value_mut(at) {
            let distance = chunk.tsn.since(sack.cum_tsn_ack);
            while blocks.next_if(|&(_, last)| u32::from(last) < distance).is_some() {}
            let is_acked = blocks.peek().is_some_and(|&(first, _)| u32::from(first) <= distance);
            let mut none = false;
            let is_first = is_first.get_mut(usize::from(chunk.path)).unwrap_or(&mut none);
            match (is_acked, chunk.state) {
                (true, ChunkState::InFlight | ChunkState::Lost) => {
                    match chunk.state {
                        ChunkState::Lost => outbound.lost -= 1,
                        _ => {
                            outbound.flight_bytes -= chunk.size();
                            self.paths.at_mut(chunk.path).flight_bytes -= chunk.size();
                        }
                    }
                    chunk.state = ChunkState::Acked;
                    newly.on_acked(chunk.path, chunk.size(), *is_first);
                    newly.highest.get_mut(usize::from(chunk.path)).into_iter().for_each(|highest| {
                        *highest = Some(chunk.tsn);
                    });
                }
                // RFC 9260 s6.2.1, rule D iii: the peer has dropped it.
                (false, ChunkState::Acked) => {
                    io.shared.stats.count(Counter::SctpRxPeerReneged);
                    outbound.flight_bytes += chunk.size();
                    let path = self.paths.at_mut(chunk.path);
                    path.flight_bytes += chunk.size();
                    path.start_rtx_timer_if_stopped(io.now);
                    (chunk.state, chunk.misses) = (ChunkState::InFlight, 1);
                }
                _ => {}
            }
            *is_first &= chunk.state == ChunkState::Acked;
            outbound.has_gap_acked |= is_acked;
            at = io.shared.retained.next(at);
        }
    }

    fn on_newly_acked<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        flights: PerPath<u32>,
        newly: &Newly,
        user: &mut impl UpperLayer,
    ) {
        let (cum_acked, in_recovery) = (self.outbound.cum_acked, self.outbound.fast_recovery.is_some());
        for (id, (&acked, flight)) in self.paths.ids().zip(newly.acked.iter().zip(flights)) {
            let path = self.paths.at_mut(id);
            if newly.advances {
                path.rtt.on_ack(io.now, cum_acked.plus(1), io.shared.config.rto_min);
            }
            if acked > 0 {
                // RFC 9260 s7.2.4, note: the window grows before a loss shrinks it.
                path.congestion.on_acked(acked, flight, in_recovery);
                path.after_timeout = false;
                path.mtu.on_acked();
                self.outbound.clear_errors();
                self.on_path_answer(io, id, user);
            }
        }
    }

    /// RFC 9260 s7.2.4: counts reports of missing chunks by HTNA, and marks those with three.
    fn count_misses<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>, highest_reported: Seq, newly: &Newly) {
        let outbound = &mut self.outbound;
        let was_in_recovery = outbound.fast_recovery.is_some();
        // RFC 9260 s6.2.1, rule D iv.
        outbound.fast_recovery = outbound.fast_recovery.filter(|&exit| outbound.cum_acked.lt(exit));
        let ends = match was_in_recovery && newly.advances {
            true => [Some(highest_reported); PATHS_MAX],
            false => newly.highest,
        };
        let Some(end) = ends.into_iter().flatten().reduce(Seq::max) else { return };
        let mut lost_on: PerPath<bool> = [false; PATHS_MAX];
        let mut at = outbound.retained.head();
        while let Some(chunk) = io.shared.retained.value_mut(at).filter(|chunk| chunk.tsn.lt(end)) {
            let path = usize::from(chunk.path);
            let is_missing = ends.get(path).copied().flatten().is_some_and(|end| chunk.later.leq(end));
            if is_missing && chunk.state == ChunkState::InFlight {
                chunk.misses = chunk.misses.saturating_add(1);
                if chunk.misses >= MISSES_MAX {
                    (chunk.state, chunk.misses) = (ChunkState::Lost, 0);
                    outbound.lost += 1;
                    outbound.flight_bytes -= chunk.size();
                    self.paths.at_mut(chunk.path).flight_bytes -= chunk.size();
                    lost_on.get_mut(path).into_iter().for_each(|is_lost| *is_lost = true);
                }
            }
            at = io.shared.retained.next(at);
        }
        if lost_on.contains(&true) && outbound.fast_recovery.is_none() {
            io.shared.stats.count(Counter::SctpFastRecoveries);
            let paths = self.paths.iter_mut().zip(lost_on).filter(|&(_, is_lost)| is_lost);
            paths.for_each(|(path, _)| path.congestion.on_loss());
            outbound.fast_recovery = Some(outbound.next_tsn.minus(1));
            outbound.fast_retransmit = true;
        }
    }

    /// Sets T3-rtx, sends what is lost, goes on with a shutdown that waited, and reports.
    fn after_acknowledgement<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        newly: &Newly,
        user: &mut impl UpperLayer,
    ) {
        let outbound = &mut self.outbound;
        let mut events = if newly.advances { Events::ACKED } else { Events::empty() };
        events.set(Events::WRITABLE, core::mem::take(&mut outbound.is_blocked));
        let (is_all_acked, is_probing) = (outbound.is_all_acked(), outbound.is_probing());
        let current = self.paths.current_id();
        for (id, (&acked, has_first)) in self.paths.ids().zip(newly.acked.iter().zip(newly.has_first)) {
            let path = self.paths.at_mut(id);
            if acked > 0 || id == current {
                path.sacks = path.sacks.saturating_add(path.congestion.sacks_of(acked));
            }
            if is_all_acked {
                path.congestion.on_all_acked();
            }
            // RFC 9260 s6.3.2, rules R2 and R3.
            if path.flight_bytes > 0 {
                if has_first {
                    path.restart_rtx_timer(io.now);
                }
            } else if !is_all_acked || !is_probing {
                path.rtx_at = Nanos::MAX;
            }
        }
        if !is_all_acked {
            self.send_all_lost(io);
            self.run_rtx_timer(io.now);
        } else {
            match self.state {
                State::ShutdownPending => self.enter(State::ShutdownSent, io),
                State::ShutdownReceived => self.enter(State::ShutdownAckSent, io),
                _ => {}
            }
        }
        self.arm(io);
        if !events.is_empty() {
            user.event(self.id, events);
        }
    }
}
