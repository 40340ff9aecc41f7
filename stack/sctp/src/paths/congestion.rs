//! Congestion control of one path, in bytes.
//!
//! Source: RFC 9260 s7.2. Sizes are those of DATA chunks with header and padding. An increase
//! counts acknowledged chunks only, not the duplicates that s7.2.2 permits to count too. A peer
//! that handles a burst of packets at once sends one SACK for it. That SACK counts as many as one
//! for every second packet would be.

use ironwarp_types::Nanos;

/// RFC 9260 s7.2.1, RFC 3465 s2.2: the most packets by which a SACK opens the window in slow start.
/// Two, as for our TCP, so that SACKs for every second packet double it in a round trip.
const L: u32 = 2;

/// Halvings after which any window is at its minimum.
const HALVINGS_MAX: u64 = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Congestion {
    cwnd: u32,
    ssthresh: u32,
    partial_bytes_acked: u32,
    /// The largest DATA chunk that fits a packet of the path.
    pmdcs: u32,
}

impl Congestion {
    /// RFC 9260 s7.2.1: the initial window.
    pub(crate) fn new(pmdcs: u32, is_ipv6: bool) -> Self {
        let least = if is_ipv6 { 4_344 } else { 4_404 };
        let cwnd = pmdcs.saturating_mul(4).min(pmdcs.saturating_mul(2).max(least));
        Congestion { cwnd, ssthresh: u32::MAX, partial_bytes_acked: 0, pmdcs }
    }

    pub(crate) fn cwnd(&self) -> u32 {
        self.cwnd
    }

    pub(crate) fn pmdcs(&self) -> u32 {
        self.pmdcs
    }

    /// The size of packets changes. The window stays, and takes at least one packet.
    pub(crate) fn set_pmdcs(&mut self, pmdcs: u32) {
        self.pmdcs = pmdcs;
        self.cwnd = self.cwnd.max(pmdcs);
    }

    /// A SACK acknowledges chunks of `acked` bytes for the first time. `flight` was outstanding
    /// before it.
    pub(crate) fn on_acked(&mut self, acked: u32, flight: u32, in_fast_recovery: bool) {
        let is_full = flight >= self.cwnd;
        if self.cwnd <= self.ssthresh {
            // RFC 9260 s7.2.1.
            if is_full && !in_fast_recovery {
                let most = self.pmdcs.saturating_mul(L * self.sacks_of(acked));
                self.cwnd = self.cwnd.saturating_add(acked.min(most));
            }
            return;
        }
        // RFC 9260 s7.2.2: a packet more for each window.
        self.partial_bytes_acked = self.partial_bytes_acked.saturating_add(acked);
        if self.partial_bytes_acked >= self.cwnd {
            if is_full {
                self.partial_bytes_acked -= self.cwnd;
                self.cwnd = self.cwnd.saturating_add(self.pmdcs);
            } else {
                self.partial_bytes_acked = self.cwnd;
            }
        }
    }

    /// Returns how many SACKs, one for every second packet, acknowledge so many bytes.
    pub(crate) fn sacks_of(&self, acked: u32) -> u32 {
        acked.checked_div(self.pmdcs.saturating_mul(2)).unwrap_or(0).max(1)
    }

    /// RFC 9260 s7.2.2: nothing is outstanding any more.
    pub(crate) fn on_all_acked(&mut self) {
        self.partial_bytes_acked = 0;
    }

    /// RFC 9260 s7.2.3: a SACK shows a loss.
    pub(crate) fn on_loss(&mut self) {
        self.ssthresh = self.least().max(self.cwnd / 2);
        (self.cwnd, self.partial_bytes_acked) = (self.ssthresh, 0);
    }

    /// RFC 9260 s7.2.3: T3-rtx expired.
    pub(crate) fn on_timeout(&mut self) {
        self.on_loss();
        self.cwnd = self.pmdcs;
    }

    /// RFC 9260 s7.2.1: nothing was sent for this long.
    pub(crate) fn on_idle(&mut self, idle: Nanos, rto: Nanos) {
        let halvings = idle.0.checked_div(rto.0).unwrap_or(0).min(HALVINGS_MAX);
        if halvings > 0 && self.cwnd > self.least() {
            self.ssthresh = self.cwnd;
            self.cwnd = self.least().max(self.cwnd.checked_shr(halvings as u32).unwrap_or(0));
        }
    }

    fn least(&self) -> u32 {
        self.pmdcs.saturating_mul(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9260 s7.2.1: min(4 * PMDCS, max(2 * PMDCS, 4404)), and 4344 for IPv6.
    #[test]
    fn the_initial_window_is_two_to_four_packets() {
        for (pmdcs, is_ipv6, cwnd) in [
            (1_468, false, 4_404),
            (1_448, true, 4_344),
            (548, false, 2_192),
            (8_968, false, 17_936),
            (8_948, true, 17_896),
        ] {
            assert_eq!(Congestion::new(pmdcs, is_ipv6).cwnd(), cwnd, "{pmdcs}");
        }
    }

    /// RFC 9260 s7.2.1: by what is acknowledged, by at most two packets for each SACK of two, and
    /// only if the window was full.
    #[test]
    fn slow_start_needs_a_full_window() {
        let mut congestion = Congestion::new(1_000, false);
        congestion.on_acked(2_000, 3_999, false);
        congestion.on_acked(2_000, 4_000, true);
        assert_eq!(congestion.cwnd(), 4_000);
        congestion.on_acked(2_000, 4_000, false);
        assert_eq!(congestion.cwnd(), 6_000);
        congestion.on_acked(300, 6_000, false);
        assert_eq!(congestion.cwnd(), 6_300);
        congestion.on_acked(3_999, 6_300, false);
        assert_eq!(congestion.cwnd(), 8_300);
        congestion.on_acked(6_000, 8_300, false);
        assert_eq!(congestion.cwnd(), 14_300);
    }

    /// RFC 9260 s7.2.2: a packet more when a full window is acknowledged.
    #[test]
    fn congestion_avoidance_adds_a_packet_for_each_window() {
        let mut congestion = Congestion { cwnd: 10_000, ssthresh: 9_000, ..Congestion::new(1_000, false) };
        for _ in 0..9 {
            congestion.on_acked(1_000, 10_000, false);
        }
        assert_eq!(congestion.cwnd(), 10_000);
        congestion.on_acked(1_000, 10_000, false);
        assert_eq!((congestion.cwnd(), congestion.partial_bytes_acked), (11_000, 0));
        congestion.on_acked(50_000, 10_999, false);
        assert_eq!((congestion.cwnd(), congestion.partial_bytes_acked), (11_000, 11_000));
        congestion.on_all_acked();
        assert_eq!(congestion.partial_bytes_acked, 0);
    }

    /// RFC 9260 s7.2.3.
    #[test]
    fn a_loss_halves_the_window_and_a_timeout_leaves_one_packet() {
        let mut congestion = Congestion { cwnd: 20_000, ..Congestion::new(1_000, false) };
        congestion.on_loss();
        assert_eq!((congestion.cwnd(), congestion.ssthresh), (10_000, 10_000));
        congestion.on_timeout();
        assert_eq!((congestion.cwnd(), congestion.ssthresh), (1_000, 5_000));
        congestion.on_timeout();
        assert_eq!(congestion.ssthresh, 4_000);
    }

    /// RFC 9260 s7.2.1: half for each timeout without transmission, and no less than four packets.
    #[test]
    fn an_idle_window_shrinks() {
        let idle = |rtos: u64| {
            let mut congestion = Congestion { cwnd: 40_000, ..Congestion::new(1_000, false) };
            congestion.on_idle(Nanos(10 * rtos + 9), Nanos(10));
            (congestion.cwnd(), congestion.ssthresh)
        };
        assert_eq!(idle(0), (40_000, u32::MAX));
        assert_eq!(
            [idle(1), idle(3), idle(u64::MAX / 20)],
            [(20_000, 40_000), (5_000, 40_000), (4_000, 40_000)]
        );
        let mut congestion = Congestion::new(1_000, false);
        congestion.on_idle(Nanos(1), Nanos::ZERO);
        assert_eq!(congestion.cwnd(), 4_000);
    }
}
