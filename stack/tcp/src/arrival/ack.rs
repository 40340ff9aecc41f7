//! The fifth step of RFC 9293 s3.10.7.4: what the peer acknowledges and the window it offers.

use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::limits::BURST_FRAMES;
use ironwarp_types::{Nanos, Seq};

use super::{DONE, NEXT, Step};
use crate::conn::{Conn, State};
use crate::events::TcpEvents;
use crate::header::{Flags, Segment};
use crate::output::Io;
use crate::queue::NIL;

impl Conn {
    /// Fifth step.
    pub(super) fn check_ack<P: Port>(
        &mut self,
        io: &mut Io<'_, P>,
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
        self.on_ack(io, segment, events);
        self.after_ack(io, events)
    }

    /// RFC 5961 s5: an ACK of what was never sent, or of the distant past, was guessed by somebody.
    fn check_ack_number<P: Port>(&mut self, io: &mut Io<'_, P>, segment: &Segment) -> Step {
        let oldest = self.snd.snd_una.minus(self.snd.snd_wnd_max);
        if segment.ack.since(oldest) <= self.snd.snd_max.since(oldest) {
            return NEXT;
        }
        io.count(Counter::TcpDropAckNumber);
        self.challenge(io);
        DONE
    }

    fn on_ack<P: Port>(&mut self, io: &mut Io<'_, P>, segment: &Segment, events: &mut TcpEvents) {
        let duplicate = self.is_duplicate(segment);
        // The window counts from this ACK on: together with it, and before anything is sent.
        let grown = self.snd.snd_una.leq(segment.ack)
            && self.snd.update_window(segment.seq, segment.ack, segment.window);
        if segment.ack.gt(self.snd.snd_una) {
            self.on_ack_advance(io, segment.ack, events);
        } else if duplicate {
            self.on_duplicate_ack(io, events);
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
    fn after_ack<P: Port>(&mut self, io: &mut Io<'_, P>, events: &mut TcpEvents) -> Step {
        if !self.snd.fin_acked() {
            return NEXT;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.cold.linger_at = io.now + io.shared.config.fin_wait_2;
                io.arm(self);
                NEXT
            }
            State::Closing => {
                // The ACK of the peer's FIN may still be owed, and nothing is paid after the end.
                if self.ack.owed {
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

    /// SND.UNA moves to `ack`.
    #[inline]
    pub(super) fn on_ack_advance<P: Port>(&mut self, io: &mut Io<'_, P>, ack: Seq, events: &mut TcpEvents) {
        let snd = &mut self.snd;
        let (acked, flight) = (ack.since(snd.snd_una), snd.flight());
        let payload = ack.min(snd.snd_end).since(snd.snd_una);
        snd.rtt.on_ack(io.now, ack, io.shared.config.rto_min);
        snd.snd_una = ack;
        snd.snd_nxt = snd.snd_nxt.max(ack);
        snd.resend_first = snd.cc.on_ack(ack, acked, flight);
        snd.acked_bytes += u64::from(payload);
        snd.progress_at = io.now;
        // RFC 6298 s5.2 and s5.3: the timer runs while anything is outstanding, and begins anew with every ACK.
        snd.timer_at = if snd.outstanding() { io.now + snd.rtt.rto() } else { Nanos::MAX };
        self.release_acked(io);
        if payload > 0 {
            *events |= TcpEvents::ACKED;
        }
        self.tell_writable(events);
        if self.snd.resend_first || self.snd.unsent() || self.snd.fin_due() {
            self.recover(io, events);
        }
        io.arm(self);
    }

    #[inline]
    fn tell_writable(&mut self, events: &mut TcpEvents) {
        if core::mem::take(&mut self.snd.stopped) {
            *events |= TcpEvents::WRITABLE;
        }
    }

    /// Sends what is here already and was not sent, or must go again, as far as the windows let it. What a lack of frames
    /// leaves over is for the layer above to call for, and for the timer.
    #[cold]
    pub(crate) fn recover<P: Port>(&mut self, io: &mut Io<'_, P>, events: &mut TcpEvents) {
        if self.wants_transmit() {
            self.transmit(io, &mut (), BURST_FRAMES);
        }
        if self.wants_transmit() {
            *events |= TcpEvents::RETRANSMIT;
        }
    }

    /// Lets go of units that are acknowledged to their last byte.
    #[inline]
    fn release_acked<P: Port>(&mut self, io: &mut Io<'_, P>) {
        let snd = &mut self.snd;
        while let Some(unit) = io.shared.tx.front(&snd.retained)
            && unit.seq_end().leq(snd.snd_una)
        {
            snd.retained_bytes = snd.retained_bytes.saturating_sub(u32::from(unit.len));
            if snd.cursor == snd.retained.head() {
                snd.cursor = NIL;
            }
            io.shared.tx.pop_front(&mut snd.retained);
        }
    }

    /// RFC 5681 s2: outstanding data, no payload, no SYN or FIN, nothing new acknowledged, the same window.
    fn is_duplicate(&self, segment: &Segment) -> bool {
        let window = u32::from(segment.window) << self.snd.wscale;
        segment.ack == self.snd.snd_una
            && segment.len() == 0
            && !segment.has(Flags::SYN | Flags::FIN)
            && self.snd.outstanding()
            && window == self.snd.snd_wnd
            && window > 0
    }

    #[cold]
    fn on_duplicate_ack<P: Port>(&mut self, io: &mut Io<'_, P>, events: &mut TcpEvents) {
        io.count(Counter::TcpRxDuplicateAcks);
        let snd = &mut self.snd;
        let flight = snd.snd_max.since(snd.snd_una);
        if snd.cc.on_dup_ack(snd.snd_una, snd.snd_max, flight) {
            io.count(Counter::TcpFastRetransmits);
            snd.resend_first = true;
            self.recover(io, events);
        }
        // RFC 3042 and RFC 6582: each one may let a segment out.
        self.tell_writable(events);
    }

    /// The peer's window reaches farther than before.
    #[inline]
    pub(super) fn on_window_grown<P: Port>(&mut self, io: &mut Io<'_, P>, events: &mut TcpEvents) {
        self.tell_writable(events);
        // Nothing is in flight but a probe, and a unit waits.
        if self.snd.unsent() && self.snd.snd_max.since(self.snd.snd_una) <= 1 {
            self.on_window_opened(io, events);
        }
    }

    /// What waited for the window goes first; the persist timer has done its work.
    #[cold]
    fn on_window_opened<P: Port>(&mut self, io: &mut Io<'_, P>, events: &mut TcpEvents) {
        self.snd.rtt.reset_backoff();
        self.snd.progress_at = io.now;
        self.snd.timer_at = io.now + self.snd.rtt.rto();
        self.recover(io, events);
        io.arm(self);
    }
}
