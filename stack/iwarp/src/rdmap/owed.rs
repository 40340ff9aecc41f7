//! The responses that we owe, to Reads and to atomic operations (RFC 5040 s5.2, s6.1; RFC 7306 s5.2).
//!
//! Their queue is bounded for good when the queue pair is made: at most IRD of the peer's requests wait here. It never
//! allocates afterwards.

use std::collections::VecDeque;

use super::read::RTR_READS;
use super::{AtomicRequest, ReadRequest};

/// A Read of the peer's that we have not answered in full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// What was asked.
    pub request: ReadRequest,
    /// The request's number on queue 1, for a Terminate that has to name it.
    pub msn: u32,
    /// Octets sent.
    pub sent: u32,
}

/// A response that we owe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owed {
    /// To a Read.
    Read(Response),
    /// To an atomic operation, which is carried out when its turn to be answered comes.
    Atomic {
        /// What was asked.
        request: AtomicRequest,
        /// The request's number on queue 1, for a Terminate that has to name it.
        msn: u32,
    },
}

impl Owed {
    /// Whether part of it is sent.
    #[inline]
    pub fn is_begun(&self) -> bool {
        matches!(self, Owed::Read(response) if response.sent > 0)
    }
}

/// The responses we owe, to Reads and to atomic operations, oldest first: at most IRD (RFC 7306 s5.2).
#[derive(Debug)]
pub struct PendingResponses {
    responses: VecDeque<Owed>,
    ird: usize,
}

impl PendingResponses {
    /// A queue for at most `ird` responses.
    pub fn new(ird: u16) -> Self {
        PendingResponses { responses: VecDeque::with_capacity(ird.max(RTR_READS).into()), ird: ird.into() }
    }

    /// Start-up settled on `ird` Reads; more than there is memory for cannot be.
    pub fn limit_to(&mut self, ird: u16) {
        self.ird = usize::from(ird).min(self.responses.capacity());
    }

    /// Whether a queue-1 buffer is free.
    pub fn has_room(&self) -> bool {
        self.responses.len() < self.ird
    }

    /// Whether nothing is owed.
    pub fn is_empty(&self) -> bool {
        self.responses.is_empty()
    }

    /// The oldest.
    pub fn front(&self) -> Option<&Owed> {
        self.responses.front()
    }

    /// Owes one more. The caller has asked for room.
    pub fn push(&mut self, response: Owed) {
        debug_assert!(self.has_room());
        if self.has_room() {
            self.responses.push_back(response);
        }
    }

    /// Notes that `bytes` more of the oldest were sent, and forgets it when they were its last.
    pub fn advance(&mut self, bytes: u32, last: bool) {
        if last {
            self.responses.pop_front();
        } else if let Some(Owed::Read(head)) = self.responses.front_mut() {
            head.sent = head.sent.wrapping_add(bytes);
        }
    }

    /// Forgets them all: the stream has ended.
    pub fn clear(&mut self) {
        self.responses.clear();
    }
}
