//! The start-up of a queue pair's connection: request, reply, full operation.
//!
//! The lower layer writes and reads the messages. The initiator may have to repeat a simpler
//! request. It may also have to end an accepted connection whose terms it cannot meet, with a
//! Terminate. The responder of a peer-to-peer connection reports the connection after the
//! initiator's first FPDU. A fault in a message closes without a Terminate.

use super::ConnectionManager;
use super::setup::Setup;
use crate::core_loop::data_path::DataPath;
use crate::core_loop::lifecycle::{Lifecycle, Running};
use crate::core_loop::lower::{Lower, Reply, Started};
use ironwarp_iwarp::mpa::startup::Markers;
use ironwarp_iwarp::setup::ReadDepths;
use ironwarp_iwarp::{Role, Terminate};
use ironwarp_llp::{ConnId, Transport};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::core_loop::channel::Notification;
use crate::event::ConnectFailure;
use crate::objects::CmParams;

impl<L: Lower> ConnectionManager<L> {
    /// The transport is connected: sends the request.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_tcp_established(&mut self, dp: &mut DataPath<L>, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let reads = qp.reads();
        let Lifecycle::Setup(Setup::Opening { target }) = &mut qp.lifecycle else { return };
        let params = &mut *target.cm_params;
        // The context checked the length of the private data, so this cannot fail.
        let request = L::request(&self.mpa, &params.mpa_params, reads, params.private_data());
        if let Ok((initiator, frame)) = request {
            params.set_frame(frame);
            qp.lifecycle.advance_setup(|setup| setup.request(initiator));
        }
        dp.enqueue_tx(slot);
    }

    /// Bytes arrived during start-up.
    pub(crate) fn on_startup_bytes(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, conn: ConnId) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let (initiator, params) = match &qp.lifecycle {
            Lifecycle::Setup(Setup::Requesting { initiator, target }) => (initiator, &*target.cm_params),
            Lifecycle::Setup(Setup::Replying { .. }) => {
                return self.on_bad_reply(dp, now, slot, false);
            }
            _ => return,
        };
        // Bytes that arrive before our request is sent are no reply. They stay until the next
        // event.
        let Some(frame_bytes) = params.sent_frame_bytes() else { return };
        let holdoff = params.mpa_params.holdoff.unwrap_or(self.mpa.first_fpdu_holdoff());
        match L::on_reply(initiator, dp.llp.rx(conn), frame_bytes) {
            Reply::Incomplete => {}
            Reply::Accepted { private_data, started, fault } => {
                self.enter_full_operation(dp, now, slot, started, (&private_data, holdoff), fault);
            }
            Reply::Rejected { private_data, peer_reads } => {
                self.on_rejected(dp, now, slot, &private_data, peer_reads);
            }
            Reply::Fault { may_fall_back } => self.on_bad_reply(dp, now, slot, may_fall_back),
        }
    }

    /// RFC 5044 s8, code 4: closes at once.
    #[cold]
    fn on_bad_reply(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, may_fall_back: bool) {
        dp.stats.count(Counter::IwarpStartupErrors);
        let reason = ConnectFailure::Protocol;
        if may_fall_back {
            self.on_setup_disconnected(dp, now, slot, reason);
        } else {
            self.fail_connect(dp, now, slot, reason);
        }
    }

    /// The connection ended before start-up.
    #[cold]
    pub(crate) fn on_setup_disconnected(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        reason: ConnectFailure,
    ) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let on_enhanced = matches!(&qp.lifecycle,
            Lifecycle::Setup(Setup::Requesting { initiator, target })
                if L::may_fall_back(initiator) && target.cm_params.sent_frame_bytes().is_some());
        let closed = matches!(reason, ConnectFailure::Closed | ConnectFailure::Protocol);
        if on_enhanced && closed && self.mpa.revision_fallback {
            self.retry_with_revision_1(dp, now, slot);
        } else {
            self.fail_connect(dp, now, slot, reason);
        }
    }

    /// RFC 6581 s10: to a peer without enhanced set-up our request was improperly formatted, and it
    /// closed TCP. A new connection asks in revision 1.
    fn retry_with_revision_1(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        dp.abort_conn(now, slot);
        let Some(qp) = dp.qps.at(slot) else { return };
        dp.stats.count(Counter::IwarpRevisionFallbacks);
        qp.lifecycle.advance_setup(Setup::with_revision_1);
        self.begin_resolving(dp, now, slot);
    }

    /// Enters full operation. After a fault a Terminate is the first and last FPDU.
    fn enter_full_operation(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        started: Started<L::Framing>,
        (private_data, holdoff): (&[u8], Nanos),
        fault: Option<Terminate>,
    ) {
        let Started { start, negotiated, framing } = started;
        let awaits = start.role == Role::Responder && !start.rtr_awaited.is_empty();
        let role = start.role;
        if framing.markers != Markers::default() {
            self.stats.count(Counter::IwarpStreamsWithMarkers);
        }
        if negotiated.peer_reads.is_some() {
            self.stats.count(Counter::IwarpEnhancedStartups);
        }
        let Some(qp) = dp.qps.at(slot) else { return };
        qp.stream.start(start);
        if let Some(conn) = qp.conn.filter(|_| L::places_out_of_order(&qp.stream)) {
            dp.llp.report_out_of_order(conn);
        }
        qp.shared.set_negotiated(negotiated, framing);
        let setup = qp.enter(match awaits {
            true => Lifecycle::AwaitingRtr,
            false => Lifecycle::Running(Running { holdoff_until: now + holdoff, ..Running::default() }),
        });
        let context = qp.context;
        // The peer may know tags from the private data: they are bound before its first message is
        // read.
        let (stream, mut io) = qp.stream_io(&mut dp.queues, &dp.mem, &dp.stats);
        stream.run_local_requests(&mut io);
        if let Lifecycle::Setup(setup) = setup {
            self.return_params(context, slot, setup.into_params());
        }
        // Without its RTR the initiator is as silent as one that sends no request, so the same
        // timeout holds.
        let silence = match role {
            Role::Responder if awaits => self.mpa.startup_timeout(),
            Role::Responder => self.user_timeout_of(dp, slot),
            Role::Initiator => Nanos::MAX,
        };
        self.arm_qp(slot, now + silence);
        if let Some(fault) = fault {
            return self.terminate_at_start(dp, now, slot, fault);
        }
        if !awaits {
            self.report_established(dp, slot, private_data);
        }
        if holdoff > Nanos::ZERO {
            self.arm_qp(slot, now + holdoff);
        } else {
            dp.enqueue_tx(slot);
        }
    }

    /// Reports to the context that the connection is up.
    fn report_established(&mut self, dp: &mut DataPath<L>, slot: u32, private_data: &[u8]) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let Some(negotiated) = qp.shared.negotiated() else { return };
        let Some(flow) = qp.conn.and_then(|conn| dp.llp.flow(conn)) else { return };
        let (local, remote) = (flow.local, flow.remote);
        let event = Notification::Established { qp: qp.handle, local, remote, negotiated };
        let context = qp.context;
        dp.stats.count(Counter::VerbsConnectionsEstablished);
        self.send_private_data(context, private_data);
        self.send_event(context, event);
    }

    /// RFC 6581 s5: the initiator's first FPDU arrived, so the connection is up.
    #[cold]
    pub(crate) fn on_rtr(&mut self, dp: &mut DataPath<L>, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        if !qp.lifecycle.on_rtr_after_disconnect() {
            qp.enter(Lifecycle::Running(Running::default()));
            self.arm_qp(slot, Nanos::MAX);
        }
        self.report_established(dp, slot, &[]);
    }

    /// RFC 6581 s9.1, s9.2: the responder accepted terms that this side cannot meet. A Terminate
    /// says why.
    #[cold]
    fn terminate_at_start(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, fault: Terminate) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let (stream, mut io) = qp.stream_io(&mut dp.queues, &dp.mem, &dp.stats);
        stream.terminate(fault, &mut io);
        if let Some(end) = stream.error() {
            self.on_stream_end(dp, now, slot, end);
        }
    }

    /// Puts the parameters of a set-up that has ended into the queue pair's place. The context
    /// frees them with the event of that end, or with the half of the queue pair.
    pub(super) fn return_params(&mut self, context: u16, slot: u32, params: Box<CmParams>) {
        if let Some(handover) = self.handover(context) {
            handover.cm_params.put(slot, params);
        }
    }

    /// The peer rejected. RFC 5044 s7.1.2 leaves the TCP connection open; this side closes it.
    fn on_rejected(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        private_data: &[u8],
        peer_reads: Option<ReadDepths>,
    ) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let event = Notification::Rejected { qp: qp.handle, peer_reads };
        let (context, conn) = (qp.context, qp.conn.take());
        if let Lifecycle::Setup(setup) = qp.enter(Lifecycle::Ended) {
            self.return_params(context, slot, setup.into_params());
        }
        if let Some(conn) = conn {
            self.close_unowned(dp, now, conn);
        }
        self.arm_qp(slot, Nanos::MAX);
        dp.abort_stream(slot);
        self.send_private_data(context, private_data);
        self.send_event(context, event);
    }

    /// After a scheduling round: start-up ends when the transport has pulled the whole reply.
    pub(crate) fn complete_accept(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let Lifecycle::Setup(Setup::Replying { params, agreed }) = &qp.lifecycle else { return };
        let Some(frame_bytes) = params.sent_frame_bytes() else { return };
        let started = L::started(agreed, frame_bytes);
        let conn = qp.conn;
        self.enter_full_operation(dp, now, slot, started, (&[], Nanos::ZERO), None);
        if let Some(conn) = conn {
            self.on_readable(dp, now, slot, conn);
        }
    }
}
