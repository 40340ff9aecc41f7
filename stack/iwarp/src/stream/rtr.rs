//! The ready-to-receive indication of the peer-to-peer model (RFC 6581 s5, s9.2).
//!
//! The initiator's first FPDU is a Send, an RDMA Write or an RDMA Read of no octets, before all requests of its
//! application. Neither application sees it. An empty Write or Read is handled like any other. A responder must
//! recognise only the Send, which would otherwise consume a receive. Any other first FPDU also completes start-up, as
//! on all other implementations.

use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::STag;

use super::Stream;
use super::transmit::SegmentSpace;
use crate::ddp::{Header, TAGGED_BYTES, Tagged, UNTAGGED_BYTES, Untagged};
use crate::framing::Framing;
use crate::mpa::startup::{Rtr, RtrKinds};
use crate::rdmap::read::READ_REQUEST_BYTES;
use crate::rdmap::{Opcode, OutstandingRequest, READ_QUEUE, ReadRequest, SEND_QUEUE};

/// Some adapters refuse a tagged message with steering tag 0, even an empty one, whose tag is not checked.
const RTR_STAG: STag = STag(1);

/// An empty Read.
const RTR_READ: ReadRequest =
    ReadRequest { sink_stag: RTR_STAG, sink_to: 0, bytes: 0, source_stag: RTR_STAG, source_to: 0 };

impl<F: Framing> Stream<F> {
    /// The first unit: the indication alone.
    #[cold]
    pub(super) fn fill_rtr(&mut self, room: &mut [u8], stats: &CoreStats) -> usize {
        let Some(rtr) = self.sender.rtr() else { return 0 };
        let mut room = SegmentSpace::new(room, &self.framing);
        let Some(ulpdu_bytes) = self.write_rtr(rtr, &mut room) else { return 0 };
        let written = self.complete_frame(room.bytes, ulpdu_bytes);
        if written > 0 {
            self.rtr_sent(rtr);
            stats.count(Counter::IwarpTxFpdus);
            stats.count(Counter::IwarpTxRtrs);
        }
        written
    }

    fn write_rtr(&mut self, rtr: Rtr, room: &mut SegmentSpace<'_>) -> Option<usize> {
        let (send_msn, read_msn) = self.sender.next_msns();
        let untagged = |opcode: Opcode, qn, msn| Untagged {
            last: true,
            ulp: opcode.control(),
            ulp_word: 0,
            qn,
            msn,
            mo: 0,
        };
        match rtr {
            Rtr::Send => {
                let out = room.ulpdu::<F>(UNTAGGED_BYTES)?;
                Some(untagged(Opcode::Send, SEND_QUEUE, *send_msn).encode(out))
            }
            Rtr::Write => {
                let out = room.ulpdu::<F>(TAGGED_BYTES)?;
                let ulp = Opcode::Write.control();
                Some(Tagged { last: true, ulp, stag: RTR_STAG, tagged_offset: 0 }.encode(out))
            }
            // Without memory for the Read nothing is written. The indication is tried again.
            Rtr::Read if !self.outstanding.reserve() => None,
            Rtr::Read => {
                let out = room.ulpdu::<F>(UNTAGGED_BYTES + READ_REQUEST_BYTES)?;
                untagged(Opcode::ReadRequest, READ_QUEUE, *read_msn).encode(out);
                *out.last_chunk_mut()? = RTR_READ.encode();
                Some(UNTAGGED_BYTES + READ_REQUEST_BYTES)
            }
        }
    }

    fn rtr_sent(&mut self, rtr: Rtr) {
        self.sender.rtr_sent();
        let (send_msn, read_msn) = self.sender.next_msns();
        match rtr {
            // The indication counts as a message of its queue, so the application's first Send is number 2.
            Rtr::Send => *send_msn = send_msn.wrapping_add(1),
            Rtr::Write => {}
            Rtr::Read => {
                *read_msn = read_msn.wrapping_add(1);
                let ReadRequest { sink_stag, sink_to, bytes, .. } = RTR_READ;
                let (placed, seq, invalidates, atomic) = (0, 0, false, false);
                let read = OutstandingRequest { sink_stag, sink_to, bytes, placed, seq, invalidates, atomic };
                self.outstanding.push_rtr(read);
                self.send_progress.rtr_read_sent();
            }
        }
    }

    /// Returns whether a responder's first FPDU is an indication that consumes no receive: a Send of no octets, or an
    /// empty ULPDU. The latter is a possible reading of "zero-length FULPDU" in RFC 6581 s9.2.
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
