//! Which text of RFC 7306 a stream speaks: the RFC, or one of the drafts before it.
//!
//! The drafts have the same headers and operations and differ in three points that show on the wire: drafts -01 and
//! -03 have Swap (AOpCode 1), and figure 2 of draft -01 prints queue 1 for the Atomic Response and for Immediate Data
//! with Solicited Event, where its own text says 3 and 0. A stream speaks the RFC unless it is told otherwise.
//!
//! Numbers on a queue follow the queue that a message is sent on: where figure 2 is taken by its word, responses and
//! solicited immediates are numbered among the sender's own Read and Atomic Requests.

use super::{ATOMIC_RESPONSE_QUEUE, Opcode, READ_QUEUE, RdmapFault, SEND_QUEUE, TERMINATE_QUEUE};
use crate::ddp::Untagged;

/// What a stream has beyond the RFC, or in its place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rfc7306Profile {
    /// Swap is an operation.
    pub swap: bool,
    /// Atomic Responses and solicited immediates are sent on queue 1, and taken there.
    pub figure_2_queues: bool,
}

impl Rfc7306Profile {
    /// RFC 7306, and draft -10, which says the same.
    pub const RFC_7306: Rfc7306Profile = Rfc7306Profile { swap: false, figure_2_queues: false };
    /// Draft -03, and draft -01 by its text.
    pub const DRAFT_03: Rfc7306Profile = Rfc7306Profile { swap: true, figure_2_queues: false };
    /// Draft -01 by its figure 2.
    pub const DRAFT_01_FIGURE_2: Rfc7306Profile = Rfc7306Profile { swap: true, figure_2_queues: true };

    /// The queue that messages of a kind are sent on; `None` for tagged ones.
    pub const fn queue(self, opcode: Opcode) -> Option<u32> {
        match opcode {
            Opcode::Write | Opcode::ReadResponse => None,
            Opcode::ImmediateSolicited | Opcode::AtomicResponse if self.figure_2_queues => Some(READ_QUEUE),
            Opcode::AtomicResponse => Some(ATOMIC_RESPONSE_QUEUE),
            Opcode::ReadRequest | Opcode::AtomicRequest => Some(READ_QUEUE),
            Opcode::Terminate => Some(TERMINATE_QUEUE),
            _ => Some(SEND_QUEUE),
        }
    }

    /// The header of an untagged message of one segment. RFC 7306 s4.1: no tag is invalidated, so the word for it is
    /// zero. `None` for tagged messages.
    pub const fn header(self, opcode: Opcode, msn: u32) -> Option<Untagged> {
        match self.queue(opcode) {
            Some(qn) => Some(Untagged { last: true, ulp: opcode.control(), ulp_word: 0, qn, msn, mo: 0 }),
            None => None,
        }
    }

    /// The kind that a segment's operation names, if messages of that kind may come on its queue. The version is not
    /// looked at: what DDP finds wrong with the segment goes before.
    pub fn expected(self, header: &Untagged) -> Option<Opcode> {
        let opcode = Opcode::operation_extended(header.ulp).ok()?;
        (self.queue(opcode) == Some(header.qn)).then_some(opcode)
    }

    /// The kind of an untagged segment, if messages of that kind may come on its queue (RFC 7306 s8.2: operation, then
    /// version). The word for a tag to invalidate is not looked at (s4.1).
    #[inline]
    pub fn untagged(self, header: &Untagged) -> Result<Opcode, RdmapFault> {
        let opcode = Opcode::decode_extended(header.ulp)?;
        if self.queue(opcode) == Some(header.qn) { Ok(opcode) } else { Err(RdmapFault::Opcode) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Rfc7306Profile; 3] =
        [Rfc7306Profile::RFC_7306, Rfc7306Profile::DRAFT_03, Rfc7306Profile::DRAFT_01_FIGURE_2];

    fn header(opcode: Opcode, qn: u32) -> Untagged {
        Untagged { last: true, ulp: opcode.control(), ulp_word: 0, qn, msn: 1, mo: 0 }
    }

    /// RFC7306-4.1-05 and RFC7306-10-01: the queues of figure 2.
    #[test]
    fn each_operation_has_the_queue_of_figure_2() {
        for profile in [Rfc7306Profile::RFC_7306, Rfc7306Profile::DRAFT_03] {
            assert_eq!(profile.queue(Opcode::Immediate), Some(0));
            assert_eq!(profile.queue(Opcode::ImmediateSolicited), Some(0));
            assert_eq!(profile.queue(Opcode::AtomicRequest), Some(1));
            assert_eq!(profile.queue(Opcode::AtomicResponse), Some(3));
        }
    }

    /// Figure 2 of draft -01 prints queue 1 twice where its text and the RFC say otherwise.
    #[test]
    fn figure_2_of_draft_01_has_two_other_queues() {
        let profile = Rfc7306Profile::DRAFT_01_FIGURE_2;
        assert_eq!(profile.queue(Opcode::ImmediateSolicited), Some(1));
        assert_eq!(profile.queue(Opcode::AtomicResponse), Some(1));
        assert_eq!(
            (profile.queue(Opcode::Immediate), profile.queue(Opcode::AtomicRequest)),
            (Some(0), Some(1))
        );
        assert_eq!(profile.untagged(&header(Opcode::AtomicResponse, 3)), Err(RdmapFault::Opcode));
        assert_eq!(profile.untagged(&header(Opcode::AtomicResponse, 1)), Ok(Opcode::AtomicResponse));
    }

    /// The queues of RFC 5040 are nobody's to change.
    #[test]
    fn the_operations_of_rfc_5040_keep_their_queues() {
        for profile in ALL {
            assert_eq!(profile.queue(Opcode::Write), None);
            assert_eq!(profile.header(Opcode::ReadResponse, 1), None);
            assert_eq!(profile.queue(Opcode::SendSolicitedInvalidate), Some(0));
            assert_eq!(profile.queue(Opcode::ReadRequest), Some(1));
            assert_eq!(profile.queue(Opcode::Terminate), Some(2));
        }
    }

    /// RFC7306-8.2-03: an operation on a queue that is not its own may not come there.
    #[test]
    fn an_operation_is_taken_on_its_own_queue_alone() {
        for profile in ALL {
            for code in 0..12 {
                let opcode = Opcode::decode_extended(0x40 | code).unwrap();
                for qn in 0..5 {
                    let fits = profile.queue(opcode) == Some(qn);
                    let expected = if fits { Ok(opcode) } else { Err(RdmapFault::Opcode) };
                    assert_eq!(profile.untagged(&header(opcode, qn)), expected);
                }
            }
        }
    }

    /// RFC7306-4.1-04: on receive the word is ignored; RFC7306-8.2-04: the version is not.
    #[test]
    fn the_word_for_a_tag_is_ignored_and_the_version_is_not() {
        let good = Untagged { ulp_word: 0xdead_beef, ..header(Opcode::AtomicRequest, 1) };
        assert_eq!(Rfc7306Profile::RFC_7306.untagged(&good), Ok(Opcode::AtomicRequest));
        let version_2 = Untagged { ulp: 0x80 | Opcode::AtomicRequest as u8, ..good };
        assert_eq!(Rfc7306Profile::RFC_7306.untagged(&version_2), Err(RdmapFault::Version));
    }
}
