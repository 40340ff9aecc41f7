//! One end of the stack: its worker, its context, and the link below.
//!
//! The worker is polled by the thread that pings. A memif must not be polled while its other end comes or goes, since
//! the driver removes its rings during a poll: then the loop stands still until the link is up again.

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
const LINK_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The far end of a memif that has said its last word leaves within this time.
pub(crate) const PEER_EXIT_TIMEOUT: Duration = Duration::from_millis(500);
/// What the driver still does after it said that a link is down.
const LINK_DOWN_DELAY: Duration = Duration::from_millis(20);
/// Turns between two looks at what is not urgent: a power of two.
const POLLS_PER_CHECK: u32 = 1 << 10;
/// Places in a completion queue, at most.
const CQ_DEPTH_MAX: u32 = 1 << 18;

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
    Peer(#[from] Fault),
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

impl From<ironwarp::PostError> for PingError {
    fn from(error: ironwarp::PostError) -> Self {
        PingError::Verbs(error.into())
    }
}

impl PingError {
    pub(crate) fn is_interrupted(&self) -> bool {
        matches!(self, PingError::Interrupted)
    }

    /// Whether it says no more than that the other end, or the way to it, is gone: Ctrl-C often reaches both ends.
    pub(crate) fn is_disconnect(&self) -> bool {
        use Fault::{ConnectFailed, Disconnected, LinkDown, Timeout};
        matches!(self, PingError::Peer(Disconnected { .. } | LinkDown(_) | Timeout { .. } | ConnectFailed(_)))
    }
}

/// One end of the stack.
pub struct Endpoint {
    /// The application's side.
    pub(crate) ctx: Context,
    /// The domain that everything belongs to.
    pub(crate) pd: ProtectionDomain,
    /// Where everything completes.
    pub(crate) cq: CompletionQueue,
    worker: Worker,
    memif: bool,
    poll_count: u32,
    /// Connections that the stack has room for.
    pub(crate) connections_max: usize,
    /// Counters live as long as their stack.
    _stack: Stack,
}

impl Endpoint {
    /// Opens the device that a configuration names.
    pub fn open(config: Config) -> Result<Self, PingError> {
        let config_copy = config.clone();
        let (stack, worker) = Stack::builder(config).build_one()?;
        Self::with_stack(&config_copy, stack, worker)
    }

    /// Takes over a stack of one core that was built with `config`.
    pub fn with_stack(config: &Config, stack: Stack, worker: Worker) -> Result<Self, PingError> {
        let connections = config.limits.queue_pairs;
        let mut ctx = stack.context()?;
        let pd = ctx.alloc_pd();
        let cq = ctx.create_cq(connections.saturating_mul(CQES_PER_QP).min(CQ_DEPTH_MAX))?;
        Ok(Endpoint {
            ctx,
            pd,
            cq,
            worker,
            memif: config.ports() == 1 && matches!(config.port.device, DeviceConfig::Memif { .. }),
            poll_count: 0,
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
    pub(crate) fn poll(&mut self) -> bool {
        if self.worker.poll(1).work == 0 {
            idle(self.worker.idle_policy());
        }
        self.poll_count = self.poll_count.wrapping_add(1);
        self.poll_count.is_multiple_of(POLLS_PER_CHECK)
    }

    /// Polls for a while, so that what was said last gets out.
    pub(crate) fn poll_for(&mut self, span: Duration) {
        let start = Instant::now();
        while start.elapsed() < span {
            self.poll();
        }
    }

    /// Whether the far end of a memif is there. Other devices' links come and go without harm.
    pub(crate) fn is_linked(&mut self) -> bool {
        !self.memif || self.worker.link_up()
    }

    /// Stands still until the far end of a memif is there, or not; for `limit` at most. Answers whether it is so.
    pub(crate) fn wait_for_link(&mut self, linked: bool, stop: &AtomicBool, limit: Option<Duration>) -> bool {
        let start = Instant::now();
        while self.memif && self.worker.link_up() != linked {
            if stop.load(Ordering::Relaxed) || limit.is_some_and(|limit| start.elapsed() > limit) {
                return false;
            }
            std::thread::sleep(LINK_POLL_INTERVAL);
        }
        true
    }

    /// Lets the far end of a memif go first, if it goes soon: the driver takes a link down on a thread of its own, and
    /// does not bear being closed meanwhile.
    pub(crate) fn wait_for_peer_exit(&mut self) {
        static NEVER: AtomicBool = AtomicBool::new(false);
        if self.is_memif()
            && self.worker.link_up()
            && self.wait_for_link(false, &NEVER, Some(PEER_EXIT_TIMEOUT))
        {
            std::thread::sleep(LINK_DOWN_DELAY);
        }
    }

    /// Whether this end's leaving takes the device away from the other one.
    pub(crate) fn is_memif(&self) -> bool {
        self.memif
    }
}

/// Places that a connection takes in the completion queue: its receives and its sends.
const CQES_PER_QP: u32 = 16;
