//! Receive memory: many connections share few frames, and in-order data always makes progress.

use crate::common;

use common::pattern::bytes_at;
use common::script::Script;
use common::trace::OurNumbers;
use ironwarp_stats::Counter;
use ironwarp_tcp::{ByteStream, ConnId, TcpConfig, TcpEvents, Transport};
use ironwarp_types::Nanos;
use ironwarp_types::limits::FPDU_MARKED_BYTES_MAX;

/// About the size of the largest FPDU (RFC 5044 s4).
const FPDU: usize = 65_536;

fn config() -> TcpConfig {
    TcpConfig {
        connections_max: 16,
        half_open_max: 16,
        rx_frames_reserve: 1,
        rx_frames_shared: 32,
        ..TcpConfig::default()
    }
}

/// Peers of one listener.
struct Peers {
    s: Script,
    peers: Vec<(u16, OurNumbers, ConnId)>,
}

impl Peers {
    fn new(config: TcpConfig, peers: u16) -> Self {
        Peers::of(Script::new(config), peers)
    }

    /// A node that checks its invariants only on request.
    fn unchecked(config: TcpConfig, peers: u16) -> Self {
        let mut s = Script::new(config);
        s.node.checks = false;
        Peers::of(s, peers)
    }

    fn of(mut s: Script, peers: u16) -> Self {
        s.node.tcp.listen(common::node::addr(1, 4_420)).expect("room");
        let peers = (0..peers)
            .map(|n| {
                s.set_peer_port(20_000 + n);
                s.peer("S 0 win 65535 <mss 1460,ws 0>");
                s.sent();
                s.peer(". 1 ack 1 win 64000");
                let id = s.node.established().expect("a connection");
                assert_eq!(s.node.take_events(id), TcpEvents::ESTABLISHED);
                (s.peer_port, s.our_numbers, id)
            })
            .collect();
        Peers { s, peers }
    }

    /// A peer sends `len` bytes of its stream from offset `at`.
    fn send(&mut self, peer: usize, at: u64, len: usize) {
        let (port, our_numbers, id) = self.peers[peer];
        (self.s.peer_port, self.s.our_numbers, self.s.id) = (port, our_numbers, Some(id));
        self.s.peer(&format!("P. {}:{}({len}) ack 1 win 64000", at + 1, at + 1 + len as u64));
        self.s.node.flush();
        self.s.node.sent();
        self.s.node.events.clear();
    }

    fn available(&mut self, peer: usize) -> usize {
        let id = self.peers[peer].2;
        self.s.node.tcp.rx(id).available()
    }

    /// Consumes an FPDU when all of it has arrived, as MPA does. Returns whether it did.
    fn take(&mut self, peer: usize, at: u64) -> bool {
        let id = self.peers[peer].2;
        let mut stream = self.s.node.tcp.rx(id);
        let mut fpdu = vec![0; FPDU];
        let whole = stream.peek(&mut fpdu);
        if whole {
            assert!(fpdu == bytes_at(at, FPDU), "bytes of {peer} from {at} on");
            stream.consume(FPDU);
        }
        whole
    }

    /// Every peer in turn sends FPDUs in segments of `len` bytes, from its acknowledged offset.
    /// Returns the number of rounds in which each delivers `fpdus`.
    fn deliver(&mut self, len: usize, fpdus: u64) -> usize {
        let mut taken = vec![0u64; self.peers.len()];
        for round in 1.. {
            assert!(round < 20_000, "stuck at {taken:?}");
            for (peer, taken) in taken.iter_mut().enumerate().filter(|(_, taken)| **taken < fpdus) {
                let (begin, here) = (*taken * FPDU as u64, self.available(peer));
                self.send(peer, begin + here as u64, len.min(FPDU - here));
                *taken += u64::from(self.take(peer, begin));
            }
            if taken.iter().all(|&taken| taken == fpdus) {
                return round;
            }
        }
        unreachable!()
    }
}

/// docs/semantics.md, Window: whole FPDUs arrive, although all connections together may hold only a
/// fraction of them.
#[test]
fn many_partial_fpdus_complete() {
    for (peers, len) in [(2, 1_460), (8, 1_460), (8, 1_000), (16, 1_030), (4, 300)] {
        let mut all = Peers::new(config(), peers);
        all.deliver(len, 2);
        all.s.node.check();
    }
}

/// docs/semantics.md, Window: an FPDU of 64 KiB in small segments takes no more frames than its
/// bytes need.
#[test]
fn an_fpdu_in_small_segments_takes_few_frames() {
    for len in [10, 100, 300, 700] {
        let config = TcpConfig { rx_frames_reserve: 0, rx_frames_shared: 140, ..config() };
        let mut all = Peers::new(TcpConfig { rx_frames_emergency_reserve: 0, ..config }, 1);
        all.deliver(len, 1);
        assert_eq!(all.s.node.read(Counter::TcpDropRxBufferFull), 0, "segments of {len}");
    }
}

/// A stalled reader holds one whole FPDU, and more only while no other connection needs the frames.
#[test]
fn a_stalled_reader_leaves_scarce_frames_to_others() {
    let config = TcpConfig { rx_frames_shared: 400, ..config() };
    let mut all = Peers::new(config, 4);
    for peer in 0..3 {
        for _ in 0..400 {
            let at = all.available(peer) as u64;
            all.send(peer, at, 1_460);
        }
    }
    assert!(all.s.node.read(Counter::TcpDropRxBufferFull) > 0);
    let refused = all.s.node.read(Counter::TcpDropRxBufferFull);
    let last = all.peers.split_off(3);
    all.peers = last;
    all.deliver(1_460, 4);
    assert_eq!(all.s.node.read(Counter::TcpDropRxBufferFull), refused);
    all.s.node.check();
}

/// A peer stops in the middle of an FPDU and holds all shared frames and the emergency reserve. Its
/// connection is aborted, but only because others wait.
#[test]
fn a_peer_that_never_completes_its_fpdu_is_aborted_when_others_wait() {
    let mut all = Peers::new(config(), 3);
    for at in 0..40 {
        all.send(0, at * 1_460, 1_460);
    }
    assert_eq!(all.available(0), 40 * 1_460);
    all.s.advance(Nanos::from_secs(100));
    assert!(all.s.node.events.is_empty(), "no connection was refused");
    let over_quota = all.peers[0].2;
    // The peer of another connection retries with backoff.
    all.send(1, 0, 1_460);
    for wait_ms in [200, 400, 800, 1_600, 3_200, 3_000] {
        all.send(1, 1_460, 1_460);
        all.s.advance(Nanos::from_millis(wait_ms));
        assert!(all.s.node.events.is_empty() && all.available(1) <= 2_100);
    }
    all.s.advance(Nanos::from_secs(1));
    all.send(1, 1_460, 1_460);
    all.s.advance(Nanos::from_millis(1));
    assert_eq!(all.s.node.take_events(over_quota), TcpEvents::TIMED_OUT);
    assert_eq!(all.s.node.read(Counter::TcpRxPressureResets), 1);
    all.s.node.tcp.release(over_quota);
    all.peers.remove(0);
    all.s.node.check();
    let (first, second) = (all.available(0), all.available(1));
    assert!(first > 0 && second == 0);
    all.deliver(1_460, 2);
    all.s.node.check();
}

/// RFC 5044 s4.3: markers make the longest FPDU some 500 bytes longer. A peer that is as far is
/// given the frames for the rest of it, and is aborted like any other if it stops there.
#[test]
fn an_fpdu_with_markers_of_the_longest_length_is_a_partial_one_to_its_end() {
    let mut all = Peers::new(config(), 2);
    let whole = FPDU_MARKED_BYTES_MAX as u64;
    for at in (0..whole - 100).step_by(1_460) {
        all.send(0, at, 1_460.min((whole - 100 - at) as usize));
    }
    assert_eq!(all.available(0) as u64, whole - 100);
    let over_quota = all.peers[0].2;
    all.send(1, 0, 1_460);
    for _ in 0..12 {
        all.send(1, 1_460, 1_460);
        all.s.advance(Nanos::from_secs(1));
    }
    assert_eq!(all.s.node.read(Counter::TcpRxPressureResets), 1);
    assert_eq!(all.s.node.tcp.state(over_quota), ironwarp_tcp::State::Closed);
}

/// docs/semantics.md, Window: out-of-order bytes of other connections never block in-order bytes.
#[test]
fn out_of_order_bytes_of_others_do_not_block_in_order_bytes() {
    let mut all = Peers::new(config(), 16);
    for peer in 1..16 {
        for at in 1..10 {
            all.send(peer, at * 3_000, 1_000);
        }
    }
    assert!(all.s.node.read(Counter::TcpDropOutOfOrderFull) > 0);
    for at in 0..10 {
        all.send(0, at * 1_000, 1_000);
    }
    assert_eq!((all.available(0), all.s.node.read(Counter::TcpDropRxBufferFull)), (10_000, 0));
}

/// Ten thousand connections, each with unfinished data, share a pool for a few hundred.
#[test]
fn ten_thousand_connections_share_a_pool() {
    let config = TcpConfig {
        connections_max: 20_000,
        half_open_max: 20_000,
        rx_frames_reserve: 1,
        rx_frames_shared: 512,
        ..TcpConfig::default()
    };
    // All invariants are checked at the end, not after every segment.
    let mut all = Peers::unchecked(config, 10_000);
    for peer in 0..10_000 {
        all.send(peer, 0, 1_000);
        all.send(peer, 5_000, 1_000);
        all.send(peer, 1_000, 1_000);
    }
    assert!(all.s.node.read(Counter::TcpDropOutOfOrderFull) > 0);
    for peer in 0..10_000 {
        assert!(all.available(peer) >= 1_000);
    }
    all.s.node.check();
}

/// RFC 2018 s8: idle peers hold half of the shared frames beyond gaps that they never fill. While
/// another connection needs frames for its own, they lose them, and nothing else: both streams
/// complete.
#[test]
fn out_of_order_bytes_without_progress_are_discarded_when_others_need_the_frames() {
    let mut all = Peers::new(config(), 3);
    for peer in [0, 1] {
        for at in 1..10 {
            all.send(peer, at * 3_000, 1_000);
        }
    }
    all.s.advance(Nanos::from_secs(100));
    assert_eq!(all.s.node.read(Counter::TcpRxOutOfOrderDiscarded), 0, "no connection was refused");
    for _ in 0..20 {
        all.send(2, 3_000, 1_000);
        all.s.advance(Nanos::from_millis(900));
    }
    assert!((1..=2).contains(&all.s.node.read(Counter::TcpRxOutOfOrderDiscarded)));
    assert!(all.s.node.events.is_empty(), "no connection ended");
    for peer in 0..3 {
        for at in 0..40 {
            all.send(peer, at * 1_000, 1_000);
        }
        assert_eq!(all.available(peer), 40_000);
        let (id, len) = (all.peers[peer].2, 40_000);
        let mut bytes = vec![0; len];
        let mut stream = all.s.node.tcp.rx(id);
        assert!(stream.peek(&mut bytes) && bytes == bytes_at(0, len));
        stream.consume(len);
    }
    all.s.node.check();
}
