//! The path MTU, from ICMP messages and from timeouts.
//!
//! Takes MTU claims; gives a segment size. Units that are already larger keep their size and are
//! retransmitted in pieces.
//!
//! Source: RFC 1191 s3 and s6, RFC 8201 s4, RFC 5927 s7.2, RFC 5044 s4.5 (MULPDU of at least 128),
//! RFC 4821 s7.

use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::{Flow, Nanos};
use serde::{Deserialize, Serialize};

use super::Conn;
use crate::output::TcpIo;
use crate::saved::Rebase;

/// The smallest accepted path MTU. Every IPv4 host accepts 576 bytes (RFC 791 s3.1) and every IPv6
/// link carries 1280 (RFC 8200 s5). A forged smaller claim would make us send mostly headers.
pub(super) fn mtu_floor(flow: &Flow) -> u16 {
    if flow.remote.is_ipv4() { 576 } else { 1_280 }
}

/// Consecutive timeouts of a full segment that indicate a black hole.
const BLACK_HOLE_TIMEOUTS: u8 = 2;

/// How long a size that was lost is not tried again: initial and maximum value (RFC 8899 s5.1.1).
const RAISE_AFTER: Nanos = Nanos::from_secs(1);
const RAISE_AFTER_MAX: Nanos = Nanos::from_secs(600);

/// The count of tries from which on the wait is [`RAISE_AFTER_MAX`].
const TRIES_MAX: u8 = 4;

/// The state of black-hole detection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct BlackHole {
    /// When to try the old size again; [`Nanos::MAX`] while no black hole is suspected.
    pub(crate) raise_at: Nanos,
    /// When the old size was last tried.
    raised_at: Nanos,
    /// The old size.
    mtu_bytes: u16,
    tries: u8,
}

impl BlackHole {
    pub(crate) const NONE: BlackHole =
        BlackHole { raise_at: Nanos::MAX, raised_at: Nanos::ZERO, mtu_bytes: 0, tries: 0 };

    pub(super) fn rebase(&mut self, clock: Rebase) {
        clock.time(&mut self.raise_at);
        clock.time(&mut self.raised_at);
    }

    pub(super) fn is_valid(&self, flow: &Flow) -> bool {
        self.tries <= TRIES_MAX && (self.raise_at == Nanos::MAX || self.mtu_bytes >= mtu_floor(flow))
    }
}

impl Conn {
    /// Returns the largest packet that the path is known to take.
    pub(crate) fn mtu_bytes(&self) -> u16 {
        self.path.mtu_bytes().min(self.cold.path_mtu)
    }

    /// Limits packets to `mtu_bytes`. Later units are smaller; existing units are split when
    /// retransmitted.
    #[cold]
    pub(crate) fn on_path_mtu<P: Port>(&mut self, io: &mut TcpIo<'_, P>, mtu_bytes: u16) {
        let mtu_bytes = mtu_bytes.max(mtu_floor(&self.flow()));
        if mtu_bytes >= self.mtu_bytes() {
            return;
        }
        io.count(Counter::TcpPathMtuLowered);
        self.cold.path_mtu = mtu_bytes;
        self.set_emss();
    }

    /// RFC 5927 s7.2: a timeout confirms a claim, since the segment that it quoted is still not
    /// acknowledged.
    #[cold]
    pub(crate) fn confirm_path_mtu<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        if let Some((seq, mtu_bytes)) = self.cold.claimed_mtu.take()
            && self.snd.snd_una.leq(seq)
        {
            self.on_path_mtu(io, mtu_bytes.get());
        }
    }

    /// RFC 4821 s7.7: units of the full segment size are lost repeatedly, and no ICMP message
    /// explains it. Either the path drops large packets silently, or it has failed. Halves the
    /// segment size for a while; trying the old size later distinguishes the two. `first` is the
    /// payload of the first unit, in bytes.
    #[cold]
    pub(crate) fn suspect_black_hole<P: Port>(&mut self, io: &mut TcpIo<'_, P>, first: u16) {
        let (emss, mtu_bytes) = (self.snd.emss, self.cold.path_mtu);
        let black_hole = &mut self.cold.black_hole;
        if io.now.since(black_hole.raised_at) > RAISE_AFTER_MAX {
            black_hole.tries = 0;
        }
        // After the old size was tried again, one timeout is enough.
        let timeouts = if black_hole.tries == 0 { BLACK_HOLE_TIMEOUTS } else { 1 };
        if !io.shared.config.plpmtud || self.snd.rtt.backoff() < timeouts || first <= emss >> 1 {
            return;
        }
        self.on_path_mtu(io, self.mtu_bytes() >> 1);
        if self.snd.emss < emss {
            io.count(Counter::TcpPmtuBlackHoles);
            let black_hole = &mut self.cold.black_hole;
            if black_hole.raise_at == Nanos::MAX {
                black_hole.mtu_bytes = mtu_bytes;
            }
            black_hole.raise_at =
                io.now + RAISE_AFTER.times(1 << (3 * u32::from(black_hole.tries))).min(RAISE_AFTER_MAX);
            black_hole.tries = (black_hole.tries + 1).min(TRIES_MAX);
        }
    }

    /// RFC 4821 s7.3, RFC 8899 s5.1.1 (PMTU_RAISE_TIMER): tries the lost size again.
    #[cold]
    pub(crate) fn raise_path_mtu<P: Port>(&mut self, io: &TcpIo<'_, P>) {
        let black_hole = &mut self.cold.black_hole;
        (black_hole.raise_at, black_hole.raised_at) = (Nanos::MAX, io.now);
        self.cold.path_mtu = black_hole.mtu_bytes;
        self.set_emss();
    }
}
