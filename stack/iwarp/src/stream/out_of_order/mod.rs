//! Out-of-order placement: tagged segments beyond a gap are placed before their predecessors arrive
//! (RFC 5041 s5.3).
//!
//! It is off unless the queue pair enables it. It looks at the bytes that TCP holds beyond a gap
//! and only places: no FPDU is consumed, no state of DDP or RDMAP changes, nothing is delivered,
//! and no error is reported. Later each FPDU passes all checks in order, and only the copy is
//! skipped ([`placed_runs`]).
//!
//! Positions are octets of a byte stream. Of a lower layer whose messages are segments
//! ([`Stream::on_message_out_of_order`]) they are messages, and the first two rules are met.
//!
//! A segment is placed out of order if all of these hold. Otherwise it is placed in order, and a
//! counter shows the reason.
//!
//! - **Its start is known.** RFC 5044 s6 allows three ways: the length of the previous FPDU in the
//!   ordered stream, a marker, or the lengths of valid FPDUs after one that a marker located.
//!   Beyond a gap only markers are left. A segment boundary is no evidence: a receiver must not
//!   depend on it (appendix A.4), and middleboxes may cut the stream elsewhere. Payload that looks
//!   like an FPDU, with a correct CRC, would then be accepted as one, and the author of the payload
//!   could arrange that. A CRC detects accidents, not attacks. On streams with markers the position
//!   of each marker follows from the octet count.
//! - **Its CRC and its markers are correct.** Streams without CRCs place nothing out of order,
//!   because rule 2 requires valid FPDUs.
//! - **It is tagged, and it does not end a message.** Applications poll the last octet of a Write,
//!   which implies that everything before it was placed.
//! - **It is a Write, or a Read Response within the missing part of the oldest Read.** The exact
//!   match with the Read is checked in order.
//! - **Its steering tag allows it now**: rights, bounds, protection domain, stream (RFC 5041 s7.1).
//!   The tag is checked again in order, so a tag that was revoked in between ends the stream as
//!   usual. What was written while it was valid remains.
//! - **No other out-of-order placement overlaps it**, and there is space to record it.
//!
//! Octets of the stream are placed at most once before their delivery: octets beyond a gap are not
//! delivered, and octets in order are not handled here. When the stream ends, such octets remain in
//! memory, as RFC 5040 s5.5, rules 5 and 6 allow. The first wrong FPDU stops out-of-order placement
//! permanently. In order it ends the stream, unless the peer has retransmitted it correctly by
//! then.
//!
//! Cost: without the setting, one branch for each tagged segment. With it, a CRC and the copy for
//! each segment beyond a gap, while the processor would wait anyway. The CRC is computed again in
//! order.

mod placed_runs;

use core::ops::Range;

use ironwarp_llp::{LatestArrival, OutOfOrderBytes};
use ironwarp_mem::{Access, AccessError, Span};
use ironwarp_stats::{CoreStats, Counter};

use super::cursor::{MemoryView, SgeCursor};
use super::{Io, Stream};
use crate::ddp::{DdpFault, Header, Tagged};
use crate::framing::Framing;
use crate::mpa::marker::{MARKER_BYTES, MarkerState};
use crate::mpa::{Mpa, MpaFault};
use crate::rdmap::Opcode;
use crate::wr::SgeList;
#[cfg(test)]
pub(super) use placed_runs::PLACED_RUNS_MAX;
use placed_runs::PlacedRuns;

/// The state of out-of-order placement.
#[derive(Debug, Default)]
pub(super) struct OutOfOrderPlacement {
    /// The framing can find segments, and no wrong one was found.
    active: bool,
    runs: PlacedRuns,
}

/// What becomes of a segment beyond a gap: placed, or the counter of why not.
type Placed = Result<(), Counter>;

impl<F: Framing + AsRef<Mpa> + AsMut<Mpa>> Stream<F> {
    /// Places what is allowed of the bytes that arrived last beyond a gap. `scratch` is that of
    /// [`Stream::on_readable`].
    #[cold]
    pub fn on_out_of_order<C>(&mut self, bytes: &impl OutOfOrderBytes, scratch: &mut [u8], io: &Io<'_, C>) {
        let Some(marker_state) =
            self.framing.as_ref().rx_markers.filter(|_| self.accepts_fpdus() && self.places_out_of_order())
        else {
            return;
        };
        let Some(latest) = bytes.latest() else { return };
        let Some(mut at) = find_start(&marker_state, &latest, bytes) else {
            return io.stats.count(Counter::IwarpOutOfOrderSkippedNoMarker);
        };
        while at < latest.piece.end {
            let Some(end) = fpdu_end(&marker_state, at, bytes).filter(|&end| end <= latest.run.end) else {
                return;
            };
            if let Err(reason) = self.on_out_of_order_fpdu((at..end, latest.piece.start), bytes, scratch, io)
            {
                io.stats.count(reason);
                if reason == Counter::IwarpOutOfOrderSkippedBadFpdu {
                    // The recorded runs remain.
                    self.out_of_order.iter_mut().for_each(|out_of_order| out_of_order.active = false);
                    return;
                }
            }
            at = end;
        }
    }

    /// Handles a whole FPDU. One that ends before `latest_start` arrived earlier and was already
    /// handled.
    fn on_out_of_order_fpdu<C>(
        &mut self,
        (fpdu, latest_start): (Range<u32>, u32),
        bytes: &impl OutOfOrderBytes,
        scratch: &mut [u8],
        io: &Io<'_, C>,
    ) -> Placed {
        let (Some(marker_state), Some(out_of_order)) =
            (self.framing.as_ref().rx_markers, self.out_of_order.as_deref())
        else {
            return Ok(());
        };
        if out_of_order.runs.covers(&fpdu) {
            return Ok(());
        }
        let ulpdu = decode(&mut marker_state.advanced_by(fpdu.start), &fpdu, bytes, scratch)
            .map_err(|_| Counter::IwarpOutOfOrderSkippedBadFpdu)?;
        if fpdu.end <= latest_start { Ok(()) } else { self.place_out_of_order_segment(fpdu, ulpdu, io) }
    }
}

impl<F: Framing> Stream<F> {
    /// Returns whether anything can be placed beyond a gap: the queue pair enabled it, and the
    /// framing can find it.
    pub fn places_out_of_order(&self) -> bool {
        self.out_of_order.as_ref().is_some_and(|out_of_order| out_of_order.is_active())
    }

    /// Places what is allowed of a message that arrived beyond a gap: the one `distance` messages
    /// behind the next in order. It must be passed to [`Stream::on_message`] in order, too.
    #[cold]
    pub fn on_message_out_of_order<C>(&mut self, distance: u32, ulpdu: &[u8], io: &Io<'_, C>) {
        if !self.receiving || !self.places_out_of_order() {
            return;
        }
        if let Err(reason) = self.place_out_of_order_segment(distance..distance.saturating_add(1), ulpdu, io)
        {
            io.stats.count(reason);
        }
    }

    fn place_out_of_order_segment<C>(&mut self, fpdu: Range<u32>, ulpdu: &[u8], io: &Io<'_, C>) -> Placed {
        let (header, payload) =
            match Header::decode(ulpdu).map_err(|_| Counter::IwarpOutOfOrderSkippedHeader)? {
                (Header::Tagged(header), payload) => (header, payload),
                (Header::Untagged(_), _) => return Err(Counter::IwarpOutOfOrderSkippedUntagged),
            };
        let need = self.required_access(&header, payload.len())?;
        if payload.is_empty() {
            return Ok(());
        }
        // RFC 5041 s7.1: the checks before placement.
        let bytes = u32::try_from(payload.len()).map_err(|_| Counter::IwarpOutOfOrderSkippedHeader)?;
        self.check_withheld(need).map_err(|_| Counter::IwarpOutOfOrderSkippedAccess)?;
        let span = io.memory.resolve(header.stag, self.access_scope(), header.tagged_offset, bytes, need);
        let span = span.map_err(|_| Counter::IwarpOutOfOrderSkippedAccess)?;
        let Some(out_of_order) = self.out_of_order.as_deref_mut() else { return Ok(()) };
        let memory = span.addresses();
        out_of_order.runs.check(&fpdu, &memory)?;
        span.copy_in(0, payload).map_err(|_| Counter::IwarpOutOfOrderSkippedAccess)?;
        out_of_order.runs.add(fpdu, memory);
        io.stats.count(Counter::IwarpOutOfOrderPlacements);
        Ok(())
    }

    /// Returns the right that a tagged segment needs, if it may be placed out of order.
    fn required_access(&self, header: &Tagged, payload_bytes: usize) -> Result<Access, Counter> {
        // `docs/semantics.md`, Placement: the end of a Write is never placed out of order. The end
        // of a response completes its Read.
        if header.last {
            return Err(Counter::IwarpOutOfOrderSkippedLast);
        }
        match Opcode::decode(header.ulp) {
            Ok(Opcode::Write) => Ok(Access::REMOTE_WRITE),
            Ok(Opcode::ReadResponse) if self.outstanding.accepts_out_of_order(header, payload_bytes) => {
                Ok(Access::LOCAL_WRITE)
            }
            Ok(Opcode::ReadResponse) => Err(Counter::IwarpOutOfOrderSkippedResponse),
            _ => Err(Counter::IwarpOutOfOrderSkippedHeader),
        }
    }

    /// Activates placement if the framing allows it.
    pub(super) fn start_out_of_order(&mut self) {
        if !self.framing.finds_frames_out_of_order() {
            self.out_of_order = None;
        } else if let Some(out_of_order) = &mut self.out_of_order {
            out_of_order.active = true;
        }
    }
}

impl OutOfOrderPlacement {
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// The next FPDU in order has `bytes` octets.
    #[inline]
    pub(super) fn on_next_in_order(&mut self, bytes: usize) {
        self.runs.on_next_in_order(bytes);
    }

    /// Places a payload in order, unless it was already placed.
    #[cold]
    pub(super) fn place_unless_present(
        &mut self,
        span: Span<'_>,
        payload: &[u8],
        stats: &CoreStats,
    ) -> Result<(), DdpFault> {
        let memory = span.addresses();
        if self.runs.is_placed(&memory) {
            stats.count(Counter::IwarpOutOfOrderCopiesSkipped);
            return Ok(());
        }
        span.copy_in(0, payload).map_err(AccessError::from)?;
        stats.add(Counter::IwarpOutOfOrderOverwritten, self.runs.remove_overlapping(&memory) as u64);
        Ok(())
    }

    /// A Send was placed in order: `bytes` octets from position `at` of its receive's list.
    #[cold]
    pub(super) fn on_scatter(
        &mut self,
        mut at: SgeCursor,
        (list, view): (SgeList<'_>, MemoryView<'_>),
        bytes: usize,
        stats: &CoreStats,
    ) {
        if self.runs.is_empty() {
            return;
        }
        let mut ended = 0;
        let visited =
            at.visit(list, view, bytes, |span| ended += self.runs.remove_overlapping(&span.addresses()));
        if visited.is_err() {
            // The memory was revoked in between, so the addresses are unknown.
            self.runs.clear();
        }
        stats.add(Counter::IwarpOutOfOrderOverwritten, ended as u64);
    }

    /// Memory was changed by something other than a placement.
    #[cold]
    pub(super) fn on_overwrite(&mut self, memory: &Range<usize>, stats: &CoreStats) {
        stats.add(Counter::IwarpOutOfOrderOverwritten, self.runs.remove_overlapping(memory) as u64);
    }

    /// The stream has ended.
    pub(super) fn stop(&mut self) {
        self.active = false;
        self.runs.clear();
    }

    /// Returns whether the recorded runs are consistent.
    pub(super) fn is_consistent(&self) -> bool {
        self.runs.are_consistent()
    }
}

/// Returns the start of an FPDU at or before the octets that arrived last, or else among them
/// (RFC 5044 s6, rules 2 and 3). A marker in front of an FPDU belongs to it (s4.3).
fn find_start(
    marker_state: &MarkerState,
    latest: &LatestArrival,
    bytes: &impl OutOfOrderBytes,
) -> Option<u32> {
    let known = |marker: u32| {
        start_from_marker(marker_state, marker, bytes).filter(|&start| start >= latest.run.start)
    };
    let mut marker = marker_state.marker_from(latest.piece.start);
    let mut among = None;
    // A marker may belong to an FPDU whose start is missing.
    while marker < latest.piece.end && among.is_none() {
        among = known(marker);
        marker = marker_state.marker_after(marker);
    }
    if among.is_some_and(|start| start <= latest.piece.start) {
        return among;
    }
    let before = marker_state.marker_before(latest.piece.start).filter(|&marker| marker >= latest.run.start);
    before.and_then(known).or(among)
}

/// Returns the start of the FPDU to which a marker belongs.
fn start_from_marker(marker_state: &MarkerState, marker: u32, bytes: &impl OutOfOrderBytes) -> Option<u32> {
    let mut octets = [0; MARKER_BYTES];
    if !bytes.peek_at(marker, &mut octets) {
        return None;
    }
    marker_state.fpdu_start(marker, octets)
}

/// Returns the end of the FPDU at `at`, if its length field has arrived.
fn fpdu_end(marker_state: &MarkerState, at: u32, bytes: &impl OutOfOrderBytes) -> Option<u32> {
    let marker_state = marker_state.advanced_by(at);
    let mut head = [0; MarkerState::HEAD_BYTES_MAX];
    let head = head.get_mut(..marker_state.head_bytes())?;
    if !bytes.peek_at(at, head) {
        return None;
    }
    let whole = marker_state.framed_bytes(head)?;
    at.checked_add(u32::try_from(whole).ok()?)
}

/// Checks a whole FPDU and returns its ULPDU.
fn decode<'a>(
    marker_state: &mut MarkerState,
    fpdu: &Range<u32>,
    bytes: &'a impl OutOfOrderBytes,
    scratch: &'a mut [u8],
) -> Result<&'a [u8], MpaFault> {
    let size = fpdu.len();
    if let Some(whole) = bytes.piece(fpdu.start).get(..size) {
        return marker_state.decode(whole, scratch, true);
    }
    let whole = scratch.get_mut(..size).ok_or(MpaFault::LocalCatastrophic)?;
    if !bytes.peek_at(fpdu.start, whole) {
        return Err(MpaFault::LocalCatastrophic);
    }
    marker_state.decode_gathered(whole, true)
}
