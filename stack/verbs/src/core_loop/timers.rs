//! The timer stage: TCP's own timers, the neighbour cache's, and the patience of connection set-up and teardown.
//!
//! A queue pair or a waiting connection has one deadline on the wheel at a time, under the number of its place:
//! queue pairs first, waiting connections behind them.

use super::*;

impl<P: Port, C: Clock> CoreLoop<P, C> {
    pub(super) fn timers(&mut self, now: Nanos) {
        if !self.announced {
            self.begin_on_link(now);
        }
        self.net.on_timers(now, &mut self.wire);
        self.resolve_waiting(now);
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
