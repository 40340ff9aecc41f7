//! `ibv_poll_cq`: takes completions from the stack's queue and runs the worker if there are none.

use core::ffi::c_int;

use verbs::batch::reap;
use verbs::{Completion, CompletionFlags, CompletionOpcode, CompletionQueue, CompletionStatus};

use crate::device::Device;
use crate::engine::{EINVAL, Outcome, State, lock};
use crate::sys;

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut sys::ibv_cq, count: c_int, into: *mut sys::ibv_wc) -> c_int {
    // SAFETY: the program passes memory for as many completions.
    let outcome = unsafe { try_poll_cq(cq, count, into) };
    outcome.unwrap_or_else(|errno| -errno.0)
}

/// # Safety
/// `into` has room for `count` completions.
unsafe fn try_poll_cq(cq: *mut sys::ibv_cq, count: c_int, into: *mut sys::ibv_wc) -> Outcome<c_int> {
    let wanted = usize::try_from(count).map_err(|_| EINVAL)?;
    let mut state = lock()?;
    let queue = state.pools.cqs.get(cq)?;
    let (mut taken, handle) = (0, queue.handle);
    if !queue.backlog.is_empty() {
        while let Some(completion) = (taken < wanted).then(|| queue.backlog.pop_front()).flatten() {
            // SAFETY: guaranteed by the caller.
            unsafe { into.add(taken).write(convert(&completion)) };
            taken += 1;
        }
    }
    // SAFETY: as above.
    taken += unsafe { take(&mut state, handle, wanted - taken, into.wrapping_add(taken))? };
    if taken == 0 && wanted > 0 {
        state.advance_for_program();
        // SAFETY: as above.
        taken = unsafe { take(&mut state, handle, wanted, into)? };
    }
    Ok(taken as c_int)
}

/// # Safety
/// `into` has room for `wanted` completions.
#[inline(always)]
unsafe fn take(
    state: &mut State,
    cq: CompletionQueue,
    wanted: usize,
    into: *mut sys::ibv_wc,
) -> Outcome<usize> {
    let Device { context: stack, reaped, .. } = state.device()?;
    let mut at = into;
    reap(
        wanted,
        reaped,
        |some| Ok(stack.poll_cq(cq, some)?),
        |completion| {
            // SAFETY: guaranteed by the caller.
            unsafe { at.write(convert(completion)) };
            at = at.wrapping_add(1);
        },
    )
}

fn convert(completion: &Completion) -> sys::ibv_wc {
    let mut wc = sys::ibv_wc {
        wr_id: completion.wr_id,
        status: status(completion.status),
        opcode: opcode(completion.opcode),
        byte_len: completion.byte_len,
        qp_num: completion.qp.0,
        ..Default::default()
    };
    if completion.opcode == CompletionOpcode::ReceiveImmediate {
        let [a, b, c, d, length @ ..] = completion.immediate;
        wc.wc_flags = sys::IBV_WC_WITH_IMM;
        wc.__bindgen_anon_1.imm_data = u32::from_ne_bytes([a, b, c, d]);
        // A peer of this library sends the length of the Write there, others zeros.
        wc.byte_len = u32::from_be_bytes(length);
    }
    if completion.opcode == CompletionOpcode::Immediate && completion.status == CompletionStatus::Success {
        // Of a Write with Immediate Data, the bytes that were written.
        let [_, _, _, _, length @ ..] = completion.immediate;
        wc.byte_len = u32::from_be_bytes(length);
    }
    if completion.flags.contains(CompletionFlags::INVALIDATED) {
        wc.wc_flags |= sys::IBV_WC_WITH_INV;
        wc.__bindgen_anon_1.invalidated_rkey = completion.invalidated.0;
    }
    wc
}

fn status(status: CompletionStatus) -> sys::ibv_wc_status {
    match status {
        CompletionStatus::Success => sys::IBV_WC_SUCCESS,
        CompletionStatus::FlushedInError => sys::IBV_WC_WR_FLUSH_ERR,
        CompletionStatus::LocalLength => sys::IBV_WC_LOC_LEN_ERR,
        CompletionStatus::LocalProtection => sys::IBV_WC_LOC_PROT_ERR,
        CompletionStatus::BadResponse => sys::IBV_WC_BAD_RESP_ERR,
        CompletionStatus::LocalOperation => sys::IBV_WC_LOC_QP_OP_ERR,
        CompletionStatus::MemoryBind => sys::IBV_WC_MW_BIND_ERR,
        _ => sys::IBV_WC_GENERAL_ERR,
    }
}

fn opcode(opcode: CompletionOpcode) -> sys::ibv_wc_opcode {
    match opcode {
        CompletionOpcode::Send => sys::IBV_WC_SEND,
        // The Immediate Data of a Write with Immediate Data.
        CompletionOpcode::Write | CompletionOpcode::Immediate => sys::IBV_WC_RDMA_WRITE,
        CompletionOpcode::Read => sys::IBV_WC_RDMA_READ,
        CompletionOpcode::Receive => sys::IBV_WC_RECV,
        CompletionOpcode::ReceiveImmediate => sys::IBV_WC_RECV_RDMA_WITH_IMM,
        CompletionOpcode::FetchAdd => sys::IBV_WC_FETCH_ADD,
        CompletionOpcode::CmpSwap | CompletionOpcode::Swap => sys::IBV_WC_COMP_SWAP,
        CompletionOpcode::Invalidate => sys::IBV_WC_LOCAL_INV,
        CompletionOpcode::Bind | CompletionOpcode::FastRegister => sys::IBV_WC_BIND_MW,
    }
}
