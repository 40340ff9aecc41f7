//! Connection set-up of queue pairs: the link address, TCP, the MPA start-up (RFC 5044 s7.1).
//!
//! ```text
//! connect: Resolving --link address--> Opening --TCP up--> Requesting --reply accepts--> Running
//! accept:  Replying --reply pulled by TCP--> Running
//! ```
//! Any of them ends in a failure that the context is told about: nobody answers, refused, timed out, closed, a
//! start-up frame that breaks the protocol, a peer that rejects.

use core::net::SocketAddr;

use super::*;
use crate::core_loop::qp::Phase;
use ironwarp_iwarp::mpa::startup::{FrameSource, Initiator, initiator::Progress};
use ironwarp_iwarp::{Role, Start};
use ironwarp_net::Route;
use ironwarp_tcp::UnitSource;
use ironwarp_types::Flow;

use crate::event::{ConnectFailure, Event, PrivateData};
use crate::link::Notice;

/// How far set-up has come.
pub(in crate::core_loop) enum Setup {
    /// The peer's link address, or the gateway's, is asked for.
    Resolving { remote: SocketAddr, private_data: Box<PrivateData> },
    /// TCP shakes hands.
    Opening { private_data: Box<PrivateData> },
    /// Our request is out, or on its way out; the reply is awaited.
    Requesting { initiator: Initiator, frame: FrameSource },
    /// We accepted; the reply is on its way out. The stream starts when TCP has all of it.
    Replying { frame: FrameSource, crc: bool },
}

impl UnitSource for Setup {
    fn fill(&mut self, room: &mut [u8]) -> usize {
        match self {
            Setup::Requesting { frame, .. } | Setup::Replying { frame, .. } => frame.fill(room),
            Setup::Resolving { .. } | Setup::Opening { .. } => 0,
        }
    }
}

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// The application connects an idle queue pair.
    pub(in crate::core_loop) fn connect(
        &mut self,
        now: Nanos,
        slot: u32,
        remote: SocketAddr,
        private_data: Box<PrivateData>,
    ) {
        let Some(qp) = self.qps.at(slot) else { return };
        qp.enter(Phase::Setup(Setup::Resolving { remote, private_data }));
        self.arm_qp(slot, now + self.mpa.startup_timeout());
        self.resolving.push(slot);
        self.resolve(now, slot);
    }

    /// Tries again for everyone who waits for a link address.
    pub(in crate::core_loop) fn resolve_waiting(&mut self, now: Nanos) {
        if self.resolving.is_empty() || self.routes_seen == self.net.route_changes() {
            return;
        }
        self.routes_seen = self.net.route_changes();
        let mut index = self.resolving.len();
        while index > 0 {
            index -= 1;
            if let Some(slot) = self.resolving.get(index).copied() {
                self.resolve(now, slot);
            }
        }
    }

    /// Opens the TCP connection if the way to the peer is known.
    fn resolve(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        let Phase::Setup(Setup::Resolving { remote, .. }) = &qp.phase else { return };
        let remote = *remote;
        let path = match self.net.route(now, remote.ip(), &mut self.wire) {
            Route::Ready(path) => path,
            Route::Pending => return,
            Route::Unreachable => return self.stop_resolving(now, slot, ConnectFailure::Unreachable),
        };
        let address = self.net.station().addr.into();
        let Some(port) = self.tcp.ephemeral_port(address, remote) else {
            return self.stop_resolving(now, slot, ConnectFailure::NoResources);
        };
        let flow = Flow { local: SocketAddr::new(address, port), remote };
        match self.tcp.connect(now, flow, path, &mut self.wire) {
            Ok(conn) => self.opening(slot, conn),
            Err(_) => self.stop_resolving(now, slot, ConnectFailure::NoResources),
        }
    }

    fn opening(&mut self, slot: u32, conn: ConnId) {
        self.resolving.retain(|waiting| *waiting != slot);
        self.set_owner(conn, Owner::Qp(slot));
        let Some(qp) = self.qps.at(slot) else { return };
        qp.conn = Some(conn);
        if let Phase::Setup(Setup::Resolving { private_data, .. }) =
            core::mem::replace(&mut qp.phase, Phase::Idle)
        {
            qp.enter(Phase::Setup(Setup::Opening { private_data }));
        }
    }

    fn stop_resolving(&mut self, now: Nanos, slot: u32, reason: ConnectFailure) {
        self.give_up(now, slot, reason);
    }

    /// TCP is up: the request goes out.
    pub(in crate::core_loop) fn on_opened(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        if !matches!(qp.phase, Phase::Setup(Setup::Opening { .. })) {
            return;
        }
        let Phase::Setup(Setup::Opening { private_data }) = core::mem::replace(&mut qp.phase, Phase::Idle)
        else {
            return;
        };
        let context = qp.context;
        // A box holds no more private data than a frame carries, so this cannot fail.
        if let Ok((initiator, frame)) = Initiator::start(true, &private_data) {
            qp.enter(Phase::Setup(Setup::Requesting { initiator, frame: FrameSource::new(frame) }));
        }
        self.tell(context, Notice::Spent(private_data));
        self.make_ready(Sender::Qp(slot));
    }

    /// Bytes arrived during start-up.
    pub(in crate::core_loop) fn on_startup_bytes(&mut self, now: Nanos, slot: u32, conn: ConnId) {
        let Some(qp) = self.qps.at(slot) else { return };
        let Phase::Setup(Setup::Requesting { initiator, frame }) = &qp.phase else { return };
        // Bytes before our request is out are no reply. Those of a peer that sends them anyway wait for its next.
        if !frame.is_done() {
            return;
        }
        match initiator.on_bytes(&mut self.tcp.rx(conn)) {
            Progress::NeedMore => {}
            Progress::Accepted { private_data, crc } => {
                let sent_before = frame.frame_bytes() as u64;
                self.start(now, slot, Start { role: Role::Initiator, crc, sent_before }, private_data);
            }
            Progress::Rejected { private_data } => self.rejected(now, slot, private_data),
            Progress::Fault(fault) => {
                self.stats.count(fault.counter());
                self.give_up(now, slot, ConnectFailure::Protocol);
            }
        }
    }

    /// Enters full operation.
    fn start(&mut self, now: Nanos, slot: u32, start: Start, private_data: PrivateData) {
        let holdoff = self.mpa.first_fpdu_holdoff();
        let Some(qp) = self.qps.at(slot) else { return };
        qp.stream.start(start);
        qp.enter(Phase::Running);
        let (context, event) = (qp.context, Event::Established { qp: qp.handle, private_data });
        self.arm_qp(slot, Nanos::MAX);
        self.stats.count(Counter::VerbsConnectionsEstablished);
        self.tell_event(context, event);
        if start.role == Role::Initiator && holdoff > Nanos::ZERO {
            self.hold(now, slot, holdoff);
        } else {
            self.make_ready(Sender::Qp(slot));
        }
    }

    /// Keeps the initiator's first FPDU back, for responders that lose their own first message otherwise.
    fn hold(&mut self, now: Nanos, slot: u32, holdoff: Nanos) {
        if let Some(qp) = self.qps.at(slot) {
            qp.hold_until = now + holdoff;
        }
        self.arm_qp(slot, now + holdoff);
    }

    /// The peer said no. RFC 5044 s7.1.2 leaves the TCP connection open; we close it.
    fn rejected(&mut self, now: Nanos, slot: u32, private_data: PrivateData) {
        let Some(qp) = self.qps.at(slot) else { return };
        let (context, event, conn) =
            (qp.context, Event::Rejected { qp: qp.handle, private_data }, qp.conn.take());
        qp.enter(Phase::Ended);
        if let Some(conn) = conn {
            self.let_close(now, conn);
        }
        self.arm_qp(slot, Nanos::MAX);
        self.flush_all(slot);
        self.tell_event(context, event);
    }

    /// After a turn at sending: a reply that TCP has pulled whole ends the start-up.
    pub(in crate::core_loop) fn after_startup(&mut self, now: Nanos, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        let Phase::Setup(Setup::Replying { frame, crc }) = &qp.phase else { return };
        if !frame.is_done() {
            return;
        }
        let start = Start { role: Role::Responder, crc: *crc, sent_before: frame.frame_bytes() as u64 };
        let conn = qp.conn;
        self.start(now, slot, start, PrivateData::new());
        if let Some(conn) = conn {
            self.on_readable(now, slot, conn);
        }
    }
}
