//! A segment arrives: RFC 9293 s3.10.7, one function a step.
//!
//! ```text
//!   predicted?  --yes-->  acknowledge, window, text                       (established, in order, nothing unusual)
//!       | no
//!   SYN-SENT    -------->  handshake.rs                                    (s3.10.7.3)
//!       | no
//!   1 sequence  -> 2 reset -> 4 SYN -> 5 ACK -> 7 text -> 8 FIN           (s3.10.7.4)
//! ```
//!
//! The third step (security compartments) and the sixth (urgent data, which RFC 9293 s3.8.5 discourages and iWARP never
//! uses) do nothing here. Each step answers whether the next one is reached. What happens to the connection is written
//! into its state; what the layer above must know is collected as events.
//!
//! Cost: a predicted segment takes one comparison of flags, two of numbers, a list push, and for an ACK that advances
//! the release of what it covers.

mod ack;
mod handshake;
mod sequence;
mod text;

pub(crate) use text::check_received;

use core::ops::ControlFlow;

use ironwarp_net::TcpSegment;
use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::conn::{Conn, State};
use crate::events::TcpEvents;
use crate::header::{Flags, Options, Segment};
use crate::output::TcpIo;
use crate::queue::Piece;

/// Whether the next step is reached.
type Step = ControlFlow<()>;

const NEXT: Step = ControlFlow::Continue(());
const DONE: Step = ControlFlow::Break(());

/// The bit that makes no difference to how a segment is processed.
const IGNORED_FLAGS: Flags = Flags::PSH;

impl Conn {
    /// Takes a segment of this connection.
    #[inline]
    pub(crate) fn on_segment<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: Segment,
        arrived: TcpSegment<P::Frame>,
    ) -> TcpEvents {
        let mut events = TcpEvents::empty();
        if self.is_predicted(&segment) {
            self.on_predicted(io, &segment, arrived.frame, &mut events);
        } else {
            self.on_unpredicted(io, segment, arrived, &mut events);
        }
        events
    }

    /// Header prediction: the next bytes in order, or an ACK that advances, and nothing else to think about.
    #[inline]
    fn is_predicted(&self, segment: &Segment) -> bool {
        let (una, max) = (self.snd.snd_una, self.snd.snd_max);
        self.state == State::Established
            && segment.flags.difference(IGNORED_FLAGS) == Flags::ACK
            && segment.seq == self.rcv.rcv_nxt
            // A distance, since a number half the circle away is neither before nor after.
            && segment.ack.since(una) <= max.since(una)
            && (segment.len() > 0 || segment.ack != una)
            && segment.len() <= self.rcv.rcv_adv.since(self.rcv.rcv_nxt)
            && self.rcv.queues.out_of_order.is_empty()
            && self.rcv.fin.is_none()
            && segment.options.sack.is_empty()
            && self.echo.is_predicted(segment.ecn)
            && self.is_timestamp_predicted(&segment.options)
    }

    /// RFC 7323 s5.3: a segment that is not older than the last, where age is told.
    #[inline]
    fn is_timestamp_predicted(&self, options: &Options) -> bool {
        match options.timestamps {
            Some(stamp) => !self.ts.is_before_ts_recent(stamp.tsval) || !self.opts.timestamps,
            None => !self.opts.timestamps,
        }
    }

    #[inline]
    fn on_predicted<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: &Segment,
        frame: P::Frame,
        events: &mut TcpEvents,
    ) {
        self.last_rx_at = io.now;
        if let Some(stamp) = segment.options.timestamps {
            self.ts.update_recent(io.now, segment.seq, stamp.tsval);
        }
        // The window counts from this ACK on: together with it, and before anything is sent.
        let grown = self.snd.update_window(segment.seq, segment.ack, segment.window);
        if segment.ack != self.snd.snd_una {
            self.on_ack_advance(io, segment, events);
        }
        if grown {
            self.on_window_grown(io, events);
        }
        if segment.len() > 0 {
            self.on_in_order_text(io, Piece::new(frame, segment), events);
        }
    }

    #[cold]
    fn on_unpredicted<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: Segment,
        arrived: TcpSegment<P::Frame>,
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

    /// RFC 9293 s3.10.7.4: the states beyond SYN-SENT.
    fn process_steps<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        mut segment: Segment,
        arrived: TcpSegment<P::Frame>,
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

    /// The connection is over, for a reason that the layer above hears as `event`.
    #[cold]
    pub(crate) fn end(&mut self, event: TcpEvents, events: &mut TcpEvents) {
        self.state = State::Closed;
        self.snd.timer_at = Nanos::MAX;
        self.cold.fin_wait_2_deadline = Nanos::MAX;
        *events |= event;
    }
}
