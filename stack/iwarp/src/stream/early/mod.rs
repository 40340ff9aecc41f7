//! Placement out of order: tagged segments that lie beyond a gap go to memory before their turn (RFC 5041 s5.3).
//!
//! Off unless the queue pair asks for it. Takes a look at what TCP holds beyond a gap; gives placements and nothing
//! else: no FPDU is taken, no state of DDP or RDMAP moves, nothing is delivered, no error is reported. When an FPDU's turn
//! comes, it passes every check as ever, and only the copy is left out ([`notes`]).
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

mod notes;

use core::ops::Range;

use ironwarp_mem::{Access, Span};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_tcp::{EarlyBytes, Latest};

use super::cursor::{Cursor, Domain};
use super::{Io, Stream};
use crate::ddp::{DdpFault, Header, Tagged};
use crate::mpa::MpaFault;
use crate::mpa::marker::{MARKER_BYTES, Rhythm};
use crate::rdmap::Opcode;
use crate::wr::Sges;
#[cfg(test)]
pub(super) use notes::NOTES_MAX;
use notes::{NoNote, Notes};

/// What a stream that places out of order remembers.
#[derive(Debug, Default)]
pub(super) struct Early {
    /// Markers and CRCs are in use, and nothing wrong was found.
    active: bool,
    notes: Notes,
}

/// Why a segment beyond a gap waits for its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waits {
    /// No marker that has arrived locates an FPDU in it.
    Start,
    /// Its CRC or a marker is wrong.
    Fpdu,
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

impl Waits {
    fn counter(self) -> Counter {
        match self {
            Waits::Start => Counter::IwarpEarlyWaitsStart,
            Waits::Fpdu => Counter::IwarpEarlyWaitsFpdu,
            Waits::Untagged => Counter::IwarpEarlyWaitsUntagged,
            Waits::Last => Counter::IwarpEarlyWaitsLast,
            Waits::Header => Counter::IwarpEarlyWaitsHeader,
            Waits::Response => Counter::IwarpEarlyWaitsResponse,
            Waits::Access => Counter::IwarpEarlyWaitsAccess,
            Waits::Overlap => Counter::IwarpEarlyWaitsOverlap,
            Waits::Full => Counter::IwarpEarlyWaitsFull,
        }
    }
}

impl From<NoNote> for Waits {
    fn from(why: NoNote) -> Self {
        match why {
            NoNote::Overlap => Waits::Overlap,
            NoNote::Full => Waits::Full,
        }
    }
}

impl Stream {
    /// Whether [`Stream::on_early`] can place anything: the queue pair asked for it, and start-up settled on markers and
    /// CRCs in what we receive.
    pub fn places_early(&self) -> bool {
        self.early.as_ref().is_some_and(|early| early.active)
    }

    /// Looks at what came last beyond a gap, and places what may be placed. `scratch` is as in
    /// [`Stream::on_readable`].
    #[cold]
    pub fn on_early<C>(&mut self, bytes: &impl EarlyBytes, scratch: &mut [u8], io: &Io<'_, C>) {
        let Some(rhythm) = self.rx_markers.filter(|_| self.takes_fpdus() && self.places_early()) else {
            return;
        };
        let Some(latest) = bytes.latest() else { return };
        let Some(mut at) = find_start(&rhythm, &latest, bytes) else {
            return io.stats.count(Waits::Start.counter());
        };
        while at < latest.piece.end {
            let Some(end) = end_of(&rhythm, at, bytes).filter(|&end| end <= latest.run.end) else { return };
            if let Err(waits) = self.on_early_fpdu((at..end, latest.piece.start), bytes, scratch, io) {
                io.stats.count(waits.counter());
                if waits == Waits::Fpdu {
                    return self.stop_early();
                }
            }
            at = end;
        }
    }

    /// A whole FPDU. One that ends before `news` was here before, and has been looked at.
    fn on_early_fpdu<C>(
        &mut self,
        (fpdu, news): (Range<u32>, u32),
        bytes: &impl EarlyBytes,
        scratch: &mut [u8],
        io: &Io<'_, C>,
    ) -> Result<(), Waits> {
        let (Some(rhythm), Some(early)) = (self.rx_markers, self.early.as_deref()) else { return Ok(()) };
        if early.notes.cover(&fpdu) {
            return Ok(());
        }
        let ulpdu = open(&mut rhythm.at(fpdu.start), &fpdu, bytes, scratch).map_err(|_| Waits::Fpdu)?;
        if fpdu.end <= news { Ok(()) } else { self.place_early(fpdu, ulpdu, io) }
    }

    fn place_early<C>(&mut self, fpdu: Range<u32>, ulpdu: &[u8], io: &Io<'_, C>) -> Result<(), Waits> {
        let (header, payload) = match Header::decode(ulpdu).map_err(|_| Waits::Header)? {
            (Header::Tagged(header), payload) => (header, payload),
            (Header::Untagged(_), _) => return Err(Waits::Untagged),
        };
        let need = self.right_for(&header, payload.len())?;
        if payload.is_empty() {
            return Ok(());
        }
        // RFC 5041 s7.1: the checks that come before any placement.
        let bytes = u32::try_from(payload.len()).map_err(|_| Waits::Header)?;
        let span = io.memory.resolve(header.stag, self.reach(), header.tagged_offset, bytes, need);
        let span = span.map_err(|_| Waits::Access)?;
        let Some(early) = self.early.as_deref_mut() else { return Ok(()) };
        let memory = span.addresses();
        early.notes.check(&fpdu, &memory)?;
        span.copy_in(0, payload).map_err(|_| Waits::Access)?;
        early.notes.add(fpdu, memory);
        io.stats.count(Counter::IwarpEarlyPlacements);
        Ok(())
    }

    /// The right that a tagged segment needs, when it is one that may go first.
    fn right_for(&self, header: &Tagged, payload_bytes: usize) -> Result<Access, Waits> {
        // semantics.md, Placement: never the end of a Write; a Read completes with the end of its response.
        if header.last {
            return Err(Waits::Last);
        }
        match Opcode::decode(header.ulp) {
            Ok(Opcode::Write) => Ok(Access::REMOTE_WRITE),
            Ok(Opcode::ReadResponse) if self.outstanding.awaits(header, payload_bytes) => {
                Ok(Access::LOCAL_WRITE)
            }
            Ok(Opcode::ReadResponse) => Err(Waits::Response),
            _ => Err(Waits::Header),
        }
    }

    /// Start-up has settled what is in use.
    pub(super) fn start_early(&mut self) {
        if self.rx_markers.is_none() || !self.crc {
            self.early = None;
        } else if let Some(early) = &mut self.early {
            early.active = true;
        }
    }

    /// Nothing is placed early any more. What was is noted still.
    fn stop_early(&mut self) {
        if let Some(early) = &mut self.early {
            early.active = false;
        }
    }
}

impl Early {
    /// What is made when a queue pair asks for early placement.
    pub(super) fn for_setting(wanted: bool) -> Option<Box<Early>> {
        wanted.then(Box::default)
    }

    /// The turn of the next FPDU in order, of `bytes` octets, has come.
    #[inline]
    pub(super) fn begin(&mut self, bytes: usize) {
        self.notes.begin(bytes);
    }

    /// Places a payload in its turn, unless it is there.
    #[cold]
    pub(super) fn land(&mut self, span: Span<'_>, payload: &[u8], stats: &CoreStats) -> Result<(), DdpFault> {
        let memory = span.addresses();
        if self.notes.placed(&memory) {
            stats.count(Counter::IwarpEarlyKept);
            return Ok(());
        }
        span.copy_in(0, payload).map_err(|_| DdpFault::BaseOrBounds)?;
        stats.add(Counter::IwarpEarlyOverwritten, self.notes.overwritten(&memory) as u64);
        Ok(())
    }

    /// A Send has put `bytes` octets into memory in its turn, from `at` in its receive's list on.
    #[cold]
    pub(super) fn scattered(
        &mut self,
        mut at: Cursor,
        (list, domain): (Sges<'_>, Domain<'_>),
        bytes: usize,
        stats: &CoreStats,
    ) {
        if self.notes.is_empty() {
            return;
        }
        let mut ended = 0;
        let shown = at.visit(list, domain, bytes, |span| ended += self.notes.overwritten(&span.addresses()));
        if shown.is_err() {
            // It was taken away meanwhile, and where it lay is not known any more.
            self.notes.clear();
        }
        stats.add(Counter::IwarpEarlyOverwritten, ended as u64);
    }

    /// Memory was changed by something else than a placement.
    #[cold]
    pub(super) fn overwrite(&mut self, memory: &Range<usize>, stats: &CoreStats) {
        stats.add(Counter::IwarpEarlyOverwritten, self.notes.overwritten(memory) as u64);
    }

    /// The stream has ended.
    pub(super) fn end(&mut self) {
        self.active = false;
        self.notes.clear();
    }

    /// What always holds between two calls.
    pub(super) fn is_sound(&self) -> bool {
        self.notes.are_sound()
    }
}

/// Where an FPDU starts at or before the octets that came last, or at least among them (RFC 5044 s6, rules 2 and 3). The
/// marker in front of it belongs to it (s4.3).
fn find_start(rhythm: &Rhythm, latest: &Latest, bytes: &impl EarlyBytes) -> Option<u32> {
    let known = |marker: u32| located_by(rhythm, marker, bytes).filter(|&start| start >= latest.run.start);
    let mut marker = rhythm.marker_from(latest.piece.start);
    let mut among = None;
    // A marker may belong to an FPDU whose start is missing.
    while marker < latest.piece.end && among.is_none() {
        among = known(marker);
        marker = rhythm.marker_behind(marker);
    }
    if among.is_some_and(|start| start <= latest.piece.start) {
        return among;
    }
    let before = rhythm.marker_before(latest.piece.start).filter(|&marker| marker >= latest.run.start);
    before.and_then(known).or(among)
}

/// The start of the FPDU that a marker belongs to.
fn located_by(rhythm: &Rhythm, marker: u32, bytes: &impl EarlyBytes) -> Option<u32> {
    let mut octets = [0; MARKER_BYTES];
    if !bytes.peek_at(marker, &mut octets) {
        return None;
    }
    rhythm.start_by(marker, octets)
}

/// Where the FPDU at `at` ends, when the octets that say so are here.
fn end_of(rhythm: &Rhythm, at: u32, bytes: &impl EarlyBytes) -> Option<u32> {
    let rhythm = rhythm.at(at);
    let mut head = [0; Rhythm::HEAD_BYTES_MAX];
    let head = head.get_mut(..rhythm.head_bytes())?;
    if !bytes.peek_at(at, head) {
        return None;
    }
    let whole = rhythm.framed_bytes(head)?;
    at.checked_add(u32::try_from(whole).ok()?)
}

/// The ULPDU of a whole FPDU, found right.
fn open<'a>(
    rhythm: &mut Rhythm,
    fpdu: &Range<u32>,
    bytes: &'a impl EarlyBytes,
    scratch: &'a mut [u8],
) -> Result<&'a [u8], MpaFault> {
    let size = fpdu.len();
    if let Some(whole) = bytes.piece(fpdu.start).get(..size) {
        return rhythm.open(whole, scratch, true);
    }
    let whole = scratch.get_mut(..size).ok_or(MpaFault::LocalCatastrophic)?;
    if !bytes.peek_at(fpdu.start, whole) {
        return Err(MpaFault::LocalCatastrophic);
    }
    rhythm.open_gathered(whole, true)
}
