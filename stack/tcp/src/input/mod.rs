//! Segment arrival: RFC 9293 s3.10.7, one function per step.
//!
//! ```text
//!   fast?       --yes-->  window, acknowledge, text                       (established, in order, nothing else)
//!       | no
//!   SYN-SENT    -------->  handshake.rs                                    (s3.10.7.3)
//!       | no
//!   1 sequence  -> 2 reset -> 4 SYN -> 5 ACK -> 7 text -> 8 FIN           (s3.10.7.4)
//! ```
//!
//! The third step (security compartments) and the sixth (urgent data) do nothing: RFC 9293 s3.8.5
//! discourages urgent data, and iWARP never uses it. Each step returns whether the next step runs.
//! Steps change the connection's state and collect events for the layer above.
//!
//! Cost: a fast segment takes about eleven compares of flags, sequence numbers, options and state.
//! Its payload is lent in its frame. An ACK that advances also releases the units that it covers.

mod ack;
mod handshake;
mod sequence;
mod text;

pub(crate) use text::check_received;

use core::ops::ControlFlow;

use ironwarp_llp::PayloadReader;
use ironwarp_net::Packet;
use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::conn::{Conn, State};
use crate::header::{Segment, Timestamps};
use crate::output::TcpIo;
use crate::queue::Piece;
use crate::{ConnId, LentBytes, TcpEvents};

/// Whether processing continues with the next step.
type Step = ControlFlow<()>;

const NEXT: Step = ControlFlow::Continue(());
const DONE: Step = ControlFlow::Break(());

impl Conn {
    /// Header prediction: returns whether the segment is the next in-order payload or an ACK that
    /// advances, without anything that needs the general path.
    #[inline(always)]
    pub(crate) fn is_fast(&self, segment: &Segment) -> bool {
        let (una, max) = (self.snd.snd_una, self.snd.snd_max);
        segment.has_fast_layout()
            && self.state == State::Established
            && segment.seq == self.rcv.rcv_nxt
            // Compare distances: numbers 2^31 apart are unordered.
            && segment.ack.since(una) <= max.since(una)
            && (segment.len() > 0 || segment.ack != una)
            && segment.len() <= self.rcv.rcv_adv.since(self.rcv.rcv_nxt)
            && self.rcv.queues.out_of_order.is_empty()
            && self.rcv.fin.is_none()
            && !self.snd.recovery.active
            && self.echo.is_fast(segment.ecn)
            && self.is_timestamp_fast(segment.options.timestamps)
    }

    /// RFC 7323 s5.3: returns whether the segment passes PAWS on the fast path.
    #[inline(always)]
    fn is_timestamp_fast(&self, timestamps: Option<Timestamps>) -> bool {
        match timestamps {
            Some(stamp) => !self.ts.is_before_ts_recent(stamp.tsval) || !self.opts.timestamps,
            None => !self.opts.timestamps,
        }
    }

    /// Processes a fast segment: the ACK, the window and the payload, which `reader` may take.
    #[inline(always)]
    pub(crate) fn on_fast_segment<P: Port, R>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        id: ConnId,
        segment: &Segment,
        frame: P::Frame,
        events: &mut TcpEvents,
        reader: &mut impl PayloadReader<LentBytes<P::Frame>, R>,
    ) -> Option<R> {
        self.last_rx_at = io.now;
        if let Some(stamp) = segment.options.timestamps {
            self.ts.update_recent(io.now, segment.seq, stamp.tsval);
        }
        // Apply the window together with the ACK, before anything is sent.
        let grown = self.snd.update_window(segment.seq, segment.ack, segment.window);
        if segment.ack != self.snd.snd_una {
            self.on_ack_outside_recovery(io, segment.ack, events);
        }
        if grown {
            self.on_window_grown(io, events);
        }
        if self.snd.snd_wnd == 0 {
            self.on_closed_window(io);
        }
        debug_assert!(self.state == State::Established);
        if segment.len() == 0 {
            return None;
        }
        let piece = Piece::new(frame, segment);
        if self.rcv.unread == 0 && io.shared.rx.has_room_for_single(&self.rcv.queues.in_order) {
            return self.lend(io, id, piece, events, reader);
        }
        self.on_rest(io, piece, events);
        None
    }

    /// Processes any other segment of this connection.
    #[cold]
    pub(crate) fn on_general_segment<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: Segment,
        arrived: Packet<P::Frame>,
        events: &mut TcpEvents,
    ) {
        if self.state == State::SynSent {
            self.on_segment_in_syn_sent(io, segment, arrived, events);
        } else if self.state.is_live() {
            let _ = self.process_steps(io, segment, arrived, events);
        } else {
            io.count(Counter::TcpDropNoConnection);
        }
    }

    /// RFC 9293 s3.10.7.4: the steps for all states after SYN-SENT.
    fn process_steps<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        mut segment: Segment,
        arrived: Packet<P::Frame>,
        events: &mut TcpEvents,
    ) -> Step {
        self.complete_simultaneous_open(&mut segment);
        self.check_paws(io, &segment)?;
        self.check_sequence(io, &mut segment)?;
        self.last_rx_at = io.now;
        if self.cold.keep_alive.on_segment_received() {
            io.arm(self);
        }
        self.check_reset(io, &segment, events)?;
        self.check_syn(io, &segment)?;
        self.check_ack(io, &segment, events)?;
        self.check_ecn(io, &segment);
        self.process_text_and_fin(io, segment, arrived.frame, events)
    }

    /// Ends the connection and reports `event`.
    #[cold]
    pub(crate) fn end(&mut self, event: TcpEvents, events: &mut TcpEvents) {
        self.state = State::Closed;
        self.snd.timer_at = Nanos::MAX;
        self.cold.fin_wait_2_deadline = Nanos::MAX;
        *events |= event;
    }
}
