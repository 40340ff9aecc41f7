//! Identifiers: creation, destruction, options.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::net::SocketAddr;

use verbs::{ConnectionRequest, ReadDepths};

use super::listen::Backlog;
use crate::engine::{EINVAL, Errno, Link, Object, Outcome, State, as_minus_one, lock_when, with};
use crate::objects::{CompChannel, Cq, Qp, Srq};
use crate::sys;

#[repr(C)]
pub(crate) struct CmId {
    pub(crate) raw: sys::rdma_cm_id,
    pub(crate) state: IdState,
    /// Operations wait for their events, on a channel of the identifier's own.
    pub(crate) is_synchronous: bool,
    /// An IPv6 address that listens to IPv6 only.
    pub(crate) is_one_family: bool,
    /// Others may bind to the same address, if they say so too.
    pub(crate) reuses_address: bool,
    /// What it is bound to, without a scope: its connection comes from there.
    pub(crate) source: Option<SocketAddr>,
    /// A request of a peer that was not answered.
    pub(crate) request: Option<ConnectionRequest>,
    /// The read depths of its event.
    pub(crate) requested_reads: ReadDepths,
    /// Events that were delivered and not acknowledged.
    pub(crate) unacked: i32,
    /// Requests to a listener.
    pub(crate) backlog: Backlog,
    /// What `rdma_create_ep` keeps for the queue pairs of requests.
    pub(crate) endpoint: Option<(*mut sys::ibv_pd, sys::ibv_qp_init_attr)>,
    /// The queue pair that it connects: its own, or that of the program's parameters.
    pub(crate) qp: Link<Qp>,
    /// What was created for it: its shared receive queue, and the completion queues of its queue
    /// pair.
    pub(crate) srq: Link<Srq>,
    pub(crate) send_queue: OwnQueue,
    pub(crate) recv_queue: OwnQueue,
}

/// A completion queue that was created for an identifier, with its channel.
pub(crate) type OwnQueue = (Link<Cq>, Link<CompChannel>);

/// No queue was created.
pub(crate) const NO_QUEUE: OwnQueue = (Link::NONE, Link::NONE);

object!(CmId = sys::rdma_cm_id);

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
            reuses_address: false,
            source: None,
            request: None,
            requested_reads: ReadDepths::default(),
            unacked: 0,
            backlog: Backlog::default(),
            endpoint: None,
            qp: Link::NONE,
            srq: Link::NONE,
            send_queue: NO_QUEUE,
            recv_queue: NO_QUEUE,
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
        // SAFETY: the program passes memory for the pointer.
        unsafe { *id = created };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_destroy_id(id: *mut sys::rdma_cm_id) -> c_int {
    as_minus_one(destroy_id(id))
}

/// A thread is not cancelled here: what is half destroyed is finished.
pub(super) fn destroy_id(id: *mut sys::rdma_cm_id) -> Outcome {
    with(|state| {
        state.release_last_event(id)?;
        state.unlisten(id);
        state.remove_events(id);
        state.end_connection(id);
        Ok(())
    })?;
    let mut state = lock_when(|state| state.pools.ids.find(id).is_none_or(|id| id.unacked <= 0))?;
    // Events may have arrived while this thread waited.
    state.remove_events(id);
    state.remove_id(id)
}

#[unsafe(no_mangle)]
extern "C" fn rdma_migrate_id(id: *mut sys::rdma_cm_id, channel: *mut sys::rdma_event_channel) -> c_int {
    as_minus_one(migrate_id(id, channel))
}

pub(super) fn migrate_id(id: *mut sys::rdma_cm_id, channel: *mut sys::rdma_event_channel) -> Outcome {
    let is_synchronous = channel.is_null();
    let channel = with(|state| {
        state.pools.ids.get(id)?;
        let channel = if is_synchronous { state.create_event_channel()? } else { channel };
        state.pools.event_channels.get(channel)?;
        // The event of the last synchronous operation is the identifier's, not the program's.
        state.release_last_event(id)?;
        Ok(channel)
    })?;
    // Events that the program has not acknowledged belong to the old channel.
    let mut state = lock_when(|state| state.pools.ids.find(id).is_none_or(|id| id.unacked <= 0))?;
    let moved = state.move_events(id, channel);
    if moved.is_err() && is_synchronous {
        // Another thread has destroyed the identifier.
        let _ = state.destroy_event_channel(channel);
    }
    let old = moved?;
    let found = state.pools.ids.get(id)?;
    let was_synchronous = core::mem::replace(&mut found.is_synchronous, is_synchronous);
    // An identifier's own channel ends with its use.
    if was_synchronous && old != channel { state.destroy_event_channel(old) } else { Ok(()) }
}

#[unsafe(no_mangle)]
extern "C" fn rdma_set_option(
    id: *mut sys::rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    bytes: usize,
) -> c_int {
    as_minus_one(with(|state| {
        let found = state.pools.ids.get(id)?;
        if level as u32 != sys::RDMA_OPTION_ID || value.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: the program passes as many bytes.
        let number = || unsafe { value.cast::<c_int>().read_unaligned() };
        match (name as u32, bytes) {
            // The code point is a setting of the port, and the timeout of the configuration.
            (sys::RDMA_OPTION_ID_TOS | sys::RDMA_OPTION_ID_ACK_TIMEOUT, 1) => {}
            (sys::RDMA_OPTION_ID_REUSEADDR, 4) if found.state != IdState::Listening => {
                found.reuses_address = number() != 0;
                let reuses = found.reuses_address;
                state.ports.set_reuse(id, reuses);
            }
            (sys::RDMA_OPTION_ID_AFONLY, 4) if matches!(found.state, IdState::Idle | IdState::Bound) => {
                found.is_one_family = number() != 0;
                let is_one_family = found.is_one_family;
                state.ports.set_one_family(id, is_one_family);
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
        self.pools.event_channels.get(channel)?.users += 1;
        Ok(self.pools.ids.insert(CmId { is_synchronous, ..CmId::new(channel, context, ps) }))
    }

    /// Releases the event of the last synchronous operation, which is available until the next
    /// call.
    pub(super) fn release_last_event(&mut self, id: *mut sys::rdma_cm_id) -> Outcome {
        let last = take_pointer(&mut self.pools.ids.get(id)?.raw.event);
        if !last.is_null() {
            // The program may have acknowledged it.
            let _ = self.acknowledge(last);
        }
        Ok(())
    }

    /// Ends what an identifier has begun with a peer. Its queue pair stays, without the identifier.
    fn end_connection(&mut self, id: *mut sys::rdma_cm_id) {
        let Some(found) = self.pools.ids.find(id) else { return };
        let (request, qp) = (found.request.take(), take_link(&mut found.qp));
        if let Some(request) = request {
            let _ = self.control(|stack| stack.reject(&request, &[]));
        }
        let qp = self.pools.qps.follow(qp);
        let Some(found) = self.pools.qps.find(qp) else { return };
        found.id = Link::NONE;
        let handle = found.handle;
        // A queue pair without a connection is left as it is.
        let _ = self.control(|stack| stack.disconnect(handle));
    }

    fn remove_id(&mut self, id: *mut sys::rdma_cm_id) -> Outcome {
        let removed = self.pools.ids.take(id).ok_or(EINVAL)?;
        self.ports.release(id);
        let channel = removed.raw.channel;
        if let Some(channel) = self.pools.event_channels.find(channel) {
            channel.users -= 1;
        }
        if removed.is_synchronous { self.destroy_event_channel(channel) } else { Ok(()) }
    }

    /// Rejects a request that the program never saw.
    pub(super) fn discard_id(&mut self, id: *mut sys::rdma_cm_id) {
        self.end_connection(id);
        let _ = self.remove_id(id);
    }

    /// A queue pair is being destroyed, and with it the connection of its identifier, which gets
    /// the event: the queue pair cannot report it later. Whatever the peer does, the identifier has
    /// its end now.
    pub(crate) fn on_qp_removed(&mut self, link: Link<CmId>, qp: *mut sys::ibv_qp) {
        let id = self.pools.ids.follow(link);
        let Some(found) = self.pools.ids.find(id) else { return };
        if found.raw.qp == qp {
            found.raw.qp = ptr::null_mut();
        }
        found.qp = Link::NONE;
        self.on_connection_lost(id);
    }
}

/// Takes a pointer and leaves null.
pub(super) fn take_pointer<T>(place: &mut *mut T) -> *mut T {
    core::mem::replace(place, ptr::null_mut())
}

/// Takes a link and leaves none.
pub(super) fn take_link<T: Object>(place: &mut Link<T>) -> Link<T> {
    core::mem::replace(place, Link::NONE)
}
