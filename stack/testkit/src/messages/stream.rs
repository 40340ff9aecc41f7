//! One stream of a connection: its messages are numbered, and delivered by number.

use std::collections::{BTreeMap, VecDeque};

use ironwarp_llp::{Events, ListenerId};
use ironwarp_types::{Flow, Nanos};

use super::network::Kind;

/// Messages that may be sent before one is acknowledged.
const WINDOW: u32 = 64;

/// One end of a stream.
pub(super) struct Stream {
    pub(super) flow: Flow,
    pub(super) number: u16,
    pub(super) listener: Option<ListenerId>,
    pub(super) established: bool,
    /// Nothing is sent or received any more.
    pub(super) ended: bool,
    /// Events since they were last reported.
    pub(super) events: Events,
    /// The number of the next message to send, and the bytes before it.
    next_out: u32,
    sent_bytes: u64,
    pub(super) acked_bytes: u64,
    /// The lengths of messages that are not acknowledged.
    unacked: VecDeque<usize>,
    window_full: bool,
    closed: bool,
    /// How long messages may stay unacknowledged, and since when they have.
    pub(super) user_timeout: Nanos,
    stalled_since: Option<Nanos>,
    /// The number of the next message to deliver, those that arrived before it, and those to read.
    next_in: u32,
    early: BTreeMap<u32, Vec<u8>>,
    pub(super) readable: VecDeque<Vec<u8>>,
    pub(super) received_bytes: u64,
    /// The peer sends no message from this number on.
    peer_end: Option<u32>,
    peer_closed: bool,
}

impl Stream {
    pub(super) fn new(flow: Flow, number: u16, listener: Option<ListenerId>) -> Self {
        Stream {
            flow,
            number,
            listener,
            established: false,
            ended: false,
            events: Events::empty(),
            next_out: 0,
            sent_bytes: 0,
            acked_bytes: 0,
            unacked: VecDeque::new(),
            window_full: false,
            closed: false,
            user_timeout: Nanos::MAX,
            stalled_since: None,
            next_in: 0,
            early: BTreeMap::new(),
            readable: VecDeque::new(),
            received_bytes: 0,
            peer_end: None,
            peer_closed: false,
        }
    }

    /// Returns whether another message may be sent.
    pub(super) fn may_send(&mut self) -> bool {
        self.window_full = self.unacked.len() >= WINDOW as usize;
        self.established && !self.closed && !self.ended && !self.window_full
    }

    pub(super) fn is_window_full(&self) -> bool {
        self.window_full
    }

    pub(super) fn all_acked(&self) -> bool {
        self.unacked.is_empty()
    }

    pub(super) fn unacked_messages(&self) -> usize {
        self.unacked.len()
    }

    pub(super) fn held_messages(&self) -> usize {
        self.early.len() + self.readable.len()
    }

    pub(super) fn send(&mut self, message: Vec<u8>) -> Kind {
        let number = self.next_out;
        self.next_out += 1;
        self.sent_bytes += message.len() as u64;
        self.unacked.push_back(message.len());
        Kind::Data(number, message)
    }

    /// Closes this direction. Returns what to send.
    pub(super) fn close(&mut self) -> Option<Kind> {
        if core::mem::replace(&mut self.closed, true) || self.ended {
            return None;
        }
        self.end_if_both_closed();
        Some(Kind::Close(self.next_out))
    }

    /// Ends the stream if the peer has acknowledged nothing for too long.
    pub(super) fn on_time(&mut self, now: Nanos) {
        if self.unacked.is_empty() {
            self.stalled_since = None;
        } else if now.since(*self.stalled_since.get_or_insert(now)) >= self.user_timeout {
            self.end(Events::TIMED_OUT);
        }
    }

    /// Ends the stream for a reason.
    pub(super) fn end(&mut self, why: Events) {
        if !core::mem::replace(&mut self.ended, true) {
            self.events |= why;
        }
    }

    /// Handles what arrived. Returns what to send.
    pub(super) fn on_packet(&mut self, kind: Kind) -> Option<Kind> {
        match kind {
            Kind::Opened => {
                self.established = true;
                self.events |= Events::ESTABLISHED;
                None
            }
            Kind::Refused => {
                self.end(Events::REFUSED);
                None
            }
            Kind::Abort => {
                self.end(Events::RESET);
                None
            }
            Kind::Acked(bytes) => {
                self.on_acked(bytes);
                None
            }
            Kind::Data(number, message) => {
                self.early.insert(number, message);
                self.deliver()
            }
            Kind::Close(number) => {
                self.peer_end = Some(number);
                self.deliver()
            }
            Kind::Open => None,
        }
    }

    fn on_acked(&mut self, bytes: u64) {
        while self.acked_bytes < bytes
            && let Some(length) = self.unacked.pop_front()
        {
            self.acked_bytes += length as u64;
            self.events |= Events::ACKED;
            self.stalled_since = None;
        }
        if core::mem::take(&mut self.window_full) {
            self.events |= Events::WRITABLE;
        }
    }

    /// Delivers the messages that are next.
    fn deliver(&mut self) -> Option<Kind> {
        let before = self.next_in;
        while let Some(message) = self.early.remove(&self.next_in) {
            self.next_in += 1;
            self.received_bytes += message.len() as u64;
            self.readable.push_back(message);
            self.events |= Events::READABLE;
        }
        if self.peer_end == Some(self.next_in) && !core::mem::replace(&mut self.peer_closed, true) {
            self.events |= Events::PEER_CLOSED;
            self.end_if_both_closed();
        }
        (self.next_in != before).then_some(Kind::Acked(self.received_bytes))
    }

    fn end_if_both_closed(&mut self) {
        if self.closed && self.peer_closed {
            self.end(Events::CLOSED);
        }
    }
}
