//! The transmit stage: whoever has something to send takes a turn.
//!
//! Each turn pulls at most [`TURN_UNITS`] units, so that a long Write on one queue pair delays a small message on
//! another by a bounded number of segments. Who was stopped by a full device ring or an empty pool keeps the place
//! in the list; who was stopped by a window or by congestion comes back when TCP says so.

use super::qp::Phase;
use super::*;
use ironwarp_tcp::Blocked;

/// Units that one sender may pull in its turn. 16 full segments of 9000 bytes take about 10 µs.
const TURN_UNITS: usize = 16;

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// Puts a sender into the list unless it is there.
    pub(super) fn make_ready(&mut self, sender: Sender) {
        let queued = match sender {
            Sender::Qp(slot) => self.qps.at(slot).map(|qp| &mut qp.queued),
            Sender::Passive(slot) => self.passives.at(slot).map(|passive| &mut passive.queued),
        };
        if queued.is_some_and(|queued| !core::mem::replace(queued, true)) {
            self.ready.push_back(sender);
        }
    }

    pub(super) fn transmit(&mut self, now: Nanos) {
        for _ in 0..self.ready.len() {
            if !self.wire.has_room() {
                return;
            }
            let Some(sender) = self.ready.pop_front() else { return };
            match sender {
                Sender::Qp(slot) => self.serve_qp(now, slot),
                Sender::Passive(slot) => self.serve_passive(now, slot),
            }
        }
    }

    fn serve_qp(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        qp.queued = false;
        let Some(conn) = qp.conn else { return };
        let sent = match &mut qp.phase {
            Phase::Setup(setup) => self.tcp.transmit(now, conn, setup, &mut self.wire, TURN_UNITS),
            // Held back, but what was sent before may have to go again.
            Phase::Running | Phase::Draining if now < qp.hold_until => {
                self.tcp.transmit(now, conn, &mut (), &mut self.wire, TURN_UNITS)
            }
            Phase::Running | Phase::Draining | Phase::Terminating => {
                let (stream, io) = qp.stream_io(&mut self.cqs, &self.mem, &self.stats);
                self.tcp.transmit(now, conn, &mut stream.transmit(io), &mut self.wire, TURN_UNITS)
            }
            Phase::Idle | Phase::Closing | Phase::Ended => {
                self.tcp.transmit(now, conn, &mut (), &mut self.wire, TURN_UNITS)
            }
        };
        self.work += sent.units;
        if matches!(sent.blocked, Blocked::Pool | Blocked::Wire) || sent.units == TURN_UNITS {
            self.make_ready(Sender::Qp(slot));
        }
        self.after_sending(now, slot);
    }

    fn serve_passive(&mut self, now: Nanos, slot: u32) {
        let Some(passive) = self.passives.at(slot) else { return };
        passive.queued = false;
        let sent = self.tcp.transmit(now, passive.conn, passive, &mut self.wire, TURN_UNITS);
        self.work += sent.units;
        if matches!(sent.blocked, Blocked::Pool | Blocked::Wire) {
            self.make_ready(Sender::Passive(slot));
        }
        self.after_refusal(now, slot);
    }
}
