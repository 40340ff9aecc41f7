//! Work requests and completions.

use std::ptr::null_mut;

use crate::Input;
use capi::*;

use super::program::{End, Program, good, pick, pointer};

/// Lists that requests point to, each exactly as long as its request says.
#[derive(Default)]
struct Lists {
    sges: Vec<Box<[iw_sge]>>,
    inline: Vec<Box<[u8]>>,
}

impl Lists {
    fn sges(&mut self, input: &mut Input<'_>, end: &End, most: usize) -> (*const iw_sge, u32) {
        let count = input.below(most + 1);
        let list: Box<[iw_sge]> = (0..count).map(|_| sge(input, end)).collect();
        self.sges.push(list);
        let list = &self.sges[self.sges.len() - 1];
        (list.as_ptr(), list.len() as u32)
    }
}

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

pub fn send(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    let Some(qp) = pick(input, &program.ends, end, |end| &end.qps) else { return };
    send_by(input, program, end, |list, size, count, posted| {
        // SAFETY: a handle of this library; the rest as `send_by` promises.
        unsafe { iw_post_send_sized(ctx, qp, list, size, count, posted) }
    });
}

/// Calls `post` with requests, their size and number, whose lists are as long as they say, and with
/// memory for the number of those that were posted.
pub fn send_by(
    input: &mut Input<'_>,
    program: &mut Program,
    end: usize,
    post: impl FnOnce(*const iw_send_wr, usize, u32, *mut u32) -> i32,
) {
    let mut lists = Lists::default();
    let count = 1 + input.below(4) * input.below(3);
    let mut wrs: Box<[iw_send_wr]> =
        (0..count).map(|number| send_wr(input, program, end, number, &mut lists)).collect();
    let (list, mut posted) = (pointer(input, wrs.as_mut_ptr()), 0);
    good(post(list, size_of::<iw_send_wr>(), count as u32, pointer(input, &mut posted)));
    // Where the number was not asked for, all may have been posted.
    program.posted += if posted == 0 { count as u64 } else { posted.into() };
}

fn send_wr(
    input: &mut Input<'_>,
    program: &Program,
    end: usize,
    number: usize,
    lists: &mut Lists,
) -> iw_send_wr {
    // SAFETY: the struct is made of numbers and pointers that may be null.
    let mut wr: iw_send_wr = unsafe { std::mem::zeroed() };
    wr.wr_id = program.posted + number as u64;
    wr.opcode = u32::from(input.u8() % 13);
    wr.flags = if input.u8() < 200 { u32::from(input.u8() & 0x4f) } else { input.u8().into() };
    let single = matches!(wr.opcode, IW_WR_READ | IW_WR_FETCH_ADD..=IW_WR_SWAP | IW_WR_BIND..);
    if single && input.u8() < 240 {
        let list: Box<[iw_sge]> = Box::new([sge(input, &program.ends[end])]);
        lists.sges.push(list);
        (wr.sges, wr.sge_count) = (lists.sges[lists.sges.len() - 1].as_ptr(), 1);
    } else {
        (wr.sges, wr.sge_count) = lists.sges(input, &program.ends[end], 18);
    }
    let far = &program.ends[1 - end].memory;
    if let Some(memory) = far.get(input.below(far.len().max(1))) {
        wr.remote_stag = memory.info.stag;
        wr.remote_offset = memory.info.offset.wrapping_add(u64::from(input.u8()) * 8);
    }
    if input.u8() > 245 {
        (wr.remote_stag, wr.remote_offset) = (input.u32(), input.u64());
    }
    if wr.flags & IW_SEND_INLINE != 0 {
        lists.inline.push(input.bytes(300).into());
        let bytes = &lists.inline[lists.inline.len() - 1];
        (wr.inline_data, wr.inline_bytes) = (bytes.as_ptr(), bytes.len() as u32);
    }
    (wr.compare_add, wr.compare_add_mask) = (input.u8().into(), if input.flag() { u64::MAX } else { 0 });
    (wr.swap, wr.swap_mask) = (input.u8().into(), u64::MAX);
    wr.immediate = [input.u8(); 8];
    wr.invalidate_stag = wr.remote_stag;
    wr.window = pick(input, &program.ends, end, |end| &end.windows).unwrap_or(null_mut());
    wr.fast_mr = pick(input, &program.ends, end, |end| &end.fast).unwrap_or(null_mut());
    let bound = if wr.opcode == IW_WR_BIND { wr.window.cast() } else { wr.fast_mr };
    if wr.opcode == IW_WR_INVALIDATE && !bound.is_null() {
        wr.invalidate_stag = tag_of(bound);
    }
    wr.access = u32::from(input.u8() % 33);
    wr
}

fn tag_of(fast: *mut iw_fast_mr) -> u32 {
    let mut info = iw_stag_info { size: size_of::<iw_stag_info>() as u32, stag: 0, next_stag: 0 };
    // SAFETY: a handle of this library, and memory for the value.
    good(unsafe { iw_fast_mr_query(fast, &mut info) });
    info.stag
}

pub fn receive(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    receive_by(input, program, end, |input, ends, list, count, posted| {
        let size = size_of::<iw_recv_wr>();
        let srq = pick(input, ends, end, |end| &end.srqs).filter(|_| input.u8() > 160);
        // SAFETY: a handle of this library; the rest as `receive_by` promises.
        unsafe {
            if let Some(srq) = srq {
                return iw_srq_post_recv_sized(ctx, srq, list, size, count, posted);
            }
            let Some(qp) = pick(input, ends, end, |end| &end.qps) else { return 0 };
            iw_post_recv_sized(ctx, qp, list, size, count, posted)
        }
    });
}

/// Calls `post` with receives and their number, whose lists are as long as they say, and with
/// memory for the number of those that were posted.
pub fn receive_by(
    input: &mut Input<'_>,
    program: &mut Program,
    end: usize,
    post: impl FnOnce(&mut Input<'_>, &[End; 2], *const iw_recv_wr, u32, *mut u32) -> i32,
) {
    let mut lists = Lists::default();
    let count = 1 + input.below(6);
    let mut wrs: Box<[iw_recv_wr]> = (0..count)
        .map(|number| {
            let (sges, sge_count) = lists.sges(input, &program.ends[end], 3);
            iw_recv_wr { wr_id: program.posted + number as u64, sges, sge_count, reserved: 0 }
        })
        .collect();
    let (list, mut posted) = (pointer(input, wrs.as_mut_ptr()), 0);
    good(post(input, &program.ends, list, count as u32, &mut posted));
    program.posted += u64::from(posted);
}

pub fn reap(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    let Some(cq) = pick(input, &program.ends, end, |end| &end.cqs) else { return };
    reap_by(input, program, |places, size, count| {
        // SAFETY: a handle of this library; the rest as `reap_by` promises.
        unsafe { iw_cq_poll_sized(ctx, cq, places, size, count) }
    });
}

/// Calls `poll` with memory for completions, their size and number, and checks what it stored.
pub fn reap_by(
    input: &mut Input<'_>,
    program: &mut Program,
    poll: impl FnOnce(*mut iw_wc, usize, u32) -> i32,
) {
    let count = input.below(20);
    // SAFETY: the struct is made of numbers.
    let mut wcs: Box<[iw_wc]> = vec![unsafe { std::mem::zeroed() }; count].into_boxed_slice();
    let reaped = poll(pointer(input, wcs.as_mut_ptr()), size_of::<iw_wc>(), count as u32);
    if !good(reaped) {
        return;
    }
    assert!(reaped as usize <= count);
    for wc in &wcs[..reaped as usize] {
        assert!(wc.status <= IW_WC_MW_BIND_ERR && wc.opcode <= IW_WC_FAST_REGISTER);
        assert!(wc.wr_id < program.posted, "a completion of a request that was not posted");
    }
    program.reaped += reaped as u64;
    // A Write with Immediate Data that fails has two.
    assert!(program.reaped <= 2 * program.posted);
}
