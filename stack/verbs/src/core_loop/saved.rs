//! The connection of a queue pair as it is saved: the parts of the transport and of the stream, and
//! what the core loop knows of it.
//!
//! The context's half, the rings and the completion queues stay where they are. Not saved: what the
//! queue pair has had of its fair share, of the core's time and of a shared receive queue.

use ironwarp_llp::saved::{decode, encode};
use ironwarp_llp::{Events, RestoreError, SaveError, Transport};
use ironwarp_types::{Clock, Flow, MacAddr, Nanos};
use serde::{Deserialize, Serialize};

use super::CoreLoop;
use super::data_path::ConnOwner;
use super::lifecycle::{Lifecycle, Running};
use super::lower::Lower;
use crate::objects::{QpState, QueuePair};

/// The version of the format of [`SavedConnection`].
const VERSION: u16 = 1;

#[derive(Serialize, Deserialize)]
struct SavedConnection<'a> {
    /// The link address of the peer or of the gateway, until the path is refreshed.
    remote_mac: [u8; 6],
    /// How long FPDUs are held back.
    holdoff: Nanos,
    /// The rest of the timer; [`Nanos::MAX`] without one.
    timer: Nanos,
    read_progress_at_arm: Option<u64>,
    sends_waited_at_arm: bool,
    transport: &'a [u8],
    stream: &'a [u8],
}

impl<L: Lower, C: Clock> CoreLoop<L, C> {
    /// Saves the connection of a queue pair in full operation, and forgets it without a word to the
    /// peer.
    #[cold]
    pub(super) fn save_and_forget(&mut self, qp: QueuePair) -> Result<Vec<u8>, SaveError> {
        let now = self.clock.peek();
        let slot = self.slot_of(qp).ok_or(SaveError::NotEstablished)?;
        let qp = self.dp.qps.at(slot).ok_or(SaveError::NotEstablished)?;
        let (Lifecycle::Running(running), Some(conn)) = (&qp.lifecycle, qp.conn) else {
            return Err(SaveError::NotEstablished);
        };
        let running = *running;
        let (stream, mut io) = qp.stream_io(&mut self.dp.queues, &self.dp.mem, &self.dp.stats);
        let (stream, transport) = (stream.save(&mut io)?, self.dp.llp.save(now, conn)?);
        let mut remote_mac = MacAddr::default();
        self.dp.llp.update_paths(conn.slot, 1, |path, _| remote_mac = path.remote_mac());
        let deadline = self.cm.deadline_of(slot);
        let saved = SavedConnection {
            remote_mac: remote_mac.0,
            holdoff: running.holdoff_until.since(now),
            timer: if deadline == Nanos::MAX { deadline } else { deadline.since(now) },
            read_progress_at_arm: running.read_progress_at_arm,
            sends_waited_at_arm: running.sends_waited_at_arm,
            transport: &transport,
            stream: &stream,
        };
        let saved = encode(VERSION, &saved);
        self.dp.llp.release(conn);
        self.dp.set_owner(conn, ConnOwner::Unowned);
        self.cm.arm_qp(slot, Nanos::MAX);
        self.dp.unlist_qp(slot);
        if let Some(qp) = self.dp.qps.at(slot) {
            (qp.conn, qp.deficit, qp.lifecycle) = (None, 0, Lifecycle::Idle);
            qp.shared.set(QpState::Connecting);
            let (stream, mut io) = qp.stream_io(&mut self.dp.queues, &self.dp.mem, &self.dp.stats);
            stream.forget(&mut io);
        }
        Ok(saved)
    }

    /// Restores a saved connection for a queue pair that has none. Its send ring has the requests
    /// that it had, with the same numbers.
    #[cold]
    pub(super) fn restore_saved(&mut self, qp: QueuePair, saved: &[u8]) -> Result<(), RestoreError> {
        let saved: SavedConnection = decode(VERSION, saved)?;
        let now = self.clock.peek();
        let idle = self
            .slot_of(qp)
            .filter(|slot| self.dp.qps.at(*slot).is_some_and(|qp| matches!(qp.lifecycle, Lifecycle::Idle)));
        let slot =
            idle.ok_or_else(|| RestoreError::Inconsistent("the queue pair has a connection".into()))?;
        let (nets, steering, core) = (&self.dp.nets, self.dp.steering, self.dp.core);
        let path = |flow: &Flow, hash| {
            let is_own = steering.is_none_or(|steering| steering.core_of(flow, hash) == core);
            let home = nets.numbers().find(|port| nets.at(*port).is_local(flow.local.ip()));
            Some(nets.at(home.filter(|_| is_own)?).path_to(flow, MacAddr(saved.remote_mac)))
        };
        let conn = self.dp.llp.restore(now, saved.transport, path, &mut self.dp.wires)?;
        let restored = self.dp.qps.at(slot).map_or(Ok(()), |qp| {
            let (stream, mut io) = qp.stream_io(&mut self.dp.queues, &self.dp.mem, &self.dp.stats);
            stream.restore(saved.stream, &mut io)
        });
        restored.inspect_err(|_| self.dp.llp.release(conn))?;
        self.dp.set_owner(conn, ConnOwner::Qp(slot));
        if let Some(qp) = self.dp.qps.at(slot) {
            qp.conn = Some(conn);
            qp.lifecycle = Lifecycle::Running(Running {
                holdoff_until: now + saved.holdoff,
                read_progress_at_arm: saved.read_progress_at_arm,
                sends_waited_at_arm: saved.sends_waited_at_arm,
            });
            qp.shared.set(QpState::Established);
        }
        self.cm.arm_qp(slot, now + saved.timer);
        // What has arrived is read, and what waits is sent, in the next iteration.
        self.on_tcp_events(now, conn, Events::ACKED | Events::READABLE | Events::WRITABLE);
        self.idle_until = Nanos::ZERO;
        Ok(())
    }

    /// Returns the slot of a queue pair of this core.
    fn slot_of(&mut self, qp: QueuePair) -> Option<u32> {
        self.dp.qps.slots().find(|slot| self.dp.qps.at(*slot).is_some_and(|one| one.handle == qp))
    }
}
