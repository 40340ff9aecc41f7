//! One end of a TCP connection that a script drives, frame by frame.
//!
//! It connects or accepts, sends its stream, takes what arrives in order, acknowledges it and
//! closes. Nothing happens by itself: it takes segments and returns frames. [`Conn::resend`]
//! repeats what has no acknowledgement, so links may lose frames. All of its numbers are open, so a
//! script may break every rule. Source: RFC 9293 s3.10.

use crate::frame::Route;
use crate::segment::{ACK, FIN, PSH, RST, SYN, Segment, WINDOW_SCALE};

/// Frames to send.
pub type Frames = Vec<Vec<u8>>;

/// The progress of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnState {
    /// Its SYN has no answer.
    Opening,
    /// It is established.
    Open,
    /// It was reset, or both ends have closed.
    Over,
}

/// A connection.
#[derive(Clone, Debug)]
pub struct Conn {
    /// The addresses of its frames.
    pub route: Route,
    /// Its own port and the peer's.
    pub ports: [u16; 2],
    /// Its progress.
    pub state: ConnState,
    /// The oldest sequence number that the peer has not acknowledged.
    pub una: u32,
    /// The stream from `una` on.
    outbox: Vec<u8>,
    /// Whether a FIN follows the stream, and whether the peer has acknowledged it.
    fin: [bool; 2],
    /// The end of what has arrived without a gap.
    pub rcv_nxt: u32,
    /// What was acknowledged to the peer.
    pub last_ack: u32,
    /// Bytes of the peer's stream that nobody has taken, `HEARD_BYTES_MAX` at most.
    pub heard: Vec<u8>,
    /// Whether the peer's FIN has arrived.
    pub peer_closed: bool,
    /// Whether it acknowledges data when they arrive.
    pub acknowledges: bool,
    /// The largest payload of its segments.
    pub segment_bytes: usize,
}

/// Bytes of the peer's stream that are kept.
pub const HEARD_BYTES_MAX: usize = 4_096;

/// The window of a connection that reads.
pub const WINDOW_BYTES: u32 = 1 << 20;

impl Conn {
    /// A connection from `ports[0]` of the route's sender to `ports[1]` of its receiver, and its
    /// SYN.
    pub fn open(route: Route, ports: [u16; 2], iss: u32) -> (Self, Vec<u8>) {
        let conn = Conn {
            route,
            ports,
            state: ConnState::Opening,
            una: iss,
            outbox: Vec::new(),
            fin: [false; 2],
            rcv_nxt: 0,
            last_ack: 0,
            heard: Vec::new(),
            peer_closed: false,
            acknowledges: true,
            segment_bytes: 1_400,
        };
        let frame = conn.frame(&Segment::new(ports, SYN, iss, 0));
        (conn, frame)
    }

    /// Accepts the connection of a SYN that has arrived, and returns the answer.
    pub fn accept(route: Route, syn: &Segment, iss: u32) -> (Self, Vec<u8>) {
        let (mut conn, _) = Conn::open(route.back(), [syn.dst_port, syn.src_port], iss);
        (conn.state, conn.una) = (ConnState::Open, iss.wrapping_add(1));
        (conn.rcv_nxt, conn.last_ack) = (syn.seq.wrapping_add(1), syn.seq.wrapping_add(1));
        let frame = conn.frame(&Segment::new(conn.ports, SYN | ACK, iss, conn.rcv_nxt));
        (conn, frame)
    }

    /// The sequence number after everything that it has sent.
    pub fn snd_nxt(&self) -> u32 {
        self.una.wrapping_add(self.outbox.len() as u32 + u32::from(self.fin == [true, false]))
    }

    /// Bytes of its stream that the peer has not acknowledged.
    pub fn unacked_bytes(&self) -> usize {
        self.outbox.len()
    }

    /// The last byte that it sent; any one if the peer has it.
    pub fn last_byte(&self) -> u8 {
        self.outbox.last().copied().unwrap_or(0)
    }

    /// Returns whether a segment that has arrived belongs to it.
    pub fn owns(&self, (route, segment): &(Route, Segment)) -> bool {
        [segment.dst_port, segment.src_port] == self.ports && route.ips[0] == self.route.ips[1]
    }

    /// A segment with these flags at `seq`, without payload, that acknowledges `last_ack`.
    pub fn at(&self, seq: u32, flags: u8) -> Segment {
        Segment::new(self.ports, flags, seq, self.last_ack)
    }

    /// An acknowledgement with this window in bytes.
    pub fn ack(&self, window_bytes: u32) -> Segment {
        let window = u16::try_from(window_bytes >> WINDOW_SCALE).unwrap_or(u16::MAX);
        Segment { window, ..self.at(self.snd_nxt(), ACK) }
    }

    /// The frame of a segment.
    pub fn frame(&self, segment: &Segment) -> Vec<u8> {
        segment.frame(self.route)
    }

    /// The frame of a segment of its stream.
    pub fn data(&self, seq: u32, payload: &[u8]) -> Vec<u8> {
        self.frame(&Segment { payload: payload.to_vec(), ..self.at(seq, ACK | PSH) })
    }

    /// Sends bytes of its stream.
    pub fn send(&mut self, bytes: &[u8], out: &mut Frames) {
        let mut seq = self.snd_nxt();
        self.outbox.extend(bytes);
        for payload in bytes.chunks(self.segment_bytes) {
            out.push(self.data(seq, payload));
            seq = seq.wrapping_add(payload.len() as u32);
        }
    }

    /// Closes its direction.
    pub fn close(&mut self, out: &mut Frames) {
        if self.state == ConnState::Open && !self.fin[0] {
            out.push(self.frame(&self.at(self.snd_nxt(), ACK | FIN)));
            self.fin[0] = true;
        }
    }

    /// Ends it by a reset that the peer accepts.
    pub fn reset(&mut self) -> Vec<u8> {
        self.state = ConnState::Over;
        self.frame(&self.at(self.una, RST | ACK))
    }

    /// Handles a segment of the peer. Returns whether it has data.
    pub fn on_segment(&mut self, segment: &Segment, out: &mut Frames) -> bool {
        if segment.has(RST) {
            self.state = ConnState::Over;
            return false;
        }
        if self.state == ConnState::Over && !self.has_closed() {
            // RFC 9293 s3.10.7.1: a connection that was reset is unknown.
            out.push(self.frame(&self.at(segment.ack, RST)));
            return false;
        }
        if segment.has(SYN) {
            if self.state == ConnState::Opening && segment.ack == self.una.wrapping_add(1) {
                (self.state, self.una) = (ConnState::Open, segment.ack);
                (self.rcv_nxt, self.last_ack) = (segment.seq.wrapping_add(1), segment.seq.wrapping_add(1));
            }
            out.push(self.frame(&self.ack(WINDOW_BYTES)));
            return false;
        }
        self.on_ack(segment.ack);
        let has_data = segment.seq_len() > 0;
        if has_data {
            self.on_data(segment, out);
        }
        if self.has_closed() {
            self.state = ConnState::Over;
        }
        has_data
    }

    fn has_closed(&self) -> bool {
        self.peer_closed && self.fin[1]
    }

    fn on_ack(&mut self, ack: u32) {
        let acked = ack.wrapping_sub(self.una) as usize;
        if acked <= self.outbox.len() {
            self.outbox.drain(..acked);
            self.una = ack;
        } else if acked == self.outbox.len() + 1 && self.fin == [true, false] {
            self.outbox.clear();
            (self.una, self.fin) = (ack, [true; 2]);
        }
    }

    fn on_data(&mut self, segment: &Segment, out: &mut Frames) {
        let skipped = self.rcv_nxt.wrapping_sub(segment.seq) as usize;
        if let Some(new) = segment.payload.get(skipped..) {
            self.peer_closed |= segment.has(FIN);
            self.rcv_nxt = self.rcv_nxt.wrapping_add(new.len() as u32 + u32::from(segment.has(FIN)));
            let room = HEARD_BYTES_MAX - self.heard.len().min(HEARD_BYTES_MAX);
            self.heard.extend(&new[..new.len().min(room)]);
        }
        if self.acknowledges {
            self.last_ack = self.rcv_nxt;
            out.push(self.frame(&self.ack(WINDOW_BYTES)));
        }
    }

    /// Repeats everything that has no acknowledgement.
    pub fn resend(&self, out: &mut Frames) {
        match self.state {
            ConnState::Opening => out.push(self.frame(&Segment::new(self.ports, SYN, self.una, 0))),
            ConnState::Open => {
                let mut seq = self.una;
                for payload in self.outbox.chunks(self.segment_bytes) {
                    out.push(self.data(seq, payload));
                    seq = seq.wrapping_add(payload.len() as u32);
                }
                if self.fin == [true, false] {
                    out.push(self.frame(&self.at(seq, ACK | FIN)));
                }
            }
            ConnState::Over => {}
        }
    }
}
