//! The switches, and the flags that the data path reads.
//!
//! A control stores its settings under a lock and sets a flag. The polling thread reads the flags
//! once for each burst and takes the settings under the same lock. Only the polling thread clears
//! flags.

use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::capture::CaptureInterface;
use super::faults::Faults;

/// Switches the instruments of one port; clones switch the same port, from any thread. Settings
/// take effect with the port's next burst.
#[derive(Clone)]
pub struct PortControl {
    shared: Arc<Shared>,
}

impl PortControl {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        PortControl { shared }
    }

    /// Injects these faults from now on; [`Faults::default`] stops them and releases delayed
    /// frames.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.change(|settings| settings.faults = faults);
    }

    /// Returns the injected faults.
    pub fn faults(&self) -> Faults {
        self.shared.lock().faults
    }

    /// Records frames, in place of an earlier capture if there is one.
    pub fn start_capture(&self, interface: CaptureInterface) {
        self.shared.change(|settings| settings.capture = Some(interface));
    }

    /// Stops recording and writes out what is buffered. Fails if that cannot be written.
    pub fn stop_capture(&self) -> io::Result<()> {
        let mut stopped = None;
        self.shared.change(|settings| stopped = settings.capture.take());
        stopped.map_or(Ok(()), |interface| interface.flush())
    }

    /// Returns whether frames are recorded. A capture that failed or is full has stopped by itself.
    pub fn is_capturing(&self) -> bool {
        self.shared.lock().capture.is_some()
    }
}

/// The settings.
#[derive(Clone, Default)]
pub(super) struct Settings {
    pub(super) faults: Faults,
    pub(super) capture: Option<CaptureInterface>,
}

/// The state that a port and its controls share.
#[derive(Default)]
pub(super) struct Shared {
    flags: AtomicU32,
    settings: Mutex<Settings>,
}

impl Shared {
    /// Returns whether all instruments are off.
    #[inline]
    pub(super) fn all_off(&self) -> bool {
        self.flags.load(Ordering::Relaxed) == 0
    }

    /// Returns the settings, if they changed since the last call.
    pub(super) fn take_changes(&self) -> Option<Settings> {
        if self.flags.load(Ordering::Relaxed) & CHANGED == 0 {
            return None;
        }
        let settings = self.lock();
        self.flags.store(WATCHING, Ordering::Relaxed);
        Some(settings.clone())
    }

    /// Marks all instruments as off, unless the settings changed.
    pub(super) fn rest(&self) {
        self.flags.fetch_and(!WATCHING, Ordering::Relaxed);
    }

    /// Records that the polling thread stopped a capture.
    pub(super) fn capture_stopped(&self, interface: &CaptureInterface) {
        let mut settings = self.lock();
        if settings.capture.as_ref().is_some_and(|current| current.is_same(interface)) {
            settings.capture = None;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.lock();
        change(&mut settings);
        self.flags.fetch_or(CHANGED, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Settings> {
        // No code under the lock can leave the settings inconsistent.
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There are settings that the polling thread has not read.
const CHANGED: u32 = 1;

/// An instrument is on, or frames are delayed.
const WATCHING: u32 = 2;
