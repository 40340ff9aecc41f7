//! Path MTU discovery: packets are no larger than a probe that was answered.
//!
//! ```text
//!   1500 octets, or the MTU of the link if that is less
//!     -> a probe of the link's MTU -> answered: packets may be as large
//!                                 \-> three unanswered: one of the next smaller usual MTU, ...
//! ```
//! A probe is a HEARTBEAT with a PAD chunk (RFC 4820) behind it. Its loss is no sign of congestion
//! and no error of the path. A link of Ethernet's MTU is not probed. Packets shrink when a router
//! reports a smaller MTU, and to 1500 octets when large ones time out again and again; the search
//! begins anew after ten minutes. Chunks that were sent before are larger then: IPv4 routers may
//! fragment them (RFC 9260 s6.9).
//!
//! Source: RFC 8899 s4 to s6.2.1. Its base is 1200 octets; a data centre has Ethernet. Cost: one
//! timer and two packets for each path of a larger MTU.

use ironwarp_net::Path;
use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::heartbeat::Heartbeat;
use super::{PathId, PathState, pmdcs};
use crate::association::{Association, State};
use crate::output::{Io, Route};
use crate::packet::{ChunkType, ParameterType};

/// RFC 8899 s5.1.2, BASE_PLPMTU.
const BASE_BYTES: u16 = 1_500;

/// MAX_PROBES.
const PROBES_MAX: u8 = 3;

/// PMTU_RAISE_TIMER.
const RAISE_AFTER: Nanos = Nanos::from_secs(600);

/// Timeouts in a row after which large packets are suspected: a black hole (s4.3).
const BLACK_HOLE_TIMEOUTS: u8 = 3;

/// Sizes to try below the MTU of the link: of other links and of tunnels.
const SIZES: [u16; 6] = [16_384, 9_000, 8_166, 4_352, 2_048, 1_536];

/// What is known of the MTU of a path. Sizes are of IP packets, in bytes.
pub(super) struct PathMtu {
    /// The largest packet that passes: PLPMTU.
    confirmed: u16,
    /// The largest one that the search may find.
    limit: u16,
    /// The probe that is not answered, its size, and how many of this size were sent.
    probe: Option<(Heartbeat, u16, u8)>,
    /// When the probe is lost, or the search begins again.
    pub(super) at: Nanos,
}

impl PathMtu {
    pub(super) fn new(route: &Path) -> Self {
        let limit = route.mtu_bytes();
        PathMtu { confirmed: limit.min(BASE_BYTES), limit, probe: None, at: Nanos::MAX }
    }

    pub(super) fn confirmed(&self) -> u16 {
        self.confirmed
    }

    pub(super) fn stop(&mut self) {
        (self.probe, self.at) = (None, Nanos::MAX);
    }

    /// Ends the search. It begins again later if a larger packet may pass.
    fn complete(&mut self, now: Nanos) {
        self.probe = None;
        self.at = if self.confirmed < self.limit { now + RAISE_AFTER } else { Nanos::MAX };
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
    /// Looks for a larger MTU of a path that answers.
    pub(super) fn start_mtu_search<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>, id: PathId) {
        let mtu = &mut self.paths.at_mut(id).mtu;
        if mtu.confirmed < mtu.limit {
            self.probe_mtu(io, id, self.paths.at(id).mtu.limit, 1);
        }
    }

    /// Runs the timers of the search that have expired.
    pub(crate) fn on_mtu_timers<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>) {
        for id in self.paths.ids() {
            let PathMtu { probe, at, limit, .. } = self.paths.at(id).mtu;
            if at > io.now {
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
        let packet_bytes = usize::from(bytes).saturating_sub(route.path.ip_bytes());
        io.send(route, |packet| {
            packet.chunk(ChunkType::HEARTBEAT, 0, |chunk| {
                chunk.tlv(ParameterType::HEARTBEAT_INFO.0, |value| value.put(&heartbeat.info));
            });
            packet.pad_to(packet_bytes);
        });
        io.shared.count(Counter::SctpTxMtuProbes);
        let path = self.paths.at_mut(id);
        path.mtu.probe = Some((heartbeat, bytes, tries));
        path.mtu.at = io.now + path.rtt.rto();
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
        if reported < path.mtu.confirmed {
            let least = least(&path.route);
            self.shrink(io, id, reported.max(least));
        } else if let Some((_, bytes, _)) = path.mtu.probe
            && reported < bytes
            && self.state == State::Established
        {
            path.mtu.limit = reported;
            if reported > path.mtu.confirmed {
                self.probe_mtu(io, id, reported, 1);
            } else {
                path.mtu.complete(io.now);
            }
        }
        self.arm(io);
        self.paths.at(id).mtu.confirmed <= reported
    }

    /// RFC 8899 s4.3: T3-rtx of a path expired. When that happens again and again, packets shrink
    /// to the base.
    pub(crate) fn look_for_black_hole<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>, id: PathId) {
        let path = self.paths.at(id);
        if path.mtu.confirmed > BASE_BYTES && path.rtt.backoff() >= BLACK_HOLE_TIMEOUTS {
            self.shrink(io, id, BASE_BYTES);
        }
    }

    #[cold]
    fn shrink<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>, id: PathId, mtu_bytes: u16) {
        io.shared.count(Counter::SctpPathMtuLowered);
        let path = self.paths.at_mut(id);
        path.mtu.confirmed = mtu_bytes;
        path.mtu.complete(io.now);
        path.congestion.set_pmdcs(pmdcs(&path.route, mtu_bytes));
        if self.state != State::Established || path.state == PathState::Unconfirmed {
            path.mtu.stop();
        }
    }
}
