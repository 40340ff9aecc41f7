//! Payload that is read in its frame before it enters the receive queue.
//!
//! A fast segment of a connection without unread bytes needs no entry in a queue if its reader
//! consumes it at once. TCP applies the ACK and the window, and lends the payload to the reader as
//! a [`ByteStream`]. Then it advances RCV.NXT, schedules the ACK and queues the bytes that were not
//! consumed. Consumed bytes are final, so RCV.NXT never ends before them.
//!
//! [`Tcp::on_fast_frame`] finds such a segment in a frame that `net` has not checked yet: the flow
//! table, header prediction, then the checksums. It takes the frame or returns it unchanged, and
//! cannot fail.

use ironwarp_arch::checksum;
use ironwarp_llp::{Arrival, ByteStream, Lent, PayloadReader};
use ironwarp_net::{FlowTable, Net};
use ironwarp_port::{Checksum, Frame, Port, Wires};
use ironwarp_stats::Counter;
use ironwarp_types::{FlowKeyV4, Nanos};

use super::{Slot, Tcp};
use crate::conn::{Conn, State};
use crate::header::Segment;
use crate::output::TcpIo;
use crate::queue::Piece;
use crate::{ConnId, TcpEvents};

/// The payload of one segment in its frame.
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
    /// Processes a frame that holds a fast segment, whose payload `reader` may take. Any other
    /// frame is returned, before anything has changed, for [`Net::on_frame`] and
    /// [`Tcp::on_segment_lending`], which process each frame with the same results.
    #[inline(always)]
    pub fn on_fast_frame<R>(
        &mut self,
        now: Nanos,
        net: &Net,
        frame: P::Frame,
        wires: &mut Wires<P>,
        mut reader: impl PayloadReader<LentBytes<P::Frame>, R>,
    ) -> Result<Arrival<R>, P::Frame> {
        if !self.shared.config.fast_path {
            return Err(frame);
        }
        let Some(fast) = net.fast_frame(&frame) else { return Err(frame) };
        let found = find_fast(&mut self.slots, &self.flows, self.last_fast, net, fast.key());
        let Some((id, conn)) = found else { return Err(frame) };
        let segment = Segment::from(&fast);
        if !conn.is_fast(&segment) {
            return Err(frame);
        }
        // Not one call with a closure for the sum: the closure would be a call.
        let is_correct = match net.accepts_fast(&fast, frame.rx()) {
            Checksum::Unknown => {
                let (l4, header_bytes) = fast.segment();
                let sum = reader.sum(id, l4, header_bytes).unwrap_or_else(|| checksum::sum(l4));
                fast.is_sum_correct(&conn.path, sum)
            }
            known => known == Checksum::Good,
        };
        if !is_correct {
            return Err(frame);
        }
        self.last_fast = id.slot;
        self.shared.stats.count(Counter::TcpRxSegments);
        let mut io = TcpIo::for_path(&conn.path, now, wires, &mut self.shared);
        let mut events = TcpEvents::empty();
        let read = conn.on_fast_segment(&mut io, id, &segment, frame, &mut events, &mut reader);
        Ok(read.map_or(Arrival::Events(id, events), Arrival::Delivered))
    }
}

/// Returns the connection that a fast frame belongs to and its id. `last` is the slot of the last
/// fast segment.
#[inline(always)]
fn find_fast<'a>(
    slots: &'a mut [Slot],
    flows: &FlowTable,
    last: u32,
    net: &Net,
    key: FlowKeyV4,
) -> Option<(ConnId, &'a mut Conn)> {
    let has_key = |slot: &Slot| slot.conn.as_ref().is_some_and(|conn| conn.key == key);
    // A connection that has ended may have the key of its successor.
    let is_same = |slot: &Slot| {
        slot.conn.as_ref().is_some_and(|conn| conn.key == key && conn.state == State::Established)
    };
    let conn_at = |slots: &'a mut [Slot], at: u32| {
        let slot = slots.get_mut(at as usize)?;
        Some((ConnId { slot: at, generation: slot.generation }, slot.conn.as_mut()?))
    };
    if slots.get(last as usize).is_some_and(is_same) {
        return conn_at(slots, last);
    }
    let at = flows.lookup(net.hash_of(key), |at: u32| slots.get(at as usize).is_some_and(has_key))?;
    conn_at(slots, at)
}

impl Conn {
    /// Lends the payload of a fast segment to `reader`, and queues what it leaves.
    #[inline(always)]
    pub(crate) fn lend<P: Port, R>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        conn: ConnId,
        piece: Piece<P::Frame>,
        events: &mut TcpEvents,
        reader: &mut impl PayloadReader<LentBytes<P::Frame>, R>,
    ) -> Option<R> {
        let mut bytes = LentBytes { piece };
        // Without an acknowledgement the lines of the send side are not read.
        let (acked_bytes, wants_transmit) = if events.contains(TcpEvents::ACKED) {
            (self.snd.acked_bytes, self.wants_transmit())
        } else {
            (0, false)
        };
        let lent = Lent { conn, events: *events, acked_bytes, wants_transmit, bytes: &mut bytes };
        let read = reader.read(lent);
        let rest = bytes.piece;
        // What the reader has consumed is done, up to the front of the rest.
        let (seq, has_rest) = (rest.seq, rest.len() > 0);
        let consumed = seq.since(self.rcv.rcv_nxt);
        if consumed > 0 {
            self.rcv.rcv_nxt = seq;
            io.shared.stats.add(Counter::TcpRxBytes, u64::from(consumed));
            self.schedule_ack(io);
        }
        if has_rest {
            self.on_rest(io, rest, events);
        }
        if consumed > 0 && self.rcv.needs_window_update(u32::from(self.snd.emss)) {
            self.schedule_ack_now(io);
        }
        read
    }

    /// Queues payload that no reader takes now: an incomplete FPDU, or bytes behind unread ones.
    /// Tuning: not inlined, since most payload is consumed in its frame.
    #[inline(never)]
    pub(crate) fn on_rest<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        rest: Piece<P::Frame>,
        events: &mut TcpEvents,
    ) {
        self.on_in_order_text(io, rest, events);
    }
}
