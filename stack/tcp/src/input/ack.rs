//! The fifth step of RFC 9293 s3.10.7.4: the acknowledgement and the window.

use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::limits::BURST_FRAMES;
use ironwarp_types::{Nanos, Seq};

use super::{DONE, NEXT, Step};
use crate::TcpEvents;
use crate::congestion::Acked;
use crate::conn::{Conn, State};
use crate::header::{Flags, Segment};
use crate::output::TcpIo;
use crate::queue::UnitState;
use crate::recovery::{Delivered, delivered_unit};

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

    /// RFC 5961 s5: an ACK of unsent data, or one older than any window, is a blind guess and draws
    /// a challenge ACK.
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
        // If the ACK advances, apply its window together with it, before anything is sent. A
        // duplicate ACK is recognised by an unchanged window, so its window is applied later.
        let advances = segment.ack.gt(self.snd.snd_una);
        let mut grown = advances && self.snd.update_window(segment.seq, segment.ack, segment.window);
        if advances {
            self.on_ack_advance(io, segment, events);
        } else if segment.ack == self.snd.snd_una && self.needs_recovery(segment) {
            self.on_ack_in_recovery(io, segment, events);
        }
        if !advances && segment.ack == self.snd.snd_una {
            grown = self.snd.update_window(segment.seq, segment.ack, segment.window);
        }
        if grown {
            self.on_window_grown(io, events);
        }
        if self.snd.snd_wnd == 0 {
            self.on_closed_window(io);
        }
    }

    /// RFC 9293 s3.8.6.1: a peer that answers window probes is alive, however long its window stays
    /// closed.
    #[cold]
    pub(super) fn on_closed_window<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        self.snd.progress_at = io.now;
        io.arm(self);
    }

    /// State changes that the acknowledgement of our FIN causes.
    fn after_ack<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) -> Step {
        if !self.snd.fin_acked() {
            return NEXT;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.cold.fin_wait_2_deadline =
                    io.now + io.shared.config.fin_wait_2.min(self.snd.user_timeout);
                io.arm(self);
                NEXT
            }
            State::Closing => {
                // The ACK of the peer's FIN may still be pending. Send it now, since a closed
                // connection sends nothing.
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

    /// Returns whether an ACK that does not advance concerns recovery: it has SACK blocks or an
    /// echo, or recovery is in progress.
    fn needs_recovery(&self, segment: &Segment) -> bool {
        segment.options.has_sack() || self.has_ecn_echo(segment) || self.is_duplicate_ack(segment)
    }

    /// Returns whether the segment echoes a congestion mark.
    #[inline]
    fn has_ecn_echo(&self, segment: &Segment) -> bool {
        self.opts.ecn && segment.has(Flags::ECE)
    }

    /// Moves SND.UNA to the segment's acknowledgement number.
    fn on_ack_advance<P: Port>(&mut self, io: &mut TcpIo<'_, P>, segment: &Segment, events: &mut TcpEvents) {
        if self.snd.recovery.active || segment.options.has_sack() || self.has_ecn_echo(segment) {
            self.on_ack_in_recovery(io, segment, events);
        } else {
            self.on_ack_outside_recovery(io, segment.ack, events);
        }
    }

    /// Moves SND.UNA to `ack`, outside recovery and without SACK blocks or an echo. Tuning: not
    /// inlined, as the caller has no register left for the connection.
    #[inline(never)]
    pub(super) fn on_ack_outside_recovery<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        ack: Seq,
        events: &mut TcpEvents,
    ) {
        let una_before = self.snd.snd_una;
        let bytes = self.advance_una(io, ack, events);
        let snd = &mut self.snd;
        let now = io.now;
        let (snd_nxt, srtt) = (&snd.snd_nxt, &snd.rtt);
        snd.cc.on_ack_at(now, una_before, || Acked {
            now,
            bytes,
            una_before,
            snd_nxt: *snd_nxt,
            srtt: srtt.srtt(),
            echo: false,
        });
        // RFC 6298 s5.2 and s5.3: every ACK of new data restarts the timer while data is
        // outstanding.
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
        io.arm_for_transmission(self);
    }

    /// Moves SND.UNA and releases the acknowledged units. Returns the count of newly acknowledged
    /// sequence numbers.
    #[inline(always)]
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
        // 64 bits count the bytes of every connection.
        snd.acked_bytes = snd.acked_bytes.wrapping_add(payload.into());
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

    /// Sends retained data that is unsent or lost, as far as the windows permit. If frames are
    /// missing, the next call of transmit or the timer continues.
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

    /// Releases units that are fully acknowledged.
    #[inline(always)]
    fn release_acked<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        let snd = &mut self.snd;
        let una = snd.snd_una;
        if snd.recovery.active {
            self.release_acked_in_recovery(io);
        } else {
            let (mut bytes, mut last) =
                (0, Delivered { sent_at: Nanos::ZERO, seq_end: una, retransmitted: false });
            io.shared.tx.drop_front_while(&mut snd.retained, |unit, _| {
                let is_done = unit.seq_end().leq(una);
                if is_done {
                    // A part of `retained_bytes`.
                    bytes = u32::wrapping_add(bytes, unit.len.into());
                    last = delivered_unit(unit);
                }
                is_done
            });
            snd.retained_bytes = snd.retained_bytes.saturating_sub(bytes);
            // A unit that only a window probe has carried has no transmission time.
            if last.sent_at != Nanos::ZERO {
                snd.recovery.rack.on_delivered(io.now, last);
            }
        }
        let snd = &mut self.snd;
        if !snd.retained.is_empty()
            && io.shared.tx.front(&snd.retained).is_some_and(|unit| unit.seq.lt(snd.snd_una))
        {
            self.trim_acked(io);
        }
    }

    /// The same in recovery: updates the scoreboard and RACK for every unit.
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

    /// docs/semantics.md, Units: an ACK edge inside a unit. If the unit was retransmitted and only
    /// its front arrived, it is larger than the path or the peer now accepts. The rest follows at
    /// once.
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

    /// The right edge of the peer's window moved.
    #[inline]
    pub(super) fn on_window_grown<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        self.notify_writable(events);
        // Only a window probe is in flight, and a unit waits.
        if (self.snd.unsent() || self.snd.board.lost > 0) && self.snd.pipe() == 0 {
            self.on_window_opened(io, events);
        }
    }

    /// Ends window probing and sends the units that waited for the window.
    #[cold]
    fn on_window_opened<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        self.snd.rtt.reset_backoff();
        self.snd.progress_at = io.now;
        self.snd.restart_rto(io.now);
        self.transmit_retained(io, events);
        io.arm(self);
    }
}
