//! Queue pairs, the core's half, and where each is in its life.

use core::sync::atomic::{Ordering, fence};
use std::sync::Arc;

use ironwarp_iwarp::mpa::startup::ReadDepths;
use ironwarp_iwarp::rdmap::Rfc7306Profile;
use ironwarp_iwarp::{Io, RecvWqe, SendWqe, Stream, StreamConfig};
use ironwarp_mem::CoreMem;
use ironwarp_rings::doorbell::DoorbellFlag;
use ironwarp_rings::slots::{SlotConsumer, SlotProducer};
use ironwarp_stats::CoreStats;
use ironwarp_tcp::{ConnId, TcpEvents};
use ironwarp_types::{Nanos, PdId};

use super::connection::setup::Setup;
use super::queues::{QueueTable, SelectedQueues};
use crate::context::{QpAttr, QpShared, QpState, QpTimeouts, QueuePair, ReceiveShare};
use crate::event::DisconnectReason;
use crate::shared::SlotLease;

/// What a queue pair's two halves are made from.
pub(crate) struct QpSetup {
    pub(crate) handle: QueuePair,
    pub(crate) pd: PdId,
    /// That of its receives.
    pub(crate) recv_pd: PdId,
    pub(crate) bell: Arc<DoorbellFlag>,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) sq: SlotConsumer<SendWqe>,
    pub(crate) rq: SlotConsumer<RecvWqe>,
    /// The receive ring's other end, where receives come from a shared queue.
    pub(crate) rq_producer: Option<SlotProducer<RecvWqe>>,
    pub(crate) attr: QpAttr,
    /// Words are changed with locked instructions, not by their owners.
    pub(crate) atomic_locked: bool,
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
        }
    }
}

/// Where a queue pair is in its life, as its core sees it.
#[expect(clippy::large_enum_variant, reason = "a box would be allocated on the core")]
pub(super) enum Phase {
    /// Not asked to connect yet.
    Idle,
    /// Connecting or accepting, up to the end of the MPA start-up.
    Setup(Setup),
    /// FPDUs run both ways.
    Running,
    /// The application asked to close: what was posted is still carried out.
    Draining,
    /// Our FIN is on its way; what the peer sends before its own is still taken.
    HalfClosed,
    /// A Terminate was sent or received, or waits to be sent; what arrives is discarded.
    Terminating,
    /// Our FIN is on its way; what arrives is discarded.
    Closing,
    /// No connection any more.
    Ended,
}

impl Phase {
    /// Whether what arrives is FPDUs that are taken.
    #[inline]
    pub(super) fn takes_fpdus(&self) -> bool {
        matches!(self, Phase::Running | Phase::Draining | Phase::HalfClosed)
    }
}

/// The core's half of a queue pair. On cache lines of its own: that of another core's queue pair may lie beside it.
#[repr(align(64))]
pub(crate) struct QpCore {
    pub(super) handle: QueuePair,
    pub(super) bell: Arc<DoorbellFlag>,
    pub(super) shared: Arc<QpShared>,
    pub(super) sq: SlotConsumer<SendWqe>,
    pub(super) rq: SlotConsumer<RecvWqe>,
    rq_producer: Option<SlotProducer<RecvWqe>>,
    pub(super) slot: u32,
    /// Keeps the place for as long as this half exists.
    lease: Option<SlotLease>,
    selected_queues: SelectedQueues,
    /// How much of a shared receive queue its peer may take.
    pub(super) share: Option<ReceiveShare>,
    /// The context that owns it, by place.
    pub(super) context: u16,
    pub(super) conn: Option<ConnId>,
    pub(super) phase: Phase,
    /// The numbers of Reads that there are places for.
    pub(super) reads: ReadDepths,
    /// The connection counts as up when the initiator's first message has come (RFC 6581 s5).
    pub(super) rtr_awaited: bool,
    /// The RDMAP stream. It rests before and after the connection.
    pub(super) stream: Stream,
    /// Whether it waits in the loop's list of senders.
    pub(super) tx_queued: bool,
    /// Whether it waits in the loop's list of those who wait for memory.
    pub(super) awaits_memory: bool,
    /// Bytes that it may still send in its turn; below zero what the last one took too much.
    pub(super) deficit: i64,
    /// It accepted, and has not heard the peer's first message.
    pub(super) awaits_first_message: bool,
    /// Sends were waiting for that message when the timer was set.
    pub(super) sends_waited_at_arm: bool,
    /// How far its oldest Read was when the timer was set, and whether it is set.
    pub(super) read_progress_at_arm: Option<u64>,
    /// Sends are held until then ([`MpaConfig::first_fpdu_holdoff_us`](crate::config::MpaConfig)).
    pub(super) holdoff_until: Nanos,
    /// Something came since the timer was set, behind our FIN.
    pub(super) rx_since_timer: bool,
    /// When a disconnect that is still draining is given up, unless it gets on; behind our FIN, whatever comes.
    pub(super) drain_deadline: Nanos,
    /// How far it was when that was set: octets acknowledged, and the oldest Read.
    pub(super) drain_progress: (u64, Option<u64>),
    /// The peer's FIN has come while it drains.
    pub(super) peer_closed: bool,
    /// What its application says of its patience.
    pub(super) timeouts: QpTimeouts,
    /// What TCP has said of the end while a delivery was held.
    pub(super) deferred_close: TcpEvents,
    /// Why the connection ended, as far as is known.
    pub(super) reason: DisconnectReason,
}

impl QpCore {
    pub(crate) fn new(setup: QpSetup) -> Self {
        let (stream, reads) = (Stream::new(setup.stream_config()), setup.attr.reads());
        let (timeouts, share) = (setup.attr.timeouts(), setup.attr.srq_share);
        QpCore {
            handle: setup.handle,
            bell: setup.bell,
            shared: setup.shared,
            sq: setup.sq,
            rq: setup.rq,
            rq_producer: setup.rq_producer,
            slot: 0,
            lease: None,
            selected_queues: SelectedQueues::default(),
            share,
            context: 0,
            conn: None,
            phase: Phase::Idle,
            reads,
            rtr_awaited: false,
            stream,
            tx_queued: false,
            awaits_memory: false,
            deficit: 0,
            awaits_first_message: false,
            sends_waited_at_arm: false,
            read_progress_at_arm: None,
            holdoff_until: Nanos::ZERO,
            rx_since_timer: false,
            drain_deadline: Nanos::MAX,
            drain_progress: (0, None),
            peer_closed: false,
            timeouts,
            deferred_close: TcpEvents::empty(),
            reason: DisconnectReason::Closed,
        }
    }

    /// Whether its receives come from a shared queue.
    pub(super) fn uses_srq(&self) -> bool {
        self.rq_producer.is_some()
    }

    pub(crate) fn handle(&self) -> QueuePair {
        self.handle
    }

    /// Gives the queue pair its places on a core, and what the connection to come carries.
    pub(crate) fn assign_slot(
        &mut self,
        lease: SlotLease,
        selected_queues: SelectedQueues,
        extensions: Option<Rfc7306Profile>,
    ) {
        self.stream.set_extensions(extensions);
        (self.slot, self.selected_queues) =
            (lease.slot(), SelectedQueues { qp: lease.slot(), ..selected_queues });
        self.lease = Some(lease);
    }

    /// The stream, and what it is lent for a call.
    pub(super) fn stream_io<'a>(
        &'a mut self,
        queues: &'a mut QueueTable,
        memory: &'a CoreMem,
        stats: &'a CoreStats,
    ) -> (&'a mut Stream, Io<'a, QueueTable>) {
        queues.select(self.selected_queues);
        let (sends, receives, rq_producer) = (&mut self.sq, &mut self.rq, self.rq_producer.as_mut());
        (&mut self.stream, Io { sends, receives, rq_producer, callbacks: queues, memory, stats })
    }

    /// Whether the connection has not come up yet, as its application sees it.
    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.phase, Phase::Setup(_)) || (self.rtr_awaited && matches!(self.phase, Phase::Running))
    }

    /// What a phase looks like to the application.
    pub(super) fn state_for(&self, phase: &Phase) -> QpState {
        match phase {
            Phase::Idle => QpState::Idle,
            Phase::Setup(_) => QpState::Connecting,
            Phase::Running if self.rtr_awaited => QpState::Connecting,
            Phase::Running => QpState::Established,
            Phase::Draining | Phase::HalfClosed => QpState::Draining,
            Phase::Terminating | Phase::Closing | Phase::Ended => QpState::Error,
        }
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.shared.set(self.state_for(&phase));
        // A receive is published before the state is looked at, and the state is set before the receives are looked
        // at for the last time: one of the two sides sees the other.
        fence(Ordering::SeqCst);
        self.phase = phase;
    }
}

/// Every queue pair of a core, by place.
pub(super) struct QpTable {
    qps: Box<[Option<Box<QpCore>>]>,
}

impl QpTable {
    pub(super) fn new(capacity: u32) -> Self {
        QpTable { qps: (0..capacity).map(|_| None).collect() }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.qps.len() as u32
    }

    /// Queue pairs that there are.
    pub(super) fn count(&self) -> usize {
        self.qps.iter().flatten().count()
    }

    pub(super) fn insert(&mut self, qp: Box<QpCore>) {
        if let Some(entry) = self.qps.get_mut(qp.slot as usize) {
            *entry = Some(qp);
        }
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<QpCore>> {
        self.qps.get_mut(slot as usize)?.take()
    }

    pub(super) fn at(&mut self, slot: u32) -> Option<&mut QpCore> {
        self.qps.get_mut(slot as usize)?.as_deref_mut()
    }

    /// Places of the queue pairs that a context owns.
    pub(super) fn owned_by(&self, context: u16) -> impl Iterator<Item = u32> + '_ {
        self.qps.iter().flatten().filter(move |qp| qp.context == context).map(|qp| qp.slot)
    }
}
