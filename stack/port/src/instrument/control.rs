//! The switches, and the one word that the data path looks at.
//!
//! A control writes its wishes under a lock and raises a flag; the polling thread, which looks at the flags once a
//! burst, takes the wishes over under the same lock. Only the polling thread lowers flags.

use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::capture::CaptureInterface;
use super::faults::Faults;

/// Switches the instruments of one port; clones switch the same port, from any thread. What is switched takes effect
/// with the port's next burst.
#[derive(Clone)]
pub struct PortControl {
    shared: Arc<Shared>,
}

impl PortControl {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        PortControl { shared }
    }

    /// Injects these faults from now on; [`Faults::default`] stops them and lets held frames go.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.change(|settings| settings.faults = faults);
    }

    /// The faults that are injected.
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

    /// Whether frames are recorded. A capture that failed or is full has stopped by itself.
    pub fn is_capturing(&self) -> bool {
        self.shared.lock().capture.is_some()
    }
}

/// What is wished for.
#[derive(Clone, Default)]
pub(super) struct Settings {
    pub(super) faults: Faults,
    pub(super) capture: Option<CaptureInterface>,
}

/// What a port and its controls share.
#[derive(Default)]
pub(super) struct Shared {
    flags: AtomicU32,
    settings: Mutex<Settings>,
}

impl Shared {
    /// Whether a burst may take the short way.
    #[inline]
    pub(super) fn all_off(&self) -> bool {
        self.flags.load(Ordering::Relaxed) == 0
    }

    /// The wishes, if there are new ones since the last call.
    pub(super) fn take_changes(&self) -> Option<Settings> {
        if self.flags.load(Ordering::Relaxed) & CHANGED == 0 {
            return None;
        }
        let settings = self.lock();
        self.flags.store(WATCHING, Ordering::Relaxed);
        Some(settings.clone())
    }

    /// Back to the short way, unless new wishes have come.
    pub(super) fn rest(&self) {
        self.flags.fetch_and(!WATCHING, Ordering::Relaxed);
    }

    /// The polling thread has given up on a capture.
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
        // Nothing that runs under the lock leaves the settings half changed.
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There are wishes that the polling thread has not seen.
const CHANGED: u32 = 1;

/// Something is on, or frames are still held.
const WATCHING: u32 = 2;
