//! Connecting, accepting, rejecting and disconnecting.

use core::ffi::{c_int, c_void};
use core::slice;

use verbs::{AcceptParams, ConnectParams, QueuePair, ReadDepths, VerbsError};

use super::event::complete;
use super::{CmId, IdState};
use crate::device::READS_MAX;
use crate::engine::{EINVAL, Outcome, State, as_minus_one, find, with};
use crate::objects::Qp;
use crate::sys;

/// More tries than a full control queue needs.
const TRIES: usize = 64;

#[unsafe(no_mangle)]
extern "C" fn rdma_connect(id: *mut sys::rdma_cm_id, param: *mut sys::rdma_conn_param) -> c_int {
    // SAFETY: the program passes null or its parameters.
    let param = unsafe { param.as_ref() };
    as_minus_one(with(|state| state.connect(id, param)).and_then(|()| complete(id)))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_accept(id: *mut sys::rdma_cm_id, param: *mut sys::rdma_conn_param) -> c_int {
    // SAFETY: the program passes null or its parameters.
    let param = unsafe { param.as_ref() };
    as_minus_one(with(|state| state.accept(id, param)).and_then(|()| complete(id)))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_reject(id: *mut sys::rdma_cm_id, private_data: *const c_void, bytes: u8) -> c_int {
    as_minus_one(with(|state| {
        // SAFETY: the program passes as many bytes.
        let private_data = unsafe { private_bytes(private_data, bytes) };
        // SAFETY: the lock is held, and no reference is kept.
        let found = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
        let request = found.request.take().ok_or(EINVAL)?;
        found.state = IdState::Ended;
        state.control(|stack| stack.reject(&request, private_data))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_disconnect(id: *mut sys::rdma_cm_id) -> c_int {
    as_minus_one(with(|state| state.disconnect(id)).and_then(|()| complete(id)))
}

/// The stack establishes connections by itself, so there is nothing to do for one that is established.
#[unsafe(no_mangle)]
extern "C" fn rdma_establish(id: *mut sys::rdma_cm_id) -> c_int {
    as_minus_one(with(|_| {
        // SAFETY: the lock is held, and no reference is kept.
        let state = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.state;
        if state == IdState::Connected { Ok(()) } else { Err(EINVAL) }
    }))
}

/// The stack sees the first message of a peer by itself.
#[unsafe(no_mangle)]
extern "C" fn rdma_notify(id: *mut sys::rdma_cm_id, _event: sys::ibv_event_type) -> c_int {
    as_minus_one(with(|_| {
        // SAFETY: the lock is held, and no reference is kept.
        unsafe { find::<CmId>(id) }.ok_or(EINVAL).map(drop)
    }))
}

/// Fills in the attributes with which a program moves a queue pair of its own through the states.
#[unsafe(no_mangle)]
extern "C" fn rdma_init_qp_attr(
    id: *mut sys::rdma_cm_id,
    attr: *mut sys::ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    as_minus_one(with(|_| {
        // SAFETY: the program passes places for both; the lock is held.
        let (attr, mask) = unsafe {
            find::<CmId>(id).ok_or(EINVAL)?;
            (attr.as_mut().ok_or(EINVAL)?, mask.as_mut().ok_or(EINVAL)?)
        };
        *mask = (sys::IBV_QP_STATE | sys::IBV_QP_ACCESS_FLAGS) as c_int;
        attr.qp_access_flags =
            sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_REMOTE_WRITE | sys::IBV_ACCESS_REMOTE_READ;
        if attr.qp_state != sys::IBV_QPS_INIT {
            *mask = sys::IBV_QP_STATE as c_int;
        }
        Ok(())
    }))
}

/// # Safety
/// The pointer is null or to as many bytes.
unsafe fn private_bytes<'a>(from: *const c_void, bytes: u8) -> &'a [u8] {
    if from.is_null() || bytes == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { slice::from_raw_parts(from.cast(), bytes.into()) }
}

/// Returns the private data and the read depths of the program's parameters. Without parameters the depths are the
/// queue pair's.
fn parse_param(param: Option<&sys::rdma_conn_param>) -> (&[u8], Option<ReadDepths>) {
    let Some(param) = param else { return (&[], None) };
    // SAFETY: the program passes as many bytes.
    let private_data = unsafe { private_bytes(param.private_data, param.private_data_len) };
    let ird = u16::from(param.responder_resources).min(READS_MAX);
    let ord = u16::from(param.initiator_depth).min(READS_MAX);
    (private_data, Some(ReadDepths { ird, ord }))
}

impl State {
    /// Calls the stack, and again after the worker has run if the control queue is full.
    pub(super) fn control<T>(
        &mut self,
        mut call: impl FnMut(&mut verbs::Context) -> Result<T, VerbsError>,
    ) -> Outcome<T> {
        let mut last = EINVAL;
        for _ in 0..TRIES {
            match call(&mut self.device()?.context) {
                Ok(result) => {
                    // What was asked for is begun at once and not at the next poll.
                    self.advance();
                    return Ok(result);
                }
                Err(error @ VerbsError::Busy) => {
                    last = error.into();
                    self.advance();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(last)
    }

    /// Returns the queue pair that an identifier connects: its own, or that of the program's parameters.
    fn qp_to_connect(
        &mut self,
        id: *mut sys::rdma_cm_id,
        param: Option<&sys::rdma_conn_param>,
    ) -> Outcome<QueuePair> {
        // SAFETY: the lock is held, and no reference is kept.
        let own = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.raw.qp;
        let named = || param.and_then(|param| self.qps.get(&param.qp_num)).copied();
        let qp = if own.is_null() { named().ok_or(EINVAL)? } else { own };
        // SAFETY: as above.
        let found = unsafe { find::<Qp>(qp) }.ok_or(EINVAL)?;
        found.id = id;
        Ok(found.handle)
    }

    fn connect(&mut self, id: *mut sys::rdma_cm_id, param: Option<&sys::rdma_conn_param>) -> Outcome {
        // SAFETY: the lock is held, and no reference is kept.
        let found = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
        if found.state != IdState::RouteResolved {
            return Err(EINVAL);
        }
        let remote = found.remote().ok_or(EINVAL)?;
        let (private_data, reads) = parse_param(param);
        let qp = self.qp_to_connect(id, param)?;
        let params = ConnectParams { private_data, reads, ..ConnectParams::default() };
        self.control(|stack| stack.connect_with(qp, remote, &params))?;
        // The connection may be established already.
        // SAFETY: as above.
        if let Some(found) = unsafe { find::<CmId>(id) }.filter(|found| found.state == IdState::RouteResolved)
        {
            found.state = IdState::Connecting;
        }
        Ok(())
    }

    fn accept(&mut self, id: *mut sys::rdma_cm_id, param: Option<&sys::rdma_conn_param>) -> Outcome {
        let qp = self.qp_to_connect(id, param)?;
        let (private_data, reads) = parse_param(param);
        // SAFETY: the lock is held, and no reference is kept.
        let found = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
        let request = found.request.take().ok_or(EINVAL)?;
        let params = AcceptParams { private_data, reads, ..AcceptParams::default() };
        found.state = IdState::Connecting;
        let accepted = self.control(|stack| stack.accept_with(&request, qp, &params));
        if accepted.is_err() {
            // SAFETY: as above.
            let found = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
            (found.request, found.state) = (Some(request), IdState::Requested);
        }
        accepted
    }

    fn disconnect(&mut self, id: *mut sys::rdma_cm_id) -> Outcome {
        // SAFETY: the lock is held, and no reference is kept.
        let qp = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.raw.qp;
        let named = self.qps.values().copied().find(|qp| {
            // SAFETY: as above.
            unsafe { find::<Qp>(*qp) }.is_some_and(|qp| qp.id == id)
        });
        // SAFETY: as above.
        let handle =
            unsafe { find::<Qp>(if qp.is_null() { named.ok_or(EINVAL)? } else { qp }) }.ok_or(EINVAL)?.handle;
        self.control(|stack| stack.disconnect(handle))
    }
}
