//! Completion queues.
//!
//! The stack reserves an entry for every posted request, signalled or not, and programs size their
//! queues for signalled ones. So a queue has at least as many entries as all queues that complete
//! into it have requests.

use core::ffi::{c_int, c_void};
use std::collections::VecDeque;
use std::os::fd::AsRawFd;

use verbs::{Completion, CompletionQueue, QpNum};

use crate::device::AsyncSource;
use crate::engine::{EBUSY, EINVAL, ENODEV, Outcome, State, as_number, as_pointer, lock_when, with};
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

object!(Cq = sys::ibv_cq);

/// Entries that a program may ask for; as many again are for unsignalled requests.
const CQE_MAX: u32 = 1 << 18;

impl Cq {
    /// Delivers an event to the program, which has to acknowledge it. Returns what the program gave
    /// the queue.
    pub(super) fn take_event(&mut self) -> *mut c_void {
        self.unacked += 1;
        self.reset_fd();
        self.raw.cq_context
    }

    /// Resets the descriptor after its event was taken.
    fn reset_fd(&self) {
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
    as_number(with(|state| state.resize_cq(cq, cqe)))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_destroy_cq(cq: *mut sys::ibv_cq) -> c_int {
    as_number(destroy_cq(cq))
}

/// Waits until all events of the queue are acknowledged. A call that fails has changed nothing.
pub(crate) fn destroy_cq(cq: *mut sys::ibv_cq) -> Outcome {
    with(|state| state.check_cq_unused(cq))?;
    let mut state = lock_when(|state| {
        state.pools.cqs.find(cq).is_none_or(|queue| queue.unacked <= 0 && queue.unacked_async <= 0)
    })?;
    // A queue pair may have begun to use it meanwhile.
    state.check_cq_unused(cq)?;
    state.remove_cq(cq)
}

fn parse_depth(cqe: c_int) -> Outcome<u32> {
    u32::try_from(cqe).ok().filter(|depth| (1..=CQE_MAX).contains(depth)).ok_or(EINVAL)
}

impl State {
    /// Fails with EBUSY while a queue pair completes into a queue.
    fn check_cq_unused(&mut self, cq: *mut sys::ibv_cq) -> Outcome {
        if self.pools.cqs.get(cq)?.users > 0 { Err(EBUSY) } else { Ok(()) }
    }

    pub(crate) fn create_cq(
        &mut self,
        context: *mut sys::ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut sys::ibv_comp_channel,
    ) -> Outcome<*mut sys::ibv_cq> {
        self.context(context)?;
        if !channel.is_null() {
            self.pools.channels.get(channel)?;
        }
        let requested = parse_depth(cqe)?;
        let handle = self.control(|stack| stack.create_cq(requested))?;
        let fd = self.device()?.context.cq_fd(handle)?.as_raw_fd();
        let raw = sys::ibv_cq { context, channel, cq_context, cqe, ..Default::default() };
        let (backlog, demand, users, unacked, unacked_async) = (VecDeque::new(), 0, 0, 0, 0);
        let cq = Cq { raw, handle, fd, backlog, requested, demand, users, unacked, unacked_async };
        let cq = self.pools.cqs.insert(cq);
        if let Some(channel) = self.pools.channels.find(channel)
            && let Err(error) = channel.add(fd, cq)
        {
            self.pools.cqs.take(cq);
            self.control(|stack| stack.destroy_cq(handle))?;
            return Err(error);
        }
        self.cqs.push(cq);
        Ok(cq)
    }

    /// Makes room for `change` requests more, or fewer.
    pub(crate) fn fit_cq(&mut self, cq: *mut sys::ibv_cq, change: i64) -> Outcome {
        let found = self.pools.cqs.get(cq)?;
        let (demand, requested) = (found.demand, found.requested);
        let demand = (i64::from(demand) + change).clamp(0, u32::MAX.into()) as u32;
        self.grow_cq(cq, demand.max(requested))?;
        self.pools.cqs.get(cq)?.demand = demand;
        Ok(())
    }

    /// Gives the stack's queue at least `depth` entries.
    fn grow_cq(&mut self, cq: *mut sys::ibv_cq, depth: u32) -> Outcome {
        let handle = self.pools.cqs.get(cq)?.handle;
        if self.device()?.context.query_cq(handle)?.depth >= depth {
            return Ok(());
        }
        self.control(|stack| stack.resize_cq(handle, depth))?;
        // Polling moves on to the new ring once the old one is empty.
        let is_grown = self.advance_until(|state| {
            let taken = state.take_completions(cq);
            let Ok(device) = state.device() else { return true };
            taken.is_err() || device.context.query_cq(handle).is_ok_and(|info| info.depth >= depth)
        });
        if is_grown { Ok(()) } else { Err(EBUSY) }
    }

    /// Changes the number of entries. Fails with EINVAL if more completions wait for the program,
    /// and changes nothing then.
    fn resize_cq(&mut self, cq: *mut sys::ibv_cq, cqe: c_int) -> Outcome {
        let requested = parse_depth(cqe)?;
        self.take_completions(cq)?;
        let queue = self.pools.cqs.get(cq)?;
        if queue.backlog.len() > requested as usize {
            return Err(EINVAL);
        }
        let depth = queue.demand.max(requested);
        self.grow_cq(cq, depth)?;
        let queue = self.pools.cqs.get(cq)?;
        queue.requested = requested;
        queue.raw.cqe = cqe;
        Ok(())
    }

    /// Moves the completions of the stack's queue to the backlog, in order.
    fn take_completions(&mut self, cq: *mut sys::ibv_cq) -> Outcome {
        let Self { pools, device, .. } = self;
        let queue = pools.cqs.get(cq)?;
        let stack = &mut device.as_mut().ok_or(ENODEV)?.context;
        let mut taken = [Completion::default(); 16];
        loop {
            let count = stack.poll_cq(queue.handle, &mut taken)?;
            if count == 0 {
                return Ok(());
            }
            queue.backlog.extend(&taken[..count]);
        }
    }

    /// Removes the completions of a queue pair that no longer exists.
    pub(crate) fn remove_completions(&mut self, cq: *mut sys::ibv_cq, qp: QpNum) -> Outcome {
        self.take_completions(cq)?;
        self.pools.cqs.get(cq)?.backlog.retain(|completion| completion.qp != qp);
        Ok(())
    }

    pub(crate) fn remove_cq(&mut self, cq: *mut sys::ibv_cq) -> Outcome {
        let found = self.pools.cqs.get(cq)?;
        let (handle, fd, channel) = (found.handle, found.fd, found.raw.channel);
        if let Some(channel) = self.pools.channels.find(channel) {
            // Now: a child process may keep the descriptor open, and with it the interest in it.
            channel.remove(fd);
        }
        if let Err(error) = self.control(|stack| stack.destroy_cq(handle)) {
            if let Some(channel) = self.pools.channels.find(channel) {
                channel.add(fd, cq)?;
            }
            return Err(error);
        }
        self.remove_async(AsyncSource::Cq(cq));
        self.cqs.retain(|other| *other != cq);
        self.pools.cqs.take(cq);
        Ok(())
    }
}

/// Requests an event for the next completion, or the next solicited or failed one.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut sys::ibv_cq, solicited_only: c_int) -> c_int {
    as_number(with(|state| {
        let handle = state.pools.cqs.get(cq)?.handle;
        state.expect_event();
        Ok(state.device()?.context.arm_cq(handle, solicited_only != 0)?)
    }))
}
