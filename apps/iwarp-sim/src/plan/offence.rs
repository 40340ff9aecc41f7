//! Requests that end their connections, and what the Terminate of each has to name.
//!
//! Sources: RFC 5040 s4.8, s7.1 and s7.2, RFC 5041 s7.1 and s7.2.

use ironwarp::{CompletionOpcode, CompletionStatus, Terminate};

/// A request that ends its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offence {
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
    WriteLoanBeyond,
    /// A Write to a window or fast region that may only be read.
    WriteLoanNoRight,
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
    ReadLoanBeyond,
    /// A Read of a window or fast region that may only be written.
    ReadLoanNoRight,
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

impl Offence {
    /// Every offence.
    pub const ALL: [Offence; 26] = [
        Offence::WriteUnknown,
        Offence::WriteBeyond,
        Offence::WriteWrap,
        Offence::WriteNoRight,
        Offence::WriteForeign,
        Offence::WriteStale,
        Offence::WriteLoanBeyond,
        Offence::WriteLoanNoRight,
        Offence::ReadUnknown,
        Offence::ReadBeyond,
        Offence::ReadWrap,
        Offence::ReadNoRight,
        Offence::ReadForeign,
        Offence::ReadStale,
        Offence::ReadLoanBeyond,
        Offence::ReadLoanNoRight,
        Offence::SendTooLong,
        Offence::SendUnexpected,
        Offence::InvalidateForeign,
        Offence::InvalidateStale,
        Offence::LocalKey,
        Offence::LocalStale,
        Offence::LocalBeyond,
        Offence::LocalNoRight,
        Offence::InvalidateUnknown,
        Offence::BindNoRight,
    ];

    /// Whether the stack of the side that posts it finds it.
    pub fn is_local(self) -> bool {
        matches!(
            self,
            Offence::LocalKey
                | Offence::LocalStale
                | Offence::LocalBeyond
                | Offence::LocalNoRight
                | Offence::InvalidateUnknown
                | Offence::BindNoRight
        )
    }

    /// How it completes where the stack of the side that posts it finds it. What the peer finds is only flushed.
    pub fn status(self) -> CompletionStatus {
        match self {
            Offence::BindNoRight => CompletionStatus::MemoryBind,
            offence if offence.is_local() => CompletionStatus::LocalProtection,
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
            Offence::ReadUnknown
            | Offence::ReadBeyond
            | Offence::ReadWrap
            | Offence::ReadNoRight
            | Offence::ReadForeign
            | Offence::ReadStale
            | Offence::ReadLoanBeyond
            | Offence::ReadLoanNoRight
            | Offence::LocalNoRight => CompletionOpcode::Read,
            Offence::SendTooLong
            | Offence::SendUnexpected
            | Offence::InvalidateForeign
            | Offence::InvalidateStale => CompletionOpcode::Send,
            Offence::InvalidateUnknown => CompletionOpcode::Invalidate,
            Offence::BindNoRight => CompletionOpcode::Bind,
            _ => CompletionOpcode::Write,
        }
    }

    /// The error that the Terminate names.
    pub fn terminate(self) -> Terminate {
        let (layer, etype, code) = match self {
            // DDP knows no missing right: such a tag allows no such placement.
            Offence::WriteUnknown
            | Offence::WriteNoRight
            | Offence::WriteStale
            | Offence::WriteLoanNoRight => (1, 1, 0),
            Offence::WriteBeyond | Offence::WriteLoanBeyond => (1, 1, 1),
            Offence::WriteForeign => (1, 1, 2),
            Offence::WriteWrap => (1, 1, 3),
            Offence::SendUnexpected => (1, 2, 2),
            Offence::SendTooLong => (1, 2, 5),
            Offence::ReadUnknown | Offence::ReadStale | Offence::InvalidateStale => (0, 1, 0),
            Offence::ReadBeyond | Offence::ReadLoanBeyond => (0, 1, 1),
            Offence::ReadNoRight | Offence::ReadLoanNoRight => (0, 1, 2),
            Offence::ReadForeign => (0, 1, 3),
            Offence::ReadWrap => (0, 1, 4),
            Offence::InvalidateForeign => (0, 1, 9),
            Offence::LocalKey
            | Offence::LocalStale
            | Offence::LocalBeyond
            | Offence::LocalNoRight
            | Offence::InvalidateUnknown
            | Offence::BindNoRight => (0, 0, 0),
        };
        Terminate { layer, etype, code }
    }
}
