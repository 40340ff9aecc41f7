//! Protection domains and memory regions.
//!
//! A tagged offset is an address, as in verbs, and one steering tag serves as local and as remote
//! key. Memory is not pinned: the worker copies by the processor.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::NonNull;

use verbs::{Access, ProtectionDomain, RawMemory, Region};

use crate::engine::{
    EBUSY, EFAULT, EINVAL, EOPNOTSUPP, Outcome, State, as_number, as_pointer, set_errno, unblock_faults, with,
};
use crate::sys;

#[repr(C)]
pub(crate) struct Pd {
    raw: sys::ibv_pd,
    pub(crate) domain: ProtectionDomain,
    /// Objects in it.
    pub(crate) users: u32,
    /// What windows without memory are bound to: a region that grants nothing, once a window needed
    /// it.
    pub(super) nothing: Option<Region>,
}

object!(Pd = sys::ibv_pd);

#[repr(C)]
pub(crate) struct Mr {
    pub(super) raw: sys::ibv_mr,
    pub(super) region: Region,
}

object!(Mr = sys::ibv_mr);

/// Flags that a device may ignore: those of the range that the kernel's ABI reserves for them, and
/// the size of pages.
const OPTIONAL: c_uint = 0x3ff0_0000 | sys::IBV_ACCESS_HUGETLB;

#[unsafe(no_mangle)]
extern "C" fn ibv_alloc_pd(context: *mut sys::ibv_context) -> *mut sys::ibv_pd {
    as_pointer(with(|state| state.alloc_pd(context)))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dealloc_pd(pd: *mut sys::ibv_pd) -> c_int {
    as_number(with(|state| {
        let users = state.pools.pds.get(pd)?.users;
        if users > 0 {
            return Err(EBUSY);
        }
        state.pools.pds.take(pd);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_reg_mr(
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut sys::ibv_mr {
    as_pointer(with(|state| state.register(pd, addr, length, access as c_uint)))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_reg_mr_iova(
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut sys::ibv_mr {
    ibv_reg_mr_iova2(pd, addr, length, iova, access as c_uint)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_reg_mr_iova2(
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut sys::ibv_mr {
    if iova != addr as u64 {
        set_errno(libc::EOPNOTSUPP);
        return core::ptr::null_mut();
    }
    as_pointer(with(|state| state.register(pd, addr, length, access)))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dereg_mr(mr: *mut sys::ibv_mr) -> c_int {
    as_number(with(|state| state.deregister(mr)))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_rereg_mr(
    mr: *mut sys::ibv_mr,
    _flags: c_int,
    _pd: *mut sys::ibv_pd,
    _addr: *mut c_void,
    _length: usize,
    _access: c_int,
) -> c_int {
    // Unlike the other calls, this one has codes of its own: the input is invalid, the region is
    // unchanged.
    let known = with(|state| state.pools.mrs.get(mr).map(drop));
    set_errno(known.map_or(libc::EINVAL, |()| libc::EOPNOTSUPP));
    sys::IBV_REREG_MR_ERR_INPUT as c_int
}

impl State {
    pub(crate) fn alloc_pd(&mut self, context: *mut sys::ibv_context) -> Outcome<*mut sys::ibv_pd> {
        self.context(context)?;
        let domain = self.device()?.context.alloc_pd();
        Ok(self.pools.pds.insert(Pd {
            raw: sys::ibv_pd { context, handle: 0 },
            domain,
            users: 0,
            nothing: None,
        }))
    }

    fn register(
        &mut self,
        pd: *mut sys::ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_uint,
    ) -> Outcome<*mut sys::ibv_mr> {
        let access = parse_access(access)?;
        if length == 0 {
            return Err(EINVAL);
        }
        let base = NonNull::new(addr.cast::<u8>()).ok_or(EFAULT)?;
        let domain = self.pools.pds.get(pd)?.domain;
        // SAFETY: the program keeps the memory until it has deregistered it, as the manual page
        // demands.
        let memory = unsafe { RawMemory::new(base, length) };
        // A right that needs another one is refused before the memory is looked at, as the kernel
        // does.
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
            && !access.contains(Access::LOCAL_WRITE)
        {
            return Err(EINVAL);
        }
        memory.check(access).map_err(|_| EFAULT)?;
        let device = self.device()?;
        if device.catches_faults {
            unblock_faults();
        }
        let region = device.context.register(domain, memory, access)?;
        let owner = self.pools.pds.get(pd)?;
        owner.users += 1;
        let key = region.stag().0;
        let raw = sys::ibv_mr {
            context: owner.raw.context,
            pd,
            addr,
            length: length as _,
            handle: key,
            lkey: key,
            rkey: key,
        };
        Ok(self.pools.mrs.insert(Mr { raw, region }))
    }

    /// Returns when no access to the memory takes place any more. Fails with EBUSY while a window
    /// is bound to it, or if an access does not end: the region has no key then, and the program
    /// may try again.
    fn deregister(&mut self, mr: *mut sys::ibv_mr) -> Outcome {
        if self.has_window_over(mr) {
            return Err(EBUSY);
        }
        let quiescence = self.pools.mrs.get(mr)?.region.revoke();
        if !self.advance_until(|_| quiescence.poll()) {
            return Err(EBUSY);
        }
        self.forget_mr(mr);
        let Mr { raw, region } = self.pools.mrs.take(mr).ok_or(EINVAL)?;
        drop(region.deregister());
        if let Some(pd) = self.pools.pds.find(raw.pd) {
            pd.users -= 1;
        }
        Ok(())
    }
}

impl Pd {
    pub(crate) fn raw_context(&self) -> *mut sys::ibv_context {
        self.raw.context
    }
}

pub(super) fn parse_access(flags: c_uint) -> Outcome<Access> {
    const NAMES: [(c_uint, Access); 5] = [
        (sys::IBV_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
        (sys::IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (sys::IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
        (sys::IBV_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
        (sys::IBV_ACCESS_MW_BIND, Access::BIND),
    ];
    let known = NAMES.iter().fold(OPTIONAL, |all, (flag, _)| all | flag);
    if flags & !known != 0 {
        return Err(EOPNOTSUPP);
    }
    let chosen = NAMES.iter().filter(|(flag, _)| flags & flag != 0);
    Ok(chosen.fold(Access::empty(), |all, (_, access)| all | *access))
}
