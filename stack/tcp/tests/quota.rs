//! Transmit memory: peers that acknowledge next to nothing keep it from others for a limited time.

use crate::common;

use common::node::addr;
use common::pattern::Pattern;
use common::script::Script;
use common::trace::OurNumbers;
use ironwarp_stats::Counter;
use ironwarp_tcp::{Blocked, ConnId, TcpConfig, TcpEvents, Transport};
use ironwarp_types::Nanos;

const RESERVE: u16 = 2;

/// The units that all connections share.
const SHARED: u32 = 12;

const UNIT: usize = 100;

struct Peer {
    port: u16,
    our_numbers: OurNumbers,
    id: ConnId,
    source: Pattern,
    acked: u32,
}

struct Peers {
    s: Script,
    peers: Vec<Peer>,
}

impl Peers {
    fn new(peers: u16) -> Self {
        let mut s = Script::new(TcpConfig {
            connections_max: 8,
            retained_units_reserve: RESERVE,
            retained_units_shared: SHARED,
            rto_min: Nanos::from_millis(50),
            user_timeout: Nanos::from_secs(30),
            ..TcpConfig::default()
        });
        s.node.tcp.listen(addr(1, 4_420)).expect("room");
        let open = |s: &mut Script, port: u16| {
            s.set_peer_port(port);
            s.peer("S 0 win 65535 <mss 1460>");
            s.sent();
            s.peer(". 1 ack 1 win 64000");
            let id = s.node.established().expect("a connection");
            assert_eq!(s.node.take_events(id), TcpEvents::ESTABLISHED);
            let source = Pattern::new(u64::MAX, UNIT);
            Peer { port, our_numbers: s.our_numbers, id, source, acked: 0 }
        };
        let peers = (0..peers).map(|n| open(&mut s, 20_000 + n)).collect();
        Peers { s, peers }
    }

    /// Sends up to `units` units to a peer, and returns why no more left.
    fn send(&mut self, peer: usize, units: usize) -> Blocked {
        let Peer { id, source, .. } = &mut self.peers[peer];
        let done = self.s.node.transmit(*id, source, units);
        self.s.node.sent();
        done.blocked
    }

    /// A peer acknowledges `bytes` more, as far as they were sent.
    fn ack(&mut self, peer: usize, bytes: u32) {
        let peer = &mut self.peers[peer];
        peer.acked = peer.acked.saturating_add(bytes).min(peer.source.next as u32);
        (self.s.peer_port, self.s.our_numbers, self.s.id) = (peer.port, peer.our_numbers, Some(peer.id));
        self.s.peer(&format!(". 1 ack {} win 64000", 1 + peer.acked));
        self.s.node.sent();
    }

    /// Lets time pass in steps of 200 ms. In each step the connection `waiting` tries to send, and
    /// `step` runs.
    fn pass(&mut self, seconds: u64, waiting: Option<usize>, mut step: impl FnMut(&mut Peers, u64)) {
        for at in 0..seconds * 5 {
            self.s.node.now += Nanos::from_millis(200);
            self.s.node.timers();
            if let Some(waiting) = waiting {
                self.ack(waiting, u32::MAX >> 1);
                self.send(waiting, 32);
            }
            step(self, at);
        }
    }

    fn has_ended(&self, peer: usize) -> bool {
        let id = self.peers[peer].id;
        self.s.node.events.iter().any(|&(of, events)| of == id && events == TcpEvents::TIMED_OUT)
    }
}

/// RFC 6429 s3: two peers that acknowledge a byte every five seconds hold all shared units. Each is
/// aborted, one after the other, and the connection that waited has the units.
#[test]
fn peers_that_acknowledge_a_byte_now_and_then_are_aborted_when_others_wait() {
    let mut all = Peers::new(3);
    for holder in [0, 1] {
        assert_eq!(all.send(holder, usize::from(RESERVE) + SHARED as usize / 2), Blocked::None);
    }
    assert_eq!(all.send(2, 32), Blocked::Pool);
    let a_byte_each = |all: &mut Peers, at: u64| {
        for holder in [0, 1] {
            if at.is_multiple_of(25) && !all.has_ended(holder) {
                all.ack(holder, 1);
            }
        }
    };
    all.pass(9, Some(2), a_byte_each);
    assert!(!all.has_ended(0) && !all.has_ended(1));
    all.pass(4, Some(2), a_byte_each);
    assert!(all.has_ended(0) || all.has_ended(1));
    assert!(!all.has_ended(2));
    let sent = all.peers[2].source.next;
    all.pass(1, Some(2), |_, _| ());
    assert!(all.peers[2].source.next >= sent + 5 * 4 * UNIT as u64, "more than the reserve in each step");
    let resets = all.s.node.read(Counter::TcpTxPressureResets);
    assert!((1..=2).contains(&resets), "{resets}");
    all.s.node.check();
}

/// Without anyone who waits, a peer may be as slow as it likes.
#[test]
fn a_slow_peer_that_keeps_nothing_from_others_stays() {
    let mut all = Peers::new(2);
    all.send(0, usize::from(RESERVE) + SHARED as usize);
    all.pass(100, None, |all, at| {
        if at.is_multiple_of(25) {
            all.ack(0, 1);
        }
    });
    assert!(!all.has_ended(0));
    assert_eq!(all.s.node.read(Counter::TcpTxPressureResets), 0);
}

/// All connections want more units than there are, and acknowledge what they get: none is aborted.
#[test]
fn connections_with_progress_share_scarce_units() {
    let mut all = Peers::new(4);
    all.pass(60, Some(3), |all, at| {
        for peer in 0..3 {
            all.send(peer, 32);
        }
        for peer in 0..4 {
            // What was sent a second ago.
            if at.is_multiple_of(5) {
                all.ack(peer, 4 * UNIT as u32);
            }
        }
    });
    assert!((0..4).all(|peer| !all.has_ended(peer)));
    assert_eq!(all.s.node.read(Counter::TcpTxPressureResets), 0);
}
