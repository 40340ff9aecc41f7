//! The end of queue pairs.
//!
//! A queue pair whose ends other threads have ends at once too: its connection is reset and what is
//! posted is flushed. But its core's half stays, in the error state, until both ends are dropped:
//! so a request that another thread posts meanwhile is flushed as well.

use super::AppQp;
use crate::context::Context;
use crate::core_loop::channel::ControlMessage;
use crate::error::VerbsError;
use crate::event::Event;
use crate::objects::{CompletionQueue, QueuePair};

/// A queue pair that was destroyed while other threads had its ends.
#[derive(Clone, Copy)]
pub(in crate::context) struct SplitDestroy {
    qp: QueuePair,
    /// Both ends were dropped, and the core's half is on its way back.
    requested: bool,
}

impl Context {
    /// Destroys a queue pair: an open connection is reset, and posted requests complete as flushed.
    /// The handle is invalid from now on: a second call fails with
    /// [`VerbsError::UnknownQueuePair`]. Events that the core has raised may follow. Its
    /// completions arrive when the core has carried out the call; its queues can be destroyed once
    /// [`Context::poll_event`] has run after that.
    ///
    /// If other threads have its ends ([`Context::split_qp`]), their calls fail from now on. The
    /// queue pair keeps its slot until both are dropped and [`Context::poll_event`] is called.
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    /// - [`VerbsError::WorkerDropped`] if a worker was dropped.
    pub fn destroy_qp(&mut self, qp: QueuePair) -> Result<(), VerbsError> {
        self.begin_destroy(qp, false)
    }

    /// As [`Context::destroy_qp`], but closes an open connection in order if nothing of it is
    /// outstanding: everything posted is sent and acknowledged, and every Read has ended. The
    /// connection then closes by itself, within the Terminate timeout, and the peer sees an orderly
    /// end. The core keeps few such connections; others are reset.
    ///
    /// # Errors
    ///
    /// As [`Context::destroy_qp`].
    pub fn destroy_qp_in_order(&mut self, qp: QueuePair) -> Result<(), VerbsError> {
        self.begin_destroy(qp, true)
    }

    fn begin_destroy(&mut self, qp: QueuePair, in_order: bool) -> Result<(), VerbsError> {
        let app = self.qp_mut(qp)?;
        app.regain();
        if app.split.is_some() {
            return self.begin_split_destroy(qp);
        }
        self.request_destroy(qp, in_order)
    }

    fn request_destroy(&mut self, qp: QueuePair, in_order: bool) -> Result<(), VerbsError> {
        let Some(app) = self.qps.get_mut(qp.index) else { return Ok(()) };
        match app.control.assigned {
            Some((core, slot)) => {
                self.send_control(core.into(), ControlMessage::DestroyQp { slot, in_order })?;
                if let Some(app) = self.qps.get_mut(qp.index) {
                    app.destroyed = true;
                }
            }
            None => self.remove_qp(qp),
        }
        Ok(())
    }

    /// Ends the connection, so that the core flushes what other threads have posted and still post.
    #[cold]
    fn begin_split_destroy(&mut self, qp: QueuePair) -> Result<(), VerbsError> {
        if let Some((core, slot)) = self.qp(qp)?.control.assigned {
            self.send_control(core.into(), ControlMessage::Abort { slot })?;
        }
        let app = self.qp_mut(qp)?;
        app.destroyed = true;
        if let Some(split) = &app.split {
            split.close();
        }
        self.split_destroys.push(SplitDestroy { qp, requested: false });
        self.has_deferred = true;
        Ok(())
    }

    /// Destroys the queue pairs whose ends were dropped since.
    #[cold]
    #[inline(never)]
    pub(in crate::context) fn continue_split_destroys(&mut self) {
        for at in (0..self.split_destroys.len()).rev() {
            let Some(&SplitDestroy { qp, requested: false }) = self.split_destroys.get(at) else { continue };
            let Some(app) = self.qps.get_mut(qp.index) else { continue };
            app.regain();
            if app.split.is_none() && self.request_destroy(qp, false).is_ok() {
                self.split_destroys
                    .iter_mut()
                    .filter(|one| one.qp == qp)
                    .for_each(|one| one.requested = true);
            }
        }
    }

    /// Returns whether an event is of a queue pair that was destroyed while other threads had its
    /// ends: no event of it follows, as of any other.
    #[cold]
    pub(in crate::context) fn is_of_split_destroy(&self, event: &Event) -> bool {
        event.qp().is_some_and(|qp| self.split_destroys.iter().any(|one| one.qp == qp))
    }

    /// Releases the entries in `cq` reserved for sends that completed without an entry. Returns
    /// whether there were any.
    #[cold]
    pub(in crate::context) fn reclaim(&mut self, cq: CompletionQueue) -> bool {
        let mut reclaimed = 0;
        for app in self.qps.iter().filter(|app| app.send_cq == cq) {
            reclaimed += app.claim_unsignaled();
        }
        let Ok(cq) = self.cq_mut(cq) else { return false };
        cq.release(reclaimed);
        cq.apply_resize() || reclaimed > 0
    }

    /// The worker of `core` was dropped before it learned that these queue pairs are destroyed.
    pub(in crate::context) fn remove_destroyed(&mut self, core: usize) {
        let is_there = |app: &AppQp| app.control.assigned.is_none_or(|(at, _)| usize::from(at) == core);
        let is_left = |app: &&AppQp| app.destroyed && app.split.is_none() && is_there(app);
        let left: Vec<QueuePair> = self.qps.iter().filter(is_left).map(|app| app.handle).collect();
        left.into_iter().for_each(|qp| self.remove_qp(qp));
    }

    /// Removes a queue pair. No core has its half.
    pub(in crate::context) fn remove_qp(&mut self, qp: QueuePair) {
        let Some(mut app) = self.qps.remove(qp.index) else { return };
        self.split_destroys.retain(|one| one.qp != qp);
        if let Ok(cq) = self.cq_mut(app.send_cq) {
            cq.remove_send_queue(qp.num);
            cq.release(app.claim_unsignaled());
            cq.apply_resize();
        }
        if app.unassigned.is_some() {
            // No core completes these receives any more: their entries in the queue are free again.
            let posted = app.receives().outstanding;
            if let Ok(cq) = self.cq_mut(app.recv_cq) {
                cq.release(posted);
            }
        }
        if let Some(Ok(srq)) = app.srq.map(|srq| self.srq_mut(srq)) {
            srq.users -= 1;
        }
        for cq in [app.send_cq, app.recv_cq] {
            if let Ok(cq) = self.cq_mut(cq) {
                cq.users -= 1;
            }
        }
    }
}
