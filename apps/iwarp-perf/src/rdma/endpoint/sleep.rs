//! Waiting for completions by event: arm, look once more, sleep, look.
//!
//! A sleep ends at an event, or by itself after a while, since there are other things to look at. That must not hide an
//! event that never came: a completion that is found after a sleep that ended by itself was added after the queue had been
//! armed, so its event is there or on its way, and is waited for. One that does not come is an error. An event of an
//! earlier arming wakes nobody for good: the queue is armed again, since that event may have used the arming up.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::RdmaError;

/// The longest sleep until an event: a stop, or the control messages, must be seen soon.
const SLEEP_MAX: Duration = Duration::from_millis(5);
/// An event that is due comes within this time, however loaded the machine is, or not at all.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sleeps of an end that waits for events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SleepCounts {
    /// All of them.
    pub all: u64,
    /// Those that an event ended which brought a completion.
    pub woken: u64,
    /// Those that an event of an earlier arming ended.
    pub stale: u64,
}

/// A completion queue as who sleeps sees it.
pub trait EventSource {
    /// Asks for one event.
    fn arm(&mut self) -> Result<(), RdmaError>;
    /// Takes what is there. Answers how much it was.
    fn reap(&mut self) -> Result<usize, RdmaError>;
    /// Sleeps until there is an event, which is taken, or for so long. Answers whether there was one.
    fn sleep(&mut self, at_most: Duration) -> Result<bool, RdmaError>;
}

/// One sleep at most, unless there is something already. Answers how many completions were taken.
pub fn wait_for_event(source: &mut impl EventSource, sleeps: &mut SleepCounts) -> Result<usize, RdmaError> {
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
                return if source.sleep(EVENT_TIMEOUT)? { Ok(count) } else { Err(RdmaError::NoEvent) };
            }
        }
    }
}

/// Sleeps until a descriptor is readable, and takes what it says. Answers whether it was.
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
            // The thread that armed it is the only reader, so it can at worst be empty.
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
        fn arm(&mut self) -> Result<(), RdmaError> {
            self.armed += 1;
            Ok(())
        }

        fn reap(&mut self) -> Result<usize, RdmaError> {
            Ok(self.reaped.pop_front().expect("no more looks than the script has"))
        }

        fn sleep(&mut self, _: Duration) -> Result<bool, RdmaError> {
            Ok(self.sleeps.pop_front().expect("no more sleeps than the script has"))
        }
    }

    fn run(reaped: &[usize], sleeps: &[bool]) -> (Result<usize, RdmaError>, SleepCounts, u32) {
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
        assert!(matches!(outcome, Err(RdmaError::NoEvent)), "{outcome:?}");
    }
}
