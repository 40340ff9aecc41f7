//! Catches faults of accesses to registered memory, so that they end a connection and not the
//! process.
//!
//! Registered memory is not pinned. A program that unmaps or protects it too early, or cuts short
//! the file that it maps, lets the next access of a peer fault. [`install`] sets handlers for
//! SIGSEGV and SIGBUS. A fault at an instruction of the module `copy` makes that access fail and is
//! counted; the layers above end its stream. Every other fault goes to the handler that the program
//! had, or has set since and [`renew`] has found: with its mask and its flags, or to the default
//! action.
//!
//! *Limits.* A thread that blocks these signals is ended by the system at a fault, as ever. Memory
//! that was freed and is still mapped does not fault: a peer reads and writes what is there now.
//!
//! *Cost.* None to an access that does not fault.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io;

/// Whether the handlers are wanted.
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// Faults that were caught and not yet taken.
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// Sets the handlers. They stay until the process ends. Fails where faults cannot be caught: on
/// other processors than x86-64 and other systems than Linux.
pub fn install() -> io::Result<()> {
    handlers::set()?;
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// Sets the handlers again if the program has replaced one since, and passes other faults to that
/// one from now on. Costs a system call for each signal; nothing if they were never set.
pub fn renew() {
    if INSTALLED.load(Ordering::Acquire) {
        // It was possible before.
        let _ = handlers::set();
    }
}

/// Returns the number of accesses that faulted since the last call, in all threads of the process.
#[inline]
pub fn take_faults() -> u64 {
    match FAULTS.load(Ordering::Relaxed) {
        0 => 0,
        _ => FAULTS.swap(0, Ordering::Relaxed),
    }
}

#[cfg(not(all(not(miri), target_arch = "x86_64", target_os = "linux")))]
mod handlers {
    pub(super) fn set() -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

#[cfg(all(not(miri), target_arch = "x86_64", target_os = "linux"))]
mod handlers {
    use core::ffi::{c_int, c_void};
    use core::mem::MaybeUninit;
    use core::ptr;
    use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
    use std::io;
    use std::sync::{Mutex, PoisonError};

    use libc::{SIG_DFL, SIG_IGN, SIGBUS, SIGSEGV, sigaction, siginfo_t, ucontext_t};

    use crate::copy::{Interrupted, abandon, thread_mark};

    /// What the program had set for a signal, oldest first. Entries are never freed, since a
    /// handler may be using one.
    struct Program {
        actions: [AtomicPtr<sigaction>; ACTIONS_MAX],
        count: AtomicUsize,
    }

    /// Handlers that a program sets one after the other. Of more, the latest replaces the one
    /// before it.
    const ACTIONS_MAX: usize = 8;

    impl Program {
        const fn new() -> Self {
            let actions = [const { AtomicPtr::new(ptr::null_mut()) }; ACTIONS_MAX];
            Program { actions, count: AtomicUsize::new(0) }
        }

        /// Adds the handler in effect, unless it is known. Called under the lock.
        fn add(&self, action: sigaction) {
            let count = self.count.load(Ordering::Relaxed);
            let is_it = |known: &AtomicPtr<sigaction>| {
                // SAFETY: the first `count` entries are set and never freed.
                let known = unsafe { &*known.load(Ordering::Relaxed) };
                known.sa_sigaction == action.sa_sigaction && known.sa_flags == action.sa_flags
            };
            if self.actions[..count].iter().any(is_it) {
                return;
            }
            let at = count.min(ACTIONS_MAX - 1);
            self.actions[at].store(Box::into_raw(Box::new(action)), Ordering::Release);
            self.count.store(at + 1, Ordering::Release);
        }

        /// Replaces a handler that is called once by the default action.
        fn forget(&self, action: &sigaction) {
            for known in self.actions.iter().filter(|known| ptr::eq(known.load(Ordering::Acquire), action)) {
                known.store((&raw const DEFAULT).cast_mut(), Ordering::Release);
            }
        }

        /// Returns the handler that is `depth` older than the newest.
        fn at(&self, depth: usize) -> Option<&'static sigaction> {
            let at = self.count.load(Ordering::Acquire).checked_sub(depth + 1)?;
            // SAFETY: the first `count` entries are set and never freed.
            Some(unsafe { &*self.actions.get(at)?.load(Ordering::Acquire) })
        }
    }

    // SAFETY: zeros are a valid value: the default action.
    static DEFAULT: sigaction = unsafe { core::mem::zeroed() };
    static OF_SIGSEGV: Program = Program::new();
    static OF_SIGBUS: Program = Program::new();
    static SETTING: Mutex<()> = Mutex::new(());

    fn program(signal: c_int) -> &'static Program {
        if signal == SIGBUS { &OF_SIGBUS } else { &OF_SIGSEGV }
    }

    pub(super) fn set() -> io::Result<()> {
        let _setting = SETTING.lock().unwrap_or_else(PoisonError::into_inner);
        [SIGSEGV, SIGBUS].into_iter().try_for_each(set_one)
    }

    fn set_one(signal: c_int) -> io::Result<()> {
        let ours = on_fault as *const () as usize;
        let current = change(signal, None)?;
        if current.sa_sigaction == ours {
            return Ok(());
        }
        program(signal).add(current);
        // SAFETY: zeros are a valid value, with an empty mask.
        let mut action: sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = ours;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        change(signal, Some(&action)).map(drop)
    }

    /// Sets the action of a signal, if one is given, and returns the one before.
    fn change(signal: c_int, action: Option<&sigaction>) -> io::Result<sigaction> {
        let mut before = MaybeUninit::<sigaction>::zeroed();
        let action = action.map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the structures live through the call, which fills the second one; zeros are a
        // valid value of it.
        unsafe {
            match libc::sigaction(signal, action, before.as_mut_ptr()) {
                0 => Ok(before.assume_init()),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// # Safety
    /// Called by the system for a signal, or by a handler of the program with the arguments that it
    /// got.
    unsafe extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        // SAFETY: the system passes both structures.
        let (caused_by_access, address) = unsafe { ((*info).si_code > 0, (*info).si_addr().addr()) };
        if caused_by_access {
            // SAFETY: as above.
            let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
            let (mut instruction, mut stack) =
                (registers[libc::REG_RIP as usize], registers[libc::REG_RSP as usize]);
            let mut at = Interrupted { instruction: &mut instruction, stack: &mut stack, address };
            if abandon(&mut at) {
                registers[libc::REG_RIP as usize] = instruction;
                registers[libc::REG_RSP as usize] = stack;
                super::FAULTS.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        // SAFETY: passed on.
        unsafe { pass_on(signal, info, context, caused_by_access) };
    }

    /// Calls the handler of the program. One that calls the handler which it has replaced comes
    /// back here: it gets the one before it, and the default action in the end.
    ///
    /// # Safety
    /// As for [`on_fault`].
    unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void, caused_by_access: bool) {
        let here = ptr::from_ref(&signal).addr();
        // SAFETY: the words are those of this thread.
        let mark = unsafe { &mut *thread_mark() };
        let [of_context, from, level] = *mark;
        // A handler that left by a jump has left its mark. The system's next call has the same or a
        // higher stack.
        let depth = if of_context == context.addr() && here < from { level + 1 } else { 0 };
        *mark = [context.addr(), here, depth];
        match program(signal).at(depth) {
            // The system does not ignore a fault.
            Some(action) if action.sa_sigaction == SIG_IGN && !caused_by_access => {}
            Some(action) if !matches!(action.sa_sigaction, SIG_DFL | SIG_IGN) => {
                if action.sa_flags & libc::SA_RESETHAND != 0 {
                    program(signal).forget(action);
                }
                // SAFETY: passed on.
                unsafe { call(action, signal, info, context) };
            }
            _ => default(signal, caused_by_access),
        }
        // SAFETY: as above.
        unsafe { *thread_mark() = [of_context, from, level] };
    }

    /// Calls a handler as the system would.
    ///
    /// # Safety
    /// As for [`on_fault`].
    unsafe fn call(action: &sigaction, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the sets live through the calls. The program promises that its handler has the
        // type that its flags name.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const action.sa_mask, before.as_mut_ptr());
            if action.sa_flags & libc::SA_NODEFER != 0 {
                let mut own = MaybeUninit::<libc::sigset_t>::zeroed();
                libc::sigemptyset(own.as_mut_ptr());
                libc::sigaddset(own.as_mut_ptr(), signal);
                libc::pthread_sigmask(libc::SIG_UNBLOCK, own.as_ptr(), ptr::null_mut());
            }
            if action.sa_flags & libc::SA_SIGINFO != 0 {
                let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                    core::mem::transmute(action.sa_sigaction);
                handler(signal, info, context);
            } else {
                let handler: extern "C" fn(c_int) = core::mem::transmute(action.sa_sigaction);
                handler(signal);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        }
    }

    /// Ends the process by the signal: a fault comes again at its instruction, and another one is
    /// sent again.
    fn default(signal: c_int, caused_by_access: bool) {
        if change(signal, Some(&DEFAULT)).is_ok() && !caused_by_access {
            // SAFETY: the call has no preconditions. The signal is delivered when the handler
            // returns.
            unsafe { libc::raise(signal) };
        }
    }
}
