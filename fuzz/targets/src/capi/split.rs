//! Ends of queues that are split from their context: other threads may use them, here the same one
//! does.

use std::ptr::null_mut;

use crate::Input;
use capi::*;

use super::posts::{reap_by, receive_by, send_by};
use super::program::{Program, good, pick, pointer};

/// The ends of one stack's queues, live and stale.
#[derive(Default)]
pub struct Split {
    sends: Vec<*mut iw_send_poster>,
    recvs: Vec<*mut iw_recv_poster>,
    srqs: Vec<*mut iw_srq_poster>,
    pollers: Vec<*mut iw_cq_poller>,
}

impl Split {
    /// Closes every end; most of them are live.
    pub fn close(&mut self) {
        // SAFETY: handles of this library.
        unsafe {
            self.sends.drain(..).for_each(|end| _ = good(iw_send_poster_close(end)));
            self.recvs.drain(..).for_each(|end| _ = good(iw_recv_poster_close(end)));
            self.srqs.drain(..).for_each(|end| _ = good(iw_srq_poster_close(end)));
            self.pollers.drain(..).for_each(|end| _ = good(iw_cq_poller_close(end)));
        }
    }
}

pub fn split(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let ends = &program.ends;
    let Some(ctx) = pick(input, ends, end, |end| &end.ctxs) else { return };
    let (mut send, mut recv, mut shared, mut poller) = (null_mut(), null_mut(), null_mut(), null_mut());
    let kind = input.u8() % 4;
    let (cq, srq) = (pick(input, ends, end, |end| &end.cqs), pick(input, ends, end, |end| &end.srqs));
    let qp = pick(input, ends, end, |end| &end.qps);
    // SAFETY: handles of this library, and memory for handles.
    unsafe {
        match (kind, qp, cq, srq) {
            (0 | 1, Some(qp), ..) => {
                good(iw_qp_split(ctx, qp, pointer(input, &mut send), pointer(input, &mut recv)))
            }
            (2, _, Some(cq), _) => good(iw_cq_split(ctx, cq, pointer(input, &mut poller))),
            (3, .., Some(srq)) => good(iw_srq_split(ctx, srq, pointer(input, &mut shared))),
            _ => return,
        };
    }
    // A call that fails has stored nothing, or null.
    let split = &mut program.ends[end].split;
    split.sends.extend((!send.is_null()).then_some(send));
    split.recvs.extend((!recv.is_null()).then_some(recv));
    split.srqs.extend((!shared.is_null()).then_some(shared));
    split.pollers.extend((!poller.is_null()).then_some(poller));
}

pub fn send(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(poster) = pick(input, &program.ends, end, |end| &end.split.sends) else { return };
    send_by(input, program, end, |list, size, count, posted| {
        // SAFETY: a handle of this library; the rest as `send_by` promises.
        unsafe { iw_send_poster_post_sized(poster, list, size, count, posted) }
    });
}

pub fn receive(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let recv = pick(input, &program.ends, end, |end| &end.split.recvs);
    let srq = pick(input, &program.ends, end, |end| &end.split.srqs);
    let prefers_srq = input.flag();
    receive_by(input, program, end, |_, _, list, count, posted| {
        let size = size_of::<iw_recv_wr>();
        // SAFETY: a handle of this library; the rest as `receive_by` promises.
        unsafe {
            match (recv, srq) {
                (_, Some(srq)) if prefers_srq => iw_srq_poster_post_sized(srq, list, size, count, posted),
                (Some(recv), _) => iw_recv_poster_post_sized(recv, list, size, count, posted),
                (None, _) => 0,
            }
        }
    });
}

pub fn reap(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(poller) = pick(input, &program.ends, end, |end| &end.split.pollers) else { return };
    let mut descriptor = -1;
    // SAFETY: a handle of this library, and memory for values.
    unsafe {
        match input.u8() % 8 {
            0 => _ = good(iw_cq_poller_arm(poller, input.u8().into())),
            1 => _ = good(iw_cq_poller_fd(poller, pointer(input, &mut descriptor))),
            // A handle of another kind.
            2 => _ = good(iw_cq_poller_arm(program.ends[end].stack.cast(), 0)),
            _ => reap_by(input, program, |places, size, count| {
                iw_cq_poller_poll_sized(poller, places, size, count)
            }),
        }
    }
}

pub fn close(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let (kind, ends) = (input.u8() % 4, &program.ends);
    // SAFETY: handles of this library. They stay in the lists.
    unsafe {
        match kind {
            0 => {
                _ = pick(input, ends, end, |end| &end.split.sends).map(|one| good(iw_send_poster_close(one)))
            }
            1 => {
                _ = pick(input, ends, end, |end| &end.split.recvs).map(|one| good(iw_recv_poster_close(one)))
            }
            2 => _ = pick(input, ends, end, |end| &end.split.srqs).map(|one| good(iw_srq_poster_close(one))),
            _ => {
                _ = pick(input, ends, end, |end| &end.split.pollers).map(|one| good(iw_cq_poller_close(one)))
            }
        }
    }
}
