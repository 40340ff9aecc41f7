//! SYN, SYN-ACK, FIN and reset.

use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::{Ecn, Nanos, Seq};

use super::Io;
use crate::conn::{Conn, State};
use crate::header::{Control, Flags, HEADER_BYTES, OptionBytes, SynOptions, TIMESTAMPS_BYTES};

impl Conn {
    /// Sends our SYN, with an ACK when the peer's has arrived; for the first time or again.
    #[cold]
    pub(crate) fn send_syn<P: Port>(&mut self, io: &mut Io<'_, P>) {
        let (control, options) = self.syn(io.now);
        io.send_control(&self.path, &self.flow, control, options.as_slice());
        self.snd.snd_nxt = self.cold.iss;
        self.snd.on_sent(io.now, 1);
        self.ack.owed = false;
        io.arm(self);
    }

    /// Our SYN or SYN-ACK: its header, and its options besides time stamps.
    pub(crate) fn syn(&mut self, now: Nanos) -> (Control, OptionBytes) {
        let answers = self.state == State::SynReceived;
        let (mut flags, asks) = if answers {
            (Flags::SYN | Flags::ACK, Flags::ECE)
        } else {
            (Flags::SYN, Flags::ECE | Flags::CWR)
        };
        flags.set(asks, self.opts.ecn);
        let window_scale = self.cold.scaled.then_some(self.rcv.wscale());
        let offer = SynOptions {
            mss: Some(self.mss_announced()),
            window_scale,
            sack_permitted: self.opts.sack,
            timestamps: None,
        };
        let control = Control {
            window: self.rcv.announce_in_syn(),
            timestamps: self.opts.timestamps.then(|| self.stamps.stamp(now)),
            ..Control::bare(self.cold.iss, self.rcv.rcv_nxt, flags)
        };
        (control, offer.encode())
    }

    /// The header of a segment of this connection: acknowledges what has arrived and says what may come.
    #[inline]
    pub(super) fn control(&mut self, now: Nanos, seq: Seq, flags: Flags) -> Control {
        let ack = self.rcv.rcv_nxt;
        self.stamps.last_ack_sent = ack;
        let echo = if self.echo.echoing { Flags::ECE } else { Flags::empty() };
        Control {
            seq,
            ack,
            window: self.rcv.announce(),
            flags: flags | echo,
            timestamps: self.opts.timestamps.then(|| self.stamps.stamp(now)),
            ecn: Ecn::NotCapable,
        }
    }

    /// Where the payload of this connection's segments begins in a frame.
    #[inline]
    pub(super) fn payload_at(&self) -> usize {
        let options = if self.opts.timestamps { TIMESTAMPS_BYTES } else { 0 };
        self.path.header_bytes() + HEADER_BYTES + options
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
            let reset = Control {
                // RFC 7323 s3.2: a reset should carry them too.
                timestamps: self.opts.timestamps.then(|| self.stamps.stamp(io.now)),
                ..Control::bare(self.snd.ack_seq(), Seq(0), Flags::RST)
            };
            io.count(Counter::TcpTxResets);
            io.send_control(&self.path, &self.flow, reset, &[]);
        }
        self.state = State::Closed;
        self.snd.timer_at = Nanos::MAX;
    }
}
