//! A peer that builds segments octet by octet, so that every field can have any value, and parses our segments.
//!
//! Sequence numbers are absolute. The payload is the pattern of its offset in the stream, as in all these tests.

use ironwarp_tcp::{ConnId, TcpEvents};

use super::node::{Node, addr, mac};
use super::pattern::bytes_at;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;
pub const URG: u8 = 32;

/// The port on which every node of these tests listens.
pub const PORT: u16 = 4_420;

/// Octets before a segment: Ethernet and IPv4.
const L4: usize = 34;

/// A segment from host 2 to host 1.
#[derive(Clone, Debug, Default)]
pub struct RawSegment {
    pub src_port: u16,
    pub dst_port: u16,
    pub seq: u32,
    pub ack: u32,
    /// The data offset in words of four octets, if not the one that fits the options.
    pub offset: Option<u8>,
    pub reserved: u8,
    pub flags: u8,
    pub window: u16,
    /// The checksum, if not the correct one.
    pub checksum: Option<u16>,
    pub urgent: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
}

impl RawSegment {
    /// Returns the whole frame.
    pub fn frame(&self) -> Vec<u8> {
        let header = 20 + self.options.len();
        let offset = self.offset.unwrap_or(header.div_ceil(4) as u8);
        let mut tcp = Vec::new();
        tcp.extend(self.src_port.to_be_bytes());
        tcp.extend(self.dst_port.to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        tcp.extend([offset << 4 | self.reserved & 15, self.flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0, 0]);
        tcp.extend(self.urgent.to_be_bytes());
        tcp.extend(&self.options);
        tcp.resize(20 + self.options.len().next_multiple_of(4), 0);
        tcp.extend(&self.payload);
        let sum = self.checksum.unwrap_or_else(|| checksum(&tcp, pseudo(2, 1, tcp.len())));
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        packet(6, &tcp)
    }
}

/// Returns a frame with an IPv4 packet from host 2 to host 1.
pub fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [mac(1).0, mac(2).0].concat();
    bytes.extend([8, 0, 0x45, 0]);
    bytes.extend((20 + payload.len() as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    let sum = checksum(&bytes[14..], 0);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Corrects both checksums of a frame with a TCP segment.
pub fn correct_checksums(frame: &mut [u8]) {
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let end = (14 + total).clamp(L4 + 20, frame.len());
    frame[24..26].fill(0);
    frame[50..52].fill(0);
    let header = checksum(&frame[14..L4], 0);
    let addresses =
        frame[26..L4].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
    let segment = checksum(&frame[L4..end], addresses + 6 + (end - L4) as u32);
    frame[24..26].copy_from_slice(&header.to_be_bytes());
    frame[50..52].copy_from_slice(&segment.to_be_bytes());
}

/// RFC 9293 s3.1: the sum over addresses, protocol and length.
fn pseudo(from: u8, to: u8, len: usize) -> u32 {
    2 * 0x0a00 + u32::from(from) + u32::from(to) + 6 + len as u32
}

/// RFC 1071.
fn checksum(bytes: &[u8], start: u32) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum = start + words.sum::<u32>();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A parsed segment of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapturedSegment {
    pub src: [u8; 4],
    pub src_port: u16,
    pub dst_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub urgent: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
}

impl CapturedSegment {
    /// Parses a frame from host 1 to host 2. Panics if a checksum is wrong.
    #[track_caller]
    pub fn of(frame: &[u8]) -> CapturedSegment {
        assert_eq!(checksum(&frame[14..L4], 0), 0, "header checksum");
        let tcp = &frame[L4..];
        assert_eq!(checksum(tcp, pseudo(1, 2, tcp.len())), 0, "checksum");
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        let half = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let header = usize::from(tcp[12] >> 4) * 4;
        CapturedSegment {
            src: [frame[26], frame[27], frame[28], frame[29]],
            src_port: half(0),
            dst_port: half(2),
            seq: word(4),
            ack: word(8),
            flags: tcp[13],
            window: half(14),
            urgent: half(18),
            options: tcp[20..header].to_vec(),
            payload: tcp[header..].to_vec(),
        }
    }

    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Returns the count of sequence numbers that the segment takes.
    pub fn seq_len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }
}

/// Returns the segments that we send to one port, including due ACKs.
pub fn captured(node: &mut Node, port: u16) -> Vec<CapturedSegment> {
    node.flush();
    let frames = node.sent();
    let captured = frames
        .iter()
        .filter(|frame| frame[12..14] == [8, 0] && frame[23] == 6)
        .map(|f| CapturedSegment::of(f));
    captured.filter(|captured| captured.dst_port == port).collect()
}

/// The peer of one connection.
#[derive(Clone, Debug)]
pub struct Peer {
    pub port: u16,
    pub our_port: u16,
    pub iss: u32,
    pub our_iss: u32,
    /// The next sequence number to send, and the next one expected.
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    /// The options of every segment: timestamps, if its SYN offered them.
    pub timestamps: Vec<u8>,
}

/// The timestamps option of every segment once both sides offer it (RFC 7323 s3.2).
const TIMESTAMPS_OPTION: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0];

impl Peer {
    /// Creates a peer before its SYN.
    pub fn new(our_port: u16, port: u16, iss: u32) -> Peer {
        Peer { port, our_port, iss, our_iss: 0, seq: iss, ack: 0, window: 60_000, timestamps: Vec::new() }
    }

    /// Opens a connection to a listener on [`PORT`].
    pub fn open(node: &mut Node, port: u16, iss: u32, options: &[u8]) -> (Peer, ConnId) {
        let mut peer = Peer::new(PORT, port, iss);
        peer.send_raw(node, RawSegment { options: options.to_vec(), ..peer.raw(SYN) });
        let answer = captured(node, port).pop().expect("a SYN-ACK");
        assert!(answer.has(SYN | ACK) && answer.ack == iss.wrapping_add(1));
        (peer.our_iss, peer.ack) = (answer.seq, answer.seq.wrapping_add(1));
        if answer.options.windows(2).any(|pair| pair == [8, 10]) {
            peer.timestamps = TIMESTAMPS_OPTION.to_vec();
        }
        peer.seq = iss.wrapping_add(1);
        peer.send_raw(node, peer.raw(ACK));
        let at = node.events.iter().position(|(_, event)| event.contains(TcpEvents::ESTABLISHED));
        let (id, _) = node.events.remove(at.expect("a connection"));
        (peer, id)
    }

    /// Accepts our connection to its port.
    pub fn answer(node: &mut Node, our_port: u16, port: u16, iss: u32) -> (Peer, ConnId) {
        let id = node.connect(our_port, addr(2, port), 2);
        let syn = captured(node, port).pop().expect("a SYN");
        let mut peer = Peer::new(our_port, port, iss);
        (peer.our_iss, peer.ack) = (syn.seq, syn.seq.wrapping_add(1));
        peer.send_raw(node, peer.raw(SYN | ACK));
        peer.seq = iss.wrapping_add(1);
        (peer, id)
    }

    /// Returns the next segment with these flags, without payload.
    pub fn raw(&self, flags: u8) -> RawSegment {
        RawSegment {
            src_port: self.port,
            dst_port: self.our_port,
            seq: self.seq,
            ack: if flags & ACK == 0 { 0 } else { self.ack },
            flags,
            window: self.window,
            options: self.timestamps.clone(),
            ..RawSegment::default()
        }
    }

    /// Returns a segment with the bytes of the stream from `seq` on.
    pub fn data(&self, seq: u32, len: usize) -> RawSegment {
        let offset = u64::from(seq.wrapping_sub(self.iss).wrapping_sub(1));
        RawSegment { seq, payload: bytes_at(offset, len), ..self.raw(ACK | PSH) }
    }

    /// Delivers a segment.
    pub fn send_raw(&self, node: &mut Node, raw: RawSegment) {
        node.receive(&raw.frame());
    }

    /// Sends the next bytes.
    pub fn send(&mut self, node: &mut Node, len: usize) {
        self.send_raw(node, self.data(self.seq, len));
        self.seq = self.seq.wrapping_add(len as u32);
    }

    /// Receives what we send: checks the bytes of everything in order without acknowledging it, and returns all
    /// segments.
    pub fn receive_all(&mut self, node: &mut Node) -> Vec<CapturedSegment> {
        let all = captured(node, self.port);
        for captured in &all {
            let offset = u64::from(captured.seq.wrapping_sub(self.our_iss).wrapping_sub(1));
            if !captured.payload.is_empty() {
                assert_eq!(
                    captured.payload,
                    bytes_at(offset, captured.payload.len()),
                    "our bytes at {offset}"
                );
            }
            if captured.seq == self.ack && !captured.has(RST) {
                self.ack = self.ack.wrapping_add(captured.seq_len());
            }
        }
        all
    }
}
