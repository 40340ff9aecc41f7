//! The conditions of out-of-order placement (RFC 5044 s6, RFC 5041 s7.1; `docs/semantics.md`,
//! Placement).

use super::*;

/// A Write of `bytes` octets from `a` to a region of `b` with `access`, as a stream and its units.
fn write_to(
    a: &mut Endpoint,
    b: &Endpoint,
    bytes: usize,
    access: Access,
) -> (Region, Arrival, Vec<Range<usize>>) {
    let (source, target) = (a.filled(bytes, EVERYTHING), b.region(bytes, access));
    a.write(1, &[all(&source)], remote(&target));
    let (arrival, units) = stream_of(a);
    (target, arrival, units)
}

/// RFC5041-5.3-04, RFC5044-3-09: a segment beyond a gap is in memory before the gap closes, and the
/// octets of the gap are not.
#[test]
fn a_segment_beyond_a_gap_is_placed_at_once() {
    let (mut a, mut b) = out_of_order_pair();
    let (target, mut arrival, units) = write_to(&mut a, &b, 6000, EVERYTHING);
    b.arrive(&mut arrival, units[2].clone()).unwrap();
    let expected = pattern(6000);
    let held = Endpoint::bytes(&target);
    assert_eq!(held[2 * FULL..3 * FULL], expected[2 * FULL..3 * FULL]);
    assert_eq!(
        (&held[..2 * FULL], &held[3 * FULL..]),
        (&vec![0; 2 * FULL][..], &vec![0; 6000 - 3 * FULL][..])
    );
    assert_eq!((placed(&b), b.counted(Counter::IwarpRxFpdus)), (1, 0));
}

/// `docs/semantics.md`, Placement: the final segment of a Write is never placed out of order.
/// Applications poll its last octet.
#[test]
fn the_end_of_a_write_is_placed_in_order() {
    let (mut a, mut b) = out_of_order_pair();
    let (target, mut arrival, units) = write_to(&mut a, &b, 6000, EVERYTHING);
    for unit in units[1..].iter().rev() {
        b.arrive(&mut arrival, unit.clone()).unwrap();
    }
    let (held, expected) = (Endpoint::bytes(&target), pattern(6000));
    assert_eq!(held[FULL..4 * FULL], expected[FULL..4 * FULL]);
    assert_eq!((&held[4 * FULL..], held[0]), (&vec![0; 6000 - 4 * FULL][..], 0));
    assert_eq!((placed(&b), b.counted(Counter::IwarpOutOfOrderSkippedLast)), (3, 1));
}

/// The setting is off by default, and nothing else enables it.
#[test]
fn without_the_setting_nothing_is_placed_out_of_order() {
    let (mut a, mut b) = (sender(), receiver(false, MARKED, true));
    let (target, mut arrival, units) = write_to(&mut a, &b, 6000, EVERYTHING);
    assert!(!b.stream.places_out_of_order());
    for unit in &units[1..] {
        b.arrive(&mut arrival, unit.clone()).unwrap();
    }
    assert_eq!((Endpoint::bytes(&target), placed(&b)), (vec![0; 6000], 0));
}

/// RFC 5044 s6, RFC5044-6-02: without markers no start beyond a gap is known, although every
/// segment here begins with a valid FPDU. A receiver must not depend on alignment (RFC5044-A.4-01).
#[test]
fn without_markers_nothing_is_placed_out_of_order() {
    let (mut a, mut b) = (Endpoint::initiator(), receiver(OUT_OF_ORDER, Markers::default(), true));
    let (target, mut arrival, units) = write_to(&mut a, &b, 6000, EVERYTHING);
    assert!(!b.stream.places_out_of_order());
    for unit in &units[1..] {
        assert!(fpdu::decode(&arrival.octets[unit.clone()], true).is_ok());
        b.arrive(&mut arrival, unit.clone()).unwrap();
    }
    assert_eq!((Endpoint::bytes(&target), placed(&b)), (vec![0; 6000], 0));
}

/// RFC 5044 s6, rule 2 requires FPDUs with valid CRCs. Without CRCs there are none.
#[test]
fn without_crcs_nothing_is_placed_out_of_order() {
    let (mut a, mut b) = (sender(), receiver(OUT_OF_ORDER, MARKED, false));
    let (target, mut arrival, units) = write_to(&mut a, &b, 6000, EVERYTHING);
    assert!(!b.stream.places_out_of_order());
    for unit in &units[1..] {
        b.arrive(&mut arrival, unit.clone()).unwrap();
    }
    assert_eq!((Endpoint::bytes(&target), placed(&b)), (vec![0; 6000], 0));
}

/// RFC 5044 s6: the peer's application writes octets that form a valid FPDU, and a middlebox cuts
/// the stream where they begin. The next marker shows to which FPDU they belong.
#[test]
fn payload_that_looks_like_an_fpdu_is_not_placed() {
    let (mut a, mut b) = out_of_order_pair();
    let (secret, target) = (b.region(64, EVERYTHING), b.region(1400, EVERYTHING));
    let mut forged = vec![0x81, 0x40];
    forged.extend(secret.stag().0.to_be_bytes());
    forged.extend(secret.base_to().to_be_bytes());
    forged.extend([0x66; 32]);
    let source = a.region(1400, EVERYTHING);
    // The payload begins after a marker, a length field and a header: 20 octets. The next marker is
    // at 512.
    source.write_at(60 - 20, &framed(&forged)).unwrap();
    a.write(1, &[all(&source)], remote(&target));
    let (mut arrival, units) = stream_of(&mut a);
    let looks = &arrival.octets[60..60 + framed(&forged).len()];
    assert_eq!(looks, framed(&forged));
    b.arrive(&mut arrival, 60..units[0].end).unwrap();
    assert_eq!((Endpoint::bytes(&secret), placed(&b)), (vec![0; 64], 0));
    assert_eq!(b.counted(Counter::IwarpOutOfOrderSkippedNoMarker), 1);
    b.arrive(&mut arrival, 0..60).unwrap();
    assert_eq!((Endpoint::bytes(&secret), Endpoint::bytes(&target)), (vec![0; 64], Endpoint::bytes(&source)));
}

/// RFC5044-6-03: a wrong CRC, or a wrong marker with a correct CRC, places nothing and stops
/// out-of-order placement permanently. In order it ends the stream (RFC 5044 s8).
#[test]
fn a_damaged_fpdu_stops_out_of_order_placement() {
    for (fix_crc, code) in [(false, 2), (true, 3)] {
        let (mut a, mut b) = out_of_order_pair();
        let (target, mut arrival, units) = write_to(&mut a, &b, 8000, EVERYTHING);
        let unit = units[2].clone();
        // The last marker in the unit, so that the first one still locates the start.
        let marker = (unit.end - 1) / 512 * 512;
        arrival.octets[marker + 3] ^= 8;
        if fix_crc {
            fpdu::set_crc(&mut arrival.octets[unit.clone()]);
        }
        b.arrive(&mut arrival, unit).unwrap();
        b.arrive(&mut arrival, units[3].clone()).unwrap();
        assert_eq!((Endpoint::bytes(&target), placed(&b)), (vec![0; 8000], 0));
        assert_eq!(b.counted(Counter::IwarpOutOfOrderSkippedBadFpdu), 1);
        let wrong = Terminate { layer: 2, etype: 0, code };
        assert_eq!(b.arrive(&mut arrival, 0..units[2].start), Err(StreamError::Failed(wrong)));
    }
}

/// RFC 5044 s8: a damaged FPDU that the sending TCP retransmits correctly is accepted in order.
#[test]
fn a_damaged_fpdu_may_be_retransmitted_correctly() {
    let (mut a, mut b) = out_of_order_pair();
    let (target, mut arrival, units) = write_to(&mut a, &b, 8000, EVERYTHING);
    arrival.octets[units[2].end - 1] ^= 1;
    b.arrive(&mut arrival, units[1].clone()).unwrap();
    b.arrive(&mut arrival, units[2].clone()).unwrap();
    arrival.octets[units[2].end - 1] ^= 1;
    b.arrive(&mut arrival, ..).unwrap();
    assert_eq!((Endpoint::bytes(&target), placed(&b)), (pattern(8000), 1));
    assert_eq!(b.counted(Counter::IwarpRxWrites), 1);
}

/// RFC 5041 s5.3: only tagged segments carry their own position.
#[test]
fn untagged_segments_are_placed_in_order() {
    let (mut a, mut b) = out_of_order_pair();
    let (source, inbox) = (a.filled(6000, EVERYTHING), b.region(6000, EVERYTHING));
    b.receive(1, &[all(&inbox)]);
    a.send(1, &[all(&source)]);
    let (mut arrival, units) = stream_of(&mut a);
    b.arrive(&mut arrival, units[1].start..).unwrap();
    assert_eq!((Endpoint::bytes(&inbox), b.log.receives.len()), (vec![0; 6000], 0));
    assert_eq!((placed(&b), b.counted(Counter::IwarpOutOfOrderSkippedUntagged)), (0, units.len() as u64 - 1));
}

/// RFC5044-A.3-02 and RFC 5041 s7.1: every check before placement also applies out of order. A
/// segment that fails one waits, and ends the stream in order.
#[test]
fn access_checks_apply_to_out_of_order_placement() {
    /// A region of which the peer may not write 6000 octets, the start of the Write, the error type
    /// and code, and how many of the segments beyond the gap are inside the region nevertheless.
    type Case = (fn(&Endpoint) -> (Option<Region>, (STag, u64)), (u8, u8), u64);
    fn with_region(region: Region) -> (Option<Region>, (STag, u64)) {
        let at = remote(&region);
        (Some(region), at)
    }
    let cases: [Case; 6] = [
        (|b| with_region(b.region(6000, Access::LOCAL_WRITE | Access::REMOTE_READ)), (1, 0), 0),
        (|b| with_region(b.region(3000, EVERYTHING)), (1, 1), 1),
        (|b| (None, remote(&b.region(6000, EVERYTHING))), (1, 0), 0),
        (|b| with_region(b.table.register(PdId(77), vec![0u8; 6000], EVERYTHING).unwrap()), (1, 2), 0),
        (|_| (None, (STag(0x1234_5678), 0)), (1, 0), 0),
        (|b| (with_region(b.region(6000, EVERYTHING)).0, (b.region(9, EVERYTHING).stag(), 0)), (1, 0), 0),
    ];
    for (number, (made, (etype, code), fitting)) in cases.into_iter().enumerate() {
        let (mut a, mut b) = out_of_order_pair();
        let (_region, at) = made(&b);
        let source = a.filled(6000, EVERYTHING);
        a.write(1, &[all(&source)], at);
        let (mut arrival, units) = stream_of(&mut a);
        b.arrive(&mut arrival, units[1].start..).unwrap();
        assert_eq!(
            (placed(&b), b.counted(Counter::IwarpOutOfOrderSkippedAccess)),
            (fitting, 3 - fitting),
            "{number}"
        );
        let wrong = Terminate { layer: 1, etype, code };
        let ended = b.arrive(&mut arrival, 0..units[1].start);
        assert_eq!(ended, Err(StreamError::Failed(wrong)), "{number}");
    }
}

/// A stream that has ended, or that waits for quiescence, places nothing.
#[test]
fn a_stream_that_accepts_no_fpdus_places_nothing() {
    let (mut a, mut b) = out_of_order_pair();
    let (target, mut arrival, units) = write_to(&mut a, &b, 6000, EVERYTHING);
    b.with(|stream, io| stream.abort(io));
    assert!(!b.stream.places_out_of_order());
    b.arrive(&mut arrival, units[1].clone()).unwrap();
    assert_eq!((Endpoint::bytes(&target), placed(&b)), (vec![0; 6000], 0));
}
