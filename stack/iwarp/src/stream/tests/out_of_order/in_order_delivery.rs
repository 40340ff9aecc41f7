//! In-order handling of segments that were placed out of order, and streams that end before.

use ironwarp_mem::{AlignedBuf, AtomicOp};

use super::*;
use crate::rdmap::Rfc7306Profile;
use crate::stream::out_of_order::PLACED_RUNS_MAX;

/// RFC5044-1.2-01, RFC5044-3-11, RFC 5041 s5.4: placement is out of order, delivery is not. A Send
/// after a Write is delivered when everything before it was placed, and segments placed out of
/// order are not copied again.
#[test]
fn delivery_waits_for_the_gap_to_close() {
    let (mut a, mut b) = out_of_order_pair();
    let (source, target) = (a.filled(6000, EVERYTHING), b.region(6000, EVERYTHING));
    let inbox = b.region(16, EVERYTHING);
    b.receive(1, &[all(&inbox)]);
    a.write(1, &[all(&source)], remote(&target));
    a.send_inline(2, b"it was placed");
    let (mut arrival, units) = stream_of(&mut a);
    b.arrive(&mut arrival, units[1].start..).unwrap();
    assert_eq!((b.log.receives.len(), b.counted(Counter::IwarpRxWrites)), (0, 0));
    b.arrive(&mut arrival, units[0].clone()).unwrap();
    assert_eq!((ids(&b.log.receives), b.counted(Counter::IwarpRxWrites)), (vec![(1, OK)], 1));
    assert_eq!(Endpoint::bytes(&target), pattern(6000));
    assert_eq!((placed(&b), b.counted(Counter::IwarpOutOfOrderCopiesSkipped)), (3, 3));
    assert_eq!(arrival.available(), 0);
}

/// `docs/semantics.md`, Placement: octets are not placed again after delivery. Memory that its
/// owner has changed since then stays as it is, whatever is retransmitted.
#[test]
fn octets_placed_out_of_order_are_not_placed_again() {
    let (mut a, mut b) = out_of_order_pair();
    let (source, target) = (a.filled(6000, EVERYTHING), b.region(6000, EVERYTHING));
    a.write(1, &[all(&source)], remote(&target));
    let (mut arrival, units) = stream_of(&mut a);
    b.arrive(&mut arrival, units[1].clone()).unwrap();
    target.write_at(FULL, &[0xaa; FULL]).unwrap();
    b.arrive(&mut arrival, units[1].clone()).unwrap();
    b.arrive(&mut arrival, 0..units[2].end).unwrap();
    target.write_at(2 * FULL, &[0xbb; FULL]).unwrap();
    b.arrive(&mut arrival, units[3].start..).unwrap();
    let mut expected = pattern(6000);
    expected[FULL..2 * FULL].fill(0xaa);
    expected[2 * FULL..3 * FULL].fill(0xbb);
    assert_eq!((Endpoint::bytes(&target), placed(&b)), (expected, 1));
}

/// The last of two messages to one address wins. Here the first is a Send whose receive overlaps a
/// segment of the following Write that was placed out of order.
#[test]
fn a_write_after_a_send_to_the_same_memory_wins() {
    let (mut a, mut b) = out_of_order_pair();
    let (source, target) = (a.filled(6000, EVERYTHING), b.region(6000, EVERYTHING));
    b.receive(1, &[target.slice(0, 4).unwrap(), target.slice(2 * FULL, 16).unwrap()]);
    a.send_inline(1, b"sent before it");
    a.write(2, &[all(&source)], remote(&target));
    let (mut arrival, units) = stream_of(&mut a);
    b.arrive(&mut arrival, units[2].start..).unwrap();
    assert!(placed(&b) > 0);
    b.arrive(&mut arrival, 0..units[2].start).unwrap();
    assert_eq!((ids(&b.log.receives), Endpoint::bytes(&target)), (vec![(1, OK)], pattern(6000)));
    assert_eq!(b.counted(Counter::IwarpOutOfOrderOverwritten), 1);
}

/// A tag that is revoked between placement and in-order handling ends the stream as usual. The
/// octets written while it was valid remain.
#[test]
fn a_tag_revoked_after_placement_ends_the_stream() {
    for at in [0, 1] {
        let (mut a, mut b) = out_of_order_pair();
        // A tag of this stream, which its peer may invalidate (RFC 5040 s8.1.1).
        let scope = AccessScope::new(PD, QpNum(1));
        let target = b.table.register_in_scope(scope, vec![0u8; 6000], EVERYTHING).unwrap();
        let (source, inbox) = (a.filled(6000, EVERYTHING), b.region(16, EVERYTHING));
        b.receive(1, &[all(&inbox)]);
        if at == 0 {
            // This segment is the gap.
            a.post(1, SendOpcode::SendInvalidate, |wqe| {
                wqe.set_inline(b"over");
                wqe.remote_stag = target.stag();
            });
        }
        a.write(2, &[all(&source)], remote(&target));
        let (mut arrival, units) = stream_of(&mut a);
        let out_of_order = units[units.len() - 3].clone();
        b.arrive(&mut arrival, out_of_order.clone()).unwrap();
        assert_eq!(placed(&b), 1);
        if at == 1 {
            drop(target.revoke());
        }
        let invalid = Terminate { layer: 1, etype: 1, code: 0 };
        assert_eq!(b.arrive(&mut arrival, 0..out_of_order.start), Err(StreamError::Failed(invalid)));
        assert_eq!(b.counted(Counter::IwarpRxInvalidates), 1 - at);
        assert_eq!(Endpoint::bytes(&target).iter().filter(|&&octet| octet != 0).count(), FULL);
    }
}

/// RFC 5044 s8, RFC 5041 s7.1: an error in the gap ends the stream. Later octets are not delivered,
/// though some of them are in memory.
#[test]
fn an_error_in_the_gap_ends_the_stream() {
    let (mut a, mut b) = out_of_order_pair();
    let (source, target) = (a.filled(6000, EVERYTHING), b.region(6000, EVERYTHING));
    a.send_inline(1, b"no receive is posted");
    a.write(2, &[all(&source)], remote(&target));
    let (mut arrival, units) = stream_of(&mut a);
    b.arrive(&mut arrival, units[1].start..).unwrap();
    assert!(placed(&b) > 0);
    let no_buffer = Terminate { layer: 1, etype: 2, code: 2 };
    assert_eq!(b.arrive(&mut arrival, units[0].clone()), Err(StreamError::Failed(no_buffer)));
    assert_eq!(b.counted(Counter::IwarpRxWrites), 0);
    assert_eq!((arrival.available(), b.stream.places_out_of_order()), (0, false));
}

/// RFC 5040 s5.5, rules 5 and 6: when the connection is lost, placed octets remain, and every
/// request is flushed.
#[test]
fn placed_octets_remain_when_the_connection_is_lost() {
    let (mut a, mut b) = out_of_order_pair();
    let (source, target) = (a.filled(6000, EVERYTHING), b.region(6000, EVERYTHING));
    let inbox = b.region(16, EVERYTHING);
    b.receive(7, &[all(&inbox)]);
    a.write(1, &[all(&source)], remote(&target));
    let (mut arrival, units) = stream_of(&mut a);
    b.arrive(&mut arrival, units[1].clone()).unwrap();
    b.with(|stream, io| stream.abort(io));
    assert_eq!(ids(&b.log.receives), [(7, FLUSHED)]);
    assert_eq!(Endpoint::bytes(&target)[FULL..2 * FULL], pattern(6000)[FULL..2 * FULL]);
    b.check();
}

/// RFC5040-5.5-02 allows either result, and RFC5041-5.3-05 allows placing a segment twice. Here the
/// later of two messages to one address wins, in any order of arrival.
#[test]
fn the_later_of_two_messages_to_one_place_wins() {
    let (mut a, mut b) = out_of_order_pair();
    let (first, second) = (a.filled(6000, EVERYTHING), a.region(6000, EVERYTHING));
    second.write_at(0, &vec![0x77; 6000]).unwrap();
    let target = b.region(6000, EVERYTHING);
    a.write(1, &[all(&first)], remote(&target));
    a.write(2, &[all(&second)], remote(&target));
    let (mut arrival, units) = stream_of(&mut a);
    let half = units.len() / 2;
    // The second message arrives first, then all of the first except its first segment.
    b.arrive(&mut arrival, units[half].start..).unwrap();
    assert_eq!(Endpoint::bytes(&target)[..3 * FULL], vec![0x77; 3 * FULL]);
    b.arrive(&mut arrival, units[1].start..units[half].start).unwrap();
    assert_eq!(b.counted(Counter::IwarpOutOfOrderSkippedOverlap), 3);
    b.arrive(&mut arrival, units[0].clone()).unwrap();
    assert_eq!(Endpoint::bytes(&target), vec![0x77; 6000]);
    assert_eq!(
        (b.counted(Counter::IwarpOutOfOrderOverwritten), b.counted(Counter::IwarpOutOfOrderCopiesSkipped)),
        (1, 0)
    );
}

/// With more gaps than the record has runs, the remaining segments are placed in order.
#[test]
fn segments_without_space_in_the_record_are_placed_in_order() {
    let (mut a, mut b) = out_of_order_pair();
    let (source, target) = (a.filled(60_000, EVERYTHING), b.region(60_000, EVERYTHING));
    a.write(1, &[all(&source)], remote(&target));
    let (mut arrival, units) = stream_of(&mut a);
    let odd: Vec<_> = units[..units.len() - 1].iter().skip(1).step_by(2).cloned().collect();
    for unit in &odd {
        b.arrive(&mut arrival, unit.clone()).unwrap();
    }
    let room = PLACED_RUNS_MAX as u64;
    assert_eq!((placed(&b), b.counted(Counter::IwarpOutOfOrderSkippedFull)), (room, odd.len() as u64 - room));
    for unit in units.iter().step_by(2) {
        b.arrive(&mut arrival, unit.clone()).unwrap();
    }
    if units.len() % 2 == 0 {
        b.arrive(&mut arrival, units[units.len() - 1].clone()).unwrap();
    }
    assert_eq!((Endpoint::bytes(&target), arrival.available()), (pattern(60_000), 0));
}

/// RFC 5044 A.4: an FPDU in several segments is placed when its last octet has arrived. One whose
/// start is missing waits.
#[test]
fn fpdus_in_several_segments_are_placed_when_complete() {
    let (mut a, mut b) = out_of_order_pair();
    let (source, target) = (a.filled(8000, EVERYTHING), b.region(8000, EVERYTHING));
    a.write(1, &[all(&source)], remote(&target));
    let (mut arrival, units) = stream_of(&mut a);
    let thirds = |unit: &Range<usize>| {
        [unit.start, unit.start + SEGMENT_BYTES / 3, unit.start + 2 * SEGMENT_BYTES / 3, unit.end]
    };
    let [start, one, two, end] = thirds(&units[2]);
    let steps = [(two..end + 700, 0), (start..one, 0), (one..two, 1), (end + 700..units[3].end, 2)];
    for (segment, placements) in steps {
        b.arrive(&mut arrival, segment).unwrap();
        assert_eq!(placed(&b), placements);
    }
    assert_eq!(Endpoint::bytes(&target)[2 * FULL..4 * FULL], pattern(8000)[2 * FULL..4 * FULL]);
    b.arrive(&mut arrival, 0..start).unwrap();
    b.arrive(&mut arrival, units[4].start..).unwrap();
    assert_eq!(
        (Endpoint::bytes(&target), b.counted(Counter::IwarpOutOfOrderCopiesSkipped)),
        (pattern(8000), 2)
    );
}

/// RFC 5040 s5.2.2: a Read Response is placed out of order only within the missing part of the
/// oldest Read. A response to a later Read, or to none, waits.
#[test]
fn a_read_response_is_placed_within_the_missing_part_of_its_read() {
    let reader = |markers| {
        let mut side = Endpoint::idle(StreamConfig { place_out_of_order: OUT_OF_ORDER, ..config() });
        side.stream.start(StreamStart {
            framing: Mpa::new(true, markers),
            ..StreamStart::plain(Role::Initiator, true)
        });
        side
    };
    let mut b = reader(MARKED);
    let mut a = Endpoint::idle(config());
    let markers = Markers { sent: true, received: false };
    a.stream
        .start(StreamStart { framing: Mpa::new(true, markers), ..StreamStart::plain(Role::Responder, true) });
    let source = a.filled(6000, EVERYTHING);
    let sinks = [b.region(6000, Access::LOCAL_WRITE), b.region(6000, Access::LOCAL_WRITE)];
    for (wr_id, sink) in sinks.iter().enumerate() {
        b.read(wr_id as u64, all(sink), remote(&source));
    }
    for request in b.pull_all(SEGMENT_BYTES) {
        a.feed(&request).unwrap();
    }
    b.ack_all();
    let (mut arrival, units) = stream_of(&mut a);
    b.arrive(&mut arrival, units[1].start..).unwrap();
    // Five segments each. Three of the first response are placed; its ends wait, and so does the
    // second response.
    assert_eq!((placed(&b), b.counted(Counter::IwarpOutOfOrderSkippedLast)), (3, 2));
    assert_eq!(b.counted(Counter::IwarpOutOfOrderSkippedResponse), 4);
    assert_eq!(Endpoint::bytes(&sinks[0])[FULL..4 * FULL], pattern(6000)[FULL..4 * FULL]);
    assert_eq!((Endpoint::bytes(&sinks[1]), b.log.sends.len()), (vec![0; 6000], 0));
    b.arrive(&mut arrival, units[0].clone()).unwrap();
    assert_eq!(ids(&b.log.sends), [(0, OK), (1, OK)]);
    assert_eq!((Endpoint::bytes(&sinks[0]), Endpoint::bytes(&sinks[1])), (pattern(6000), pattern(6000)));
    // For a side without an outstanding Read the same stream is a response to no request.
    let mut no_reader = reader(MARKED);
    no_reader.arrive(&mut arrival, units[1].clone()).unwrap();
    assert_eq!(placed(&no_reader), 0);
}

/// An atomic operation precedes a Write in the stream, and a part of the Write is already placed.
/// The result of the operation must not remain, because the Write is the later one.
#[test]
fn an_atomic_over_placed_octets_causes_a_second_placement() {
    let (mut a, mut b) = out_of_order_pair();
    for side in [&mut a, &mut b] {
        (side.stream.config.extensions, side.stream.config.atomic_locked) =
            (Some(Rfc7306Profile::RFC_7306), true);
    }
    let (source, before) = (a.region(8000, EVERYTHING), a.region(8, EVERYTHING));
    source.write_at(0, &[0x77; 8000]).unwrap();
    let target = b.table.register(PD, AlignedBuf::zeroed(8000, 64).unwrap(), EVERYTHING).unwrap();
    a.post(1, SendOpcode::FetchAdd, |wqe| {
        wqe.set_atomic(&AtomicOp::add(1), all(&before));
        (wqe.remote_stag, wqe.remote_to) = (target.stag(), target.base_to() + 4800);
    });
    a.write(2, &[all(&source)], remote(&target));
    let (mut arrival, units) = stream_of(&mut a);
    assert!(units.len() > 5);
    b.arrive(&mut arrival, units[3].clone()).unwrap();
    assert_eq!(Endpoint::bytes(&target)[4800..4808], [0x77; 8], "placed out of order");
    b.arrive(&mut arrival, units[0].clone()).unwrap();
    assert!(!b.pull(SEGMENT_BYTES).is_empty());
    assert_ne!(Endpoint::bytes(&target)[4800..4808], [0x77; 8], "the operation has been carried out");
    assert_eq!(b.counted(Counter::IwarpOutOfOrderOverwritten), 1);
    b.arrive(&mut arrival, units[1].start..units[3].start).unwrap();
    b.arrive(&mut arrival, units[4].start..).unwrap();
    assert_eq!(Endpoint::bytes(&target), vec![0x77; 8000]);
    assert_eq!(b.counted(Counter::IwarpOutOfOrderCopiesSkipped), 0);
}

/// RFC7306-5.4-04, RFC7306-5.4-06: an Atomic Request that arrived behind a gap is executed and
/// answered when it is delivered, which is after the gap has closed.
#[test]
fn an_atomic_behind_a_gap_is_executed_when_the_gap_has_closed() {
    let (mut a, mut b) = out_of_order_pair();
    for side in [&mut a, &mut b] {
        (side.stream.config.extensions, side.stream.config.atomic_locked) =
            (Some(Rfc7306Profile::RFC_7306), true);
    }
    let (source, before) = (a.filled(3000, EVERYTHING), a.region(8, EVERYTHING));
    let target = b.region(3000, EVERYTHING);
    let word = b.table.register(PD, AlignedBuf::zeroed(8, 64).unwrap(), EVERYTHING).unwrap();
    a.write(1, &[all(&source)], remote(&target));
    a.post(2, SendOpcode::FetchAdd, |wqe| {
        wqe.set_atomic(&AtomicOp::add(5), all(&before));
        (wqe.remote_stag, wqe.remote_to) = (word.stag(), word.base_to());
    });
    let (mut arrival, units) = stream_of(&mut a);
    b.arrive(&mut arrival, units[1].start..).unwrap();
    assert!(b.pull(SEGMENT_BYTES).is_empty(), "a response before delivery");
    assert_eq!(Endpoint::bytes(&word), [0; 8], "executed before delivery");
    b.arrive(&mut arrival, units[0].clone()).unwrap();
    assert!(!b.pull(SEGMENT_BYTES).is_empty());
    assert_eq!(Endpoint::bytes(&word), 5_u64.to_ne_bytes());
}
