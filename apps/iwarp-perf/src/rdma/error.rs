//! Why a test over the stack fails.

use std::net::SocketAddr;

use ironwarp::{CompletionStatus, ConfigError, SetupError, VerbsError};

/// The result of a test over the stack.
pub type Result<T, E = RdmaError> = std::result::Result<T, E>;

/// Why a test over the stack failed.
#[derive(Debug, thiserror::Error)]
pub enum RdmaError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    #[error(transparent)]
    Range(#[from] ironwarp::RangeError),
    #[error("{0} bytes of memory could not be had")]
    Memory(usize),
    #[error("the device has no link: is the far end there?")]
    NoLink,
    #[error("a work request ended as {0:?}{1}")]
    Completion(CompletionStatus, String),
    #[error("the connection ended: {0}")]
    Disconnected(String),
    #[error("{0} took too long")]
    Timeout(&'static str),
    #[error("halted")]
    Halted,
    #[error("{0}: {1}")]
    ControlConnect(SocketAddr, String),
    #[error("no device in this run")]
    NoDevice,
    #[error("no window in this test")]
    NoWindow,
    #[error("a completion came to a queue that was armed, and no event with it: a wake-up was lost")]
    NoEvent,
    #[error("--srq: needs one polled core at each end, because each core has receives of its own")]
    SharedReceiveCores,
    #[error("waiting for an event: {0}")]
    Event(std::io::Error),
    #[error("--pcap: {0}")]
    Capture(std::io::Error),
}

impl From<ironwarp::PostError> for RdmaError {
    fn from(error: ironwarp::PostError) -> Self {
        RdmaError::Verbs(error.into())
    }
}
