//! The variant of RFC 7306 that a stream uses: the RFC or one of its drafts.
//!
//! The drafts have the same headers and operations and differ on the wire in three points. Drafts -01 and -03 have
//! Swap (AOpCode 1). Figure 2 of draft -01 shows queue 1 for the Atomic Response and for Immediate Data with
//! Solicited Event, where its text says 3 and 0. The default is the RFC.
//!
//! A message is numbered on the queue on which it is sent. With the queues of figure 2, responses and solicited
//! immediates are therefore numbered among the sender's own Read and Atomic Requests.

use super::{ATOMIC_RESPONSE_QUEUE, Opcode, READ_QUEUE, RdmapFault, SEND_QUEUE, TERMINATE_QUEUE};
use crate::ddp::Untagged;

/// The differences of a stream from the RFC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rfc7306Profile {
    /// Swap is supported.
    pub swap: bool,
    /// Atomic Responses and solicited immediates use queue 1.
    pub figure_2_queues: bool,
}

impl Rfc7306Profile {
    /// RFC 7306, and draft -10, which is equivalent.
    pub const RFC_7306: Rfc7306Profile = Rfc7306Profile { swap: false, figure_2_queues: false };
    /// Draft -03, and draft -01 according to its text.
    pub const DRAFT_03: Rfc7306Profile = Rfc7306Profile { swap: true, figure_2_queues: false };
    /// Draft -01 according to its figure 2.
    pub const DRAFT_01_FIGURE_2: Rfc7306Profile = Rfc7306Profile { swap: true, figure_2_queues: true };

    /// Returns the queue of messages of this kind; `None` for tagged ones.
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

    /// Returns the header of an untagged message of one segment; `None` for tagged messages. RFC 7306 s4.1: no tag is
    /// invalidated, so its field is zero.
    pub const fn header(self, opcode: Opcode, msn: u32) -> Option<Untagged> {
        match self.queue(opcode) {
            Some(qn) => Some(Untagged { last: true, ulp: opcode.control(), ulp_word: 0, qn, msn, mo: 0 }),
            None => None,
        }
    }

    /// Returns the operation of a segment if that operation is allowed on the segment's queue. The version is not
    /// checked, because DDP errors take precedence over a wrong version.
    pub fn expected(self, header: &Untagged) -> Option<Opcode> {
        let opcode = Opcode::operation_extended(header.ulp).ok()?;
        (self.queue(opcode) == Some(header.qn)).then_some(opcode)
    }

    /// Decodes the operation of an untagged segment and checks that it is allowed on the segment's queue. RFC 7306
    /// s8.2: operation, then version. The field for a tag to invalidate is ignored (s4.1).
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

    /// Figure 2 of draft -01 shows queue 1 twice where its text and the RFC have other queues.
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

    /// The drafts do not change the queues of RFC 5040.
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

    /// RFC7306-8.2-03: an operation is refused on any queue but its own.
    #[test]
    fn an_operation_is_accepted_only_on_its_own_queue() {
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

    /// RFC7306-4.1-04: the receiver ignores the tag field. RFC7306-8.2-04: it does not ignore the version.
    #[test]
    fn the_tag_field_is_ignored_and_the_version_is_checked() {
        let good = Untagged { ulp_word: 0xdead_beef, ..header(Opcode::AtomicRequest, 1) };
        assert_eq!(Rfc7306Profile::RFC_7306.untagged(&good), Ok(Opcode::AtomicRequest));
        let version_2 = Untagged { ulp: 0x80 | Opcode::AtomicRequest as u8, ..good };
        assert_eq!(Rfc7306Profile::RFC_7306.untagged(&version_2), Err(RdmapFault::Version));
    }
}
