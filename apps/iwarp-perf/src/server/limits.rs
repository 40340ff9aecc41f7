//! What the clients of a standalone server may take: time, and memory of all together, of which
//! each reserves what its group takes before the group is opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a client may take.
#[derive(Clone)]
pub struct ClientLimits {
    /// The time without a message, or without a request.
    pub timeout: Duration,
    pub slice: Duration,
    pub memory: Arc<ClientMemory>,
}

/// Bytes that the clients may take together.
pub struct ClientMemory {
    bytes: u64,
    left: AtomicU64,
}

/// What a group has reserved, until this is dropped.
pub struct Reservation {
    memory: Arc<ClientMemory>,
    bytes: u64,
}

impl ClientMemory {
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(ClientMemory { bytes, left: AtomicU64::new(bytes) })
    }

    /// Reserves bytes. Fails, with the text for the client, if fewer are left.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reservation, String> {
        let take = |left: u64| left.checked_sub(bytes);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(Reservation { memory: self.clone(), bytes }),
            Err(left) => Err(format!(
                "busy: the test takes {} MiB at the server; {} of the {} MiB for all clients are left (--memory)",
                bytes.div_ceil(1 << 20),
                left >> 20,
                self.bytes >> 20
            )),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_client_has_another_cannot_get_until_it_is_given_back() {
        let memory = ClientMemory::new(4 << 20);
        let first = memory.reserve(3 << 20).expect("enough");
        let error = memory.reserve((1 << 20) + 1).err().expect("too much");
        assert!(error.contains("takes 2 MiB") && error.contains("1 of the 4 MiB"), "{error}");
        let _second = memory.reserve(1 << 20).expect("the rest");
        assert!(memory.reserve(1).is_err() && memory.reserve(u64::MAX).is_err());
        drop(first);
        assert!(memory.reserve(3 << 20).is_ok());
    }
}
