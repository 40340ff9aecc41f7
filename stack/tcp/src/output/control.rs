//! SYN, SYN-ACK, FIN and reset segments.

use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::{Ecn, Nanos, Seq};

use super::TcpIo;
use crate::conn::{Conn, State};
use crate::header::{Flags, HEADER_BYTES, OptionBytes, SynOptions, TIMESTAMPS_BYTES, TxHeader};

impl Conn {
    /// Sends or retransmits our SYN, with an ACK once the peer's SYN has arrived.
    #[cold]
    pub(crate) fn send_syn<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        let (header, options) = self.syn(io.now);
        io.send_control(&self.path, self.ports, header, options.as_slice());
        self.snd.snd_nxt = self.cold.iss;
        self.snd.on_sent(io.now, 1);
        self.ack.pending = false;
        io.arm(self);
    }

    /// Returns the header of our SYN or SYN-ACK, and its options except timestamps.
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

    /// Returns the header of a segment of this connection, with the current acknowledgement number
    /// and window.
    #[inline(always)]
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

    /// Returns the offset of the payload in a frame of this connection.
    #[inline]
    pub(super) fn payload_at(&self) -> usize {
        let options = if self.opts.timestamps { TIMESTAMPS_BYTES } else { 0 };
        self.path.header_bytes() + HEADER_BYTES + options
    }

    /// RFC 9293 s3.10.4: closes our direction. The FIN follows all pulled payload.
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

    /// RFC 9293 s3.10.5: ends the connection at once, with a reset if the peer may know of it.
    ///
    /// What has arrived in order is acknowledged: a reset discards what the peer retains, and a
    /// message that was delivered must not seem lost. The pending ACK leaves first, for peers that
    /// read only the sequence number of a reset. The reset acknowledges too (RFC 9293 s3.5.2 has it
    /// with an ACK where there is no other), in case that ACK is lost.
    #[cold]
    pub(crate) fn abort<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        if self.ack.pending && self.state.is_synchronised() {
            self.send_ack(io);
        }
        self.refuse(io);
    }

    /// As [`Conn::abort`], for a peer of which nothing was delivered: one frame answers it.
    #[cold]
    pub(crate) fn refuse<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        if self.state.is_live() && self.state != State::SynSent {
            let reset = TxHeader {
                // RFC 7323 s3.2: a reset should carry timestamps too.
                timestamps: self.opts.timestamps.then(|| self.ts.option(io.now)),
                ..TxHeader::bare(self.snd.ack_seq(), self.rcv.rcv_nxt, Flags::RST | Flags::ACK)
            };
            io.count(Counter::TcpTxResets);
            io.send_control(&self.path, self.ports, reset, &[]);
        }
        self.state = State::Closed;
        self.snd.timer_at = Nanos::MAX;
    }
}
