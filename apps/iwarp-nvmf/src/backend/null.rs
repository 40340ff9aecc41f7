//! A medium that keeps nothing: reads as zeros and forgets what is written. For measurements.

use std::sync::Arc;

use ironwarp::{Region, Sge};

use super::{Backend, BlockCompletion, BlockRequest, Budget, Submission};

/// A namespace without a medium. Reads and writes have separate memory, so that nobody reads what
/// another wrote.
pub struct NullBackend {
    zeros: Arc<Region>,
    sink: Arc<Region>,
}

impl NullBackend {
    /// A namespace that reads from `zeros` and writes into `sink`, both as long as the longest
    /// transfer.
    pub fn new(zeros: Arc<Region>, sink: Arc<Region>) -> Self {
        NullBackend { zeros, sink }
    }
}

impl Backend for NullBackend {
    #[inline]
    fn mapped(&self, _offset: u64, bytes: u32, to_medium: bool) -> Option<Sge> {
        if to_medium { &self.sink } else { &self.zeros }.slice(0, bytes).ok()
    }

    fn read_bytes(&self, _offset: u64, into: &mut [u8]) -> bool {
        into.fill(0);
        true
    }

    fn write_bytes(&self, _offset: u64, _from: &[u8]) -> bool {
        true
    }

    fn submit(&mut self, _token: u64, _request: &BlockRequest, _budget: &mut Budget) -> Submission {
        Submission::Done(Ok(()))
    }

    fn poll(&mut self, _completions: &mut Vec<BlockCompletion>) {}

    fn needs_poll(&self) -> bool {
        false
    }
}
