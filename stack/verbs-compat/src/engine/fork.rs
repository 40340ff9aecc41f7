//! `fork`.
//!
//! The device belongs to the parent, whose helper thread does not exist in the child. Calls of the
//! child fail with EIO, except that it may have a device of its own:
//! - if no object of the libraries existed at the `fork`: then the device is closed before, and the
//!   first of the two that needs it opens it again;
//! - or once `IRONWARP_CONFIG` names another file than the parent's.
//!
//! Both need a device without DPDK, whose state a process cannot set up twice. Objects of the
//! parent are no objects of the child's device.
//!
//! The child closes the parent's descriptors of a memif at once, so that the peer sees the end of
//! the parent when it ends. Nothing is allocated between `fork` and the first call of the child.

use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_int};
use core::sync::atomic::Ordering;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::{CancelDisabled, ENGINE, Errno, Outcome, State, helper};
use crate::device::config_path;

/// The state of the engine while a thread forks.
struct Held(UnsafeCell<Option<(MutexGuard<'static, State>, CancelDisabled)>>);

// SAFETY: only the thread that holds the lock uses it, between the handlers of one `fork`.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

thread_local! {
    /// Whether this thread holds the lock for a `fork`.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// How long a `fork` waits for a call of another thread to end. A call that forks itself, in a
/// handler of a signal, would wait for ever; its child has no device.
const LOCK_MAX: Duration = Duration::from_secs(1);

/// Registers the handlers.
pub(super) fn register() {
    // SAFETY: the functions exist as long as the library, which is never unloaded while its threads
    // run.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// Waits until no call of another thread is changing the state, and closes a device that nobody
/// uses.
unsafe extern "C" fn before() {
    let cancel = CancelDisabled::new();
    let deadline = Instant::now() + LOCK_MAX;
    let mut state = loop {
        match ENGINE.state.try_lock() {
            Ok(state) => break state,
            Err(TryLockError::Poisoned(state)) => break state.into_inner(),
            Err(TryLockError::WouldBlock) if Instant::now() > deadline => return,
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    };
    let is_own = !ENGINE.is_forked.load(Ordering::Relaxed);
    let may_close = state.device.as_ref().is_some_and(|device| !device.uses_dpdk);
    if is_own && may_close && state.pools.are_empty() {
        state.device = None;
    }
    // SAFETY: this thread holds the lock.
    unsafe { *HELD.0.get() = Some((state, cancel)) };
    HOLDS.set(true);
}

unsafe extern "C" fn in_parent() {
    release();
}

/// Releases the lock. Returns whether this thread held it.
fn release() -> bool {
    let holds = HOLDS.replace(false);
    if holds {
        // SAFETY: this thread holds the lock, so nobody else uses the memory.
        drop(unsafe { (*HELD.0.get()).take() });
    }
    holds
}

unsafe extern "C" fn in_child() {
    ENGINE.is_forked.store(true, Ordering::Relaxed);
    if HOLDS.get() {
        // SAFETY: this thread holds the lock.
        let held = unsafe { (*HELD.0.get()).as_ref() };
        let socket = held.and_then(|(state, _)| state.device.as_ref()?.memif_socket.as_deref());
        socket.into_iter().for_each(close_memif);
    }
    helper::forget();
    let is_usable = release();
    ENGINE.is_unusable.store(!is_usable, Ordering::Relaxed);
}

/// Gives a child process a state of its own, if it may have one.
#[cold]
pub(super) fn leave_parent() -> Outcome {
    const DENIED: Errno = Errno(libc::EIO);
    if ENGINE.is_unusable.load(Ordering::Relaxed) {
        return Err(DENIED);
    }
    let mut state = ENGINE.state.lock().map_err(|_| DENIED)?;
    if !ENGINE.is_forked.load(Ordering::Relaxed) {
        // Another thread of the child was faster.
        return Ok(());
    }
    if let Some(device) = &state.device {
        let is_other = config_path().is_some_and(|path| path != device.config_path);
        if device.uses_dpdk || !is_other {
            return Err(DENIED);
        }
    }
    // What the parent's device owns is the parent's: it is neither closed nor freed here.
    state.pools.abandon();
    core::mem::forget(core::mem::replace(&mut *state, State::new()));
    ENGINE.is_forked.store(false, Ordering::Relaxed);
    Ok(())
}

/// Closes the sockets of a memif and its shared memory. The names of both tell them from the
/// program's.
fn close_memif(socket: &Path) {
    each_descriptor(|fd, link| {
        let is_shared_memory = link.to_bytes().starts_with(b"/memfd:ironwarp-memif");
        if is_shared_memory || is_socket_of(fd, socket) {
            // SAFETY: the descriptor is the library's, and the child does not use it.
            unsafe { libc::close(fd) };
        }
    });
}

/// Whether a descriptor is a socket with this name at either end.
fn is_socket_of(fd: c_int, path: &Path) -> bool {
    type Query = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int;
    let queries: [Query; 2] = [libc::getsockname, libc::getpeername];
    queries.iter().any(|query| {
        // SAFETY: zeros are an address without a name.
        let mut name: libc::sockaddr_un = unsafe { core::mem::zeroed() };
        let mut bytes = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        // SAFETY: the memory has as many bytes, and the last stays zero.
        let known = unsafe { query(fd, (&raw mut name).cast(), &raw mut bytes) } == 0;
        if !known || c_int::from(name.sun_family) != libc::AF_UNIX {
            return false;
        }
        name.sun_path[name.sun_path.len() - 1] = 0;
        // SAFETY: the text ends with a zero.
        unsafe { CStr::from_ptr(name.sun_path.as_ptr()) }.to_bytes() == path.as_os_str().as_bytes()
    })
}

/// Bytes of the system's list of descriptors that are read at a time.
const LIST_BYTES: usize = 4096;

/// Calls `look` with each descriptor of the process and what it is. Uses system calls only.
fn each_descriptor(mut look: impl FnMut(c_int, &CStr)) {
    let folder = c"/proc/self/fd";
    // SAFETY: the name ends with a zero.
    let list = unsafe { libc::open(folder.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) };
    if list < 0 {
        return;
    }
    let mut entries = [0u64; LIST_BYTES / 8];
    loop {
        // SAFETY: the buffer has as many bytes.
        let read = unsafe { libc::syscall(libc::SYS_getdents64, list, entries.as_mut_ptr(), LIST_BYTES) };
        let Ok(read @ 1..) = usize::try_from(read) else { break };
        let mut at = 0;
        while at < read {
            let entry = entries.as_ptr().wrapping_byte_add(at).cast::<libc::dirent64>();
            // SAFETY: the system has written whole entries, whose names end with a zero.
            let (bytes, name) =
                unsafe { ((*entry).d_reclen, CStr::from_ptr((&raw const (*entry).d_name).cast())) };
            at += usize::from(bytes).max(1);
            let number = name.to_str().ok().and_then(|name| name.parse::<c_int>().ok());
            if let Some(fd) = number.filter(|fd| *fd != list) {
                let mut link = [0u8; 64];
                // SAFETY: the buffer has one byte more than the call may write.
                unsafe { libc::readlinkat(list, name.as_ptr(), link.as_mut_ptr().cast(), link.len() - 1) };
                look(fd, CStr::from_bytes_until_nul(&link).unwrap_or_default());
            }
        }
    }
    // SAFETY: the descriptor is this function's.
    unsafe { libc::close(list) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn the_sockets_of_a_path_are_found_at_both_ends_and_no_others() {
        let folder = std::env::temp_dir().join(format!("fork-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, other) = (folder.join("one"), folder.join("other"));
        let (listener, another) = (UnixListener::bind(&path).unwrap(), UnixListener::bind(&other).unwrap());
        let client = UnixStream::connect(&path).unwrap();
        let (server, _) = listener.accept().unwrap();
        for (fd, expected) in [(listener.as_raw_fd(), true), (client.as_raw_fd(), true)] {
            assert_eq!(is_socket_of(fd, &path), expected);
        }
        assert!(is_socket_of(server.as_raw_fd(), &path) && !is_socket_of(another.as_raw_fd(), &path));
        let mut seen = Vec::new();
        each_descriptor(|fd, _| seen.push(fd));
        for fd in [listener.as_raw_fd(), client.as_raw_fd(), server.as_raw_fd(), 0] {
            assert!(seen.contains(&fd));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
