//! One end of the stack: its worker, its context, and how to open them.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use ironwarp::{
    Completion, CompletionStatus, Config, ConfigError, Context, Event, ProtectionDomain, SetupError, Stack,
    VerbsError, Worker, WorkerThread,
};
use ironwarp_port::instrument::{Capture, CaptureLimits};

/// A device whose far end is there comes up in a moment; one that does not in this time has none.
const LINK_WITHIN: Duration = Duration::from_secs(20);

/// Why a test over the stack could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RdmaError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The stack could not be started.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A call was refused.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// An offset lies outside of its region.
    #[error(transparent)]
    Range(#[from] ironwarp::RangeError),
    /// Memory could not be had.
    #[error("{0} bytes of memory could not be had")]
    Memory(usize),
    /// The device has no link.
    #[error("the device has no link: is the far end there?")]
    NoLink,
    /// A work request failed.
    #[error("a work request ended as {0:?}{1}")]
    Completion(CompletionStatus, String),
    /// A connection ended.
    #[error("the connection ended: {0}")]
    Disconnected(String),
    /// Connecting or disconnecting took too long.
    #[error("{0} took too long")]
    Timeout(&'static str),
    /// The user, or an end that went, said halt.
    #[error("halted")]
    Halted,
    /// The session has no device, or the polled thread was lost.
    #[error("no device in this session")]
    NoDevice,
    /// The capture could not be written.
    #[error("--pcap: {0}")]
    Capture(std::io::Error),
}

/// One end of the stack.
pub struct Endpoint {
    /// The application's side.
    pub ctx: Context,
    /// The domain that everything here belongs to.
    pub pd: ProtectionDomain,
    driver: Driver,
    /// Counters live as long as their stack.
    _stack: Stack,
}

/// Who polls the worker.
enum Driver {
    /// This thread does, between two looks at the completion queue.
    Here(Worker),
    /// A thread of its own, pinned to a processor.
    Thread(WorkerThread, usize),
    /// Nobody: only while the worker moves from one to the other.
    Nobody,
}

impl Endpoint {
    /// Opens the device that a configuration names. `apart` names the processor of a polled thread that is not this
    /// one.
    pub fn open(config: &str, apart: Option<usize>) -> Result<Self, RdmaError> {
        let (stack, worker) = Stack::builder(Config::from_toml(config)?).build_one()?;
        Self::new(stack, worker, apart)
    }

    /// Takes over a stack of one core.
    pub fn new(stack: Stack, worker: Worker, apart: Option<usize>) -> Result<Self, RdmaError> {
        let (ctx, pd) = (stack.context()?, stack.alloc_pd());
        let driver = match apart {
            Some(processor) => Driver::Thread(worker.spawn(Some(processor))?, processor),
            None => Driver::Here(worker),
        };
        Ok(Endpoint { ctx, pd, driver, _stack: stack })
    }

    /// Waits until the device has a link: a memif must not be polled before.
    pub fn wait_for_link(&mut self) -> Result<(), RdmaError> {
        let start = Instant::now();
        self.with_worker(|worker| {
            while !worker.link_up() {
                if start.elapsed() > LINK_WITHIN {
                    return Err(RdmaError::NoLink);
                }
                std::thread::yield_now();
            }
            Ok(())
        })?
    }

    /// Listens for the near end.
    pub fn listen(&mut self, address: SocketAddr) -> Result<(), RdmaError> {
        Ok(self.ctx.listen(address)?)
    }

    /// One turn of the polled loop, where this thread is the one that polls.
    #[inline]
    pub fn turn(&mut self) {
        if let Driver::Here(worker) = &mut self.driver {
            if worker.poll(1).work == 0 {
                ironwarp::idle(worker.idle_policy());
            }
        } else {
            core::hint::spin_loop();
        }
    }

    /// Reaps completions; one that failed is an error with the connection's own reason beside it.
    #[inline]
    pub fn reap(
        &mut self,
        cq: ironwarp::CompletionQueue,
        into: &mut [Completion],
    ) -> Result<usize, RdmaError> {
        let count = self.ctx.poll_cq(cq, into)?;
        match into.iter().take(count).find(|completion| completion.status != CompletionStatus::Success) {
            Some(failed) => Err(self.failure(failed.status)),
            None => Ok(count),
        }
    }

    /// Lends the worker, stopping the thread that polls it for as long.
    pub fn with_worker<T>(&mut self, work: impl FnOnce(&mut Worker) -> T) -> Result<T, RdmaError> {
        match std::mem::replace(&mut self.driver, Driver::Nobody) {
            Driver::Here(mut worker) => {
                let outcome = work(&mut worker);
                self.driver = Driver::Here(worker);
                Ok(outcome)
            }
            Driver::Thread(thread, processor) => {
                let mut worker = thread.stop().ok_or(RdmaError::NoDevice)?;
                let outcome = work(&mut worker);
                self.driver = Driver::Thread(worker.spawn(Some(processor))?, processor);
                Ok(outcome)
            }
            Driver::Nobody => Err(RdmaError::NoDevice),
        }
    }

    /// Captures every frame of this end from now on. The file is complete when the endpoint has been dropped.
    pub fn capture(&mut self, path: &Path) -> Result<(), RdmaError> {
        let capture = Capture::create(path, CaptureLimits::default()).map_err(RdmaError::Capture)?;
        let interface = capture.interface("near").map_err(RdmaError::Capture)?;
        self.with_worker(|worker| worker.port_control().start_capture(interface))
    }

    /// What the connections say about a failed request.
    #[cold]
    fn failure(&mut self, status: CompletionStatus) -> RdmaError {
        let mut why = String::new();
        while let Some(event) = self.ctx.poll_event() {
            match event {
                Event::Terminated { sent, terminate, .. } => {
                    let whose = if sent { "we sent" } else { "the peer sent" };
                    why.push_str(&format!("; {whose} {terminate:?}"));
                }
                Event::Disconnected { reason, .. } => why.push_str(&format!("; disconnected: {reason:?}")),
                _ => {}
            }
        }
        RdmaError::Completion(status, why)
    }
}
