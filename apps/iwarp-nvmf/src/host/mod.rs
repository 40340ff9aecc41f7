//! An initiator for tests and measurements: connects to a target, executes admin commands, reads
//! and writes at depth.
//!
//! A [`Host`] owns a stack's worker and a context, and all of its queues. Nothing blocks inside:
//! [`Host::poll`] runs one turn. Calls that wait for a response take `between`, which they call
//! between polls, so that a target in the same thread can run.
//!
//! Each outstanding command has a data buffer of its own. It is either registered once for all
//! commands, or bound to a fresh tag for each command, which the target's response invalidates
//! ([`HostSettings::invalidate`]).

mod admin;
mod authenticate;
mod bench;
mod queue;

use core::net::SocketAddr;
use std::time::{Duration, Instant};

use ironwarp::{
    Completion, CompletionQueue, CompletionStatus, Context, Event, ProtectionDomain, QueuePair, Stack, Worker,
};

pub use admin::{BlockRange, ControllerSummary, DiscoveryRecord, NamespaceSummary};
pub use bench::{BenchReport, Pattern, Workload, pattern_block};
pub use queue::{HostCompletion, Transfer};

use crate::NvmfError;
use crate::auth::{Group, Hash, HostSecrets};
use crate::wire::fabrics::CmStatus;
use queue::HostQueue;

/// How a host connects.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// The target.
    pub target: SocketAddr,
    /// The subsystem.
    pub subnqn: String,
    /// The host's NQN.
    pub hostnqn: String,
    /// The host's identifier.
    pub hostid: [u8; 16],
    /// Secrets for authentication. With that of the controller, one that has no proof is refused.
    pub secrets: Option<HostSecrets>,
    /// The hash functions that are offered.
    pub hashes: Vec<Hash>,
    /// The Diffie-Hellman groups that are offered.
    pub groups: Vec<Group>,
    /// The keep-alive timeout in milliseconds; 0: none.
    pub kato_ms: u32,
    /// Entries of an I/O queue.
    pub queue_entries: u16,
    /// Bytes of the data buffer of each command.
    pub buffer_bytes: u32,
    /// Binds a tag for each command and lets the target invalidate it.
    pub invalidate: bool,
    /// Sends the data of short Writes in the capsule, if the target takes it.
    pub in_capsule: bool,
    /// Turns off SQ flow control.
    pub no_flow_control: bool,
    /// The time for a response.
    pub timeout: Duration,
}

impl HostSettings {
    /// Settings for a subsystem.
    pub fn new(target: SocketAddr, subnqn: &str) -> Self {
        HostSettings {
            target,
            subnqn: subnqn.to_owned(),
            hostnqn: "nqn.2014-08.org.ironwarp:host".to_owned(),
            hostid: [1; 16],
            secrets: None,
            hashes: Hash::ALL.to_vec(),
            groups: Group::ALL.to_vec(),
            kato_ms: 0,
            queue_entries: 128,
            buffer_bytes: 16 << 10,
            invalidate: false,
            in_capsule: true,
            no_flow_control: false,
            timeout: Duration::from_secs(10),
        }
    }
}

/// A host with its queues. Queue 0 is the admin queue.
pub struct Host {
    workers: Vec<Worker>,
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    settings: HostSettings,
    queues: Vec<HostQueue>,
    cntlid: u16,
    /// T_ID of the last authentication.
    t_id: u16,
    /// Bytes of data that a capsule may have.
    capsule_bytes: u32,
}

/// Completion queue entries of a host.
const COMPLETIONS: u32 = 1 << 14;
/// Completions taken at once.
const BATCH: usize = 64;

/// The state of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Link {
    Connecting,
    Established,
    Rejected(String),
    Ended(String),
    /// The host has forgotten the queue.
    Discarded,
}

impl Host {
    /// A host on a stack with these workers, not connected.
    ///
    /// # Errors
    ///
    /// The stack refuses a context or a queue.
    pub fn new(stack: &Stack, workers: Vec<Worker>, settings: HostSettings) -> Result<Self, NvmfError> {
        let mut ctx = stack.context()?;
        let pd = ctx.alloc_pd();
        let cq = ctx.create_cq(COMPLETIONS)?;
        Ok(Host { workers, ctx, pd, cq, settings, queues: Vec::new(), cntlid: 0, t_id: 0, capsule_bytes: 0 })
    }

    /// Returns the settings, to change them before connecting.
    pub fn settings_mut(&mut self) -> &mut HostSettings {
        &mut self.settings
    }

    /// Returns the workers.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// Returns CNTLID, after [`Host::connect`].
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Returns the number of queues.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Runs one turn. Never waits. Returns whether there was work.
    ///
    /// # Errors
    ///
    /// The stack refuses a call.
    pub fn poll(&mut self) -> Result<bool, NvmfError> {
        let mut busy = false;
        for worker in &mut self.workers {
            busy |= worker.poll(1).work > 0;
        }
        while let Some(event) = self.ctx.poll_event() {
            busy = true;
            self.on_event(event);
        }
        let mut completions = [Completion::default(); BATCH];
        let reaped = self.ctx.poll_cq(self.cq, &mut completions)?;
        for done in completions.iter().take(reaped) {
            let queue = self.queues.iter_mut().find(|queue| queue.qp.num() == done.qp);
            if let Some(queue) = queue.filter(|_| done.status == CompletionStatus::Success) {
                queue.on_completion(&mut self.ctx, done)?;
            }
        }
        Ok(busy || reaped > 0)
    }

    fn on_event(&mut self, event: Event) {
        let (qp, link) = match event {
            Event::Established { qp, .. } => (qp, Link::Established),
            Event::Rejected { qp, private_data, .. } => {
                let status = CmStatus::of_reject(&private_data);
                (qp, Link::Rejected(status.map_or("no reason".to_owned(), |one| one.to_string())))
            }
            Event::ConnectFailed { qp, reason } => (qp, Link::Ended(format!("{reason:?}"))),
            Event::Disconnected { qp, reason } => (qp, Link::Ended(format!("{reason:?}"))),
            _ => return,
        };
        if let Some(queue) = self.queue_of(qp)
            && matches!(queue.link, Link::Connecting | Link::Established)
        {
            queue.link = link;
        }
    }

    fn queue_of(&mut self, qp: QueuePair) -> Option<&mut HostQueue> {
        self.queues.iter_mut().find(|queue| queue.qp == qp)
    }

    /// Returns the time in nanoseconds.
    pub(crate) fn now_ns(&self) -> u64 {
        self.workers.first().map_or(0, |worker| worker.now().0)
    }

    /// Returns whether a queue is being connected.
    pub fn is_connecting(&self, queue: usize) -> bool {
        self.queues.get(queue).is_some_and(|queue| queue.link == Link::Connecting)
    }

    /// Returns whether the connection of a queue stands.
    pub fn is_up(&self, queue: usize) -> bool {
        self.queues.get(queue).is_some_and(|queue| queue.link == Link::Established)
    }

    /// Polls until `done` returns something.
    ///
    /// # Errors
    ///
    /// [`NvmfError::Ended`] if the connection of `queue` ends or the time is over.
    pub(crate) fn wait<T>(
        &mut self,
        queue: usize,
        between: &mut dyn FnMut(),
        mut done: impl FnMut(&mut Host) -> Option<T>,
    ) -> Result<T, NvmfError> {
        let deadline = Instant::now() + self.settings.timeout;
        loop {
            let busy = self.poll()?;
            between();
            if let Some(result) = done(self) {
                return Ok(result);
            }
            match self.queues.get(queue).map(|queue| &queue.link) {
                Some(Link::Rejected(reason)) => return Err(NvmfError::Rejected(reason.clone())),
                Some(Link::Ended(reason)) => return Err(NvmfError::Ended(reason.clone())),
                Some(Link::Discarded) => {
                    return Err(NvmfError::Ended("the host has discarded it".to_owned()));
                }
                None => return Err(NvmfError::Protocol(format!("there is no queue {queue}"))),
                Some(_) => {}
            }
            if Instant::now() > deadline {
                return Err(NvmfError::Ended(format!("no response within {:?}", self.settings.timeout)));
            }
            if !busy {
                std::thread::yield_now();
            }
        }
    }

    /// Closes all connections.
    ///
    /// # Errors
    ///
    /// The stack refuses a call.
    pub fn close(&mut self, between: &mut dyn FnMut()) -> Result<(), NvmfError> {
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.ctx.drain(deadline)?.open > 0 {
            self.poll()?;
            between();
        }
        for queue in std::mem::take(&mut self.queues).into_iter().filter(|one| one.link != Link::Discarded) {
            match self.ctx.destroy_qp(queue.qp) {
                Ok(()) | Err(ironwarp::VerbsError::UnknownQueuePair) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The queue pairs come back, and the last acknowledgements are sent.
        for _ in 0..16 {
            self.poll()?;
            between();
        }
        Ok(())
    }

    /// Resets the connection of a queue, as a host that goes away does.
    ///
    /// # Errors
    ///
    /// The stack refuses the call.
    pub fn abort(&mut self, queue: usize) -> Result<(), NvmfError> {
        match self.queues.get(queue) {
            Some(queue) => Ok(self.ctx.abort(queue.qp)?),
            None => Ok(()),
        }
    }
}
