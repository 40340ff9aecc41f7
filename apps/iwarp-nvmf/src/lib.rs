//! An NVMe over Fabrics target and host in user space, on the RDMA transport of crate `ironwarp`.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`wire`] | structures of the wire |
//! | [`target`] | subsystems, controllers, queues and commands, without a network |
//! | [`backend`] | memory, null, files and block devices by io_uring |
//! | [`transport`] | a reactor for each core: RDMA connections, data buffers |
//! | [`auth`] | what in-band authentication computes, and secrets |
//! | [`config`], [`serve`], [`namespaces`] | a whole target from a TOML file, and its namespaces from a changed one |
//! | [`open`] | opens and checks what the blocks of namespaces are in |
//! | [`identities`] | serial numbers and UUIDs that stay |
//! | [`replace`] | files that readers see as a whole |
//! | [`host`] | an initiator for tests and measurements |
//!
//! The data of a Write is pulled by RDMA Read into the memory that is written to disk, the data of
//! a Read is pushed by RDMA Write from the memory that was read into. [`backend`] lists the copies.
//!
//! Sources: NVM Express Base 1.4, NVM Express over Fabrics 1.1, NVMe RDMA transport.
#![deny(unsafe_code)]

pub mod auth;
pub mod backend;
pub mod config;
pub mod host;
pub mod identities;
pub mod latency;
pub mod namespaces;
pub mod open;
pub mod replace;
pub mod serve;
pub mod target;
pub mod transport;
pub mod wire;

use core::net::SocketAddr;

/// Why a target or a host ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NvmfError {
    /// The stack refused a call.
    #[error(transparent)]
    Verbs(#[from] ironwarp::VerbsError),
    /// The stack did not start.
    #[error(transparent)]
    Setup(#[from] ironwarp::SetupError),
    /// An offset is outside of its region.
    #[error(transparent)]
    Range(#[from] ironwarp::RangeError),
    /// Memory could not be allocated.
    #[error("{bytes} bytes: {reason}")]
    Memory {
        /// The bytes.
        bytes: usize,
        /// The reason.
        reason: String,
    },
    /// A namespace cannot be served.
    #[error("namespace {nsid} of {nqn}: {source}")]
    Namespace {
        /// Its subsystem.
        nqn: String,
        /// Its number.
        nsid: u32,
        /// Why.
        source: Box<NvmfError>,
    },
    /// A file could not be opened.
    #[error("{what}: {source}")]
    System {
        /// What failed.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A serial number or UUID is missing, or cannot be kept.
    #[error(transparent)]
    Identity(#[from] identities::IdentityError),
    /// The address is in use.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr),
    /// The target rejected a connection.
    #[error("the target rejects the connection: {0}")]
    Rejected(String),
    /// A connection ended, or was not established.
    #[error("the connection ended: {0}")]
    Ended(String),
    /// The host cannot be authenticated, or the controller cannot.
    #[error("authentication: {0}")]
    Authentication(String),
    /// A command failed.
    #[error("{command}: {status}")]
    Command {
        /// The command.
        command: &'static str,
        /// Its status.
        status: wire::Status,
        /// Its result.
        result: u64,
    },
    /// The other side did something that the specification does not allow.
    #[error("{0}")]
    Protocol(String),
}

impl From<ironwarp::PostError> for NvmfError {
    fn from(error: ironwarp::PostError) -> Self {
        NvmfError::Verbs(error.into())
    }
}
