//! Registered memory: the program's own, or pages that the library allocates.

mod atomic;
mod window;

use core::ffi::c_void;
use core::ptr::NonNull;

use verbs::{Access, AlignedBuf, Context, Quiescence, RawMemory, Region};

use super::context::{iw_ctx, iw_pd};
use super::queues::iw_qp;
use crate::boundary::{ApiError, Slot, call, close_handle, create_handle, with, write_out, write_sized, *};
pub use atomic::*;
pub use window::*;

/// Registered memory. Any thread may use the handle, one at a time. It outlives its context.
pub struct iw_mr(Slot<Memory>);

/// The object behind the handle.
pub(crate) enum Memory {
    /// Registered.
    Registered(Region),
    /// Its tag is invalid, and cores may still finish a copy.
    Deregistering(Quiescence),
    /// Taken, during a call.
    Moved,
}

handle_kind!(iw_mr, Memory, 4, "the memory");

/// Receives and Read Responses may be placed here.
pub const IW_ACCESS_LOCAL_WRITE: u32 = 1;
/// The peer may read it.
pub const IW_ACCESS_REMOTE_READ: u32 = 2;
/// The peer may write it. Requires IW_ACCESS_LOCAL_WRITE.
pub const IW_ACCESS_REMOTE_WRITE: u32 = 4;
/// The peer may execute atomic operations on it. Requires IW_ACCESS_LOCAL_WRITE.
pub const IW_ACCESS_REMOTE_ATOMIC: u32 = 8;
/// Memory windows and fast regions may be bound to it, with any rights; those that write require
/// IW_ACCESS_LOCAL_WRITE here.
pub const IW_ACCESS_BIND: u32 = 16;

/// The names of registered memory. Set `size` before the call. It is no message for a peer: a
/// program sends the numbers that the peer needs in an order of its own.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_mr_info {
    /// sizeof(struct iw_mr_info).
    pub size: u32,
    /// The steering tag: the `lkey` of an element, and the number for the peer.
    pub stag: u32,
    /// The tagged offset of the first byte, in work requests and for the peer: the address of that
    /// byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// IW_ACCESS_*.
    pub access: u32,
    /// Not used.
    pub reserved: u32,
}

/// Registers memory of the program: a pool of huge pages, a mapping, its heap. The program keeps
/// it; nothing is copied or freed. Fails with IW_E_MEMORY if a byte is not mapped, or may not be
/// read, or not be written where `access` lets the program or its peer write.
///
/// The bytes must stay valid until `iw_mr_poll_deregistered` returns 1. Until a completion or a
/// message of the peer shows that an operation is done, the program must not access bytes that the
/// operation may write, and must not change bytes that it may read.
///
/// # Safety
/// `ctx` is null or a handle of this library. `address` is null or points to `length` bytes that
/// fulfil the conditions above. `out` is null or valid for writes of one pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mr_register(
    ctx: *mut iw_ctx,
    pd: iw_pd,
    address: *mut c_void,
    length: usize,
    access: u32,
    out: *mut *mut iw_mr,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        register(ctx, address, length, access, out, |context, memory, access| {
            Ok(context.register(pd.to_rust(), memory, access)?)
        })
    }
}

/// As `iw_mr_register`, for one queue pair only, whose peer may invalidate the tag by a Send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mr_register_for_qp(
    ctx: *mut iw_ctx,
    qp: iw_qp,
    address: *mut c_void,
    length: usize,
    access: u32,
    out: *mut *mut iw_mr,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        register(ctx, address, length, access, out, |context, memory, access| {
            Ok(context.register_for_qp(qp.to_rust(), memory, access)?)
        })
    }
}

/// As `iw_mr_register`, with all words owned by one core: atomic operations on them execute there,
/// instead of on the core that each cache line's hash selects. This avoids messages between cores
/// if all connections that use a word are on one core.
///
/// Bytes that are registered several times must be pinned to the same core each time; otherwise the
/// call fails with IW_E_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mr_register_on_core(
    ctx: *mut iw_ctx,
    pd: iw_pd,
    address: *mut c_void,
    length: usize,
    access: u32,
    core: u32,
    out: *mut *mut iw_mr,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        register(ctx, address, length, access, out, |context, memory, access| {
            let there = u16::try_from(core).ok().filter(|core| usize::from(*core) < context.limits().cores);
            let wrong = || fault!(IW_E_VALUE, "core = {core}: below iw_stack_cores");
            Ok(context.register_on_core(pd.to_rust(), memory, access, there.ok_or_else(wrong)?)?)
        })
    }
}

/// Registers memory of the program in one of several ways, and creates the handle.
///
/// # Safety
/// As for `iw_mr_register`.
unsafe fn register(
    ctx: *mut iw_ctx,
    address: *mut c_void,
    length: usize,
    access: u32,
    out: *mut *mut iw_mr,
    register_fn: impl FnOnce(&mut Context, RawMemory, Access) -> Result<Region, ApiError>,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        create_handle(out, "out", || {
            let (memory, access) = (raw_memory(address, length)?, parse_access(access)?);
            memory.check(access).map_err(|absent| ApiError::with_detail(IW_E_MEMORY, absent))?;
            with(ctx, |context| register_fn(context, memory, access)).map(Memory::Registered)
        })
    }
}

/// Allocates and registers `length` zeroed bytes at a multiple of 4096, and stores their address.
/// They are freed soon after `iw_mr_poll_deregistered` returns 1; until then the conditions of
/// `iw_mr_register` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mr_alloc(
    ctx: *mut iw_ctx,
    pd: iw_pd,
    length: usize,
    access: u32,
    address: *mut *mut c_void,
    out: *mut *mut iw_mr,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        create_handle(out, "out", || {
            write_out(address, "address", core::ptr::null_mut())?;
            let access = parse_access(access)?;
            let pages = AlignedBuf::pages(length);
            let mut pages = pages.map_err(|error| ApiError::with_detail(IW_E_MEMORY, error))?;
            let bytes = pages.as_mut_ptr();
            let region = with(ctx, |context| Ok(context.register(pd.to_rust(), pages, access)?))?;
            write_out(address, "address", bytes.cast())?;
            Ok(Memory::Registered(region))
        })
    }
}

/// Returns the names of the memory. Fails with IW_E_STATE after deregistration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mr_query(mr: *const iw_mr, out: *mut iw_mr_info) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let info = with(mr, |memory| match memory {
            Memory::Registered(region) => Ok(iw_mr_info {
                size: 0,
                reserved: 0,
                offset: region.base_to(),
                length: region.len() as u64,
                stag: region.stag().0,
                access: region.access().bits().into(),
            }),
            _ => Err(already_deregistered()),
        })?;
        write_sized(out, "out", info)
    })
}

/// Invalidates the tag at once: no later message and no later request can use it. Cores may still
/// finish a copy; the bytes are in use until `iw_mr_poll_deregistered` returns 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mr_deregister(mr: *mut iw_mr) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        with(mr, |memory| match core::mem::replace(memory, Memory::Moved) {
            Memory::Registered(region) => {
                *memory = Memory::Deregistering(region.deregister());
                Ok(())
            }
            other => {
                *memory = other;
                Err(already_deregistered())
            }
        })
    })
}

/// After `iw_mr_deregister`: returns 1 if the memory is unused, and the handle ends; returns 0 if
/// not. Poll the workers and call again. A worker that is not polled does not delay it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mr_poll_deregistered(mr: *mut iw_mr) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let over = with(mr, |memory| match memory {
            Memory::Deregistering(token) => Ok(token.poll()),
            _ => Err(fault!(IW_E_STATE, "the memory is registered: iw_mr_deregister comes first")),
        })?;
        if over {
            drop(close_handle(mr)?);
        }
        Ok(over)
    })
}

fn already_deregistered() -> ApiError {
    fault!(IW_E_STATE, "the memory's end has been asked for")
}

pub(super) fn parse_access(access: u32) -> Result<Access, ApiError> {
    const KNOWN: Access = Access::LOCAL_WRITE
        .union(Access::REMOTE_READ)
        .union(Access::REMOTE_WRITE)
        .union(Access::REMOTE_ATOMIC)
        .union(Access::BIND);
    let bits = u16::try_from(access).ok().and_then(Access::from_bits).filter(|all| KNOWN.contains(*all));
    bits.ok_or_else(|| fault!(IW_E_VALUE, "access = {access}: IW_ACCESS_*"))
}

const _: () = {
    assert!(Access::LOCAL_WRITE.bits() as u32 == IW_ACCESS_LOCAL_WRITE);
    assert!(Access::REMOTE_READ.bits() as u32 == IW_ACCESS_REMOTE_READ);
    assert!(Access::REMOTE_WRITE.bits() as u32 == IW_ACCESS_REMOTE_WRITE);
    assert!(Access::REMOTE_ATOMIC.bits() as u32 == IW_ACCESS_REMOTE_ATOMIC);
    assert!(Access::BIND.bits() as u32 == IW_ACCESS_BIND);
};

/// # Safety
/// As for `iw_mr_register`.
unsafe fn raw_memory(address: *mut c_void, length: usize) -> Result<RawMemory, ApiError> {
    let base = NonNull::new(address.cast()).ok_or_else(|| fault!(IW_E_POINTER, "address is null"))?;
    if length > isize::MAX as usize {
        return Err(fault!(IW_E_VALUE, "length is longer than the address space"));
    }
    // SAFETY: guaranteed by the caller. C has no references; the program accesses the bytes as the
    // function's text states.
    Ok(unsafe { RawMemory::new(base, length) })
}
