//! Received bytes: FPDUs to placements, deliveries and completions; acknowledgements to completions.

use core::num::NonZero;

use ironwarp_arch::checksum;
use ironwarp_arch::one_pass::{BYTES_MIN, PrefixCrc};
use ironwarp_iwarp::StreamError;
use ironwarp_iwarp::mpa::fpdu;
use ironwarp_llp::{Arrival, ByteStream, ConnId, Events, Lent, PayloadReader, Progress, Transport};
use ironwarp_mem::CoreMem;
use ironwarp_net::{Net, TcpSegment};
use ironwarp_port::Wires;
use ironwarp_stats::CoreStats;
use ironwarp_types::Nanos;

use super::qp::QpTable;
use super::queues::QueueTable;
use super::{ConnOwner, DataPath};
use crate::core_loop::lifecycle::Lifecycle;
use crate::core_loop::lower::{FrameOf, Lower};

/// What is left for the connection manager after received bytes.
#[must_use]
pub(crate) enum RxOutcome {
    /// Nothing.
    Done,
    /// The connection carries no FPDUs, or not yet. The bytes stay with TCP.
    NotFpdus,
    /// The stream ended, the connection is in another state than `Running`, or the first-FPDU gate was closed before
    /// these bytes.
    Exception(RxException),
}

/// The result of received FPDUs that may change the state of the connection.
pub(crate) struct RxException {
    /// Why the stream ended.
    pub(crate) end: Option<StreamError>,
    /// RFC 5044 s7.1.2: the responder's first-FPDU gate was closed before these FPDUs.
    pub(crate) gate_closed: bool,
    /// Whether the stream has something to send.
    pub(crate) wants_tx: bool,
}

/// What is left to do for a queue pair that has read the payload of a fast segment.
pub(crate) struct Delivered {
    slot: u32,
    /// The bits below, and [`Delivered::TAKEN`].
    left: NonZero<u8>,
}

// The result of a call, in one register.
const _: () = assert!(size_of::<Option<Delivered>>() == 8);

impl Delivered {
    /// Always set.
    const TAKEN: NonZero<u8> = NonZero::<u8>::MIN;
    /// The stream ended.
    const ENDED: u8 = 2;
    /// The stream or TCP has something to send.
    const WANTS_TX: u8 = 4;
    /// A delivery waits until no core uses a steering tag.
    const WAITS: u8 = 8;

    #[inline(always)]
    fn new(slot: u32, ended: bool, wants_tx: bool, waits: bool) -> Self {
        let bit = |bit: u8, is_set: bool| if is_set { bit } else { 0 };
        let bits = bit(Self::ENDED, ended) | bit(Self::WANTS_TX, wants_tx) | bit(Self::WAITS, waits);
        Delivered { slot, left: Self::TAKEN | bits }
    }

    /// Returns whether nothing is left to do.
    #[inline(always)]
    pub(crate) fn is_done(&self) -> bool {
        self.left == Self::TAKEN
    }

    #[inline]
    fn has(&self, bit: u8) -> bool {
        self.left.get() & bit != 0
    }

    /// Returns the queue pair if its stream ended.
    #[inline]
    pub(crate) fn ended(&self) -> Option<u32> {
        self.has(Self::ENDED).then_some(self.slot)
    }
}

/// Reads the payload of fast segments in their frames: the parts of a data path that TCP does not use meanwhile.
struct LentReader<'a> {
    conn_owners: &'a [ConnOwner],
    qps: &'a mut QpTable,
    queues: &'a mut QueueTable,
    mem: &'a CoreMem,
    stats: &'a CoreStats,
    /// The CRC of the first FPDU of the segment, if it came with the sum.
    crc: PrefixCrc,
}

impl LentReader<'_> {
    /// Sums a long segment, and keeps the CRC of its first FPDU.
    #[inline(never)]
    fn sum_with_crc(&mut self, conn: ConnId, segment: &[u8], header_bytes: usize) -> Option<u32> {
        let Some(&ConnOwner::Qp(slot)) = self.conn_owners.get(conn.index()) else { return None };
        let (header, payload) = segment.split_at_checked(header_bytes)?;
        let (sum, crc) = self.qps.at(slot)?.stream.sum_with_crc(payload)?;
        self.crc = crc;
        Some(checksum::sum(header) + sum)
    }
}

impl<B: ByteStream> PayloadReader<B, Delivered> for LentReader<'_> {
    #[inline(always)]
    fn sum(&mut self, conn: ConnId, segment: &[u8], header_bytes: usize) -> Option<u32> {
        match segment.len() < BYTES_MIN {
            true => fpdu::sum_and_crc(segment, header_bytes).map(|(sum, crc)| {
                self.crc = crc;
                sum
            }),
            false => self.sum_with_crc(conn, segment, header_bytes),
        }
    }

    /// Completes what the segment acknowledges, then checks, places and delivers its FPDUs. `None` if the connection is
    /// not in full operation, or if the stream needs its bytes in TCP's queue. Not inlined: the stream needs registers of
    /// its own.
    #[inline(never)]
    fn read(&mut self, lent: Lent<'_, B>) -> Option<Delivered> {
        let Some(&ConnOwner::Qp(slot)) = self.conn_owners.get(lent.conn.index()) else { return None };
        let qp = self.qps.at(slot)?;
        if !matches!(qp.lifecycle, Lifecycle::Running(_)) || !qp.stream.reads_lent_bytes() {
            return None;
        }
        let (stream, mut io) = qp.stream_io(self.queues, self.mem, self.stats);
        if lent.events.contains(Events::ACKED) {
            stream.on_acked(lent.acked_bytes, &mut io);
        }
        let taken = stream.on_readable_fast(lent.bytes.front(), self.crc, &mut io);
        lent.bytes.consume(taken);
        let writable = lent.events.intersects(Events::WRITABLE | Events::RETRANSMIT);
        let wants_tx = writable | lent.wants_transmit | stream.wants_tx(&mut io);
        Some(Delivered::new(slot, stream.has_ended(), wants_tx, stream.awaits_quiescence()))
    }
}

impl<L: Lower> DataPath<L> {
    /// Polls the port of a core that has no other, and returns whether nothing arrived. Received frames wait in the
    /// burst.
    #[inline(always)]
    pub(crate) fn has_no_frames(&mut self) -> bool {
        let Some(burst) = &mut self.rx_burst else { return false };
        self.wires.first_mut().rx_burst(burst);
        burst.is_empty()
    }

    /// Borrows what TCP uses for a frame of `port`, and what reads payload meanwhile.
    #[inline(always)]
    fn split(&mut self, port: u8) -> (LentReader<'_>, &mut L::Transport, &mut Wires<L::Port>, &Net) {
        let reader = LentReader {
            conn_owners: &self.conn_owners,
            qps: &mut self.qps,
            queues: &mut self.queues,
            mem: &self.mem,
            stats: &self.stats,
            crc: PrefixCrc::default(),
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
    ) -> Result<Arrival<Delivered>, FrameOf<L>> {
        let (reader, llp, wires, net) = self.split(port);
        llp.on_frame(now, net, frame, wires, reader)
    }

    /// Handles a segment that `net` has checked.
    pub(crate) fn on_segment(
        &mut self,
        now: Nanos,
        port: u8,
        segment: TcpSegment<FrameOf<L>>,
    ) -> Option<Arrival<Delivered>> {
        let (reader, llp, wires, net) = self.split(port);
        llp.on_packet(now, segment, net, wires, reader)
    }

    /// Lists a queue pair that has read lent payload, if it has to send or to wait.
    #[inline]
    pub(crate) fn after_delivery(&mut self, delivered: Delivered) {
        if delivered.has(Delivered::WAITS) {
            self.wait_for_quiescence(delivered.slot);
        }
        if delivered.has(Delivered::WANTS_TX) {
            self.enqueue_tx(delivered.slot);
        }
    }

    /// Checks, places and delivers whole FPDUs; the rest of one stays with TCP.
    #[inline]
    pub(crate) fn on_readable(&mut self, slot: u32, conn: ConnId) -> RxOutcome {
        let Some(qp) = self.qps.at(slot) else { return RxOutcome::Done };
        if !qp.lifecycle.takes_fpdus() {
            return RxOutcome::NotFpdus;
        }
        let gate_closed = !qp.stream.may_send();
        let in_full_operation = matches!(qp.lifecycle, Lifecycle::Running(_)) && !gate_closed;
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        let end = stream.on_readable(&mut self.llp.rx(conn), &mut self.scratch, &mut io).err();
        let wants_tx = stream.wants_tx(&mut io);
        if stream.awaits_quiescence() {
            self.wait_for_quiescence(slot);
        }
        if !in_full_operation || end.is_some() {
            return RxOutcome::Exception(RxException { end, gate_closed, wants_tx });
        }
        if wants_tx {
            self.enqueue_tx(slot);
        }
        RxOutcome::Done
    }

    /// Returns the outcome of lent payload for a stream that ended with it.
    pub(crate) fn outcome_of_end(&mut self, slot: u32) -> Option<(ConnId, RxOutcome)> {
        let qp = self.qps.at(slot)?;
        let exception = RxException { end: qp.stream.error(), gate_closed: false, wants_tx: qp.tx_queued };
        Some((qp.conn?, RxOutcome::Exception(exception)))
    }

    /// Bytes after a gap, on a connection with out-of-order placement.
    pub(crate) fn on_out_of_order(&mut self, slot: u32, conn: ConnId) {
        let Some(qp) = self.qps.at(slot) else { return };
        if qp.lifecycle.takes_fpdus() {
            let (stream, io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
            stream.on_out_of_order(&self.llp.rx(conn), &mut self.scratch, &io);
        }
    }

    /// Completes what TCP has acknowledged and continues to send. Returns whether the queue pair is `Draining`, so
    /// that the caller checks whether it is drained now.
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
