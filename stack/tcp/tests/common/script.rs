//! A peer that speaks in traces, as tcpdump prints them, through smoltcp's encoder and decoder.
//!
//! A segment is written `flags seq[:end(len)] [ack n] [win n] [<mss n,ws n>]`, with flags from `S F R P .` (the dot is
//! ACK) and numbers relative to each side's initial one. Payload is the pattern of its offset: byte `n` of a stream has
//! the sequence number `n + 1`.

use ironwarp_tcp::{ConnId, TcpConfig, TcpEvents, UnitSource};
use ironwarp_types::Nanos;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::*;

use super::node::{Node, addr, mac};
use super::pattern::{bytes_at, read_all};

/// The peer's initial sequence number: close to the wrap, so that every script crosses it.
const PEER_ISS: u32 = u32::MAX - 500;

/// Us under test, and a peer that says what the script says.
pub struct Script {
    pub node: Node,
    pub id: Option<ConnId>,
    our_iss: Option<u32>,
    pub our_port: u16,
    pub peer_port: u16,
    pub taken: u64,
}

#[derive(Debug)]
struct Spoken {
    flags: String,
    seq: u32,
    len: u32,
    ack: Option<u32>,
    win: u16,
    mss: Option<u16>,
    ws: Option<u8>,
}

impl Script {
    pub fn new(config: TcpConfig) -> Self {
        Self::with_mtu(config, 1_500)
    }

    /// Without time stamps, SACK and ECN, whatever `config` says.
    pub fn with_mtu(config: TcpConfig, mtu_bytes: u16) -> Self {
        Self::of(TcpConfig { timestamps: false, sack: false, ecn: false, ..config }, mtu_bytes)
    }

    /// With the options that `config` says, and printed with them.
    pub fn with_options(config: TcpConfig) -> Self {
        Self::of(config, 1_500)
    }

    fn of(config: TcpConfig, mtu_bytes: u16) -> Self {
        let node = Node::new(1, mtu_bytes, config);
        Script { node, id: None, our_iss: None, our_port: 4_420, peer_port: 50_000, taken: 0 }
    }

    /// A connection that the peer opened, with windows of `win` bytes of the peer.
    pub fn accepted(config: TcpConfig, win: u16) -> Self {
        let mut script = Script::new(config);
        script.node.tcp.listen(addr(1, 4_420)).expect("room");
        script.peer("S 0 win 65535 <mss 1460>");
        script.sent();
        script.peer(&format!(". 1 ack 1 win {win}"));
        script.id = script.node.established();
        assert_eq!(script.events(), TcpEvents::ESTABLISHED);
        script
    }

    /// A connection that we opened, with windows of `win` bytes of the peer.
    pub fn connected(config: TcpConfig, win: u16) -> Self {
        let mut script = Script::new(config);
        script.connect();
        script.sent();
        script.peer(&format!("S. 0 ack 1 win {win} <mss 1460>"));
        script.expect(&[". 1 ack 1"]);
        assert_eq!(script.events(), TcpEvents::ESTABLISHED);
        script
    }

    /// Another connection that we open, to another port; the script is about it from now on.
    pub fn open_to(&mut self, peer_port: u16) {
        (self.peer_port, self.our_iss, self.taken) = (peer_port, None, 0);
        self.connect();
        self.sent();
        self.peer("S. 0 ack 1 win 64000 <mss 1460>");
        self.sent();
        assert_eq!(self.events(), TcpEvents::ESTABLISHED);
    }

    pub fn connect(&mut self) {
        self.id = Some(self.node.connect(self.our_port, addr(2, self.peer_port), 2));
    }

    pub fn id(&self) -> ConnId {
        self.id.expect("a connection")
    }

    /// The peer sends a segment.
    pub fn peer(&mut self, text: &str) {
        let frame = self.encode(&parse(text));
        self.node.receive(&frame);
    }

    /// What we send with the ACKs that are due in this iteration.
    pub fn sent(&mut self) -> Vec<String> {
        self.node.flush();
        let frames = self.node.sent();
        frames.iter().map(|frame| self.decode(frame)).collect()
    }

    /// What we have sent is this, windows left out where the expectation leaves them out.
    #[track_caller]
    pub fn expect(&mut self, expected: &[&str]) {
        let sent = self.sent();
        let shown: Vec<String> =
            sent.iter()
                .enumerate()
                .map(|(at, line)| {
                    if expected.get(at).is_some_and(|e| e.contains("win")) {
                        line.clone()
                    } else {
                        bare(line)
                    }
                })
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

    /// Reads everything readable, checks it, and answers how much there has been in all.
    pub fn read(&mut self) -> u64 {
        let id = self.id();
        read_all(&mut self.node.tcp.rx(id), &mut self.taken);
        self.taken
    }

    pub fn close(&mut self) -> TcpEvents {
        let id = self.id();
        self.node.tcp.close(self.node.now, id, &mut self.node.wire)
    }

    fn encode(&self, spoken: &Spoken) -> Vec<u8> {
        let payload = bytes_at(u64::from(spoken.seq.wrapping_sub(1)), spoken.len as usize);
        let ours = self.our_iss.unwrap_or(0);
        let repr = TcpRepr {
            src_port: self.peer_port,
            dst_port: self.our_port,
            control: TcpControl::None,
            seq_number: TcpSeqNumber(PEER_ISS.wrapping_add(spoken.seq) as i32),
            ack_number: spoken.ack.map(|ack| TcpSeqNumber(ours.wrapping_add(ack) as i32)),
            window_len: spoken.win,
            window_scale: spoken.ws,
            max_seg_size: spoken.mss,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: &payload,
        };
        frame_of(&repr, |packet| {
            packet.set_syn(spoken.flags.contains('S'));
            packet.set_fin(spoken.flags.contains('F'));
            packet.set_rst(spoken.flags.contains('R'));
            packet.set_psh(spoken.flags.contains('P'));
        })
    }

    fn decode(&mut self, frame: &[u8]) -> String {
        let ethernet = EthernetFrame::new_checked(frame).expect("a link header");
        assert_eq!(ethernet.dst_addr(), EthernetAddress(mac(2).0));
        let ip = Ipv4Packet::new_checked(ethernet.payload()).expect("a network header");
        assert!(ip.verify_checksum() && ip.dont_frag());
        let (src, dst) = (IpAddress::from(ip.src_addr()), IpAddress::from(ip.dst_addr()));
        let packet = TcpPacket::new_checked(ip.payload()).expect("a segment");
        let repr =
            TcpRepr::parse(&packet, &src, &dst, &ChecksumCapabilities::default()).expect("a right segment");
        assert_eq!((repr.src_port, repr.dst_port), (self.our_port, self.peer_port));
        if packet.syn() {
            self.our_iss.get_or_insert(repr.seq_number.0 as u32);
        }
        self.print(&packet, &repr)
    }

    fn print(&self, packet: &TcpPacket<&[u8]>, repr: &TcpRepr<'_>) -> String {
        let mut text = String::new();
        for (set, letter) in [
            (packet.syn(), "S"),
            (packet.fin(), "F"),
            (packet.rst(), "R"),
            (packet.psh(), "P"),
            (packet.ack(), "."),
        ] {
            text += if set { letter } else { "" };
        }
        let seq = (repr.seq_number.0 as u32).wrapping_sub(self.our_iss.unwrap_or(0));
        let len = repr.payload.len();
        text += &format!(" {seq}");
        if len > 0 {
            assert_eq!(repr.payload, bytes_at(u64::from(seq - 1), len), "payload of {text}");
            text += &format!(":{}({len})", seq + len as u32);
        }
        if let Some(ack) = repr.ack_number {
            text += &format!(" ack {}", (ack.0 as u32).wrapping_sub(PEER_ISS));
        }
        text += &format!(" win {}", repr.window_len);
        match (repr.max_seg_size, repr.window_scale) {
            (Some(mss), Some(ws)) => text += &format!(" <mss {mss},ws {ws}>"),
            (Some(mss), None) => text += &format!(" <mss {mss}>"),
            _ => {}
        }
        text
    }
}

/// A whole frame from the peer.
pub fn frame_of(repr: &TcpRepr<'_>, adjust: impl Fn(&mut TcpPacket<&mut [u8]>)) -> Vec<u8> {
    let (src, dst) = (std::net::Ipv4Addr::new(10, 0, 0, 2), std::net::Ipv4Addr::new(10, 0, 0, 1));
    let link = EthernetRepr {
        src_addr: EthernetAddress(mac(2).0),
        dst_addr: EthernetAddress(mac(1).0),
        ethertype: EthernetProtocol::Ipv4,
    };
    let network = Ipv4Repr {
        src_addr: src,
        dst_addr: dst,
        next_header: IpProtocol::Tcp,
        payload_len: repr.buffer_len(),
        hop_limit: 64,
    };
    let mut bytes = vec![0; link.buffer_len() + network.buffer_len() + repr.buffer_len()];
    let mut ethernet = EthernetFrame::new_unchecked(&mut bytes[..]);
    link.emit(&mut ethernet);
    let mut ip = Ipv4Packet::new_unchecked(ethernet.payload_mut());
    network.emit(&mut ip, &ChecksumCapabilities::default());
    let mut packet = TcpPacket::new_unchecked(ip.payload_mut());
    repr.emit(&mut packet, &src.into(), &dst.into(), &ChecksumCapabilities::ignored());
    adjust(&mut packet);
    packet.fill_checksum(&src.into(), &dst.into());
    bytes
}

/// A printed segment without its window.
fn bare(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let at = words.iter().position(|&word| word == "win").unwrap_or(words.len());
    words[..at].iter().chain(words.get(at + 2..).unwrap_or_default()).copied().collect::<Vec<_>>().join(" ")
}

fn parse(text: &str) -> Spoken {
    let mut words = text.split(' ');
    let flags = words.next().expect("flags").to_string();
    let range = words.next().expect("a sequence number");
    let (seq, len) = match range.split_once(':') {
        None => (range.parse().expect("a number"), 0),
        Some((seq, rest)) => {
            let (end, len) = rest.trim_end_matches(')').split_once('(').expect("end(len)");
            let (seq, end, len): (u32, u32, u32) =
                (seq.parse().expect("seq"), end.parse().expect("end"), len.parse().expect("len"));
            assert_eq!(seq + len, end, "{text}");
            (seq, len)
        }
    };
    let mut spoken = Spoken { flags, seq, len, ack: None, win: 0, mss: None, ws: None };
    while let Some(word) = words.next() {
        let mut number = || words.next().expect("a value").trim_end_matches('>').to_string();
        match word.trim_start_matches('<') {
            "ack" => spoken.ack = Some(number().parse().expect("ack")),
            "win" => spoken.win = number().parse().expect("win"),
            "mss" => {
                let value = number();
                spoken.mss = Some(value.split(',').next().and_then(|v| v.parse().ok()).expect("mss"));
                if value.contains(",ws") {
                    spoken.ws = Some(number().parse().expect("ws"));
                }
            }
            other => panic!("{other} in {text}"),
        }
    }
    assert_eq!(spoken.ack.is_some(), spoken.flags.contains('.'), "{text}");
    spoken
}
