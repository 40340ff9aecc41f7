//! A medium in memory: registered, so that RDMA reads and writes it in place. Its contents end with
//! the process.
//!
//! A Write that fails on the way leaves a mixture of old and new bytes. Tests and scratch space can
//! live with that.

use std::sync::Arc;

use ironwarp::{Region, Sge};

use super::{Backend, BlockCompletion, BlockError, BlockOperation, BlockRequest, Budget, Submission};

/// A namespace in memory. All cores share its region.
pub struct MemoryBackend {
    medium: Arc<Region>,
}

impl MemoryBackend {
    /// A namespace in `medium`, which needs the right of local writes only.
    pub fn new(medium: Arc<Region>) -> Self {
        MemoryBackend { medium }
    }

    /// Makes bytes zeros, as many as the budget has.
    fn fill(&self, request: &BlockRequest, budget: &mut Budget) -> Submission {
        let Ok(offset) = usize::try_from(request.offset) else {
            return Submission::Done(Err(BlockError::Range));
        };
        let bytes = budget.take(request.bytes);
        match self.medium.fill(offset, bytes as usize, 0) {
            Err(_) => Submission::Done(Err(BlockError::Range)),
            Ok(()) if bytes < request.bytes => Submission::Progress(bytes),
            Ok(()) => Submission::Done(Ok(())),
        }
    }
}

impl Backend for MemoryBackend {
    #[inline]
    fn mapped(&self, offset: u64, bytes: u32, _to_medium: bool) -> Option<Sge> {
        self.medium.slice(usize::try_from(offset).ok()?, bytes).ok()
    }

    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> bool {
        usize::try_from(offset).is_ok_and(|offset| self.medium.read_at(offset, into).is_ok())
    }

    fn write_bytes(&self, offset: u64, from: &[u8]) -> bool {
        usize::try_from(offset).is_ok_and(|offset| self.medium.write_at(offset, from).is_ok())
    }

    fn submit(&mut self, _token: u64, request: &BlockRequest, budget: &mut Budget) -> Submission {
        match request.operation {
            BlockOperation::Flush => Submission::Done(Ok(())),
            BlockOperation::WriteZeroes { .. } | BlockOperation::Deallocate => self.fill(request, budget),
            // Both go through `mapped`.
            BlockOperation::Read | BlockOperation::Write { .. } => Submission::Done(Err(BlockError::Range)),
        }
    }

    fn poll(&mut self, _completions: &mut Vec<BlockCompletion>) {}

    fn needs_poll(&self) -> bool {
        false
    }
}
