//! Waiting for completions by event: arm, reap, sleep, reap.
//!
//! A sleep ends at an event or after [`SLEEP_MAX`]. A completion found after a timed-out sleep was
//! added after the queue was armed, so its event must arrive; if it does not, a wake-up was lost,
//! which is an error. After an event without a completion the queue is armed again, since an event
//! of an earlier arming can have disarmed it.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// The longest sleep: a stop and control messages must be handled soon.
const SLEEP_MAX: Duration = Duration::from_millis(5);
/// A due event arrives within this time even on a loaded machine.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);

const NO_EVENT: &str =
    "a completion came to a queue that was armed, and no event with it: a wake-up was lost";

/// Sleeps of an end that waits for events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SleepCounts {
    pub all: u64,
    /// Ended by an event with a completion.
    pub woken: u64,
    /// Ended by an event of an earlier arming.
    pub stale: u64,
}

/// A completion queue to sleep on.
pub trait EventSource {
    fn arm(&mut self) -> Result<()>;
    /// Takes completions and returns their number.
    fn reap(&mut self) -> Result<usize>;
    /// Sleeps until an event, which is consumed, or for `at_most`. Returns whether there was one.
    fn sleep(&mut self, at_most: Duration) -> Result<bool>;
}

/// Waits for completions and returns how many were taken: 0 after a sleep without an event.
pub fn wait_for_event(source: &mut impl EventSource, sleeps: &mut SleepCounts) -> Result<usize> {
    loop {
        source.arm()?;
        // Earlier completions raise no event.
        let count = source.reap()?;
        if count > 0 {
            return Ok(count);
        }
        sleeps.all += 1;
        let woken = source.sleep(SLEEP_MAX)?;
        match (source.reap()?, woken) {
            (0, true) => sleeps.stale += 1,
            (0, false) => return Ok(0),
            (count, true) => {
                sleeps.woken += 1;
                return Ok(count);
            }
            (count, false) => {
                return if source.sleep(EVENT_TIMEOUT)? { Ok(count) } else { Err(Error::failed(NO_EVENT)) };
            }
        }
    }
}

/// Sleeps until a descriptor is readable, and reads it. Returns whether it was readable.
pub fn until_readable(event: BorrowedFd<'_>, at_most: Duration) -> io::Result<bool> {
    let end = Instant::now() + at_most;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Ok(false),
            // The arming thread is the only reader: an empty read only means another poll.
            Ok(_) => match rustix::io::read(event, &mut [0_u8; 8]) {
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            },
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A queue that follows a script: what each look finds, and how each sleep ends.
    #[derive(Default)]
    struct Script {
        armed: u32,
        reaped: VecDeque<usize>,
        sleeps: VecDeque<bool>,
    }

    impl EventSource for Script {
        fn arm(&mut self) -> Result<()> {
            self.armed += 1;
            Ok(())
        }

        fn reap(&mut self) -> Result<usize> {
            Ok(self.reaped.pop_front().expect("no more looks than the script has"))
        }

        fn sleep(&mut self, _: Duration) -> Result<bool> {
            Ok(self.sleeps.pop_front().expect("no more sleeps than the script has"))
        }
    }

    fn run(reaped: &[usize], sleeps: &[bool]) -> (Result<usize>, SleepCounts, u32) {
        let mut script = Script { reaped: reaped.to_vec().into(), sleeps: sleeps.to_vec().into(), armed: 0 };
        let mut count = SleepCounts::default();
        let outcome = wait_for_event(&mut script, &mut count);
        assert!(script.reaped.is_empty() && script.sleeps.is_empty(), "all of the script was played");
        (outcome, count, script.armed)
    }

    #[test]
    fn an_event_that_brings_a_completion_has_woken() {
        let (outcome, sleeps, _) = run(&[0, 3], &[true]);
        assert_eq!((outcome.ok(), sleeps), (Some(3), SleepCounts { all: 1, woken: 1, stale: 0 }));
    }

    #[test]
    fn what_is_there_when_the_queue_is_armed_needs_no_sleep() {
        let (outcome, sleeps, _) = run(&[2], &[]);
        assert_eq!((outcome.ok(), sleeps), (Some(2), SleepCounts::default()));
    }

    /// It may have used the arming up: without another one the next completion would wake nobody.
    #[test]
    fn an_event_of_an_earlier_arming_has_woken_nobody_and_the_queue_is_armed_again() {
        let (outcome, sleeps, armed) = run(&[0, 0, 0, 1], &[true, true]);
        assert_eq!((outcome.ok(), armed), (Some(1), 2));
        assert_eq!(sleeps, SleepCounts { all: 2, woken: 1, stale: 1 });
    }

    #[test]
    fn a_sleep_in_which_nothing_happens_ends_by_itself() {
        let (outcome, sleeps, _) = run(&[0, 0], &[false]);
        assert_eq!((outcome.ok(), sleeps), (Some(0), SleepCounts { all: 1, woken: 0, stale: 0 }));
    }

    #[test]
    fn a_completion_whose_event_is_late_is_taken_when_it_comes() {
        let (outcome, sleeps, _) = run(&[0, 1], &[false, true]);
        assert_eq!((outcome.ok(), sleeps.woken), (Some(1), 0));
    }

    /// A lost wake-up: without this it would cost the length of a sleep and nobody would know.
    #[test]
    fn a_completion_whose_event_never_comes_is_an_error() {
        let (outcome, ..) = run(&[0, 1], &[false, false]);
        assert!(outcome == Err(Error::failed(NO_EVENT)), "{outcome:?}");
    }
}
