//! Time stamps: the clock that a connection shows its peer, and what it last saw of the peer's.
//!
//! The clock ticks every 2^20 ns. RFC 7323 s5.4 wants a tick between 1 ms and 1 s: a faster clock would wrap within the 24
//! days that a peer trusts an idle connection's last value, a slower one might stand still while numbers wrap. At 1 ms
//! numbers could wrap safely up to 16 Tbit/s. Round trips, which are a hundred times shorter here, are not measured by
//! it but by the times at which segments left. Every connection's clock has an offset of its own, a keyed hash of its
//! two ends (RFC 7323 s7.1), so it tells nobody the uptime and goes on where an earlier connection of the same ends
//! stopped, which RFC 6191 needs.
//!
//! Source: RFC 7323 s3 to s5. Cost: a shift, two additions and one comparison a segment.

use ironwarp_types::{Nanos, Seq};

use crate::header::Timestamps;

/// A tick is 2^20 ns, 1.05 ms.
const TICK_SHIFT: u32 = 20;

/// RFC 7323 s5.5: a value that is older than this says nothing, since the peer's clock may have wrapped.
const TS_RECENT_LIFETIME: Nanos = Nanos::from_secs(24 * 24 * 3_600);

/// The time stamps of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimestampState {
    /// TS.Recent: what we echo, and what no segment may be older than.
    pub(crate) ts_recent: u32,
    /// Last.ACK.sent.
    pub(crate) last_ack_sent: Seq,
    /// When `ts_recent` was taken.
    ts_recent_at: Nanos,
    offset: u32,
}

impl TimestampState {
    pub(crate) fn new(offset: u32) -> Self {
        TimestampState { ts_recent: 0, last_ack_sent: Seq(0), ts_recent_at: Nanos::ZERO, offset }
    }

    /// The peer's SYN, numbered `irs`, has arrived.
    pub(crate) fn on_syn(&mut self, now: Nanos, irs: Seq, offered: Timestamps) {
        (self.ts_recent, self.ts_recent_at) = (offered.tsval, now);
        self.last_ack_sent = irs.plus(1);
    }

    /// What a segment that leaves now carries.
    #[inline]
    pub(crate) fn option(&self, now: Nanos) -> Timestamps {
        Timestamps { tsval: clock(now, self.offset), tsecr: self.ts_recent }
    }

    /// RFC 7323 s5.3, R1: whether a value is older than what was seen before.
    #[inline]
    pub(crate) fn is_before_ts_recent(&self, value: u32) -> bool {
        (value.wrapping_sub(self.ts_recent) as i32) < 0
    }

    /// RFC 7323 s5.5: whether the connection was idle for so long that age cannot be told.
    #[cold]
    pub(crate) fn is_ts_recent_expired(&self, now: Nanos) -> bool {
        now.since(self.ts_recent_at) > TS_RECENT_LIFETIME
    }

    /// RFC 7323 s4.3, (2) and (3): takes the value of an acceptable segment that begins at or before what we last
    /// acknowledged, so that a delayed ACK echoes the first segment that it covers.
    #[inline]
    pub(crate) fn update_recent(&mut self, now: Nanos, seq: Seq, value: u32) {
        if seq.leq(self.last_ack_sent) {
            (self.ts_recent, self.ts_recent_at) = (value, now);
        }
    }
}

/// The clock of a connection with this offset.
#[inline]
pub(crate) fn clock(now: Nanos, offset: u32) -> u32 {
    ((now.0 >> TICK_SHIFT) as u32).wrapping_add(offset)
}
