//! Several addresses of a peer: which are used, when, and for what (RFC 9260 s5.1.2, s5.4, s6.4,
//! s8.2 and s8.3).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ironwarp_llp::{ConnId, Events};
use ironwarp_sctp::{MessageHeader, PathInfo, PathState, SctpConfig, State};
use ironwarp_stats::Counter;
use ironwarp_testkit::Route;
use ironwarp_types::{Flow, MacAddr, Nanos};

use crate::common::*;

const UNORDERED: MessageHeader = MessageHeader { stream: 0, ppid: 0, is_unordered: true };

/// Two hosts on two links.
struct Pair {
    nodes: [Node; 2],
    ids: [ConnId; 2],
    /// The longest IP packet that each link takes; 0 if it is cut.
    takes: [usize; 2],
    /// The types of the chunks that left over each link.
    sent: [Vec<u8>; 2],
}

impl Pair {
    fn new(config: impl Fn(u8) -> SctpConfig) -> Self {
        Pair::with_mtu(1_500, config)
    }

    fn with_mtu(mtu_bytes: u16, config: impl Fn(u8) -> SctpConfig) -> Self {
        let mut nodes = [1, 2].map(|host| Node::with_mtu(host, config(host), mtu_bytes));
        nodes[1].listen();
        let id = nodes[0].connect(2);
        let mut pair = Pair { nodes, ids: [id; 2], takes: [usize::MAX; 2], sent: [vec![], vec![]] };
        pair.exchange();
        let [(id, Events::ESTABLISHED)] = pair.nodes[1].take_events()[..] else { panic!("no association") };
        pair.ids[1] = id;
        pair
    }

    /// Two hosts that have confirmed each other's addresses.
    fn confirmed(config: impl Fn(u8) -> SctpConfig) -> Self {
        Pair::new(config).confirm()
    }

    fn confirm(self) -> Self {
        let mut pair = self;
        pair.pass(Nanos::from_millis(1));
        assert_eq!(pair.states(), [[PathState::Active; 2]; 2]);
        pair.nodes.iter_mut().for_each(|node| node.upper.paths.clear());
        pair
    }

    /// Passes frames until there are none. They take no time.
    fn exchange(&mut self) {
        loop {
            let frames = self.nodes.each_mut().map(Node::frames);
            if frames.iter().all(Vec::is_empty) {
                return;
            }
            for (from, frames) in frames.iter().enumerate() {
                for frame in frames {
                    self.sent[link_of(frame)].extend(Sent::read(frame).kinds());
                    if frame.len() - 14 <= self.takes[link_of(frame)] {
                        self.nodes[1 - from].receive(frame);
                    }
                }
            }
        }
    }

    /// Lets time pass, and runs the timers on the way.
    fn pass(&mut self, time: Nanos) {
        let end = self.nodes[0].now + time;
        while self.nodes[0].now < end {
            let next = self.nodes.iter().filter_map(|node| node.sctp.next_deadline()).min().unwrap_or(end);
            let now = next.max(self.nodes[0].now + Nanos::from_micros(50)).min(end);
            for node in &mut self.nodes {
                node.now = now;
                node.timers();
            }
            self.exchange();
        }
    }

    fn paths(&self, side: usize) -> Vec<PathInfo> {
        self.nodes[side].sctp.paths(self.ids[side]).collect()
    }

    fn states(&self) -> [[PathState; 2]; 2] {
        [0, 1].map(|side| {
            self.paths(side).iter().map(|path| path.state).collect::<Vec<_>>().try_into().expect("two")
        })
    }

    /// Sends a message from the first host, and returns how long it takes to be acknowledged.
    fn send(&mut self) -> Nanos {
        self.send_message(b"message")
    }

    fn send_message(&mut self, message: &[u8]) -> Nanos {
        let start = self.nodes[0].now;
        self.nodes[1].upper.takes = true;
        let (taken, acked) = (self.nodes[1].upper.taken.len(), self.nodes[0].upper.acked.len());
        assert_eq!(self.nodes[0].transmit(self.ids[0], UNORDERED, &[message]).0, 1);
        self.exchange();
        while self.nodes[0].upper.acked.len() == acked {
            self.pass(Nanos::from_millis(1));
            assert!(self.nodes[0].now.since(start) < Nanos::from_secs(60), "never acknowledged");
        }
        assert_eq!(self.nodes[1].upper.taken.len(), taken + 1, "once");
        self.nodes[0].now.since(start)
    }

    fn events(&mut self, side: usize) -> Vec<(IpAddr, PathState)> {
        std::mem::take(&mut self.nodes[side].upper.paths)
    }
}

/// RFC 9260 s5.4: an address that the peer has listed gets HEARTBEATs, and nothing else before it
/// has answered. Both sides learn of it.
#[test]
fn a_listed_address_is_confirmed_by_a_heartbeat() {
    let mut pair = Pair::new(both_links);
    assert_eq!(pair.states(), [[PathState::Active, PathState::Unconfirmed]; 2]);
    assert_eq!(pair.sent[1], []);
    pair.pass(Nanos::from_millis(1));
    assert_eq!(pair.states(), [[PathState::Active; 2]; 2]);
    assert_eq!(pair.sent[1], [HEARTBEAT, HEARTBEAT, HEARTBEAT_ACK, HEARTBEAT_ACK]);
    for (side, host) in [(0, 2), (1, 1)] {
        assert_eq!(pair.events(side), [(on_link(1, host), PathState::Active)]);
        assert_eq!(pair.nodes[side].read(Counter::SctpPathsUp), 1);
        let [first, second] = &pair.paths(side)[..] else { panic!("two paths") };
        assert_eq!((first.remote, first.is_current), (on_link(0, host), true));
        assert_eq!((second.remote, second.is_current), (on_link(1, host), false));
        assert_eq!(second.local, on_link(1, 3 - host));
    }
    pair.send();
    assert!(!pair.sent[1].contains(&DATA), "RFC 9260 s6.4: messages go to the primary path");
}

/// One that never answers is probed each RTO, later each HB.interval, and costs the association
/// nothing (RFC 9260 s5.4).
#[test]
fn an_address_that_does_not_answer_gets_heartbeats_only() {
    let mut pair = Pair::new(both_links);
    pair.takes[1] = 0;
    // Probes after 0, 0.2, 0.6, 1.4, 3, 6.2 and 12.6 s.
    pair.pass(Nanos::from_secs(5));
    assert_eq!(pair.sent[1].iter().filter(|&&kind| kind == HEARTBEAT).count(), 2 * 5);
    pair.pass(Nanos::from_secs(60));
    assert_eq!(pair.states(), [[PathState::Active, PathState::Unconfirmed]; 2]);
    assert!(pair.sent[1].iter().all(|&kind| kind == HEARTBEAT) && pair.sent[1].len() < 2 * 12);
    assert_eq!(pair.events(0), []);
    pair.takes[1] = usize::MAX;
    pair.pass(Nanos::from_secs(60));
    assert_eq!(pair.states(), [[PathState::Active; 2]; 2]);
}

/// RFC 5043 s7.2: without own addresses to use, those of the peer are not.
#[test]
fn addresses_are_ignored_unless_several_are_wanted() {
    let config = |host| if host == 1 { both_links(host) } else { SctpConfig::default() };
    let mut pair = Pair::new(config);
    pair.pass(Nanos::from_secs(1));
    assert_eq!((pair.paths(1).len(), pair.nodes[1].read(Counter::SctpTxHeartbeats)), (1, 0));
    assert_eq!(pair.paths(0).len(), 1, "it has listed none");
}

/// RFC 9260 s6.4.1 and RFC 7829 s3: a timeout moves messages to the other path, also those that
/// were lost, and the first path takes them again when it answers. Nobody counts the path's errors
/// as the association's.
#[test]
fn messages_go_over_the_other_path_while_the_first_one_is_cut() {
    let mut pair = Pair::confirmed(|host| SctpConfig {
        association_retries: 2,
        heartbeat_interval: Nanos::from_millis(100),
        ..both_links(host)
    });
    let quick = pair.send();
    assert!(quick < Nanos::from_millis(5), "{quick:?}");
    pair.takes[0] = 0;
    let slow = pair.send();
    assert!(slow < Nanos::from_millis(300), "an RTO, and no more: {slow:?}");
    assert_eq!(pair.events(0)[0], (on_link(0, 2), PathState::PotentiallyFailed));
    assert!(pair.paths(0)[1].is_current);
    for _ in 0..10 {
        let time = pair.send();
        assert!(time < Nanos::from_millis(5), "{time:?}");
    }
    pair.pass(Nanos::from_secs(30));
    assert_eq!(pair.events(0), [(on_link(0, 2), PathState::Inactive)]);
    assert_eq!(
        (pair.nodes[0].state(pair.ids[0]), pair.paths(0)[0].state),
        (State::Established, PathState::Inactive)
    );
    pair.takes[0] = usize::MAX;
    pair.pass(Nanos::from_secs(20));
    assert_eq!(pair.events(0), [(on_link(0, 2), PathState::Active)]);
    assert!(pair.paths(0)[0].is_current, "the primary path is used again");
    let before = pair.sent[0].len();
    pair.send();
    assert!(pair.sent[0][before..].contains(&DATA));
}

/// RFC 9260 s8.1: with no path left the peer is given up after Association.Max.Retrans, and goes on
/// if one of them returns before.
#[test]
fn a_peer_without_a_path_is_given_up_and_one_that_returns_is_not() {
    for is_back in [false, true] {
        let mut pair =
            Pair::confirmed(|host| SctpConfig { rto_max: Nanos::from_secs(2), ..both_links(host) });
        pair.takes = [0; 2];
        pair.nodes[0].transmit(pair.ids[0], UNORDERED, &[b"message"]);
        pair.pass(Nanos::from_secs(1));
        assert_eq!(pair.nodes[0].state(pair.ids[0]), State::Established);
        pair.takes[1] = if is_back { usize::MAX } else { 0 };
        pair.pass(Nanos::from_secs(200));
        let events: Vec<_> = pair.nodes[0].take_events().iter().map(|&(_, events)| events).collect();
        if is_back {
            assert_eq!(pair.nodes[0].upper.acked.len(), 1);
            assert!(pair.paths(0)[1].is_current);
        } else {
            assert_eq!(events.last(), Some(&Events::TIMED_OUT));
        }
    }
}

/// A peer at host 1 that a test plays, with an address on each link.
struct TwoAddresses {
    node: Node,
    tag: u32,
    id: ConnId,
}

impl TwoAddresses {
    fn new() -> Self {
        TwoAddresses::with_mtu(1_500)
    }

    fn with_mtu(mtu_bytes: u16) -> Self {
        let mut node = Node::with_mtu(2, both_links(2), mtu_bytes);
        node.listen();
        let (tag, cookie) = Peer::cookie(&mut node, &listing(&[[10, 1, 0, 1]]));
        node.answers(1, &echo(tag, &cookie));
        let [(id, Events::ESTABLISHED)] = node.take_events()[..] else { panic!("no association") };
        TwoAddresses { node, tag, id }
    }

    /// Sends chunks from an address, and returns what is sent for them, with its link.
    fn send_from(&mut self, link: u8, chunks: &[Vec<u8>]) -> Vec<(usize, Sent)> {
        let packet = packet([FROM, PORT], self.tag, chunks);
        self.node.receive(&over(link, 1).packet(132, &packet));
        self.node.frames().iter().map(|frame| (link_of(frame), Sent::read(frame))).collect()
    }

    /// Answers the HEARTBEAT to the second address.
    fn confirm(&mut self) {
        self.node.pass(Nanos::from_millis(1));
        let [(1, probe)] = &self.collect()[..] else { panic!("one HEARTBEAT") };
        assert_eq!(probe.kinds(), [HEARTBEAT]);
        let value = probe.value().to_vec();
        assert_eq!(self.send_from(1, &[chunk(HEARTBEAT_ACK, 0, &value)]), []);
        assert_eq!(self.states(), [PathState::Active; 2]);
    }

    fn collect(&mut self) -> Vec<(usize, Sent)> {
        self.node.frames().iter().map(|frame| (link_of(frame), Sent::read(frame))).collect()
    }

    fn states(&self) -> Vec<PathState> {
        self.node.sctp.paths(self.id).map(|path| path.state).collect()
    }
}

/// From a host to host 2, over a link.
fn over(link: u8, host: u8) -> Route {
    Route { ips: [on_link(link, host), on_link(link, 2)], ..Route::v4(host, 2) }
}

/// An INIT that lists addresses.
fn listing(addresses: &[[u8; 4]]) -> InitChunk {
    InitChunk { parameters: addresses.iter().map(|addr| tlv(5, addr)).collect(), ..InitChunk::default() }
}

/// RFC 9260 s6.4: a SACK goes where the DATA came from, and a HEARTBEAT is answered there, even on
/// a path that is not confirmed.
#[test]
fn a_reply_goes_where_its_cause_came_from() {
    let mut peer = TwoAddresses::new();
    let nonce = chunk(HEARTBEAT, 0, &tlv(1, b"nonce"));
    let [(1, answer)] = &peer.send_from(1, std::slice::from_ref(&nonce))[..] else { panic!("one answer") };
    assert_eq!(answer.kinds(), [HEARTBEAT_ACK]);
    // Before it is confirmed, the SACK goes to the other address.
    let sent = peer.send_from(1, &[data(100, b"a"), nonce.clone(), data(102, b"c")]);
    let kinds: Vec<_> = sent.iter().map(|(link, sent)| (*link, sent.kinds())).collect();
    assert_eq!(kinds, [(1, vec![HEARTBEAT_ACK]), (0, vec![SACK])]);
    peer.confirm();
    for (n, link) in [1, 0, 1, 1].into_iter().enumerate() {
        let sent = peer.send_from(link, &[data(103 + n as u32, b"d")]);
        let kinds: Vec<_> = sent.iter().map(|(link, sent)| (*link, sent.kinds())).collect();
        assert_eq!(kinds, [(usize::from(link), vec![SACK])]);
    }
}

/// A peer that opens an association from its address on the second link to ours on the first, and
/// lists its address on the first. No route is known but that of the set-up.
struct Across(TwoAddresses);

impl Across {
    const SET_UP: Route = Route {
        macs: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
        ips: [IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))],
    };

    fn new(config: SctpConfig, mtu_bytes: u16) -> Self {
        let mut node = Node::with_mtu(2, config, mtu_bytes);
        node.listen();
        node.receive(&Across::SET_UP.packet(132, &listing(&[[10, 0, 0, 1]]).packet()));
        let [answer] = &node.sent()[..] else { panic!("one INIT ACK") };
        let tag = word(answer.value(), 0);
        node.receive(&Across::SET_UP.packet(132, &cookie_echo(answer)));
        let [(id, Events::ESTABLISHED)] = node.take_events()[..] else { panic!("no association") };
        let (_, remotes) = node.sctp.pop_unrouted().expect("an address without a route");
        assert_eq!(remotes[..], [on_link(0, 1), on_link(1, 1)], "that of the set-up is the last one");
        Across(TwoAddresses { node, tag, id })
    }

    /// Adds a route from our address on a link to that of the peer on another.
    fn add_route(&mut self, local: u8, remote: u8) {
        let TwoAddresses { node, id, .. } = &mut self.0;
        let [local, remote] = [on_link(local, 2), on_link(remote, 1)].map(|ip| SocketAddr::new(ip, PORT));
        let path = node.net.path_to(&Flow { local, remote }, MacAddr(Across::SET_UP.macs[0]));
        node.sctp.add_route(node.now, *id, path);
    }

    /// Sends chunks over the set-up's link, and returns the frames that are sent for them.
    fn answers(&mut self, chunks: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.0.node.receive(&Across::SET_UP.packet(132, &packet([FROM, PORT], self.0.tag, chunks)));
        self.0.node.frames()
    }

    /// Returns our address of each path.
    fn locals(&self) -> Vec<IpAddr> {
        self.0.node.sctp.paths(self.0.id).map(|path| path.local).collect()
    }
}

/// A peer opens an association from its address on one link to ours on another. Once both are known
/// its packets depend on no link of ours alone.
#[test]
fn an_address_of_another_link_is_reached_over_that_link() {
    let mut across = Across::new(both_links(2), 1_500);
    across.add_route(0, 0);
    across.add_route(1, 1);
    assert_eq!(across.locals(), [on_link(1, 2), on_link(0, 2)]);
}

/// The route of the set-up works. It stays if no other path leaves from its address, or if the new
/// one would share the address of another.
#[test]
fn the_route_of_the_set_up_stays_if_another_brings_no_redundancy() {
    let mut across = Across::new(both_links(2), 1_500);
    across.add_route(1, 1);
    assert_eq!(across.locals(), [on_link(0, 2)], "there is no other path yet");
    across.add_route(1, 0);
    across.add_route(1, 1);
    assert_eq!(across.locals(), [on_link(0, 2), on_link(1, 2)], "both are behind one gateway of ours");
}

/// RFC 9260 s6.4.1: a timeout on the new route of the set-up returns to the old one, over which the
/// peer has answered.
#[test]
fn a_timeout_returns_to_the_route_of_the_set_up() {
    let mut across = Across::new(both_links(2), 1_500);
    across.add_route(0, 0);
    across.add_route(1, 1);
    let TwoAddresses { node, id, .. } = &mut across.0;
    assert_eq!(node.transmit(*id, UNORDERED, &[b"message"]).0, 1);
    let sources = |node: &mut Node| {
        let frames = node.frames().into_iter().filter(|frame| Sent::read(frame).kinds() == [DATA]);
        frames.map(|frame| frame[27]).collect::<Vec<_>>()
    };
    assert_eq!(sources(node), [1], "from our address on the second link");
    node.pass(node.info(*id).rto + Nanos::from_millis(1));
    assert_eq!(sources(node), [0], "from that on the first");
}

/// RFC 6951 s5.4 and RFC 9260 s7.3: the new route is encapsulated as the old one is, and what has
/// passed stays the largest packet: messages in flight may be as large.
#[test]
fn a_new_route_keeps_the_encapsulation_and_the_mtu() {
    let mut across = Across::new(SctpConfig { udp_local_port: 9_899, ..both_links(2) }, 9_000);
    across.0.node.pass(Nanos::from_millis(1));
    let probes = across.0.node.frames();
    let probe = probes.iter().map(|frame| Sent::read(frame)).find(|sent| sent.kinds() == [HEARTBEAT, PAD]);
    across.answers(&[chunk(HEARTBEAT_ACK, 0, probe.expect("a probe of the MTU").value())]);
    let heartbeat = packet([FROM, PORT], across.0.tag, &[chunk(HEARTBEAT, 0, &tlv(1, b"nonce"))]);
    let udp = [20_000, 9_899, heartbeat.len() as u16 + 8, 0].map(u16::to_be_bytes).concat();
    across.0.node.receive(&Across::SET_UP.packet(17, &[udp, heartbeat].concat()));
    across.add_route(0, 0);
    across.add_route(1, 1);
    let TwoAddresses { node, id, .. } = &mut across.0;
    node.frames();
    assert_eq!(node.transmit(*id, UNORDERED, &[&[7; 8_000]]).0, 1);
    let frames = node.frames();
    let [frame] = &frames[..] else { panic!("one packet") };
    let (source, protocol, port) = (frame[27], frame[23], [frame[36], frame[37]]);
    assert_eq!((source, protocol, u16::from_be_bytes(port)), (1, 17, 20_000));
}

/// RFC 9260 s5.2.2: an INIT that adds an address to an association is refused, and the association
/// stays. One that lists none but its own is a restart, from any of its addresses.
#[test]
fn a_restart_cannot_add_addresses() {
    let mut peer = TwoAddresses::new();
    peer.confirm();
    for (link, listed) in [(0, [10, 1, 0, 3]), (1, [10, 0, 0, 3])] {
        peer.node.receive(&over(link, 1).packet(132, &listing(&[listed]).packet()));
        let [(at, refusal)] = &peer.collect()[..] else { panic!("one ABORT") };
        assert_eq!((*at, refusal.tag, refusal.kinds()), (link.into(), Peer::OWN_TAG, vec![ABORT]));
        let [(11, value)] = &tlvs(refusal.value())[..] else { panic!("one cause") };
        assert_eq!(tlvs(value), [(5, listed.to_vec())]);
    }
    // From an unknown address, with one of the association.
    peer.node.receive(&over(0, 3).packet(132, &listing(&[[10, 0, 0, 1]]).packet()));
    let [(0, refusal)] = &peer.collect()[..] else { panic!("one ABORT") };
    assert_eq!(refusal.kinds(), [ABORT]);
    assert_eq!(peer.node.state(peer.id), State::Established);
    let again = InitChunk { tag: 99, ..listing(&[[10, 0, 0, 1]]) };
    peer.node.receive(&over(1, 1).packet(132, &again.packet()));
    let [(1, answer)] = &peer.collect()[..] else { panic!("one INIT ACK") };
    peer.node.receive(&over(1, 1).packet(132, &cookie_echo(answer)));
    let events: Vec<_> = peer.node.take_events().into_iter().map(|(_, events)| events).collect();
    assert_eq!(events, [Events::RESET, Events::ESTABLISHED]);
}

/// A peer lists the address of another host: it gets HEARTBEATs only, and the host takes it over
/// when it opens an association (RFC 5062 s3).
#[test]
fn an_address_that_belongs_to_another_host_is_its_own() {
    let mut node = Node::new(2, both_links(2));
    node.listen();
    // Host 1 lists an address of host 3.
    let (tag, cookie) = Peer::cookie(&mut node, &listing(&[[10, 1, 0, 3]]));
    node.answers(1, &echo(tag, &cookie));
    let [(first, Events::ESTABLISHED)] = node.take_events()[..] else { panic!("no association") };
    node.pass(Nanos::from_millis(1));
    let probes = node.sent();
    assert_eq!(probes.iter().map(Sent::kinds).collect::<Vec<_>>(), [[HEARTBEAT]]);
    // Host 3 opens one from that address and the same port.
    node.receive(&over(1, 3).packet(132, &InitChunk { tag: 77, ..InitChunk::default() }.packet()));
    let [answer] = &node.sent()[..] else { panic!("one INIT ACK") };
    assert_eq!(answer.tag, 77);
    node.receive(&over(1, 3).packet(132, &cookie_echo(answer)));
    let [(second, Events::ESTABLISHED)] = node.take_events()[..] else { panic!("no association") };
    assert_eq!(node.sent().iter().map(Sent::kinds).collect::<Vec<_>>(), [[COOKIE_ACK]]);
    assert_ne!(first, second);
    // It does not know the tag of the HEARTBEATs, and says so.
    node.receive(&over(1, 3).packet(132, &packet([FROM, PORT], Peer::OWN_TAG, &[chunk(ABORT, 1, &[])])));
    node.pass(Nanos::from_secs(10));
    assert_eq!(node.sent(), [], "no more HEARTBEATs to it");
    let message = packet([FROM, PORT], word(answer.value(), 0), &[data(100, b"mine")]);
    node.receive(&over(1, 3).packet(132, &message));
    assert_eq!(node.read_all(second).len(), 1);
    assert_eq!(node.state(first), State::Established);
}

/// RFC 9260 s5.2.1: an INIT from another address of the host that we connect to is answered at the
/// address that our user has named, if the INIT lists it.
#[test]
fn a_collision_is_answered_at_the_address_that_the_user_named() {
    let mut node = Node::new(2, both_links(2));
    let id = node.connect_from(PORT, addr(1, FROM), 1);
    let [init] = &node.sent()[..] else { panic!("one INIT") };
    node.receive(&over(1, 1).packet(132, &listing(&[[10, 0, 0, 1]]).packet()));
    let [frame] = &node.frames()[..] else { panic!("one INIT ACK") };
    let answer = Sent::read(frame);
    assert_eq!((link_of(frame), answer.tag, answer.kinds()), (0, Peer::OWN_TAG, vec![INIT_ACK]));
    assert_eq!(answer.value()[..4], init.value()[..4], "our tag");
    assert_eq!(node.state(id), State::CookieWait);
    // The other address of the INIT is one of the association.
    let mut whole = Node::new(2, both_links(2));
    whole.connect_from(PORT, addr(1, FROM), 1);
    let _ = whole.frames();
    whole.receive(&over(1, 1).packet(132, &listing(&[[10, 0, 0, 1]]).packet()));
    let [answer] = &whole.sent()[..] else { panic!("one INIT ACK") };
    whole.receive(&over(0, 1).packet(132, &cookie_echo(answer)));
    let (_, remotes) = whole.sctp.pop_unrouted().expect("an address without a route");
    assert_eq!(remotes[..], [on_link(1, 1), on_link(0, 1)]);
    // Without that address the INIT concerns another association, which nobody listens for.
    node.receive(&over(1, 1).packet(132, &InitChunk::default().packet()));
    assert_eq!(node.sent().iter().map(Sent::kinds).collect::<Vec<_>>(), [[ABORT]]);
}

/// RFC 9260 s5.1.2 D: an INIT ACK is of the association that any address in it identifies.
#[test]
fn an_init_ack_may_come_from_another_address() {
    let mut node = Node::new(2, both_links(2));
    let id = node.connect_from(PORT, addr(1, FROM), 1);
    let [init] = &node.sent()[..] else { panic!("one INIT") };
    let parameters = vec![tlv(7, b"cookie"), tlv(5, &[10, 0, 0, 1])];
    let answer = InitChunk { parameters, ..InitChunk::default() }.build(INIT_ACK);
    node.receive(&over(1, 1).packet(132, &packet([FROM, PORT], word(init.value(), 0), &[answer])));
    let frames = node.frames();
    assert_eq!(
        frames.iter().map(|frame| (link_of(frame), Sent::read(frame).kinds())).collect::<Vec<_>>(),
        [(0, vec![COOKIE_ECHO])]
    );
    assert_eq!(node.state(id), State::CookieEchoed);
}

/// RFC 9260 s5.2.1: once INIT ACK has told the addresses of the peer, its INIT cannot add one.
#[test]
fn a_collision_cannot_add_addresses() {
    let mut node = Node::new(2, both_links(2));
    let id = node.connect_from(PORT, addr(1, FROM), 1);
    let [init] = &node.sent()[..] else { panic!("one INIT") };
    let answer = InitChunk { parameters: vec![tlv(7, b"cookie")], ..InitChunk::default() }.build(INIT_ACK);
    let answer = packet([FROM, PORT], word(init.value(), 0), &[answer]);
    assert_eq!(node.answers(1, &answer)[0].kinds(), [COOKIE_ECHO]);
    let refusal = node.answers(1, &listing(&[[10, 1, 0, 1]]).packet());
    assert_eq!(refusal.iter().map(Sent::kinds).collect::<Vec<_>>(), [[ABORT]]);
    let [(11, value)] = &tlvs(refusal[0].value())[..] else { panic!("one cause") };
    assert_eq!(tlvs(value), [(5, vec![10, 1, 0, 1])]);
    assert_eq!(node.state(id), State::CookieEchoed);
    let same = node.answers(1, &InitChunk::default().packet());
    assert_eq!(same.iter().map(Sent::kinds).collect::<Vec<_>>(), [[INIT_ACK]]);
}

/// A peer that has listed the second address of another host takes no packet from it, and its end
/// does not matter.
#[test]
fn an_address_that_two_peers_list_is_of_the_one_that_answers() {
    let mut pair = Pair::new(both_links);
    let far = &mut pair.nodes[1];
    // Host 3 lists the second address of host 1, with the same ports.
    let init = InitChunk { tag: 77, ..listing(&[[10, 1, 0, 1]]) };
    far.receive(&over(0, 3).packet(132, &init.packet()));
    let [answer] = &far.sent()[..] else { panic!("one INIT ACK") };
    far.receive(&over(0, 3).packet(132, &cookie_echo(answer)));
    let [(hostile, Events::ESTABLISHED)] = far.take_events()[..] else { panic!("no association") };
    let _ = far.frames();
    let mut pair = pair.confirm();
    pair.takes[0] = 0;
    pair.send();
    let far = &mut pair.nodes[1];
    far.sctp.abort(far.now, hostile, &mut far.wires);
    let _ = far.frames();
    pair.send();
    assert_eq!(pair.nodes[0].state(pair.ids[0]), State::Established);
}

/// Returns the COOKIE ECHO that answers an INIT ACK.
fn cookie_echo(answer: &Sent) -> Vec<u8> {
    assert_eq!(answer.kinds(), [INIT_ACK]);
    let cookie = tlvs(&answer.value()[16..]).into_iter().find(|&(kind, _)| kind == 7).expect("a cookie").1;
    packet([FROM, PORT], word(answer.value(), 0), &[chunk(COOKIE_ECHO, 0, &cookie)])
}

/// RFC 9260 s5.2.2: a peer that restarts may begin at any of its addresses, also one that was never
/// confirmed.
#[test]
fn a_restart_from_an_unconfirmed_address_ends_the_association() {
    let mut peer = TwoAddresses::new();
    let again = InitChunk { tag: 99, ..listing(&[[10, 0, 0, 1]]) };
    peer.node.receive(&over(1, 1).packet(132, &again.packet()));
    let [(1, answer)] = &peer.collect()[..] else { panic!("one INIT ACK") };
    peer.node.receive(&over(1, 1).packet(132, &cookie_echo(answer)));
    let events: Vec<_> = peer.node.take_events().into_iter().map(|(_, events)| events).collect();
    assert_eq!(events, [Events::RESET, Events::ESTABLISHED]);
}

/// RFC 9260 s6.4: SHUTDOWN goes over another path when it is not answered.
#[test]
fn an_association_ends_in_order_over_the_other_path() {
    let mut pair = Pair::confirmed(both_links);
    pair.takes[0] = 0;
    let id = pair.ids[0];
    pair.nodes[0].close(id);
    pair.pass(Nanos::from_secs(2));
    let events: Vec<_> = pair.nodes[0].take_events().into_iter().map(|(_, events)| events).collect();
    assert_eq!(events.last(), Some(&Events::CLOSED));
}

/// A chunk that is larger than packets of the other path are yet moves there all the same, if the
/// link takes it.
#[test]
fn a_large_chunk_moves_to_a_path_that_is_not_probed_yet() {
    let mut pair = Pair::with_mtu(9_000, both_links);
    pair.takes[1] = 0;
    pair.pass(Nanos::from_millis(10));
    pair.takes = [0, usize::MAX];
    pair.send_message(&[7; 8_000]);
    assert!(pair.paths(0)[1].is_current);
}

/// RFC 8899 s4.3: a path that takes small packets only, and answers HEARTBEATs, is found out while
/// others carry what it loses.
#[test]
fn a_black_hole_of_one_path_is_found_with_several() {
    let quick = |host| SctpConfig { heartbeat_interval: Nanos::from_millis(100), ..both_links(host) };
    let mut pair = Pair::with_mtu(9_000, quick);
    pair.pass(Nanos::from_secs(3));
    assert_eq!(pair.states(), [[PathState::Active; 2]; 2]);
    pair.takes[0] = 2_000;
    for _ in 0..20 {
        let time = pair.send_message(&[7; 8_000]);
        assert!(time < Nanos::from_secs(1), "{time:?}");
        pair.pass(Nanos::from_millis(20));
        if pair.nodes[0].read(Counter::SctpPathMtuLowered) > 0 {
            return;
        }
    }
    panic!("the first path loses packets again and again");
}

/// What a path has not proved yet is no limit for other associations: only what a router reports.
#[test]
fn the_limit_of_a_route_is_what_a_router_reports() {
    let mut peer = TwoAddresses::with_mtu(9_000);
    let limits = |node: &mut Node| {
        let mut limits = Vec::new();
        node.sctp.update_paths(0, 64, |_, mtu_bytes| limits.push(mtu_bytes));
        limits
    };
    assert_eq!(limits(&mut peer.node), [9_000, 9_000]);
    let flow = peer.node.info(peer.id).flow;
    peer.node.sctp.on_too_big(peer.node.now, &flow, Peer::OWN_TAG, 4_000, &mut peer.node.wires);
    assert_eq!(limits(&mut peer.node), [4_000, 9_000]);
}

/// Addresses that cannot be a peer's, those given twice and those beyond four are ignored, and
/// those of a family that this host does not have. The types that the peer supports do not matter.
#[test]
fn the_addresses_of_a_peer_are_bounded() {
    let mut node = Node::new(2, both_links(2));
    node.listen();
    let mut addresses =
        vec![[10, 1, 0, 2], [0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [10, 0, 0, 1], [10, 1, 0, 9]];
    addresses.extend((0..100).map(|n| [10, 1, 1, n]));
    let mut init = listing(&addresses);
    init.parameters.insert(0, tlv(6, &[0xfd; 16]));
    init.parameters.insert(0, tlv(12, &[0, 6]));
    let (tag, cookie) = Peer::cookie(&mut node, &init);
    node.receive(&Route::v4(1, 2).packet(132, &echo(tag, &cookie)));
    let (_, remotes) = node.sctp.pop_unrouted().expect("addresses without a route");
    let expected: Vec<IpAddr> =
        vec![on_link(1, 9), [10, 1, 1, 0].into(), [10, 1, 1, 1].into(), on_link(0, 1)];
    assert_eq!(remotes[..], expected[..]);
    // 3 more addresses of the peer on one link, and 4 on the other.
    assert_eq!(node.sctp.resource_usage().flows, 8);
}

/// A peer may fail over to an address before our route to it is found. What it sends then is
/// answered over that route only.
#[test]
fn a_route_to_an_address_is_asked_for_again_soon_and_then_less_often() {
    let mut node = Node::new(2, both_links(2));
    node.listen();
    let (tag, cookie) = Peer::cookie(&mut node, &listing(&[[10, 1, 0, 1]]));
    node.receive(&Route::v4(1, 2).packet(132, &echo(tag, &cookie)));
    assert!(node.sctp.pop_unrouted().is_some());
    for wait_ms in [10, 20, 40] {
        node.pass(Nanos::from_millis(wait_ms / 2));
        assert!(node.sctp.pop_unrouted().is_none(), "{wait_ms} ms");
        node.pass(Nanos::from_millis(wait_ms));
        assert!(node.sctp.pop_unrouted().is_some(), "{wait_ms} ms");
    }
}

/// RFC 9260 s3.3.10.11 and s3.3.3: addresses of the wrong length end the attempt.
#[test]
fn a_short_address_parameter_is_refused() {
    let mut node = Node::new(2, both_links(2));
    node.listen();
    for bytes in [0, 3, 5] {
        let init = InitChunk { parameters: vec![tlv(5, &vec![10; bytes])], ..InitChunk::default() };
        let [refusal] = &node.answers(1, &init.packet())[..] else { panic!("one ABORT") };
        assert_eq!(refusal.kinds(), [ABORT]);
    }
    assert_eq!(node.associations(), 0);
}

/// The windows of each path are its own: a timeout on one shrinks its window, and not that of the
/// other (RFC 9260 s7.2).
#[test]
fn each_path_has_its_own_window() {
    let mut pair = Pair::confirmed(both_links);
    let before: Vec<_> = pair.paths(0).iter().map(|path| path.cwnd_bytes).collect();
    pair.takes[0] = 0;
    pair.send();
    let after: Vec<_> = pair.paths(0).iter().map(|path| path.cwnd_bytes).collect();
    assert!(after[0] < before[0] && after[1] == before[1], "{before:?} {after:?}");
    let full: &[u8] = &[7; 1_452];
    assert!(pair.nodes[0].transmit(pair.ids[0], UNORDERED, &[full; 16]).0 > 2);
    pair.pass(Nanos::from_millis(50));
    assert!(pair.paths(0)[1].cwnd_bytes > after[1], "the window of the path that was sent over grows");
    assert_eq!(pair.paths(0)[0].flight_bytes, 0, "it is in flight on the path that it was sent again on");
}

/// RFC 9260 s7.3: each path has its own MTU, and messages fit all of them.
#[test]
fn messages_fit_the_smallest_mtu_of_the_paths() {
    let mut peer = TwoAddresses::new();
    peer.confirm();
    let flow = |link| Flow {
        local: SocketAddr::new(on_link(link, 2), PORT),
        remote: SocketAddr::new(on_link(link, 1), FROM),
    };
    let message = [7; 1_452];
    for (link, mtu_bytes, bytes) in [(0, 1_400, 1_352), (1, 1_200, 1_152)] {
        assert!(peer.node.sctp.on_too_big(
            peer.node.now,
            &flow(link),
            Peer::OWN_TAG,
            mtu_bytes,
            &mut peer.node.wires
        ));
        assert_eq!(peer.node.transmit(peer.id, UNORDERED, &[&message[..=bytes]]).0, 0);
        assert_eq!(peer.node.transmit(peer.id, UNORDERED, &[&message[..bytes]]).0, 1);
        let [(0, sent)] = &peer.collect()[..] else { panic!("one packet on the primary path") };
        let acked = SentData::all(std::slice::from_ref(sent))[0].tsn;
        peer.send_from(0, &[sack(acked, 1 << 20, &[])]);
    }
}

/// RFC 9260 s6.1, rule A: messages that share a packet fit the receive window together, also where
/// the MTU of another path limits a message and not the packet.
#[test]
fn messages_that_share_a_packet_fit_the_window() {
    let mut peer = TwoAddresses::with_mtu(9_000);
    peer.node.pass(Nanos::from_millis(1));
    // The first path proves its MTU, and the second one its address only.
    for (link, heartbeat) in peer.collect() {
        peer.send_from(link as u8, &[chunk(HEARTBEAT_ACK, 0, heartbeat.value())]);
    }
    assert_eq!(peer.states(), [PathState::Active; 2]);
    assert_eq!(peer.node.transmit(peer.id, UNORDERED, &[b"first"]).0, 1);
    let first = SentData::all(&[peer.collect().remove(0).1])[0].tsn;
    assert_eq!(peer.send_from(0, &[sack(first, 1_500, &[])]), []);
    peer.node.transmit(peer.id, UNORDERED, &[&[7; 400][..]; 20]);
    let sent: Vec<_> = peer.collect().into_iter().map(|(_, sent)| sent).collect();
    let octets: usize = SentData::all(&sent).iter().map(|data| data.payload.len()).sum();
    assert!((400..=1_500).contains(&octets), "{octets} octets");
}
