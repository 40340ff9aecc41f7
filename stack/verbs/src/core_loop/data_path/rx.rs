//! Received bytes: FPDUs to placements, deliveries and completions; acknowledgements to
//! completions.

use core::num::NonZero;

use ironwarp_llp::{Arrival, ConnId, Events, Lent, PayloadReader, Progress, Transport};
use ironwarp_mem::CoreMem;
use ironwarp_net::{Net, Packet};
use ironwarp_port::Wires;
use ironwarp_stats::CoreStats;
use ironwarp_types::Nanos;

use super::qp::QpTable;
use super::queues::QueueTable;
use super::{ConnOwner, DataPath};
use crate::core_loop::lifecycle::Lifecycle;
use crate::core_loop::lower::{FrameOf, LentOf, Lower};

/// What is left to do for a queue pair after received bytes.
#[must_use]
#[derive(Clone, Copy)]
pub(crate) struct RxOutcome {
    pub(crate) slot: u32,
    /// The bits below, and [`RxOutcome::READ`].
    left: NonZero<u8>,
}

// Tuning: the result of a call, in one register.
const _: () = assert!(size_of::<Option<RxOutcome>>() == 8);

impl RxOutcome {
    /// Always set.
    const READ: NonZero<u8> = NonZero::<u8>::MIN;
    /// The stream or TCP has something to send.
    const WANTS_TX: u8 = 2;
    /// A delivery waits until no core uses a steering tag.
    const WAITS: u8 = 4;
    /// The stream ended.
    pub(crate) const ENDED: u8 = 8;
    /// RFC 5044 s7.1.2: the responder's first-FPDU gate was closed before these FPDUs.
    pub(crate) const GATE_CLOSED: u8 = 16;
    /// The connection is in another state than `Running`.
    const NOT_RUNNING: u8 = 32;
    /// The connection carries no FPDUs, or not yet. The bytes stay with TCP.
    pub(crate) const NOT_FPDUS: u8 = 64;

    #[inline(always)]
    fn new<const N: usize>(slot: u32, bits: [(u8, bool); N]) -> Self {
        let left = bits.into_iter().fold(0, |left, (bit, is_set)| if is_set { left | bit } else { left });
        RxOutcome { slot, left: Self::READ | left }
    }

    /// Returns whether nothing is left to do.
    #[inline(always)]
    pub(crate) fn is_done(self) -> bool {
        self.left == Self::READ
    }

    /// Returns whether one of these bits is set.
    #[inline]
    pub(crate) fn has(self, bits: u8) -> bool {
        self.left.get() & bits != 0
    }

    /// Returns whether the state of the connection may change.
    #[inline]
    pub(crate) fn concerns_connection(self) -> bool {
        self.has(Self::ENDED | Self::GATE_CLOSED | Self::NOT_RUNNING | Self::NOT_FPDUS)
    }
}

/// Reads the payload of fast segments in their frames: the parts of a data path that TCP does not
/// use meanwhile.
struct LentReader<'a, L: Lower> {
    conn_owners: &'a [ConnOwner],
    qps: &'a mut QpTable<L>,
    queues: &'a mut QueueTable,
    mem: &'a CoreMem,
    stats: &'a CoreStats,
    /// What [`Lower::sum`] found out about the segment.
    checked: L::Checked,
}

impl<'b, L: Lower> PayloadReader<LentOf<'b, L>, RxOutcome> for LentReader<'_, L> {
    #[inline(always)]
    fn sum(&mut self, conn: ConnId, segment: &[u8], header_bytes: usize) -> Option<u32> {
        let (owners, qps) = (self.conn_owners, &*self.qps);
        let stream = || match owners.get(conn.index()) {
            Some(&ConnOwner::Qp(slot)) => qps.stream(slot),
            _ => None,
        };
        let (sum, checked) = L::sum(stream, segment, header_bytes)?;
        self.checked = checked;
        Some(sum)
    }

    /// Completes what the segment acknowledges, then checks, places and delivers its FPDUs. `None`
    /// if the connection is not in full operation, or if the stream needs its bytes in TCP's queue.
    /// Tuning: not inlined, as the stream needs registers of its own.
    #[inline(never)]
    fn read(&mut self, lent: Lent<'_, LentOf<'b, L>>) -> Option<RxOutcome> {
        let Some(&ConnOwner::Qp(slot)) = self.conn_owners.get(lent.conn.index()) else { return None };
        let qp = self.qps.at(slot)?;
        if !matches!(qp.lifecycle, Lifecycle::Running(_)) || !L::reads_lent(&qp.stream) {
            return None;
        }
        let (stream, mut io) = qp.stream_io(self.queues, self.mem, self.stats);
        if lent.events.contains(Events::ACKED) {
            stream.on_acked(lent.acked_bytes, &mut io);
        }
        L::read_lent(stream, lent.bytes, core::mem::take(&mut self.checked), &mut io);
        let writable = lent.events.intersects(Events::WRITABLE | Events::RETRANSMIT);
        let wants_tx = writable | lent.wants_transmit | stream.wants_tx(&mut io);
        let bits = [
            (RxOutcome::ENDED, stream.has_ended()),
            (RxOutcome::WANTS_TX, wants_tx),
            (RxOutcome::WAITS, stream.awaits_quiescence()),
        ];
        Some(RxOutcome::new(slot, bits))
    }

    #[inline]
    fn join(&self, first: RxOutcome, second: RxOutcome) -> RxOutcome {
        debug_assert_eq!(first.slot, second.slot);
        RxOutcome { left: first.left | second.left, ..second }
    }
}

impl<L: Lower> DataPath<L> {
    /// Returns whether received frames wait in the burst. Polls the port if there are none.
    #[inline(always)]
    pub(crate) fn has_frames(&mut self, port: u8) -> bool {
        let Some(burst) = &mut self.rx_burst else { return false };
        if burst.is_empty() {
            self.wires.at_mut(port).rx_burst(burst);
        }
        !burst.is_empty()
    }

    /// Borrows what TCP uses for a frame of `port`, and what reads payload meanwhile.
    #[inline(always)]
    fn split(&mut self, port: u8) -> (LentReader<'_, L>, &mut L::Transport, &mut Wires<L::Port>, &Net) {
        let reader = LentReader {
            conn_owners: &self.conn_owners,
            qps: &mut self.qps,
            queues: &mut self.queues,
            mem: &self.mem,
            stats: &self.stats,
            checked: L::Checked::default(),
        };
        (reader, &mut self.llp, &mut self.wires, self.nets.at(port))
    }

    /// Handles a frame with a fast segment, or returns it.
    #[inline(always)]
    pub(crate) fn on_fast_frame(
        &mut self,
        now: Nanos,
        port: u8,
        frame: FrameOf<L>,
    ) -> Result<Arrival<RxOutcome>, FrameOf<L>> {
        let (reader, llp, wires, net) = self.split(port);
        llp.on_frame(now, net, frame, wires, reader)
    }

    /// Handles a segment that `net` has checked.
    pub(crate) fn on_segment(
        &mut self,
        now: Nanos,
        port: u8,
        segment: Packet<FrameOf<L>>,
    ) -> Option<Arrival<RxOutcome>> {
        let (reader, llp, wires, net) = self.split(port);
        llp.on_packet(now, segment, net, wires, reader)
    }

    /// Checks, places and delivers whole FPDUs; the rest of one stays with TCP.
    #[inline]
    pub(crate) fn on_readable(&mut self, slot: u32, conn: ConnId) -> RxOutcome {
        let Some(qp) = self.qps.at(slot) else { return RxOutcome::new(slot, []) };
        if !qp.lifecycle.takes_fpdus() {
            return RxOutcome::new(slot, [(RxOutcome::NOT_FPDUS, true)]);
        }
        let gate_closed = !qp.stream.may_send();
        let is_running = matches!(qp.lifecycle, Lifecycle::Running(_));
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        let ended = L::read(stream, self.llp.rx(conn), &mut self.scratch, &mut io).is_err();
        let bits = [
            (RxOutcome::ENDED, ended),
            (RxOutcome::GATE_CLOSED, gate_closed),
            (RxOutcome::NOT_RUNNING, !is_running),
            (RxOutcome::WANTS_TX, stream.wants_tx(&mut io)),
            (RxOutcome::WAITS, stream.awaits_quiescence()),
        ];
        RxOutcome::new(slot, bits)
    }

    /// Lists a queue pair that has read bytes, if it has to send or to wait.
    #[inline]
    pub(crate) fn after_reading(&mut self, outcome: RxOutcome) {
        if outcome.has(RxOutcome::WAITS) {
            self.wait_for_quiescence(outcome.slot);
        }
        if outcome.has(RxOutcome::WANTS_TX) {
            self.enqueue_tx(outcome.slot);
        }
    }

    /// Bytes after a gap, on a connection with out-of-order placement.
    pub(crate) fn on_out_of_order(&mut self, slot: u32, conn: ConnId) {
        let Some(qp) = self.qps.at(slot) else { return };
        if qp.lifecycle.takes_fpdus() {
            let (stream, io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
            L::read_out_of_order(stream, self.llp.rx(conn), &mut self.scratch, &io);
        }
    }

    /// Completes what TCP has acknowledged and continues to send. Returns whether the queue pair is
    /// `Draining`, so that the caller checks whether it is drained now.
    #[inline]
    #[must_use]
    pub(crate) fn on_acked(&mut self, slot: u32, conn: ConnId) -> bool {
        let Progress { acked_bytes, wants_transmit, .. } = self.llp.progress(conn);
        let Some(qp) = self.qps.at(slot) else { return false };
        let draining = matches!(qp.lifecycle, Lifecycle::Draining(_));
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        stream.on_acked(acked_bytes, &mut io);
        let waits = stream.awaits_quiescence();
        if stream.wants_tx(&mut io) || wants_transmit {
            self.enqueue_tx(slot);
        }
        if waits {
            self.wait_for_quiescence(slot);
        }
        draining
    }

    /// A connection without an owner: it only has to end.
    #[cold]
    pub(crate) fn on_orphan_events(&mut self, conn: ConnId, events: Events) {
        if events.contains(Events::READABLE) {
            self.llp.discard(conn);
        }
        if events.intersects(Events::ENDED) {
            self.llp.release(conn);
        }
    }
}
