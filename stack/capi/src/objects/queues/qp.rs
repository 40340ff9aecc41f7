//! Queue pairs: attributes and states.

use verbs::{QpAttr, QpState};

use super::{iw_cq, iw_qp, iw_srq};
use crate::boundary::{ApiError, call, read_sized, with, write_out, *};
use crate::objects::context::{iw_ctx, iw_pd};

/// The attributes of a new queue pair. `iw_qp_attr_init` sets the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_qp_attr {
    /// sizeof(struct iw_qp_attr).
    pub size: u32,
    /// The core that it connects from; negative: the one with the fewest queue pairs. A queue pair that accepts uses
    /// the core of the connection.
    pub core: i32,
    /// The completion queue of sends.
    pub send_cq: iw_cq,
    /// The completion queue of receives.
    pub recv_cq: iw_cq,
    /// The shared receive queue; 0: the queue pair has receives of its own.
    pub srq: iw_srq,
    /// Send requests outstanding.
    pub send_depth: u32,
    /// Receives outstanding.
    pub recv_depth: u32,
    /// Elements in a request, 1 to 16.
    pub max_sge: u32,
    /// Inline bytes in a request, 0 to 256.
    pub inline_bytes: u32,
    /// Reads that the peer may have outstanding here (IRD).
    pub ird: u16,
    /// Reads and atomic operations that this side may have outstanding at the peer (ORD).
    pub ord: u16,
    /// Not 0: Sends and Writes complete when their bytes are copied, instead of when the peer has acknowledged them.
    pub complete_on_copy: u32,
}

/// Sets the defaults: 128 sends, 128 receives, 16 Reads each way, all completions in `cq`.
///
/// # Safety
/// `attr` is null or valid for writes of one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_qp_attr_init(attr: *mut iw_qp_attr, cq: iw_cq) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { write_out(attr, "attr", iw_qp_attr::new(cq)) })
}

/// Creates a queue pair. Allocates.
///
/// # Safety
/// `ctx` is null or a handle of this library. `attr` is null or points to as many bytes as its `size` states. `out`
/// is null or valid for writes of one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_qp_create(
    ctx: *mut iw_ctx,
    pd: iw_pd,
    attr: *const iw_qp_attr,
    out: *mut iw_qp,
) -> i32 {
    // SAFETY: guaranteed by the caller. The struct is made of numbers.
    call(|| unsafe {
        write_out(out, "out", iw_qp { id: 0 })?;
        let attr = read_sized(attr, iw_qp_attr::new(iw_cq { id: 0 }), "attr")?.to_rust()?;
        let qp = with(ctx, |context| Ok(context.create_qp(pd.to_rust(), &attr)?))?;
        write_out(out, "out", iw_qp { id: qp.to_bits() })
    })
}

/// Created, not connected.
pub const IW_QP_IDLE: u32 = 0;
/// Being connected.
pub const IW_QP_CONNECTING: u32 = 1;
/// Connected.
pub const IW_QP_ESTABLISHED: u32 = 2;
/// Closing: posted requests are still sent.
pub const IW_QP_DRAINING: u32 = 3;
/// Ended.
pub const IW_QP_ERROR: u32 = 4;

/// The state of a queue pair.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_qp_info {
    /// The number in completions.
    pub num: u32,
    /// IW_QP_IDLE to IW_QP_ERROR.
    pub state: u32,
    /// The capacity of the send queue, at least the requested one.
    pub send_depth: u32,
    /// The capacity of the receive queue; 0 with a shared queue.
    pub recv_depth: u32,
    /// Send requests posted and not yet completed by the core.
    pub sends_outstanding: u32,
    /// Receives posted and not yet completed by the core.
    pub receives_outstanding: u32,
}

/// Returns the state of a queue pair.
///
/// # Safety
/// `ctx` is null or a handle of this library; `out` is null or valid for writes of one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_qp_query(ctx: *mut iw_ctx, qp: iw_qp, out: *mut iw_qp_info) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let info = with(ctx, |context| Ok(context.query_qp(qp.to_rust())?))?;
        let c_info = iw_qp_info {
            num: qp.to_rust().num().0,
            state: number_of(info.state),
            send_depth: info.send_depth,
            recv_depth: info.recv_depth,
            sends_outstanding: info.sends_outstanding,
            receives_outstanding: info.receives_outstanding,
        };
        write_out(out, "out", c_info)
    })
}

/// Destroys a queue pair at once: an open connection is reset, and posted requests complete as IW_WC_WR_FLUSH_ERR.
///
/// # Safety
/// `ctx` is null or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_qp_destroy(ctx: *mut iw_ctx, qp: iw_qp) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(ctx, |context| Ok(context.destroy_qp(qp.to_rust())?)) })
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
            max_sge: defaults.max_sge as u32,
            inline_bytes: defaults.inline_bytes as u32,
            ird: defaults.ird,
            ord: defaults.ord,
            complete_on_copy: 0,
        }
    }

    fn to_rust(self) -> Result<QpAttr, ApiError> {
        let wrong = || fault!(IW_E_VALUE, "attr.core = {}: below iw_stack_cores", self.core);
        let core = if self.core < 0 { None } else { Some(u16::try_from(self.core).map_err(|_| wrong())?) };
        Ok(QpAttr {
            send_cq: self.send_cq.to_rust(),
            recv_cq: self.recv_cq.to_rust(),
            srq: (self.srq.id != 0).then(|| self.srq.to_rust()),
            core,
            send_depth: self.send_depth,
            recv_depth: self.recv_depth,
            max_sge: self.max_sge as usize,
            inline_bytes: self.inline_bytes as usize,
            ird: self.ird,
            ord: self.ord,
            complete_on_copy: self.complete_on_copy != 0,
            ..QpAttr::new(self.send_cq.to_rust())
        })
    }
}
