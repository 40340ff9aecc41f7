//! Queue pairs, the core's half: the rings, the stream and the state of the connection.

use core::any::Any;
use core::mem::offset_of;

use ironwarp_arch::{prefetch_read, prefetch_read_first};
use ironwarp_iwarp::rdmap::Rfc7306Profile;
use ironwarp_iwarp::setup::ReadDepths;
use ironwarp_iwarp::{Io, RecvWqe, SendWqe, Stream, StreamConfig};

use ironwarp_llp::{ConnId, Events, Timeouts};
use ironwarp_mem::{Access, CoreMem};
use ironwarp_rings::block::Shared;
use ironwarp_rings::slots::{SlotConsumer, SlotProducer};
use ironwarp_stats::CoreStats;
use ironwarp_types::PdId;

use super::queues::{QpQueueSlots, QpQueues, QueueTable};
use crate::core_loop::lifecycle::Lifecycle;
use crate::core_loop::lower::{Lower, StreamOf};
use crate::objects::{QpAttr, QpShared, QpTimeouts, QueuePair, ReceiveShare};
use crate::shared::SlotLease;

/// The parts of a queue pair's two halves.
pub(crate) struct QpSetup {
    pub(crate) handle: QueuePair,
    pub(crate) pd: PdId,
    /// The protection domain of its receives.
    pub(crate) recv_pd: PdId,
    pub(crate) shared: Shared<QpShared>,
    pub(crate) sq: SlotConsumer<SendWqe>,
    pub(crate) rq: SlotConsumer<RecvWqe>,
    /// The producer of the receive ring, if receives come from a shared queue.
    pub(crate) rq_producer: Option<SlotProducer<RecvWqe>>,
    pub(crate) attr: QpAttr,
    /// Atomic operations use locked instructions instead of owners.
    pub(crate) atomic_locked: bool,
    /// The stream takes the fast path where it applies.
    pub(crate) fast_path: bool,
}

impl QpSetup {
    fn stream_config(&self) -> StreamConfig {
        StreamConfig {
            qp: self.handle.num(),
            pd: self.pd,
            recv_pd: self.recv_pd,
            ord: self.attr.ord,
            ird: self.attr.ird,
            send_depth: self.attr.send_depth.next_power_of_two(),
            complete_on_copy: self.attr.complete_on_copy,
            interleave_untagged: true,
            place_out_of_order: self.attr.place_out_of_order.unwrap_or(false),
            extensions: None,
            atomic_locked: self.atomic_locked,
            fast_path: self.fast_path,
        }
    }
}

/// The core's half of a queue pair. On cache lines of its own, since another core's queue pair may
/// be its neighbour in memory. What each message uses comes first.
#[repr(C, align(64))]
pub(crate) struct QpCore<L: Lower> {
    pub(crate) conn: Option<ConnId>,
    queue_slots: QpQueueSlots,
    /// The DRR deficit in bytes: negative after an overdraft, of at most a unit, which is deducted
    /// from the next quantum.
    pub(crate) deficit: i32,
    /// Whether it is in the list of senders.
    pub(crate) tx_queued: bool,
    /// Whether it is in the list of quiescence waiters.
    pub(crate) awaits_quiescence: bool,
    /// The context that owns it, by number.
    pub(crate) context: u16,
    pub(crate) shared: Shared<QpShared>,
    pub(crate) sq: SlotConsumer<SendWqe>,
    /// The state of its connection.
    pub(crate) lifecycle: Lifecycle<L>,
    /// The RDMAP stream. It is idle before the connection and ended after it.
    pub(crate) stream: StreamOf<L>,
    rq_producer: Option<SlotProducer<RecvWqe>>,
    pub(crate) rq: SlotConsumer<RecvWqe>,
    pub(crate) handle: QueuePair,
    /// Keeps the slot in use for as long as this half exists.
    lease: Option<SlotLease>,
    /// How much of a shared receive queue its peer may take.
    pub(crate) share: Option<ReceiveShare>,
    /// The timeouts that the application set, if it set any.
    timeouts: Option<Box<QpTimeouts>>,
    /// FIN events that arrived while a delivery was pending. They are handled after it, in whatever
    /// state the connection is then.
    pub(crate) deferred_close: Events,
}

impl<L: Lower> QpCore<L> {
    pub(crate) fn new(setup: QpSetup) -> Self {
        let stream = Stream::new(setup.stream_config());
        let (timeouts, share) = (setup.attr.timeouts(), setup.attr.srq_share);
        let timeouts = (timeouts != QpTimeouts::default()).then(|| Box::new(timeouts));
        QpCore {
            handle: setup.handle,
            shared: setup.shared,
            sq: setup.sq,
            rq: setup.rq,
            rq_producer: setup.rq_producer,
            lease: None,
            queue_slots: QpQueueSlots::default(),
            share,
            context: 0,
            conn: None,
            lifecycle: Lifecycle::Idle,
            stream,
            tx_queued: false,
            awaits_quiescence: false,
            deficit: 0,
            timeouts,
            deferred_close: Events::empty(),
        }
    }

    /// Returns the depths of Reads that it was created for.
    pub(crate) fn reads(&self) -> ReadDepths {
        self.stream.depths_at_creation()
    }

    /// Returns its slot on the core.
    pub(crate) fn slot(&self) -> u32 {
        self.queue_slots.qp
    }

    /// Returns whether its receives come from a shared queue.
    pub(crate) fn uses_srq(&self) -> bool {
        self.rq_producer.is_some()
    }

    /// Returns the timeouts in effect with the configured `default`.
    pub(crate) fn timeouts(&self, default: Timeouts) -> Timeouts {
        self.timeouts.as_deref().map_or(default, |timeouts| timeouts.resolve(default))
    }

    /// The stream, and what it borrows for a call.
    pub(crate) fn stream_io<'a>(
        &'a mut self,
        queues: &'a mut QueueTable,
        memory: &'a CoreMem,
        stats: &'a CoreStats,
    ) -> (&'a mut StreamOf<L>, Io<'a, QpQueues<'a>>) {
        let (sends, receives) = (&mut self.sq, &mut self.rq);
        // Without a shared queue there is none, and its cache line is not read.
        let uses_srq = self.queue_slots.srq.is_some();
        let rq_producer = if uses_srq { self.rq_producer.as_mut() } else { None };
        let callbacks = queues.of_qp(self.queue_slots);
        (&mut self.stream, Io { sends, receives, rq_producer, callbacks, memory, stats })
    }

    /// Enters the next state of the connection, publishes it to the application and returns the
    /// state before.
    pub(crate) fn enter(&mut self, next: Lifecycle<L>) -> Lifecycle<L> {
        // A post publishes a receive, then reads the state. So either the core flushes the receive,
        // or the posting thread sees `Error` and rings the doorbell.
        self.shared.set(next.qp_state());
        self.lifecycle.enter(next)
    }
}

/// The part of a queue pair that a message uses: six cache lines.
const TRAFFIC_BYTES: usize = 6 * 64;

const _: () = {
    type LowerInMemory = crate::core_loop::MpaOverTcp<ironwarp_port::memory::MemoryPort>;
    type Core = QpCore<LowerInMemory>;
    assert!(size_of::<Core>() == 640);
    assert!(offset_of!(Core, stream) + StreamOf::<LowerInMemory>::TRAFFIC_BYTES <= TRAFFIC_BYTES);
};

/// The core's half of a queue pair as a context sees it, which knows no lower layer. The core casts
/// it back when it arrives.
pub(crate) trait QpHalf: Any + Send {
    fn handle(&self) -> QueuePair;

    /// Assigns the slots on a core and the extensions of the connection.
    fn assign_slot(
        &mut self,
        lease: SlotLease,
        queue_slots: QpQueueSlots,
        extensions: Option<Rfc7306Profile>,
    );

    /// Sets what the peer may do.
    fn set_remote_access(&mut self, granted: Access);
}

impl<L: Lower> QpHalf for QpCore<L> {
    fn handle(&self) -> QueuePair {
        self.handle
    }

    fn assign_slot(
        &mut self,
        lease: SlotLease,
        queue_slots: QpQueueSlots,
        extensions: Option<Rfc7306Profile>,
    ) {
        self.stream.set_extensions(extensions);
        self.queue_slots = QpQueueSlots { qp: lease.slot(), ..queue_slots };
        self.lease = Some(lease);
    }

    fn set_remote_access(&mut self, granted: Access) {
        self.stream.set_remote_access(granted);
    }
}

/// All queue pairs of a core, by slot.
pub(crate) struct QpTable<L: Lower> {
    qps: Box<[Option<Box<QpCore<L>>>]>,
}

impl<L: Lower> QpTable<L> {
    pub(crate) fn new(capacity: u32) -> Self {
        QpTable { qps: (0..capacity).map(|_| None).collect() }
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.qps.len() as u32
    }

    /// The number of queue pairs.
    pub(crate) fn count(&self) -> usize {
        self.qps.iter().flatten().count()
    }

    pub(crate) fn insert(&mut self, qp: Box<QpCore<L>>) {
        if let Some(entry) = self.qps.get_mut(qp.slot() as usize) {
            *entry = Some(qp);
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Box<QpCore<L>>> {
        self.qps.get_mut(slot as usize)?.take()
    }

    pub(crate) fn at(&mut self, slot: u32) -> Option<&mut QpCore<L>> {
        self.qps.get_mut(slot as usize)?.as_deref_mut()
    }

    /// Returns the stream of a queue pair.
    #[inline(always)]
    pub(crate) fn stream(&self, slot: u32) -> Option<&StreamOf<L>> {
        Some(&self.qps.get(slot as usize)?.as_ref()?.stream)
    }

    /// Prefetches a queue pair.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        if let Some(Some(qp)) = self.qps.get(slot as usize) {
            prefetch_read_first::<_, TRAFFIC_BYTES>(&**qp);
        }
    }

    /// Prefetches what a received segment reads outside the queue pair: the producer's index of the
    /// send ring, and the oldest request if one may be acknowledged.
    #[inline]
    pub(crate) fn prefetch_for_segment(&self, slot: u32) {
        let Some(Some(qp)) = self.qps.get(slot as usize) else { return };
        qp.sq.prefetch();
        let oldest = qp.sq.head();
        if oldest != qp.sq.tail() {
            qp.sq.prefetch_at(oldest);
            qp.stream.prefetch_request(oldest);
        }
    }

    /// Prefetches the indices of a queue pair's send ring, and what the queue pair shares with the
    /// application. Returns its connection.
    #[inline]
    pub(crate) fn prefetch_ring(&self, slot: u32) -> Option<ConnId> {
        let qp = self.qps.get(slot as usize)?.as_ref()?;
        qp.sq.prefetch();
        prefetch_read(&*qp.shared);
        qp.conn
    }

    /// Prefetches the next request of a queue pair.
    #[inline]
    pub(crate) fn prefetch_request(&self, slot: u32) {
        if let Some(Some(qp)) = self.qps.get(slot as usize) {
            qp.sq.prefetch_at(qp.sq.tail());
        }
    }

    /// The slots of the table, free ones included.
    pub(crate) fn slots(&self) -> core::ops::Range<u32> {
        0..self.qps.len() as u32
    }

    /// The slots of the queue pairs that a context owns.
    pub(crate) fn owned_by(&self, context: u16) -> impl Iterator<Item = u32> + '_ {
        self.qps.iter().flatten().filter(move |qp| qp.context == context).map(|qp| qp.slot())
    }
}
