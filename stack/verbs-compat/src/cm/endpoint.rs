//! Queue pairs and shared receive queues of identifiers, and endpoints, which do several steps in one call.

use core::ffi::{c_int, c_void};
use core::ptr;

use super::address::{resolve_address, resolve_route};
use super::event::get_event;
use super::id::{destroy_id, migrate_id};
use super::{CmEvent, CmId};
use crate::device::default_context;
use crate::engine::{EINVAL, EOPNOTSUPP, Errno, Outcome, State, as_minus_one, as_pointer, find, with};
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
    // SAFETY: the lock is held, and no reference is kept.
    let qp = with(|_| Ok(unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.raw.qp))?;
    objects::destroy_qp(qp)?;
    let queues = with(|_| {
        // SAFETY: as above.
        let raw = &mut unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.raw;
        let take = |cq: &mut *mut sys::ibv_cq, channel: &mut *mut sys::ibv_comp_channel| {
            (core::mem::replace(cq, ptr::null_mut()), core::mem::replace(channel, ptr::null_mut()))
        };
        let send = take(&mut raw.send_cq, &mut raw.send_cq_channel);
        Ok([send, take(&mut raw.recv_cq, &mut raw.recv_cq_channel)])
    })?;
    for (cq, channel) in queues {
        if !cq.is_null() {
            objects::destroy_cq(cq)?;
        }
        if !channel.is_null() {
            with(|state| state.destroy_comp_channel(channel))?;
        }
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn rdma_create_srq(
    id: *mut sys::rdma_cm_id,
    pd: *mut sys::ibv_pd,
    init: *mut sys::ibv_srq_init_attr,
) -> c_int {
    as_minus_one(with(|state| {
        // SAFETY: the program passes null or its attributes; the lock is held.
        let init = unsafe { init.as_mut() }.ok_or(EINVAL)?;
        // SAFETY: as above.
        let own = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.raw.pd;
        let srq = state.create_srq(if pd.is_null() { own } else { pd }, init)?;
        // SAFETY: as above.
        unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.raw.srq = srq;
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
    let srq = with(|_| {
        // SAFETY: the lock is held, and no reference is kept.
        let found = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
        Ok(core::mem::replace(&mut found.raw.srq, ptr::null_mut()))
    })?;
    objects::destroy_srq(srq)
}

#[unsafe(no_mangle)]
extern "C" fn rdma_create_ep(
    id: *mut *mut sys::rdma_cm_id,
    info: *mut sys::rdma_addrinfo,
    pd: *mut sys::ibv_pd,
    init: *mut sys::ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program passes its structures and a place for the pointer.
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
        destroy_id(id)?;
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
        // SAFETY: the lock is held, and no reference is kept.
        unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.endpoint =
            init.map(|init| (pd, sys::ibv_qp_init_attr { qp_type, ..init }));
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
    let owned = with(|_| {
        // SAFETY: the lock is held, and no reference is kept.
        let raw = &unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.raw;
        Ok((!raw.qp.is_null(), !raw.srq.is_null()))
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
extern "C" fn rdma_get_request(listener: *mut sys::rdma_cm_id, id: *mut *mut sys::rdma_cm_id) -> c_int {
    as_minus_one(get_request(listener).and_then(|found| {
        if id.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: the program passes a place for the pointer.
        unsafe { *id = found };
        Ok(())
    }))
}

fn get_request(listener: *mut sys::rdma_cm_id) -> Outcome<*mut sys::rdma_cm_id> {
    let (channel, endpoint) = with(|_| {
        // SAFETY: the lock is held, and no reference is kept.
        let found = unsafe { find::<CmId>(listener) }.ok_or(EINVAL)?;
        if !found.is_synchronous {
            return Err(EINVAL);
        }
        let last = core::mem::replace(&mut found.raw.event, ptr::null_mut());
        Ok(((found.raw.channel, last), found.endpoint))
    })?;
    let (channel, last) = channel;
    if !last.is_null() {
        with(|state| state.acknowledge(last))?;
    }
    let event = get_event(channel)?;
    // SAFETY: as above.
    let raw = with(|_| Ok(unsafe { find::<CmEvent>(event) }.ok_or(EINVAL)?.raw))?;
    if raw.status != 0 || raw.event != sys::RDMA_CM_EVENT_CONNECT_REQUEST {
        with(|state| state.acknowledge(event))?;
        return Err(Errno(if raw.status != 0 { raw.status.abs() } else { libc::EINVAL }));
    }
    if let Some((pd, mut init)) = endpoint {
        with(|state| state.create_id_qp(raw.id, pd, &mut init))?;
    }
    migrate_id(raw.id, ptr::null_mut())?;
    with(|_| {
        // SAFETY: as above.
        unsafe { find::<CmId>(raw.id) }.ok_or(EINVAL)?.raw.event = event;
        Ok(raw.id)
    })
}

#[unsafe(no_mangle)]
extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut sys::ibv_context {
    let list = with(|state| {
        let context = default_context(state)?;
        let list: Box<[*mut sys::ibv_context; 2]> = Box::new([context, ptr::null_mut()]);
        Ok(Box::into_raw(list).cast())
    });
    if !count.is_null() {
        // SAFETY: the program passes null or a place for the number.
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
    /// Returns the protection domain of identifiers whose program names none.
    pub(super) fn default_pd(&mut self, context: *mut sys::ibv_context) -> Outcome<*mut sys::ibv_pd> {
        match self.listeners.pd {
            Some(pd) => Ok(pd),
            None => {
                let pd = self.alloc_pd(context)?;
                self.listeners.pd = Some(pd);
                Ok(pd)
            }
        }
    }

    fn create_id_qp(
        &mut self,
        id: *mut sys::rdma_cm_id,
        pd: *mut sys::ibv_pd,
        init: &mut sys::ibv_qp_init_attr,
    ) -> Outcome {
        // SAFETY: the lock is held, and no reference is kept.
        let raw = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.raw;
        if !raw.qp.is_null() || raw.verbs.is_null() {
            return Err(EINVAL);
        }
        let pd = if pd.is_null() { raw.pd } else { pd };
        if init.send_cq.is_null() {
            init.send_cq = self
                .create_id_cq(id, init.cap.max_send_wr, |raw| (&mut raw.send_cq, &mut raw.send_cq_channel))?;
        }
        if init.recv_cq.is_null() {
            init.recv_cq = self
                .create_id_cq(id, init.cap.max_recv_wr, |raw| (&mut raw.recv_cq, &mut raw.recv_cq_channel))?;
        }
        if init.srq.is_null() {
            init.srq = raw.srq;
        }
        let qp = self.create_qp(pd, init)?;
        // SAFETY: as above.
        unsafe {
            let created = find::<objects::Qp>(qp).ok_or(EINVAL)?;
            created.id = id;
            created.raw.state = sys::IBV_QPS_INIT;
            let found = find::<CmId>(id).ok_or(EINVAL)?;
            found.raw.qp = qp;
            found.raw.pd = pd;
        }
        Ok(())
    }

    /// Creates a completion queue with a channel of its own, for an identifier.
    fn create_id_cq(
        &mut self,
        id: *mut sys::rdma_cm_id,
        entries: u32,
        places: impl FnOnce(&mut sys::rdma_cm_id) -> (&mut *mut sys::ibv_cq, &mut *mut sys::ibv_comp_channel),
    ) -> Outcome<*mut sys::ibv_cq> {
        // SAFETY: the lock is held, and no reference is kept.
        let context = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.raw.verbs;
        let channel = self.create_comp_channel(context)?;
        let cq = self.create_cq(context, objects::clamp_int(entries.max(1)), id.cast::<c_void>(), channel)?;
        // SAFETY: as above.
        let (cq_place, channel_place) = places(&mut unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.raw);
        (*cq_place, *channel_place) = (cq, channel);
        Ok(cq)
    }
}
