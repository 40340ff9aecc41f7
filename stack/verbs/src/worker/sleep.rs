//! The sleep of an idle worker (`core.idle = "sleep"`).
//!
//! One epoll descriptor covers everything that may end a sleep: the core's [`WakeSignal`], which contexts and other cores
//! write, the receive descriptors of devices that have them, and a timer for the core's next deadline. A device without a
//! descriptor is polled by the timer. An application that owns the loop waits for this descriptor among its own.
//!
//! The signal and the timer are edge-triggered, so nothing reads them. A receive descriptor stays readable until the
//! worker has received the frames. Cost of a sleep: one system call to set the timer, one to wait.

use core::mem::MaybeUninit;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ironwarp_types::Nanos;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::config::CoreConfig;
use crate::wake::WakeSignal;

/// The receive descriptors of a core's devices, by port. `None`: the device has none.
pub(crate) type RxDescriptors = Vec<Option<OwnedFd>>;

/// Events taken at a time: the signal, the timer and up to eight devices.
const EVENTS: usize = 10;

/// The descriptors of a worker that may sleep.
pub(crate) struct Sleeper {
    signal: Arc<WakeSignal>,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// How often a device must be polled that cannot wake the core. `None`: all devices can.
    poll_interval: Option<Nanos>,
    sleep_after: Nanos,
    /// When the current idle time began.
    idle_since: Option<Nanos>,
    /// Keeps the descriptors open that the epoll descriptor watches.
    _devices: Vec<OwnedFd>,
}

impl Sleeper {
    /// Fails if the system refuses a descriptor.
    pub(crate) fn new(
        signal: Arc<WakeSignal>,
        devices: RxDescriptors,
        config: &CoreConfig,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, signal.as_fd(), EventData::new_u64(0), edge)?;
        epoll::add(&epoll, &timer, EventData::new_u64(0), edge)?;
        let all = devices.len();
        let devices: Vec<OwnedFd> = devices.into_iter().flatten().collect();
        for device in &devices {
            epoll::add(&epoll, device, EventData::new_u64(0), EventFlags::IN)?;
        }
        let micros = |us: u32| Nanos::from_micros(us.into());
        Ok(Sleeper {
            signal,
            epoll,
            timer,
            poll_interval: (devices.len() < all).then_some(micros(config.sleep_poll_us)),
            sleep_after: micros(config.sleep_after_us),
            idle_since: None,
            _devices: devices,
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

    /// Begins to arm: whatever is published from now on wakes.
    pub(crate) fn arm(&self) {
        self.signal.arm();
    }

    /// Ends the preparation: sets the timer. Returns whether the worker may wait now.
    pub(crate) fn set_timer(&self, now: Nanos, until: Nanos) -> bool {
        let until = self.poll_interval.map_or(until, |interval| until.min(now + interval));
        // A timer of zero is disarmed. Without a deadline, the link is checked anyway.
        let wait = until.since(now).0.clamp(1, Nanos::from_secs(3600).0);
        let second = 1_000_000_000;
        let it_value = Timespec { tv_sec: (wait / second) as i64, tv_nsec: (wait % second) as _ };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec).is_ok()
    }

    /// Waits until something ends the sleep.
    pub(crate) fn wait(&self) {
        self.take_events(None);
    }

    /// After a sleep, or instead of one: nothing wakes any more, and the descriptor is not readable for an old reason.
    pub(crate) fn disarm(&self) {
        self.signal.disarm();
        self.take_events(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    }

    /// As [`Sleeper::disarm`], where [`Sleeper::wait`] has taken the events.
    pub(crate) fn disarm_after_wait(&self) {
        self.signal.disarm();
    }

    fn take_events(&self, timeout: Option<&Timespec>) {
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        // An interrupted wait ends the sleep early.
        let _ = epoll::wait(&self.epoll, &mut events[..], timeout);
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
