//! Received bytes: FPDUs to placements, deliveries and completions; acknowledgements to completions.

use ironwarp_iwarp::StreamError;
use ironwarp_port::Port;
use ironwarp_tcp::{Arrival, ByteStream, ConnId, LentBytes, TcpEvents};
use ironwarp_types::Nanos;

use super::DataPath;
use crate::core_loop::lifecycle::Lifecycle;

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

impl<P: Port> DataPath<P> {
    /// Polls the first port of a core that has no other, and returns whether nothing arrived. Received frames wait in the
    /// burst.
    #[inline(always)]
    pub(crate) fn has_no_frames(&mut self) -> bool {
        if self.wires.has_several() {
            return false;
        }
        let Some(burst) = &mut self.rx_burst else { return false };
        self.wires.first_mut().rx_burst(burst);
        burst.is_empty()
    }

    /// Passes a frame with a predicted segment to TCP, or returns it.
    #[inline(always)]
    pub(crate) fn on_predicted_frame(
        &mut self,
        now: Nanos,
        port: u8,
        frame: P::Frame,
    ) -> Result<Arrival<P::Frame>, P::Frame> {
        self.tcp.on_predicted_frame(now, self.nets.at(port), frame, &mut self.wires)
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
        let mut bytes = self.tcp.rx(conn);
        let end = stream.on_readable(&mut bytes, &mut self.scratch, &mut io).err();
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

    /// Handles a predicted segment whose payload is not in TCP's queue: completes what it acknowledges, then checks,
    /// places and delivers its FPDUs. Returns the payload if the connection is not in full operation, or if the stream
    /// needs its bytes in TCP's queue.
    #[inline(always)]
    pub(crate) fn on_lent_bytes(
        &mut self,
        now: Nanos,
        (slot, conn): (u32, ConnId),
        events: TcpEvents,
        mut bytes: LentBytes<P::Frame>,
    ) -> Result<RxOutcome, LentBytes<P::Frame>> {
        let Some(qp) = self.qps.at(slot) else { return Err(bytes) };
        if !matches!(qp.lifecycle, Lifecycle::Running(_)) || !qp.stream.reads_lent_bytes() {
            return Err(bytes);
        }
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        let mut wants_tx = events.intersects(TcpEvents::WRITABLE | TcpEvents::RETRANSMIT);
        if events.contains(TcpEvents::ACKED) {
            stream.on_acked(self.tcp.acked_bytes(conn), &mut io);
            wants_tx |= self.tcp.wants_transmit(conn);
        }
        let end = stream.on_readable(&mut bytes, &mut self.scratch, &mut io).err();
        wants_tx |= stream.wants_tx(&mut io);
        let waits = stream.awaits_quiescence();
        // The stream has seen the rest: it is no whole FPDU, or it has to wait.
        let _ = self.tcp.accept(now, conn, bytes, &mut self.wires);
        if waits {
            self.wait_for_quiescence(slot);
        }
        if wants_tx {
            self.enqueue_tx(slot);
        }
        Ok(match end {
            None => RxOutcome::Done,
            Some(_) => RxOutcome::Exception(RxException { end, gate_closed: false, wants_tx }),
        })
    }

    /// Bytes after a gap, on a connection with out-of-order placement.
    pub(crate) fn on_out_of_order(&mut self, slot: u32, conn: ConnId) {
        let Some(qp) = self.qps.at(slot) else { return };
        if qp.lifecycle.takes_fpdus() {
            let (stream, io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
            stream.on_out_of_order(&self.tcp.rx(conn), &mut self.scratch, &io);
        }
    }

    /// Completes what TCP has acknowledged and continues to send. Returns whether the queue pair is `Draining`, so
    /// that the caller checks whether it is drained now.
    #[inline]
    #[must_use]
    pub(crate) fn on_acked(&mut self, slot: u32, conn: ConnId) -> bool {
        let acked = self.tcp.acked_bytes(conn);
        let Some(qp) = self.qps.at(slot) else { return false };
        let draining = matches!(qp.lifecycle, Lifecycle::Draining(_));
        let (stream, mut io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        stream.on_acked(acked, &mut io);
        let waits = stream.awaits_quiescence();
        if stream.wants_tx(&mut io) || self.tcp.wants_transmit(conn) {
            self.enqueue_tx(slot);
        }
        if waits {
            self.wait_for_quiescence(slot);
        }
        draining
    }

    /// A connection without an owner: it only has to end.
    #[cold]
    pub(crate) fn on_orphan_events(&mut self, conn: ConnId, events: TcpEvents) {
        if events.contains(TcpEvents::READABLE) {
            self.tcp.rx(conn).consume(usize::MAX);
        }
        if events.intersects(TcpEvents::ENDED) {
            self.tcp.release(conn);
        }
    }
}
