//! A disk in virtual time: its data passes through data buffers, and each request takes a poll.
//!
//! Bytes move when a request completes, as a kernel's do at the latest. A [`DiskPlan`] says what
//! goes wrong, and changes while the core runs. Nothing here reads a clock or a random number, so
//! the same steps give the same run. A block takes memory when it is written first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use iwarp_nvmf::backend::{
    Arena, Backend, BlockCompletion, BlockError, BlockOperation, BlockRequest, Budget, Submission,
};

/// Bytes of a block.
const BLOCK_BYTES: u64 = 512;
/// Requests that it has at once.
const REQUESTS_MAX: usize = 64;
/// What a byte is that nobody has written.
const UNWRITTEN: u8 = 7;

/// What a disk does, changed while the core runs.
#[derive(Debug, Default)]
pub struct DiskPlan {
    /// Nothing completes.
    pub hangs: AtomicBool,
    /// Completions go in the opposite order.
    pub reverses: AtomicBool,
    /// The next request fails.
    pub fails: AtomicBool,
}

/// The disk.
pub struct SimulatedDisk {
    arena: Arena,
    plan: Arc<DiskPlan>,
    requests: VecDeque<(u64, BlockRequest)>,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl SimulatedDisk {
    /// A disk whose requests use the memory of a core.
    pub fn new(arena: Arena, plan: Arc<DiskPlan>) -> Self {
        SimulatedDisk { arena, plan, requests: VecDeque::new(), blocks: BTreeMap::new() }
    }

    fn complete(&mut self, request: &BlockRequest) -> Result<(), BlockError> {
        let is_read = request.operation == BlockOperation::Read;
        if self.plan.fails.swap(false, Ordering::Relaxed) {
            return Err(if is_read { BlockError::Read(5) } else { BlockError::Write(5) });
        }
        let blocks = request.offset / BLOCK_BYTES..(request.offset + request.bytes) / BLOCK_BYTES;
        for (number, block) in blocks.enumerate() {
            let at = request.arena_offset + number * BLOCK_BYTES as usize;
            let mut bytes = vec![0; BLOCK_BYTES as usize];
            match request.operation {
                BlockOperation::Read => {
                    let unwritten = vec![UNWRITTEN; BLOCK_BYTES as usize];
                    let found = self.blocks.get(&block).unwrap_or(&unwritten);
                    self.arena.region().write_at(at, found).map_err(|_| BlockError::Range)?;
                }
                BlockOperation::Write { .. } => {
                    self.arena.region().read_at(at, &mut bytes).map_err(|_| BlockError::Range)?;
                    self.blocks.insert(block, bytes);
                }
                BlockOperation::WriteZeroes { .. } => drop(self.blocks.insert(block, bytes)),
                BlockOperation::Deallocate | BlockOperation::Flush => {}
            }
        }
        Ok(())
    }
}

impl Backend for SimulatedDisk {
    fn submit(&mut self, token: u64, request: &BlockRequest, _budget: &mut Budget) -> Submission {
        if self.requests.len() >= REQUESTS_MAX {
            return Submission::Busy;
        }
        self.requests.push_back((token, *request));
        Submission::Pending
    }

    fn poll(&mut self, completions: &mut Vec<BlockCompletion>) {
        if self.plan.hangs.load(Ordering::Relaxed) {
            return;
        }
        let mut requests = core::mem::take(&mut self.requests);
        if self.plan.reverses.load(Ordering::Relaxed) {
            requests.make_contiguous().reverse();
        }
        completions.extend(requests.drain(..).map(|(token, request)| (token, self.complete(&request))));
        // Keeps its memory.
        self.requests = requests;
    }

    fn needs_poll(&self) -> bool {
        true
    }
}
