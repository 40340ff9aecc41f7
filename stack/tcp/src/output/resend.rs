//! Sending a range of what is retained: the rest of a unit, a unit again, one byte as a probe.
//!
//! Each is a fresh frame with a fresh header and a copy of the range, since the driver may still hold the retained
//! frame, and a sealed frame is never edited. Off the fast path: it happens after loss, or when a window is smaller than
//! a unit.

use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::Seq;

use super::Io;
use crate::conn::Conn;
use crate::events::Blocked;
use crate::header::Control;
use crate::queue::NIL;

impl Conn {
    /// Sends what comes next at snd_nxt out of the retained units: the rest of one unit, or the part that the window
    /// takes.
    #[cold]
    pub(super) fn send_retained<P: Port>(&mut self, io: &mut Io<'_, P>) -> Result<usize, Blocked> {
        let node = self.node_at(io, self.snd.snd_nxt);
        let Some(unit) = io.shared.tx.value(node) else { return Err(Blocked::None) };
        let rest = unit.seq_end().since(self.snd.snd_nxt).min(u32::from(self.snd.emss));
        let len = self.snd.sendable(rest);
        if len == 0 {
            return Err(if self.snd.cwnd_room() < rest { Blocked::Congestion } else { Blocked::Window });
        }
        let again = self.snd.snd_nxt != self.snd.snd_max;
        let control = self.data_control(io.now);
        self.send_range(io, node, control, len)?;
        if again {
            io.count(Counter::TcpTxResent);
        }
        self.on_data_sent(io, len);
        self.snd.cursor = if len == rest { NIL } else { node };
        if self.snd.cursor == NIL && self.snd.unsent() {
            self.snd.cursor = io.shared.tx.next(node);
        }
        Ok(len as usize)
    }

    /// Sends the first unacknowledged unit again, or the FIN when that is all. The windows have no say: what is sent was
    /// in them before. Where snd_nxt stands does not change.
    #[cold]
    pub(super) fn resend_first<P: Port>(&mut self, io: &mut Io<'_, P>) -> Result<usize, Blocked> {
        let una = self.snd.snd_una;
        let unit = io.shared.tx.front(&self.snd.retained).filter(|unit| unit.holds(una));
        let rest = unit.map_or(0, |unit| unit.seq_end().min(self.snd.snd_max).since(una));
        self.snd.resend_first = false;
        if rest == 0 {
            // Only the FIN can be outstanding without a unit.
            self.snd.snd_nxt = una;
            return if self.snd.fin_due() && self.send_fin(io) { Ok(0) } else { Err(Blocked::None) };
        }
        let len = rest.min(u32::from(self.snd.emss));
        let control = Control { seq: una, ..self.data_control(io.now) };
        let node = self.snd.retained.head();
        if let Err(blocked) = self.send_range(io, node, control, len) {
            self.snd.resend_first = true;
            return Err(blocked);
        }
        self.snd.rtt.on_resent();
        self.ack.owed = false;
        io.count(Counter::TcpTxResent);
        Ok(len as usize)
    }

    /// RFC 9293 s3.8.6.1: one byte, or the FIN, into a closed window, to hear how it stands. What was probed counts as
    /// to be sent again, so that the unit it belongs to goes out whole when the window opens.
    #[cold]
    pub(crate) fn probe<P: Port>(&mut self, io: &mut Io<'_, P>) {
        self.snd.snd_nxt = self.snd.snd_una;
        self.snd.cursor = NIL;
        self.snd.resend_first = false;
        io.count(Counter::TcpWindowProbes);
        if self.snd.fin_due() {
            self.send_fin(io);
            return;
        }
        let node = self.snd.retained.head();
        let control = self.data_control(io.now);
        if self.send_range(io, node, control, 1).is_ok() {
            self.snd.on_sent(io.now, 1);
            self.snd.rtt.on_resent();
            self.snd.snd_nxt = self.snd.snd_una;
            self.ack.owed = false;
        }
    }

    /// Sends `len` bytes of a unit under `control`, which says where they begin.
    fn send_range<P: Port>(
        &self,
        io: &mut Io<'_, P>,
        node: u32,
        control: Control,
        len: u32,
    ) -> Result<(), Blocked> {
        let payload_at = self.payload_at();
        let mut frame = io.frame(payload_at + len as usize).ok_or(Blocked::Pool)?;
        let unit = io.shared.tx.value(node).ok_or(Blocked::None)?;
        let range = unit.range(control.seq, len as usize);
        let room = frame.bytes_mut().get_mut(payload_at..).unwrap_or_default();
        if room.len() != range.len() {
            return Err(Blocked::None);
        }
        room.copy_from_slice(range);
        let sealed = io.finish(frame, &self.path, &self.flow, control, 0);
        if io.push(sealed) { Ok(()) } else { Err(Blocked::Wire) }
    }

    /// The node of the unit that holds `seq`.
    fn node_at<P: Port>(&self, io: &Io<'_, P>, seq: Seq) -> u32 {
        let tx = &io.shared.tx;
        let mut node = if self.snd.cursor == NIL { self.snd.retained.head() } else { self.snd.cursor };
        while tx.value(node).is_some_and(|unit| !unit.holds(seq)) {
            node = tx.next(node);
        }
        node
    }
}
