//! Computations that take milliseconds, for a thread that is no polled core.
//!
//! Cores submit jobs and look later for what those have sent; the thread of the target runs them
//! one after another. The number of jobs that wait is bounded, of all hosts and of an address, so
//! one address cannot keep the others waiting for more than its few. A job that finds no place
//! comes back.

use core::net::IpAddr;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::transport::party::host_key;

/// Jobs that wait, of all hosts and of one address.
const JOBS_MAX: usize = 64;
const JOBS_PER_ADDRESS_MAX: usize = 4;

/// A computation. It sends its result itself.
pub type Job = Box<dyn FnOnce() + Send>;

/// The jobs that wait, the oldest first.
#[derive(Default)]
pub struct Jobs {
    waiting: Mutex<VecDeque<(IpAddr, Job)>>,
    added: Condvar,
}

impl Jobs {
    /// Adds a job for the host at an address.
    ///
    /// # Errors
    ///
    /// The job, if too many wait.
    pub fn submit(&self, address: IpAddr, job: Job) -> Result<(), Job> {
        let address = host_key(address);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let same = waiting.iter().filter(|(one, _)| *one == address).count();
        if waiting.len() >= JOBS_MAX || same >= JOBS_PER_ADDRESS_MAX {
            return Err(job);
        }
        waiting.push_back((address, job));
        self.added.notify_one();
        Ok(())
    }

    /// Runs the next job. Waits for one, at most this long. Returns whether there was one.
    pub fn run_next(&self, patience: Duration) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.added.wait_timeout_while(waiting, patience, |waiting| waiting.is_empty());
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let next = waiting.pop_front();
        drop(waiting);
        next.map(|(_, job)| job()).is_some()
    }
}

impl core::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Jobs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn jobs_run_in_order_and_each_address_has_few() {
        let jobs = Jobs::default();
        let (sender, results) = channel();
        let addresses: Vec<IpAddr> = (0..32).map(|one| IpAddr::from([10, 0, 0, one])).collect();
        let mut refused = 0;
        for number in 0..320 {
            let (address, sender) = (addresses[number % 20], sender.clone());
            let job = Box::new(move || sender.send(number).expect("the test waits"));
            refused += usize::from(jobs.submit(address, job).is_err());
        }
        assert_eq!(refused, 320 - JOBS_MAX);
        while jobs.run_next(Duration::ZERO) {}
        let order: Vec<_> = results.try_iter().collect();
        assert_eq!(order, (0..JOBS_MAX).collect::<Vec<_>>());
        let greedy = |_: &usize| jobs.submit(addresses[0], Box::new(|| ())).is_ok();
        assert_eq!((0..JOBS_MAX).filter(greedy).count(), JOBS_PER_ADDRESS_MAX);
    }
}
