//! Connection set-up of queue pairs, up to the TCP connection: the link address, a port, the handshake.
//!
//! ```text
//! connect: Resolving --link address--> Opening --TCP up--> Requesting --reply accepts--> Running
//!              ^----------- revision 1, where the peer closed on revision 2 ----'
//! accept:  Replying --reply pulled by TCP--> Running, up once the initiator's indication has come
//! ```
//! Any of them ends in a failure that the context is told about: nobody answers, refused, timed out, closed, a
//! start-up frame that breaks the protocol, a peer that rejects. What comes behind TCP is in [`super::startup`].

use core::net::SocketAddr;

use super::*;
use crate::core_loop::qp::Phase;
use ironwarp_iwarp::mpa::startup::{Initiator, Negotiated, StartupFrameSource};
use ironwarp_net::Route;
use ironwarp_tcp::UnitSource;
use ironwarp_types::Flow;

use crate::context::CmParams;
use crate::event::ConnectFailure;

/// How far set-up has come.
pub(in crate::core_loop) enum Setup {
    /// The peer's link address, or the gateway's, is asked for.
    Resolving { target: ConnectTarget },
    /// TCP shakes hands.
    Opening { target: ConnectTarget },
    /// Our request is out, or on its way out; the reply is awaited.
    Requesting { initiator: Initiator, frame: StartupFrameSource, target: ConnectTarget },
    /// We accepted; the reply is on its way out. The stream starts when TCP has all of it.
    Replying { frame: StartupFrameSource, agreed: Negotiated },
}

/// Where a connection is to lead and what it is begun with. Kept until the reply is there, since the first attempt may
/// not be the last.
pub(in crate::core_loop) struct ConnectTarget {
    pub(super) remote: SocketAddr,
    pub(super) cm_params: Box<CmParams>,
}

impl Setup {
    /// What the connection was to be begun with, to be given back.
    pub(super) fn into_connect_target(self) -> Option<ConnectTarget> {
        match self {
            Setup::Resolving { target } | Setup::Opening { target } | Setup::Requesting { target, .. } => {
                Some(target)
            }
            Setup::Replying { .. } => None,
        }
    }
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
        cm_params: Box<CmParams>,
    ) {
        self.begin_connect(now, slot, ConnectTarget { remote, cm_params });
    }

    /// Begins an attempt.
    pub(super) fn begin_connect(&mut self, now: Nanos, slot: u32, target: ConnectTarget) {
        let Some(qp) = self.qps.at(slot) else { return };
        // An IPv4 peer in IPv6's notation is an IPv4 peer.
        let remote = SocketAddr::new(target.remote.ip().to_canonical(), target.remote.port());
        qp.enter(Phase::Setup(Setup::Resolving { target: ConnectTarget { remote, ..target } }));
        self.arm_qp(slot, now + self.mpa.startup_timeout());
        self.resolving.push(slot);
        self.resolve(now, slot);
    }

    /// Tries again for everyone who waits for a link address.
    pub(in crate::core_loop) fn retry_resolving(&mut self, now: Nanos) {
        if self.resolving.is_empty() || self.route_changes_seen == self.route_changes() {
            return;
        }
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
        let Phase::Setup(Setup::Resolving { target }) = &qp.phase else { return };
        let remote = target.remote;
        let path = match self.route(now, remote.ip()) {
            Route::Ready(path) => path,
            Route::Pending => return,
            Route::Unreachable => return self.fail_resolving(now, slot, ConnectFailure::Unreachable),
        };
        let address = path.local_addr();
        let (steering, core) = (self.steering, self.core);
        let is_own_flow =
            |flow: &Flow, hash| steering.is_none_or(|steering| steering.home(flow, hash) == core);
        let Some(port) = self.tcp.ephemeral_port_where(address, remote, is_own_flow) else {
            return self.fail_resolving(now, slot, ConnectFailure::NoResources);
        };
        let flow = Flow { local: SocketAddr::new(address, port), remote };
        match self.tcp.connect(now, flow, path, &mut self.wire) {
            Ok(conn) => self.enter_opening(slot, conn),
            Err(_) => self.fail_resolving(now, slot, ConnectFailure::NoResources),
        }
    }

    /// A connection becomes a queue pair's.
    pub(super) fn attach_conn(&mut self, slot: u32, conn: ConnId) {
        self.set_owner(conn, ConnOwner::Qp(slot));
        if let Some(qp) = self.qps.at(slot) {
            qp.conn = Some(conn);
            self.tcp.set_timeouts(conn, qp.timeouts.resolve(self.timeouts));
        }
    }

    fn enter_opening(&mut self, slot: u32, conn: ConnId) {
        self.resolving.retain(|waiting| *waiting != slot);
        self.attach_conn(slot, conn);
        let Some(qp) = self.qps.at(slot) else { return };
        if let Phase::Setup(Setup::Resolving { target }) = core::mem::replace(&mut qp.phase, Phase::Idle) {
            qp.enter(Phase::Setup(Setup::Opening { target }));
        }
    }

    fn fail_resolving(&mut self, now: Nanos, slot: u32, reason: ConnectFailure) {
        self.fail_connect(now, slot, reason);
    }
}
