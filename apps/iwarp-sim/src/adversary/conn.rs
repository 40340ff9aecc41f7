//! The hostile end of one TCP connection, frame by frame.
//!
//! It connects, sends its stream and acknowledges what it receives, as any host does. From [`RawConn::begin`] on it has
//! a [`Habit`], which is allowed or forbidden by TCP and is made to cost its peer as much as it can. Takes frames and
//! ticks; returns frames. It resends what is not acknowledged at every [`RawConn::resend`], so links may lose frames.

use smoltcp::wire::{TcpControl, TcpRepr};

use super::habit::Habit;
use super::segment::{Arrived, WINDOW_SCALE, Way, plain, syn};

/// The progress of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnState {
    /// Its SYN has no answer.
    Opening,
    /// It is established.
    Open,
    /// The peer has reset it.
    Over,
}

/// A connection.
pub struct RawConn {
    way: Way,
    pub(super) ports: [u16; 2],
    pub(super) state: ConnState,
    iss: u32,
    /// The oldest sequence number that the peer has not acknowledged.
    una: u32,
    /// The stream from `una` on.
    outbox: Vec<u8>,
    /// The end of what has arrived without a gap, and what was acknowledged to the peer.
    pub(super) rcv_nxt: u32,
    pub(super) last_ack: u32,
    /// The first bytes of the peer's stream, for its start-up frame.
    heard: Vec<u8>,
    /// The habit, and the state that it keeps.
    habit: Option<Habit>,
    pub(super) cursor: u32,
    /// Where the habit began in the peer's stream.
    pub(super) began: u32,
}

/// Bytes of the peer's stream that are kept.
const HEARD_BYTES_MAX: usize = 4_096;

/// The payload of a full segment.
const SEGMENT_BYTES: usize = 1_400;

impl RawConn {
    /// A connection from `ports[0]` of the sender of `way` to `ports[1]`, and its SYN.
    pub fn open(way: Way, ports: [u16; 2], iss: u32) -> (Self, Vec<u8>) {
        let conn = RawConn {
            way,
            ports,
            state: ConnState::Opening,
            iss,
            una: iss,
            outbox: Vec::new(),
            rcv_nxt: 0,
            last_ack: 0,
            heard: Vec::new(),
            habit: None,
            cursor: 0,
            began: 0,
        };
        let frame = way.segment(&syn(ports, iss));
        (conn, frame)
    }

    /// Its progress.
    pub fn state(&self) -> ConnState {
        self.state
    }

    /// The first bytes that the peer has sent.
    pub fn heard(&self) -> &[u8] {
        &self.heard
    }

    /// The sequence number after everything that it has sent.
    pub fn snd_nxt(&self) -> u32 {
        self.una.wrapping_add(self.outbox.len() as u32)
    }

    /// Bytes of its stream that the peer has not acknowledged.
    pub fn unacked_bytes(&self) -> usize {
        self.outbox.len()
    }

    /// Returns whether a frame belongs to it.
    pub fn owns(&self, arrived: &Arrived) -> bool {
        arrived.ports == [self.ports[1], self.ports[0]]
    }

    /// Sends bytes of its stream.
    pub fn send(&mut self, bytes: &[u8], out: &mut Vec<Vec<u8>>) {
        let mut seq = self.snd_nxt();
        self.outbox.extend_from_slice(bytes);
        for payload in bytes.chunks(SEGMENT_BYTES) {
            out.push(self.data(seq, payload));
            seq = seq.wrapping_add(payload.len() as u32);
        }
    }

    /// A segment of its stream.
    pub fn data(&self, seq: u32, payload: &[u8]) -> Vec<u8> {
        self.way.segment(&TcpRepr { payload, control: TcpControl::Psh, ..self.at(seq) })
    }

    /// The last byte that it sent; any one if the peer has it.
    pub(super) fn last_byte(&self) -> u8 {
        self.outbox.last().copied().unwrap_or(0)
    }

    /// A segment without payload and flags but ACK.
    pub(super) fn at(&self, seq: u32) -> TcpRepr<'static> {
        plain(self.ports, seq, Some(self.last_ack))
    }

    /// The frame of a segment.
    pub(super) fn frame(&self, tcp: &TcpRepr<'_>) -> Vec<u8> {
        self.way.segment(tcp)
    }

    /// A repeated acknowledgement, with this window in bytes.
    pub(super) fn ack(&self, window_bytes: u32) -> TcpRepr<'static> {
        let window_len = u16::try_from(window_bytes >> WINDOW_SCALE).unwrap_or(u16::MAX);
        TcpRepr { window_len, ..self.at(self.snd_nxt()) }
    }

    /// Adopts a habit.
    pub fn begin(&mut self, habit: Habit) {
        (self.habit, self.began, self.cursor) = (Some(habit), self.rcv_nxt, self.rcv_nxt);
    }

    /// Returns whether it has one.
    pub fn has_habit(&self) -> bool {
        self.habit.is_some()
    }

    /// Handles a segment of the peer.
    pub fn on_segment(&mut self, arrived: &Arrived, out: &mut Vec<Vec<u8>>) {
        if arrived.rst {
            self.state = ConnState::Over;
            return;
        }
        if arrived.syn {
            if self.state == ConnState::Opening && arrived.ack == self.iss.wrapping_add(1) {
                self.state = ConnState::Open;
                self.una = arrived.ack;
                (self.rcv_nxt, self.last_ack) = (arrived.seq.wrapping_add(1), arrived.seq.wrapping_add(1));
            }
            out.push(self.frame(&self.ack(WINDOW_BYTES)));
            return;
        }
        self.on_ack(arrived.ack);
        if !arrived.payload.is_empty() || arrived.fin {
            self.on_data(arrived, out);
        }
    }

    fn on_ack(&mut self, ack: u32) {
        let acked = ack.wrapping_sub(self.una) as usize;
        if acked <= self.outbox.len() {
            self.outbox.drain(..acked);
            self.una = ack;
        }
    }

    fn on_data(&mut self, arrived: &Arrived, out: &mut Vec<Vec<u8>>) {
        let skipped = self.rcv_nxt.wrapping_sub(arrived.seq) as usize;
        if let Some(new) = arrived.payload.get(skipped..) {
            self.rcv_nxt = self.rcv_nxt.wrapping_add(new.len() as u32 + u32::from(arrived.fin));
            let room = HEARD_BYTES_MAX - self.heard.len();
            self.heard.extend_from_slice(&new[..new.len().min(room)]);
        }
        match self.habit {
            Some(habit) => habit.on_data(self, out),
            None => {
                self.last_ack = self.rcv_nxt;
                out.push(self.frame(&self.ack(WINDOW_BYTES)));
            }
        }
    }

    /// Continues its habit.
    pub fn step(&mut self, out: &mut Vec<Vec<u8>>) {
        if let Some(habit) = self.habit.filter(|_| self.state == ConnState::Open) {
            habit.step(self, out);
        }
    }

    /// Resends everything that has no acknowledgement.
    pub fn resend(&self, out: &mut Vec<Vec<u8>>) {
        match self.state {
            ConnState::Opening => out.push(self.way.segment(&syn(self.ports, self.iss))),
            ConnState::Open => {
                let mut seq = self.una;
                for payload in self.outbox.chunks(SEGMENT_BYTES) {
                    out.push(self.data(seq, payload));
                    seq = seq.wrapping_add(payload.len() as u32);
                }
            }
            ConnState::Over => {}
        }
    }

    /// A reset that the peer accepts.
    pub fn reset(&self) -> Vec<u8> {
        self.way.segment(&TcpRepr { control: TcpControl::Rst, ..self.at(self.una) })
    }
}

/// The window of a connection that reads.
pub(super) const WINDOW_BYTES: u32 = 1 << 20;
