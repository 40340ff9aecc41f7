//! Completions, in the form in which they are stored in the ring of a completion queue.
//!
//! A completion takes 32 bytes, so a cache line holds two.

use ironwarp_types::{QpNum, STag};

use crate::wr::SendOpcode;

const _: () = assert!(size_of::<Completion>() == 32);

bitflags::bitflags! {
    /// Additional information in a completion.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct CompletionFlags: u8 {
        /// The received Send asks for a solicited event (RFC 5040 s5.3).
        const SOLICITED = 1;
        /// The received Send invalidated the steering tag in [`Completion::invalidated`].
        const INVALIDATED = 2;
        /// An atomic operation on local memory. [`Completion::immediate`] holds the word's value
        /// before the operation.
        const LOCAL_ATOMIC = 4;
    }
}

/// The outcome of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum CompletionStatus {
    /// The request was carried out.
    #[default]
    Success,
    /// The stream ended first. How much of the request the peer saw is unknown (RFC 5040 s6.2.1).
    FlushedInError,
    /// The message is longer than its buffer or than the longest message allowed.
    LocalLength,
    /// A list element names memory that this request may not use: unknown key, other protection
    /// domain, missing right, out of bounds, or revoked.
    LocalProtection,
    /// The peer's response does not match the Read or atomic operation: another buffer, another
    /// offset, too long or too short.
    BadResponse,
    /// The queue pair cannot carry out the request: a Read without a sink element, with an ORD of
    /// 0, or without memory for the first one.
    LocalOperation,
    /// A window or fast region cannot be bound: it is already bound, it or the region belongs to
    /// another protection domain, or the region does not allow it.
    MemoryBind,
}

/// The kind of work request that completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CompletionOpcode {
    /// A Send of any kind.
    #[default]
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
    /// A receive, consumed by a Send.
    Receive,
    /// A receive, consumed by Immediate Data. Its memory is unchanged; the eight octets are in
    /// [`Completion::immediate`].
    ReceiveImmediate,
    /// Immediate Data that was sent.
    Immediate,
    /// An atomic FetchAdd.
    FetchAdd,
    /// An atomic CmpSwap.
    CmpSwap,
    /// An atomic Swap.
    Swap,
    /// The invalidation of a local steering tag.
    Invalidate,
    /// The binding of a memory window.
    Bind,
    /// The fast registration of a region.
    FastRegister,
}

/// The result of one work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Completion {
    /// The application's identifier of the request.
    pub wr_id: u64,
    /// The queue pair that carried the request out; 0 if none did.
    pub qp: QpNum,
    /// Bytes of the message that was received, read, sent or written. 0 if the status is not
    /// success or the request sends nothing.
    pub byte_len: u32,
    /// The outcome.
    pub status: CompletionStatus,
    /// The kind of request.
    pub opcode: CompletionOpcode,
    /// Additional information.
    pub flags: CompletionFlags,
    /// The steering tag that the peer's Send invalidated, if [`CompletionFlags::INVALIDATED`] is
    /// set.
    pub invalidated: STag,
    /// With [`CompletionOpcode::ReceiveImmediate`], the eight octets as the peer's application
    /// passed them; with [`CompletionOpcode::Immediate`], those that were sent. With
    /// [`CompletionFlags::LOCAL_ATOMIC`], the word's value before the operation in the machine's
    /// byte order. Zeros otherwise.
    pub immediate: [u8; 8],
}

impl Completion {
    /// Returns the word's value before an atomic operation on local memory. An operation on the
    /// peer's memory stores that value in the sink of the request instead.
    pub fn original(&self) -> Option<u64> {
        let done =
            self.flags.contains(CompletionFlags::LOCAL_ATOMIC) && self.status == CompletionStatus::Success;
        done.then(|| u64::from_ne_bytes(self.immediate))
    }
}

impl From<SendOpcode> for CompletionOpcode {
    fn from(opcode: SendOpcode) -> Self {
        opcode.spec().completion
    }
}
