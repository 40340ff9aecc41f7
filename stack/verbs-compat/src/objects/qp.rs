//! Queue pairs.
//!
//! A connection manager connects them; iWARP has no other way. So `ibv_modify_qp` to INIT and RTR
//! only records, and RTS needs the connection, while ERR resets the connection and flushes, and SQD
//! closes it. Destruction is synchronous, as programs expect: nothing of the queue pair is left in
//! its completion queues.

use core::ffi::{c_int, c_uint};
use core::ptr;
use std::sync::Once;
use std::time::{Duration, Instant};

use verbs::{Access, CompletionQueue, Limits, QpAttr, QpState, QueuePair, SharedReceiveQueue};

use super::memory::parse_access;
use crate::cm::CmId;
use crate::device::AsyncSource;
use crate::engine::{EINVAL, EOPNOTSUPP, Link, Outcome, State, as_number, as_pointer, lock, lock_when, with};
use crate::sys;

#[repr(C)]
pub(crate) struct Qp {
    pub(crate) raw: sys::ibv_qp,
    pub(crate) handle: QueuePair,
    pub(crate) signals_all: bool,
    cap: sys::ibv_qp_cap,
    /// The flags with which the program said what the peer may do. All until then, as with the
    /// kernel's iWARP devices.
    access_flags: c_uint,
    /// Places that it may take in its completion queues.
    send_demand: i64,
    recv_demand: i64,
    /// The identifier of librdmacm that connects it, if any.
    pub(crate) id: Link<CmId>,
    pub(crate) unacked_async: i32,
}

object!(Qp = sys::ibv_qp);

/// Requests of a send queue. A Write with Immediate Data takes two slots of the stack's 65536.
pub(crate) const SEND_DEPTH_MAX: u32 = 1 << 15;
const RECV_DEPTH_MAX: u32 = 1 << 16;
/// The rights that a queue pair may have.
const ACCESS_FLAGS: c_uint = sys::IBV_ACCESS_LOCAL_WRITE
    | sys::IBV_ACCESS_REMOTE_WRITE
    | sys::IBV_ACCESS_REMOTE_READ
    | sys::IBV_ACCESS_REMOTE_ATOMIC;

/// How long the destruction of a queue pair waits for the end of a disconnect that was requested
/// before.
const DISCONNECT_MAX: Duration = Duration::from_millis(100);

#[unsafe(no_mangle)]
extern "C" fn ibv_create_qp(pd: *mut sys::ibv_pd, attr: *mut sys::ibv_qp_init_attr) -> *mut sys::ibv_qp {
    as_pointer(with(|state| {
        // SAFETY: the program passes null or its attributes, which get the actual sizes.
        let attr = unsafe { attr.as_mut() }.ok_or(EINVAL)?;
        state.create_qp(pd, attr)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_destroy_qp(qp: *mut sys::ibv_qp) -> c_int {
    as_number(destroy_qp(qp))
}

/// Waits until all events of the queue pair are acknowledged. A call that fails has changed
/// nothing.
pub(crate) fn destroy_qp(qp: *mut sys::ibv_qp) -> Outcome {
    with(|state| state.pools.qps.get(qp).map(drop))?;
    finish_disconnect(qp)?;
    let mut state = lock_when(|state| state.pools.qps.find(qp).is_none_or(|qp| qp.unacked_async <= 0))?;
    state.remove_qp(qp)
}

/// Gives a disconnect that the program requested the time to send what was posted before. Otherwise
/// the peer sees a reset. Only this thread waits: the lock is released meanwhile.
fn finish_disconnect(qp: *mut sys::ibv_qp) -> Outcome {
    let deadline = Instant::now() + DISCONNECT_MAX;
    while Instant::now() < deadline {
        let mut state = lock()?;
        let handle = state.pools.qps.get(qp)?.handle;
        let info = state.device()?.context.query_qp(handle)?;
        if info.state != QpState::Draining || info.sends_outstanding == 0 {
            break;
        }
        if state.advance() == 0 {
            drop(state);
            std::thread::yield_now();
        }
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn ibv_modify_qp(qp: *mut sys::ibv_qp, attr: *mut sys::ibv_qp_attr, mask: c_int) -> c_int {
    as_number(with(|state| {
        // SAFETY: the program passes null or its attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(EINVAL)?;
        state.modify_qp(qp, attr, mask as c_uint)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_query_qp(
    qp: *mut sys::ibv_qp,
    attr: *mut sys::ibv_qp_attr,
    _mask: c_int,
    init_attr: *mut sys::ibv_qp_init_attr,
) -> c_int {
    as_number(with(|state| {
        let (found, found_init) = state.query_qp(qp)?;
        if attr.is_null() || init_attr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: the program passes memory for both.
        unsafe {
            *attr = found;
            *init_attr = found_init;
        }
        Ok(())
    }))
}

/// Extended posting is absent: programs fall back to `ibv_post_send`.
#[unsafe(no_mangle)]
extern "C" fn ibv_qp_to_qp_ex(_qp: *mut sys::ibv_qp) -> *mut sys::ibv_qp_ex {
    ptr::null_mut()
}

/// Writes of one request become visible in any order but for the last byte.
#[unsafe(no_mangle)]
extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut sys::ibv_qp,
    _op: sys::ibv_wr_opcode,
    _flags: u32,
) -> c_int {
    0
}

/// What the stack makes a queue pair of.
fn attributes(
    cap: &sys::ibv_qp_cap,
    limits: &Limits,
    (send_cq, recv_cq): (CompletionQueue, CompletionQueue),
    srq: Option<SharedReceiveQueue>,
) -> QpAttr {
    let reads = limits.read_depth.min(crate::device::READS_MAX);
    QpAttr {
        recv_cq,
        srq,
        send_depth: (2 * cap.max_send_wr).max(1),
        recv_depth: cap.max_recv_wr.max(1),
        max_sge: cap.max_send_sge.max(cap.max_recv_sge).max(1) as usize,
        // Every slot has the room, and programs of hardware that rounds up depend on it.
        inline_bytes: limits.inline_bytes,
        ird: reads,
        ord: reads,
        ..QpAttr::new(send_cq)
    }
}

/// Checks the attributes that a connection does not choose by itself, before any of them takes
/// effect.
fn check_attributes(attr: &sys::ibv_qp_attr, mask: c_uint) -> Outcome {
    let has = |flag| mask & flag != 0;
    if has(sys::IBV_QP_CAP) {
        // The device does not have IBV_DEVICE_RESIZE_MAX_WR.
        return Err(EOPNOTSUPP);
    }
    let reads_max = crate::device::READS_MAX;
    let is_wrong = has(sys::IBV_QP_PORT) && attr.port_num != 1
        || has(sys::IBV_QP_PKEY_INDEX) && attr.pkey_index != 0
        || has(sys::IBV_QP_MAX_QP_RD_ATOMIC) && u16::from(attr.max_rd_atomic) > reads_max
        || has(sys::IBV_QP_MAX_DEST_RD_ATOMIC) && u16::from(attr.max_dest_rd_atomic) > reads_max;
    if is_wrong { Err(EINVAL) } else { Ok(()) }
}

fn check_cap(cap: &sys::ibv_qp_cap, limits: &Limits) -> Outcome {
    let fits = cap.max_send_wr <= SEND_DEPTH_MAX
        && cap.max_recv_wr <= RECV_DEPTH_MAX
        && cap.max_send_sge as usize <= limits.max_sge
        && cap.max_recv_sge as usize <= limits.max_sge
        && cap.max_inline_data as usize <= limits.inline_bytes;
    if fits { Ok(()) } else { Err(EINVAL) }
}

/// The program exchanged the numbers of its queue pairs itself, as devices of InfiniBand allow.
/// Printed once: it tries again for each queue pair.
fn report_no_connection() {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| {
        tracing::error!(
            "a queue pair without a connection cannot become RTS: iWARP connects by librdmacm; perftest needs -R"
        );
    });
}

impl State {
    pub(crate) fn create_qp(
        &mut self,
        pd: *mut sys::ibv_pd,
        init: &mut sys::ibv_qp_init_attr,
    ) -> Outcome<*mut sys::ibv_qp> {
        if init.qp_type != sys::IBV_QPT_RC {
            return Err(EOPNOTSUPP);
        }
        let srq = match self.pools.srqs.find(init.srq) {
            Some(srq) => Some((srq.handle, srq.depth)),
            None if init.srq.is_null() => None,
            None => return Err(EINVAL),
        };
        let owner = self.pools.pds.get(pd)?;
        let (context, domain) = (owner.raw_context(), owner.domain);
        let send_cq = self.pools.cqs.get(init.send_cq)?.handle;
        let recv_cq = self.pools.cqs.get(init.recv_cq)?.handle;
        let limits = self.device()?.context.limits();
        let mut wanted = init.cap;
        if srq.is_some() {
            // The receives are those of the shared queue; the manual page has these ignored.
            (wanted.max_recv_wr, wanted.max_recv_sge) = (0, 0);
        }
        check_cap(&wanted, &limits)?;
        let attr = attributes(&wanted, &limits, (send_cq, recv_cq), srq.map(|srq| srq.0));
        let handle = self.control(|stack| stack.create_qp(domain, &attr))?;
        let info = self.device()?.context.query_qp(handle)?;
        let cap = sys::ibv_qp_cap { max_inline_data: limits.inline_bytes as u32, ..init.cap };
        let recv_demand = srq.map_or(info.recv_depth, |srq| srq.1);
        let raw = sys::ibv_qp {
            context,
            qp_context: init.qp_context,
            pd,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            handle: handle.num().0,
            qp_num: handle.num().0,
            state: sys::IBV_QPS_RESET,
            qp_type: init.qp_type,
            ..Default::default()
        };
        let qp = self.pools.qps.insert(Qp {
            raw,
            handle,
            signals_all: init.sq_sig_all != 0,
            cap,
            access_flags: ACCESS_FLAGS,
            send_demand: info.send_depth.into(),
            recv_demand: recv_demand.into(),
            id: Link::NONE,
            unacked_async: 0,
        });
        self.qps.insert(handle.num().0, qp);
        self.count_uses(&raw, 1);
        let fitted = self
            .fit_cq(init.send_cq, info.send_depth.into())
            .and_then(|()| self.fit_cq(init.recv_cq, recv_demand.into()));
        if let Err(error) = fitted {
            self.remove_qp(qp)?;
            return Err(error);
        }
        init.cap = cap;
        Ok(qp)
    }

    /// Counts a queue pair with the objects that it uses.
    fn count_uses(&mut self, raw: &sys::ibv_qp, change: i32) {
        for cq in [raw.send_cq, raw.recv_cq] {
            if let Some(cq) = self.pools.cqs.find(cq) {
                cq.users = cq.users.wrapping_add_signed(change);
            }
        }
        if let Some(pd) = self.pools.pds.find(raw.pd) {
            pd.users = pd.users.wrapping_add_signed(change);
        }
        if let Some(srq) = self.pools.srqs.find(raw.srq) {
            srq.users = srq.users.wrapping_add_signed(change);
        }
    }

    pub(crate) fn remove_qp(&mut self, qp: *mut sys::ibv_qp) -> Outcome {
        let handle = self.pools.qps.get(qp)?.handle;
        self.destroy_in_stack(handle)?;
        let Qp { raw, send_demand, recv_demand, id, .. } = self.pools.qps.take(qp).ok_or(EINVAL)?;
        self.qps.remove(&raw.qp_num);
        self.remove_async(AsyncSource::Qp(qp));
        self.count_uses(&raw, -1);
        self.on_qp_removed(id, qp);
        // These fail if the device is gone, with all that they would remove.
        for (cq, demand) in [(raw.send_cq, send_demand), (raw.recv_cq, recv_demand)] {
            let _ = self.remove_completions(cq, handle.num()).and_then(|()| self.fit_cq(cq, -demand));
        }
        Ok(())
    }

    /// Destroys a queue pair and waits for its core's half, after which nothing of it completes any
    /// more.
    fn destroy_in_stack(&mut self, qp: QueuePair) -> Outcome {
        let stack = &mut self.device()?.context;
        let cq = stack.query_qp(qp)?.send_cq;
        let users = stack.query_cq(cq)?.users;
        // An idle connection closes by itself, as when the kernel's device closes its socket.
        self.control(|stack| stack.destroy_qp_in_order(qp))?;
        self.advance_until(|state| {
            let Ok(device) = state.device() else { return true };
            device.context.query_cq(cq).is_ok_and(|info| info.users < users)
        });
        Ok(())
    }

    fn modify_qp(&mut self, qp: *mut sys::ibv_qp, attr: &sys::ibv_qp_attr, mask: c_uint) -> Outcome {
        let found = self.pools.qps.get(qp)?;
        let handle = found.handle;
        check_attributes(attr, mask)?;
        let sets_access = mask & sys::IBV_QP_ACCESS_FLAGS != 0;
        let granted = if sets_access {
            parse_access(attr.qp_access_flags).map_err(|_| EINVAL)?
        } else {
            Access::empty()
        };
        if mask & sys::IBV_QP_STATE != 0 {
            self.change_state(qp, handle, attr.qp_state)?;
        }
        if sets_access {
            self.control(|stack| stack.set_remote_access(handle, granted))?;
            self.pools.qps.get(qp)?.access_flags = attr.qp_access_flags & ACCESS_FLAGS;
        }
        Ok(())
    }

    fn change_state(&mut self, qp: *mut sys::ibv_qp, handle: QueuePair, next: sys::ibv_qp_state) -> Outcome {
        match next {
            sys::IBV_QPS_INIT | sys::IBV_QPS_RTR => {
                match self.device()?.context.qp_state(handle)? {
                    QpState::Idle => {}
                    QpState::Error => return Err(EINVAL),
                    // A program moves a queue pair that its connection has moved already.
                    QpState::Connecting | QpState::Established | QpState::Draining => return Ok(()),
                }
            }
            sys::IBV_QPS_RTS => {
                if self.device()?.context.qp_state(handle)? != QpState::Established {
                    report_no_connection();
                    return Err(EINVAL);
                }
            }
            sys::IBV_QPS_ERR => {
                self.control(|stack| stack.abort(handle))?;
                self.advance_until(|state| {
                    let Ok(device) = state.device() else { return true };
                    device.context.qp_state(handle).is_ok_and(|now| now == QpState::Error)
                });
            }
            sys::IBV_QPS_SQD => match self.device()?.context.qp_state(handle)? {
                QpState::Idle | QpState::Error => return Err(EINVAL),
                QpState::Draining => {}
                QpState::Connecting | QpState::Established => {
                    self.control(|stack| stack.disconnect(handle))?;
                }
            },
            _ => return Err(EINVAL),
        }
        self.pools.qps.get(qp)?.raw.state = next;
        Ok(())
    }

    fn query_qp(&mut self, qp: *mut sys::ibv_qp) -> Outcome<(sys::ibv_qp_attr, sys::ibv_qp_init_attr)> {
        let handle = self.pools.qps.get(qp)?.handle;
        let info = self.device()?.context.query_qp(handle)?;
        let found = self.pools.qps.get(qp)?;
        let state = match info.state {
            // The kernel's iWARP devices have no earlier state.
            QpState::Idle if found.raw.state == sys::IBV_QPS_RESET => sys::IBV_QPS_INIT,
            QpState::Idle => found.raw.state,
            QpState::Connecting => sys::IBV_QPS_INIT,
            QpState::Established => sys::IBV_QPS_RTS,
            QpState::Draining => sys::IBV_QPS_SQD,
            QpState::Error => sys::IBV_QPS_ERR,
        };
        found.raw.state = state;
        let (ird, ord) =
            info.negotiated.map_or((info.ird, info.ord), |made| (made.reads.ird, made.reads.ord));
        let attr = sys::ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            cap: found.cap,
            qp_access_flags: found.access_flags,
            max_rd_atomic: ord.try_into().unwrap_or(u8::MAX),
            max_dest_rd_atomic: ird.try_into().unwrap_or(u8::MAX),
            sq_draining: u8::from(state == sys::IBV_QPS_SQD),
            port_num: 1,
            ..Default::default()
        };
        let init = sys::ibv_qp_init_attr {
            qp_context: found.raw.qp_context,
            send_cq: found.raw.send_cq,
            recv_cq: found.raw.recv_cq,
            srq: found.raw.srq,
            cap: found.cap,
            qp_type: found.raw.qp_type,
            sq_sig_all: c_int::from(found.signals_all),
        };
        Ok((attr, init))
    }
}
