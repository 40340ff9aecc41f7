//! The keeper's memory: the words, and the place where callers write.

use ironwarp::{
    Access, AlignedBuf, Context, FastRegion, ProtectionDomain, Quiescence, Region, RemoteMemory, Sge,
    VerbsError, Window,
};

use super::atomics_oracle::WRITE_BYTES;
use crate::plan::AtomicsPlan;

/// Bytes of the words' page.
const PAGE_BYTES: usize = 4_096;

/// Bytes that have one owner.
const LINE_BYTES: usize = 64;

/// Where the first word lies.
const FIRST: usize = 64;

/// Places that each connection may write.
pub const AREA_SLOTS: usize = 8;

/// The memory.
pub struct WordMemory {
    page: Region,
    area: Region,
    words: usize,
    stride: usize,
}

/// Names of the words that one connection has for itself.
pub struct ConnTags {
    /// A window.
    pub window: Window,
    /// A fast region.
    pub fast: FastRegion,
}

impl WordMemory {
    /// Zeros, for as many connections as planned.
    pub fn new(ctx: &Context, pd: ProtectionDomain, plan: &AtomicsPlan) -> Result<Self, VerbsError> {
        let pages = |bytes| match AlignedBuf::pages(bytes) {
            Ok(pages) => pages,
            Err(error) => unreachable!("a few pages can be had: {error}"),
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

    /// The words as they are.
    pub fn words(&self) -> Vec<u64> {
        (0..self.words).map(|word| self.load(FIRST + word * self.stride)).collect()
    }

    fn load(&self, at: usize) -> u64 {
        match self.page.load_u64_acquire(at) {
            Ok(word) => word,
            Err(error) => unreachable!("within the page: {error}"),
        }
    }

    /// A word, as an operation of the keeper's own names it.
    pub fn word_location(&self, word: usize) -> (&Region, usize) {
        (&self.page, FIRST + word * self.stride)
    }

    /// The cache line of a word.
    pub fn cache_line(&self, word: usize) -> usize {
        (FIRST + word * self.stride) / LINE_BYTES
    }

    /// Ends every name of the words. The memory stays the keeper's.
    pub fn revoke(&self) -> Quiescence {
        self.page.revoke()
    }

    /// Everything but the words is as it was.
    pub fn check(&self) -> Result<(), String> {
        let is_word = |at: usize| {
            at >= FIRST && (at - FIRST).is_multiple_of(self.stride) && (at - FIRST) / self.stride < self.words
        };
        match (0..PAGE_BYTES).step_by(8).find(|at| !is_word(*at) && self.load(*at) != 0) {
            Some(at) => Err(format!("byte {at} of the words' page is in no word and was written")),
            None => Ok(()),
        }
    }

    /// The words' own name of the first of them.
    pub fn name(&self) -> RemoteMemory {
        RemoteMemory { stag: self.page.stag(), tagged_offset: self.page.base_to() + FIRST as u64 }
    }

    /// Behind the page.
    pub fn beyond(&self) -> RemoteMemory {
        RemoteMemory { stag: self.page.stag(), tagged_offset: self.page.base_to() + PAGE_BYTES as u64 }
    }

    /// All the words, as one element.
    pub fn piece(&self) -> Sge {
        match self.page.slice(FIRST, (self.words * self.stride) as u32) {
            Ok(piece) => piece,
            Err(error) => unreachable!("within the page: {error}"),
        }
    }

    /// Where a connection writes.
    pub fn area(&self, conn: usize) -> RemoteMemory {
        let offset = (conn * AREA_SLOTS * WRITE_BYTES) as u64;
        RemoteMemory { stag: self.area.stag(), tagged_offset: self.area.base_to() + offset }
    }

    /// What a connection has written to one of its places.
    pub fn written(&self, conn: usize, slot: usize) -> [u8; WRITE_BYTES] {
        let mut bytes = [0; WRITE_BYTES];
        let at = (conn * AREA_SLOTS + slot) * WRITE_BYTES;
        if self.area.read_at(at, &mut bytes).is_err() {
            unreachable!("within the area");
        }
        bytes
    }
}
