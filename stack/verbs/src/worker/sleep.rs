//! The sleep of an idle worker (`core.idle = "sleep"`).
//!
//! One epoll descriptor covers everything that may end a sleep: the core's [`WakeSignal`], which
//! contexts and other cores write, the receive descriptors of devices that have them, and a timer
//! for the core's next deadline. A device without a descriptor is polled by the timer. An
//! application that owns the loop waits for this descriptor among its own.
//!
//! The signal, the timer and interrupts are edge-triggered, so nothing reads them. A socket's or
//! tap's descriptor stays readable until the worker has received the frames. An interrupt is
//! enabled before the last poll ahead of a sleep and disabled after the sleep. Cost of a sleep: one
//! system call to set the timer, one to wait; with interrupts also what the driver needs to enable
//! and disable them.

use core::mem::MaybeUninit;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ironwarp_port::{RxInterrupt, WakeSource};
use ironwarp_types::Nanos;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::config::CoreConfig;
use crate::wake::WakeSignal;

/// A receive interrupt of this core.
struct CoreInterrupt {
    port: usize,
    source: Box<dyn RxInterrupt>,
    /// It is enabled. Not so between two sleeps, or if the driver refused.
    is_enabled: bool,
    /// It has woken the core. Some drivers accept interrupts and deliver none, so its device is
    /// polled until then.
    is_proven: bool,
}

/// Marks an event that only ends the sleep. Interrupts are numbered from 1.
const OTHER: u64 = 0;

/// Events taken at a time: the signal, the timer and up to eight devices.
const EVENTS: usize = 10;

/// The descriptors of a worker that may sleep.
pub(crate) struct Sleeper {
    signal: Arc<WakeSignal>,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// How often a device must be polled that cannot wake the core.
    poll_interval: Nanos,
    /// Some device has no descriptor.
    has_silent_device: bool,
    sleep_after: Nanos,
    /// When the current idle time began.
    idle_since: Option<Nanos>,
    core: u16,
    interrupts: Vec<CoreInterrupt>,
    /// Keeps the descriptors open that the epoll descriptor watches.
    _frames: Vec<OwnedFd>,
}

impl Sleeper {
    /// Takes what wakes the core for each port. Fails if the system refuses a descriptor.
    pub(crate) fn new(
        signal: Arc<WakeSignal>,
        devices: impl IntoIterator<Item = Option<WakeSource>>,
        (core, config): (u16, &CoreConfig),
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, signal.as_fd(), EventData::new_u64(OTHER), edge)?;
        epoll::add(&epoll, &timer, EventData::new_u64(OTHER), edge)?;
        let (mut has_silent_device, mut frames, mut interrupts) = (false, Vec::new(), Vec::new());
        for (port, device) in devices.into_iter().enumerate() {
            match device {
                None => has_silent_device = true,
                Some(WakeSource::Frames(device)) => {
                    epoll::add(&epoll, &device, EventData::new_u64(OTHER), EventFlags::IN)?;
                    frames.push(device);
                }
                Some(WakeSource::Interrupt(source)) => {
                    let number = interrupts.len() as u64 + 1;
                    epoll::add(&epoll, source.as_fd(), EventData::new_u64(number), edge)?;
                    interrupts.push(CoreInterrupt { port, source, is_enabled: false, is_proven: false });
                }
            }
        }
        let micros = |us: u32| Nanos::from_micros(us.into());
        Ok(Sleeper {
            signal,
            epoll,
            timer,
            poll_interval: micros(config.sleep_poll_us),
            has_silent_device,
            sleep_after: micros(config.sleep_after_us),
            idle_since: None,
            core,
            interrupts,
            _frames: frames,
        })
    }

    /// Returns the descriptor to wait for.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns the signal that wakes the worker.
    pub(crate) fn signal(&self) -> &Arc<WakeSignal> {
        &self.signal
    }

    /// Begins to arm: whatever is published and received from now on wakes. What was there before
    /// does not: check once more.
    pub(crate) fn arm(&mut self) {
        self.signal.arm();
        for interrupt in &mut self.interrupts {
            interrupt.is_enabled = interrupt.source.enable();
        }
    }

    /// Ends the preparation: sets the timer. Returns whether the worker may wait now.
    pub(crate) fn set_timer(&self, now: Nanos, until: Nanos) -> bool {
        let until = if self.must_poll() { until.min(now + self.poll_interval) } else { until };
        // A timer of zero is disarmed. Without a deadline, the link is checked anyway.
        let wait = until.since(now).0.clamp(1, Nanos::from_secs(3600).0);
        let second = 1_000_000_000;
        let it_value = Timespec { tv_sec: (wait / second) as i64, tv_nsec: (wait % second) as _ };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec).is_ok()
    }

    /// Returns whether frames of some device may not wake the core.
    fn must_poll(&self) -> bool {
        self.has_silent_device || self.interrupts.iter().any(|one| !(one.is_enabled && one.is_proven))
    }

    /// Waits until something ends the sleep.
    pub(crate) fn wait(&mut self) {
        self.take_events(None);
    }

    /// After a sleep, or instead of one: nothing wakes any more, and the descriptor is not readable
    /// for an old reason.
    pub(crate) fn disarm(&mut self) {
        self.disarm_after_wait();
        self.take_events(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    }

    /// As [`Sleeper::disarm`], where [`Sleeper::wait`] has taken the events.
    pub(crate) fn disarm_after_wait(&mut self) {
        self.signal.disarm();
        for interrupt in &mut self.interrupts {
            // A driver may have enabled it although it reported an error.
            interrupt.source.disable();
            interrupt.is_enabled = false;
        }
    }

    fn take_events(&mut self, timeout: Option<&Timespec>) {
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        // An interrupted wait ends the sleep early.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events[..], timeout) else { return };
        for event in events {
            let number = event.data.u64() as usize;
            let interrupt = number.checked_sub(1).and_then(|index| self.interrupts.get_mut(index));
            if let Some(interrupt) = interrupt.filter(|one| !one.is_proven) {
                interrupt.is_proven = true;
                let (core, port) = (self.core, interrupt.port);
                tracing::info!(core, port, "woken by a receive interrupt: no longer polled during a sleep");
            }
        }
    }

    /// Records work: the idle time is over.
    #[inline]
    pub(crate) fn on_work(&mut self) {
        self.idle_since = None;
    }

    /// Returns whether the worker has been idle for long enough to sleep.
    pub(crate) fn idle_long_enough(&mut self, now: Nanos) -> bool {
        let since = *self.idle_since.get_or_insert(now);
        now.since(since) >= self.sleep_after
    }
}

#[cfg(test)]
mod tests;
