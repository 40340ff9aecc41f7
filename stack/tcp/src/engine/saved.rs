//! Writing a connection out, and reading it back on another core.

use ironwarp_llp::saved::{decode, encode};
use ironwarp_llp::{RestoreError, SaveError, Transport};
use ironwarp_net::Path;
use ironwarp_port::{Frame, Port, TxMeta, Wire, Wires};
use ironwarp_types::{Flow, Nanos, Seq};

use super::Tcp;
use super::open::is_invalid_endpoint;
use crate::ConnId;
use crate::conn::{Conn, NewConn, SendSide, State};
use crate::output::{SealedOf, TcpIo};
use crate::queue::{Arena, List, Piece, Unit, UnitState};
use crate::saved::{Rebase, SavedConn, SavedRun, SavedUnit, VERSION};

impl<P: Port> Tcp<P> {
    /// Returns an established connection as bytes. The connection stays. The caller releases it
    /// before its peer's segments can reach both, and sends nothing more from it.
    #[cold]
    pub fn save(&self, now: Nanos, id: ConnId) -> Result<Vec<u8>, SaveError> {
        let established = self.conn(id).filter(|conn| conn.state == State::Established);
        let conn = established.ok_or(SaveError::NotEstablished)?;
        let (rx, queues) = (&self.shared.rx, &conn.rcv.queues);
        let mut out_of_order: Vec<SavedRun> = Vec::new();
        let mut end = conn.rcv.rcv_nxt;
        for piece in rx.iter(&queues.out_of_order) {
            match out_of_order.last_mut() {
                Some(run) if piece.seq == end => run.bytes.to_mut().extend_from_slice(piece.bytes()),
                _ => out_of_order.push(SavedRun { seq: piece.seq, bytes: piece.bytes().into() }),
            }
            end = piece.seq_end();
        }
        let units = self.shared.tx.iter(&conn.snd.retained).map(|unit| SavedUnit {
            sent_at: unit.sent_at,
            state: unit.state,
            retransmitted: unit.retransmitted,
            bytes: unit.range(unit.seq, unit.len.into()),
        });
        let mut saved = SavedConn {
            flow: conn.flow(),
            opts: conn.opts,
            echo: conn.echo,
            ack: conn.ack,
            ts: conn.ts,
            last_rx_at: conn.last_rx_at,
            rcv: conn.rcv.clone(),
            unread: rx.iter(&queues.in_order).flat_map(Piece::bytes).copied().collect::<Vec<_>>().into(),
            out_of_order,
            snd: conn.snd.clone(),
            units: units.collect(),
            cold: conn.cold.clone(),
        };
        saved.rebase(Rebase::Relative(now));
        Ok(encode(VERSION, &saved))
    }

    /// Makes a saved connection again. The peer notices nothing but a pause, which no timer counts.
    /// `path` returns the path of a flow with this hash. Afterwards read what is readable, and
    /// transmit.
    ///
    /// The bytes that the connection holds are copied into transmit frames, received ones too.
    #[cold]
    pub fn restore(
        &mut self,
        now: Nanos,
        saved: &[u8],
        path: impl FnOnce(&Flow, u32) -> Option<Path>,
        wires: &mut Wires<P>,
    ) -> Result<ConnId, RestoreError> {
        let mut saved: SavedConn = decode(VERSION, saved)?;
        saved.check()?;
        saved.rebase(Rebase::Absolute(now));
        let flow = saved.flow;
        let invalid = is_invalid_endpoint(flow.local) || is_invalid_endpoint(flow.remote);
        RestoreError::unless(!invalid, "an address or port is none of a host")?;
        let hash = self.hasher.hash(&flow);
        let path = path(&flow, hash).ok_or(RestoreError::NoPath)?;
        let is_its_path = (path.local_addr(), path.remote_addr()) == (flow.local.ip(), flow.remote.ip());
        RestoreError::unless(is_its_path, "the path is another flow's")?;
        if self.find(hash, &flow).is_some() {
            return Err(RestoreError::InUse);
        }
        let new_conn = self.reserve_slot(now, flow, hash, path).ok_or(RestoreError::Full)?;
        let slot = new_conn.slot;
        let conn = self.restored_conn(new_conn, &saved);
        let id = self.slots.get_mut(slot as usize).map(|entry| {
            entry.conn = Some(conn);
            ConnId { slot, generation: entry.generation }
        });
        let id = id.ok_or(RestoreError::Full)?;
        self.finish_restore(now, id, &saved, wires).inspect_err(|_| self.release(id))?;
        Ok(id)
    }

    /// Returns the connection without its frames.
    fn restored_conn(&self, new_conn: NewConn, saved: &SavedConn) -> Conn {
        let config = &self.shared.config;
        let mut cold = saved.cold.clone();
        (cold.hash, cold.in_flow_table) = (new_conn.hash, true);
        let conn = Conn::active(config, new_conn);
        let mut conn = Conn {
            state: State::Established,
            opts: saved.opts,
            echo: saved.echo,
            ts: saved.ts,
            last_rx_at: saved.last_rx_at,
            rcv: conn.rcv.restored(saved.rcv.clone(), saved.unread.len() as u32),
            snd: SendSide { retained: conn.snd.retained, ..saved.snd.clone() },
            cold,
            ..conn
        };
        conn.set_emss();
        conn
    }

    /// Fills the queues of a connection that is in its slot, checks it, and schedules its timer and
    /// its ACKs.
    fn finish_restore(
        &mut self,
        now: Nanos,
        id: ConnId,
        saved: &SavedConn,
        wires: &mut Wires<P>,
    ) -> Result<(), RestoreError> {
        let (conn, io) = self.conn_and_io(id, now, wires).ok_or(RestoreError::Full)?;
        let TcpIo { wire, shared, .. } = io;
        let queues = &mut conn.rcv.queues;
        let unread_from = conn.rcv.rcv_nxt.minus(conn.rcv.unread);
        hold(wire, &mut shared.rx, &mut queues.in_order, unread_from, &saved.unread)?;
        for run in &saved.out_of_order {
            hold(wire, &mut shared.rx, &mut queues.out_of_order, run.seq, &run.bytes)?;
        }
        let mut seq = conn.snd.snd_una;
        for unit in &saved.units {
            seq = retain(wire, &mut shared.tx, &mut conn.snd.retained, seq, unit)?;
        }
        if saved.ack.immediate > 0 {
            conn.ack.schedule_immediate(&mut shared.acks, id.slot, saved.ack.immediate);
            conn.ack.pending = saved.ack.pending;
        } else if saved.ack.pending {
            conn.ack.schedule(&mut shared.acks, id.slot);
        }
        shared.wheel.arm(id.slot, conn.deadline());
        let conn = self.conn(id).ok_or(RestoreError::Full)?;
        self.check_conn(conn).map_err(RestoreError::Inconsistent)
    }
}

/// Appends received bytes, from `seq` on, to a queue.
fn hold<P: Port>(
    wire: &mut Wire<P>,
    rx: &mut Arena<Piece<P::Frame>>,
    list: &mut List,
    mut seq: Seq,
    mut bytes: &[u8],
) -> Result<(), RestoreError> {
    while !bytes.is_empty() {
        let (frame, end) = take_into_frame(wire, &mut bytes)?;
        let piece = Piece { frame, seq, start: 0, end };
        seq = piece.seq_end();
        rx.push_back(list, piece).map_err(|_| RestoreError::Full)?;
    }
    Ok(())
}

/// Retains a unit at `seq`, in parts if a frame is too short for it. Returns its end.
fn retain<P: Port>(
    wire: &mut Wire<P>,
    tx: &mut Arena<Unit<SealedOf<P>>>,
    list: &mut List,
    mut seq: Seq,
    saved: &SavedUnit,
) -> Result<Seq, RestoreError> {
    let mut bytes = saved.bytes;
    while !bytes.is_empty() {
        let (frame, len) = take_into_frame(wire, &mut bytes)?;
        let mut unit = Unit::new(frame.seal(TxMeta::default()), seq, len, 0, false);
        (unit.sent_at, unit.state, unit.retransmitted) = (saved.sent_at, saved.state, saved.retransmitted);
        seq = unit.seq_end();
        let node = tx.push_back(list, unit).map_err(|_| RestoreError::Full)?;
        if saved.state == UnitState::Sacked
            && let Some(unit) = tx.value_mut(node)
        {
            unit.run = node;
        }
    }
    Ok(seq)
}

/// Moves the front of `bytes` to a new frame, as much as fits. Returns the frame and the count.
fn take_into_frame<P: Port>(wire: &mut Wire<P>, bytes: &mut &[u8]) -> Result<(P::Frame, u16), RestoreError> {
    let mut frame = wire.alloc().ok_or(RestoreError::Full)?;
    let len = bytes.len().min(frame.capacity()).min(usize::from(u16::MAX));
    let these = bytes.split_off(..len).filter(|these| !these.is_empty()).ok_or(RestoreError::Full)?;
    frame.resize(len);
    frame.bytes_mut().copy_from_slice(these);
    Ok((frame, len as u16))
}
