//! Queue pairs and shared receive queues of identifiers, and endpoints, which do several steps in
//! one call.

use core::ffi::{c_int, c_void};
use core::ptr;

use super::address::{resolve_address, resolve_route};
use super::event::wait_on;
use super::id::{NO_QUEUE, OwnQueue, destroy_id};
use super::{CmId, IdState};
use crate::device::default_context;
use crate::engine::{EINVAL, EOPNOTSUPP, Errno, Link, Outcome, State, as_minus_one, as_pointer, with};
use crate::objects;
use crate::sys;

#[unsafe(no_mangle)]
extern "C" fn rdma_create_qp(
    id: *mut sys::rdma_cm_id,
    pd: *mut sys::ibv_pd,
    init: *mut sys::ibv_qp_init_attr,
) -> c_int {
    as_minus_one(with(|state| {
        // SAFETY: the program passes null or its attributes.
        let init = unsafe { init.as_mut() }.ok_or(EINVAL)?;
        state.create_id_qp(id, pd, init)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_create_qp_ex(id: *mut sys::rdma_cm_id, init: *mut sys::ibv_qp_init_attr_ex) -> c_int {
    as_minus_one(with(|state| {
        // SAFETY: the program passes null or its attributes.
        let init = unsafe { init.as_mut() }.ok_or(EINVAL)?;
        if init.comp_mask & !sys::IBV_QP_INIT_ATTR_PD != 0 {
            return Err(EOPNOTSUPP);
        }
        let has_pd = init.comp_mask & sys::IBV_QP_INIT_ATTR_PD != 0;
        let mut plain = sys::ibv_qp_init_attr {
            qp_context: init.qp_context,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            cap: init.cap,
            qp_type: init.qp_type,
            sq_sig_all: init.sq_sig_all,
        };
        state.create_id_qp(id, if has_pd { init.pd } else { ptr::null_mut() }, &mut plain)?;
        (init.cap, init.send_cq, init.recv_cq) = (plain.cap, plain.send_cq, plain.recv_cq);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_destroy_qp(id: *mut sys::rdma_cm_id) {
    as_minus_one(destroy_id_qp(id));
}

fn destroy_id_qp(id: *mut sys::rdma_cm_id) -> Outcome {
    let qp = with(|state| Ok(state.pools.ids.get(id)?.raw.qp))?;
    objects::destroy_qp(qp)?;
    // A queue that the program uses elsewhere stays, and the identifier has it no longer.
    for part in QUEUES {
        let (cq, channel) = with(|state| {
            let found = state.pools.ids.get(id)?;
            let (cq, channel) = core::mem::replace(part.own(found), NO_QUEUE);
            part.clear(&mut found.raw);
            Ok((state.pools.cqs.follow(cq), state.pools.channels.follow(channel)))
        })?;
        if !cq.is_null() {
            objects::destroy_cq(cq)?;
        }
        if !channel.is_null() {
            with(|state| state.destroy_comp_channel(channel))?;
        }
    }
    Ok(())
}

/// One of the two completion queues that are created for the queue pair of an identifier.
#[derive(Clone, Copy)]
enum Part {
    Send,
    Recv,
}

const QUEUES: [Part; 2] = [Part::Send, Part::Recv];

impl Part {
    fn own(self, id: &mut CmId) -> &mut OwnQueue {
        match self {
            Part::Send => &mut id.send_queue,
            Part::Recv => &mut id.recv_queue,
        }
    }

    /// Shows the program a queue and its channel.
    fn set(self, raw: &mut sys::rdma_cm_id, cq: *mut sys::ibv_cq, channel: *mut sys::ibv_comp_channel) {
        match self {
            Part::Send => (raw.send_cq, raw.send_cq_channel) = (cq, channel),
            Part::Recv => (raw.recv_cq, raw.recv_cq_channel) = (cq, channel),
        }
    }

    fn clear(self, raw: &mut sys::rdma_cm_id) {
        self.set(raw, ptr::null_mut(), ptr::null_mut());
    }
}

#[unsafe(no_mangle)]
extern "C" fn rdma_create_srq(
    id: *mut sys::rdma_cm_id,
    pd: *mut sys::ibv_pd,
    init: *mut sys::ibv_srq_init_attr,
) -> c_int {
    as_minus_one(with(|state| {
        // SAFETY: the program passes null or its attributes.
        let init = unsafe { init.as_mut() }.ok_or(EINVAL)?;
        let found = state.pools.ids.get(id)?;
        let (own, has_one) = (found.raw.pd, found.srq);
        // An identifier has a single one, and a device before.
        if own.is_null() || !state.pools.srqs.follow(has_one).is_null() {
            return Err(EINVAL);
        }
        let srq = state.create_srq(if pd.is_null() { own } else { pd }, init)?;
        let link = state.pools.srqs.link(srq);
        let found = state.pools.ids.get(id)?;
        (found.raw.srq, found.srq) = (srq, link);
        Ok(())
    }))
}

/// Kinds of shared receive queues that only the extended call can name are absent.
#[unsafe(no_mangle)]
extern "C" fn rdma_create_srq_ex(id: *mut sys::rdma_cm_id, init: *mut sys::ibv_srq_init_attr_ex) -> c_int {
    // SAFETY: the program passes null or its attributes.
    let Some(init) = (unsafe { init.as_mut() }) else { return as_minus_one(Err(EINVAL)) };
    let plain = sys::IBV_SRQ_INIT_ATTR_TYPE | sys::IBV_SRQ_INIT_ATTR_PD;
    let is_other_type =
        init.comp_mask & sys::IBV_SRQ_INIT_ATTR_TYPE != 0 && init.srq_type != sys::IBV_SRQT_BASIC;
    if init.comp_mask & !plain != 0 || is_other_type {
        return as_minus_one(Err(EOPNOTSUPP));
    }
    let pd = if init.comp_mask & sys::IBV_SRQ_INIT_ATTR_PD != 0 { init.pd } else { ptr::null_mut() };
    let mut basic = sys::ibv_srq_init_attr { srq_context: init.srq_context, attr: init.attr };
    let outcome = rdma_create_srq(id, pd, &raw mut basic);
    init.attr = basic.attr;
    outcome
}

#[unsafe(no_mangle)]
extern "C" fn rdma_destroy_srq(id: *mut sys::rdma_cm_id) {
    as_minus_one(destroy_id_srq(id));
}

fn destroy_id_srq(id: *mut sys::rdma_cm_id) -> Outcome {
    let srq = with(|state| {
        let link = state.pools.ids.get(id)?.srq;
        Ok(state.pools.srqs.follow(link))
    })?;
    objects::destroy_srq(srq)?;
    with(|state| {
        let found = state.pools.ids.get(id)?;
        (found.raw.srq, found.srq) = (ptr::null_mut(), Link::NONE);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn rdma_create_ep(
    id: *mut *mut sys::rdma_cm_id,
    info: *mut sys::rdma_addrinfo,
    pd: *mut sys::ibv_pd,
    init: *mut sys::ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program passes its structures and memory for the pointer.
    as_minus_one(unsafe { create_endpoint(id, info, pd, init) })
}

/// # Safety
/// The pointers are null or to structures of the program.
unsafe fn create_endpoint(
    into: *mut *mut sys::rdma_cm_id,
    info: *mut sys::rdma_addrinfo,
    pd: *mut sys::ibv_pd,
    init: *mut sys::ibv_qp_init_attr,
) -> Outcome {
    // SAFETY: guaranteed by the caller.
    let (into, info) = unsafe { (into.as_mut().ok_or(EINVAL)?, info.as_ref().ok_or(EINVAL)?) };
    let ps = info.ai_port_space as sys::rdma_port_space;
    let id = with(|state| state.create_id(ptr::null_mut(), ptr::null_mut(), ps))?;
    // SAFETY: guaranteed by the caller.
    let prepared = unsafe {
        if info.ai_flags as u32 & sys::RAI_PASSIVE != 0 {
            prepare_passive(id, info, pd, init)
        } else {
            prepare_active(id, info, pd, init)
        }
    };
    if let Err(error) = prepared {
        let _ = destroy_id(id);
        return Err(error);
    }
    *into = id;
    Ok(())
}

/// # Safety
/// As for [`create_endpoint`].
unsafe fn prepare_passive(
    id: *mut sys::rdma_cm_id,
    info: &sys::rdma_addrinfo,
    pd: *mut sys::ibv_pd,
    init: *mut sys::ibv_qp_init_attr,
) -> Outcome {
    // SAFETY: guaranteed by the caller.
    let (address, init) =
        unsafe { (super::address::read_address(info.ai_src_addr)?, init.as_ref().copied()) };
    let qp_type = info.ai_qp_type as sys::ibv_qp_type;
    with(|state| {
        state.bind(id, address.ok_or(EINVAL)?)?;
        state.pools.ids.get(id)?.endpoint = init.map(|init| (pd, sys::ibv_qp_init_attr { qp_type, ..init }));
        Ok(())
    })
}

/// # Safety
/// As for [`create_endpoint`].
unsafe fn prepare_active(
    id: *mut sys::rdma_cm_id,
    info: &sys::rdma_addrinfo,
    pd: *mut sys::ibv_pd,
    init: *mut sys::ibv_qp_init_attr,
) -> Outcome {
    // SAFETY: guaranteed by the caller.
    unsafe { resolve_address(id, info.ai_src_addr, info.ai_dst_addr)? };
    resolve_route(id)?;
    // SAFETY: as above.
    let Some(init) = (unsafe { init.as_mut() }) else { return Ok(()) };
    init.qp_type = info.ai_qp_type as sys::ibv_qp_type;
    with(|state| state.create_id_qp(id, pd, init))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_destroy_ep(id: *mut sys::rdma_cm_id) {
    let owned = with(|state| {
        let found = state.pools.ids.get(id)?;
        let (has_qp, srq) = (!found.raw.qp.is_null(), found.srq);
        Ok((has_qp, !state.pools.srqs.follow(srq).is_null()))
    });
    let Ok((has_qp, has_srq)) = owned else { return };
    if has_qp {
        as_minus_one(destroy_id_qp(id));
    }
    if has_srq {
        as_minus_one(destroy_id_srq(id));
    }
    as_minus_one(destroy_id(id));
}

#[unsafe(no_mangle)]
extern "C-unwind" fn rdma_get_request(
    listener: *mut sys::rdma_cm_id,
    id: *mut *mut sys::rdma_cm_id,
) -> c_int {
    if id.is_null() {
        return as_minus_one(Err(EINVAL));
    }
    as_minus_one(get_request(listener).map(|found| {
        // SAFETY: the program passes memory for the pointer.
        unsafe { *id = found };
    }))
}

fn get_request(listener: *mut sys::rdma_cm_id) -> Outcome<*mut sys::rdma_cm_id> {
    let channel = with(|state| {
        let found = state.pools.ids.get(listener)?;
        if !found.is_synchronous || found.state != IdState::Listening {
            return Err(EINVAL);
        }
        let channel = found.raw.channel;
        state.release_last_event(listener)?;
        Ok(channel)
    })?;
    wait_on(channel, |state, event| {
        let taken = state.take_request(listener, event);
        if taken.is_err() {
            // Nobody else knows of the event.
            let _ = state.acknowledge(event);
        }
        taken
    })?
}

#[unsafe(no_mangle)]
extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut sys::ibv_context {
    let list = with(|state| {
        let context = default_context(state)?;
        let list: Box<[*mut sys::ibv_context; 2]> = Box::new([context, ptr::null_mut()]);
        Ok(Box::into_raw(list).cast())
    });
    if !count.is_null() {
        // SAFETY: the program passes null or memory for the number.
        unsafe { *count = c_int::from(list.is_ok()) };
    }
    as_pointer(list)
}

#[unsafe(no_mangle)]
extern "C" fn rdma_free_devices(list: *mut *mut sys::ibv_context) {
    if !list.is_null() {
        // SAFETY: the list is one of `rdma_get_devices`, as the manual page demands.
        drop(unsafe { Box::from_raw(list.cast::<[*mut sys::ibv_context; 2]>()) });
    }
}

impl State {
    /// Makes the identifier of a request that of the program, with a queue pair if the listener has
    /// the attributes of one. If that fails, the request is rejected and the identifier destroyed.
    fn take_request(
        &mut self,
        listener: *mut sys::rdma_cm_id,
        event: *mut sys::rdma_cm_event,
    ) -> Outcome<*mut sys::rdma_cm_id> {
        let raw = self.pools.events.get(event)?.raw;
        if raw.event != sys::RDMA_CM_EVENT_CONNECT_REQUEST {
            return Err(if raw.status == 0 { EINVAL } else { Errno::of_status(raw.status) });
        }
        let child = raw.id;
        let prepared = self.prepare_request(listener, child);
        if prepared.is_err() {
            self.discard_id(child);
        } else {
            self.pools.ids.get(child)?.raw.event = event;
        }
        prepared.map(|()| child)
    }

    /// A call that fails leaves no queue pair and no channel.
    fn prepare_request(&mut self, listener: *mut sys::rdma_cm_id, child: *mut sys::rdma_cm_id) -> Outcome {
        // The channel first, because its creation has no effect on a peer.
        let channel = self.create_event_channel()?;
        let endpoint = self.pools.ids.get(listener)?.endpoint;
        let created = endpoint.map_or(Ok(()), |(pd, mut init)| self.create_id_qp(child, pd, &mut init));
        if let Err(error) = created.and_then(|()| self.move_events(child, channel).map(drop)) {
            let _ = self.destroy_event_channel(channel);
            return Err(error);
        }
        self.pools.ids.get(child)?.is_synchronous = true;
        Ok(())
    }

    /// Returns the protection domain of identifiers whose program names none.
    pub(super) fn default_pd(&mut self, context: *mut sys::ibv_context) -> Outcome<*mut sys::ibv_pd> {
        let known = self.pools.pds.follow(self.listeners.pd);
        if !known.is_null() {
            return Ok(known);
        }
        let pd = self.alloc_pd(context)?;
        self.listeners.pd = self.pools.pds.link(pd);
        Ok(pd)
    }

    /// Creates the queue pair of an identifier, with completion queues for those that the program
    /// does not name. A call that fails leaves nothing, and the attributes as they were.
    fn create_id_qp(
        &mut self,
        id: *mut sys::rdma_cm_id,
        pd: *mut sys::ibv_pd,
        init: &mut sys::ibv_qp_init_attr,
    ) -> Outcome {
        let raw = self.pools.ids.get(id)?.raw;
        if !raw.qp.is_null() || raw.verbs.is_null() {
            return Err(EINVAL);
        }
        let before = *init;
        let pd = if pd.is_null() { raw.pd } else { pd };
        if init.srq.is_null() {
            init.srq = raw.srq;
        }
        let created = self.create_id_cqs(id, init).and_then(|()| self.create_qp(pd, init));
        let qp = match created {
            Ok(qp) => qp,
            Err(error) => {
                *init = before;
                self.remove_id_cqs(id);
                return Err(error);
            }
        };
        let (id_link, qp_link) = (self.pools.ids.link(id), self.pools.qps.link(qp));
        let created = self.pools.qps.get(qp)?;
        (created.id, created.raw.state) = (id_link, sys::IBV_QPS_INIT);
        let found = self.pools.ids.get(id)?;
        (found.qp, found.raw.qp, found.raw.pd) = (qp_link, qp, pd);
        Ok(())
    }

    fn create_id_cqs(&mut self, id: *mut sys::rdma_cm_id, init: &mut sys::ibv_qp_init_attr) -> Outcome {
        if init.send_cq.is_null() {
            init.send_cq = self.create_id_cq(id, Part::Send, init.cap.max_send_wr)?;
        }
        if init.recv_cq.is_null() {
            init.recv_cq = self.create_id_cq(id, Part::Recv, init.cap.max_recv_wr)?;
        }
        Ok(())
    }

    /// Creates a completion queue with a channel of its own, for an identifier.
    fn create_id_cq(
        &mut self,
        id: *mut sys::rdma_cm_id,
        part: Part,
        entries: u32,
    ) -> Outcome<*mut sys::ibv_cq> {
        let context = self.pools.ids.get(id)?.raw.verbs;
        let channel = self.create_comp_channel(context)?;
        let entries = objects::clamp_int(entries.max(1));
        let cq = match self.create_cq(context, entries, id.cast::<c_void>(), channel) {
            Ok(cq) => cq,
            Err(error) => {
                let _ = self.destroy_comp_channel(channel);
                return Err(error);
            }
        };
        let queue = (self.pools.cqs.link(cq), self.pools.channels.link(channel));
        let found = self.pools.ids.get(id)?;
        *part.own(found) = queue;
        part.set(&mut found.raw, cq, channel);
        Ok(cq)
    }

    /// Removes what [`create_id_cqs`](Self::create_id_cqs) has created. Nobody has used it.
    fn remove_id_cqs(&mut self, id: *mut sys::rdma_cm_id) {
        for part in QUEUES {
            let Some(found) = self.pools.ids.find(id) else { return };
            let (cq, channel) = core::mem::replace(part.own(found), NO_QUEUE);
            part.clear(&mut found.raw);
            let (cq, channel) = (self.pools.cqs.follow(cq), self.pools.channels.follow(channel));
            if !cq.is_null() {
                let _ = self.remove_cq(cq);
            }
            if !channel.is_null() {
                let _ = self.destroy_comp_channel(channel);
            }
        }
    }
}
