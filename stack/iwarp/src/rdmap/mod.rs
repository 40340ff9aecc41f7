//! RDMAP: what messages mean (RFC 5040, RFC 7306).
//!
//! [`opcode`] names the messages (s4.1); [`read`] is the Read Request's header and the bounded queue of our own Reads,
//! [`responder_queue`] that of the responses to the peer's requests (s4.4, s5.2, s6.1); [`atomic`] and [`immediate`] are the messages of RFC 7306, and [`rfc7306_profile`] what its drafts had
//! otherwise; [`terminate`] is the message that ends a stream (s4.8, s5.4).

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
/// Queue 1 carries Read Requests, and Atomic Requests in one numbering with them (RFC 7306 s5.2).
pub const READ_QUEUE: u32 = 1;
/// Queue 2 carries the Terminate.
pub const TERMINATE_QUEUE: u32 = 2;
/// Queue 3 carries Atomic Responses (RFC 7306 s4.1).
pub const ATOMIC_RESPONSE_QUEUE: u32 = 3;

/// What RDMAP can find wrong (RFC 5040 s4.8, figure 9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RdmapFault {
    /// Something of our own: a work request that cannot be carried out.
    LocalCatastrophic,
    /// The steering tag names nothing.
    InvalidStag,
    /// The request reaches outside its buffer.
    BaseOrBounds,
    /// The buffer may not be used so.
    AccessRights,
    /// The steering tag belongs to another protection domain.
    NotAssociated,
    /// Offset and length together pass 2^64.
    TaggedOffsetWrap,
    /// The steering tag may not be invalidated by this message.
    CannotInvalidate,
    /// The RDMAP version is not 1.
    Version,
    /// The operation is unknown, or not one that may come here.
    Opcode,
    /// The message breaks its own rules in a way that has no code.
    StreamCatastrophic,
    /// The request is not formatted as it should be.
    Unspecified,
}

impl From<RdmapFault> for Terminate {
    fn from(fault: RdmapFault) -> Self {
        let (etype, code) = match fault {
            RdmapFault::LocalCatastrophic => (0, 0x00),
            RdmapFault::InvalidStag => (1, 0x00),
            RdmapFault::BaseOrBounds => (1, 0x01),
            RdmapFault::AccessRights => (1, 0x02),
            RdmapFault::NotAssociated => (1, 0x03),
            RdmapFault::TaggedOffsetWrap => (1, 0x04),
            RdmapFault::CannotInvalidate => (1, 0x09),
            RdmapFault::Version => (2, 0x05),
            RdmapFault::Opcode => (2, 0x06),
            RdmapFault::StreamCatastrophic => (2, 0x07),
            RdmapFault::Unspecified => (2, 0xff),
        };
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
        }
    }
}

impl From<InvalidateError> for RdmapFault {
    /// RFC 5040 s5.3: a tag that is not this stream's cannot be invalidated; s7.2, check 4: one that is not valid is
    /// invalid; s8.1.1 (7): one that streams share is not the peer's to end.
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
