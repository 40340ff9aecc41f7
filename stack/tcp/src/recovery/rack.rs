//! RACK: a segment is lost when one that was sent sufficiently later has arrived.
//!
//! Takes delivered segments with their transmission times; gives the time at which an older segment
//! counts as lost. The reordering window defines "sufficiently later". It is zero until reordering
//! is seen, then a quarter of the smallest round trip. Every round trip with a duplicate SACK
//! widens it.
//!
//! Times are nanoseconds of the local clock, so that a quarter of a 10-microsecond round trip is
//! meaningful. Source: RFC 8985 s6. Cost: a few compares per delivered segment, no division.

use ironwarp_types::{Nanos, Seq};
use serde::{Deserialize, Serialize};

use crate::saved::Rebase;

/// Duplicate ACKs or SACKed segments that indicate a loss while no reordering was seen
/// (RFC 5681 s3.2).
pub(crate) const DUP_ACK_THRESHOLD: u16 = 3;

/// RFC 8985 s6.2, step 4: the number of recoveries for which a widened window is kept.
const REO_WND_PERSIST: u8 = 16;

/// The epoch of the minimum filter: 2^32 ns, 4.3 s. The filter looks back one to two epochs.
const MIN_RTT_EPOCH_SHIFT: u32 = 32;

/// A delivered segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Delivered {
    pub(crate) sent_at: Nanos,
    pub(crate) seq_end: Seq,
    /// It was sent more than once.
    pub(crate) retransmitted: bool,
}

/// The smallest round trips of this epoch and of the previous one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct MinRtt {
    current: Nanos,
    before: Nanos,
    epoch: u32,
}

impl MinRtt {
    #[inline]
    fn update(&mut self, now: Nanos, rtt: Nanos) {
        let epoch = (now.0 >> MIN_RTT_EPOCH_SHIFT) as u32;
        if epoch != self.epoch {
            self.begin_epoch(epoch, rtt);
        } else if rtt < self.current {
            self.current = rtt;
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_epoch(&mut self, epoch: u32, rtt: Nanos) {
        let before = if epoch == self.epoch.wrapping_add(1) { self.current } else { Nanos::MAX };
        *self = MinRtt { current: rtt, before, epoch };
    }

    #[inline]
    fn value(&self) -> Nanos {
        self.current.min(self.before)
    }
}

/// The RACK state of one connection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Rack {
    /// The transmission time (RACK.xmit_ts) and the end of the most recently sent segment that was
    /// delivered.
    sent_at: Nanos,
    end_seq: Seq,
    /// The highest sequence number delivered (RACK.fack).
    fack: Seq,
    /// The round trip of the most recently delivered segment.
    rtt: Nanos,
    min_rtt: MinRtt,
    /// The end of the round trip in which a duplicate SACK arrived (RACK.dsack_round).
    dsack_round: Option<Seq>,
    reordering_seen: bool,
    /// RACK.reo_wnd_mult.
    reo_wnd_mult: u8,
    /// RACK.reo_wnd_persist.
    reo_wnd_persist: u8,
}

impl Rack {
    pub(crate) fn new(iss: Seq) -> Self {
        Rack {
            sent_at: Nanos::ZERO,
            end_seq: iss,
            fack: iss,
            rtt: Nanos::ZERO,
            min_rtt: MinRtt { current: Nanos::MAX, before: Nanos::MAX, epoch: 0 },
            dsack_round: None,
            reordering_seen: false,
            reo_wnd_mult: 1,
            reo_wnd_persist: 0,
        }
    }

    /// A saved state has the distance of the epoch from that of the clock.
    pub(crate) fn rebase(&mut self, clock: Rebase) {
        clock.time(&mut self.sent_at);
        self.min_rtt.epoch = self.min_rtt.epoch.wrapping_sub(clock.periods(MIN_RTT_EPOCH_SHIFT));
    }

    /// Steps 1 to 3: a segment was acknowledged or SACKed.
    #[inline]
    pub(crate) fn on_delivered(&mut self, now: Nanos, segment: Delivered) {
        let rtt = now.since(segment.sent_at);
        if self.fack.lt(segment.seq_end) {
            self.fack = segment.seq_end;
        } else if !segment.retransmitted && segment.seq_end.lt(self.fack) {
            // A segment that was sent once arrived after one that was sent later.
            self.reordering_seen = true;
        }
        // Faster than the network: the acknowledgement is of the first copy, not of the
        // retransmission. The limit is half of the smallest round trip, since that was measured
        // with full segments, and a short one takes less time on the wire.
        if segment.retransmitted && rtt < Nanos(self.min_rtt.value().0 >> 1) {
            return;
        }
        if !segment.retransmitted {
            self.min_rtt.update(now, rtt);
        }
        self.rtt = rtt;
        if sent_after((segment.sent_at, segment.seq_end), (self.sent_at, self.end_seq)) {
            (self.sent_at, self.end_seq) = (segment.sent_at, segment.seq_end);
        }
    }

    /// Returns whether the most recently sent delivered segment was sent after this segment.
    #[inline]
    pub(crate) fn is_loss_candidate(&self, sent_at: Nanos, seq_end: Seq) -> bool {
        sent_after((self.sent_at, self.end_seq), (sent_at, seq_end))
    }

    /// Returns when a loss candidate counts as lost.
    #[inline]
    pub(crate) fn lost_at(&self, sent_at: Nanos, window: Nanos) -> Nanos {
        sent_at + self.rtt + window
    }

    /// Returns the smallest recent round trip; [`Nanos::MAX`] before the first sample.
    pub(crate) fn min_rtt(&self) -> Nanos {
        self.min_rtt.value()
    }

    /// Step 4: an acknowledgement up to `una` arrived, with or without a duplicate SACK. `snd_nxt`
    /// is SND.NXT.
    pub(crate) fn on_dsack(&mut self, dsack: bool, una: Seq, snd_nxt: Seq) {
        if self.dsack_round.is_some_and(|end| end.leq(una)) {
            self.dsack_round = None;
        }
        if dsack && self.dsack_round.is_none() {
            self.dsack_round = Some(snd_nxt);
            self.reo_wnd_mult = self.reo_wnd_mult.saturating_add(1);
            self.reo_wnd_persist = REO_WND_PERSIST;
        }
    }

    /// Returns whether the round trip with a duplicate SACK is still in progress, given SND.UNA.
    pub(crate) fn in_dsack_round(&self, una: Seq) -> bool {
        self.dsack_round.is_some_and(|end| una.lt(end))
    }

    /// Step 4: a recovery ended.
    pub(crate) fn on_recovered(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            self.reo_wnd_mult = 1;
        }
    }

    /// Step 4: returns the reordering window.
    pub(crate) fn reo_wnd(&self, recovering: bool, sacked_units: u16, srtt: Nanos) -> Nanos {
        let certain = recovering || sacked_units >= DUP_ACK_THRESHOLD;
        if (!self.reordering_seen && certain) || self.min_rtt() == Nanos::MAX {
            return Nanos::ZERO;
        }
        Nanos(self.min_rtt().0 >> 2).times(u64::from(self.reo_wnd_mult)).min(srtt)
    }

    #[cfg(test)]
    pub(crate) fn reordering_seen(&self) -> bool {
        self.reordering_seen
    }
}

/// RACK_sent_after of s6.2: compares by time, then by sequence number, since a burst shares one
/// time.
#[inline]
fn sent_after(one: (Nanos, Seq), other: (Nanos, Seq)) -> bool {
    one.0 > other.0 || (one.0 == other.0 && one.1.gt(other.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Nanos = Nanos::from_micros(10);

    fn delivered(sent_at: u64, seq_end: u32, retransmitted: bool) -> Delivered {
        Delivered { sent_at: Nanos(sent_at), seq_end: Seq(seq_end), retransmitted }
    }

    /// A RACK state with one delivered segment: sent at 1000 ns, delivered one round trip later.
    fn started() -> Rack {
        let mut rack = Rack::new(Seq(0));
        rack.on_delivered(Nanos(1_000) + RTT, delivered(1_000, 100, false));
        rack
    }

    /// RFC 8985 s6.2, steps 1 and 2.
    #[test]
    fn segments_sent_before_a_delivered_one_are_loss_candidates() {
        let rack = started();
        assert!(rack.is_loss_candidate(Nanos(999), Seq(5_000)));
        assert!(
            rack.is_loss_candidate(Nanos(1_000), Seq(99)) && !rack.is_loss_candidate(Nanos(1_000), Seq(101))
        );
        assert!(!rack.is_loss_candidate(Nanos(1_001), Seq(50)));
        assert_eq!(rack.lost_at(Nanos(999), Nanos::ZERO), Nanos(999) + RTT);
    }

    /// RFC 8985 s6.2, step 2: an acknowledgement that is faster than the network belongs to the
    /// first copy.
    #[test]
    fn a_retransmission_acknowledged_too_soon_is_ignored() {
        let mut rack = started();
        rack.on_delivered(Nanos(20_005), delivered(20_000, 200, true));
        assert!(!rack.is_loss_candidate(Nanos(15_000), Seq(50)));
        assert_eq!(rack.rtt, RTT);
        rack.on_delivered(Nanos(31_000), delivered(20_000, 200, true));
        assert!(rack.is_loss_candidate(Nanos(15_000), Seq(50)));
    }

    /// A short probe takes less time on the wire than the full segments of the smallest round trip.
    #[test]
    fn a_short_retransmission_a_little_faster_than_the_smallest_round_trip_counts() {
        let mut rack = started();
        rack.on_delivered(Nanos(20_000 + RTT.0 * 9 / 10), delivered(20_000, 200, true));
        assert!(rack.is_loss_candidate(Nanos(15_000), Seq(50)));
    }

    /// RFC 8985 s6.2, step 3.
    #[test]
    fn only_a_late_original_counts_as_reordering() {
        let mut rack = started();
        rack.on_delivered(Nanos(30_000), delivered(1_100, 300, false));
        rack.on_delivered(Nanos(30_000), delivered(1_050, 200, true));
        assert!(!rack.reordering_seen());
        rack.on_delivered(Nanos(30_000), delivered(1_050, 250, false));
        assert!(rack.reordering_seen());
    }

    /// RFC 8985 s6.2, step 4. A quarter of ten microseconds, without rounding to a clock tick.
    #[test]
    fn the_reordering_window_is_zero_or_a_quarter_of_the_smallest_round_trip() {
        let mut rack = started();
        let quarter = Nanos(2_500);
        assert_eq!(rack.reo_wnd(false, 2, RTT), quarter);
        assert_eq!(rack.reo_wnd(false, 3, RTT), Nanos::ZERO);
        assert_eq!(rack.reo_wnd(true, 0, RTT), Nanos::ZERO);
        rack.reordering_seen = true;
        assert_eq!(rack.reo_wnd(true, 9, RTT), quarter);
    }

    /// RFC 8985 s6.2, step 4: the window grows by one quarter for each round trip with a duplicate
    /// SACK, at most to the round trip, for sixteen recoveries. RFC 8985 s3.3.1.
    #[test]
    fn duplicate_sacks_widen_the_reordering_window_for_sixteen_recoveries() {
        let mut rack = started();
        rack.on_dsack(true, Seq(100), Seq(1_000));
        rack.on_dsack(true, Seq(200), Seq(1_100));
        assert_eq!(rack.reo_wnd(false, 0, RTT), Nanos(5_000));
        rack.on_dsack(true, Seq(1_000), Seq(2_000));
        assert_eq!(rack.reo_wnd(false, 0, RTT), Nanos(7_500));
        assert_eq!(rack.reo_wnd(false, 0, Nanos(6_000)), Nanos(6_000));
        (0..16).for_each(|_| rack.on_recovered());
        assert_eq!(rack.reo_wnd(false, 0, RTT), Nanos(2_500));
    }

    /// RFC 8985 s6.2, step 1: the smallest round trip expires, for paths that become longer.
    #[test]
    fn the_smallest_round_trip_expires() {
        let mut rack = started();
        for second in 1..20 {
            let at = Nanos::from_secs(second);
            rack.on_delivered(
                at,
                Delivered { sent_at: at - Nanos(50_000), seq_end: Seq(1), retransmitted: true },
            );
            rack.on_delivered(
                at,
                Delivered { sent_at: at - Nanos(50_000), seq_end: Seq(1), retransmitted: false },
            );
        }
        assert_eq!(rack.min_rtt(), Nanos(50_000));
    }
}
