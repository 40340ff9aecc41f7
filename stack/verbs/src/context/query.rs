//! What can be asked about a queue pair and about the stack as a whole.

use core::net::IpAddr;
use core::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use ironwarp_types::limits::{INLINE_BYTES_MAX, MESSAGE_BYTES_MAX, SGE_MAX};

use super::cq::CQ_DEPTH_MAX;
use super::srq::SRQ_DEPTH_MAX;
use super::{Context, ProtectionDomain};
use crate::error::VerbsError;
use crate::event::NegotiatedParams;
use crate::objects::{CompletionQueue, Framing, QpState, QueuePair, SharedReceiveQueue, WORK_DEPTH_MAX};

/// A queue pair as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QpInfo {
    /// Where it is in its life.
    pub state: QpState,
    /// Whose memory it reaches.
    pub pd: ProtectionDomain,
    /// Where sends complete.
    pub send_cq: CompletionQueue,
    /// Where receives complete.
    pub recv_cq: CompletionQueue,
    /// Where receives come from, when not from its own queue.
    pub srq: Option<SharedReceiveQueue>,
    /// Send requests that fit, at least as many as were asked for.
    pub send_depth: u32,
    /// Receives that fit; 0 with a shared queue.
    pub recv_depth: u32,
    /// Send requests posted and not yet completed by the core.
    pub sends_outstanding: u32,
    /// Receives posted and not yet completed by the core.
    pub receives_outstanding: u32,
    /// Gather or scatter elements in a request.
    pub max_sge: usize,
    /// Inline bytes in a request.
    pub inline_bytes: usize,
    /// What start-up settled, once it has: the numbers of Reads that hold.
    pub negotiated: Option<NegotiatedParams>,
    /// How the connection frames its messages, once start-up has settled it.
    pub framing: Option<Framing>,
    /// Reads that the peer may have outstanding here, as asked for (IRD).
    pub ird: u16,
    /// Reads that we may have outstanding at the peer, as asked for (ORD).
    pub ord: u16,
}

/// A completion queue as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CqInfo {
    /// Places for work requests that were posted and not reaped. A resize that makes it larger shows once it holds.
    pub depth: u32,
    /// Places promised to work requests: posted and not reaped, and not known to have ended without an entry.
    pub reserved_cqes: u32,
    /// Uses by queue pairs: one that sends and receives into it counts twice.
    pub users: u32,
}

/// A shared receive queue as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SrqInfo {
    /// Receives that fit, on all cores together, at least as many as were asked for.
    pub depth: u32,
    /// Receives posted and not yet taken by a message.
    pub posted: u32,
    /// Scatter elements in a receive.
    pub max_sge: usize,
    /// Queue pairs that take receives from it.
    pub users: u32,
}

/// How many of everything there may be, and what a work request can carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Cores that carry connections.
    pub cores: usize,
    /// Queue pairs a core.
    pub queue_pairs: u32,
    /// Completion queues a core.
    pub completion_queues: u32,
    /// Shared receive queues a core.
    pub shared_receive_queues: u32,
    /// Memory regions, windows and fast regions in the process, together.
    pub regions: u32,
    /// Application contexts.
    pub contexts: u32,
    /// How much of the four kinds of object above one context may have, in percent.
    pub context_quota_percent: u8,
    /// Incoming connections a core that have not been accepted or rejected yet.
    pub half_open: u32,
    /// Listening addresses a core.
    pub listeners: u32,
    /// Requests in a send or receive queue.
    pub wq_depth: u32,
    /// Receives in a shared receive queue, a core.
    pub srq_depth: u32,
    /// Places in a completion queue.
    pub cq_depth: u32,
    /// Gather or scatter elements in a Send, Write or receive.
    pub max_sge: usize,
    /// Sink elements of a Read.
    pub max_read_sge: usize,
    /// Inline bytes in a request.
    pub inline_bytes: usize,
    /// Bytes in a message.
    pub message_bytes: u32,
    /// Reads outstanding in either direction of a queue pair.
    pub read_depth: u16,
    /// Private data bytes sent with a connection in revision 1 of MPA.
    pub private_data_bytes: usize,
    /// As before in revision 2, where the numbers of Reads take some of the room.
    pub private_data_bytes_enhanced: usize,
    /// Private data bytes taken from a peer.
    pub private_data_bytes_accepted: usize,
    /// Whether atomic operations can be had, on connections whose [`Extensions`](crate::Extensions) have them. They are
    /// atomic among all connections of this stack and with [`Context::atomic`], and neither against another stack that has the
    /// same memory registered nor against other access to it.
    pub atomics: bool,
}

impl Context {
    /// A queue pair as it is now.
    ///
    /// # Errors
    ///
    /// [`VerbsError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    pub fn query_qp(&mut self, qp: QueuePair) -> Result<QpInfo, VerbsError> {
        self.qp_mut(qp).map(super::qp::AppQp::info)
    }

    /// A completion queue as it is now.
    ///
    /// # Errors
    ///
    /// [`VerbsError::UnknownCompletionQueue`] if `cq` is not a completion queue of this context.
    pub fn query_cq(&self, cq: CompletionQueue) -> Result<CqInfo, VerbsError> {
        self.cq(cq).map(super::cq::AppCq::info)
    }

    /// A shared receive queue as it is now.
    ///
    /// # Errors
    ///
    /// [`VerbsError::UnknownSharedReceiveQueue`] if `srq` is not a shared receive queue of this context.
    pub fn query_srq(&mut self, srq: SharedReceiveQueue) -> Result<SrqInfo, VerbsError> {
        self.srq_mut(srq).map(super::srq::AppSrq::info)
    }

    /// Whether the peer at an address has turned out to lack atomic operations, within the time that the configuration says
    /// (`rdmap.lacks_atomics_cache_s`): a context of this stack has heard [`Event::PeerLacksAtomics`](crate::Event::PeerLacksAtomics),
    /// and no connection to that address has had an answer to one since.
    pub fn lacks_atomics(&self, peer: IpAddr) -> bool {
        let lacks_atomics_cache =
            self.shared.lacks_atomics_cache.lock().unwrap_or_else(PoisonError::into_inner);
        lacks_atomics_cache.has(peer.to_canonical(), Instant::now(), self.lacks_atomics_cache_time())
    }

    /// An event on its way to the application says something to remember.
    #[cold]
    pub(super) fn cache_lacks_atomics(&self, peer: IpAddr) {
        let mut lacks_atomics_cache =
            self.shared.lacks_atomics_cache.lock().unwrap_or_else(PoisonError::into_inner);
        lacks_atomics_cache.note(peer.to_canonical(), Instant::now());
        self.shared.any_lacks_atomics.store(true, Ordering::Relaxed);
    }

    /// That peer has answered one.
    #[cold]
    pub(super) fn uncache_lacks_atomics(&self, peer: IpAddr) {
        let mut lacks_atomics_cache =
            self.shared.lacks_atomics_cache.lock().unwrap_or_else(PoisonError::into_inner);
        lacks_atomics_cache.forget(peer.to_canonical());
    }

    fn lacks_atomics_cache_time(&self) -> Duration {
        Duration::from_secs(self.shared.config.rdmap.lacks_atomics_cache_s)
    }

    /// What this stack allows.
    pub fn limits(&self) -> Limits {
        let (limits, mpa) = (&self.shared.config.limits, &self.shared.config.mpa);
        Limits {
            cores: self.cores.len(),
            queue_pairs: limits.queue_pairs,
            completion_queues: limits.completion_queues,
            shared_receive_queues: limits.shared_receive_queues,
            regions: limits.regions,
            contexts: limits.contexts,
            context_quota_percent: limits.context_quota_percent,
            half_open: limits.half_open,
            listeners: limits.listeners,
            srq_depth: SRQ_DEPTH_MAX,
            wq_depth: WORK_DEPTH_MAX,
            cq_depth: CQ_DEPTH_MAX,
            max_sge: SGE_MAX,
            max_read_sge: 1,
            inline_bytes: INLINE_BYTES_MAX,
            message_bytes: MESSAGE_BYTES_MAX,
            read_depth: limits.read_depth,
            private_data_bytes: mpa.private_data_bytes(false),
            private_data_bytes_enhanced: mpa.private_data_bytes(true),
            private_data_bytes_accepted: limits.private_data_bytes.into(),
            atomics: true,
        }
    }
}

/// Peers remembered at a time; the oldest makes room.
const LACKS_ATOMICS_CACHE_MAX: usize = 256;

/// Which peers turned out to have no atomic operations, and when.
#[derive(Debug, Default)]
pub(crate) struct LacksAtomicsCache(VecDeque<(IpAddr, Instant)>);

impl LacksAtomicsCache {
    fn note(&mut self, peer: IpAddr, now: Instant) {
        self.forget(peer);
        if self.0.len() == LACKS_ATOMICS_CACHE_MAX {
            self.0.pop_front();
        }
        self.0.push_back((peer, now));
    }

    fn forget(&mut self, peer: IpAddr) {
        self.0.retain(|(one, _)| *one != peer);
    }

    fn has(&self, peer: IpAddr, now: Instant, lacks_atomics_cache_time: Duration) -> bool {
        let is_fresh = |noted: Instant| now.saturating_duration_since(noted) < lacks_atomics_cache_time;
        self.0.iter().any(|&(one, noted)| one == peer && is_fresh(noted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/semantics.md, "Atomics": remembered by address, for a while, and never more than there are places for.
    #[test]
    fn a_peer_that_lacks_atomics_is_remembered_for_a_while() {
        let (begun, hour) = (Instant::now(), Duration::from_secs(3600));
        let address = |number: u32| IpAddr::from(core::net::Ipv4Addr::from(number));
        let mut lacks_atomics_cache = LacksAtomicsCache::default();
        lacks_atomics_cache.note(address(1), begun);
        assert!(
            lacks_atomics_cache.has(address(1), begun + hour / 2, hour)
                && !lacks_atomics_cache.has(address(2), begun, hour)
        );
        assert!(
            !lacks_atomics_cache.has(address(1), begun + hour, hour)
                && !lacks_atomics_cache.has(address(1), begun, Duration::ZERO)
        );
        lacks_atomics_cache.forget(address(1));
        assert!(!lacks_atomics_cache.has(address(1), begun, hour), "it has answered");
        lacks_atomics_cache.note(address(1), begun + hour);
        assert!(lacks_atomics_cache.has(address(1), begun + hour * 3 / 2, hour));
        for number in 2..=LACKS_ATOMICS_CACHE_MAX as u32 + 1 {
            lacks_atomics_cache.note(address(number), begun);
        }
        assert!(
            !lacks_atomics_cache.has(address(1), begun + hour, hour)
                && lacks_atomics_cache.has(address(2), begun, hour)
        );
    }
}
