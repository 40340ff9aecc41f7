//! Congestion windows: the number of bytes that may be in flight, by NewReno, CUBIC or DCTCP.
//!
//! ```text
//!                  acknowledged and used           congestion (loss, mark)            all of it repaired
//!   slow start  ------------------------>  avoidance  ------------------->  reduced  ------------------>  avoidance
//!       ^                                                                                                     |
//!       +----------------------------------------- timeout --------------------------------------------------+
//! ```
//!
//! Takes acknowledged bytes and marks; gives a window in bytes. The module has no segments, units
//! or timers. `recovery` finds lost bytes, and PRR sets the window between the reduction and the
//! repair.
//!
//! Source: RFC 5681, RFC 3465 (byte counting, L = 2), draft-ietf-tcpm-rfc8312bis (CUBIC), RFC 8257
//! (DCTCP), RFC 6937 (PRR). In the spirit of RFC 7661, an unused window does not grow. Cost: a few
//! additions per ACK. CUBIC divides eight times per round trip, DCTCP once per window.

mod cubic;
mod dctcp;
mod prr;
#[cfg(test)]
mod tests;

use core::mem::offset_of;

use ironwarp_types::{Nanos, Seq};
use serde::{Deserialize, Serialize};

pub(crate) use prr::Prr;

use crate::config;
use crate::saved::Rebase;
use cubic::Cubic;
use dctcp::Dctcp;

/// The largest window: a quarter of the sequence space, so that comparisons stay ordered.
const CWND_MAX: u32 = 1 << 30;

/// RFC 3465 s2.2: the maximum number of segments by which one ACK opens the window in slow start.
const ABC_LIMIT: u32 = 2;

/// An ACK that advances SND.UNA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    pub(crate) now: Nanos,
    /// Newly acknowledged bytes.
    pub(crate) bytes: u32,
    /// SND.UNA before the ACK.
    pub(crate) una_before: Seq,
    /// SND.NXT.
    pub(crate) snd_nxt: Seq,
    pub(crate) srtt: Nanos,
    /// The ACK echoes a congestion mark (RFC 3168 s6.1).
    pub(crate) echo: bool,
}

/// The reason of a window reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CongestionSignal {
    /// A segment was lost.
    Loss,
    /// The network marked a packet instead of dropping it.
    Ecn,
}

/// The state of the selected algorithm.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Algorithm {
    NewReno(Reno),
    Cubic(Cubic),
    Dctcp(Dctcp),
}

/// One connection's congestion window, in bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[repr(C)]
pub(crate) struct CongestionWindow {
    cwnd: u32,
    ssthresh: u32,
    emss: u32,
    /// Bytes before this number were sent with a full or nearly full window, so their ACKs may grow
    /// the window.
    cwnd_limited_until: Seq,
    algorithm: Algorithm,
    /// cwnd and ssthresh before the last reduction, for its undo.
    undo_state: (u32, u32),
}

impl CongestionWindow {
    /// The part that an ACK uses while the window is not full.
    pub(crate) const TRAFFIC_BYTES: usize = offset_of!(Self, algorithm) + 16;

    /// Returns a window of `cwnd` bytes before the first transmission.
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

    pub(crate) fn rebase(&mut self, clock: Rebase) {
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            cubic.rebase(clock);
        }
    }

    /// Returns whether a saved window holds no number that it could not have.
    pub(crate) fn is_valid(&self) -> bool {
        let (cwnd, ssthresh) = self.undo_state;
        let has_valid_algorithm = match &self.algorithm {
            Algorithm::NewReno(reno) => reno.is_valid(),
            Algorithm::Cubic(cubic) => cubic.is_valid(),
            Algorithm::Dctcp(dctcp) => dctcp.reno.is_valid() && dctcp.is_valid(),
        };
        [self.cwnd, self.ssthresh, cwnd, ssthresh].iter().all(|bytes| (1..=CWND_MAX).contains(bytes))
            && has_valid_algorithm
    }

    /// Returns the number of bytes that may be in flight.
    #[inline]
    pub(crate) fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// Returns whether the window has room for a single segment.
    pub(crate) fn is_one_segment(&self) -> bool {
        self.cwnd < 2 * self.emss
    }

    /// Returns the slow start threshold, which is also the window after recovery.
    pub(crate) fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// The window stopped the sender, whose next byte is `snd_nxt`.
    #[inline]
    pub(crate) fn on_cwnd_limited(&mut self, snd_nxt: Seq) {
        self.cwnd_limited_until = snd_nxt;
    }

    /// Bytes were acknowledged while no loss was known, or in slow start after a timeout.
    pub(crate) fn on_ack(&mut self, acked: Acked) {
        self.on_ack_at(acked.now, acked.una_before, || acked);
    }

    /// [`CongestionWindow::on_ack`] that asks for the other values only if they matter.
    #[inline(always)]
    pub(crate) fn on_ack_at(&mut self, now: Nanos, una_before: Seq, acked: impl FnOnce() -> Acked) {
        let used = una_before.lt(self.cwnd_limited_until);
        if !used {
            self.cwnd_limited_until = una_before;
        }
        match &mut self.algorithm {
            Algorithm::Cubic(cubic) if !used => cubic.on_app_limited(now),
            Algorithm::NewReno(_) if !used => {}
            _ => self.on_used_or_marked(&acked(), used),
        }
    }

    /// Tuning: not inlined, as connections that do not fill their window call it for DCTCP only.
    #[inline(never)]
    fn on_used_or_marked(&mut self, acked: &Acked, used: bool) {
        self.on_ecn_feedback(acked);
        if used {
            self.grow(acked);
        }
    }

    /// Records the marks that an ACK echoes, in every phase.
    #[inline(always)]
    pub(crate) fn on_ecn_feedback(&mut self, acked: &Acked) {
        if let Algorithm::Dctcp(dctcp) = &mut self.algorithm {
            dctcp.on_ack(acked);
        }
    }

    fn grow(&mut self, acked: &Acked) {
        let mut beyond = acked.bytes;
        if self.cwnd < self.ssthresh {
            // RFC 5681 s3.1 and RFC 3465 s2.2: grow by the acknowledged bytes, by at most two
            // segments, and not beyond ssthresh.
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

    /// Reduces ssthresh, with `flight` bytes in flight. PRR or [`Self::set_loss_window`] then
    /// reduce the window itself.
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

    /// RFC 5681 s3.1: after a timeout one segment may leave in addition to the `pipe` bytes in
    /// flight.
    #[cold]
    pub(crate) fn set_loss_window(&mut self, pipe: u32) {
        self.cwnd = (pipe + self.emss).min(CWND_MAX);
    }

    /// Sets the window that PRR computed, or the window at the end of recovery.
    pub(crate) fn set_cwnd(&mut self, cwnd: u32) {
        self.cwnd = cwnd.clamp(self.emss, CWND_MAX);
    }

    /// Restores the window of a reduction that was unnecessary.
    #[cold]
    pub(crate) fn undo(&mut self) {
        let (cwnd, ssthresh) = self.undo_state;
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            cubic.undo();
        }
    }

    /// RFC 5681 s4.1: nothing was sent for longer than the timeout, so the window is stale.
    /// ssthresh keeps three quarters of it.
    #[cold]
    pub(crate) fn on_idle(&mut self, now: Nanos, initial: u32) {
        self.ssthresh = self.ssthresh.max(self.cwnd - (self.cwnd >> 2));
        self.cwnd = self.cwnd.min(initial.max(self.emss));
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            cubic.on_app_limited(now);
        }
    }

    /// The segment size changed. Windows are in bytes and keep their values.
    #[cold]
    pub(crate) fn on_segment_size(&mut self, emss: u32) {
        self.emss = emss;
        self.cwnd = self.cwnd.max(emss);
    }
}

/// Congestion avoidance of RFC 5681 s3.1: one segment per window.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Reno {
    /// Bytes acknowledged since the window last grew.
    acked: u32,
}

impl Reno {
    fn is_valid(&self) -> bool {
        self.acked <= CWND_MAX
    }

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
