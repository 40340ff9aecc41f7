//! A histogram of latencies that several cores fill and another thread reads.
//!
//! Four buckets for each power of two of nanoseconds, so a percentile is at most a quarter too
//! high. Recording costs one atomic addition.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of a power of two, as a power of two.
const SUB_BITS: u32 = 2;
/// Buckets, up to 2^40 ns, some 18 minutes.
const BUCKETS: usize = 40 << SUB_BITS;

/// A histogram of latencies in nanoseconds.
#[derive(Debug)]
pub struct LatencyHistogram {
    buckets: [AtomicU64; BUCKETS],
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        LatencyHistogram { buckets: [const { AtomicU64::new(0) }; BUCKETS] }
    }
}

impl LatencyHistogram {
    /// Counts a latency.
    #[inline]
    pub fn record(&self, latency_ns: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(latency_ns).min(BUCKETS - 1)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counts.
    pub fn snapshot(&self) -> LatencySnapshot {
        LatencySnapshot { counts: self.buckets.iter().map(|one| one.load(Ordering::Relaxed)).collect() }
    }
}

/// The counts of a histogram at a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LatencySnapshot {
    counts: Vec<u64>,
}

impl LatencySnapshot {
    /// Returns what was counted since `before`.
    #[must_use]
    pub fn since(&self, before: &LatencySnapshot) -> LatencySnapshot {
        let pairs = self.counts.iter().zip(&before.counts);
        LatencySnapshot { counts: pairs.map(|(now, then)| now.wrapping_sub(*then)).collect() }
    }

    /// Returns these and the others together.
    #[must_use]
    pub fn and(&self, others: &LatencySnapshot) -> LatencySnapshot {
        let pairs = self.counts.iter().zip(&others.counts);
        LatencySnapshot { counts: pairs.map(|(one, other)| one.wrapping_add(*other)).collect() }
    }

    /// Returns the largest latency in nanoseconds and the count of each bucket that is not empty,
    /// in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bucket, &count)| (upper_ns(bucket), count))
    }

    /// Returns the latency in nanoseconds that `percent` of the counted ones do not exceed; 0
    /// without any.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let total: u64 = self.counts.iter().sum();
        let wanted = (total as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        let reached = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        reached.map_or(0, upper_ns)
    }
}

fn bucket_of(latency_ns: u64) -> usize {
    let value = latency_ns.max(1);
    let exponent = value.ilog2();
    if exponent < SUB_BITS {
        return value as usize;
    }
    let sub = (value >> (exponent - SUB_BITS)) as usize & ((1 << SUB_BITS) - 1);
    ((exponent as usize) << SUB_BITS) | sub
}

/// Returns the largest value of a bucket.
fn upper_ns(bucket: usize) -> u64 {
    let (exponent, sub) = (bucket as u32 >> SUB_BITS, bucket as u64 & ((1 << SUB_BITS) - 1));
    if exponent < SUB_BITS {
        return bucket as u64;
    }
    (((1 << SUB_BITS) + sub + 1) << (exponent - SUB_BITS)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_at_most_a_quarter_too_high() {
        for value in [1, 3, 4, 5, 100, 999, 12_345, 1_000_000_007] {
            let histogram = LatencyHistogram::default();
            histogram.record(value);
            let found = histogram.snapshot().percentile_ns(50.0);
            assert!(found >= value && found <= value + value / 4, "{value}: {found}");
        }
    }

    #[test]
    fn every_bucket_ends_where_the_next_begins() {
        let ends: Vec<u64> =
            (1..BUCKETS).filter(|&bucket| bucket_of(upper_ns(bucket)) == bucket).map(upper_ns).collect();
        assert_eq!(ends.last(), Some(&((1 << 40) - 1)));
        assert!(ends.iter().all(|end| bucket_of(end + 1) > bucket_of(*end)));
        assert_eq!(ends.len(), BUCKETS - 5, "no latency is in bucket 0 or in 4 to 7");
    }

    #[test]
    fn percentiles_count_from_below_and_since_a_snapshot() {
        let histogram = LatencyHistogram::default();
        (0..99).for_each(|_| histogram.record(10));
        histogram.record(u64::MAX);
        let all = histogram.snapshot();
        assert_eq!((all.percentile_ns(50.0), all.percentile_ns(99.0)), (11, 11));
        assert!(all.percentile_ns(100.0) > 1 << 39);
        assert_eq!(all.buckets().map(|(_, count)| count).collect::<Vec<_>>(), [99, 1]);
        histogram.record(1000);
        assert_eq!(histogram.snapshot().since(&all).percentile_ns(0.1), 1023);
        assert_eq!(LatencyHistogram::default().snapshot().percentile_ns(50.0), 0);
        let twice = all.and(&all);
        assert_eq!(twice.buckets().map(|(_, count)| count).collect::<Vec<_>>(), [198, 2]);
    }
}
