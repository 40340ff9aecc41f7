//! One direction of one queue pair: frames into a ring, and frames out of it.
//!
//! In both directions the client owns the buffers. From client to server, the head counts frames
//! that were sent and the tail those that were received. From server to client, the head counts
//! empty buffers that were offered and the tail those that were filled. Both are 16-bit and wrap; a
//! slot is the index modulo the ring's size.
//!
//! An end writes its own index once a burst, and only if it has changed. It reads the peer's index
//! once a receive burst, and for sending only when the room it knows of is used up, so an idle poll
//! is one load. Each descriptor is read once, into a private copy that is checked before use; what
//! is read to fetch a buffer early is a hint only.
//!
//! The peer's index only moves forward, and at most to the end of what it was given: [`Progress`]
//! checks each value that is read, and has all arithmetic of indices. What the peer can do wrong is
//! a [`RingFault`], which ends the link, or a frame that is dropped and counted.
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use core::sync::atomic::Ordering;
use std::sync::Arc;

use ironwarp_stats::{CoreStats, Counter};

use super::region::{Descriptor, NEXT, PARTIAL_CHECKSUM, Region, RingWords};
use super::{MemifFrame, MemifSealed};
use crate::memory::fill_checksums;
use crate::pool::Pool;
use crate::{Burst, Checksum, Frame, RxMeta, Sealed};

/// Frames whose buffers are fetched ahead: each is a line that another core has written, and such
/// fetches overlap.
const AHEAD: u16 = 6;
/// The most descriptors of one frame.
const CHAIN_MAX: u16 = 16;

/// The peer broke the ring; the link ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RingFault(pub(super) Counter);

/// How far this end and its peer are in a ring: what was read of the peer's index, as a distance
/// from this end's.
///
/// ```text
///          next            next + known
///            |  slots for us     |
///   ---------+-------------------+------------------> index, modulo 2^16
///   used: the peer's             the peer's index, when it was read last
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Progress {
    /// This end's next slot.
    next: u16,
    /// Slots that this end may use, as far as it knows: at most `slots`.
    known: u16,
    /// The ring's size: 2 to 2^14.
    slots: u16,
}

impl Progress {
    fn new(slots: u16) -> Self {
        Progress { next: 0, known: 0, slots }
    }

    /// Takes a value of the peer's index, with which the slots before it are this end's.
    ///
    /// # Errors
    /// The index is more than a ring ahead, or behind where it was: the peer takes back what it has
    /// handed over.
    #[inline]
    fn on_index(&mut self, index: u16) -> Result<(), RingFault> {
        let usable = index.wrapping_sub(self.next);
        if usable > self.slots || usable < self.known {
            return Err(RingFault(Counter::PortMemifBadIndex));
        }
        self.known = usable;
        Ok(())
    }

    /// Uses slots, at most as many as are known.
    ///
    /// # Errors
    /// There are not as many. No peer can cause it; the link ends rather than the count goes below
    /// zero.
    #[inline]
    fn advance(&mut self, slots: u16) -> Result<(), RingFault> {
        self.known = self.known.checked_sub(slots).ok_or(RingFault(Counter::PortMemifBadIndex))?;
        self.next = self.next.wrapping_add(slots);
        Ok(())
    }

    /// Returns the index up to which this end's own slots go, a ring ahead: what the owner of the
    /// buffers offers.
    #[inline]
    fn a_ring_ahead(&self) -> u16 {
        self.next.wrapping_add(self.slots)
    }
}

/// Where the buffers of a ring are.
#[derive(Clone)]
pub(super) enum Buffers {
    /// The client's, known to this end: buffer n at `first + n * bytes` of region 0.
    Ours { region: Arc<Region>, first: u32, bytes: u32 },
    /// The peer's, as its descriptors say.
    Theirs(Arc<[Arc<Region>]>),
}

impl Buffers {
    /// Writes the descriptors of a ring whose buffers are this end's.
    fn describe_all(&self, words: &RingWords) {
        let Buffers::Ours { first, bytes, .. } = self else { return };
        for slot in 0..words.slots() {
            let offset = first + u32::from(slot) * bytes;
            words.set_descriptor(slot, Descriptor { flags: 0, region: 0, len: *bytes, offset });
        }
    }
}

/// A ring that this end receives from.
pub(super) struct RxRing {
    words: RingWords,
    buffers: Buffers,
    /// The next slot to receive, and how many frames wait at least.
    progress: Progress,
    partial_checksums: bool,
}

/// A frame of a ring, or what is wrong with it.
enum Taken {
    Frame(MemifFrame),
    Dropped(Counter),
    /// The pool is empty: the frame stays.
    NoBuffer,
}

impl RxRing {
    /// Returns who drops the memory of the buffers.
    #[cfg(test)]
    pub(super) fn dropped_by(&self) -> super::region::DroppedBy {
        match &self.buffers {
            Buffers::Ours { region, .. } => region.dropped_by.clone(),
            Buffers::Theirs(regions) => regions[0].dropped_by.clone(),
        }
    }

    /// Returns the ring after the link is up. The client offers all its buffers.
    pub(super) fn new(words: RingWords, buffers: Buffers, partial_checksums: bool) -> Self {
        words.mask_interrupt();
        if let Buffers::Ours { .. } = buffers {
            buffers.describe_all(&words);
            words.head().store(words.slots(), Ordering::Release);
        } else {
            words.tail().store(0, Ordering::Release);
        }
        let progress = Progress::new(words.slots());
        RxRing { words, buffers, progress, partial_checksums }
    }

    /// Appends frames to `into`, up to its room.
    ///
    /// # Errors
    /// [`RingFault`] if the peer's index is more than a ring ahead, or went back.
    #[inline]
    pub(super) fn receive(
        &mut self,
        into: &mut Burst<MemifFrame>,
        pool: &mut Pool,
        stats: &CoreStats,
    ) -> Result<(), RingFault> {
        let ours = matches!(self.buffers, Buffers::Ours { .. });
        let theirs = if ours { self.words.tail() } else { self.words.head() };
        self.progress.on_index(theirs.load(Ordering::Acquire))?;
        if self.progress.known == 0 {
            return Ok(());
        }
        let result = self.take_frames(into, pool, stats);
        let published = if ours { self.words.head() } else { self.words.tail() };
        let index = if ours { self.progress.a_ring_ahead() } else { self.progress.next };
        published.store(index, Ordering::Release);
        result
    }

    #[inline]
    fn take_frames(
        &mut self,
        into: &mut Burst<MemifFrame>,
        pool: &mut Pool,
        stats: &CoreStats,
    ) -> Result<(), RingFault> {
        let before = into.len();
        for ahead in 1..self.progress.known.min(AHEAD) {
            self.prefetch(self.progress.next.wrapping_add(ahead));
        }
        let mut result = Ok(());
        // Damaged frames count against the burst too, so that the work of a call is bounded.
        for _ in 0..into.remaining_capacity() {
            if self.progress.known == 0 || result.is_err() {
                break;
            }
            if self.progress.known > AHEAD {
                self.prefetch(self.progress.next.wrapping_add(AHEAD));
            }
            let (taken, slots) = self.take_frame(pool);
            match taken {
                Taken::Frame(frame) => into.push(frame),
                Taken::Dropped(reason) => stats.count(reason),
                Taken::NoBuffer => break,
            }
            result = self.release(slots);
        }
        stats.add(Counter::PortRxFrames, (into.len() - before) as u64);
        result
    }

    /// Has the first lines of a slot's buffer fetched.
    #[inline]
    fn prefetch(&self, slot: u16) {
        match &self.buffers {
            Buffers::Ours { region, first, bytes } => {
                let at = usize::from(slot & (self.words.slots() - 1)) * *bytes as usize;
                region.prefetch(*first as usize + at);
            }
            Buffers::Theirs(regions) => {
                let seen = self.words.descriptor(slot);
                if let Some(region) = regions.get(usize::from(seen.region)) {
                    region.prefetch(seen.offset as usize);
                }
            }
        }
    }

    /// Returns the next frame and the number of its descriptors, at least one and at most as many
    /// as wait, which is not none.
    #[inline]
    fn take_frame(&self, pool: &mut Pool) -> (Taken, u16) {
        let Some(mut frame) = pool.take() else { return (Taken::NoBuffer, 0) };
        let mut slots = 0;
        let mut reason = None;
        loop {
            let (flags, copied) = self.append(self.progress.next.wrapping_add(slots), &mut frame);
            slots += 1;
            // The rest of a frame that is dropped is skipped.
            reason = reason.or(copied.err());
            if flags & NEXT == 0 {
                if flags & PARTIAL_CHECKSUM != 0 && self.partial_checksums {
                    frame.set_rx(RxMeta { l4_checksum: Checksum::Good, ..RxMeta::default() });
                }
                break;
            }
            if slots >= self.progress.known || slots >= CHAIN_MAX {
                reason = reason.or(Some(Counter::PortMemifBadChain));
                break;
            }
        }
        match reason {
            None => (Taken::Frame(frame), slots),
            Some(reason) => (Taken::Dropped(reason), slots),
        }
    }

    /// Copies the buffer of one slot to the end of `frame`. Returns the descriptor's flags, and
    /// what is wrong with it.
    #[inline]
    fn append(&self, slot: u16, frame: &mut MemifFrame) -> (u16, Result<(), Counter>) {
        match &self.buffers {
            Buffers::Ours { region, first, bytes } => {
                let (flags, len) = self.words.flags_and_len(slot);
                let at = *first as usize + usize::from(slot & (self.words.slots() - 1)) * *bytes as usize;
                let fits = len <= *bytes;
                (flags, if fits { copy(region, at, len, frame) } else { Err(Counter::PortMemifBadLength) })
            }
            Buffers::Theirs(regions) => {
                let seen = self.words.descriptor(slot);
                let copied = match regions.get(usize::from(seen.region)) {
                    Some(region) => copy(region, seen.offset as usize, seen.len, frame),
                    None => Err(Counter::PortMemifBadRegion),
                };
                (seen.flags, copied)
            }
        }
    }

    /// Takes slots from the ring, and in the client refills them.
    #[inline]
    fn release(&mut self, slots: u16) -> Result<(), RingFault> {
        if let Buffers::Ours { bytes, .. } = self.buffers {
            for slot in 0..slots {
                // The offset is as it was, unless the peer broke it for itself.
                self.words.set_first(self.progress.next.wrapping_add(slot), 0, 0, bytes);
            }
        }
        self.progress.advance(slots)
    }
}

/// Copies `len` bytes at `offset` of a region to the end of `frame`.
#[inline]
fn copy(region: &Region, offset: usize, len: u32, frame: &mut MemifFrame) -> Result<(), Counter> {
    let len = len as usize;
    if len == 0 {
        return Err(Counter::PortMemifBadLength);
    }
    if !region.contains(offset, len) {
        return Err(Counter::PortMemifBadOffset);
    }
    let room = frame.extend(len).ok_or(Counter::PortRxTooLong)?;
    if region.read(offset, room) { Ok(()) } else { Err(Counter::PortMemifBadOffset) }
}

/// A ring that this end sends on.
pub(super) struct TxRing {
    words: RingWords,
    buffers: Buffers,
    /// The next slot to fill, and how many are free at least.
    progress: Progress,
    /// By slot: the frame that the peer reads where it was built. Empty if buffers are the peer's.
    in_place: Box<[Option<MemifSealed>]>,
    /// How many there are, and a slot with none before it.
    placed: u16,
    first_placed: u16,
    partial_checksums: bool,
    /// A frame whose checksum is filled in.
    filled_in: Vec<u8>,
}

impl TxRing {
    /// Returns the ring after the link is up.
    pub(super) fn new(words: RingWords, buffers: Buffers, partial_checksums: bool) -> Self {
        buffers.describe_all(&words);
        let ours = matches!(buffers, Buffers::Ours { .. });
        let index = if ours { words.head() } else { words.tail() };
        index.store(0, Ordering::Release);
        let progress = Progress::new(words.slots());
        let frames = if ours { words.slots() } else { 0 };
        let in_place = (0..frames).map(|_| None).collect();
        let filled_in = Vec::new();
        TxRing {
            words,
            buffers,
            progress,
            in_place,
            placed: 0,
            first_placed: 0,
            partial_checksums,
            filled_in,
        }
    }

    /// Returns whether TCP checksums are left out.
    pub(super) fn has_partial_checksums(&self) -> bool {
        self.partial_checksums
    }

    /// Sends frames from the front of `from` and removes them, as many as there is room for.
    /// Returns their number.
    ///
    /// # Errors
    /// [`RingFault`] if the peer's index or an offered buffer is wrong.
    #[inline]
    pub(super) fn send(&mut self, from: &mut Burst<MemifSealed>) -> Result<usize, RingFault> {
        let mut sent = 0;
        if self.placed > self.progress.slots / 2 {
            // Those that the peer has read go back to their pool before it is empty.
            self.look_for_room()?;
        }
        let result = loop {
            let Some(frame) = from.get(sent) else { break Ok(()) };
            match self.put_frame(frame) {
                Ok(true) => sent += 1,
                Ok(false) => break Ok(()),
                Err(fault) => break Err(fault),
            }
        };
        if sent > 0 {
            let ours = matches!(self.buffers, Buffers::Ours { .. });
            let index = if ours { self.words.head() } else { self.words.tail() };
            index.store(self.progress.next, Ordering::Release);
            from.drain(..sent);
        }
        result.map(|()| sent)
    }

    /// Puts one frame into the ring. Returns `false` if there is no room for all of it.
    #[inline]
    fn put_frame(&mut self, frame: &MemifSealed) -> Result<bool, RingFault> {
        let bytes = frame.bytes();
        let flags = match (frame.tx().offloads.is_empty(), self.partial_checksums) {
            (true, _) => 0,
            (false, true) => PARTIAL_CHECKSUM,
            (false, false) => return self.put_filled_in(frame),
        };
        match &self.buffers {
            Buffers::Ours { region, .. } => match region.offset_of(bytes) {
                Some(offset) => self.put_in_place(frame, offset, flags),
                None => self.put(bytes, flags),
            },
            Buffers::Theirs(_) => self.put(bytes, flags),
        }
    }

    /// Fills in the checksum of a frame that was made for another link.
    #[cold]
    fn put_filled_in(&mut self, frame: &MemifSealed) -> Result<bool, RingFault> {
        let mut copy = core::mem::take(&mut self.filled_in);
        copy.clear();
        copy.extend_from_slice(frame.bytes());
        fill_checksums(&mut copy, frame.tx());
        let put = self.put(&copy, 0);
        self.filled_in = copy;
        put
    }

    /// Has the peer read a frame where it lies.
    #[inline]
    fn put_in_place(&mut self, frame: &MemifSealed, offset: u32, flags: u16) -> Result<bool, RingFault> {
        if self.progress.known == 0 {
            self.look_for_room()?;
            if self.progress.known == 0 {
                return Ok(false);
            }
        }
        let slot = self.progress.next;
        let len = frame.bytes().len() as u32;
        self.words.set_descriptor(slot, Descriptor { flags, region: 0, len, offset });
        if let Some(place) = self.in_place.get_mut(usize::from(slot & (self.words.slots() - 1))) {
            if self.placed == 0 {
                self.first_placed = slot;
            }
            *place = Some(frame.clone());
            // At most the number of slots.
            self.placed = self.placed.saturating_add(1);
        }
        self.progress.advance(1).map(|()| true)
    }

    /// Releases all frames in place: the link has ended.
    pub(super) fn release_all(&mut self) {
        self.in_place.fill_with(|| None);
        self.placed = 0;
    }

    /// Releases the frames of slots that the peer has read.
    fn release_read(&mut self) {
        let used = self.progress.slots.saturating_sub(self.progress.known);
        let first_used = self.progress.next.wrapping_sub(used);
        while self.placed > 0 && self.first_placed != first_used {
            let place = self.in_place.get_mut(usize::from(self.first_placed & (self.words.slots() - 1)));
            let released = place.and_then(Option::take);
            self.placed -= u16::from(released.is_some());
            self.first_placed = self.first_placed.wrapping_add(1);
        }
    }

    /// Copies one frame into the ring. Returns `false` if there is no room for all of it.
    #[inline]
    fn put(&mut self, mut bytes: &[u8], last_flags: u16) -> Result<bool, RingFault> {
        let mut slots = 0;
        loop {
            if slots >= self.progress.known {
                self.look_for_room()?;
                if slots >= self.progress.known {
                    return Ok(false);
                }
            }
            let slot = self.progress.next.wrapping_add(slots);
            let (region, offset, room, number) = self.buffer(slot)?;
            let (part, rest) = bytes.split_at(bytes.len().min(room));
            if !region.write(offset, part) {
                return Err(RingFault(Counter::PortMemifBadOffset));
            }
            let flags = if rest.is_empty() { last_flags } else { NEXT };
            let len = part.len() as u32;
            match self.buffers {
                // A frame may have been sent in place there.
                Buffers::Ours { .. } => {
                    let offset = offset as u32;
                    self.words.set_descriptor(slot, Descriptor { flags, region: number, len, offset });
                }
                Buffers::Theirs(_) => self.words.set_first(slot, flags, number, len),
            }
            slots += 1;
            if rest.is_empty() {
                return self.progress.advance(slots).map(|()| true);
            }
            if slots >= CHAIN_MAX {
                // The client offers buffers too small for a frame of this link.
                return Err(RingFault(Counter::PortMemifBadLength));
            }
            bytes = rest;
        }
    }

    /// Returns the buffer of a slot: region, offset, bytes, and the region's number.
    #[inline]
    fn buffer(&self, slot: u16) -> Result<(&Region, usize, usize, u16), RingFault> {
        match &self.buffers {
            Buffers::Ours { region, first, bytes } => {
                let offset = first + u32::from(slot & (self.words.slots() - 1)) * bytes;
                Ok((region, offset as usize, *bytes as usize, 0))
            }
            Buffers::Theirs(regions) => {
                let offered = self.words.descriptor(slot);
                let region = regions.get(usize::from(offered.region));
                let region = region.ok_or(RingFault(Counter::PortMemifBadRegion))?;
                if offered.len == 0 {
                    return Err(RingFault(Counter::PortMemifBadLength));
                }
                if !region.contains(offered.offset as usize, offered.len as usize) {
                    return Err(RingFault(Counter::PortMemifBadOffset));
                }
                Ok((region, offered.offset as usize, offered.len as usize, offered.region))
            }
        }
    }

    /// Reads the peer's index.
    #[cold]
    fn look_for_room(&mut self) -> Result<(), RingFault> {
        let index = match self.buffers {
            // A buffer that the peer has read is free again a ring later.
            Buffers::Ours { .. } => {
                self.words.tail().load(Ordering::Acquire).wrapping_add(self.words.slots())
            }
            Buffers::Theirs(_) => self.words.head().load(Ordering::Acquire),
        };
        self.progress.on_index(index)?;
        if self.placed > 0 {
            self.release_read();
        }
        Ok(())
    }
}
