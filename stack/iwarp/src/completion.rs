//! What becomes of work requests: completions, as they lie in a completion queue's ring.
//!
//! Two of them share a cache line.

use ironwarp_types::{QpNum, STag};

use crate::wr::SendOpcode;

const _: () = assert!(size_of::<Completion>() == 32);

bitflags::bitflags! {
    /// What else a completion says.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct CompletionFlags: u8 {
        /// The Send that was received asked for an event (RFC 5040 s5.3).
        const SOLICITED = 1;
        /// The Send that was received invalidated the steering tag in [`Completion::invalidated`].
        const INVALIDATED = 2;
        /// An atomic operation on our own memory: the word's value before is in [`Completion::immediate`].
        const LOCAL_ATOMIC = 4;
    }
}

/// What became of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum CompletionStatus {
    /// It was carried out.
    #[default]
    Success,
    /// The stream ended first; how much of it the peer saw is unknown (RFC 5040 s6.2.1).
    FlushedInError,
    /// The message is longer than its buffer, or than a message may be.
    LocalLength,
    /// A list element names memory that may not be used so: unknown key, other protection domain, missing right,
    /// out of bounds, revoked.
    LocalProtection,
    /// The peer's answer to a Read or an atomic operation is not the answer to it: another buffer, another place, too long or too short.
    BadResponse,
    /// The request cannot be carried out on this queue pair: a Read with no sink element, or with no Reads allowed.
    LocalOperation,
    /// A window or fast region cannot be bound: it is bound already, it or the region is another domain's, or the
    /// region does not allow it.
    MemoryBind,
}

/// What kind of work request completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CompletionOpcode {
    /// A Send of any kind.
    #[default]
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
    /// A receive, by a Send.
    Receive,
    /// A receive that Immediate Data took: nothing is in its memory, and the eight octets are in
    /// [`Completion::immediate`].
    ReceiveImmediate,
    /// Immediate Data of ours.
    Immediate,
    /// An atomic FetchAdd.
    FetchAdd,
    /// An atomic CmpSwap.
    CmpSwap,
    /// An atomic Swap.
    Swap,
    /// The invalidation of our own steering tag.
    Invalidate,
    /// A window's binding.
    Bind,
    /// A fast registration.
    FastRegister,
}

/// The end of one work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Completion {
    /// The number that was posted.
    pub wr_id: u64,
    /// The queue pair that carried it out; 0 where none did.
    pub qp: QpNum,
    /// Bytes of the message: received, read, sent or written. 0 unless the status is success, and for what sends
    /// nothing.
    pub byte_len: u32,
    /// What became of it.
    pub status: CompletionStatus,
    /// What it was.
    pub opcode: CompletionOpcode,
    /// What else there is to know.
    pub flags: CompletionFlags,
    /// With [`CompletionFlags::INVALIDATED`], the steering tag that the peer's Send invalidated.
    pub invalidated: STag,
    /// With [`CompletionOpcode::ReceiveImmediate`], the eight octets as the peer's application gave them; with
    /// [`CompletionFlags::LOCAL_ATOMIC`], the word as it was, in the machine's own order; zeros otherwise.
    pub immediate: [u8; 8],
}

impl Completion {
    /// What an atomic operation on our own memory found in its word. That of one on a peer's is in the request's sink.
    pub fn original(&self) -> Option<u64> {
        let done =
            self.flags.contains(CompletionFlags::LOCAL_ATOMIC) && self.status == CompletionStatus::Success;
        done.then(|| u64::from_ne_bytes(self.immediate))
    }
}

impl From<SendOpcode> for CompletionOpcode {
    fn from(opcode: SendOpcode) -> Self {
        match opcode {
            SendOpcode::Write => CompletionOpcode::Write,
            SendOpcode::Read | SendOpcode::ReadInvalidate => CompletionOpcode::Read,
            SendOpcode::Invalidate => CompletionOpcode::Invalidate,
            SendOpcode::Bind => CompletionOpcode::Bind,
            SendOpcode::FastRegister => CompletionOpcode::FastRegister,
            SendOpcode::Immediate | SendOpcode::ImmediateSolicited => CompletionOpcode::Immediate,
            SendOpcode::FetchAdd => CompletionOpcode::FetchAdd,
            SendOpcode::CmpSwap => CompletionOpcode::CmpSwap,
            SendOpcode::Swap => CompletionOpcode::Swap,
            SendOpcode::Send
            | SendOpcode::SendSolicited
            | SendOpcode::SendInvalidate
            | SendOpcode::SendSolicitedInvalidate => CompletionOpcode::Send,
        }
    }
}
