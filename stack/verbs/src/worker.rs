//! A worker: one core's loop, ready to be polled.
//!
//! Either the application polls it from a thread of its own, or [`Worker::spawn`] runs it on a
//! pinned thread. One thread polls a worker at a time; it may move between threads while no thread
//! polls it.

mod sleep;

use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use ironwarp_llp::{RestoreError, SaveError};
use ironwarp_port::instrument::{Capture, PortControl};
use ironwarp_types::Nanos;

use crate::config::{CoreConfig, IdlePolicy};
use crate::core_loop::PollLoop;
use crate::error::SetupError;
use crate::objects::QueuePair;
use crate::wake::WakeSignal;
pub(crate) use sleep::Sleeper;

/// The result of one poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollResult {
    /// Frames received and sent, doorbells and messages handled. 0 when there was nothing to do.
    pub work: usize,
    /// When to poll next at the latest, on the worker's clock ([`Worker::now`]): at once after
    /// work, otherwise when the next timer is due. `None` if no timer is armed.
    pub next_deadline: Option<Nanos>,
}

/// The resources that a core holds at a moment. All are zero once everything is released and
/// TIME-WAIT has passed.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResourceUsage {
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Completion queues.
    pub completion_queues: usize,
    /// Incoming connections without a queue pair.
    pub incoming: usize,
    /// Listening addresses.
    pub listeners: usize,
    /// TCP connections.
    pub connections: usize,
    /// Flows in TIME-WAIT.
    pub time_wait: usize,
    /// Connections in SYN-RECEIVED.
    pub half_open: usize,
    /// Flows in the table.
    pub flows: usize,
    /// Received frames that TCP holds.
    pub rx_frames: usize,
    /// Units retained until they are acknowledged.
    pub tx_units: usize,
    /// Frames that the device has not taken.
    pub waiting_frames: usize,
    /// Senders that wait to be scheduled.
    pub ready_senders: usize,
    /// Queue pairs that wait for a link address.
    pub resolving: usize,
    /// Timers of queue pairs and incoming connections.
    pub timers: usize,
    /// Registered regions of the whole stack, those that wait for release included.
    pub regions: usize,
    /// Requests to other cores for atomic operations that have no reply yet.
    pub remote_atomics_outstanding: usize,
    /// Queue pairs that wait because too many of those are outstanding.
    pub remote_atomics_waiting: usize,
}

/// An operation on a port of any type.
pub trait PortVisit {
    /// The result of the operation.
    type Output;
    /// Executes the operation.
    fn visit<P: ironwarp_port::Port>(self, port: &mut P) -> Self::Output;
}

/// One core of a stack.
///
/// A worker may be sent to the thread that will poll it. One thread polls it at a time.
pub struct Worker {
    inner: Box<dyn PollLoop>,
    controls: Vec<PortControl>,
    idle: IdlePolicy,
    core: u16,
    processor: Option<usize>,
    /// With [`IdlePolicy::Sleep`].
    sleeper: Option<Box<Sleeper>>,
    /// [`Worker::arm`] returned true, and no poll followed.
    armed: bool,
}

impl Worker {
    pub(crate) fn new(
        inner: Box<dyn PollLoop>,
        controls: Vec<PortControl>,
        (core, config): (u16, &CoreConfig),
        sleeper: Option<Sleeper>,
    ) -> Self {
        let (idle, processor) = (config.idle, config.processor_of(core));
        let sleeper = sleeper.map(Box::new);
        Worker { inner, controls, idle, core, processor, sleeper, armed: false }
    }

    /// Returns the number of its core, from 0.
    pub fn core(&self) -> u16 {
        self.core
    }

    /// Returns the processor that the configuration names for its thread.
    pub fn processor(&self) -> Option<usize> {
        self.processor
    }

    /// Runs one iteration of the loop: receives at most `budget` bursts of frames and handles
    /// everything that follows. Never blocks and never allocates.
    ///
    /// The workers of one stack pass frames to each other. A thread that pauses them until a
    /// deadline must poll all of them again after one had work.
    pub fn poll(&mut self, budget: usize) -> PollResult {
        if self.sleeper.is_some() {
            return self.poll_sleeper(budget);
        }
        self.inner.iterate(budget)
    }

    /// [`Worker::poll`] of a worker that may sleep.
    #[inline(never)]
    fn poll_sleeper(&mut self, budget: usize) -> PollResult {
        if self.armed {
            self.disarm();
        }
        let result = self.inner.iterate(budget);
        if result.work > 0
            && let Some(sleeper) = &mut self.sleeper
        {
            sleeper.on_work();
        }
        result
    }

    /// Prepares to wait for [`Worker::wake_fd`], for an application that owns the loop and has
    /// polled without work. Runs one iteration. Returns whether the application may wait now: then
    /// the descriptor becomes readable as soon as the worker has to be polled. Otherwise there is
    /// work: poll again. Always returns `false` unless `core.idle = "sleep"`.
    ///
    /// ```no_run
    /// # fn run(worker: &mut ironwarp::Worker, wait_for: impl Fn(std::os::fd::BorrowedFd<'_>)) {
    /// loop {
    ///     if worker.poll(1).work == 0 && worker.arm() {
    ///         if let Some(fd) = worker.wake_fd() {
    ///             wait_for(fd); // poll(2) or epoll(7), together with descriptors of the application's own
    ///         }
    ///     }
    /// }
    /// # }
    /// ```
    pub fn arm(&mut self) -> bool {
        let Some(sleeper) = &mut self.sleeper else { return false };
        sleeper.arm();
        // Whatever was published before `arm` is found by this iteration, whatever follows wakes.
        let worked = self.inner.iterate(1).work > 0;
        let until = if worked { None } else { self.inner.sleep_until() };
        if worked {
            sleeper.on_work();
        }
        self.armed = until.is_some_and(|until| sleeper.set_timer(self.inner.now(), until));
        if !self.armed {
            sleeper.disarm();
        }
        self.armed
    }

    /// Returns the descriptor that becomes readable when the worker has to be polled after
    /// [`Worker::arm`] returned `true`: an epoll descriptor, so do not read it. The next poll
    /// resets it. `None` unless `core.idle = "sleep"`.
    pub fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.sleeper.as_deref().map(Sleeper::fd)
    }

    #[cold]
    fn disarm(&mut self) {
        self.armed = false;
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.disarm();
        }
    }

    /// Does what the configuration says after a poll without work. With `core.idle = "sleep"` this
    /// waits, once the worker has been idle for `core.sleep_after_us`, until it has to be polled
    /// again or `stop` says so. A thread that makes `stop` true must wake the worker afterwards
    /// ([`WorkerThread`] does) or accept that it wakes within 250 ms, when it checks the link.
    pub fn idle(&mut self, stop: impl Fn() -> bool) {
        let Some(sleeper) = &mut self.sleeper else { return idle(self.idle) };
        if !sleeper.idle_long_enough(self.inner.now()) {
            return core::hint::spin_loop();
        }
        if !self.arm() {
            return;
        }
        if stop() {
            return self.disarm();
        }
        self.armed = false;
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.wait();
            sleeper.disarm_after_wait();
        }
    }

    /// Returns the time of the worker's clock.
    pub fn now(&self) -> Nanos {
        self.inner.now()
    }

    /// Returns whether the device has a link; with several devices, whether any has.
    pub fn link_up(&mut self) -> bool {
        (0..self.ports()).any(|port| self.port_link_up(port))
    }

    /// Returns whether the device of one port has a link. The first port has number 0. Returns
    /// `false` for a port that does not exist.
    pub fn port_link_up(&mut self, port: u8) -> bool {
        port < self.ports() && self.inner.link_up(port)
    }

    /// Returns the number of ports that it polls, at least one.
    pub fn ports(&self) -> u8 {
        u8::try_from(self.controls.len()).unwrap_or(u8::MAX)
    }

    /// Checks the invariants of this core across all layers and names the first violation. For
    /// simulators and tests, after any poll. Walks every table.
    #[doc(hidden)]
    pub fn check(&mut self) -> Result<(), String> {
        self.inner.check()
    }

    /// Returns the resources that the core holds: for simulators and tests that check for leaks.
    #[doc(hidden)]
    pub fn resource_usage(&self) -> ResourceUsage {
        self.inner.resource_usage()
    }

    /// Returns the connection of a queue pair in full operation as bytes, and forgets it without a
    /// word to the peer. Until it is restored, no core may poll for the peer's segments: one that
    /// does not know the connection resets it. What is posted meanwhile waits.
    ///
    /// # Errors
    /// The connection cannot be saved, or not now; then it goes on.
    #[doc(hidden)]
    pub fn take_connection(&mut self, qp: QueuePair) -> Result<Vec<u8>, SaveError> {
        self.inner.take_connection(qp)
    }

    /// Restores a connection that was saved, for a queue pair without one whose send ring is the
    /// same.
    ///
    /// # Errors
    /// The bytes are not those of a connection that this core can take over. Nothing has changed.
    #[doc(hidden)]
    pub fn restore_connection(&mut self, qp: QueuePair, saved: &[u8]) -> Result<(), RestoreError> {
        self.inner.restore_connection(qp, saved)
    }

    /// Returns the switches of the first port's fault injector and capture, usable from any thread.
    pub fn port_control(&self) -> PortControl {
        self.controls[0].clone()
    }

    /// Returns the same for each port.
    pub fn port_controls(&self) -> Vec<PortControl> {
        self.controls.clone()
    }

    /// Records the frames of every port from now on, one capture interface each. The interface is
    /// called `name`, followed by the port's number if there are several. Fails if the capture
    /// cannot be written.
    pub fn start_capture(&self, capture: &Capture, name: &str) -> io::Result<()> {
        for (number, control) in self.controls.iter().enumerate() {
            let numbered = if self.controls.len() > 1 { format!("{name}-{number}") } else { name.to_owned() };
            control.start_capture(capture.interface(&numbered)?);
        }
        Ok(())
    }

    /// Stops recording and writes out what is buffered. Fails if that cannot be written.
    pub fn stop_capture(&self) -> io::Result<()> {
        self.controls.iter().try_for_each(PortControl::stop_capture)
    }

    /// Returns what the configuration says to do between two idle polls.
    pub fn idle_policy(&self) -> IdlePolicy {
        self.idle
    }

    /// Lends the port itself for raw frames, while the stack is not polled. The stack does not get
    /// frames that are received meanwhile. Returns `None` for a worker of several ports.
    pub fn with_port<V: PortVisit>(&mut self, visit: V) -> Option<V::Output> {
        Some(self.inner.driver_port()?.visit(visit))
    }

    /// Polls until `stop` is set, with idle behaviour as configured.
    pub fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            if self.poll(1).work == 0 {
                self.idle(|| stop.load(Ordering::Relaxed));
            }
        }
    }

    /// Runs the worker on its own thread, pinned to `processor` if one is given.
    ///
    /// # Errors
    ///
    /// [`SetupError::Thread`] if the system refuses the thread.
    pub fn spawn(mut self, processor: Option<usize>) -> Result<WorkerThread, SetupError> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let signal = self.sleeper.as_deref().map(|sleeper| sleeper.signal().clone());
        let name = format!("ironwarp-{}", processor.map_or("any".to_owned(), |p| p.to_string()));
        let thread = std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || {
                if let Some(id) = processor {
                    pin(id);
                }
                self.run(&seen);
                self
            })
            .map_err(|source| SetupError::Thread { what: format!("the thread {name}"), source })?;
        Ok(WorkerThread { stop, signal, thread: Some(thread) })
    }
}

/// A worker that runs on its own thread. Dropping it stops the thread.
pub struct WorkerThread {
    stop: Arc<AtomicBool>,
    /// Wakes the worker, if it may sleep.
    signal: Option<Arc<WakeSignal>>,
    thread: Option<JoinHandle<Worker>>,
}

impl WorkerThread {
    /// Stops the thread and returns the worker; `None` if the thread panicked.
    pub fn stop(mut self) -> Option<Worker> {
        self.join()
    }

    fn join(&mut self) -> Option<Worker> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(signal) = &self.signal {
            signal.fire();
        }
        self.thread.take()?.join().ok()
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        self.join();
    }
}

/// Does what the policy says between two idle polls. [`IdlePolicy::Sleep`] needs a worker
/// ([`Worker::idle`]); here it yields.
pub fn idle(policy: IdlePolicy) {
    match policy {
        IdlePolicy::Spin => {}
        IdlePolicy::Pause => core::hint::spin_loop(),
        IdlePolicy::Yield | IdlePolicy::Sleep => std::thread::yield_now(),
    }
}

/// Pins the calling thread to a processor. Returns whether it succeeded.
pub fn pin(processor: usize) -> bool {
    core_affinity::set_for_current(core_affinity::CoreId { id: processor })
}
