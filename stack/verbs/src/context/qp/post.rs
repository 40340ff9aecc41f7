//! Posting to a queue pair: a request is checked, an entry for its completion reserved, its slot written, and the
//! core's doorbell rung once.
//!
//! A request with an error is not posted. A request is written into the queue's own slot and not copied again.

use ironwarp_iwarp::rdmap::Rfc7306Profile;
use ironwarp_iwarp::{RecvWqe, SendFlags, SendOpcode, SendWqe};
use ironwarp_types::limits::MESSAGE_BYTES_MAX;

use super::{AppQp, Receives};
use crate::context::Context;
use crate::context::cq::AppCq;
use crate::error::PostError;
use crate::objects::{QpState, QueuePair};
use crate::wr::{RecvWr, SendWr, Source};

impl Context {
    /// Posts one request to the send queue.
    ///
    /// # Errors
    ///
    /// - [`PostError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    /// - [`PostError::WrongState`] if the queue pair is idle or draining.
    /// - [`PostError::QueueFull`] or [`PostError::CqFull`] if a queue has no free slot.
    /// - [`PostError::TooManySges`] if the request has more elements than allowed.
    /// - [`PostError::InlineTooLong`] or [`PostError::MessageTooLong`] if it has too many bytes.
    /// - [`PostError::ReadSinkCount`] or [`PostError::AtomicSinkLength`] if its sink does not fit the operation.
    /// - [`PostError::NoSuchOperation`] if the connection lacks the operation.
    /// - [`PostError::WorkerDropped`] if the worker of the queue pair's core was dropped.
    pub fn post_send(&mut self, qp: QueuePair, wr: &SendWr<'_>) -> Result<(), PostError> {
        match self.try_post_send(qp, wr) {
            // The list releases the reservations of unsignaled requests.
            Err(PostError::CqFull) => {
                self.post_sends(qp, core::slice::from_ref(wr)).map_err(|(_, error)| error)
            }
            outcome => outcome,
        }
    }

    #[inline(always)]
    fn try_post_send(&mut self, qp: QueuePair, wr: &SendWr<'_>) -> Result<(), PostError> {
        let app = self.qps.get_mut(qp.index);
        let app = app.filter(|app| app.is(qp)).ok_or(PostError::UnknownQueuePair)?;
        let cq = self.cqs.get_mut(app.send_cq.table_index());
        app.stage_send(cq.ok_or(PostError::UnknownCompletionQueue)?, wr)?;
        app.sq.publish();
        app.ring(&mut self.cores);
        Ok(())
    }

    /// Posts requests to the send queue in order and rings the doorbell once. If one fails, those before it are
    /// posted; the error contains their number.
    ///
    /// # Errors
    ///
    /// As [`Context::post_send`], with the number of requests that are posted.
    pub fn post_sends(&mut self, qp: QueuePair, wrs: &[SendWr<'_>]) -> Result<(), (usize, PostError)> {
        let app = self.qps.get_mut(qp.index);
        let app = app.filter(|app| app.is(qp)).ok_or((0, PostError::UnknownQueuePair))?;
        let send_cq = app.send_cq;
        let cq = self.cqs.get_mut(send_cq.table_index());
        let cq = cq.ok_or((0, PostError::UnknownCompletionQueue))?;
        let mut posted = 0;
        let outcome = wrs.iter().try_for_each(|wr| app.stage_send(cq, wr).map(|()| posted += 1));
        if posted > 0 {
            app.sq.publish();
            app.ring(&mut self.cores);
        }
        match outcome {
            Err(PostError::CqFull) if self.reclaim(send_cq) => {
                let rest = wrs.get(posted..).unwrap_or_default();
                self.post_sends(qp, rest).map_err(|(more, error)| (posted + more, error))
            }
            outcome => outcome.map_err(|error| (posted, error)),
        }
    }

    /// Posts requests to the send queue in order and rings the doorbell once. If one fails, none is posted.
    ///
    /// # Errors
    ///
    /// As [`Context::post_send`]; no request is posted.
    pub fn post_all(&mut self, qp: QueuePair, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        match self.try_post_all(qp, wrs) {
            Err(PostError::CqFull) if self.qp(qp).map(|app| app.send_cq).is_ok_and(|cq| self.reclaim(cq)) => {
                self.try_post_all(qp, wrs)
            }
            outcome => outcome,
        }
    }

    fn try_post_all(&mut self, qp: QueuePair, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let app = self.qps.get_mut(qp.index);
        let app = app.filter(|app| app.is(qp)).ok_or(PostError::UnknownQueuePair)?;
        let cq = self.cqs.get_mut(app.send_cq.table_index());
        app.stage_all(cq.ok_or(PostError::UnknownCompletionQueue)?, wrs)?;
        app.sq.publish();
        app.ring(&mut self.cores);
        Ok(())
    }

    /// Posts one receive.
    ///
    /// # Errors
    ///
    /// - [`PostError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    /// - [`PostError::UsesSharedReceiveQueue`] if its receives come from a shared queue.
    /// - [`PostError::QueueFull`] or [`PostError::CqFull`] if a queue has no free slot.
    /// - [`PostError::TooManySges`] if the request has more elements than allowed.
    /// - [`PostError::WorkerDropped`] if the worker of the queue pair's core was dropped.
    pub fn post_recv(&mut self, qp: QueuePair, wr: &RecvWr<'_>) -> Result<(), PostError> {
        match self.try_post_recv(qp, wr) {
            // The list releases the reservations of unsignaled requests.
            Err(PostError::CqFull) => {
                self.post_recvs(qp, core::slice::from_ref(wr)).map_err(|(_, error)| error)
            }
            outcome => outcome,
        }
    }

    #[inline(always)]
    fn try_post_recv(&mut self, qp: QueuePair, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let app = self.qps.get_mut(qp.index);
        let app = app.filter(|app| app.is(qp)).ok_or(PostError::UnknownQueuePair)?;
        let cq = self.cqs.get_mut(app.recv_cq.table_index());
        app.check_worker()?;
        app.stage_recv(cq.ok_or(PostError::UnknownCompletionQueue)?, wr)?;
        app.publish_recvs(&mut self.cores);
        Ok(())
    }

    /// Posts receives in order. A list costs one memory fence, as one receive does. If a receive fails, those before it
    /// are posted; the error contains their number.
    ///
    /// # Errors
    ///
    /// As [`Context::post_recv`], with the number of receives that are posted.
    #[inline]
    pub fn post_recvs(&mut self, qp: QueuePair, wrs: &[RecvWr<'_>]) -> Result<(), (usize, PostError)> {
        match self.try_post_recvs(qp, wrs) {
            Err((posted, PostError::CqFull)) => self.reclaim_and_post_recvs(qp, wrs, posted),
            outcome => outcome,
        }
    }

    #[inline(always)]
    fn try_post_recvs(&mut self, qp: QueuePair, wrs: &[RecvWr<'_>]) -> Result<(), (usize, PostError)> {
        let app = self.qps.get_mut(qp.index);
        let app = app.filter(|app| app.is(qp)).ok_or((0, PostError::UnknownQueuePair))?;
        let cq = self.cqs.get_mut(app.recv_cq.table_index());
        let cq = cq.ok_or((0, PostError::UnknownCompletionQueue))?;
        app.check_worker().map_err(|error| (0, error))?;
        let outcome = wrs
            .iter()
            .enumerate()
            .try_for_each(|(posted, wr)| app.stage_recv(cq, wr).map_err(|error| (posted, error)));
        if !matches!(outcome, Err((0, _))) {
            app.publish_recvs(&mut self.cores);
        }
        outcome
    }

    /// Releases the reservations of unsignaled requests and posts the rest of a list.
    #[cold]
    #[inline(never)]
    fn reclaim_and_post_recvs(
        &mut self,
        qp: QueuePair,
        wrs: &[RecvWr<'_>],
        posted: usize,
    ) -> Result<(), (usize, PostError)> {
        if !self.qp(qp).map(|app| app.recv_cq).is_ok_and(|cq| self.reclaim(cq)) {
            return Err((posted, PostError::CqFull));
        }
        let rest = wrs.get(posted..).unwrap_or_default();
        self.try_post_recvs(qp, rest).map_err(|(more, error)| (posted + more, error))
    }
}

impl AppQp {
    #[inline]
    fn check_may_send(&self) -> Result<(), PostError> {
        if self.closing || matches!(self.shared.state(), QpState::Idle | QpState::Draining | QpState::Error) {
            self.check_not_closing()?;
        }
        Ok(())
    }

    /// Checks that somebody is left to flush what is posted.
    #[inline]
    fn check_worker(&self) -> Result<(), PostError> {
        if self.shared.state() == QpState::Error { self.check_not_abandoned() } else { Ok(()) }
    }

    #[inline(always)]
    fn stage_send(&mut self, cq: &mut AppCq, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.check_may_send()?;
        self.check_send(wr)?;
        if !self.sq.has_room(1) {
            return Err(PostError::QueueFull);
        }
        self.release_shared_cqes(cq);
        cq.reserve_cqe()?;
        self.sq.stage(|slot| write_send(slot, wr)).map_err(|_| PostError::QueueFull)?;
        Ok(())
    }

    /// Releases the entries of this queue pair's unsignaled requests that are done, if cores reserve entries of the queue
    /// too: a core that finds the queue full ends a connection, so no entry may wait for a post that finds it full.
    #[inline]
    fn release_shared_cqes(&mut self, cq: &mut AppCq) {
        if cq.core_reserves() {
            let unsignaled = self.take_unsignaled();
            if unsignaled > 0 {
                cq.release(unsignaled);
            }
        }
    }

    /// Posts all of them, or none.
    fn stage_all(&mut self, cq: &mut AppCq, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        self.check_may_send()?;
        wrs.iter().try_for_each(|wr| self.check_send(wr))?;
        if !self.sq.has_room(wrs.len()) {
            return Err(PostError::QueueFull);
        }
        self.release_shared_cqes(cq);
        for reserved_cqes in 0..wrs.len() {
            cq.reserve_cqe().inspect_err(|_| cq.release(reserved_cqes as u32))?;
        }
        wrs.iter()
            .try_for_each(|wr| self.sq.stage(|slot| write_send(slot, wr)).map(drop))
            .map_err(|_| PostError::QueueFull)
    }

    /// Checks operations that need extensions of the connection.
    #[cold]
    fn check_extended(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let has = |profile: &Rfc7306Profile| profile.swap || wr.opcode != SendOpcode::Swap;
        self.extensions.filter(has).ok_or(PostError::NoSuchOperation)?;
        match wr.source {
            Source::Atomic([sink], _) if sink.len != 8 => Err(PostError::AtomicSinkLength),
            _ => Ok(()),
        }
    }

    fn check_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        if wr.opcode.is_extended() {
            return self.check_extended(wr);
        }
        let (requested, bytes) = match wr.source {
            Source::Inline(bytes) if bytes.len() > self.inline_bytes => {
                return Err(PostError::InlineTooLong { requested: bytes.len(), allowed: self.inline_bytes });
            }
            Source::Inline(bytes) => (0, bytes.len() as u64),
            // The usual cases first; a list takes longer.
            Source::Gather([sge]) => (1, u64::from(sge.len)),
            Source::Gather(sge_list) => (sge_list.len(), sge_list.iter().map(|sge| u64::from(sge.len)).sum()),
            // Checked already.
            Source::Atomic(..) => return Ok(()),
        };
        if requested > self.max_sge {
            return Err(PostError::TooManySges { requested, allowed: self.max_sge });
        }
        if wr.opcode.is_read() && requested != 1 {
            return Err(PostError::ReadSinkCount);
        }
        if bytes > u64::from(MESSAGE_BYTES_MAX) { Err(PostError::MessageTooLong(bytes)) } else { Ok(()) }
    }

    #[inline(always)]
    fn stage_recv(&mut self, cq: &mut AppCq, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let Receives::Own(rq) = &mut self.receives else {
            return Err(PostError::UsesSharedReceiveQueue);
        };
        if wr.scatter.len() > self.max_sge {
            return Err(PostError::TooManySges { requested: wr.scatter.len(), allowed: self.max_sge });
        }
        if !rq.has_room(1) {
            return Err(PostError::QueueFull);
        }
        cq.reserve_cqe()?;
        rq.stage(|slot| write_recv(slot, wr)).map_err(|_| PostError::QueueFull)?;
        Ok(())
    }

    /// Pairs with the core's half in `QpCore::enter`: either the core finds the receives when it flushes, or this thread
    /// sees that the connection has ended, and rings.
    #[inline]
    fn publish_recvs(&mut self, cores: &mut [crate::core_loop::channel::CoreChannel]) {
        if let Receives::Own(rq) = &mut self.receives {
            rq.publish();
        }
        if self.shared.has_ended_after_publish() {
            self.ring(cores);
        }
    }

    #[inline(always)]
    fn ring(&self, cores: &mut [crate::core_loop::channel::CoreChannel]) {
        let Some((core, slot)) = self.assigned else { return };
        if let Some(channel) = cores.get_mut(usize::from(core)) {
            // A flag that was set already is in a doorbell that the core has not served, so the core does not sleep.
            if channel.doorbell.ring(slot, &self.bell) {
                channel.waker.wake();
            }
        }
    }
}

#[inline(always)]
fn write_send(slot: &mut SendWqe, wr: &SendWr<'_>) {
    slot.wr_id = wr.wr_id;
    slot.opcode = wr.opcode;
    slot.flags = wr.flags;
    slot.remote_stag = wr.remote.stag;
    slot.remote_to = wr.remote.tagged_offset;
    slot.access = wr.access;
    match wr.source {
        Source::Gather(sge_list) => slot.set_gather(sge_list),
        Source::Atomic([sink], operation) => slot.set_atomic(operation, *sink),
        Source::Inline(bytes) => {
            slot.flags.insert(SendFlags::INLINE);
            slot.set_inline(bytes);
        }
    }
}

pub(in crate::context) fn write_recv(slot: &mut RecvWqe, wr: &RecvWr<'_>) {
    slot.wr_id = wr.wr_id;
    slot.set_scatter(wr.scatter);
}
