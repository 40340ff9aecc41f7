//! An association of DDP on the wire: its indication, its streams and its chunks (RFC 5043 s4.1,
//! s7.1, s8 to s11).

use std::net::{Ipv4Addr, SocketAddr};

use ironwarp::config::TransportKind;
use ironwarp::memory::{MemoryConfig, MemoryPort, pair};
use ironwarp::{Config, ConnectFailure, Event, MacAddr, Nanos, QpAttr, RecvWr, SendWr};
use ironwarp_net::{Net, NetConfig, Received, Route, TransportProtocol};
use ironwarp_port::{Burst, Port, Wire, Wires};
use ironwarp_sctp::{Sctp, SctpConfig};
use ironwarp_stats::CoreStats;
use ironwarp_types::Flow;

use super::common::{self, Node, TURNS_MAX, config, tap::Tap};

/// Ethernet and IPv4 without options.
const SCTP_AT: usize = 34;
const COMMON_HEADER_BYTES: usize = 12;
const DATA: u8 = 0;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;

/// RFC 5061 s4.2.6: the type of the adaptation layer indication.
const INDICATION: u16 = 0xc006;
/// RFC 9260 s3.3.2.1: the types of IPv4 and IPv6 addresses.
const ADDRESSES: [u16; 2] = [5, 6];

/// A chunk: type, flags, and what follows its length.
struct Chunk(u8, u8, Vec<u8>);

/// The chunks of each packet.
fn packets(tap: &Tap) -> Vec<Vec<Chunk>> {
    let is_sctp = |frame: &Vec<u8>| frame[12..14] == [8, 0] && frame[23] == 132;
    let chunks = |frame: &Vec<u8>| {
        let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let mut rest = &frame[SCTP_AT + COMMON_HEADER_BYTES..end];
        let mut chunks = Vec::new();
        while let [kind, flags, high, low, ..] = *rest {
            let bytes = usize::from(u16::from_be_bytes([high, low]));
            chunks.push(Chunk(kind, flags, rest[4..bytes].to_vec()));
            rest = &rest[bytes.next_multiple_of(4).min(rest.len())..];
        }
        chunks
    };
    tap.frames().iter().filter(|frame| is_sctp(frame)).map(chunks).collect()
}

/// The parameters of an INIT or INIT ACK: types and values.
fn parameters(mut octets: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut found = Vec::new();
    while let [t0, t1, l0, l1, ..] = *octets {
        let bytes = usize::from(u16::from_be_bytes([l0, l1]));
        found.push((u16::from_be_bytes([t0, t1]), octets[4..bytes].to_vec()));
        octets = &octets[bytes.next_multiple_of(4).min(octets.len())..];
    }
    found
}

/// RFC5043-4.1-01, 7.2-01, 8-01, 9-02, 10-01, 11.1-01: the indication in INIT and INIT ACK, as many
/// streams out as in, no further addresses, and only whole, unordered chunks, whatever is sent.
#[test]
fn an_association_shows_ddp_and_has_whole_unordered_chunks() {
    let mut pair = common::joined();
    let tap = Tap::on(&pair.near);
    let (near, far) = pair.connect();
    let (text, sink) = (pair.near.memory(&[7; 20_000]), pair.far.memory(&[0; 20_000]));
    let all = |region: &ironwarp::Region| [region.slice(0, 20_000).unwrap()];
    pair.far.ctx.post_recv(far, &RecvWr::new(1, &all(&sink))).unwrap();
    pair.near.ctx.post_send(near, &SendWr::send(2, &all(&text))).unwrap();
    pair.until("the message", |pair| !pair.far.completions.is_empty() && !pair.near.completions.is_empty());
    pair.near.ctx.disconnect(near).unwrap();
    pair.until("the end", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
    Tap::end(&pair.near);
    let packets = packets(&tap);
    let of = |kind: u8| packets.iter().flatten().filter(move |chunk| chunk.0 == kind);
    for kind in [INIT, INIT_ACK] {
        for Chunk(_, _, body) in of(kind) {
            assert_eq!(body[8..10], body[10..12], "streams out and in");
            let parameters = parameters(&body[16..]);
            let of = |kind| parameters.iter().filter(move |one| one.0 == kind).map(|one| &one.1[..]);
            assert_eq!(of(INDICATION).collect::<Vec<_>>(), [[0, 0, 0, 1]]);
            assert_eq!(ADDRESSES.iter().map(|&kind| of(kind).count()).sum::<usize>(), 0);
        }
        assert!(of(kind).count() > 0);
    }
    assert!(of(DATA).count() > 14);
    // Unordered, beginning and end.
    assert!(of(DATA).all(|Chunk(_, flags, _)| flags & 7 == 7));
}

/// An SCTP of its own at the other end of the link.
struct Peer {
    wires: Wires<MemoryPort>,
    net: Net,
    sctp: Sctp<MemoryPort>,
    now: Nanos,
    calling: Option<SocketAddr>,
    ended: bool,
    established: bool,
}

impl Peer {
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn new(port: MemoryPort, config: SctpConfig) -> Self {
        let (secret, stats) = ([3, 4], CoreStats::detached());
        let caps = port.caps();
        let mut net = NetConfig::new(caps.mac, Self::ADDRESS, 24, 1500, secret);
        net.transport = TransportProtocol::SCTP;
        let net = Net::new(net, caps, stats.clone());
        let mut sctp = Sctp::new(config, net.hasher(), secret, stats);
        sctp.listen(common::FAR.parse().unwrap()).expect("a free address");
        let wires = Wires::single(Wire::new(port));
        Peer { wires, net, sctp, now: Nanos::ZERO, calling: None, ended: false, established: false }
    }

    fn turn(&mut self) {
        use ironwarp_llp::Events;
        self.now = Nanos(self.now.0 + 20_000);
        let (mut ended, mut established) = (self.ended, self.established);
        let mut user = |_, events: Events| {
            ended |= events.intersects(Events::ENDED);
            established |= events.contains(Events::ESTABLISHED);
        };
        let mut burst = Burst::new();
        self.wires.first_mut().rx_burst(&mut burst);
        for frame in burst.drain(..) {
            let received = self.net.on_frame(self.now, frame, self.wires.first_mut());
            let Some(Received::Packet(packet)) = received else { continue };
            let (flow, mac, net) = (packet.flow, packet.remote_mac, &self.net);
            self.sctp.on_packet(self.now, packet, || net.path_to(&flow, mac), &mut self.wires, &mut user);
        }
        self.net.on_timers(self.now, self.wires.first_mut());
        self.sctp.on_timers(self.now, &mut self.wires, &mut user);
        (self.ended, self.established) = (ended, established);
        self.call();
        self.sctp.flush_acks(self.now, &mut self.wires);
        self.wires.flush();
    }

    fn call(&mut self) {
        let Some(remote) = self.calling else { return };
        let Route::Ready(path) = self.net.route(self.now, remote.ip(), self.wires.first_mut()) else {
            return;
        };
        let flow = Flow { local: SocketAddr::new(Self::ADDRESS.into(), 50_000), remote };
        self.sctp.connect(self.now, flow, path, &mut self.wires).expect("an association");
        self.calling = None;
    }
}

fn scene(sctp: SctpConfig) -> (Node, Peer) {
    let mut config = config("10.0.0.1/24");
    config.stack.transport = TransportKind::Sctp.into();
    config.mpa.startup_timeout_ms = 10_000;
    scene_with(config, sctp)
}

fn scene_with(config: Config, sctp: SctpConfig) -> (Node, Peer) {
    let mac = MacAddr([2, 0, 0, 0, 0, 9]);
    let (ours, theirs) = pair(&MemoryConfig::default(), &MemoryConfig { mac, ..MemoryConfig::default() });
    (Node::new(config, ours), Peer::new(theirs, sctp))
}

/// Peers that are no DDP: without an indication, with another one, or with fewer streams one way.
fn others() -> [SctpConfig; 3] {
    let with = |code_point, inbound_streams| SctpConfig {
        adaptation_code_point: code_point,
        inbound_streams,
        ..SctpConfig::default()
    };
    [with(None, 64), with(Some(2), 64), with(Some(1), 63)]
}

/// RFC5043-7.1-02, 11.1-02, 11.1-03, 11.1-04: an association with a peer that does not indicate DDP
/// is ended before anything of DDP is sent, and the application gets an event.
#[test]
fn a_peer_without_the_indication_is_refused() {
    for sctp in others() {
        let (mut node, mut peer) = scene(sctp);
        let tap = Tap::on(&node);
        let qp = node.ctx.create_qp(node.pd, &QpAttr::new(node.cq)).unwrap();
        node.ctx.connect(qp, common::FAR.parse().unwrap(), b"").unwrap();
        let mut turns = 0;
        let failed = |node: &Node| {
            node.events.iter().find_map(|event| match event {
                Event::ConnectFailed { reason, .. } => Some(*reason),
                _ => None,
            })
        };
        while failed(&node).is_none() || !peer.ended {
            node.turn();
            peer.turn();
            turns += 1;
            assert!(turns < TURNS_MAX, "{:?}", node.events);
        }
        assert_eq!(failed(&node), Some(ConnectFailure::Refused));
        assert_eq!(node.counter("sctp_drop_no_ddp"), 1);
        Tap::end(&node);
        assert!(packets(&tap).iter().flatten().all(|chunk| chunk.0 != DATA));
    }
}

/// The same of a peer that opens the association.
#[test]
fn a_peer_without_the_indication_opens_no_session() {
    for sctp in others() {
        let (mut node, mut peer) = scene(sctp);
        node.ctx.listen("10.0.0.1:4791".parse().unwrap()).unwrap();
        peer.calling = Some("10.0.0.1:4791".parse().unwrap());
        for _ in 0..2_000 {
            node.turn();
            peer.turn();
        }
        assert!(peer.ended && node.events.is_empty());
        assert_eq!(node.counter("sctp_drop_no_ddp"), 1);
    }
}

/// A peer that opens an association and begins no session does not keep it.
#[test]
fn an_association_without_a_session_ends_at_the_start_up_timeout() {
    let mut config = config("10.0.0.1/24");
    config.stack.transport = TransportKind::Sctp.into();
    config.mpa.startup_timeout_ms = 1;
    let ddp = SctpConfig { adaptation_code_point: Some(1), ..SctpConfig::default() };
    let (mut node, mut peer) = scene_with(config, ddp);
    node.ctx.listen("10.0.0.1:4791".parse().unwrap()).unwrap();
    peer.calling = Some("10.0.0.1:4791".parse().unwrap());
    let mut turns = 0;
    while !peer.ended {
        node.turn();
        peer.turn();
        turns += 1;
        assert!(turns < TURNS_MAX, "established: {}", peer.established);
    }
    assert!(peer.established && node.events.is_empty());
    assert_eq!(node.counter("sctp_idle_aborts"), 1);
}

/// RFC5043-11.3-03: all sessions end with their association, each with an event.
#[test]
fn the_end_of_an_association_ends_all_of_its_sessions() {
    let mut pair = common::joined();
    let (first, second) = (pair.connect(), pair.connect());
    pair.far.restart();
    pair.until("the end of both", |pair| {
        pair.near.is_disconnected(first.0) && pair.near.is_disconnected(second.0)
    });
}
