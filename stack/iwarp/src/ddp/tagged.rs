//! The DDP errors of refused tagged placements (RFC 5041 s7.1, s7.2).

use ironwarp_mem::AccessError;

use super::DdpFault;

impl From<AccessError> for DdpFault {
    fn from(refused: AccessError) -> Self {
        match refused {
            AccessError::UnknownStag | AccessError::Revoked => DdpFault::InvalidStag,
            // RFC 5041 s7.2 has no code for a missing right. The steering tag allows no such
            // placement, which is check 1 or 2 of s7.1. Linux reports it the same way.
            AccessError::NoRight => DdpFault::InvalidStag,
            AccessError::WrongPd | AccessError::WrongStream => DdpFault::NotAssociated,
            AccessError::Bounds => DdpFault::BaseOrBounds,
            AccessError::Wrap => DdpFault::TaggedOffsetWrap,
            // An error of this side alone.
            AccessError::Faulted => DdpFault::LocalCatastrophic,
        }
    }
}
