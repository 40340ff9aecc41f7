//! Listen, connect, accept, reject, disconnect.
//!
//! Each call starts the operation; the result arrives as an [`Event`](crate::Event).

use core::borrow::Borrow;
use core::net::SocketAddr;
use std::time::Instant;

use ironwarp_mem::Access;
use ironwarp_types::Flow;

use super::Context;
use crate::config::TransportKind;
use crate::core_loop::LEADER;
use crate::core_loop::channel::{ControlMessage, CoreChannel, FirstStep, Handover, Notification};
use crate::error::VerbsError;
use crate::event::{ConnectFailure, ConnectionRequest};
use crate::objects::{
    AcceptParams, ConnectParams, ListenParams, MpaRevision, QpState, QueuePair, RejectParams,
};
use crate::shared::ListenAddress;

/// The progress of [`Context::drain`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DrainProgress {
    /// Queue pairs whose connections have not ended yet.
    pub open: usize,
    /// Queue pairs that this step destroyed, because the deadline has passed.
    pub aborted: usize,
}

impl Context {
    /// Listens on `local`, with the first transport of `stack.transport`, and returns the address
    /// with its port. Port 0 selects a port from 49152
    /// on that nobody in this stack listens on. Peers are reported by
    /// [`Event::ConnectRequest`](crate::Event::ConnectRequest), an address in use by
    /// [`Event::ListenFailed`](crate::Event::ListenFailed).
    ///
    /// # Errors
    ///
    /// - [`VerbsError::LimitReached`] if all of those ports are in use.
    /// - [`VerbsError::Busy`] if a core's control queue is full, [`VerbsError::WorkerDropped`] if a
    ///   worker was dropped.
    pub fn listen(&mut self, local: SocketAddr) -> Result<SocketAddr, VerbsError> {
        self.listen_with(local, &ListenParams::default())
    }

    /// As [`Context::listen`], with parameters.
    ///
    /// # Errors
    ///
    /// [`VerbsError::NoTransport`] if the stack does not have the transport; else as
    /// [`Context::listen`].
    pub fn listen_with(
        &mut self,
        local: SocketAddr,
        params: &ListenParams,
    ) -> Result<SocketAddr, VerbsError> {
        let transport = self.transport(params.transport)?;
        self.check_control_room(LEADER.into())?;
        let at = self.shared.listening.bind(self.number.get(), ListenAddress { transport, local });
        let at = at.ok_or(VerbsError::LimitReached("ports"))?;
        self.send_control(LEADER.into(), ControlMessage::Listen { at })?;
        Ok(at.local)
    }

    /// Stops listening on `local` with the first transport of `stack.transport`. Existing
    /// connections continue.
    ///
    /// # Errors
    ///
    /// [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn unlisten(&mut self, local: SocketAddr) -> Result<(), VerbsError> {
        self.unlisten_with(local, &ListenParams::default())
    }

    /// As [`Context::unlisten`], with the parameters of the listen.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::NoTransport`] if the stack does not have the transport.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn unlisten_with(&mut self, local: SocketAddr, params: &ListenParams) -> Result<(), VerbsError> {
        let at = ListenAddress { transport: self.transport(params.transport)?, local };
        // An address that this context does not listen on needs no message.
        match self.shared.listening.release(self.number.get(), at) {
            true => self.send_control(LEADER.into(), ControlMessage::Unlisten { at }),
            false => Ok(()),
        }
    }

    /// Returns the requested transport, if the stack has it, or the default.
    fn transport(&self, requested: Option<TransportKind>) -> Result<TransportKind, VerbsError> {
        let transports = self.shared.config.stack.transport;
        let transport = requested.unwrap_or(transports.first());
        if transports.has(transport) { Ok(transport) } else { Err(VerbsError::NoTransport(transport)) }
    }

    /// Connects an idle queue pair to `remote`. The peer's application gets `private_data`: at most
    /// 251 bytes with revision 2, 255 with revision 1; 508 and 512 with `mpa.long_private_data`.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    /// - [`VerbsError::WrongState`] if the state of the queue pair does not allow the call.
    /// - [`VerbsError::PrivateDataTooLong`] if the MPA frame cannot carry `private_data`.
    /// - [`VerbsError::LimitReached`] if the stack or this context has no free slot.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn connect(
        &mut self,
        qp: QueuePair,
        remote: SocketAddr,
        private_data: &[u8],
    ) -> Result<(), VerbsError> {
        self.connect_with(qp, remote, &ConnectParams { private_data, ..ConnectParams::default() })
    }

    /// As [`Context::connect`], with parameters.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    /// - [`VerbsError::WrongState`] if the state of the queue pair does not allow the call.
    /// - [`VerbsError::PrivateDataTooLong`] if the MPA frame cannot carry `private_data`.
    /// - [`VerbsError::OutOfRange`] if a setting is outside its range, or the requested core is not
    ///   that of the requested source.
    /// - [`VerbsError::NoTransport`] if the stack does not have the transport.
    /// - [`VerbsError::LimitReached`] if the stack or this context has no free slot.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn connect_with(
        &mut self,
        qp: QueuePair,
        remote: SocketAddr,
        params: &ConnectParams<'_>,
    ) -> Result<(), VerbsError> {
        let revision = params.revision.map_or(self.shared.config.mpa.revision, MpaRevision::number);
        let cm_params = params.cm_params(
            &self.shared.config.mpa,
            self.transport(params.transport)?,
            revision,
            self.reads_max(qp)?,
        )?;
        let core = self.select_core(qp, remote, params.canonical_source())?;
        self.start_qp(qp, core, params.extensions, (FirstStep::Connect { remote }, Some(cm_params)))
    }

    /// Returns the core of the flow from `source` to `remote`, if the port of `source` determines
    /// one.
    fn core_of_source(
        &self,
        remote: SocketAddr,
        source: Option<SocketAddr>,
    ) -> Result<Option<u16>, VerbsError> {
        let Some(local) = source.filter(|source| source.port() != 0 && self.cores.len() > 1) else {
            return Ok(None);
        };
        if local.ip().is_unspecified() {
            let (what, allowed) = ("source port", "with an address, on a stack of several cores");
            return Err(VerbsError::OutOfRange { what, value: local.port().into(), allowed });
        }
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        Ok(self.shared.core_of(&Flow { local, remote }))
    }

    /// Returns the core for a queue pair that connects: the one of the requested source port, the
    /// one of its attributes, else the one with the fewest queue pairs.
    fn select_core(
        &self,
        qp: QueuePair,
        remote: SocketAddr,
        source: Option<SocketAddr>,
    ) -> Result<u16, VerbsError> {
        let requested = self.requested_core(qp)?;
        if let Some(core) = self.core_of_source(remote, source)? {
            return match requested.filter(|requested| *requested != core) {
                Some(other) => Err(VerbsError::OutOfRange {
                    what: "core",
                    value: other.into(),
                    allowed: "the core of the source port",
                }),
                None => Ok(core),
            };
        }
        Ok(requested.unwrap_or_else(|| self.least_used_core()))
    }

    /// Returns the core with the fewest queue pairs.
    fn least_used_core(&self) -> u16 {
        let queue_pairs =
            |core: &u16| self.shared.cores.get(usize::from(*core)).map(|core| core.queue_pairs());
        let there = (0..self.cores.len() as u16)
            .filter(|core| self.shared.cores.get(usize::from(*core)).is_some_and(|core| !core.is_dropped()));
        there.min_by_key(queue_pairs).unwrap_or(LEADER)
    }

    /// Accepts a request with an idle queue pair. The peer's application gets `private_data`. A
    /// request that is passed by reference can still be answered if this fails. A second answer to
    /// a request fails with an event.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    /// - [`VerbsError::WrongState`] if the state of the queue pair does not allow the call.
    /// - [`VerbsError::PrivateDataTooLong`] if the MPA frame cannot carry `private_data`.
    /// - [`VerbsError::LimitReached`] if the stack or this context has no free slot.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn accept(
        &mut self,
        request: impl Borrow<ConnectionRequest>,
        qp: QueuePair,
        private_data: &[u8],
    ) -> Result<(), VerbsError> {
        self.accept_with(request, qp, &AcceptParams { private_data, ..AcceptParams::default() })
    }

    /// As [`Context::accept`], with parameters.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    /// - [`VerbsError::WrongState`] if the state of the queue pair does not allow the call.
    /// - [`VerbsError::PrivateDataTooLong`] if the MPA frame cannot carry `private_data`.
    /// - [`VerbsError::OutOfRange`] if a setting is outside its range.
    /// - [`VerbsError::LimitReached`] if the stack or this context has no free slot.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn accept_with(
        &mut self,
        request: impl Borrow<ConnectionRequest>,
        qp: QueuePair,
        params: &AcceptParams<'_>,
    ) -> Result<(), VerbsError> {
        let request = request.borrow();
        let cm_params = params.cm_params(&self.shared.config.mpa, request.enhanced, self.reads_max(qp)?)?;
        let first = FirstStep::Accept { slot: request.slot, generation: request.generation };
        self.start_qp(qp, request.core, params.extensions, (first, Some(cm_params)))
    }

    /// Rejects a request. The peer's application gets `private_data`.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::PrivateDataTooLong`] if the MPA frame cannot carry `private_data`.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn reject(
        &mut self,
        request: impl Borrow<ConnectionRequest>,
        private_data: &[u8],
    ) -> Result<(), VerbsError> {
        self.reject_with(request, &RejectParams { private_data, ..RejectParams::default() })
    }

    /// As [`Context::reject`], with the read depths that would be accepted.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::PrivateDataTooLong`] if the MPA frame cannot carry `private_data`.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn reject_with(
        &mut self,
        request: impl Borrow<ConnectionRequest>,
        params: &RejectParams<'_>,
    ) -> Result<(), VerbsError> {
        let request = request.borrow();
        let cm_params = params.cm_params(&self.shared.config.mpa, request.enhanced)?;
        let core = usize::from(request.core);
        self.handover(core)?.reject_params.put(request.slot, cm_params);
        let &ConnectionRequest { slot, generation, .. } = request;
        self.send_control(core, ControlMessage::Reject { slot, generation })
    }

    /// Disconnects after everything posted was sent and acknowledged. Nothing more may be posted
    /// (RFC 5041 s6.2.1).
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    /// - [`VerbsError::WrongState`] if the state of the queue pair does not allow the call.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn disconnect(&mut self, qp: QueuePair) -> Result<(), VerbsError> {
        let (core, slot) = self.assigned(qp)?;
        self.send_control(core, ControlMessage::Disconnect { slot })?;
        self.mark_closing(qp)
    }

    /// Moves a queue pair to the error state: resets its connection, and completes every posted
    /// request with [`FlushedInError`](crate::CompletionStatus::FlushedInError).
    /// [`Event::Disconnected`](crate::Event::Disconnected) follows, or
    /// [`Event::ConnectFailed`](crate::Event::ConnectFailed) if the connection was not established.
    /// Neither follows if the queue pair was idle, which cannot be connected any more. The queue
    /// pair stays, so that its completions can be reaped before it is destroyed.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    /// - [`VerbsError::LimitReached`] if the queue pair was idle, and the stack or this context has
    ///   no free slot.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn abort(&mut self, qp: QueuePair) -> Result<(), VerbsError> {
        match self.assigned(qp) {
            Ok((core, slot)) => self.send_control(core, ControlMessage::Abort { slot }),
            Err(VerbsError::WrongState(_)) => self.abort_idle(qp),
            Err(error) => Err(error),
        }
    }

    /// Sets what the peer may do through a queue pair with regions that grant it:
    /// [`Access::REMOTE_READ`], [`Access::REMOTE_WRITE`], [`Access::REMOTE_ATOMIC`]; all of them
    /// until then. Takes effect at once before a connection, and with the core's next iteration
    /// after it. An operation without the right ends the connection, as one on a region without it
    /// does (RFC 5040 s8.1.2).
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn set_remote_access(&mut self, qp: QueuePair, granted: Access) -> Result<(), VerbsError> {
        match self.assigned(qp) {
            Ok((core, slot)) => self.send_control(core, ControlMessage::SetRemoteAccess { slot, granted }),
            Err(VerbsError::WrongState(_)) => self.qp_mut(qp).map(|app| app.set_remote_access(granted)),
            Err(error) => Err(error),
        }
    }

    /// Completions are written by a core, so the queue pair gets one.
    #[cold]
    fn abort_idle(&mut self, qp: QueuePair) -> Result<(), VerbsError> {
        let core = self.requested_core(qp)?.unwrap_or_else(|| self.least_used_core());
        self.start_qp(qp, core, None, (FirstStep::Abort, None))
    }

    /// One step of an orderly shutdown. Closes every connection of this context as
    /// [`Context::disconnect`] does, and after the deadline destroys the remaining queue pairs,
    /// which resets their connections. Never waits: call it again until nothing is open, and poll
    /// workers, events and completions in between. Does not stop listening.
    ///
    /// # Errors
    ///
    /// As [`Context::disconnect`] and [`Context::destroy_qp`], except that dropped workers are not
    /// errors.
    pub fn drain(&mut self, deadline: Instant) -> Result<DrainProgress, VerbsError> {
        let late = Instant::now() >= deadline;
        let mut drained = DrainProgress::default();
        for qp in self.connected_qps() {
            let ended = if late { self.destroy_qp(qp) } else { self.disconnect_once(qp) };
            match ended {
                Ok(()) if late => drained.aborted += 1,
                Ok(()) => drained.open += 1,
                // No worker is left to continue the connection.
                Err(VerbsError::WorkerDropped) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(drained)
    }

    fn disconnect_once(&mut self, qp: QueuePair) -> Result<(), VerbsError> {
        if self.qp_state(qp)? == QpState::Draining { Ok(()) } else { self.disconnect(qp) }
    }

    /// Returns the tables beside the rings of a core.
    pub(super) fn handover(&self, core: usize) -> Result<&Handover, VerbsError> {
        Ok(&self.cores.get(core).ok_or(VerbsError::WorkerDropped)?.handover)
    }

    /// Fails if the worker of a core was dropped.
    pub(super) fn check_worker(&self, core: usize) -> Result<(), VerbsError> {
        let is_there = self.shared.cores.get(core).is_some_and(|core| !core.is_dropped());
        if is_there { Ok(()) } else { Err(VerbsError::WorkerDropped) }
    }

    /// Fails unless a message can be sent to a core at once: for calls that may be repeated without
    /// limit.
    pub(super) fn check_control_room(&mut self, core: usize) -> Result<(), VerbsError> {
        self.check_worker(core)?;
        let has_room = self.cores.get_mut(core).is_some_and(CoreChannel::has_room);
        if has_room { Ok(()) } else { Err(VerbsError::Busy) }
    }

    /// Sends a message to a core. If the ring is full, the context keeps the message and sends it
    /// later.
    pub(super) fn send_control(&mut self, core: usize, message: ControlMessage) -> Result<(), VerbsError> {
        self.check_worker(core)?;
        let link = self.cores.get_mut(core).ok_or(VerbsError::WorkerDropped)?;
        self.has_deferred |= !link.send(message);
        Ok(())
    }

    /// Returns whether calls wait for room in a core's ring.
    pub(super) fn has_waiting(&self) -> bool {
        self.has_deferred && self.cores.iter().any(CoreChannel::has_waiting)
    }

    /// Continues what waits for room in a core's ring, or for the ends of queue pairs.
    #[cold]
    pub(super) fn continue_deferred(&mut self) {
        self.continue_split_destroys();
        self.has_deferred = !self.split_destroys.is_empty();
        for link in &mut self.cores {
            self.has_deferred |= !link.send_waiting();
        }
    }

    /// A worker was dropped, and all its notifications are read: ends what still waited for it, one
    /// queue pair a call. A queue pair that never reached the core is idle again.
    #[cold]
    pub(super) fn end_waiting(&mut self, core: usize) -> Option<Notification> {
        let link = self.cores.get_mut(core).filter(|link| link.has_waiting())?;
        while let Some(message) = link.take_waiting() {
            let ControlMessage::StartQp { slot, first } = message else { continue };
            let Some(half) = link.handover.qps.take(slot) else { continue };
            let qp = half.handle();
            let Some(app) = self.qps.get_mut(qp.index) else { continue };
            if app.unassign(half) {
                return Some(match first {
                    FirstStep::Connect { .. } | FirstStep::Accept { .. } => {
                        Notification::ConnectFailed { qp, reason: ConnectFailure::WorkerDropped }
                    }
                    FirstStep::Abort => Notification::QueuePairFatal { qp },
                });
            }
        }
        self.remove_destroyed(core);
        None
    }
}
