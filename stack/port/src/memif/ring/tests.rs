//! Every value of an index, and every short sequence of a peer's steps, against a model with
//! numbers that do not wrap.

use super::*;
use crate::{Frame, TxMeta};

/// Slots of the small rings, as a power of two, and their number.
const LOG2: u8 = 2;
const SLOTS: u16 = 1 << LOG2;
/// Bytes of a shared buffer. Buffers begin behind the rings.
const BUFFER_BYTES: u32 = 64;
const BUFFERS_OFFSET: u32 = 4096;
const REGION_BYTES: usize = 1 << 16;
/// Where indices start: also where they wrap.
const STARTS: [u16; 3] = [0, u16::MAX - 1, 0x7fff];

const BAD_INDEX: Result<(), RingFault> = Err(RingFault(Counter::PortMemifBadIndex));

/// The owner of the buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Us,
    Peer,
}

/// A ring in shared memory, seen from both ends.
struct Lab {
    region: Arc<Region>,
    owner: Owner,
}

impl Lab {
    fn new(owner: Owner) -> Self {
        Lab { region: Arc::new(Region::create(REGION_BYTES).expect("a memfd").0), owner }
    }

    fn words(&self) -> RingWords {
        RingWords::new(&self.region, 0, LOG2).expect("a ring")
    }

    fn buffers(&self) -> Buffers {
        match self.owner {
            Owner::Us => {
                Buffers::Ours { region: self.region.clone(), first: BUFFERS_OFFSET, bytes: BUFFER_BYTES }
            }
            Owner::Peer => Buffers::Theirs([self.region.clone()].into()),
        }
    }

    /// Describes every slot with a good buffer.
    fn describe(&self, words: &RingWords) {
        for slot in 0..SLOTS {
            words.set_descriptor(slot, good(slot));
        }
    }

    /// Returns a ring to send on whose index is `start`, with no slot known to be free.
    fn tx(&self, start: u16) -> (TxRing, RingWords) {
        let words = self.words();
        words.initialise();
        self.describe(&words);
        let mut tx = TxRing::new(self.words(), self.buffers(), true);
        tx.progress.next = start;
        (tx, words)
    }

    /// Returns a ring to receive from whose index is `start`.
    fn rx(&self, start: u16) -> (RxRing, RingWords) {
        let words = self.words();
        words.initialise();
        let mut rx = RxRing::new(self.words(), self.buffers(), true);
        rx.progress.next = start;
        (rx, words)
    }

    /// Sets the peer's index so that the slots before `index` are this end's to send on.
    fn offer(&self, words: &RingWords, index: u16) {
        match self.owner {
            Owner::Us => words.tail().store(index.wrapping_sub(SLOTS), Ordering::Release),
            Owner::Peer => words.head().store(index, Ordering::Release),
        }
    }

    /// Sets the peer's index so that it has sent the slots before `index`.
    fn sent(&self, words: &RingWords, index: u16) {
        let theirs = if self.owner == Owner::Us { words.tail() } else { words.head() };
        theirs.store(index, Ordering::Release);
    }
}

fn good(slot: u16) -> Descriptor {
    let offset = BUFFERS_OFFSET + u32::from(slot) * BUFFER_BYTES;
    Descriptor { flags: 0, region: 0, len: BUFFER_BYTES, offset }
}

fn frame(pool: &mut Pool, buffers: u16) -> MemifSealed {
    let mut frame = pool.take_any().expect("a frame");
    frame.resize(usize::from(buffers) * BUFFER_BYTES as usize);
    frame.seal(TxMeta::default())
}

fn descriptors(words: &RingWords) -> Vec<Descriptor> {
    (0..SLOTS).map(|slot| words.descriptor(slot)).collect()
}

/// All 65 536 values of the peer's index in every state of small rings. What is refused: less than
/// was handed over before, and more than a ring.
#[test]
fn every_value_of_an_index_is_taken_or_refused_as_without_wrapping() {
    for log2 in 1..=3 {
        let slots = 1u16 << log2;
        let starts = [0, 1, slots, 0x7fff, 0x8000, u16::MAX - slots, u16::MAX - 1, u16::MAX];
        for next in starts {
            for known in 0..=slots {
                for index in 0..=u16::MAX {
                    let before = Progress { next, known, slots };
                    let mut progress = before;
                    // The first position from `next` on whose index is this one.
                    let mut at = u32::from(next) & !0xffff | u32::from(index);
                    if at < u32::from(next) {
                        at += 1 << 16;
                    }
                    let usable = at - u32::from(next);
                    let allowed = (u32::from(known)..=u32::from(slots)).contains(&usable);
                    let result = progress.on_index(index);
                    assert_eq!(result.is_ok(), allowed, "{before:?}, index {index}");
                    let known = if allowed { usable as u16 } else { known };
                    assert_eq!(progress, Progress { known, ..before });
                }
            }
        }
    }
}

#[test]
fn no_more_slots_are_used_than_are_known() {
    for known in 0..=SLOTS {
        for used in (0..=SLOTS + 1).chain([0x8000, u16::MAX]) {
            let before = Progress { next: u16::MAX, known, slots: SLOTS };
            let mut progress = before;
            let result = progress.advance(used);
            if used <= known {
                assert_eq!(result, Ok(()));
                assert_eq!(
                    progress,
                    Progress { next: u16::MAX.wrapping_add(used), known: known - used, slots: SLOTS }
                );
            } else {
                assert_eq!((result, progress), (BAD_INDEX, before));
            }
        }
    }
}

/// A step of a sequence: the peer sets its index to so many slots from this end's, or this end
/// sends a frame.
#[derive(Clone, Copy, Debug)]
enum Step {
    Index(i32),
    Send(u16),
}

/// Every sequence of four steps: the peer's index anywhere near the ring, behind it too, and frames
/// of one to three buffers.
#[test]
fn every_short_sequence_of_offers_and_frames_ends_as_in_a_model() {
    let near = i32::from(SLOTS) + 2;
    let steps: Vec<Step> = (-near..=near).map(Step::Index).chain((1..=3).map(Step::Send)).collect();
    for owner in [Owner::Us, Owner::Peer] {
        let (lab, mut pool) = (Lab::new(owner), Pool::new(8, 1024));
        for start in STARTS {
            for sequence in 0..steps.len().pow(4) {
                let chosen = (0..4).map(|place| steps[sequence / steps.len().pow(place) % steps.len()]);
                send_sequence(&lab, &mut pool, start, chosen);
            }
        }
    }
}

/// Runs steps on a ring and on the model of it: this end's position, what it knows to be free, and
/// the peer's position.
fn send_sequence(lab: &Lab, pool: &mut Pool, start: u16, steps: impl Iterator<Item = Step>) {
    let (mut tx, words) = lab.tx(start);
    let base = i64::from(start) + (1 << 20);
    let (mut next, mut known, mut offered) = (base, 0i64, base);
    lab.offer(&words, start);
    for step in steps {
        let buffers = match step {
            Step::Index(distance) => {
                offered = next + i64::from(distance);
                lab.offer(&words, offered as u16);
                continue;
            }
            Step::Send(buffers) => buffers,
        };
        let before = descriptors(&words);
        let mut burst = Burst::from_iter([frame(pool, buffers)]);
        let result = tx.send(&mut burst);
        let mut expected = Ok(1);
        if i64::from(buffers) > known {
            if (known..=i64::from(SLOTS)).contains(&(offered - next)) {
                known = offered - next;
                expected = Ok(usize::from(i64::from(buffers) <= known));
            } else {
                expected = Err(RingFault(Counter::PortMemifBadIndex));
            }
        }
        assert_eq!(result, expected, "{step:?} with next {next}, known {known}, offered {offered}");
        // Nothing is written to slots that were not offered.
        let writable: Vec<u16> = (0..known).map(|slot| (next + slot) as u16 & (SLOTS - 1)).collect();
        for (slot, (old, new)) in before.iter().zip(descriptors(&words)).enumerate() {
            assert!(*old == new || writable.contains(&(slot as u16)), "slot {slot} was not offered");
        }
        match expected {
            Ok(sent) => {
                next += i64::from(buffers) * sent as i64;
                known -= i64::from(buffers) * sent as i64;
            }
            Err(_) => return,
        }
        assert_eq!((tx.progress.next, tx.progress.known), (next as u16, known as u16));
        // The peer owns what was sent, and describes it anew before it offers it again.
        if lab.owner == Owner::Peer {
            lab.describe(&words);
        }
    }
}

/// Frames in place and copied ones in turn, of which the peer reads so many at a time: each is
/// described where it lies, and its buffer is free once the peer has read it.
#[test]
fn a_frame_in_place_keeps_its_buffer_until_the_peer_has_read_it() {
    let lab = Lab::new(Owner::Us);
    for start in STARTS {
        for (reads, copied_every) in [(1, 2), (2, 3), (3, 100), (SLOTS, 1), (SLOTS, 5)] {
            let (mut tx, words) = lab.tx(start);
            let mut placed = lab.region.pool(8192, 8, 128).expect("inside");
            let mut copied = Pool::new(8, 1024);
            let (mut sent, mut read) = (start, start);
            for number in 0..100u16 {
                lab.offer(&words, read.wrapping_add(SLOTS));
                let in_place = number % copied_every != 0;
                let sealed = match in_place {
                    true => numbered(placed.take_any().expect("a free buffer"), number),
                    false => numbered(copied.take_any().expect("a frame"), number),
                };
                assert_eq!(tx.send(&mut Burst::from_iter([sealed])), Ok(1));
                let descriptor = words.descriptor(sent);
                let own = good(sent & (SLOTS - 1));
                assert_eq!(descriptor.offset != own.offset, in_place, "frame {number}");
                assert_eq!((descriptor.flags, descriptor.region, descriptor.len), (0, 0, 2));
                sent = sent.wrapping_add(1);
                if sent.wrapping_sub(read) >= reads {
                    for slot in (0..reads).map(|ahead| read.wrapping_add(ahead)) {
                        let mut bytes = [0; 2];
                        assert!(lab.region.read(words.descriptor(slot).offset as usize, &mut bytes));
                        let expected = number + 1 - sent.wrapping_sub(slot);
                        assert_eq!(u16::from_be_bytes(bytes), expected, "nothing was written there since");
                    }
                    read = read.wrapping_add(reads);
                }
            }
            tx.release_all();
            assert!(placed.is_free() && copied.free_frames() == 8);
        }
    }
}

fn numbered(mut frame: MemifFrame, number: u16) -> MemifSealed {
    frame.resize(2);
    frame.bytes_mut().copy_from_slice(&number.to_be_bytes());
    frame.seal(TxMeta::default())
}

#[test]
fn a_full_ring_takes_no_frame_in_place_and_a_wrong_index_is_a_fault() {
    let lab = Lab::new(Owner::Us);
    let (mut tx, words) = lab.tx(0);
    let mut placed = lab.region.pool(8192, 8, 128).expect("inside");
    let mut burst: Burst<_> =
        (0..=SLOTS).map(|number| numbered(placed.take_any().unwrap(), number)).collect();
    lab.offer(&words, SLOTS);
    assert_eq!(tx.send(&mut burst), Ok(usize::from(SLOTS)));
    assert_eq!((burst.len(), tx.send(&mut burst)), (1, Ok(0)));
    lab.offer(&words, 2 * SLOTS + 1);
    assert_eq!(tx.send(&mut burst), BAD_INDEX.map(|()| 0));
    drop((burst, tx));
    assert!(placed.is_free());
}

#[test]
fn a_pool_outside_of_its_region_is_refused() {
    let lab = Lab::new(Owner::Us);
    for (offset, buffers, bytes) in
        [(0, 0, 64), (REGION_BYTES, 1, 64), (0, 1025, 64), (64, 1024, 64), (0, usize::MAX, 64)]
    {
        assert!(lab.region.pool(offset, buffers, bytes).is_none());
    }
    assert_eq!(lab.region.offset_of(&[0; 4]), None);
}

/// A client that takes back buffers which it has offered, between two looks at its index.
#[test]
fn a_head_that_goes_back_between_two_looks_is_a_fault() {
    for owner in [Owner::Us, Owner::Peer] {
        let (lab, mut pool) = (Lab::new(owner), Pool::new(4, 1024));
        let (mut tx, words) = lab.tx(0);
        lab.offer(&words, 3);
        assert_eq!(tx.send(&mut Burst::from_iter([frame(&mut pool, 1)])), Ok(1));
        assert_eq!(tx.progress.known, 2);
        lab.offer(&words, 2);
        let result = tx.send(&mut Burst::from_iter([frame(&mut pool, 3)]));
        assert_eq!(result, Err(RingFault(Counter::PortMemifBadIndex)), "{owner:?}");
    }
}

/// The kinds of descriptors that a peer writes, and what each costs its frame.
fn kinds(owner: Owner) -> Vec<(Descriptor, Option<Counter>)> {
    let good = good(0);
    let theirs = |descriptor, counter| (descriptor, (owner == Owner::Peer).then_some(counter));
    vec![
        (good, None),
        (Descriptor { flags: NEXT, ..good }, None),
        (Descriptor { len: 0, ..good }, Some(Counter::PortMemifBadLength)),
        (
            Descriptor { flags: NEXT, len: u32::MAX, ..good },
            Some(match owner {
                Owner::Us => Counter::PortMemifBadLength,
                Owner::Peer => Counter::PortMemifBadOffset,
            }),
        ),
        theirs(Descriptor { region: 1, ..good }, Counter::PortMemifBadRegion),
        theirs(Descriptor { offset: u32::MAX, ..good }, Counter::PortMemifBadOffset),
    ]
}

/// Every content of a ring of four descriptors, every number of frames that wait, and pools with
/// no, one and enough buffers.
#[test]
fn every_content_of_a_small_ring_is_split_into_the_same_frames_as_in_a_model() {
    for owner in [Owner::Us, Owner::Peer] {
        let (lab, kinds) = (Lab::new(owner), kinds(owner));
        for start in STARTS {
            for content in 0..kinds.len().pow(SLOTS.into()) {
                let chosen: Vec<_> = (0..SLOTS)
                    .map(|slot| kinds[content / kinds.len().pow(slot.into()) % kinds.len()])
                    .collect();
                for waiting in 0..=SLOTS {
                    for frames in [0, 1, 8] {
                        receive_content(&lab, start, &chosen, waiting, frames);
                    }
                }
            }
        }
    }
}

/// Receives once from a ring whose slots from `start` on have these descriptors.
fn receive_content(
    lab: &Lab,
    start: u16,
    chosen: &[(Descriptor, Option<Counter>)],
    waiting: u16,
    frames: usize,
) {
    let (mut rx, words) = lab.rx(start);
    for (slot, (descriptor, _)) in (0..).zip(chosen) {
        words.set_descriptor(start.wrapping_add(slot), *descriptor);
    }
    lab.sent(&words, start.wrapping_add(waiting));
    let (mut pool, stats, mut burst) = (Pool::new(frames, 1024), CoreStats::detached(), Burst::new());
    assert_eq!(rx.receive(&mut burst, &mut pool, &stats), Ok(()));

    // The model: a frame goes up to a descriptor without NEXT, or to the last one that waits, which
    // is too early.
    let (mut lens, mut used, mut dropped) = (Vec::new(), 0, Vec::new());
    while used < usize::from(waiting) && lens.len() < frames {
        let rest = &chosen[used..usize::from(waiting)];
        let whole = rest.iter().position(|(descriptor, _)| descriptor.flags & NEXT == 0);
        let parts = &rest[..whole.map_or(rest.len(), |last| last + 1)];
        let fault = parts.iter().find_map(|(_, fault)| *fault);
        match fault.or(whole.is_none().then_some(Counter::PortMemifBadChain)) {
            None => lens.push(parts.len() * BUFFER_BYTES as usize),
            Some(reason) => dropped.push(reason),
        }
        used += parts.len();
    }
    let got: Vec<usize> = burst.iter().map(|frame| frame.bytes().len()).collect();
    assert_eq!(got, lens);
    for counter in [
        Counter::PortMemifBadLength,
        Counter::PortMemifBadOffset,
        Counter::PortMemifBadRegion,
        Counter::PortMemifBadChain,
    ] {
        let expected = dropped.iter().filter(|reason| **reason == counter).count() as u64;
        assert_eq!(stats.read(counter), expected, "{counter:?}");
    }
    let left = waiting - used as u16;
    assert_eq!((rx.progress.next, rx.progress.known), (start.wrapping_add(used as u16), left));
    // Taking back a frame that waits, and one more than the ring has.
    if left > 0 {
        lab.sent(&words, rx.progress.next.wrapping_add(left - 1));
        assert_eq!(rx.receive(&mut burst, &mut pool, &stats), BAD_INDEX);
    }
    lab.sent(&words, rx.progress.next.wrapping_add(SLOTS + 1));
    assert_eq!(rx.receive(&mut burst, &mut pool, &stats), BAD_INDEX);
}
