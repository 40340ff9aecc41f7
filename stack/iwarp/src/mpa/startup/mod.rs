//! MPA start-up: one Request Frame, one Reply Frame, then FPDUs only (RFC 5044 s7.1, RFC 6581).
//!
//! [`frame`] encodes and decodes the frames. [`initiator`] and [`responder`] are the two sides.
//! Each takes in-order bytes from the connection manager, which owns the timeouts and closes TCP.
//! Both support revision 1 and revision 2 with enhanced data; a responder replies in the revision
//! of the request (RFC 6581 s10).
//!
//! A fault closes TCP at once, and nothing is sent (RFC 5044 s8, code 4). A rejection ends MPA; the
//! connection manager then closes TCP (RFC 5044 s7.1.2, rules 2 and 3). An initiator that cannot
//! meet the terms of the reply sends a Terminate after it (RFC 6581 s9).

pub mod frame;
pub mod initiator;
pub mod responder;

#[cfg(test)]
mod tests;

use ironwarp_llp::UnitSource;
use ironwarp_stats::Counter;

pub use frame::FrameBytes;
pub use initiator::{Initiator, Proposal};
pub use responder::{Decision, Responder};

use crate::setup::Terms;

/// The negotiated terms, as seen from one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Negotiated {
    /// CRCs are in use, in both directions.
    pub crc: bool,
    /// The directions in which markers are in use.
    pub markers: Markers,
    /// The revision of both frames.
    pub revision: u8,
    /// The rest.
    pub terms: Terms,
}

/// The directions in which markers are in use (RFC 5044 s7.1.1). The receiver of each direction
/// decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Markers {
    /// The peer wants markers in sent data.
    pub sent: bool,
    /// This side wants markers in received data.
    pub received: bool,
}

/// Why start-up failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartupFault {
    /// The peer sent something other than an MPA frame.
    #[error("the peer does not speak MPA")]
    Key,
    /// The peer sent the kind of frame that this side sends: both are initiators, or both are
    /// responders.
    #[error("the peer has the same start-up role")]
    SameRole,
    /// The revision is not supported.
    #[error("the peer uses MPA revision {0}, supported are 1 and 2")]
    Revision(u8),
    /// The S bit announces enhanced data, but the frame is too short for it.
    #[error("the peer announces enhanced connection data and sends less than 4 bytes")]
    EnhancedDataMissing,
    /// The reply to an enhanced request has no enhanced data.
    #[error("the peer's reply lacks the enhanced connection data of the request")]
    NotEnhanced,
    /// The reply to a request without enhanced data has enhanced data.
    #[error("the peer's reply has enhanced connection data, the request has none")]
    UnexpectedEnhancedData,
    /// The private data is longer than a frame allows.
    #[error("the peer announces {0} bytes of private data, at most 512 are allowed")]
    PrivateDataTooLong(u16),
    /// Bytes follow the end of the request.
    #[error("bytes follow the request before it was answered")]
    TrailingBytes,
}

impl StartupFault {
    /// Returns the counter of this fault.
    pub fn counter(self) -> Counter {
        Counter::IwarpStartupErrors
    }
}

/// A start-up frame as a source for TCP. It is one unit, because some peers require the whole frame
/// in one segment.
#[derive(Clone, Debug)]
pub struct StartupFrameSource {
    frame: FrameBytes,
    pulled: usize,
}

impl StartupFrameSource {
    /// Creates a source of `frame` and nothing else.
    pub fn new(frame: FrameBytes) -> Self {
        StartupFrameSource { frame, pulled: 0 }
    }

    /// Returns whether TCP has pulled the whole frame.
    pub fn is_done(&self) -> bool {
        self.pulled == self.frame.len()
    }

    /// Returns the frame.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Returns the length of the frame.
    pub fn frame_bytes(&self) -> usize {
        self.frame.len()
    }
}

impl UnitSource for StartupFrameSource {
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
