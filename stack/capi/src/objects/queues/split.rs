//! Ends of queues that were split from their context, so that other threads post and poll.
//!
//! An end is a handle: one thread at a time, any thread. Different ends do not affect each other,
//! nor the context.

use std::os::fd::{AsFd, AsRawFd};

use verbs::{CqPoller, RecvPoster, SrqPoster};

use super::target::SplitSends;
use super::{iw_cq, iw_qp, iw_srq, iw_wc, poll_into};
use crate::boundary::{Slot, alloc_handle, call, close_handle, create_handle, with, write_out};
use crate::objects::context::iw_ctx;
use crate::objects::post::{iw_recv_wr, iw_send_wr, post_each_srq, post_list, post_recvs, post_sends};

/// Posts to the send queue of a queue pair that was split from its context. Used by one thread at a
/// time.
pub struct iw_send_poster(Slot<SplitSends>);
/// Posts to the receive queue of a queue pair that was split from its context. Used by one thread
/// at a time.
pub struct iw_recv_poster(Slot<RecvPoster>);
/// Posts to a shared receive queue that was split from its context. Used by one thread at a time.
pub struct iw_srq_poster(Slot<SrqPoster>);
/// Polls a completion queue that was split from its context. Used by one thread at a time.
pub struct iw_cq_poller(Slot<CqPoller>);

handle_kind!(iw_send_poster, SplitSends, 8, "the send poster");
handle_kind!(iw_recv_poster, RecvPoster, 9, "the receive poster");
handle_kind!(iw_srq_poster, SrqPoster, 10, "the poster of a shared receive queue");
handle_kind!(iw_cq_poller, CqPoller, 11, "the poller");

/// Splits a queue pair from its context: `send` gets the end that posts to the send queue, `recv`
/// the one that posts receives, each for any one thread. The context's calls that post fail with
/// IW_E_SPLIT until the end is closed. Connecting, events, queries and `iw_qp_destroy` stay with
/// the context. A queue pair that is destroyed keeps its slot until both ends are closed and
/// `iw_event_poll` is called. Allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_qp_split(
    ctx: *mut iw_ctx,
    qp: iw_qp,
    send: *mut *mut iw_send_poster,
    recv: *mut *mut iw_recv_poster,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        write_out(send, "send", core::ptr::null_mut())?;
        write_out(recv, "recv", core::ptr::null_mut())?;
        let (pd, ends) = with(ctx, |context| {
            let pd = context.query_qp(qp.to_rust())?.pd;
            Ok((pd, context.split_qp(qp.to_rust())?))
        })?;
        let (poster, receives) = ends;
        write_out(send, "send", alloc_handle(SplitSends { poster, pd }))?;
        write_out(recv, "recv", alloc_handle(receives))
    })
}

/// Splits a completion queue from its context: `poller` gets the end that polls it on any one
/// thread. `iw_cq_poll` and `iw_cq_resize` fail with IW_E_SPLIT until the end is closed. Allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_split(ctx: *mut iw_ctx, cq: iw_cq, poller: *mut *mut iw_cq_poller) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { create_handle(poller, "poller", || with(ctx, |context| Ok(context.split_cq(cq.to_rust())?))) }
}

/// Splits a shared receive queue from its context: `poster` gets the end that posts to it from any
/// one thread. `iw_srq_post_recv` fails with IW_E_SPLIT until the end is closed. Allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_split(ctx: *mut iw_ctx, srq: iw_srq, poster: *mut *mut iw_srq_poster) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { create_handle(poster, "poster", || with(ctx, |context| Ok(context.split_srq(srq.to_rust())?))) }
}

/// Posts requests in order, as `iw_post_send_sized`. IW_E_NO_QP if the queue pair was destroyed, or
/// its context closed. Programs call `iw_send_poster_post`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_send_poster_post_sized(
    poster: *mut iw_send_poster,
    wrs: *const iw_send_wr,
    size: usize,
    count: u32,
    posted: *mut u32,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        post_list(poster, wrs, (size, count), iw_send_wr::EMPTY, posted, |end, some, done| {
            post_sends(end, some, done)
        })
    }
}

/// Posts receives in order, as `iw_post_recv_sized`. IW_E_NO_QP if the queue pair was destroyed, or
/// its context closed. Programs call `iw_recv_poster_post`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_recv_poster_post_sized(
    poster: *mut iw_recv_poster,
    wrs: *const iw_recv_wr,
    size: usize,
    count: u32,
    posted: *mut u32,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { post_recvs(poster, wrs, (size, count), posted, |end, wrs| end.post_recvs(wrs)) }
}

/// Posts receives to a shared queue in order, as `iw_srq_post_recv_sized`. IW_E_NO_SRQ if the queue
/// was destroyed, or its context closed. Programs call `iw_srq_poster_post`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_poster_post_sized(
    poster: *mut iw_srq_poster,
    wrs: *const iw_recv_wr,
    size: usize,
    count: u32,
    posted: *mut u32,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        post_recvs(poster, wrs, (size, count), posted, |end, wrs| post_each_srq(wrs, |wr| end.post_recv(wr)))
    }
}

/// Moves up to `count` completions into `wcs`, as `iw_cq_poll_sized`. IW_E_NO_CQ if the queue was
/// destroyed, or its context closed, and every completion is reaped. Programs call
/// `iw_cq_poller_poll`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_poller_poll_sized(
    poller: *mut iw_cq_poller,
    wcs: *mut iw_wc,
    size: usize,
    count: u32,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { poll_into(poller, wcs, (size, count), |end, some| end.poll(some)) }
}

/// Requests one event at the queue's descriptor, as `iw_cq_arm`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_poller_arm(poller: *mut iw_cq_poller, solicited_only: i32) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        with(poller, |end| {
            end.arm(solicited_only != 0);
            Ok(())
        })
    })
}

/// Stores the queue's descriptor, as `iw_cq_fd`. It is open until the poller is closed and the
/// queue destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_poller_fd(poller: *const iw_cq_poller, fd: *mut i32) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let number = with(poller, |end| Ok(end.as_fd().as_raw_fd()))?;
        write_out(fd, "fd", number)
    })
}

/// Closes an end: the context posts to the send queue again. Also after the context is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_send_poster_close(poster: *mut iw_send_poster) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { close_handle(poster).map(drop) })
}

/// Closes an end: the context posts to the receive queue again. Also after the context is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_recv_poster_close(poster: *mut iw_recv_poster) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { close_handle(poster).map(drop) })
}

/// Closes an end: the context posts to the shared receive queue again. Also after the context is
/// closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_poster_close(poster: *mut iw_srq_poster) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { close_handle(poster).map(drop) })
}

/// Closes an end: the context polls the completion queue again. Also after the context is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_poller_close(poller: *mut iw_cq_poller) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { close_handle(poller).map(drop) })
}
