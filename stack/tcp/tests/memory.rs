//! Receive memory: many connections, few frames, and whoever is in order gets on.

mod common;

use common::pattern::bytes_at;
use common::script::Script;
use common::trace::OurNumbers;
use ironwarp_stats::Counter;
use ironwarp_tcp::{ByteStream, ConnId, TcpConfig, TcpEvents};
use ironwarp_types::Nanos;

/// FPDUs of the largest size (RFC 5044 s4), near enough.
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

    /// One whose invariants are checked only when asked for.
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

    /// A peer sends `len` bytes of its stream from `at`.
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

    /// Takes an FPDU when all of it is there, as MPA does, and answers whether it did.
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

    /// Every peer sends FPDUs in segments of `len` bytes, in turn, from where it is acknowledged. Answers the rounds that
    /// it took for each to deliver `fpdus`.
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

/// semantics.md, Window: whole FPDUs come through although all connections together hold a fraction of them.
#[test]
fn a_crowd_of_half_fpdus_comes_to_an_end() {
    for (peers, len) in [(2, 1_460), (8, 1_460), (8, 1_000), (16, 1_030), (4, 300)] {
        let mut all = Peers::new(config(), peers);
        all.deliver(len, 2);
        all.s.node.check();
    }
}

/// semantics.md, Window: an FPDU of 64 KiB in small segments takes no more frames than its bytes need.
#[test]
fn an_fpdu_in_small_segments_is_packed() {
    for len in [10, 100, 300, 700] {
        let config = TcpConfig { rx_frames_reserve: 0, rx_frames_shared: 140, ..config() };
        let mut all = Peers::new(TcpConfig { rx_frames_emergency_reserve: 0, ..config }, 1);
        all.deliver(len, 1);
        assert_eq!(all.s.node.read(Counter::TcpDropRxBufferFull), 0, "segments of {len}");
    }
}

/// A reader that does not read keeps a whole FPDU, and more only while nobody else needs the room.
#[test]
fn a_stalled_reader_leaves_what_is_scarce_to_others() {
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

/// A peer that stops in the middle of an FPDU with all shared frames and the rescue in its hands does not keep others
/// waiting for ever: it is given up, and only because others wait.
#[test]
fn a_peer_that_never_ends_its_fpdu_is_given_up_when_others_need_the_room() {
    let mut all = Peers::new(config(), 3);
    for at in 0..40 {
        all.send(0, at * 1_460, 1_460);
    }
    assert_eq!(all.available(0), 40 * 1_460);
    all.s.advance(Nanos::from_secs(100));
    assert!(all.s.node.events.is_empty(), "nobody was refused");
    let hoarder = all.peers[0].2;
    // The peer of another connection tries again and again, backing off.
    all.send(1, 0, 1_460);
    for wait_ms in [200, 400, 800, 1_600, 3_200, 3_000] {
        all.send(1, 1_460, 1_460);
        all.s.advance(Nanos::from_millis(wait_ms));
        assert!(all.s.node.events.is_empty() && all.available(1) <= 2_100);
    }
    all.s.advance(Nanos::from_secs(1));
    all.send(1, 1_460, 1_460);
    all.s.advance(Nanos::from_millis(1));
    assert_eq!(all.s.node.take_events(hoarder), TcpEvents::TIMED_OUT);
    assert_eq!(all.s.node.read(Counter::TcpRxPressureResets), 1);
    all.s.node.tcp.release(hoarder);
    all.peers.remove(0);
    all.s.node.check();
    let (first, second) = (all.available(0), all.available(1));
    assert!(first > 0 && second == 0);
    all.deliver(1_460, 2);
    all.s.node.check();
}

/// semantics.md, Window: what others hold beyond gaps never keeps out bytes in order.
#[test]
fn early_bytes_of_others_do_not_keep_out_bytes_in_order() {
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

/// issue, item 3: ten thousand connections, each in the middle of something, in a pool for a few hundred.
#[test]
fn ten_thousand_connections_share_a_pool() {
    let config = TcpConfig {
        connections_max: 20_000,
        half_open_max: 20_000,
        rx_frames_reserve: 1,
        rx_frames_shared: 512,
        ..TcpConfig::default()
    };
    // The invariants of all are checked at the end, not after every segment.
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
