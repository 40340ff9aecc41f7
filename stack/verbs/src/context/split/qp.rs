//! The ends of a queue pair that post.

use std::sync::Arc;

use ironwarp_rings::block::Shared;
use ironwarp_rings::doorbell::SharedDoorbell;

use super::Home;
use crate::context::qp::ends::{CqEntries, QpView, RecvEnd, SendEnd};
use crate::core_loop::channel::CoreChannel;
use crate::error::PostError;
use crate::objects::{QpShared, QpState, QueuePair};
use crate::shared::CqReservations;
use crate::wake::CoreWaker;
use crate::wr::{RecvWr, SendWr};

/// Posts to the send queue of a queue pair from any one thread; see
/// [`Context::split_qp`](crate::Context::split_qp).
///
/// Requests complete in the order of their posts, whichever thread polls.
///
/// ```compile_fail
/// fn shared_between_threads<T: Sync>() {}
/// shared_between_threads::<ironwarp::SendPoster>();
/// ```
pub struct SendPoster {
    link: QpLink,
    /// There until it is dropped.
    end: Option<SendEnd>,
    home: Arc<Home<SendEnd>>,
    cq: Arc<CqReservations>,
}

/// Posts to the receive queue of a queue pair from any one thread; see
/// [`Context::split_qp`](crate::Context::split_qp). It posts nothing if the receives come from a
/// shared queue.
///
/// ```compile_fail
/// fn shared_between_threads<T: Sync>() {}
/// shared_between_threads::<ironwarp::RecvPoster>();
/// ```
pub struct RecvPoster {
    link: QpLink,
    /// There until it is dropped.
    end: Option<RecvEnd>,
    home: Arc<Home<RecvEnd>>,
    cq: Arc<CqReservations>,
}

impl SendPoster {
    pub(in crate::context) fn new(
        link: QpLink,
        end: SendEnd,
        home: Arc<Home<SendEnd>>,
        cq: Arc<CqReservations>,
    ) -> Self {
        SendPoster { link, end: Some(end), home, cq }
    }

    /// Returns the queue pair's handle in its context.
    pub fn qp(&self) -> QueuePair {
        self.link.qp
    }

    /// Returns the state of the queue pair.
    pub fn state(&self) -> QpState {
        self.link.state()
    }

    /// Posts one request, as [`Context::post_send`](crate::Context::post_send).
    ///
    /// A request that is posted while the context disconnects is sent, or completes as flushed when
    /// the connection ends. One that is posted while the context destroys the queue pair completes
    /// as flushed.
    ///
    /// # Errors
    ///
    /// - [`PostError::UnknownQueuePair`] if the queue pair was destroyed, or its context dropped.
    /// - Otherwise as [`Context::post_send`](crate::Context::post_send).
    pub fn post_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.post_sends(core::slice::from_ref(wr)).map_err(|(_, error)| error)
    }

    /// Posts requests in order and rings the doorbell once. If one fails, those before it are
    /// posted; the error contains their number.
    ///
    /// # Errors
    ///
    /// As [`SendPoster::post_send`], with the number of requests that are posted.
    pub fn post_sends(&mut self, wrs: &[SendWr<'_>]) -> Result<(), (usize, PostError)> {
        match self.try_post_sends(wrs) {
            Err((posted, PostError::CqFull)) if self.cq.reclaim() => {
                let rest = wrs.get(posted..).unwrap_or_default();
                self.try_post_sends(rest).map_err(|(more, error)| (posted + more, error))
            }
            outcome => outcome,
        }
    }

    #[inline]
    fn try_post_sends(&mut self, wrs: &[SendWr<'_>]) -> Result<(), (usize, PostError)> {
        let end = self.end.as_mut().filter(|_| !self.home.is_closed());
        let end = end.ok_or((0, PostError::UnknownQueuePair))?;
        end.refresh();
        let mut posted = 0;
        let outcome = wrs.iter().try_for_each(|wr| end.stage(&mut self.cq, wr).map(|()| posted += 1));
        if posted > 0 {
            end.publish();
            self.link.ring();
        }
        outcome.map_err(|error| (posted, error))
    }

    /// Posts requests in order and rings the doorbell once. If one fails, none is posted.
    ///
    /// # Errors
    ///
    /// As [`SendPoster::post_send`]; no request is posted.
    pub fn post_all(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        match self.try_post_all(wrs) {
            Err(PostError::CqFull) if self.cq.reclaim() => self.try_post_all(wrs),
            outcome => outcome,
        }
    }

    fn try_post_all(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let end = self.end.as_mut().filter(|_| !self.home.is_closed()).ok_or(PostError::UnknownQueuePair)?;
        end.refresh();
        end.stage_all(&mut self.cq, wrs)?;
        end.publish();
        self.link.ring();
        Ok(())
    }
}

impl Drop for SendPoster {
    fn drop(&mut self) {
        self.home.give_back(self.end.take());
    }
}

impl RecvPoster {
    pub(in crate::context) fn new(
        link: QpLink,
        end: RecvEnd,
        home: Arc<Home<RecvEnd>>,
        cq: Arc<CqReservations>,
    ) -> Self {
        RecvPoster { link, end: Some(end), home, cq }
    }

    /// Returns the queue pair's handle in its context.
    pub fn qp(&self) -> QueuePair {
        self.link.qp
    }

    /// Returns the state of the queue pair.
    pub fn state(&self) -> QpState {
        self.link.state()
    }

    /// Posts one receive, as [`Context::post_recv`](crate::Context::post_recv).
    ///
    /// # Errors
    ///
    /// - [`PostError::UnknownQueuePair`] if the queue pair was destroyed, or its context dropped.
    /// - Otherwise as [`Context::post_recv`](crate::Context::post_recv).
    pub fn post_recv(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.post_recvs(core::slice::from_ref(wr)).map_err(|(_, error)| error)
    }

    /// Posts receives in order. A list costs one memory fence, as one receive does. If a receive
    /// fails, those before it are posted; the error contains their number.
    ///
    /// # Errors
    ///
    /// As [`RecvPoster::post_recv`], with the number of receives that are posted.
    pub fn post_recvs(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), (usize, PostError)> {
        match self.try_post_recvs(wrs) {
            Err((posted, PostError::CqFull)) if self.cq.reclaim() => {
                let rest = wrs.get(posted..).unwrap_or_default();
                self.try_post_recvs(rest).map_err(|(more, error)| (posted + more, error))
            }
            outcome => outcome,
        }
    }

    #[inline]
    fn try_post_recvs(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), (usize, PostError)> {
        let end = self.end.as_mut().filter(|_| !self.home.is_closed());
        let end = end.ok_or((0, PostError::UnknownQueuePair))?;
        let control = self.link.shared.control();
        let view = QpView { shared: &self.link.shared, control: &control };
        end.check_worker(&view).map_err(|error| (0, error))?;
        let mut posted = 0;
        let outcome = wrs.iter().try_for_each(|wr| end.stage(&mut self.cq, wr).map(|()| posted += 1));
        if posted > 0 && end.publish(&view) {
            self.link.ring();
        }
        outcome.map_err(|error| (posted, error))
    }
}

impl Drop for RecvPoster {
    fn drop(&mut self) {
        self.home.give_back(self.end.take());
    }
}

/// What both ends of a queue pair reach.
#[derive(Clone)]
pub(in crate::context) struct QpLink {
    pub(in crate::context) qp: QueuePair,
    pub(in crate::context) shared: Shared<QpShared>,
    pub(in crate::context) cores: Arc<[CoreDoorbell]>,
}

impl QpLink {
    fn state(&self) -> QpState {
        QpView { shared: &self.shared, control: &self.shared.control() }.state()
    }

    /// Rings the core after requests were published. The slot is read now: it was published before
    /// the state that let the requests be posted.
    #[inline]
    fn ring(&self) {
        let Some((core, slot)) = self.shared.control().assigned else { return };
        let Some(core) = self.cores.get(usize::from(core)) else { return };
        if core.doorbell.ring(slot, &self.shared.bell) {
            core.waker.wake();
        }
    }
}

/// Rings one core.
pub(in crate::context) struct CoreDoorbell {
    doorbell: SharedDoorbell,
    waker: CoreWaker,
}

impl CoreDoorbell {
    pub(in crate::context) fn new(channel: &CoreChannel) -> Self {
        CoreDoorbell { doorbell: channel.doorbell.shared(), waker: channel.waker.clone() }
    }
}

impl CqEntries for Arc<CqReservations> {
    #[inline]
    fn reserve_cqe(&mut self) -> Result<(), PostError> {
        if self.try_reserve() { Ok(()) } else { Err(PostError::CqFull) }
    }

    #[inline]
    fn release(&mut self, reservations: u32) {
        CqReservations::release(self, reservations);
    }

    #[inline]
    fn is_shared(&self) -> bool {
        true
    }
}
