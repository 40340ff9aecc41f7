//! The server's memory of the words.

use ironwarp::{
    Access, AlignedBuf, Context, ProtectionDomain, Quiescence, Region, RemoteMemory, Sge, VerbsError,
};

use crate::plan::AtomicsPlan;

const PAGE_BYTES: usize = 4_096;

/// Bytes of a cache line, whose operations are ordered.
const LINE_BYTES: usize = 64;

const FIRST: usize = 64;

pub struct WordMemory {
    page: Region,
    words: usize,
    stride: usize,
}

impl WordMemory {
    /// Allocates zeroed memory.
    pub fn new(ctx: &Context, pd: ProtectionDomain, plan: &AtomicsPlan) -> Result<Self, VerbsError> {
        let bytes = match AlignedBuf::pages(PAGE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) => unreachable!("registering a page failed: {error}"),
        };
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC | Access::BIND;
        let page = match plan.pin {
            Some(core) => ctx.register_on_core(pd, bytes, rights, core)?,
            None => ctx.register(pd, bytes, rights)?,
        };
        Ok(WordMemory { page, words: plan.words, stride: plan.stride })
    }

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
}
