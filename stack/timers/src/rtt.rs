//! Round-trip time and retransmission timeout.
//!
//! Source: RFC 6298. One segment is timed at a time, never a retransmitted one (Karn's algorithm,
//! s3). The timeout doubles on each expiry (s5.5) and returns to its base value when new data is
//! acknowledged, since the path works again and its earlier samples remain valid. Values are
//! nanoseconds; the arithmetic uses shifts. SRTT moves by an eighth, RTTVAR by a quarter.

use ironwarp_types::{Nanos, Seq};
use serde::{Deserialize, Serialize};

use crate::GRANULARITY;

/// Doublings after which any maximum timeout is reached.
const BACKOFF_MAX: u8 = 40;

/// The round-trip estimator of one path.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[repr(C)]
pub struct Rtt {
    srtt: Nanos,
    rttvar: Nanos,
    rto: Nanos,
    /// When the timed segment was sent; meaningful while `timed`.
    timed_at: Nanos,
    /// The end of the timed segment.
    timed_seq: Seq,
    timed: bool,
    measured: bool,
    backoff: u8,
    rto_max: Nanos,
    /// The number of samples, modulo 2^32.
    samples: u32,
}

impl Rtt {
    /// Creates an estimator without a sample. Its timeout is `rto_initial`, and `rto_max` at most.
    pub fn new(rto_initial: Nanos, rto_max: Nanos) -> Self {
        Rtt {
            srtt: Nanos::ZERO,
            rttvar: Nanos::ZERO,
            rto: rto_initial,
            rto_max,
            timed_at: Nanos::ZERO,
            timed_seq: Seq(0),
            timed: false,
            measured: false,
            backoff: 0,
            samples: 0,
        }
    }

    /// Converts its times, which are of the clock of a core.
    pub fn rebase(&mut self, convert: impl FnOnce(&mut Nanos)) {
        convert(&mut self.timed_at);
    }

    /// Checks the invariants, of a state from outside.
    pub fn is_valid(&self) -> bool {
        self.rto > Nanos::ZERO && self.backoff <= BACKOFF_MAX
    }

    /// Returns the smoothed round-trip time; zero before the first sample.
    #[inline]
    pub fn srtt(&self) -> Nanos {
        self.srtt
    }

    /// Returns whether there is a sample.
    #[inline]
    pub fn is_measured(&self) -> bool {
        self.measured
    }

    /// Returns the number of samples, modulo 2^32. A change means that there was a sample since.
    #[inline]
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// Returns the number of consecutive timeouts.
    pub fn backoff(&self) -> u8 {
        self.backoff
    }

    /// Returns the current timeout, including backoff.
    #[inline]
    pub fn rto(&self) -> Nanos {
        if self.backoff == 0 { self.rto } else { self.backed_off() }
    }

    #[cold]
    #[inline(never)]
    fn backed_off(&self) -> Nanos {
        self.rto.times(1u64.checked_shl(u32::from(self.backoff)).unwrap_or(u64::MAX)).min(self.rto_max)
    }

    /// A segment that ends at `seq_end` is sent for the first time.
    #[inline]
    pub fn on_sent(&mut self, now: Nanos, seq_end: Seq) {
        if !self.timed {
            (self.timed, self.timed_at, self.timed_seq) = (true, now, seq_end);
        }
    }

    /// A segment was retransmitted, so the next acknowledgement is ambiguous.
    pub fn on_retransmit(&mut self) {
        self.timed = false;
    }

    /// RFC 6298 s5.5: the timer ran out.
    pub fn on_timeout(&mut self) {
        self.timed = false;
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// RFC 6298 s5.7: the handshake is complete and a SYN was lost, so there is no sample. The
    /// timeout of the first data is at least `least`.
    #[cold]
    pub fn on_syn_lost(&mut self, least: Nanos) {
        let least = least.min(self.rto_max);
        if !self.measured && self.rto() < least {
            (self.rto, self.backoff) = (least, 0);
        }
    }

    /// The peer acknowledged new data or answered a probe: ends the backoff.
    #[inline]
    pub fn reset_backoff(&mut self) {
        self.backoff = 0;
    }

    /// All numbers before `ack` are acknowledged.
    #[inline]
    pub fn on_ack(&mut self, now: Nanos, ack: Seq, rto_min: Nanos) {
        if self.timed && self.timed_seq.leq(ack) {
            self.timed = false;
            self.sample(now.since(self.timed_at), rto_min);
        }
    }

    /// Takes a measured round trip: RFC 6298 s2.2 and s2.3.
    #[inline]
    pub fn sample(&mut self, rtt: Nanos, rto_min: Nanos) {
        if self.measured {
            let error = Nanos(self.srtt.0.abs_diff(rtt.0));
            self.rttvar = mean(self.rttvar, error, 2);
            self.srtt = mean(self.srtt, rtt, 3);
        } else {
            (self.srtt, self.rttvar, self.measured) = (rtt, Nanos(rtt.0 >> 1), true);
        }
        let rto = self.srtt + GRANULARITY.max(self.rttvar.times(4));
        self.rto = rto.max(rto_min).min(self.rto_max);
        self.backoff = 0;
        self.samples = self.samples.wrapping_add(1);
    }
}

/// Returns the mean in which `sample` has a weight of one in 2^`shift`. The parts of both never
/// exceed 64 bits together.
#[inline(always)]
fn mean(old: Nanos, sample: Nanos, shift: u32) -> Nanos {
    Nanos(old.0.wrapping_sub(old.0 >> shift).wrapping_add(sample.0 >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTO_MIN: Nanos = Nanos::from_micros(100);

    fn measured(samples_us: &[u64]) -> Rtt {
        let mut rtt = Rtt::new(Nanos::from_millis(200), Nanos::from_secs(60));
        for &us in samples_us {
            rtt.on_sent(Nanos::ZERO, Seq(1));
            rtt.on_ack(Nanos::from_micros(us), Seq(1), RTO_MIN);
        }
        rtt
    }

    /// RFC 6298 s2.2: SRTT is the first sample, RTTVAR half of it.
    /// RFC 6298 s2.
    #[test]
    fn after_the_first_sample_the_timeout_is_three_times_the_sample() {
        assert_eq!(measured(&[1_000]).rto(), Nanos::from_micros(3_000));
    }

    /// RFC 6298 s2.3.
    /// RFC 6298 s2.
    #[test]
    fn later_samples_move_the_estimate_by_an_eighth_and_a_quarter() {
        // srtt = 1000 + 800/8 = 1100; rttvar = 500 - 125 + 800/4 = 575.
        assert_eq!(measured(&[1_000, 1_800]).rto(), Nanos::from_micros(1_100 + 4 * 575));
    }

    /// RFC 6298 s4.
    #[test]
    fn the_mean_of_the_longest_spans_is_the_longest_span() {
        assert_eq!(
            (mean(Nanos::MAX, Nanos::MAX, 2), mean(Nanos::MAX, Nanos::MAX, 3)),
            (Nanos::MAX, Nanos::MAX)
        );
        assert_eq!(mean(Nanos(1_000), Nanos(1_800), 3), Nanos(1_100));
    }

    #[test]
    fn on_a_steady_path_the_timeout_falls_to_the_minimum() {
        assert_eq!(measured(&[10; 100]).rto(), Nanos::from_micros(100));
    }

    /// RFC 6298 s5.5 and s2.5.
    /// RFC 6298 s2.
    #[test]
    fn every_expiry_doubles_the_timeout_up_to_the_maximum() {
        let mut rtt = measured(&[1_000]);
        rtt.on_timeout();
        assert_eq!(rtt.rto(), Nanos::from_micros(6_000));
        for _ in 0..200 {
            rtt.on_timeout();
        }
        assert_eq!(rtt.rto(), Nanos::from_secs(60));
    }

    /// RFC 6298 s3, Karn's rule.
    #[test]
    fn a_retransmitted_segment_gives_no_sample() {
        let mut rtt = measured(&[1_000]);
        rtt.on_sent(Nanos::ZERO, Seq(9));
        rtt.on_timeout();
        rtt.on_ack(Nanos::from_secs(9), Seq(9), Nanos(1));
        assert_eq!(rtt.rto(), Nanos::from_micros(6_000));
        rtt.on_sent(Nanos::ZERO, Seq(10));
        rtt.on_ack(Nanos::from_micros(1_000), Seq(10), Nanos(1));
        assert!(rtt.rto() < Nanos::from_micros(3_000));
    }
}
