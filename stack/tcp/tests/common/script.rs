//! A peer that is scripted with traces; `trace` defines the notation of a segment.

use ironwarp_port::memory::MemoryFrame;
use ironwarp_tcp::{ConnId, LentBytes, TcpConfig, TcpEvents, Transport, UnitSource};
use ironwarp_types::Nanos;

use super::node::{Node, addr};
use super::pattern::read_all;
use super::trace::{OurNumbers, TraceSegment};

/// The node under test and a scripted peer.
pub struct Script {
    pub node: Node,
    pub id: Option<ConnId>,
    pub our_numbers: OurNumbers,
    pub our_port: u16,
    pub peer_port: u16,
    pub taken: u64,
}

impl Script {
    /// Without timestamps, SACK and ECN, regardless of `config`.
    pub fn new(config: TcpConfig) -> Self {
        Self::with_mtu(config, 1_500)
    }

    /// Without timestamps, SACK and ECN, regardless of `config`.
    pub fn with_mtu(config: TcpConfig, mtu_bytes: u16) -> Self {
        Self::of(TcpConfig { timestamps: false, sack: false, ecn: false, ..config }, mtu_bytes)
    }

    /// With the options of `config`.
    pub fn with_options(config: TcpConfig) -> Self {
        Self::of(config, 1_500)
    }

    fn of(config: TcpConfig, mtu_bytes: u16) -> Self {
        let node = Node::new(1, mtu_bytes, config);
        Script {
            node,
            id: None,
            our_numbers: OurNumbers::default(),
            our_port: 4_420,
            peer_port: 50_000,
            taken: 0,
        }
    }

    /// A connection that the peer opened. The peer's windows have `win` bytes.
    pub fn accepted(config: TcpConfig, win: u16) -> Self {
        let mut script = Script::new(config);
        script.accept("S 0 win 65535 <mss 1460>", &format!(". 1 ack 1 win {win}"));
        script
    }

    /// A connection that the peer opened with these two segments, with the options of `config`.
    pub fn accepted_with(config: TcpConfig, syn: &str, ack: &str) -> Self {
        let mut script = Script::with_options(config);
        script.accept(syn, ack);
        script
    }

    fn accept(&mut self, syn: &str, ack: &str) {
        self.node.tcp.listen(addr(1, 4_420)).expect("room");
        self.peer(syn);
        self.sent();
        self.peer(ack);
        self.id = self.node.established();
        assert_eq!(self.events(), TcpEvents::ESTABLISHED);
    }

    /// A connection that we opened. The peer's windows have `win` bytes.
    pub fn connected(config: TcpConfig, win: u16) -> Self {
        let mut script = Script::new(config);
        script.connect();
        script.sent();
        script.peer(&format!("S. 0 ack 1 win {win} <mss 1460>"));
        script.expect(&[". 1 ack 1"]);
        assert_eq!(script.events(), TcpEvents::ESTABLISHED);
        script
    }

    /// Opens another connection, to another port, which the script uses from now on.
    pub fn open_to(&mut self, peer_port: u16) {
        self.set_peer_port(peer_port);
        self.connect();
        self.sent();
        self.peer("S. 0 ack 1 win 64000 <mss 1460>");
        self.sent();
        assert_eq!(self.events(), TcpEvents::ESTABLISHED);
    }

    /// Continues the script as a new peer at another port.
    pub fn set_peer_port(&mut self, peer_port: u16) {
        (self.peer_port, self.our_numbers, self.taken) = (peer_port, OurNumbers::default(), 0);
    }

    pub fn connect(&mut self) {
        self.id = Some(self.node.connect(self.our_port, addr(2, self.peer_port), 2));
    }

    pub fn id(&self) -> ConnId {
        self.id.expect("a connection")
    }

    /// The peer sends a segment.
    pub fn peer(&mut self, text: &str) {
        let frame = self.frame(text);
        self.node.receive(&frame);
    }

    /// Returns the frame of a segment of the peer.
    pub fn frame(&self, text: &str) -> Vec<u8> {
        TraceSegment::parse(text).encode(self.our_numbers, (self.peer_port, self.our_port))
    }

    /// The peer sends a segment, and `read` consumes lent payload. Returns the number of lent
    /// bytes.
    pub fn peer_lending(&mut self, text: &str, read: impl FnOnce(&mut LentBytes<MemoryFrame>)) -> usize {
        let frame = self.frame(text);
        self.node.receive_lending(&frame, read)
    }

    /// The same, with an urgent pointer.
    pub fn peer_with_urgent(&mut self, text: &str, urgent: u16) {
        let mut frame = self.frame(text);
        // RFC 9293 s3.1: the field after the checksum. The checksum was computed with a pointer of
        // zero (RFC 1624).
        frame[52..54].copy_from_slice(&urgent.to_be_bytes());
        let sum = u32::from(u16::from_be_bytes([frame[50], frame[51]]) ^ u16::MAX) + u32::from(urgent);
        let sum = !((sum & 0xffff) as u16 + (sum >> 16) as u16);
        frame[50..52].copy_from_slice(&sum.to_be_bytes());
        self.node.receive(&frame);
    }

    /// Returns what we send in this iteration, including due ACKs.
    pub fn sent(&mut self) -> Vec<String> {
        self.sent_segments().iter().map(|segment| segment.print(true, true)).collect()
    }

    fn sent_segments(&mut self) -> Vec<TraceSegment> {
        self.node.flush();
        let ports = (self.peer_port, self.our_port);
        let frames = self.node.sent();
        frames.iter().map(|frame| TraceSegment::decode(frame, &mut self.our_numbers, ports)).collect()
    }

    /// Asserts what we have sent. Windows and timestamps are compared only if the expectation has
    /// them.
    #[track_caller]
    pub fn expect(&mut self, expected: &[&str]) {
        let sent = self.sent_segments();
        let says = |at: usize, what| expected.get(at).is_some_and(|line: &&str| line.contains(what));
        let shown: Vec<String> = sent
            .iter()
            .enumerate()
            .map(|(at, segment)| segment.print(says(at, "win"), says(at, "TS")))
            .collect();
        assert_eq!(shown, expected);
    }

    pub fn transmit(
        &mut self,
        source: &mut impl UnitSource,
        segments_max: usize,
    ) -> ironwarp_tcp::Transmitted {
        let id = self.id();
        self.node.transmit(id, source, segments_max)
    }

    pub fn advance(&mut self, span: Nanos) {
        self.node.now += span;
        self.node.timers();
    }

    pub fn events(&mut self) -> TcpEvents {
        let id = self.id();
        self.node.take_events(id)
    }

    /// Reads and checks all readable bytes, and returns the total so far.
    pub fn read(&mut self) -> u64 {
        let id = self.id();
        read_all(&mut self.node.tcp.rx(id), &mut self.taken);
        self.taken
    }

    pub fn close(&mut self) -> TcpEvents {
        let id = self.id();
        self.node.tcp.close(self.node.now, id, &mut self.node.wires)
    }
}
