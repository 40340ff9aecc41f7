//! Memory windows of type 1: keys that a request of a send queue binds to a part of a region.
//!
//! The library chooses each key, and every queue pair of the protection domain may use it. The
//! stack's own windows belong to one queue pair, so a window is a fast region of the whole domain
//! here. A binding that replaces another one is two requests, posted together: the end of the old
//! key, then the new key. A window without memory is bound to a region that grants nothing. A
//! binding that the queue pair finds invalid completes with `IBV_WC_MW_BIND_ERR` and ends its
//! connection.
//!
//! Windows of type 2 are absent: their programs choose a part of each key, and the stack draws
//! unpredictable ones.

use core::ffi::c_int;
use core::ptr;

use verbs::{Access, FastRegion, QpState, QueuePair, STag, SendWr, Sge};

use super::memory::parse_access;
use super::post::with_flags;
use crate::engine::{EBUSY, EINVAL, ENODEV, EOPNOTSUPP, EPERM, Outcome, State, as_number, as_pointer, with};
use crate::sys;

#[repr(C)]
pub(crate) struct Mw {
    raw: sys::ibv_mw,
    region: FastRegion,
    /// The last binding: its queue pair and its key.
    last: Option<(QueuePair, STag)>,
    /// The region of the last binding. Null: none, or it is deregistered.
    mr: *mut sys::ibv_mr,
}

object!(Mw = sys::ibv_mw);

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut sys::ibv_pd, kind: sys::ibv_mw_type) -> *mut sys::ibv_mw {
    as_pointer(with(|state| state.alloc_mw(pd, kind)))
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut sys::ibv_mw) -> c_int {
    as_number(with(|state| state.dealloc_mw(mw)))
}

pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut sys::ibv_qp,
    mw: *mut sys::ibv_mw,
    bind: *mut sys::ibv_mw_bind,
) -> c_int {
    as_number(with(|state| {
        // SAFETY: the program passes null or its request.
        let bind = unsafe { bind.as_ref() }.ok_or(EINVAL)?;
        state.bind_mw(qp, mw, bind)
    }))
}

impl State {
    fn alloc_mw(&mut self, pd: *mut sys::ibv_pd, kind: sys::ibv_mw_type) -> Outcome<*mut sys::ibv_mw> {
        match kind {
            sys::IBV_MW_TYPE_1 => {}
            sys::IBV_MW_TYPE_2 => return Err(EOPNOTSUPP),
            _ => return Err(EINVAL),
        }
        let domain = self.pools.pds.get(pd)?.domain;
        let region = self.control(|stack| stack.create_fast_region(domain))?;
        let owner = self.pools.pds.get(pd)?;
        owner.users += 1;
        let key = region.stag().0;
        let raw = sys::ibv_mw { context: owner.raw_context(), pd, rkey: key, handle: key, type_: kind };
        let mw = self.pools.mws.insert(Mw { raw, region, last: None, mr: ptr::null_mut() });
        self.mws.push(mw);
        Ok(mw)
    }

    /// Returns when no access by the window's key takes place any more.
    fn dealloc_mw(&mut self, mw: *mut sys::ibv_mw) -> Outcome {
        let quiescence = self.pools.mws.get(mw)?.region.invalidate();
        if !self.advance_until(|_| quiescence.poll()) {
            return Err(EBUSY);
        }
        let raw = self.pools.mws.take(mw).ok_or(EINVAL)?.raw;
        self.mws.retain(|other| *other != mw);
        if let Some(pd) = self.pools.pds.find(raw.pd) {
            pd.users -= 1;
        }
        Ok(())
    }

    fn bind_mw(&mut self, qp: *mut sys::ibv_qp, mw: *mut sys::ibv_mw, bind: &sys::ibv_mw_bind) -> Outcome {
        let found = self.pools.qps.get(qp)?;
        let (qp, signals_all, pd) = (found.handle, found.signals_all, found.raw.pd);
        if self.pools.mws.get(mw)?.raw.pd != pd {
            return Err(EPERM);
        }
        let ended = self.key_to_end(mw, qp)?;
        let (over, access) = match bind.bind_info.length {
            0 => (self.nothing(pd)?, Access::empty()),
            _ => self.piece(&bind.bind_info, pd)?,
        };
        let Self { pools, device, .. } = self;
        let window = pools.mws.get(mw)?;
        let key = window.region.next_stag();
        let (over, flags) = ([over], bind.send_flags);
        let request = SendWr::fast_register_with_current_stag(bind.wr_id, &window.region, &over, access);
        let request = with_flags(request, flags, signals_all);
        let stack = &mut device.as_mut().ok_or(ENODEV)?.context;
        match ended {
            None => stack.post_send(qp, &request)?,
            Some(old) => {
                let end = SendWr::invalidate(bind.wr_id, old);
                let end = with_flags(end, flags & !sys::IBV_SEND_SIGNALED, false).reported_by_next();
                stack.post_all(qp, &[end, request])?;
            }
        }
        window.raw.rkey = key.0;
        window.last = Some((qp, key));
        window.mr = if bind.bind_info.length == 0 { ptr::null_mut() } else { bind.bind_info.mr };
        self.send_posted();
        Ok(())
    }

    /// Returns the key that a new binding by `qp` has to end. A binding that is posted and did not
    /// take effect yet ends in the order of its queue pair, so another queue pair may not replace
    /// it: EBUSY.
    fn key_to_end(&mut self, mw: *mut sys::ibv_mw, qp: QueuePair) -> Outcome<Option<STag>> {
        let window = self.pools.mws.get(mw)?;
        let bound = window.region.bound_stag();
        let Some((last_qp, last)) = window.last.filter(|(_, key)| bound != Some(*key)) else {
            return Ok(bound);
        };
        let state = self.device()?.context.qp_state(last_qp);
        let may_follow = state.is_ok_and(|now| matches!(now, QpState::Established | QpState::Draining));
        match may_follow {
            // It was flushed, or it failed.
            false => Ok(bound),
            true if last_qp == qp => Ok(Some(last)),
            true => Err(EBUSY),
        }
    }

    /// Returns what a window without memory is bound to.
    fn nothing(&mut self, pd: *mut sys::ibv_pd) -> Outcome<Sge> {
        let Self { pools, device, .. } = self;
        let owner = pools.pds.get(pd)?;
        let region = match owner.nothing.take() {
            Some(region) => region,
            None => {
                device.as_mut().ok_or(ENODEV)?.context.register(owner.domain, vec![0u8; 1], Access::BIND)?
            }
        };
        let piece = region.slice(0, 0).map_err(|_| EINVAL);
        owner.nothing = Some(region);
        piece
    }

    /// Returns whether a window is bound to a region.
    pub(super) fn has_window_over(&mut self, mr: *mut sys::ibv_mr) -> bool {
        let Self { mws, pools, .. } = self;
        let is_over = |mw: &*mut sys::ibv_mw| {
            pools.mws.find(*mw).is_some_and(|window| window.mr == mr && window.region.bound_stag().is_some())
        };
        !mr.is_null() && mws.iter().any(is_over)
    }

    /// Forgets a region that is deregistered.
    pub(super) fn forget_mr(&mut self, mr: *mut sys::ibv_mr) {
        let Self { mws, pools, .. } = self;
        for mw in mws.iter() {
            if let Some(window) = pools.mws.find(*mw).filter(|window| window.mr == mr) {
                window.mr = ptr::null_mut();
            }
        }
    }

    /// Checks the part of a region that a window is bound to, and its rights.
    fn piece(&mut self, info: &sys::ibv_mw_bind_info, pd: *mut sys::ibv_pd) -> Outcome<(Sge, Access)> {
        let mr = self.pools.mrs.get(info.mr)?;
        if mr.raw.pd != pd {
            return Err(EPERM);
        }
        // A window is for peers: the right of the program itself is the region's, and some programs
        // name it here too.
        let mut access = parse_access(info.mw_access_flags)?.difference(Access::LOCAL_WRITE);
        let remote = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if !remote.contains(access) {
            return Err(EINVAL);
        }
        let mut need = Access::BIND;
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
            need |= Access::LOCAL_WRITE;
            access |= Access::LOCAL_WRITE;
        }
        let len = u32::try_from(info.length).map_err(|_| EINVAL)?;
        let offset = info.addr.checked_sub(mr.raw.addr as u64).ok_or(EINVAL)?;
        let is_inside = offset.checked_add(info.length).is_some_and(|end| end <= mr.region.len() as u64);
        if !is_inside || !mr.region.access().contains(need) {
            return Err(EINVAL);
        }
        Ok((Sge { addr: info.addr, len, lkey: mr.region.stag() }, access))
    }
}
