//! Incoming connections until a queue pair takes them over: listeners, the request, accept and
//! reject.
//!
//! ```text
//! TCP up --> AwaitingRequest --whole request--> Asked (the context decides) --accept--> a queue pair's
//!                                            `--reject--> SendingReject --reply out, FIN--> Closing --> gone
//! a destroyed queue pair's connection ------------------------------------FIN--------------^
//! ```
//! Their number and the time of each are bounded, so that half-open start-ups cannot exhaust the
//! core (RFC 5042 s6.4.1). When all slots are in use, the host with the most connections loses one
//! to a host with fewer.

use super::ConnectionManager;
use super::passive_table::{Listener, Passive, PassiveState};
use super::setup::Setup;
use crate::core_loop::cores::InterCoreMessage;
use crate::core_loop::data_path::{ConnOwner, DataPath, ROUND_UNITS_MAX, TxSource};
use crate::core_loop::lifecycle::Lifecycle;
use crate::core_loop::lower::{Lower, PeerData, PeerRequest};
use ironwarp_llp::{Abort, Blocked, ConnId, Events, ListenError, ListenerId, Transport};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::core_loop::channel::Notification;
use crate::event::ConnectFailure;
use crate::objects::CmParams;
use crate::shared::ListenAddress;

impl<L: Lower> ConnectionManager<L> {
    /// A context listens on an address.
    pub(crate) fn listen(&mut self, dp: &mut DataPath<L>, context: u16, at: ListenAddress) {
        match listen_on(dp, at) {
            Ok(id) => {
                self.passives.listeners.push(Listener { id, at, context });
                dp.broadcast(InterCoreMessage::Listen { context, at });
            }
            Err(_) => self.send_event(context, Notification::ListenFailed { at }),
        }
    }

    pub(crate) fn unlisten(&mut self, dp: &mut DataPath<L>, context: u16, at: ListenAddress) {
        self.remove_listener(dp, context, at);
        dp.broadcast(InterCoreMessage::Unlisten { context, at });
    }

    /// The leader listens on an address, so this core does too. The leader has checked that the
    /// address is free.
    pub(crate) fn add_listener(&mut self, dp: &mut DataPath<L>, context: u16, at: ListenAddress) {
        let listener = listen_on(dp, at);
        debug_assert!(listener.is_ok(), "all cores have the same listeners");
        if let Ok(id) = listener {
            self.passives.listeners.push(Listener { id, at, context });
        }
    }

    pub(crate) fn remove_listener(&mut self, dp: &mut DataPath<L>, context: u16, at: ListenAddress) {
        self.remove_listeners(dp, |listener| listener.context == context && listener.at == at);
    }

    pub(crate) fn close_listeners(&mut self, dp: &mut DataPath<L>, context: u16) {
        self.remove_listeners(dp, |listener| listener.context == context);
    }

    fn remove_listeners(&mut self, dp: &mut DataPath<L>, which: impl Fn(&Listener) -> bool) {
        for listener in self.passives.listeners.extract_if(.., |listener| which(listener)) {
            dp.llp.unlisten(listener.id);
        }
    }

    /// The TCP connection of a peer is established.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_incoming_connection(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        conn: ConnId,
        events: Events,
    ) {
        let host = dp.llp.flow(conn).map(|flow| flow.remote.ip());
        if host.is_some_and(|host| self.protection_backoff.is_refused(now, host)) {
            dp.stats.count(Counter::VerbsProtectionBackoffs);
            return dp.llp.abort(now, conn, Abort::Unused, &mut dp.wires);
        }
        let listener = dp.llp.listener(conn);
        let context =
            self.passives.listeners.iter().find(|one| Some(one.id) == listener).map(|one| one.context);
        let responder = L::responder(&self.mpa);
        let slot = context.and_then(|context| self.insert_passive(dp, now, conn, context, responder));
        let Some(slot) = slot else {
            dp.stats.count(Counter::VerbsHalfOpenDropped);
            return dp.llp.abort(now, conn, Abort::Unused, &mut dp.wires);
        };
        dp.set_owner(conn, ConnOwner::Passive(slot));
        self.arm_passive(slot, now + self.mpa.startup_timeout());
        self.on_passive_events(dp, now, slot, conn, events);
    }

    /// A slot for a new connection; another connection may be aborted for it.
    fn insert_passive(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        conn: ConnId,
        context: u16,
        responder: L::Responder,
    ) -> Option<u32> {
        let host = dp.llp.flow(conn)?.remote.ip();
        if self.passives.free.is_empty() {
            let slot = self.passives.eviction_candidate(host)?;
            dp.stats.count(Counter::VerbsHalfOpenEvicted);
            self.abort_passive(dp, now, slot);
        }
        self.passives.insert(conn, host, context, PassiveState::AwaitingRequest(responder))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn on_passive_events(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        conn: ConnId,
        events: Events,
    ) {
        if events.contains(Events::READABLE) {
            self.on_request_bytes(dp, now, slot, conn);
        }
        if events.intersects(Events::WRITABLE | Events::RETRANSMIT) {
            self.enqueue_passive(dp, slot);
        }
        if events.intersects(Events::ENDED) {
            self.release_passive(dp, slot, conn);
        } else if events.contains(Events::PEER_CLOSED) {
            self.on_passive_peer_closed(dp, now, slot);
        }
    }

    fn on_request_bytes(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, conn: ConnId) {
        let Some(passive) = self.passives.at(slot) else { return };
        let responder = match &passive.state {
            PassiveState::AwaitingRequest(responder) => responder,
            PassiveState::AwaitingDecision(_) => {
                return self.on_bad_request(dp, now, slot);
            }
            // Bytes after a reject are discarded.
            PassiveState::SendingReject(_) | PassiveState::Closing => {
                return dp.llp.discard(conn);
            }
        };
        match L::on_request(responder, dp.llp.rx(conn)) {
            PeerRequest::Incomplete => {}
            PeerRequest::Complete { private_data, request }
                if self.may_report_request(slot, &private_data) =>
            {
                self.report_connect_request(dp, slot, request, &private_data);
            }
            PeerRequest::Complete { .. } => {
                dp.stats.count(Counter::VerbsHalfOpenDropped);
                self.abort_passive(dp, now, slot);
            }
            PeerRequest::Fault => self.on_bad_request(dp, now, slot),
        }
    }

    /// RFC 5044 s8, code 4: a start-up fault closes without a Terminate. Bytes after the request
    /// are such a fault, in the same segment or later: none may arrive before our reply.
    #[cold]
    fn on_bad_request(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        dp.stats.count(Counter::IwarpStartupErrors);
        self.abort_passive(dp, now, slot);
    }

    /// Returns whether the context can be asked: it reads its notifications, and the private data
    /// is within the limit. A peer that connects and leaves repeatedly must not fill memory with
    /// events.
    fn may_report_request(&mut self, slot: u32, private_data: &[u8]) -> bool {
        let limit = usize::from(self.shared.config.limits.private_data_bytes);
        let context = self.passives.at(slot).map(|passive| usize::from(passive.context));
        let link = context.and_then(|context| self.contexts.get(context)).and_then(Option::as_ref);
        private_data.len() <= limit && link.is_some_and(|link| !link.has_delayed())
    }

    fn report_connect_request(
        &mut self,
        dp: &mut DataPath<L>,
        slot: u32,
        asked: L::Request,
        private_data: &PeerData,
    ) {
        let core = self.core;
        let Some(passive) = self.passives.at(slot) else { return };
        let Some(flow) = dp.llp.flow(passive.conn) else { return };
        passive.state = PassiveState::AwaitingDecision(asked);
        let mpa_request = L::request_info(&asked);
        let Some(request) = passive.request(core, slot).map(|request| request.to_bits()) else { return };
        let (context, local, remote) = (passive.context, flow.local, flow.remote);
        self.send_private_data(context, private_data);
        self.send_event(context, Notification::ConnectRequest { request, local, remote, mpa_request });
    }

    /// The context accepts a request with a queue pair.
    pub(crate) fn accept(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        request: (u32, u32),
        slot: u32,
        mut params: Box<CmParams>,
    ) {
        let agreed = self.accept_reply(dp, request, slot, &mut params);
        let Some(qp) = dp.qps.at(slot) else { return };
        let context = qp.context;
        let passive = agreed.and_then(|agreed| Some((agreed, self.remove_passive(dp, request.0)?)));
        let Some((agreed, passive)) = passive else {
            self.return_params(context, slot, params);
            // The peer is gone, or start-up timed out.
            return self.fail_connect(dp, now, slot, ConnectFailure::Closed);
        };
        self.attach_conn(dp, slot, passive.conn);
        if let Some(qp) = dp.qps.at(slot) {
            qp.enter(Lifecycle::Setup(Setup::Replying { params, agreed }));
        }
        self.arm_qp(slot, now + self.mpa.startup_timeout());
        dp.enqueue_tx(slot);
    }

    /// Writes the reply that accepts a request with the queue pair at `slot`.
    fn accept_reply(
        &mut self,
        dp: &mut DataPath<L>,
        request: (u32, u32),
        slot: u32,
        params: &mut CmParams,
    ) -> Option<L::Agreed> {
        let (limits, request) = (dp.qps.at(slot)?.reads(), self.passives.pending_request(request)?);
        match L::accept(request, &self.mpa, &params.mpa_params, limits, params.private_data()) {
            Ok((frame, agreed)) => {
                params.set_frame(frame);
                Some(agreed)
            }
            Err(_) => None,
        }
    }

    /// The context rejects a request.
    pub(crate) fn reject(&mut self, dp: &mut DataPath<L>, now: Nanos, context: u16, request: (u32, u32)) {
        let Some(asked) = self.passives.pending_request(request) else { return };
        let params = self.handover(context).and_then(|handover| handover.reject_params.take(request.0));
        let Some(mut params) = params else { return };
        // The context checked the length of the private data, so this cannot fail.
        let reply = L::reject(asked, &params.mpa_params, params.private_data());
        let Some(reply) = reply else { return };
        dp.stats.count(Counter::VerbsRequestsRejected);
        if params.is_backlog_full {
            dp.stats.count(Counter::VerbsBacklogRejects);
        }
        params.set_frame(reply);
        self.send_reject(dp, now, request.0, params);
    }

    fn send_reject(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, params: Box<CmParams>) {
        if let Some(passive) = self.passives.at(slot) {
            passive.state = PassiveState::SendingReject(params);
        }
        self.arm_passive(slot, now + self.mpa.terminate_timeout());
        self.enqueue_passive(dp, slot);
    }

    /// After a scheduling round: FIN follows a reject that TCP has pulled completely.
    pub(crate) fn close_after_reject(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(passive) = self.passives.at(slot) else { return };
        let conn = passive.conn;
        if matches!(&passive.state, PassiveState::SendingReject(params) if params.sent_frame_bytes().is_some())
        {
            // The slot and its timer stay until the connection has ended, so that closing
            // connections are bounded too.
            let (context, sent) =
                (passive.context, core::mem::replace(&mut passive.state, PassiveState::Closing));
            self.return_params_of(context, slot, sent);
            let events = dp.llp.close(now, conn, &mut dp.wires);
            if events.intersects(Events::ENDED) {
                self.release_passive(dp, slot, conn);
            }
        }
    }

    /// The peer's FIN: the reply to ours, or the peer gave up.
    fn on_passive_peer_closed(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(passive) = self.passives.at(slot) else { return };
        if matches!(passive.state, PassiveState::AwaitingRequest(_) | PassiveState::AwaitingDecision(_)) {
            self.abort_passive(dp, now, slot);
        }
    }

    /// Start-up timed out.
    pub(crate) fn on_passive_timer(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(passive) = self.passives.at(slot) else { return };
        if matches!(passive.state, PassiveState::AwaitingRequest(_) | PassiveState::AwaitingDecision(_)) {
            dp.stats.count(Counter::VerbsStartupTimeouts);
        }
        self.abort_passive(dp, now, slot);
    }

    fn abort_passive(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        self.report_request_end(slot);
        if let Some(passive) = self.remove_passive(dp, slot) {
            dp.set_owner(passive.conn, ConnOwner::Unowned);
            dp.llp.abort(now, passive.conn, Abort::Unused, &mut dp.wires);
        }
    }

    /// Aborts the incoming connections that wait for a context that is gone.
    #[cold]
    pub(crate) fn abort_passives_of(&mut self, dp: &mut DataPath<L>, now: Nanos, context: u16) {
        for slot in 0..self.passives.slots.len() as u32 {
            if self.passives.at(slot).is_some_and(|passive| passive.context == context) {
                self.abort_passive(dp, now, slot);
            }
        }
    }

    /// Aborts all incoming connections.
    pub(super) fn abort_passives(&mut self, dp: &mut DataPath<L>, now: Nanos) {
        for slot in 0..self.passives.slots.len() as u32 {
            self.abort_passive(dp, now, slot);
        }
    }

    fn release_passive(&mut self, dp: &mut DataPath<L>, slot: u32, conn: ConnId) {
        self.report_request_end(slot);
        self.remove_passive(dp, slot);
        dp.set_owner(conn, ConnOwner::Unowned);
        dp.llp.release(conn);
    }

    /// The connection of a request that the context has not answered ends. At most one event for
    /// each request.
    fn report_request_end(&mut self, slot: u32) {
        let core = self.core;
        let Some(passive) = self.passives.at(slot) else { return };
        let context = passive.context;
        if let Some(request) = passive.request(core, slot).map(|request| request.to_bits()) {
            self.send_event(context, Notification::RequestEnded { request });
        }
    }

    /// Returns the parameters of a reject that is sent, or never will be.
    fn return_params_of(&mut self, context: u16, slot: u32, state: PassiveState<L>) {
        if let PassiveState::SendingReject(params) = state
            && let Some(handover) = self.handover(context)
        {
            handover.reject_params.put(slot, params);
        }
    }

    /// The queue pair of a connection is being destroyed while nothing is outstanding: the
    /// connection closes in order without it, in the place of an incoming one, which bounds the
    /// number and the time of such connections. What the peer still sends is discarded. Otherwise
    /// the connection stays with its queue pair, which resets it.
    pub(crate) fn detach_conn(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let is_fin_sent = match qp.lifecycle {
            Lifecycle::Running(_) | Lifecycle::Draining(_) => false,
            Lifecycle::HalfClosed(_) | Lifecycle::Closing { .. } => true,
            _ => return,
        };
        let (Some(conn), context) = (qp.conn, qp.context) else { return };
        let (stream, mut io) = qp.stream_io(&mut dp.queues, &dp.mem, &dp.stats);
        let is_idle = stream.is_drained(&mut io) && stream.read_progress().is_none();
        let Some(flow) = dp.llp.flow(conn) else { return };
        if !is_idle || !dp.llp.progress(conn).all_acked || !self.passives.has_room_for_closing() {
            return;
        }
        let closing = self.passives.insert(conn, flow.remote.ip(), context, PassiveState::Closing);
        let Some(passive) = closing else { return };
        if let Some(qp) = dp.qps.at(slot) {
            qp.conn = None;
        }
        dp.set_owner(conn, ConnOwner::Passive(passive));
        dp.llp.discard(conn);
        self.arm_passive(passive, now + self.mpa.terminate_timeout());
        if !is_fin_sent && dp.llp.close(now, conn, &mut dp.wires).intersects(Events::ENDED) {
            self.release_passive(dp, passive, conn);
        }
    }

    /// Frees a slot and its timer.
    fn remove_passive(&mut self, dp: &mut DataPath<L>, slot: u32) -> Option<Passive<L>> {
        self.arm_passive(slot, Nanos::MAX);
        let mut passive = self.passives.remove(slot)?;
        let state = core::mem::replace(&mut passive.state, PassiveState::Closing);
        self.return_params_of(passive.context, slot, state);
        if passive.tx_queued {
            dp.tx_ready.retain(|source| *source != TxSource::Passive(slot));
        }
        Some(passive)
    }

    /// The scheduling round of an incoming connection.
    #[cold]
    #[inline(never)]
    pub(crate) fn serve_passive(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(passive) = self.passives.at(slot) else { return };
        passive.tx_queued = false;
        let sent = dp.llp.transmit(now, passive.conn, passive, &mut dp.wires, ROUND_UNITS_MAX);
        dp.count_work(sent.units);
        if matches!(sent.blocked, Blocked::Pool | Blocked::Wire) {
            self.enqueue_passive(dp, slot);
        }
        self.close_after_reject(dp, now, slot);
    }

    /// Lists an incoming connection as a sender unless it is listed.
    fn enqueue_passive(&mut self, dp: &mut DataPath<L>, slot: u32) {
        let tx_queued = self.passives.at(slot).map(|passive| &mut passive.tx_queued);
        if tx_queued.is_some_and(|tx_queued| !core::mem::replace(tx_queued, true)) {
            dp.tx_ready.push_back(TxSource::Passive(slot));
        }
    }
}

fn listen_on<L: Lower>(dp: &mut DataPath<L>, at: ListenAddress) -> Result<ListenerId, ListenError> {
    dp.llp.listen_over(at.transport.protocol(), at.local)
}
