//! A block server in small, as a storage appliance would embed the stack: it owns `main`, DPDK and the loop; the stack's
//! workers are polled from that loop, and nothing here waits.
//!
//! A client asks by a Send of 32 bytes ([`protocol`]): read or write so many blocks from a number on, of or into memory of
//! its own, which it names. The server moves the blocks itself, by RDMA Write for a read and by RDMA Read for a write, and
//! answers by a Send of 16 bytes. So a client needs no memory of the server's, and the server's disk is open to nobody.
//!
//! | what may go wrong | what then happens |
//! | --- | --- |
//! | blocks beyond the disk, too many at once, an unknown order | the answer says so, nothing is moved |
//! | memory that the client does not have, or not with that right | the connection ends by Terminate, that one alone |
//! | more clients than there are places | the last one is refused with a reason |
//!
//! Every client has a window of requests; a place in it has its own receive, its own blocks of staging memory and its own
//! answer, so one request never waits for memory of another.
#![forbid(unsafe_code)]

mod client;
pub mod protocol;
mod server;

pub use client::{BlockCounts, Client};
pub use server::{Server, ServerConfig};

/// Why a server or a client cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// A call of the stack was refused.
    #[error(transparent)]
    Verbs(#[from] ironwarp::VerbsError),
    /// The stack could not be started.
    #[error(transparent)]
    Setup(#[from] ironwarp::SetupError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ironwarp::ConfigError),
    /// An offset lies outside of its region.
    #[error(transparent)]
    Range(#[from] ironwarp::RangeError),
    /// The address is taken.
    #[error("{0} cannot be listened at")]
    Listen(core::net::SocketAddr),
    /// The server refused the client.
    #[error("the server refuses: {0}")]
    Rejected(String),
    /// The connection ended, or did not come about.
    #[error("the connection is over: {0}")]
    ConnectionEnded(String),
    /// The server did something else than it was asked.
    #[error("{0}")]
    Failed(String),
}

impl From<ironwarp::PostError> for EmbedError {
    fn from(error: ironwarp::PostError) -> Self {
        EmbedError::Verbs(error.into())
    }
}
