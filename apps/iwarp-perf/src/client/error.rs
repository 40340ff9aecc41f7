//! Why a session ends early.

use std::io;

use ironwarp_bench::Case;
use ironwarp_bench::baseline::namespaces::NamespaceError;

use crate::control::ChannelError;
use crate::rdma::RdmaError;

/// Why a session ends early.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The parent exited.
    #[error("the parent exited")]
    ParentGone,
    /// The server exited or cannot be reached.
    #[error("the server {0}")]
    ServerGone(String),
    /// The server failed and reported why.
    #[error("the server: {0}")]
    ServerFailed(String),
    /// The server sent a message that the protocol does not allow here.
    #[error("unexpected message from the server: {0}")]
    UnexpectedMessage(String),
    /// A case failed.
    #[error("{title}: {source}")]
    Case { title: String, source: Box<ClientError> },
    /// The stack or its device failed.
    #[error(transparent)]
    Stack(Box<RdmaError>),
    /// There is no veth pair for the devices.
    #[error("no veth pair: {0}")]
    Veth(#[from] NamespaceError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
}

impl ClientError {
    pub fn in_case(self, case: &Case) -> Self {
        ClientError::Case { title: case.title(), source: Box::new(self) }
    }
}

impl From<RdmaError> for ClientError {
    fn from(error: RdmaError) -> Self {
        ClientError::Stack(Box::new(error))
    }
}

impl From<ChannelError> for ClientError {
    fn from(_: ChannelError) -> Self {
        ClientError::ParentGone
    }
}
