//! The state of the send side between calls, and whether it may send at all.

use crate::mpa::startup::Rtr;
use crate::stream::Role;
use crate::stream::cursor::SgeCursor;

/// The state of the send side.
pub(in crate::stream) struct Sender {
    pub(super) gate: Gate,
    /// The last message came from the send queue, so a response is next.
    pub(super) responses_first: bool,
    /// The sequence number of the current or next request.
    pub(super) next: u32,
    /// A part of the request was sent.
    pub(super) under_way: bool,
    /// The request waits until no core uses the steering tag that it binds.
    pub(super) awaits_quiescence: bool,
    pub(super) sent: u32,
    pub(super) cursor: SgeCursor,
    /// The sum of the last unit, if it was computed with the copy.
    pub(super) unit_sum: Option<u32>,
    /// The next message numbers on queue 0 and on queue 1.
    pub(super) send_msn: u32,
    pub(super) read_msn: u32,
    /// The next message number on queue 3.
    pub(super) atomic_msn: u32,
}

/// Whether requests may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gate {
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

    /// An FPDU has arrived. Returns whether it is the first one that a responder waits for, which shows that the
    /// initiator is in full operation.
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

    /// The indication was sent.
    pub(in crate::stream) fn rtr_sent(&mut self) {
        self.gate = Gate::Open;
    }

    /// Returns the next message numbers on queue 0 and on queue 1.
    pub(in crate::stream) fn next_msns(&mut self) -> (&mut u32, &mut u32) {
        (&mut self.send_msn, &mut self.read_msn)
    }

    pub(in crate::stream) fn may_send(&self) -> bool {
        self.gate != Gate::Closed
    }

    #[inline]
    pub(in crate::stream) fn next(&self) -> u32 {
        self.next
    }

    pub(in crate::stream) fn is_under_way(&self) -> bool {
        self.under_way
    }

    pub(in crate::stream) fn skip_to(&mut self, seq: u32) {
        self.next = seq;
        self.under_way = false;
        self.awaits_quiescence = false;
    }

    pub(in crate::stream) fn awaits_quiescence(&self) -> bool {
        self.awaits_quiescence
    }

    pub(in crate::stream) fn defer(&mut self) {
        self.awaits_quiescence = true;
    }

    pub(in crate::stream) fn retry(&mut self) {
        self.awaits_quiescence = false;
    }

    /// Moves past a segment of the current request.
    #[inline]
    pub(super) fn advance(&mut self, bytes: usize, last: bool) {
        self.under_way = !last;
        if last {
            self.next = self.next.wrapping_add(1);
            self.sent = 0;
            self.cursor = SgeCursor::default();
            self.responses_first = true;
        } else {
            // A segment is shorter than 2^16 octets and a message shorter than 2^32, so this does not wrap.
            self.sent = self.sent.wrapping_add(bytes as u32);
        }
    }
}
