//! The receive interrupts of a card that is imitated: when they are enabled, and what wakes the
//! core until they work.

use std::sync::{Arc, Mutex};

use ironwarp_llp::{RestoreError, SaveError};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::*;
use crate::core_loop::PollLoop;
use crate::objects::QueuePair;
use crate::worker::{PollResult, ResourceUsage, Worker};

/// What happened to the card and the core, in order.
type Steps = Arc<Mutex<Vec<&'static str>>>;

/// The interrupt of a card.
struct Card {
    steps: Steps,
    refuses: bool,
    descriptor: OwnedFd,
}

impl AsFd for Card {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl RxInterrupt for Card {
    fn enable(&self) -> bool {
        self.steps.lock().expect("no panic").push("enable");
        !self.refuses
    }

    fn disable(&self) {
        self.steps.lock().expect("no panic").push("disable");
    }
}

/// A core whose iterations find the given work, last first, and then none. Its clock stands still.
struct Core {
    steps: Steps,
    work: Vec<usize>,
}

impl PollLoop for Core {
    fn iterate(&mut self, _: usize) -> PollResult {
        self.steps.lock().expect("no panic").push("poll");
        PollResult { work: self.work.pop().unwrap_or(0), next_deadline: None }
    }

    fn now(&self) -> Nanos {
        Nanos::ZERO
    }

    /// Longer than a test.
    fn sleep_until(&self) -> Option<Nanos> {
        Some(Nanos::from_secs(3600))
    }

    fn link_up(&mut self, _: u8) -> bool {
        true
    }

    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn resource_usage(&self) -> ResourceUsage {
        ResourceUsage::default()
    }

    fn take_connection(&mut self, _: QueuePair) -> Result<Vec<u8>, SaveError> {
        Err(SaveError::NotEstablished)
    }

    fn restore_connection(&mut self, _: QueuePair, _: &[u8]) -> Result<(), RestoreError> {
        Err(RestoreError::Malformed)
    }

    fn driver_port(&mut self) -> Option<crate::stack::DriverPort<'_>> {
        None
    }
}

/// A worker that may sleep, and the far end of its card.
struct Bench {
    worker: Worker,
    steps: Steps,
    card: OwnedFd,
}

impl Bench {
    /// With a card and the work of the core's iterations, last first.
    fn new(refuses: bool, work: &[usize]) -> Self {
        let steps = Steps::default();
        let card = eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor");
        let descriptor = card.try_clone().expect("a descriptor");
        let device = WakeSource::Interrupt(Box::new(Card { steps: steps.clone(), refuses, descriptor }));
        let config = CoreConfig {
            idle: crate::config::IdlePolicy::Sleep,
            sleep_after_us: 0,
            sleep_poll_us: 10,
            ..CoreConfig::default()
        };
        let signal = Arc::new(WakeSignal::new().expect("a descriptor"));
        let sleeper = Sleeper::new(signal, vec![Some(device)], (0, &config)).expect("descriptors");
        let core = Box::new(Core { steps: steps.clone(), work: work.to_vec() });
        Bench { worker: Worker::new(core, Vec::new(), (0, &config), Some(sleeper)), steps, card }
    }

    fn interrupt(&self) {
        rustix::io::write(&self.card, &1u64.to_ne_bytes()).expect("room");
    }

    /// Returns whether the worker is woken within a time that the timer of a polled device is
    /// shorter than.
    fn is_woken(&self) -> bool {
        let fd = self.worker.wake_fd().expect("it may sleep");
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        poll(&mut fds, Some(&timeout)).expect("a poll") == 1
    }

    /// Sleeps until an interrupt, which proves that the card has them.
    fn prove(&mut self) {
        assert!(self.worker.arm());
        self.interrupt();
        assert!(self.is_woken());
        self.worker.poll(1);
        self.take_steps();
    }

    fn take_steps(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.steps.lock().expect("no panic"))
    }
}

#[test]
fn the_interrupt_is_enabled_before_the_last_poll_and_disabled_before_the_next() {
    let mut bench = Bench::new(false, &[]);
    assert!(bench.worker.arm());
    assert_eq!(bench.take_steps(), ["enable", "poll"]);
    bench.worker.poll(1);
    assert_eq!(bench.take_steps(), ["disable", "poll"]);
    bench.worker.poll(1);
    assert_eq!(bench.take_steps(), ["poll"], "a worker that does not sleep leaves the card alone");
}

/// Frames that arrived before the interrupt was enabled raise none.
#[test]
fn a_frame_that_the_last_poll_finds_prevents_the_sleep() {
    let mut bench = Bench::new(false, &[1]);
    assert!(!bench.worker.arm());
    assert_eq!(bench.take_steps(), ["enable", "poll", "disable"]);
}

#[test]
fn an_idle_worker_sleeps_until_the_interrupt() {
    let mut bench = Bench::new(false, &[]);
    bench.prove();
    bench.interrupt();
    bench.worker.idle(|| false);
    assert_eq!(bench.take_steps(), ["enable", "poll", "disable"]);
}

#[test]
fn a_card_is_polled_by_the_timer_until_its_first_interrupt() {
    let mut bench = Bench::new(false, &[]);
    assert!(bench.worker.arm());
    assert!(bench.is_woken(), "by the timer");
    bench.worker.poll(1);
    bench.prove();
    assert!(bench.worker.arm());
    assert!(!bench.is_woken(), "the card has interrupts");
}

#[test]
fn each_interrupt_wakes_once_although_nobody_reads_it() {
    let mut bench = Bench::new(false, &[]);
    for _ in 0..3 {
        bench.prove();
        assert!(bench.worker.arm());
        assert!(!bench.is_woken(), "for an old interrupt");
        bench.worker.poll(1);
    }
}

#[test]
fn a_card_whose_driver_refuses_to_enable_the_interrupt_is_polled_by_the_timer() {
    let mut bench = Bench::new(true, &[]);
    bench.prove();
    assert!(bench.worker.arm());
    assert!(bench.is_woken(), "by the timer");
}
