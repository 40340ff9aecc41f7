//! The state of the send side between calls, and whether it may send at all.

use crate::rdmap::{ATOMIC_RESPONSE_QUEUE, READ_QUEUE};
use crate::setup::Rtr;
use crate::stream::Role;
use crate::stream::cursor::SgeCursor;

/// The state of the send side.
#[derive(Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(in crate::stream) struct Sender {
    pub(in crate::stream) gate: Gate,
    /// The last message came from the send queue, so a response is next.
    pub(in crate::stream) responses_first: bool,
    /// The sequence number of the current or next request.
    pub(in crate::stream) next: u32,
    /// A part of the request was sent.
    pub(in crate::stream) under_way: bool,
    /// The request waits until no core uses the steering tag that it binds.
    #[serde(skip)]
    pub(in crate::stream) awaits_quiescence: bool,
    pub(in crate::stream) sent: u32,
    pub(in crate::stream) cursor: SgeCursor,
    /// The sum of the last unit, if it was computed with the copy.
    #[serde(skip)]
    pub(in crate::stream) unit_sum: Option<u32>,
    /// The next message numbers on queue 0 and on queue 1.
    pub(in crate::stream) send_msn: u32,
    pub(in crate::stream) read_msn: u32,
    /// The next message number on queue 3.
    pub(in crate::stream) atomic_msn: u32,
}

/// Whether requests may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(in crate::stream) enum Gate {
    /// RFC 5044 s7.1.2, rule 4: a responder waits for the initiator's first FPDU.
    Closed,
    /// RFC 6581 s5: an initiator sends its ready-to-receive indication before anything else.
    Rtr(Rtr),
    Open,
}

impl Sender {
    pub(in crate::stream) fn new() -> Self {
        Sender {
            gate: Gate::Closed,
            responses_first: false,
            next: 0,
            under_way: false,
            awaits_quiescence: false,
            sent: 0,
            cursor: SgeCursor::default(),
            unit_sum: None,
            // RFC 5041 s4.3: the first message of every queue is number 1.
            send_msn: 1,
            read_msn: 1,
            atomic_msn: 1,
        }
    }

    pub(in crate::stream) fn start(&mut self, role: Role, rtr: Option<Rtr>) {
        self.gate = match (role, rtr) {
            (Role::Responder, _) => Gate::Closed,
            (Role::Initiator, Some(rtr)) => Gate::Rtr(rtr),
            (Role::Initiator, None) => Gate::Open,
        };
    }

    /// An FPDU has arrived. Returns whether it is the first one that a responder waits for, which
    /// shows that the initiator is in full operation.
    #[inline]
    pub(in crate::stream) fn open_gate(&mut self) -> bool {
        let first = self.gate == Gate::Closed;
        if first {
            self.gate = Gate::Open;
        }
        first
    }

    /// Returns the indication that must be sent first.
    pub(in crate::stream) fn rtr(&self) -> Option<Rtr> {
        if let Gate::Rtr(rtr) = self.gate { Some(rtr) } else { None }
    }

    /// Returns the next message number on a queue of requests or of Atomic Responses.
    #[inline(always)]
    pub(in crate::stream) fn msn(&mut self, queue: u32) -> &mut u32 {
        match queue {
            READ_QUEUE => &mut self.read_msn,
            ATOMIC_RESPONSE_QUEUE => &mut self.atomic_msn,
            _ => &mut self.send_msn,
        }
    }

    pub(in crate::stream) fn skip_to(&mut self, seq: u32) {
        self.next = seq;
        self.under_way = false;
        self.awaits_quiescence = false;
    }

    /// Moves past a segment of the current request.
    #[inline]
    pub(in crate::stream) fn advance(&mut self, bytes: usize, last: bool) {
        self.under_way = !last;
        if last {
            self.next = self.next.wrapping_add(1);
            self.sent = 0;
            self.cursor = SgeCursor::default();
            self.responses_first = true;
        } else {
            // A segment is shorter than 2^16 octets and a message shorter than 2^32, so this does
            // not wrap.
            self.sent = self.sent.wrapping_add(bytes as u32);
        }
    }
}
