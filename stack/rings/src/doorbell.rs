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
pub fn channel(queues: usize) -> (DoorbellSender, DoorbellReceiver) {
    let (producer, consumer) = spsc::channel(queues);
    let overflowed = Arc::new(CachePadded::new(AtomicBool::new(false)));
    let queues = u32::try_from(queues).unwrap_or(u32::MAX);
    (
        DoorbellSender { queue_ids: producer, overflowed: overflowed.clone() },
        DoorbellReceiver { queue_ids: consumer, overflowed, queues, rescan: 0..0 },
    )
}

/// One queue's bell, shared by the two ends. On a cache line of its own: bells of other queues ring on other cores.
#[derive(Debug)]
#[repr(align(64))]
pub struct DoorbellFlag {
    pending: AtomicBool,
}

impl Default for DoorbellFlag {
    fn default() -> Self {
        DoorbellFlag { pending: AtomicBool::new(false) }
    }
}

impl DoorbellFlag {
    /// Silences the bell. The listener does it when it has heard the queue's number, before it looks at the queue.
    #[inline]
    pub fn clear(&self) {
        self.pending.swap(false, Ordering::AcqRel);
    }
}

/// The end that rings.
pub struct DoorbellSender {
    queue_ids: spsc::Producer<u32>,
    overflowed: Arc<CachePadded<AtomicBool>>,
}

impl DoorbellSender {
    /// Rings the bell of queue `id`, after work was published there. Answers whether the bell was silent.
    #[inline]
    pub fn ring(&mut self, id: u32, bell: &DoorbellFlag) -> bool {
        if bell.pending.swap(true, Ordering::AcqRel) {
            return false;
        }
        if self.queue_ids.push(id).is_err() {
            self.set_overflowed();
        }
        true
    }

    #[cold]
    fn set_overflowed(&self) {
        self.overflowed.store(true, Ordering::Release);
    }

    /// Whether the listener is gone.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.queue_ids.is_abandoned()
    }
}

/// The end that hears.
pub struct DoorbellReceiver {
    queue_ids: spsc::Consumer<u32>,
    overflowed: Arc<CachePadded<AtomicBool>>,
    queues: u32,
    /// Numbers still to be heard because the ring was short of a place.
    rescan: Range<u32>,
}

impl DoorbellReceiver {
    /// The number of the next queue that has work, or may have. Its bell is silenced before the queue is looked at.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a listener is polled and never exhausted")]
    pub fn next(&mut self) -> Option<u32> {
        if self.overflowed.load(Ordering::Relaxed) {
            self.start_rescan();
        }
        self.rescan.next().or_else(|| self.queue_ids.pop())
    }

    /// Begins with the lowest number, also when a sweep is under way: what was swept may have new work.
    #[cold]
    fn start_rescan(&mut self) {
        self.overflowed.swap(false, Ordering::AcqRel);
        self.rescan = 0..self.queues;
    }

    /// Whether the ringer is gone. What it rang can still be heard.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.queue_ids.is_abandoned()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_rings_is_not_put_in_again_until_it_is_silenced() {
        let (mut sender, mut receiver) = channel(2);
        let bells = [DoorbellFlag::default(), DoorbellFlag::default()];
        assert!(sender.ring(1, &bells[1]) && sender.ring(0, &bells[0]));
        assert!(!sender.ring(1, &bells[1]) && !sender.ring(0, &bells[0]));
        assert_eq!([receiver.next(), receiver.next(), receiver.next()], [Some(1), Some(0), None]);
        assert!(!sender.ring(1, &bells[1]), "heard, and not yet silenced");
        bells[1].clear();
        assert!(sender.ring(1, &bells[1]));
        assert_eq!([receiver.next(), receiver.next()], [Some(1), None]);
    }

    #[test]
    fn a_ring_without_a_place_makes_every_number_heard_once() {
        let (mut sender, mut receiver) = channel(2);
        // One number after another belongs to three queues, whose names are all in the ring.
        let bells: [DoorbellFlag; 3] = core::array::from_fn(|_| DoorbellFlag::default());
        for bell in &bells {
            assert!(sender.ring(0, bell));
        }
        let heard: Vec<u32> = core::iter::from_fn(|| receiver.next()).collect();
        assert_eq!(heard, [0, 1, 0, 0]);
        bells[2].clear();
        assert!(sender.ring(0, &bells[2]));
        assert_eq!([receiver.next(), receiver.next()], [Some(0), None]);
    }

    #[test]
    fn each_end_can_tell_that_the_other_is_gone() {
        let (mut sender, mut receiver) = channel(1);
        sender.ring(0, &DoorbellFlag::default());
        drop(sender);
        assert!(receiver.is_abandoned());
        assert_eq!([receiver.next(), receiver.next()], [Some(0), None]);
        let (sender, receiver) = channel(1);
        drop(receiver);
        assert!(sender.is_abandoned());
    }
}
