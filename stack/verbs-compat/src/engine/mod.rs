//! The state of both libraries, behind one lock, and the ways to drive it.
//!
//! Every call takes the lock, uses the state and releases it. The worker of the stack is part of
//! the state: a thread that polls a completion queue, or waits for an event, runs the worker
//! itself. A helper thread ([`helper`]) runs it when no thread of the program does, since peers
//! read and write memory at any time.
//!
//! Cost: one uncontended lock for each call of the data path. A child process after `fork` has
//! neither the helper nor the parent's device ([`fork`]).

mod cancel;
mod errno;
mod event_queue;
mod fork;
mod helper;
#[macro_use]
mod pool;
mod process;
mod wait;

use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

pub(crate) use cancel::CancelDisabled;
pub(crate) use errno::*;
pub(crate) use event_queue::EventQueue;
pub(crate) use pool::{Link, Object, Pool};
pub(crate) use process::{BlockedSignals, start as start_process_hooks, unblock_faults, variable};
pub(crate) use wait::{wait_for, wait_for_ever};

use crate::cm::{ClosedChannels, CmEvent, CmId, EventChannel, Listeners, PortTable, UnseenRequests};
use crate::device::{Context, Device};
use crate::objects::{CompChannel, Cq, Mr, Mw, Pd, Qp, Srq};
use crate::sys;

/// The lock, and what is read without it.
pub(crate) struct Engine {
    state: Mutex<State>,
    /// Signalled when an event is acknowledged.
    acknowledged: Condvar,
    /// Threads of the program that wait for the lock. The helper lets them go first.
    waiting: AtomicU32,
    /// Polls of the program. Written under the lock.
    program_polls: AtomicU32,
    /// A thread of the program is about to sleep in a call of the library. The helper resets it.
    program_waits: AtomicBool,
    /// The program has requested an event of a completion queue. The helper resets it.
    program_expects_event: AtomicBool,
    /// Whether the helper sleeps because there was no work.
    is_napping: AtomicBool,
    /// Set in a child process without a device of its own.
    is_forked: AtomicBool,
    /// It can never have one.
    is_unusable: AtomicBool,
    /// The process ends: the helper closes the connections, then sets the second flag.
    is_stopping: AtomicBool,
    is_drained: AtomicBool,
}

/// All objects of both libraries.
pub(crate) struct State {
    /// The stack, once a call has needed it.
    pub(crate) device: Option<Device>,
    /// The device could not be opened: the reason was printed.
    pub(crate) is_broken: bool,
    /// Queue pairs by number.
    pub(crate) qps: BTreeMap<u32, *mut sys::ibv_qp>,
    /// Completion queues, to find the one of an event.
    pub(crate) cqs: Vec<*mut sys::ibv_cq>,
    /// Shared receive queues, in the same way.
    pub(crate) srqs: Vec<*mut sys::ibv_srq>,
    /// Memory windows, to find those that are bound to a region.
    pub(crate) mws: Vec<*mut sys::ibv_mw>,
    /// Open contexts: each gets every asynchronous event of its objects.
    pub(crate) contexts: Vec<*mut sys::verbs_context>,
    pub(crate) listeners: Listeners,
    /// The addresses that identifiers are bound to.
    pub(crate) ports: PortTable,
    pub(crate) unseen_requests: UnseenRequests,
    pub(crate) closed_channels: ClosedChannels,
    pub(crate) pools: Pools,
}

macro_rules! pools {
    ($($pool:ident: $object:ty,)*) => {
        /// The memory of the objects.
        pub(crate) struct Pools {
            $(pub(crate) $pool: Pool<$object>,)*
        }

        impl Pools {
            const fn new() -> Self {
                Pools { $($pool: Pool::new(),)* }
            }

            /// In a child process: the objects are the parent's.
            fn abandon(&mut self) {
                $(self.$pool.abandon();)*
            }

            /// Whether no object of either library exists. Event channels need no device.
            fn are_empty(&self) -> bool {
                let all = [$(self.$pool.len(),)*].iter().sum::<usize>();
                all == self.event_channels.len() + self.events.len()
            }
        }
    };
}

pools! {
    contexts: Context,
    pds: Pd,
    mrs: Mr,
    mws: Mw,
    channels: CompChannel,
    cqs: Cq,
    qps: Qp,
    srqs: Srq,
    event_channels: EventChannel,
    ids: CmId,
    events: CmEvent,
}

// SAFETY: the pointers are to objects of the pools, which are used under the lock that holds this
// state.
unsafe impl Send for State {}

pub(crate) static ENGINE: Engine = Engine {
    state: Mutex::new(State::new()),
    acknowledged: Condvar::new(),
    waiting: AtomicU32::new(0),
    program_polls: AtomicU32::new(0),
    program_waits: AtomicBool::new(false),
    program_expects_event: AtomicBool::new(false),
    is_napping: AtomicBool::new(false),
    is_forked: AtomicBool::new(false),
    is_unusable: AtomicBool::new(false),
    is_stopping: AtomicBool::new(false),
    is_drained: AtomicBool::new(false),
};

/// The lock is held. The thread cannot be cancelled meanwhile.
pub(crate) struct Locked {
    // Released before cancellation is enabled again: fields are dropped in this order.
    state: MutexGuard<'static, State>,
    cancel: CancelDisabled,
}

impl Deref for Locked {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// Takes the lock. Fails with EIO in a child process without a device of its own.
#[inline]
pub(crate) fn lock() -> Outcome<Locked> {
    if ENGINE.is_forked.load(Ordering::Relaxed) {
        fork::leave_parent()?;
    }
    let cancel = CancelDisabled::new();
    let state = match ENGINE.state.try_lock() {
        Ok(state) => state,
        Err(TryLockError::Poisoned(state)) => state.into_inner(),
        Err(TryLockError::WouldBlock) => lock_contended(),
    };
    Ok(Locked { state, cancel })
}

#[cold]
fn lock_contended() -> MutexGuard<'static, State> {
    ENGINE.waiting.fetch_add(1, Ordering::Relaxed);
    let state = ENGINE.state.lock().unwrap_or_else(PoisonError::into_inner);
    ENGINE.waiting.fetch_sub(1, Ordering::Relaxed);
    state
}

/// Takes the lock and calls `body`.
#[inline]
pub(crate) fn with<T>(body: impl FnOnce(&mut State) -> Outcome<T>) -> Outcome<T> {
    body(&mut *lock()?)
}

/// Takes the lock and waits until `is_done` returns true, which changes when an event is
/// acknowledged. Returns with the lock.
pub(crate) fn lock_when(is_done: impl Fn(&mut State) -> bool) -> Outcome<Locked> {
    let mut locked = lock()?;
    while !is_done(&mut locked) {
        let Locked { state, cancel } = locked;
        let state = ENGINE.acknowledged.wait(state).unwrap_or_else(PoisonError::into_inner);
        locked = Locked { state, cancel };
    }
    Ok(locked)
}

/// Wakes threads that destroy an object and wait for acknowledgements.
pub(crate) fn signal_acknowledged() {
    ENGINE.acknowledged.notify_all();
}

impl State {
    /// Returns the state of a process that has used nothing.
    const fn new() -> Self {
        State {
            device: None,
            is_broken: false,
            qps: BTreeMap::new(),
            cqs: Vec::new(),
            srqs: Vec::new(),
            mws: Vec::new(),
            contexts: Vec::new(),
            listeners: Listeners::new(),
            ports: PortTable::new(),
            unseen_requests: UnseenRequests::new(),
            closed_channels: ClosedChannels::new(),
            pools: Pools::new(),
        }
    }

    /// Returns the stack, if it is open.
    pub(crate) fn device(&mut self) -> Outcome<&mut Device> {
        self.device.as_mut().ok_or(ENODEV)
    }

    /// Runs the worker once and passes its events on. Returns the amount of work.
    pub(crate) fn advance(&mut self) -> usize {
        let Some(device) = &mut self.device else { return 0 };
        if device.catches_faults {
            process::take_faults();
        }
        let work = device.worker.poll(1).work;
        while let Some(event) = self.device.as_mut().and_then(|device| device.context.poll_event()) {
            self.on_event(event);
        }
        work
    }

    /// The same for a thread of the program, which the helper leaves the worker to.
    #[inline]
    pub(crate) fn advance_for_program(&mut self) -> usize {
        let polls = ENGINE.program_polls.load(Ordering::Relaxed);
        ENGINE.program_polls.store(polls.wrapping_add(1), Ordering::Relaxed);
        self.advance()
    }

    /// Records that the program may wait for a descriptor from now on.
    pub(crate) fn expect_event(&self) {
        ENGINE.program_expects_event.store(true, Ordering::Relaxed);
    }

    /// Runs the worker if nobody else would soon, so that what was just posted is sent.
    #[inline]
    pub(crate) fn send_posted(&mut self) {
        if ENGINE.is_napping.load(Ordering::Relaxed) {
            self.advance();
        }
    }

    /// Calls the stack and runs the worker once, so that what was asked for is begun now and not at
    /// the next poll.
    ///
    /// Running the worker passes events on, so the caller keeps no reference to an object across
    /// this call.
    pub(crate) fn control<T>(
        &mut self,
        call: impl FnOnce(&mut verbs::Context) -> Result<T, verbs::VerbsError>,
    ) -> Outcome<T> {
        let result = call(&mut self.device()?.context)?;
        self.advance();
        Ok(result)
    }

    /// Runs the worker until `is_done`, for a call that waits for the core. Returns whether it is
    /// done; a core does what it is asked for within a few iterations.
    pub(crate) fn advance_until(&mut self, mut is_done: impl FnMut(&mut State) -> bool) -> bool {
        for _ in 0..ITERATIONS_MAX {
            if is_done(self) {
                return true;
            }
            self.advance();
        }
        is_done(self)
    }
}

/// More iterations than any request to the core takes.
const ITERATIONS_MAX: usize = 4096;
