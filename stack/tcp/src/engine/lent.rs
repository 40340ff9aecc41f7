//! Payload that is lent in its frame before it enters the receive queue.
//!
//! A predicted segment of a connection without unread bytes needs no place in a queue if the reader consumes it at once.
//! The caller reads it as a [`ByteStream`] and returns it to [`Tcp::accept`], which advances RCV.NXT, schedules the ACK
//! and queues the bytes that were not consumed. Consumed bytes are final, so RCV.NXT never ends before them.
//!
//! [`Tcp::on_predicted_frame`] finds such a segment in a frame that `net` has not checked yet: the flow table, header
//! prediction, then the checksums. It takes the frame or returns it unchanged, and cannot fail.

use ironwarp_net::Net;
use ironwarp_port::{Frame, Port, Wires};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::{Slot, Tcp};
use crate::conn::{Conn, State};
use crate::events::TcpEvents;
use crate::header::PlainHeader;
use crate::ids::ConnId;
use crate::input::PredictedPayload;
use crate::output::TcpIo;
use crate::queue::Piece;
use crate::stream::ByteStream;

/// What a segment caused on its connection.
pub struct Arrival<F> {
    /// The connection.
    pub conn: ConnId,
    /// The events so far. Those of the lent payload are returned by [`Tcp::accept`].
    pub events: TcpEvents,
    /// The payload of a predicted segment, if no bytes before it are unread. It must be returned to [`Tcp::accept`].
    pub lent: Option<LentBytes<F>>,
}

/// The payload of one segment in its frame.
#[must_use]
pub struct LentBytes<F> {
    pub(crate) piece: Piece<F>,
}

impl<F: Frame> ByteStream for LentBytes<F> {
    #[inline]
    fn available(&self) -> usize {
        self.piece.len() as usize
    }

    #[inline]
    fn front(&self) -> &[u8] {
        self.piece.bytes()
    }

    fn peek(&self, out: &mut [u8]) -> bool {
        let bytes = self.piece.bytes().get(..out.len());
        bytes.map(|bytes| out.copy_from_slice(bytes)).is_some()
    }

    #[inline]
    fn consume(&mut self, n: usize) {
        self.piece.skip(n.min(self.available()) as u16);
    }
}

impl<P: Port> Tcp<P> {
    /// Processes a frame that holds a predicted segment. Any other frame is returned, before anything has changed, for
    /// [`Net::on_frame`] and [`Tcp::on_segment_lending`], which process each frame with the same results.
    #[inline(always)]
    pub fn on_predicted_frame(
        &mut self,
        now: Nanos,
        net: &Net,
        frame: P::Frame,
        wires: &mut Wires<P>,
    ) -> Result<Arrival<P::Frame>, P::Frame> {
        let Some((at, header)) = self.predict(net, &frame) else { return Err(frame) };
        let Some(Slot { generation, conn: Some(conn) }) = self.slots.get_mut(at as usize) else {
            return Err(frame);
        };
        self.shared.stats.count(Counter::TcpRxSegments);
        let mut io = TcpIo::for_path(&conn.path, now, wires, &mut self.shared);
        let mut events = TcpEvents::empty();
        let payload = conn.on_predicted(&mut io, &header, &mut events);
        debug_assert!(conn.state == State::Established);
        let id = ConnId { slot: at, generation: *generation };
        let lent = match payload {
            PredictedPayload::Lend => Some(LentBytes { piece: header.piece(frame) }),
            PredictedPayload::None => None,
            PredictedPayload::Queue => {
                conn.on_rest(&mut io, header.piece(frame), &mut events);
                None
            }
        };
        Ok(Arrival { conn: id, events, lent })
    }

    /// Returns the connection's slot and the header of a frame with a predicted segment.
    #[inline(always)]
    fn predict(&self, net: &Net, frame: &P::Frame) -> Option<(u32, PlainHeader)> {
        let plain = net.plain_frame(frame).filter(|_| self.shared.config.fast_path)?;
        let key = plain.key();
        let conn_at = |at: u32| self.slots.get(at as usize).and_then(|slot| slot.conn.as_ref());
        let at = self.flows.lookup(net.hash_of(key), |at| conn_at(at).is_some_and(|conn| conn.key == key))?;
        let header = PlainHeader::from(&plain);
        let is_predicted = conn_at(at)?.is_predicted(&header) && net.accepts_plain(&plain, frame.rx());
        is_predicted.then_some((at, header))
    }

    /// Accepts lent payload: what the reader consumed is done, the rest is queued. Returns READABLE if there is a rest.
    #[inline(always)]
    pub fn accept(
        &mut self,
        now: Nanos,
        id: ConnId,
        lent: LentBytes<P::Frame>,
        wires: &mut Wires<P>,
    ) -> TcpEvents {
        let mut events = TcpEvents::empty();
        if let Some((conn, mut io)) = self.conn_and_io(id, now, wires) {
            conn.on_lent_text(&mut io, lent.piece, &mut events);
        }
        events
    }
}

impl Conn {
    #[inline(always)]
    fn on_lent_text<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        rest: Piece<P::Frame>,
        events: &mut TcpEvents,
    ) {
        let consumed = rest.seq.since(self.rcv.rcv_nxt);
        if consumed > 0 {
            self.rcv.rcv_nxt = rest.seq;
            io.shared.stats.add(Counter::TcpRxBytes, u64::from(consumed));
            self.schedule_ack(io);
        }
        if rest.len() > 0 {
            self.on_rest(io, rest, events);
        }
        if consumed > 0 && self.rcv.needs_window_update(u32::from(self.snd.emss)) {
            self.schedule_ack_now(io);
        }
    }

    /// Queues payload that no reader takes now: an incomplete FPDU, or bytes behind unread ones. Not inlined, since most
    /// payload is consumed in its frame.
    #[inline(never)]
    fn on_rest<P: Port>(&mut self, io: &mut TcpIo<'_, P>, rest: Piece<P::Frame>, events: &mut TcpEvents) {
        self.on_in_order_text(io, rest, events);
    }
}
