//! Completion queues, shared receive queues, queue pairs.

use std::os::fd::AsRawFd;

use verbs::{
    Completion, CompletionFlags, CompletionOpcode, CompletionQueue, CompletionStatus, QpAttr, QpState,
    QueuePair, SharedReceiveQueue,
};

use super::context::{iw_ctx, iw_pd};
use crate::boundary::{Fault, call, give, list_mut, sized, with, *};

/// A completion queue. 0 is none.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct iw_cq {
    /// The library's.
    pub id: u64,
}

/// A shared receive queue. 0 is none.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct iw_srq {
    /// The library's.
    pub id: u64,
}

/// A queue pair. 0 is none.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct iw_qp {
    /// The library's.
    pub id: u64,
}

impl iw_cq {
    pub(crate) fn to_rust(self) -> CompletionQueue {
        CompletionQueue::from_bits(self.id)
    }
}

impl iw_srq {
    pub(crate) fn to_rust(self) -> SharedReceiveQueue {
        SharedReceiveQueue::from_bits(self.id)
    }
}

impl iw_qp {
    pub(crate) fn to_rust(self) -> QueuePair {
        QueuePair::from_bits(self.id)
    }
}

/// It was carried out.
pub const IW_WC_SUCCESS: u32 = 0;
/// The connection ended first; how much of it the peer saw is unknown.
pub const IW_WC_FLUSHED: u32 = 1;
/// The message is longer than its buffer, or than a message may be.
pub const IW_WC_LENGTH: u32 = 2;
/// An element names memory that may not be used so.
pub const IW_WC_PROTECTION: u32 = 3;
/// The peer's answer is not the answer to the request.
pub const IW_WC_BAD_RESPONSE: u32 = 4;
/// The request cannot be carried out on this queue pair.
pub const IW_WC_OPERATION: u32 = 5;
/// Something else went wrong.
pub const IW_WC_OTHER: u32 = 6;

/// A Send of any kind.
pub const IW_WC_SEND: u32 = 0;
/// An RDMA Write.
pub const IW_WC_WRITE: u32 = 1;
/// An RDMA Read.
pub const IW_WC_READ: u32 = 2;
/// A receive, by a Send.
pub const IW_WC_RECV: u32 = 3;
/// A receive that Immediate Data took: nothing is in its memory, the eight octets are in `immediate`.
pub const IW_WC_RECV_IMMEDIATE: u32 = 4;
/// Immediate Data of ours.
pub const IW_WC_IMMEDIATE: u32 = 5;
/// An atomic operation.
pub const IW_WC_ATOMIC: u32 = 6;
/// The end of a steering tag of ours.
pub const IW_WC_INVALIDATE: u32 = 7;
/// A binding.
pub const IW_WC_BIND: u32 = 8;

/// The Send that was received asked for an event.
pub const IW_WC_SOLICITED: u32 = 1;
/// The Send that was received ended the steering tag in `invalidated_stag`.
pub const IW_WC_INVALIDATED: u32 = 2;

/// The end of one work request.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_wc {
    /// The number that was posted.
    pub wr_id: u64,
    /// The queue pair's number (`iw_qp_info`).
    pub qp_num: u32,
    /// Bytes of the message, where the status is IW_WC_SUCCESS.
    pub byte_len: u32,
    /// What became of it: IW_WC_SUCCESS to IW_WC_OTHER.
    pub status: u32,
    /// What it was: IW_WC_SEND to IW_WC_BIND.
    pub opcode: u32,
    /// IW_WC_SOLICITED, IW_WC_INVALIDATED.
    pub flags: u32,
    /// With IW_WC_INVALIDATED, the steering tag.
    pub invalidated_stag: u32,
    /// With IW_WC_RECV_IMMEDIATE, the eight octets.
    pub immediate: [u8; 8],
}

/// Makes a completion queue with places for `depth` requests that were posted and not reaped. Allocates.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_create(ctx: *mut iw_ctx, depth: u32, out: *mut iw_cq) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        give(out, "out", iw_cq { id: 0 })?;
        let cq = with(ctx, |context| Ok(context.create_cq(depth)?))?;
        give(out, "out", iw_cq { id: cq.to_bits() })?;
        Ok(IW_OK)
    })
}

/// Gives a completion queue another depth, with work outstanding. A larger one holds once the cores have heard of it.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_resize(ctx: *mut iw_ctx, cq: iw_cq, depth: u32) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { with(ctx, |context| Ok(context.resize_cq(cq.to_rust(), depth).map(|()| IW_OK)?)) })
}

/// Moves up to `count` completions into `wcs`, oldest first per queue pair, and answers how many.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `wcs` is null or good for `count` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_poll(ctx: *mut iw_ctx, cq: iw_cq, wcs: *mut iw_wc, count: u32) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let room = list_mut(wcs, (count as usize).min(i32::MAX as usize), "wcs")?;
        with(ctx, |context| {
            let mut reaped = 0;
            for chunk in room.chunks_mut(CHUNK) {
                let mut some = [Completion::default(); CHUNK];
                let (some, _) = some.split_at_mut(chunk.len());
                let found = context.poll_cq(cq.to_rust(), some)?;
                for (out, one) in chunk.iter_mut().zip(some.iter()).take(found) {
                    out.write(iw_wc::from(one));
                }
                reaped += found;
                if found < chunk.len() {
                    break;
                }
            }
            Ok(reaped as i32)
        })
    })
}

/// Completions that are converted at a time, on the stack.
const CHUNK: usize = 32;

/// Asks for one event at the queue's descriptor with its next completion, or its next solicited or failed one. Arm, then
/// poll once more: what came before raises no event.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_arm(ctx: *mut iw_ctx, cq: iw_cq, solicited_only: i32) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        with(ctx, |context| Ok(context.arm_cq(cq.to_rust(), solicited_only != 0).map(|()| IW_OK)?))
    })
}

/// The queue's descriptor, an eventfd that becomes readable once for each arming: read its eight bytes. It belongs to the
/// queue; do not close it. `fd` may then be waited for by any thread.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `fd` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_fd(ctx: *const iw_ctx, cq: iw_cq, fd: *mut i32) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let number = with(ctx, |context| Ok(context.cq_fd(cq.to_rust())?.as_raw_fd()))?;
        give(fd, "fd", number)?;
        Ok(IW_OK)
    })
}

/// Destroys a completion queue that no queue pair uses any more; IW_E_STILL_USED otherwise. A queue pair that was destroyed
/// uses it until the core has given it up, of which `iw_event_poll` hears: poll workers and events, and call again.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_cq_destroy(ctx: *mut iw_ctx, cq: iw_cq) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { with(ctx, |context| Ok(context.destroy_cq(cq.to_rust()).map(|()| IW_OK)?)) })
}

/// Makes a shared receive queue for `depth` receives a core of at most `sges` elements. Allocates.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_create(
    ctx: *mut iw_ctx,
    pd: iw_pd,
    depth: u32,
    sges: u32,
    out: *mut iw_srq,
) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        give(out, "out", iw_srq { id: 0 })?;
        let srq = with(ctx, |context| Ok(context.create_srq(pd.to_rust(), depth, sges as usize)?))?;
        give(out, "out", iw_srq { id: srq.to_bits() })?;
        Ok(IW_OK)
    })
}

/// Asks for one IW_EVENT_SRQ_LIMIT when fewer than `limit` receives are left on a core. 0 asks for none.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_arm(ctx: *mut iw_ctx, srq: iw_srq, limit: u32) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { with(ctx, |context| Ok(context.arm_srq(srq.to_rust(), limit).map(|()| IW_OK)?)) })
}

/// Destroys a shared receive queue, as `iw_cq_destroy` does a completion queue. Receives that are posted to it are forgotten.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_srq_destroy(ctx: *mut iw_ctx, srq: iw_srq) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { with(ctx, |context| Ok(context.destroy_srq(srq.to_rust()).map(|()| IW_OK)?)) })
}

/// What a new queue pair is made for. `iw_qp_attr_init` fills it in.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_qp_attr {
    /// sizeof(struct iw_qp_attr).
    pub size: u32,
    /// The core that it connects from; negative: the one with the fewest queue pairs. One that accepts lives where the
    /// connection came to.
    pub core: i32,
    /// Where sends complete.
    pub send_cq: iw_cq,
    /// Where receives complete.
    pub recv_cq: iw_cq,
    /// Where receives come from; 0: a queue of its own.
    pub srq: iw_srq,
    /// Send requests outstanding.
    pub send_depth: u32,
    /// Receives outstanding.
    pub recv_depth: u32,
    /// Elements in a request, 1 to 16.
    pub sges: u32,
    /// Inline bytes in a request, 0 to 256.
    pub inline_bytes: u32,
    /// Reads that the peer may have outstanding here (IRD).
    pub inbound_reads: u16,
    /// Reads and atomic operations that we may have outstanding at the peer (ORD).
    pub outbound_reads: u16,
    /// Not 0: complete Sends and Writes when their bytes are copied, not when the peer has acknowledged them.
    pub complete_on_copy: u32,
}

/// Fills in what most queue pairs want: 128 sends, 128 receives, 16 Reads each way, everything completing in `cq`.
///
/// # Safety
/// `attr` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_qp_attr_init(attr: *mut iw_qp_attr, cq: iw_cq) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { give(attr, "attr", iw_qp_attr::new(cq)).map(|()| IW_OK) })
}

/// Makes a queue pair. Allocates.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `attr` is null or leads to as many bytes as its `size` says; `out`
/// is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_qp_create(
    ctx: *mut iw_ctx,
    pd: iw_pd,
    attr: *const iw_qp_attr,
    out: *mut iw_qp,
) -> i32 {
    // SAFETY: the caller's promise, handed on. The struct is made of numbers.
    call(|| unsafe {
        give(out, "out", iw_qp { id: 0 })?;
        let attr = sized(attr, iw_qp_attr::new(iw_cq { id: 0 }), "attr")?.to_rust()?;
        let qp = with(ctx, |context| Ok(context.create_qp(pd.to_rust(), &attr)?))?;
        give(out, "out", iw_qp { id: qp.to_bits() })?;
        Ok(IW_OK)
    })
}

/// Made, not connected.
pub const IW_QP_IDLE: u32 = 0;
/// Being connected.
pub const IW_QP_CONNECTING: u32 = 1;
/// Connected.
pub const IW_QP_ESTABLISHED: u32 = 2;
/// Closing: what was posted is still sent.
pub const IW_QP_DRAINING: u32 = 3;
/// Ended.
pub const IW_QP_ERROR: u32 = 4;

/// A queue pair as it is now.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_qp_info {
    /// The number that completions carry.
    pub num: u32,
    /// IW_QP_IDLE to IW_QP_ERROR.
    pub state: u32,
    /// Send requests that fit, at least as many as were asked for.
    pub send_depth: u32,
    /// Receives that fit; 0 with a shared queue.
    pub recv_depth: u32,
    /// Send requests posted and not yet completed by the core.
    pub sends_outstanding: u32,
    /// Receives posted and not yet completed by the core.
    pub receives_outstanding: u32,
}

/// A queue pair as it is now.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_qp_query(ctx: *mut iw_ctx, qp: iw_qp, out: *mut iw_qp_info) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        let info = with(ctx, |context| Ok(context.query_qp(qp.to_rust())?))?;
        let told = iw_qp_info {
            num: qp.to_rust().num().0,
            state: number_of(info.state),
            send_depth: info.send_depth,
            recv_depth: info.recv_depth,
            sends_outstanding: info.sends_outstanding,
            receives_outstanding: info.receives_outstanding,
        };
        give(out, "out", told)?;
        Ok(IW_OK)
    })
}

/// Destroys a queue pair at once: a connection that is up is reset, everything posted completes as IW_WC_FLUSHED.
///
/// # Safety
/// `ctx` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_qp_destroy(ctx: *mut iw_ctx, qp: iw_qp) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { with(ctx, |context| Ok(context.destroy_qp(qp.to_rust()).map(|()| IW_OK)?)) })
}

fn number_of(state: QpState) -> u32 {
    match state {
        QpState::Idle => IW_QP_IDLE,
        QpState::Connecting => IW_QP_CONNECTING,
        QpState::Established => IW_QP_ESTABLISHED,
        QpState::Draining => IW_QP_DRAINING,
        QpState::Error => IW_QP_ERROR,
    }
}

impl iw_qp_attr {
    fn new(cq: iw_cq) -> Self {
        let defaults = QpAttr::new(cq.to_rust());
        iw_qp_attr {
            size: size_of::<iw_qp_attr>() as u32,
            core: -1,
            send_cq: cq,
            recv_cq: cq,
            srq: iw_srq { id: 0 },
            send_depth: defaults.send_depth,
            recv_depth: defaults.recv_depth,
            sges: defaults.sges as u32,
            inline_bytes: defaults.inline_bytes as u32,
            inbound_reads: defaults.inbound_reads,
            outbound_reads: defaults.outbound_reads,
            complete_on_copy: 0,
        }
    }

    fn to_rust(self) -> Result<QpAttr, Fault> {
        let wrong =
            || Fault::said(IW_E_VALUE, format_args!("attr.core = {}: below iw_stack_cores", self.core));
        let core = if self.core < 0 { None } else { Some(u16::try_from(self.core).map_err(|_| wrong())?) };
        Ok(QpAttr {
            send_cq: self.send_cq.to_rust(),
            recv_cq: self.recv_cq.to_rust(),
            srq: (self.srq.id != 0).then(|| self.srq.to_rust()),
            core,
            send_depth: self.send_depth,
            recv_depth: self.recv_depth,
            sges: self.sges as usize,
            inline_bytes: self.inline_bytes as usize,
            inbound_reads: self.inbound_reads,
            outbound_reads: self.outbound_reads,
            complete_on_copy: self.complete_on_copy != 0,
            ..QpAttr::new(self.send_cq.to_rust())
        })
    }
}

impl From<&Completion> for iw_wc {
    #[inline]
    fn from(done: &Completion) -> Self {
        let mut flags = 0;
        if done.flags.contains(CompletionFlags::SOLICITED) {
            flags |= IW_WC_SOLICITED;
        }
        if done.flags.contains(CompletionFlags::INVALIDATED) {
            flags |= IW_WC_INVALIDATED;
        }
        iw_wc {
            wr_id: done.wr_id,
            qp_num: done.qp.0,
            byte_len: done.byte_len,
            status: status_of(done.status),
            opcode: opcode_of(done.opcode),
            flags,
            invalidated_stag: done.invalidated.0,
            immediate: done.immediate,
        }
    }
}

fn status_of(status: CompletionStatus) -> u32 {
    match status {
        CompletionStatus::Success => IW_WC_SUCCESS,
        CompletionStatus::FlushedInError => IW_WC_FLUSHED,
        CompletionStatus::LocalLength => IW_WC_LENGTH,
        CompletionStatus::LocalProtection => IW_WC_PROTECTION,
        CompletionStatus::BadResponse => IW_WC_BAD_RESPONSE,
        CompletionStatus::LocalOperation => IW_WC_OPERATION,
        _ => IW_WC_OTHER,
    }
}

fn opcode_of(opcode: CompletionOpcode) -> u32 {
    match opcode {
        CompletionOpcode::Send => IW_WC_SEND,
        CompletionOpcode::Write => IW_WC_WRITE,
        CompletionOpcode::Read => IW_WC_READ,
        CompletionOpcode::Receive => IW_WC_RECV,
        CompletionOpcode::ReceiveImmediate => IW_WC_RECV_IMMEDIATE,
        CompletionOpcode::Immediate => IW_WC_IMMEDIATE,
        CompletionOpcode::FetchAdd | CompletionOpcode::CmpSwap | CompletionOpcode::Swap => IW_WC_ATOMIC,
        CompletionOpcode::Invalidate => IW_WC_INVALIDATE,
        CompletionOpcode::Bind | CompletionOpcode::FastRegister => IW_WC_BIND,
    }
}
