//! Memory of the objects that programs hold pointers to.
//!
//! A pool owns its memory in blocks that are never freed or moved. So a program's pointer is
//! checked before it is followed: one that is no object's, or that of a destroyed object, is not
//! found. The memory of a removed object is used again for objects of the same type only, and not
//! at once.
//!
//! A pointer that is kept beside its object's own owner is a [`Link`]: it has the object's number
//! too, and numbers are never used again. So it does not lead to another object that has the same
//! memory later.
//!
//! Cost of a look-up: one comparison for each block, of which a program with 64 objects of a type
//! has one, with 16384 nine.

use core::mem::{MaybeUninit, size_of};
use core::ptr;
use std::collections::VecDeque;

use super::{EINVAL, Outcome};

/// A type whose first field is the structure that the program sees.
///
/// # Safety
/// The type is `repr(C)` and begins with `Raw`: [`object`] checks the second.
pub(crate) unsafe trait Object {
    /// The structure that the program sees.
    type Raw;
}

/// Makes a type with a field `raw` an object.
macro_rules! object {
    ($object:ident = $raw:ty) => {
        // SAFETY: the type begins with the structure, and such a pointer is one to the structure.
        unsafe impl $crate::engine::Object for $object {
            type Raw = $raw;
        }
        const _: () = assert!(core::mem::offset_of!($object, raw) == 0);
    };
}

#[repr(C)]
struct Slot<T> {
    body: MaybeUninit<T>,
    is_live: bool,
    /// Of the object, or of the last one.
    number: u64,
}

/// A pointer to an object, or to none, that does not lead to a later object in the same memory.
pub(crate) struct Link<T: Object> {
    raw: *mut T::Raw,
    number: u64,
}

impl<T: Object> Link<T> {
    /// A link to no object.
    pub(crate) const NONE: Self = Link { raw: ptr::null_mut(), number: 0 };
}

impl<T: Object> Clone for Link<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Object> Copy for Link<T> {}

/// Removed objects that are kept before the memory of the oldest is used again.
const QUARANTINE: usize = 64;

/// Objects of the first block. Each block has twice as many as the one before.
const FIRST_BLOCK: usize = 64;

/// Slots that are never freed.
struct Block<T> {
    first: *mut Slot<T>,
    slots: usize,
}

impl<T> Block<T> {
    fn new(slots: usize) -> Self {
        let memory: Vec<Slot<T>> =
            (0..slots).map(|_| Slot { body: MaybeUninit::uninit(), is_live: false, number: 0 }).collect();
        Block { first: Vec::leak(memory).as_mut_ptr(), slots }
    }

    /// Returns the slot at an address, if it is one of the block's.
    fn slot_at(&self, address: usize) -> Option<*mut Slot<T>> {
        let offset = address.wrapping_sub(self.first.addr());
        let is_slot =
            offset < self.slots * size_of::<Slot<T>>() && offset.is_multiple_of(size_of::<Slot<T>>());
        is_slot.then(|| self.first.wrapping_byte_add(offset))
    }
}

/// The memory of all objects of a type.
pub(crate) struct Pool<T> {
    blocks: Vec<Block<T>>,
    free: VecDeque<*mut Slot<T>>,
    last_number: u64,
}

impl<T: Object> Pool<T> {
    pub(crate) const fn new() -> Self {
        Pool { blocks: Vec::new(), free: VecDeque::new(), last_number: 0 }
    }

    /// Stores an object and returns the program's pointer to it.
    pub(crate) fn insert(&mut self, body: T) -> *mut T::Raw {
        if self.free.len() <= QUARANTINE {
            self.grow();
        }
        let slot = self.free.pop_front().unwrap_or(ptr::null_mut());
        self.last_number += 1;
        // SAFETY: a grown pool has free slots; they are never freed, this one holds no object, and
        // nobody else has a reference to it.
        let found = unsafe { &mut *slot };
        found.body.write(body);
        (found.is_live, found.number) = (true, self.last_number);
        slot.cast()
    }

    fn grow(&mut self) {
        let block = Block::new(FIRST_BLOCK << self.blocks.len());
        // New slots are used before removed ones.
        for at in (0..block.slots).rev() {
            self.free.push_front(block.first.wrapping_add(at));
        }
        self.blocks.push(block);
    }

    #[inline]
    fn slot(&self, raw: *mut T::Raw) -> Option<*mut Slot<T>> {
        let slot = self.blocks.iter().find_map(|block| block.slot_at(raw.addr()))?;
        // SAFETY: slots are never freed, and their flags are initialised. No reference to one is
        // kept.
        unsafe { (*slot).is_live }.then_some(slot)
    }

    /// Returns the object at a program's pointer, or `None` if there is none.
    #[inline]
    pub(crate) fn find(&mut self, raw: *mut T::Raw) -> Option<&mut T> {
        // SAFETY: a live slot holds an object. The reference is that of the pool for as long as it
        // is used.
        self.slot(raw).map(|slot| unsafe { (*slot).body.assume_init_mut() })
    }

    /// Returns the object at a program's pointer. Fails with EINVAL if there is none.
    #[inline]
    pub(crate) fn get(&mut self, raw: *mut T::Raw) -> Outcome<&mut T> {
        self.find(raw).ok_or(EINVAL)
    }

    /// Returns a link to an object, or to none if there is none at the pointer.
    pub(crate) fn link(&self, raw: *mut T::Raw) -> Link<T> {
        // SAFETY: as in `slot`.
        self.slot(raw).map_or(Link::NONE, |slot| Link { raw, number: unsafe { (*slot).number } })
    }

    /// Returns the program's pointer to the object of a link, or null if it was removed.
    pub(crate) fn follow(&self, link: Link<T>) -> *mut T::Raw {
        // SAFETY: as in `slot`.
        let is_same = |slot: *mut Slot<T>| unsafe { (*slot).number } == link.number;
        if self.slot(link.raw).is_some_and(is_same) { link.raw } else { ptr::null_mut() }
    }

    /// Removes an object. Returns `None` if there is none.
    pub(crate) fn take(&mut self, raw: *mut T::Raw) -> Option<T> {
        let slot = self.slot(raw)?;
        self.free.push_back(slot);
        // SAFETY: the slot holds an object, which is moved out once.
        unsafe {
            (*slot).is_live = false;
            Some((*slot).body.assume_init_read())
        }
    }

    /// Forgets all objects and drops none: they are those of another process. None is found any
    /// more.
    pub(crate) fn abandon(&mut self) {
        for block in &self.blocks {
            for at in 0..block.slots {
                // SAFETY: slots are never freed, and no reference to one is kept.
                unsafe { (*block.first.wrapping_add(at)).is_live = false };
            }
        }
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.blocks.iter().map(|block| block.slots).sum::<usize>() - self.free.len()
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

    fn numbers(pool: &mut Pool<Number>, count: usize) -> Vec<*mut u32> {
        (0..count).map(|n| pool.insert(Number(n as u32, String::new()))).collect()
    }

    #[test]
    fn a_removed_object_is_not_found_and_its_memory_is_used_again_later() {
        let mut pool = Pool::<Number>::new();
        let first = pool.insert(Number(7, "seven".into()));
        assert_eq!(pool.get(first).map(|number| number.1.as_str()), Ok("seven"));
        // SAFETY: the program sees the first field of a live object.
        assert_eq!(unsafe { *first }, 7);
        assert_eq!(pool.take(first).map(|number| number.0), Some(7));
        assert!(pool.find(first).is_none() && pool.take(first).is_none());
        let others = numbers(&mut pool, 4 * QUARANTINE);
        assert!(!others[..QUARANTINE].contains(&first), "not used again at once");
        for other in &others {
            pool.take(*other);
        }
        assert_eq!(pool.len(), 0);
        assert!(numbers(&mut pool, 8 * QUARANTINE).contains(&first), "used again");
    }

    #[test]
    fn a_pointer_that_is_no_objects_is_not_followed() {
        let mut pool = Pool::<Number>::new();
        assert!(pool.find(ptr::null_mut()).is_none() && pool.find(8 as *mut u32).is_none());
        let found = numbers(&mut pool, 1000);
        assert!(found.iter().enumerate().all(|(n, raw)| pool.get(*raw).is_ok_and(|one| one.0 == n as u32)));
        assert!(found.iter().all(|raw| pool.find(raw.wrapping_byte_add(1)).is_none()));
        assert!(found.iter().all(|raw| pool.find(raw.wrapping_byte_add(8)).is_none()));
        assert!(pool.find(usize::MAX as *mut u32).is_none());
        assert_eq!(pool.len(), 1000);
    }

    #[test]
    fn abandoned_objects_are_not_found_and_not_dropped() {
        let mut pool = Pool::<Number>::new();
        let text = String::from("kept");
        let bytes = text.as_ptr();
        let first = pool.insert(Number(1, text));
        pool.abandon();
        assert!(pool.find(first).is_none() && pool.take(first).is_none());
        // SAFETY: the text was not dropped, and nobody has a reference to it.
        let kept = unsafe { String::from_raw_parts(bytes.cast_mut(), 4, 4) };
        assert_eq!(kept, "kept");
    }

    #[test]
    fn a_link_does_not_lead_to_a_later_object_in_the_same_memory() {
        let mut pool = Pool::<Number>::new();
        let first = pool.insert(Number(1, String::new()));
        let link = pool.link(first);
        assert_eq!(pool.follow(link), first);
        pool.take(first);
        assert!(pool.follow(link).is_null() && pool.follow(Link::NONE).is_null());
        while !pool.blocks.is_empty() {
            if pool.insert(Number(2, String::new())) == first {
                break;
            }
            let last = pool.insert(Number(3, String::new()));
            pool.take(last);
        }
        assert!(pool.find(first).is_some() && pool.follow(link).is_null());
        assert!(pool.link(first).number > link.number);
    }
}
