//! Who polls the workers of an end.

use ironwarp::{IdlePolicy, SetupError, Worker, WorkerThread};

use crate::error::{Error, Result};

/// Who polls the workers.
pub enum Driver {
    /// The application's thread polls the only worker.
    Inline(Worker),
    Threads(Vec<WorkerThread>, Vec<Option<usize>>, IdlePolicy),
    /// Only while workers move between threads.
    Taken,
}

impl Driver {
    /// A single worker is polled by this thread, or by a thread on `worker_processor`. Several
    /// workers have threads on the processors of their configuration.
    pub fn new(mut workers: Vec<Worker>, worker_processor: Option<usize>) -> Result<Self, SetupError> {
        match (workers.len(), worker_processor) {
            (1, None) => Ok(workers.pop().map_or(Driver::Taken, Driver::Inline)),
            (1, Some(processor)) => Self::spawn(workers, vec![Some(processor)]),
            _ => {
                let processors = workers.iter().map(Worker::processor).collect();
                Self::spawn(workers, processors)
            }
        }
    }

    /// Starts one thread per worker. The application's thread uses their idle policy while it
    /// waits.
    fn spawn(workers: Vec<Worker>, processors: Vec<Option<usize>>) -> Result<Self, SetupError> {
        let idle = workers.first().map_or(IdlePolicy::Yield, Worker::idle_policy);
        let pairs = workers.into_iter().zip(&processors);
        let threads = pairs.map(|(worker, processor)| worker.spawn(*processor));
        Ok(Driver::Threads(threads.collect::<Result<_, _>>()?, processors, idle))
    }

    /// Lends the workers while none is polled.
    pub fn with_workers<T>(&mut self, work: impl FnOnce(&mut [Worker]) -> T) -> Result<T> {
        match std::mem::replace(self, Driver::Taken) {
            Driver::Inline(mut worker) => {
                let outcome = work(std::slice::from_mut(&mut worker));
                *self = Driver::Inline(worker);
                Ok(outcome)
            }
            Driver::Threads(threads, processors, _) => {
                let workers: Option<Vec<Worker>> = threads.into_iter().map(WorkerThread::stop).collect();
                let mut workers = workers.ok_or(Error::NoDevice)?;
                let outcome = work(&mut workers);
                *self = Self::spawn(workers, processors)?;
                Ok(outcome)
            }
            Driver::Taken => Err(Error::NoDevice),
        }
    }

    /// Polls once where this thread polls the worker; idles otherwise.
    #[inline]
    pub fn poll(&mut self) {
        match self {
            Driver::Inline(worker) => {
                if worker.poll(1).work == 0 {
                    worker.idle(|| false);
                }
            }
            Driver::Threads(_, _, IdlePolicy::Yield) => std::thread::yield_now(),
            _ => core::hint::spin_loop(),
        }
    }

    /// Lets the cores process control messages without polling their devices. A message to one core
    /// is forwarded to the others by it, so every core is polled again after the first one.
    pub fn apply_control_requests(&mut self) -> Result<()> {
        self.with_workers(|workers| {
            for _ in 0..2 {
                workers.iter_mut().for_each(|worker| {
                    worker.poll(0);
                });
            }
        })
    }
}
