//! The paths of an association: one to each address of the peer.
//!
//! ```text
//!   Unconfirmed -- answers a HEARTBEAT --> Active <--- answers a HEARTBEAT, or acknowledges DATA ---+
//!                                            |  timeouts above potentially_failed                   |
//!                                            +--> PotentiallyFailed -- above path_retries --> Inactive
//! ```
//! Messages go over the *current* path: the one of the set-up while it is active, else another that
//! is. The one of the set-up is current again as soon as it answers. With one address the states do
//! not matter, since there is no other path.
//!
//! The path of the set-up may have two routes, from two addresses of ours. A timeout on it changes
//! between them (RFC 9260 s6.4.1).
//!
//! Source: RFC 9260 s5.4, s6.4, s8.1 and s8.2; RFC 7829 s3 for PotentiallyFailed. Cost: with one
//! path, a comparison for each access.

mod congestion;
mod heartbeat;
mod mtu;

use arrayvec::ArrayVec;
use core::net::IpAddr;

use ironwarp_net::{Path, TransportProtocol};
use ironwarp_timers::Rtt;
use ironwarp_types::Nanos;

use crate::SctpConfig;
use crate::packet::COMMON_HEADER_BYTES;
use congestion::Congestion;
use heartbeat::Heartbeat;
pub(crate) use mtu::PathMtu;

/// The addresses of a peer that an association uses. Others are ignored.
pub(crate) const PATHS_MAX: usize = 4;

/// The number of a path. 0 is the one of the set-up.
pub(crate) type PathId = u8;

/// A value for each path.
pub(crate) type PerPath<T> = [T; PATHS_MAX];

/// Whether an address of the peer is reachable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathState {
    /// The peer has listed the address and has not answered from it: it gets HEARTBEATs only.
    Unconfirmed,
    /// It answers.
    Active,
    /// It did not answer lately. Others are preferred, and it is probed each timeout.
    PotentiallyFailed,
    /// It does not answer. It is probed as an idle one.
    Inactive,
}

/// One path: its route, and what is known of it.
pub(crate) struct PathTo {
    pub(crate) route: Path,
    pub(crate) state: PathState,
    pub(crate) congestion: Congestion,
    pub(crate) rtt: Rtt,
    /// Chunks sent over it, and neither acknowledged nor lost, in bytes.
    pub(crate) flight_bytes: u32,
    /// When a message was last sent.
    pub(crate) sent_at: Nanos,
    /// SACKs since the last transmission, one for every second packet.
    pub(crate) sacks: u32,
    /// The flight up to which a burst may go until the next SACK.
    pub(crate) burst_end: u32,
    /// T3-rtx expired: one packet may be in flight.
    pub(crate) after_timeout: bool,
    /// Consecutive timeouts, of DATA or HEARTBEAT.
    errors: u8,
    /// When T3-rtx expires.
    pub(crate) rtx_at: Nanos,
    /// The HEARTBEAT that is not answered.
    heartbeat: Option<Heartbeat>,
    /// The next HEARTBEAT, or the end of the wait for its answer.
    heartbeat_at: Nanos,
    pub(crate) mtu: PathMtu,
}

impl PathTo {
    fn new(route: Path, state: PathState, config: &SctpConfig) -> Self {
        let mtu = PathMtu::new(&route);
        let pmdcs = pmdcs(&route, mtu.confirmed());
        PathTo {
            congestion: Congestion::new(pmdcs, route.local_addr().is_ipv6()),
            route,
            state,
            rtt: Rtt::new(config.rto_initial, config.rto_max),
            flight_bytes: 0,
            sent_at: Nanos::ZERO,
            sacks: 0,
            burst_end: pmdcs.saturating_mul(config.burst_packets_max.into()),
            after_timeout: false,
            errors: 0,
            rtx_at: Nanos::MAX,
            heartbeat: None,
            heartbeat_at: Nanos::MAX,
            mtu,
        }
    }

    /// A message is sent while nothing is outstanding.
    pub(crate) fn on_first_in_flight(&mut self, now: Nanos, config: &SctpConfig) {
        self.congestion.on_idle(now.since(self.sent_at), self.rtt.rto());
        self.burst_end = self.burst_end.max(self.burst_bytes(config));
    }

    /// RFC 9260 s6.1, rule D: Max.Burst packets for each SACK that arrived since the last
    /// transmission.
    pub(crate) fn begin_burst(&mut self, config: &SctpConfig) {
        if self.sacks > 0 {
            let burst = self.burst_bytes(config).saturating_mul(self.sacks);
            (self.sacks, self.burst_end) = (0, self.flight_bytes.saturating_add(burst));
        }
    }

    fn burst_bytes(&self, config: &SctpConfig) -> u32 {
        self.congestion.pmdcs().saturating_mul(config.burst_packets_max.into())
    }

    /// A chunk of this size is sent over it.
    pub(crate) fn on_sent(&mut self, now: Nanos, size: u32) {
        self.flight_bytes += size;
        self.sent_at = now;
    }

    /// RFC 9260 s6.3.2, rule R1.
    pub(crate) fn start_rtx_timer_if_stopped(&mut self, now: Nanos) {
        if self.rtx_at == Nanos::MAX {
            self.restart_rtx_timer(now);
        }
    }

    pub(crate) fn restart_rtx_timer(&mut self, now: Nanos) {
        self.rtx_at = now + self.rtt.rto();
    }

    /// The path answers. Returns whether its state changes.
    fn on_answer(&mut self) -> bool {
        self.errors = 0;
        core::mem::replace(&mut self.state, PathState::Active) != PathState::Active
    }

    /// RFC 9260 s8.2: counts a timeout. Returns whether the state changes.
    fn on_error(&mut self, config: &SctpConfig) -> bool {
        let before = self.state;
        // RFC 9260 s8.3: an inactive one is probed further, without errors.
        if self.errors <= config.path_retries {
            self.errors = self.errors.saturating_add(1);
        }
        self.state = match before {
            PathState::Unconfirmed => before,
            _ if self.errors > config.path_retries => PathState::Inactive,
            _ if self.errors > config.potentially_failed => PathState::PotentiallyFailed,
            _ => before,
        };
        self.state != before
    }

    /// Returns the MTU of the route, or what a router has reported if that is less.
    pub(crate) fn reported_mtu_bytes(&self) -> u16 {
        self.mtu.reported().min(self.route.mtu_bytes())
    }

    /// Returns whether a link of this path takes a chunk of `size` bytes.
    fn fits(&self, size: u32) -> bool {
        pmdcs(&self.route, self.route.mtu_bytes()) >= size
    }

    /// Returns the largest IP packet that is known to pass.
    pub(crate) fn mtu_bytes(&self) -> u16 {
        self.mtu.confirmed()
    }

    /// Returns whether it is probed each timeout, and not as an idle path.
    fn is_probed(&self, config: &SctpConfig) -> bool {
        matches!(self.state, PathState::Unconfirmed | PathState::PotentiallyFailed)
            && self.errors <= config.path_retries
    }

    /// Returns how bad a choice it is. The best one is 0.
    fn rank(&self) -> u8 {
        match self.state {
            PathState::Active => 0,
            PathState::PotentiallyFailed => 1,
            PathState::Inactive => 2,
            PathState::Unconfirmed => u8::MAX,
        }
    }
}

/// RFC 9260 s2.3: the largest DATA chunk that fits an IP packet of `mtu_bytes`, in whole words.
fn pmdcs(route: &Path, mtu_bytes: u16) -> u32 {
    let headers = route.overhead_bytes() + COMMON_HEADER_BYTES;
    u32::try_from(usize::from(mtu_bytes).saturating_sub(headers) & !3).unwrap_or(0)
}

/// The paths of one association.
pub(crate) struct Paths {
    first: PathTo,
    others: ArrayVec<PathTo, { PATHS_MAX - 1 }>,
    current: PathId,
    /// The other route of the first path, from another address of ours.
    pub(crate) spare: Option<Path>,
}

impl Paths {
    /// `route` is that of the set-up. Its address is confirmed (RFC 9260 s5.4).
    pub(crate) fn new(route: Path, config: &SctpConfig) -> Self {
        let first = PathTo::new(route, PathState::Active, config);
        Paths { first, others: ArrayVec::new(), current: 0, spare: None }
    }

    /// Forgets all but the first route: an association begins anew.
    pub(crate) fn reset(&mut self, config: &SctpConfig) {
        *self = Paths::new(self.first.route.clone(), config);
    }

    /// Adds the route to an address that the peer has listed. It is probed at once, those after it
    /// one in each timeout (RFC 9260 s5.4, HB.Max.Burst). A fifth one is ignored.
    pub(crate) fn add(&mut self, route: Path, now: Nanos, config: &SctpConfig) {
        let mut path = PathTo::new(route, PathState::Unconfirmed, config);
        path.heartbeat_at = now + path.rtt.rto().times(self.others.len() as u64);
        let _ = self.others.try_push(path);
    }

    /// The first path takes a route from an address of ours that no path leaves from, if another
    /// path leaves from the same one as it. One of a smaller MTU does not take what is in flight.
    pub(crate) fn move_first(&mut self, mut route: Path) {
        let leaves_from = |path: &PathTo, of: &Path| path.route.local_addr() == of.local_addr();
        let is_link_shared = self.others.iter().any(|path| leaves_from(path, &self.first.route));
        let is_unused = !self.iter().any(|path| leaves_from(path, &route));
        if is_link_shared && is_unused && route.mtu_bytes() >= self.first.route.mtu_bytes() {
            route.set_transport(TransportProtocol::SCTP, self.first.route.udp_port());
            self.spare = Some(core::mem::replace(&mut self.first.route, route));
        }
    }

    /// The address turned out to be another host's: nothing is sent to it any more.
    pub(crate) fn forget(&mut self, remote: IpAddr) {
        if let Some(id) = self.find(remote) {
            let path = self.at_mut(id);
            (path.heartbeat, path.heartbeat_at) = (None, Nanos::MAX);
            path.mtu.stop();
        }
    }

    pub(crate) fn at(&self, id: PathId) -> &PathTo {
        match id {
            0 => &self.first,
            other => self.others.get(usize::from(other) - 1).unwrap_or(&self.first),
        }
    }

    pub(crate) fn at_mut(&mut self, id: PathId) -> &mut PathTo {
        match id {
            0 => &mut self.first,
            other => self.others.get_mut(usize::from(other) - 1).unwrap_or(&mut self.first),
        }
    }

    /// Returns the number of the path that messages go over.
    pub(crate) fn current_id(&self) -> PathId {
        self.current
    }

    /// Returns the path that messages go over.
    pub(crate) fn current(&self) -> &PathTo {
        self.at(self.current)
    }

    pub(crate) fn current_mut(&mut self) -> &mut PathTo {
        self.at_mut(self.current)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PathTo> {
        core::iter::once(&self.first).chain(&self.others)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut PathTo> {
        core::iter::once(&mut self.first).chain(&mut self.others)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = PathId> + use<> {
        0..=self.others.len() as PathId
    }

    pub(crate) fn are_several(&self) -> bool {
        !self.others.is_empty()
    }

    /// Returns the number of the path to an address.
    pub(crate) fn find(&self, remote: IpAddr) -> Option<PathId> {
        self.ids().find(|&id| self.at(id).route.remote_addr() == remote)
    }

    /// RFC 6951 s5.4 and s5.6: packets to an address are encapsulated in UDP as those from it are.
    #[cold]
    pub(crate) fn set_udp_port(&mut self, remote: IpAddr, port: u16) {
        let Some(path) = self.find(remote).map(|id| self.at_mut(id)) else { return };
        if path.route.udp_port() != port {
            path.route.set_transport(TransportProtocol::SCTP, port);
            path.congestion.set_pmdcs(pmdcs(&path.route, path.mtu.confirmed()));
            let spare = self.spare.as_mut().filter(|spare| spare.remote_addr() == remote);
            spare.into_iter().for_each(|spare| spare.set_transport(TransportProtocol::SCTP, port));
        }
    }

    /// Returns when the next timer of a path expires.
    pub(crate) fn next_deadline(&self) -> Nanos {
        let deadline = |path: &PathTo| path.rtx_at.min(path.heartbeat_at).min(path.mtu.due_at);
        match self.others.is_empty() {
            true => deadline(&self.first),
            false => self.iter().map(deadline).min().unwrap_or(Nanos::MAX),
        }
    }

    /// Returns the largest DATA chunk that fits a packet of any confirmed path: one may have to
    /// take the chunks of another.
    pub(crate) fn pmdcs(&self) -> u32 {
        let first = self.first.congestion.pmdcs();
        let confirmed = self.others.iter().filter(|path| path.state != PathState::Unconfirmed);
        confirmed.fold(first, |least, path| least.min(path.congestion.pmdcs()))
    }

    /// RFC 9260 s6.4 and s6.4.1: chooses the path of messages: the first one of the best. Those
    /// that do not answer take turns, so that the first one to return is found.
    fn select(&mut self, current_failed: bool) {
        let count = self.iter().count() as PathId;
        let turn = |id: PathId| match (id + count - self.current) % count {
            0 if current_failed => count,
            distance => distance,
        };
        let best = self.ids().min_by_key(|&id| {
            let path = self.at(id);
            match path.state {
                PathState::Active => (path.rank(), 0, id),
                _ => (path.rank(), path.errors, turn(id)),
            }
        });
        self.current = best.unwrap_or(0);
    }

    /// Returns the path on which a chunk of `size` bytes that was lost on another one is sent again
    /// (RFC 9260 s6.4): the same unless it has timed out, else the current one, or one that takes
    /// the chunk.
    pub(crate) fn resend_on(&self, last: PathId, size: u32) -> PathId {
        let works = |path: &PathTo| path.state == PathState::Active && path.errors == 0;
        if last == self.current || works(self.at(last)) {
            return last;
        }
        if self.current().fits(size) {
            return self.current;
        }
        let others = self.ids().filter(|&id| self.at(id).fits(size) && self.at(id).rank() != u8::MAX);
        others.min_by_key(|&id| (self.at(id).rank(), self.at(id).errors)).unwrap_or(last)
    }

    /// The path answers. Returns its new state if that has changed.
    pub(crate) fn on_answer(&mut self, id: PathId) -> Option<PathState> {
        let path = self.at_mut(id);
        let changed = path.on_answer().then_some(path.state);
        if changed.is_some() {
            self.select(false);
        }
        changed
    }

    /// The path did not answer. Returns its new state if that has changed.
    pub(crate) fn on_error(&mut self, id: PathId, now: Nanos, config: &SctpConfig) -> Option<PathState> {
        if !self.are_several() {
            return None;
        }
        let path = self.at_mut(id);
        let changed = path.on_error(config).then_some(path.state);
        if changed == Some(PathState::PotentiallyFailed) && path.heartbeat.is_none() {
            path.heartbeat_at = now;
        }
        if let Some(spare) = self.spare.as_mut().filter(|_| id == 0) {
            core::mem::swap(&mut self.first.route, spare);
        }
        self.select(id == self.current);
        changed
    }

    /// The association has ended: nothing is in flight, and no timer runs.
    pub(crate) fn stop(&mut self) {
        self.iter_mut().for_each(|path| (path.flight_bytes, path.rtx_at) = (0, Nanos::MAX));
        self.stop_heartbeats();
    }

    pub(crate) fn stop_heartbeats(&mut self) {
        for path in self.iter_mut() {
            (path.heartbeat, path.heartbeat_at) = (None, Nanos::MAX);
            path.mtu.stop();
        }
    }
}
