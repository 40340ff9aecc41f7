//! TIME-WAIT: flows that are closed in both directions while old segments may still arrive.
//!
//! An entry takes about 130 bytes instead of a connection. All entries wait equally long, so one
//! list in order of arrival is also in order of expiry. An entry whose wait restarts moves to the
//! end. When the table is full, a new entry replaces the oldest.
//!
//! Source: RFC 9293 s3.6.1 and s3.10.7.4, RFC 1337 (a reset does not end the wait), RFC 5961 (a SYN
//! is answered with an ACK), RFC 7323 s5 (timestamps continue), RFC 6191 (ports may be reused).

use ironwarp_net::FlowTable;
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::{Flow, Nanos, Seq};

use crate::conn::{Conn, TimestampState};
use crate::header::{Flags, Segment, TxHeader};

const NIL: u32 = u32::MAX;

/// The minimum wait before we reopen a flow: the timestamp clock has then advanced since the last
/// segment of the old connection.
const REOPEN_AFTER: Nanos = Nanos::from_secs(1);

struct Entry {
    flow: Option<Flow>,
    hash: u32,
    snd_nxt: Seq,
    rcv_nxt: Seq,
    /// The timestamp state, when timestamps were negotiated.
    ts: Option<TimestampState>,
    until: Nanos,
    older: u32,
    newer: u32,
}

/// The flows in TIME-WAIT.
pub(super) struct TimeWait {
    entries: Box<[Entry]>,
    duration: Nanos,
    oldest: u32,
    newest: u32,
    /// The head of the list of free entries, linked by `newer`.
    free: u32,
    len: u32,
}

impl TimeWait {
    pub(super) fn new(entries_max: u32, duration: Nanos) -> Self {
        let chained = |at: u32| Entry {
            flow: None,
            hash: 0,
            snd_nxt: Seq(0),
            rcv_nxt: Seq(0),
            ts: None,
            until: Nanos::MAX,
            older: NIL,
            newer: if at + 1 < entries_max { at + 1 } else { NIL },
        };
        TimeWait {
            entries: (0..entries_max).map(chained).collect(),
            duration,
            oldest: NIL,
            newest: NIL,
            free: if entries_max == 0 { NIL } else { 0 },
            len: 0,
        }
    }

    /// Returns the flow of an entry.
    pub(super) fn flow(&self, at: u32) -> Option<&Flow> {
        self.entries.get(at as usize)?.flow.as_ref()
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Takes over the flow of a connection. In `flows`, an entry has the value `base` plus its
    /// index.
    pub(super) fn insert(
        &mut self,
        conn: &Conn,
        now: Nanos,
        flows: &mut FlowTable,
        base: u32,
        stats: &CoreStats,
    ) {
        if self.free == NIL {
            self.remove_oldest(flows, base);
            stats.count(Counter::TcpTimeWaitEvicted);
        }
        let at = self.free;
        let hash = conn.cold.hash;
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        // Without an entry, old segments are answered with a reset, as after the wait.
        if flows.insert(hash, base + at).is_err() {
            return;
        }
        self.free = entry.newer;
        (entry.flow, entry.hash) = (Some(conn.flow()), hash);
        (entry.snd_nxt, entry.rcv_nxt) = (conn.snd.snd_max, conn.rcv.rcv_nxt);
        entry.ts = conn.opts.timestamps.then_some(conn.ts);
        entry.until = now + self.duration;
        self.len += 1;
        self.append(at);
    }

    /// Processes a segment of a waiting flow. Returns the header of the reply, if any.
    pub(super) fn on_segment(&mut self, at: u32, now: Nanos, segment: &Segment) -> Option<TxHeader> {
        let until = now + self.duration;
        let entry = self.entries.get_mut(at as usize)?;
        // RFC 1337 s3: a reset, old or forged, must not end the wait.
        let quiet = segment.has(Flags::RST)
            || (segment.seq_len() == 0 && segment.seq == entry.rcv_nxt && segment.ack == entry.snd_nxt)
            // RFC 7323 s3.2: a segment without timestamps does not belong to this connection.
            || (entry.ts.is_some() && segment.options.timestamps.is_none() && !segment.has(Flags::SYN));
        if quiet {
            return None;
        }
        let header = TxHeader {
            timestamps: entry.ts.map(|stamps| stamps.option(now)),
            ..TxHeader::bare(entry.snd_nxt, entry.rcv_nxt, Flags::ACK)
        };
        // Only a retransmission of the peer's FIN restarts the wait.
        if segment.has(Flags::FIN) && segment.seq.plus(segment.seq_len()) == entry.rcv_nxt {
            entry.until = until;
            self.detach(at);
            self.append(at);
        }
        Some(header)
    }

    /// RFC 6191 s2, RFC 9293 s3.10.7.4: returns whether a SYN may reuse the flow. A SYN that begins
    /// beyond all numbers of the old connection cannot be an old segment, nor can an old segment be
    /// taken for one of the new connection. A SYN with a later timestamp belongs to a later
    /// connection, whatever its number.
    ///
    /// Linux reuses a port at once when we closed first. Answering with an ACK would block it,
    /// since TIME-WAIT ignores its reset. `iss_is_free` states whether our initial sequence number
    /// can be chosen, which is not so for a cookie.
    pub(super) fn may_reuse_for_syn(&self, at: u32, segment: &Segment, iss_is_free: bool) -> bool {
        let plain_syn = segment.has(Flags::SYN) && !segment.has(Flags::ACK | Flags::RST | Flags::FIN);
        let Some(entry) = self.entries.get(at as usize).filter(|_| plain_syn) else { return false };
        match (&entry.ts, segment.options.timestamps) {
            (Some(seen), Some(stamp)) if stamp.tsval != seen.ts_recent => {
                !seen.is_before_ts_recent(stamp.tsval)
            }
            _ => iss_is_free && segment.seq.gt(entry.rcv_nxt),
        }
    }

    /// Returns whether we may connect these endpoints again. Timestamps keep both sides from taking
    /// old segments for new ones (RFC 6191 s2, RFC 7323 s5, applied to the side in TIME-WAIT).
    pub(super) fn may_reuse_for_connect(&self, at: u32, now: Nanos) -> bool {
        let entry = self.entries.get(at as usize).filter(|entry| entry.ts.is_some());
        entry.is_some_and(|entry| entry.until + REOPEN_AFTER <= now + self.duration)
    }

    /// Removes entries whose wait is over.
    pub(super) fn expire(&mut self, now: Nanos, flows: &mut FlowTable, base: u32) {
        while self.next_deadline().is_some_and(|at| at <= now) {
            self.remove_oldest(flows, base);
        }
    }

    /// Returns when the next wait is over.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.entries.get(self.oldest as usize).map(|entry| entry.until)
    }

    fn remove_oldest(&mut self, flows: &mut FlowTable, base: u32) {
        self.remove(self.oldest, flows, base);
    }

    /// Ends the wait of one flow. Returns the number after the last one that we used.
    pub(super) fn remove(&mut self, at: u32, flows: &mut FlowTable, base: u32) -> Option<Seq> {
        self.detach(at);
        let free = self.free;
        let entry = self.entries.get_mut(at as usize)?;
        flows.remove(entry.hash, base + at);
        entry.flow = None;
        entry.newer = free;
        self.free = at;
        self.len -= 1;
        Some(entry.snd_nxt)
    }

    fn append(&mut self, at: u32) {
        let newest = self.newest;
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        (entry.older, entry.newer) = (newest, NIL);
        match self.entries.get_mut(newest as usize) {
            Some(before) => before.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }

    fn detach(&mut self, at: u32) {
        let Some(entry) = self.entries.get(at as usize) else { return };
        let (older, newer) = (entry.older, entry.newer);
        match self.entries.get_mut(older as usize) {
            Some(before) => before.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer as usize) {
            Some(after) => after.older = older,
            None => self.newest = older,
        }
    }
}
