//! One end: its stack, worker, context and link.
//!
//! The thread that pings also polls the worker.

use core::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use ironwarp::config::DeviceConfig;
use ironwarp::instrument::{Capture, CaptureLimits};
use ironwarp::{
    Access, CompletionQueue, Config, Context, IdlePolicy, PostError, ProtectionDomain, QpAttr, QueuePair,
    RangeError, RecvWr, Region, SetupError, Sge, Stack, VerbsError, Worker,
};

use crate::message::{Fault, RECEIVE_BYTES};

/// Polls between two checks of what is not urgent, as a stop request. A power of two, so that the
/// check is cheap.
const POLLS_PER_CHECK: u32 = 1 << 10;
/// Receives posted: a side has one message outstanding at a time.
pub(crate) const RECEIVES: usize = 2;
/// Sends outstanding. A server has a Read, a Write and a Send in sequence; a client has two Sends
/// for this ping and those of the ping before.
const SENDS: u32 = 8;
const CQ_DEPTH_MAX: u32 = 1 << 18;

/// Why no ping, or no further ping, was made.
#[derive(Debug, thiserror::Error)]
pub enum PingError {
    /// An argument does not match the configuration.
    #[error("{0}")]
    Argument(String),
    /// The stack could not be started.
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// An offset is outside of its region.
    #[error(transparent)]
    Range(#[from] RangeError),
    #[error("cannot listen on {0}")]
    Listen(SocketAddr),
    /// The capture could not be written.
    #[error("--pcap {path}: {source}")]
    Capture { path: String, source: std::io::Error },
    /// The memif has no peer.
    #[error("no peer is connected to the memif: start the server first, with the same socket")]
    NoLink,
    #[error(transparent)]
    Peer(#[from] Fault),
    #[error("{server}: {fault}")]
    Server { server: SocketAddr, fault: Fault },
    #[error("stopped")]
    Interrupted,
    /// Interrupted by Ctrl-C before all pings were done.
    #[error("stopped after {came} of {wanted} pings")]
    Stopped { came: u64, wanted: u64 },
}

impl From<PostError> for PingError {
    fn from(error: PostError) -> Self {
        PingError::Verbs(error.into())
    }
}

impl PingError {
    pub(crate) fn is_interrupted(&self) -> bool {
        matches!(self, PingError::Interrupted)
    }

    /// Returns whether it shows only that the peer, or the path to it, is gone: Ctrl-C often
    /// reaches both ends.
    pub(crate) fn is_disconnect(&self) -> bool {
        use Fault::{ConnectFailed, Disconnected, LinkDown, Timeout};
        matches!(self, PingError::Peer(Disconnected { .. } | LinkDown(_) | Timeout { .. } | ConnectFailed(_)))
    }
}

/// One end of the stack.
pub struct Endpoint {
    pub(crate) ctx: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    worker: Worker,
    memif: bool,
    poll_count: u32,
    pub(crate) connections_max: usize,
    /// Kept for its counters.
    _stack: Stack,
}

impl Endpoint {
    pub fn open(config: Config) -> Result<Self, PingError> {
        let config_copy = config.clone();
        let (stack, worker) = Stack::builder(config).build_one()?;
        Self::with_stack(&config_copy, stack, worker)
    }

    /// Uses a stack of one core that was built with `config`.
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
    /// If the file cannot be created.
    pub fn capture(&mut self, path: &Path) -> Result<(), PingError> {
        let failed = |source| PingError::Capture { path: path.display().to_string(), source };
        let capture = Capture::create(path, CaptureLimits::default()).map_err(failed)?;
        self.worker.start_capture(&capture, "iwarp-ping").map_err(failed)
    }

    /// Creates a queue pair and the buffers of its receives, which are posted.
    pub(crate) fn create_qp(&mut self) -> Result<(QueuePair, Region), VerbsError> {
        let messages = self.ctx.register(self.pd, vec![0; RECEIVES * RECEIVE_BYTES], Access::LOCAL_WRITE)?;
        let attr =
            QpAttr { send_depth: SENDS, recv_depth: RECEIVES as u32, ird: 1, ord: 1, ..QpAttr::new(self.cq) };
        let qp = self.ctx.create_qp(self.pd, &attr)?;
        match (0..RECEIVES).try_for_each(|slot| self.post_receive(qp, &messages, slot)) {
            Ok(()) => Ok((qp, messages)),
            Err(error) => self.ctx.destroy_qp(qp).and(Err(error.into())),
        }
    }

    /// Posts one of the receives of [`Endpoint::create_qp`].
    pub(crate) fn post_receive(
        &mut self,
        qp: QueuePair,
        messages: &Region,
        slot: usize,
    ) -> Result<(), PostError> {
        let addr = messages.base_to() + (slot * RECEIVE_BYTES) as u64;
        let sge = Sge { addr, len: RECEIVE_BYTES as u32, lkey: messages.stag() };
        self.ctx.post_recv(qp, &RecvWr::new(slot as u64, &[sge]))
    }

    /// Listens from now on. Connections that arrive before the core has processed this are refused.
    pub(crate) fn listen(&mut self, local: SocketAddr) -> Result<(), VerbsError> {
        self.ctx.listen(local)?;
        self.worker.poll(0);
        Ok(())
    }

    /// Runs one iteration of the polled loop. Returns whether it is time to check what is not
    /// urgent.
    pub(crate) fn poll(&mut self) -> bool {
        if self.worker.poll(1).work == 0 {
            // A stop request is seen within 250 ms: a worker that sleeps wakes to check the link.
            self.worker.idle(|| false);
        }
        self.poll_count = self.poll_count.wrapping_add(1);
        self.worker.idle_policy() == IdlePolicy::Sleep || self.poll_count.is_multiple_of(POLLS_PER_CHECK)
    }

    /// Polls for a while, so that the last messages are sent.
    pub(crate) fn poll_for(&mut self, span: Duration) {
        let start = Instant::now();
        while start.elapsed() < span {
            self.poll();
        }
    }

    /// Returns whether the peer of a memif is connected. The links of other devices may go down and
    /// up.
    pub(crate) fn is_linked(&mut self) -> bool {
        !self.memif || self.worker.link_up()
    }
}

/// Returns the entries of the completion queue for a connection: its receives and its sends.
const CQES_PER_QP: u32 = 16;
