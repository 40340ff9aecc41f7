//! Timestamps: the clock that a connection shows its peer, and the last value of the peer's clock.
//!
//! The clock ticks every 2^20 ns. RFC 7323 s5.4 requires a tick between 1 ms and 1 s. A faster
//! clock would wrap within the 24 days for which a peer trusts the last value of an idle
//! connection. A slower one might stand still while sequence numbers wrap; 1 ms is enough up to 16
//! Tbit/s. Round trips are a hundred times shorter and are measured from transmission times
//! instead. Every connection's clock has its own offset, a keyed hash of its endpoints
//! (RFC 7323 s7.1). The clock therefore does not reveal the uptime, and it continues where an
//! earlier connection of the same endpoints stopped, as RFC 6191 requires.
//!
//! Source: RFC 7323 s3 to s5. Cost: one shift, two additions and one comparison per segment.

use ironwarp_types::{Nanos, Seq};
use serde::{Deserialize, Serialize};

use crate::header::Timestamps;
use crate::saved::Rebase;

/// A tick is 2^20 ns, 1.05 ms.
const TICK_SHIFT: u32 = 20;

/// RFC 7323 s5.5: an older value is invalid, since the peer's clock may have wrapped.
const TS_RECENT_LIFETIME: Nanos = Nanos::from_secs(24 * 24 * 3_600);

/// The timestamp state of one connection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct TimestampState {
    /// TS.Recent: the value that we echo. Older segments are rejected.
    pub(crate) ts_recent: u32,
    /// Last.ACK.sent.
    pub(crate) last_ack_sent: Seq,
    /// When `ts_recent` was updated.
    ts_recent_at: Nanos,
    offset: u32,
}

impl TimestampState {
    pub(crate) fn new(offset: u32) -> Self {
        TimestampState { ts_recent: 0, last_ack_sent: Seq(0), ts_recent_at: Nanos::ZERO, offset }
    }

    /// A saved state has the value that the clock shows in place of its offset.
    pub(crate) fn rebase(&mut self, clock: Rebase) {
        clock.time(&mut self.ts_recent_at);
        self.offset = self.offset.wrapping_add(clock.periods(TICK_SHIFT));
    }

    /// The peer's SYN, numbered `irs`, has arrived.
    pub(crate) fn on_syn(&mut self, now: Nanos, irs: Seq, offered: Timestamps) {
        (self.ts_recent, self.ts_recent_at) = (offered.tsval, now);
        self.last_ack_sent = irs.plus(1);
    }

    /// Returns the option of a segment that is sent now.
    #[inline]
    pub(crate) fn option(&self, now: Nanos) -> Timestamps {
        Timestamps { tsval: clock(now, self.offset), tsecr: self.ts_recent }
    }

    /// RFC 7323 s5.3, R1: returns whether a value is older than TS.Recent.
    #[inline]
    pub(crate) fn is_before_ts_recent(&self, value: u32) -> bool {
        (value.wrapping_sub(self.ts_recent) as i32) < 0
    }

    /// RFC 7323 s5.5: returns whether the connection was idle for so long that TS.Recent is
    /// invalid.
    #[cold]
    pub(crate) fn is_ts_recent_expired(&self, now: Nanos) -> bool {
        now.since(self.ts_recent_at) > TS_RECENT_LIFETIME
    }

    /// RFC 7323 s4.3, (2) and (3): takes the value of an acceptable segment that begins at or
    /// before Last.ACK.sent. A delayed ACK thus echoes the first segment that it covers.
    #[inline]
    pub(crate) fn update_recent(&mut self, now: Nanos, seq: Seq, value: u32) {
        if seq.leq(self.last_ack_sent) {
            (self.ts_recent, self.ts_recent_at) = (value, now);
        }
    }
}

/// Returns the timestamp clock of a connection with this offset.
#[inline]
pub(crate) fn clock(now: Nanos, offset: u32) -> u32 {
    ((now.0 >> TICK_SHIFT) as u32).wrapping_add(offset)
}
