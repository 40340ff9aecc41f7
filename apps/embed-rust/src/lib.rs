//! A small block server, as a storage appliance would embed the stack. The application owns `main`,
//! DPDK and the loop. It polls the stack's workers from that loop, and no call waits.
//!
//! A client requests by a Send of 32 bytes ([`protocol`]): read or write a number of blocks, with
//! memory of its own that it names. The server moves the blocks by RDMA Write for a read and by
//! RDMA Read for a write. It responds by a Send of 16 bytes. A client needs no memory of the
//! server, and the server's disk has no remote access.
//!
//! | what may go wrong | what then happens |
//! | --- | --- |
//! | blocks beyond the disk, too many at once, an unknown order | the answer says so, nothing is moved |
//! | memory that the client does not have, or not with that right | the connection ends by Terminate, that one alone |
//! | more clients than there are slots | the last one is refused with a reason |
//!
//! Every client has a window of requests. Each slot of it has its own receive, its own staging
//! memory and its own response, so no request waits for the memory of another.
#![forbid(unsafe_code)]

mod client;
pub mod protocol;
mod server;

pub use client::{BlockCounts, Client};
pub use server::{Server, ServerConfig};

/// Why a server or a client ends.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// The stack refused a call.
    #[error(transparent)]
    Verbs(#[from] ironwarp::VerbsError),
    /// The stack did not start.
    #[error(transparent)]
    Setup(#[from] ironwarp::SetupError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ironwarp::ConfigError),
    /// An offset is outside of its region.
    #[error(transparent)]
    Range(#[from] ironwarp::RangeError),
    /// The address is in use.
    #[error("cannot listen on {0}")]
    Listen(core::net::SocketAddr),
    /// The server refused the client.
    #[error("the server refuses: {0}")]
    Rejected(String),
    /// The connection ended, or was not established.
    #[error("the connection is over: {0}")]
    ConnectionEnded(String),
    /// The server did something other than requested.
    #[error("{0}")]
    Failed(String),
}

impl From<ironwarp::PostError> for EmbedError {
    fn from(error: ironwarp::PostError) -> Self {
        EmbedError::Verbs(error.into())
    }
}
