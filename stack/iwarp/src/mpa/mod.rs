//! MPA: marker PDU aligned framing for TCP (RFC 5044).
//!
//! [`startup`] exchanges the Request and Reply frames (s7, and RFC 6581); [`fpdu`] builds frames and finds them in the
//! stream (s4, s6); [`marker`] does the same where a side asked for markers (s4.3).

pub mod fpdu;
pub mod marker;
pub mod startup;

use crate::terminate::Terminate;

/// What MPA can find wrong (RFC 5044 s8, RFC 6581 s8).
///
/// Code 1, a TCP connection that was closed or lost, is for the application alone, which hears of it by the end of its
/// connection: there is nothing left to send a Terminate on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum MpaFault {
    /// The CRC of an FPDU is not that of its bytes.
    Crc = 2,
    /// A marker and the length field disagree on where an FPDU starts.
    Marker = 3,
    /// A start-up frame is not formatted as it should be. TCP is closed without a Terminate.
    Startup = 4,
    /// The enhanced start-up failed for a reason without a code of its own.
    LocalCatastrophic = 5,
    /// The enhanced start-up asks for more inbound Reads than there are resources for.
    InsufficientIrd = 6,
    /// The enhanced start-up found no ready-to-receive indication that both sides know.
    NoMatchingRtr = 7,
}

impl From<MpaFault> for Terminate {
    /// RFC 5044 s8 and RFC 6580 s3.3: layer 2, type 0. The verbs draft's 0x0202 and 0x0203 are not used.
    fn from(fault: MpaFault) -> Self {
        Terminate { layer: Terminate::LAYER_LLP, etype: 0, code: fault as u8 }
    }
}
