//! MPA: marker PDU aligned framing for TCP (RFC 5044).
//!
//! [`startup`] exchanges the Request and Reply Frames (s7, and RFC 6581). [`fpdu`] encodes FPDUs
//! and finds them in the stream (s4, s6). [`marker`] does the same for streams with markers (s4.3).
//! [`Mpa`] is both as the framing of a stream.

pub mod fpdu;
mod framing;
pub mod marker;
pub mod startup;

pub use framing::Mpa;

use crate::terminate::Terminate;

/// The errors of MPA (RFC 5044 s8, RFC 6581 s8).
///
/// Code 1 reports a TCP connection that was closed or lost. It is not listed here: the application
/// sees the end of its connection, and no Terminate can be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum MpaFault {
    /// The CRC of an FPDU is wrong.
    Crc = 2,
    /// A marker and the length field disagree about the start of an FPDU.
    Marker = 3,
    /// The format of a start-up frame is wrong. TCP is closed without a Terminate.
    Startup = 4,
    /// The enhanced start-up failed for a reason that has no code of its own.
    LocalCatastrophic = 5,
    /// The enhanced start-up asks for a larger IRD than there are resources for.
    InsufficientIrd = 6,
    /// The enhanced start-up found no ready-to-receive indication that both sides support.
    NoMatchingRtr = 7,
}

impl From<MpaFault> for Terminate {
    /// RFC 5044 s8 and RFC 6580 s3.3: layer 2, type 0. The codes 0x0202 and 0x0203 of the verbs
    /// draft are not used.
    fn from(fault: MpaFault) -> Self {
        Terminate { layer: Terminate::LAYER_LLP, etype: 0, code: fault as u8 }
    }
}
