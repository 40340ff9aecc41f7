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
use crate::output::Io;
use crate::packet::{ChunkType, PacketWriter};

impl<F: Frame> Association<F> {
    /// Sends the first lost chunks that fit one packet, if cwnd allows. Returns their bytes.
    pub(super) fn send_lost<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>) -> Result<usize, Blocked> {
        let outbound = &self.outbound;
        let is_one_out = outbound.after_timeout && outbound.flight_bytes > 0;
        let is_open = outbound.flight_bytes < outbound.congestion.cwnd() && !is_one_out;
        // RFC 9260 s7.2.4, item 3: the first packet of a fast retransmission ignores cwnd.
        if !is_open && !outbound.fast_retransmit {
            return Err(Blocked::Congestion);
        }
        let route = self.route();
        let (mut sent, mut bytes, mut size) = (0, 0, 0);
        let mut has_first = false;
        let built = io.build(route, |packet, shared| {
            let first = self.outbound.retained.head();
            let mut at = first;
            while let Some(chunk) = shared.retained.value_mut(at) {
                if chunk.state == ChunkState::Lost {
                    if !append(packet, chunk.octets()) {
                        break;
                    }
                    chunk.state = ChunkState::InFlight;
                    has_first |= at == first;
                    (sent, bytes, size) = (sent + 1, bytes + chunk.message_bytes(), size + chunk.size());
                    if sent == self.outbound.lost {
                        break;
                    }
                }
                at = shared.retained.next(at);
            }
        });
        let Some((sealed, ())) = built else { return Err(Blocked::Pool) };
        let outbound = &mut self.outbound;
        outbound.lost -= sent;
        outbound.flight_bytes += size;
        outbound.rwnd = outbound.rwnd.saturating_sub(size);
        outbound.fast_retransmit = false;
        outbound.sent_at = io.now;
        outbound.rtt.on_retransmit();
        // RFC 9260 s6.1: T3-rtx restarts with the earliest chunk.
        if has_first || self.timers.rtx == Nanos::MAX {
            self.restart_rtx_timer(io.now);
        }
        io.push(self.path.port(), sealed);
        io.shared.stats.add(Counter::SctpTxRetransmittedChunks, sent.into());
        Ok(bytes as usize)
    }

    /// Sends lost chunks while cwnd allows.
    pub(super) fn send_all_lost<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>) {
        while self.outbound.has_lost() && self.send_lost(io).is_ok() {}
    }

    /// T3-rtx expired. Returns whether the peer is given up.
    pub(crate) fn on_rtx_timeout<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        user: &mut impl UpperLayer,
    ) -> bool {
        self.timers.rtx = Nanos::MAX;
        if self.outbound.is_all_acked() {
            if self.outbound.is_probing() {
                (self.outbound.probe, self.outbound.is_blocked) = (Probe::IsDue, false);
                user.event(self.id, Events::WRITABLE);
            }
            return false;
        }
        let outbound = &mut self.outbound;
        // RFC 9260 s6.1, rule A: a peer that reports a closed window is no silent one.
        let is_probe = core::mem::take(&mut outbound.heard) && outbound.is_window_closed;
        if !is_probe && outbound.count_error(io.shared.config.association_retries) {
            return true;
        }
        io.shared.count(Counter::SctpTimeouts);
        outbound.congestion.on_timeout();
        outbound.rtt.on_timeout();
        (outbound.fast_recovery, outbound.fast_retransmit, outbound.after_timeout) = (None, false, true);
        self.mark_all_lost(io);
        self.restart_rtx_timer(io.now);
        let _ = self.send_lost(io);
        false
    }

    /// RFC 9260 s6.3.3, rule E3: all chunks in flight, and the first one in any case, since the
    /// peer does not acknowledge it in sequence.
    fn mark_all_lost<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>) {
        let outbound = &mut self.outbound;
        let first = outbound.retained.head();
        let mut at = first;
        while let Some(chunk) = io.shared.retained.value_mut(at) {
            if chunk.state == ChunkState::InFlight || (at == first && chunk.state == ChunkState::Acked) {
                (chunk.state, chunk.misses) = (ChunkState::Lost, 0);
                outbound.lost += 1;
            }
            at = io.shared.retained.next(at);
        }
        outbound.rwnd = outbound.rwnd.saturating_add(outbound.flight_bytes);
        outbound.flight_bytes = 0;
    }
}

/// Appends a chunk as it was sent before.
fn append(packet: &mut PacketWriter<'_>, octets: &[u8]) -> bool {
    let Some((&[_, flags, ..], value)) = octets.split_first_chunk::<4>() else { return false };
    packet.chunk(ChunkType::DATA, flags, |chunk| chunk.put(value))
}
