//! Retransmission: lost chunks in as few packets as they fit, and T3-rtx.
//!
//! Source: RFC 9260 s6.1, s6.3.3, s7.2.3 and s8.1.

use ironwarp_llp::{Blocked, Events};
use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::{ChunkState, Probe};
use crate::association::Association;
use crate::message::UpperLayer;
use crate::output::{Io, Route};
use crate::packet::{COMMON_HEADER_BYTES, ChunkType, PacketWriter};
use crate::paths::PathId;

impl<F: Frame> Association<F> {
    /// Sends the first lost chunks that fit one packet, if cwnd of its path allows. Returns their
    /// bytes.
    pub(super) fn send_lost<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>) -> Result<usize, Blocked> {
        let first_lost =
            io.shared.retained.iter(&self.outbound.retained).find(|chunk| chunk.state == ChunkState::Lost);
        let Some(first_lost) = first_lost else { return Err(Blocked::None) };
        let id = self.paths.resend_on(first_lost.path, first_lost.size());
        let path = self.paths.at(id);
        if !io.wires.at_mut(path.route.port()).has_room() {
            return Err(Blocked::Wire);
        }
        let is_one_out = path.after_timeout && path.flight_bytes > 0;
        // RFC 9260 s6.1, rule D: what moves to this path comes in bursts.
        let window = match id == first_lost.path {
            true => path.congestion.cwnd(),
            false => path.congestion.cwnd().min(path.burst_end),
        };
        let is_open = path.flight_bytes < window && !is_one_out;
        // RFC 9260 s7.2.4, item 3: the first packet of a fast retransmission ignores cwnd.
        if !is_open && !self.outbound.fast_retransmit {
            return Err(Blocked::Congestion);
        }
        // RFC 9260 s6.9: a chunk that was sent before the MTU shrank.
        let route = self.route_of(id);
        let least = first_lost.size() as usize + COMMON_HEADER_BYTES + route.path.overhead_bytes();
        let may_fragment = least > usize::from(route.mtu_bytes);
        let route = Route { mtu_bytes: route.mtu_bytes.max(least as u16), may_fragment, ..route };
        let (port, next_tsn) = (route.path.port(), self.outbound.next_tsn);
        let (mut sent, mut bytes, mut size) = (0, 0, 0);
        let mut has_first = false;
        let built = io.build(route, |packet, shared| {
            let first = self.outbound.retained.head();
            let mut at = first;
            while let Some(chunk) = shared.retained.value_mut(at) {
                if chunk.state == ChunkState::Lost {
                    let is_of_path = self.paths.resend_on(chunk.path, chunk.size()) == id;
                    if !is_of_path || !append(packet, chunk.octets()) {
                        break;
                    }
                    (chunk.state, chunk.path, chunk.later) = (ChunkState::InFlight, id, next_tsn);
                    has_first |= at == first;
                    (sent, bytes, size) = (sent + 1, bytes + chunk.message_bytes(), size + chunk.size());
                    if sent == self.outbound.lost {
                        break;
                    }
                }
                at = shared.retained.next(at);
            }
        });
        let Some((sealed, ())) = built.filter(|_| sent > 0) else { return Err(Blocked::Pool) };
        let (outbound, path) = (&mut self.outbound, self.paths.at_mut(id));
        if path.flight_bytes == 0 {
            path.on_first_in_flight(io.now, &io.shared.config);
        }
        outbound.lost -= sent;
        outbound.flight_bytes += size;
        outbound.rwnd = outbound.rwnd.saturating_sub(size);
        outbound.fast_retransmit = false;
        path.on_sent(io.now, size);
        path.rtt.on_retransmit();
        // RFC 9260 s6.1: T3-rtx restarts with the earliest chunk.
        if has_first || path.rtx_at == Nanos::MAX {
            path.restart_rtx_timer(io.now);
        }
        io.push(port, sealed);
        io.shared.stats.add(Counter::SctpTxRetransmittedChunks, sent.into());
        Ok(bytes as usize)
    }

    /// Sends lost chunks while cwnd allows.
    pub(super) fn send_all_lost<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>) {
        self.paths.current_mut().begin_burst(&io.shared.config);
        while self.outbound.has_lost() && self.send_lost(io).is_ok() {}
    }

    /// Runs the T3-rtx timers that have expired. Returns whether the peer is given up.
    pub(crate) fn on_rtx_timeouts<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        user: &mut impl UpperLayer,
    ) -> bool {
        self.paths.ids().any(|id| self.paths.at(id).rtx_at <= io.now && self.on_rtx_timeout(io, id, user))
    }

    fn on_rtx_timeout<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        id: PathId,
        user: &mut impl UpperLayer,
    ) -> bool {
        let (outbound, path) = (&mut self.outbound, self.paths.at_mut(id));
        path.rtx_at = Nanos::MAX;
        if outbound.is_all_acked() {
            if outbound.is_probing() {
                (outbound.probe, outbound.is_blocked) = (Probe::IsDue, false);
                user.event(self.id, Events::WRITABLE);
            }
            return false;
        }
        io.shared.count(Counter::SctpTimeouts);
        path.congestion.on_timeout();
        path.rtt.on_timeout();
        path.after_timeout = true;
        (outbound.fast_recovery, outbound.fast_retransmit) = (None, false);
        // RFC 9260 s6.1, rule A: a peer that reports a closed window is no silent one.
        let is_probe = core::mem::take(&mut outbound.heard) && outbound.is_window_closed;
        if !is_probe {
            if outbound.count_error(io.shared.config.association_retries) {
                return true;
            }
            self.on_path_error(io, id, user);
            self.look_for_black_hole(io, id);
        }
        self.mark_all_lost(io, id);
        self.send_all_lost(io);
        self.run_rtx_timer(io.now);
        false
    }

    /// Has T3-rtx run while a chunk waits, even one that could not be sent again.
    pub(super) fn run_rtx_timer(&mut self, now: Nanos) {
        if self.paths.iter().all(|path| path.rtx_at == Nanos::MAX) {
            self.paths.current_mut().restart_rtx_timer(now);
        }
    }

    /// RFC 9260 s6.3.3, rule E3: all chunks in flight on a path, and the first one in any case,
    /// since the peer does not acknowledge it in sequence.
    fn mark_all_lost<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>, id: PathId) {
        let outbound = &mut self.outbound;
        let first = outbound.retained.head();
        let mut at = first;
        while let Some(chunk) = io.shared.retained.value_mut(at) {
            let is_in_flight = chunk.state == ChunkState::InFlight && chunk.path == id;
            if is_in_flight || (at == first && chunk.state == ChunkState::Acked) {
                (chunk.state, chunk.misses) = (ChunkState::Lost, 0);
                outbound.lost += 1;
            }
            at = io.shared.retained.next(at);
        }
        let lost_bytes = core::mem::take(&mut self.paths.at_mut(id).flight_bytes);
        outbound.rwnd = outbound.rwnd.saturating_add(lost_bytes);
        outbound.flight_bytes -= lost_bytes;
    }
}

/// Appends a chunk as it was sent before.
fn append(packet: &mut PacketWriter<'_>, octets: &[u8]) -> bool {
    let Some((&[_, flags, ..], value)) = octets.split_first_chunk::<4>() else { return false };
    packet.chunk(ChunkType::DATA, flags, |chunk| chunk.put(value))
}
