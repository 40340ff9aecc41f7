//! One end of the stack: its worker, its context, and the link below.
//!
//! The worker is polled by the thread that pings. A memif must not be polled while its other end comes or goes, since
//! the driver takes its rings away under whoever polls: then the loop stands still until the link is up again.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::path::Path;
use std::time::{Duration, Instant};

use ironwarp::config::DeviceConfig;
use ironwarp::instrument::{Capture, CaptureLimits};
use ironwarp::{
    CompletionQueue, Config, Context, ProtectionDomain, RangeError, SetupError, Stack, VerbsError, Worker,
    idle,
};

use crate::Fault;

/// Between two looks at a link that is not polled.
const LINK_LOOK: Duration = Duration::from_millis(1);
/// The far end of a memif that has said its last word leaves within this time.
pub(crate) const LEAVES_WITHIN: Duration = Duration::from_millis(500);
/// What the driver still does after it said that a link is down.
const LINK_SETTLES: Duration = Duration::from_millis(20);
/// Turns between two looks at what is not urgent: a power of two.
const TURNS_A_GLANCE: u32 = 1 << 10;
/// Places in a completion queue, at most.
const PLACES_MAX: u32 = 1 << 18;

/// Why there were no pings, or no more of them.
#[derive(Debug, thiserror::Error)]
pub enum PingError {
    /// An argument that does not go with the configuration.
    #[error("{0}")]
    Argument(String),
    /// The stack could not be started.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A call was refused.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// An offset lies outside of its region.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// Somebody else listens there.
    #[error("{0} cannot be listened at")]
    Listen(SocketAddr),
    /// The capture could not be written.
    #[error("--pcap {path}: {source}")]
    Capture {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The memif has no other end.
    #[error("nobody is at the memif's other end: start the server first, with the same socket")]
    NoLink,
    /// The far end, or the way to it.
    #[error(transparent)]
    Far(#[from] Fault),
    /// The far end, which is the server.
    #[error("{server}: {fault}")]
    Server {
        /// Where it is.
        server: SocketAddr,
        /// What it did.
        fault: Fault,
    },
    /// Ctrl-C.
    #[error("stopped")]
    Interrupted,
    /// Ctrl-C, before all was done that was asked for.
    #[error("stopped after {came} of {wanted} pings")]
    Stopped {
        /// Pings that came back.
        came: u64,
        /// Pings that were asked for.
        wanted: u64,
    },
}

impl PingError {
    pub(crate) fn is_stop(&self) -> bool {
        matches!(self, PingError::Interrupted)
    }

    /// Whether it says no more than that the other end, or the way to it, is gone: Ctrl-C often reaches both ends.
    pub(crate) fn is_parting(&self) -> bool {
        use Fault::{Left, LinkDown, Silent, Unanswered};
        matches!(self, PingError::Far(Left { .. } | LinkDown(_) | Silent { .. } | Unanswered(_)))
    }
}

/// One end of the stack.
pub struct End {
    /// The application's side.
    pub(crate) ctx: Context,
    /// The domain that everything belongs to.
    pub(crate) pd: ProtectionDomain,
    /// Where everything completes.
    pub(crate) cq: CompletionQueue,
    worker: Worker,
    memif: bool,
    turns: u32,
    /// Connections that the stack has room for.
    pub(crate) connections_max: usize,
    /// Counters live as long as their stack.
    _stack: Stack,
}

impl End {
    /// Opens the device that a configuration names.
    pub fn open(config: Config) -> Result<Self, PingError> {
        let kept = config.clone();
        let (stack, worker) = Stack::builder(config).build_one()?;
        Self::over(&kept, stack, worker)
    }

    /// Takes over a stack of one core that was built with `config`.
    pub fn over(config: &Config, stack: Stack, worker: Worker) -> Result<Self, PingError> {
        let connections = config.limits.queue_pairs;
        let mut ctx = stack.context()?;
        let pd = ctx.alloc_pd();
        let cq = ctx.create_cq(connections.saturating_mul(PLACES).min(PLACES_MAX))?;
        Ok(End {
            ctx,
            pd,
            cq,
            worker,
            memif: config.ports() == 1 && matches!(config.port.device, DeviceConfig::Memif { .. }),
            turns: 0,
            connections_max: connections as usize,
            _stack: stack,
        })
    }

    /// Writes every frame to a pcapng file from now on.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn capture(&mut self, path: &Path) -> Result<(), PingError> {
        let failed = |source| PingError::Capture { path: path.display().to_string(), source };
        let capture = Capture::create(path, CaptureLimits::default()).map_err(failed)?;
        self.worker.start_capture(&capture, "iwarp-ping").map_err(failed)
    }

    /// Listens from now on: before the core has heard of it, whatever arrives is refused.
    pub(crate) fn listen(&mut self, local: SocketAddr) -> Result<(), VerbsError> {
        self.ctx.listen(local)?;
        self.worker.poll(0);
        Ok(())
    }

    /// One turn of the polled loop. Answers whether it is time to glance at what is not urgent.
    pub(crate) fn turn(&mut self) -> bool {
        if self.worker.poll(1).work == 0 {
            idle(self.worker.idle_policy());
        }
        self.turns = self.turns.wrapping_add(1);
        self.turns.is_multiple_of(TURNS_A_GLANCE)
    }

    /// Polls for a while, so that what was said last gets out.
    pub(crate) fn turn_for(&mut self, span: Duration) {
        let start = Instant::now();
        while start.elapsed() < span {
            self.turn();
        }
    }

    /// Whether the far end of a memif is there. Other devices' links come and go without harm.
    pub(crate) fn is_linked(&mut self) -> bool {
        !self.memif || self.worker.link_up()
    }

    /// Stands still until the far end of a memif is there, or not; for `most` at most. Answers whether it is so.
    pub(crate) fn rest_until(&mut self, linked: bool, stop: &AtomicBool, most: Option<Duration>) -> bool {
        let start = Instant::now();
        while self.memif && self.worker.link_up() != linked {
            if stop.load(Ordering::Relaxed) || most.is_some_and(|most| start.elapsed() > most) {
                return false;
            }
            std::thread::sleep(LINK_LOOK);
        }
        true
    }

    /// Lets the far end of a memif go first, if it goes soon: the driver takes a link down on a thread of its own, and
    /// does not bear being closed meanwhile.
    pub(crate) fn leave_last(&mut self) {
        static NEVER: AtomicBool = AtomicBool::new(false);
        if self.is_shared() && self.worker.link_up() && self.rest_until(false, &NEVER, Some(LEAVES_WITHIN)) {
            std::thread::sleep(LINK_SETTLES);
        }
    }

    /// Whether this end's leaving takes the device away from the other one.
    pub(crate) fn is_shared(&self) -> bool {
        self.memif
    }
}

/// Places that a connection takes in the completion queue: its receives and its sends.
const PLACES: u32 = 16;
