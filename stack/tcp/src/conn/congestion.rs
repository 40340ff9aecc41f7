//! The congestion window and loss recovery: RFC 5681 with the NewReno recovery of RFC 6582.
//!
//! ```text
//!            3rd duplicate ACK                 all of `recover` acknowledged
//!   Open ------------------------> Fast -----------------------------------> Open
//!     \                              \                                         ^
//!      \------- timeout --------------\---------------> Loss -----------------/
//! ```
//!
//! Takes what ACKs and timers say, in bytes; gives a window in bytes and whether the first unacknowledged unit must be
//! sent again. Knows nothing of segments or time. Cost: a few additions an ACK, no division.

use ironwarp_types::Seq;

/// Where loss recovery stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Fast recovery (RFC 6582 s3.2): a hole was inferred from duplicate ACKs.
    Fast,
    /// After a timeout: everything up to `recover` is sent again, in slow start.
    Loss,
}

/// The largest window kept: half the sequence space less a margin, so that comparisons stay ordered.
const CWND_MAX: u32 = 1 << 30;

/// Duplicate ACKs that tell of a loss (RFC 5681 s3.2).
const DUP_ACK_THRESHOLD: u8 = 3;

/// One connection's congestion state. Windows are in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewReno {
    cwnd: u32,
    ssthresh: u32,
    /// Bytes acknowledged since the window last grew in congestion avoidance.
    ca_acked: u32,
    /// SND.MAX when recovery began (RFC 6582 s3.2).
    recover: Seq,
    /// SND.UNA at the last timeout.
    timed_out_at: Seq,
    emss: u32,
    dup_acks: u8,
    phase: Phase,
}

impl NewReno {
    pub(crate) fn new(emss: u32, cwnd: u32, iss: Seq) -> Self {
        NewReno {
            cwnd: cwnd.clamp(emss, CWND_MAX),
            ssthresh: CWND_MAX,
            ca_acked: 0,
            recover: iss,
            timed_out_at: iss,
            emss,
            dup_acks: 0,
            phase: Phase::Open,
        }
    }

    /// What may be in flight. RFC 3042: the first two duplicate ACKs each let one more segment out.
    #[inline]
    pub(crate) fn window(&self) -> u32 {
        if self.phase == Phase::Open {
            self.cwnd + u32::from(self.dup_acks.min(2)) * self.emss
        } else {
            self.cwnd
        }
    }

    #[cfg(test)]
    fn phase(&self) -> Phase {
        self.phase
    }

    /// `acked` new bytes were acknowledged, up to `ack`, of `flight` that were on their way. Answers whether the first
    /// unacknowledged unit must be sent again.
    #[inline]
    pub(crate) fn on_ack(&mut self, ack: Seq, acked: u32, flight: u32) -> bool {
        self.dup_acks = 0;
        match self.phase {
            Phase::Open => self.grow(acked, flight),
            Phase::Fast => return self.on_ack_in_fast(ack, acked, flight),
            Phase::Loss => {
                self.grow(acked, flight);
                if self.recover.leq(ack) {
                    self.phase = Phase::Open;
                }
            }
        }
        false
    }

    /// RFC 5681 s3.1, with RFC 3465's counting of bytes (L = 2): double each round trip up to ssthresh, then one
    /// segment each. RFC 5681 s4.3 and RFC 7661: a window that is not used does not grow.
    #[inline]
    fn grow(&mut self, acked: u32, flight: u32) {
        if flight < self.cwnd >> 1 {
            return;
        }
        if self.cwnd < self.ssthresh {
            self.cwnd += acked.min(2 * self.emss);
        } else {
            self.ca_acked += acked;
            if self.ca_acked >= self.cwnd {
                self.ca_acked -= self.cwnd;
                self.cwnd += self.emss;
            }
        }
        self.cwnd = self.cwnd.min(CWND_MAX);
    }

    /// RFC 6582 s3.2 step 3.
    #[cold]
    fn on_ack_in_fast(&mut self, ack: Seq, acked: u32, flight: u32) -> bool {
        if self.recover.leq(ack) {
            // Full acknowledgement: deflate, and no more than a segment beyond what is in flight, so no burst follows.
            let left = flight.saturating_sub(acked);
            self.cwnd = self.ssthresh.min(left.max(self.emss) + self.emss);
            self.phase = Phase::Open;
            return false;
        }
        // Partial acknowledgement: the next hole begins right here.
        let deflated = self.cwnd.saturating_sub(acked);
        let inflated = if acked >= self.emss { deflated + self.emss } else { deflated };
        self.cwnd = inflated.max(self.emss);
        true
    }

    /// A duplicate ACK came while `flight` bytes were on their way, `snd_una` not acknowledged and `snd_max` the end of
    /// what was sent. Answers whether the first unacknowledged unit must be sent again.
    #[cold]
    pub(crate) fn on_dup_ack(&mut self, snd_una: Seq, snd_max: Seq, flight: u32) -> bool {
        self.dup_acks = self.dup_acks.saturating_add(1);
        match self.phase {
            // RFC 6582 s3.2 step 2 and RFC 6582 s4: after a timeout, only what lies beyond `recover` is news.
            Phase::Open if self.dup_acks == DUP_ACK_THRESHOLD && self.recover.leq(snd_una) => {
                self.ssthresh = (flight >> 1).max(2 * self.emss);
                self.cwnd = self.ssthresh + u32::from(DUP_ACK_THRESHOLD) * self.emss;
                self.recover = snd_max;
                self.phase = Phase::Fast;
                true
            }
            // Step 4: one more segment has left the network.
            Phase::Fast => {
                self.cwnd = (self.cwnd + self.emss).min(CWND_MAX);
                false
            }
            _ => false,
        }
    }

    /// RFC 5681 s3.1: the retransmission timer ran out with `flight` bytes on their way, the first of them `snd_una`.
    #[cold]
    pub(crate) fn on_timeout(&mut self, snd_una: Seq, snd_max: Seq, flight: u32) {
        // Only the first timeout of a segment says something about the network; later ones say it again.
        if self.phase != Phase::Loss || self.timed_out_at != snd_una {
            self.ssthresh = (flight >> 1).max(2 * self.emss);
        }
        self.cwnd = self.emss;
        self.ca_acked = 0;
        self.dup_acks = 0;
        self.recover = snd_max;
        self.timed_out_at = snd_una;
        self.phase = Phase::Loss;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMSS: u32 = 1_000;

    fn open(cwnd: u32) -> NewReno {
        NewReno::new(EMSS, cwnd, Seq(0))
    }

    /// RFC 5681 s3.1.
    #[test]
    fn slow_start_grows_by_what_was_acknowledged() {
        let mut cc = open(10 * EMSS);
        for _ in 0..10 {
            assert!(!cc.on_ack(Seq(1), EMSS, 10 * EMSS));
        }
        assert_eq!(cc.window(), 20 * EMSS);
    }

    /// RFC 3465 s2.3: an ACK that covers much opens the window by two segments at most.
    #[test]
    fn a_stretched_ack_counts_for_two_segments() {
        let mut cc = open(10 * EMSS);
        cc.on_ack(Seq(1), 10 * EMSS, 10 * EMSS);
        assert_eq!(cc.window(), 12 * EMSS);
    }

    /// RFC 5681 s3.1: one segment a round trip.
    #[test]
    fn congestion_avoidance_grows_by_one_segment_a_window() {
        let mut cc = open(10 * EMSS);
        cc.ssthresh = 10 * EMSS;
        for _ in 0..10 {
            cc.on_ack(Seq(1), EMSS, 10 * EMSS);
        }
        assert_eq!(cc.window(), 11 * EMSS);
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut cc = open(10 * EMSS);
        cc.on_ack(Seq(1), EMSS, EMSS);
        assert_eq!(cc.window(), 10 * EMSS);
    }

    /// RFC 3042 s2, RFC 6582 s3.2: two limited transmissions, then recovery.
    #[test]
    fn the_third_duplicate_ack_begins_recovery() {
        let mut cc = open(10 * EMSS);
        let mut dup = || cc.on_dup_ack(Seq(100), Seq(10_100), 10 * EMSS);
        assert_eq!([dup(), dup(), dup(), dup()], [false, false, true, false]);
        // ssthresh 5, three segments known to have left, one more since.
        assert_eq!((cc.phase(), cc.window()), (Phase::Fast, 9 * EMSS));
    }

    /// RFC 6582 s3.2 step 3: partial ACKs reveal further holes; the full one ends recovery.
    #[test]
    fn a_partial_ack_asks_for_the_next_hole_and_a_full_one_ends_recovery() {
        let mut cc = open(10 * EMSS);
        for _ in 0..3 {
            cc.on_dup_ack(Seq(100), Seq(10_100), 10 * EMSS);
        }
        assert!(cc.on_ack(Seq(4_100), 4 * EMSS, 10 * EMSS));
        assert_eq!((cc.phase(), cc.window()), (Phase::Fast, 5 * EMSS));
        assert!(!cc.on_ack(Seq(10_100), 6 * EMSS, 6 * EMSS));
        assert_eq!((cc.phase(), cc.window()), (Phase::Open, 2 * EMSS));
    }

    /// RFC 5681 s3.1 and RFC 6582 s4.
    #[test]
    fn a_timeout_falls_back_to_one_segment_and_ignores_duplicates_until_recovered() {
        let mut cc = open(10 * EMSS);
        cc.on_timeout(Seq(100), Seq(10_100), 10 * EMSS);
        assert_eq!((cc.phase(), cc.window()), (Phase::Loss, EMSS));
        assert!((0..5).all(|_| !cc.on_dup_ack(Seq(100), Seq(10_100), EMSS)));
        cc.on_ack(Seq(10_100), EMSS, EMSS);
        assert_eq!((cc.phase(), cc.window()), (Phase::Open, 2 * EMSS));
        assert_eq!(cc.ssthresh, 5 * EMSS);
    }
}
