//! Errors of calls by the application.
//!
//! Protocol errors are events instead: they end a connection with a Terminate and flush its work
//! requests.

use std::io;

use ironwarp_mem::{RegisterError, WordError};

use crate::config::{ConfigError, TransportKind};

/// The error of a call that posts work requests.
///
/// The failing request is not posted. It converts into [`VerbsError`] for callers that handle one
/// type.
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
    /// The queue was split from this context: another end posts to it.
    #[error("the queue is split from the context; post with its own end, or drop that first")]
    Split,
    /// The queue pair is not in a state that allows the call.
    #[error("the queue pair is {0:?}, which does not allow this")]
    WrongState(crate::QpState),
    /// The send or receive queue is full.
    #[error("the work queue is full")]
    QueueFull,
    /// Every entry of the completion queue is reserved for a work request that has not been reaped.
    #[error("the completion queue has no free entry to reserve")]
    CqFull,
    /// More scatter or gather elements than the queue pair allows.
    #[error("{requested} scatter or gather elements, the queue pair allows {allowed}")]
    TooManySges {
        /// The elements of the work request.
        requested: usize,
        /// The limit of the queue pair.
        allowed: usize,
    },
    /// More inline bytes than the queue pair allows.
    #[error("{requested} inline bytes, the queue pair allows {allowed}")]
    InlineTooLong {
        /// The inline bytes of the work request.
        requested: usize,
        /// The limit of the queue pair.
        allowed: usize,
    },
    /// The message is longer than RDMAP allows.
    #[error("a message of {0} bytes is longer than the protocol carries")]
    MessageTooLong(u64),
    /// The connection does not support the operation; see [`Extensions`](crate::Extensions).
    #[error("the connection's extensions do not have this operation")]
    NoSuchOperation,
    /// The sink of an atomic operation must have 8 bytes.
    #[error("an atomic operation has a sink of exactly 8 bytes")]
    AtomicSinkLength,
    /// A Read must have exactly one sink element.
    #[error("a Read has exactly one sink element")]
    ReadSinkCount,
    /// The worker of the queue pair's core was dropped, or panicked. Everything posted before is
    /// flushed.
    #[error("the worker of the queue pair's core was dropped")]
    WorkerDropped,
}

/// A call failed and changed nothing, except for the part of a list that was posted before.
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
    /// The protection domain belongs to another context or stack.
    #[error("no such protection domain in this context or its stack")]
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
    /// The queue was split from this context: another end posts to it or polls it.
    #[error("the queue is split from the context; use its own end, or drop that first")]
    Split,
    /// More work requests are outstanding than the new depth.
    #[error("{reserved_cqes} entries are reserved, which is more than {requested}")]
    CqDepthTooSmall {
        /// Entries reserved for work requests that have not been reaped.
        reserved_cqes: u32,
        /// The requested depth.
        requested: u32,
    },
    /// The queue pair is not in a state that allows the call.
    #[error("the queue pair is {0:?}, which does not allow this")]
    WrongState(crate::QpState),
    /// Every entry of the completion queue is reserved for a work request that has not been reaped.
    #[error("the completion queue has no free entry to reserve")]
    CqFull,
    /// The private data does not fit the start-up frame.
    #[error(
        "{0} bytes of private data; 255 are carried, 251 by MPA revision 2, and with mpa.long_private_data 512 and 508"
    )]
    PrivateDataTooLong(usize),
    /// The stack has not got the requested transport.
    #[error("the stack has no {0}; add it to stack.transport")]
    NoTransport(TransportKind),
    /// A setting of a new object is out of range.
    #[error("{what} = {value}: {allowed}")]
    OutOfRange {
        /// The name of the setting.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A completion queue or shared receive queue is bound to another core than the queue pair or
    /// word needs. A connection request is accepted on the core where it arrived.
    #[error("the queue is bound to core {bound}, and core {core} is needed")]
    QueueOnOtherCore {
        /// The core of the queue.
        bound: u16,
        /// The core that is needed.
        core: u16,
    },
    /// The configured number of objects is reached.
    #[error("no more {0}: the configured limit is reached")]
    LimitReached(&'static str),
    /// The core's control queue is full, and the call may be repeated without limit: a listen or an
    /// operation on local memory. Or the completion queue is being resized. Polling the core ends
    /// both.
    #[error("the core's control queue is full")]
    Busy,
    /// The worker that executes the call was dropped.
    #[error("the worker has gone")]
    WorkerDropped,
    /// Memory could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// No atomic operation is possible at this location.
    #[error(transparent)]
    Word(#[from] WordError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The system's error.
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
            PostError::Split => VerbsError::Split,
            PostError::WrongState(state) => VerbsError::WrongState(state),
            PostError::CqFull => VerbsError::CqFull,
            other => VerbsError::Post(other),
        }
    }
}

/// Why a stack could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device could not be opened or started.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    Device(#[from] ironwarp_port::dpdk::DpdkError),
    /// The memif of this library's own driver could not be opened.
    #[error(transparent)]
    Memif(#[from] ironwarp_port::memif::MemifError),
    /// The tap or packet socket of this library's own driver could not be opened.
    #[error(transparent)]
    Kernel(#[from] ironwarp_port::kernel::KernelError),
    /// This machine lacks what the configuration requires, or the process lacks the permission.
    #[error(transparent)]
    Host(#[from] crate::host::Finding),
    /// A further port could not be opened.
    #[error("fabrics, entry {number}: {error}")]
    Fabric {
        /// The number of the port: the first entry of `fabrics` is 1, since 0 is `port` and `net`.
        number: usize,
        /// The error.
        error: Box<SetupError>,
    },
    /// The device is not available in this way, or not in this build.
    #[error("port.device = {0}: {1}")]
    Port(&'static str, &'static str),
    /// The page of the counters could not be created.
    #[error("stats.page: {0}")]
    StatsPage(io::Error),
    /// The table of regions could not be created.
    #[error("limits.regions: {0}")]
    Regions(ironwarp_mem::TableError),
    /// The system provided no random bytes.
    #[error("no random bytes from the system: {0}")]
    Entropy(String),
    /// A core could not join the table of regions.
    #[error("limits.regions: {0}")]
    Core(ironwarp_mem::CoreError),
    /// The system refused a descriptor.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A thread could not be started or pinned.
    #[error("{what}: {source}")]
    Thread {
        /// The operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}
