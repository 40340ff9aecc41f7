//! Streams with markers: any traffic, any segmentation, each direction separately.

use proptest::prelude::*;

use super::*;
use crate::mpa::marker::{MarkerState, bytes_beside_markers};
use crate::mpa::startup::Markers;

fn started(role: Role, markers: Markers, crc: bool) -> Endpoint {
    let mut side = Endpoint::idle(config());
    side.stream.start(StreamStart { framing: Mpa::new(crc, markers), ..StreamStart::plain(role, crc) });
    side
}

/// An initiator that sends markers and a responder that asked for them. With `both`, the other
/// direction has markers too.
fn marked_pair(both: bool) -> (Endpoint, Endpoint) {
    let a = started(Role::Initiator, Markers { sent: true, received: both }, true);
    let b = started(Role::Responder, Markers { sent: both, received: true }, true);
    (a, b)
}

/// Lent bytes are read in full operation only, and never if markers lie between them
/// (RFC 5044 s7.1.2, s4.3).
#[test]
fn lent_bytes_are_read_in_full_operation_and_without_markers() {
    for marked in [false, true] {
        let mut a = started(Role::Initiator, Markers { sent: marked, received: false }, true);
        let mut b = started(Role::Responder, Markers { sent: false, received: marked }, true);
        let sink = b.region(8, Access::LOCAL_WRITE);
        b.receive(1, &[all(&sink)]);
        assert!(!b.stream.reads_lent_bytes(), "before the first FPDU");
        a.send_inline(1, b"x");
        b.feed(&a.pull(SEGMENT_BYTES)).unwrap();
        assert_eq!(b.stream.reads_lent_bytes(), !marked);
    }
}

/// Removes the markers of a stream that begins with one. Independent of the implementation.
fn without_markers(stream: &[u8]) -> Vec<u8> {
    let kept = |at: &usize| at % 512 >= 4;
    (0..stream.len()).filter(kept).map(|at| stream[at]).collect()
}

/// RFC 5044 s4.3, s7.1.2 rule 7: the stream of one side has a marker every 512 octets from its
/// first FPDU on, for any segment size. Without them it is the stream of FPDUs.
#[test]
fn the_stream_has_a_marker_every_512_octets() {
    for room in [140, 256, 536, 1448, 8960] {
        let mut a = started(Role::Initiator, Markers { sent: true, received: false }, false);
        let source = a.filled(30_000, EVERYTHING);
        a.write(1, &[all(&source)], (STag(7), 0));
        a.send_inline(2, b"and a Send");
        let units = a.pull_all(room);
        assert!(units.iter().all(|unit| unit.len() <= room));
        let stream = units.concat();
        let mut headers = Vec::new();
        let content = without_markers(&stream);
        let mut at = 0;
        while at < content.len() {
            // A position in the content is 4 octets further in the stream for every marker before
            // it.
            headers.push(at + 4 * (at / 508 + 1));
            at += fpdu::fpdu_bytes(u16::from_be_bytes([content[at], content[at + 1]]).into());
        }
        for marker in (0..stream.len()).step_by(512) {
            let begun = headers.iter().rev().find(|&&header| header < marker).copied();
            // Directly after the CRC of an FPDU, so the header of the next one follows: the value
            // is zero.
            let between = headers.contains(&(marker + 4));
            let pointer = if between { 0 } else { marker - begun.unwrap() };
            assert_eq!(
                stream[marker..marker + 4],
                (pointer as u32).to_be_bytes(),
                "at {marker}, room {room}"
            );
        }
    }
}

/// RFC 5044 s5.1, s4.5: a unit is whole FPDUs, the largest of MULPDU for segments with markers.
#[test]
fn segments_hold_whole_fpdus_of_mulpdu() {
    let mut a = started(Role::Initiator, Markers { sent: true, received: false }, true);
    let source = a.filled(100_000, EVERYTHING);
    a.write(1, &[all(&source)], (STag(7), 0));
    let mut marker_state = MarkerState::new();
    let units = a.pull_all(SEGMENT_BYTES);
    assert!(units.len() > 100_000 / SEGMENT_BYTES, "{} segments", units.len());
    for (index, unit) in units.iter().enumerate() {
        let mut scratch = vec![0; 65_536];
        let ulpdu = marker_state.decode(unit, &mut scratch, true).expect("one whole FPDU");
        if index + 1 < units.len() {
            assert_eq!(ulpdu.len(), fpdu::mulpdu(bytes_beside_markers(SEGMENT_BYTES)));
            assert_eq!(
                ulpdu.len(),
                SEGMENT_BYTES - (6 + 4 * SEGMENT_BYTES.div_ceil(512) + SEGMENT_BYTES % 4)
            );
        }
    }
}

/// RFC 5044 s7.1.1: the directions are independent.
#[test]
fn one_direction_may_have_markers_and_the_other_none() {
    for both in [false, true] {
        let (mut a, mut b) = marked_pair(both);
        let (source, sink) = (a.filled(5000, EVERYTHING), b.region(5000, EVERYTHING));
        let (back, home) = (b.filled(3000, EVERYTHING), a.region(3000, EVERYTHING));
        b.receive(1, &[all(&sink)]);
        a.send(1, &[all(&source)]);
        a.read(2, all(&home), remote(&back));
        run(&mut a, &mut b);
        assert_eq!((Endpoint::bytes(&sink), Endpoint::bytes(&home)), (pattern(5000), pattern(3000)));
        assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK)]);
    }
}

/// RFC 5044 s8, code 3: a marker that points elsewhere, with a correct CRC, is reported as 2/0/3.
/// With a wrong CRC it is 2/0/2. What follows is not delivered. RFC 5044 s5.2.
#[test]
fn a_marker_mismatch_ends_the_stream_with_code_3() {
    for (fix_crc, code) in [(true, 3), (false, 2)] {
        let (mut a, mut b) = marked_pair(false);
        let sink = b.region(2000, EVERYTHING);
        b.receive(1, &[all(&sink)]);
        b.receive(2, &[all(&sink)]);
        let source = a.filled(1200, EVERYTHING);
        a.send(1, &[all(&source)]);
        a.send_inline(2, b"after it");
        let mut units = a.pull_all(SEGMENT_BYTES);
        // The first FPDU, with the markers at octets 0, 512 and 1024 of the stream.
        let end = fpdu::fpdu_bytes(18 + 1200) + 3 * 4;
        units[0][515] ^= 8;
        if fix_crc {
            fpdu::set_crc(&mut units[0][..end]);
        }
        let wrong = Terminate { layer: 2, etype: 0, code };
        assert_eq!(b.feed(&units.concat()), Err(StreamError::Failed(wrong)));
        assert_eq!(ids(&b.log.receives), [(1, FLUSHED), (2, FLUSHED)]);
        assert_eq!(Endpoint::bytes(&sink), vec![0; 2000]);
        let counter = if fix_crc { Counter::IwarpRxMarkerErrors } else { Counter::IwarpRxCrcErrors };
        assert_eq!(b.counted(counter), 1);
        assert_eq!(ulpdus(&b.pull(SEGMENT_BYTES))[0][18..20], [0x20, code]);
    }
}

/// RFC 5044 s4.4: a Terminate is an FPDU like any other, with markers.
#[test]
fn a_terminate_has_markers_too() {
    let (mut a, mut b) = marked_pair(true);
    a.send_inline(1, b"no receive is posted");
    let unit = a.pull(SEGMENT_BYTES);
    b.feed(&unit).unwrap_err();
    let unit = b.pull(SEGMENT_BYTES);
    assert_eq!(unit[..4], [0; 4], "the first marker");
    let no_buffer = Terminate { layer: 1, etype: 2, code: 2 };
    assert_eq!(a.feed(&unit), Err(StreamError::PeerTerminated(no_buffer)));
}

/// RFC 5044 s6: every octet boundary of a short stream with markers.
#[test]
fn marked_fpdus_may_be_split_at_every_octet() {
    let (mut a, _) = marked_pair(false);
    let source = a.filled(500, EVERYTHING);
    a.send_inline(1, b"abc");
    a.send(2, &[all(&source)]);
    let stream = a.pull_all(SEGMENT_BYTES).concat();
    for cut in 0..=stream.len() {
        let (_, mut b) = marked_pair(false);
        let sink = b.region(500, EVERYTHING);
        b.receive(1, &[all(&sink)]);
        b.receive(2, &[all(&sink)]);
        b.feed(&stream[..cut]).unwrap();
        b.feed(&stream[cut..]).unwrap();
        assert_eq!(ids(&b.log.receives), [(1, OK), (2, OK)]);
        assert_eq!(Endpoint::bytes(&sink), pattern(500));
        assert_eq!(b.arrived.available(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Markers in any direction, messages of any size, and different segment sizes for sending and
    /// receiving: every octet is placed once and correctly.
    #[test]
    fn messages_arrive_unchanged_for_any_segmentation(
        sizes in proptest::collection::vec(prop_oneof![0..64usize, 0..2500usize, 0..20_000usize], 1..8),
        room in 140..9000usize,
        cuts in proptest::collection::vec(1..3000usize, 1..20),
        crc: bool,
    ) {
        let mut a = started(Role::Initiator, Markers { sent: true, received: false }, crc);
        let mut b = started(Role::Responder, Markers { sent: false, received: true }, crc);
        let mut inboxes = Vec::new();
        for (id, &bytes) in sizes.iter().enumerate() {
            let (source, inbox) = (a.filled(bytes + 1, EVERYTHING), b.region(bytes + 1, EVERYTHING));
            b.receive(id as u64, &[all(&inbox)]);
            a.send(id as u64, &[source.slice(0, bytes as u32).unwrap()]);
            for unit in a.pull_all(room) {
                b.arrived.push(&unit);
            }
            inboxes.push(inbox);
        }
        let stream: Vec<u8> = std::mem::take(&mut b.arrived).0.into_iter().flatten().collect();
        let (mut rest, mut cuts) = (&stream[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, left) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
            b.feed(piece).unwrap();
            rest = left;
        }
        let received: Vec<_> = b.log.receives.iter().map(|done| done.byte_len as usize).collect();
        prop_assert_eq!(&received, &sizes);
        for (inbox, &bytes) in inboxes.iter().zip(&sizes) {
            prop_assert_eq!(&Endpoint::bytes(inbox)[..bytes], &pattern(bytes)[..]);
            prop_assert_eq!(Endpoint::bytes(inbox)[bytes], 0);
        }
    }

    /// A stream with markers whose octets are changed anywhere, also in markers: with CRCs it ends,
    /// or waits for octets that a changed length announced; without them it may continue. Only the
    /// memory of the receives changes.
    #[test]
    fn changed_octets_end_a_marked_stream_or_stay_within_its_receives(
        sizes in proptest::collection::vec(0..1200usize, 1..4),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 1..=255u8), 1..4),
        crc: bool,
    ) {
        let mut a = started(Role::Initiator, Markers { sent: true, received: false }, crc);
        let mut b = started(Role::Responder, Markers { sent: false, received: true }, crc);
        let buffer = b.filled(8192, EVERYTHING);
        let source = a.region(1200, EVERYTHING);
        let mut stream = Vec::new();
        for (id, &bytes) in sizes.iter().enumerate() {
            b.receive(id as u64, &[buffer.slice(64, 1200).unwrap()]);
            a.send(id as u64, &[source.slice(0, bytes as u32).unwrap()]);
            stream.extend(a.pull_all(600).concat());
        }
        let sent = stream.clone();
        changes.iter().for_each(|(at, change)| *at.get_mut(&mut stream[..]) ^= change);
        let first = stream.iter().zip(&sent).position(|(now, before)| now != before);
        let outcome = b.feed(&stream);
        b.pull_all(SEGMENT_BYTES);
        prop_assert_eq!(outcome.is_err(), b.stream.state() == StreamState::Ended);
        let completed = b.log.receives.iter().filter(|done| done.status == OK).count();
        prop_assert!(completed <= sizes.len());
        prop_assert!(outcome.is_ok() || b.log.receives.len() == sizes.len(), "the receives are flushed");
        if crc {
            // What was delivered precedes the first change.
            let delivered: usize = sizes[..completed].iter().sum();
            prop_assert!(first.is_none_or(|first| delivered <= first));
            prop_assert!(first.is_none() || outcome.is_err() || b.arrived.available() > 0);
        }
        let (now, before) = (Endpoint::bytes(&buffer), pattern(8192));
        prop_assert_eq!((&now[..64], &now[1264..]), (&before[..64], &before[1264..]));
    }
}
