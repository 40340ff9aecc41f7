//! MPA start-up: one Request Frame, one Reply Frame, then FPDUs only (RFC 5044 s7.1).
//!
//! [`frame`] reads and writes the frames; [`initiator`] and [`responder`] are the two sides, each fed with in-order
//! bytes and driven by the connection manager, which owns timeouts and closes TCP. Revision 1 is spoken. A request
//! of revision 2 without enhanced data is formatted as one of revision 1 (RFC 6581 s6) and is answered so; one with
//! enhanced data is, to a stack without it, improperly formatted, and TCP is closed (RFC 6581 s10).
//!
//! A fault means: close TCP at once, send nothing (RFC 5044 s8, code 4). A rejection ends MPA and leaves TCP open for
//! the connection manager to close (RFC 5044 s7.1.2, rules 2 and 3).

pub mod frame;
pub mod initiator;
pub mod responder;

#[cfg(test)]
mod tests;

use ironwarp_stats::Counter;
use ironwarp_tcp::UnitSource;

pub use frame::{FrameBytes, PrivateData};
pub use initiator::Initiator;
pub use responder::{Decision, Responder};

/// Why start-up failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartupFault {
    /// What arrived is not an MPA frame.
    #[error("the peer does not speak MPA")]
    Key,
    /// What arrived is the frame that we send: both sides are initiators, or both responders.
    #[error("the peer started in the same role")]
    SameRole,
    /// A revision that we do not speak.
    #[error("the peer speaks MPA revision {0}")]
    Revision(u8),
    /// A revision-2 request with enhanced connection data.
    #[error("the peer asks for the enhanced connection set-up of revision 2")]
    Enhanced,
    /// More private data than a frame may carry.
    #[error("{0} bytes of private data, at most 512 are allowed")]
    PrivateDataTooLong(u16),
    /// Bytes behind the request, where the length field says that it ends.
    #[error("bytes follow the request before it was answered")]
    TrailingBytes,
    /// The peer wants markers in what we send.
    #[error("the peer requires markers")]
    MarkersRequired,
}

impl StartupFault {
    /// What counts it.
    pub fn counter(self) -> Counter {
        match self {
            StartupFault::MarkersRequired => Counter::IwarpMarkersRefused,
            StartupFault::Enhanced => Counter::IwarpEnhancedRefused,
            _ => Counter::IwarpStartupFaults,
        }
    }
}

/// More than 512 bytes of private data were to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} bytes of private data, a frame carries 512")]
pub struct PrivateDataTooLong(pub usize);

/// A start-up frame as TCP pulls it: one unit, since some peers want it whole in one segment.
#[derive(Clone, Debug)]
pub struct FrameSource {
    frame: FrameBytes,
    pulled: usize,
}

impl FrameSource {
    /// A source of `frame` and nothing more.
    pub fn new(frame: FrameBytes) -> Self {
        FrameSource { frame, pulled: 0 }
    }

    /// Whether all of it has been pulled.
    pub fn is_done(&self) -> bool {
        self.pulled == self.frame.len()
    }

    /// Octets of the whole frame.
    pub fn frame_bytes(&self) -> usize {
        self.frame.len()
    }
}

impl UnitSource for FrameSource {
    fn fill(&mut self, room: &mut [u8]) -> usize {
        let left = self.frame.get(self.pulled..).unwrap_or_default();
        let bytes = left.len().min(room.len());
        if let (Some(out), Some(from)) = (room.get_mut(..bytes), left.get(..bytes)) {
            out.copy_from_slice(from);
        }
        self.pulled += bytes;
        bytes
    }
}
