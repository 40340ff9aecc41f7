//! iWARP — RDMA over TCP/IP — in user space.
//!
//! A [`Stack`] runs over one port: a DPDK device, or memory for tests. It gives [`Worker`]s, one a
//! core, which do all the work when they are polled, and [`Context`]s, one an application thread,
//! which post work and reap completions.
//!
//! | object | what it is |
//! | --- | --- |
//! | [`ProtectionDomain`] | what a queue pair may reach |
//! | [`Region`] | registered memory, reached by its [`STag`] |
//! | [`Window`], [`FastRegion`] | tags that work requests bind to pieces of regions |
//! | [`CompletionQueue`] | where work requests end |
//! | [`QueuePair`] | a connection's send and receive queues |
//! | [`SharedReceiveQueue`] | receives for many queue pairs |
//! | [`SendPoster`], [`RecvPoster`], [`SrqPoster`], [`CqPoller`] | ends of queues, for threads of their own |
//! | [`Event`] | an event of a connection |
//!
//! `examples/first.rs` shows all of them in one page; `examples/reactor.rs` shows an application
//! that owns `main` and polls the worker from its own loop, `examples/pinned.rs` a worker on a
//! thread of the library's.
//!
//! Semantics follow RFC 5040 and the verbs that grew around it: a Send or Write completes when the
//! peer's TCP has acknowledged its last byte, in the order of posting; a Read when its data is
//! placed; a Send without a posted receive at the peer ends the connection, since iWARP has no
//! receiver-not-ready.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod batch;
pub mod config;
mod context;
mod core_loop;
#[cfg(feature = "dpdk")]
mod device;
mod error;
mod event;
pub mod host;
mod kernel;
mod log_limit;
mod memif;
mod numbers;
mod objects;
mod shared;
mod stack;
mod wake;
mod worker;
mod wr;

pub use config::{Config, ConfigError, Extensions, IdlePolicy};
pub use context::{
    Context, CqInfo, CqPoller, DrainProgress, InterfaceAddress, Limits, PortInfo, ProtectionDomain, QpInfo,
    RecvPoster, SendPoster, SrqInfo, SrqPoster,
};
#[cfg(feature = "dpdk")]
pub use device::cleanup_dpdk;
pub use error::{PostError, SetupError, VerbsError};
pub use event::{
    ConnectFailure, ConnectionRequest, DisconnectReason, Event, MpaRequestInfo, NegotiatedParams, PrivateData,
};
pub use ironwarp_iwarp::mpa::startup::Markers;
pub use ironwarp_iwarp::setup::{READS_UNNEGOTIATED, ReadDepths, RtrKinds};
pub use ironwarp_iwarp::{Completion, CompletionFlags, CompletionOpcode, CompletionStatus, Terminate};
#[doc(hidden)]
pub use ironwarp_llp::{RestoreError, SaveError};
pub use ironwarp_mem::guard::install as catch_memory_faults;
pub use ironwarp_mem::{
    Access, AccessError, AlignedBuf, AtomicOp, CoreError, FastRegion, MemoryAbsent, Quiescence, RangeError,
    RawMemory, Region, RegisterError, Sge, StableBytes, TableError, Window, WordError,
};
#[doc(hidden)]
pub use ironwarp_mem::{GuardZones, guarded};
pub use ironwarp_port::LinkState;
#[cfg(feature = "dpdk")]
pub use ironwarp_port::dpdk;
pub use ironwarp_port::instrument;
pub use ironwarp_port::memory;
pub use ironwarp_types::{MacAddr, Nanos, PdId, QpNum, STag};
pub use log_limit::LogLimit;
pub use objects::{
    AcceptParams, CompletionQueue, ConnectParams, CqAttr, Framing, KeepAlive, ListenParams, MpaRevision,
    QpAttr, QpState, QueuePair, ReceiveShare, RejectParams, SharedReceiveQueue, SrqAttr,
};
pub use stack::{Stack, StackBuilder};
/// What a lower layer is, for a layer that tests bring.
#[doc(hidden)]
pub mod lower {
    pub use crate::core_loop::lower::*;
    pub use crate::objects::MpaParams;
}
#[doc(hidden)]
pub use worker::ResourceUsage;
pub use worker::{PollResult, PortVisit, Worker, WorkerThread, idle, pin};
pub use wr::{RecvWr, RemoteMemory, SendWr};
