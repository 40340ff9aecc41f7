//! The error code of a Terminate message, shared by all layers.
//!
//! MPA, DDP and RDMAP convert their faults to [`Terminate`]. The message that carries the code is
//! RDMAP's ([`rdmap::terminate`](crate::rdmap::terminate)), so this module depends on no layer.
//! Source: the tables in RFC 5040 s4.8, RFC 5041 s7.2, RFC 5044 s8 and RFC 6581 s8.

use core::fmt;

/// The error that a Terminate reports: one row of the tables named above.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Terminate {
    /// The layer that found the error: 0 RDMAP, 1 DDP, 2 MPA.
    pub layer: u8,
    /// The error type, defined per layer.
    pub etype: u8,
    /// The error code, defined per type.
    pub code: u8,
}

impl Terminate {
    /// RDMAP found the error.
    pub const LAYER_RDMA: u8 = 0;
    /// DDP found the error.
    pub const LAYER_DDP: u8 = 1;
    /// MPA found the error.
    pub const LAYER_LLP: u8 = 2;
}

impl fmt::Display for Terminate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}/{:#x}/{:#04x}", self.layer, self.etype, self.code)
    }
}
