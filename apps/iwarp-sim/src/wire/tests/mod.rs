//! Faults that the checker must detect.

mod messages;

use ironwarp_testkit::mpa;

use super::*;

fn side(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

/// A segment of a connection whose directions both begin at 100.
fn segment(from: u16, offset: u32, payload: &[u8], ack: u32, window: u16) -> Segment {
    let (seq, ack, payload) = (101 + offset, 101 + ack, payload.to_vec());
    Segment { window, payload, ..Segment::new([from, 3 - from], ACK, seq, ack) }
}

/// The checker sees a segment.
fn see(checker: &mut FrameChecker, segment: Segment) -> Result<(), String> {
    checker.on_segment((side(segment.src_port), side(segment.dst_port)), &segment)
}

/// A checker of frames and FPDUs that does not check messages.
fn connected() -> FrameChecker {
    exchange_syns(FrameChecker { checks_messages: false, ..FrameChecker::new(1500, false) })
}

fn exchange_syns(mut checker: FrameChecker) -> FrameChecker {
    let syn = Segment { seq: 100, flags: SYN, ..segment(1, 0, &[], 0, 60_000) };
    assert_eq!(see(&mut checker, syn), Ok(()));
    let answer = Segment { seq: 100, flags: SYN | ACK, ..segment(2, 0, &[], 0, 60_000) };
    assert_eq!(see(&mut checker, answer), Ok(()));
    checker
}

/// A start-up frame without private data.
fn startup() -> Vec<u8> {
    [&b"MPA ID Req Frame"[..], &[0x40, 1, 0, 0]].concat()
}

/// An FPDU of six bytes of ULPDU.
fn fpdu(fill: u8) -> Vec<u8> {
    let mut fpdu = vec![0, 6, fill, fill, fill, fill, fill, fill];
    fpdu.extend(mpa::crc(&fpdu));
    fpdu
}

/// A start-up frame in reply.
fn reply(flags: u8) -> Vec<u8> {
    [&b"MPA ID Rep Frame"[..], &[flags, 1, 0, 0]].concat()
}

fn started() -> FrameChecker {
    let mut checker = connected();
    assert_eq!(see(&mut checker, segment(2, 0, &reply(0x40), 0, 60_000)), Ok(()));
    assert_eq!(see(&mut checker, segment(1, 0, &startup(), 0, 60_000)), Ok(()));
    checker
}

#[test]
fn whole_fpdus_pass_alone_and_together() {
    let mut checker = started();
    assert_eq!(see(&mut checker, segment(1, 20, &fpdu(1), 0, 60_000)), Ok(()));
    let two = [fpdu(2), fpdu(3)].concat();
    assert_eq!(see(&mut checker, segment(1, 32, &two, 0, 60_000)), Ok(()));
    // A partial retransmission still holds whole FPDUs.
    assert_eq!(see(&mut checker, segment(1, 44, &fpdu(3), 0, 60_000)), Ok(()));
}

#[test]
fn a_segment_that_ends_within_an_fpdu_is_detected() {
    let mut checker = started();
    assert_eq!(see(&mut checker, segment(1, 20, &fpdu(1)[..8], 0, 60_000)), Ok(()), "not known yet");
    let rest = see(&mut checker, segment(1, 28, &fpdu(1)[8..], 0, 60_000));
    assert!(rest.unwrap_err().contains("no whole FPDUs"));
}

#[test]
fn a_small_window_allows_a_cut() {
    let mut checker = started();
    assert_eq!(see(&mut checker, segment(2, 0, &[], 20, 60_000)), Ok(()));
    // The right edge stays in place while the window closes.
    assert_eq!(see(&mut checker, segment(2, 0, &[], 20 + 59_000, 1_000)), Ok(()));
    assert_eq!(see(&mut checker, segment(1, 20, &fpdu(1)[..8], 0, 60_000)), Ok(()));
    assert_eq!(see(&mut checker, segment(1, 28, &fpdu(1)[8..], 0, 60_000)), Ok(()));
}

#[test]
fn a_retransmission_that_differs_is_detected() {
    let mut checker = started();
    assert_eq!(see(&mut checker, segment(1, 20, &fpdu(1), 0, 60_000)), Ok(()));
    let again = see(&mut checker, segment(1, 20, &fpdu(2), 0, 60_000));
    assert!(again.unwrap_err().contains("differ"));
}

#[test]
fn a_wrong_crc_is_detected() {
    let mut wrong = fpdu(1);
    wrong[11] ^= 1;
    let outcome = see(&mut started(), segment(1, 20, &wrong, 0, 60_000));
    assert!(outcome.unwrap_err().contains("CRC"));
}

#[test]
fn an_out_of_order_segment_is_checked_when_the_gap_is_filled() {
    let mut checker = started();
    assert_eq!(see(&mut checker, segment(1, 32, &fpdu(2), 0, 60_000)), Ok(()));
    assert_eq!(see(&mut checker, segment(1, 20, &fpdu(1), 0, 60_000)), Ok(()));
    assert_eq!(see(&mut checker, segment(1, 44, &fpdu(3), 0, 60_000)), Ok(()));
}

/// RFC 9293 s3.8.6: a receiver must not shrink its window, and a sender must not exceed it except
/// to probe.
#[test]
fn windows_that_shrink_or_are_exceeded_are_detected() {
    let mut checker = started();
    assert_eq!(see(&mut checker, segment(2, 0, &[], 20, 59_980)), Ok(()));
    assert!(see(&mut checker, segment(2, 0, &[], 20, 59_979)).unwrap_err().contains("shrinks"));
    let beyond = vec![0; 1_000];
    let passed = see(&mut checker, segment(1, 59_500, &beyond, 0, 60_000));
    assert!(passed.unwrap_err().contains("window ends"));
}

/// RFC 5044 s4.3, similar to Figure 6: a marker before the first FPDU, and none unless requested.
#[test]
fn markers_are_where_the_peer_asked_for_them() {
    let with_marker = |marker: [u8; 4], crc: bool| {
        let mut whole = [&marker[..], &[0, 6, 1, 1, 1, 1, 1, 1]].concat();
        whole.extend(if crc { mpa::crc(&whole) } else { [0, 0, 0, 7] });
        whole
    };
    let begun = |flags: u8| {
        let mut checker = connected();
        assert_eq!(see(&mut checker, segment(1, 0, &startup(), 0, 60_000)), Ok(()));
        assert_eq!(see(&mut checker, segment(2, 0, &reply(flags), 0, 60_000)), Ok(()));
        checker
    };
    let first = with_marker([0; 4], true);
    assert_eq!(see(&mut begun(0xc0), segment(1, 20, &first, 0, 60_000)), Ok(()));
    assert!(
        see(&mut begun(0x40), segment(1, 20, &first, 0, 60_000)).is_err(),
        "the peer did not request markers"
    );
    assert!(see(&mut begun(0xc0), segment(1, 20, &fpdu(1), 0, 60_000)).is_err(), "no marker");
    let wrong = with_marker([0, 0, 0, 4], true);
    let outcome = see(&mut begun(0xc0), segment(1, 20, &wrong, 0, 60_000));
    assert!(outcome.unwrap_err().contains("marker"));
    let unchecked = with_marker([0; 4], false);
    assert!(see(&mut begun(0xc0), segment(1, 20, &unchecked, 0, 60_000)).is_err(), "our side requested CRCs");
}

/// RFC 4821 s7.7: an unacknowledged segment may exceed the path MTU.
#[test]
fn a_repeatedly_retransmitted_segment_may_be_cut_and_a_new_one_may_not() {
    let mut checker = started();
    for _ in 0..3 {
        assert_eq!(see(&mut checker, segment(1, 20, &fpdu(1), 0, 60_000)), Ok(()));
    }
    assert_eq!(see(&mut checker, segment(1, 20, &fpdu(1)[..8], 0, 60_000)), Ok(()));
    assert_eq!(see(&mut checker, segment(1, 28, &fpdu(1)[8..], 0, 60_000)), Ok(()));
    assert_eq!(see(&mut checker, segment(1, 32, &fpdu(2)[..8], 0, 60_000)), Ok(()), "not known yet");
    assert!(see(&mut checker, segment(1, 40, &fpdu(2)[8..], 0, 60_000)).is_err());
}
