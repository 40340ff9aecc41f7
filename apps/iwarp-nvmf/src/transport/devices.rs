//! The devices of a core, and their change while it serves.
//!
//! Takes [`DeviceChange`]s of another thread, at most one housekeeping interval after they were
//! sent. A device is removed when no command of this core uses it any more, so a backend never
//! disappears below a request.
//!
//! A core polls: it neither opens nor closes a device. io_uring pins up to a gigabyte when it is
//! set up, and the end of a namespace in memory unmaps it. The control thread makes the devices,
//! with the memory of the core ([`CoreDevices::arena`]), and gets the removed ones back
//! ([`CoreDevices::close_removed`]).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::Reactor;
use crate::NvmfError;
use crate::backend::{Arena, Backend};
use crate::target::IoCounters;

/// Milliseconds for which a device without commands is kept: RDMA Writes from its memory may still
/// be in the send queue.
const REMOVE_DELAY_MS: u64 = 1000;

/// A namespace's backend on this core, and its counts.
pub struct Device {
    /// The backend.
    pub backend: Box<dyn Backend>,
    /// The counts.
    pub counters: Arc<IoCounters>,
}

/// The devices of a core, by their numbers. A removed one leaves its slot empty.
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

    /// Removes the device of a number.
    pub(super) fn take(&mut self, at: usize) -> Option<Device> {
        self.0.get_mut(at)?.take()
    }

    /// Puts a device at a number.
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

/// A change of a core's devices. No namespace has the number of the device meanwhile.
pub enum DeviceChange {
    /// Takes a device.
    Add {
        /// Its number.
        at: usize,
        /// The device.
        device: Device,
        /// Gets a message when the core has it.
        done: Sender<()>,
    },
    /// Gives a device back when its last command has ended.
    Remove {
        /// Its number.
        at: usize,
    },
}

/// The control thread's end of a core's devices.
pub struct CoreDevices {
    changes: Sender<DeviceChange>,
    removed: Receiver<Device>,
    arenas: Receiver<Arena>,
    arena: Option<Arena>,
}

impl CoreDevices {
    /// Returns the memory of the core, when that has started.
    ///
    /// # Errors
    ///
    /// The core has ended, or does not start in time.
    pub fn arena(&mut self, timeout: Duration) -> Result<Arena, NvmfError> {
        if let Some(arena) = &self.arena {
            return Ok(arena.clone());
        }
        let none = |_| NvmfError::Protocol("a core does not start".into());
        let arena = self.arenas.recv_timeout(timeout).map_err(none)?;
        self.arena = Some(arena.clone());
        Ok(arena)
    }

    /// Sends a change. A core that has ended takes none, and has closed its devices.
    pub fn send(&self, change: DeviceChange) {
        let _ = self.changes.send(change);
    }

    /// Closes the devices that the core has removed.
    pub fn close_removed(&self) {
        self.removed.try_iter().for_each(drop);
    }
}

/// The core's end: what is still to be changed.
pub struct DeviceChanges {
    requests: Receiver<DeviceChange>,
    given_back: Sender<Device>,
    arenas: Sender<Arena>,
    /// Devices to remove, and the time from which they may be.
    removed: Vec<(usize, u64)>,
}

/// Returns both ends for a core.
pub fn device_changes() -> (CoreDevices, DeviceChanges) {
    let ((changes, requests), (given_back, removed), (arenas, of_core)) = (channel(), channel(), channel());
    let control = CoreDevices { changes, removed, arenas: of_core, arena: None };
    (control, DeviceChanges { requests, given_back, arenas, removed: Vec::new() })
}

impl DeviceChanges {
    /// Tells the control thread which memory devices use.
    pub(super) fn publish(&self, arena: &Arena) {
        // Without a control thread nothing changes.
        let _ = self.arenas.send(arena.clone());
    }
}

impl Reactor {
    /// Applies the changes that were sent, and removes the devices that nothing uses any more.
    pub(super) fn apply_changes(&mut self) {
        let now_ms = self.io.now_ms;
        while let Ok(change) = self.changes.requests.try_recv() {
            match change {
                DeviceChange::Add { at, device, done } => {
                    self.io.backends.set(at, Some(device));
                    self.find_disks();
                    // Without a receiver the other thread has given up; it removes the device.
                    let _ = done.send(());
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
            let is_used = self.connections.iter().flatten().any(|one| one.uses_device(*at));
            if is_used || self.io.orphans.uses_device(*at) {
                *from_ms = now_ms + REMOVE_DELAY_MS;
            }
            let keep = now_ms < *from_ms;
            if !keep && let Some(device) = self.io.backends.take(*at) {
                // The program is ending if nobody takes it.
                let _ = self.changes.given_back.send(device);
            }
            keep
        });
        self.changes.removed = removed;
        self.find_disks();
    }
}
