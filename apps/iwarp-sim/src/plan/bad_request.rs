//! Requests that end their connections, and what the Terminate of each has to name.
//!
//! Sources: RFC 5040 s4.8, s7.1 and s7.2, RFC 5041 s7.1 and s7.2.

use ironwarp::{CompletionOpcode, CompletionStatus, Terminate};

/// A request that ends its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadRequest {
    /// A Write by a tag that nobody has.
    WriteUnknown,
    /// A Write outside of its region, wholly or in part.
    WriteBeyond,
    /// A Write beyond the last offset that there is.
    WriteWrap,
    /// A Write to memory that the peer keeps for itself.
    WriteNoRight,
    /// A Write to memory of another protection domain.
    WriteForeign,
    /// A Write by a tag that has ended.
    WriteStale,
    /// A Write outside of a window or fast region.
    WriteGrantBeyond,
    /// A Write to a window or fast region that may only be read.
    WriteGrantNoRight,
    /// A Read by a tag that nobody has.
    ReadUnknown,
    /// A Read outside of its region.
    ReadBeyond,
    /// A Read beyond the last offset that there is.
    ReadWrap,
    /// A Read of memory that the peer keeps for itself.
    ReadNoRight,
    /// A Read of memory of another protection domain.
    ReadForeign,
    /// A Read by a tag that has ended.
    ReadStale,
    /// A Read outside of a window or fast region.
    ReadGrantBeyond,
    /// A Read of a window or fast region that may only be written.
    ReadGrantNoRight,
    /// A Send that is longer than its receive.
    SendTooLong,
    /// A Send that no receive was posted for.
    SendUnexpected,
    /// A Send that invalidates a tag which is not the sender's to end.
    InvalidateForeign,
    /// A Send that invalidates a tag that has ended.
    InvalidateStale,
    /// A request whose own memory has another key.
    LocalKey,
    /// A request whose own memory has a tag that has ended.
    LocalStale,
    /// A request that names more than its own region.
    LocalBeyond,
    /// A Read into own memory that may not be written.
    LocalNoRight,
    /// The end of an own tag that there is none of.
    InvalidateUnknown,
    /// A window over memory that may not be lent.
    BindNoRight,
}

impl BadRequest {
    /// Every offence.
    pub const ALL: [BadRequest; 26] = [
        BadRequest::WriteUnknown,
        BadRequest::WriteBeyond,
        BadRequest::WriteWrap,
        BadRequest::WriteNoRight,
        BadRequest::WriteForeign,
        BadRequest::WriteStale,
        BadRequest::WriteGrantBeyond,
        BadRequest::WriteGrantNoRight,
        BadRequest::ReadUnknown,
        BadRequest::ReadBeyond,
        BadRequest::ReadWrap,
        BadRequest::ReadNoRight,
        BadRequest::ReadForeign,
        BadRequest::ReadStale,
        BadRequest::ReadGrantBeyond,
        BadRequest::ReadGrantNoRight,
        BadRequest::SendTooLong,
        BadRequest::SendUnexpected,
        BadRequest::InvalidateForeign,
        BadRequest::InvalidateStale,
        BadRequest::LocalKey,
        BadRequest::LocalStale,
        BadRequest::LocalBeyond,
        BadRequest::LocalNoRight,
        BadRequest::InvalidateUnknown,
        BadRequest::BindNoRight,
    ];

    /// Whether the stack of the side that posts it finds it.
    pub fn is_local(self) -> bool {
        matches!(
            self,
            BadRequest::LocalKey
                | BadRequest::LocalStale
                | BadRequest::LocalBeyond
                | BadRequest::LocalNoRight
                | BadRequest::InvalidateUnknown
                | BadRequest::BindNoRight
        )
    }

    /// How it completes where the stack of the side that posts it finds it. What the peer finds is only flushed.
    pub fn status(self) -> CompletionStatus {
        match self {
            BadRequest::BindNoRight => CompletionStatus::MemoryBind,
            bad_request if bad_request.is_local() => CompletionStatus::LocalProtection,
            _ => CompletionStatus::FlushedInError,
        }
    }

    /// Whether it is a Read, of the peer's memory or into memory of its own.
    pub fn is_read(self) -> bool {
        self.opcode() == CompletionOpcode::Read
    }

    /// What completes.
    pub fn opcode(self) -> CompletionOpcode {
        match self {
            BadRequest::ReadUnknown
            | BadRequest::ReadBeyond
            | BadRequest::ReadWrap
            | BadRequest::ReadNoRight
            | BadRequest::ReadForeign
            | BadRequest::ReadStale
            | BadRequest::ReadGrantBeyond
            | BadRequest::ReadGrantNoRight
            | BadRequest::LocalNoRight => CompletionOpcode::Read,
            BadRequest::SendTooLong
            | BadRequest::SendUnexpected
            | BadRequest::InvalidateForeign
            | BadRequest::InvalidateStale => CompletionOpcode::Send,
            BadRequest::InvalidateUnknown => CompletionOpcode::Invalidate,
            BadRequest::BindNoRight => CompletionOpcode::Bind,
            _ => CompletionOpcode::Write,
        }
    }

    /// The error that the Terminate names.
    pub fn terminate(self) -> Terminate {
        let (layer, etype, code) = match self {
            // DDP knows no missing right: such a tag allows no such placement.
            BadRequest::WriteUnknown
            | BadRequest::WriteNoRight
            | BadRequest::WriteStale
            | BadRequest::WriteGrantNoRight => (1, 1, 0),
            BadRequest::WriteBeyond | BadRequest::WriteGrantBeyond => (1, 1, 1),
            BadRequest::WriteForeign => (1, 1, 2),
            BadRequest::WriteWrap => (1, 1, 3),
            BadRequest::SendUnexpected => (1, 2, 2),
            BadRequest::SendTooLong => (1, 2, 5),
            BadRequest::ReadUnknown | BadRequest::ReadStale | BadRequest::InvalidateStale => (0, 1, 0),
            BadRequest::ReadBeyond | BadRequest::ReadGrantBeyond => (0, 1, 1),
            BadRequest::ReadNoRight | BadRequest::ReadGrantNoRight => (0, 1, 2),
            BadRequest::ReadForeign => (0, 1, 3),
            BadRequest::ReadWrap => (0, 1, 4),
            BadRequest::InvalidateForeign => (0, 1, 9),
            BadRequest::LocalKey
            | BadRequest::LocalStale
            | BadRequest::LocalBeyond
            | BadRequest::LocalNoRight
            | BadRequest::InvalidateUnknown
            | BadRequest::BindNoRight => (0, 0, 0),
        };
        Terminate { layer, etype, code }
    }
}
