//! A peer whose segments may have any value in every field, and which parses our segments.
//!
//! Sequence numbers are absolute. The payload is the pattern of its offset in the stream, as in all
//! these tests.

use ironwarp_tcp::{ConnId, TcpEvents};
pub use ironwarp_testkit::{ACK, FIN, PSH, RST, SYN, Segment};
use ironwarp_testkit::{Route, TCP, checksum, pseudo_header};

use super::node::{Node, addr};
use super::pattern::bytes_at;

/// The port on which every node of these tests listens.
pub const PORT: u16 = 4_420;

/// From host 2, the peer, to host 1, our node.
pub fn route() -> Route {
    Route::v4(2, 1)
}

/// Returns the frame of a segment from the peer.
pub fn frame(segment: &Segment) -> Vec<u8> {
    segment.frame(route())
}

/// Corrects the checksums of a frame.
pub fn correct_checksums(frame: &mut [u8]) {
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let end = (14 + total).clamp(54, frame.len());
    frame[24..26].fill(0);
    frame[50..52].fill(0);
    let header = checksum(&[&frame[14..34]]);
    let segment = checksum(&[&pseudo_header(TCP, &frame[26..34], end - 34), &frame[34..end]]);
    frame[24..26].copy_from_slice(&header.to_be_bytes());
    frame[50..52].copy_from_slice(&segment.to_be_bytes());
}

/// Returns the segments that we send to one port, including due ACKs.
pub fn captured(node: &mut Node, port: u16) -> Vec<Segment> {
    node.flush();
    let frames = node.sent();
    let captured = frames.iter().filter(|frame| frame[12..14] == [8, 0] && frame[23] == 6).map(|frame| {
        let (route, segment) = Segment::read(frame).expect("right checksums");
        assert_eq!(route.ips[0], addr(1, 0).ip(), "the local address");
        segment
    });
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
        peer.send_raw(node, Segment { options: options.to_vec(), ..peer.raw(SYN) });
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
    pub fn raw(&self, flags: u8) -> Segment {
        Segment {
            src_port: self.port,
            dst_port: self.our_port,
            seq: self.seq,
            ack: if flags & ACK == 0 { 0 } else { self.ack },
            flags,
            window: self.window,
            options: self.timestamps.clone(),
            ..Segment::default()
        }
    }

    /// Returns a segment with the bytes of the stream from `seq` on.
    pub fn data(&self, seq: u32, len: usize) -> Segment {
        let offset = u64::from(seq.wrapping_sub(self.iss).wrapping_sub(1));
        Segment { seq, payload: bytes_at(offset, len), ..self.raw(ACK | PSH) }
    }

    /// Delivers a segment.
    pub fn send_raw(&self, node: &mut Node, raw: Segment) {
        node.receive(&frame(&raw));
    }

    /// Sends the next bytes.
    pub fn send(&mut self, node: &mut Node, len: usize) {
        self.send_raw(node, self.data(self.seq, len));
        self.seq = self.seq.wrapping_add(len as u32);
    }

    /// Receives what we send: checks the bytes of everything in order without acknowledging it, and
    /// returns all segments.
    pub fn receive_all(&mut self, node: &mut Node) -> Vec<Segment> {
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
