//! The handshake: SYN-SENT (RFC 9293 s3.10.7.3) and the ACK that ends SYN-RECEIVED.

use ironwarp_net::Packet;
use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::{DONE, NEXT, Step};
use crate::TcpEvents;
use crate::conn::{Conn, State};
use crate::header::{Flags, Segment, SynOptions};
use crate::output::TcpIo;

impl Conn {
    /// RFC 9293 s3.10.7.3.
    pub(super) fn on_segment_in_syn_sent<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: Segment,
        arrived: Packet<P::Frame>,
        events: &mut TcpEvents,
    ) {
        if segment.has(Flags::ACK) && segment.ack != self.snd.snd_max {
            return self.on_bad_ack_in_syn_sent(io, &segment);
        }
        if segment.has(Flags::RST) {
            return self.on_reset_in_syn_sent(io, &segment, events);
        }
        if !segment.has(Flags::SYN) {
            io.count(Counter::TcpDropNoConnection);
            return;
        }
        let options = SynOptions::parse(segment.option_list(&arrived));
        self.on_peer_syn(io.now, &segment, options);
        if segment.has(Flags::ACK) {
            self.on_syn_ack(io, segment, arrived, events);
        } else {
            self.on_crossing_syn(io, &segment);
        }
    }

    /// First step: an ACK that does not acknowledge our SYN.
    fn on_bad_ack_in_syn_sent<P: Port>(&mut self, io: &mut TcpIo<'_, P>, segment: &Segment) {
        io.count(Counter::TcpDropUnacceptableAck);
        if !segment.has(Flags::RST) && io.may_reply() {
            io.send_reset(&self.path, self.ports, (Some(segment.ack), segment.seq));
        }
    }

    /// Second step: accepts a reset only if it acknowledges our SYN.
    fn on_reset_in_syn_sent<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: &Segment,
        events: &mut TcpEvents,
    ) {
        if !segment.has(Flags::ACK) {
            io.count(Counter::TcpDropOutsideWindow);
            return;
        }
        io.count(Counter::TcpRxResets);
        // The timer sends the SYN again.
        if self.cold.syn_retries >= io.shared.config.refused_retries {
            self.end(TcpEvents::REFUSED, events);
        }
    }

    /// Fourth step, our SYN is acknowledged: opens the connection and processes payload of the SYN.
    fn on_syn_ack<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        mut segment: Segment,
        arrived: Packet<P::Frame>,
        events: &mut TcpEvents,
    ) {
        // The window of a SYN is never scaled (RFC 7323 s2.2).
        let window = u32::from(segment.window);
        self.rcv.advertise_window();
        self.establish(io, &segment, window, events);
        self.schedule_ack_now(io);
        segment.seq = segment.seq.plus(1);
        segment.flags.remove(Flags::SYN);
        if self.state.may_receive() {
            let _ = self.process_text_and_fin(io, segment, arrived.frame, events);
        }
    }

    /// Fourth step, our SYN is not acknowledged: a simultaneous open.
    fn on_crossing_syn<P: Port>(&mut self, io: &mut TcpIo<'_, P>, segment: &Segment) {
        self.state = State::SynReceived;
        self.snd.snd_wl1 = segment.seq;
        self.snd.snd_wnd = u32::from(segment.window);
        self.send_syn(io);
    }

    /// Fifth step in SYN-RECEIVED: the ACK of our SYN opens the connection. Any other ACK is
    /// answered with a reset.
    pub(super) fn check_ack_in_syn_received<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: &Segment,
        events: &mut TcpEvents,
    ) -> Step {
        if segment.ack == self.snd.snd_max {
            let window = u32::from(segment.window) << self.snd.wscale;
            self.establish(io, segment, window, events);
            return NEXT;
        }
        io.count(Counter::TcpDropUnacceptableAck);
        if io.may_reply() {
            io.send_reset(&self.path, self.ports, (Some(segment.ack), segment.seq));
        }
        DONE
    }

    /// Opens the connection: both SYNs are acknowledged.
    #[cold]
    fn establish<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: &Segment,
        window: u32,
        events: &mut TcpEvents,
    ) {
        io.count(Counter::TcpEstablished);
        self.state = if self.snd.fin_queued { State::FinWait1 } else { State::Established };
        let snd = &mut self.snd;
        snd.rtt.on_ack(io.now, segment.ack, io.shared.config.rto_min);
        if self.cold.syn_retries > 0 {
            snd.rtt.on_syn_lost(io.shared.config.rto_after_syn_loss);
        }
        snd.snd_una = segment.ack;
        snd.snd_nxt = segment.ack;
        (snd.snd_wl1, snd.snd_wl2) = (segment.seq, segment.ack);
        (snd.snd_wnd, snd.snd_wnd_max) = (window, window);
        snd.progress_at = io.now;
        snd.timer_at = Nanos::MAX;
        self.init_cwnd(&io.shared.config);
        io.arm(self);
        *events |= TcpEvents::ESTABLISHED;
        // The connection was closed during the handshake. Send the FIN now.
        if self.snd.fin_queued {
            self.transmit_retained(io, events);
        }
    }

    /// Retransmits our SYN or SYN-ACK because the peer repeated its own. Not a timeout: no backoff.
    pub(crate) fn retransmit_syn<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        io.count(Counter::TcpTxRetransmits);
        self.snd.retransmits = self.snd.retransmits.saturating_add(1);
        // RFC 3168 s6.1.1.1: a middlebox may drop a SYN that asks for ECN.
        self.opts.ecn &= self.state != State::SynSent;
        self.send_syn(io);
        self.snd.rtt.on_retransmit();
    }
}
