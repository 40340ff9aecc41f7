//! What is told to the peer about congestion that its packets met.
//!
//! ```text
//!   RFC 3168    a mark turns the echo on, the peer's CWR turns it off
//!   RFC 8257    the echo says of every packet whether it was marked; where that changes, an ACK leaves at once
//! ```
//!
//! Source: RFC 3168 s6.1.3, RFC 8257 s3.2. Cost: one comparison a segment while nothing changes.

use crate::header::{Flags, Segment};
use ironwarp_types::Ecn;

/// The receiver's side of ECN.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct EcnEcho {
    /// ACKs carry ECE.
    pub(crate) echoing: bool,
    /// RFC 8257: the echo mirrors the marks.
    mirrors: bool,
}

impl EcnEcho {
    pub(crate) fn new(mirrors: bool) -> Self {
        EcnEcho { echoing: false, mirrors }
    }

    /// Whether a packet with these bits changes nothing.
    #[inline]
    pub(crate) fn predicts(self, ecn: Ecn) -> bool {
        (ecn == Ecn::Experienced) == (self.echoing && self.mirrors)
    }

    /// Takes the bits of a segment with payload that lies in the window. Answers whether what is owed must be told
    /// before, since the echo changes.
    pub(crate) fn on_segment(&mut self, segment: &Segment) -> bool {
        let marked = segment.ecn == Ecn::Experienced;
        let before = self.echoing;
        if self.mirrors {
            self.echoing = marked;
            return before != marked;
        }
        if segment.has(Flags::CWR) {
            self.echoing = false;
        }
        self.echoing |= marked;
        false
    }
}
