//! Registered memory: the program's own, or pages of the library's.

mod atomic;
mod window;

use core::ffi::c_void;
use core::ptr::NonNull;

use verbs::{Access, AlignedBuf, Context, Quiescence, RawMemory, Region};

use super::context::{iw_ctx, iw_pd};
use super::queues::iw_qp;
use crate::boundary::{ApiError, Slot, alloc_handle, call, close_handle, with, write_out, *};
pub(super) use window::{iw_fast_mr, iw_mw};

/// Registered memory. Any thread may use the handle, one at a time; it outlives the context that made it.
pub struct iw_mr(Slot<Memory>);

/// What is behind the handle.
pub(crate) enum Memory {
    /// Registered.
    Registered(Region),
    /// Its tag has ended, and cores may still be finishing.
    Deregistering(Quiescence),
    /// Neither, for the length of a call.
    Moved,
}

handle_kind!(iw_mr, Memory, 4, "the memory");

/// Receives and answers to Reads may be placed here.
pub const IW_ACCESS_LOCAL_WRITE: u32 = 1;
/// The peer may read it.
pub const IW_ACCESS_REMOTE_READ: u32 = 2;
/// The peer may write it. Asks for IW_ACCESS_LOCAL_WRITE too.
pub const IW_ACCESS_REMOTE_WRITE: u32 = 4;
/// The peer may run atomic operations on it. Asks for IW_ACCESS_LOCAL_WRITE too.
pub const IW_ACCESS_REMOTE_ATOMIC: u32 = 8;
/// Memory windows and fast regions may be bound to it, with any rights; such as write ask for IW_ACCESS_LOCAL_WRITE here.
pub const IW_ACCESS_BIND: u32 = 16;

/// How registered memory is named.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_mr_info {
    /// The tagged offset of its first byte, in work requests and at the peer: the address of that byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The steering tag: `lkey` of an element, and the number that the peer gets.
    pub stag: u32,
    /// IW_ACCESS_*.
    pub access: u32,
}

/// Registers memory of the program's own: a pool of huge pages, a mapping, its heap. It stays the program's: nothing is
/// copied, and nothing is freed.
///
/// From now until `iw_mr_poll_deregistered` answers 1 the bytes stay valid. The program does not touch bytes that a posted request
/// may write or that a peer may write, and does not change bytes that a posted request may read, until their completion
/// or the peer's word says that they are done with.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `address` is null or leads to `length` bytes for which what is said
/// above holds; `out` is null or good for one pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mr_register(
    ctx: *mut iw_ctx,
    pd: iw_pd,
    address: *mut c_void,
    length: usize,
    access: u32,
    out: *mut *mut iw_mr,
) -> i32 {
    // SAFETY: the caller's promise, handed on.
    unsafe {
        register(ctx, address, length, access, out, |context, memory, access| {
            Ok(context.register(pd.to_rust(), memory, access)?)
        })
    }
}

/// As `iw_mr_register`, for one queue pair alone, whose peer may end the tag by a Send that invalidates it.
///
/// # Safety
/// As for `iw_mr_register`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mr_register_for_qp(
    ctx: *mut iw_ctx,
    qp: iw_qp,
    address: *mut c_void,
    length: usize,
    access: u32,
    out: *mut *mut iw_mr,
) -> i32 {
    // SAFETY: the caller's promise, handed on.
    unsafe {
        register(ctx, address, length, access, out, |context, memory, access| {
            Ok(context.register_for_qp(qp.to_rust(), memory, access)?)
        })
    }
}

/// As `iw_mr_register`, with all words owned by one core: atomic operations on them are done there and nowhere else, instead
/// of where each cache line's hash says. Spares mail between cores where the connections that use a word live on one.
///
/// Bytes that are registered more than once are pinned alike each time; IW_E_MEMORY otherwise.
///
/// # Safety
/// As for `iw_mr_register`.
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
    // SAFETY: the caller's promise, handed on.
    unsafe {
        register(ctx, address, length, access, out, |context, memory, access| {
            let there = u16::try_from(core).ok().filter(|core| usize::from(*core) < context.limits().cores);
            let wrong =
                || ApiError::with_detail(IW_E_VALUE, format_args!("core = {core}: below iw_stack_cores"));
            Ok(context.register_on_core(pd.to_rust(), memory, access, there.ok_or_else(wrong)?)?)
        })
    }
}

/// Registers memory of the program's in one of the ways that there are, and gives it out.
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
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        write_out(out, "out", core::ptr::null_mut())?;
        let (memory, access) = (raw_memory(address, length)?, parse_access(access)?);
        let region = with(ctx, |context| register_fn(context, memory, access))?;
        write_out(out, "out", alloc_handle(Memory::Registered(region)))?;
        Ok(IW_OK)
    })
}

/// Registers `length` zeroed bytes of the library's, at a multiple of 4096, and tells their address. They are freed soon
/// after `iw_mr_poll_deregistered` answers 1; until then what `iw_mr_register` says of the bytes holds.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `address` and `out` are null or good for one pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mr_alloc(
    ctx: *mut iw_ctx,
    pd: iw_pd,
    length: usize,
    access: u32,
    address: *mut *mut c_void,
    out: *mut *mut iw_mr,
) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        write_out(out, "out", core::ptr::null_mut())?;
        write_out(address, "address", core::ptr::null_mut())?;
        let access = parse_access(access)?;
        let mut pages =
            AlignedBuf::pages(length).map_err(|error| ApiError::with_detail(IW_E_MEMORY, error))?;
        let bytes = pages.as_mut_ptr();
        let region = with(ctx, |context| Ok(context.register(pd.to_rust(), pages, access)?))?;
        write_out(address, "address", bytes.cast())?;
        write_out(out, "out", alloc_handle(Memory::Registered(region)))?;
        Ok(IW_OK)
    })
}

/// How the memory is named. IW_E_STATE once its end has been asked for.
///
/// # Safety
/// `mr` is null or a handle that this library gave out; `out` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mr_query(mr: *const iw_mr, out: *mut iw_mr_info) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let info = with(mr, |memory| match memory {
            Memory::Registered(region) => Ok(iw_mr_info {
                offset: region.base_to(),
                length: region.len() as u64,
                stag: region.stag().0,
                access: region.access().bits().into(),
            }),
            _ => Err(already_deregistered()),
        })?;
        write_out(out, "out", info)?;
        Ok(IW_OK)
    })
}

/// Ends the tag at once: no later message and no later request can use it. Cores may be finishing a copy: the bytes are in
/// use until `iw_mr_poll_deregistered` says otherwise.
///
/// # Safety
/// `mr` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mr_deregister(mr: *mut iw_mr) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        with(mr, |memory| match core::mem::replace(memory, Memory::Moved) {
            Memory::Registered(region) => {
                *memory = Memory::Deregistering(region.deregister());
                Ok(IW_OK)
            }
            other => {
                *memory = other;
                Err(already_deregistered())
            }
        })
    })
}

/// Whether nobody uses the memory any more, after `iw_mr_deregister`: 1, and the handle has ended, or 0, and it is to be asked
/// again when the workers have been polled once more. A worker that nobody polls does not hold it up.
///
/// # Safety
/// `mr` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mr_poll_deregistered(mr: *mut iw_mr) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let over = with(mr, |memory| match memory {
            Memory::Deregistering(token) => Ok(token.poll()),
            _ => Err(ApiError::with_detail(
                IW_E_STATE,
                "the memory is registered: iw_mr_deregister comes first",
            )),
        })?;
        if over {
            drop(close_handle(mr)?);
        }
        Ok(over.into())
    })
}

fn already_deregistered() -> ApiError {
    ApiError::with_detail(IW_E_STATE, "the memory's end has been asked for")
}

pub(super) fn parse_access(access: u32) -> Result<Access, ApiError> {
    const KNOWN: Access = Access::LOCAL_WRITE
        .union(Access::REMOTE_READ)
        .union(Access::REMOTE_WRITE)
        .union(Access::REMOTE_ATOMIC)
        .union(Access::BIND);
    let bits = u16::try_from(access).ok().and_then(Access::from_bits).filter(|all| KNOWN.contains(*all));
    bits.ok_or_else(|| ApiError::with_detail(IW_E_VALUE, format_args!("access = {access}: IW_ACCESS_*")))
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
    let base =
        NonNull::new(address.cast()).ok_or_else(|| ApiError::with_detail(IW_E_POINTER, "address is null"))?;
    if length > isize::MAX as usize {
        return Err(ApiError::with_detail(IW_E_VALUE, "length is longer than the address space"));
    }
    // SAFETY: the caller's promise. C has no references; it reads and writes as the function's text says.
    Ok(unsafe { RawMemory::new(base, length) })
}
