//! The two ends of a queue pair that post: they check a request, reserve an entry for its
//! completion and write its slot.
//!
//! The context uses them, or threads of their own do ([`split`](crate::context::split)). A request
//! with an error is not posted. A request is written into the queue's own slot and not copied
//! again.

use ironwarp_iwarp::rdmap::Rfc7306Profile;
use ironwarp_iwarp::{RecvWqe, SendFlags, SendOpcode, SendWqe};
use ironwarp_rings::block::Shared;
use ironwarp_rings::slots::{SlotObserver, SlotProducer};
use ironwarp_types::limits::MESSAGE_BYTES_MAX;

use crate::context::cq::AppCq;
use crate::error::PostError;
use crate::objects::{QpControl, QpShared, QpState};
use crate::wr::{RecvWr, SendWr, Source};

/// The end that posts to the send queue.
pub(in crate::context) struct SendEnd {
    pub(super) sq: SlotProducer<SendWqe>,
    pub(super) shared: Shared<QpShared>,
    /// As last published by the context.
    pub(super) control: QpControl,
    pub(super) max_sge: u16,
    pub(super) inline_bytes: u16,
}

/// The end that posts to the receive queue.
pub(in crate::context) struct RecvEnd {
    /// `None`: the queue pair has a shared receive queue.
    pub(super) rq: Option<SlotProducer<RecvWqe>>,
    pub(super) max_sge: u16,
}

/// What posting receives reads of the queue pair.
pub(in crate::context) struct QpView<'a> {
    pub(in crate::context) shared: &'a QpShared,
    pub(in crate::context) control: &'a QpControl,
}

/// The account of a completion queue's entries.
pub(in crate::context) trait CqEntries {
    fn reserve_cqe(&mut self) -> Result<(), PostError>;
    fn release(&mut self, reservations: u32);
    /// Returns whether cores or other threads reserve entries too.
    fn is_shared(&self) -> bool;
}

impl CqEntries for AppCq {
    #[inline]
    fn reserve_cqe(&mut self) -> Result<(), PostError> {
        AppCq::reserve_cqe(self)
    }

    #[inline]
    fn release(&mut self, reservations: u32) {
        AppCq::release(self, reservations);
    }

    #[inline]
    fn is_shared(&self) -> bool {
        self.core_reserves()
    }
}

impl QpView<'_> {
    /// Returns the state. It is draining from the application's request until the connection has
    /// ended.
    pub(in crate::context) fn state(&self) -> QpState {
        match self.shared.state() {
            QpState::Error => QpState::Error,
            _ if self.control.closing => QpState::Draining,
            state => state,
        }
    }
}

impl SendEnd {
    /// Reads what the context has published. For threads other than the context's.
    #[inline]
    pub(in crate::context) fn refresh(&mut self) {
        self.control = self.shared.control();
    }

    /// Checks a request, reserves an entry for its completion and writes it. The core sees it after
    /// [`SendEnd::publish`].
    #[inline(always)]
    pub(in crate::context) fn stage(
        &mut self,
        cq: &mut impl CqEntries,
        wr: &SendWr<'_>,
    ) -> Result<(), PostError> {
        self.check_may_send()?;
        self.check_send(wr)?;
        self.release_shared_cqes(cq);
        self.sq.stage_unless(PostError::QueueFull, |slot| {
            cq.reserve_cqe()?;
            write_send(slot, wr);
            Ok(())
        })
    }

    /// Stages all of them, or none.
    pub(in crate::context) fn stage_all(
        &mut self,
        cq: &mut impl CqEntries,
        wrs: &[SendWr<'_>],
    ) -> Result<(), PostError> {
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

    #[inline(always)]
    pub(in crate::context) fn publish(&mut self) {
        self.sq.publish();
    }

    /// Claims the requests that completed without an entry and were not claimed, and returns their
    /// number.
    pub(super) fn claim_unsignaled(&self) -> u32 {
        self.sq.claim_unsignaled()
    }

    pub(in crate::context) fn observer(&self) -> SlotObserver<SendWqe> {
        self.sq.observer()
    }

    /// Releases the entries of this queue pair's unsignaled requests that are done, if cores
    /// reserve entries of the queue too: a core that finds the queue full ends a connection, so no
    /// entry may wait for a post that finds it full.
    #[inline]
    fn release_shared_cqes(&mut self, cq: &mut impl CqEntries) {
        if cq.is_shared() {
            let unsignaled = self.sq.claim_unsignaled();
            if unsignaled > 0 {
                cq.release(unsignaled);
            }
        }
    }

    #[inline]
    fn check_may_send(&self) -> Result<(), PostError> {
        if self.control.closing
            || matches!(self.shared.state(), QpState::Idle | QpState::Draining | QpState::Error)
        {
            self.check_not_closing()?;
        }
        Ok(())
    }

    /// RFC 5041 s6.2.1: after a disconnect was requested, further requests are errors. Those after
    /// the end are flushed.
    #[cold]
    fn check_not_closing(&self) -> Result<(), PostError> {
        let view = QpView { shared: &self.shared, control: &self.control };
        match view.state() {
            // A worker that was dropped has flushed what was posted, and nobody flushes what would
            // follow.
            QpState::Error if self.sq.is_abandoned() => Err(PostError::WorkerDropped),
            QpState::Error => Ok(()),
            state => Err(PostError::WrongState(state)),
        }
    }

    /// Checks operations that need extensions of the connection.
    #[cold]
    fn check_extended(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let has = |profile: &Rfc7306Profile| profile.swap || wr.opcode != SendOpcode::Swap;
        self.control.extensions.filter(has).ok_or(PostError::NoSuchOperation)?;
        match wr.source {
            Source::Atomic([sink], _) if sink.len != 8 => Err(PostError::AtomicSinkLength),
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn check_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        if wr.opcode.is_extended() {
            return self.check_extended(wr);
        }
        let (requested, bytes) = match wr.source {
            Source::Inline(bytes) if bytes.len() > self.inline_bytes.into() => {
                let allowed = self.inline_bytes.into();
                return Err(PostError::InlineTooLong { requested: bytes.len(), allowed });
            }
            Source::Inline(bytes) => (0, bytes.len() as u64),
            // The usual cases first; a list takes longer.
            Source::Gather([sge]) => (1, u64::from(sge.len)),
            Source::Gather(sge_list) => (sge_list.len(), sge_list.iter().map(|sge| u64::from(sge.len)).sum()),
            // Checked already.
            Source::Atomic(..) => return Ok(()),
        };
        if requested > self.max_sge.into() {
            return Err(PostError::TooManySges { requested, allowed: self.max_sge.into() });
        }
        if wr.opcode.is_read() && requested != 1 {
            return Err(PostError::ReadSinkCount);
        }
        if bytes > u64::from(MESSAGE_BYTES_MAX) { Err(PostError::MessageTooLong(bytes)) } else { Ok(()) }
    }
}

impl RecvEnd {
    /// Checks that somebody is left to flush what is posted.
    #[inline]
    pub(in crate::context) fn check_worker(&self, view: &QpView<'_>) -> Result<(), PostError> {
        if view.shared.state() == QpState::Error { self.check_not_abandoned() } else { Ok(()) }
    }

    #[cold]
    fn check_not_abandoned(&self) -> Result<(), PostError> {
        let is_abandoned = self.rq.as_ref().is_some_and(SlotProducer::is_abandoned);
        if is_abandoned { Err(PostError::WorkerDropped) } else { Ok(()) }
    }

    /// Checks a receive, reserves an entry for its completion and writes it. The core sees it after
    /// [`RecvEnd::publish`].
    #[inline(always)]
    pub(in crate::context) fn stage(
        &mut self,
        cq: &mut impl CqEntries,
        wr: &RecvWr<'_>,
    ) -> Result<(), PostError> {
        let Some(rq) = &mut self.rq else {
            return Err(PostError::UsesSharedReceiveQueue);
        };
        if wr.scatter.len() > self.max_sge.into() {
            let allowed = self.max_sge.into();
            return Err(PostError::TooManySges { requested: wr.scatter.len(), allowed });
        }
        rq.stage_unless(PostError::QueueFull, |slot| {
            cq.reserve_cqe()?;
            write_recv(slot, wr);
            Ok(())
        })
    }

    /// Publishes receives and returns whether the core must be rung. Pairs with the core's half in
    /// `QpCore::enter`: either the core finds the receives when it flushes, or this thread sees
    /// that the connection has ended, and rings.
    #[inline]
    pub(in crate::context) fn publish(&mut self, view: &QpView<'_>) -> bool {
        if let Some(rq) = &mut self.rq {
            rq.publish();
        }
        view.shared.has_ended_after_publish()
    }

    pub(in crate::context) fn observer(&self) -> Option<SlotObserver<RecvWqe>> {
        self.rq.as_ref().map(SlotProducer::observer)
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

#[inline(always)]
pub(in crate::context) fn write_recv(slot: &mut RecvWqe, wr: &RecvWr<'_>) {
    slot.wr_id = wr.wr_id;
    slot.set_scatter(wr.scatter);
}
