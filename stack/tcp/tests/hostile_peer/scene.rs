//! A node with a bystander connection, which must not be affected, and connections in every state
//! to attack.

use ironwarp_tcp::{ConnId, State, TcpConfig, TcpEvents, Transport};
use ironwarp_types::Nanos;

use crate::common::node::{Node, addr};
use crate::common::pattern::{Pattern, read_all};
use crate::common::raw::{ACK, FIN, PORT, Peer, RST, SYN, Segment, captured};

/// The bystander's port. Attackers use others.
const BYSTANDER: u16 = 50_000;

/// Bytes that the bystander transfers in each direction per check.
const EACH: usize = 1_000;

pub const CONNECTIONS: u32 = 8;

pub struct Scene {
    pub node: Node,
    bystander: Peer,
    id: ConnId,
    source: Pattern,
    taken: u64,
}

/// Small limits, which the tests reach.
pub fn config() -> TcpConfig {
    TcpConfig {
        connections_max: CONNECTIONS,
        half_open_max: 4,
        syn_retries: 1,
        time_wait_max: 4,
        ooo_frames_max: 4,
        rx_frames_shared: 16,
        retained_units_shared: 16,
        rto_min: Nanos::from_millis(5),
        rto_initial: Nanos::from_millis(20),
        user_timeout: Nanos::from_secs(3_600),
        replies_per_ms: 8,
        ..TcpConfig::default()
    }
}

impl Scene {
    pub fn new() -> Self {
        Scene::with(config())
    }

    pub fn with(config: TcpConfig) -> Self {
        let mut node = Node::new(1, 1_500, config);
        node.tcp.listen(addr(1, PORT)).expect("room");
        let (bystander, id) = Peer::open(&mut node, BYSTANDER, 77, &[2, 4, 0x05, 0xb4]);
        Scene { node, bystander, id, source: Pattern::new(0, usize::MAX), taken: 0 }
    }

    /// Advances the time until all rate limits are full again.
    pub fn drain_replies(&mut self) {
        self.node.now += Nanos::from_millis(2);
        self.node.flush();
        self.node.sent();
    }

    /// Asserts that the bystander transfers a thousand bytes in each direction without error, and
    /// that they are acknowledged.
    #[track_caller]
    pub fn bystander_works(&mut self) {
        self.node.sent();
        let Scene { node, bystander, id, source, taken } = self;
        let before = *taken;
        bystander.send(node, EACH);
        read_all(&mut node.tcp.rx(*id), taken);
        assert_eq!(*taken, before + EACH as u64, "the bystander's bytes");
        source.left = EACH as u64;
        node.transmit(*id, source, 4);
        let sent = bystander.receive_all(node);
        assert_eq!(source.left, 0, "the bystander cannot send");
        assert!(sent.iter().any(|captured| captured.has(ACK) && captured.ack == bystander.seq), "{sent:?}");
        bystander.send_raw(node, bystander.raw(ACK));
        assert!(node.tcp.all_acked(*id), "the bystander's acknowledgement");
        let events = node.take_events(*id);
        assert!(
            !events.intersects(TcpEvents::ENDED | TcpEvents::PEER_CLOSED),
            "the bystander saw {events:?}"
        );
        node.sent();
    }

    /// Creates a connection in a state, and its peer. TIME-WAIT is represented by
    /// [`State::Closed`]: it continues without its connection.
    pub fn target(&mut self, state: State, port: u16, iss: u32) -> (Peer, Option<ConnId>) {
        let node = &mut self.node;
        if state == State::SynSent {
            let id = node.connect(PORT, addr(2, port), 2);
            let syn = captured(node, port).pop().expect("a SYN");
            let mut peer = Peer::new(PORT, port, iss);
            (peer.our_iss, peer.ack) = (syn.seq, syn.seq.wrapping_add(1));
            return (peer, Some(id));
        }
        if state == State::SynReceived {
            let mut peer = Peer::new(PORT, port, iss);
            peer.send_raw(node, peer.raw(SYN));
            let answer = captured(node, port).pop().expect("a SYN-ACK");
            (peer.our_iss, peer.ack, peer.seq) =
                (answer.seq, answer.seq.wrapping_add(1), iss.wrapping_add(1));
            return (peer, None);
        }
        let (mut peer, id) = Peer::open(node, port, iss, &[]);
        let peers_fin = |peer: &mut Peer, node: &mut Node| {
            peer.send_raw(node, peer.raw(FIN | ACK));
            peer.seq = peer.seq.wrapping_add(1);
        };
        let our_fin = |peer: &mut Peer, node: &mut Node| {
            node.tcp.close(node.now, id, &mut node.wires);
            peer.receive_all(node);
        };
        match state {
            State::CloseWait => peers_fin(&mut peer, node),
            State::LastAck => {
                peers_fin(&mut peer, node);
                our_fin(&mut peer, node);
            }
            State::FinWait1 => our_fin(&mut peer, node),
            State::FinWait2 | State::TimeWait => {
                our_fin(&mut peer, node);
                peer.send_raw(node, peer.raw(ACK));
                if state == State::TimeWait {
                    peers_fin(&mut peer, node);
                }
            }
            State::Closing => {
                let ack_before = peer.ack;
                our_fin(&mut peer, node);
                let ack_after = std::mem::replace(&mut peer.ack, ack_before);
                peers_fin(&mut peer, node);
                peer.ack = ack_after;
            }
            _ => {}
        }
        let reached = if state == State::TimeWait { State::Closed } else { state };
        assert_eq!(node.tcp.state(id), reached);
        node.flush();
        node.sent();
        (peer, Some(id))
    }

    /// The states in which a segment can arrive.
    pub const STATES: [State; 9] = [
        State::SynSent,
        State::SynReceived,
        State::Established,
        State::CloseWait,
        State::LastAck,
        State::FinWait1,
        State::FinWait2,
        State::Closing,
        State::TimeWait,
    ];

    /// Ends a victim in any state.
    pub fn close_target(&mut self, peer: &Peer, id: Option<ConnId>) {
        let node = &mut self.node;
        for (other, _) in std::mem::take(&mut node.events) {
            if other != self.id {
                node.tcp.release(other);
            }
        }
        if let Some(id) = id {
            node.tcp.release(id);
        }
        // A connection that a listener opened and that was not reported yet.
        peer.send_raw(node, Segment { seq: peer.iss.wrapping_add(1), ..peer.raw(RST) });
        for _ in 0..2 {
            node.now += Nanos::from_millis(100);
            node.timers();
        }
        node.flush();
        node.sent();
        node.check();
    }

    /// After all connections have ended, every buffer and slot is free.
    #[track_caller]
    pub fn assert_nothing_leaked(mut self) {
        self.bystander_works();
        let node = &mut self.node;
        node.tcp.release(self.id);
        // Half-open connections and TIME-WAIT end by timeout.
        for _ in 0..200 {
            node.now += Nanos::from_secs(1);
            node.timers();
            for (id, _) in std::mem::take(&mut node.events) {
                node.tcp.release(id);
            }
            node.flush();
            node.sent();
        }
        // One frame may be kept for the next unit.
        assert!(node.tx_frames_in_use() <= 1, "{} transmit frames", node.tx_frames_in_use());
        for port in 0..CONNECTIONS as u16 {
            node.connect(30_000 + port, addr(2, 80), 2);
        }
    }
}
