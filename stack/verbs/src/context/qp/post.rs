//! Posting to a queue pair: a request is checked, an entry for its completion reserved, its slot
//! written, and the core's doorbell rung once.
//!
//! A request with an error is not posted. A request is written into the queue's own slot and not
//! copied again.

use super::AppQp;
use super::ends::{QpView, RecvEnd, SendEnd};
use crate::context::Context;
use crate::core_loop::channel::CoreChannel;
use crate::error::PostError;
use crate::objects::QueuePair;
use crate::wr::{RecvWr, SendWr};

impl Context {
    /// Posts one request to the send queue.
    ///
    /// # Errors
    ///
    /// - [`PostError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    /// - [`PostError::Split`] if it is split from the context.
    /// - [`PostError::WrongState`] if the queue pair is idle or draining.
    /// - [`PostError::QueueFull`] or [`PostError::CqFull`] if a queue has no free slot.
    /// - [`PostError::TooManySges`] if the request has more elements than allowed.
    /// - [`PostError::InlineTooLong`] or [`PostError::MessageTooLong`] if it has too many bytes.
    /// - [`PostError::ReadSinkCount`] or [`PostError::AtomicSinkLength`] if its sink does not fit
    ///   the operation.
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
        let end = app.sender()?;
        end.stage(cq.ok_or(PostError::UnknownCompletionQueue)?, wr)?;
        end.publish();
        app.ring(&mut self.cores);
        Ok(())
    }

    /// Posts requests to the send queue in order and rings the doorbell once. If one fails, those
    /// before it are posted; the error contains their number.
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
        let end = app.sender().map_err(|error| (0, error))?;
        let mut posted = 0;
        let outcome = wrs.iter().try_for_each(|wr| end.stage(cq, wr).map(|()| posted += 1));
        if posted > 0 {
            end.publish();
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

    /// Posts requests to the send queue in order and rings the doorbell once. If one fails, none is
    /// posted.
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
        let end = app.sender()?;
        end.stage_all(cq.ok_or(PostError::UnknownCompletionQueue)?, wrs)?;
        end.publish();
        app.ring(&mut self.cores);
        Ok(())
    }

    /// Posts one receive.
    ///
    /// # Errors
    ///
    /// - [`PostError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    /// - [`PostError::Split`] if it is split from the context.
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
        let (end, view) = app.receiver()?;
        end.check_worker(&view)?;
        end.stage(cq.ok_or(PostError::UnknownCompletionQueue)?, wr)?;
        if end.publish(&view) {
            app.ring(&mut self.cores);
        }
        Ok(())
    }

    /// Posts receives in order. A list costs one memory fence, as one receive does. If a receive
    /// fails, those before it are posted; the error contains their number.
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
        let (end, view) = app.receiver().map_err(|error| (0, error))?;
        end.check_worker(&view).map_err(|error| (0, error))?;
        let outcome = wrs
            .iter()
            .enumerate()
            .try_for_each(|(posted, wr)| end.stage(cq, wr).map_err(|error| (posted, error)));
        if !matches!(outcome, Err((0, _))) && end.publish(&view) {
            app.ring(&mut self.cores);
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
    /// Returns the end that sends.
    #[inline(always)]
    fn sender(&mut self) -> Result<&mut SendEnd, PostError> {
        if self.send.is_none() {
            self.regain();
        }
        self.send.as_mut().ok_or(PostError::Split)
    }

    /// Returns the end that posts receives.
    #[inline(always)]
    fn receiver(&mut self) -> Result<(&mut RecvEnd, QpView<'_>), PostError> {
        if self.recv.is_none() {
            self.regain();
        }
        let view = QpView { shared: &self.shared, control: &self.control };
        Ok((self.recv.as_mut().ok_or(PostError::Split)?, view))
    }

    #[inline(always)]
    fn ring(&self, cores: &mut [CoreChannel]) {
        let Some((core, slot)) = self.control.assigned else { return };
        if let Some(channel) = cores.get_mut(usize::from(core)) {
            // A flag that was set already is in a doorbell that the core has not served, so the
            // core does not sleep.
            if channel.doorbell.ring(slot, &self.shared.bell) {
                channel.waker.wake();
            }
        }
    }
}
