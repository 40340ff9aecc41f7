//! The connection's timer: retransmission, window probes, SYNs, the user timeout and FIN-WAIT-2.
//!
//! Each connection has one timer, set to its earliest deadline. Source: RFC 6298 s5,
//! RFC 9293 s3.8.3, s3.8.6.1 and s3.10.8.

use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;
use ironwarp_types::limits::FPDU_MARKED_BYTES_MAX;

use super::TcpIo;
use crate::TcpEvents;
use crate::conn::{Conn, KeepAliveAction, State, Timer};
use crate::header::Flags;

/// A core that is later than this with a timer stood still: its process was stopped, or its virtual
/// machine.
const PAUSE_MIN: Nanos = Nanos::from_secs(1);

impl Conn {
    /// The timer fired.
    #[cold]
    pub(crate) fn on_timer<P: Port>(&mut self, io: &mut TcpIo<'_, P>) -> TcpEvents {
        let mut events = TcpEvents::empty();
        if !self.state.is_live() {
            return events;
        }
        if self.cold.black_hole.raise_at <= io.now {
            self.raise_path_mtu(io);
        }
        self.forgive_pause(io.now);
        let timed_out =
            self.snd.timer_at != Nanos::MAX && self.snd.progress_at + self.snd.user_timeout <= io.now;
        if timed_out || self.cold.fin_wait_2_deadline <= io.now || self.exceeds_rx_pressure_limit(io) {
            self.abort_on_timeout(io, &mut events);
        } else if self.snd.timer_at <= io.now {
            self.on_retransmission_timer(io, &mut events);
        } else if self.last_rx_at + self.cold.keep_alive.wait <= io.now {
            self.on_keep_alive_timer(io, &mut events);
        }
        if self.state.is_live() {
            io.arm(self);
        }
        events
    }

    /// Moves the start of the peer's silence forward by the time in which this core stood still: it
    /// retransmitted nothing and read no answer. Without this a pause that exceeds the user timeout
    /// ends connections whose peers are alive (RFC 9293 s3.8.3 counts from retransmissions). A user
    /// timeout below two seconds has a lower limit for what is a pause.
    fn forgive_pause(&mut self, now: Nanos) {
        let late = now.since(self.snd.timer_at);
        if late < PAUSE_MIN.min(Nanos(self.snd.user_timeout.0 / 2)) {
            return;
        }
        self.snd.progress_at = (self.snd.progress_at + late).min(now);
        let (closed_at, _) = &mut self.cold.window_closed;
        if *closed_at != Nanos::MAX {
            *closed_at = (*closed_at + late).min(now);
        }
    }

    /// Returns whether a partial FPDU, which the peer does not complete, has kept other connections
    /// from frames for too long. A whole FPDU means that our own reader is late.
    fn exceeds_rx_pressure_limit<P: Port>(&self, io: &TcpIo<'_, P>) -> bool {
        let exceeds_rx_pressure_limit = self.rcv.unread < FPDU_MARKED_BYTES_MAX as u32
            && io.shared.rx_pressure_expired(io.now, self.slot);
        if exceeds_rx_pressure_limit {
            io.count(Counter::TcpRxPressureResets);
        }
        exceeds_rx_pressure_limit
    }

    fn on_retransmission_timer<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        self.snd.timer_at = Nanos::MAX;
        if self.snd.recovery.held {
            self.end_hold(io, events);
            if !self.snd.outstanding() {
                return self.transmit_retained(io, events);
            }
        }
        match self.state {
            State::SynSent | State::SynReceived => self.on_syn_timeout(io, events),
            _ if self.snd.snd_wnd == 0 => self.on_persist(io, events),
            _ if self.snd.flight() > 0 => self.on_data_timer(io, events),
            // The window is open, and at most a probe is in flight: send what was blocked. Data
            // that lacks a frame or a device keeps its original progress time.
            _ => {
                let waiting_since = self.snd.progress_at;
                self.transmit_retained(io, events);
                if self.snd.flight() == 0 {
                    self.snd.progress_at = waiting_since;
                }
            }
        }
    }

    fn on_data_timer<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        match self.snd.timer {
            Timer::Pto => self.on_tlp_timer(io),
            Timer::Reordering => self.on_reordering_timer(io, events),
            Timer::Rto => {
                self.confirm_path_mtu(io);
                let first = io.shared.tx.front(&self.snd.retained).map_or(0, |unit| unit.len);
                self.suspect_black_hole(io, first);
                self.on_timeout(io, events);
            }
        }
    }

    /// RFC 9293 s3.8.3: retransmits the SYN, up to the limit.
    fn on_syn_timeout<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        if self.cold.syn_retries >= io.shared.config.syn_retries {
            self.abort_on_timeout(io, events);
            return;
        }
        self.cold.syn_retries += 1;
        self.snd.rtt.on_timeout();
        io.count(Counter::TcpSynTimeouts);
        self.retransmit_syn(io);
    }

    /// RFC 9293 s3.8.6.1: the window was closed for a whole timeout. The peer dropped what was in
    /// flight, which is not congestion.
    fn on_persist<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        if self.exceeds_zero_window_limit(io.now) {
            io.count(Counter::TcpZeroWindowAborts);
            self.abort_on_timeout(io, events);
            return;
        }
        self.snd.rtt.on_timeout();
        self.mark_overdue(io);
        self.snd.recovery.active |= self.snd.board.lost > 0;
        self.snd.restart_rto(io.now);
        self.send_window_probe(io);
    }

    /// Returns whether the peer has answered probes for too long without accepting a byte
    /// (RFC 6429 s3).
    fn exceeds_zero_window_limit(&mut self, now: Nanos) -> bool {
        let acked_bytes = self.snd.acked_bytes;
        let (closed_at, acked_before) = &mut self.cold.window_closed;
        if *closed_at == Nanos::MAX || *acked_before != acked_bytes {
            (*closed_at, *acked_before) = (now, acked_bytes);
        }
        now.since(*closed_at) >= self.cold.zero_window_timeout
    }

    /// RFC 9293 s3.8.4: probes an idle peer with an acknowledged sequence number. While data is
    /// outstanding, the retransmission timer does this instead.
    fn on_keep_alive_timer<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        if !self.state.is_synchronised() || self.snd.outstanding() {
            self.last_rx_at = io.now;
            return;
        }
        match self.cold.keep_alive.on_timer(io.now, self.last_rx_at) {
            KeepAliveAction::Wait => {}
            KeepAliveAction::Probe => {
                let header = self.header(io.now, self.snd.snd_una.minus(1), Flags::ACK);
                io.count(Counter::TcpKeepAliveProbes);
                io.send_control(&self.path, self.ports, header, &[]);
                // Whatever answers it must restart the idle time, which the fast path does not do.
                self.snd.recovery.active = true;
            }
            KeepAliveAction::GiveUp => self.abort_on_timeout(io, events),
        }
    }

    /// RFC 9293 s3.10.8: aborts the connection because the peer did not answer.
    pub(crate) fn abort_on_timeout<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        io.count(Counter::TcpTimeoutAborts);
        if self.state == State::SynReceived && self.cold.listener.is_some() {
            self.state = State::Listen;
            return;
        }
        self.abort(io);
        self.end(TcpEvents::TIMED_OUT, events);
        // RFC 1122 s4.2.3.9: reports ICMP errors when the connection has failed.
        events.set(TcpEvents::UNREACHABLE, self.cold.unreachable);
    }
}
