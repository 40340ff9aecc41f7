//! Posting: lists of requests are converted a few at a time, with one doorbell for each batch.

use core::ffi::c_int;
use core::mem::{offset_of, size_of};
use core::slice;

use arrayvec::ArrayVec;
use verbs::batch::{BATCH, post_converted};
use verbs::{AtomicOp, Context, QueuePair, RecvWr, RemoteMemory, STag, SendWr, Sge};

use crate::engine::{EINVAL, EOPNOTSUPP, Errno, Outcome, State, as_number, lock};
use crate::sys;

// The program's elements are passed on without a copy.
const _: () = {
    assert!(size_of::<sys::ibv_sge>() == size_of::<Sge>());
    assert!(offset_of!(sys::ibv_sge, addr) == offset_of!(Sge, addr));
    assert!(offset_of!(sys::ibv_sge, length) == offset_of!(Sge, len));
    assert!(offset_of!(sys::ibv_sge, lkey) == offset_of!(Sge, lkey));
};

/// More elements than any request may have. The limit of the queue pair is checked later.
const SGES_MAX: usize = 16;
/// As above, for inline bytes.
const INLINE_MAX: usize = 256;

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut sys::ibv_qp,
    wr: *mut sys::ibv_send_wr,
    bad_wr: *mut *mut sys::ibv_send_wr,
) -> c_int {
    let mut next = wr;
    // SAFETY: the program passes a list of requests.
    let outcome = unsafe { post_sends(qp, &mut next) };
    if outcome.is_err() && !bad_wr.is_null() {
        // SAFETY: the program passes memory for the refused request.
        unsafe { *bad_wr = next };
    }
    as_number(outcome)
}

/// Advances `next` over the requests that are posted.
///
/// # Safety
/// `next` is a list of requests whose pointers are valid.
unsafe fn post_sends(qp: *mut sys::ibv_qp, next: &mut *mut sys::ibv_send_wr) -> Outcome {
    let mut state = lock()?;
    let found = state.pools.qps.get(qp)?;
    let (handle, signals_all) = (found.handle, found.signals_all);
    let stack = &mut state.device()?.context;
    let mut outcome = Ok(());
    while outcome.is_ok() && !next.is_null() {
        // SAFETY: guaranteed by the caller.
        outcome = unsafe { post_batch(stack, handle, signals_all, next) };
    }
    state.send_posted();
    outcome
}

/// Posts one request, or as many as may be posted together.
///
/// # Safety
/// As for [`post_sends`].
unsafe fn post_batch(
    stack: &mut Context,
    qp: QueuePair,
    signals_all: bool,
    next: &mut *mut sys::ibv_send_wr,
) -> Outcome {
    // SAFETY: guaranteed by the caller.
    let first = unsafe { &**next };
    if is_alone(first) {
        // SAFETY: as above.
        unsafe { post_alone(stack, qp, first, signals_all) }?;
        *next = first.next;
        return Ok(());
    }
    if first.next.is_null() {
        let operation = operation(first);
        // SAFETY: as above.
        let request = with_flags(unsafe { request(first, &operation)? }, first.send_flags, signals_all);
        stack.post_send(qp, &request)?;
        *next = first.next;
        return Ok(());
    }
    // SAFETY: as above.
    unsafe { post_list_of_sends(stack, qp, signals_all, next) }
}

/// Posts as many requests of a list as may be posted together.
///
/// # Safety
/// As for [`post_sends`].
unsafe fn post_list_of_sends(
    stack: &mut Context,
    qp: QueuePair,
    signals_all: bool,
    next: &mut *mut sys::ibv_send_wr,
) -> Outcome {
    let mut batch = ArrayVec::<&sys::ibv_send_wr, BATCH>::new();
    let mut at = *next;
    // SAFETY: as above.
    while let Some(wr) = unsafe { at.as_ref() }.filter(|wr| !batch.is_full() && !is_alone(wr)) {
        batch.push(wr);
        at = wr.next;
    }
    let operations: ArrayVec<AtomicOp, BATCH> = batch.iter().map(|wr| operation(wr)).collect();
    let (posted, outcome) = post_converted(
        batch.iter().zip(&operations),
        // SAFETY: as above.
        |(wr, operation)| Ok(with_flags(unsafe { request(wr, operation)? }, wr.send_flags, signals_all)),
        |requests| stack.post_sends(qp, requests).map_err(|(posted, error)| (posted, error.into())),
    );
    *next = batch.get(posted).map_or(at, |wr| (&raw const **wr).cast_mut());
    outcome
}

/// Returns whether a request needs a buffer, or two slots.
fn is_alone(wr: &sys::ibv_send_wr) -> bool {
    wr.opcode == sys::IBV_WR_RDMA_WRITE_WITH_IMM
        || wr.send_flags & sys::IBV_SEND_INLINE != 0 && wr.num_sge > 1
}

/// # Safety
/// As for [`post_sends`].
unsafe fn post_alone(
    stack: &mut Context,
    qp: QueuePair,
    wr: &sys::ibv_send_wr,
    signals_all: bool,
) -> Outcome {
    let mut buffer = ArrayVec::<u8, INLINE_MAX>::new();
    // SAFETY: guaranteed by the caller.
    let gather = unsafe { elements(wr.sg_list, wr.num_sge)? };
    let is_inline = wr.send_flags & sys::IBV_SEND_INLINE != 0;
    if is_inline {
        for sge in gather {
            // SAFETY: as above.
            let bytes = unsafe { inline_bytes(sge)? };
            buffer.try_extend_from_slice(bytes).map_err(|_| EINVAL)?;
        }
    }
    // SAFETY: the opcode has a remote address.
    let remote = unsafe { remote(wr) };
    let data = match (wr.opcode, is_inline) {
        (sys::IBV_WR_RDMA_WRITE | sys::IBV_WR_RDMA_WRITE_WITH_IMM, true) => {
            SendWr::write_inline(wr.wr_id, &buffer, remote)
        }
        (sys::IBV_WR_RDMA_WRITE_WITH_IMM, false) => SendWr::write(wr.wr_id, gather, remote),
        (sys::IBV_WR_SEND, true) => SendWr::send_inline(wr.wr_id, &buffer),
        _ => return Err(EINVAL),
    };
    if wr.opcode != sys::IBV_WR_RDMA_WRITE_WITH_IMM {
        return Ok(stack.post_send(qp, &with_flags(data, wr.send_flags, signals_all))?);
    }
    let octets = immediate(wr, gather);
    let immediate = with_flags(SendWr::immediate(wr.wr_id, &octets), wr.send_flags, signals_all);
    let data = with_flags(data, wr.send_flags & !sys::IBV_SEND_SIGNALED, false).reported_by_next();
    Ok(stack.post_all(qp, &[data, immediate])?)
}

/// Returns the octets of Immediate Data: the program's four, and the length of the Write, which the
/// receiver's completion reports.
fn immediate(wr: &sys::ibv_send_wr, gather: &[Sge]) -> [u8; 8] {
    // SAFETY: the opcode has immediate data; any bytes are a number.
    let data = unsafe { wr.__bindgen_anon_1.imm_data };
    let length = gather.iter().fold(0u32, |sum, sge| sum.wrapping_add(sge.len));
    let mut octets = [0; 8];
    octets[..4].copy_from_slice(&data.to_ne_bytes());
    octets[4..].copy_from_slice(&length.to_be_bytes());
    octets
}

/// # Safety
/// As for [`post_sends`].
unsafe fn request<'a>(wr: &'a sys::ibv_send_wr, operation: &'a AtomicOp) -> Outcome<SendWr<'a>> {
    // SAFETY: guaranteed by the caller; the opcode says which fields are in use, and any bytes are
    // a number.
    unsafe {
        let gather = elements(wr.sg_list, wr.num_sge)?;
        let is_inline = wr.send_flags & sys::IBV_SEND_INLINE != 0;
        let bytes = || gather.first().map_or(Ok(&[][..]), |sge| inline_bytes(sge));
        let sink = || gather.first_chunk::<1>().filter(|_| gather.len() == 1).ok_or(EINVAL);
        let request = match wr.opcode {
            sys::IBV_WR_SEND if is_inline => SendWr::send_inline(wr.wr_id, bytes()?),
            sys::IBV_WR_SEND => SendWr::send(wr.wr_id, gather),
            sys::IBV_WR_SEND_WITH_INV => {
                let send = if is_inline {
                    SendWr::send_inline(wr.wr_id, bytes()?)
                } else {
                    SendWr::send(wr.wr_id, gather)
                };
                send.with_invalidate(STag(wr.__bindgen_anon_1.invalidate_rkey))
            }
            sys::IBV_WR_RDMA_WRITE if is_inline => SendWr::write_inline(wr.wr_id, bytes()?, remote(wr)),
            sys::IBV_WR_RDMA_WRITE => SendWr::write(wr.wr_id, gather, remote(wr)),
            sys::IBV_WR_RDMA_READ => SendWr::read(wr.wr_id, sink()?, remote(wr)),
            sys::IBV_WR_ATOMIC_CMP_AND_SWP | sys::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                let atomic = wr.wr.atomic;
                let remote = RemoteMemory { stag: STag(atomic.rkey), tagged_offset: atomic.remote_addr };
                SendWr::atomic(wr.wr_id, sink()?, remote, operation)
            }
            sys::IBV_WR_LOCAL_INV => SendWr::invalidate(wr.wr_id, STag(wr.__bindgen_anon_1.invalidate_rkey)),
            sys::IBV_WR_SEND_WITH_IMM | sys::IBV_WR_BIND_MW | sys::IBV_WR_TSO => return Err(EOPNOTSUPP),
            _ => return Err(EINVAL),
        };
        Ok(request)
    }
}

fn operation(wr: &sys::ibv_send_wr) -> AtomicOp {
    // SAFETY: any bytes are a number, and the numbers are used by the opcodes that have them only.
    let atomic = unsafe { wr.wr.atomic };
    match wr.opcode {
        sys::IBV_WR_ATOMIC_CMP_AND_SWP => AtomicOp::compare_and_swap(atomic.compare_add, atomic.swap),
        _ => AtomicOp::add(atomic.compare_add),
    }
}

/// # Safety
/// The opcode has a remote address.
unsafe fn remote(wr: &sys::ibv_send_wr) -> RemoteMemory {
    // SAFETY: guaranteed by the caller.
    let rdma = unsafe { wr.wr.rdma };
    RemoteMemory { stag: STag(rdma.rkey), tagged_offset: rdma.remote_addr }
}

pub(super) fn with_flags(mut request: SendWr<'_>, flags: u32, signals_all: bool) -> SendWr<'_> {
    if flags & sys::IBV_SEND_SIGNALED == 0 && !signals_all {
        request = request.unsignaled();
    }
    if flags & sys::IBV_SEND_SOLICITED != 0 {
        request = request.solicited();
    }
    if flags & sys::IBV_SEND_FENCE != 0 {
        request = request.fenced();
    }
    request
}

/// # Safety
/// The pointer is to as many elements, or the number is not positive.
unsafe fn elements<'a>(sges: *const sys::ibv_sge, count: c_int) -> Outcome<&'a [Sge]> {
    let count = usize::try_from(count).ok().filter(|count| *count <= SGES_MAX).ok_or(EINVAL)?;
    match count {
        0 => Ok(&[]),
        _ if sges.is_null() => Err(EINVAL),
        // SAFETY: guaranteed by the caller; the layouts are equal, and any bytes are numbers.
        _ => Ok(unsafe { slice::from_raw_parts(sges.cast(), count) }),
    }
}

/// # Safety
/// The element is memory of the program.
unsafe fn inline_bytes(sge: &Sge) -> Outcome<&[u8]> {
    match sge.len as usize {
        0 => Ok(&[]),
        length if length > INLINE_MAX || sge.addr == 0 => Err(EINVAL),
        // SAFETY: guaranteed by the caller.
        length => Ok(unsafe { slice::from_raw_parts(sge.addr as *const u8, length) }),
    }
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut sys::ibv_qp,
    wr: *mut sys::ibv_recv_wr,
    bad_wr: *mut *mut sys::ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes a list of requests and memory for the refused one.
    unsafe {
        post_list(wr, bad_wr, |state, requests: &[RecvWr<'_>]| {
            let handle = state.pools.qps.get(qp).map_err(|error| (0, error))?.handle;
            let stack = &mut state.device().map_err(|error| (0, error))?.context;
            stack.post_recvs(handle, requests).map_err(|(posted, error)| (posted, error.into()))
        })
    }
}

/// Posts a list of receives by `post`, which returns the number of those that it posted before an
/// error.
///
/// # Safety
/// `wr` is a list of requests whose pointers are valid; `bad_wr` is null or memory for a pointer.
pub(super) unsafe fn post_list(
    wr: *mut sys::ibv_recv_wr,
    bad_wr: *mut *mut sys::ibv_recv_wr,
    post: impl Fn(&mut State, &[RecvWr<'_>]) -> Result<(), (usize, Errno)>,
) -> c_int {
    let mut next = wr;
    // SAFETY: guaranteed by the caller.
    let outcome = unsafe { post_receives(&mut next, post) };
    if outcome.is_err() && !bad_wr.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { *bad_wr = next };
    }
    as_number(outcome)
}

/// # Safety
/// As for [`post_list`].
unsafe fn post_receives(
    next: &mut *mut sys::ibv_recv_wr,
    post: impl Fn(&mut State, &[RecvWr<'_>]) -> Result<(), (usize, Errno)>,
) -> Outcome {
    let mut state = lock()?;
    // SAFETY: guaranteed by the caller.
    if let Some(wr) = unsafe { next.as_ref() }.filter(|wr| wr.next.is_null()) {
        // SAFETY: as above.
        let request = RecvWr::new(wr.wr_id, unsafe { elements(wr.sg_list, wr.num_sge)? });
        post(&mut state, slice::from_ref(&request)).map_err(|(_, error)| error)?;
        *next = wr.next;
        return Ok(());
    }
    while !next.is_null() {
        let mut batch = ArrayVec::<&sys::ibv_recv_wr, BATCH>::new();
        let mut at = *next;
        // SAFETY: guaranteed by the caller.
        while let Some(wr) = unsafe { at.as_ref() }.filter(|_| !batch.is_full()) {
            batch.push(wr);
            at = wr.next;
        }
        let (posted, outcome) = post_converted(
            &batch,
            // SAFETY: as above.
            |wr| Ok(RecvWr::new(wr.wr_id, unsafe { elements(wr.sg_list, wr.num_sge)? })),
            |requests| post(&mut state, requests),
        );
        *next = batch.get(posted).map_or(at, |wr| (&raw const **wr).cast_mut());
        outcome?;
    }
    Ok(())
}
