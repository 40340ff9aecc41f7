//! Completion queues.
//!
//! The stack reserves an entry for every posted request, signalled or not, and programs size their queues for signalled ones.
//! So a queue has at least as many entries as all queues that complete into it have requests.

use core::ffi::{c_int, c_void};
use std::collections::VecDeque;
use std::os::fd::AsRawFd;

use verbs::{Completion, CompletionQueue, QpNum};

use super::{CompChannel, clamp_int};
use crate::device::{AsyncSource, context_of};
use crate::engine::{EBUSY, EINVAL, Object, Outcome, State, as_number, as_pointer, find, lock_when, with};
use crate::sys;

#[repr(C)]
pub(crate) struct Cq {
    pub(crate) raw: sys::ibv_cq,
    pub(crate) handle: CompletionQueue,
    fd: c_int,
    /// Completions that were taken from the stack's queue and not by the program.
    pub(crate) backlog: VecDeque<Completion>,
    /// Entries that the program asked for.
    requested: u32,
    /// Requests of the queues that complete here.
    pub(crate) demand: u32,
    /// Uses by queue pairs.
    pub(crate) users: u32,
    /// Completion events that were delivered and not acknowledged.
    pub(crate) unacked: i64,
    pub(crate) unacked_async: i32,
}

// SAFETY: the type is `repr(C)` and begins with the structure.
unsafe impl Object for Cq {
    type Raw = sys::ibv_cq;
}

/// Entries that a program may ask for; as many again are for unsignalled requests.
const CQE_MAX: u32 = 1 << 18;

impl Cq {
    /// Resets the descriptor after its event was taken.
    pub(crate) fn reset_fd(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the buffer has eight bytes. The descriptor is non-blocking.
        unsafe { libc::read(self.fd, count.as_mut_ptr().cast(), count.len()) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_create_cq(
    context: *mut sys::ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut sys::ibv_comp_channel,
    vector: c_int,
) -> *mut sys::ibv_cq {
    as_pointer(with(|state| {
        if vector != 0 {
            return Err(EINVAL);
        }
        state.create_cq(context, cqe, cq_context, channel)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_resize_cq(cq: *mut sys::ibv_cq, cqe: c_int) -> c_int {
    as_number(with(|state| {
        let requested = parse_depth(cqe)?;
        // SAFETY: the lock is held, and no reference is kept.
        let queue = unsafe { find::<Cq>(cq) }.ok_or(EINVAL)?;
        queue.requested = requested;
        queue.raw.cqe = cqe;
        state.fit_cq(cq, 0)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_destroy_cq(cq: *mut sys::ibv_cq) -> c_int {
    as_number(destroy_cq(cq))
}

pub(crate) fn destroy_cq(cq: *mut sys::ibv_cq) -> Outcome {
    with(|state| {
        // SAFETY: the lock is held, and no reference is kept.
        let queue = unsafe { find::<Cq>(cq) }.ok_or(EINVAL)?;
        if queue.users > 0 {
            return Err(EBUSY);
        }
        state.remove_async(AsyncSource::Cq(cq));
        Ok(())
    })?;
    let mut state = lock_when(|_| {
        // SAFETY: as above.
        unsafe { find::<Cq>(cq) }.is_none_or(|queue| queue.unacked <= 0 && queue.unacked_async <= 0)
    })?;
    state.remove_cq(cq)
}

fn parse_depth(cqe: c_int) -> Outcome<u32> {
    u32::try_from(cqe).ok().filter(|depth| (1..=CQE_MAX).contains(depth)).ok_or(EINVAL)
}

impl State {
    pub(crate) fn create_cq(
        &mut self,
        context: *mut sys::ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut sys::ibv_comp_channel,
    ) -> Outcome<*mut sys::ibv_cq> {
        // SAFETY: the lock is held, and no reference is kept.
        unsafe { context_of(context)? };
        let requested = parse_depth(cqe)?;
        let stack = &mut self.device()?.context;
        let handle = stack.create_cq(requested)?;
        let fd = stack.cq_fd(handle)?.as_raw_fd();
        let raw = sys::ibv_cq { context, channel, cq_context, cqe, ..Default::default() };
        let (backlog, demand, users, unacked, unacked_async) = (VecDeque::new(), 0, 0, 0, 0);
        let cq = Cq { raw, handle, fd, backlog, requested, demand, users, unacked, unacked_async };
        let cq = self.pools.cqs.insert(cq);
        self.cqs.push(cq);
        if let Err(error) = attach_channel(channel, fd, cq) {
            self.remove_cq(cq)?;
            return Err(error);
        }
        Ok(cq)
    }

    /// Makes room for `change` requests more, or fewer.
    pub(crate) fn fit_cq(&mut self, cq: *mut sys::ibv_cq, change: i64) -> Outcome {
        // SAFETY: the lock is held, and no reference is kept.
        let queue = unsafe { find::<Cq>(cq) }.ok_or(EINVAL)?;
        let demand = (i64::from(queue.demand) + change).clamp(0, u32::MAX.into()) as u32;
        let (handle, depth) = (queue.handle, demand.max(queue.requested));
        let stack = &mut self.device()?.context;
        if stack.query_cq(handle)?.depth < depth {
            stack.resize_cq(handle, depth)?;
            let backlog = &mut queue.backlog;
            self.advance_until(|state| {
                let Ok(device) = state.device() else { return true };
                // Polling moves on to the new ring once the old one is empty.
                let mut taken = [Completion::default()];
                while device.context.poll_cq(handle, &mut taken).is_ok_and(|count| count > 0) {
                    backlog.extend(taken);
                }
                device.context.query_cq(handle).is_ok_and(|info| info.depth >= depth)
            });
        }
        queue.demand = demand;
        Ok(())
    }

    /// Removes the completions of a queue pair that no longer exists.
    pub(crate) fn remove_completions(&mut self, cq: *mut sys::ibv_cq, qp: QpNum) -> Outcome {
        // SAFETY: the lock is held, and no reference is kept.
        let queue = unsafe { find::<Cq>(cq) }.ok_or(EINVAL)?;
        let stack = &mut self.device()?.context;
        let mut taken = [Completion::default(); 16];
        loop {
            let count = stack.poll_cq(queue.handle, &mut taken)?;
            if count == 0 {
                break;
            }
            queue.backlog.extend(&taken[..count]);
        }
        queue.backlog.retain(|completion| completion.qp != qp);
        Ok(())
    }

    pub(crate) fn remove_cq(&mut self, cq: *mut sys::ibv_cq) -> Outcome {
        // SAFETY: the lock is held, and no reference is kept.
        let queue = unsafe { find::<Cq>(cq) }.ok_or(EINVAL)?;
        let (handle, fd, channel) = (queue.handle, queue.fd, queue.raw.channel);
        // SAFETY: as above.
        if let Some(channel) = unsafe { find::<CompChannel>(channel) } {
            channel.remove(fd);
            channel.raw.refcnt -= 1;
        }
        self.control(|stack| stack.destroy_cq(handle))?;
        self.cqs.retain(|other| *other != cq);
        // SAFETY: as above.
        unsafe { self.pools.cqs.remove(cq) };
        Ok(())
    }
}

fn attach_channel(channel: *mut sys::ibv_comp_channel, fd: c_int, cq: *mut sys::ibv_cq) -> Outcome {
    if channel.is_null() {
        return Ok(());
    }
    // SAFETY: the lock is held, and no reference is kept.
    let found = unsafe { find::<CompChannel>(channel) }.ok_or(EINVAL)?;
    found.raw.refcnt = clamp_int(found.raw.refcnt + 1);
    found.add(fd, cq)
}

/// Requests an event for the next completion, or the next solicited or failed one.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut sys::ibv_cq, solicited_only: c_int) -> c_int {
    as_number(with(|state| {
        // SAFETY: the lock is held, and no reference is kept.
        let queue = unsafe { find::<Cq>(cq) }.ok_or(EINVAL)?;
        state.expect_event();
        Ok(state.device()?.context.arm_cq(queue.handle, solicited_only != 0)?)
    }))
}
