//! Registered memory: the program's bytes behind it are freed when the library says so.

use std::ptr::null_mut;

use capi::*;

use super::call::Call;
use super::program::{ALL_ACCESS, Bytes, Memory, Program, good};

pub fn register(call: &mut Call<'_, '_>) {
    let (ctx, pd, qp) = (call.ctx(), call.pd(), call.qp());
    let length = usize::from(call.input.u16() % 6000);
    let access = if call.input.u8() < 160 { ALL_ACCESS } else { call.input.u8().into() };
    let (bytes, mut mr, mut allocated) = (Bytes::new(length), null_mut(), null_mut());
    let (address, kind) = (bytes.address.cast(), call.input.u8() % 8);
    let (out, allocated, core) = (call.given(&mut mr), call.given(&mut allocated), call.few());
    // SAFETY: handles of this library, memory for values, and bytes that are freed when the library
    // says so.
    let registered = unsafe {
        match kind {
            0..=2 => iw_mr_register(ctx, pd, address, length, access, out),
            3 => iw_mr_register_for_qp(ctx, qp, address, length, access, out),
            4 => iw_mr_register_on_core(ctx, pd, address, length, access, core, out),
            // The same bytes once more: the first registration keeps them.
            5 => {
                let memory = &call.program.ends[call.end].memory;
                let Some(first) = memory.first().filter(|first| first.bytes.is_some()) else { return };
                iw_mr_register(ctx, pd, first.info.offset as *mut _, first.info.length as usize, access, out)
            }
            6 => iw_mr_register(ctx, pd, null_mut(), usize::MAX, access, out),
            _ => iw_mr_alloc(ctx, pd, length, access, allocated, out),
        }
    };
    if !good(registered) {
        assert!(mr.is_null());
        return;
    }
    let mut memory = Memory::of(mr, (kind < 5).then_some(bytes));
    if kind == 5 {
        // It ends before the first one does: the bytes belong to that.
        assert!(settle(call.program, &mut memory));
        return;
    }
    call.program.ends[call.end].memory.push(memory);
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

pub fn deregister(call: &mut Call<'_, '_>) {
    let all = &mut call.program.ends[call.end].memory;
    if all.is_empty() {
        return;
    }
    let at = call.input.below(all.len());
    // Ended memory leaves the list, and its bytes are freed at once.
    if all[at].end() {
        let memory = all.swap_remove(at);
        // SAFETY: a handle of this library.
        assert!(!good(unsafe { iw_mr_poll_deregistered(memory.handle) }), "the handle has ended");
    }
}

pub fn atomic(call: &mut Call<'_, '_>) {
    let (ctx, cq, mr, offset) = (call.ctx(), call.cq(), call.mr(), call.offset());
    let op = iw_atomic_op {
        opcode: u32::from(call.input.u8() % 4) + IW_WR_WRITE_IMMEDIATE,
        reserved: 0,
        compare_add: call.input.u64(),
        compare_add_mask: call.input.u64(),
        swap: call.input.u16().into(),
        swap_mask: u64::MAX,
    };
    let op = call.copied(&[op]);
    // SAFETY: handles of this library, and an operation.
    if good(unsafe { iw_atomic(ctx, cq, call.program.posted, mr, offset, call.given(op)) }) {
        call.program.posted += 1;
    }
}
