//! Connecting, accepting, rejecting and disconnecting.

use core::ffi::{c_int, c_void};
use core::slice;

use verbs::{AcceptParams, ConnectParams, QueuePair, ReadDepths};

use super::IdState;
use super::address::without_scope;
use super::event::{complete, state_of};
use crate::device::READS_MAX;
use crate::engine::{EINVAL, Outcome, State, as_minus_one, with};
use crate::sys;

// A synchronous call may be cancelled while it waits, which unwinds the stack: so these are
// "C-unwind".

#[unsafe(no_mangle)]
extern "C-unwind" fn rdma_connect(id: *mut sys::rdma_cm_id, param: *mut sys::rdma_conn_param) -> c_int {
    // SAFETY: the program passes null or its parameters.
    let param = unsafe { param.as_ref() };
    as_minus_one(with(|state| state.connect(id, param)).and_then(|()| complete(id)))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn rdma_accept(id: *mut sys::rdma_cm_id, param: *mut sys::rdma_conn_param) -> c_int {
    // SAFETY: the program passes null or its parameters.
    let param = unsafe { param.as_ref() };
    as_minus_one(with(|state| state.accept(id, param)).and_then(|()| complete(id)))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_reject(id: *mut sys::rdma_cm_id, private_data: *const c_void, bytes: u8) -> c_int {
    as_minus_one(with(|state| {
        // SAFETY: the program passes as many bytes.
        state.reject(id, unsafe { private_bytes(private_data, bytes) })
    }))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn rdma_disconnect(id: *mut sys::rdma_cm_id) -> c_int {
    let waits = with(|state| {
        state.disconnect(id)?;
        // The event of an end that was reported before is not sent again.
        Ok(state_of(state, id)? != IdState::Ended || state.has_event(id))
    });
    as_minus_one(waits.and_then(|waits| if waits { complete(id) } else { Ok(()) }))
}

/// The stack establishes connections by itself, so there is nothing to do for one that is
/// established.
#[unsafe(no_mangle)]
extern "C" fn rdma_establish(id: *mut sys::rdma_cm_id) -> c_int {
    as_minus_one(with(|state| match state_of(state, id)? {
        IdState::Connected => Ok(()),
        _ => Err(EINVAL),
    }))
}

/// The stack sees the first message of a peer by itself.
#[unsafe(no_mangle)]
extern "C" fn rdma_notify(id: *mut sys::rdma_cm_id, _event: sys::ibv_event_type) -> c_int {
    as_minus_one(with(|state| state.pools.ids.get(id).map(drop)))
}

/// Fills in the attributes with which a program moves a queue pair of its own through the states.
/// Like the kernel's connection manager for iWARP it leaves none for RTS: the connection itself
/// makes that of the queue pair.
#[unsafe(no_mangle)]
extern "C" fn rdma_init_qp_attr(
    id: *mut sys::rdma_cm_id,
    attr: *mut sys::ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    as_minus_one(with(|state| {
        state.pools.ids.get(id)?;
        // SAFETY: the program passes null or memory for both.
        let (attr, mask) = unsafe { (attr.as_mut().ok_or(EINVAL)?, mask.as_mut().ok_or(EINVAL)?) };
        // As the kernel's connection manager for iWARP: the connection moves the queue pair to RTS.
        *mask = match attr.qp_state {
            sys::IBV_QPS_INIT | sys::IBV_QPS_RTR => (sys::IBV_QP_STATE | sys::IBV_QP_ACCESS_FLAGS) as c_int,
            sys::IBV_QPS_RTS => 0,
            _ => return Err(EINVAL),
        };
        if *mask != 0 {
            attr.qp_access_flags = sys::IBV_ACCESS_LOCAL_WRITE
                | sys::IBV_ACCESS_REMOTE_WRITE
                | sys::IBV_ACCESS_REMOTE_READ
                | sys::IBV_ACCESS_REMOTE_ATOMIC;
        }
        attr.port_num = 1;
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

/// A depth that leaves the value to the library, as RDMA_MAX_RESP_RES and RDMA_MAX_INIT_DEPTH of
/// librdmacm's.
const DEPTH_UNSPECIFIED: u8 = u8::MAX;

impl State {
    /// Returns the private data and the read depths of the program's parameters, or `None` for
    /// those of the queue pair. A depth beyond the device's is refused.
    fn parse_param<'a>(
        &mut self,
        param: Option<&'a sys::rdma_conn_param>,
    ) -> Outcome<(&'a [u8], Option<ReadDepths>)> {
        let Some(param) = param else { return Ok((&[], None)) };
        let own = self.device()?.context.limits().read_depth.min(READS_MAX);
        let depth = |depth: u8| match u16::from(depth) {
            _ if depth == DEPTH_UNSPECIFIED => Ok(own),
            depth if depth <= own => Ok(depth),
            _ => Err(EINVAL),
        };
        let reads = ReadDepths { ird: depth(param.responder_resources)?, ord: depth(param.initiator_depth)? };
        // SAFETY: the program passes as many bytes.
        let private_data = unsafe { private_bytes(param.private_data, param.private_data_len) };
        Ok((private_data, Some(reads)))
    }

    /// Returns the queue pair that an identifier connects: its own, or that of the program's
    /// parameters.
    fn qp_to_connect(
        &mut self,
        id: *mut sys::rdma_cm_id,
        param: Option<&sys::rdma_conn_param>,
    ) -> Outcome<*mut sys::ibv_qp> {
        let own = self.pools.ids.get(id)?.raw.qp;
        let named = || param.and_then(|param| self.qps.get(&param.qp_num)).copied();
        let qp = if own.is_null() { named().ok_or(EINVAL)? } else { own };
        let other = self.pools.qps.get(qp)?.id;
        let other = self.pools.ids.follow(other);
        // Another identifier has connected it, or is about to.
        if other.is_null() || other == id { Ok(qp) } else { Err(EINVAL) }
    }

    /// Joins an identifier and its queue pair, so that the events of the one are those of the
    /// other, and calls `begin` with the queue pair. If that fails, both are as before.
    fn begin_connection(
        &mut self,
        id: *mut sys::rdma_cm_id,
        qp: *mut sys::ibv_qp,
        begin: impl FnOnce(&mut State, QueuePair) -> Outcome,
    ) -> Outcome {
        let (id_link, qp_link) = (self.pools.ids.link(id), self.pools.qps.link(qp));
        let found = self.pools.qps.get(qp)?;
        let (handle, id_before) = (found.handle, core::mem::replace(&mut found.id, id_link));
        let found = self.pools.ids.get(id)?;
        let qp_before = core::mem::replace(&mut found.qp, qp_link);
        let state_before = core::mem::replace(&mut found.state, IdState::Connecting);
        let begun = begin(self, handle);
        if begun.is_err() {
            self.pools.qps.get(qp)?.id = id_before;
            let found = self.pools.ids.get(id)?;
            (found.qp, found.state) = (qp_before, state_before);
        }
        begun
    }

    fn connect(&mut self, id: *mut sys::rdma_cm_id, param: Option<&sys::rdma_conn_param>) -> Outcome {
        if state_of(self, id)? != IdState::RouteResolved {
            return Err(EINVAL);
        }
        let (private_data, reads) = self.parse_param(param)?;
        let qp = self.qp_to_connect(id, param)?;
        let found = self.pools.ids.get(id)?;
        let (source, remote) = (found.source, without_scope(found.remote().ok_or(EINVAL)?));
        let params = ConnectParams { source, private_data, reads, ..ConnectParams::default() };
        self.begin_connection(id, qp, |state, handle| {
            state.control(|stack| stack.connect_with(handle, remote, &params))
        })
    }

    fn accept(&mut self, id: *mut sys::rdma_cm_id, param: Option<&sys::rdma_conn_param>) -> Outcome {
        if state_of(self, id)? != IdState::Requested {
            return Err(EINVAL);
        }
        let (private_data, reads) = self.parse_param(param)?;
        let qp = self.qp_to_connect(id, param)?;
        let found = self.pools.ids.get(id)?;
        // Without parameters those of the request are used.
        let reads = reads.or(Some(found.requested_reads).filter(|_| param.is_none()));
        let request = found.request.take().ok_or(EINVAL)?;
        let params = AcceptParams { private_data, reads, ..AcceptParams::default() };
        let accepted = self.begin_connection(id, qp, |state, handle| {
            state.control(|stack| stack.accept_with(&request, handle, &params))
        });
        if accepted.is_err() {
            self.pools.ids.get(id)?.request = Some(request);
        }
        accepted
    }

    fn reject(&mut self, id: *mut sys::rdma_cm_id, private_data: &[u8]) -> Outcome {
        let request = self.pools.ids.get(id)?.request.take().ok_or(EINVAL)?;
        let rejected = self.control(|stack| stack.reject(&request, private_data));
        let found = self.pools.ids.get(id)?;
        match rejected {
            Ok(()) => found.state = IdState::Ended,
            Err(_) => found.request = Some(request),
        }
        rejected
    }

    fn disconnect(&mut self, id: *mut sys::rdma_cm_id) -> Outcome {
        let qp = self.pools.ids.get(id)?.qp;
        let qp = self.pools.qps.follow(qp);
        let handle = self.pools.qps.get(qp)?.handle;
        self.control(|stack| stack.disconnect(handle))
    }
}
