//! The rings of a link whose peer a sequence of bytes describes: no socket and no system call.
//!
//! The peer moves either index to any value, writes any descriptor and any word, between the bursts
//! of this end. A fault ends the link, and the next one starts over the same memory.

use std::cell::RefCell;

use super::*;
use crate::TxOffloads;
use crate::memif::ring::{Buffers, RxRing, TxRing};

/// Frames of each pool: fewer than the ring may bring, so that it is empty at times.
const FRAMES: usize = 12;
const FRAME_BYTES: usize = 512;
/// Where the two rings and the buffers begin.
const TO_US: usize = 0;
const FROM_US: usize = 512;
const BUFFERS: u32 = 1024;
/// Bytes of a shared buffer: a frame takes up to eight.
const BUFFER_BYTES: u32 = 64;
/// Where frames in place are built: fewer than a ring has slots.
const IN_PLACE: usize = 8 << 10;
const IN_PLACE_FRAMES: usize = 6;

/// What is made once for all scripts of a thread.
struct Lab {
    region: Arc<Region>,
    pools: [Pool; 2],
    in_place: Pool,
    stats: CoreStats,
}

thread_local! {
    static LAB: RefCell<Lab> = RefCell::new({
        let region = Arc::new(Region::create(REGION_BYTES as usize).expect("a memfd").0);
        Lab {
            in_place: region.pool(IN_PLACE, IN_PLACE_FRAMES, FRAME_BYTES).expect("inside"),
            region,
            pools: [0, 1].map(|_| Pool::new(FRAMES, FRAME_BYTES)),
            stats: CoreStats::detached(),
        }
    });
}

/// The rings of one link, and the peer's view of them.
struct Rings {
    rx: RxRing,
    tx: TxRing,
    peer: [RingWords; 2],
}

/// Runs rings whose peer does what `script` says; its first byte chooses the owner of the buffers,
/// the size of the rings, and whether checksums are left out. Returns the frames that were received
/// and sent.
pub fn hostile_rings(script: &[u8]) -> (u64, u64) {
    LAB.with_borrow_mut(|lab| {
        let mut input = Input(script);
        let first = input.u8();
        let (ours, log2) = (first & 1 == 0, 1 + (first >> 1) % 3);
        let partial = first & 0x40 != 0;
        let mut rings = lab.rings(ours, log2, partial);
        let (mut received, mut sent) = (0, 0);
        while !input.0.is_empty() {
            let result = match input.u8() % 8 {
                0 | 1 => rings.receive(lab).map(|frames| received += frames),
                2 | 3 => rings.send(lab, &mut input).map(|frames| sent += frames),
                4 => rings.move_index(&mut input),
                5 => rings.describe(&mut input),
                6 => rings.offer(&mut input),
                _ => lab.write_word(&mut input),
            };
            if result.is_err() {
                rings = lab.rings(ours, log2, partial);
            }
        }
        drop(rings);
        assert!(lab.in_place.is_free(), "frames in place are lost");
        let free = lab.pools.each_ref().map(Pool::free_frames);
        assert_eq!(free, [FRAMES; 2], "frames are lost");
        (received, sent)
    })
}

impl Lab {
    fn rings(&self, ours: bool, log2: u8, partial: bool) -> Rings {
        let words = |at| RingWords::new(&self.region, at, log2).expect("a ring");
        for at in [TO_US, FROM_US] {
            words(at).initialise();
        }
        let buffers = |first| {
            if ours {
                Buffers::Ours { region: self.region.clone(), first, bytes: BUFFER_BYTES }
            } else {
                Buffers::Theirs([self.region.clone()].into())
            }
        };
        Rings {
            rx: RxRing::new(words(TO_US), buffers(BUFFERS), partial),
            tx: TxRing::new(words(FROM_US), buffers(2 * BUFFERS), partial),
            peer: [words(TO_US), words(FROM_US)],
        }
    }

    fn write_word(&self, input: &mut Input<'_>) -> Result<(), RingFault> {
        let (at, word) = (usize::from(input.u16()) * 8, input.u64());
        self.region.write(at, &word.to_le_bytes());
        Ok(())
    }
}

impl Rings {
    fn receive(&mut self, lab: &mut Lab) -> Result<u64, RingFault> {
        let mut burst = Burst::new();
        let result = self.rx.receive(&mut burst, &mut lab.pools[0], &lab.stats);
        for frame in &burst {
            assert!((1..=FRAME_BYTES).contains(&frame.bytes().len()));
        }
        result.map(|()| burst.len() as u64)
    }

    fn send(&mut self, lab: &mut Lab, input: &mut Input<'_>) -> Result<u64, RingFault> {
        let (count, bytes) = (input.u8() % 8, usize::from(input.u16()));
        let mut burst: Burst<MemifSealed> = Burst::new();
        for number in 0..count {
            let pool = if number & 1 == 0 { &mut lab.pools[1] } else { &mut lab.in_place };
            let Some(mut frame) = pool.take_any() else { break };
            frame.resize(1 + bytes % FRAME_BYTES);
            let offloads = TxOffloads::from_bits_truncate(number & 2);
            burst.push(frame.seal(TxMeta { l2_bytes: 14, l3_bytes: 20, l4_bytes: 32, offloads }));
        }
        let waiting = burst.len();
        let sent = self.tx.send(&mut burst)?;
        assert_eq!(sent + burst.len(), waiting);
        Ok(sent as u64)
    }

    fn ring(&self, number: u8) -> &RingWords {
        &self.peer[usize::from(number & 1)]
    }

    /// Moves an index by a little, forward or back, or to any value.
    fn move_index(&self, input: &mut Input<'_>) -> Result<(), RingFault> {
        let (which, by) = (input.u8(), input.u16());
        let ring = self.ring(which);
        let index = if which & 2 == 0 { ring.head() } else { ring.tail() };
        let near = index.load(Ordering::Relaxed).wrapping_add(by % 16).wrapping_sub(8);
        index.store(if which & 4 == 0 { near } else { by }, Ordering::Release);
        Ok(())
    }

    fn describe(&self, input: &mut Input<'_>) -> Result<(), RingFault> {
        let (number, slot) = (input.u8(), input.u16());
        let descriptor = Descriptor {
            flags: u16::from(input.u8()),
            region: input.near(0) as u16,
            len: input.near(BUFFER_BYTES),
            offset: input.near(BUFFERS),
        };
        self.ring(number).set_descriptor(slot, descriptor);
        Ok(())
    }

    /// Does what an honest peer does: describes a few slots and moves its index over them.
    fn offer(&self, input: &mut Input<'_>) -> Result<(), RingFault> {
        let (which, count, flags) = (input.u8(), u16::from(input.u8() % 5), u16::from(input.u8() & 1));
        let ring = self.ring(which);
        let index = if which & 2 == 0 { ring.head() } else { ring.tail() };
        let first = index.load(Ordering::Relaxed);
        for slot in 0..count {
            let flags = if slot + 1 == count { 0 } else { flags };
            let at = first.wrapping_add(slot);
            let offset = BUFFERS + u32::from(at % 8) * BUFFER_BYTES;
            ring.set_descriptor(at, Descriptor { flags, region: 0, len: BUFFER_BYTES, offset });
        }
        index.store(first.wrapping_add(count), Ordering::Release);
        Ok(())
    }
}
