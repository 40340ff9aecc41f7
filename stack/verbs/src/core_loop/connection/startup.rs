//! The MPA start-up of a queue pair's connection (RFC 5044 s7.1, RFC 6581): request, reply, full operation.
//!
//! The initiator may have to repeat the request with revision 1. It may also have to end an accepted connection whose
//! terms it cannot meet: its first FPDU is then a Terminate (RFC 6581 s9). The responder of a peer-to-peer connection
//! reports the connection after the initiator's first FPDU. A fault in a frame closes TCP without a Terminate (RFC
//! 5044 s8, code 4).

use super::ConnectionManager;
use super::setup::Setup;
use crate::config::MpaConfig;
use crate::core_loop::data_path::DataPath;
use crate::core_loop::lifecycle::{Lifecycle, Running};
use crate::core_loop::lower::Lower;
use ironwarp_iwarp::mpa::MpaFault;
use ironwarp_iwarp::mpa::startup::initiator::Progress;
use ironwarp_iwarp::mpa::startup::{
    Enhanced, Initiator, Markers, Negotiated, Proposal, READS_UNNEGOTIATED, ReadDepths, RtrKinds,
    StartupFault,
};
use ironwarp_iwarp::{Role, StreamStart};
use ironwarp_llp::{ConnId, Transport};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::core_loop::channel::Notification;
use crate::event::{ConnectFailure, Event, NegotiatedParams, PrivateData};
use crate::objects::{CmParams, Framing, MpaParams};

/// Boxes that a core keeps for received private data.
const SPARE_PARAMS_MAX: usize = 64;
/// Boxes that it has at the start.
const SPARE_PARAMS: usize = 16;

/// Returns the boxes that a core has at the start.
#[expect(clippy::vec_box, reason = "contexts send boxes and get boxes")]
pub(super) fn spare_params() -> Vec<Box<CmParams>> {
    let mut spare = Vec::with_capacity(SPARE_PARAMS_MAX);
    spare.resize_with(SPARE_PARAMS, Box::default);
    spare
}

/// A completed start-up.
struct CompletedStartup {
    start: StreamStart,
    negotiated: NegotiatedParams,
    private_data: PrivateData,
    /// The delay of the initiator's first FPDU.
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

impl ConnectionManager {
    /// TCP is connected: sends the Request Frame.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_tcp_established<L: Lower>(&mut self, dp: &mut DataPath<L>, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let reads = qp.reads();
        let Lifecycle::Setup(Setup::Opening { target }) = &mut qp.lifecycle else { return };
        let params = &mut *target.cm_params;
        let proposal = proposal(&self.mpa, &params.mpa_params, reads);
        // The context checked the length of the private data, so this cannot fail.
        if let Ok((initiator, frame)) = Initiator::start(proposal, params.private_data()) {
            params.set_frame(frame);
            qp.lifecycle.advance_setup(|setup| setup.request(initiator));
        }
        dp.enqueue_tx(slot);
    }

    /// Bytes arrived during start-up.
    pub(crate) fn on_startup_bytes<L: Lower>(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        conn: ConnId,
    ) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let (initiator, params) = match &qp.lifecycle {
            Lifecycle::Setup(Setup::Requesting { initiator, target }) => (initiator, &*target.cm_params),
            Lifecycle::Setup(Setup::Replying { .. }) => {
                return self.on_bad_reply(dp, now, slot, StartupFault::TrailingBytes);
            }
            _ => return,
        };
        // Bytes that arrive before our request is sent are no reply. They stay until the next event.
        let Some(frame_bytes) = params.sent_frame_bytes() else { return };
        let holdoff = params.mpa_params.holdoff.unwrap_or(self.mpa.first_fpdu_holdoff());
        let progress = initiator.on_bytes(&mut dp.llp.rx(conn));
        match progress {
            Progress::NeedMore => {}
            Progress::Accepted { private_data, agreed, fault } => {
                let started = CompletedStartup::new(Role::Initiator, &agreed, frame_bytes);
                let private_data = self.boxed_private_data(&private_data);
                self.enter_full_operation(
                    dp,
                    now,
                    slot,
                    CompletedStartup { private_data, holdoff, ..started },
                    fault,
                );
            }
            Progress::Rejected { private_data, peer_reads } => {
                let private_data = self.boxed_private_data(&private_data);
                self.on_rejected(dp, now, slot, private_data, peer_reads);
            }
            Progress::Fault(fault) => self.on_bad_reply(dp, now, slot, fault),
        }
    }

    /// RFC 5044 s8, code 4: closes at once. A peer that replies to an enhanced request without enhanced data does not
    /// support revision 2.
    #[cold]
    fn on_bad_reply<L: Lower>(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, fault: StartupFault) {
        dp.stats.count(fault.counter());
        let reason = ConnectFailure::Protocol;
        if fault == StartupFault::NotEnhanced {
            self.on_setup_disconnected(dp, now, slot, reason);
        } else {
            self.fail_connect(dp, now, slot, reason);
        }
    }

    /// The connection ended before start-up.
    #[cold]
    pub(crate) fn on_setup_disconnected<L: Lower>(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        reason: ConnectFailure,
    ) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let on_enhanced = matches!(&qp.lifecycle,
            Lifecycle::Setup(Setup::Requesting { initiator, target })
                if initiator.is_enhanced() && target.cm_params.sent_frame_bytes().is_some());
        let closed = matches!(reason, ConnectFailure::Closed | ConnectFailure::Protocol);
        if on_enhanced && closed && self.mpa.revision_fallback {
            self.retry_with_revision_1(dp, now, slot);
        } else {
            self.fail_connect(dp, now, slot, reason);
        }
    }

    /// RFC 6581 s10: to a peer without enhanced set-up our request was improperly formatted, and it closed TCP. A new
    /// connection asks in revision 1.
    fn retry_with_revision_1<L: Lower>(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        dp.abort_conn(now, slot);
        let Some(qp) = dp.qps.at(slot) else { return };
        dp.stats.count(Counter::IwarpRevisionFallbacks);
        qp.lifecycle.advance_setup(Setup::with_revision_1);
        self.begin_resolving(dp, now, slot);
    }

    /// Enters full operation. After a fault a Terminate is the first and last FPDU.
    fn enter_full_operation<L: Lower>(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        started: CompletedStartup,
        fault: Option<MpaFault>,
    ) {
        let CompletedStartup { start, negotiated, private_data, holdoff } = started;
        self.count_start(&start, &negotiated);
        let Some(qp) = dp.qps.at(slot) else { return };
        qp.stream.start(start);
        if let Some(conn) = qp.conn.filter(|_| qp.stream.places_out_of_order()) {
            dp.llp.report_out_of_order(conn);
        }
        qp.shared.set_negotiated(
            negotiated,
            Framing { crc: start.framing.crc(), markers: start.framing.markers() },
        );
        let holdoff = if start.role == Role::Initiator { holdoff } else { Nanos::ZERO };
        let awaits = start.role == Role::Responder && !start.rtr_awaited.is_empty();
        let setup = qp.enter(match awaits {
            true => Lifecycle::AwaitingRtr,
            false => Lifecycle::Running(Running { holdoff_until: now + holdoff, ..Running::default() }),
        });
        let context = qp.context;
        // The peer may know tags from the private data: they are bound before its first message is read.
        let (stream, mut io) = qp.stream_io(&mut dp.queues, &dp.mem, &dp.stats);
        stream.run_local_requests(&mut io);
        if let Lifecycle::Setup(setup) = setup {
            self.return_setup(context, setup);
        }
        // Without its RTR the initiator is as silent as one that sends no request, so the same timeout holds.
        let silence = match start.role {
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

    fn count_start(&self, start: &StreamStart, negotiated: &NegotiatedParams) {
        if start.framing.markers() != Markers::default() {
            self.stats.count(Counter::IwarpStreamsWithMarkers);
        }
        if negotiated.peer_reads.is_some() {
            self.stats.count(Counter::IwarpEnhancedStartups);
        }
    }

    /// Reports to the context that the connection is up.
    fn report_established<L: Lower>(&mut self, dp: &mut DataPath<L>, slot: u32, private_data: PrivateData) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let Some(negotiated) = qp.shared.negotiated() else { return };
        let Some(flow) = qp.conn.and_then(|conn| dp.llp.flow(conn)) else { return };
        let (local, remote) = (flow.local, flow.remote);
        let event = Event::Established { qp: qp.handle, local, remote, private_data, negotiated };
        let context = qp.context;
        dp.stats.count(Counter::VerbsConnectionsEstablished);
        self.send_event(context, event);
    }

    /// RFC 6581 s5: the initiator's first FPDU arrived, so the connection is up.
    #[cold]
    pub(crate) fn on_rtr<L: Lower>(&mut self, dp: &mut DataPath<L>, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        if !qp.lifecycle.on_rtr_after_disconnect() {
            qp.enter(Lifecycle::Running(Running::default()));
            self.arm_qp(slot, Nanos::MAX);
        }
        self.report_established(dp, slot, PrivateData::new());
    }

    /// RFC 6581 s9.1, s9.2: the responder accepted terms that this side cannot meet. A Terminate says why.
    #[cold]
    fn terminate_at_start<L: Lower>(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, fault: MpaFault) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let (stream, mut io) = qp.stream_io(&mut dp.queues, &dp.mem, &dp.stats);
        stream.terminate(fault.into(), &mut io);
        if let Some(end) = stream.error() {
            self.on_stream_end(dp, now, slot, end);
        }
    }

    /// Returns what a set-up no longer needs.
    pub(super) fn return_setup(&mut self, context: u16, setup: Setup) {
        self.return_params(context, setup.into_params());
    }

    /// Keeps a box as a spare, or returns it to the context to be freed.
    pub(super) fn return_params(&mut self, context: u16, params: Box<CmParams>) {
        if self.spare_params.len() < SPARE_PARAMS_MAX {
            self.spare_params.push(params);
        } else {
            self.send_notification(context, Notification::CmParamsReturned(params));
        }
    }

    /// Copies received private data for the context. Allocates only if no spare is left: more peers wait for a decision,
    /// or left without one, than contexts sent boxes.
    pub(super) fn boxed_private_data(&mut self, received: &[u8]) -> PrivateData {
        if received.is_empty() {
            return PrivateData::new();
        }
        let mut params = self.spare_params.pop().unwrap_or_default();
        params.set_private_data(received);
        PrivateData::in_params(params)
    }

    /// The peer rejected. RFC 5044 s7.1.2 leaves the TCP connection open; this side closes it.
    fn on_rejected<L: Lower>(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        private_data: PrivateData,
        peer_reads: Option<ReadDepths>,
    ) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let event = Event::Rejected { qp: qp.handle, private_data, peer_reads };
        let (context, conn) = (qp.context, qp.conn.take());
        if let Lifecycle::Setup(setup) = qp.enter(Lifecycle::Ended) {
            self.return_setup(context, setup);
        }
        if let Some(conn) = conn {
            self.close_unowned(dp, now, conn);
        }
        self.arm_qp(slot, Nanos::MAX);
        dp.abort_stream(slot);
        self.send_event(context, event);
    }

    /// After a scheduling round: start-up ends when TCP has pulled the whole reply.
    pub(crate) fn complete_accept<L: Lower>(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let Lifecycle::Setup(Setup::Replying { params, agreed }) = &qp.lifecycle else { return };
        let Some(frame_bytes) = params.sent_frame_bytes() else { return };
        let started = CompletedStartup::new(Role::Responder, agreed, frame_bytes);
        let conn = qp.conn;
        self.enter_full_operation(dp, now, slot, started, None);
        if let Some(conn) = conn {
            self.on_readable(dp, now, slot, conn);
        }
    }
}

/// The terms of a request: the application's, else those of the configuration and of the queue pair.
fn proposal(mpa: &MpaConfig, mpa_params: &MpaParams, limits: ReadDepths) -> Proposal {
    let offer = mpa_params.reads.unwrap_or(limits);
    // A depth that is not negotiated stays that of the queue pair.
    let own = |offer, limits| if offer == READS_UNNEGOTIATED { limits } else { offer };
    let reads = ReadDepths { ird: own(offer.ird, limits.ird), ord: own(offer.ord, limits.ord) };
    let peer_to_peer = mpa_params.peer_to_peer.unwrap_or(mpa.peer_to_peer);
    let rtr = if peer_to_peer { mpa_params.rtr.unwrap_or(mpa.rtr()) } else { RtrKinds::empty() };
    let enhanced = (mpa_params.revision > 1).then_some(Enhanced { peer_to_peer, rtr, reads: offer });
    Proposal { crc: mpa.crc, markers: mpa.markers, enhanced, reads, ird_max: limits.ird }
}
