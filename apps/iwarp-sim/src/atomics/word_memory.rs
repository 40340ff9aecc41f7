//! The server's memory: the words, and the area that clients write.

use ironwarp::{
    Access, AlignedBuf, Context, FastRegion, ProtectionDomain, Quiescence, Region, RemoteMemory, Sge,
    VerbsError, Window,
};

use super::atomics_oracle::WRITE_BYTES;
use crate::plan::AtomicsPlan;

/// Bytes of the words' page.
const PAGE_BYTES: usize = 4_096;

/// Bytes of a cache line, whose operations are ordered.
const LINE_BYTES: usize = 64;

/// Offset of the first word.
const FIRST: usize = 64;

/// Slots that each connection may write.
pub const AREA_SLOTS: usize = 8;

/// The memory.
pub struct WordMemory {
    page: Region,
    area: Region,
    words: usize,
    stride: usize,
}

/// The tags of the words that belong to one connection.
pub struct ConnTags {
    /// A window.
    pub window: Window,
    /// A fast region.
    pub fast: FastRegion,
}

impl WordMemory {
    /// Allocates zeroed memory for the planned connections.
    pub fn new(ctx: &Context, pd: ProtectionDomain, plan: &AtomicsPlan) -> Result<Self, VerbsError> {
        let pages = |bytes| match AlignedBuf::pages(bytes) {
            Ok(pages) => pages,
            Err(error) => unreachable!("registering a few pages failed: {error}"),
        };
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC | Access::BIND;
        let page = match plan.pin {
            Some(core) => ctx.register_on_core(pd, pages(PAGE_BYTES), rights, core)?,
            None => ctx.register(pd, pages(PAGE_BYTES), rights)?,
        };
        let area = plan.conns.len() * AREA_SLOTS * WRITE_BYTES;
        let area = ctx.register(pd, pages(area), Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        Ok(WordMemory { page, area, words: plan.words, stride: plan.stride })
    }

    /// The current words.
    pub fn words(&self) -> Vec<u64> {
        (0..self.words).map(|word| self.load(FIRST + word * self.stride)).collect()
    }

    fn load(&self, at: usize) -> u64 {
        match self.page.load_u64_acquire(at) {
            Ok(word) => word,
            Err(error) => unreachable!("within the page: {error}"),
        }
    }

    /// The region and offset of a word, for the server's own operations.
    pub fn word_location(&self, word: usize) -> (&Region, usize) {
        (&self.page, FIRST + word * self.stride)
    }

    /// The cache line of a word.
    pub fn cache_line(&self, word: usize) -> usize {
        (FIRST + word * self.stride) / LINE_BYTES
    }

    /// Invalidates every tag of the words. The memory stays with the server.
    pub fn revoke(&self) -> Quiescence {
        self.page.revoke()
    }

    /// Checks that no byte outside of the words has changed.
    pub fn check(&self) -> Result<(), String> {
        let is_word = |at: usize| {
            at >= FIRST && (at - FIRST).is_multiple_of(self.stride) && (at - FIRST) / self.stride < self.words
        };
        match (0..PAGE_BYTES).step_by(8).find(|at| !is_word(*at) && self.load(*at) != 0) {
            Some(at) => Err(format!("byte {at} of the words' page is outside of the words and was written")),
            None => Ok(()),
        }
    }

    /// The remote address of the first word by the region's own tag.
    pub fn name(&self) -> RemoteMemory {
        RemoteMemory { stag: self.page.stag(), tagged_offset: self.page.base_to() + FIRST as u64 }
    }

    /// An address after the end of the page.
    pub fn beyond(&self) -> RemoteMemory {
        RemoteMemory { stag: self.page.stag(), tagged_offset: self.page.base_to() + PAGE_BYTES as u64 }
    }

    /// All words as one scatter/gather element.
    pub fn piece(&self) -> Sge {
        match self.page.slice(FIRST, (self.words * self.stride) as u32) {
            Ok(piece) => piece,
            Err(error) => unreachable!("within the page: {error}"),
        }
    }

    /// The area that a connection writes.
    pub fn area(&self, conn: usize) -> RemoteMemory {
        let offset = (conn * AREA_SLOTS * WRITE_BYTES) as u64;
        RemoteMemory { stag: self.area.stag(), tagged_offset: self.area.base_to() + offset }
    }

    /// The bytes in one slot of a connection's area.
    pub fn written(&self, conn: usize, slot: usize) -> [u8; WRITE_BYTES] {
        let mut bytes = [0; WRITE_BYTES];
        let at = (conn * AREA_SLOTS + slot) * WRITE_BYTES;
        if self.area.read_at(at, &mut bytes).is_err() {
            unreachable!("within the area");
        }
        bytes
    }
}
