//! The path's MTU, as routers and timeouts teach it.
//!
//! Takes claims; gives a segment size. Units larger than that stay as they are and are sent again in pieces.
//!
//! Source: RFC 1191 s3 and s6, RFC 8201 s4, RFC 5927 s7.2, RFC 5044 s4.5 (MULPDU never below 128), RFC 4821 s7.

use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::{Flow, Nanos};

use super::Conn;
use crate::output::TcpIo;

/// The smallest MTU believed of a path. RFC 791 s3.1 has every IPv4 host take 576 bytes, and a claim of less serves nobody
/// but who wants us to send headers; RFC 8200 s5 has every IPv6 link carry 1280.
fn mtu_floor(flow: &Flow) -> u16 {
    if flow.remote.is_ipv4() { 576 } else { 1_280 }
}

/// Timeouts in a row of a full segment that mean a black hole.
const BLACK_HOLE_TIMEOUTS: u8 = 2;

/// How long a size that vanished is not tried again: at first, and at most (RFC 8899 s5.1.1).
const RAISE_AFTER: Nanos = Nanos::from_secs(1);
const RAISE_AFTER_MAX: Nanos = Nanos::from_secs(600);

/// What is suspected of a path that swallows large segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlackHole {
    /// When the old size is tried again; [`Nanos::MAX`] while nothing is suspected.
    pub(crate) raise_at: Nanos,
    /// When it last was.
    raised_at: Nanos,
    /// The old size.
    mtu_bytes: u16,
    tries: u8,
}

impl BlackHole {
    pub(crate) const NONE: BlackHole =
        BlackHole { raise_at: Nanos::MAX, raised_at: Nanos::ZERO, mtu_bytes: 0, tries: 0 };
}

impl Conn {
    /// The largest packet that the path takes, by what is known.
    pub(crate) fn mtu_bytes(&self) -> u16 {
        self.path.mtu_bytes().min(self.cold.path_mtu)
    }

    /// The path takes packets of `mtu_bytes` at most. Later units are smaller; earlier ones are cut when sent again.
    #[cold]
    pub(crate) fn on_path_mtu<P: Port>(&mut self, io: &mut TcpIo<'_, P>, mtu_bytes: u16) {
        let mtu_bytes = mtu_bytes.max(mtu_floor(&self.flow));
        if mtu_bytes >= self.mtu_bytes() {
            return;
        }
        io.count(Counter::TcpPathMtuLowered);
        self.cold.path_mtu = mtu_bytes;
        self.set_emss();
    }

    /// RFC 5927 s7.2: a claim that a timeout confirms, since what it named is still not acknowledged.
    #[cold]
    pub(crate) fn confirm_path_mtu<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        if let Some((seq, mtu_bytes)) = self.cold.claimed_mtu.take()
            && self.snd.snd_una.leq(seq)
        {
            self.on_path_mtu(io, mtu_bytes);
        }
    }

    /// RFC 4821 s7.7: units as large as the segment size vanish again and again, and nothing says why: the path takes less
    /// than it seems and whoever drops them does not tell, or it has failed altogether. Half as much is tried, for a
    /// while: what was an outage shows when the old size is tried again. `first` is the payload of the first unit.
    #[cold]
    pub(crate) fn suspect_black_hole<P: Port>(&mut self, io: &mut TcpIo<'_, P>, first: u16) {
        let (emss, mtu_bytes) = (self.snd.emss, self.cold.path_mtu);
        let black_hole = &mut self.cold.black_hole;
        if io.now.since(black_hole.raised_at) > RAISE_AFTER_MAX {
            black_hole.tries = 0;
        }
        // What has just been tried again is on trial: one timeout is enough.
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
            black_hole.tries = (black_hole.tries + 1).min(4);
        }
    }

    /// RFC 4821 s7.3, RFC 8899 s5.1.1 (PMTU_RAISE_TIMER): the size that vanished is tried again.
    #[cold]
    pub(crate) fn raise_path_mtu<P: Port>(&mut self, io: &TcpIo<'_, P>) {
        let black_hole = &mut self.cold.black_hole;
        (black_hole.raise_at, black_hole.raised_at) = (Nanos::MAX, io.now);
        self.cold.path_mtu = black_hole.mtu_bytes;
        self.set_emss();
    }
}
