//! Queue pairs: attributes and states.

use std::time::Duration;

use verbs::config::TransportKind;
use verbs::{KeepAlive, QpAttr, QpInfo, QpState, ReceiveShare};

use super::{iw_cq, iw_qp, iw_srq, to_core};
use crate::boundary::{ApiError, call, create, read_sized, with, write_init, write_sized, *};
use crate::objects::address::iw_addr;
use crate::objects::connect::iw_negotiated;
use crate::objects::context::{iw_ctx, iw_pd};

/// The attributes of a new queue pair. `iw_qp_attr_init` sets the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_qp_attr {
    /// sizeof(struct iw_qp_attr).
    pub size: u32,
    /// The core that it connects from; negative: the one with the fewest queue pairs. A queue pair
    /// that accepts uses the core of the connection.
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
    /// Not 0: Sends and Writes complete when their bytes are copied, instead of when the peer has
    /// acknowledged them.
    pub complete_on_copy: u32,
    /// The receives of `srq` that this queue pair's peer may use (RFC 5042 s6.4.3.1); 0: no limit.
    /// Beyond it, IW_EVENT_SRQ_SHARE_EXCEEDED is raised.
    pub srq_share: u32,
    /// Not 0: a message beyond the share gets no receive, which ends its connection.
    pub srq_share_enforced: u32,
    /// 1: places tagged segments beyond a gap before the gap is filled, where markers and CRCs
    /// allow it; 0: does not; negative: as configured.
    pub place_out_of_order: i32,
    /// The time in milliseconds after which unacknowledged sends, or Reads without a response, end
    /// the connection; 0: as configured.
    pub user_timeout_ms: u32,
    /// The time after which a peer whose window stays closed ends the connection; 0: as configured.
    pub zero_window_timeout_ms: u32,
    /// Keep-alive probes without a reply that end the connection, 2 to 255; 0: as configured, by
    /// default none are sent.
    pub keep_alive_probes: u32,
    /// With keep_alive_probes, the idle time before the first probe, in milliseconds.
    pub keep_alive_idle_ms: u32,
    /// With keep_alive_probes, the interval between further probes, in milliseconds.
    pub keep_alive_interval_ms: u32,
}

/// Sets the defaults: 128 sends, 128 receives, 16 Reads each way, all completions in `cq`. `size`
/// is sizeof(struct iw_qp_attr): programs call `iw_qp_attr_init`, which passes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_qp_attr_init_sized(attr: *mut iw_qp_attr, size: usize, cq: iw_cq) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { write_init(attr, size, "attr", iw_qp_attr::new(cq)) })
}

/// Creates a queue pair. Allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_qp_create(
    ctx: *mut iw_ctx,
    pd: iw_pd,
    attr: *const iw_qp_attr,
    out: *mut iw_qp,
) -> i32 {
    // SAFETY: guaranteed by the caller. The struct is made of numbers.
    unsafe {
        create(out, "out", iw_qp::default(), || {
            let attr = read_sized(attr, iw_qp_attr::new(iw_cq::default()), "attr")?.to_rust()?;
            with(ctx, |context| Ok(context.create_qp(pd.to_rust(), &attr)?.into()))
        })
    }
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

/// The state of a queue pair. Set `size` before the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_qp_info {
    /// sizeof(struct iw_qp_info).
    pub size: u32,
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
    /// The core that it is on; -1 before connect or accept.
    pub core: i32,
    /// Elements in a request.
    pub max_sge: u32,
    /// Inline bytes in a request.
    pub inline_bytes: u32,
    /// The read depth that it was created for (IRD).
    pub ird: u16,
    /// The same for ORD.
    pub ord: u16,
    /// The result of start-up; `revision` is 0 before.
    pub negotiated: iw_negotiated,
    /// The framing in use, once start-up has finished: IW_FRAMING_*.
    pub framing: u32,
    /// The local address of the connection, from IW_EVENT_ESTABLISHED on; `family` is 0 before.
    pub local: iw_addr,
    /// The peer's address, in the same way.
    pub remote: iw_addr,
}

/// CRCs are in use (RFC 5044 s4.4).
pub const IW_FRAMING_CRC: u32 = 1;
/// This side sends markers.
pub const IW_FRAMING_MARKERS_SENT: u32 = 2;
/// The peer sends markers.
pub const IW_FRAMING_MARKERS_RECEIVED: u32 = 4;
/// The connection is over SCTP, else over TCP.
pub const IW_FRAMING_SCTP: u32 = 8;

/// Returns the state of a queue pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_qp_query(ctx: *mut iw_ctx, qp: iw_qp, out: *mut iw_qp_info) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let info = with(ctx, |context| Ok(context.query_qp(qp.to_rust())?))?;
        write_sized(out, "out", iw_qp_info::new(qp, &info))
    })
}

/// Destroys a queue pair: an open connection is reset, and posted requests complete as
/// IW_WC_WR_FLUSH_ERR once the core has carried out the call. The name is invalid from now on.
/// Events that the core has raised may follow.
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

impl iw_qp_info {
    fn new(qp: iw_qp, info: &QpInfo) -> Self {
        let has = |flag: bool, value: u32| if flag { value } else { 0 };
        let framing = info.framing.map_or(0, |framing| {
            has(framing.crc, IW_FRAMING_CRC)
                | has(framing.markers.sent, IW_FRAMING_MARKERS_SENT)
                | has(framing.markers.received, IW_FRAMING_MARKERS_RECEIVED)
                | has(framing.transport == TransportKind::Sctp, IW_FRAMING_SCTP)
        });
        iw_qp_info {
            size: 0,
            num: qp.to_rust().num().0,
            state: number_of(info.state),
            send_depth: info.send_depth,
            recv_depth: info.recv_depth,
            sends_outstanding: info.sends_outstanding,
            receives_outstanding: info.receives_outstanding,
            core: info.core.map_or(-1, i32::from),
            max_sge: info.max_sge as u32,
            inline_bytes: info.inline_bytes as u32,
            ird: info.ird,
            ord: info.ord,
            negotiated: info.negotiated.map_or_else(iw_negotiated::default, iw_negotiated::from),
            framing,
            local: info.local.map_or_else(iw_addr::default, iw_addr::from),
            remote: info.remote.map_or_else(iw_addr::default, iw_addr::from),
        }
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
            srq_share: 0,
            srq_share_enforced: 0,
            place_out_of_order: -1,
            user_timeout_ms: 0,
            zero_window_timeout_ms: 0,
            keep_alive_probes: 0,
            keep_alive_idle_ms: 0,
            keep_alive_interval_ms: 0,
        }
    }

    fn place_out_of_order(&self) -> Result<Option<bool>, ApiError> {
        match self.place_out_of_order {
            ..0 => Ok(None),
            0 => Ok(Some(false)),
            1 => Ok(Some(true)),
            other => Err(fault!(IW_E_VALUE, "attr.place_out_of_order = {other}: 0, 1 or negative")),
        }
    }

    fn keep_alive(&self) -> Result<Option<KeepAlive>, ApiError> {
        let probes = self.keep_alive_probes;
        let wrong = || fault!(IW_E_VALUE, "attr.keep_alive_probes = {probes}: 0, or 2 to 255");
        let span = |ms: u32| Duration::from_millis(ms.into());
        if probes == 0 {
            return Ok(None);
        }
        Ok(Some(KeepAlive {
            idle: span(self.keep_alive_idle_ms),
            interval: span(self.keep_alive_interval_ms),
            probes: u8::try_from(probes).map_err(|_| wrong())?,
        }))
    }

    fn to_rust(self) -> Result<QpAttr, ApiError> {
        let core = to_core(self.core)?;
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
            srq_share: (self.srq_share != 0)
                .then_some(ReceiveShare { receives: self.srq_share, enforced: self.srq_share_enforced != 0 }),
            place_out_of_order: self.place_out_of_order()?,
            user_timeout: timeout(self.user_timeout_ms),
            zero_window_timeout: timeout(self.zero_window_timeout_ms),
            keep_alive: self.keep_alive()?,
        })
    }
}

/// 0: as configured.
fn timeout(ms: u32) -> Option<Duration> {
    (ms != 0).then_some(Duration::from_millis(ms.into()))
}
