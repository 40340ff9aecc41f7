//! The MPA start-up of a queue pair's connection (RFC 5044 s7.1, RFC 6581): request, reply, full operation.
//!
//! The initiator may have to begin again with revision 1, or to end what was accepted on terms that it cannot keep: then
//! its first FPDU is a Terminate (RFC 6581 s9). The responder of a peer-to-peer connection tells its context that it is
//! up when the initiator's first FPDU has come. A fault in a frame closes TCP without a word (RFC 5044 s8, code 4).

use super::setup::{ConnectTarget, Setup};
use super::*;
use crate::core_loop::qp::Phase;
use ironwarp_iwarp::mpa::MpaFault;
use ironwarp_iwarp::mpa::startup::initiator::Progress;
use ironwarp_iwarp::mpa::startup::{
    Enhanced, Initiator, Negotiated, Proposal, READS_UNNEGOTIATED, ReadDepths, RtrKinds, StartupFault,
    StartupFrameSource,
};
use ironwarp_iwarp::{Role, StreamStart};

use crate::channel::Notification;
use crate::context::{Framing, MpaParams};
use crate::event::{ConnectFailure, Event, NegotiatedParams, PrivateData};

/// A start-up that has come to its end.
struct CompletedStartup {
    start: StreamStart,
    negotiated: NegotiatedParams,
    private_data: PrivateData,
    /// What the initiator waits before its first FPDU.
    holdoff: Nanos,
}

impl CompletedStartup {
    fn new(role: Role, agreed: &Negotiated, startup_bytes_sent: usize) -> Self {
        let Negotiated { revision, peer_reads, reads, .. } = *agreed;
        CompletedStartup {
            start: StreamStart::agreed(role, agreed, startup_bytes_sent as u64),
            negotiated: NegotiatedParams { revision, peer_reads, reads },
            private_data: PrivateData::new(),
            holdoff: Nanos::ZERO,
        }
    }
}

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// TCP is up: the request goes out.
    #[cold]
    #[inline(never)]
    pub(in crate::core_loop) fn on_tcp_established(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        let Phase::Setup(Setup::Opening { target }) = &qp.phase else { return };
        let proposal = proposal(&self.mpa, &target.cm_params.mpa_params, qp.reads);
        // The private data was measured when it was handed in, so this cannot fail.
        let request = Initiator::start(proposal, &target.cm_params.private_data);
        let phase = core::mem::replace(&mut qp.phase, Phase::Idle);
        if let (Ok((initiator, frame)), Phase::Setup(Setup::Opening { target })) = (request, phase) {
            qp.enter(Phase::Setup(Setup::Requesting {
                initiator,
                frame: StartupFrameSource::new(frame),
                target,
            }));
        }
        self.enqueue_tx(TxSource::Qp(slot));
    }

    /// Bytes arrived during start-up.
    pub(in crate::core_loop) fn on_startup_bytes(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        let Some(qp) = self.qps.at(slot) else { return };
        let (initiator, frame, target) = match &qp.phase {
            Phase::Setup(Setup::Requesting { initiator, frame, target }) => (initiator, frame, target),
            Phase::Setup(Setup::Replying { .. }) => {
                return self.on_bad_reply(now, slot, StartupFault::TrailingBytes);
            }
            _ => return,
        };
        // Bytes before our request is out are no reply. Those of a peer that sends them anyway wait for its next.
        if !frame.is_done() {
            return;
        }
        let holdoff = target.cm_params.mpa_params.holdoff.unwrap_or(self.mpa.first_fpdu_holdoff());
        match initiator.on_bytes(&mut self.tcp.rx(conn)) {
            Progress::NeedMore => {}
            Progress::Accepted { private_data, agreed, fault } => {
                let started = CompletedStartup::new(Role::Initiator, &agreed, frame.frame_bytes());
                self.enter_full_operation(
                    now,
                    slot,
                    CompletedStartup { private_data, holdoff, ..started },
                    fault,
                );
            }
            Progress::Rejected { private_data, peer_reads } => {
                self.on_rejected(now, slot, private_data, peer_reads);
            }
            Progress::Fault(fault) => self.on_bad_reply(now, slot, fault),
        }
    }

    /// RFC 5044 s8, code 4: close at once. A peer that answers an enhanced request as if it were none does not speak
    /// revision 2.
    #[cold]
    fn on_bad_reply(&mut self, now: Nanos, slot: u32, fault: StartupFault) {
        self.stats.count(fault.counter());
        let reason = ConnectFailure::Protocol;
        if fault == StartupFault::NotEnhanced {
            self.on_setup_disconnected(now, slot, reason);
        } else {
            self.fail_connect(now, slot, reason);
        }
    }

    /// The connection came to its end before start-up did.
    #[cold]
    pub(in crate::core_loop) fn on_setup_disconnected(
        &mut self,
        now: Nanos,
        slot: u32,
        reason: ConnectFailure,
    ) {
        let Some(qp) = self.qps.at(slot) else { return };
        let on_enhanced = matches!(&qp.phase,
            Phase::Setup(Setup::Requesting { initiator, frame, .. }) if initiator.is_enhanced() && frame.is_done());
        let closed = matches!(reason, ConnectFailure::Closed | ConnectFailure::Protocol);
        if on_enhanced && closed && self.mpa.revision_fallback {
            self.retry_with_revision_1(now, slot);
        } else {
            self.fail_connect(now, slot, reason);
        }
    }

    /// RFC 6581 s10: to a peer without the enhanced set-up our request was improperly formatted, and it has closed TCP.
    /// A new connection asks in revision 1.
    fn retry_with_revision_1(&mut self, now: Nanos, slot: u32) {
        self.abort_conn(now, slot);
        let Some(qp) = self.qps.at(slot) else { return };
        let phase = core::mem::replace(&mut qp.phase, Phase::Idle);
        if let Phase::Setup(Setup::Requesting { target: ConnectTarget { remote, mut cm_params }, .. }) = phase
        {
            cm_params.mpa_params.revision = 1;
            self.stats.count(Counter::IwarpRevisionFallbacks);
            self.begin_connect(now, slot, ConnectTarget { remote, cm_params });
        }
    }

    /// Enters full operation; with a Terminate as its first and last FPDU where there is a fault.
    fn enter_full_operation(
        &mut self,
        now: Nanos,
        slot: u32,
        started: CompletedStartup,
        fault: Option<MpaFault>,
    ) {
        let CompletedStartup { start, negotiated, private_data, holdoff } = started;
        self.count_start(&start, &negotiated);
        let Some(qp) = self.qps.at(slot) else { return };
        qp.stream.start(start);
        if let Some(conn) = qp.conn.filter(|_| qp.stream.places_out_of_order()) {
            self.tcp.report_out_of_order(conn);
        }
        qp.shared.set_negotiated(negotiated, Framing { crc: start.crc, markers: start.markers });
        qp.rtr_awaited = start.role == Role::Responder && !start.rtr_awaited.is_empty();
        qp.awaits_first_message = start.role == Role::Responder;
        let (context, awaits) = (qp.context, qp.rtr_awaited);
        let phase = core::mem::replace(&mut qp.phase, Phase::Idle);
        qp.enter(Phase::Running);
        // The peer may know of tags from the private data: they are bound before its first message is looked at.
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        stream.run_local_requests(&mut io);
        if let Phase::Setup(setup) = phase {
            self.return_params(context, setup);
        }
        // Without its indication the initiator is as silent as one that sends no request.
        let silence = match start.role {
            Role::Responder if awaits => self.mpa.startup_timeout(),
            Role::Responder => self.user_timeout_of(slot),
            Role::Initiator => Nanos::MAX,
        };
        self.arm_qp(slot, now + silence);
        if let Some(fault) = fault {
            return self.terminate_at_start(now, slot, fault);
        }
        if !awaits {
            self.report_established(slot, private_data);
        }
        if start.role == Role::Initiator && holdoff > Nanos::ZERO {
            self.hold_off_sends(now, slot, holdoff);
        } else {
            self.enqueue_tx(TxSource::Qp(slot));
        }
    }

    fn count_start(&self, start: &StreamStart, negotiated: &NegotiatedParams) {
        if start.markers.sent || start.markers.received {
            self.stats.count(Counter::IwarpStreamsWithMarkers);
        }
        if negotiated.peer_reads.is_some() {
            self.stats.count(Counter::IwarpEnhancedStartups);
        }
    }

    /// Tells the context that its connection is up.
    fn report_established(&mut self, slot: u32, private_data: PrivateData) {
        let Some(qp) = self.qps.at(slot) else { return };
        let Some(negotiated) = qp.shared.negotiated() else { return };
        let (context, event) = (qp.context, Event::Established { qp: qp.handle, private_data, negotiated });
        self.stats.count(Counter::VerbsConnectionsEstablished);
        self.send_event(context, event);
    }

    /// The initiator of a peer-to-peer connection has sent: it is up.
    #[cold]
    pub(in crate::core_loop) fn on_rtr(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        if !qp.stream.may_send() {
            return;
        }
        qp.rtr_awaited = false;
        if matches!(qp.phase, Phase::Running) {
            qp.enter(Phase::Running);
            self.arm_qp(slot, Nanos::MAX);
        }
        self.report_established(slot, PrivateData::new());
    }

    /// RFC 6581 s9.1, s9.2: the responder accepted, we cannot. A Terminate says why.
    #[cold]
    fn terminate_at_start(&mut self, now: Nanos, slot: u32, fault: MpaFault) {
        let Some(qp) = self.qps.at(slot) else { return };
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        stream.terminate(fault.into(), &mut io);
        if let Some(end) = stream.error() {
            self.on_stream_end(now, slot, end);
        }
    }

    /// Gives back what a connection was begun with.
    pub(super) fn return_params(&mut self, context: u16, setup: Setup) {
        if let Some(target) = setup.into_connect_target() {
            self.send_notification(context, Notification::CmParamsReturned(target.cm_params));
        }
    }

    /// Keeps the initiator's first FPDU back, for responders that lose their own first message otherwise.
    fn hold_off_sends(&mut self, now: Nanos, slot: u32, holdoff: Nanos) {
        if let Some(qp) = self.qps.at(slot) {
            qp.holdoff_until = now + holdoff;
        }
        self.arm_qp(slot, now + holdoff);
    }

    /// The peer said no. RFC 5044 s7.1.2 leaves the TCP connection open; we close it.
    fn on_rejected(
        &mut self,
        now: Nanos,
        slot: u32,
        private_data: PrivateData,
        peer_reads: Option<ReadDepths>,
    ) {
        let Some(qp) = self.qps.at(slot) else { return };
        let event = Event::Rejected { qp: qp.handle, private_data, peer_reads };
        let (context, conn) = (qp.context, qp.conn.take());
        let phase = core::mem::replace(&mut qp.phase, Phase::Idle);
        qp.enter(Phase::Ended);
        if let Phase::Setup(setup) = phase {
            self.return_params(context, setup);
        }
        if let Some(conn) = conn {
            self.close_unowned(now, conn);
        }
        self.arm_qp(slot, Nanos::MAX);
        self.abort_stream(slot);
        self.send_event(context, event);
    }

    /// After a turn at sending: a reply that TCP has pulled whole ends the start-up.
    pub(in crate::core_loop) fn complete_accept(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        let Phase::Setup(Setup::Replying { frame, agreed }) = &qp.phase else { return };
        if !frame.is_done() {
            return;
        }
        let started = CompletedStartup::new(Role::Responder, agreed, frame.frame_bytes());
        let conn = qp.conn;
        self.enter_full_operation(now, slot, started, None);
        if let Some(conn) = conn {
            self.on_readable(now, slot, conn);
        }
    }
}

/// What a connection is begun with: what was asked for, else what the configuration and the queue pair say.
fn proposal(mpa: &MpaConfig, mpa_params: &MpaParams, limits: ReadDepths) -> Proposal {
    let offer = mpa_params.reads.unwrap_or(limits);
    // A number that is not negotiated stays what the queue pair was made for.
    let own = |offer, limits| if offer == READS_UNNEGOTIATED { limits } else { offer };
    let reads = ReadDepths { ird: own(offer.ird, limits.ird), ord: own(offer.ord, limits.ord) };
    let peer_to_peer = mpa_params.peer_to_peer.unwrap_or(mpa.peer_to_peer);
    let rtr = if peer_to_peer { mpa_params.rtr.unwrap_or(mpa.rtr()) } else { RtrKinds::empty() };
    let enhanced = (mpa_params.revision > 1).then_some(Enhanced { peer_to_peer, rtr, reads: offer });
    Proposal { crc: mpa.crc, markers: mpa.markers, enhanced, reads, ird_max: limits.ird }
}
