//! The state of a connection as bytes, to be read by another core loop, also of another process.
//!
//! Each layer writes a value of its own. It has plain data only: no pointer, no index of a table,
//! no absolute time. Each begins with the version of its format, since a reader may be of another
//! build. A reader trusts nothing: lengths are bounded by the bytes at hand, and each layer checks
//! its numbers before it uses them. Off the data path.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a connection cannot be saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SaveError {
    /// The connection is in set-up, closes, or has ended.
    #[error("the connection is not in full operation")]
    NotEstablished,
    /// Something that the connection began on this core has not ended. Run the core, then try
    /// again.
    #[error("the connection waits for {0}; run its core and try again")]
    Busy(&'static str),
    /// The lower layer has no form for its state.
    #[error("this lower layer cannot save a connection")]
    Unsupported,
}

/// Why no connection was restored. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RestoreError {
    /// The bytes are cut off, damaged, or something else.
    #[error("the bytes are no saved connection, or they are damaged")]
    Malformed,
    /// The bytes are of another format.
    #[error("the saved connection has format {0}; this program reads format {1}")]
    Version(u16, u16),
    /// The state contradicts itself or a limit.
    #[error("the saved connection is inconsistent: {0}")]
    Inconsistent(String),
    /// A connection between these endpoints exists or is in TIME-WAIT.
    #[error("a connection between these addresses and ports exists or is in TIME-WAIT")]
    InUse,
    /// A limit of connections, or of buffers, is reached.
    #[error("no connection or no buffer is free; raise the limits")]
    Full,
    /// No route leads to the peer, or its packets arrive on another core.
    #[error("there is no path to the peer from this core")]
    NoPath,
    /// The lower layer has no form for its state.
    #[error("this lower layer cannot restore a connection")]
    Unsupported,
}

impl RestoreError {
    /// The error of a state that contradicts itself, unless `holds`.
    pub fn unless(holds: bool, what: &str) -> Result<(), RestoreError> {
        if holds { Ok(()) } else { Err(RestoreError::Inconsistent(what.into())) }
    }
}

/// Returns `state` as bytes, behind the version of its format.
pub fn encode(version: u16, state: &impl Serialize) -> Vec<u8> {
    let bytes = postcard::to_allocvec(&(version, state));
    debug_assert!(bytes.is_ok(), "the length of each sequence is known");
    bytes.unwrap_or_default()
}

/// Returns the state that [`encode`] wrote as all of `bytes`.
pub fn decode<'a, T: Deserialize<'a>>(version: u16, bytes: &'a [u8]) -> Result<T, RestoreError> {
    let (found, rest) = postcard::take_from_bytes(bytes).map_err(|_| RestoreError::Malformed)?;
    if found != version {
        return Err(RestoreError::Version(found, version));
    }
    match postcard::take_from_bytes(rest) {
        Ok((state, [])) => Ok(state),
        _ => Err(RestoreError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_bytes_of_the_same_version_are_read() {
        let bytes = encode(3, &(7u32, "text"));
        assert_eq!(decode(3, &bytes), Ok((7u32, "text")));
        assert_eq!(decode::<(u32, &str)>(4, &bytes), Err(RestoreError::Version(3, 4)));
        for len in 0..bytes.len() {
            assert_eq!(decode::<(u32, &str)>(3, &bytes[..len]), Err(RestoreError::Malformed), "{len}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(decode::<(u32, &str)>(3, &longer), Err(RestoreError::Malformed));
    }

    /// A length that the bytes do not have is no reason to allocate.
    #[test]
    fn a_length_beyond_the_bytes_is_refused() {
        let bytes = encode(1, &u64::MAX);
        assert_eq!(decode::<Vec<u64>>(1, &bytes), Err(RestoreError::Malformed));
    }
}
