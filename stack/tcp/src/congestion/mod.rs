//! Congestion windows: how much may be in flight, as NewReno, CUBIC and DCTCP each see it.
//!
//! ```text
//!                  acknowledged and used           congestion (loss, mark)            all of it repaired
//!   slow start  ------------------------>  avoidance  ------------------->  reduced  ------------------>  avoidance
//!       ^                                                                                                     |
//!       +----------------------------------------- timeout --------------------------------------------------+
//! ```
//!
//! Takes what ACKs say, in bytes; gives a window in bytes. Knows nothing of segments, units or timers: which bytes are
//! lost is the business of `recovery`, and between the reduction and the repair the window is steered by PRR.
//!
//! Source: RFC 5681, RFC 3465 (bytes are counted, L = 2), draft-ietf-tcpm-rfc8312bis (CUBIC), RFC 8257 (DCTCP),
//! RFC 6937 (PRR), RFC 7661 in spirit: a window that nobody uses does not grow. Cost: a few additions an ACK; a division
//! where CUBIC looks at its curve, eight times a round trip, and where DCTCP closes a window, once.

mod cubic;
mod dctcp;
mod prr;
#[cfg(test)]
mod tests;

use ironwarp_types::{Nanos, Seq};

pub(crate) use prr::Prr;

use crate::config;
use cubic::Cubic;
use dctcp::Dctcp;

/// The largest window kept: half the sequence space less a margin, so that comparisons stay ordered.
const CWND_MAX: u32 = 1 << 30;

/// RFC 3465 s2.2: segments by which one ACK opens the window in slow start at most.
const ABC_LIMIT: u32 = 2;

/// What an ACK that advances says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    pub(crate) now: Nanos,
    /// Newly acknowledged bytes.
    pub(crate) bytes: u32,
    /// SND.UNA before it.
    pub(crate) una_before: Seq,
    /// The end of what was sent.
    pub(crate) snd_nxt: Seq,
    pub(crate) srtt: Nanos,
    /// Whether the ACK echoes a congestion mark (RFC 3168 s6.1).
    pub(crate) echo: bool,
}

/// Why a window is reduced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CongestionSignal {
    /// Something was lost.
    Loss,
    /// The network marked instead of dropping.
    Ecn,
}

/// What sets the controllers apart.
#[derive(Clone, Copy, Debug)]
enum Algorithm {
    NewReno(Reno),
    Cubic(Cubic),
    Dctcp(Dctcp),
}

/// One connection's congestion window, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CongestionWindow {
    cwnd: u32,
    ssthresh: u32,
    emss: u32,
    /// What was sent before this number was sent with the window full, or nearly: its ACKs let the window grow.
    cwnd_limited_until: Seq,
    algorithm: Algorithm,
    /// cwnd and ssthresh before the last reduction, should it turn out to have been a mistake.
    undo_state: (u32, u32),
}

impl CongestionWindow {
    /// A window of `cwnd` bytes before anything was sent.
    pub(crate) fn new(which: config::Congestion, emss: u32, cwnd: u32, iss: Seq) -> Self {
        let algorithm = match which {
            config::Congestion::NewReno => Algorithm::NewReno(Reno::default()),
            config::Congestion::Cubic => Algorithm::Cubic(Cubic::new()),
            config::Congestion::Dctcp => Algorithm::Dctcp(Dctcp::new(iss)),
        };
        let cwnd = cwnd.clamp(emss, CWND_MAX);
        CongestionWindow {
            cwnd,
            ssthresh: CWND_MAX,
            emss,
            cwnd_limited_until: iss,
            algorithm,
            undo_state: (cwnd, CWND_MAX),
        }
    }

    /// What may be in flight.
    #[inline]
    pub(crate) fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// What the window comes down to when recovery ends.
    pub(crate) fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// The window stopped the sender, whose next byte is `snd_nxt`.
    #[inline]
    pub(crate) fn on_cwnd_limited(&mut self, snd_nxt: Seq) {
        self.cwnd_limited_until = snd_nxt;
    }

    /// Bytes were acknowledged while nothing was known to be lost, or in slow start after a timeout.
    #[inline]
    pub(crate) fn on_ack(&mut self, acked: Acked) {
        let used = acked.una_before.lt(self.cwnd_limited_until);
        if !used {
            self.cwnd_limited_until = acked.una_before;
        }
        self.on_ecn_feedback(&acked);
        if used {
            self.grow(&acked);
        } else if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            cubic.on_app_limited(acked.now);
        }
    }

    /// What an ACK says of marks, whatever the window does meanwhile.
    #[inline]
    pub(crate) fn on_ecn_feedback(&mut self, acked: &Acked) {
        if let Algorithm::Dctcp(dctcp) = &mut self.algorithm {
            dctcp.on_ack(acked);
        }
    }

    /// Out of the way of those whose window is never used up.
    #[inline(never)]
    fn grow(&mut self, acked: &Acked) {
        let mut beyond = acked.bytes;
        if self.cwnd < self.ssthresh {
            // RFC 5681 s3.1 and RFC 3465 s2.2: what was acknowledged, two segments at most, and not beyond ssthresh.
            let step = beyond.min(ABC_LIMIT * self.emss).min(self.ssthresh - self.cwnd);
            self.cwnd += step;
            if self.cwnd < self.ssthresh {
                self.cwnd = self.cwnd.min(CWND_MAX);
                return;
            }
            beyond = beyond.min(ABC_LIMIT * self.emss) - step;
        }
        let grown = match &mut self.algorithm {
            Algorithm::NewReno(reno) => reno.on_ack(self.cwnd, beyond, self.emss),
            Algorithm::Cubic(cubic) => cubic.on_ack(self.cwnd, self.emss, beyond, acked),
            Algorithm::Dctcp(dctcp) => dctcp.reno.on_ack(self.cwnd, beyond, self.emss),
        };
        self.cwnd = grown.min(CWND_MAX);
    }

    /// The window must come down, with `flight` bytes on their way. Sets what it comes down to; how it gets there is for
    /// PRR, or for [`Self::set_loss_window`].
    #[cold]
    pub(crate) fn on_congestion(&mut self, signal: CongestionSignal, flight: u32) {
        self.undo_state = (self.cwnd, self.ssthresh);
        let target = match &mut self.algorithm {
            // RFC 5681 s3.1, equation 4.
            Algorithm::NewReno(_) => flight >> 1,
            Algorithm::Cubic(cubic) => cubic.on_congestion(self.cwnd, flight),
            Algorithm::Dctcp(dctcp) => dctcp.on_congestion(signal, self.cwnd, flight),
        };
        self.ssthresh = target.max(2 * self.emss);
    }

    /// RFC 5681 s3.1: after a timeout one segment may leave, beside the `pipe` bytes that are not known to be lost.
    #[cold]
    pub(crate) fn set_loss_window(&mut self, pipe: u32) {
        self.cwnd = (pipe + self.emss).min(CWND_MAX);
    }

    /// PRR, or the end of recovery, says what may be in flight.
    pub(crate) fn set_cwnd(&mut self, cwnd: u32) {
        self.cwnd = cwnd.clamp(self.emss, CWND_MAX);
    }

    /// What was taken for congestion was none: everything is as it was before.
    #[cold]
    pub(crate) fn undo(&mut self) {
        let (cwnd, ssthresh) = self.undo_state;
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            cubic.undo();
        }
    }

    /// RFC 5681 s4.1: nothing was sent for longer than a timeout; what is known of the path is stale. ssthresh keeps
    /// the memory of it.
    #[cold]
    pub(crate) fn on_idle(&mut self, now: Nanos, initial: u32) {
        self.ssthresh = self.ssthresh.max(self.cwnd - (self.cwnd >> 2));
        self.cwnd = self.cwnd.min(initial.max(self.emss));
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            cubic.on_app_limited(now);
        }
    }

    /// The segment size changed; windows are in bytes and stay.
    #[cold]
    pub(crate) fn on_segment_size(&mut self, emss: u32) {
        self.emss = emss;
        self.cwnd = self.cwnd.max(emss);
    }
}

/// Congestion avoidance of RFC 5681 s3.1: one segment a window.
#[derive(Clone, Copy, Debug, Default)]
struct Reno {
    /// Bytes acknowledged since the window last grew.
    acked: u32,
}

impl Reno {
    #[inline]
    fn on_ack(&mut self, cwnd: u32, acked: u32, emss: u32) -> u32 {
        self.acked += acked;
        if self.acked < cwnd {
            return cwnd;
        }
        self.acked -= cwnd;
        self.acked = self.acked.min(cwnd);
        cwnd + emss
    }
}
