//! Handles: pointers to slots that are never freed, so that a stale handle is distinguished from a
//! valid one.
//!
//! A slot begins with a number for its kind. Its state tells whether it holds an object and whether
//! a call uses it: one at a time, so that two threads with one handle get an error instead of a
//! race. After a panic the object can only be closed. Slots of closed objects are reused after
//! [`FREE_HANDLES_MIN`] later closes.
//!
//! A pointer that is not from this library cannot be distinguished without reading it; the caller
//! guarantees that none is passed.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::codes::*;
use super::error::ApiError;

/// Closed slots of a kind that are not reused: a handle is recognised as stale for that many later
/// closes. The fuzz target reaches the reuse.
const FREE_HANDLES_MIN: usize = if cfg!(fuzzing) { 8 } else { 1024 };

const CLOSED: u32 = 0;
const READY: u32 = 1;
const BUSY: u32 = 2;
const POISONED: u32 = 3;

/// A slot for one object.
#[repr(C)]
pub(crate) struct Slot<T> {
    kind: AtomicU32,
    state: AtomicU32,
    body: UnsafeCell<Option<T>>,
}

/// A kind of handle.
pub(crate) trait HandleKind: Sized + 'static {
    /// The object.
    type Body: Send;
    /// The number of the kind, which is unique.
    const NUMBER: u32;
    /// The name of the kind, for error texts.
    const NAME: &'static str;
    /// Creates the handle of a slot.
    fn new(slot: Slot<Self::Body>) -> Self;
    /// Returns the slot.
    fn slot(&self) -> &Slot<Self::Body>;
    /// Returns the closed slots of this kind.
    fn free_handles() -> &'static FreeHandles<Self>;
}

/// Makes a struct around a slot a kind of handle.
macro_rules! handle_kind {
    ($handle:ident, $body:ty, $number:expr, $name:expr) => {
        impl $crate::boundary::HandleKind for $handle {
            type Body = $body;
            const NUMBER: u32 = {
                // The number is checked before the type is trusted.
                assert!(core::mem::offset_of!($handle, 0) == 0);
                $number
            };
            const NAME: &'static str = $name;
            fn new(slot: $crate::boundary::Slot<$body>) -> Self {
                $handle(slot)
            }
            fn slot(&self) -> &$crate::boundary::Slot<$body> {
                &self.0
            }
            fn free_handles() -> &'static $crate::boundary::FreeHandles<Self> {
                static FREE_HANDLES: $crate::boundary::FreeHandles<$handle> =
                    $crate::boundary::FreeHandles::new();
                &FREE_HANDLES
            }
        }
    };
}

/// Closed slots of one kind, oldest first.
pub(crate) struct FreeHandles<K: 'static>(Mutex<VecDeque<&'static K>>);

impl<K> FreeHandles<K> {
    pub(crate) const fn new() -> Self {
        FreeHandles(Mutex::new(VecDeque::new()))
    }
}

// SAFETY: the body of a slot is accessed only by the thread that changed its state from READY or
// BROKEN to INSIDE.
unsafe impl<T: Send> Sync for Slot<T> {}

/// Creates a handle for an object.
pub(crate) fn alloc_handle<K: HandleKind + Sync>(body: K::Body) -> *mut K {
    let used = {
        let mut free_handles = K::free_handles().0.lock().unwrap_or_else(PoisonError::into_inner);
        if free_handles.len() > FREE_HANDLES_MIN { free_handles.pop_front() } else { None }
    };
    let handle: &'static K = used.unwrap_or_else(|| {
        let (kind, state) = (AtomicU32::new(K::NUMBER), AtomicU32::new(CLOSED));
        Box::leak(Box::new(K::new(Slot { kind, state, body: UnsafeCell::new(None) })))
    });
    let slot = handle.slot();
    // SAFETY: the slot is closed and in no list, so no other thread uses it.
    unsafe { *slot.body.get() = Some(body) };
    slot.state.store(READY, Ordering::Release);
    core::ptr::from_ref(handle).cast_mut()
}

/// Runs `body` with the object of a handle.
///
/// # Safety
/// The pointer is null or came from [`alloc_handle`], of any kind.
#[inline]
pub(crate) unsafe fn with<K: HandleKind, R>(
    handle: *const K,
    body: impl FnOnce(&mut K::Body) -> Result<R, ApiError>,
) -> Result<R, ApiError> {
    // SAFETY: guaranteed by the caller.
    let guard = unsafe { HandleGuard::enter(handle, &[READY]) }?;
    // SAFETY: only one thread is inside.
    match unsafe { &mut *guard.slot.body.get() } {
        Some(object) => body(object),
        None => Err(ApiError::new(IW_E_HANDLE)),
    }
}

/// Closes a handle and returns its object, also after a panic.
///
/// # Safety
/// As for [`with`].
pub(crate) unsafe fn close_handle<K: HandleKind + Sync>(handle: *const K) -> Result<K::Body, ApiError> {
    // SAFETY: guaranteed by the caller.
    let mut guard = unsafe { HandleGuard::enter(handle, &[READY, POISONED]) }?;
    guard.exit_state = CLOSED;
    // SAFETY: only one thread is inside.
    let body = unsafe { &mut *guard.slot.body.get() }.take();
    drop(guard);
    // SAFETY: handles are never freed, and this one was live a moment ago.
    let handle: &'static K = unsafe { &*handle };
    K::free_handles().0.lock().unwrap_or_else(PoisonError::into_inner).push_back(handle);
    body.ok_or(ApiError::new(IW_E_HANDLE))
}

/// A call that uses an object.
struct HandleGuard<T: 'static> {
    slot: &'static Slot<T>,
    exit_state: u32,
}

impl<T> HandleGuard<T> {
    /// # Safety
    /// As for [`with`].
    #[inline]
    unsafe fn enter<K: HandleKind<Body = T>>(handle: *const K, from: &[u32]) -> Result<Self, ApiError> {
        if handle.is_null() || !handle.is_aligned() {
            return Err(fault!(IW_E_POINTER, "{} is null or not aligned", K::NAME));
        }
        // SAFETY: slots of every kind begin with this number, and are never freed.
        let kind = unsafe { &*handle.cast::<AtomicU32>() }.load(Ordering::Relaxed);
        if kind != K::NUMBER {
            return Err(fault!(IW_E_HANDLE, "the handle is not {}", K::NAME));
        }
        // SAFETY: the number is that of this kind.
        let slot = unsafe { &*handle }.slot();
        let mut state = Err(CLOSED);
        for &one in from {
            state = slot.state.compare_exchange(one, BUSY, Ordering::Acquire, Ordering::Relaxed);
            if state.is_ok() {
                return Ok(HandleGuard { slot, exit_state: READY });
            }
        }
        Err(match state {
            Err(BUSY) => ApiError::new(IW_E_CONCURRENT_CALL),
            Err(POISONED) => ApiError::new(IW_E_INTERNAL),
            _ => fault!(IW_E_HANDLE, "{} has been closed", K::NAME),
        })
    }
}

impl<T> Drop for HandleGuard<T> {
    #[inline]
    fn drop(&mut self) {
        let broken = std::thread::panicking() && self.exit_state == READY;
        self.slot.state.store(if broken { POISONED } else { self.exit_state }, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::call;

    struct Probe(Slot<u32>);
    struct Other(Slot<u8>);

    handle_kind!(Probe, u32, 101, "the probe");
    handle_kind!(Other, u8, 102, "the other");

    fn add(handle: *const Probe, more: u32) -> i32 {
        call(|| {
            // SAFETY: every handle in these tests is null or was created by this library.
            unsafe {
                with(handle, |body| {
                    *body += more;
                    Ok(*body as i32)
                })
            }
        })
    }

    fn close(handle: *const Probe) -> i32 {
        // SAFETY: as above.
        call(|| unsafe { close_handle(handle).map(drop) })
    }

    #[test]
    fn a_handle_is_good_from_making_to_closing_and_stale_afterwards() {
        let handle = alloc_handle::<Probe>(5);
        assert_eq!(add(handle, 1), 6);
        assert_eq!(close(handle), IW_OK);
        assert_eq!(add(handle, 1), IW_E_HANDLE);
        assert_eq!(close(handle), IW_E_HANDLE);
        // Handles that are created meanwhile are different.
        let others: Vec<_> = (0..100).map(alloc_handle::<Probe>).collect();
        assert_eq!(add(handle, 1), IW_E_HANDLE);
        assert!(others.iter().all(|&other| close(other) == IW_OK));
    }

    #[test]
    fn null_misaligned_and_foreign_handles_are_refused() {
        let other = alloc_handle::<Other>(1);
        assert_eq!(add(core::ptr::null(), 1), IW_E_POINTER);
        assert_eq!(add(other.cast::<u8>().wrapping_add(1).cast(), 1), IW_E_POINTER);
        assert_eq!(add(other.cast(), 1), IW_E_HANDLE);
        // SAFETY: created by this library.
        assert_eq!(call(|| unsafe { close_handle(other).map(drop) }), IW_OK);
    }

    #[test]
    fn a_call_within_a_call_with_the_same_handle_is_refused() {
        let handle = alloc_handle::<Probe>(1);
        // SAFETY: created by this library.
        let answer = call(|| unsafe { with(handle, |_| Ok(add(handle, 1))) });
        assert_eq!((answer, close(handle)), (IW_E_CONCURRENT_CALL, IW_OK));
    }

    #[test]
    fn after_a_panic_an_object_can_only_be_closed() {
        let handle = alloc_handle::<Probe>(1);
        // SAFETY: created by this library.
        let answer = call(|| unsafe { with(handle, |_| -> Result<i32, ApiError> { panic!("inside") }) });
        assert_eq!((answer, add(handle, 1)), (IW_E_INTERNAL, IW_E_INTERNAL));
        assert_eq!((close(handle), close(handle)), (IW_OK, IW_E_HANDLE));
    }

    #[test]
    fn two_threads_are_never_inside_together() {
        let handle = alloc_handle::<Probe>(0) as usize;
        let calls = if cfg!(miri) { 50 } else { 10_000 };
        let count = || (0..calls).filter(|_| add(handle as *const Probe, 1) > 0).count() as i32;
        let done: i32 = std::thread::scope(|scope| {
            let threads = [scope.spawn(count), scope.spawn(count)];
            threads.map(|thread| thread.join().unwrap_or(0)).iter().sum()
        });
        assert_eq!(add(handle as *const Probe, 0), done);
        close(handle as *const Probe);
    }
}
