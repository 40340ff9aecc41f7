//! Identifiers: creation, destruction, options.

use core::ffi::{c_int, c_void};
use core::ptr;

use verbs::ConnectionRequest;

use super::EventChannel;
use crate::engine::{EINVAL, Errno, Object, Outcome, State, as_minus_one, find, lock_when, with};
use crate::objects::Qp;
use crate::sys;

#[repr(C)]
pub(crate) struct CmId {
    pub(crate) raw: sys::rdma_cm_id,
    pub(crate) state: IdState,
    /// Operations wait for their events, on a channel of the identifier's own.
    pub(crate) is_synchronous: bool,
    /// An IPv6 address that listens to IPv6 only.
    pub(crate) is_one_family: bool,
    /// A request of a peer that was not answered.
    pub(crate) request: Option<ConnectionRequest>,
    /// Events that were delivered and not acknowledged.
    pub(crate) unacked: i32,
    /// What `rdma_create_ep` keeps for the queue pairs of requests.
    pub(crate) endpoint: Option<(*mut sys::ibv_pd, sys::ibv_qp_init_attr)>,
}

// SAFETY: the type is `repr(C)` and begins with the structure.
unsafe impl Object for CmId {
    type Raw = sys::rdma_cm_id;
}

/// How far an identifier is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdState {
    Idle,
    Bound,
    AddressResolved,
    RouteResolved,
    Listening,
    /// A peer asked for a connection.
    Requested,
    Connecting,
    Connected,
    Ended,
}

impl CmId {
    pub(super) fn new(
        channel: *mut sys::rdma_event_channel,
        context: *mut c_void,
        ps: sys::rdma_port_space,
    ) -> Self {
        let raw = sys::rdma_cm_id { channel, context, ps, qp_type: sys::IBV_QPT_RC, ..Default::default() };
        CmId {
            raw,
            state: IdState::Idle,
            is_synchronous: false,
            is_one_family: false,
            request: None,
            unacked: 0,
            endpoint: None,
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn rdma_create_id(
    channel: *mut sys::rdma_event_channel,
    id: *mut *mut sys::rdma_cm_id,
    context: *mut c_void,
    ps: sys::rdma_port_space,
) -> c_int {
    as_minus_one(with(|state| {
        if id.is_null() {
            return Err(EINVAL);
        }
        let created = state.create_id(channel, context, ps)?;
        // SAFETY: the program passes a place for the pointer.
        unsafe { *id = created };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_destroy_id(id: *mut sys::rdma_cm_id) -> c_int {
    as_minus_one(destroy_id(id))
}

pub(super) fn destroy_id(id: *mut sys::rdma_cm_id) -> Outcome {
    with(|state| {
        // SAFETY: the lock is held, and no reference is kept.
        let last = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.raw.event;
        if !last.is_null() {
            state.acknowledge(last)?;
        }
        state.unlisten(id);
        state.remove_events(id);
        state.end_connection(id);
        Ok(())
    })?;
    let mut state = lock_when(|_| {
        // SAFETY: as above.
        unsafe { find::<CmId>(id) }.is_none_or(|id| id.unacked <= 0)
    })?;
    // Events may have arrived while this thread waited.
    state.remove_events(id);
    state.remove_id(id)
}

#[unsafe(no_mangle)]
extern "C" fn rdma_migrate_id(id: *mut sys::rdma_cm_id, channel: *mut sys::rdma_event_channel) -> c_int {
    as_minus_one(migrate_id(id, channel))
}

pub(super) fn migrate_id(id: *mut sys::rdma_cm_id, channel: *mut sys::rdma_event_channel) -> Outcome {
    with(|state| {
        // SAFETY: the lock is held, and no reference is kept.
        let found = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
        let last = core::mem::replace(&mut found.raw.event, ptr::null_mut());
        // The event of the last synchronous operation is the identifier's, not the program's.
        if last.is_null() { Ok(()) } else { state.acknowledge(last) }
    })?;
    // Events that the program has not acknowledged belong to the old channel.
    let mut state = lock_when(|_| {
        // SAFETY: the lock is held, and no reference is kept.
        unsafe { find::<CmId>(id) }.is_none_or(|id| id.unacked <= 0)
    })?;
    // SAFETY: as above.
    let old = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
    let (own, is_synchronous) = (old.is_synchronous.then_some(old.raw.channel), channel.is_null());
    let channel = if is_synchronous { state.create_event_channel()? } else { channel };
    state.move_events(id, channel)?;
    // SAFETY: as above.
    unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.is_synchronous = is_synchronous;
    own.map_or(Ok(()), |own| state.destroy_event_channel(own))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_set_option(
    id: *mut sys::rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    bytes: usize,
) -> c_int {
    as_minus_one(with(|_| {
        // SAFETY: the lock is held, and no reference is kept.
        let found = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
        if level as u32 != sys::RDMA_OPTION_ID || value.is_null() {
            return Err(EINVAL);
        }
        match (name as u32, bytes) {
            // The code point is a setting of the port, and the timeout of the configuration.
            (sys::RDMA_OPTION_ID_TOS | sys::RDMA_OPTION_ID_ACK_TIMEOUT, 1) => {}
            (sys::RDMA_OPTION_ID_REUSEADDR, 4) => {}
            (sys::RDMA_OPTION_ID_AFONLY, 4) => {
                // SAFETY: the program passes as many bytes.
                found.is_one_family = unsafe { value.cast::<c_int>().read_unaligned() } != 0;
            }
            _ => return Err(EINVAL),
        }
        Ok(())
    }))
}

impl State {
    pub(super) fn create_id(
        &mut self,
        channel: *mut sys::rdma_event_channel,
        context: *mut c_void,
        ps: sys::rdma_port_space,
    ) -> Outcome<*mut sys::rdma_cm_id> {
        if ps != sys::RDMA_PS_TCP {
            // iWARP has connections only.
            return Err(Errno(libc::EPROTONOSUPPORT));
        }
        let is_synchronous = channel.is_null();
        let channel = if is_synchronous { self.create_event_channel()? } else { channel };
        // SAFETY: the lock is held, and no reference is kept.
        unsafe { find::<EventChannel>(channel) }.ok_or(EINVAL)?.users += 1;
        Ok(self.pools.ids.insert(CmId { is_synchronous, ..CmId::new(channel, context, ps) }))
    }

    /// Ends what an identifier has begun with a peer.
    fn end_connection(&mut self, id: *mut sys::rdma_cm_id) {
        // SAFETY: the lock is held, and no reference is kept.
        let Some(found) = (unsafe { find::<CmId>(id) }) else { return };
        let (request, qp) = (found.request.take(), found.raw.qp);
        if let Some(request) = request {
            let _ = self.control(|stack| stack.reject(&request, &[]));
        }
        // SAFETY: as above.
        let Some(found) = (unsafe { find::<Qp>(qp) }) else { return };
        found.id = ptr::null_mut();
        let handle = found.handle;
        // A queue pair without a connection is left as it is.
        let _ = self.control(|stack| stack.disconnect(handle));
    }

    fn remove_id(&mut self, id: *mut sys::rdma_cm_id) -> Outcome {
        // SAFETY: the lock is held, and no reference is kept.
        let removed = unsafe { self.pools.ids.remove(id) }.ok_or(EINVAL)?;
        let channel = removed.raw.channel;
        // SAFETY: as above.
        if let Some(channel) = unsafe { find::<EventChannel>(channel) } {
            channel.users -= 1;
        }
        if removed.is_synchronous { self.destroy_event_channel(channel) } else { Ok(()) }
    }

    /// Rejects a request that the program never saw.
    pub(super) fn discard_id(&mut self, id: *mut sys::rdma_cm_id) {
        self.end_connection(id);
        let _ = self.remove_id(id);
    }

    /// Forgets a queue pair that was destroyed.
    pub(crate) fn forget_qp(&mut self, id: *mut sys::rdma_cm_id, qp: *mut sys::ibv_qp) {
        // SAFETY: the lock is held, and no reference is kept.
        if let Some(found) = (unsafe { find::<CmId>(id) }).filter(|found| found.raw.qp == qp) {
            found.raw.qp = ptr::null_mut();
        }
    }
}
