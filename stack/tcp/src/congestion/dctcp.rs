//! DCTCP: reduces the window in proportion to the share of marked bytes.
//!
//! The share of marked bytes is measured per window and smoothed into `alpha`. A mark reduces the
//! window by `alpha / 2`, a loss by half. Growth is Reno's. Needs ECN at both ends and switches
//! that mark early. Source: RFC 8257 s3.3, s3.4. Cost: one addition per ACK, one division per round
//! trip.

use ironwarp_types::Seq;
use serde::{Deserialize, Serialize};

use super::{Acked, CongestionSignal, Reno};

/// The fixed-point value of alpha = 1.
const WHOLE: u32 = 1 << 10;

/// The gain g of RFC 8257 s4.2 is 1/16.
const GAIN_SHIFT: u32 = 4;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Dctcp {
    /// The smoothed share of marked bytes, in parts of [`WHOLE`].
    alpha: u32,
    acked: u32,
    marked: u32,
    /// The sequence number at which the observation window ends.
    window_end: Seq,
    pub(super) reno: Reno,
}

impl Dctcp {
    /// RFC 8257 s4.2: alpha starts at 1, so that the first mark halves the window as without DCTCP.
    pub(super) fn new(iss: Seq) -> Self {
        Dctcp { alpha: WHOLE, acked: 0, marked: 0, window_end: iss, reno: Reno::default() }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.alpha <= WHOLE
    }

    #[inline]
    pub(super) fn on_ack(&mut self, acked: &Acked) {
        self.acked = self.acked.saturating_add(acked.bytes);
        if acked.echo {
            self.marked = self.marked.saturating_add(acked.bytes);
        }
        if self.window_end.leq(acked.una_before.plus(acked.bytes)) {
            self.end_window(acked.snd_nxt);
        }
    }

    /// RFC 8257 s3.3: alpha moves by a sixteenth towards the share of this window.
    fn end_window(&mut self, snd_nxt: Seq) {
        let share = (u64::from(self.marked) << 10) / u64::from(self.acked.max(1));
        self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (share as u32 >> GAIN_SHIFT);
        // The remainder is smaller than the shift can remove; round it to zero.
        if share == 0 && self.alpha < 1 << GAIN_SHIFT {
            self.alpha = 0;
        }
        (self.acked, self.marked, self.window_end) = (0, 0, snd_nxt);
    }

    /// RFC 8257 s3.3 for marks, s3.4 for loss. Returns the new ssthresh.
    pub(super) fn on_congestion(&mut self, signal: CongestionSignal, cwnd: u32, flight: u32) -> u32 {
        match signal {
            CongestionSignal::Loss => flight >> 1,
            CongestionSignal::Ecn => {
                cwnd - ((u64::from(cwnd) * u64::from(self.alpha.min(WHOLE))) >> 11) as u32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ironwarp_types::Nanos;

    use super::*;

    fn windows(dctcp: &mut Dctcp, count: u32, marked_in_ten: u32) {
        let mut at = dctcp.window_end;
        for _ in 0..count {
            for n in 0..10 {
                let echo = n < marked_in_ten;
                let snd_nxt = at.plus(10_000);
                let acked =
                    Acked { now: Nanos::ZERO, bytes: 1_000, una_before: at, snd_nxt, srtt: Nanos(1), echo };
                dctcp.on_ack(&acked);
                at = at.plus(1_000);
            }
        }
    }

    /// RFC 8257 s3.3.
    #[test]
    fn alpha_follows_the_share_of_marked_bytes() {
        let mut dctcp = Dctcp::new(Seq(0));
        windows(&mut dctcp, 200, 0);
        assert_eq!(dctcp.alpha, 0);
        windows(&mut dctcp, 200, 5);
        assert!((WHOLE * 4 / 10..=WHOLE * 6 / 10).contains(&dctcp.alpha), "{}", dctcp.alpha);
    }

    #[test]
    fn rare_marks_reduce_the_window_slightly_and_loss_halves_it() {
        let mut dctcp = Dctcp::new(Seq(0));
        assert_eq!(dctcp.on_congestion(CongestionSignal::Ecn, 100_000, 100_000), 50_000);
        windows(&mut dctcp, 300, 1);
        let after = dctcp.on_congestion(CongestionSignal::Ecn, 100_000, 100_000);
        assert!((92_000..98_000).contains(&after), "{after}");
        assert_eq!(dctcp.on_congestion(CongestionSignal::Loss, 100_000, 100_000), 50_000);
    }
}
