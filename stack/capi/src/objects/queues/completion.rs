//! Completions of work requests.

use verbs::{Completion, CompletionFlags, CompletionOpcode, CompletionStatus};

/// Success.
pub const IW_WC_SUCCESS: u32 = 0;
/// The connection ended first. It is unknown how much of the request the peer received.
pub const IW_WC_WR_FLUSH_ERR: u32 = 1;
/// The message is longer than its buffer, or than the maximum.
pub const IW_WC_LOC_LEN_ERR: u32 = 2;
/// An element names memory without the required right.
pub const IW_WC_LOC_PROT_ERR: u32 = 3;
/// The peer's response does not match the request.
pub const IW_WC_BAD_RESP_ERR: u32 = 4;
/// The request is not possible on this queue pair.
pub const IW_WC_LOC_QP_OP_ERR: u32 = 5;
/// Another error.
pub const IW_WC_GENERAL_ERR: u32 = 6;
/// A window or fast region cannot be bound: it is bound already or destroyed, the rights exceed
/// those of the window or memory, or the element is not within memory of its protection domain.
pub const IW_WC_MW_BIND_ERR: u32 = 7;

/// A Send of any kind.
pub const IW_WC_SEND: u32 = 0;
/// An RDMA Write.
pub const IW_WC_WRITE: u32 = 1;
/// An RDMA Read.
pub const IW_WC_READ: u32 = 2;
/// A receive, consumed by a Send.
pub const IW_WC_RECV: u32 = 3;
/// A receive, consumed by Immediate Data: its memory is unchanged, the eight octets are in
/// `immediate`.
pub const IW_WC_RECV_IMMEDIATE: u32 = 4;
/// Immediate Data that this side sent.
pub const IW_WC_IMMEDIATE: u32 = 5;
/// An atomic operation.
pub const IW_WC_ATOMIC: u32 = 6;
/// The invalidation of a local steering tag.
pub const IW_WC_INVALIDATE: u32 = 7;
/// A window's binding.
pub const IW_WC_BIND: u32 = 8;
/// A fast registration.
pub const IW_WC_FAST_REGISTER: u32 = 9;

/// The received Send requested an event.
pub const IW_WC_FLAG_SOLICITED: u32 = 1;
/// The received Send invalidated the steering tag in `invalidated_stag`.
pub const IW_WC_FLAG_INVALIDATED: u32 = 2;
/// An atomic operation of `iw_atomic`: the word's value before is in `immediate`.
pub const IW_WC_FLAG_LOCAL_ATOMIC: u32 = 4;

/// The completion of one work request.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_wc {
    /// The `wr_id` of the request.
    pub wr_id: u64,
    /// The queue pair's number (`iw_qp_info`); with IW_WC_FLAG_LOCAL_ATOMIC 0.
    pub qp_num: u32,
    /// Length of the message in bytes, if the status is IW_WC_SUCCESS.
    pub byte_len: u32,
    /// The status: IW_WC_SUCCESS to IW_WC_MW_BIND_ERR.
    pub status: u32,
    /// The operation: IW_WC_SEND to IW_WC_FAST_REGISTER.
    pub opcode: u32,
    /// IW_WC_FLAG_SOLICITED, IW_WC_FLAG_INVALIDATED, IW_WC_FLAG_LOCAL_ATOMIC.
    pub flags: u32,
    /// With IW_WC_FLAG_INVALIDATED, the steering tag.
    pub invalidated_stag: u32,
    /// With IW_WC_RECV_IMMEDIATE and IW_WC_IMMEDIATE, the eight octets; with
    /// IW_WC_FLAG_LOCAL_ATOMIC, the bytes of a uint64_t.
    pub immediate: [u8; 8],
}

impl From<&Completion> for iw_wc {
    #[inline]
    fn from(done: &Completion) -> Self {
        let mut flags = 0;
        if done.flags.contains(CompletionFlags::SOLICITED) {
            flags |= IW_WC_FLAG_SOLICITED;
        }
        if done.flags.contains(CompletionFlags::INVALIDATED) {
            flags |= IW_WC_FLAG_INVALIDATED;
        }
        if done.flags.contains(CompletionFlags::LOCAL_ATOMIC) {
            flags |= IW_WC_FLAG_LOCAL_ATOMIC;
        }
        iw_wc {
            wr_id: done.wr_id,
            qp_num: done.qp.0,
            byte_len: done.byte_len,
            status: status_of(done.status),
            opcode: opcode_of(done.opcode),
            flags,
            invalidated_stag: done.invalidated.0,
            immediate: done.immediate,
        }
    }
}

fn status_of(status: CompletionStatus) -> u32 {
    match status {
        CompletionStatus::Success => IW_WC_SUCCESS,
        CompletionStatus::FlushedInError => IW_WC_WR_FLUSH_ERR,
        CompletionStatus::LocalLength => IW_WC_LOC_LEN_ERR,
        CompletionStatus::LocalProtection => IW_WC_LOC_PROT_ERR,
        CompletionStatus::BadResponse => IW_WC_BAD_RESP_ERR,
        CompletionStatus::LocalOperation => IW_WC_LOC_QP_OP_ERR,
        CompletionStatus::MemoryBind => IW_WC_MW_BIND_ERR,
        _ => IW_WC_GENERAL_ERR,
    }
}

fn opcode_of(opcode: CompletionOpcode) -> u32 {
    match opcode {
        CompletionOpcode::Send => IW_WC_SEND,
        CompletionOpcode::Write => IW_WC_WRITE,
        CompletionOpcode::Read => IW_WC_READ,
        CompletionOpcode::Receive => IW_WC_RECV,
        CompletionOpcode::ReceiveImmediate => IW_WC_RECV_IMMEDIATE,
        CompletionOpcode::Immediate => IW_WC_IMMEDIATE,
        CompletionOpcode::FetchAdd | CompletionOpcode::CmpSwap | CompletionOpcode::Swap => IW_WC_ATOMIC,
        CompletionOpcode::Invalidate => IW_WC_INVALIDATE,
        CompletionOpcode::Bind => IW_WC_BIND,
        CompletionOpcode::FastRegister => IW_WC_FAST_REGISTER,
    }
}
