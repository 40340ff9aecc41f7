//! The view of the bytes that TCP holds beyond a gap (RFC 5044 appendix A.3).

use crate::common;

use common::pattern::bytes_at;
use common::script::Script;
use ironwarp_stats::Counter;
use ironwarp_tcp::{ByteStream, LatestArrival, OutOfOrderBytes, TcpConfig, TcpEvents, Transport};
use proptest::prelude::*;

/// A connection with OUT_OF_ORDER events. Its sequence numbers begin shortly before the wrap
/// (RFC5044-4.3-05).
fn listening() -> Script {
    let mut script = Script::accepted(TcpConfig::default(), 64_000);
    let id = script.id();
    script.node.tcp.report_out_of_order(id);
    script
}

fn segment(script: &mut Script, start: u32, len: u32) -> TcpEvents {
    script.peer(&format!("P. {}:{}({len}) ack 1 win 64000", 1 + start, 1 + start + len));
    script.events()
}

fn latest(script: &mut Script) -> Option<LatestArrival> {
    let id = script.id();
    script.node.tcp.rx(id).latest()
}

fn peek_at(script: &mut Script, at: u32, bytes: usize) -> Option<Vec<u8>> {
    let id = script.id();
    let mut out = vec![0; bytes];
    script.node.tcp.rx(id).peek_at(at, &mut out).then_some(out)
}

#[test]
fn out_of_order_events_are_off_by_default() {
    let mut s = Script::accepted(TcpConfig::default(), 64_000);
    assert_eq!(segment(&mut s, 1_000, 500), TcpEvents::empty());
}

/// RFC5044-3-10, RFC5041-3-06: the bytes are shown with their position in the sender's order.
/// RFC 5044 s4.3.
#[test]
fn out_of_order_bytes_are_reported_and_shown_with_their_position() {
    let mut s = listening();
    assert_eq!(segment(&mut s, 1_000, 500), TcpEvents::OUT_OF_ORDER);
    // Bytes that are held already are no event: the layer above would check all of them again.
    assert_eq!(segment(&mut s, 1_000, 500), TcpEvents::empty());
    assert_eq!(segment(&mut s, 1_499, 1), TcpEvents::empty());
    assert_eq!(latest(&mut s), Some(LatestArrival { piece: 1_000..1_500, run: 1_000..1_500 }));
    assert_eq!(segment(&mut s, 3_000, 500), TcpEvents::OUT_OF_ORDER);
    assert_eq!(latest(&mut s), Some(LatestArrival { piece: 3_000..3_500, run: 3_000..3_500 }));
    segment(&mut s, 1_500, 500);
    assert_eq!(latest(&mut s), Some(LatestArrival { piece: 1_500..2_000, run: 1_000..2_000 }));
    assert_eq!(peek_at(&mut s, 1_100, 900), Some(bytes_at(1_100, 900)));
    assert_eq!(peek_at(&mut s, 1_100, 901), None);
    assert_eq!((peek_at(&mut s, 900, 200), peek_at(&mut s, 2_000, 1)), (None, None));
    let id = s.id();
    let stream = s.node.tcp.rx(id);
    assert_eq!(stream.piece(1_400), bytes_at(1_400, 100));
    assert_eq!(stream.piece(3_499), bytes_at(3_499, 1));
    assert_eq!((stream.piece(999).len(), stream.piece(2_000).len(), stream.available()), (0, 0, 0));
}

/// RFC 5044 A.3, 3: when the gap closes, the bytes are delivered in order and no longer shown.
#[test]
fn no_bytes_are_shown_after_the_gap_has_closed() {
    let mut s = listening();
    segment(&mut s, 1_000, 500);
    assert_eq!(segment(&mut s, 0, 1_000), TcpEvents::READABLE);
    assert_eq!((latest(&mut s), peek_at(&mut s, 1_000, 1)), (None, None));
    assert_eq!(s.read(), 1_500);
}

/// Positions count from the first unread byte.
#[test]
fn positions_count_from_the_first_unread_byte() {
    let mut s = listening();
    segment(&mut s, 0, 400);
    segment(&mut s, 1_000, 500);
    assert_eq!(latest(&mut s), Some(LatestArrival { piece: 1_000..1_500, run: 1_000..1_500 }));
    let id = s.id();
    s.node.tcp.rx(id).consume(300);
    assert_eq!(latest(&mut s), Some(LatestArrival { piece: 700..1_200, run: 700..1_200 }));
    assert_eq!(peek_at(&mut s, 700, 500), Some(bytes_at(1_000, 500)));
}

/// RFC5044-A.3-02: bytes that TCP rejects or does not keep are not shown.
#[test]
fn rejected_bytes_are_not_shown() {
    let mut s = Script::accepted(TcpConfig { ooo_frames_max: 1, ..TcpConfig::default() }, 64_000);
    let id = s.id();
    s.node.tcp.report_out_of_order(id);
    assert_eq!(segment(&mut s, 600_000, 500), TcpEvents::empty(), "beyond the window");
    assert_eq!(segment(&mut s, 1_000, 500), TcpEvents::OUT_OF_ORDER);
    assert_eq!(segment(&mut s, 3_000, 500), TcpEvents::empty(), "no frame is free for a second segment");
    assert_eq!(s.node.read(Counter::TcpDropOutOfOrderFull), 1);
    assert_eq!(latest(&mut s), Some(LatestArrival { piece: 1_000..1_500, run: 1_000..1_500 }));
    assert_eq!(peek_at(&mut s, 3_000, 1), None);
    let mut old = Script::accepted_with(
        TcpConfig::default(),
        "S 0 win 65535 <mss 1460, TS val 100 ecr 0>",
        ". 1 ack 1 win 64000 <TS val 101 ecr 0>",
    );
    let id = old.id();
    old.node.tcp.report_out_of_order(id);
    old.peer("P. 1001:1501(500) ack 1 win 64000 <TS val 50 ecr 0>");
    assert_eq!((old.events(), latest(&mut old)), (TcpEvents::empty(), None), "an old timestamp");
}

#[test]
fn a_released_connection_shows_no_bytes() {
    let mut s = listening();
    let id = s.id();
    segment(&mut s, 1_000, 500);
    s.node.tcp.release(id);
    assert_eq!((latest(&mut s), peek_at(&mut s, 1_000, 1)), (None, None));
    assert!(s.node.tcp.rx(id).piece(1_000).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Segments of any size in any order, with overlaps and repetitions: the shown bytes are those
    /// that were sent at that position, and they include the most recent arrival.
    #[test]
    fn shown_bytes_equal_the_sent_bytes(
        segments in proptest::collection::vec((0..6_000u32, 1..1_400u32), 1..60),
        probe in proptest::collection::vec((0..8_000u32, 1..2_000usize), 1..20),
    ) {
        let mut s = listening();
        let mut here = [false; 8_000];
        for (start, len) in segments {
            let events = segment(&mut s, start, len);
            here[start as usize..(start + len) as usize].fill(true);
            let taken = s.read() as u32;
            s.sent();
            if events.contains(TcpEvents::OUT_OF_ORDER) {
                let shown = latest(&mut s).expect("the arrival is reported");
                prop_assert_eq!((shown.piece.start + taken, shown.piece.end + taken), (start.max(taken), start + len));
                prop_assert!(shown.run.start <= shown.piece.start && shown.piece.end <= shown.run.end);
                let run = peek_at(&mut s, shown.run.start, shown.run.len());
                prop_assert_eq!(run, Some(bytes_at((shown.run.start + taken).into(), shown.run.len())));
            }
            for &(at, bytes) in &probe {
                let whole = (at..at + bytes as u32).all(|at| here.get(at as usize).is_some_and(|&here| here));
                if at > taken {
                    let expected = whole.then(|| bytes_at(at.into(), bytes));
                    prop_assert_eq!(peek_at(&mut s, at - taken, bytes), expected);
                }
            }
        }
    }
}
