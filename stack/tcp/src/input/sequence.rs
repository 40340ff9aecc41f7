//! The first, second and fourth step of RFC 9293 s3.10.7.4: sequence number, reset, SYN.

use ironwarp_port::Port;
use ironwarp_stats::Counter;

use super::{DONE, NEXT, Step};
use crate::TcpEvents;
use crate::conn::{Conn, State};
use crate::header::{Flags, Segment};
use crate::output::TcpIo;

impl Conn {
    /// RFC 9293 figure 7: after a simultaneous open each side's SYN-ACK repeats its SYN. The SYN is
    /// old, but the acknowledgement is new. The segment is therefore processed without its SYN.
    pub(super) fn complete_simultaneous_open(&self, segment: &mut Segment) {
        let repeats =
            segment.flags.contains(Flags::SYN | Flags::ACK) && segment.seq.plus(1) == self.rcv.rcv_nxt;
        if repeats && self.state == State::SynReceived && self.cold.listener.is_none() {
            segment.flags.remove(Flags::SYN);
            segment.seq = self.rcv.rcv_nxt;
            // RFC 7323 s2.2: the window of a SYN is unscaled, but later steps scale it.
            segment.window >>= self.snd.wscale;
        }
    }

    /// RFC 7323 s5.3, before the first step: a segment with an old timestamp is a duplicate from
    /// before its sequence number wrapped. Like any duplicate, it is dropped and acknowledged.
    pub(super) fn check_paws<P: Port>(&mut self, io: &mut TcpIo<'_, P>, segment: &Segment) -> Step {
        // A reset is checked by its sequence number alone. A SYN may come from a restarted peer and
        // is never accepted.
        if !self.opts.timestamps || segment.has(Flags::RST | Flags::SYN) {
            return NEXT;
        }
        let Some(stamp) = segment.options.timestamps else {
            // RFC 7323 s3.2: all segments carry timestamps or none do, so this one is not our
            // peer's.
            io.count(Counter::TcpDropNoTimestamps);
            return DONE;
        };
        if !self.ts.is_before_ts_recent(stamp.tsval) || self.ts.is_ts_recent_expired(io.now) {
            return NEXT;
        }
        io.count(Counter::TcpDropPaws);
        if segment.len() > 0 || segment.has(Flags::FIN) {
            self.schedule_ack_now(io);
        } else {
            self.challenge(io);
        }
        DONE
    }

    /// RFC 7323 s5.3, R3: an acceptable segment updates TS.Recent, but only after its
    /// acknowledgement was checked. Otherwise a guessed segment could set TS.Recent so far ahead
    /// that all segments of the peer would be rejected (RFC 5961 s5).
    pub(super) fn update_ts_recent<P: Port>(&mut self, io: &TcpIo<'_, P>, segment: &Segment) {
        if let Some(stamp) = segment.options.timestamps {
            self.ts.update_recent(io.now, segment.seq, stamp.tsval);
        }
    }

    /// First step: a part of the segment must lie in the window.
    pub(super) fn check_sequence<P: Port>(&mut self, io: &mut TcpIo<'_, P>, segment: &mut Segment) -> Step {
        if self.rcv.acceptable(segment) {
            return NEXT;
        }
        if self.is_ack_to_closed_window(segment) {
            self.schedule_ack_now(io);
            segment.end = segment.start;
            segment.flags.remove(Flags::FIN);
            return NEXT;
        }
        self.on_unacceptable(io, segment);
        DONE
    }

    /// "If the RCV.WND is zero, no segments will be acceptable, but special allowance should be
    /// made to accept valid ACKs". Returns whether this applies; the payload is ignored.
    fn is_ack_to_closed_window(&self, segment: &Segment) -> bool {
        self.rcv.rcv_adv == self.rcv.rcv_nxt
            && segment.seq == self.rcv.rcv_nxt
            && !segment.has(Flags::SYN | Flags::RST)
    }

    #[cold]
    fn on_unacceptable<P: Port>(&mut self, io: &mut TcpIo<'_, P>, segment: &Segment) {
        io.count(Counter::TcpDropOutsideWindow);
        if segment.has(Flags::RST) {
            return;
        }
        let repeats_syn = segment.has(Flags::SYN) && segment.seq.plus(1) == self.rcv.rcv_nxt;
        if self.state == State::SynReceived && repeats_syn {
            // The peer has not received our SYN-ACK; an ACK would not help it.
            self.retransmit_syn(io);
        } else if segment.len() > 0 || segment.has(Flags::FIN) {
            // A retransmission of accepted payload or of a FIN: the peer waits for this ACK.
            let end = segment.seq.plus(segment.len()).min(self.rcv.rcv_nxt);
            self.sack_ranges().on_duplicate(segment.seq, end);
            self.schedule_ack_now(io);
        } else {
            // The limit prevents two endpoints that disagree from exchanging ACKs endlessly.
            self.challenge(io);
        }
    }

    /// Second step, with the checks of RFC 5961 s3: accepts a reset only at exactly RCV.NXT. A
    /// reset elsewhere in the window draws a challenge ACK.
    pub(super) fn check_reset<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: &Segment,
        events: &mut TcpEvents,
    ) -> Step {
        if !segment.has(Flags::RST) {
            return NEXT;
        }
        if segment.seq != self.rcv.rcv_nxt {
            self.challenge(io);
            return DONE;
        }
        io.count(Counter::TcpRxResets);
        self.on_ack_of_reset(io, segment, events);
        let passive = self.cold.listener.is_some();
        match self.state {
            State::SynReceived if passive => self.state = State::Listen,
            State::SynReceived => self.end(TcpEvents::REFUSED, events),
            // All payload is transferred in both directions, so the connection counts as closed.
            State::Closing | State::LastAck if self.snd.payload_acked() => {
                self.end(TcpEvents::CLOSED, events);
            }
            _ => self.end(TcpEvents::RESET, events),
        }
        DONE
    }

    /// The peer's reset acknowledges what it had received before. RFC 9293 s3.10.7.4 ends the
    /// connection in the second step without a look at the ACK; what is acknowledged here would be
    /// flushed although the peer has it. The ACK is taken only from a reset at exactly RCV.NXT, and
    /// only in the range of what was sent (RFC 5961 s3.2 and s5.2).
    fn on_ack_of_reset<P: Port>(&mut self, io: &mut TcpIo<'_, P>, segment: &Segment, events: &mut TcpEvents) {
        let una = self.snd.snd_una;
        let is_acceptable = segment.ack.since(una) <= self.snd.snd_max.since(una);
        if segment.has(Flags::ACK) && is_acceptable && self.state.is_synchronised() {
            self.advance_una(io, segment.ack, events);
        }
    }

    /// Fourth step: a SYN in a synchronised state draws a challenge ACK (RFC 5961 s4). In a
    /// half-open connection it means that the peer restarted.
    pub(super) fn check_syn<P: Port>(&mut self, io: &mut TcpIo<'_, P>, segment: &Segment) -> Step {
        if !segment.has(Flags::SYN) {
            return NEXT;
        }
        io.count(Counter::TcpDropUnexpectedSyn);
        if self.state == State::SynReceived && self.cold.listener.is_some() {
            self.state = State::Listen;
        } else {
            self.challenge(io);
        }
        DONE
    }
}
