//! RDMAP: the operations (RFC 5040, RFC 7306).
//!
//! [`opcode`] encodes the control octet (s4.1). [`read`] has the header of a Read Request and the
//! bounded queue of local requests that wait for a response. [`responder_queue`] is the queue of
//! responses to the peer's requests (s4.4, s5.2, s6.1). [`atomic`] and [`immediate`] are the
//! messages of RFC 7306, and [`rfc7306_profile`] the differences of its drafts. [`terminate`] is
//! the message that ends a stream (s4.8, s5.4).

pub mod atomic;
pub mod immediate;
pub mod opcode;
pub mod read;
pub mod responder_queue;
pub mod rfc7306_profile;
pub mod terminate;

pub use atomic::{AtomicRequest, AtomicResponse};
pub use immediate::Immediate;
pub use opcode::Opcode;
pub use read::{OutstandingRequest, OutstandingRequests, ReadRequest};
pub use responder_queue::{InboundRead, ResponderEntry, ResponderQueue};
pub use rfc7306_profile::Rfc7306Profile;
pub use terminate::TerminatedHeaders;

use ironwarp_mem::{AccessError, InvalidateError};

use crate::terminate::Terminate;

/// Queue 0 carries Sends of every kind (RFC 5040 s3.1).
pub const SEND_QUEUE: u32 = 0;
/// Queue 1 carries Read Requests and Atomic Requests, in one numbering (RFC 7306 s5.2).
pub const READ_QUEUE: u32 = 1;
/// Queue 2 carries the Terminate.
pub const TERMINATE_QUEUE: u32 = 2;
/// Queue 3 carries Atomic Responses (RFC 7306 s4.1).
pub const ATOMIC_RESPONSE_QUEUE: u32 = 3;

/// The errors of RDMAP (RFC 5040 s4.8, figure 9), each with its type and code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum RdmapFault {
    /// A local error: a work request cannot be carried out.
    LocalCatastrophic = 0x0000,
    /// The steering tag is invalid.
    InvalidStag = 0x0100,
    /// The request reaches outside its buffer.
    BaseOrBounds = 0x0101,
    /// The buffer does not grant the right.
    AccessRights = 0x0102,
    /// The steering tag belongs to another protection domain.
    NotAssociated = 0x0103,
    /// Offset plus length exceeds 2^64.
    TaggedOffsetWrap = 0x0104,
    /// The steering tag may not be invalidated by this message.
    CannotInvalidate = 0x0109,
    /// The RDMAP version is not 1.
    Version = 0x0205,
    /// The operation is unknown or not allowed here.
    Opcode = 0x0206,
    /// The message breaks a rule that has no code of its own.
    StreamCatastrophic = 0x0207,
    /// The format of the request is wrong.
    Unspecified = 0x02ff,
}

impl From<RdmapFault> for Terminate {
    fn from(fault: RdmapFault) -> Self {
        let [etype, code] = (fault as u16).to_be_bytes();
        Terminate { layer: Terminate::LAYER_RDMA, etype, code }
    }
}

impl From<AccessError> for RdmapFault {
    /// RFC 5040 s7.2: the checks of a Read Request's source.
    fn from(refused: AccessError) -> Self {
        match refused {
            AccessError::UnknownStag | AccessError::Revoked => RdmapFault::InvalidStag,
            AccessError::WrongPd | AccessError::WrongStream => RdmapFault::NotAssociated,
            AccessError::NoRight => RdmapFault::AccessRights,
            AccessError::Bounds => RdmapFault::BaseOrBounds,
            AccessError::Wrap => RdmapFault::TaggedOffsetWrap,
            // An error of this side alone.
            AccessError::Faulted => RdmapFault::LocalCatastrophic,
        }
    }
}

impl From<InvalidateError> for RdmapFault {
    /// RFC 5040 s5.3: a tag of another stream cannot be invalidated. s7.2, check 4: a tag that is
    /// not valid is reported as invalid. s8.1.1 (7): the peer cannot invalidate a tag that several
    /// streams share.
    fn from(refused: InvalidateError) -> Self {
        match refused {
            InvalidateError::NotStreamScoped
            | InvalidateError::Access(AccessError::WrongPd | AccessError::WrongStream) => {
                RdmapFault::CannotInvalidate
            }
            InvalidateError::Access(error) => error.into(),
        }
    }
}
