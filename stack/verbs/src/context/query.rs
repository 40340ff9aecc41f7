//! Queries of objects and of the stack's limits.

use core::net::{IpAddr, SocketAddr};
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

/// The state of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QpInfo {
    /// The state of its connection.
    pub state: QpState,
    /// Its protection domain.
    pub pd: ProtectionDomain,
    /// The completion queue of sends.
    pub send_cq: CompletionQueue,
    /// The completion queue of receives.
    pub recv_cq: CompletionQueue,
    /// The shared receive queue, if receives come from one.
    pub srq: Option<SharedReceiveQueue>,
    /// The capacity of the send queue, at least the requested one.
    pub send_depth: u32,
    /// The capacity of the receive queue; 0 with a shared queue.
    pub recv_depth: u32,
    /// Send requests posted and not yet completed by the core.
    pub sends_outstanding: u32,
    /// Receives posted and not yet completed by the core.
    pub receives_outstanding: u32,
    /// Gather or scatter elements of a request.
    pub max_sge: usize,
    /// Inline bytes of a request.
    pub inline_bytes: usize,
    /// The result of start-up, if it has finished: the read depths in effect.
    pub negotiated: Option<NegotiatedParams>,
    /// The framing of the connection's messages, if start-up has finished.
    pub framing: Option<Framing>,
    /// The local address of the connection, from [`Event::Established`](crate::Event::Established)
    /// on.
    pub local: Option<SocketAddr>,
    /// The peer's address.
    pub remote: Option<SocketAddr>,
    /// The core that it is on, from connect or accept on.
    pub core: Option<u16>,
    /// Reads that the peer may have outstanding here, as requested (IRD).
    pub ird: u16,
    /// Reads that this side may have outstanding at the peer, as requested (ORD).
    pub ord: u16,
}

/// The state of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CqInfo {
    /// The core that it is bound to.
    pub core: Option<u16>,
    /// Requests that may be posted and not reaped. A larger depth of a resize is shown once it is
    /// in effect.
    pub depth: u32,
    /// Reserved entries: for requests that are posted and not reaped, and not known to have ended
    /// without a completion.
    pub reserved_cqes: u32,
    /// Uses by queue pairs: one that sends and receives into it counts twice.
    pub users: u32,
}

/// The state of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SrqInfo {
    /// The core that it is bound to.
    pub core: Option<u16>,
    /// The capacity in receives, on all cores together; at least the requested one.
    pub depth: u32,
    /// Receives that are posted and not consumed by a message.
    pub posted: u32,
    /// Scatter elements of a receive.
    pub max_sge: usize,
    /// Queue pairs that use it.
    pub users: u32,
}

/// The limits of a stack and of work requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Cores that carry connections.
    pub cores: usize,
    /// Queue pairs on each core.
    pub queue_pairs: u32,
    /// Completion queues on each core.
    pub completion_queues: u32,
    /// Shared receive queues on each core.
    pub shared_receive_queues: u32,
    /// Memory regions, windows and fast regions of the process, together.
    pub regions: u32,
    /// Application contexts.
    pub contexts: u32,
    /// The share of one context in the four kinds of object above, in percent.
    pub context_quota_percent: u8,
    /// Incoming connections on each core that are neither accepted nor rejected.
    pub half_open: u32,
    /// Listening addresses on each core.
    pub listeners: u32,
    /// Requests of a send or receive queue.
    pub wq_depth: u32,
    /// Receives of a shared receive queue, on each core.
    pub srq_depth: u32,
    /// Entries of a completion queue.
    pub cq_depth: u32,
    /// Gather or scatter elements of a Send, Write or receive.
    pub max_sge: usize,
    /// Sink elements of a Read.
    pub max_read_sge: usize,
    /// Inline bytes of a request.
    pub inline_bytes: usize,
    /// Bytes of a message.
    pub message_bytes: u32,
    /// Reads outstanding in either direction of a queue pair.
    pub read_depth: u16,
    /// Bytes of private data sent with MPA revision 1.
    pub private_data_bytes: usize,
    /// Bytes of private data sent with revision 2, where the read depths use some of the room.
    pub private_data_bytes_enhanced: usize,
    /// Bytes of private data accepted from a peer.
    pub private_data_bytes_accepted: usize,
    /// Whether atomic operations are available, on connections whose
    /// [`Extensions`](crate::Extensions) include them. They are atomic among all connections of
    /// this stack and with [`Context::atomic`], but neither with another stack that has the same
    /// memory registered nor with other accesses.
    pub atomics: bool,
}

impl Context {
    /// Returns the state of a queue pair.
    ///
    /// # Errors
    ///
    /// [`VerbsError::UnknownQueuePair`] if `qp` is not a queue pair of this context.
    pub fn query_qp(&mut self, qp: QueuePair) -> Result<QpInfo, VerbsError> {
        self.qp_mut(qp).map(super::qp::AppQp::info)
    }

    /// Returns the state of a completion queue.
    ///
    /// # Errors
    ///
    /// [`VerbsError::UnknownCompletionQueue`] if `cq` is not a completion queue of this context.
    pub fn query_cq(&self, cq: CompletionQueue) -> Result<CqInfo, VerbsError> {
        self.cq(cq).map(super::cq::AppCq::info)
    }

    /// Returns the state of a shared receive queue.
    ///
    /// # Errors
    ///
    /// [`VerbsError::UnknownSharedReceiveQueue`] if `srq` is not a shared receive queue of this
    /// context.
    pub fn query_srq(&mut self, srq: SharedReceiveQueue) -> Result<SrqInfo, VerbsError> {
        self.srq_mut(srq).map(super::srq::AppSrq::info)
    }

    /// Returns whether the peer at an address is known to lack atomic operations. A context of this
    /// stack records it at [`Event::PeerLacksAtomics`](crate::Event::PeerLacksAtomics), for
    /// `rdmap.lacks_atomics_cache_s`, or until an atomic operation succeeds with that address.
    pub fn lacks_atomics(&self, peer: IpAddr) -> bool {
        let lacks_atomics_cache =
            self.shared.lacks_atomics_cache.lock().unwrap_or_else(PoisonError::into_inner);
        lacks_atomics_cache.has(peer.to_canonical(), Instant::now(), self.lacks_atomics_cache_time())
    }

    /// Records what an event says about a peer's atomic operations.
    #[cold]
    pub(super) fn cache_lacks_atomics(&self, peer: IpAddr) {
        let mut lacks_atomics_cache =
            self.shared.lacks_atomics_cache.lock().unwrap_or_else(PoisonError::into_inner);
        lacks_atomics_cache.note(peer.to_canonical(), Instant::now());
        self.shared.any_lacks_atomics.store(true, Ordering::Relaxed);
    }

    /// The peer has answered an atomic operation.
    #[cold]
    pub(super) fn uncache_lacks_atomics(&self, peer: IpAddr) {
        let mut lacks_atomics_cache =
            self.shared.lacks_atomics_cache.lock().unwrap_or_else(PoisonError::into_inner);
        lacks_atomics_cache.forget(peer.to_canonical());
    }

    fn lacks_atomics_cache_time(&self) -> Duration {
        Duration::from_secs(self.shared.config.rdmap.lacks_atomics_cache_s)
    }

    /// Returns the limits of this stack.
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

/// Peers that are recorded at a time; the oldest entry is replaced.
const LACKS_ATOMICS_CACHE_MAX: usize = 256;

/// The peers that lack atomic operations, and when that was detected.
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

    /// docs/semantics.md, "Atomics": recorded by address, for a limited time, in a table of fixed
    /// size.
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
