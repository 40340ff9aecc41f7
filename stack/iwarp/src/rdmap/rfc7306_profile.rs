//! The variant of RFC 7306 that a stream uses: the RFC or one of its drafts.
//!
//! The drafts have the same headers and operations and differ on the wire in three points. Drafts
//! -01 and -03 have Swap (AOpCode 1). Figure 2 of draft -01 shows queue 1 for the Atomic Response
//! and for Immediate Data with Solicited Event, where its text says 3 and 0. The default is the
//! RFC.
//!
//! A message is numbered on the queue on which it is sent. With the queues of figure 2, responses
//! and solicited immediates are therefore numbered among the sender's own Read and Atomic Requests.

use super::{ATOMIC_RESPONSE_QUEUE, Opcode, READ_QUEUE, SEND_QUEUE, TERMINATE_QUEUE};
use crate::ddp::Untagged;

/// The differences of a stream from the RFC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
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

    /// Returns the operation of a segment if that operation is allowed on the segment's queue. The
    /// version is not checked, because DDP errors take precedence over a wrong version.
    pub fn expected(self, header: &Untagged) -> Option<Opcode> {
        let opcode = Opcode::operation_extended(header.ulp).ok()?;
        (self.queue(opcode) == Some(header.qn)).then_some(opcode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdmap::RdmapFault;

    const ALL: [Rfc7306Profile; 3] =
        [Rfc7306Profile::RFC_7306, Rfc7306Profile::DRAFT_03, Rfc7306Profile::DRAFT_01_FIGURE_2];

    fn header(opcode: Opcode, qn: u32) -> Untagged {
        Untagged::whole(opcode.control(), qn, 1)
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
        assert_eq!(profile.expected(&header(Opcode::AtomicResponse, 3)), None);
        assert_eq!(profile.expected(&header(Opcode::AtomicResponse, 1)), Some(Opcode::AtomicResponse));
    }

    /// The drafts do not change the queues of RFC 5040.
    #[test]
    fn the_operations_of_rfc_5040_keep_their_queues() {
        for profile in ALL {
            assert_eq!(profile.queue(Opcode::Write), None);
            assert_eq!(profile.queue(Opcode::ReadResponse), None);
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
                    assert_eq!(profile.expected(&header(opcode, qn)), fits.then_some(opcode));
                }
            }
        }
    }

    /// RFC7306-4.1-04: the receiver ignores the tag field. RFC7306-8.2-04: it does not ignore the
    /// version.
    #[test]
    fn the_tag_field_is_ignored_and_the_version_is_checked() {
        let good = Untagged { ulp_word: 0xdead_beef, ..header(Opcode::AtomicRequest, 1) };
        assert_eq!(Rfc7306Profile::RFC_7306.expected(&good), Some(Opcode::AtomicRequest));
        let version_2 = Untagged { ulp: 0x80 | Opcode::AtomicRequest as u8, ..good };
        assert_eq!(Rfc7306Profile::RFC_7306.expected(&version_2), Some(Opcode::AtomicRequest));
        assert_eq!(Opcode::check_version(version_2.ulp), Err(RdmapFault::Version));
    }
}
