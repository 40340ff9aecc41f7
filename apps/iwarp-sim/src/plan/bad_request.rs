//! Requests that end their connections, and the error that the Terminate of each names.
//!
//! Sources: RFC 5040 s4.8, s7.1 and s7.2, RFC 5041 s7.1 and s7.2.

use ironwarp::{CompletionOpcode, CompletionStatus, Terminate};

/// A request that ends its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadRequest {
    /// A Write by an unknown tag.
    WriteUnknown,
    /// A Write fully or partly outside of its region.
    WriteBeyond,
    /// A Write whose address overflows 64 bits.
    WriteWrap,
    /// A Write to memory without remote write access.
    WriteNoRight,
    /// A Write to memory of another protection domain.
    WriteForeign,
    /// A Write by an invalidated tag.
    WriteStale,
    /// A Write outside of a window or fast region.
    WriteGrantBeyond,
    /// A Write to a window or fast region without write access.
    WriteGrantNoRight,
    /// A Read by an unknown tag.
    ReadUnknown,
    /// A Read outside of its region.
    ReadBeyond,
    /// A Read whose address overflows 64 bits.
    ReadWrap,
    /// A Read of memory without remote read access.
    ReadNoRight,
    /// A Read of memory of another protection domain.
    ReadForeign,
    /// A Read by an invalidated tag.
    ReadStale,
    /// A Read outside of a window or fast region.
    ReadGrantBeyond,
    /// A Read of a window or fast region without read access.
    ReadGrantNoRight,
    /// A Send longer than its receive.
    SendTooLong,
    /// A Send without a posted receive.
    SendUnexpected,
    /// A Send that invalidates a tag which the sender may not invalidate.
    InvalidateForeign,
    /// A Send that invalidates an invalidated tag.
    InvalidateStale,
    /// A local buffer with a wrong key.
    LocalKey,
    /// A local buffer with an invalidated tag.
    LocalStale,
    /// A local buffer that extends beyond its region.
    LocalBeyond,
    /// A Read into a local buffer without write access.
    LocalNoRight,
    /// An invalidation of an unknown local tag.
    InvalidateUnknown,
    /// A bind of a window to memory without bind access.
    BindNoRight,
}

impl BadRequest {
    /// All bad requests.
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

    /// Returns whether the poster's own stack detects it.
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

    /// Its completion status where the poster's own stack detects it. A request that the peer rejects is only flushed.
    pub fn status(self) -> CompletionStatus {
        match self {
            BadRequest::BindNoRight => CompletionStatus::MemoryBind,
            bad_request if bad_request.is_local() => CompletionStatus::LocalProtection,
            _ => CompletionStatus::FlushedInError,
        }
    }

    /// Returns whether it is a Read.
    pub fn is_read(self) -> bool {
        self.opcode() == CompletionOpcode::Read
    }

    /// The opcode of its completion.
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
            // DDP has no error for a missing access right: such a tag does not allow the placement.
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
