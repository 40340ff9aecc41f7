//! Stacks, workers, contexts, queues and counters.

use std::ffi::CString;
use std::ptr::null_mut;

use crate::Input;
use capi::*;

use super::program::{Program, good, pick, pointer};

pub fn create_qp(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let ends = &program.ends;
    let Some(ctx) = pick(input, ends, end, |end| &end.ctxs) else { return };
    let Some(pd) = pick(input, ends, end, |end| &end.pds) else { return };
    let Some(cq) = pick(input, ends, end, |end| &end.cqs) else { return };
    // SAFETY: the struct is made of numbers.
    let mut attr: iw_qp_attr = unsafe { std::mem::zeroed() };
    // SAFETY: memory for the value.
    good(unsafe { iw_qp_attr_init_sized(&mut attr, size_of::<iw_qp_attr>(), cq) });
    (attr.send_depth, attr.recv_depth) = (input.u8().into(), input.u8().into());
    if input.u8() > 200 {
        attr.core = i32::from(input.u8()) - 2;
        (attr.max_sge, attr.inline_bytes) = (input.u8().into(), input.u16().into());
        (attr.ird, attr.ord) = (input.u16(), input.u16());
        attr.complete_on_copy = input.u8().into();
    }
    if let Some(srq) = pick(input, ends, end, |end| &end.srqs)
        && input.flag()
    {
        attr.srq = srq;
    }
    // A caller of another version: the struct is as long as it says.
    let size = if input.u8() > 230 { input.u8().into() } else { attr.size };
    attr.size = size;
    let given = shortened(&attr, size as usize);
    let mut qp = iw_qp::default();
    // SAFETY: handles of this library, a struct of the size that it states, and memory for the
    // value.
    if good(unsafe { iw_qp_create(ctx, pd, pointer(input, given.as_ptr().cast_mut()).cast(), &mut qp) }) {
        program.ends[end].qps.push(qp);
    }
}

/// The first bytes of a struct, in words: at least its size field, and zeros beyond its end.
pub fn shortened<T: Copy>(whole: &T, bytes: usize) -> Box<[u64]> {
    let bytes = bytes.clamp(4, 256);
    let mut words = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
    let most = bytes.min(size_of::<T>());
    // SAFETY: both have as many bytes, and numbers and pointers may be copied.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const *whole).cast::<u8>(), words.as_mut_ptr().cast(), most)
    };
    words
}

pub fn qp(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    let Some(qp) = pick(input, &program.ends, end, |end| &end.qps) else { return };
    // SAFETY: the struct is made of numbers.
    let mut info: iw_qp_info = unsafe { std::mem::zeroed() };
    info.size = size_of::<iw_qp_info>() as u32;
    // SAFETY: a handle of this library, and memory for the value.
    if good(unsafe { iw_qp_query(ctx, qp, pointer(input, &mut info)) }) {
        assert!(info.state <= IW_QP_ERROR && info.sends_outstanding <= info.send_depth);
    }
    if input.u8() > 160 {
        // SAFETY: as above.
        good(unsafe { iw_qp_destroy(ctx, qp) });
    }
}

pub fn create_cq(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    let (depth, mut cq) = (input.u8().into(), iw_cq::default());
    let depth = if depth == 255 { input.u32() } else { depth };
    // SAFETY: a handle of this library, and memory for the value.
    if good(unsafe { iw_cq_create(ctx, depth, pointer(input, &mut cq)) }) {
        program.ends[end].cqs.push(cq);
    }
}

pub fn cq(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    let Some(cq) = pick(input, &program.ends, end, |end| &end.cqs) else { return };
    let mut info =
        iw_cq_info { size: size_of::<iw_cq_info>() as u32, depth: 0, reserved_cqes: 0, users: 0, core: 0 };
    let mut descriptor = -1;
    // SAFETY: a handle of this library, and memory for values.
    unsafe {
        match input.u8() % 8 {
            0 | 1 => good(iw_cq_resize(ctx, cq, input.u16().into())),
            2 | 3 => good(iw_cq_arm(ctx, cq, input.u8().into())),
            4 => good(iw_cq_fd(ctx, cq, pointer(input, &mut descriptor))),
            5 | 6 => good(iw_cq_query(ctx, cq, pointer(input, &mut info))),
            _ => good(iw_cq_destroy(ctx, cq)),
        };
    }
}

pub fn srq(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    let Some(pd) = pick(input, &program.ends, end, |end| &end.pds) else { return };
    let known = pick(input, &program.ends, end, |end| &end.srqs);
    let (kind, mut made) = (input.u8() % 8, iw_srq::default());
    let mut info = iw_srq_info {
        size: size_of::<iw_srq_info>() as u32,
        depth: 0,
        posted: 0,
        max_sge: 0,
        users: 0,
        core: 0,
    };
    // SAFETY: a handle of this library, and memory for values.
    unsafe {
        match (kind, known) {
            (0..=2, _) | (_, None) => {
                let (depth, most) = (input.u8().into(), input.u8() % 20);
                if good(iw_srq_create(ctx, pd, depth, most.into(), pointer(input, &mut made))) {
                    program.ends[end].srqs.push(made);
                }
            }
            (3 | 4, Some(srq)) => _ = good(iw_srq_arm(ctx, srq, input.u8().into())),
            (5 | 6, Some(srq)) => _ = good(iw_srq_query(ctx, srq, pointer(input, &mut info))),
            (_, Some(srq)) => _ = good(iw_srq_destroy(ctx, srq)),
        }
    }
}

pub fn context(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let (stack, mut made) = (program.ends[end].stack, null_mut());
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    let mut pd = iw_pd { id: 0 };
    let mut drained = iw_drain_progress { size: size_of::<iw_drain_progress>() as u32, open: 0, aborted: 0 };
    let mut descriptor = -1;
    // SAFETY: the structs are made of numbers; handles of this library, and memory for values.
    unsafe {
        let mut limits: iw_limits = std::mem::zeroed();
        limits.size = size_of::<iw_limits>() as u32;
        let mut event: iw_event = std::mem::zeroed();
        event.size = size_of::<iw_event>() as u32;
        match input.u8() % 16 {
            0 | 1 => {
                if good(iw_ctx_open(stack, pointer(input, &mut made))) {
                    program.ends[end].ctxs.push(made);
                }
            }
            2 => _ = good(iw_ctx_open(ctx.cast(), &mut made)),
            3 => _ = good(iw_ctx_close(ctx)),
            4..=6 => {
                if good(iw_pd_alloc(ctx, pointer(input, &mut pd))) {
                    program.ends[end].pds.push(pd);
                }
            }
            7 => _ = good(iw_limits_query(ctx, pointer(input, &mut limits))),
            8 => {
                let deadline = if input.flag() { 0 } else { u64::MAX };
                _ = good(iw_drain(ctx, deadline, pointer(input, &mut drained)));
            }
            9 | 10 => _ = good(iw_event_arm(ctx)),
            11 => ports(input, ctx),
            12 => _ = good(iw_event_fd(ctx, pointer(input, &mut descriptor))),
            _ => _ = good(iw_event_poll(ctx, pointer(input, &mut event))),
        }
    }
}

/// The ports of a context's stack: structs and lists are as long as they say.
///
/// # Safety
/// A handle of this library.
unsafe fn ports(input: &mut Input<'_>, ctx: *mut iw_ctx) {
    let port = if input.u8() < 200 { 0 } else { input.u32() };
    let mut words = vec![0u64; 16].into_boxed_slice();
    let count = input.below(12);
    // SAFETY: the struct is made of numbers.
    let mut addresses = vec![unsafe { std::mem::zeroed::<iw_port_address>() }; count].into_boxed_slice();
    let size = if input.u8() < 200 { size_of::<iw_port_info>() as u32 } else { u32::from(input.u8() % 129) };
    // SAFETY: guaranteed by the caller; there is room for a struct of that size and for as many
    // addresses.
    unsafe {
        words.as_mut_ptr().cast::<u32>().write(size);
        good(iw_ports(ctx));
        good(iw_port_query(ctx, port, pointer(input, words.as_mut_ptr()).cast()));
        let known = iw_port_addresses(ctx, port, pointer(input, addresses.as_mut_ptr()), count as u32);
        assert!(!good(known) || known <= 8);
    }
}

pub fn worker(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let (stack, mut made) = (program.ends[end].stack, null_mut());
    let Some(worker) = pick(input, &program.ends, end, |end| &end.workers) else { return };
    let mut polled =
        iw_poll_result { size: size_of::<iw_poll_result>() as u32, reserved: 0, work: 0, idle_ns: 0 };
    // SAFETY: handles of this library, and memory for values.
    unsafe {
        match input.u8() % 16 {
            0 => {
                if good(iw_worker_take(stack, input.u8().into(), pointer(input, &mut made))) {
                    program.ends[end].workers.push(made);
                }
            }
            1 => _ = good(iw_worker_start(worker, -1)),
            2..=5 => _ = good(iw_worker_stop(worker)),
            6 if input.u8() > 200 => _ = good(iw_worker_close(worker)),
            7 | 8 => _ = good(iw_worker_link_up(worker)),
            9 => _ = good(iw_worker_poll(stack.cast(), 1, &mut polled)),
            10 => _ = good(iw_stack_cores(stack)),
            _ => _ = good(iw_worker_poll(worker, input.u8().into(), pointer(input, &mut polled))),
        }
    }
}

pub fn counters(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let (stack, mut value) = (program.ends[end].stack, 0);
    let name =
        CString::new(input.short_bytes().split(|byte| *byte == 0).next().unwrap_or(b"")).expect("no NUL");
    let mut room = vec![0; usize::from(input.u8())].into_boxed_slice();
    // SAFETY: a handle of this library, a text, and memory for values.
    unsafe {
        good(iw_stack_counter(stack, name.as_ptr(), pointer(input, &mut value)));
        let all = iw_stack_counters(stack);
        assert!(good(all) && all > 0);
        let (number, size) = (input.u16().into(), room.len());
        let named = iw_stack_counter_at(stack, number, pointer(input, room.as_mut_ptr()), size, &mut value);
        if good(named) {
            assert!(good(iw_stack_counter(stack, room.as_ptr(), &mut value)), "a counter has its name");
        }
    }
}

/// Configurations that are refused.
pub fn open_wrongly(input: &mut Input<'_>) {
    const TEXTS: [&std::ffi::CStr; 4] =
        [c"", c"[port]\ndevice.memory = {}\nmtu = 7\n", c"[core]\ncount = 0\n", c"\xff[port]"];
    let texts = [TEXTS[input.below(4)].as_ptr(), TEXTS[input.below(4)].as_ptr()];
    let (mut first, mut second) = (null_mut(), null_mut());
    let kind = input.u8().into();
    // SAFETY: texts and memory for handles.
    unsafe {
        let (one, other) = (pointer(input, &mut first), pointer(input, &mut second));
        assert!(!good(iw_stack_open_pair(texts[0], texts[1], kind, input.u8().into(), one, other)));
        assert!(first.is_null() && second.is_null());
        assert!(!good(iw_stack_open(texts[0], input.u8().into(), &mut first)) && first.is_null());
        assert!(!good(iw_stack_open_file(texts[1], 0, &mut first)) && first.is_null());
    }
}
