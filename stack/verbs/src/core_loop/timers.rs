//! The timer stage: TCP's own timers, the neighbour cache's, and the patience of connection set-up and teardown.
//!
//! A queue pair or a waiting connection has one deadline on the wheel at a time, under the number of its place:
//! queue pairs first, waiting connections behind them, the look at the link last.

use super::*;
use ironwarp_net::Path;

/// How often the paths of all connections are looked at: twice while a neighbour's answer is believed, so that those in
/// use are asked again before they grow stale.
const PATH_REFRESH_INTERVAL: Nanos = Nanos::from_secs(30);

/// Connections whose paths are looked at in one iteration: a few microseconds.
const PATH_REFRESH_BUDGET: u32 = 256;

impl<P: Port, C: Clock> CoreLoop<P, C> {
    pub(super) fn run_timers(&mut self, now: Nanos) {
        if !self.announced {
            self.announce_on_links(now);
        }
        self.on_net_timers(now);
        if self.route_changes() != self.route_changes_seen
            || now >= self.path_refresh_due
            || self.path_refresh_next.is_some()
        {
            self.refresh_paths(now);
        }
        self.tcp.on_timers(now, &mut self.wire, &mut |conn, events| self.timer_events.push((conn, events)));
        if !self.timer_events.is_empty() {
            self.on_timer_events(now);
        }
        while let Some(id) = self.wheel.pop_expired(now) {
            self.on_timer(now, id);
        }
    }

    /// What TCP's timers have told.
    #[cold]
    #[inline(never)]
    fn on_timer_events(&mut self, now: Nanos) {
        while let Some((conn, events)) = self.timer_events.pop() {
            self.work += 1;
            self.on_tcp_events(now, conn, events);
        }
    }

    /// A deadline of the core's own wheel has passed.
    #[cold]
    #[inline(never)]
    fn on_timer(&mut self, now: Nanos, id: u32) {
        self.work += 1;
        match id.checked_sub(self.qps.capacity()) {
            None => self.on_qp_timer(now, id),
            Some(slot) if slot == self.passives.capacity() => self.on_link_timer(now),
            Some(slot) => self.on_passive_timer(now, slot),
        }
    }

    /// A queue pair has something that waits until no core uses a steering tag.
    #[cold]
    pub(super) fn wait_for_memory(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        if !core::mem::replace(&mut qp.awaits_memory, true) {
            self.memory_waiters.push(slot);
        }
    }

    /// Asks for everyone who waits whether it is over: other cores pass in an iteration of theirs.
    #[cold]
    #[inline(never)]
    pub(super) fn poll_memory_waiters(&mut self, now: Nanos) {
        let mut index = self.memory_waiters.len();
        while index > 0 {
            index -= 1;
            let Some(&slot) = self.memory_waiters.get(index) else { continue };
            if !self.still_awaits_memory(slot) {
                self.memory_waiters.swap_remove(index);
                self.on_memory_ready(now, slot);
            }
        }
    }

    fn still_awaits_memory(&mut self, slot: u32) -> bool {
        let Some(qp) = self.qps.at(slot) else { return false };
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        stream.retry_after_epoch(&mut io);
        // A binding that was held is tried again by the transmit stage, which says if it has to wait on.
        qp.awaits_memory = stream.awaits_epoch();
        qp.awaits_memory
    }

    /// What came meanwhile is read, and what was held is sent.
    fn on_memory_ready(&mut self, now: Nanos, slot: u32) {
        self.work += 1;
        self.enqueue_tx(TxSource::Qp(slot));
        if let Some(conn) = self.qps.at(slot).and_then(|qp| qp.conn) {
            self.on_readable(now, slot, conn);
            self.resume_deferred_close(now, slot, conn);
        }
    }

    /// A Read of ours is outstanding: unless it gets on within the user timeout, the connection ends. TCP does not
    /// notice, since a peer that falls silent may have acknowledged everything.
    #[inline(never)]
    pub(super) fn arm_read_timer(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        if qp.read_progress_at_arm.is_none() {
            qp.read_progress_at_arm = qp.stream.read_progress();
            let deadline = now + qp.timeouts.resolve(self.timeouts).user_timeout;
            self.arm_qp(slot, deadline);
        }
    }

    /// The user timeout of a queue pair.
    pub(super) fn user_timeout_of(&mut self, slot: u32) -> Nanos {
        self.qps.at(slot).map_or(Nanos::MAX, |qp| qp.timeouts.resolve(self.timeouts).user_timeout)
    }

    /// RFC 5044 s7.1.2: a responder's sends wait for the initiator's first FPDU, and TCP has nothing of ours to miss an
    /// acknowledgement for. Those that wait when the timer is set have until it fires. Answers whether they have had it.
    pub(super) fn responder_sends_timed_out(&mut self, now: Nanos, slot: u32) -> bool {
        let Some(qp) = self.qps.at(slot).filter(|qp| qp.awaits_first_message) else { return false };
        let waits = qp.sq.refresh() != qp.sq.head();
        if core::mem::replace(&mut qp.sends_waited_at_arm, waits) && waits {
            return true;
        }
        let silence = self.user_timeout_of(slot);
        self.arm_qp(slot, now + silence);
        false
    }

    /// The timer of a running queue pair: a hold-off is over, or a Read has had its time. Answers whether the peer
    /// has fallen silent.
    pub(super) fn reads_timed_out(&mut self, now: Nanos, slot: u32) -> bool {
        let Some(qp) = self.qps.at(slot) else { return false };
        let seen = qp.read_progress_at_arm.take();
        if seen.is_some() && seen == qp.stream.read_progress() {
            self.stats.count(Counter::VerbsReadTimeouts);
            return true;
        }
        if qp.stream.read_progress().is_some() {
            self.arm_read_timer(now, slot);
        }
        false
    }

    /// Ways have changed, or paths have not been looked at for a while: who waits for a way tries again, and the paths of
    /// connections are brought up to date, a few in an iteration.
    #[cold]
    fn refresh_paths(&mut self, now: Nanos) {
        if self.route_changes() != self.route_changes_seen || now >= self.path_refresh_due {
            self.path_refresh_next = Some(0);
            self.path_refresh_due = now + PATH_REFRESH_INTERVAL;
        }
        self.retry_resolving(now);
        self.route_changes_seen = self.route_changes();
        let (nets, wire) = (&mut self.nets, &mut self.wire);
        let update = |path: &mut Path, mtu_bytes: u16| {
            wire.select(path.port());
            let net = nets.at_mut::<P>(path.port());
            net.refresh(now, path, wire);
            if mtu_bytes < path.mtu_bytes() {
                net.lower_path_mtu(now, path.remote_addr(), mtu_bytes);
            }
        };
        self.path_refresh_next =
            self.path_refresh_next.and_then(|at| self.tcp.update_paths(at, PATH_REFRESH_BUDGET, update));
    }

    /// Tells the links whose addresses ours are, once one is up: a peer may remember an earlier station of theirs. Those
    /// that are not up yet are looked for with the others' loss.
    #[cold]
    fn announce_on_links(&mut self, now: Nanos) {
        self.links_down = (0..self.wire.devices())
            .filter(|port| !self.is_link_up(*port))
            .fold(0, |all, port| all | 1 << port);
        if u32::from(self.wire.devices()) == self.links_down.count_ones() {
            self.links_down = 0;
            return;
        }
        self.announced = true;
        let there = !self.links_down;
        for port in (0..self.wire.devices()).filter(|port| there & 1 << port != 0) {
            self.announce(now, port);
        }
        self.arm_link(now);
    }

    pub(super) fn is_link_up(&mut self, port: u8) -> bool {
        self.wire.select(port);
        (self.link_up)(self.wire.port_mut())
    }

    /// Tells a link our addresses.
    fn announce(&mut self, now: Nanos, port: u8) {
        self.wire.select(port);
        self.nets.at_mut::<P>(port).on_link_up(now, &mut self.wire);
    }

    /// Looks whether the links are still there, or again. Connections live on without until TCP gives them up.
    #[cold]
    #[inline(never)]
    fn on_link_timer(&mut self, now: Nanos) {
        self.arm_link(now);
        self.warn_of_address_conflicts();
        for port in 0..self.wire.devices() {
            self.check_link(now, port);
        }
    }

    fn check_link(&mut self, now: Nanos, port: u8) {
        let (up, lost) = (self.is_link_up(port), self.links_down & 1 << port != 0);
        if up != lost {
            return;
        }
        self.links_down ^= 1 << port;
        self.stats.count(Counter::VerbsLinkChanges);
        tracing::info!(core = self.core, port, "the link is {}", if up { "up" } else { "down" });
        if up {
            // Whoever is at the far end may not have been there before.
            self.announce(now, port);
        }
        self.report_link(port, up);
    }

    /// Says once that another station has an address of ours. Both would be reached by turns, or neither.
    fn warn_of_address_conflicts(&mut self) {
        let signs = [Counter::NetAddressesDuplicate, Counter::NetDropArpConflict, Counter::NetDropNdConflict];
        if self.conflict_reported
            || self.nets.iter().all(|net| signs.iter().all(|sign| net.counted(*sign) == 0))
        {
            return;
        }
        self.conflict_reported = true;
        let configured = self.shared.config.net_configs().filter_map(|net| net.prefixes().ok()).flatten();
        let ours: Vec<String> = configured.map(|prefix| prefix.addr.to_string()).collect();
        tracing::warn!(
            "another station on the link claims an address of net.address or net.addresses ({}); give each node an \
             address of its own",
            ours.join(", ")
        );
    }

    fn arm_link(&mut self, now: Nanos) {
        if self.link_poll_interval != Nanos::MAX {
            self.wheel.arm(self.qps.capacity() + self.passives.capacity(), now + self.link_poll_interval);
        }
    }

    /// Gives a queue pair's phase until `deadline`; [`Nanos::MAX`] is for ever.
    pub(super) fn arm_qp(&mut self, slot: u32, deadline: Nanos) {
        self.wheel.arm(slot, deadline);
    }

    /// Gives a waiting connection until `deadline`; [`Nanos::MAX`] is for ever.
    pub(super) fn arm_passive(&mut self, slot: u32, deadline: Nanos) {
        self.wheel.arm(self.qps.capacity() + slot, deadline);
    }
}
