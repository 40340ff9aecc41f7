//! The seventh and eighth step of RFC 9293 s3.10.7.4: payload and FIN.

use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::limits::FPDU_MARKED_BYTES_MAX;
use ironwarp_types::{Ecn, Seq};

use super::{DONE, NEXT, Step};
use crate::TcpEvents;
use crate::conn::{Conn, State};
use crate::header::{Flags, SackBlock, Segment};
use crate::output::TcpIo;
use crate::queue::Piece;

impl Conn {
    /// Accepts the payload in the window, then the FIN once all bytes before it have arrived.
    pub(super) fn process_text_and_fin<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: Segment,
        frame: P::Frame,
        events: &mut TcpEvents,
    ) -> Step {
        if !self.state.may_receive() {
            // The FIN was already processed. A retransmission repeats it; a segment that ends
            // beyond it is not the peer's.
            return if segment.len() > 0 || segment.has(Flags::FIN) {
                self.acknowledge_again(io)
            } else {
                DONE
            };
        }
        self.record_fin(io, &segment);
        if segment.len() > 0 {
            self.process_text(io, &segment, Piece::new(frame, &segment), events);
        }
        self.process_fin(io, events)
    }

    /// RFC 3168 s6.1.3: ECN marks count on segments with payload in the window.
    pub(super) fn check_ecn<P: Port>(&mut self, io: &mut TcpIo<'_, P>, segment: &Segment) {
        if !self.opts.ecn || segment.len() == 0 {
            return;
        }
        if segment.ecn == Ecn::Ce {
            io.count(Counter::TcpRxCeMarked);
        }
        let mut echo = self.echo;
        if echo.on_segment(segment) {
            // RFC 8257 s3.2: before the echo changes, acknowledge the segments that arrived under
            // the old one.
            if self.ack.pending {
                self.send_ack(io);
            }
            self.schedule_ack_now(io);
        }
        self.echo = echo;
    }

    #[cold]
    fn acknowledge_again<P: Port>(&mut self, io: &mut TcpIo<'_, P>) -> Step {
        self.schedule_ack_now(io);
        DONE
    }

    /// Records the sequence number of a FIN, which may arrive out of order. A FIN before data that
    /// the peer sent earlier contradicts them and is ignored (RFC 9293 s3.8: nothing follows a
    /// FIN).
    fn record_fin<P: Port>(&mut self, io: &TcpIo<'_, P>, segment: &Segment) {
        if !segment.has(Flags::FIN) || self.rcv.fin.is_some() {
            return;
        }
        let fin = segment.seq.plus(segment.len());
        let within = self.rcv.rcv_nxt.leq(fin) && fin.lt(self.rcv.rcv_adv);
        let last = io.shared.rx.value(self.rcv.queues.out_of_order.tail());
        if within && last.is_none_or(|piece| piece.seq_end().leq(fin)) {
            self.rcv.fin = Some(fin);
        }
    }

    /// Seventh step: trims the segment to the window, then accepts or holds it.
    fn process_text<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: &Segment,
        mut piece: Piece<P::Frame>,
        events: &mut TcpEvents,
    ) {
        if self.state == State::FinWait2 {
            // Payload shows that the peer is alive: extend FIN-WAIT-2.
            self.cold.fin_wait_2_deadline = io.now + io.shared.config.fin_wait_2.min(self.snd.user_timeout);
        }
        let old_end = piece.seq_end().min(self.rcv.rcv_nxt);
        self.sack_ranges().on_duplicate(piece.seq, old_end);
        piece.trim_front(self.rcv.rcv_nxt);
        piece.trim_back(self.rcv.fin.unwrap_or(self.rcv.rcv_adv).min(self.rcv.rcv_adv));
        if segment.seq != piece.seq || piece.len() == 0 {
            // RFC 5681 s4.2: the peer retransmitted accepted bytes, so it missed an ACK.
            io.count(Counter::TcpRxOverlaps);
            self.schedule_ack_now(io);
        }
        if piece.len() == 0 {
            return;
        }
        if piece.seq == self.rcv.rcv_nxt {
            self.on_in_order_text(io, piece, events);
        } else {
            self.on_out_of_order_text(io, piece, events);
        }
    }

    /// Accepts payload at RCV.NXT.
    #[inline(always)]
    pub(crate) fn on_in_order_text<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        piece: Piece<P::Frame>,
        events: &mut TcpEvents,
    ) {
        let seq_end = piece.seq_end();
        let accepted_to = if self.over_quota(io) {
            piece.seq
        } else {
            self.rcv.queues.push_in_order(&mut io.shared.rx, piece)
        };
        if accepted_to != seq_end {
            self.on_rx_full(io);
            if accepted_to == self.rcv.rcv_nxt {
                return;
            }
        }
        self.advance_rcv_nxt(io, accepted_to);
        *events |= TcpEvents::READABLE;
        if !self.rcv.queues.out_of_order.is_empty() {
            self.close_gap(io);
        }
        self.schedule_ack(io);
    }

    /// Returns whether memory is short and a whole FPDU waits unread: the reader is late, and other
    /// connections need the frames.
    #[inline]
    fn over_quota<P: Port>(&self, io: &TcpIo<'_, P>) -> bool {
        self.rcv.unread >= FPDU_MARKED_BYTES_MAX as u32 && io.shared.rx.is_under_pressure()
    }

    #[inline]
    fn advance_rcv_nxt<P: Port>(&mut self, io: &mut TcpIo<'_, P>, to: Seq) {
        let bytes = to.since(self.rcv.rcv_nxt);
        self.rcv.unread += bytes;
        self.rcv.rcv_nxt = to;
        io.shared.stats.add(Counter::TcpRxBytes, u64::from(bytes));
    }

    /// RFC 5681 s4.2: a segment that fills all or part of a gap is acknowledged at once.
    #[cold]
    fn close_gap<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        let to = self.rcv.queues.close_gap(&mut io.shared.rx, self.rcv.rcv_nxt);
        self.advance_rcv_nxt(io, to);
        self.cold.sack_ranges.advance(to);
        self.schedule_ack_now(io);
    }

    /// Holds bytes beyond a gap (SHLD-31). Every such segment is answered with a duplicate ACK.
    #[cold]
    fn on_out_of_order_text<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        piece: Piece<P::Frame>,
        events: &mut TcpEvents,
    ) {
        let frames_max = io.shared.config.ooo_frames_max;
        let (start, end) = (piece.seq, piece.seq_end());
        self.sack_ranges().find_duplicate(start, end);
        let held = self.rcv.queues.push_out_of_order(&mut io.shared.rx, piece, frames_max);
        if let Ok(has_new_bytes) = held {
            self.sack_ranges().on_out_of_order(start, end);
            if self.rcv.reports_out_of_order && has_new_bytes {
                self.cold.latest_out_of_order = SackBlock { start, end };
                *events |= TcpEvents::OUT_OF_ORDER;
            }
            io.count(Counter::TcpRxOutOfOrder);
        } else {
            io.count(Counter::TcpDropOutOfOrderFull);
            io.shared.on_out_of_order_refused(io.now, self.slot);
        }
        self.schedule_duplicate_ack(io);
    }

    #[cold]
    fn on_rx_full<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        io.count(Counter::TcpDropRxBufferFull);
        if self.rcv.unread < FPDU_MARKED_BYTES_MAX as u32 {
            io.shared.on_rx_pressure(io.now, self.slot);
        }
        self.schedule_duplicate_ack(io);
    }

    /// Eighth step: the FIN.
    fn process_fin<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) -> Step {
        if self.rcv.fin != Some(self.rcv.rcv_nxt) {
            return NEXT;
        }
        self.rcv.rcv_nxt = self.rcv.rcv_nxt.plus(1);
        *events |= TcpEvents::PEER_CLOSED;
        self.schedule_ack_now(io);
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => {
                self.send_ack(io);
                self.enter_time_wait(events);
            }
            _ => {}
        }
        DONE
    }

    /// Both directions are closed. The engine moves the flow to its TIME-WAIT table, since old
    /// segments may still arrive.
    pub(super) fn enter_time_wait(&mut self, events: &mut TcpEvents) {
        self.end(TcpEvents::CLOSED, events);
        self.state = State::TimeWait;
    }
}

/// Checks the receive queues of a connection.
pub(crate) fn check_received<F: Frame>(
    conn: &Conn,
    rx: &crate::queue::Arena<Piece<F>>,
) -> Result<(), String> {
    let fin_taken = conn.rcv.fin.is_some_and(|fin| fin.plus(1) == conn.rcv.rcv_nxt);
    let text_end = conn.rcv.rcv_nxt.minus(u32::from(fin_taken));
    conn.rcv.queues.check(rx, text_end, conn.rcv.unread)?;
    conn.cold.sack_ranges.check(|block| conn.rcv.queues.holds(rx, block.start, block.end))
}
