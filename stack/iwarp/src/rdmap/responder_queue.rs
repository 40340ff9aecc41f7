//! The queue of responses to the peer's Reads and atomic operations (RFC 5040 s5.2, s6.1;
//! RFC 7306 s5.2).
//!
//! The queue holds at most IRD requests. Its size is fixed when the queue pair is created, and it
//! never allocates afterwards.
//!
//! Responses are sent in the order of the requests. An atomic operation on a word of this core is
//! carried out when its response is the next to be sent. An operation on another core's word is
//! forwarded earlier: as soon as no operation before it still has to run on this core or on a third
//! core.
//!
//! ```text
//!  oldest | Completed .. Completed | Forwarded .. Forwarded | Atomic, Read .. | newest
//!         '------------------ begun ----------------'
//!                                '----- forwarded -----'   all to one core, which replies in the order of its calls
//! ```

use std::collections::VecDeque;

use ironwarp_mem::WordError;
use ironwarp_types::CoreId;

use super::read::{READ_REQUEST_BYTES, RTR_READS, allocate};
use super::{AtomicRequest, Opcode, READ_QUEUE, ReadRequest, TerminatedHeaders};
use crate::ddp::{UNTAGGED_BYTES, Untagged};

/// A Read of the peer that is not completely answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct InboundRead {
    /// The request.
    pub request: ReadRequest,
    /// The number of the request on queue 1, needed for a Terminate.
    pub msn: u32,
    /// Octets sent.
    pub sent: u32,
}

impl InboundRead {
    /// Returns the Read Request as a Terminate shows it (RFC 5040 s4.8). The DDP header is rebuilt,
    /// because it was not stored. The RDMAP header is that of the part that is not answered.
    pub(crate) fn terminated_headers(&self) -> TerminatedHeaders {
        let mut ulpdu = [0; UNTAGGED_BYTES + READ_REQUEST_BYTES];
        Untagged::whole(Opcode::ReadRequest.control(), READ_QUEUE, self.msn).encode(&mut ulpdu);
        TerminatedHeaders::segment(&ulpdu).with_request(self.request.advanced(self.sent).encode())
    }
}

/// A response that is still to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponderEntry {
    /// The response to a Read.
    Read(InboundRead),
    /// The response to an atomic operation that has not begun.
    Atomic {
        /// The request.
        request: AtomicRequest,
        /// The number of the request on queue 1, needed for a Terminate.
        msn: u32,
        /// The owner core of the word, if only that core may change it and it is another one.
        /// `None` remains right while the tag is valid.
        owner: Option<CoreId>,
    },
    /// The response to an operation that was forwarded to the owner core.
    Forwarded {
        /// The requester's identifier.
        identifier: u32,
        /// The request's number on queue 1.
        msn: u32,
    },
    /// The response to an operation that the owner core has carried out or refused.
    Completed {
        /// The requester's identifier.
        identifier: u32,
        /// The request's number on queue 1.
        msn: u32,
        /// The word's value before the operation, or why it was refused.
        outcome: Result<u64, WordError>,
    },
}

impl ResponderEntry {
    /// Returns whether part of the response was sent.
    #[inline]
    pub fn is_begun(&self) -> bool {
        matches!(self, ResponderEntry::Read(response) if response.sent > 0)
    }

    /// Returns whether the response can be sent without waiting for another core.
    #[inline]
    fn is_ready(&self) -> bool {
        matches!(
            self,
            ResponderEntry::Read(_)
                | ResponderEntry::Atomic { owner: None, .. }
                | ResponderEntry::Completed { .. }
        )
    }
}

/// The responses to Reads and atomic operations, oldest first: at most IRD (RFC 7306 s5.2). The
/// first one allocates the memory of all, which a peer cannot make more.
#[derive(Debug)]
pub struct ResponderQueue {
    responses: VecDeque<ResponderEntry>,
    ird: u16,
    /// The IRD of creation.
    depth: u16,
    /// The number of oldest entries that were forwarded, completed or not.
    begun: u16,
    /// The number of those that are not completed.
    forwarded: u16,
    /// The core to which those were forwarded.
    owner: CoreId,
    /// An owner core has refused an operation, so no later one may take effect.
    owner_refused: bool,
}

impl ResponderQueue {
    /// Creates a queue for at most `ird` responses.
    pub fn new(ird: u16) -> Self {
        ResponderQueue {
            responses: VecDeque::new(),
            ird,
            depth: ird.max(RTR_READS),
            begun: 0,
            forwarded: 0,
            owner: CoreId(0),
            owner_refused: false,
        }
    }

    /// Sets the negotiated IRD. The depth of creation is the upper limit.
    pub fn set_ird(&mut self, ird: u16) {
        self.ird = ird.min(self.depth);
    }

    /// Returns the largest number of responses.
    pub fn ird(&self) -> u16 {
        self.ird
    }

    /// Returns the responses, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &ResponderEntry> {
        self.responses.iter()
    }

    /// Continues with saved responses, none of which is with another core. Returns whether they are
    /// possible.
    pub fn restore(&mut self, ird: u16, responses: Vec<ResponderEntry>) -> bool {
        self.set_ird(ird);
        let fit = responses.len() <= ird.into() && (responses.is_empty() || self.reserve());
        let is_completed = |entry: &&ResponderEntry| matches!(entry, ResponderEntry::Completed { .. });
        self.begun = responses.iter().take_while(is_completed).count() as u16;
        self.responses.extend(responses.into_iter().take_while(|_| fit));
        fit && self.ird == ird && self.is_consistent()
    }

    /// Returns whether a buffer of queue 1 is free.
    pub fn has_room(&self) -> bool {
        self.responses.len() < self.ird.into()
    }

    /// Allocates the queue at its first use. Returns whether it has memory.
    #[inline]
    pub fn reserve(&mut self) -> bool {
        self.responses.capacity() > 0 || allocate(&mut self.responses, self.depth)
    }

    /// Returns whether no response is pending.
    pub fn is_empty(&self) -> bool {
        self.responses.is_empty()
    }

    /// Returns the oldest response if it can be sent now.
    #[inline]
    pub fn sendable(&self) -> Option<&ResponderEntry> {
        self.responses.front().filter(|entry| entry.is_ready())
    }

    /// Adds a response. The caller has checked that there is room, and reserved memory.
    pub fn push(&mut self, response: ResponderEntry) {
        debug_assert!(self.has_room() && self.responses.capacity() > 0);
        if self.has_room() {
            self.responses.push_back(response);
        }
    }

    /// Records that `bytes` more of the oldest response were sent. Removes it if they were the
    /// last.
    pub fn advance(&mut self, bytes: u32, last: bool) {
        if last {
            self.responses.pop_front();
            self.begun = self.begun.saturating_sub(1);
        } else if let Some(ResponderEntry::Read(head)) = self.responses.front_mut() {
            head.sent = head.sent.wrapping_add(bytes);
        }
    }

    /// Returns the atomic operation to forward next, its number and its owner core.
    ///
    /// RFC 7306 s5.4, s7: an operation begins only when all earlier ones are done, or are with the
    /// same owner core, which keeps the order. No operation begins after one that was refused.
    #[inline]
    pub fn next_to_forward(&self) -> Option<(AtomicRequest, u32, CoreId)> {
        match self.responses.get(usize::from(self.begun)) {
            Some(&ResponderEntry::Atomic { request, msn, owner: Some(owner) })
                if !self.owner_refused && (self.forwarded == 0 || self.owner == owner) =>
            {
                Some((request, msn, owner))
            }
            _ => None,
        }
    }

    /// Records that the operation from [`ResponderQueue::next_to_forward`] was forwarded.
    pub fn mark_forwarded(&mut self) {
        let Some(entry) = self.responses.get_mut(usize::from(self.begun)) else { return };
        let ResponderEntry::Atomic { request, msn, owner: Some(owner) } = *entry else { return };
        *entry = ResponderEntry::Forwarded { identifier: request.identifier, msn };
        self.owner = owner;
        self.begun += 1;
        self.forwarded += 1;
    }

    /// Records the outcome of forwarded request `msn`. Returns whether that request is the oldest
    /// one that waits.
    pub fn complete_forwarded(&mut self, msn: u32, outcome: Result<u64, WordError>) -> bool {
        let oldest = self.begun.saturating_sub(self.forwarded);
        match self.responses.get_mut(usize::from(oldest)) {
            Some(entry @ &mut ResponderEntry::Forwarded { identifier, msn: request_msn })
                if request_msn == msn =>
            {
                *entry = ResponderEntry::Completed { identifier, msn, outcome };
                self.owner_refused |= outcome.is_err();
                self.forwarded -= 1;
                true
            }
            _ => false,
        }
    }

    /// Returns the number of forwarded operations without an outcome.
    pub fn forwarded(&self) -> usize {
        self.forwarded.into()
    }

    /// Returns whether `owner` has a forwarded operation without an outcome.
    pub fn has_forwarded_to(&self, owner: CoreId) -> bool {
        self.forwarded > 0 && self.owner == owner
    }

    /// Returns whether the entries are in the order of the diagram above.
    pub fn is_consistent(&self) -> bool {
        let begun = usize::from(self.begun);
        let completed = begun.saturating_sub(self.forwarded.into());
        self.forwarded <= self.begun
            && self.responses.iter().enumerate().all(|(at, entry)| match entry {
                ResponderEntry::Completed { .. } => at < completed,
                ResponderEntry::Forwarded { .. } => (completed..begun).contains(&at),
                ResponderEntry::Read(_) | ResponderEntry::Atomic { .. } => at >= begun,
            })
    }

    /// Removes all responses, because the stream has ended. Later outcomes match no entry.
    pub fn clear(&mut self) {
        self.responses.clear();
        (self.begun, self.forwarded, self.owner_refused) = (0, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use ironwarp_mem::{AccessError, AtomicOp};
    use ironwarp_types::STag;
    use proptest::prelude::*;

    use super::*;

    /// A request of the peer: a Read, or an atomic operation on a word of this core or of another.
    #[derive(Clone, Copy, Debug)]
    enum PeerRequest {
        Read,
        OwnCore,
        OtherCore(u16),
    }

    fn entry(kind: PeerRequest, msn: u32) -> ResponderEntry {
        let operation = AtomicOp::add(1);
        let request = AtomicRequest { identifier: msn, stag: STag(1), tagged_offset: 0, operation };
        match kind {
            PeerRequest::Read => {
                let (sink_stag, source_stag) = (STag(1), STag(2));
                let request = ReadRequest { sink_stag, sink_to: 0, bytes: 8, source_stag, source_to: 0 };
                ResponderEntry::Read(InboundRead { request, msn, sent: 0 })
            }
            PeerRequest::OwnCore => ResponderEntry::Atomic { request, msn, owner: None },
            PeerRequest::OtherCore(core) => {
                ResponderEntry::Atomic { request, msn, owner: Some(CoreId(core)) }
            }
        }
    }

    fn queue(requests: &[PeerRequest]) -> ResponderQueue {
        let mut queue = ResponderQueue::new(16);
        assert!(queue.reserve());
        (1..).zip(requests).for_each(|(msn, kind)| queue.push(entry(*kind, msn)));
        queue
    }

    /// Forwards everything that may be forwarded. Returns numbers and owner cores.
    fn forward_all(queue: &mut ResponderQueue) -> Vec<(u32, u16)> {
        let forward = || {
            queue.next_to_forward().map(|(_, msn, owner)| (msn, owner.0)).inspect(|_| queue.mark_forwarded())
        };
        std::iter::from_fn(forward).collect()
    }

    /// RFC 7306 s7: nothing is forwarded past a Read, past a word of this core, or while another
    /// owner core has an operation.
    #[test]
    fn only_operations_of_one_owner_core_are_forwarded_together() {
        use PeerRequest::{OtherCore, OwnCore, Read};
        assert_eq!(
            forward_all(&mut queue(&[OtherCore(1), OtherCore(1), OtherCore(2), OtherCore(1)])),
            [(1, 1), (2, 1)]
        );
        assert_eq!(forward_all(&mut queue(&[OtherCore(1), Read, OtherCore(1)])), [(1, 1)]);
        assert_eq!(forward_all(&mut queue(&[OtherCore(1), OwnCore, OtherCore(1)])), [(1, 1)]);
        assert!(forward_all(&mut queue(&[OwnCore, OtherCore(1)])).is_empty());
        let mut queue = queue(&[OtherCore(1), OtherCore(2)]);
        assert_eq!(forward_all(&mut queue), [(1, 1)]);
        assert!(queue.sendable().is_none(), "it has no outcome");
        assert!(queue.complete_forwarded(1, Ok(7)));
        assert_eq!(
            forward_all(&mut queue),
            [(2, 2)],
            "a completed operation is done before its response is sent"
        );
        assert!(matches!(queue.sendable(), Some(ResponderEntry::Completed { msn: 1, outcome: Ok(7), .. })));
    }

    /// RFC 7306 s7: operations after a refused one have no effect, so none of them is forwarded.
    /// The stream ends only when the refused one is the next response to send.
    #[test]
    fn nothing_is_forwarded_after_a_refused_operation() {
        for owner in [1, 2] {
            let mut queue = queue(&[PeerRequest::OtherCore(1), PeerRequest::OtherCore(owner)]);
            forward_all(&mut queue);
            assert!(queue.complete_forwarded(1, Err(AccessError::Revoked.into())));
            queue.push(entry(PeerRequest::OtherCore(owner), 3));
            assert!(forward_all(&mut queue).is_empty(), "owner {owner}");
        }
    }

    /// An outcome must belong to the oldest forwarded operation. After the end of the stream there
    /// is none.
    #[test]
    fn an_outcome_must_belong_to_the_oldest_forwarded_operation() {
        let mut queue = queue(&[PeerRequest::OtherCore(1), PeerRequest::OtherCore(1)]);
        assert_eq!(forward_all(&mut queue).len(), 2);
        assert!(!queue.complete_forwarded(2, Ok(0)) && !queue.complete_forwarded(9, Ok(0)));
        assert!(queue.complete_forwarded(1, Err(AccessError::Revoked.into())));
        assert!(!queue.complete_forwarded(1, Ok(0)), "once");
        queue.clear();
        assert!(!queue.complete_forwarded(2, Ok(0)) && queue.is_empty() && queue.is_consistent());
    }

    proptest! {
        /// For all requests and all timings of outcomes: a request begins when all earlier ones are
        /// done or are with the same owner core. It has one outcome, and responses are sent in the
        /// order of the requests.
        #[test]
        fn requests_begin_in_order_and_responses_are_sent_in_order(
            requests in prop::collection::vec(
                prop_oneof![Just(PeerRequest::Read), Just(PeerRequest::OwnCore), (1u16..4).prop_map(PeerRequest::OtherCore)], 1..16),
            choices in prop::collection::vec(any::<bool>(), 64),
        ) {
            let mut queue = queue(&requests);
            let (mut forwarded, mut completed, mut left) = (vec![], 0, 0);
            for completes in choices.into_iter().cycle() {
                for (msn, core) in forward_all(&mut queue) {
                    // Earlier operations that are not done must all be with this core.
                    let with_others = forwarded[completed..].iter().any(|(_, other)| *other != core);
                    prop_assert!(!with_others && forwarded.last().is_none_or(|(last, _)| *last < msn));
                    let skipped = (left + 1..msn).filter(|before| !forwarded.iter().any(|(one, _)| one == before));
                    prop_assert_eq!(skipped.count(), 0, "an operation before {} has not begun", msn);
                    forwarded.push((msn, core));
                }
                prop_assert!(queue.is_consistent());
                prop_assert_eq!(queue.forwarded(), forwarded.len() - completed);
                if completes && completed < forwarded.len() {
                    prop_assert!(queue.complete_forwarded(forwarded[completed].0, Ok(0)));
                    completed += 1;
                } else if let Some(head) = queue.sendable() {
                    let msn = match *head {
                        ResponderEntry::Read(InboundRead { msn, .. }) | ResponderEntry::Atomic { msn, .. } => msn,
                        ResponderEntry::Completed { msn, .. } | ResponderEntry::Forwarded { msn, .. } => msn,
                    };
                    prop_assert_eq!(msn, left + 1);
                    left += 1;
                    queue.advance(0, true);
                } else if completed < forwarded.len() {
                    prop_assert!(queue.complete_forwarded(forwarded[completed].0, Ok(0)));
                    completed += 1;
                }
                if queue.is_empty() {
                    break;
                }
            }
            prop_assert_eq!((left as usize, completed), (requests.len(), forwarded.len()));
        }
    }
}
