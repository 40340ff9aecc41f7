//! The largest packet of a path (RFC 8899, RFC 9260 s7.3 and s6.9).

use ironwarp_llp::{Blocked, UnitSource};
use ironwarp_sctp::{MessageHeader, SctpConfig, State};
use ironwarp_stats::Counter;
use ironwarp_types::{Flow, Nanos};

use crate::common::*;

const UNORDERED: MessageHeader = MessageHeader { stream: 0, ppid: 0, is_unordered: true };
const LINK: u16 = 9_000;
/// Headers of Ethernet, IPv4, SCTP and DATA.
const HEADERS: usize = 14 + 20 + 12 + 16;

/// One message as long as may be.
struct Longest(bool);

impl UnitSource for Longest {
    fn fill(&mut self, room: &mut [u8]) -> usize {
        self.0 = false;
        room.fill(7);
        room.len()
    }

    fn is_empty(&mut self) -> bool {
        !self.0
    }
}

/// A node on a link of 9000 octets, and a peer that a test plays.
struct Scene {
    node: Node,
    peer: Peer,
    next_tsn: Option<u32>,
}

impl Scene {
    fn new() -> Self {
        let mut node =
            Node::with_mtu(2, SctpConfig { association_retries: 4, ..SctpConfig::default() }, LINK);
        node.listen();
        let (tag, cookie) = Peer::cookie(&mut node, &InitChunk::default());
        node.receive(&ironwarp_testkit::Route::v4(1, 2).packet(132, &echo(tag, &cookie)));
        let id = node.take_events()[0].0;
        // The probe leaves behind the COOKIE ACK.
        node.pass(Nanos::from_millis(1));
        Scene { node, peer: Peer { tag, id }, next_tsn: None }
    }

    /// One whose probe was answered.
    fn searched() -> Self {
        let mut scene = Scene::new();
        let probes = scene.probes();
        scene.answer(&probes[0].1);
        scene
    }

    /// Returns the length of each probe sent, as an IP packet, and its information. Other
    /// HEARTBEATs are answered.
    fn probes(&mut self) -> Vec<(usize, Vec<u8>)> {
        let frames = self.node.frames();
        for sent in frames.iter().map(|frame| Sent::read(frame)).filter(|sent| sent.kinds() == [HEARTBEAT]) {
            self.answer(sent.value());
        }
        let probes = frames.iter().map(|frame| (frame.len() - 14, Sent::read(frame)));
        let probes = probes.filter(|(_, sent)| sent.kinds() == [HEARTBEAT, PAD]);
        probes.map(|(bytes, sent)| (bytes, sent.value().to_vec())).collect()
    }

    fn answer(&mut self, value: &[u8]) {
        assert_eq!(self.peer.send(&mut self.node, &[chunk(HEARTBEAT_ACK, 0, value)]), []);
    }

    /// Sends the longest message, and returns its frame.
    fn send(&mut self) -> Vec<u8> {
        let (now, id) = (self.node.now, self.peer.id);
        let sent = self.node.sctp.transmit(now, id, UNORDERED, &mut Longest(true), &mut self.node.wires, 1);
        assert_eq!((sent.units, sent.blocked), (1, Blocked::None));
        let frames = self.node.frames();
        let frame = frames.into_iter().find(|frame| Sent::read(frame).kinds() == [DATA]).expect("a message");
        self.next_tsn = Some(SentData::all(&[Sent::read(&frame)])[0].tsn.wrapping_add(1));
        frame
    }

    /// The same, and acknowledges it. Returns the length of the IP packet.
    fn packet_bytes(&mut self) -> usize {
        let frame = self.send();
        let cum_tsn = self.next_tsn.expect("a message").wrapping_sub(1);
        self.peer.send(&mut self.node, &[sack(cum_tsn, 1 << 20, &[])]);
        frame.len() - 14
    }

    /// Lets probes be lost that are longer than `passes`.
    fn search(&mut self, passes: usize, time: Nanos) -> Vec<usize> {
        let mut sizes = Vec::new();
        let end = self.node.now + time;
        while self.node.now < end {
            for (bytes, value) in self.probes() {
                sizes.push(bytes);
                if bytes <= passes {
                    self.answer(&value);
                }
            }
            let next =
                self.node.sctp.next_deadline().unwrap_or(end).max(self.node.now + Nanos::from_micros(50));
            self.node.now = next.min(end);
            self.node.timers();
        }
        sizes
    }

    fn report(&mut self, tag: u32, mtu_bytes: u16) -> bool {
        let flow = Flow { local: addr(2, PORT), remote: addr(1, FROM) };
        self.node.sctp.on_too_big(self.node.now, &flow, tag, mtu_bytes, &mut self.node.wires)
    }
}

/// RFC 8899 s6.2.1: a HEARTBEAT with a PAD chunk is a probe of the link's MTU. Until it is answered
/// packets are as large as Ethernet takes.
#[test]
fn packets_grow_when_a_probe_is_answered() {
    let mut scene = Scene::new();
    let probes = scene.probes();
    assert_eq!(probes.iter().map(|probe| probe.0).collect::<Vec<_>>(), [usize::from(LINK)]);
    assert_eq!(scene.packet_bytes(), 1_500);
    scene.answer(&probes[0].1);
    assert_eq!(scene.packet_bytes(), usize::from(LINK));
    assert_eq!(scene.search(9_000, Nanos::from_secs(2_000)), [], "the search is complete");
    scene.answer_again(&probes[0].1);
}

impl Scene {
    /// An answer counts once, and only as it was asked for.
    fn answer_again(&mut self, value: &[u8]) {
        let before = self.node.read(Counter::SctpDropUnexpectedChunk);
        self.answer(value);
        assert_eq!(self.node.read(Counter::SctpDropUnexpectedChunk), before + 1);
    }
}

/// RFC 8899 s5.1.1 and s5.3: each size is tried three times, the next smaller one after it. The
/// loss of a probe is no error and no congestion (s3, item 7). Ten minutes later the search begins
/// anew.
#[test]
fn a_lost_probe_is_followed_by_smaller_ones() {
    let mut scene = Scene::new();
    let cwnd = scene.node.info(scene.peer.id).cwnd_bytes;
    let sizes = scene.search(4_400, Nanos::from_secs(60));
    assert_eq!(sizes, [9_000, 9_000, 9_000, 8_166, 8_166, 8_166, 4_352].map(|size| size & !3));
    assert_eq!(scene.packet_bytes(), 4_352);
    let info = scene.node.info(scene.peer.id);
    assert_eq!((info.state, info.cwnd_bytes >= cwnd), (State::Established, true));
    assert_eq!(scene.search(9_000, Nanos::from_secs(600))[..1], [9_000]);
    assert_eq!(scene.packet_bytes(), 9_000);
}

/// A path that takes no more than Ethernet is found out, too.
#[test]
fn a_search_that_finds_nothing_ends() {
    let mut scene = Scene::new();
    let sizes = scene.search(1_500, Nanos::from_secs(100));
    assert_eq!(sizes.len(), 5 * 3);
    assert_eq!((scene.packet_bytes(), scene.node.state(scene.peer.id)), (1_500, State::Established));
}

/// RFC 9260 appendix C and RFC 8899 s4.6: a report of a router counts with the tag of the peer. No
/// packet shrinks below what every host accepts.
#[test]
fn a_report_of_a_router_shrinks_packets() {
    let mut scene = Scene::searched();
    for (tag, mtu_bytes) in
        [(0, 1_400), (Peer::OWN_TAG ^ 1, 1_400), (scene.peer.tag, 1_400), (Peer::OWN_TAG, 9_001)]
    {
        assert_eq!(scene.report(tag, mtu_bytes), mtu_bytes > LINK);
        assert_eq!(scene.packet_bytes(), usize::from(LINK));
    }
    assert!(scene.report(Peer::OWN_TAG, 1_400));
    assert_eq!(scene.packet_bytes(), 1_400);
    assert!(!scene.report(Peer::OWN_TAG, 68));
    assert_eq!((scene.packet_bytes(), scene.node.read(Counter::SctpPathMtuLowered)), (576, 2));
}

/// RFC 8899 s4.6.2: a report about a probe gives the next size to try.
#[test]
fn a_report_about_a_probe_is_the_next_size() {
    let mut scene = Scene::new();
    assert_eq!(scene.probes().len(), 1);
    assert!(scene.report(Peer::OWN_TAG, 5_000));
    let probes = scene.probes();
    assert_eq!(probes[0].0, 5_000);
    scene.answer(&probes[0].1);
    assert_eq!(scene.packet_bytes(), 5_000);
}

/// RFC 8899 s4.3: large packets that time out again and again shrink. RFC 9260 s6.9: what was sent
/// before may be fragmented on its way.
#[test]
fn a_black_hole_shrinks_packets() {
    let mut scene = Scene::searched();
    let first = scene.send();
    assert_eq!((first.len(), first[20]), (14 + usize::from(LINK), 0x40), "it must not be fragmented");
    let mut flags = Vec::new();
    while flags.len() < 3 {
        scene.node.pass(Nanos::from_millis(100));
        for frame in scene.node.frames() {
            let sent = Sent::read(&frame);
            if sent.kinds() == [DATA] {
                assert_eq!(SentData::all(&[sent])[0].payload.len(), first.len() - HEADERS);
                let words =
                    frame[14..34].as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
                let sum: u32 = words.sum();
                assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the checksum of the header");
                flags.push(frame[20]);
            }
        }
    }
    assert_eq!(flags, [0x40, 0x40, 0]);
    let cum_tsn = scene.next_tsn.expect("a message").wrapping_sub(1);
    scene.peer.send(&mut scene.node, &[sack(cum_tsn, 1 << 20, &[])]);
    assert_eq!(scene.packet_bytes(), 1_500);
}

/// Two nodes answer each other's probes: a PAD chunk is skipped without a report.
#[test]
fn two_nodes_find_the_mtu_of_their_link() {
    let mut a = Node::with_mtu(1, SctpConfig::default(), LINK);
    let mut b = Node::with_mtu(2, SctpConfig::default(), LINK);
    b.listen();
    let id = a.connect(2);
    exchange(&mut a, &mut b);
    a.pass(Nanos::from_millis(1));
    b.pass(Nanos::from_millis(1));
    let kinds = exchange(&mut a, &mut b);
    assert_eq!(kinds.iter().filter(|&&kind| kind == PAD).count(), 2);
    assert!(!kinds.contains(&ERROR));
    let sent = a.sctp.transmit(a.now, id, UNORDERED, &mut Longest(true), &mut a.wires, 1);
    assert_eq!(sent.bytes + HEADERS - 14, usize::from(LINK));
}
