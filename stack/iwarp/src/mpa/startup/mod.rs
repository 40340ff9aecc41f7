//! MPA start-up: one Request Frame, one Reply Frame, then FPDUs only (RFC 5044 s7.1, RFC 6581).
//!
//! [`frame`] and [`enhanced`] read and write the frames; [`initiator`] and [`responder`] are the two sides, each fed
//! with in-order bytes and driven by the connection manager, which owns timeouts and closes TCP. Both speak revision 1
//! and revision 2 with enhanced data; a responder answers in the revision that it was asked in (RFC 6581 s10).
//!
//! A fault means: close TCP at once, send nothing (RFC 5044 s8, code 4). A rejection ends MPA and leaves TCP open for
//! the connection manager to close (RFC 5044 s7.1.2, rules 2 and 3). What only the initiator can find wrong, it tells
//! with a Terminate after the reply (RFC 6581 s9).

pub mod enhanced;
pub mod frame;
pub mod initiator;
pub mod responder;

#[cfg(test)]
mod tests;

use ironwarp_stats::Counter;
use ironwarp_tcp::UnitSource;

pub use enhanced::{Enhanced, READS_UNNEGOTIATED, ReadDepths, Rtr, RtrKinds};
pub use frame::{FrameBytes, PrivateData, private_data_bytes_max};
pub use initiator::{Initiator, Proposal};
pub use responder::{Decision, Responder, ResponderParams};

/// What the two frames settled, as one side sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Negotiated {
    /// Whether CRCs are in use, in both directions.
    pub crc: bool,
    /// In which directions markers are.
    pub markers: Markers,
    /// The revision that was spoken.
    pub revision: u8,
    /// What the other side said of its Reads, in enhanced data.
    pub peer_reads: Option<ReadDepths>,
    /// The numbers of Reads in force on this side.
    pub reads: ReadDepths,
    /// The indication that this side, the initiator, must send before anything else.
    pub rtr_to_send: Option<Rtr>,
    /// The indications of which one is to come before this side, the responder, knows the connection to be up. Empty:
    /// none will come.
    pub rtr_awaited: RtrKinds,
}

/// Directions in which markers are in use (RFC 5044 s7.1.1): each is for its receiver to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Markers {
    /// The other side wants them in what we send.
    pub sent: bool,
    /// We want them in what we receive.
    pub received: bool,
}

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
    /// A frame whose S bit announces enhanced data and that has no room for it.
    #[error("the peer announces enhanced connection data and sends none")]
    EnhancedDataMissing,
    /// A reply without enhanced data to a request with it.
    #[error("the peer answers the enhanced connection set-up without it")]
    NotEnhanced,
    /// A reply with enhanced data to a request without it.
    #[error("the peer answers with enhanced connection set-up that nobody asked for")]
    UnexpectedEnhancedData,
    /// More private data than a frame may carry.
    #[error("{0} bytes of private data, at most 512 are allowed")]
    PrivateDataTooLong(u16),
    /// Bytes behind the request, where the length field says that it ends.
    #[error("bytes follow the request before it was answered")]
    TrailingBytes,
}

impl StartupFault {
    /// What counts it.
    pub fn counter(self) -> Counter {
        Counter::IwarpStartupErrors
    }
}

/// More private data was to be sent than a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{asked} bytes of private data, a frame carries {allowed}")]
pub struct PrivateDataTooLong {
    /// What was to be sent.
    pub asked: usize,
    /// What fits.
    pub allowed: usize,
}

/// A start-up frame as TCP pulls it: one unit, since some peers want it whole in one segment.
#[derive(Clone, Debug)]
pub struct StartupFrameSource {
    frame: FrameBytes,
    pulled: usize,
}

impl StartupFrameSource {
    /// A source of `frame` and nothing more.
    pub fn new(frame: FrameBytes) -> Self {
        StartupFrameSource { frame, pulled: 0 }
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
