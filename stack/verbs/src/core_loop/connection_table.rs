//! The connections that a core shows in its page of counters: those that moved the most bytes, then
//! the most recent.
//!
//! A timer runs [`ConnectionTable::step`], never a frame. A step looks at [`SLOTS_PER_STEP`] slots
//! of TCP; when it has seen all of them it writes the rows and waits for [`SCAN_INTERVAL`]. The
//! table has a row for as many connections as fit and nothing for the others. It exists only if the
//! page is in a file (`stats.page`), so that without one nothing is looked at.
//!
//! TCP keeps no total of received bytes, only sequence numbers. The table adds up their growth from
//! scan to scan, which is exact while a connection receives less than 4 GiB between two scans.
//!
//! A step costs a few cache lines for each connection that it looks at, and 20 stores for each row.
//! It allocates nothing.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use ironwarp_llp::{ConnId, ConnectionInfo, Transport};
use ironwarp_stats::{CONNECTION_ROWS, ConnectionRow, ConnectionRows};
use ironwarp_types::Nanos;

use super::data_path::{ConnOwner, DataPath};
use super::lower::Lower;

/// From the end of a scan to the next one: what a person watches.
const SCAN_INTERVAL: Nanos = Nanos::from_millis(250);

/// Between two steps of a scan: time for frames.
const STEP_INTERVAL: Nanos = Nanos::from_millis(1);

/// Slots that a step looks at: some ten microseconds if all are in use and none is in the cache.
const SLOTS_PER_STEP: u32 = 256;

/// What the last scan saw in a slot of TCP.
#[derive(Clone, Copy, Default)]
struct Seen {
    conn: Option<ConnId>,
    /// Payload bytes received, modulo 2^32 and in all.
    received: u32,
    rx_bytes: u64,
    /// Payload bytes in both directions.
    moved_bytes: u64,
}

/// The rank of a connection: bytes moved since the scan before, then the time of the peer's last
/// segment.
type Rank = (u64, Nanos, u32);

/// The table of one core.
pub(super) struct ConnectionTable {
    rows: ConnectionRows,
    /// By slot of TCP.
    seen: Box<[Seen]>,
    /// The slot at which the scan in progress continues.
    next_slot: u32,
    /// The first connections of the scan in progress by rank, the last of them on top.
    first: BinaryHeap<Reverse<Rank>>,
    /// Rows that hold a connection.
    rows_used: usize,
}

impl ConnectionTable {
    /// Creates a table for as many connections as TCP has slots.
    pub(super) fn new(rows: ConnectionRows, slots: u32) -> Self {
        ConnectionTable {
            rows,
            seen: (0..slots).map(|_| Seen::default()).collect(),
            next_slot: 0,
            first: BinaryHeap::with_capacity(CONNECTION_ROWS + 1),
            rows_used: 0,
        }
    }

    /// Looks at the next slots. Returns when to do so again.
    #[cold]
    pub(super) fn step<L: Lower>(&mut self, dp: &mut DataPath<L>, now: Nanos) -> Nanos {
        let slots = dp.llp.slots();
        let end = self.next_slot.saturating_add(SLOTS_PER_STEP).min(slots);
        for slot in self.next_slot..end {
            match dp.llp.connection_info(slot) {
                Some((_, info)) => self.look_at(slot, &info),
                None => self.forget(slot),
            }
        }
        self.next_slot = end;
        if end < slots {
            return now + STEP_INTERVAL;
        }
        self.next_slot = 0;
        self.show(dp);
        now + SCAN_INTERVAL
    }

    fn look_at(&mut self, slot: u32, info: &ConnectionInfo) {
        let Some(seen) = self.seen.get_mut(slot as usize) else { return };
        if seen.conn != Some(info.id) {
            *seen = Seen { conn: Some(info.id), ..Seen::default() };
        }
        seen.rx_bytes += u64::from(info.received_bytes.wrapping_sub(seen.received));
        seen.received = info.received_bytes;
        let moved_bytes = seen.rx_bytes.wrapping_add(info.acked_bytes);
        let grown = moved_bytes.saturating_sub(seen.moved_bytes);
        seen.moved_bytes = moved_bytes;
        self.first.push(Reverse((grown, info.last_rx_at, slot)));
        if self.first.len() > CONNECTION_ROWS {
            self.first.pop();
        }
    }

    fn forget(&mut self, slot: u32) {
        if let Some(seen) = self.seen.get_mut(slot as usize) {
            seen.conn = None;
        }
    }

    /// Writes the connections that the scan has found, and frees the rows that they do not need.
    fn show<L: Lower>(&mut self, dp: &mut DataPath<L>) {
        let mut used = 0;
        while let Some(Reverse((_, _, slot))) = self.first.pop() {
            let (Some(info), Some(seen)) = (dp.llp.connection_info(slot), self.seen.get(slot as usize))
            else {
                continue;
            };
            // A connection that came to the slot after the scan is shown by the next one.
            if seen.conn == Some(info.1.id) {
                self.rows.write(used, Some(&row(dp, info, seen.rx_bytes)));
                used += 1;
            }
        }
        (used..self.rows_used).for_each(|row| self.rows.write(row, None));
        self.rows_used = used;
    }
}

impl Drop for ConnectionTable {
    /// The page may outlive the core.
    fn drop(&mut self) {
        (0..self.rows_used).for_each(|row| self.rows.write(row, None));
    }
}

fn row<L: Lower>(
    dp: &mut DataPath<L>,
    (state, info): (<L::Transport as Transport>::State, ConnectionInfo),
    rx_bytes: u64,
) -> ConnectionRow {
    let queue_pair = match dp.owner(info.id) {
        ConnOwner::Qp(slot) => dp.qps.at(slot).map(|qp| qp.handle.num().0),
        ConnOwner::Passive(_) | ConnOwner::Unowned => None,
    };
    ConnectionRow {
        local: info.flow.local,
        remote: info.flow.remote,
        protocol: info.protocol,
        state: L::shown_state(state),
        queue_pair,
        tx_bytes: info.acked_bytes,
        rx_bytes,
        retransmits: info.retransmits.into(),
        srtt_ns: info.srtt.0,
        rto_ns: info.rto.0,
        cwnd_bytes: info.cwnd_bytes.into(),
        flight_bytes: info.flight_bytes.into(),
        paths: info.paths,
        paths_up: info.paths_up,
    }
}
