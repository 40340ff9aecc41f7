//! A ring that moves values from one producer to one consumer.
//!
//! ```text
//!        head            tail           staged
//!         v               v               v
//! ...free | full ... full | staged ...... | free...      0 <= staged - head <= capacity
//! ```
//! The producer owns `tail` and the slots from `tail` round to `head`. The consumer owns `head` and
//! the slots from `head` to `tail`. A slot changes owners by a release store of the index that its
//! owner advances, and an acquire load of that index on the other side. Full and empty are ordinary
//! results; there are no other errors. Cost: 1.5 ns for a push and a pop on one core. Between two
//! cores, 2 to 5 ns a value in a stream, and 60 to 100 ns for a value that the consumer waits for,
//! which is the latency of one cache line. Each end stores its own state: place the two ends on
//! different cache lines when two threads use them.

use core::marker::PhantomData;
use core::mem::MaybeUninit;

use crossbeam_utils::CachePadded;

use crate::block::{Block, BlockMemory, Parts, PlainData};
use crate::end_state::{EndState, NotSync};
use crate::sync::UnsafeCell;

/// The largest number of slots: indices wrap at 32 bits and must distinguish full from empty.
const CAPACITY_MAX: usize = 1 << 30;

/// Creates a ring with room for at least `capacity` values, rounded up to a power of two of at most
/// 2^30.
///
/// ```
/// let (mut producer, mut consumer) = ironwarp_rings::spsc::channel(2);
/// producer.push("one").unwrap();
/// producer.push("two").unwrap();
/// assert_eq!(producer.push("three"), Err("three"));
/// assert_eq!(consumer.pop(), Some("one"));
/// ```
pub fn channel<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let slots = slots_for(capacity);
    let header =
        Header { producer: CachePadded::new(EndState::new()), consumer: CachePadded::new(EndState::new()) };
    let empty = || Slot(UnsafeCell::new(MaybeUninit::uninit()));
    let ring: Ring<T> = Block::on_heap(header, slots, empty, drop_left);
    (Producer::of(ring.clone(), slots), Consumer::of(ring, slots))
}

/// Returns the bytes of memory that a ring for `capacity` values needs, at a multiple of 128 bytes
/// and of the alignment of the values.
pub fn memory_bytes<T>(capacity: usize) -> usize {
    Ring::<T>::layout(slots_for(capacity) as usize).map_or(usize::MAX, |layout| layout.size())
}

/// Returns the number of slots of a ring.
fn slots_for(capacity: usize) -> u32 {
    capacity.clamp(1, CAPACITY_MAX).next_power_of_two() as u32
}

/// The producer's end. It is `Send` but not `Sync`: one thread uses it at a time.
///
/// ```compile_fail
/// fn shared_between_threads<T: Sync>(_: T) {}
/// shared_between_threads(ironwarp_rings::spsc::channel::<u8>(1).0);
/// ```
pub struct Producer<T> {
    ring: Ring<T>,
    /// The number of slots, as this end knows it.
    slots: u32,
    /// The published index.
    tail: u32,
    /// The index of the next value.
    staged: u32,
    /// The consumer's index when it was last read.
    cached_head: u32,
    not_sync: NotSync,
}

/// The consumer's end. It is `Send` but not `Sync`: one thread uses it at a time.
pub struct Consumer<T> {
    ring: Ring<T>,
    /// The number of slots, as this end knows it.
    slots: u32,
    head: u32,
    /// The producer's index when it was last read.
    cached_tail: u32,
    not_sync: NotSync,
}

impl<T: PlainData> Producer<T> {
    /// Returns the producer of a ring in the caller's memory; `None` if [`memory_bytes`] are not
    /// there. It goes on behind the values of a producer before it.
    pub fn attach(memory: BlockMemory, capacity: usize) -> Option<Self> {
        let slots = slots_for(capacity);
        Some(Self::of(Block::attach(memory, slots as usize)?, slots))
    }
}

impl<T> Producer<T> {
    fn of(ring: Ring<T>, slots: u32) -> Self {
        let (tail, cached_head) = (ring.header().producer.attach(), ring.header().consumer.published());
        Producer { ring, slots, tail, staged: tail, cached_head, not_sync: PhantomData }
    }

    /// Adds a value and publishes it together with all staged values.
    ///
    /// # Errors
    /// Returns the value if the ring is full.
    #[inline(always)]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        self.stage(value)?;
        self.publish();
        Ok(())
    }

    /// Adds a value that the consumer sees after the next [`Self::publish`].
    ///
    /// # Errors
    /// Returns the value if the ring is full.
    #[inline(always)]
    pub fn stage(&mut self, value: T) -> Result<(), T> {
        if !self.has_room(1) {
            return Err(value);
        }
        // SAFETY: the ring has room, so the slot belongs to the producer and holds no value. The
        // producer is not `Sync`, so one thread at a time is here.
        slot(&self.ring, self.slots, self.staged).with_mut(|slot| unsafe { (*slot).write(value) });
        self.staged = self.staged.wrapping_add(1);
        Ok(())
    }

    /// Publishes all staged values with one store.
    #[inline]
    pub fn publish(&mut self) {
        if self.tail != self.staged {
            self.tail = self.staged;
            self.ring.header().producer.publish(self.tail);
        }
    }

    /// Returns whether `values` more values fit now. Reads the consumer's index only if the cached
    /// one shows too little room.
    #[inline]
    pub fn has_room(&mut self, values: usize) -> bool {
        self.cached_free() >= values || {
            self.cached_head = self.ring.header().consumer.published();
            self.cached_free() >= values
        }
    }

    /// Returns the number of free slots according to the cached consumer index.
    fn cached_free(&self) -> usize {
        let taken = self.staged.wrapping_sub(self.cached_head) as usize;
        self.capacity().wrapping_sub(taken)
    }

    /// Returns the number of slots.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.slots as usize
    }

    /// Returns whether the consumer was dropped.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.ring.header().consumer.is_dropped()
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.publish();
        self.ring.header().producer.mark_dropped();
    }
}

impl<T: PlainData> Consumer<T> {
    /// Returns the consumer of a ring in the caller's memory; `None` if [`memory_bytes`] are not
    /// there. It goes on behind the values that a consumer before it took.
    pub fn attach(memory: BlockMemory, capacity: usize) -> Option<Self> {
        let slots = slots_for(capacity);
        Some(Self::of(Block::attach(memory, slots as usize)?, slots))
    }
}

impl<T> Consumer<T> {
    fn of(ring: Ring<T>, slots: u32) -> Self {
        let head = ring.header().consumer.attach();
        Consumer { ring, slots, head, cached_tail: head, not_sync: PhantomData }
    }

    /// Removes the oldest value.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<T> {
        if self.available() == 0 {
            return None;
        }
        // SAFETY: the slot lies between `head` and `tail`: the producer has written and published
        // it, and does not access it before the consumer's index passes it. `head` advances next,
        // so the value is moved out once.
        let value =
            slot(&self.ring, self.slots, self.head).with(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(1);
        self.ring.header().consumer.publish(self.head);
        Some(value)
    }

    /// Returns the oldest value without removing it.
    #[inline]
    pub fn peek(&mut self) -> Option<&T> {
        if self.available() == 0 {
            return None;
        }
        // SAFETY: as in `pop`. The returned reference borrows `self`, so nothing can be popped
        // meanwhile.
        Some(slot(&self.ring, self.slots, self.head).with(|slot| unsafe { (*slot).assume_init_ref() }))
    }

    /// Returns a lower bound of the values in the ring. Reads the producer's index only if the
    /// cached one shows none.
    #[inline]
    pub fn available(&mut self) -> usize {
        if self.head == self.cached_tail {
            self.cached_tail = self.ring.header().producer.published();
        }
        self.cached_tail.wrapping_sub(self.head) as usize
    }

    /// Returns the number of slots.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.slots as usize
    }

    /// Returns whether the producer was dropped. Its published values can still be popped.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.ring.header().producer.is_dropped()
    }
}

impl<T: Copy> Consumer<T> {
    /// Moves the oldest values into `into`, as many as it has room for, and returns their number.
    /// One store returns all slots to the producer.
    #[inline]
    pub fn pop_into(&mut self, into: &mut [T]) -> usize {
        let cached = self.cached_tail.wrapping_sub(self.head) as usize;
        if cached < into.len() {
            self.cached_tail = self.ring.header().producer.published();
        }
        let count = (self.cached_tail.wrapping_sub(self.head) as usize).min(into.len());
        match into {
            _ if count == 0 => return 0,
            // One value is usual, and needs no loop.
            [place, ..] if count == 1 => self.copy_next(place),
            _ => into.iter_mut().take(count).for_each(|place| self.copy_next(place)),
        }
        self.ring.header().consumer.publish(self.head);
        count
    }

    /// Copies the oldest value, which is published, and passes it. [`Consumer::pop_into`] returns
    /// its slot.
    #[inline(always)]
    fn copy_next(&mut self, place: &mut T) {
        debug_assert!(self.head != self.cached_tail);
        // SAFETY: as in `pop`: the slot is published, and the producer does not access it before
        // the consumer's index is. The values are `Copy`, so a copy that is left in a slot owns
        // nothing.
        *place = slot(&self.ring, self.slots, self.head).with(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(1);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.ring.header().consumer.mark_dropped();
    }
}

/// A header and the slots.
type Ring<T> = Block<Header, Slot<T>>;

#[repr(C)]
struct Header {
    /// Publishes `tail`.
    producer: CachePadded<EndState>,
    /// Publishes `head`.
    consumer: CachePadded<EndState>,
}

#[repr(transparent)]
struct Slot<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: a ring only moves values, and the protocol above gives each slot one owner at a time. It
// is reachable only through one `Producer` and one `Consumer`.
unsafe impl<T: Send> Sync for Slot<T> {}

/// Returns the slot of an index in a ring of `slots` slots.
#[inline(always)]
fn slot<T>(ring: &Parts<Header, Slot<T>>, slots: u32, index: u32) -> &UnsafeCell<MaybeUninit<T>> {
    let at = index & slots.wrapping_sub(1);
    debug_assert!(at < slots);
    // SAFETY: the number of slots is a power of two and at least one, so the masked index is in
    // range.
    &unsafe { ring.entry(at as usize) }.0
}

/// Drops the values that were not popped, after both ends.
fn drop_left<T>(ring: &Parts<Header, Slot<T>>, slots: u32) {
    let (mut head, tail) = (ring.header().consumer.published(), ring.header().producer.published());
    while head != tail {
        // SAFETY: both ends were dropped after they published their last index. The slots between
        // the two indices hold values that were not popped.
        slot(ring, slots, head).with_mut(|slot| unsafe { (*slot).assume_init_drop() });
        head = head.wrapping_add(1);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn values_are_popped_in_bulk_as_far_as_there_are_places() {
        let (mut producer, mut consumer) = channel(4);
        let mut into = [0; 3];
        assert_eq!(consumer.pop_into(&mut into), 0);
        for round in 0..5 {
            (1..=4).for_each(|value| producer.push(10 * round + value).unwrap());
            assert_eq!((consumer.pop_into(&mut into), into), (3, [1, 2, 3].map(|value| 10 * round + value)));
            assert_eq!(producer.push(10 * round + 5), Ok(()), "the slots are free again");
            assert_eq!(
                (consumer.pop_into(&mut into), into[..2].to_vec()),
                (2, vec![10 * round + 4, 10 * round + 5])
            );
        }
        assert_eq!((consumer.pop_into(&mut []), consumer.pop()), (0, None));
    }

    #[test]
    fn staged_values_are_published_together() {
        let (mut producer, mut consumer) = channel(4);
        producer.stage(1).unwrap();
        producer.stage(2).unwrap();
        assert_eq!((consumer.pop(), consumer.available()), (None, 0));
        producer.publish();
        assert_eq!((consumer.available(), consumer.peek().copied()), (2, Some(1)));
        assert_eq!([consumer.pop(), consumer.pop(), consumer.pop()], [Some(1), Some(2), None]);
    }

    #[test]
    fn a_full_ring_returns_the_value() {
        let (mut producer, mut consumer) = channel(3);
        assert_eq!((producer.capacity(), consumer.capacity()), (4, 4));
        (0..4).for_each(|value| producer.push(value).unwrap());
        assert_eq!((producer.push(4), producer.has_room(0), producer.has_room(1)), (Err(4), true, false));
        assert_eq!(consumer.pop(), Some(0));
        assert_eq!((producer.push(4), producer.push(5)), (Ok(()), Err(5)));
    }

    /// The cached consumer index shows room for one value, but there is room for more.
    #[test]
    fn has_room_for_several_reads_the_consumer_index_again() {
        let (mut producer, mut consumer) = channel(4);
        (0..3).for_each(|value| producer.push(value).unwrap());
        assert_eq!((producer.has_room(1), producer.has_room(2)), (true, false));
        consumer.pop();
        assert_eq!((producer.has_room(2), producer.has_room(3)), (true, false));
    }

    #[test]
    fn each_end_detects_that_the_other_was_dropped() {
        let (mut producer, mut consumer) = channel(4);
        assert!(!producer.is_abandoned() && !consumer.is_abandoned());
        producer.push(1).unwrap();
        producer.stage(2).unwrap();
        drop(producer);
        assert!(consumer.is_abandoned());
        assert_eq!([consumer.pop(), consumer.pop(), consumer.pop()], [Some(1), Some(2), None]);

        let (mut producer, consumer) = channel(1);
        drop(consumer);
        assert!(producer.is_abandoned());
        assert_eq!((producer.push(1), producer.push(2)), (Ok(()), Err(2)));
    }

    #[test]
    fn values_left_in_the_ring_are_dropped_once() {
        let value = Arc::new(());
        let (mut producer, mut consumer) = channel(4);
        (0..4).for_each(|_| producer.push(value.clone()).unwrap());
        drop((consumer.pop(), consumer.pop()));
        producer.stage(value.clone()).unwrap();
        assert_eq!(Arc::strong_count(&value), 4);
        drop(consumer);
        drop(producer);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn indices_wrap() {
        let (mut producer, mut consumer) = channel(2);
        let before_wrap = u32::MAX - 2;
        (producer.tail, producer.staged, producer.cached_head) = (before_wrap, before_wrap, before_wrap);
        (consumer.head, consumer.cached_tail) = (before_wrap, before_wrap);
        producer.ring.header().producer.publish(before_wrap);
        producer.ring.header().consumer.publish(before_wrap);
        for value in 0..20 {
            producer.push(value).unwrap();
            producer.push(value + 100).unwrap();
            assert_eq!(producer.push(0), Err(0));
            assert_eq!(
                (consumer.pop(), consumer.pop(), consumer.pop()),
                (Some(value), Some(value + 100), None)
            );
        }
    }

    #[test]
    fn zero_sized_values_are_counted() {
        let (mut producer, mut consumer) = channel(2);
        assert_eq!([producer.push(()), producer.push(()), producer.push(())], [Ok(()), Ok(()), Err(())]);
        assert_eq!([consumer.pop(), consumer.pop(), consumer.pop()], [Some(()), Some(()), None]);
    }
}
