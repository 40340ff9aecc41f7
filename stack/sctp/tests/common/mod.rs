//! One node over an in-memory port, and packets that are built and read octet by octet.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ironwarp_arch::crc32c;
use ironwarp_llp::{Blocked, ConnId, Events, ListenerId, UnitSource};
use ironwarp_net::{Net, NetConfig, Prefix, Received, TransportProtocol};
use ironwarp_port::memory::{self, FarEnd, MemoryConfig, MemoryControl, MemoryFrame, MemoryPort};
use ironwarp_port::{Burst, Frame, Wire, Wires};
use ironwarp_sctp::{
    AssociationInfo, Message, MessageHeader, PathState, Sctp, SctpConfig, State, UpperLayer,
};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_testkit::Route;
use ironwarp_types::{Flow, MacAddr, Nanos};

/// The chunk types, as RFC 9260 s3.2 and RFC 4820 s3 number them.
pub const PAD: u8 = 0x84;
pub const DATA: u8 = 0;
pub const INIT: u8 = 1;
pub const INIT_ACK: u8 = 2;
pub const SACK: u8 = 3;
pub const HEARTBEAT: u8 = 4;
pub const HEARTBEAT_ACK: u8 = 5;
pub const ABORT: u8 = 6;
pub const SHUTDOWN: u8 = 7;
pub const SHUTDOWN_ACK: u8 = 8;
pub const ERROR: u8 = 9;
pub const COOKIE_ECHO: u8 = 10;
pub const COOKIE_ACK: u8 = 11;
pub const SHUTDOWN_COMPLETE: u8 = 14;

/// The port that listeners have.
pub const PORT: u16 = 4791;
/// The port that connections come from.
pub const FROM: u16 = 40_000;

const HEADERS: usize = 34;

pub struct Node {
    pub host: u8,
    pub net: Net,
    pub sctp: Sctp<MemoryPort>,
    pub wires: Wires<MemoryPort>,
    pub control: MemoryControl,
    far: FarEnd,
    pub stats: CoreStats,
    pub now: Nanos,
    pub upper: Upper,
}

/// The layer above of a node.
#[derive(Default)]
pub struct Upper {
    pub events: Vec<(ConnId, Events)>,
    /// Whether messages are taken as they arrive.
    pub takes: bool,
    pub taken: Vec<(MessageHeader, Vec<u8>)>,
    /// Stream and length of the messages that the peer acknowledged at once.
    pub acked: Vec<(u16, u32)>,
    pub paths: Vec<(IpAddr, PathState)>,
}

impl UpperLayer for Upper {
    fn event(&mut self, id: ConnId, events: Events) {
        self.events.push((id, events));
    }

    fn message(&mut self, _: ConnId, message: Message<'_>) -> bool {
        if self.takes {
            self.taken.push((message.header, message.payload.to_vec()));
        }
        self.takes
    }

    fn acked(&mut self, _: ConnId, stream: u16, bytes: u32) {
        self.acked.push((stream, bytes));
    }

    fn path(&mut self, _: ConnId, remote: IpAddr, state: PathState) {
        self.paths.push((remote, state));
    }
}

fn mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host])
}

pub fn addr(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], port))
}

/// The address of a host on one of two links.
pub fn on_link(link: u8, host: u8) -> IpAddr {
    IpAddr::from([10, link, 0, host])
}

/// Settings of a host that uses its addresses on both links.
pub fn both_links(host: u8) -> SctpConfig {
    SctpConfig { addresses: vec![on_link(0, host), on_link(1, host)], ..SctpConfig::default() }
}

/// Returns the link of a frame: that of the address it goes to.
pub fn link_of(frame: &[u8]) -> usize {
    frame[31].into()
}

impl Node {
    pub fn new(host: u8, config: SctpConfig) -> Self {
        Node::with_mtu(host, config, 1_500)
    }

    pub fn with_mtu(host: u8, config: SctpConfig, mtu_bytes: u16) -> Self {
        config.validate().expect("settings");
        let (port, far) =
            memory::detached(&MemoryConfig { mac: mac(host), mtu_bytes, ..MemoryConfig::default() });
        let stats = CoreStats::detached();
        let mut net_config = NetConfig {
            transport: TransportProtocol::SCTP,
            udp_port: config.udp_local_port,
            ..NetConfig::new(mac(host), Ipv4Addr::new(10, 0, 0, host), 24, mtu_bytes, [host.into(), 7])
        };
        net_config.addresses.push(Prefix { addr: on_link(1, host), len: 24 });
        let (control, wire) = (port.control(), Wire::new(port));
        let net = Net::new(net_config, wire.caps(), stats.clone());
        let sctp = Sctp::new(config, net.hasher(), [host.into(), 11], stats.clone());
        let (wires, now) = (Wires::single(wire), Nanos::from_secs(1_000));
        Node { host, net, sctp, wires, control, far, stats, now, upper: Upper::default() }
    }

    /// A node that listens on [`PORT`].
    pub fn listening(host: u8) -> Self {
        let mut node = Node::new(host, SctpConfig::default());
        node.listen();
        node
    }

    pub fn listen(&mut self) -> ListenerId {
        self.sctp.listen(addr(self.host, PORT)).expect("a free listener")
    }

    pub fn connect_from(&mut self, local_port: u16, remote: SocketAddr, remote_host: u8) -> ConnId {
        let flow = Flow { local: addr(self.host, local_port), remote };
        let path = self.net.path_to(&flow, mac(remote_host));
        let id = self.sctp.connect(self.now, flow, path, &mut self.wires).expect("a free slot");
        self.check();
        id
    }

    /// Connects from [`FROM`] to the listener of `host`.
    pub fn connect(&mut self, host: u8) -> ConnId {
        self.connect_from(FROM, addr(host, PORT), host)
    }

    pub fn receive(&mut self, frame: &[u8]) {
        let frame = MemoryFrame::detached(frame, frame.len().max(2_048));
        let (now, net) = (self.now, &mut self.net);
        if let Some(Received::Packet(packet)) = net.on_frame(now, frame, self.wires.first_mut()) {
            let (flow, mac) = (packet.flow, packet.remote_mac);
            let path = || net.path_to(&flow, mac);
            self.sctp.on_packet(now, packet, path, &mut self.wires, &mut self.upper);
        }
        self.check();
    }

    /// Receives a packet of `from`, and returns what is sent for it.
    pub fn answers(&mut self, from: u8, packet: &[u8]) -> Vec<Sent> {
        self.receive(&Route::v4(from, self.host).packet(132, packet));
        self.sent()
    }

    /// Lets time pass, and runs the timers on the way.
    pub fn pass(&mut self, time: Nanos) {
        let end = self.now + time;
        while let Some(next) = self.sctp.next_deadline().filter(|&next| next <= end) {
            self.now = self.now.max(next);
            self.timers();
            if self.sctp.next_deadline() == Some(next) {
                self.now += Nanos(1 << 14);
            }
        }
        self.now = end;
        self.timers();
    }

    pub fn timers(&mut self) {
        self.sctp.on_timers(self.now, &mut self.wires, &mut self.upper);
        self.check();
    }

    /// Sends messages while the windows take them. Returns how many were pulled, and what stopped
    /// it.
    pub fn transmit(&mut self, id: ConnId, header: MessageHeader, messages: &[&[u8]]) -> (usize, Blocked) {
        let mut source = Messages(messages);
        let done = self.sctp.transmit(self.now, id, header, &mut source, &mut self.wires, usize::MAX);
        self.check();
        (messages.len() - source.0.len(), done.blocked)
    }

    pub fn close(&mut self, id: ConnId) -> Events {
        let events = self.sctp.close(self.now, id, &mut self.wires);
        self.check();
        events
    }

    /// Ends the iteration, and returns what was sent. Addresses of peers get their routes.
    pub fn frames(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        while let Some((id, remotes)) = self.sctp.pop_unrouted() {
            for remote in remotes {
                let IpAddr::V4(remote) = remote else { continue };
                let [_, link, _, host] = remote.octets();
                let flow = self.info(id).flow;
                let flow = Flow {
                    local: SocketAddr::new(on_link(link, self.host), flow.local.port()),
                    remote: SocketAddr::new(remote.into(), flow.remote.port()),
                };
                self.sctp.add_route(self.now, id, self.net.path_to(&flow, mac(host)));
            }
        }
        self.sctp.flush_acks(self.now, &mut self.wires);
        self.check();
        loop {
            self.wires.flush();
            let mut burst = Burst::new();
            self.far.collect(&mut burst);
            if burst.is_empty() {
                return sent;
            }
            sent.extend(burst.iter().map(|frame| frame.bytes().to_vec()));
        }
    }

    pub fn sent(&mut self) -> Vec<Sent> {
        self.frames().iter().map(|frame| Sent::read(frame)).collect()
    }

    pub fn take_events(&mut self) -> Vec<(ConnId, Events)> {
        std::mem::take(&mut self.upper.events)
    }

    /// Reads all messages.
    pub fn read_all(&mut self, id: ConnId) -> Vec<(MessageHeader, Vec<u8>)> {
        let mut read = Vec::new();
        while let Some(stream) = self.sctp.readable_stream(id) {
            let message = self.sctp.message(id, stream).expect("a readable message");
            read.push((message.header, message.payload.to_vec()));
            self.sctp.consume(id, stream);
            self.check();
        }
        read
    }

    pub fn info(&self, id: ConnId) -> AssociationInfo {
        self.sctp.association_info(id).expect("an association")
    }

    pub fn state(&self, id: ConnId) -> State {
        self.info(id).state
    }

    pub fn read(&self, counter: Counter) -> u64 {
        self.stats.read(counter)
    }

    pub fn associations(&self) -> usize {
        self.sctp.resource_usage().connections
    }

    fn check(&self) {
        self.sctp.check().unwrap_or_else(|fault| panic!("host {} at {:?}: {fault}", self.host, self.now));
    }
}

/// Messages to send. One that does not fit waits.
struct Messages<'a>(&'a [&'a [u8]]);

impl UnitSource for Messages<'_> {
    fn fill(&mut self, room: &mut [u8]) -> usize {
        let Some((first, rest)) = self.0.split_first().filter(|(first, _)| first.len() <= room.len()) else {
            return 0;
        };
        self.0 = rest;
        room[..first.len()].copy_from_slice(first);
        first.len()
    }

    fn is_empty(&mut self) -> bool {
        self.0.is_empty()
    }
}

/// Passes frames between two nodes until neither sends any. Returns the types of the chunks.
pub fn exchange(a: &mut Node, b: &mut Node) -> Vec<u8> {
    let mut kinds = Vec::new();
    loop {
        let (from_a, from_b) = (a.frames(), b.frames());
        if from_a.is_empty() && from_b.is_empty() {
            return kinds;
        }
        kinds.extend(from_a.iter().chain(&from_b).flat_map(|frame| Sent::read(frame).kinds()));
        from_a.iter().for_each(|frame| b.receive(frame));
        from_b.iter().for_each(|frame| a.receive(frame));
    }
}

/// Two nodes with an association: the nodes, and its id on each.
pub fn established() -> (Node, ConnId, Node, ConnId) {
    let (mut a, mut b) = (Node::new(1, SctpConfig::default()), Node::listening(2));
    let at_a = a.connect(2);
    exchange(&mut a, &mut b);
    let [(at_b, Events::ESTABLISHED)] = b.take_events()[..] else { panic!("no association") };
    assert_eq!(a.take_events(), [(at_a, Events::ESTABLISHED)]);
    (a, at_a, b, at_b)
}

/// A packet that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    pub ports: [u16; 2],
    pub tag: u32,
    /// Type, flags and value of each chunk.
    pub chunks: Vec<(u8, u8, Vec<u8>)>,
}

impl Sent {
    pub fn read(frame: &[u8]) -> Self {
        assert_eq!(&frame[12..14], &[8, 0], "IPv4");
        assert_eq!(frame[23], 132);
        assert_eq!(usize::from(half(frame, 16)), frame.len() - 14, "the total length");
        let packet = &frame[HEADERS..];
        let mut zeroed = packet.to_vec();
        zeroed[8..12].fill(0);
        assert_eq!(packet[8..12], crc32c(&zeroed).to_le_bytes(), "the checksum");
        let (mut chunks, mut at) = (Vec::new(), 12);
        while at < packet.len() {
            let length = usize::from(half(packet, at + 2));
            chunks.push((packet[at], packet[at + 1], packet[at + 4..at + length].to_vec()));
            let padded = length.next_multiple_of(4);
            assert!(packet[at + length..at + padded].iter().all(|&octet| octet == 0), "padding is zero");
            at += padded;
        }
        assert_eq!(at, packet.len(), "whole chunks");
        Sent { ports: [half(packet, 0), half(packet, 2)], tag: word(packet, 4), chunks }
    }

    pub fn kinds(&self) -> Vec<u8> {
        self.chunks.iter().map(|&(kind, ..)| kind).collect()
    }

    /// Returns the value of the first chunk.
    pub fn value(&self) -> &[u8] {
        &self.chunks[0].2
    }

    /// Returns the packet as octets again.
    pub fn packet(&self) -> Vec<u8> {
        let chunks: Vec<_> =
            self.chunks.iter().map(|(kind, flags, value)| chunk(*kind, *flags, value)).collect();
        packet(self.ports, self.tag, &chunks)
    }
}

fn half(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

pub fn word(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*octets[at..].first_chunk().expect("a word"))
}

/// Returns the parameters or error causes of a list as type and value.
pub fn tlvs(mut list: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut found = Vec::new();
    while !list.is_empty() {
        let length = usize::from(half(list, 2));
        found.push((half(list, 0), list[4..length].to_vec()));
        list = list.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// Returns a packet. `ports` are those of the sender and of the receiver.
pub fn packet(ports: [u16; 2], tag: u32, chunks: &[Vec<u8>]) -> Vec<u8> {
    let [from, to] = ports.map(u16::to_be_bytes);
    let mut octets = [&from[..], &to, &tag.to_be_bytes(), &[0; 4], &chunks.concat()].concat();
    let checksum = crc32c(&octets).to_le_bytes();
    octets[8..12].copy_from_slice(&checksum);
    octets
}

pub fn chunk(kind: u8, flags: u8, value: &[u8]) -> Vec<u8> {
    let mut octets = [&[kind, flags][..], &(value.len() as u16 + 4).to_be_bytes(), value].concat();
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

/// Returns a parameter or an error cause.
pub fn tlv(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut octets = [&kind.to_be_bytes()[..], &(value.len() as u16 + 4).to_be_bytes(), value].concat();
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

/// The fields of INIT and INIT ACK.
#[derive(Clone)]
pub struct InitChunk {
    pub tag: u32,
    pub a_rwnd: u32,
    pub streams: [u16; 2],
    pub tsn: u32,
    pub parameters: Vec<Vec<u8>>,
}

impl Default for InitChunk {
    fn default() -> Self {
        InitChunk { tag: 0x1234_5678, a_rwnd: 65_536, streams: [8, 9], tsn: 100, parameters: Vec::new() }
    }
}

impl InitChunk {
    pub fn build(&self, kind: u8) -> Vec<u8> {
        let [outbound, inbound] = self.streams.map(u16::to_be_bytes);
        let fixed = [self.tag.to_be_bytes(), self.a_rwnd.to_be_bytes()].concat();
        let value =
            [&fixed[..], &outbound, &inbound, &self.tsn.to_be_bytes(), &self.parameters.concat()].concat();
        chunk(kind, 0, &value)
    }

    /// Returns a packet from [`FROM`] to [`PORT`] with this INIT.
    pub fn packet(&self) -> Vec<u8> {
        packet([FROM, PORT], 0, &[self.build(INIT)])
    }
}

/// A peer at host 1 that a test plays, which has set up an association with `node`.
pub struct Peer {
    /// The tag that the node expects.
    pub tag: u32,
    pub id: ConnId,
}

impl Peer {
    /// The tag that the node sends with.
    pub const OWN_TAG: u32 = 0x1234_5678;

    pub fn set_up(node: &mut Node) -> Self {
        let (tag, cookie) = Peer::cookie(node, &InitChunk::default());
        let [reply] = &node.answers(1, &echo(tag, &cookie))[..] else { panic!("one reply") };
        assert_eq!((reply.tag, reply.kinds()), (Peer::OWN_TAG, vec![COOKIE_ACK]));
        let [(id, Events::ESTABLISHED)] = node.take_events()[..] else { panic!("no association") };
        Peer { tag, id }
    }

    /// Sends an INIT, and returns the node's tag and cookie.
    pub fn cookie(node: &mut Node, init: &InitChunk) -> (u32, Vec<u8>) {
        let [reply] = &node.answers(1, &init.packet())[..] else { panic!("one reply") };
        assert_eq!((reply.tag, reply.kinds()), (init.tag, vec![INIT_ACK]));
        let (_, cookie) =
            tlvs(&reply.value()[16..]).into_iter().find(|&(kind, _)| kind == 7).expect("a cookie");
        (word(reply.value(), 0), cookie)
    }

    /// Sends chunks with the right tag, and returns the answers.
    pub fn send(&self, node: &mut Node, chunks: &[Vec<u8>]) -> Vec<Sent> {
        node.answers(1, &packet([FROM, PORT], self.tag, chunks))
    }
}

/// Returns a packet with COOKIE ECHO.
pub fn echo(tag: u32, cookie: &[u8]) -> Vec<u8> {
    packet([FROM, PORT], tag, &[chunk(COOKIE_ECHO, 0, cookie)])
}

/// A DATA chunk of a whole message.
#[derive(Clone, Copy)]
pub struct DataChunk<'a> {
    pub tsn: u32,
    pub stream: u16,
    /// `None`: unordered.
    pub ssn: Option<u16>,
    pub flags: u8,
    pub payload: &'a [u8],
}

impl DataChunk<'_> {
    /// The PPID of all.
    pub const PPID: u32 = 16;

    pub fn build(&self) -> Vec<u8> {
        let fixed = [self.tsn.to_be_bytes(), [0; 4], Self::PPID.to_be_bytes()].concat();
        let mut value = [&fixed[..], self.payload].concat();
        value[4..6].copy_from_slice(&self.stream.to_be_bytes());
        value[6..8].copy_from_slice(&self.ssn.unwrap_or(0xeeee).to_be_bytes());
        chunk(DATA, self.flags | if self.ssn.is_none() { 4 } else { 0 }, &value)
    }
}

/// An unordered message on stream 0.
pub fn data(tsn: u32, payload: &[u8]) -> Vec<u8> {
    DataChunk { tsn, stream: 0, ssn: None, flags: 3, payload }.build()
}

/// An ordered message on stream 0.
pub fn ordered(tsn: u32, ssn: u16, payload: &[u8]) -> Vec<u8> {
    DataChunk { tsn, stream: 0, ssn: Some(ssn), flags: 3, payload }.build()
}

/// A SACK that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sack {
    pub cum_tsn: u32,
    pub a_rwnd: u32,
    pub blocks: Vec<[u16; 2]>,
    pub duplicates: Vec<u32>,
}

impl Sack {
    /// Returns the only SACK of some packets.
    pub fn only(sent: &[Sent]) -> Self {
        let sacks: Vec<_> =
            sent.iter().flat_map(|sent| &sent.chunks).filter(|&&(kind, ..)| kind == SACK).collect();
        let [(_, 0, value)] = sacks[..] else { panic!("one SACK in {sent:?}") };
        let [blocks, duplicates] = [half(value, 8), half(value, 10)].map(usize::from);
        assert_eq!(value.len(), 12 + 4 * (blocks + duplicates));
        Sack {
            cum_tsn: word(value, 0),
            a_rwnd: word(value, 4),
            blocks: (0..blocks).map(|at| [half(value, 12 + 4 * at), half(value, 14 + 4 * at)]).collect(),
            duplicates: (blocks..blocks + duplicates).map(|at| word(value, 12 + 4 * at)).collect(),
        }
    }
}

/// A DATA chunk that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SentData {
    pub tsn: u32,
    pub stream: u16,
    pub ssn: u16,
    pub ppid: u32,
    pub flags: u8,
    pub payload: Vec<u8>,
}

impl SentData {
    /// Returns the DATA chunks of some packets.
    pub fn all(sent: &[Sent]) -> Vec<Self> {
        let chunks = sent.iter().flat_map(|sent| &sent.chunks).filter(|&&(kind, ..)| kind == DATA);
        let parse = |(_, flags, value): &(u8, u8, Vec<u8>)| SentData {
            tsn: word(value, 0),
            stream: half(value, 4),
            ssn: half(value, 6),
            ppid: word(value, 8),
            flags: *flags,
            payload: value[12..].to_vec(),
        };
        chunks.map(parse).collect()
    }

    /// Returns their TSNs, as distances from `base`.
    pub fn tsns(sent: &[Sent], base: u32) -> Vec<u32> {
        SentData::all(sent).iter().map(|data| data.tsn.wrapping_sub(base)).collect()
    }
}

/// Returns a SACK.
pub fn sack(cum_tsn: u32, a_rwnd: u32, blocks: &[[u16; 2]]) -> Vec<u8> {
    let mut value = [cum_tsn.to_be_bytes(), a_rwnd.to_be_bytes(), [0; 4]].concat();
    value[8..10].copy_from_slice(&(blocks.len() as u16).to_be_bytes());
    value.extend(blocks.iter().flatten().flat_map(|distance| distance.to_be_bytes()));
    chunk(SACK, 0, &value)
}
