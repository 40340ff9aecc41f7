//! Why a session, a case or a request fails. All but what a caller tells apart is one line of text.

use std::fmt::{self, Display};
use std::time::Duration;

/// The result of whatever a session does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a session, a case or a request failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The user stopped it, or a connection was lost.
    Halted,
    /// The device has no link.
    NoLink,
    /// The session has no device.
    NoDevice,
    /// The other end of a control channel exited.
    Gone,
    /// The other end of a control channel sent nothing for this time.
    Silent(Duration),
    /// Anything else.
    Failed(String),
}

impl Error {
    pub fn failed(line: impl Into<String>) -> Self {
        Error::Failed(line.into())
    }

    /// A step that took longer than its limit.
    pub fn too_long(step: &str) -> Self {
        Error::Failed(format!("{step} took too long"))
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Halted => f.write_str("halted"),
            Error::NoLink => f.write_str("the device has no link: is the far end there?"),
            Error::NoDevice => f.write_str("no device in this run"),
            Error::Gone => f.write_str("the other end exited"),
            Error::Silent(limit) => write!(f, "no message for {} s", limit.as_secs()),
            Error::Failed(line) => f.write_str(line),
        }
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        Error::Failed(error.to_string())
    }
}

/// Says of an error what failed.
pub trait Context<T> {
    /// Puts `what` and a colon before the error.
    fn context(self, what: impl Display) -> Result<T>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, what: impl Display) -> Result<T> {
        self.map_err(|error| Error::Failed(format!("{what}: {error}")))
    }
}
