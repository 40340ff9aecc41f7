//! Requests that end their connections, and the error that the Terminate of each names.
//!
//! Sources: RFC 5040 s4.8, s7.1 and s7.2, RFC 5041 s7.1 and s7.2.

use ironwarp::{CompletionOpcode, CompletionStatus, Terminate};

use super::BadAtomic;
use crate::kinds::kinds;

kinds! {
    /// A request that ends its connection.
    pub enum BadRequest {
        /// The opcode of its completion, and layer, type and code of the Terminate.
        fn row -> (CompletionOpcode, (u8, u8, u8));

        /// A Write by an unknown tag.
        WriteUnknown => (CompletionOpcode::Write, (1, 1, 0)),
        /// A Write fully or partly outside of its region.
        WriteBeyond => (CompletionOpcode::Write, (1, 1, 1)),
        /// A Write whose address overflows 64 bits.
        WriteWrap => (CompletionOpcode::Write, (1, 1, 3)),
        /// A Write to memory without remote write access.
        WriteNoRight => (CompletionOpcode::Write, (1, 1, 0)),
        /// A Write to memory of another protection domain.
        WriteForeign => (CompletionOpcode::Write, (1, 1, 2)),
        /// A Write by an invalidated tag.
        WriteStale => (CompletionOpcode::Write, (1, 1, 0)),
        /// A Write outside of a window or fast region.
        WriteGrantBeyond => (CompletionOpcode::Write, (1, 1, 1)),
        /// A Write to a window or fast region without write access.
        WriteGrantNoRight => (CompletionOpcode::Write, (1, 1, 0)),
        /// A Read by an unknown tag.
        ReadUnknown => (CompletionOpcode::Read, (0, 1, 0)),
        /// A Read outside of its region.
        ReadBeyond => (CompletionOpcode::Read, (0, 1, 1)),
        /// A Read whose address overflows 64 bits.
        ReadWrap => (CompletionOpcode::Read, (0, 1, 4)),
        /// A Read of memory without remote read access.
        ReadNoRight => (CompletionOpcode::Read, (0, 1, 2)),
        /// A Read of memory of another protection domain.
        ReadForeign => (CompletionOpcode::Read, (0, 1, 3)),
        /// A Read by an invalidated tag.
        ReadStale => (CompletionOpcode::Read, (0, 1, 0)),
        /// A Read outside of a window or fast region.
        ReadGrantBeyond => (CompletionOpcode::Read, (0, 1, 1)),
        /// A Read of a window or fast region without read access.
        ReadGrantNoRight => (CompletionOpcode::Read, (0, 1, 2)),
        /// A Send longer than its receive.
        SendTooLong => (CompletionOpcode::Send, (1, 2, 5)),
        /// A Send without a posted receive.
        SendUnexpected => (CompletionOpcode::Send, (1, 2, 2)),
        /// A Send that invalidates a tag which the sender may not invalidate.
        InvalidateForeign => (CompletionOpcode::Send, (0, 1, 9)),
        /// A Send that invalidates an invalidated tag.
        InvalidateStale => (CompletionOpcode::Send, (0, 1, 0)),
        /// A local buffer with a wrong key.
        LocalKey => (CompletionOpcode::Write, (0, 0, 0)),
        /// A local buffer with an invalidated tag.
        LocalStale => (CompletionOpcode::Write, (0, 0, 0)),
        /// A local buffer that extends beyond its region.
        LocalBeyond => (CompletionOpcode::Write, (0, 0, 0)),
        /// A Read into a local buffer without write access.
        LocalNoRight => (CompletionOpcode::Read, (0, 0, 0)),
        /// An invalidation of an unknown local tag.
        InvalidateUnknown => (CompletionOpcode::Invalidate, (0, 0, 0)),
        /// A bind of a window to memory without bind access.
        BindNoRight => (CompletionOpcode::Bind, (0, 0, 0)),
        ;
        /// A bad atomic request, whose error is its own.
        Atomic(BadAtomic) => (CompletionOpcode::FetchAdd, (0, 2, 7))
    }
}

impl BadRequest {
    /// Returns whether the poster's own stack detects it.
    pub fn is_local(self) -> bool {
        self.row().1 == (0, 0, 0)
    }

    /// Its completion status where the poster's own stack detects it. A request that the peer
    /// rejects is only flushed.
    pub fn status(self) -> CompletionStatus {
        match self {
            BadRequest::BindNoRight => CompletionStatus::MemoryBind,
            bad_request if bad_request.is_local() => CompletionStatus::LocalProtection,
            _ => CompletionStatus::FlushedInError,
        }
    }

    pub fn is_read(self) -> bool {
        self.opcode() == CompletionOpcode::Read
    }

    pub fn opcode(self) -> CompletionOpcode {
        self.row().0
    }

    /// The error that the Terminate names. DDP has none for a missing access right: such a tag does
    /// not allow the placement.
    pub fn terminate(self) -> Terminate {
        let (layer, etype, code) = match self {
            BadRequest::Atomic(bad_atomic) => bad_atomic.terminate(),
            _ => self.row().1,
        };
        Terminate { layer, etype, code }
    }
}
