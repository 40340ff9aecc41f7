//! The thread of a device's control side. It waits for the socket, so links come and go whether the
//! queues are polled or not. No other thread does its work, which maps and removes memory.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use ironwarp_stats::CoreStats;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use super::Control;
use crate::memif::MemifError;

/// The thread. It ends when this is dropped.
pub(in crate::memif) struct ControlThread {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

struct Inner {
    /// Wakes the thread.
    wake: OwnedFd,
    stop: AtomicBool,
}

impl ControlThread {
    /// Starts the thread. It counts into `stats`, the page of the first queue, words that no queue
    /// counts into.
    ///
    /// # Errors
    /// [`MemifError::System`].
    pub(in crate::memif) fn start(control: Control, stats: CoreStats) -> Result<Self, MemifError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(MemifError::system)?;
        let events = control.events().try_clone().map_err(MemifError::System)?;
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&events, &wake, EventData::new_u64(0), edge).map_err(MemifError::system)?;
        let inner = Arc::new(Inner { wake, stop: AtomicBool::new(false) });
        let seen = inner.clone();
        let thread = std::thread::Builder::new().name("ironwarp-memif".into());
        let thread = thread.spawn(move || seen.run(control, &stats, &events)).map_err(MemifError::System)?;
        Ok(ControlThread { inner, thread: Some(thread) })
    }

    /// Makes the thread handle what has happened.
    pub(in crate::memif) fn wake(&self) {
        // A full counter means that a wake-up is pending already.
        let _ = rustix::io::write(&self.inner.wake, &1u64.to_ne_bytes());
    }
}

impl Inner {
    fn run(&self, mut control: Control, stats: &CoreStats, events: &OwnedFd) {
        while !self.stop.load(Ordering::Acquire) {
            control.poll(Instant::now(), stats);
            let limit = control.wait_limit();
            if let Some(pause) = control.take_pause() {
                std::thread::sleep(pause);
            }
            let limit = limit.map(|limit| Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() });
            let mut found = [const { MaybeUninit::<Event>::uninit() }; 4];
            // An interrupted wait is a wake-up without a reason.
            let _ = epoll::wait(events, &mut found[..], limit.as_ref());
        }
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
