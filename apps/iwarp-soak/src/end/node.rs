//! A stack with its worker and context, polled by one thread.

use std::time::Duration;

use ironwarp::{
    Access, AlignedBuf, CompletionQueue, Context, KeepAlive, ProtectionDomain, QpAttr, RecvWr, Region,
    SharedReceiveQueue, Stack, VerbsError, Worker, idle,
};

use super::EndError;
use super::message::{MESSAGE_BYTES_MAX, WINDOW};

/// Receives of a queue pair: one for each message without an answer, and as many for answers under
/// way.
pub(super) const RECEIVES: usize = 2 * WINDOW;
/// Requests of a queue pair.
pub(super) const SEND_DEPTH: u32 = 64;
/// The time after which a silent peer is probed. A connection without work whose peer was killed
/// ends after 13 s.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle: Duration::from_secs(3), interval: Duration::from_secs(1), probes: 10 };

/// A stack of one core and what an application needs of it.
pub(super) struct Node {
    pub(super) stack: Stack,
    pub(super) worker: Worker,
    pub(super) ctx: Context,
    pub(super) pd: ProtectionDomain,
    pub(super) cq: CompletionQueue,
}

impl Node {
    pub(super) fn new((stack, worker): (Stack, Worker)) -> Result<Self, EndError> {
        let mut ctx = stack.context()?;
        let pd = ctx.alloc_pd();
        let cq = ctx.create_cq(CQ_DEPTH)?;
        Ok(Node { stack, worker, ctx, pd, cq })
    }

    /// Runs one iteration of the core.
    pub(super) fn poll(&mut self) {
        if self.worker.poll(4).work == 0 {
            idle(self.worker.idle_policy());
        }
    }

    pub(super) fn attr(&self, srq: Option<SharedReceiveQueue>) -> QpAttr {
        QpAttr {
            srq,
            send_depth: SEND_DEPTH,
            recv_depth: RECEIVES as u32,
            keep_alive: Some(KEEP_ALIVE),
            ..QpAttr::new(self.cq)
        }
    }

    pub(super) fn register(&self, bytes: usize, access: Access) -> Result<Region, EndError> {
        Ok(self.ctx.register(self.pd, AlignedBuf::pages(bytes)?, access)?)
    }

    /// Destroys the completion queue, the last object. Returns whether it is gone: the core returns
    /// the last queue pairs first.
    pub(super) fn release(&mut self) -> Result<bool, EndError> {
        match self.ctx.destroy_cq(self.cq) {
            Ok(()) => Ok(true),
            Err(VerbsError::CompletionQueueInUse) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Posts a receive of [`MESSAGE_BYTES_MAX`] in slot `slot` of a region.
pub(super) fn receive_at(messages: &Region, slot: usize) -> Result<[ironwarp::Sge; 1], EndError> {
    Ok([messages.slice(slot * MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX as u32)?])
}

/// The work request of such a receive.
pub(super) fn receive(slot: usize, place: &[ironwarp::Sge; 1]) -> RecvWr<'_> {
    RecvWr::new(slot as u64, place)
}

const CQ_DEPTH: u32 = 1 << 16;
