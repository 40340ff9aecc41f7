//! Registered memory, windows, fast regions, and words.

use std::ptr::null_mut;

use crate::Input;
use capi::*;

use super::program::{ALL_ACCESS, Bytes, Memory, Program, good, pick, pointer};

pub fn register(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let ends = &program.ends;
    let Some(ctx) = pick(input, ends, end, |end| &end.ctxs) else { return };
    let Some(pd) = pick(input, ends, end, |end| &end.pds) else { return };
    let length = usize::from(input.u16() % 6000);
    let access = if input.u8() < 160 { ALL_ACCESS } else { input.u8().into() };
    let (bytes, mut mr, mut allocated) = (Bytes::new(length), null_mut(), null_mut());
    let (address, kind) = (bytes.address.cast(), input.u8() % 8);
    let out = pointer(input, &mut mr);
    // SAFETY: handles of this library, memory for values, and bytes that are freed when the library
    // says so.
    let registered = unsafe {
        match kind {
            0..=2 => iw_mr_register(ctx, pd, address, length, access, out),
            3 => match pick(input, ends, end, |end| &end.qps) {
                Some(qp) => iw_mr_register_for_qp(ctx, qp, address, length, access, out),
                None => return,
            },
            4 => iw_mr_register_on_core(ctx, pd, address, length, access, input.u8() as u32 % 3, out),
            // The same bytes once more: the first registration keeps them.
            5 => {
                let Some(first) = ends[end].memory.first().filter(|first| first.bytes.is_some()) else {
                    return;
                };
                iw_mr_register(ctx, pd, first.info.offset as *mut _, first.info.length as usize, access, out)
            }
            6 => iw_mr_register(ctx, pd, pointer(input, null_mut::<u64>()).cast(), usize::MAX, access, out),
            _ => iw_mr_alloc(ctx, pd, length, access, pointer(input, &mut allocated), out),
        }
    };
    if !good(registered) {
        assert!(mr.is_null());
        return;
    }
    let mut memory = Memory::of(mr, (kind < 5).then_some(bytes));
    if kind == 5 {
        // It ends before the first one does: the bytes belong to that.
        assert!(settle(program, &mut memory));
        return;
    }
    program.ends[end].memory.push(memory);
}

/// Ends a registration while workers are polled.
fn settle(program: &mut Program, memory: &mut Memory) -> bool {
    // A worker may be on a thread of the library.
    (0..1_000_000).any(|_| {
        program.poll(1);
        std::thread::yield_now();
        memory.end()
    })
}

pub fn deregister(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let all = &mut program.ends[end].memory;
    if all.is_empty() {
        return;
    }
    let at = input.below(all.len());
    // Ended memory leaves the list, and its bytes are freed at once.
    if all[at].end() {
        let memory = all.swap_remove(at);
        // SAFETY: a handle of this library.
        assert!(!good(unsafe { iw_mr_poll_deregistered(memory.handle) }), "the handle has ended");
    }
}

pub fn query(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(memory) = program.ends[end].memory.first() else { return };
    let (mut info, mut core) = (memory.info, 0);
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    // SAFETY: handles of this library, and memory for values.
    unsafe {
        good(iw_mr_query(memory.handle, pointer(input, &mut info)));
        good(iw_owner_core(ctx, memory.handle, input.u16().into(), pointer(input, &mut core)));
        good(iw_mr_query(ctx.cast(), &mut info));
    }
}

pub fn create_tag(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    let Some(pd) = pick(input, &program.ends, end, |end| &end.pds) else { return };
    let (mut window, mut fast) = (null_mut(), null_mut());
    // SAFETY: a handle of this library, and memory for values.
    unsafe {
        if input.flag() {
            if good(iw_mw_create(ctx, pd, pointer(input, &mut window))) {
                program.ends[end].windows.push(window);
            }
        } else if good(iw_fast_mr_create(ctx, pd, pointer(input, &mut fast))) {
            program.ends[end].fast.push(fast);
        }
    }
}

pub fn use_tag(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let window = pick(input, &program.ends, end, |end| &end.windows).unwrap_or(null_mut());
    let fast = pick(input, &program.ends, end, |end| &end.fast).unwrap_or(null_mut());
    let mut info = iw_stag_info { size: size_of::<iw_stag_info>() as u32, stag: 0, next_stag: 0 };
    // SAFETY: handles of this library or null, and memory for the value.
    unsafe {
        match input.u8() % 8 {
            0 | 1 => good(iw_mw_query(window, pointer(input, &mut info))),
            2 => good(iw_mw_invalidate(window)),
            3 => good(iw_mw_destroy(window)),
            4 => good(iw_fast_mr_query(fast, pointer(input, &mut info))),
            5 => good(iw_fast_mr_invalidate(fast)),
            6 => good(iw_fast_mr_destroy(fast)),
            // Of another kind.
            _ => good(iw_mw_query(fast.cast(), &mut info)),
        };
    }
}

pub fn atomic(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    let Some(cq) = pick(input, &program.ends, end, |end| &end.cqs) else { return };
    let all = &program.ends[end].memory;
    let Some(memory) = all.get(input.below(all.len().max(1))) else { return };
    let offset = if input.u8() < 200 { usize::from(input.u8()) * 8 } else { input.u32() as usize };
    let mut op = iw_atomic_op {
        opcode: u32::from(input.u8() % 4) + IW_WR_WRITE_IMMEDIATE,
        reserved: 0,
        compare_add: input.u64(),
        compare_add_mask: input.u64(),
        swap: input.u16().into(),
        swap_mask: u64::MAX,
    };
    // SAFETY: handles of this library, and an operation.
    if good(unsafe { iw_atomic(ctx, cq, program.posted, memory.handle, offset, pointer(input, &mut op)) }) {
        program.posted += 1;
    }
}
