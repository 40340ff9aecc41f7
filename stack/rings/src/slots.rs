//! A work queue whose requests are written and read in place.
//!
//! ```text
//!        head              tail           staged
//!         v                 v               v
//! ...free | consumer's .... | staged ...... | free...      0 <= staged - head <= depth
//! ```
//! The producer writes requests into free slots and publishes them together. The consumer reads
//! published slots in place, any number of times and in any order, until it releases them. So a
//! request stays readable until its work is acknowledged, and is never copied. A slot changes
//! owners by a release store of the index that its owner advances, and an acquire load of that
//! index on the other side. Requests have 32-bit sequence numbers, which wrap. The consumer also
//! publishes the number of requests that completed without a completion entry. Any thread may claim
//! them through a
//! [`SlotObserver`]: each is claimed once.
//! Slots are aligned to cache lines, so a request that fits in one costs one line transfer.

use core::fmt;
use core::marker::PhantomData;

use crossbeam_utils::CachePadded;
use ironwarp_arch::{prefetch_read, prefetch_read_all};

use crate::block::{Block, BlockMemory, Parts, PlainData};
use crate::end_state::{EndState, NotSync};
use crate::sync::{AtomicU32, Ordering, UnsafeCell};

/// The most slots a queue may have.
const DEPTH_MAX: usize = 1 << 20;

/// Creates a queue of at least `depth` requests, rounded up to a power of two of at most 2^20.
///
/// ```
/// let (mut producer, mut consumer) = ironwarp_rings::slots::ring::<[u64; 8]>(4);
/// let seq = producer.post(|request| request[0] = 7).unwrap();
/// assert_eq!(consumer.refresh(), seq + 1);
/// assert_eq!(consumer.at(seq).unwrap()[0], 7);
/// consumer.release_to(seq + 1);
/// ```
pub fn ring<T: Default>(depth: usize) -> (SlotProducer<T>, SlotConsumer<T>) {
    let depth = slots_for(depth);
    let header = Header {
        producer: CachePadded::new(ProducerState { end: EndState::new(), claimed: AtomicU32::new(0) }),
        consumer: CachePadded::new(ConsumerState { end: EndState::new(), unsignaled: AtomicU32::new(0) }),
    };
    let ring: Ring<T> = Block::on_heap(header, depth, || Slot(UnsafeCell::new(T::default())), |_, _| ());
    (SlotProducer::of(ring.clone(), depth), SlotConsumer::of(ring, depth))
}

/// Returns the bytes of memory that a queue of `depth` requests needs, at a multiple of 128 bytes
/// and of the alignment of the requests.
pub fn memory_bytes<T>(depth: usize) -> usize {
    Ring::<T>::layout(slots_for(depth) as usize).map_or(usize::MAX, |layout| layout.size())
}

/// Returns the number of slots of a queue.
fn slots_for(depth: usize) -> u32 {
    depth.clamp(1, DEPTH_MAX).next_power_of_two() as u32
}

/// Every slot holds a request that has not been released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is full")
    }
}

impl core::error::Error for Full {}

/// The producer's end. It is `Send` but not `Sync`: one thread uses it at a time.
pub struct SlotProducer<T> {
    ring: Ring<T>,
    /// The number of slots, as this end knows it.
    depth: u32,
    /// The published sequence number.
    tail: u32,
    /// The sequence number of the next request.
    staged: u32,
    /// The consumer's index when it was last read.
    cached_head: u32,
    not_sync: NotSync,
}

/// The consumer's end. It is `Send` but not `Sync`: one thread uses it at a time.
///
/// ```compile_fail
/// fn shared_between_threads<T: Sync>(_: T) {}
/// shared_between_threads(ironwarp_rings::slots::ring::<u8>(1).1);
/// ```
pub struct SlotConsumer<T> {
    ring: Ring<T>,
    /// The number of slots, as this end knows it.
    depth: u32,
    head: u32,
    /// The producer's index when it was last read.
    cached_tail: u32,
    unsignaled: u32,
    not_sync: NotSync,
}

impl<T: PlainData + Default> SlotProducer<T> {
    /// Returns the producer of a queue in the caller's memory; `None` if [`memory_bytes`] are not
    /// there. It goes on behind the requests of a producer before it.
    pub fn attach(memory: BlockMemory, depth: usize) -> Option<Self> {
        let depth = slots_for(depth);
        let producer = Self::of(Block::attach(memory, depth as usize)?, depth);
        for ahead in 0..producer.cached_free().min(depth as usize) as u32 {
            let seq = producer.tail.wrapping_add(ahead);
            // SAFETY: as in `stage`: the slot is free.
            slot(&producer.ring, depth, seq).with_mut(|slot| unsafe { slot.write(T::default()) });
        }
        Some(producer)
    }
}

impl<T> SlotProducer<T> {
    fn of(ring: Ring<T>, depth: u32) -> Self {
        let header = ring.header();
        let (tail, cached_head) = (header.producer.end.attach(), header.consumer.end.published());
        SlotProducer { ring, depth, tail, staged: tail, cached_head, not_sync: PhantomData }
    }

    /// Writes the next request in place and publishes it together with all staged requests. Returns
    /// its sequence number.
    ///
    /// # Errors
    /// Returns [`Full`], and does not call `write`, if no slot is free.
    #[inline]
    pub fn post(&mut self, write: impl FnOnce(&mut T)) -> Result<u32, Full> {
        let seq = self.stage(write)?;
        self.publish();
        Ok(seq)
    }

    /// Writes the next request in place; the consumer sees it once it is published. Returns its
    /// sequence number.
    ///
    /// The slot still holds the request of the previous round, so `write` must set every field that
    /// the consumer reads.
    ///
    /// # Errors
    /// Returns [`Full`], and does not call `write`, if no slot is free.
    #[inline(always)]
    pub fn stage(&mut self, write: impl FnOnce(&mut T)) -> Result<u32, Full> {
        if !self.has_room(1) {
            return Err(Full);
        }
        let seq = self.staged;
        // SAFETY: the slot lies before `head`, so it belongs to the producer until it is published:
        // the consumer holds no reference to it. The producer is not `Sync`, so one thread at a
        // time is here.
        slot(&self.ring, self.depth, seq).with_mut(|slot| write(unsafe { &mut *slot }));
        self.staged = seq.wrapping_add(1);
        Ok(seq)
    }

    /// [`SlotProducer::stage`] of a request that may be refused: it is not staged if `write`
    /// returns an error.
    ///
    /// # Errors
    /// Returns `full`, and does not call `write`, if no slot is free; otherwise the error of
    /// `write`.
    #[inline(always)]
    pub fn stage_unless<E>(&mut self, full: E, write: impl FnOnce(&mut T) -> Result<(), E>) -> Result<(), E> {
        if !self.has_room(1) {
            return Err(full);
        }
        // SAFETY: as in `stage`.
        slot(&self.ring, self.depth, self.staged).with_mut(|slot| write(unsafe { &mut *slot }))?;
        self.staged = self.staged.wrapping_add(1);
        Ok(())
    }

    /// Publishes all staged requests with one store.
    #[inline]
    pub fn publish(&mut self) {
        if self.tail != self.staged {
            self.tail = self.staged;
            self.ring.header().producer.end.publish(self.tail);
        }
    }

    /// Returns whether `requests` more fit now. Reads the consumer's index only if the cached one
    /// shows too little room.
    #[inline]
    pub fn has_room(&mut self, requests: usize) -> bool {
        self.cached_free() >= requests || {
            self.cached_head = self.ring.header().consumer.end.published();
            self.cached_free() >= requests
        }
    }

    /// Returns the number of free slots according to the cached consumer index.
    #[inline]
    fn cached_free(&self) -> usize {
        let taken = self.staged.wrapping_sub(self.cached_head);
        self.depth().wrapping_sub(taken) as usize
    }

    /// Returns the number of requests that were staged and not released. Always reads the
    /// consumer's index.
    pub fn outstanding(&mut self) -> u32 {
        self.cached_head = self.ring.header().consumer.end.published();
        self.staged.wrapping_sub(self.cached_head)
    }

    /// Returns the number of slots.
    #[inline]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Claims the requests that completed without a completion entry and were not claimed, and
    /// returns their number.
    #[inline]
    pub fn claim_unsignaled(&self) -> u32 {
        self.ring.header().claim_unsignaled()
    }

    /// Returns an observer of the queue, for any thread.
    pub fn observer(&self) -> SlotObserver<T> {
        SlotObserver { ring: self.ring.clone(), depth: self.depth }
    }

    /// Returns whether the consumer was dropped.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.ring.header().consumer.end.is_dropped()
    }
}

impl<T> Drop for SlotProducer<T> {
    fn drop(&mut self) {
        self.publish();
        self.ring.header().producer.end.mark_dropped();
    }
}

impl<T: PlainData> SlotConsumer<T> {
    /// Returns the consumer of a queue in the caller's memory; `None` if [`memory_bytes`] are not
    /// there. It goes on behind the requests that a consumer before it released.
    pub fn attach(memory: BlockMemory, depth: usize) -> Option<Self> {
        let depth = slots_for(depth);
        Some(Self::of(Block::attach(memory, depth as usize)?, depth))
    }
}

impl<T> SlotConsumer<T> {
    fn of(ring: Ring<T>, depth: u32) -> Self {
        let header = &ring.header().consumer;
        let (head, unsignaled) = (header.end.attach(), header.unsignaled.load(Ordering::Relaxed));
        SlotConsumer { ring, depth, head, cached_tail: head, unsignaled, not_sync: PhantomData }
    }

    /// Reads the producer's index for newly published requests. Returns the sequence number after
    /// the last.
    #[inline]
    pub fn refresh(&mut self) -> u32 {
        self.cached_tail = self.ring.header().producer.end.published();
        self.cached_tail
    }

    /// Returns the sequence number of the oldest request that was not released.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Returns the sequence number after the last request that [`Self::refresh`] saw.
    #[inline]
    pub fn tail(&self) -> u32 {
        self.cached_tail
    }

    /// Returns the request numbered `seq`, if head <= `seq` < tail.
    #[inline]
    pub fn at(&self, seq: u32) -> Option<&T> {
        if seq.wrapping_sub(self.head) >= self.cached_tail.wrapping_sub(self.head) {
            return None;
        }
        // SAFETY: the slot was published. The result borrows `self` and releasing takes
        // `&mut self`, so the slot is not released meanwhile. The producer does not access it
        // before that.
        Some(slot(&self.ring, self.depth, seq).with(|slot| unsafe { &*slot }))
    }

    /// Prefetches the producer's index.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_read(&self.ring.header().producer);
    }

    /// Prefetches the slot of `seq`, published or not.
    #[inline]
    pub fn prefetch_at(&self, seq: u32) {
        prefetch_read_all(slot(&self.ring, self.depth, seq));
    }

    /// Returns the slots before `seq` to the producer. Does nothing unless head <= `seq` <= tail.
    #[inline]
    pub fn release_to(&mut self, seq: u32) {
        if seq.wrapping_sub(self.head) <= self.cached_tail.wrapping_sub(self.head) {
            self.head = seq;
            self.ring.header().consumer.end.publish(seq);
        }
    }

    /// Counts requests that completed without a completion entry. Call it before their release, so
    /// that a producer that sees their slots free also sees the count.
    #[inline]
    pub fn add_unsignaled(&mut self, n: u32) {
        self.unsignaled = self.unsignaled.wrapping_add(n);
        self.ring.header().consumer.unsignaled.store(self.unsignaled, Ordering::Release);
    }

    /// Returns the number of slots.
    #[inline]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns whether the producer was dropped. Its published requests are still there.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.ring.header().producer.end.is_dropped()
    }
}

impl<T> Drop for SlotConsumer<T> {
    fn drop(&mut self) {
        self.ring.header().consumer.end.mark_dropped();
    }
}

/// Reads the indices of a queue and claims its unsignaled requests, beside the two ends. It reaches
/// no slot.
pub struct SlotObserver<T> {
    ring: Ring<T>,
    depth: u32,
}

impl<T> Clone for SlotObserver<T> {
    fn clone(&self) -> Self {
        SlotObserver { ring: self.ring.clone(), depth: self.depth }
    }
}

impl<T> SlotObserver<T> {
    /// Returns the number of slots.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the number of requests that were published and not released, as they are seen now.
    pub fn outstanding(&self) -> u32 {
        let head = self.ring.header().consumer.end.published();
        // Read after `head`, so it is not before it.
        self.ring.header().producer.end.published().wrapping_sub(head).min(self.depth())
    }

    /// As [`SlotProducer::claim_unsignaled`].
    pub fn claim_unsignaled(&self) -> u32 {
        self.ring.header().claim_unsignaled()
    }
}

/// A header and the slots.
type Ring<T> = Block<Header, Slot<T>>;

#[repr(C)]
struct Header {
    /// Publishes `tail`.
    producer: CachePadded<ProducerState>,
    /// Publishes `head`.
    consumer: CachePadded<ConsumerState>,
}

/// The words beside the producer, in one cache line.
#[repr(C)]
struct ProducerState {
    end: EndState,
    /// Requests without a completion entry that were claimed, modulo 2^32.
    claimed: AtomicU32,
}

/// The words that the consumer publishes, in one cache line.
#[repr(C)]
struct ConsumerState {
    end: EndState,
    unsignaled: AtomicU32,
}

#[repr(C, align(64))]
struct Slot<T>(UnsafeCell<T>);

// SAFETY: the protocol above gives each slot one owner at a time. The slots of a ring are reachable
// only through one producer and one consumer, neither of which is `Sync`, so no two threads ever
// hold references to one slot. Observers read atomic words.
unsafe impl<T: Send> Sync for Slot<T> {}

impl Header {
    #[inline]
    fn claim_unsignaled(&self) -> u32 {
        // Acquire: what the posts of the counted requests reserved is visible to the thread that
        // releases it.
        let counted = self.consumer.unsignaled.load(Ordering::Acquire);
        let claimed = self.producer.claimed.load(Ordering::Relaxed);
        if counted == claimed { 0 } else { self.claim_up_to(counted, claimed) }
    }

    /// Tuning: not inlined, as the loop would take registers from the code that posts.
    #[inline(never)]
    fn claim_up_to(&self, counted: u32, mut claimed: u32) -> u32 {
        loop {
            let more = counted.wrapping_sub(claimed);
            // Another thread may have claimed up to a count that is later than the one read here.
            if more == 0 || more > u32::MAX / 2 {
                return 0;
            }
            let claim = self.producer.claimed.compare_exchange(
                claimed,
                counted,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match claim {
                Ok(_) => return more,
                Err(other) => claimed = other,
            }
        }
    }
}

/// Returns the slot of a sequence number in a ring of `depth` slots.
#[inline(always)]
fn slot<T>(ring: &Parts<Header, Slot<T>>, depth: u32, seq: u32) -> &UnsafeCell<T> {
    let at = seq & depth.wrapping_sub(1);
    debug_assert!(at < depth);
    // SAFETY: the number of slots is a power of two and at least one, so the masked index is in
    // range.
    &unsafe { ring.entry(at as usize) }.0
}

#[cfg(all(test, not(loom)))]
mod tests;
