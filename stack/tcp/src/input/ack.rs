//! The fifth step of RFC 9293 s3.10.7.4: what the peer acknowledges and the window it offers.

use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::limits::BURST_FRAMES;
use ironwarp_types::{Nanos, Seq};

use super::{DONE, NEXT, Step};
use crate::congestion::Acked;
use crate::conn::{Conn, State};
use crate::events::TcpEvents;
use crate::header::{Flags, Segment};
use crate::output::TcpIo;
use crate::queue::UnitState;
use crate::recovery::delivered_unit;

impl Conn {
    /// Fifth step.
    pub(super) fn check_ack<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: &Segment,
        events: &mut TcpEvents,
    ) -> Step {
        if !segment.has(Flags::ACK) {
            io.count(Counter::TcpDropNoAck);
            return DONE;
        }
        if self.state == State::SynReceived {
            self.check_ack_in_syn_received(io, segment, events)?;
        } else {
            self.check_ack_number(io, segment)?;
        }
        self.update_ts_recent(io, segment);
        self.on_ack(io, segment, events);
        self.after_ack(io, events)
    }

    /// RFC 5961 s5: an ACK of what was never sent, or of the distant past, was guessed by somebody.
    fn check_ack_number<P: Port>(&mut self, io: &mut TcpIo<'_, P>, segment: &Segment) -> Step {
        let oldest = self.snd.snd_una.minus(self.snd.snd_wnd_max);
        if segment.ack.since(oldest) <= self.snd.snd_max.since(oldest) {
            return NEXT;
        }
        io.count(Counter::TcpDropUnacceptableAck);
        self.challenge(io);
        DONE
    }

    fn on_ack<P: Port>(&mut self, io: &mut TcpIo<'_, P>, segment: &Segment, events: &mut TcpEvents) {
        // The window of an ACK that advances counts with it, before anything is sent on its strength. One that repeats is
        // told by its window, so there it comes later.
        let advances = segment.ack.gt(self.snd.snd_una);
        let mut grown = advances && self.snd.update_window(segment.seq, segment.ack, segment.window);
        if advances {
            self.on_ack_advance(io, segment, events);
        } else if segment.ack == self.snd.snd_una && self.needs_slow_path(segment) {
            self.on_ack_slow_path(io, segment, events);
        }
        if !advances && segment.ack == self.snd.snd_una {
            grown = self.snd.update_window(segment.seq, segment.ack, segment.window);
        }
        if grown {
            self.on_window_grown(io, events);
        }
        if self.snd.snd_wnd == 0 {
            // RFC 9293 s3.8.6.1: a peer that answers probes lives, however long its window stays closed.
            self.snd.progress_at = io.now;
            io.arm(self);
        }
    }

    /// The states that wait for an acknowledgement of our FIN.
    fn after_ack<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) -> Step {
        if !self.snd.fin_acked() {
            return NEXT;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.cold.fin_wait_2_deadline =
                    io.now + io.shared.config.fin_wait_2.min(self.cold.user_timeout);
                io.arm(self);
                NEXT
            }
            State::Closing => {
                // The ACK of the peer's FIN may still be owed, and nothing is paid after the end.
                if self.ack.pending {
                    self.send_ack(io);
                }
                self.enter_time_wait(events);
                DONE
            }
            State::LastAck => {
                self.end(TcpEvents::CLOSED, events);
                DONE
            }
            _ => NEXT,
        }
    }

    /// Whether an ACK of nothing new says something all the same: SACK blocks, an echo, that a segment is missing.
    fn needs_slow_path(&self, segment: &Segment) -> bool {
        !segment.options.sack.is_empty() || self.has_ecn_echo(segment) || self.is_duplicate_ack(segment)
    }

    /// Whether the peer tells of congestion that the network has marked.
    #[inline]
    fn has_ecn_echo(&self, segment: &Segment) -> bool {
        self.opts.ecn && segment.has(Flags::ECE)
    }

    /// SND.UNA moves to the segment's acknowledgement number.
    #[inline]
    pub(super) fn on_ack_advance<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: &Segment,
        events: &mut TcpEvents,
    ) {
        if self.snd.recovery.slow_path || !segment.options.sack.is_empty() || self.has_ecn_echo(segment) {
            return self.on_ack_slow_path(io, segment, events);
        }
        let una_before = self.snd.snd_una;
        let bytes = self.advance_una(io, segment.ack, events);
        let snd = &mut self.snd;
        snd.cc.on_ack(Acked {
            now: io.now,
            bytes,
            una_before,
            snd_nxt: snd.snd_nxt,
            srtt: snd.rtt.srtt(),
            echo: false,
        });
        // RFC 6298 s5.2 and s5.3: the timer runs while anything is outstanding, and begins anew with every ACK.
        if snd.outstanding() {
            snd.restart_rto(io.now);
            if self.opts.sack {
                snd.schedule_tlp(io.now, io.shared.config.ack_delay_max);
            }
        } else {
            snd.stop_timer();
        }
        self.notify_writable(events);
        if self.snd.unsent() || self.snd.fin_due() {
            self.transmit_retained(io, events);
        }
        io.arm(self);
    }

    /// Moves SND.UNA and lets go of what is acknowledged. Answers by how many numbers it moved.
    #[inline]
    pub(crate) fn advance_una<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        ack: Seq,
        events: &mut TcpEvents,
    ) -> u32 {
        let snd = &mut self.snd;
        let advanced = ack.since(snd.snd_una);
        if advanced == 0 {
            return 0;
        }
        let payload = ack.min(snd.payload_end()).since(snd.snd_una);
        snd.rtt.on_ack(io.now, ack, io.shared.config.rto_min);
        snd.rtt.reset_backoff();
        snd.snd_una = ack;
        snd.snd_nxt = snd.snd_nxt.max(ack);
        snd.acked_bytes += u64::from(payload);
        snd.progress_at = io.now;
        self.release_acked(io);
        if payload > 0 {
            *events |= TcpEvents::ACKED;
        }
        advanced
    }

    #[inline]
    pub(crate) fn notify_writable(&mut self, events: &mut TcpEvents) {
        if core::mem::take(&mut self.snd.tx_blocked) {
            *events |= TcpEvents::WRITABLE;
        }
    }

    /// Sends what is here already and was not sent, or must go again, as far as the windows let it. What a lack of frames
    /// leaves over is for the layer above to call for, and for the timer.
    #[cold]
    pub(crate) fn transmit_retained<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        if self.wants_transmit() {
            self.transmit(io, &mut (), BURST_FRAMES);
        }
        if self.wants_transmit() {
            *events |= TcpEvents::RETRANSMIT;
        }
        self.ensure_timer(io);
    }

    /// Lets go of units that are acknowledged to their last byte.
    #[inline]
    fn release_acked<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        let snd = &mut self.snd;
        let una = snd.snd_una;
        if snd.recovery.slow_path {
            self.release_acked_in_recovery(io);
        } else {
            let (mut bytes, mut last) = (0, None);
            io.shared.tx.drop_front_while(&mut snd.retained, |unit, _| {
                let is_done = unit.seq_end().leq(una);
                if is_done {
                    bytes += u32::from(unit.len);
                    last = Some(delivered_unit(unit));
                }
                is_done
            });
            snd.retained_bytes = snd.retained_bytes.saturating_sub(bytes);
            // What only a probe of a closed window has carried was never timed.
            if let Some(unit) = last.filter(|unit| unit.sent_at != Nanos::ZERO) {
                snd.recovery.rack.on_delivered(io.now, unit);
            }
        }
        let snd = &mut self.snd;
        if io.shared.tx.front(&snd.retained).is_some_and(|unit| unit.seq.lt(snd.snd_una)) {
            self.trim_acked(io);
        }
    }

    /// The same while something is amiss: the scoreboard and RACK hear of every unit.
    #[cold]
    fn release_acked_in_recovery<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        let (snd, now) = (&mut self.snd, io.now);
        let (una, recovery, board) = (snd.snd_una, &mut snd.recovery, &mut snd.board);
        let mut bytes = 0;
        io.shared.tx.drop_front_while(&mut snd.retained, |unit, node| {
            let is_done = unit.seq_end().leq(una);
            if is_done {
                bytes += u32::from(unit.len);
                board.on_released(unit, node);
                if matches!(unit.state, UnitState::InFlight | UnitState::Lost) {
                    recovery.rack.on_delivered(now, delivered_unit(unit));
                }
            }
            is_done
        });
        snd.retained_bytes = snd.retained_bytes.saturating_sub(bytes);
    }

    /// semantics.md, Units: an ACK edge inside a unit. A part that was sent more than once, and of which only the front
    /// arrived, was larger than what the path or the peer takes now: the rest follows at once.
    #[cold]
    fn trim_acked<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        let snd = &mut self.snd;
        let Some(unit) = io.shared.tx.front_mut(&snd.retained) else { return };
        let bytes = snd.snd_una.since(unit.seq);
        unit.trim_front(bytes);
        snd.retained_bytes = snd.retained_bytes.saturating_sub(bytes);
        snd.board.on_acked(unit.state, bytes);
        if unit.state == UnitState::InFlight && unit.retransmitted {
            snd.board.mark_lost(&mut io.shared.tx, snd.retained.head());
        }
    }

    /// The peer's window reaches farther than before.
    #[inline]
    pub(super) fn on_window_grown<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        self.notify_writable(events);
        // Nothing is in flight but a probe, and a unit waits.
        if (self.snd.unsent() || self.snd.board.lost > 0) && self.snd.pipe() == 0 {
            self.on_window_opened(io, events);
        }
    }

    /// What waited for the window goes first; the persist timer has done its work.
    #[cold]
    fn on_window_opened<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        self.snd.rtt.reset_backoff();
        self.snd.progress_at = io.now;
        self.snd.restart_rto(io.now);
        self.transmit_retained(io, events);
        io.arm(self);
    }
}
