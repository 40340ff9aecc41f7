//! One core's counters.

use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use ironwarp_arch::shared::{SharedArray, SharedWords};

use crate::Counter;
use crate::layout;

/// One core's counters. A clone counts into the same words; one thread counts at a time, or counts
/// are lost.
#[derive(Clone)]
pub struct CoreStats {
    words: SharedArray<{ layout::CORE_WORDS }>,
}

impl CoreStats {
    /// Returns counters in `words`, or `None` if there are too few.
    pub(crate) fn new(words: SharedWords) -> Option<Self> {
        SharedArray::new(words).map(|words| CoreStats { words })
    }

    /// Returns separate counters, all zero, that no other process can read.
    pub fn detached() -> Self {
        let words = SharedWords::on_heap(layout::CORE_WORDS);
        CoreStats::new(words).expect("as many words as were asked for")
    }

    /// Returns the address of the counters, for a test of shared cache lines.
    #[doc(hidden)]
    pub fn address(&self) -> usize {
        self.words.as_ptr().addr()
    }

    /// Adds one.
    #[inline(always)]
    pub fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds `n`. Wraps at 2^64.
    #[inline(always)]
    pub fn add(&self, counter: Counter, n: u64) {
        // A reader loads each word by itself, and no other memory depends on its value, so relaxed
        // order suffices.
        let word = &self.words[counter as usize];
        word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Returns the counter's value.
    #[inline]
    pub fn read(&self, counter: Counter) -> u64 {
        self.words[counter as usize].load(Relaxed)
    }
}

/// Shows the counters that are not zero.
impl fmt::Debug for CoreStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = Counter::ALL.iter().map(|counter| (counter.name(), self.read(*counter)));
        f.debug_map().entries(values.filter(|(_, value)| *value > 0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_count_together_and_each_counter_for_itself() {
        let stats = CoreStats::detached();
        let clone = stats.clone();
        stats.count(Counter::PortRxFrames);
        clone.add(Counter::PortRxFrames, 41);
        for counter in Counter::ALL {
            let expected = if *counter == Counter::PortRxFrames { 42 } else { 0 };
            assert_eq!(stats.read(*counter), expected, "{}", counter.name());
        }
        assert_eq!(format!("{stats:?}"), r#"{"port_rx_frames": 42}"#);
    }

    #[test]
    fn every_counter_has_its_word() {
        let stats = CoreStats::detached();
        for (value, counter) in (1..).zip(Counter::ALL) {
            stats.add(*counter, value);
        }
        for (value, counter) in (1..).zip(Counter::ALL) {
            assert_eq!(stats.read(*counter), value, "{}", counter.name());
        }
    }

    #[test]
    fn a_counter_wraps() {
        let stats = CoreStats::detached();
        stats.add(Counter::PortRxFrames, u64::MAX);
        stats.add(Counter::PortRxFrames, 3);
        assert_eq!(stats.read(Counter::PortRxFrames), 2);
    }
}
