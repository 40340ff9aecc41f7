//! The responses that we owe, to Reads and to atomic operations (RFC 5040 s5.2, s6.1; RFC 7306 s5.2).
//!
//! Their queue is bounded for good when the queue pair is made: at most IRD of the peer's requests wait here. It never
//! allocates afterwards.
//!
//! Responses leave in the order of their requests. An atomic operation on a word of this core is carried out when its
//! response is the next to leave. One on another core's word is mailed to that core, sooner: as soon as nothing ahead of
//! it is left to be done elsewhere than there, or here.
//!
//! ```text
//!  oldest | Completed .. Completed | Forwarded .. Forwarded | Atomic, Read .. | newest
//!         '------------------ begun ----------------'
//!                                '----- forwarded -----'   all to one core, which answers in the order of its calls
//! ```

use std::collections::VecDeque;

use ironwarp_mem::WordError;
use ironwarp_types::CoreId;

use super::read::{READ_REQUEST_BYTES, RTR_READS};
use super::{AtomicRequest, Opcode, READ_QUEUE, ReadRequest, TerminatedHeaders};
use crate::ddp::{UNTAGGED_BYTES, Untagged};

/// A Read of the peer's that we have not answered in full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InboundRead {
    /// What was asked.
    pub request: ReadRequest,
    /// The request's number on queue 1, for a Terminate that has to name it.
    pub msn: u32,
    /// Octets sent.
    pub sent: u32,
}

impl InboundRead {
    /// The Read Request as a Terminate shows it: its DDP header, which was not kept but is known, and its own header
    /// as far as it has got (RFC 5040 s4.8).
    pub(crate) fn terminated_headers(&self) -> TerminatedHeaders {
        let mut ulpdu = [0; UNTAGGED_BYTES + READ_REQUEST_BYTES];
        let ulp = Opcode::ReadRequest.control();
        Untagged { last: true, ulp, ulp_word: 0, qn: READ_QUEUE, msn: self.msn, mo: 0 }.encode(&mut ulpdu);
        TerminatedHeaders::segment(&ulpdu).with_request(self.request.advanced(self.sent).encode())
    }
}

/// A response that we owe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponderEntry {
    /// To a Read.
    Read(InboundRead),
    /// To an atomic operation that has not begun.
    Atomic {
        /// What was asked.
        request: AtomicRequest,
        /// The request's number on queue 1, for a Terminate that has to name it.
        msn: u32,
        /// The core whose word it is, where it is another. That never changes while the tag is good.
        owner: Option<CoreId>,
    },
    /// To one that the word's owner has been asked to carry out.
    Forwarded {
        /// The asking side's number.
        identifier: u32,
        /// The request's number on queue 1.
        msn: u32,
    },
    /// To one that the word's owner has carried out, or refused.
    Completed {
        /// The asking side's number.
        identifier: u32,
        /// The request's number on queue 1.
        msn: u32,
        /// The word's value before.
        outcome: Result<u64, WordError>,
    },
}

impl ResponderEntry {
    /// Whether part of it is sent.
    #[inline]
    pub fn is_begun(&self) -> bool {
        matches!(self, ResponderEntry::Read(response) if response.sent > 0)
    }

    /// Whether it can be sent: all of it is there, or can be fetched on this core.
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

/// The responses we owe, to Reads and to atomic operations, oldest first: at most IRD (RFC 7306 s5.2).
#[derive(Debug)]
pub struct ResponderQueue {
    responses: VecDeque<ResponderEntry>,
    ird: usize,
    /// How many of the oldest have been mailed, answered or not.
    begun: u16,
    /// How many of those have not been answered.
    forwarded: u16,
    /// Whom those were mailed to.
    owner: CoreId,
    /// Whether an owner has refused one: nothing behind it may take effect.
    owner_refused: bool,
}

impl ResponderQueue {
    /// A queue for at most `ird` responses.
    pub fn new(ird: u16) -> Self {
        let responses = VecDeque::with_capacity(ird.max(RTR_READS).into());
        ResponderQueue {
            responses,
            ird: ird.into(),
            begun: 0,
            forwarded: 0,
            owner: CoreId(0),
            owner_refused: false,
        }
    }

    /// Start-up settled on `ird` Reads; more than there is memory for cannot be.
    pub fn set_ird(&mut self, ird: u16) {
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

    /// The oldest, where it can be sent now.
    #[inline]
    pub fn sendable(&self) -> Option<&ResponderEntry> {
        self.responses.front().filter(|entry| entry.is_ready())
    }

    /// Owes one more. The caller has asked for room.
    pub fn push(&mut self, response: ResponderEntry) {
        debug_assert!(self.has_room());
        if self.has_room() {
            self.responses.push_back(response);
        }
    }

    /// Notes that `bytes` more of the oldest were sent, and forgets it when they were its last.
    pub fn advance(&mut self, bytes: u32, last: bool) {
        if last {
            self.responses.pop_front();
            self.begun = self.begun.saturating_sub(1);
        } else if let Some(ResponderEntry::Read(head)) = self.responses.front_mut() {
            head.sent = head.sent.wrapping_add(bytes);
        }
    }

    /// The atomic operation that another core is to be asked for next, its number, and whom to ask. RFC 7306 s5.4, s7: it is
    /// not begun while an earlier Read or atomic operation is not done, save by the core that does both in turn; nor behind one
    /// that was refused.
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

    /// Notes that what [`ResponderQueue::next_to_forward`] named has been mailed.
    pub fn mark_forwarded(&mut self) {
        let Some(entry) = self.responses.get_mut(usize::from(self.begun)) else { return };
        let ResponderEntry::Atomic { request, msn, owner: Some(owner) } = *entry else { return };
        *entry = ResponderEntry::Forwarded { identifier: request.identifier, msn };
        self.owner = owner;
        self.begun += 1;
        self.forwarded += 1;
    }

    /// The owner has answered request number `msn`. Answers whether that was asked, and is the oldest that waits.
    pub fn complete_forwarded(&mut self, msn: u32, outcome: Result<u64, WordError>) -> bool {
        let oldest = self.begun.saturating_sub(self.forwarded);
        match self.responses.get_mut(usize::from(oldest)) {
            Some(entry @ &mut ResponderEntry::Forwarded { identifier, msn: asked }) if asked == msn => {
                *entry = ResponderEntry::Completed { identifier, msn, outcome };
                self.owner_refused |= outcome.is_err();
                self.forwarded -= 1;
                true
            }
            _ => false,
        }
    }

    /// How many are mailed and not answered.
    pub fn forwarded(&self) -> usize {
        self.forwarded.into()
    }

    /// Whether that core has been asked for something that it has not answered.
    pub fn has_forwarded_to(&self, owner: CoreId) -> bool {
        self.forwarded > 0 && self.owner == owner
    }

    /// Whether the entries are in the order of the picture above.
    pub fn is_consistent(&self) -> bool {
        let begun = usize::from(self.begun);
        let answered = begun.saturating_sub(self.forwarded.into());
        self.forwarded <= self.begun
            && self.responses.iter().enumerate().all(|(at, entry)| match entry {
                ResponderEntry::Completed { .. } => at < answered,
                ResponderEntry::Forwarded { .. } => (answered..begun).contains(&at),
                ResponderEntry::Read(_) | ResponderEntry::Atomic { .. } => at >= begun,
            })
    }

    /// Forgets them all: the stream has ended. Answers to what was mailed find nothing any more.
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

    /// What a peer may ask for: a Read, or an atomic on a word of this core or of another.
    #[derive(Clone, Copy, Debug)]
    enum PeerRequest {
        Read,
        OwnCore,
        OtherCore(u16),
    }

    fn entry(asked: PeerRequest, msn: u32) -> ResponderEntry {
        let operation = AtomicOp::add(1);
        let request = AtomicRequest { identifier: msn, stag: STag(1), tagged_offset: 0, operation };
        match asked {
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

    fn queue(asked: &[PeerRequest]) -> ResponderQueue {
        let mut queue = ResponderQueue::new(16);
        (1..).zip(asked).for_each(|(msn, asked)| queue.push(entry(*asked, msn)));
        queue
    }

    /// Mails what may be mailed; answers the numbers.
    fn forward_all(queue: &mut ResponderQueue) -> Vec<(u32, u16)> {
        let forward = || {
            queue.next_to_forward().map(|(_, msn, owner)| (msn, owner.0)).inspect(|_| queue.mark_forwarded())
        };
        std::iter::from_fn(forward).collect()
    }

    /// RFC 7306 s7: nothing is mailed past a Read, a word that is done here, or one that is with another owner.
    #[test]
    fn only_what_the_same_owner_does_in_turn_is_mailed_together() {
        use PeerRequest::{OtherCore, OwnCore, Read};
        assert_eq!(
            forward_all(&mut queue(&[OtherCore(1), OtherCore(1), OtherCore(2), OtherCore(1)])),
            [(1, 1), (2, 1)]
        );
        assert_eq!(forward_all(&mut queue(&[OtherCore(1), Read, OtherCore(1)])), [(1, 1)]);
        assert_eq!(forward_all(&mut queue(&[OtherCore(1), OwnCore, OtherCore(1)])), [(1, 1)]);
        assert_eq!(forward_all(&mut queue(&[OwnCore, OtherCore(1)])), []);
        let mut queue = queue(&[OtherCore(1), OtherCore(2)]);
        assert_eq!(forward_all(&mut queue), [(1, 1)]);
        assert!(queue.sendable().is_none(), "it has not been answered");
        assert!(queue.complete_forwarded(1, Ok(7)));
        assert_eq!(forward_all(&mut queue), [(2, 2)], "what was answered is done, though it has not left");
        assert!(matches!(queue.sendable(), Some(ResponderEntry::Completed { msn: 1, outcome: Ok(7), .. })));
    }

    /// RFC 7306 s7: what is behind a request that was refused has no effect, so no owner is asked for it any more, though the
    /// stream ends only when the refusal's turn to leave has come.
    #[test]
    fn nothing_is_mailed_behind_a_refusal() {
        for owner in [1, 2] {
            let mut queue = queue(&[PeerRequest::OtherCore(1), PeerRequest::OtherCore(owner)]);
            forward_all(&mut queue);
            assert!(queue.complete_forwarded(1, Err(AccessError::Revoked.into())));
            queue.push(entry(PeerRequest::OtherCore(owner), 3));
            assert_eq!(forward_all(&mut queue), [], "owner {owner}");
        }
    }

    /// An answer is for the oldest that waits; any other finds nothing, and so does one that comes after the end.
    #[test]
    fn an_answer_out_of_turn_finds_nothing() {
        let mut queue = queue(&[PeerRequest::OtherCore(1), PeerRequest::OtherCore(1)]);
        assert_eq!(forward_all(&mut queue).len(), 2);
        assert!(!queue.complete_forwarded(2, Ok(0)) && !queue.complete_forwarded(9, Ok(0)));
        assert!(queue.complete_forwarded(1, Err(AccessError::Revoked.into())));
        assert!(!queue.complete_forwarded(1, Ok(0)), "once");
        queue.clear();
        assert!(!queue.complete_forwarded(2, Ok(0)) && queue.is_empty() && queue.is_consistent());
    }

    proptest! {
        /// Whatever is asked and however answers come: each request is begun when all before it are done, or are with the
        /// one core that does it too; it is answered once, and the responses leave in the order of the requests.
        #[test]
        fn requests_begin_in_order_and_responses_leave_in_order(
            asked in prop::collection::vec(
                prop_oneof![Just(PeerRequest::Read), Just(PeerRequest::OwnCore), (1u16..4).prop_map(PeerRequest::OtherCore)], 1..16),
            turns in prop::collection::vec(any::<bool>(), 64),
        ) {
            let mut queue = queue(&asked);
            let (mut forwarded, mut answered, mut left) = (vec![], 0, 0);
            for answers in turns.into_iter().cycle() {
                for (msn, core) in forward_all(&mut queue) {
                    // Those before it that are not done: all with this core.
                    let with_others = forwarded[answered..].iter().any(|(_, other)| *other != core);
                    prop_assert!(!with_others && forwarded.last().is_none_or(|(last, _)| *last < msn));
                    let skipped = (left + 1..msn).filter(|before| !forwarded.iter().any(|(one, _)| one == before));
                    prop_assert_eq!(skipped.count(), 0, "something before {} was not begun", msn);
                    forwarded.push((msn, core));
                }
                prop_assert!(queue.is_consistent());
                prop_assert_eq!(queue.forwarded(), forwarded.len() - answered);
                if answers && answered < forwarded.len() {
                    prop_assert!(queue.complete_forwarded(forwarded[answered].0, Ok(0)));
                    answered += 1;
                } else if let Some(head) = queue.sendable() {
                    let msn = match *head {
                        ResponderEntry::Read(InboundRead { msn, .. }) | ResponderEntry::Atomic { msn, .. } => msn,
                        ResponderEntry::Completed { msn, .. } | ResponderEntry::Forwarded { msn, .. } => msn,
                    };
                    prop_assert_eq!(msn, left + 1);
                    left += 1;
                    queue.advance(0, true);
                } else if answered < forwarded.len() {
                    prop_assert!(queue.complete_forwarded(forwarded[answered].0, Ok(0)));
                    answered += 1;
                }
                if queue.is_empty() {
                    break;
                }
            }
            prop_assert_eq!((left as usize, answered), (asked.len(), forwarded.len()));
        }
    }
}
