//! The receiver's side of ECN: the echo of congestion marks.
//!
//! ```text
//!   RFC 3168    a mark turns the echo on, the peer's CWR turns it off
//!   RFC 8257    the echo states for every packet whether it was marked; a change sends an ACK at once
//! ```
//!
//! Source: RFC 3168 s6.1.3, RFC 8257 s3.2. Cost: one comparison per segment while nothing changes.

use ironwarp_types::Ecn;
use serde::{Deserialize, Serialize};

use crate::header::{Flags, Segment};

/// The receiver's ECN state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct EcnEcho {
    /// ACKs carry ECE.
    pub(crate) echoing: bool,
    /// RFC 8257: the echo mirrors the marks.
    dctcp_echo: bool,
}

impl EcnEcho {
    pub(crate) fn new(dctcp_echo: bool) -> Self {
        EcnEcho { echoing: false, dctcp_echo }
    }

    /// Returns whether a packet with these bits changes nothing.
    #[inline]
    pub(crate) fn is_fast(self, ecn: Ecn) -> bool {
        (ecn == Ecn::Ce) == (self.echoing && self.dctcp_echo)
    }

    /// Processes the ECN bits of a segment with payload in the window. Returns whether a pending
    /// ACK must leave first, since the echo changes.
    pub(crate) fn on_segment(&mut self, segment: &Segment) -> bool {
        let marked = segment.ecn == Ecn::Ce;
        let before = self.echoing;
        if self.dctcp_echo {
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

#[cfg(test)]
mod tests {
    use ironwarp_types::Seq;

    use super::*;
    use crate::header::Options;

    fn segment(ecn: Ecn, flags: Flags) -> Segment {
        let options = Options::default();
        Segment { seq: Seq(0), ack: Seq(0), window: 0, flags, start: 0, end: 1, ecn, options }
    }

    /// RFC 8257 s3.2: the echo follows the marks, and each change sends an ACK at once.
    #[test]
    fn the_dctcp_echo_follows_the_mark_of_every_segment() {
        let mut echo = EcnEcho::new(true);
        for (ecn, changes) in [(Ecn::Ect0, false), (Ecn::Ce, true), (Ecn::Ce, false), (Ecn::Ect0, true)] {
            assert_eq!(echo.is_fast(ecn), !changes);
            assert_eq!(echo.on_segment(&segment(ecn, Flags::ACK)), changes);
            assert_eq!(echo.echoing, ecn == Ecn::Ce);
        }
    }

    /// RFC 3168 s6.1.3: the echo lasts until CWR; a mark on that segment restarts it.
    #[test]
    fn the_echo_lasts_until_the_peer_sends_cwr() {
        let mut echo = EcnEcho::new(false);
        for (ecn, flags, echoing) in [
            (Ecn::Ce, Flags::ACK, true),
            (Ecn::Ect0, Flags::ACK, true),
            (Ecn::Ect0, Flags::CWR, false),
            (Ecn::Ce, Flags::CWR, true),
        ] {
            assert!(!echo.on_segment(&segment(ecn, flags)));
            assert_eq!(echo.echoing, echoing);
        }
    }
}
