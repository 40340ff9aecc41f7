//! The ready-to-receive indication of the peer-to-peer model (RFC 6581 s5, s9.2).
//!
//! The initiator's first FPDU is a Send, an RDMA Write or an RDMA Read of no octets, before all
//! requests of its application. Neither application sees it. An empty Write or Read is handled like
//! any other. A responder must recognise only the Send, which would otherwise consume a receive.
//! Any other first FPDU also completes start-up, as on all other implementations.

use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::STag;

use super::Stream;
use super::transmit::{Gate, SegmentSpace};
use crate::ddp::{Header, TAGGED_BYTES, Tagged};
use crate::framing::Framing;
use crate::rdmap::{Opcode, OutstandingRequest, READ_QUEUE, ReadRequest, SEND_QUEUE};
use crate::setup::{Rtr, RtrKinds};

/// Some adapters refuse a tagged message with steering tag 0, even an empty one, whose tag is not
/// checked.
const RTR_STAG: STag = STag(1);

/// The request of an indication that is a Read, until it is answered.
pub(super) const RTR_REQUEST: OutstandingRequest =
    OutstandingRequest::new(RTR_READ.sink_stag, RTR_READ.sink_to, RTR_READ.bytes, 0);

/// An empty Read.
const RTR_READ: ReadRequest =
    ReadRequest { sink_stag: RTR_STAG, sink_to: 0, bytes: 0, source_stag: RTR_STAG, source_to: 0 };

impl<F: Framing> Stream<F> {
    /// The first unit: the indication alone.
    #[cold]
    pub(super) fn fill_rtr(&mut self, room: &mut [u8], stats: &CoreStats) -> usize {
        let Some(rtr) = self.sender.rtr() else { return 0 };
        let room = &mut SegmentSpace::new(room, &self.framing);
        // A Send or a Read counts as a message of its queue, so the application's first Send is
        // number 2.
        let written = match rtr {
            Rtr::Send => self.untagged_segment(Opcode::Send, SEND_QUEUE, &[], room),
            Rtr::Write => {
                let ulp = Opcode::Write.control();
                let header = Tagged { last: true, ulp, stag: RTR_STAG, tagged_offset: 0 };
                let bytes = room.ulpdu(&self.framing, TAGGED_BYTES).map(|ulpdu| header.encode(ulpdu));
                bytes.map(|bytes| self.complete_frame(room.bytes, bytes))
            }
            // Without memory for the Read nothing is written. The indication is tried again.
            Rtr::Read if !self.outstanding.reserve() => None,
            Rtr::Read => self.untagged_segment(Opcode::ReadRequest, READ_QUEUE, &RTR_READ.encode(), room),
        };
        let Some(written) = written else { return 0 };
        self.sender.gate = Gate::Open;
        if rtr == Rtr::Read {
            self.outstanding.push_rtr(RTR_REQUEST);
            self.send_progress.rtr_read = true;
        }
        stats.count(Counter::IwarpTxFpdus);
        stats.count(Counter::IwarpTxRtrs);
        written
    }

    /// Returns whether a responder's first FPDU is an indication that consumes no receive: a Send
    /// of no octets, or an empty ULPDU. The latter is a possible reading of "zero-length FULPDU" in
    /// RFC 6581 s9.2.
    #[cold]
    pub(super) fn is_rtr_send(&mut self, ulpdu: &[u8], stats: &CoreStats) -> bool {
        if self.rtr_awaited.is_empty() {
            return false;
        }
        stats.count(Counter::IwarpRxRtrs);
        if !self.rtr_awaited.contains(RtrKinds::SEND) {
            return false;
        }
        if ulpdu.is_empty() {
            return true;
        }
        let Ok((Header::Untagged(header), [])) = Header::decode(ulpdu) else { return false };
        let is_send = header.qn == SEND_QUEUE && Opcode::decode(header.ulp) == Ok(Opcode::Send);
        let is_whole = header.last && self.rx_sends.check(&header, 0, Some(0)).is_ok();
        if is_send && is_whole {
            self.rx_sends.advance(true, 0);
        }
        is_send && is_whole
    }
}
