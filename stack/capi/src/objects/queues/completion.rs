//! The end of a work request, as a queue tells it.

use verbs::{Completion, CompletionFlags, CompletionOpcode, CompletionStatus};

/// It was carried out.
pub const IW_WC_SUCCESS: u32 = 0;
/// The connection ended first; how much of it the peer saw is unknown.
pub const IW_WC_WR_FLUSH_ERR: u32 = 1;
/// The message is longer than its buffer, or than a message may be.
pub const IW_WC_LOC_LEN_ERR: u32 = 2;
/// An element names memory that may not be used so.
pub const IW_WC_LOC_PROT_ERR: u32 = 3;
/// The peer's answer is not the answer to the request.
pub const IW_WC_BAD_RESP_ERR: u32 = 4;
/// The request cannot be carried out on this queue pair.
pub const IW_WC_LOC_QP_OP_ERR: u32 = 5;
/// Something else went wrong.
pub const IW_WC_GENERAL_ERR: u32 = 6;
/// A window or fast region cannot be bound so: it is bound already or has been destroyed, the rights are none that it or the
/// memory gives, or the piece is not within memory of its protection domain.
pub const IW_WC_MW_BIND_ERR: u32 = 7;

/// A Send of any kind.
pub const IW_WC_SEND: u32 = 0;
/// An RDMA Write.
pub const IW_WC_WRITE: u32 = 1;
/// An RDMA Read.
pub const IW_WC_READ: u32 = 2;
/// A receive, by a Send.
pub const IW_WC_RECV: u32 = 3;
/// A receive that Immediate Data took: nothing is in its memory, the eight octets are in `immediate`.
pub const IW_WC_RECV_IMMEDIATE: u32 = 4;
/// Immediate Data of ours.
pub const IW_WC_IMMEDIATE: u32 = 5;
/// An atomic operation.
pub const IW_WC_ATOMIC: u32 = 6;
/// The end of a steering tag of ours.
pub const IW_WC_INVALIDATE: u32 = 7;
/// A window's binding.
pub const IW_WC_BIND: u32 = 8;
/// A fast registration.
pub const IW_WC_FAST_REGISTER: u32 = 9;

/// The Send that was received asked for an event.
pub const IW_WC_FLAG_SOLICITED: u32 = 1;
/// The Send that was received ended the steering tag in `invalidated_stag`.
pub const IW_WC_FLAG_INVALIDATED: u32 = 2;
/// An atomic operation of `iw_atomic`: the word as it was is in `immediate`.
pub const IW_WC_FLAG_LOCAL_ATOMIC: u32 = 4;

/// The end of one work request.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_wc {
    /// The number that was posted.
    pub wr_id: u64,
    /// The queue pair's number (`iw_qp_info`); with IW_WC_FLAG_LOCAL_ATOMIC 0.
    pub qp_num: u32,
    /// Bytes of the message, where the status is IW_WC_SUCCESS.
    pub byte_len: u32,
    /// What became of it: IW_WC_SUCCESS to IW_WC_MW_BIND_ERR.
    pub status: u32,
    /// What it was: IW_WC_SEND to IW_WC_FAST_REGISTER.
    pub opcode: u32,
    /// IW_WC_FLAG_SOLICITED, IW_WC_FLAG_INVALIDATED, IW_WC_FLAG_LOCAL_ATOMIC.
    pub flags: u32,
    /// With IW_WC_FLAG_INVALIDATED, the steering tag.
    pub invalidated_stag: u32,
    /// With IW_WC_RECV_IMMEDIATE, the eight octets; with IW_WC_FLAG_LOCAL_ATOMIC, the bytes of a uint64_t, to be copied into one.
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
