//! The in-order bytes of one connection, lent to the layer above.

use ironwarp_port::{Frame, Port};

use super::Tcp;
use crate::conn::Conn;
use crate::ids::ConnId;
use crate::output::Shared;
use crate::stream::ByteStream;

/// What has arrived in order and was not taken. Lies in the frames that brought it.
pub struct RxStream<'a, P: Port> {
    /// `None` for an id that is stale: a stream with nothing in it.
    conn: Option<&'a mut Conn>,
    shared: &'a mut Shared<P>,
}

impl<P: Port> Tcp<P> {
    /// The readable bytes of a connection. They stay readable after its end, until it is released.
    #[inline]
    pub fn rx(&mut self, id: ConnId) -> RxStream<'_, P> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation);
        RxStream { conn: slot.and_then(|slot| slot.conn.as_mut()), shared: &mut self.shared }
    }
}

impl<P: Port> ByteStream for RxStream<'_, P> {
    #[inline]
    fn available(&self) -> usize {
        self.conn.as_ref().map_or(0, |conn| conn.rcv.unread as usize)
    }

    #[inline]
    fn front(&self) -> &[u8] {
        let piece = self.conn.as_ref().and_then(|conn| self.shared.rx.front(&conn.rcv.queues.ready));
        piece.map_or(&[], |piece| piece.bytes())
    }

    fn peek(&self, out: &mut [u8]) -> bool {
        let Some(conn) = self.conn.as_ref().filter(|conn| out.len() <= conn.rcv.unread as usize) else {
            return out.is_empty();
        };
        let mut rest = out;
        for piece in self.shared.rx.iter(&conn.rcv.queues.ready) {
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
        if conn.rcv.wants_update(u32::from(conn.snd.emss)) {
            tell_window(conn, self.shared);
        }
    }
}

/// RFC 9293 s3.8.6.2.2: a window that had closed has opened far enough to say so.
#[cold]
fn tell_window<P: Port>(conn: &mut Conn, shared: &mut Shared<P>)
where
    P::Frame: Frame,
{
    if conn.state.is_synchronised() {
        conn.ack.owed = true;
        conn.ack.now = conn.ack.now.max(1);
        shared.acks.owe(conn.slot);
    }
}
