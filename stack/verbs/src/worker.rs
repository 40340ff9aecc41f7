//! A worker: one core's loop, ready to be polled.
//!
//! Either the application polls it from a thread of its own, or [`Worker::spawn`] runs it on a pinned thread. One
//! thread polls a worker at a time; it may move between threads while no thread polls it.

use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use ironwarp_port::instrument::{Capture, PortControl};
use ironwarp_types::Nanos;

use crate::config::{CoreConfig, IdlePolicy};
use crate::core_loop::PollLoop;
use crate::error::SetupError;

/// The result of one poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollResult {
    /// Frames received and sent, doorbells and messages handled. 0 when there was nothing to do.
    pub work: usize,
    /// When to poll next at the latest, on the worker's clock ([`Worker::now`]): at once after work, otherwise when the
    /// next timer is due. `None` if no timer is armed.
    pub next_deadline: Option<Nanos>,
}

/// The resources that a core holds at a moment. All are zero once everything is released and TIME-WAIT has passed.
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

/// The ports of a stack.
type StackPort<P> = ironwarp_port::instrument::Instrumented<P, ironwarp_port::instrument::WallClock>;

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
}

impl Worker {
    pub(crate) fn new(
        inner: Box<dyn PollLoop>,
        controls: Vec<PortControl>,
        (core, config): (u16, &CoreConfig),
    ) -> Self {
        Worker { inner, controls, idle: config.idle, core, processor: config.processor_of(core) }
    }

    /// Returns the number of its core, from 0.
    pub fn core(&self) -> u16 {
        self.core
    }

    /// Returns the processor that the configuration names for its thread.
    pub fn processor(&self) -> Option<usize> {
        self.processor
    }

    /// Runs one iteration of the loop: receives at most `budget` bursts of frames and handles everything that
    /// follows. Never blocks and never allocates.
    ///
    /// The workers of one stack pass frames to each other. A thread that pauses them until a deadline must poll all
    /// of them again after one had work.
    pub fn poll(&mut self, budget: usize) -> PollResult {
        self.inner.poll(budget)
    }

    /// Returns the time of the worker's clock.
    pub fn now(&self) -> Nanos {
        self.inner.now()
    }

    /// Returns whether the device has a link; with several devices, whether any has.
    pub fn link_up(&mut self) -> bool {
        (0..self.ports()).any(|port| self.port_link_up(port))
    }

    /// Returns whether the device of one port has a link. The first port has number 0. Returns `false` for a port
    /// that does not exist.
    pub fn port_link_up(&mut self, port: u8) -> bool {
        port < self.ports() && self.inner.link_up(port)
    }

    /// Returns the number of ports that it polls, at least one.
    pub fn ports(&self) -> u8 {
        u8::try_from(self.controls.len()).unwrap_or(u8::MAX)
    }

    /// Checks the invariants of this core across all layers and names the first violation. For simulators and tests,
    /// after any poll. Walks every table.
    #[doc(hidden)]
    pub fn check(&mut self) -> Result<(), String> {
        self.inner.check()
    }

    /// Returns the resources that the core holds: for simulators and tests that check for leaks.
    #[doc(hidden)]
    pub fn resource_usage(&self) -> ResourceUsage {
        self.inner.resource_usage()
    }

    /// Returns the switches of the first port's fault injector and capture, usable from any thread.
    pub fn port_control(&self) -> PortControl {
        self.controls[0].clone()
    }

    /// Returns the same for each port.
    pub fn port_controls(&self) -> Vec<PortControl> {
        self.controls.clone()
    }

    /// Records the frames of every port from now on, one capture interface each. The interface is called `name`,
    /// followed by the port's number if there are several. Fails if the capture cannot be written.
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

    /// Lends the port itself for raw frames, while the stack is not polled. The stack does not get frames that are
    /// received meanwhile. Returns `None` for a worker of several ports.
    pub fn with_port<V: PortVisit>(&mut self, visit: V) -> Option<V::Output> {
        let port = self.inner.port_any();
        if let Some(port) = port.downcast_mut::<StackPort<ironwarp_port::memory::MemoryPort>>() {
            return Some(visit.visit(port));
        }
        #[cfg(feature = "dpdk")]
        if let Some(port) = port.downcast_mut::<StackPort<ironwarp_port::dpdk::DpdkPort>>() {
            return Some(visit.visit(port));
        }
        None
    }

    /// Polls until `stop` is set, with idle behaviour as configured.
    pub fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            if self.poll(1).work == 0 {
                idle(self.idle);
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
        Ok(WorkerThread { stop, thread: Some(thread) })
    }
}

/// A worker that runs on its own thread. Dropping it stops the thread.
pub struct WorkerThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Worker>>,
}

impl WorkerThread {
    /// Stops the thread and returns the worker; `None` if the thread panicked.
    pub fn stop(mut self) -> Option<Worker> {
        self.join()
    }

    fn join(&mut self) -> Option<Worker> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        self.join();
    }
}

/// Does what the policy says between two idle polls.
pub fn idle(policy: IdlePolicy) {
    match policy {
        IdlePolicy::Spin => {}
        IdlePolicy::Pause => core::hint::spin_loop(),
        IdlePolicy::Yield => std::thread::yield_now(),
    }
}

/// Pins the calling thread to a processor. Returns whether it succeeded.
pub fn pin(processor: usize) -> bool {
    core_affinity::set_for_current(core_affinity::CoreId { id: processor })
}
