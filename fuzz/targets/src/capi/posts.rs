//! Work requests and completions, by contexts and by the ends of split queues.

use std::ptr::null_mut;

use crate::Input;
use capi::*;

use super::call::Call;
use super::program::{End, good, pick};

/// A piece of registered memory, or now and then anything.
fn sge(input: &mut Input<'_>, end: &End) -> iw_sge {
    let Some(memory) = end.memory.get(input.below(end.memory.len().max(1))) else {
        return iw_sge { addr: 0, length: 0, lkey: 0 };
    };
    let offset = u64::from(input.u8()) * 8;
    let mut sge =
        iw_sge { addr: memory.info.offset + offset, length: input.u16().into(), lkey: memory.info.stag };
    match input.u8() {
        0..128 => sge.length %= 128,
        128..160 => sge.length = 8,
        250.. => sge.lkey = input.u32(),
        _ => {}
    }
    sge
}

/// A list exactly as long as its request says.
fn sges(call: &mut Call<'_, '_>, count: usize) -> (*const iw_sge, u32) {
    let end = &call.program.ends[call.end];
    let list: Vec<iw_sge> = (0..count).map(|_| sge(call.input, end)).collect();
    (call.copied(&list), count as u32)
}

pub fn send(call: &mut Call<'_, '_>) {
    let (by_end, ctx, poster, qp) = (call.input.u8() < 64, call.ctx(), call.send_poster(), call.qp());
    let count = 1 + call.input.below(4) * call.input.below(3);
    let wrs: Vec<iw_send_wr> = (0..count).map(|number| send_wr(call, number)).collect();
    let list = call.copied(&wrs);
    let (list, size, mut posted) = (call.given(list), size_of::<iw_send_wr>(), 0);
    let given = call.given(&mut posted);
    // SAFETY: handles of this library, lists that are as long as they say, and memory for a number.
    good(unsafe {
        match by_end {
            true => iw_send_poster_post_sized(poster, list, size, count as u32, given),
            false => iw_post_send_sized(ctx, qp, list, size, count as u32, given),
        }
    });
    // Where the number was not asked for, all may have been posted.
    call.program.posted += if posted == 0 { count as u64 } else { posted.into() };
}

fn send_wr(call: &mut Call<'_, '_>, number: usize) -> iw_send_wr {
    // SAFETY: the struct is made of numbers and pointers that may be null.
    let mut wr: iw_send_wr = unsafe { std::mem::zeroed() };
    wr.wr_id = call.program.posted + number as u64;
    wr.opcode = u32::from(call.input.u8() % 13);
    wr.flags = if call.input.u8() < 200 { u32::from(call.input.u8() & 0x4f) } else { call.input.u8().into() };
    let single = matches!(wr.opcode, IW_WR_READ | IW_WR_FETCH_ADD..=IW_WR_SWAP | IW_WR_BIND..);
    let count = if single && call.input.u8() < 240 { 1 } else { call.input.below(19) };
    (wr.sges, wr.sge_count) = sges(call, count);
    let (input, ends, end) = (&mut *call.input, &call.program.ends, call.end);
    let far = &ends[1 - end].memory;
    if let Some(memory) = far.get(input.below(far.len().max(1))) {
        wr.remote_stag = memory.info.stag;
        wr.remote_offset = memory.info.offset.wrapping_add(u64::from(input.u8()) * 8);
    }
    if input.u8() > 245 {
        (wr.remote_stag, wr.remote_offset) = (input.u32(), input.u64());
    }
    (wr.compare_add, wr.compare_add_mask) = (input.u8().into(), if input.flag() { u64::MAX } else { 0 });
    (wr.swap, wr.swap_mask) = (input.u8().into(), u64::MAX);
    wr.immediate = [input.u8(); 8];
    wr.invalidate_stag = wr.remote_stag;
    wr.window = pick(input, ends, end, |end| &end.windows).unwrap_or(null_mut());
    wr.fast_mr = pick(input, ends, end, |end| &end.fast).unwrap_or(null_mut());
    let bound = if wr.opcode == IW_WR_BIND { wr.window.cast() } else { wr.fast_mr };
    if wr.opcode == IW_WR_INVALIDATE && !bound.is_null() {
        let mut info = iw_stag_info { size: size_of::<iw_stag_info>() as u32, stag: 0, next_stag: 0 };
        // SAFETY: a handle of this library, and memory for the value.
        good(unsafe { iw_fast_mr_query(bound, &mut info) });
        wr.invalidate_stag = info.stag;
    }
    wr.access = u32::from(input.u8() % 33);
    if wr.flags & IW_SEND_INLINE != 0 {
        let bytes = input.bytes(300);
        (wr.inline_data, wr.inline_bytes) = (call.copied(bytes), bytes.len() as u32);
    }
    wr
}

pub fn receive(call: &mut Call<'_, '_>) {
    let (kind, ctx, qp, srq) = (call.input.u8() % 8, call.ctx(), call.qp(), call.srq());
    let (poster, shared) = (call.recv_poster(), call.srq_poster());
    let count = 1 + call.input.below(6);
    let wrs: Vec<iw_recv_wr> = (0..count)
        .map(|number| {
            let elements = call.input.below(4);
            let (sges, sge_count) = sges(call, elements);
            iw_recv_wr { wr_id: call.program.posted + number as u64, sges, sge_count, reserved: 0 }
        })
        .collect();
    let list = call.copied(&wrs);
    let (list, size, mut posted) = (call.given(list), size_of::<iw_recv_wr>(), 0);
    let (count, given) = (count as u32, &raw mut posted);
    // SAFETY: handles of this library, lists that are as long as they say, and memory for a number.
    good(unsafe {
        match kind {
            0..=3 => iw_post_recv_sized(ctx, qp, list, size, count, given),
            4 => iw_srq_post_recv_sized(ctx, srq, list, size, count, given),
            5 | 6 => iw_recv_poster_post_sized(poster, list, size, count, given),
            _ => iw_srq_poster_post_sized(shared, list, size, count, given),
        }
    });
    call.program.posted += u64::from(posted);
}

pub fn reap(call: &mut Call<'_, '_>) {
    let (by_end, ctx, poller, cq) = (call.input.u8() < 64, call.ctx(), call.cq_poller(), call.cq());
    let count = call.input.below(20);
    // SAFETY: the struct is made of numbers.
    let wcs: Vec<iw_wc> = vec![unsafe { std::mem::zeroed() }; count];
    let room: *mut iw_wc = call.copied(&wcs);
    let (given, size) = (call.given(room), size_of::<iw_wc>());
    // SAFETY: handles of this library, and memory for as many completions.
    let reaped = unsafe {
        match by_end {
            true => iw_cq_poller_poll_sized(poller, given, size, count as u32),
            false => iw_cq_poll_sized(ctx, cq, given, size, count as u32),
        }
    };
    if !good(reaped) {
        return;
    }
    assert!(reaped as usize <= count);
    // SAFETY: there are at least as many.
    for wc in unsafe { std::slice::from_raw_parts(room, reaped as usize) } {
        assert!(wc.status <= IW_WC_MW_BIND_ERR && wc.opcode <= IW_WC_FAST_REGISTER);
        assert!(wc.wr_id < call.program.posted, "a completion of a request that was not posted");
    }
    call.program.reaped += reaped as u64;
    // A Write with Immediate Data that fails has two.
    assert!(call.program.reaped <= 2 * call.program.posted);
}
