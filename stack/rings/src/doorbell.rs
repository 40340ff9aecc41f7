//! Doorbells: which queues have new work, each named at most once.
//!
//! The producer publishes work into a queue's own ring, then rings the queue's bell. A bell that rings already is not
//! put into the doorbell ring again, so a loop costs what is active, and a ring with a place for every queue is never
//! full. The listener silences a bell before it looks at the queue: work published after that look rings again.
//!
//! No wake-up is lost, because ringing and silencing are both read-modify-writes of one word and so happen in some
//! order. If the producer came first and found the bell ringing, the listener's silencing reads a value that follows
//! the producer's, and with it everything published before: the look at the queue sees the work. If it came second,
//! it finds the bell silent and puts the queue into the ring. (A plain look at the bell would need a sequentially
//! consistent fence on either side instead, which costs more than the exchange.)
//!
//! A queue's number may be given to another queue, with another bell, while the first one's name is still in the
//! ring. Then the ring can be short of a place; the listener is told, and hears every queue's number once. Hearing a
//! number without work is harmless.
//! Cost: 5 ns to ring and 5 to silence, an exchange each; under a nanosecond to hear nothing.

use core::ops::Range;

use crossbeam_utils::CachePadded;

use crate::spsc;
use crate::sync::{Arc, AtomicBool, Ordering};

/// A doorbell for queues that are numbered from 0 to below `queues`.
pub fn channel(queues: usize) -> (Ringer, Listener) {
    let (producer, consumer) = spsc::channel(queues);
    let overrun = Arc::new(CachePadded::new(AtomicBool::new(false)));
    let queues = u32::try_from(queues).unwrap_or(u32::MAX);
    (
        Ringer { names: producer, overrun: overrun.clone() },
        Listener { names: consumer, overrun, queues, sweep: 0..0 },
    )
}

/// One queue's bell, shared by the two ends. On a cache line of its own: bells of other queues ring on other cores.
#[derive(Debug)]
#[repr(align(64))]
pub struct Bell {
    rings: AtomicBool,
}

impl Default for Bell {
    fn default() -> Self {
        Bell { rings: AtomicBool::new(false) }
    }
}

impl Bell {
    /// Silences the bell. The listener does it when it has heard the queue's number, before it looks at the queue.
    #[inline]
    pub fn silence(&self) {
        self.rings.swap(false, Ordering::AcqRel);
    }
}

/// The end that rings.
pub struct Ringer {
    names: spsc::Producer<u32>,
    overrun: Arc<CachePadded<AtomicBool>>,
}

impl Ringer {
    /// Rings the bell of queue `id`, after work was published there. Answers whether the bell was silent.
    #[inline]
    pub fn ring(&mut self, id: u32, bell: &Bell) -> bool {
        if bell.rings.swap(true, Ordering::AcqRel) {
            return false;
        }
        if self.names.push(id).is_err() {
            self.ring_for_all();
        }
        true
    }

    #[cold]
    fn ring_for_all(&self) {
        self.overrun.store(true, Ordering::Release);
    }

    /// Whether the listener is gone.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.names.is_abandoned()
    }
}

/// The end that hears.
pub struct Listener {
    names: spsc::Consumer<u32>,
    overrun: Arc<CachePadded<AtomicBool>>,
    queues: u32,
    /// Numbers still to be heard because the ring was short of a place.
    sweep: Range<u32>,
}

impl Listener {
    /// The number of the next queue that has work, or may have. Its bell is silenced before the queue is looked at.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a listener is polled and never exhausted")]
    pub fn next(&mut self) -> Option<u32> {
        if self.overrun.load(Ordering::Relaxed) {
            self.begin_sweep();
        }
        self.sweep.next().or_else(|| self.names.pop())
    }

    /// Begins with the lowest number, also when a sweep is under way: what was swept may have new work.
    #[cold]
    fn begin_sweep(&mut self) {
        self.overrun.swap(false, Ordering::AcqRel);
        self.sweep = 0..self.queues;
    }

    /// Whether the ringer is gone. What it rang can still be heard.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.names.is_abandoned()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_rings_is_not_put_in_again_until_it_is_silenced() {
        let (mut ringer, mut listener) = channel(2);
        let bells = [Bell::default(), Bell::default()];
        assert!(ringer.ring(1, &bells[1]) && ringer.ring(0, &bells[0]));
        assert!(!ringer.ring(1, &bells[1]) && !ringer.ring(0, &bells[0]));
        assert_eq!([listener.next(), listener.next(), listener.next()], [Some(1), Some(0), None]);
        assert!(!ringer.ring(1, &bells[1]), "heard, and not yet silenced");
        bells[1].silence();
        assert!(ringer.ring(1, &bells[1]));
        assert_eq!([listener.next(), listener.next()], [Some(1), None]);
    }

    #[test]
    fn a_ring_without_a_place_makes_every_number_heard_once() {
        let (mut ringer, mut listener) = channel(2);
        // One number after another belongs to three queues, whose names are all in the ring.
        let bells: [Bell; 3] = core::array::from_fn(|_| Bell::default());
        for bell in &bells {
            assert!(ringer.ring(0, bell));
        }
        let heard: Vec<u32> = core::iter::from_fn(|| listener.next()).collect();
        assert_eq!(heard, [0, 1, 0, 0]);
        bells[2].silence();
        assert!(ringer.ring(0, &bells[2]));
        assert_eq!([listener.next(), listener.next()], [Some(0), None]);
    }

    #[test]
    fn each_end_can_tell_that_the_other_is_gone() {
        let (mut ringer, mut listener) = channel(1);
        ringer.ring(0, &Bell::default());
        drop(ringer);
        assert!(listener.is_abandoned());
        assert_eq!([listener.next(), listener.next()], [Some(0), None]);
        let (ringer, listener) = channel(1);
        drop(listener);
        assert!(ringer.is_abandoned());
    }
}
