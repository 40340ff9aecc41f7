//! Placement out of order: tagged segments that lie beyond a gap go to memory before their turn (RFC 5041 s5.3).
//!
//! Off unless the queue pair asks for it. Takes a look at what TCP holds beyond a gap; gives placements and nothing
//! else: no FPDU is taken, no state of DDP or RDMAP moves, nothing is delivered, no error is reported. When an FPDU's turn
//! comes, it passes every check as ever, and only the copy is left out ([`placed_runs`]).
//!
//! A segment is placed early when all of this holds; otherwise it waits for its turn, and a counter says why:
//!
//! - **Its start is known.** RFC 5044 s6 names three ways to find it and says that one of them must be used: the length of
//!   the FPDU before it in the ordered stream, a marker, or the lengths of valid FPDUs from one that a marker located.
//!   Beyond a gap only markers are left. That senders like to begin segments with an FPDU is no fourth way: a receiver
//!   must not depend on it (appendix A.4), boxes on the way may cut the stream elsewhere, and payload that happens to look
//!   like an FPDU, right CRC included, would then be obeyed as one; whoever chooses the payload could make it so. A CRC
//!   finds accidents, not intentions. So this works on streams with markers, where a marker's place follows from the
//!   count of octets alone.
//! - **Its CRC and its markers are right.** Streams without CRCs place nothing early: rule 2 speaks of valid ones.
//! - **It is tagged, and no message ends with it.** The last octet of a Write is what applications poll, and it vouches for
//!   everything before it.
//! - **It is a Write, or a Read Response that lies within what the oldest Read still misses.** Whether it really continues
//!   that Read shows in order.
//! - **Its steering tag allows it now**: rights, bounds, protection domain, stream (RFC 5041 s7.1). In order it is asked
//!   again, so a tag that ends in between ends the stream as ever; what was written while it was good stays.
//! - **Nothing placed early lies there already**, and there is room to note it.
//!
//! An octet of the stream is placed before its delivery or not at all: what lies beyond a gap is not delivered, and what is
//! in order never comes here. A stream that ends with early octets in memory leaves them there, as RFC 5040 s5.5, rules 5
//! and 6 allow. The first FPDU that is found wrong stops early placement for good; in its turn it ends the stream, unless
//! the peer has sent the octets again by then.
//!
//! Cost: without the setting one branch for each tagged segment; with it, for each segment beyond a gap, a CRC and the
//! copy, both while the processor would wait for the gap to close. The CRC is computed again in order.

mod placed_runs;

use core::ops::Range;

use ironwarp_mem::{Access, Span};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_tcp::{LatestArrival, OutOfOrderBytes};

use super::cursor::{MemoryView, SgeCursor};
use super::{Io, Stream};
use crate::ddp::{DdpFault, Header, Tagged};
use crate::mpa::MpaFault;
use crate::mpa::marker::{MARKER_BYTES, MarkerState};
use crate::rdmap::Opcode;
use crate::wr::SgeList;
#[cfg(test)]
pub(super) use placed_runs::PLACED_RUNS_MAX;
use placed_runs::{NotRecorded, PlacedRuns};

/// What a stream that places out of order remembers.
#[derive(Debug, Default)]
pub(super) struct OutOfOrderPlacement {
    /// Markers and CRCs are in use, and nothing wrong was found.
    active: bool,
    runs: PlacedRuns,
}

/// Why a segment beyond a gap waits for its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SkipReason {
    /// No marker that has arrived locates an FPDU in it.
    NoMarker,
    /// Its CRC or a marker is wrong.
    BadFpdu,
    /// It goes to a queue.
    Untagged,
    /// A message ends with it.
    Last,
    /// Its header, or its operation, is not one that places anything.
    Header,
    /// It is no part of the oldest Read's answer.
    Response,
    /// Its steering tag does not allow it.
    Access,
    /// Something placed early lies there.
    Overlap,
    /// There is no room to note it.
    Full,
}

impl SkipReason {
    fn counter(self) -> Counter {
        match self {
            SkipReason::NoMarker => Counter::IwarpOutOfOrderSkippedNoMarker,
            SkipReason::BadFpdu => Counter::IwarpOutOfOrderSkippedBadFpdu,
            SkipReason::Untagged => Counter::IwarpOutOfOrderSkippedUntagged,
            SkipReason::Last => Counter::IwarpOutOfOrderSkippedLast,
            SkipReason::Header => Counter::IwarpOutOfOrderSkippedHeader,
            SkipReason::Response => Counter::IwarpOutOfOrderSkippedResponse,
            SkipReason::Access => Counter::IwarpOutOfOrderSkippedAccess,
            SkipReason::Overlap => Counter::IwarpOutOfOrderSkippedOverlap,
            SkipReason::Full => Counter::IwarpOutOfOrderSkippedFull,
        }
    }
}

impl From<NotRecorded> for SkipReason {
    fn from(why: NotRecorded) -> Self {
        match why {
            NotRecorded::Overlap => SkipReason::Overlap,
            NotRecorded::Full => SkipReason::Full,
        }
    }
}

impl Stream {
    /// Whether [`Stream::on_out_of_order`] can place anything: the queue pair asked for it, and start-up settled on markers and
    /// CRCs in what we receive.
    pub fn places_out_of_order(&self) -> bool {
        self.out_of_order.as_ref().is_some_and(|out_of_order| out_of_order.active)
    }

    /// Looks at what came last beyond a gap, and places what may be placed. `scratch` is as in
    /// [`Stream::on_readable`].
    #[cold]
    pub fn on_out_of_order<C>(&mut self, bytes: &impl OutOfOrderBytes, scratch: &mut [u8], io: &Io<'_, C>) {
        let Some(marker_state) =
            self.rx_markers.filter(|_| self.accepts_fpdus() && self.places_out_of_order())
        else {
            return;
        };
        let Some(latest) = bytes.latest() else { return };
        let Some(mut at) = find_start(&marker_state, &latest, bytes) else {
            return io.stats.count(SkipReason::NoMarker.counter());
        };
        while at < latest.piece.end {
            let Some(end) = fpdu_end(&marker_state, at, bytes).filter(|&end| end <= latest.run.end) else {
                return;
            };
            if let Err(reason) = self.on_out_of_order_fpdu((at..end, latest.piece.start), bytes, scratch, io)
            {
                io.stats.count(reason.counter());
                if reason == SkipReason::BadFpdu {
                    return self.stop_out_of_order();
                }
            }
            at = end;
        }
    }

    /// A whole FPDU. One that ends before `latest_start` was here before, and has been looked at.
    fn on_out_of_order_fpdu<C>(
        &mut self,
        (fpdu, latest_start): (Range<u32>, u32),
        bytes: &impl OutOfOrderBytes,
        scratch: &mut [u8],
        io: &Io<'_, C>,
    ) -> Result<(), SkipReason> {
        let (Some(marker_state), Some(out_of_order)) = (self.rx_markers, self.out_of_order.as_deref()) else {
            return Ok(());
        };
        if out_of_order.runs.covers(&fpdu) {
            return Ok(());
        }
        let ulpdu = decode(&mut marker_state.advanced_by(fpdu.start), &fpdu, bytes, scratch)
            .map_err(|_| SkipReason::BadFpdu)?;
        if fpdu.end <= latest_start { Ok(()) } else { self.place_out_of_order_segment(fpdu, ulpdu, io) }
    }

    fn place_out_of_order_segment<C>(
        &mut self,
        fpdu: Range<u32>,
        ulpdu: &[u8],
        io: &Io<'_, C>,
    ) -> Result<(), SkipReason> {
        let (header, payload) = match Header::decode(ulpdu).map_err(|_| SkipReason::Header)? {
            (Header::Tagged(header), payload) => (header, payload),
            (Header::Untagged(_), _) => return Err(SkipReason::Untagged),
        };
        let need = self.required_access(&header, payload.len())?;
        if payload.is_empty() {
            return Ok(());
        }
        // RFC 5041 s7.1: the checks that come before any placement.
        let bytes = u32::try_from(payload.len()).map_err(|_| SkipReason::Header)?;
        let span = io.memory.resolve(header.stag, self.access_scope(), header.tagged_offset, bytes, need);
        let span = span.map_err(|_| SkipReason::Access)?;
        let Some(out_of_order) = self.out_of_order.as_deref_mut() else { return Ok(()) };
        let memory = span.addresses();
        out_of_order.runs.check(&fpdu, &memory)?;
        span.copy_in(0, payload).map_err(|_| SkipReason::Access)?;
        out_of_order.runs.add(fpdu, memory);
        io.stats.count(Counter::IwarpOutOfOrderPlacements);
        Ok(())
    }

    /// The right that a tagged segment needs, when it is one that may go first.
    fn required_access(&self, header: &Tagged, payload_bytes: usize) -> Result<Access, SkipReason> {
        // semantics.md, Placement: never the end of a Write; a Read completes with the end of its response.
        if header.last {
            return Err(SkipReason::Last);
        }
        match Opcode::decode(header.ulp) {
            Ok(Opcode::Write) => Ok(Access::REMOTE_WRITE),
            Ok(Opcode::ReadResponse) if self.outstanding.accepts_out_of_order(header, payload_bytes) => {
                Ok(Access::LOCAL_WRITE)
            }
            Ok(Opcode::ReadResponse) => Err(SkipReason::Response),
            _ => Err(SkipReason::Header),
        }
    }

    /// Start-up has settled what is in use.
    pub(super) fn start_out_of_order(&mut self) {
        if self.rx_markers.is_none() || !self.crc {
            self.out_of_order = None;
        } else if let Some(out_of_order) = &mut self.out_of_order {
            out_of_order.active = true;
        }
    }

    /// Nothing is placed early any more. What was is noted still.
    fn stop_out_of_order(&mut self) {
        if let Some(out_of_order) = &mut self.out_of_order {
            out_of_order.active = false;
        }
    }
}

impl OutOfOrderPlacement {
    /// What is made when a queue pair asks for early placement.
    pub(super) fn new_if_enabled(wanted: bool) -> Option<Box<OutOfOrderPlacement>> {
        wanted.then(Box::default)
    }

    /// The turn of the next FPDU in order, of `bytes` octets, has come.
    #[inline]
    pub(super) fn on_next_in_order(&mut self, bytes: usize) {
        self.runs.on_next_in_order(bytes);
    }

    /// Places a payload in its turn, unless it is there.
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
        span.copy_in(0, payload).map_err(|_| DdpFault::BaseOrBounds)?;
        stats.add(Counter::IwarpOutOfOrderOverwritten, self.runs.remove_overlapping(&memory) as u64);
        Ok(())
    }

    /// A Send has put `bytes` octets into memory in its turn, from `at` in its receive's list on.
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
        let shown =
            at.visit(list, view, bytes, |span| ended += self.runs.remove_overlapping(&span.addresses()));
        if shown.is_err() {
            // It was taken away meanwhile, and where it lay is not known any more.
            self.runs.clear();
        }
        stats.add(Counter::IwarpOutOfOrderOverwritten, ended as u64);
    }

    /// Memory was changed by something else than a placement.
    #[cold]
    pub(super) fn on_overwrite(&mut self, memory: &Range<usize>, stats: &CoreStats) {
        stats.add(Counter::IwarpOutOfOrderOverwritten, self.runs.remove_overlapping(memory) as u64);
    }

    /// The stream has ended.
    pub(super) fn stop(&mut self) {
        self.active = false;
        self.runs.clear();
    }

    /// What always holds between two calls.
    pub(super) fn is_consistent(&self) -> bool {
        self.runs.are_consistent()
    }
}

/// Where an FPDU starts at or before the octets that came last, or at least among them (RFC 5044 s6, rules 2 and 3). The
/// marker in front of it belongs to it (s4.3).
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

/// The start of the FPDU that a marker belongs to.
fn start_from_marker(marker_state: &MarkerState, marker: u32, bytes: &impl OutOfOrderBytes) -> Option<u32> {
    let mut octets = [0; MARKER_BYTES];
    if !bytes.peek_at(marker, &mut octets) {
        return None;
    }
    marker_state.fpdu_start(marker, octets)
}

/// Where the FPDU at `at` ends, when the octets that say so are here.
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

/// The ULPDU of a whole FPDU, found right.
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
