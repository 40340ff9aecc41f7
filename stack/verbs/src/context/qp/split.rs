//! Splitting a queue pair: its two ends leave the context and come back when they are dropped.

use std::sync::Arc;

use ironwarp_iwarp::{RecvWqe, SendWqe};
use ironwarp_rings::slots::SlotObserver;

use super::{AppQp, RecvEnd, SendEnd};
use crate::context::Context;
use crate::context::split::{CoreDoorbell, Home, Loan, QpLink, RecvPoster, SendPoster};
use crate::error::VerbsError;
use crate::objects::{CompletionQueue, QueuePair};

/// What the context keeps of a queue pair whose ends are split.
pub(super) struct SplitQp {
    send: Loan<SendEnd>,
    recv: Loan<RecvEnd>,
    sends: SlotObserver<SendWqe>,
    /// `None` with a shared receive queue.
    receives: Option<SlotObserver<RecvWqe>>,
}

impl SplitQp {
    /// Makes the calls of both ends fail.
    pub(super) fn close(&self) {
        self.send.close();
        self.recv.close();
    }
}

/// The state of a work queue.
pub(super) struct QueueUse {
    pub(super) depth: u32,
    pub(super) outstanding: u32,
}

impl Context {
    /// Splits a queue pair from the context: the first end posts to the send queue, the second to
    /// the receive queue, each from any one thread. Connecting, events and queries stay with the
    /// context. Once an end is dropped, the context posts to its queue again.
    ///
    /// From then on each entry of its completion queues costs two read-modify-writes, to reserve
    /// and to release it. A post that rings the core costs two more.
    ///
    /// ```
    /// # fn post_elsewhere(
    /// #     ctx: &mut ironwarp::Context, qp: ironwarp::QueuePair, cq: ironwarp::CompletionQueue,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use ironwarp::{Completion, SendWr};
    /// let (mut send, recv) = ctx.split_qp(qp)?;
    /// let mut poller = ctx.split_cq(cq)?;
    /// std::thread::spawn(move || send.post_send(&SendWr::send_inline(1, b"from a thread")));
    /// std::thread::spawn(move || poller.poll(&mut [Completion::default(); 16]));
    /// drop(recv); // This context goes on posting receives.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`VerbsError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    /// - [`VerbsError::Split`] if it is split already.
    pub fn split_qp(&mut self, qp: QueuePair) -> Result<(SendPoster, RecvPoster), VerbsError> {
        let app = self.qp_mut(qp)?;
        app.regain();
        if app.split.is_some() {
            return Err(VerbsError::Split);
        }
        let (send_cq, recv_cq) = (app.send_cq, app.recv_cq);
        self.share_with_threads(send_cq)?;
        self.share_with_threads(recv_cq)?;
        let cores: Arc<[CoreDoorbell]> = self.cores.iter().map(CoreDoorbell::new).collect();
        let (send_cq, recv_cq) = (self.cq(send_cq)?.reservations(), self.cq(recv_cq)?.reservations());
        let app = self.qp_mut(qp)?;
        let (Some(send), Some(recv)) = (app.send.take(), app.recv.take()) else {
            return Err(VerbsError::Split);
        };
        let (send_home, recv_home) = (Arc::new(Home::default()), Arc::new(Home::default()));
        app.split = Some(Box::new(SplitQp {
            send: Loan::new(&send_home),
            recv: Loan::new(&recv_home),
            sends: send.observer(),
            receives: recv.observer(),
        }));
        let link = QpLink { qp, shared: app.shared.clone(), cores };
        let send = SendPoster::new(link.clone(), send, send_home, send_cq);
        Ok((send, RecvPoster::new(link, recv, recv_home, recv_cq)))
    }

    /// Lets other threads post requests that complete in a queue.
    fn share_with_threads(&mut self, cq: CompletionQueue) -> Result<(), VerbsError> {
        self.cq_mut(cq)?.share_with_threads();
        self.qps.iter().filter(|app| app.send_cq == cq).for_each(|app| self.add_send_queue(app));
        Ok(())
    }

    /// Lets other threads claim the unsignaled requests of a queue pair, if they post into its
    /// completion queue.
    pub(super) fn add_send_queue(&self, app: &AppQp) {
        if let Ok(cq) = self.cq(app.send_cq)
            && cq.has_threads()
            && let Some(queue) = app.send_observer()
        {
            cq.reservations().add_send_queue(app.handle.num, queue);
        }
    }
}

impl AppQp {
    /// Takes back the ends that were dropped.
    #[cold]
    pub(super) fn regain(&mut self) {
        let Some(split) = &self.split else { return };
        if self.send.is_none() {
            self.send = split.send.take_back().map(|end| SendEnd { control: self.control, ..end });
        }
        self.recv = self.recv.take().or_else(|| split.recv.take_back());
        if self.send.is_some() && self.recv.is_some() {
            self.split = None;
        }
    }

    fn send_observer(&self) -> Option<SlotObserver<SendWqe>> {
        match (&self.send, &self.split) {
            (Some(end), _) => Some(end.observer()),
            (None, split) => split.as_ref().map(|split| split.sends.clone()),
        }
    }

    /// Claims the sends that completed without an entry and were not claimed, and returns their
    /// number.
    pub(super) fn claim_unsignaled(&self) -> u32 {
        match (&self.send, &self.split) {
            (Some(end), _) => end.claim_unsignaled(),
            (None, split) => split.as_ref().map_or(0, |split| split.sends.claim_unsignaled()),
        }
    }

    /// Returns the state of the send queue.
    pub(super) fn sends(&mut self) -> QueueUse {
        match (&mut self.send, &self.split) {
            (Some(end), _) => QueueUse { depth: end.sq.depth(), outstanding: end.sq.outstanding() },
            (None, split) => QueueUse::observed(split.as_ref().map(|split| &split.sends)),
        }
    }

    /// Returns the state of the receive queue: nothing with a shared one.
    pub(super) fn receives(&mut self) -> QueueUse {
        match (&mut self.recv, &self.split) {
            (Some(end), _) => {
                let (depth, outstanding) =
                    end.rq.as_mut().map_or((0, 0), |rq| (rq.depth(), rq.outstanding()));
                QueueUse { depth, outstanding }
            }
            (None, split) => QueueUse::observed(split.as_ref().and_then(|split| split.receives.as_ref())),
        }
    }
}

impl QueueUse {
    fn observed<T>(queue: Option<&SlotObserver<T>>) -> Self {
        let observe =
            |queue: &SlotObserver<T>| QueueUse { depth: queue.depth(), outstanding: queue.outstanding() };
        queue.map_or(QueueUse { depth: 0, outstanding: 0 }, observe)
    }
}
