//! SYN, SYN-ACK, FIN and reset.

use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::{Ecn, Nanos, Seq};

use super::TcpIo;
use crate::conn::{Conn, State};
use crate::header::{Flags, HEADER_BYTES, OptionBytes, SynOptions, TIMESTAMPS_BYTES, TxHeader};

impl Conn {
    /// Sends our SYN, with an ACK when the peer's has arrived; for the first time or again.
    #[cold]
    pub(crate) fn send_syn<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        let (header, options) = self.syn(io.now);
        io.send_control(&self.path, &self.flow, header, options.as_slice());
        self.snd.snd_nxt = self.cold.iss;
        self.snd.on_sent(io.now, 1);
        self.ack.pending = false;
        io.arm(self);
    }

    /// Our SYN or SYN-ACK: its header, and its options besides time stamps.
    pub(crate) fn syn(&mut self, now: Nanos) -> (TxHeader, OptionBytes) {
        let answers = self.state == State::SynReceived;
        let (mut flags, asks) = if answers {
            (Flags::SYN | Flags::ACK, Flags::ECE)
        } else {
            (Flags::SYN, Flags::ECE | Flags::CWR)
        };
        flags.set(asks, self.opts.ecn);
        let window_scale = self.cold.scaled.then_some(self.rcv.wscale());
        let offer = SynOptions {
            mss: Some(self.advertised_mss()),
            window_scale,
            sack_permitted: self.opts.sack,
            timestamps: None,
        };
        let header = TxHeader {
            window: self.rcv.advertise_window_in_syn(),
            timestamps: self.opts.timestamps.then(|| self.ts.option(now)),
            ..TxHeader::bare(self.cold.iss, self.rcv.rcv_nxt, flags)
        };
        (header, offer.encode())
    }

    /// The header of a segment of this connection: acknowledges what has arrived and says what may come.
    #[inline]
    pub(super) fn header(&mut self, now: Nanos, seq: Seq, flags: Flags) -> TxHeader {
        let ack = self.rcv.rcv_nxt;
        self.ts.last_ack_sent = ack;
        let echo = if self.echo.echoing { Flags::ECE } else { Flags::empty() };
        TxHeader {
            seq,
            ack,
            window: self.rcv.advertise_window(),
            flags: flags | echo,
            timestamps: self.opts.timestamps.then(|| self.ts.option(now)),
            ecn: Ecn::NotEct,
        }
    }

    /// Where the payload of this connection's segments begins in a frame.
    #[inline]
    pub(super) fn payload_at(&self) -> usize {
        let options = if self.opts.timestamps { TIMESTAMPS_BYTES } else { 0 };
        self.path.header_bytes() + HEADER_BYTES + options
    }

    /// RFC 9293 s3.10.4: asks for the end of our direction. The FIN follows all payload that was pulled.
    pub(crate) fn close<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
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
    pub(crate) fn abort<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        if self.state.is_live() && self.state != State::SynSent {
            let reset = TxHeader {
                // RFC 7323 s3.2: a reset should carry them too.
                timestamps: self.opts.timestamps.then(|| self.ts.option(io.now)),
                ..TxHeader::bare(self.snd.ack_seq(), Seq(0), Flags::RST)
            };
            io.count(Counter::TcpTxResets);
            io.send_control(&self.path, &self.flow, reset, &[]);
        }
        self.state = State::Closed;
        self.snd.timer_at = Nanos::MAX;
    }
}
