//! The devices of a core, and their change while it serves.
//!
//! Takes [`DeviceChange`]s of another thread, at most one housekeeping interval after they were sent. A device is removed
//! when no command of this core uses it any more, so a backend never disappears below a request.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use super::Reactor;
use super::arena::CoreMemory;
use crate::NvmfError;
use crate::backend::Backend;
use crate::target::IoCounters;

/// Milliseconds for which a device without commands is kept: RDMA Writes from its memory may still be in the send queue.
const REMOVE_DELAY_MS: u64 = 1000;

/// A namespace's backend on this core, and its counts.
pub struct Device {
    /// The backend.
    pub backend: Box<dyn Backend>,
    /// The counts.
    pub counters: Arc<IoCounters>,
}

/// The devices of a core, by their numbers. A removed one leaves its place empty.
#[derive(Default)]
pub struct Devices(Vec<Option<Device>>);

impl Devices {
    /// Returns the device of a number.
    #[inline]
    pub fn get(&self, at: usize) -> Option<&Device> {
        self.0.get(at)?.as_ref()
    }

    /// Returns the device of a number.
    #[inline]
    pub fn get_mut(&mut self, at: usize) -> Option<&mut Device> {
        self.0.get_mut(at)?.as_mut()
    }

    /// Puts a device at a number, or removes it.
    pub(super) fn set(&mut self, at: usize, device: Option<Device>) {
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        if let Some(place) = self.0.get_mut(at) {
            *place = device;
        }
    }

    /// Returns the numbers of the devices that have to be polled.
    pub(super) fn polled(&self) -> Vec<usize> {
        let needs_poll = |at: &usize| self.get(*at).is_some_and(|one| one.backend.needs_poll());
        (0..self.0.len()).filter(needs_poll).collect()
    }
}

impl FromIterator<Device> for Devices {
    fn from_iter<I: IntoIterator<Item = Device>>(devices: I) -> Self {
        Devices(devices.into_iter().map(Some).collect())
    }
}

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
