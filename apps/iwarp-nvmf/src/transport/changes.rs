//! Devices that are added and removed while a core serves.
//!
//! Takes [`DeviceChange`]s of another thread, at most one housekeeping interval after they were sent. A device is removed
//! when no command of this core uses it any more, so a backend never disappears below a request.

use std::sync::mpsc::{Receiver, Sender};

use super::arena::CoreMemory;
use super::{Device, Reactor};
use crate::NvmfError;

/// Milliseconds for which a device without commands is kept: RDMA Writes from its memory may still be in the send queue.
const REMOVE_DELAY_MS: u64 = 1000;

/// Makes a device with the memory of the core that will use it.
pub type OpenDevice = Box<dyn FnOnce(&CoreMemory) -> Result<Device, NvmfError> + Send>;

/// A change of a core's devices. No namespace has the number of the device meanwhile.
pub enum DeviceChange {
    /// Opens a device.
    Add {
        /// Its number.
        at: usize,
        /// Makes it.
        open: OpenDevice,
        /// Takes the outcome.
        done: Sender<Result<(), NvmfError>>,
    },
    /// Closes a device when its last command has ended.
    Remove {
        /// Its number.
        at: usize,
    },
}

/// What is still to be changed.
pub(super) struct Changes {
    requests: Receiver<DeviceChange>,
    /// Devices to remove, and the time from which they may be.
    removed: Vec<(usize, u64)>,
}

impl Changes {
    pub(super) fn new(requests: Receiver<DeviceChange>) -> Self {
        Changes { requests, removed: Vec::new() }
    }
}

impl Reactor {
    /// Applies the changes that were sent, and removes the devices that nothing uses any more.
    pub(super) fn apply_changes(&mut self) {
        let now_ms = self.io.now_ms;
        while let Ok(change) = self.changes.requests.try_recv() {
            match change {
                DeviceChange::Add { at, open, done } => {
                    let outcome = open(&self.io.memory).map(|device| self.io.backends.set(at, Some(device)));
                    self.polled_backends = self.io.backends.polled();
                    // Without a receiver the other thread has given up; it removes the device.
                    let _ = done.send(outcome);
                }
                DeviceChange::Remove { at } => self.changes.removed.push((at, now_ms + REMOVE_DELAY_MS)),
            }
        }
        if !self.changes.removed.is_empty() {
            self.remove_devices(now_ms);
        }
    }

    fn remove_devices(&mut self, now_ms: u64) {
        let mut removed = core::mem::take(&mut self.changes.removed);
        removed.retain_mut(|(at, from_ms)| {
            if self.connections.iter().flatten().any(|one| one.uses_device(*at)) {
                *from_ms = now_ms + REMOVE_DELAY_MS;
            }
            let keep = now_ms < *from_ms;
            if !keep {
                self.io.backends.set(*at, None);
            }
            keep
        });
        self.changes.removed = removed;
        self.polled_backends = self.io.backends.polled();
    }
}
