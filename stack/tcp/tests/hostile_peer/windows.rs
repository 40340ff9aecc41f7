//! Windows that shrink, close, or are announced wrongly.

use ironwarp_stats::Counter;
use ironwarp_tcp::{ConnId, TcpConfig, TcpEvents, Transport};
use ironwarp_types::Nanos;
use proptest::prelude::*;

use crate::common::node::{Node, addr};
use crate::common::pattern::{Pattern, read_all};
use crate::common::raw::{ACK, PORT, Peer, Segment};

const MSS_1000: [u8; 4] = [2, 4, 0x03, 0xe8];

fn opened(window: u16) -> (Node, Peer, ConnId) {
    let config = TcpConfig {
        rto_min: Nanos::from_millis(10),
        rto_initial: Nanos::from_millis(10),
        user_timeout: Nanos::from_secs(2),
        rto_max: Nanos::from_millis(500),
        ..TcpConfig::default()
    };
    let mut node = Node::new(1, 1_500, config);
    node.tcp.listen(addr(1, PORT)).expect("room");
    let (mut peer, id) = Peer::open(&mut node, 40_000, u32::MAX - 99, &MSS_1000);
    peer.window = window;
    peer.send_raw(&mut node, peer.raw(ACK));
    (node, peer, id)
}

/// Returns what we sent since the last call, as ranges of the stream.
fn ranges(node: &mut Node, peer: &mut Peer) -> Vec<(u32, u32)> {
    let first = peer.our_iss.wrapping_add(1);
    let sent = peer.receive_all(node);
    let range = |captured: &crate::common::raw::Segment| {
        let from = captured.seq.wrapping_sub(first);
        (from, from + captured.payload.len() as u32)
    };
    sent.iter().filter(|captured| !captured.payload.is_empty()).map(range).collect()
}

fn says(node: &mut Node, peer: &Peer, ack: u32, window: u16) {
    let ack = peer.our_iss.wrapping_add(1).wrapping_add(ack);
    peer.send_raw(node, Segment { ack, window, ..peer.raw(ACK) });
}

/// RFC 9293 s3.8.6, MUST-34 and SHLD-15: the right edge moves left of the sent data. No new data
/// follows until it has moved right again.
#[test]
fn no_new_data_is_sent_beyond_an_edge_that_moved_left() {
    let (mut node, mut peer, id) = opened(10_000);
    let mut source = Pattern::new(20_000, 1_000);
    node.transmit(id, &mut source, 8);
    assert_eq!(ranges(&mut node, &mut peer).last(), Some(&(7_000, 8_000)));
    says(&mut node, &peer, 2_000, 3_000);
    node.transmit(id, &mut source, 8);
    assert_eq!(ranges(&mut node, &mut peer), []);
    says(&mut node, &peer, 5_000, 3_500);
    node.transmit(id, &mut source, 8);
    assert_eq!(ranges(&mut node, &mut peer), []);
    says(&mut node, &peer, 8_000, 2_000);
    node.transmit(id, &mut source, 8);
    assert_eq!(ranges(&mut node, &mut peer), [(8_000, 9_000), (9_000, 10_000)]);
}

/// RFC 9293 s3.8.6, SHLD-16: unacknowledged data inside a window that shrank is retransmitted by
/// the timer. SHLD-17: a peer that answers is not aborted because of the data beyond.
#[test]
fn data_inside_a_shrunk_window_is_retransmitted_and_the_rest_waits() {
    let (mut node, mut peer, id) = opened(10_000);
    let mut source = Pattern::new(5_000, 1_000);
    node.transmit(id, &mut source, 8);
    ranges(&mut node, &mut peer);
    says(&mut node, &peer, 0, 2_000);
    for _ in 0..3 {
        node.now += Nanos::from_millis(501);
        node.timers();
        let again = ranges(&mut node, &mut peer);
        // All of the first unit, or the part that a sender sends while it suspects a black hole.
        assert!(again.iter().any(|&(from, to)| from == 0 && to <= 2_000), "{again:?}");
        says(&mut node, &peer, 0, 2_000);
    }
    says(&mut node, &peer, 2_000, 0);
    // A closed window with a peer that answers, for longer than the user timeout.
    for _ in 0..20 {
        node.now += Nanos::from_millis(501);
        node.timers();
        node.sent();
        says(&mut node, &peer, 2_000, 0);
    }
    assert_eq!(node.take_events(id) & TcpEvents::ENDED, TcpEvents::empty());
    says(&mut node, &peer, 2_000, 10_000);
    node.now += Nanos::from_millis(501);
    node.timers();
    node.transmit(id, &mut source, 8);
    peer.receive_all(&mut node);
    says(&mut node, &peer, 5_000, 10_000);
    assert!(node.tcp.all_acked(id));
}

/// RFC 9293 s3.8.6, MUST-35: a window that closes while data is in flight is probed until it opens.
#[test]
fn a_window_that_shrinks_to_zero_is_probed() {
    let (mut node, mut peer, id) = opened(10_000);
    node.transmit(id, &mut Pattern::new(5_000, 1_000), 8);
    ranges(&mut node, &mut peer);
    says(&mut node, &peer, 2_000, 0);
    let mut probes = 0;
    for _ in 0..10 {
        node.now += Nanos::from_millis(501);
        node.timers();
        probes += ranges(&mut node, &mut peer).len();
        says(&mut node, &peer, 2_000, 0);
    }
    assert!(probes >= 5 && node.read(Counter::TcpWindowProbes) >= 5, "{probes} probes");
    says(&mut node, &peer, 2_000, 5_000);
    for _ in 0..3 {
        node.now += Nanos::from_millis(501);
        node.timers();
    }
    let again = ranges(&mut node, &mut peer);
    assert!(again.iter().any(|&(from, _)| from == 2_000), "{again:?}");
    says(&mut node, &peer, 5_000, 5_000);
    assert!(node.tcp.all_acked(id));
}

/// RFC 9293 s3.8.6.1: a peer whose window is closed is alive as long as it sends.
#[test]
fn a_peer_that_sends_data_behind_a_closed_window_is_alive() {
    let (mut node, mut peer, id) = opened(10_000);
    node.transmit(id, &mut Pattern::new(5_000, 1_000), 8);
    ranges(&mut node, &mut peer);
    says(&mut node, &peer, 2_000, 0);
    (peer.window, peer.ack) = (0, peer.our_iss.wrapping_add(2_001));
    let mut taken = 0;
    for _ in 0..10 {
        node.now += Nanos::from_millis(501);
        node.timers();
        node.sent();
        peer.send(&mut node, 10);
        read_all(&mut node.tcp.rx(id), &mut taken);
    }
    assert_eq!(node.take_events(id) & TcpEvents::ENDED, TcpEvents::empty());
    assert_eq!(taken, 100);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    /// RFC 9293 s3.8.6: for any sequence of windows and acknowledgements every byte arrives in the
    /// end, and none beyond the largest announced edge.
    #[test]
    fn every_byte_arrives_with_random_windows(
        windows in prop::collection::vec((0u16..4_000, 0u32..3_000, 1u64..60), 1..60),
    ) {
        const BYTES: u32 = 30_000;
        let (mut node, mut peer, id) = opened(4_000);
        let mut source = Pattern::new(u64::from(BYTES), 900);
        let mut sent = 0;
        let mut acked = 0;
        let mut edge = 4_000;
        let mut step = |node: &mut Node, window: u16, progress: u32, ms: u64| -> Result<u32, TestCaseError> {
            node.transmit(id, &mut source, 4);
            for (from, to) in ranges(node, &mut peer) {
                // A probe may send one octet into a closed window.
                prop_assert!(to <= edge + 1 && from <= sent, "{from}..{to}, edge {edge}, sent {sent}");
                sent = sent.max(to);
            }
            acked = sent.min(acked + progress);
            edge = edge.max(acked + u32::from(window));
            says(node, &peer, acked, window);
            node.now += Nanos::from_millis(ms);
            node.timers();
            prop_assert_eq!(node.take_events(id) & TcpEvents::ENDED, TcpEvents::empty());
            Ok(acked)
        };
        for (window, progress, ms) in windows {
            step(&mut node, window, progress, ms)?;
        }
        let mut rounds = 0;
        while step(&mut node, 3_000, 3_000, 60)? < BYTES {
            rounds += 1;
            prop_assert!(rounds < 500, "the transfer does not end");
        }
    }
}
