//! Memory of the objects that programs hold pointers to.
//!
//! The memory of a removed object is used again for objects of the same type only, and not at once. So a call with the
//! pointer of a destroyed object finds that out, and never reads freed memory.

use core::mem::MaybeUninit;
use core::ptr;
use std::collections::VecDeque;

/// A type whose first field is the structure that the program sees.
///
/// # Safety
/// The type is `repr(C)` and begins with `Raw`.
pub(crate) unsafe trait Object {
    /// The structure that the program sees.
    type Raw;
}

#[repr(C)]
struct Slot<T> {
    body: MaybeUninit<T>,
    is_live: bool,
}

/// Removed objects that are kept before the memory of the oldest is used again.
const QUARANTINE: usize = 64;

/// The memory of all objects of a type.
pub(crate) struct Pool<T> {
    free: VecDeque<*mut Slot<T>>,
}

impl<T: Object> Pool<T> {
    pub(crate) const fn new() -> Self {
        Pool { free: VecDeque::new() }
    }

    /// Stores an object and returns the program's pointer to it.
    pub(crate) fn insert(&mut self, body: T) -> *mut T::Raw {
        let reused = if self.free.len() > QUARANTINE { self.free.pop_front() } else { None };
        let slot = reused
            .unwrap_or_else(|| Box::into_raw(Box::new(Slot { body: MaybeUninit::uninit(), is_live: false })));
        // SAFETY: slots are never freed, and this one holds no object.
        unsafe {
            (*slot).body.write(body);
            (*slot).is_live = true;
        }
        slot.cast()
    }

    /// Removes an object. Returns `None` if there is none.
    ///
    /// # Safety
    /// `raw` is null, or comes from a pool of this type. The caller holds the lock of the engine, and no reference to
    /// the object.
    pub(crate) unsafe fn remove(&mut self, raw: *mut T::Raw) -> Option<T> {
        let slot: *mut Slot<T> = raw.cast();
        // SAFETY: guaranteed by the caller; slots are never freed.
        unsafe {
            if slot.is_null() || !slot.is_aligned() || !(*slot).is_live {
                return None;
            }
            (*slot).is_live = false;
            self.free.push_back(slot);
            Some(ptr::read((*slot).body.as_ptr()))
        }
    }
}

/// Returns the object at a program's pointer, or `None` if the pointer is null or the object was removed.
///
/// # Safety
/// `raw` is null, or comes from a pool of this type. The caller holds the lock of the engine for as long as it uses the
/// reference, and holds no other reference to the object.
pub(crate) unsafe fn find<'a, T: Object>(raw: *mut T::Raw) -> Option<&'a mut T> {
    let slot: *mut Slot<T> = raw.cast();
    // SAFETY: guaranteed by the caller; slots are never freed, and a live one holds an object.
    unsafe {
        // A pointer that is no object's may be anything; one that cannot be is not followed.
        if slot.is_null() || !slot.is_aligned() || !(*slot).is_live {
            return None;
        }
        Some((*slot).body.assume_init_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Number(u32, String);

    // SAFETY: the type is `repr(C)` and begins with the number.
    unsafe impl Object for Number {
        type Raw = u32;
    }

    #[test]
    fn a_removed_object_is_not_found_and_its_memory_is_used_again_later() {
        let mut pool = Pool::<Number>::new();
        let first = pool.insert(Number(7, "seven".into()));
        // SAFETY: the pointers are from this pool, and no reference is kept.
        unsafe {
            assert_eq!(find::<Number>(first).map(|number| number.1.as_str()), Some("seven"));
            assert_eq!(*first, 7, "the program sees the first field");
            assert_eq!(pool.remove(first).map(|number| number.0), Some(7));
            assert!(find::<Number>(first).is_none() && pool.remove(first).is_none());
            assert!(find::<Number>(ptr::null_mut()).is_none());
            let others: Vec<_> =
                (0..=QUARANTINE as u32).map(|n| pool.insert(Number(n, String::new()))).collect();
            assert!(!others.contains(&first), "not used again at once");
            for other in others {
                pool.remove(other);
            }
            assert_eq!(pool.insert(Number(8, String::new())), first);
        }
    }
}
