//! The connection's timer: retransmission, window probes, SYNs, the user timeout and the wait for the peer's FIN.
//!
//! One timer a connection, set to the earliest of its deadlines. Source: RFC 6298 s5, RFC 9293 s3.8.3, s3.8.6.1 and
//! s3.10.8.

use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::Io;
use crate::conn::{Conn, Silence, State};
use crate::events::TcpEvents;
use crate::header::Flags;
use crate::queue::NIL;

impl Conn {
    /// The timer fired.
    #[cold]
    pub(crate) fn on_timer<P: Port>(&mut self, io: &mut Io<'_, P>) -> TcpEvents {
        let mut events = TcpEvents::empty();
        if !self.state.is_live() {
            return events;
        }
        let given_up =
            self.snd.timer_at != Nanos::MAX && self.snd.progress_at + self.cold.user_timeout <= io.now;
        if given_up || self.cold.linger_at <= io.now {
            self.give_up(io, &mut events);
        } else if self.snd.timer_at <= io.now {
            self.on_retransmission_timer(io, &mut events);
        } else if self.heard_at + self.cold.idle.wait <= io.now {
            self.on_silence(io, &mut events);
        }
        if self.state.is_live() {
            io.arm(self);
        }
        events
    }

    fn on_retransmission_timer<P: Port>(&mut self, io: &mut Io<'_, P>, events: &mut TcpEvents) {
        self.snd.timer_at = Nanos::MAX;
        match self.state {
            State::SynSent | State::SynReceived => self.on_syn_timeout(io, events),
            _ if self.snd.snd_wnd == 0 => self.on_persist(io),
            _ if self.snd.outstanding() => self.on_rto(io, events),
            // The window is open and nothing is in flight: what could not leave before may now.
            _ => self.recover(io, events),
        }
    }

    /// RFC 9293 s3.8.3: the SYN is repeated, with a limit.
    fn on_syn_timeout<P: Port>(&mut self, io: &mut Io<'_, P>, events: &mut TcpEvents) {
        if self.cold.syn_retries >= io.shared.config.syn_retries {
            self.give_up(io, events);
            return;
        }
        self.cold.syn_retries += 1;
        self.snd.rtt.on_timeout();
        io.count(Counter::TcpTimeouts);
        self.resend_syn(io);
    }

    /// RFC 6298 s5.4 to s5.6: everything unacknowledged counts as lost, and is sent again from the first unit on as
    /// acknowledgements make room.
    fn on_rto<P: Port>(&mut self, io: &mut Io<'_, P>, events: &mut TcpEvents) {
        io.count(Counter::TcpTimeouts);
        self.confirm_path_mtu(io);
        let snd = &mut self.snd;
        snd.cc.on_timeout(snd.snd_una, snd.snd_max, snd.flight());
        snd.rtt.on_timeout();
        snd.snd_nxt = snd.snd_una;
        snd.cursor = NIL;
        snd.resend_first = false;
        snd.timer_at = io.now + snd.rtt.rto();
        self.recover(io, events);
    }

    fn on_persist<P: Port>(&mut self, io: &mut Io<'_, P>) {
        self.snd.rtt.on_timeout();
        self.snd.timer_at = io.now + self.snd.rtt.rto();
        self.probe(io);
    }

    /// RFC 9293 s3.8.4: an idle peer is asked whether it is still there, with a number that it has acknowledged. While
    /// anything is outstanding the retransmission timer asks.
    fn on_silence<P: Port>(&mut self, io: &mut Io<'_, P>, events: &mut TcpEvents) {
        if !self.state.is_synchronised() || self.snd.outstanding() {
            self.heard_at = io.now;
            return;
        }
        match self.cold.idle.on_timer(io.now, self.heard_at) {
            Silence::Short => {}
            Silence::Probe => {
                let control = self.control(io.now, self.snd.snd_una.minus(1), Flags::ACK);
                io.count(Counter::TcpKeepAliveProbes);
                io.send_control(&self.path, &self.flow, control, &[]);
            }
            Silence::Final => self.give_up(io, events),
        }
    }

    /// The peer has been silent for too long. RFC 9293 s3.10.8.
    fn give_up<P: Port>(&mut self, io: &mut Io<'_, P>, events: &mut TcpEvents) {
        io.count(Counter::TcpGivenUp);
        if self.state == State::SynReceived && self.cold.listener.is_some() {
            self.state = State::Listen;
            return;
        }
        self.abort(io);
        self.end(TcpEvents::TIMED_OUT, events);
        // RFC 1122 s4.2.3.9: what routers had said is told when the connection has failed for it.
        events.set(TcpEvents::UNREACHABLE, self.cold.unreachable);
    }
}
