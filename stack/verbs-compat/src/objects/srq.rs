//! Shared receive queues.

use core::ffi::c_int;

use verbs::{RecvWr, SharedReceiveQueue};

use super::post;
use crate::device::AsyncSource;
use crate::engine::{EBUSY, EINVAL, EOPNOTSUPP, Outcome, State, as_number, as_pointer, lock_when, with};
use crate::sys;

#[repr(C)]
pub(crate) struct Srq {
    raw: sys::ibv_srq,
    pub(crate) handle: SharedReceiveQueue,
    /// Its capacity in receives.
    pub(crate) depth: u32,
    /// The limit that is armed; 0: none.
    limit: u32,
    pub(crate) users: u32,
    pub(crate) unacked_async: i32,
}

object!(Srq = sys::ibv_srq);

#[unsafe(no_mangle)]
extern "C" fn ibv_create_srq(pd: *mut sys::ibv_pd, init: *mut sys::ibv_srq_init_attr) -> *mut sys::ibv_srq {
    as_pointer(with(|state| {
        // SAFETY: the program passes null or its attributes, which get the actual sizes.
        let init = unsafe { init.as_mut() }.ok_or(EINVAL)?;
        state.create_srq(pd, init)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_modify_srq(srq: *mut sys::ibv_srq, attr: *mut sys::ibv_srq_attr, mask: c_int) -> c_int {
    as_number(with(|state| {
        // SAFETY: the program passes null or its attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(EINVAL)?;
        let found = state.pools.srqs.get(srq)?;
        if mask as u32 & sys::IBV_SRQ_MAX_WR != 0 {
            return Err(EOPNOTSUPP);
        }
        if mask as u32 & sys::IBV_SRQ_LIMIT != 0 {
            if attr.srq_limit > found.depth {
                return Err(EINVAL);
            }
            let (handle, limit) = (found.handle, attr.srq_limit);
            // An event of the limit before comes first, and ends that one.
            state.advance();
            state.device()?.context.arm_srq(handle, limit)?;
            state.pools.srqs.get(srq)?.limit = limit;
            // It may be passed already.
            state.advance();
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_query_srq(srq: *mut sys::ibv_srq, attr: *mut sys::ibv_srq_attr) -> c_int {
    as_number(with(|state| {
        // SAFETY: the program passes null or memory for the attributes.
        let attr = unsafe { attr.as_mut() }.ok_or(EINVAL)?;
        let found = state.pools.srqs.get(srq)?;
        let (handle, srq_limit) = (found.handle, found.limit);
        let info = state.device()?.context.query_srq(handle)?;
        *attr = sys::ibv_srq_attr { max_wr: info.depth, max_sge: info.max_sge as u32, srq_limit };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_destroy_srq(srq: *mut sys::ibv_srq) -> c_int {
    as_number(destroy_srq(srq))
}

/// Waits until all events of the queue are acknowledged. A call that fails has changed nothing.
pub(crate) fn destroy_srq(srq: *mut sys::ibv_srq) -> Outcome {
    with(|state| state.check_srq_unused(srq))?;
    let mut state = lock_when(|state| state.pools.srqs.find(srq).is_none_or(|srq| srq.unacked_async <= 0))?;
    // A queue pair may have begun to use it meanwhile.
    let handle = state.check_srq_unused(srq)?;
    state.control(|stack| stack.destroy_srq(handle))?;
    state.remove_async(AsyncSource::Srq(srq));
    let removed = state.pools.srqs.take(srq).ok_or(EINVAL)?;
    state.srqs.retain(|other| *other != srq);
    if let Some(pd) = state.pools.pds.find(removed.raw.pd) {
        pd.users -= 1;
    }
    Ok(())
}

impl State {
    /// Fails with EBUSY while a queue pair uses a queue.
    fn check_srq_unused(&mut self, srq: *mut sys::ibv_srq) -> Outcome<SharedReceiveQueue> {
        let found = self.pools.srqs.get(srq)?;
        if found.users > 0 { Err(EBUSY) } else { Ok(found.handle) }
    }

    pub(crate) fn create_srq(
        &mut self,
        pd: *mut sys::ibv_pd,
        init: &mut sys::ibv_srq_init_attr,
    ) -> Outcome<*mut sys::ibv_srq> {
        let domain = self.pools.pds.get(pd)?.domain;
        let (depth, max_sge) = (init.attr.max_wr, init.attr.max_sge.max(1));
        let handle = self.control(|stack| stack.create_srq(domain, depth, max_sge as usize))?;
        let depth = self.device()?.context.query_srq(handle)?.depth;
        (init.attr.max_wr, init.attr.max_sge) = (depth, max_sge);
        let owner = self.pools.pds.get(pd)?;
        owner.users += 1;
        let context = owner.raw_context();
        let raw = sys::ibv_srq { context, srq_context: init.srq_context, pd, ..Default::default() };
        let srq = self.pools.srqs.insert(Srq { raw, handle, depth, limit: 0, users: 0, unacked_async: 0 });
        self.srqs.push(srq);
        Ok(srq)
    }
}

impl Srq {
    /// Its event is raised, which ends the limit. Returns the context that gets it.
    pub(crate) fn on_limit_reached(&mut self) -> *mut sys::ibv_context {
        self.limit = 0;
        self.raw.context
    }
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut sys::ibv_srq,
    wr: *mut sys::ibv_recv_wr,
    bad_wr: *mut *mut sys::ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes a list of requests and memory for the refused one.
    unsafe {
        post::post_list(wr, bad_wr, |state, requests: &[RecvWr<'_>]| {
            let handle = state.pools.srqs.get(srq).map_err(|error| (0, error))?.handle;
            let stack = &mut state.device().map_err(|error| (0, error))?.context;
            requests.iter().enumerate().try_for_each(|(posted, request)| {
                stack.post_srq_recv(handle, request).map_err(|error| (posted, error.into()))
            })
        })
    }
}
