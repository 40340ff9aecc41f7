//! The stages of an iteration: each drives the data path and passes its outcomes to the connection
//! manager.
//!
//! A received frame, from the burst that the idle check or this stage polled:
//!
//! ```text
//! receive, on_burst
//!   on_frame         Tcp::on_fast_frame       fast: headers, flow table, prediction, checksums
//!     or else        Net::on_frame            general: headers, checksums, flow hash
//!     on_received    Tcp::on_segment_lending  flow table, the steps of RFC 9293
//!     inside         LentReader::read         Stream::on_acked, Stream::on_readable_fast: FPDU, CRC, checks, copy, completion
//!     then                                    RCV.NXT, ACK; queues an incomplete FPDU
//!   on_tcp_events    any other segment: DataPath::on_acked, DataPath::on_readable after TCP's queue
//!   ConnectionManager                      only for an outcome that changes the connection
//! ```
//!
//! A posted request, from the doorbell:
//!
//! ```text
//! send_posted        ConnectionManager::serve_doorbells lists the queue pair
//!   transmit         DataPath::serve_qp    deficit round robin
//!                    Tcp::transmit         pulls units: StreamSource::fill writes FPDUs; TCP writes headers, retains the frame
//!   Wires::flush                           one burst to each device
//! ```

use ironwarp_llp::{Arrival, ConnId, Events, Transport};
use ironwarp_net::{IcmpError, IcmpErrorKind, Received};
use ironwarp_types::{Clock, Nanos};

use super::CoreLoop;
use super::connection::{CONTROL_BUDGET, TimerOwner};
use super::cores::{LEADER, Steered};
use super::data_path::{ConnOwner, RxOutcome, TxSource};
use super::lower::{FrameOf, Lower};

impl<L: Lower, C: Clock> CoreLoop<L, C> {
    /// The doorbell stage: sends new work requests before frames are received: an application that
    /// has just posted often waits for the reply. If other senders are listed already, the new ones
    /// are appended to them in the transmit stage. Returns the time, read again after more than one
    /// frame: a frame that arrives later must not seem older than what was sent.
    pub(super) fn send_posted(&mut self, now: Nanos) -> Nanos {
        let queue_was_empty = self.dp.tx_ready.is_empty();
        if self.dp.tx_ready.len() < self.dp.single_max
            && let Some(slot) = self.cm.take_single_doorbell()
        {
            return self.send_single(now, slot);
        }
        self.cm.serve_doorbells(&mut self.dp);
        let doorbell_work = self.dp.work;
        if doorbell_work > 0 && queue_was_empty {
            self.transmit(now);
            self.dp.wires.flush();
            if self.dp.work > doorbell_work + 1 {
                return self.clock.now();
            }
        }
        now
    }

    /// Sends the work requests of the only queue pair with new ones. Returns the time, as
    /// [`CoreLoop::send_posted`].
    #[inline(always)]
    fn send_single(&mut self, now: Nanos, slot: u32) -> Nanos {
        self.dp.count_work(1);
        if self.dp.on_single_doorbell(slot) {
            self.serve_qp(now, slot);
        }
        self.dp.wires.flush();
        if self.dp.work > 2 { self.clock.now() } else { now }
    }

    /// The receive stage: at most `bursts` bursts from each port.
    pub(super) fn receive(&mut self, now: Nanos, bursts: usize) {
        self.receive_from(now, 0, bursts);
        if self.dp.wires.has_several() {
            self.receive_from_others(now, bursts);
        }
    }

    #[inline(never)]
    fn receive_from_others(&mut self, now: Nanos, bursts: usize) {
        for port in self.dp.wires.numbers().skip(1) {
            self.receive_from(now, port, bursts);
        }
    }

    /// Receives from one port.
    #[inline(always)]
    fn receive_from(&mut self, now: Nanos, port: u8, bursts: usize) {
        if self.dp.wires.at(port).has_looped_frames() {
            self.receive_loopback(now, port);
        }
        let mut left = bursts;
        while self.dp.has_frames(port) {
            self.on_burst(now, port);
            left = left.saturating_sub(1);
            if left == 0 {
                return;
            }
        }
    }

    /// Handles the received frames of the data path's burst. Tuning: not inlined, as an iteration
    /// without frames would set up what the loop over frames needs.
    #[inline(never)]
    fn on_burst(&mut self, now: Nanos, port: u8) {
        let Some(burst) = &mut self.dp.rx_burst else { return };
        let frames = burst.len();
        // As `DataPath::count_work`, while the burst is borrowed.
        self.dp.work = self.dp.work.wrapping_add(frames);
        if frames > self.dp.single_max {
            return self.on_frames(now, port);
        }
        if let Some(frame) = burst.pop() {
            self.on_frame(now, port, frame);
        }
    }

    /// Handles the frames of a burst of several. On a core with many connections, the state for a
    /// frame is prefetched while the frames before it are handled.
    #[inline(never)]
    fn on_frames(&mut self, now: Nanos, port: u8) {
        let Some(mut burst) = self.dp.rx_burst.take() else { return };
        let prefetches = self.dp.has_many_connections();
        if prefetches {
            self.dp.hash_burst(port, &burst);
        }
        // The last frame of an array is cheaper to take than the first.
        burst.reverse();
        while let Some(frame) = burst.pop() {
            if prefetches {
                self.dp.prefetch_next_frame();
            }
            self.on_frame(now, port, frame);
        }
        self.dp.rx_burst = Some(burst);
    }

    /// Receives one burst of frames that this host sent to itself.
    #[cold]
    fn receive_loopback(&mut self, now: Nanos, port: u8) {
        let Some(mut burst) = self.dp.rx_burst.take() else { return };
        self.dp.wires.at_mut(port).rx_looped(&mut burst);
        self.dp.count_work(burst.len());
        for frame in burst.drain(..) {
            let (net, wire) = (self.dp.nets.at_mut(port), self.dp.wires.at_mut(port));
            if let Some(received) = net.on_loopback_frame(now, frame, wire) {
                self.on_received(now, port, received);
            }
        }
        self.dp.rx_burst = Some(burst);
    }

    #[inline(always)]
    fn on_frame(&mut self, now: Nanos, port: u8, frame: FrameOf<L>) {
        match self.dp.on_fast_frame(now, port, frame) {
            Ok(arrival) => self.on_arrival(now, arrival),
            Err(frame) => self.on_general_frame(now, port, frame),
        }
    }

    #[inline(never)]
    fn on_general_frame(&mut self, now: Nanos, port: u8, frame: FrameOf<L>) {
        let (net, wire) = (self.dp.nets.at_mut(port), self.dp.wires.at_mut(port));
        if let Some(received) = net.on_frame(now, frame, wire) {
            self.on_received(now, port, received);
        }
    }

    /// Handles what arrived on `port` and concerns TCP or another core.
    #[inline(never)]
    pub(super) fn on_received(&mut self, now: Nanos, port: u8, received: Received<FrameOf<L>>) {
        let segment = match received {
            Received::Packet(segment) => segment,
            Received::IcmpError(error) => return self.steer_icmp_error(now, port, error),
            Received::ForLeader(frame) => return self.steer_to_leader(port, frame),
        };
        let dp = &mut self.dp;
        if let Some(other_cores) = &mut dp.other_cores
            && let Some(to) = other_cores.other_core_of(&segment.flow, segment.hash)
        {
            return other_cores.steer(to, Steered::Packet(port, segment), &dp.stats);
        }
        if let Some(arrival) = dp.on_segment(now, port, segment) {
            self.on_arrival(now, arrival);
        }
        while let Some((conn, events)) = self.dp.llp.next_events() {
            self.on_tcp_events(now, conn, events);
        }
    }

    /// Handles what a segment of a connection leaves to do.
    #[inline(always)]
    fn on_arrival(&mut self, now: Nanos, arrival: Arrival<RxOutcome>) {
        match arrival {
            Arrival::Delivered(outcome) if outcome.is_done() => {}
            Arrival::Delivered(outcome) => self.on_rx_outcome(now, outcome),
            Arrival::Events(conn, events) => self.on_tcp_events(now, conn, events),
        }
    }

    /// Handles what received bytes leave to do for their queue pair.
    #[inline(never)]
    fn on_rx_outcome(&mut self, now: Nanos, outcome: RxOutcome) {
        self.dp.after_reading(outcome);
        if outcome.concerns_connection() {
            self.cm.on_rx_outcome(&mut self.dp, now, outcome);
        }
    }

    /// An ICMP error goes to the core of the flow that it quotes.
    #[cold]
    #[inline(never)]
    fn steer_icmp_error(&mut self, now: Nanos, port: u8, error: IcmpError) {
        let dp = &mut self.dp;
        if let Some(other_cores) = &mut dp.other_cores
            && let Some(to) = other_cores.other_core_of(&error.flow, error.hash)
        {
            return other_cores.steer(to, Steered::IcmpError(port, error), &dp.stats);
        }
        self.on_icmp_error(now, port, &error);
    }

    /// A frame of ARP or neighbour discovery, received by a core that does not lead.
    #[cold]
    #[inline(never)]
    fn steer_to_leader(&mut self, port: u8, frame: FrameOf<L>) {
        let dp = &mut self.dp;
        if let Some(other_cores) = &mut dp.other_cores {
            other_cores.steer(LEADER, Steered::ForLeader(port, frame), &dp.stats);
        }
    }

    /// If the transport accepts the reported path MTU, `Net` stores it for later connections to
    /// that host.
    #[cold]
    pub(super) fn on_icmp_error(&mut self, now: Nanos, port: u8, error: &IcmpError) {
        let outcome = self.dp.llp.on_path_error(now, error, &mut self.dp.wires);
        if let Some((conn, events)) = outcome.events {
            self.on_tcp_events(now, conn, events);
        }
        if let IcmpErrorKind::TooBig { mtu_bytes } = error.kind
            && outcome.mtu_accepted
        {
            self.dp.nets.at_mut(port).lower_path_mtu(now, error.flow.remote.ip(), mtu_bytes);
        }
    }

    /// Passes TCP's events on to the connection's owner.
    pub(super) fn on_tcp_events(&mut self, now: Nanos, conn: ConnId, events: Events) {
        match self.dp.owner(conn) {
            ConnOwner::Qp(slot) => self.on_qp_events(now, slot, conn, events),
            ConnOwner::Passive(slot) => self.cm.on_passive_events(&mut self.dp, now, slot, conn, events),
            ConnOwner::Unowned if events.contains(Events::ESTABLISHED) => {
                self.cm.on_incoming_connection(&mut self.dp, now, conn, events)
            }
            ConnOwner::Unowned => self.dp.on_orphan_events(conn, events),
        }
    }

    /// The order is that of a connection's life.
    fn on_qp_events(&mut self, now: Nanos, slot: u32, conn: ConnId, events: Events) {
        if events.contains(Events::ESTABLISHED) {
            self.cm.on_tcp_established(&mut self.dp, slot);
        }
        if events.contains(Events::ACKED) && self.dp.on_acked(slot, conn) {
            self.cm.close_if_drained(&mut self.dp, now, slot);
        }
        if events.contains(Events::READABLE) {
            let outcome = self.dp.on_readable(slot, conn);
            if !outcome.is_done() {
                self.on_rx_outcome(now, outcome);
            }
        }
        if events.intersects(Events::WRITABLE | Events::RETRANSMIT) {
            self.dp.enqueue_tx(slot);
        }
        if events.intersects(Events::ENDED | Events::PEER_CLOSED | Events::OUT_OF_ORDER) {
            self.cm.on_rare_qp_events(&mut self.dp, now, slot, conn, events);
        }
    }

    /// The mailbox stage. Messages of other cores come first, because a listener that another core
    /// announces must exist here before a message of a context is handled. Messages of contexts
    /// follow.
    pub(super) fn serve_mailboxes(&mut self, now: Nanos, has_messages: bool) {
        let mut budget = CONTROL_BUDGET;
        if self.dp.other_cores.is_some() {
            self.exchange(now);
            self.poll_remote_atomics(now);
            if !self.dp.all_messages_sent() {
                budget = 0;
            }
        }
        if has_messages && self.cm.serve_contexts(&mut self.dp, now, budget) {
            self.idle_until = Nanos::ZERO;
        }
    }

    /// Executes atomic operations for other cores and handles their replies.
    #[inline(never)]
    fn poll_remote_atomics(&mut self, now: Nanos) {
        self.dp.serve_remote_atomics();
        if !self.dp.queues.has_outstanding_remote_atomics() {
            return;
        }
        self.dp.spin_for_reply();
        for core in 0..self.dp.atomics_cores() {
            if !self.dp.has_outstanding_to(core) {
                continue;
            }
            if self.dp.take_replies(core) {
                self.on_core_gone(now, core);
            }
            self.dp.send_waiting_requests(core);
        }
    }

    /// Another core has ended and its last replies are taken: streams that wait for it end.
    #[cold]
    fn on_core_gone(&mut self, now: Nanos, core: u16) {
        for slot in 0..self.dp.qps.capacity() {
            if self.dp.waits_for_core(slot, core) {
                self.cm.terminate_for_lost_core(&mut self.dp, now, slot);
            }
        }
        self.dp.cancel_requests_to(core);
    }

    /// The timer stage: the nets' timers, TCP's, and the deadlines of set-up and teardown.
    pub(super) fn run_timers(&mut self, now: Nanos) {
        if !self.housekeeping.announced() && self.housekeeping.announce_on_links(&mut self.dp, now) {
            self.arm_link(now);
        }
        self.dp.on_net_timers(now);
        self.cm.on_timer_stage(now);
        if self.housekeeping.wants_path_refresh(&self.dp, now) {
            self.refresh_paths(now);
        }
        self.dp.run_tcp_timers(now);
        if !self.dp.timer_events.is_empty() {
            self.on_timer_events(now);
        }
        self.dp.add_paths(now);
        while let Some((conn, remote, up)) = self.dp.llp.pop_path_change() {
            self.cm.report_path(&mut self.dp, conn, remote, up);
        }
        while let Some(owner) = self.cm.pop_expired(now) {
            self.on_timer(now, owner);
        }
    }

    /// Routes changed, or the refresh of all paths is due.
    #[cold]
    fn refresh_paths(&mut self, now: Nanos) {
        if self.housekeeping.routes_changed(&self.dp) {
            self.cm.retry_resolving(&mut self.dp, now);
        }
        self.housekeeping.refresh_paths(&mut self.dp, now);
    }

    #[cold]
    #[inline(never)]
    fn on_timer_events(&mut self, now: Nanos) {
        while let Some((conn, events)) = self.dp.timer_events.pop() {
            self.dp.count_work(1);
            self.on_tcp_events(now, conn, events);
        }
    }

    #[cold]
    #[inline(never)]
    fn on_timer(&mut self, now: Nanos, owner: TimerOwner) {
        self.dp.count_work(1);
        match owner {
            TimerOwner::Qp(slot) => self.cm.on_qp_timer(&mut self.dp, now, slot),
            TimerOwner::Passive(slot) => self.cm.on_passive_timer(&mut self.dp, now, slot),
            TimerOwner::Link => self.on_link_timer(now),
            TimerOwner::ConnectionTable => self.show_connections(now),
        }
    }

    #[cold]
    #[inline(never)]
    fn show_connections(&mut self, now: Nanos) {
        if let Some(table) = &mut self.connection_table {
            let deadline = table.step(&mut self.dp, now);
            self.cm.arm_connection_table(deadline);
        }
    }

    #[cold]
    #[inline(never)]
    fn on_link_timer(&mut self, now: Nanos) {
        self.arm_link(now);
        self.housekeeping.warn_of_address_conflicts(&self.dp, &self.shared.config);
        for port in self.dp.wires.numbers() {
            if let Some(up) = self.housekeeping.check_link(&mut self.dp, now, port) {
                self.cm.report_link(port, up);
            }
        }
    }

    fn arm_link(&mut self, now: Nanos) {
        if let Some(deadline) = self.housekeeping.next_link_check(now) {
            self.cm.arm_link(deadline);
        }
    }

    /// Queue pairs whose wait for quiescence is over read and send again. They are polled, because
    /// no event reports that another core has passed the epoch.
    #[cold]
    #[inline(never)]
    pub(super) fn poll_quiescence_waiters(&mut self, now: Nanos) {
        let (dp, cm) = (&mut self.dp, &mut self.cm);
        let mut index = dp.quiescence_waiters.len();
        while let Some(slot) = dp.next_quiescence_over(&mut index) {
            dp.count_work(1);
            dp.enqueue_tx(slot);
            if let Some(conn) = dp.qps.at(slot).and_then(|qp| qp.conn) {
                cm.on_readable(dp, now, slot, conn);
                cm.resume_deferred_close(dp, now, slot, conn);
            }
        }
    }

    /// The transmit stage: a scheduling round for each sender.
    #[inline(always)]
    pub(super) fn transmit(&mut self, now: Nanos) {
        let senders = self.dp.tx_ready.len();
        if senders > self.dp.single_max {
            return self.transmit_many(now, senders);
        }
        // `Conn::send_next` checks whether the port has room. The last sender is cheaper to take
        // than the first.
        if let Some(source) = self.dp.tx_ready.pop_back() {
            self.serve_sender(now, source);
        }
    }

    #[inline(never)]
    fn transmit_many(&mut self, now: Nanos, senders: usize) {
        let prefetches = self.dp.has_many_connections();
        for _ in 0..senders {
            // At least one port has room.
            if !self.dp.wires.any_has_room() {
                return;
            }
            if prefetches {
                self.dp.prefetch_senders();
            }
            let Some(source) = self.dp.tx_ready.pop_front() else { return };
            self.serve_sender(now, source);
        }
    }

    /// The scheduling round of one sender.
    #[inline]
    fn serve_sender(&mut self, now: Nanos, source: TxSource) {
        match source {
            TxSource::Qp(slot) => self.serve_qp(now, slot),
            TxSource::Passive(slot) => self.cm.serve_passive(&mut self.dp, now, slot),
        }
    }

    /// The scheduling round of a queue pair.
    #[inline(never)]
    fn serve_qp(&mut self, now: Nanos, slot: u32) {
        let outcome = self.dp.serve_qp(now, slot);
        if !outcome.is_done() {
            self.cm.on_tx_outcome(&mut self.dp, now, slot, outcome);
        }
    }
}
