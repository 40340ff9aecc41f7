//! Path MTU discovery: packets are no larger than a probe that was answered.
//!
//! ```text
//!   1500 octets, or the MTU of the link if that is less
//!     -> a probe of the link's MTU -> answered: packets may be as large
//!                                 \-> three unanswered: one of the next smaller usual MTU, ...
//! ```
//! A probe is a HEARTBEAT with a PAD chunk (RFC 4820) behind it. Its loss is no sign of congestion
//! and no error of the path. A link of Ethernet's MTU is not probed. Packets shrink when a router
//! reports a smaller MTU, and when they time out again and again: to 1500 octets, then to 1200. The
//! search begins anew a second after that, and ten minutes after it has found less than the link
//! takes. Chunks that were sent before are larger then: IPv4 routers may fragment them (RFC 9260
//! s6.9). IPv6 packets are not fragmented here, and such a chunk ends an association without
//! another path.
//!
//! Source: RFC 8899 s4 to s6.2.1. Its base is 1200 octets; a data centre has Ethernet. Cost: one
//! timer and two packets for each path of a larger MTU.

use ironwarp_net::Path;
use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::heartbeat::Heartbeat;
use super::{PathId, pmdcs};
use crate::association::{Association, State};
use crate::output::{Io, Route};

/// Packets of this size are sent before any probe is answered.
const BASE_BYTES: u16 = 1_500;

/// Packets that always pass. RFC 8899 s5.1.2: BASE_PLPMTU.
const LEAST_BYTES: u16 = 1_200;

/// Probes of one size. RFC 8899 s5.1.2: MAX_PROBES.
const PROBES_MAX: u8 = 3;

/// The shortest wait for an answer. RFC 8899 s5.1.1: PROBE_TIMER.
const PROBE_TIME_MIN: Nanos = Nanos::from_secs(1);

/// How long a result stands that is less than the link takes. RFC 8899 s5.1.1: PMTU_RAISE_TIMER.
const RAISE_AFTER: Nanos = Nanos::from_secs(600);

/// Timeouts of DATA in a row after which the size of packets is suspected: a black hole (s4.3). Of
/// packets that pass almost everywhere, later.
const BLACK_HOLE_TIMEOUTS: u8 = 3;
const BASE_TIMEOUTS: u8 = 6;

/// Sizes to try below the MTU of the link: of other links and of tunnels.
const SIZES: [u16; 8] = [16_384, 9_000, 8_166, 4_352, 2_048, 1_536, 1_500, 1_400];

/// What is known of the MTU of a path. Sizes are of IP packets, in bytes.
pub(crate) struct PathMtu {
    /// The largest packet that passes: PLPMTU.
    confirmed: u16,
    /// The MTU of the link.
    limit: u16,
    /// What a router has reported.
    reported: u16,
    /// Consecutive expiries of T3-rtx.
    timeouts: u8,
    /// The probe that is not answered, its size, and how many of this size were sent.
    probe: Option<(Heartbeat, u16, u8)>,
    /// When the probe is lost, or the search begins again.
    pub(super) due_at: Nanos,
}

impl PathMtu {
    pub(super) fn new(route: &Path) -> Self {
        let limit = route.mtu_bytes();
        PathMtu {
            confirmed: limit.min(BASE_BYTES),
            limit,
            reported: u16::MAX,
            timeouts: 0,
            probe: None,
            due_at: Nanos::MAX,
        }
    }

    pub(super) fn reported(&self) -> u16 {
        self.reported
    }

    /// DATA of the path was acknowledged.
    pub(crate) fn on_acked(&mut self) {
        self.timeouts = 0;
    }

    pub(super) fn confirmed(&self) -> u16 {
        self.confirmed
    }

    pub(super) fn stop(&mut self) {
        (self.probe, self.due_at) = (None, Nanos::MAX);
    }

    /// Ends the search. It begins again later if a larger packet may pass.
    fn complete(&mut self, now: Nanos) {
        self.probe = None;
        self.due_at = if self.confirmed < self.limit { now + RAISE_AFTER } else { Nanos::MAX };
    }

    /// Returns the next smaller size than one that did not pass, if it is larger than what does.
    fn smaller_than(&self, lost: u16) -> Option<u16> {
        SIZES.into_iter().find(|&size| size < lost).filter(|&size| size > self.confirmed)
    }
}

/// The lowest accepted MTU: of RFC 791 s3.1 and RFC 8200 s5.
fn least(route: &Path) -> u16 {
    if route.local_addr().is_ipv4() { 576 } else { 1_280 }
}

impl<F: Frame> Association<F> {
    /// Looks for a larger MTU of a path that answers, behind what is sent now.
    pub(super) fn start_mtu_search(&mut self, now: Nanos, id: PathId) {
        let mtu = &mut self.paths.at_mut(id).mtu;
        if mtu.confirmed < mtu.limit {
            mtu.due_at = now;
        }
    }

    /// Runs the timers of the search that have expired.
    pub(crate) fn on_mtu_timers<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>) {
        for id in self.paths.ids() {
            if self.state != State::Established {
                self.paths.at_mut(id).mtu.stop();
            }
            let PathMtu { probe, due_at, limit, .. } = self.paths.at(id).mtu;
            if due_at > io.now {
                continue;
            }
            let next = match probe {
                Some((_, bytes, tries)) if tries < PROBES_MAX => Some((bytes, tries + 1)),
                Some((_, bytes, _)) => self.paths.at(id).mtu.smaller_than(bytes).map(|bytes| (bytes, 1)),
                None => Some((limit, 1)),
            };
            match next {
                Some((bytes, tries)) => self.probe_mtu(io, id, bytes, tries),
                None => self.paths.at_mut(id).mtu.complete(io.now),
            }
        }
    }

    fn probe_mtu<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>, id: PathId, bytes: u16, tries: u8) {
        let heartbeat = Heartbeat::new(io, id);
        let route = Route { mtu_bytes: bytes, ..self.route_of(id) };
        let packet_bytes = usize::from(bytes).saturating_sub(route.path.overhead_bytes());
        let is_sent = io.send(route, |packet| {
            heartbeat.write(packet);
            packet.pad_to(packet_bytes);
        });
        let path = self.paths.at_mut(id);
        path.mtu.due_at = io.now + path.rtt.rto().max(PROBE_TIME_MIN);
        // Without a buffer the timer tries again.
        let tries = if is_sent { tries } else { tries.saturating_sub(1) };
        path.mtu.probe = Some((heartbeat, bytes, tries));
        io.shared.stats.add(Counter::SctpTxMtuProbes, is_sent.into());
    }

    /// Returns whether a HEARTBEAT ACK answers the probe of a path. Packets may be as large then.
    pub(super) fn on_probe_answered(&mut self, now: Nanos, id: PathId, info: &[u8]) -> bool {
        let path = self.paths.at_mut(id);
        let Some((_, bytes, _)) = path.mtu.probe.take_if(|(sent, ..)| info == &sent.info[..]) else {
            return false;
        };
        path.mtu.confirmed = path.mtu.confirmed.max(bytes);
        path.mtu.complete(now);
        path.congestion.set_pmdcs(pmdcs(&path.route, path.mtu.confirmed));
        true
    }

    /// RFC 8899 s4.6: a router reports the MTU of its next link. Returns whether packets respect it
    /// now.
    #[cold]
    pub(crate) fn on_too_big<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        id: PathId,
        reported: u16,
    ) -> bool {
        let path = self.paths.at_mut(id);
        path.mtu.reported = path.mtu.reported.min(reported.max(least(&path.route)));
        if reported < path.mtu.confirmed {
            let mtu_bytes = path.mtu.reported;
            self.shrink(io, id, mtu_bytes);
        } else if let Some((_, bytes, _)) = path.mtu.probe
            && reported < bytes
            && self.state == State::Established
        {
            match reported > path.mtu.confirmed {
                true => self.probe_mtu(io, id, reported, 1),
                false => path.mtu.complete(io.now),
            }
        }
        self.arm(io);
        self.paths.at(id).mtu.confirmed <= reported
    }

    /// RFC 8899 s4.3: T3-rtx of a path expired. When that happens again and again, packets shrink.
    pub(crate) fn look_for_black_hole<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>, id: PathId) {
        let mtu = &mut self.paths.at_mut(id).mtu;
        mtu.timeouts = mtu.timeouts.saturating_add(1);
        let (smaller, timeouts) = match mtu.confirmed > BASE_BYTES {
            true => (BASE_BYTES, BLACK_HOLE_TIMEOUTS),
            false => (LEAST_BYTES, BASE_TIMEOUTS),
        };
        if mtu.confirmed > smaller && mtu.timeouts >= timeouts {
            mtu.timeouts = 0;
            self.shrink(io, id, smaller);
            // The timeouts may have had another cause.
            self.paths.at_mut(id).mtu.due_at = io.now + PROBE_TIME_MIN;
        }
    }

    #[cold]
    fn shrink<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>, id: PathId, mtu_bytes: u16) {
        io.shared.count(Counter::SctpPathMtuLowered);
        let path = self.paths.at_mut(id);
        path.mtu.confirmed = mtu_bytes;
        path.congestion.set_pmdcs(pmdcs(&path.route, mtu_bytes));
        path.mtu.complete(io.now);
    }
}
