//! SYN, SYN-ACK, FIN and reset.

use ironwarp_port::Port;
use ironwarp_types::Nanos;

use super::Io;
use crate::conn::{Conn, State};
use crate::header::{Control, Flags, SynOptions};

impl Conn {
    /// Sends our SYN, with an ACK when the peer's has arrived; for the first time or again.
    #[cold]
    pub(crate) fn send_syn<P: Port>(&mut self, io: &mut Io<'_, P>) {
        let answers = self.state == State::SynReceived;
        let flags = if answers { Flags::SYN | Flags::ACK } else { Flags::SYN };
        let window_scale = self.cold.scaled.then_some(self.rcv.wscale());
        let (options, used) = SynOptions { mss: Some(self.mss_announced()), window_scale }.encode();
        let control =
            Control { seq: self.cold.iss, ack: self.rcv.rcv_nxt, window: self.rcv.announce_in_syn(), flags };
        io.send_control(&self.path, &self.flow, control, options.get(..used).unwrap_or_default());
        self.snd.snd_nxt = self.cold.iss;
        self.snd.on_sent(io.now, 1);
        self.ack.owed = false;
        io.arm(self);
    }

    /// Sends our FIN behind all payload, for the first time or again. Answers whether it left.
    #[cold]
    pub(crate) fn send_fin<P: Port>(&mut self, io: &mut Io<'_, P>) -> bool {
        let control = Control {
            seq: self.snd.snd_end,
            ack: self.rcv.rcv_nxt,
            window: self.rcv.announce(),
            flags: Flags::FIN | Flags::ACK,
        };
        let sent = io.send_control(&self.path, &self.flow, control, &[]);
        if sent {
            self.snd.on_sent(io.now, 1);
            self.ack.owed = false;
        }
        sent
    }

    /// RFC 9293 s3.10.4: asks for the end of our direction. The FIN follows all payload that was pulled.
    pub(crate) fn close<P: Port>(&mut self, io: &mut Io<'_, P>) {
        self.state = match self.state {
            State::SynSent => State::Closed,
            // The FIN waits until the SYN is acknowledged.
            State::SynReceived => State::SynReceived,
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            _ => return,
        };
        self.snd.fin_queued = true;
        self.transmit(io, &mut (), 1);
    }

    /// RFC 9293 s3.10.5: ends the connection at once, and tells the peer where it could know of it.
    #[cold]
    pub(crate) fn abort<P: Port>(&mut self, io: &mut Io<'_, P>) {
        if self.state.is_live() && self.state != State::SynSent {
            io.send_reset(&self.path, &self.flow, (Some(self.snd.ack_seq()), self.rcv.rcv_nxt));
        }
        self.state = State::Closed;
        self.snd.timer_at = Nanos::MAX;
    }
}
