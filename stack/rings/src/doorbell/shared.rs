//! The part of a doorbell that any thread may ring: one bit for each queue, in words, and one bit
//! for each group of words.
//!
//! A thread sets the queue's bit, then the bit of its group. The receiver takes the groups, then
//! their words. Each step is a read-modify-write of one word. So a bit that is set after its word
//! was taken finds its group taken too, and sets it again: no bit is lost. A queue has one bit
//! however often it rings, so nothing overflows.

use core::ops::Range;

use crossbeam_utils::CachePadded;

use super::DoorbellFlag;
use crate::block::{Block, BlockMemory};
use crate::sync::{AtomicU64, Ordering};

/// The bit of [`SharedState::attention`] after the ring overflowed; the bits below it are groups.
const OVERFLOWED: u64 = 1 << GROUPS;
const GROUPS: u32 = 63;

/// A doorbell for the queues of several threads. Each of them has a clone.
///
/// Cost: the exchange of the flag, as for [`DoorbellSender::ring`](super::DoorbellSender::ring),
/// and two more read-modify-writes if the flag was clear.
#[derive(Clone)]
pub struct SharedDoorbell {
    state: SharedState,
}

impl SharedDoorbell {
    pub(super) fn new(state: SharedState) -> Self {
        SharedDoorbell { state }
    }

    /// Sets the flag of queue `id`, after work was published there. Returns whether the flag was
    /// clear.
    ///
    /// Two threads may ring one queue. If one of them is interrupted here, the work of the other
    /// waits for it.
    #[inline]
    pub fn ring(&self, id: u32, bell: &DoorbellFlag) -> bool {
        if bell.set() {
            return false;
        }
        self.state.list(id);
        true
    }
}

/// What the sender, the threads and the receiver share.
#[derive(Clone)]
pub(super) struct SharedState {
    bits: Block<Attention, AtomicU64>,
    /// The number of words of bits, as this end knows it.
    words: u32,
    words_in_group: u32,
}

/// Bit 63: the ring overflowed. Every other bit: a group has a word that is not zero.
type Attention = CachePadded<AtomicU64>;

impl SharedState {
    pub(super) fn new(queues: u32) -> Self {
        let words = words_for(queues as usize);
        let zero = || AtomicU64::new(0);
        Self::of(Block::on_heap(CachePadded::new(zero()), words, zero, |_, _| ()), words)
    }

    fn of(bits: Block<Attention, AtomicU64>, words: u32) -> Self {
        SharedState { bits, words, words_in_group: words.div_ceil(GROUPS) }
    }

    pub(super) fn attach(memory: BlockMemory, queues: usize) -> Option<Self> {
        let words = words_for(queues);
        Some(Self::of(Block::attach(memory, words as usize)?, words))
    }

    pub(super) fn memory_bytes(queues: usize) -> usize {
        let layout = Block::<Attention, AtomicU64>::layout(words_for(queues) as usize);
        layout.map_or(usize::MAX, |layout| layout.size())
    }

    fn word(&self, word: u32) -> Option<&AtomicU64> {
        // SAFETY: the block has this many words.
        (word < self.words).then(|| unsafe { self.bits.entry(word as usize) })
    }

    pub(super) fn set_overflowed(&self) {
        self.bits.header().fetch_or(OVERFLOWED, Ordering::Release);
    }

    /// Returns whether the ring overflowed or a bit is set.
    #[inline(always)]
    pub(super) fn has_attention(&self) -> bool {
        self.bits.header().load(Ordering::Relaxed) != 0
    }

    fn list(&self, id: u32) {
        let word = id / u64::BITS;
        let Some(bits) = self.word(word) else { return };
        // Acquire: if the receiver has taken the word, this thread sets the group after the
        // receiver took it.
        bits.fetch_or(1 << (id % u64::BITS), Ordering::AcqRel);
        self.bits.header().fetch_or(1 << (word / self.words_in_group), Ordering::AcqRel);
    }
}

/// Returns the words of bits for queues.
fn words_for(queues: usize) -> u32 {
    u32::try_from(queues).unwrap_or(u32::MAX).div_ceil(u64::BITS).max(1)
}

/// What the receiver still has to visit besides the ring.
#[derive(Default)]
pub(super) struct Listed {
    /// Every number, after an overflow.
    rescan: Range<u32>,
    /// Groups that were taken and not visited.
    groups: u64,
    /// Words of the group that is visited.
    words: Range<u32>,
    /// Bits of the word that is visited, and the number of its first bit.
    bits: u64,
    first: u32,
}

impl Listed {
    /// Takes the overflow and the groups. After an overflow it starts at the lowest number, also
    /// during a rescan: queues visited before may have new work.
    #[cold]
    pub(super) fn take(&mut self, state: &SharedState, queues: u32) {
        let attention = state.bits.header().swap(0, Ordering::AcqRel);
        if attention & OVERFLOWED != 0 {
            self.rescan = 0..queues;
        }
        self.groups |= attention & !OVERFLOWED;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rescan.is_empty() && self.words.is_empty() && self.groups | self.bits == 0
    }

    /// Returns the next number.
    #[inline(never)]
    pub(super) fn next(&mut self, state: &SharedState) -> Option<u32> {
        if let Some(id) = self.rescan.next() {
            return Some(id);
        }
        while self.bits == 0 {
            let word = self.next_word(state)?;
            self.first = word * u64::BITS;
            self.bits = state.word(word)?.swap(0, Ordering::AcqRel);
        }
        let bit = self.bits.trailing_zeros();
        self.bits &= self.bits - 1;
        Some(self.first + bit)
    }

    fn next_word(&mut self, state: &SharedState) -> Option<u32> {
        if self.words.is_empty() && self.groups != 0 {
            let group = self.groups.trailing_zeros();
            self.groups &= self.groups - 1;
            let first = group * state.words_in_group;
            self.words = first..(first + state.words_in_group).min(state.words);
        }
        self.words.next()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::channel;
    use super::*;

    #[test]
    fn queues_that_any_thread_rings_are_listed_once_until_their_flags_are_cleared() {
        // More words than groups: some groups have two.
        let queues = 64 * if cfg!(miri) { 65 } else { 100 };
        let (mut sender, mut receiver) = channel(queues as usize);
        let bells: Vec<DoorbellFlag> = (0..queues).map(|_| DoorbellFlag::default()).collect();
        let shared = [sender.shared(), sender.shared()];
        let ids = [0, 63, 64, 127, 128, 3000, queues - 1];
        for id in ids {
            assert!(shared[0].ring(id, &bells[id as usize]) && !shared[1].ring(id, &bells[id as usize]));
        }
        assert!(sender.ring(5, &bells[5]) && !shared[1].ring(5, &bells[5]));
        assert!(receiver.has_entries());
        let received: Vec<u32> = core::iter::from_fn(|| receiver.next()).collect();
        assert_eq!((&received[..7], &received[7..], receiver.has_entries()), (&ids[..], &[5][..], false));
        bells[64].clear();
        assert!(shared[1].ring(64, &bells[64]) && receiver.has_entries());
        assert_eq!([receiver.next(), receiver.next()], [Some(64), None]);
    }

    #[test]
    fn a_number_outside_the_doorbell_is_not_listed() {
        let (sender, mut receiver) = channel(1);
        assert!(sender.shared().ring(64, &DoorbellFlag::default()));
        assert_eq!(receiver.next(), None);
    }

    #[test]
    fn an_overflow_and_bits_are_both_visited() {
        let (mut sender, mut receiver) = channel(2);
        let bells: [DoorbellFlag; 4] = core::array::from_fn(|_| DoorbellFlag::default());
        bells[..3].iter().for_each(|bell| assert!(sender.ring(0, bell)));
        assert!(sender.shared().ring(1, &bells[3]));
        let visited: Vec<u32> =
            core::iter::from_fn(|| receiver.has_entries().then(|| receiver.next())?).collect();
        assert_eq!(visited, [0, 1, 1, 0, 0]);
    }
}
