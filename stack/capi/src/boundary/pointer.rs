//! Access through pointers of the caller. Null and misalignment are errors; that other pointers are
//! valid, as the header states, is guaranteed by the caller.

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;

use super::codes::*;
use super::error::{ApiError, call};
use super::handle::{HandleKind, alloc_handle};

fn check<T>(pointer: *const T, what: &'static str) -> Result<(), ApiError> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(bad(what));
    }
    Ok(())
}

#[cold]
fn bad(what: &'static str) -> ApiError {
    fault!(IW_E_POINTER, "{what} is null or not aligned")
}

/// Returns the value at a pointer.
///
/// # Safety
/// It is null or points to a value that does not change during the call.
#[inline]
pub(crate) unsafe fn read<'a, T>(pointer: *const T, what: &'static str) -> Result<&'a T, ApiError> {
    check(pointer, what)?;
    // SAFETY: not null, aligned, and valid as the caller guarantees.
    Ok(unsafe { &*pointer })
}

/// Writes a value to a pointer.
///
/// # Safety
/// It is null or points to room for a value that no other thread uses during the call.
#[inline]
pub(crate) unsafe fn write_out<T>(pointer: *mut T, what: &'static str, value: T) -> Result<(), ApiError> {
    check(pointer.cast_const(), what)?;
    // SAFETY: not null, aligned, and valid as the caller guarantees. What was there needs no drop:
    // these are C's types.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Runs the body of an exported function that stores its result at `out`: `none` if it fails.
///
/// # Safety
/// As for [`write_out`].
pub(crate) unsafe fn create<T>(
    out: *mut T,
    what: &'static str,
    none: T,
    body: impl FnOnce() -> Result<T, ApiError>,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        write_out(out, what, none)?;
        write_out(out, what, body()?)
    })
}

/// As [`create`], for an object that gets a handle.
///
/// # Safety
/// As for [`write_out`].
pub(crate) unsafe fn create_handle<K: HandleKind + Sync>(
    out: *mut *mut K,
    what: &'static str,
    body: impl FnOnce() -> Result<K::Body, ApiError>,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { create(out, what, core::ptr::null_mut(), || body().map(alloc_handle)) }
}

/// The same as [`write_out`], with null to ignore the value.
///
/// # Safety
/// As for [`write_out`].
#[inline]
pub(crate) unsafe fn write_optional<T>(
    pointer: *mut T,
    what: &'static str,
    value: T,
) -> Result<(), ApiError> {
    // SAFETY: guaranteed by the caller.
    if pointer.is_null() { Ok(()) } else { unsafe { write_out(pointer, what, value) } }
}

/// Returns a list of `count` values. Null is allowed for an empty list.
///
/// # Safety
/// As for [`read`], of `count` values.
#[inline]
pub(crate) unsafe fn read_slice<'a, T>(
    pointer: *const T,
    count: usize,
    what: &'static str,
) -> Result<&'a [T], ApiError> {
    if count == 0 {
        return Ok(&[]);
    }
    check(pointer, what)?;
    check_count::<T>(count, what)?;
    // SAFETY: not null, aligned, within the address space, and valid as the caller guarantees.
    Ok(unsafe { core::slice::from_raw_parts(pointer, count) })
}

/// Returns room for `count` values.
///
/// # Safety
/// As for [`write_out`], of `count` values.
#[inline]
pub(crate) unsafe fn out_slice<'a, T>(
    pointer: *mut T,
    count: usize,
    what: &'static str,
) -> Result<&'a mut [MaybeUninit<T>], ApiError> {
    if count == 0 {
        return Ok(&mut []);
    }
    check(pointer.cast_const(), what)?;
    check_count::<T>(count, what)?;
    // SAFETY: not null, aligned, within the address space, and valid as the caller guarantees.
    Ok(unsafe { core::slice::from_raw_parts_mut(pointer.cast(), count) })
}

fn check_count<T>(count: usize, what: &'static str) -> Result<(), ApiError> {
    let bytes = count.checked_mul(size_of::<T>());
    if bytes.is_some_and(|bytes| bytes <= isize::MAX as usize) {
        return Ok(());
    }
    Err(fault!(IW_E_VALUE, "{what} is longer than the address space"))
}

/// Returns a text.
///
/// # Safety
/// It is null or points to a NUL-terminated text that does not change during the call.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &'static str) -> Result<&'a str, ApiError> {
    check(pointer, what)?;
    // SAFETY: not null, and valid as the caller guarantees.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| fault!(IW_E_VALUE, "{what} is not UTF-8"))
}

/// Writes a text and a NUL after it into room for `size` bytes.
///
/// # Safety
/// As for [`write_out`], of `size` bytes.
pub(crate) unsafe fn write_text(
    room: *mut c_char,
    size: usize,
    what: &'static str,
    value: &str,
) -> Result<(), ApiError> {
    check(room.cast_const(), what)?;
    if value.len() >= size {
        return Err(fault!(IW_E_VALUE, "{what}: {size} bytes, {} are needed", value.len() + 1));
    }
    // SAFETY: there is room for the text and one byte more.
    unsafe {
        core::ptr::copy_nonoverlapping(value.as_ptr().cast(), room, value.len());
        room.add(value.len()).write(0);
    }
    Ok(())
}

/// Returns a struct that begins with its own size, as compiled by the caller. Fields that the
/// caller does not know have their `default` value. Fields that the library does not know must be
/// 0.
///
/// # Safety
/// As for [`read`], of as many bytes as its first field states. `T` consists of numbers and
/// pointers, in C's layout, and begins with the size.
pub(crate) unsafe fn read_sized<T: Copy>(
    pointer: *const T,
    default: T,
    what: &'static str,
) -> Result<T, ApiError> {
    // SAFETY: guaranteed by the caller.
    let size = unsafe { read_size(pointer, what) }?;
    let mut value = default;
    // SAFETY: guaranteed by the caller.
    unsafe { read_element(pointer, size, &mut value, what) }?;
    Ok(value)
}

/// The largest size that a program's header may state: more than any struct will ever have.
const SIZE_MAX: usize = 4096;

/// Returns the size that a program set in the first field of a struct for a result.
///
/// # Safety
/// The pointer is null or points to at least one number.
pub(crate) unsafe fn read_size<T>(pointer: *const T, what: &'static str) -> Result<usize, ApiError> {
    check(pointer, what)?;
    // SAFETY: the first field exists with any size.
    let size = unsafe { pointer.cast::<u32>().read() } as usize;
    if (size_of::<u32>()..=SIZE_MAX).contains(&size) {
        return Ok(size);
    }
    Err(fault!(IW_E_VALUE, "{what}.size = {size}: set it to the size of the struct"))
}

/// Writes a struct that begins with its own size to a program that set this size, as its header has
/// it: fields that the program does not know are left out, fields that the library does not know
/// become 0. The size stays the program's.
///
/// # Safety
/// The pointer is null or valid for reads and writes of as many bytes as its first field states.
/// `T` consists of numbers and pointers, in C's layout, and begins with the size.
pub(crate) unsafe fn write_sized<T: Copy>(
    pointer: *mut T,
    what: &'static str,
    value: T,
) -> Result<(), ApiError> {
    // SAFETY: guaranteed by the caller.
    let size = unsafe { read_size(pointer, what) }?;
    let (known, first) = (size.min(size_of::<T>()), size_of::<u32>());
    // SAFETY: both have `known` bytes, the caller's `size` bytes. The first field stays as it is.
    unsafe {
        let from = (&raw const value).cast::<u8>();
        core::ptr::copy_nonoverlapping(from.add(first), pointer.cast::<u8>().add(first), known - first);
        core::ptr::write_bytes(pointer.cast::<u8>().add(known), 0, size - known);
    }
    Ok(())
}

/// Writes the defaults of a struct that begins with its own size, for a program whose header has
/// `size` bytes of it.
///
/// # Safety
/// As for [`write_sized`], of `size` bytes.
pub(crate) unsafe fn write_init<T: Copy>(
    pointer: *mut T,
    size: usize,
    what: &'static str,
    value: T,
) -> Result<(), ApiError> {
    check(pointer, what)?;
    if !(size_of::<u32>()..=SIZE_MAX).contains(&size) {
        return Err(fault!(IW_E_VALUE, "{what}: {size} bytes"));
    }
    // SAFETY: the first field exists with any size; the rest is guaranteed by the caller.
    unsafe {
        pointer.cast::<u32>().write(size as u32);
        write_sized(pointer, what, value)
    }
}

/// Room for a list of structs in the data path. The program states the size of an element on the
/// call instead of in each element: nothing is read, and an element needs no field for it.
pub(crate) struct OutList<T> {
    next: *mut T,
    size: usize,
    left: usize,
}

impl<T: Copy> OutList<T> {
    /// # Safety
    /// The pointer is null or valid for writes of `count` elements of `size` bytes while the list
    /// is used. `T` consists of numbers and pointers, in C's layout.
    #[inline]
    pub(crate) unsafe fn new(
        pointer: *mut T,
        size: usize,
        count: usize,
        what: &'static str,
    ) -> Result<Self, ApiError> {
        if count > 0 {
            check(pointer.cast_const(), what)?;
            check_element(size, align_of::<T>(), count, what)?;
        }
        Ok(OutList { next: pointer, size, left: count })
    }

    /// Writes the next element: the fields that the program knows, and 0 for those that the library
    /// does not know. Ignored beyond the end.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        if self.size == size_of::<T>() {
            // SAFETY: `new` guarantees room for this element.
            unsafe { self.next.write(value) };
        } else {
            self.push_other(value);
        }
        self.next = self.next.wrapping_byte_add(self.size);
    }

    #[cold]
    fn push_other(&mut self, value: T) {
        let known = self.size.min(size_of::<T>());
        // SAFETY: as above, of `size` bytes; `value` has `known` bytes.
        unsafe {
            let to = self.next.cast::<u8>();
            core::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), to, known);
            core::ptr::write_bytes(to.add(known), 0, self.size - known);
        }
    }
}

/// Calls `body` with the elements of a list, in order: with all of them if the program's elements
/// have the library's size, else with copies, some at a time. Fields that the program does not know
/// are those of `default`. Fields that the library does not know must be 0.
///
/// # Safety
/// The pointer is null or points to `count` elements of `size` bytes. `T` consists of numbers and
/// pointers, in C's layout.
#[inline]
pub(crate) unsafe fn read_list<T: Copy>(
    pointer: *const T,
    (size, count): (usize, usize),
    default: T,
    what: &'static str,
    mut body: impl FnMut(&[T]) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    if size == size_of::<T>() || count == 0 {
        // SAFETY: guaranteed by the caller.
        return body(unsafe { read_slice(pointer, count, what) }?);
    }
    check(pointer, what)?;
    check_element(size, align_of::<T>(), count, what)?;
    for from in (0..count).step_by(COPIES) {
        let mut copies = [default; COPIES];
        let (copies, _) = copies.split_at_mut(COPIES.min(count - from));
        for (at, copy) in (from..).zip(copies.iter_mut()) {
            // SAFETY: guaranteed by the caller.
            unsafe { read_element(pointer.wrapping_byte_add(at * size), size, copy, what) }?;
        }
        body(copies)?;
    }
    Ok(())
}

/// Elements that are copied at a time.
const COPIES: usize = 16;

/// # Safety
/// The pointer is valid for reads of `size` bytes.
unsafe fn read_element<T: Copy>(
    pointer: *const T,
    size: usize,
    copy: &mut T,
    what: &'static str,
) -> Result<(), ApiError> {
    let known = size.min(size_of::<T>());
    // SAFETY: guaranteed by the caller; the bytes behind `known` are the element's own.
    let unknown = unsafe {
        core::ptr::copy_nonoverlapping(pointer.cast::<u8>(), core::ptr::from_mut(copy).cast::<u8>(), known);
        core::slice::from_raw_parts(pointer.cast::<u8>().add(known), size - known)
    };
    check_unknown(unknown, what)
}

/// A program of a newer header uses a field that this library does not have.
fn check_unknown(unknown: &[u8], what: &'static str) -> Result<(), ApiError> {
    if unknown.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    Err(fault!(IW_E_UNSUPPORTED, "{what} has a field that this version of the library does not know"))
}

fn check_element(size: usize, align: usize, count: usize, what: &'static str) -> Result<(), ApiError> {
    if !(align..=SIZE_MAX).contains(&size) || !size.is_multiple_of(align) {
        return Err(fault!(IW_E_VALUE, "{what}: elements of {size} bytes"));
    }
    if count.checked_mul(size).is_some_and(|bytes| bytes <= isize::MAX as usize) {
        return Ok(());
    }
    Err(fault!(IW_E_VALUE, "{what} is longer than the address space"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(C)]
    struct Sized {
        size: u32,
        old: u32,
        new: u64,
    }

    /// A caller that was compiled against an older header has a shorter struct.
    #[test]
    fn a_shorter_struct_keeps_the_defaults_of_what_it_lacks() {
        let default = Sized { size: 16, old: 1, new: 2 };
        let older = Sized { size: 8, old: 9, new: 77 };
        // SAFETY: a value on the stack; so are those below.
        let seen = unsafe { read_sized(&older, default, "attr") };
        assert_eq!(seen.map_err(|fault| fault.code), Ok(Sized { size: 8, old: 9, new: 2 }));
        for size in [0, 3, 4097, u32::MAX] {
            // SAFETY: a refused size is not used.
            let refused = unsafe { read_sized(&Sized { size, ..default }, default, "attr") };
            assert_eq!(refused.map_err(|fault| fault.code), Err(IW_E_VALUE), "{size}");
        }
        // One of a newer header is longer. What the library does not know must not be used.
        for (unknown, expected) in [(0, Ok(9)), (1, Err(IW_E_UNSUPPORTED))] {
            let longer = [Sized { size: 32, old: 9, new: 2 }, Sized { size: 0, old: 0, new: unknown }];
            // SAFETY: the array has 32 bytes.
            let seen = unsafe { read_sized(longer.as_ptr(), default, "attr") };
            assert_eq!(seen.map(|seen| seen.old).map_err(|fault| fault.code), expected);
        }
    }

    /// A program of an older header has a shorter struct, one of a newer header a longer one.
    #[test]
    fn a_result_has_the_size_that_the_program_states() {
        let value = Sized { size: 16, old: 5, new: 6 };
        for (size, expected) in [(4, (77, 77)), (8, (5, 77)), (16, (5, 6))] {
            let mut out = Sized { size, old: 77, new: 77 };
            // SAFETY: a value on the stack; so are those below.
            assert_eq!(unsafe { write_sized(&mut out, "out", value) }.map_err(|fault| fault.code), Ok(()));
            assert_eq!((out.size, out.old as u64, out.new), (size, expected.0, expected.1));
        }
        let mut longer = [Sized { size: 32, old: 77, new: 77 }; 2];
        // SAFETY: the array has 32 bytes.
        assert!(unsafe { write_sized(longer.as_mut_ptr(), "out", value) }.is_ok());
        assert_eq!(longer, [Sized { size: 32, ..value }, Sized { size: 0, old: 0, new: 0 }]);
        for size in [0, 3, 4097, u32::MAX] {
            let mut out = Sized { size, ..value };
            // SAFETY: a refused size is not used.
            let refused = unsafe { write_sized(&mut out, "out", value) };
            assert_eq!(refused.map_err(|fault| fault.code), Err(IW_E_VALUE), "{size}");
        }
    }

    /// Lists of a program whose elements are shorter or longer than the library's.
    #[test]
    fn elements_of_another_size_are_converted() {
        let value = Sized { size: 1, old: 2, new: 3 };
        let default = Sized { size: 0, old: 0, new: 99 };
        for (size, expected) in [(8, [1, 2, 1, 2, 7, 7]), (16, [1, 2, 3, 0, 1, 2])] {
            let mut out = [0x7_0000_0007u64; 8];
            // SAFETY: the array has more bytes than two elements.
            let mut list = unsafe { OutList::new(out.as_mut_ptr().cast::<Sized>(), size, 2, "out") }
                .map_err(|fault| fault.code)
                .expect("a good size");
            (0..3).for_each(|_| list.push(value));
            let words: Vec<u32> = out.iter().flat_map(|two| [*two as u32, (two >> 32) as u32]).collect();
            assert_eq!(words[..6], expected, "elements of {size} bytes; the third is ignored");
        }
        let numbers: Vec<u64> = (0..3 * 20).map(|at| if at % 3 == 2 { 0 } else { at }).collect();
        for (size, new) in [(8, 99), (24, 1)] {
            let mut seen = Vec::new();
            // SAFETY: the list has 480 bytes.
            let read = unsafe {
                read_list(numbers.as_ptr().cast::<Sized>(), (size, 20), default, "wrs", |some| {
                    seen.extend(some.iter().map(|one| one.new));
                    Ok(())
                })
            };
            assert_eq!((read.map_err(|fault| fault.code), seen.len(), seen[0]), (Ok(()), 20, new));
        }
        for size in [0, 4, 12, 4104] {
            // SAFETY: a refused size is not used.
            let read =
                unsafe { read_list(numbers.as_ptr().cast::<Sized>(), (size, 2), default, "wrs", |_| Ok(())) };
            assert_eq!(read.map_err(|fault| fault.code), Err(IW_E_VALUE), "{size}");
        }
        // SAFETY: the list has more bytes than two elements.
        let read = unsafe {
            read_list(numbers.as_ptr().wrapping_add(1).cast::<Sized>(), (24, 2), default, "wrs", |_| Ok(()))
        };
        assert_eq!(read.map_err(|fault| fault.code), Err(IW_E_UNSUPPORTED), "a field of a newer header");
    }

    #[test]
    fn lists_may_be_null_when_they_are_empty_only() {
        // SAFETY: null, or a value on the stack.
        unsafe {
            assert_eq!(read_slice::<u64>(core::ptr::null(), 0, "list").map(<[u64]>::len).ok(), Some(0));
            assert_eq!(
                read_slice::<u64>(core::ptr::null(), 1, "list").err().map(|f| f.code),
                Some(IW_E_POINTER)
            );
            let word = 1u64;
            assert_eq!(read_slice(&word, usize::MAX, "list").err().map(|fault| fault.code), Some(IW_E_VALUE));
        }
    }
}
