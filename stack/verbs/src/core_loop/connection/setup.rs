//! Connection set-up of queue pairs, up to the TCP connection: the route, a port, the handshake.
//!
//! The states and their edges are in [`lifecycle`](crate::core_loop::lifecycle). Set-up in any
//! state can fail: no route, refused, timed out, closed, a start-up frame that breaks the protocol,
//! a reject. The context gets an event with the reason. The steps after the TCP connection are in
//! [`super::startup`].

use core::net::SocketAddr;

use super::ConnectionManager;
use crate::core_loop::data_path::{ConnOwner, DataPath};
use crate::core_loop::lifecycle::Lifecycle;
use crate::core_loop::lower::Lower;
use ironwarp_llp::{ConnId, ConnectError, Transport, UnitSource};
use ironwarp_net::Route;
use ironwarp_types::{Flow, Nanos};

use crate::event::ConnectFailure;
use crate::objects::CmParams;

/// The states of set-up. The parameters hold the frame that is being sent.
pub(crate) enum Setup<L: Lower> {
    /// Waits for the route: the link address of the peer or of the gateway.
    Resolving { target: ConnectTarget },
    /// The transport connects.
    Opening { target: ConnectTarget },
    /// The request is being sent, or the reply is awaited.
    Requesting { initiator: L::Initiator, target: ConnectTarget },
    /// The reply that accepts is being sent. The stream starts when the transport has pulled all of
    /// it.
    Replying { params: Box<CmParams>, agreed: L::Agreed },
}

/// The peer and the parameters of a connection. Kept until the reply arrives, since a second
/// attempt may be necessary.
pub(crate) struct ConnectTarget {
    pub(super) remote: SocketAddr,
    pub(super) cm_params: Box<CmParams>,
}

impl ConnectTarget {
    #[cfg(test)]
    pub(crate) fn new(remote: SocketAddr, cm_params: Box<CmParams>) -> Self {
        ConnectTarget { remote, cm_params }
    }

    #[cfg(test)]
    pub(crate) fn revision(&self) -> u8 {
        self.cm_params.mpa_params.revision
    }
}

impl<L: Lower> Setup<L> {
    /// The route is known: TCP connects.
    pub(crate) fn open(self) -> Self {
        match self {
            Setup::Resolving { target } => Setup::Opening { target },
            other => other,
        }
    }

    /// The transport is connected: the request is sent.
    pub(crate) fn request(self, initiator: L::Initiator) -> Self {
        match self {
            Setup::Opening { target } => Setup::Requesting { initiator, target },
            other => other,
        }
    }

    /// RFC 6581 s10: the peer closed on an enhanced request; the next attempt is simpler: revision
    /// 1.
    pub(crate) fn with_revision_1(self) -> Self {
        match self {
            Setup::Requesting { target: ConnectTarget { remote, mut cm_params }, .. } => {
                cm_params.mpa_params.revision = 1;
                Setup::Resolving { target: ConnectTarget { remote, cm_params } }
            }
            other => other,
        }
    }

    /// The parameters of the attempt, which are no longer needed.
    pub(super) fn into_params(self) -> Box<CmParams> {
        match self {
            Setup::Resolving { target } | Setup::Opening { target } | Setup::Requesting { target, .. } => {
                target.cm_params
            }
            Setup::Replying { params, .. } => params,
        }
    }
}

impl<L: Lower> UnitSource for Setup<L> {
    fn fill(&mut self, room: &mut [u8]) -> usize {
        match self {
            Setup::Requesting { target: ConnectTarget { cm_params: params, .. }, .. }
            | Setup::Replying { params, .. } => params.frame().map_or(0, |frame| frame.fill(room)),
            Setup::Resolving { .. } | Setup::Opening { .. } => 0,
        }
    }
}

impl<L: Lower> ConnectionManager<L> {
    /// The application connects an idle queue pair.
    pub(crate) fn connect(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        remote: SocketAddr,
        cm_params: Box<CmParams>,
    ) {
        self.begin_connect(dp, now, slot, ConnectTarget { remote, cm_params });
    }

    /// Begins an attempt.
    pub(super) fn begin_connect(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        slot: u32,
        target: ConnectTarget,
    ) {
        let Some(qp) = dp.qps.at(slot) else { return };
        // An IPv4-mapped address (RFC 4291 s2.5.5.2) means the IPv4 peer.
        let remote = SocketAddr::new(target.remote.ip().to_canonical(), target.remote.port());
        qp.enter(Lifecycle::Setup(Setup::Resolving { target: ConnectTarget { remote, ..target } }));
        self.begin_resolving(dp, now, slot);
    }

    /// Resolves the route to the peer, now or when the network layer learns it.
    pub(super) fn begin_resolving(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        self.arm_qp(slot, now + self.mpa.startup_timeout());
        self.resolving.push(slot);
        self.resolve(dp, now, slot);
    }

    /// Tries again for every queue pair that waits for a route.
    pub(crate) fn retry_resolving(&mut self, dp: &mut DataPath<L>, now: Nanos) {
        if self.resolving.is_empty() {
            return;
        }
        let mut index = self.resolving.len();
        while index > 0 {
            index -= 1;
            if let Some(slot) = self.resolving.get(index).copied() {
                self.resolve(dp, now, slot);
            }
        }
    }

    /// Opens the TCP connection if the route is known.
    fn resolve(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32) {
        let Some(qp) = dp.qps.at(slot) else { return };
        let Lifecycle::Setup(Setup::Resolving { target }) = &qp.lifecycle else { return };
        let (remote, source) = (target.remote, target.cm_params.source);
        let protocol = target.cm_params.mpa_params.transport.protocol();
        let source_addr = source.map(|source| source.ip()).filter(|addr| !addr.is_unspecified());
        if source_addr.is_some_and(|addr| !dp.is_local(addr)) {
            return self.fail_resolving(dp, now, slot, ConnectFailure::SourceNotAvailable);
        }
        let path_to_peer = match dp.route(now, source_addr, remote.ip()) {
            Route::Ready(path_to_peer) => path_to_peer,
            Route::Pending => return,
            Route::Unreachable => return self.fail_resolving(dp, now, slot, ConnectFailure::Unreachable),
        };
        let local = SocketAddr::new(path_to_peer.local_addr(), source.map_or(0, |source| source.port()));
        let (steering, core) = (dp.steering, self.core);
        // The context selected the core of a requested port.
        let is_own = |flow: &Flow, hash| steering.is_none_or(|steering| steering.core_of(flow, hash) == core);
        let ends = Flow { local, remote };
        match dp.llp.connect_over(protocol, now, ends, path_to_peer, is_own, &mut dp.wires) {
            Ok(conn) => self.enter_opening(dp, slot, conn),
            Err(ConnectError::InUse | ConnectError::OtherCore) => {
                self.fail_resolving(dp, now, slot, ConnectFailure::SourceNotAvailable)
            }
            Err(_) => self.fail_resolving(dp, now, slot, ConnectFailure::NoResources),
        }
    }

    /// Attaches a connection to a queue pair.
    pub(super) fn attach_conn(&mut self, dp: &mut DataPath<L>, slot: u32, conn: ConnId) {
        dp.set_owner(conn, ConnOwner::Qp(slot));
        if let Some(qp) = dp.qps.at(slot) {
            qp.conn = Some(conn);
            dp.llp.set_timeouts(conn, qp.timeouts(self.timeouts));
        }
    }

    fn enter_opening(&mut self, dp: &mut DataPath<L>, slot: u32, conn: ConnId) {
        self.resolving.retain(|waiting| *waiting != slot);
        self.attach_conn(dp, slot, conn);
        if let Some(qp) = dp.qps.at(slot) {
            qp.lifecycle.advance_setup(Setup::open);
        }
    }

    fn fail_resolving(&mut self, dp: &mut DataPath<L>, now: Nanos, slot: u32, reason: ConnectFailure) {
        self.fail_connect(dp, now, slot, reason);
    }
}
