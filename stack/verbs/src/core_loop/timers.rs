//! The timer stage: TCP's own timers, the neighbour cache's, and the patience of connection set-up and teardown.
//!
//! A queue pair or a waiting connection has one deadline on the wheel at a time, under the number of its place:
//! queue pairs first, waiting connections behind them.

use super::*;
use ironwarp_net::Path;

/// How often the paths of all connections are looked at: twice while a neighbour's answer is believed, so that those in
/// use are asked again before they grow stale.
const PATHS_EVERY: Nanos = Nanos::from_secs(30);

/// Connections whose paths are looked at in one iteration: a few microseconds.
const PATHS_BUDGET: u32 = 256;

impl<P: Port, C: Clock> CoreLoop<P, C> {
    pub(super) fn timers(&mut self, now: Nanos) {
        if !self.announced {
            self.begin_on_link(now);
        }
        self.net.on_timers(now, &mut self.wire);
        if self.net.route_changes() != self.routes_seen || now >= self.paths_due || self.paths_at.is_some() {
            self.on_routes(now);
        }
        self.tcp.on_timers(now, &mut self.wire, &mut |conn, events| self.fired.push((conn, events)));
        while let Some((conn, events)) = self.fired.pop() {
            self.work += 1;
            self.on_tcp_events(now, conn, events);
        }
        while let Some(id) = self.wheel.pop_expired(now) {
            self.work += 1;
            match id.checked_sub(self.qps.places()) {
                None => self.on_patience_ended(now, id),
                Some(slot) => self.on_passive_timer(now, slot),
            }
        }
    }

    /// Ways have changed, or paths have not been looked at for a while: who waits for a way tries again, and the paths of
    /// connections are brought up to date, a few in an iteration.
    #[cold]
    fn on_routes(&mut self, now: Nanos) {
        if self.net.route_changes() != self.routes_seen || now >= self.paths_due {
            self.paths_at = Some(0);
            self.paths_due = now + PATHS_EVERY;
        }
        self.resolve_waiting(now);
        self.routes_seen = self.net.route_changes();
        let (net, wire) = (&mut self.net, &mut self.wire);
        let update = |path: &mut Path, mtu_bytes: u16| {
            net.refresh(now, path, wire);
            if mtu_bytes < path.mtu_bytes() {
                net.lower_path_mtu(now, path.remote_addr(), mtu_bytes);
            }
        };
        self.paths_at = self.paths_at.and_then(|at| self.tcp.update_paths(at, PATHS_BUDGET, update));
    }

    /// Tells the link whose addresses ours are, once it is up: a peer may remember an earlier station of theirs.
    #[cold]
    fn begin_on_link(&mut self, now: Nanos) {
        if (self.link_up)(self.wire.port_mut()) {
            self.announced = true;
            self.net.on_link_up(now, &mut self.wire);
        }
    }

    /// Gives a queue pair's phase until `deadline`; [`Nanos::MAX`] is for ever.
    pub(super) fn arm_qp(&mut self, slot: u32, deadline: Nanos) {
        self.wheel.arm(slot, deadline);
    }

    /// Gives a waiting connection until `deadline`; [`Nanos::MAX`] is for ever.
    pub(super) fn arm_passive(&mut self, slot: u32, deadline: Nanos) {
        self.wheel.arm(self.qps.places() + slot, deadline);
    }
}
