//! What can go wrong on the application's side, by name.
//!
//! Protocol errors are not here: they end a connection with a Terminate and reach the application as an event and
//! as flushed completions.

use std::io;

use ironwarp_mem::{RegisterError, WordError};

use crate::config::ConfigError;

/// The error of a call that posts work requests.
///
/// The failing request is not posted. It converts into [`VerbsError`] for callers that handle one type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The handle names a queue pair that was destroyed, or one of another context.
    #[error("no such queue pair in this context")]
    UnknownQueuePair,
    /// The handle names a completion queue that was destroyed, or one of another context.
    #[error("no such completion queue in this context")]
    UnknownCompletionQueue,
    /// The handle names a shared receive queue that was destroyed, or one of another context.
    #[error("no such shared receive queue in this context")]
    UnknownSharedReceiveQueue,
    /// The queue pair's receives come from a shared queue.
    #[error("the queue pair takes its receives from a shared queue")]
    UsesSharedReceiveQueue,
    /// The queue pair is not in a state that allows the call.
    #[error("the queue pair is {0:?}, which does not allow this")]
    WrongState(crate::QpState),
    /// The send or receive queue holds as many work requests as it was made for.
    #[error("the work queue is full")]
    QueueFull,
    /// Every place in the completion queue is promised to a work request that has not been reaped.
    #[error("the completion queue has no place left to promise")]
    CqFull,
    /// More scatter or gather elements than the queue pair was made for.
    #[error("{requested} scatter or gather elements, the queue pair allows {allowed}")]
    TooManySges {
        /// What the work request has.
        requested: usize,
        /// What the queue pair allows.
        allowed: usize,
    },
    /// More inline bytes than the queue pair was made for.
    #[error("{requested} inline bytes, the queue pair allows {allowed}")]
    InlineTooLong {
        /// What the work request has.
        requested: usize,
        /// What the queue pair allows.
        allowed: usize,
    },
    /// A message longer than RDMAP can carry.
    #[error("a message of {0} bytes is longer than the protocol carries")]
    MessageTooLong(u64),
    /// The connection does not have the operation: [`Extensions`](crate::Extensions) says which it has.
    #[error("the connection's extensions do not have this operation")]
    NoSuchOperation,
    /// The answer to an atomic operation is a word of eight bytes.
    #[error("an atomic operation has a sink of exactly 8 bytes")]
    AtomicSinkLength,
    /// A Read's data lands in one place.
    #[error("a Read has exactly one sink element")]
    ReadSinkCount,
}

/// A call that could not be carried out. Nothing has changed, save for the part of a list that was posted before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// A work request was not posted, for a reason that only posting has.
    #[error(transparent)]
    Post(PostError),
    /// The handle names a queue pair that was destroyed, or one of another context.
    #[error("no such queue pair in this context")]
    UnknownQueuePair,
    /// The handle names a completion queue that was destroyed, or one of another context.
    #[error("no such completion queue in this context")]
    UnknownCompletionQueue,
    /// The protection domain was made by another stack.
    #[error("no such protection domain in this stack")]
    UnknownProtectionDomain,
    /// The completion queue is still used by a queue pair.
    #[error("the completion queue is used by a queue pair")]
    CompletionQueueInUse,
    /// The handle names a shared receive queue that was destroyed, or one of another context.
    #[error("no such shared receive queue in this context")]
    UnknownSharedReceiveQueue,
    /// The shared receive queue is still used by a queue pair.
    #[error("the shared receive queue is used by a queue pair")]
    SharedReceiveQueueInUse,
    /// More work requests are outstanding than the completion queue is to have places.
    #[error("{reserved_cqes} places are promised, which is more than {requested}")]
    CqDepthTooSmall {
        /// Places promised to work requests that have not been reaped.
        reserved_cqes: u32,
        /// What was asked for.
        requested: u32,
    },
    /// The queue pair is not in a state that allows the call.
    #[error("the queue pair is {0:?}, which does not allow this")]
    WrongState(crate::QpState),
    /// Every place in the completion queue is promised to a work request that has not been reaped.
    #[error("the completion queue has no place left to promise")]
    CqFull,
    /// More private data than a start-up frame carries.
    #[error(
        "{0} bytes of private data; 255 are carried, 251 by MPA revision 2, and with mpa.long_private_data 512 and 508"
    )]
    PrivateDataTooLong(usize),
    /// A setting of a new object is out of range.
    #[error("{what} = {value}: {allowed}")]
    OutOfRange {
        /// The setting.
        what: &'static str,
        /// What it was set to.
        value: u64,
        /// What it may be set to.
        allowed: &'static str,
    },
    /// As many objects exist as the configuration allows.
    #[error("no more {0}: the configured limit is reached")]
    LimitReached(&'static str),
    /// The core does not keep up with control calls; polling it makes room.
    #[error("the core's control queue is full")]
    Busy,
    /// The worker that would carry out the call has been dropped.
    #[error("the worker has gone")]
    WorkerDropped,
    /// Memory could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// No atomic operation can be run there.
    #[error(transparent)]
    Word(#[from] WordError),
    /// The system refused.
    #[error("{what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl From<PostError> for VerbsError {
    /// Conditions that other calls report too keep their variant.
    fn from(error: PostError) -> Self {
        match error {
            PostError::UnknownQueuePair => VerbsError::UnknownQueuePair,
            PostError::UnknownCompletionQueue => VerbsError::UnknownCompletionQueue,
            PostError::UnknownSharedReceiveQueue => VerbsError::UnknownSharedReceiveQueue,
            PostError::WrongState(state) => VerbsError::WrongState(state),
            PostError::CqFull => VerbsError::CqFull,
            other => VerbsError::Post(other),
        }
    }
}

/// A stack that could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device could not be opened or started.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    Device(#[from] ironwarp_port::dpdk::DpdkError),
    /// This machine does not have what the configuration wants, or the process may not have it.
    #[error(transparent)]
    Host(#[from] crate::host::Finding),
    /// A further port cannot be had.
    #[cfg(feature = "dpdk")]
    #[error("fabrics, entry {number}: {error}")]
    Fabric {
        /// Its number: the first entry of `fabrics` is 1, since 0 is `port` and `net` themselves.
        number: usize,
        /// What is wrong.
        error: Box<SetupError>,
    },
    /// The device cannot be had in this way, or not in this build.
    #[error("port.device = {0}: {1}")]
    Port(&'static str, &'static str),
    /// The counters' page could not be made.
    #[error("stats.page: {0}")]
    StatsPage(io::Error),
    /// The table of regions could not be made.
    #[error("limits.regions: {0}")]
    Regions(ironwarp_mem::TableError),
    /// The system gave no random bytes.
    #[error("no random bytes from the system: {0}")]
    Entropy(String),
    /// A core could not join the table of regions.
    #[error("limits.regions: {0}")]
    Core(ironwarp_mem::CoreError),
    /// A thread could not be started or pinned.
    #[error("{what}: {source}")]
    Thread {
        /// What was asked for.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}
