//! Completion channels: one descriptor for the events of many completion queues.
//!
//! The descriptor is an `epoll` instance over the descriptors of the queues, which the worker
//! writes for a queue that is armed. So a channel is readable while a queue has an event, and the
//! data path knows nothing of channels.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::engine::{
    EBUSY, EINVAL, Outcome, State, as_minus_one, as_number, as_pointer, last_errno, lock,
    signal_acknowledged, wait_for, with,
};
use crate::sys;

#[repr(C)]
pub(crate) struct CompChannel {
    pub(crate) raw: sys::ibv_comp_channel,
    epoll: OwnedFd,
}

object!(CompChannel = sys::ibv_comp_channel);

impl CompChannel {
    /// Adds the descriptor of a queue, and counts it. A call that fails changes nothing.
    pub(crate) fn add(&mut self, cq_fd: c_int, cq: *mut sys::ibv_cq) -> Outcome {
        let mut interest = libc::epoll_event { events: libc::EPOLLIN as u32, u64: cq as u64 };
        // SAFETY: the structure lives through the call.
        let added =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, cq_fd, &raw mut interest) };
        if added < 0 {
            return Err(last_errno());
        }
        self.raw.refcnt += 1;
        Ok(())
    }

    pub(crate) fn remove(&mut self, cq_fd: c_int) {
        // SAFETY: the call takes no structure for a removal.
        unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, cq_fd, ptr::null_mut()) };
        self.raw.refcnt -= 1;
    }

    /// Returns a queue that has an event, which may have been destroyed since.
    fn ready(&self) -> Option<*mut sys::ibv_cq> {
        let mut ready = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: the structure lives through the call.
        let found = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut ready, 1, 0) };
        (found == 1).then_some(ready.u64 as *mut sys::ibv_cq)
    }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_create_comp_channel(context: *mut sys::ibv_context) -> *mut sys::ibv_comp_channel {
    as_pointer(with(|state| state.create_comp_channel(context)))
}

impl State {
    pub(crate) fn create_comp_channel(
        &mut self,
        context: *mut sys::ibv_context,
    ) -> Outcome<*mut sys::ibv_comp_channel> {
        self.context(context)?;
        // SAFETY: the call has no preconditions.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(last_errno());
        }
        // SAFETY: the descriptor is new.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let raw = sys::ibv_comp_channel { context, fd, refcnt: 0 };
        Ok(self.pools.channels.insert(CompChannel { raw, epoll }))
    }

    pub(crate) fn destroy_comp_channel(&mut self, channel: *mut sys::ibv_comp_channel) -> Outcome {
        if self.pools.channels.get(channel)?.raw.refcnt > 0 {
            return Err(EBUSY);
        }
        self.pools.channels.take(channel);
        Ok(())
    }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_destroy_comp_channel(channel: *mut sys::ibv_comp_channel) -> c_int {
    as_number(with(|state| state.destroy_comp_channel(channel)))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut sys::ibv_comp_channel,
    cq: *mut *mut sys::ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // Before an event is taken, which would be lost.
    if cq.is_null() || cq_context.is_null() {
        return as_minus_one(Err(EINVAL));
    }
    as_minus_one(get_cq_event(channel).map(|(found, found_context)| {
        // SAFETY: the program passes memory for both pointers.
        unsafe {
            *cq = found;
            *cq_context = found_context;
        }
    }))
}

fn get_cq_event(channel: *mut sys::ibv_comp_channel) -> Outcome<(*mut sys::ibv_cq, *mut c_void)> {
    let fd = with(|state| Ok(state.pools.channels.get(channel)?.raw.fd))?;
    wait_for(fd, |state| {
        let ready = state.pools.channels.get(channel)?.ready();
        Ok(ready.and_then(|cq| Some((cq, state.pools.cqs.find(cq)?.take_event()))))
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_ack_cq_events(cq: *mut sys::ibv_cq, events: c_uint) {
    let Ok(mut state) = lock() else { return };
    if let Some(queue) = state.pools.cqs.find(cq) {
        queue.raw.comp_events_completed = queue.raw.comp_events_completed.wrapping_add(events);
        queue.unacked -= i64::from(events);
        signal_acknowledged();
    }
}
