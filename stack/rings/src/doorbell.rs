//! Doorbells: the queues that have new work, each listed at most once.
//!
//! The producer publishes work in the queue's own ring, then sets the queue's flag. A flag that is
//! set already is not put into the doorbell ring again. A loop therefore costs O(active), and a
//! ring with a slot for every queue does not fill, with one exception below. The receiver clears a
//! flag before it reads the queue: work published after that read sets the flag again.
//!
//! No wake-up is lost, because setting and clearing are both read-modify-writes of one word, which
//! have a total order. If the producer is first and finds the flag set, the receiver's clear reads
//! a value that follows the producer's, and sees all work published before. If the producer is
//! second, it finds the flag clear and puts the queue into the ring. (A plain load of the flag
//! would need a sequentially consistent fence on each side, which costs more than the exchange.)
//!
//! A queue's number may be given to another queue, with another flag, while the first one's entry
//! is still in the ring. Then the ring can overflow; the receiver sees a mark and visits every
//! queue once. Visiting a queue without work is harmless.
//!
//! One thread has the sender. Others ring through a [`SharedDoorbell`], which has a bit for each
//! queue instead of an entry in the ring. Cost: 5 ns to set and 5 ns to clear, an exchange each;
//! under a nanosecond to find no entry.

mod shared;

use crate::block::BlockMemory;
use crate::spsc;
use crate::sync::{AtomicU8, Ordering};
use shared::{Listed, SharedState};

pub use shared::SharedDoorbell;

/// Creates a doorbell for queues 0 to `queues - 1`.
pub fn channel(queues: usize) -> (DoorbellSender, DoorbellReceiver) {
    let (producer, consumer) = spsc::channel(queues);
    let queues = u32::try_from(queues).unwrap_or(u32::MAX);
    let state = SharedState::new(queues);
    (
        DoorbellSender { queue_ids: producer, state: state.clone() },
        DoorbellReceiver { queue_ids: consumer, state, queues, listed: Listed::default(), has_listed: false },
    )
}

/// Returns the bytes of memory that a doorbell for `queues` queues needs, at a multiple of 128
/// bytes.
pub fn memory_bytes(queues: usize) -> usize {
    spsc::memory_bytes::<u32>(queues).saturating_add(SharedState::memory_bytes(queues))
}

/// Splits the memory of a doorbell: the ring, then the bits.
fn attach<R>(
    memory: BlockMemory,
    queues: usize,
    ring: impl FnOnce(BlockMemory, usize) -> Option<R>,
) -> Option<(R, SharedState)> {
    let (of_ring, of_bits) = memory.split_at(spsc::memory_bytes::<u32>(queues))?;
    Some((ring(of_ring, queues)?, SharedState::attach(of_bits, queues)?))
}

/// One queue's flag, shared by the two ends. The user pads it to a cache line, because other cores
/// set the flags of other queues.
#[derive(Debug)]
#[repr(C)]
pub struct DoorbellFlag {
    /// Not 0: the queue is listed.
    pending: AtomicU8,
}

impl Default for DoorbellFlag {
    fn default() -> Self {
        DoorbellFlag { pending: AtomicU8::new(0) }
    }
}

impl DoorbellFlag {
    /// Clears the flag. The receiver does this after it takes the queue's number and before it
    /// reads the queue.
    #[inline]
    pub fn clear(&self) {
        self.pending.swap(0, Ordering::AcqRel);
    }

    /// Sets the flag. Returns whether it was set.
    #[inline(always)]
    fn set(&self) -> bool {
        self.pending.swap(1, Ordering::AcqRel) != 0
    }
}

/// The producer's end.
pub struct DoorbellSender {
    queue_ids: spsc::Producer<u32>,
    state: SharedState,
}

impl DoorbellSender {
    /// Returns the sender of a doorbell in the caller's memory; `None` if [`memory_bytes`] are not
    /// there.
    pub fn attach(memory: BlockMemory, queues: usize) -> Option<Self> {
        let (queue_ids, state) = attach(memory, queues, spsc::Producer::attach)?;
        Some(DoorbellSender { queue_ids, state })
    }

    /// Sets the flag of queue `id`, after work was published there. Returns whether the flag was
    /// clear.
    #[inline]
    pub fn ring(&mut self, id: u32, bell: &DoorbellFlag) -> bool {
        if bell.set() {
            return false;
        }
        if self.queue_ids.push(id).is_err() {
            self.set_overflowed();
        }
        true
    }

    #[cold]
    fn set_overflowed(&self) {
        self.state.set_overflowed();
    }

    /// Returns a doorbell for other threads, to the same receiver.
    pub fn shared(&self) -> SharedDoorbell {
        SharedDoorbell::new(self.state.clone())
    }

    /// Returns whether the receiver was dropped.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.queue_ids.is_abandoned()
    }
}

/// The receiver's end.
pub struct DoorbellReceiver {
    queue_ids: spsc::Consumer<u32>,
    state: SharedState,
    queues: u32,
    /// What is to be visited besides the ring, and whether there is anything.
    listed: Listed,
    has_listed: bool,
}

impl DoorbellReceiver {
    /// Returns the receiver of a doorbell in the caller's memory; `None` if [`memory_bytes`] are
    /// not there. It visits every queue once, since a receiver before it may have taken some.
    pub fn attach(memory: BlockMemory, queues: usize) -> Option<Self> {
        let (queue_ids, state) = attach(memory, queues, spsc::Consumer::attach)?;
        state.set_overflowed();
        let queues = u32::try_from(queues).unwrap_or(u32::MAX);
        Some(DoorbellReceiver { queue_ids, state, queues, listed: Listed::default(), has_listed: false })
    }

    /// Returns the number of the next queue that may have work. Clear its flag before you read the
    /// queue.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a receiver is polled and never exhausted")]
    pub fn next(&mut self) -> Option<u32> {
        if self.state.has_attention() {
            self.listed.take(&self.state, self.queues);
            self.has_listed = true;
        }
        if self.has_listed {
            let id = self.listed.next(&self.state);
            self.has_listed = !self.listed.is_empty();
            if id.is_some() {
                return id;
            }
        }
        self.queue_ids.pop()
    }

    /// Calls `each` with the numbers of the queues that may have work, at most `most`, as
    /// [`DoorbellReceiver::next`] would return them. Numbers that arrive meanwhile may stay.
    #[inline(always)]
    pub fn take_up_to(&mut self, most: usize, mut each: impl FnMut(u32)) {
        if self.has_listed || self.state.has_attention() {
            return self.take_listed(most, &mut each);
        }
        for _ in 0..self.queue_ids.available().min(most) {
            let Some(id) = self.queue_ids.pop() else { return };
            each(id);
        }
    }

    /// Returns the number of the only queue that may have work; `None`, with nothing taken, if
    /// there are more or none.
    #[inline(always)]
    pub fn take_single(&mut self) -> Option<u32> {
        let is_only = self.queue_ids.available() == 1 && !self.has_listed && !self.state.has_attention();
        if is_only { self.queue_ids.pop() } else { None }
    }

    #[cold]
    #[inline(never)]
    fn take_listed(&mut self, most: usize, each: &mut dyn FnMut(u32)) {
        (0..most).map_while(|_| self.next()).for_each(each);
    }

    /// Returns whether [`DoorbellReceiver::next`] may return a number.
    #[inline]
    pub fn has_entries(&mut self) -> bool {
        self.queue_ids.available() > 0 || self.has_listed || self.state.has_attention()
    }

    /// Returns whether the sender was dropped. Its entries can still be read.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.queue_ids.is_abandoned()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_set_flag_is_not_listed_again_until_it_is_cleared() {
        let (mut sender, mut receiver) = channel(2);
        let bells = [DoorbellFlag::default(), DoorbellFlag::default()];
        assert!(sender.ring(1, &bells[1]) && sender.ring(0, &bells[0]));
        assert!(!sender.ring(1, &bells[1]) && !sender.ring(0, &bells[0]));
        assert!(receiver.has_entries());
        assert_eq!([receiver.next(), receiver.next(), receiver.next()], [Some(1), Some(0), None]);
        assert!(!receiver.has_entries());
        assert!(!sender.ring(1, &bells[1]), "received, but not yet cleared");
        bells[1].clear();
        assert!(sender.ring(1, &bells[1]));
        assert_eq!([receiver.next(), receiver.next()], [Some(1), None]);
    }

    #[test]
    fn the_only_entry_is_taken_alone_and_several_are_left() {
        let (mut sender, mut receiver) = channel(2);
        let bells = [DoorbellFlag::default(), DoorbellFlag::default()];
        assert_eq!(receiver.take_single(), None);
        assert!(sender.ring(1, &bells[1]));
        assert_eq!([receiver.take_single(), receiver.take_single()], [Some(1), None]);
        bells[1].clear();
        assert!(sender.ring(1, &bells[1]) && sender.ring(0, &bells[0]));
        assert_eq!([receiver.take_single(), receiver.next(), receiver.next()], [None, Some(1), Some(0)]);
        let shared = sender.shared();
        bells.iter().for_each(DoorbellFlag::clear);
        assert!(sender.ring(1, &bells[1]) && shared.ring(0, &bells[0]));
        assert_eq!(receiver.take_single(), None, "another thread rang, too");
    }

    #[test]
    fn an_overflow_visits_every_queue_once() {
        let (mut sender, mut receiver) = channel(2);
        // One number belongs to three queues in sequence; all three entries are in the ring.
        let bells: [DoorbellFlag; 3] = core::array::from_fn(|_| DoorbellFlag::default());
        for bell in &bells {
            assert!(sender.ring(0, bell));
        }
        let visited: Vec<u32> =
            core::iter::from_fn(|| receiver.has_entries().then(|| receiver.next())?).collect();
        assert_eq!(visited, [0, 1, 0, 0]);
        bells[2].clear();
        assert!(sender.ring(0, &bells[2]));
        assert_eq!([receiver.next(), receiver.next()], [Some(0), None]);
    }

    #[test]
    fn numbers_are_taken_up_to_a_limit_also_after_an_overflow() {
        let (mut sender, mut receiver) = channel(2);
        let taken = |receiver: &mut DoorbellReceiver, most: usize| {
            let mut ids = Vec::new();
            receiver.take_up_to(most, |id| ids.push(id));
            ids
        };
        let bells: [DoorbellFlag; 3] = core::array::from_fn(|_| DoorbellFlag::default());
        assert!(sender.ring(1, &bells[0]) && sender.ring(0, &bells[1]));
        assert_eq!(
            [taken(&mut receiver, 1), taken(&mut receiver, 8), taken(&mut receiver, 8)],
            [vec![1], vec![0], vec![]]
        );
        for bell in &bells {
            bell.clear();
            assert!(sender.ring(0, bell));
        }
        assert_eq!([taken(&mut receiver, 1), taken(&mut receiver, 8)], [vec![0], vec![1, 0, 0]]);
        assert!(!receiver.has_entries());
    }

    #[test]
    fn each_end_detects_that_the_other_was_dropped() {
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
