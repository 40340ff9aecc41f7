//! Transmission of a range of retained data: a lost unit, the rest of one, a tail loss probe, or a
//! one-byte window probe.
//!
//! Each range is sent in a new frame with a new header and a copy of the bytes. The driver may
//! still hold the retained frame, and a sealed frame is never modified. A unit that cannot leave in
//! one piece is split in two, so that the scoreboard tracks each part. Lost parts of one unit are
//! joined again where they fit into a segment. Off the fast path: used after a loss, or when a
//! window is smaller than a unit.

use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::TcpIo;
use crate::Blocked;
use crate::conn::Conn;
use crate::header::{Flags, TxHeader};
use crate::queue::{NIL, UnitState};
use crate::recovery::{join_lost_parts, split_unit};

impl Conn {
    /// Retransmits the first lost unit, or as much of it as the path and the windows permit.
    #[cold]
    pub(super) fn send_lost<P: Port>(&mut self, io: &mut TcpIo<'_, P>) -> Result<usize, Blocked> {
        let snd = &mut self.snd;
        let node = snd.board.next_lost(&mut io.shared.tx, &snd.retained).ok_or(Blocked::None)?;
        join_lost_parts(&mut io.shared.tx, &mut snd.retained, node, u32::from(snd.emss));
        let unit = io.shared.tx.value(node).ok_or(Blocked::None)?;
        let (seq, want) = (unit.seq, unit.seq_len().min(u32::from(snd.emss)));
        let len = snd.retransmittable(seq, want);
        if len == 0 {
            return Err(if snd.cwnd_room() < want { Blocked::Congestion } else { Blocked::Window });
        }
        self.split_at(io, node, len);
        self.retransmit(io, node, len)?;
        if self.snd.recovery.active {
            self.snd.recovery.on_sent(len);
        }
        Ok(len as usize)
    }

    /// Sends retained data at snd_nxt for the first time.
    #[cold]
    pub(super) fn send_unsent<P: Port>(&mut self, io: &mut TcpIo<'_, P>) -> Result<usize, Blocked> {
        let node = self.first_unsent(io);
        let unit = io.shared.tx.value(node).ok_or(Blocked::None)?;
        let want = unit.seq_len().min(u32::from(self.snd.emss));
        let len = self.snd.sendable(want);
        if len == 0 {
            return Err(if self.snd.cwnd_room() < want { Blocked::Congestion } else { Blocked::Window });
        }
        if !self.split_at(io, node, len) {
            return self.send_unsplit(io, node, len);
        }
        self.snd.recovery.renew_cwr(self.snd.snd_nxt);
        let header = self.data_header(io.now);
        self.send_range(io, node, header, len)?;
        if let Some(unit) = io.shared.tx.value_mut(node) {
            self.snd.board.on_sent(unit, io.now);
        }
        self.on_data_sent(io, len);
        Ok(len as usize)
    }

    /// No node is free for the rest of a unit. Sends its front like a window probe: one at a time,
    /// again after each timeout, and untracked until it is acknowledged.
    fn send_unsplit<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        node: u32,
        len: u32,
    ) -> Result<usize, Blocked> {
        if self.snd.outstanding() && self.snd.timer_at != Nanos::MAX {
            return Err(Blocked::Pool);
        }
        self.send_unrecorded(io, node, len)?;
        self.snd.restart_rto(io.now);
        Err(Blocked::Window)
    }

    /// Splits a unit after its first `len` sequence numbers. Returns whether it now has at most
    /// that many.
    fn split_at<P: Port>(&mut self, io: &mut TcpIo<'_, P>, node: u32, len: u32) -> bool {
        let Some(unit) = io.shared.tx.value(node) else { return false };
        let at = unit.seq.plus(len);
        unit.seq_len() <= len || split_unit(&mut io.shared.tx, &mut self.snd.retained, node, at)
    }

    /// RFC 8985 s7.3: sends a tail loss probe regardless of the congestion window: new payload, or
    /// the last unit again. Returns whether it was a retransmission, or `None` if nothing was sent.
    #[cold]
    pub(crate) fn send_loss_probe<P: Port>(&mut self, io: &mut TcpIo<'_, P>) -> Option<bool> {
        let node = self.last_sent(io)?;
        let unit = io.shared.tx.value(node)?;
        let emss = u32::from(self.snd.emss);
        let (mut node, len) = (node, unit.seq_len());
        if len > emss {
            // The path MTU shrank: send only the last part that fits.
            if !self.split_at(io, node, len - emss) {
                return None;
            }
            node = io.shared.tx.next(node);
        }
        self.retransmit(io, node, len.min(emss)).ok().map(|()| true)
    }

    /// RFC 9293 s3.8.6.1: probes a closed window with one byte or the FIN. Data that was in flight
    /// when the window closed counts as lost. It is retransmitted whole, unit by unit, when the
    /// window opens.
    #[cold]
    pub(crate) fn send_window_probe<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        io.count(Counter::TcpWindowProbes);
        let head = self.snd.retained.head();
        if head == NIL {
            // A FIN that was not yet sent may also serve as the probe.
            if self.snd.fin_due() {
                self.transmit(io, &mut (), 1);
            }
            return;
        }
        let _ = self.send_unrecorded(io, head, 1);
    }

    /// Sends the first `len` sequence numbers of the first unit without recording it.
    fn send_unrecorded<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        node: u32,
        len: u32,
    ) -> Result<(), Blocked> {
        let una = self.snd.snd_una;
        let header = self.header(io.now, una, Flags::ACK | Flags::PSH);
        self.send_range(io, node, header, len)?;
        if !self.snd.outstanding() {
            self.snd.progress_at = io.now;
        }
        self.snd.snd_max = self.snd.snd_max.max(una.plus(len));
        self.snd.rtt.on_retransmit();
        self.ack.pending = false;
        Ok(())
    }

    /// Retransmits the first `len` sequence numbers of a unit.
    fn retransmit<P: Port>(&mut self, io: &mut TcpIo<'_, P>, node: u32, len: u32) -> Result<(), Blocked> {
        let seq = io.shared.tx.value(node).ok_or(Blocked::None)?.seq;
        let header = self.header(io.now, seq, Flags::ACK | Flags::PSH);
        self.send_range(io, node, header, len)?;
        let snd = &mut self.snd;
        if let Some(unit) = io.shared.tx.value_mut(node) {
            snd.board.on_sent(unit, io.now);
            snd.recovery.on_retransmit(unit.seq_end());
        }
        snd.rtt.on_retransmit();
        self.ack.pending = false;
        io.count(Counter::TcpTxRetransmits);
        self.snd.retransmits = self.snd.retransmits.saturating_add(1);
        io.shared.stats.add(Counter::TcpTxBytes, u64::from(len));
        Ok(())
    }

    /// Sends `len` sequence numbers of a unit from the header's sequence number on.
    fn send_range<P: Port>(
        &self,
        io: &mut TcpIo<'_, P>,
        node: u32,
        mut header: TxHeader,
        len: u32,
    ) -> Result<(), Blocked> {
        let unit = io.shared.tx.value(node).ok_or(Blocked::None)?;
        if unit.fin {
            header.flags = header.flags.difference(Flags::PSH) | Flags::FIN;
        }
        let payload_at = self.payload_at();
        let bytes = len.min(u32::from(unit.len)) as usize;
        let mut frame = io.frame(payload_at + bytes).ok_or(Blocked::Pool)?;
        let unit = io.shared.tx.value(node).ok_or(Blocked::None)?;
        let range = unit.range(header.seq, bytes);
        let room = frame.bytes_mut().get_mut(payload_at..).unwrap_or_default();
        if room.len() != range.len() {
            return Err(Blocked::None);
        }
        room.copy_from_slice(range);
        let sealed = io.finish(frame, &self.path, self.ports, &header, 0);
        if io.push(sealed) { Ok(()) } else { Err(Blocked::Wire) }
    }

    /// Returns the node of the unit that begins at snd_nxt.
    fn first_unsent<P: Port>(&self, io: &TcpIo<'_, P>) -> u32 {
        let tx = &io.shared.tx;
        let mut node = self.snd.retained.head();
        while tx.value(node).is_some_and(|unit| unit.state != UnitState::Unsent) {
            node = tx.next(node);
        }
        node
    }

    /// Returns the node of the unit that ends at snd_nxt.
    fn last_sent<P: Port>(&self, io: &TcpIo<'_, P>) -> Option<u32> {
        let tx = &io.shared.tx;
        let tail = self.snd.retained.tail();
        if tx.value(tail)?.state != UnitState::Unsent {
            return Some(tail);
        }
        let mut last = None;
        let mut node = self.snd.retained.head();
        while tx.value(node).is_some_and(|unit| unit.state != UnitState::Unsent) {
            last = Some(node);
            node = tx.next(node);
        }
        last
    }
}
