//! Atomic operations of the program on its own registered memory, executed by the cores that own
//! the words.

use verbs::{AtomicOp, Region};

use super::{Memory, already_deregistered, iw_mr};
use crate::boundary::{ApiError, call, read, with, write_out, *};
use crate::objects::context::iw_ctx;
use crate::objects::post::{IW_WR_CMP_SWAP, IW_WR_FETCH_ADD, IW_WR_SWAP};
use crate::objects::queues::iw_cq;

/// An atomic operation, with the operands of the request to a peer.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_atomic_op {
    /// IW_WR_FETCH_ADD, IW_WR_CMP_SWAP or IW_WR_SWAP.
    pub opcode: u32,
    /// Not used.
    pub reserved: u32,
    /// As in `iw_send_wr`.
    pub compare_add: u64,
    /// As above.
    pub compare_add_mask: u64,
    /// As above.
    pub swap: u64,
    /// As above.
    pub swap_mask: u64,
}

/// Executes an atomic operation on the 8-byte word at `offset` bytes of local memory, atomically
/// with those of all peers. Plain accesses are not atomic with it. The memory needs
/// IW_ACCESS_LOCAL_WRITE; no connection and no extension is needed.
///
/// The owner core of the word executes it, so its worker must be polled. An IW_WC_ATOMIC with
/// IW_WC_FLAG_LOCAL_ATOMIC is added to `cq`, with the word's value before. Operations on words of
/// one cache line execute in the order of the calls. If the memory is deregistered before, the
/// completion has IW_WC_LOC_PROT_ERR.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_atomic(
    ctx: *mut iw_ctx,
    cq: iw_cq,
    wr_id: u64,
    mr: *const iw_mr,
    offset: usize,
    op: *const iw_atomic_op,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let operation = read(op, "op")?.to_rust()?;
        with(ctx, |context| {
            with(mr, |memory| {
                let word = (memory.registered()?, offset);
                Ok(context.atomic(cq.to_rust(), wr_id, word, &operation)?)
            })
        })
    })
}

/// Returns the core that executes atomic operations on a word. Not meaningful with
/// `rdmap.atomic_execution = "locked"` and for lines that the owner shares
/// (`rdmap.atomic_share_after`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_owner_core(
    ctx: *mut iw_ctx,
    mr: *const iw_mr,
    offset: usize,
    core: *mut u32,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let owner =
            with(ctx, |context| with(mr, |memory| Ok(context.owner_core(memory.registered()?, offset)?)))?;
        write_out(core, "core", owner.into())
    })
}

impl Memory {
    fn registered(&self) -> Result<&Region, ApiError> {
        match self {
            Memory::Registered(region) => Ok(region),
            _ => Err(already_deregistered()),
        }
    }
}

impl iw_atomic_op {
    fn to_rust(self) -> Result<AtomicOp, ApiError> {
        let iw_atomic_op { opcode, compare_add, compare_add_mask, swap, swap_mask, .. } = self;
        Ok(match opcode {
            IW_WR_FETCH_ADD => AtomicOp::FetchAdd { add: compare_add, mask: compare_add_mask },
            IW_WR_CMP_SWAP => {
                AtomicOp::CmpSwap { compare: compare_add, compare_mask: compare_add_mask, swap, swap_mask }
            }
            IW_WR_SWAP => AtomicOp::Swap { swap },
            other => {
                let allowed = "IW_WR_FETCH_ADD, IW_WR_CMP_SWAP or IW_WR_SWAP";
                return Err(fault!(IW_E_VALUE, "op.opcode = {other}: {allowed}"));
            }
        })
    }
}
