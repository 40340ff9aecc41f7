//! Received SACKs: what is acknowledged, what is missing, and what the windows are then.
//!
//! A SACK of a TSN that was never sent aborts the association. A SACK with blocks out of order is
//! dropped, so that one pass over what is retained suffices.
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

/// RFC 9260 s7.2.4: reports after which a chunk is lost.
const MISSES_MAX: u8 = 3;

/// What an acknowledgement says for the first time.
#[derive(Default)]
struct Newly {
    /// The size of chunks acknowledged.
    acked: u32,
    /// The highest TSN acknowledged (HTNA).
    highest: Option<Seq>,
    /// The cumulative TSN has moved.
    advances: bool,
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
        if cum.plus(end.into()).geq(self.outbound.next_tsn) {
            return Err((CauseCode::PROTOCOL_VIOLATION, cum.0.to_be_bytes()));
        }
        let flight = self.outbound.flight_bytes;
        let mut newly = self.acknowledge(io, cum, user);
        self.mark_gap_blocks(io, &sack, &mut newly);
        self.on_newly_acked(io, flight, &newly);
        self.count_misses(io, cum.plus(end.into()), &newly);
        // RFC 9260 s6.2.1, rule D ii.
        self.outbound.is_window_closed = sack.a_rwnd < self.outbound.congestion.pmdcs();
        self.outbound.rwnd = sack.a_rwnd.saturating_sub(self.outbound.flight_bytes);
        self.after_acknowledgement(io, &newly, user);
        Ok(())
    }

    /// RFC 9260 s9.2: a SHUTDOWN acknowledges, too. It has no window and no blocks.
    pub(crate) fn on_shutdown<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        cum: Seq,
        user: &mut impl UpperLayer,
    ) {
        if self.outbound.cum_acked.leq(cum) && cum.lt(self.outbound.next_tsn) {
            let flight = self.outbound.flight_bytes;
            let newly = self.acknowledge(io, cum, user);
            self.on_newly_acked(io, flight, &newly);
            self.after_acknowledgement(io, &newly, user);
        }
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
                ChunkState::InFlight => outbound.flight_bytes -= chunk.size(),
                ChunkState::Lost => outbound.lost -= 1,
                ChunkState::Acked => {}
            }
            if chunk.state != ChunkState::Acked {
                newly.acked = newly.acked.saturating_add(chunk.size());
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
        let mut at = outbound.retained.head();
        while let Some(chunk) = io.shared.retained.value_mut(at) {
            let distance = chunk.tsn.since(sack.cum_tsn_ack);
            while blocks.next_if(|&(_, last)| u32::from(last) < distance).is_some() {}
            let is_acked = blocks.peek().is_some_and(|&(first, _)| u32::from(first) <= distance);
            match (is_acked, chunk.state) {
                (true, ChunkState::InFlight | ChunkState::Lost) => {
                    match chunk.state {
                        ChunkState::Lost => outbound.lost -= 1,
                        _ => outbound.flight_bytes -= chunk.size(),
                    }
                    chunk.state = ChunkState::Acked;
                    newly.acked = newly.acked.saturating_add(chunk.size());
                    newly.highest = Some(chunk.tsn);
                }
                // RFC 9260 s6.2.1, rule D iii: the peer has dropped it.
                (false, ChunkState::Acked) => {
                    io.shared.stats.count(Counter::SctpRxPeerReneged);
                    outbound.flight_bytes += chunk.size();
                    (chunk.state, chunk.misses) = (ChunkState::InFlight, 1);
                }
                _ => {}
            }
            outbound.has_gap_acked |= is_acked;
            at = io.shared.retained.next(at);
        }
    }

    fn on_newly_acked<P: Port<Frame = F>>(&mut self, io: &Io<'_, P>, flight: u32, newly: &Newly) {
        let outbound = &mut self.outbound;
        if newly.advances {
            outbound.rtt.on_ack(io.now, outbound.cum_acked.plus(1), io.shared.config.rto_min);
        }
        if newly.acked == 0 {
            return;
        }
        // RFC 9260 s7.2.4, note: the window grows before a loss shrinks it.
        outbound.congestion.on_acked(newly.acked, flight, outbound.fast_recovery.is_some());
        (outbound.errors, outbound.after_timeout) = (0, false);
    }

    /// RFC 9260 s7.2.4: counts reports of missing chunks by HTNA, and marks those with three.
    fn count_misses<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>, highest_reported: Seq, newly: &Newly) {
        let outbound = &mut self.outbound;
        let was_in_recovery = outbound.fast_recovery.is_some();
        // RFC 9260 s6.2.1, rule D iv.
        outbound.fast_recovery = outbound.fast_recovery.filter(|&exit| outbound.cum_acked.lt(exit));
        let end = if was_in_recovery && newly.advances { Some(highest_reported) } else { newly.highest };
        let Some(end) = end else { return };
        let mut is_lost = false;
        let mut at = outbound.retained.head();
        while let Some(chunk) = io.shared.retained.value_mut(at).filter(|chunk| chunk.tsn.lt(end)) {
            if chunk.state == ChunkState::InFlight && !chunk.was_fast {
                chunk.misses = chunk.misses.saturating_add(1);
                if chunk.misses >= MISSES_MAX {
                    (chunk.state, chunk.was_fast, is_lost) = (ChunkState::Lost, true, true);
                    outbound.lost += 1;
                    outbound.flight_bytes -= chunk.size();
                }
            }
            at = io.shared.retained.next(at);
        }
        if is_lost && outbound.fast_recovery.is_none() {
            io.shared.stats.count(Counter::SctpFastRecoveries);
            outbound.congestion.on_loss();
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
        outbound.sacks = outbound.sacks.saturating_add(outbound.congestion.sacks_of(newly.acked));
        let mut events = if newly.advances { Events::ACKED } else { Events::empty() };
        events.set(Events::WRITABLE, core::mem::take(&mut outbound.is_blocked));
        if !outbound.is_all_acked() {
            // RFC 9260 s6.3.2, rule R3.
            if newly.advances {
                self.restart_rtx_timer(io.now);
            }
            self.send_all_lost(io);
        } else {
            outbound.congestion.on_all_acked();
            // Rule R2.
            if !outbound.is_probing() {
                self.timers.rtx = Nanos::MAX;
            }
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
