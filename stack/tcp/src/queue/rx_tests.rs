//! Compares the receive queues with a plain array of bytes and with smoltcp's range tracker.

use ironwarp_port::memory::MemoryFrame;
use proptest::prelude::*;
use smoltcp::storage::Assembler;

use super::*;
use ironwarp_types::Seq;

/// The start of the stream, shortly before the wrap.
const BASE: Seq = Seq(u32::MAX - 700);
const STREAM_BYTES: u32 = 4_000;
const HEADERS: u16 = 54;

fn byte(at: u32) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 24) as u8
}

fn piece(at: u32, len: u32, spare: usize) -> Piece<MemoryFrame> {
    let mut bytes = vec![0; usize::from(HEADERS)];
    bytes.extend((at..at + len).map(byte));
    // Link-layer padding follows the segment and must not be taken for payload.
    bytes.extend([0xdd; 6]);
    let capacity = bytes.len() + spare;
    let frame = MemoryFrame::detached(&bytes, capacity);
    Piece { frame, seq: BASE.plus(at), start: HEADERS, end: HEADERS + len as u16 }
}

/// One connection's queues, with RCV.NXT and the count of unread bytes.
struct Receiver {
    arena: Arena<Piece<MemoryFrame>>,
    queues: RxQueues,
    rcv_nxt: Seq,
    unread: u32,
    taken: u32,
}

impl Receiver {
    fn new(frames: u32) -> Self {
        Receiver {
            arena: Arena::new(0, frames),
            queues: RxQueues::new(0, 0),
            rcv_nxt: BASE,
            unread: 0,
            taken: 0,
        }
    }

    /// Processes a segment as the seventh step does.
    fn arrive(&mut self, mut piece: Piece<MemoryFrame>, frames_max: u16) -> bool {
        piece.trim_front(self.rcv_nxt);
        let seq_end = piece.seq_end();
        let accepted = match (piece.len(), piece.seq == self.rcv_nxt) {
            (0, _) => true,
            (_, false) => self.queues.push_out_of_order(&mut self.arena, piece, frames_max).is_ok(),
            (_, true) => {
                let to = self.queues.push_in_order(&mut self.arena, piece);
                self.advance(to);
                let all = self.queues.close_gap(&mut self.arena, to);
                self.advance(all);
                to == seq_end
            }
        };
        self.queues.check(&self.arena, self.rcv_nxt, self.unread).expect("valid queues");
        accepted
    }

    fn advance(&mut self, to: Seq) {
        self.unread += to.since(self.rcv_nxt);
        self.rcv_nxt = to;
    }

    fn read(&mut self, n: u32) {
        let n = n.min(self.unread);
        let bytes: Vec<u8> =
            self.arena.iter(&self.queues.in_order).flat_map(|piece| piece.bytes()).copied().collect();
        assert!(bytes.iter().take(n as usize).copied().eq((self.taken..self.taken + n).map(byte)));
        self.queues.consume(&mut self.arena, n);
        self.unread -= n;
        self.taken += n;
    }

    fn out_of_order_ranges(&self) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for piece in self.arena.iter(&self.queues.out_of_order) {
            let (from, to) = (piece.seq.since(BASE), piece.seq_end().since(BASE));
            match ranges.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                _ => ranges.push((from, to)),
            }
        }
        ranges
    }
}

fn arrivals() -> impl Strategy<Value = Vec<(u32, u32, usize, u32)>> {
    prop::collection::vec((0..STREAM_BYTES, 1u32..600, 0usize..300, 0u32..500), 1..120)
}

proptest! {
    /// For any order and overlap of arrivals, every byte is read once, in order and unchanged.
    #[test]
    fn every_byte_is_read_once_and_unchanged(arrivals in arrivals()) {
        let mut receiver = Receiver::new(10_000);
        let mut arrived = vec![false; STREAM_BYTES as usize];
        for (at, len, spare, read) in arrivals {
            let len = len.min(STREAM_BYTES - at);
            prop_assert!(receiver.arrive(piece(at, len, spare), u16::MAX));
            arrived[at as usize..(at + len) as usize].fill(true);
            let contiguous = arrived.iter().take_while(|&&here| here).count() as u32;
            prop_assert_eq!(receiver.rcv_nxt, BASE.plus(contiguous));
            receiver.read(read);
        }
        receiver.read(STREAM_BYTES);
        prop_assert_eq!(receiver.arena.in_use(), usize::from(receiver.queues.out_of_order.len()));
    }

    /// The ranges held beyond the gap equal those of smoltcp's tracker.
    #[test]
    fn out_of_order_ranges_agree_with_smoltcp(arrivals in prop::collection::vec((1u32..STREAM_BYTES, 1u32..1_200), 1..40)) {
        let mut receiver = Receiver::new(10_000);
        let mut oracle = Assembler::new();
        for (at, len) in arrivals {
            let len = len.min(STREAM_BYTES - at);
            // The tracker has four ranges at most; what it refuses is not sent.
            if oracle.add(at as usize, len as usize).is_ok() {
                receiver.arrive(piece(at, len, 0), u16::MAX);
            }
            let expected: Vec<(u32, u32)> =
                oracle.iter_data().map(|(from, to)| (from as u32, to as u32)).collect();
            prop_assert_eq!(receiver.out_of_order_ranges(), expected);
        }
    }

    /// With any limit on frames, the stream completes when the peer repeats refused bytes.
    #[test]
    fn the_stream_completes_with_few_frames(arrivals in arrivals(), frames in 1u32..5, frames_max in 0u16..4) {
        let mut receiver = Receiver::new(frames);
        for (at, len, spare, _) in arrivals {
            receiver.arrive(piece(at, len.min(STREAM_BYTES - at), spare), frames_max);
            receiver.read(300);
        }
        while receiver.taken < STREAM_BYTES {
            let at = receiver.rcv_nxt.since(BASE);
            if at < STREAM_BYTES {
                receiver.arrive(piece(at, 500.min(STREAM_BYTES - at), 0), frames_max);
            }
            let before = receiver.taken;
            receiver.read(300);
            prop_assert!(receiver.taken > before);
        }
    }
}

#[test]
fn small_segments_share_a_frame() {
    let mut receiver = Receiver::new(100);
    for at in 0..200 {
        receiver.arrive(piece(at, 1, 150), 8);
    }
    assert_eq!(receiver.queues.in_order.len(), 2);
    receiver.read(200);
    assert_eq!(receiver.arena.in_use(), 0);
}

#[test]
fn small_out_of_order_segments_share_a_frame() {
    let mut receiver = Receiver::new(100);
    for at in 1..100 {
        receiver.arrive(piece(at, 1, 150), 8);
    }
    assert_eq!(receiver.queues.out_of_order.len(), 1);
    receiver.arrive(piece(0, 1, 0), 8);
    receiver.read(100);
    assert_eq!(receiver.taken, 100);
}

/// docs/semantics.md, Window: a byte that was reported as held is never dropped, even if memory is
/// short when a larger segment covers it.
#[test]
fn a_segment_that_covers_held_bytes_replaces_them_when_memory_is_full() {
    let mut receiver = Receiver::new(4);
    assert!(receiver.arrive(piece(100, 50, 0), 8));
    let mut others = List::with_reserve(0);
    for _ in 0..2 {
        assert!(receiver.arena.push_back(&mut others, piece(0, 1, 0)).is_ok());
    }
    assert!(!receiver.arrive(piece(300, 50, 0), 8), "no node is free");
    receiver.arrive(piece(80, 100, 0), 8);
    assert!(receiver.queues.holds(&receiver.arena, BASE.plus(100), BASE.plus(150)));
}
