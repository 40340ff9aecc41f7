//! Queues that are created with attributes, of callers of any version.

use crate::Input;
use capi::*;

use super::objects::shortened;
use super::program::{Program, good, pick, pointer};

pub fn create(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    let (depth, core) = (u32::from(input.u8()), core(input));
    if input.flag() {
        let attr = init(input, |attr, size| {
            // SAFETY: as `init` promises.
            unsafe { iw_cq_attr_init_sized(attr, size, depth) }
        });
        let attr = attr.unwrap_or(iw_cq_attr { size: size_of::<iw_cq_attr>() as u32, depth, core });
        let attr = iw_cq_attr { core, ..attr };
        let (given, mut made) = (of_any_size(input, attr, |attr, size| attr.size = size), iw_cq::default());
        // SAFETY: a handle of this library, a struct of the size that it states, and memory for the
        // value.
        let created =
            unsafe { iw_cq_create_with(ctx, pointer(input, given.as_ptr().cast_mut()).cast(), &mut made) };
        if good(created) {
            program.ends[end].cqs.push(made);
        }
        return;
    }
    let Some(pd) = pick(input, &program.ends, end, |end| &end.pds) else { return };
    let max_sge = u32::from(input.u8() % 20);
    let attr = init(input, |attr, size| {
        // SAFETY: as `init` promises.
        unsafe { iw_srq_attr_init_sized(attr, size, depth, max_sge) }
    });
    let attr = attr.unwrap_or(iw_srq_attr { size: size_of::<iw_srq_attr>() as u32, depth, max_sge, core });
    let attr = iw_srq_attr { core, ..attr };
    let (given, mut made) = (of_any_size(input, attr, |attr, size| attr.size = size), iw_srq::default());
    // SAFETY: as above.
    let created =
        unsafe { iw_srq_create_with(ctx, pd, pointer(input, given.as_ptr().cast_mut()).cast(), &mut made) };
    if good(created) {
        program.ends[end].srqs.push(made);
    }
}

/// Any core, one of the first, or one that does not exist.
fn core(input: &mut Input<'_>) -> i32 {
    match input.u8() {
        byte @ 0..128 => i32::from(byte % 4) - 1,
        128.. => input.u32() as i32,
    }
}

/// Calls `set` with room for a struct of some size. Returns the struct if it was set and the size
/// is that of this version.
fn init<T: Copy>(input: &mut Input<'_>, set: impl FnOnce(*mut T, usize) -> i32) -> Option<T> {
    let size = if input.u8() < 200 { size_of::<T>() } else { input.below(256) };
    let mut words = vec![0u64; size.div_ceil(8)].into_boxed_slice();
    let room = pointer(input, words.as_mut_ptr());
    let is_set = good(set(room.cast(), size)) && size == size_of::<T>();
    // SAFETY: the struct is made of numbers, and the words have room for it.
    is_set.then(|| unsafe { words.as_ptr().cast::<T>().read() })
}

/// The bytes of a struct that states its size, now and then that of another version.
fn of_any_size<T: Copy>(
    input: &mut Input<'_>,
    mut attr: T,
    set_size: impl FnOnce(&mut T, u32),
) -> Box<[u64]> {
    let size = if input.u8() > 230 { input.u8().into() } else { size_of::<T>() as u32 };
    set_size(&mut attr, size);
    shortened(&attr, size as usize)
}
