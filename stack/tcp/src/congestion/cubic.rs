//! CUBIC: the window is a cubic function of the time since the last reduction.
//!
//! ```text
//!   W(t) = C (t - K)^3 + W_max      K = cbrt((W_max - cwnd) / C)      C = 0.4 segments/s^3
//! ```
//!
//! The curve is steep far below the window at which congestion occurred, flat near it, and steep
//! beyond it. On short round trips the curve is slower than Reno. There the window follows an
//! estimate of Reno's window (`w_est`), which is always the case inside a data centre.
//!
//! Units: time in ticks of 2^20 ns, so that no division is needed; windows in bytes; cubes in 128
//! bits. The curve is evaluated eight times per round trip and converted to the number of
//! acknowledged bytes per segment of growth. An ACK therefore costs two additions. Source:
//! draft-ietf-tcpm-rfc8312bis s4.

use ironwarp_types::Nanos;
use serde::{Deserialize, Serialize};

use super::{Acked, CWND_MAX};
use crate::saved::Rebase;

/// A tick is 2^20 ns, 1.048576 ms.
const TICK_SHIFT: u32 = 20;

/// The longest time on the curve, in ticks: almost five hours.
const TICKS_MAX: u64 = 1 << 24;

/// C, in segments a tick cubed, times 2^64: 0.4 * (1.048576e-3)^3 * 2^64.
const C_SCALED: u128 = 8_507_059_173;

/// 1 / C in ticks cubed a segment.
const C_INVERSE: u64 = 2_168_404_345;

/// No epoch has begun.
const NEVER: Nanos = Nanos::MAX;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[repr(C)]
pub(super) struct Cubic {
    /// The time up to which the window was in use or the epoch was moved. The only field that an
    /// ACK of a window that is not full writes.
    in_use_until: Nanos,
    /// W_max: the window at which the curve is flat, in bytes.
    w_max: u32,
    /// W_max before the last reduction.
    w_max_before: u32,
    /// The window before the last reduction (cwnd_prior of s4.3).
    cwnd_prior: u32,
    /// When the current curve began.
    epoch: Nanos,
    /// K: when the curve reaches W_max, in ticks after the epoch.
    k: u64,
    /// The estimate of Reno's window.
    w_est: u32,
    /// Bytes acknowledged since `w_est` last grew.
    w_est_acked: u32,
    /// Acknowledged bytes per segment of growth on the curve, and the bytes acknowledged since the
    /// last growth.
    acked_per_segment: u32,
    acked: u32,
    /// When to evaluate the curve next.
    next_update_at: Nanos,
}

impl Cubic {
    pub(super) fn new() -> Self {
        Cubic {
            w_max: 0,
            w_max_before: 0,
            cwnd_prior: 0,
            epoch: NEVER,
            k: 0,
            w_est: 0,
            w_est_acked: 0,
            acked_per_segment: u32::MAX,
            acked: 0,
            next_update_at: Nanos::ZERO,
            in_use_until: Nanos::ZERO,
        }
    }

    pub(super) fn rebase(&mut self, clock: Rebase) {
        for at in [&mut self.epoch, &mut self.next_update_at, &mut self.in_use_until] {
            clock.time(at);
        }
    }

    /// The curve of a valid state fits 128 bits.
    pub(super) fn is_valid(&self) -> bool {
        self.acked_per_segment > 0 && self.k <= TICKS_MAX && self.w_max <= CWND_MAX
    }

    /// Congestion avoidance: `bytes` of a fully used window were acknowledged. Returns the new
    /// window.
    #[inline]
    pub(super) fn on_ack(&mut self, cwnd: u32, emss: u32, bytes: u32, acked: &Acked) -> u32 {
        if acked.now >= self.next_update_at || self.epoch == NEVER {
            self.update_target(cwnd, emss, acked);
        }
        self.in_use_until = acked.now;
        self.grow_reno_estimate(cwnd, emss, bytes);
        let mut grown = cwnd;
        self.acked = self.acked.saturating_add(bytes);
        if self.acked >= self.acked_per_segment {
            let segments = self.acked / self.acked_per_segment;
            self.acked -= segments * self.acked_per_segment;
            grown = grown.saturating_add(segments.saturating_mul(emss));
        }
        // s4.3: the window is never below Reno's estimate.
        grown.max(self.w_est)
    }

    /// s4.3, figure 4: alpha is 3 (1 - beta) / (1 + beta) = 9/17 of a segment per window, and one
    /// segment once the window reaches its size before the reduction.
    #[inline]
    fn grow_reno_estimate(&mut self, cwnd: u32, emss: u32, bytes: u32) {
        self.w_est_acked = self.w_est_acked.saturating_add(bytes);
        let window = if self.w_est < self.cwnd_prior { cwnd + (cwnd >> 3) * 7 } else { cwnd };
        if self.w_est_acked >= window {
            self.w_est_acked = (self.w_est_acked - window).min(window);
            self.w_est = self.w_est.saturating_add(emss);
        }
    }

    /// Evaluates the curve one round trip ahead (s4.2) and sets the growth rate towards it.
    fn update_target(&mut self, cwnd: u32, emss: u32, acked: &Acked) {
        if self.epoch == NEVER {
            self.begin(cwnd, emss, acked.now);
        }
        self.next_update_at = acked.now + Nanos(acked.srtt.0 >> 3);
        let ahead = acked.now.since(self.epoch) + acked.srtt;
        // s4.2: the target is not below the window and at most 1.5 times the window.
        let target = self.curve(ahead, emss).clamp(cwnd, cwnd + (cwnd >> 1));
        self.acked_per_segment = match u64::from(cwnd) * u64::from(emss) / u64::from((target - cwnd).max(1)) {
            large if large > u64::from(u32::MAX) => u32::MAX,
            small => (small as u32).max(1),
        };
        self.acked = self.acked.min(self.acked_per_segment);
    }

    fn begin(&mut self, cwnd: u32, emss: u32, now: Nanos) {
        (self.epoch, self.in_use_until, self.w_est, self.w_est_acked) = (now, now, cwnd, 0);
        if cwnd < self.w_max {
            let segments_scaled =
                u64::from(self.w_max - cwnd).saturating_mul(C_INVERSE) / u64::from(emss.max(1));
            self.k = u64::from(cube_root(segments_scaled));
        } else {
            (self.k, self.w_max) = (0, cwnd);
        }
    }

    /// W(t), in bytes.
    fn curve(&self, t: Nanos, emss: u32) -> u32 {
        let ticks = (t.0 >> TICK_SHIFT).min(TICKS_MAX);
        let distance = u128::from(ticks.abs_diff(self.k));
        let cubed = distance * distance * distance * u128::from(emss) * C_SCALED;
        let change = u32::try_from(cubed >> 64).unwrap_or(u32::MAX >> 1);
        if ticks < self.k { self.w_max.saturating_sub(change) } else { self.w_max.saturating_add(change) }
    }

    /// s4.6 and s4.7: sets W_max of the next curve and returns the new ssthresh.
    pub(super) fn on_congestion(&mut self, cwnd: u32, flight: u32) -> u32 {
        self.w_max_before = self.w_max;
        // s4.7, fast convergence: a flow whose share shrinks releases bandwidth to other flows.
        self.w_max = if cwnd < self.w_max { share(cwnd, 17, 20) } else { cwnd };
        self.cwnd_prior = cwnd;
        self.epoch = NEVER;
        // s4.6: beta is 0.7.
        share(flight, 7, 10)
    }

    pub(super) fn undo(&mut self) {
        self.w_max = self.w_max.max(self.w_max_before);
        self.epoch = NEVER;
    }

    /// s5.8: time in which the window is not used does not advance the curve.
    pub(super) fn on_app_limited(&mut self, now: Nanos) {
        if self.epoch != NEVER {
            self.epoch += now.since(self.in_use_until);
        }
        self.in_use_until = now;
    }
}

fn share(of: u32, parts: u64, whole: u64) -> u32 {
    (u64::from(of) * parts / whole) as u32
}

/// Returns the largest number whose cube is not above `x`.
fn cube_root(x: u64) -> u32 {
    let (mut rest, mut root) = (x, 0u64);
    for shift in (0..=63).rev().step_by(3) {
        root <<= 1;
        let step = 3 * root * (root + 1) + 1;
        if rest >> shift >= step {
            rest -= step << shift;
            root += 1;
        }
    }
    root as u32
}

#[cfg(test)]
mod tests {
    use ironwarp_types::Seq;
    use proptest::prelude::*;

    use super::*;

    const EMSS: u32 = 1_000;

    fn acked(now: Nanos, srtt: Nanos) -> Acked {
        Acked { now, bytes: EMSS, una_before: Seq(0), snd_nxt: Seq(0), srtt, echo: false }
    }

    /// The window after `span` of full use, reduced from `from` at time 0.
    fn after(from: u32, srtt: Nanos, span: Nanos) -> u32 {
        let mut cubic = Cubic::new();
        let mut cwnd = cubic.on_congestion(from, from);
        let mut now = Nanos::ZERO;
        while now < span {
            let segments = cwnd / EMSS;
            for n in 0..segments {
                let at = now + Nanos(srtt.0 / u64::from(segments) * u64::from(n));
                cwnd = cubic.on_ack(cwnd, EMSS, EMSS, &acked(at, srtt));
            }
            now += srtt;
        }
        cwnd
    }

    /// Section 4.2 on a long path: the window needs K = cbrt(1000 * 0.3 / 0.4) = 9.09 s to return
    /// to 1000 segments. RFC 9293 (MAY-18).
    #[test]
    fn on_a_long_path_the_window_returns_to_w_max_after_k_and_grows_beyond() {
        let srtt = Nanos::from_millis(100);
        let from = 1_000 * EMSS;
        // At half of K the distance to W_max is an eighth of the reduction: 0.3 * 1000 / 8 = 37.
        let half = after(from, srtt, Nanos::from_micros(4_545_000));
        assert!((940..=970).contains(&(half / EMSS)), "{half}");
        let whole = after(from, srtt, Nanos::from_micros(9_086_000));
        assert!((985..=1_005).contains(&(whole / EMSS)), "{whole}");
        // Five seconds after K: 0.4 * 5^3 = 50 segments more.
        let beyond = after(from, srtt, Nanos::from_micros(14_086_000));
        assert!((1_030..=1_065).contains(&(beyond / EMSS)), "{beyond}");
    }

    /// Section 4.3 on a short path: 9/17 of a segment per round trip until the old window is
    /// reached, then one.
    #[test]
    fn on_a_short_path_the_window_follows_the_reno_estimate() {
        let grown = after(100 * EMSS, Nanos::from_micros(50), Nanos::from_micros(50 * 17));
        assert!((78..=80).contains(&(grown / EMSS)), "{grown}");
        let later = after(100 * EMSS, Nanos::from_micros(50), Nanos::from_micros(50 * 77));
        assert!((112..=124).contains(&(later / EMSS)), "{later}");
    }

    /// Section 4.7.
    #[test]
    fn a_second_reduction_below_w_max_lowers_w_max_further() {
        let mut cubic = Cubic::new();
        assert_eq!(cubic.on_congestion(100 * EMSS, 100 * EMSS), 70 * EMSS);
        assert_eq!(cubic.w_max, 100 * EMSS);
        assert_eq!(cubic.on_congestion(80 * EMSS, 80 * EMSS), 56 * EMSS);
        assert_eq!(cubic.w_max, 68 * EMSS);
    }

    #[test]
    fn idle_time_does_not_advance_the_curve() {
        let mut cubic = Cubic::new();
        let srtt = Nanos::from_millis(100);
        let cwnd = cubic.on_congestion(1_000 * EMSS, 1_000 * EMSS);
        cubic.on_ack(cwnd, EMSS, EMSS, &acked(Nanos::from_secs(1), srtt));
        cubic.on_app_limited(Nanos::from_secs(101));
        assert_eq!(cubic.epoch, Nanos::from_secs(101));
    }

    #[test]
    fn constants_agree() {
        let tick = (1u64 << TICK_SHIFT) as f64 * 1e-9;
        let c = 0.4 * tick * tick * tick;
        assert!((c * 2f64.powi(64) / C_SCALED as f64 - 1.0).abs() < 1e-6);
        assert!((1.0 / c / C_INVERSE as f64 - 1.0).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn cube_root_returns_the_largest_integer_that_fits(x: u64) {
            let root = u128::from(cube_root(x));
            prop_assert!(root.pow(3) <= u128::from(x) && (root + 1).pow(3) > u128::from(x));
        }

        /// For any input the window never shrinks, and one ACK of a whole window grows it by at
        /// most half a window and one segment.
        #[test]
        fn growth_per_ack_is_bounded(
            from in 1_000u32..1 << 30, cut in 1_000u32..1 << 30, emss in 144u32..9_000,
            srtt in 1u64..10_000_000_000, steps in prop::collection::vec((0u64..100_000_000_000, 0u32..1 << 20), 1..50),
        ) {
            let mut cubic = Cubic::new();
            let mut cwnd = cubic.on_congestion(from, cut).max(2 * emss);
            let mut now = Nanos::ZERO;
            for (gap, bytes) in steps {
                now += Nanos(gap);
                let bytes = bytes.min(cwnd);
                let grown = cubic.on_ack(cwnd, emss, bytes, &acked(now, Nanos(srtt)));
                prop_assert!(grown >= cwnd && grown - cwnd <= cwnd / 2 + 2 * emss, "{cwnd} to {grown}");
                cwnd = grown.min(1 << 30);
            }
        }
    }
}
