//! The in-order bytes of one connection, lent to the layer above, and a view of the bytes beyond a
//! gap.

use ironwarp_llp::{ByteStream, LatestArrival, OutOfOrderBytes};
use ironwarp_port::{Frame, Port};
use ironwarp_types::Seq;

use super::Tcp;
use crate::ConnId;
use crate::conn::Conn;
use crate::header::SackBlock;
use crate::output::EngineShared;
use crate::queue::Piece;

/// The bytes of a connection that arrived in order and are not consumed. They lie in the received
/// frames.
pub struct RxStream<'a, P: Port> {
    /// `None` for a stale id: an empty stream.
    conn: Option<&'a mut Conn>,
    shared: &'a mut EngineShared<P>,
}

impl<P: Port> Tcp<P> {
    /// Returns the readable bytes of a connection. They stay readable after its end until it is
    /// released.
    #[inline]
    pub fn rx(&mut self, id: ConnId) -> RxStream<'_, P> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation);
        RxStream { conn: slot.and_then(|slot| slot.conn.as_mut()), shared: &mut self.shared }
    }
}

impl<P: Port> Tcp<P> {
    /// Enables the event OUT_OF_ORDER for bytes held beyond a gap, which [`Tcp::rx`] shows.
    pub fn report_out_of_order(&mut self, id: ConnId) {
        if let Some(conn) = self.rx(id).conn {
            conn.rcv.reports_out_of_order = true;
        }
    }
}

impl<P: Port> ByteStream for RxStream<'_, P> {
    #[inline]
    fn available(&self) -> usize {
        self.conn.as_ref().map_or(0, |conn| conn.rcv.unread as usize)
    }

    #[inline]
    fn front(&self) -> &[u8] {
        let piece = self.conn.as_ref().and_then(|conn| self.shared.rx.front(&conn.rcv.queues.in_order));
        piece.map_or(&[], |piece| piece.bytes())
    }

    fn peek(&self, out: &mut [u8]) -> bool {
        let Some(conn) = self.conn.as_ref().filter(|conn| out.len() <= conn.rcv.unread as usize) else {
            return out.is_empty();
        };
        let mut rest = out;
        for piece in self.shared.rx.iter(&conn.rcv.queues.in_order) {
            let bytes = piece.bytes();
            let n = bytes.len().min(rest.len());
            let (now, later) = rest.split_at_mut(n);
            now.copy_from_slice(bytes.get(..n).unwrap_or_default());
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        true
    }

    #[inline]
    fn consume(&mut self, n: usize) {
        let Some(conn) = self.conn.as_mut() else { return };
        let n = n.min(conn.rcv.unread as usize) as u32;
        conn.rcv.queues.consume(&mut self.shared.rx, n);
        conn.rcv.unread -= n;
        if conn.rcv.needs_window_update(u32::from(conn.snd.emss)) {
            schedule_window_update(conn, self.shared);
        }
    }
}

impl<P: Port> RxStream<'_, P> {
    /// Returns the sequence number of the first unconsumed byte.
    fn front_seq(&self) -> Seq {
        self.conn.as_ref().map_or(Seq(0), |conn| conn.rcv.rcv_nxt.minus(conn.rcv.unread))
    }

    /// Returns the sequence number of the byte at position `at`, and the held pieces from the one
    /// that contains it.
    fn out_of_order_from(&self, at: u32) -> (Seq, impl Iterator<Item = &Piece<P::Frame>>) {
        let seq = self.front_seq().plus(at);
        let queues = self.conn.as_ref().map(|conn| &conn.rcv.queues);
        (seq, queues.into_iter().flat_map(move |queues| queues.out_of_order_from(&self.shared.rx, seq)))
    }
}

impl<P: Port> OutOfOrderBytes for RxStream<'_, P> {
    fn latest(&self) -> Option<LatestArrival> {
        let Conn { rcv, cold, .. } = self.conn.as_ref()?;
        let (run, piece) = (cold.sack_ranges.latest()?, cold.latest_out_of_order);
        let front = self.front_seq();
        let offsets = |block: SackBlock| block.start.since(front)..block.end.since(front);
        let holds = rcv.rcv_nxt.lt(run.start) && run.start.leq(piece.start) && piece.end.leq(run.end);
        holds.then(|| LatestArrival { piece: offsets(piece), run: offsets(run) })
    }

    fn piece(&self, at: u32) -> &[u8] {
        let (seq, mut pieces) = self.out_of_order_from(at);
        let bytes = pieces.next().and_then(|piece| piece.bytes().get(seq.since(piece.seq) as usize..));
        bytes.unwrap_or_default()
    }

    fn peek_at(&self, at: u32, out: &mut [u8]) -> bool {
        let (mut seq, pieces) = self.out_of_order_from(at);
        let mut rest = out;
        for piece in pieces {
            if rest.is_empty() || piece.seq.gt(seq) {
                break;
            }
            let bytes = piece.bytes().get(seq.since(piece.seq) as usize..).unwrap_or_default();
            let n = bytes.len().min(rest.len());
            let (now, later) = rest.split_at_mut(n);
            now.copy_from_slice(bytes.get(..n).unwrap_or_default());
            rest = later;
            seq = piece.seq_end();
        }
        rest.is_empty()
    }
}

/// RFC 9293 s3.8.6.2.2: a closed window has opened far enough for a window update.
#[cold]
fn schedule_window_update<P: Port>(conn: &mut Conn, shared: &mut EngineShared<P>)
where
    P::Frame: Frame,
{
    if conn.state.is_synchronised() {
        let count = conn.ack.immediate.max(1);
        conn.ack.schedule_immediate(&mut shared.acks, conn.slot, count);
    }
}
