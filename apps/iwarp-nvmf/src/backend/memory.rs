//! A medium in memory: registered, so that RDMA reads and writes it in place. Its contents end with the process.
//!
//! A Write that fails on the way leaves a mixture of old and new bytes. Tests and scratch space can live with that.

use std::sync::Arc;

use ironwarp::{Region, Sge};

use super::{Backend, BlockCompletion, BlockError, BlockOperation, BlockRequest, Submission};

/// A namespace in memory. All cores share its region.
pub struct MemoryBackend {
    medium: Arc<Region>,
}

impl MemoryBackend {
    /// A namespace in `medium`, which needs the right of local writes only.
    pub fn new(medium: Arc<Region>) -> Self {
        MemoryBackend { medium }
    }

    fn fill(&self, request: &BlockRequest) -> Result<(), BlockError> {
        let offset = usize::try_from(request.offset).map_err(|_| BlockError::Range)?;
        let bytes = usize::try_from(request.bytes).map_err(|_| BlockError::Range)?;
        self.medium.fill(offset, bytes, 0).map_err(|_| BlockError::Range)
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

    fn submit(&mut self, _token: u64, request: &BlockRequest) -> Submission {
        Submission::Done(match request.operation {
            BlockOperation::Flush => Ok(()),
            BlockOperation::WriteZeroes { .. } | BlockOperation::Deallocate => self.fill(request),
            // Both go through `mapped`.
            BlockOperation::Read | BlockOperation::Write { .. } => Err(BlockError::Range),
        })
    }

    fn poll(&mut self, _completions: &mut Vec<BlockCompletion>) {}

    fn needs_poll(&self) -> bool {
        false
    }
}
