//! Texts of codes, and rates.

use core::ffi::{CStr, c_char, c_int};

use crate::sys;

/// Returns a text for C, which is never freed.
pub(crate) fn static_text(text: &'static CStr) -> *const c_char {
    text.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    static_text(match node_type {
        1 => c"InfiniBand channel adapter",
        2 => c"InfiniBand switch",
        3 => c"InfiniBand router",
        4 => c"iWARP NIC",
        5 => c"usNIC",
        6 => c"usNIC UDP",
        7 => c"unspecified",
        _ => c"unknown",
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_port_state_str(state: sys::ibv_port_state) -> *const c_char {
    static_text(match state {
        sys::IBV_PORT_NOP => c"no state change (NOP)",
        sys::IBV_PORT_DOWN => c"down",
        sys::IBV_PORT_INIT => c"init",
        sys::IBV_PORT_ARMED => c"armed",
        sys::IBV_PORT_ACTIVE => c"active",
        sys::IBV_PORT_ACTIVE_DEFER => c"active defer",
        _ => c"unknown",
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_event_type_str(event: sys::ibv_event_type) -> *const c_char {
    static_text(match event {
        sys::IBV_EVENT_CQ_ERR => c"CQ error",
        sys::IBV_EVENT_QP_FATAL => c"local work queue catastrophic error",
        sys::IBV_EVENT_QP_REQ_ERR => c"invalid request local work queue error",
        sys::IBV_EVENT_QP_ACCESS_ERR => c"local access violation work queue error",
        sys::IBV_EVENT_COMM_EST => c"communication established",
        sys::IBV_EVENT_SQ_DRAINED => c"send queue drained",
        sys::IBV_EVENT_PATH_MIG => c"path migrated",
        sys::IBV_EVENT_PATH_MIG_ERR => c"path migration request error",
        sys::IBV_EVENT_DEVICE_FATAL => c"local catastrophic error",
        sys::IBV_EVENT_PORT_ACTIVE => c"port active",
        sys::IBV_EVENT_PORT_ERR => c"port error",
        sys::IBV_EVENT_LID_CHANGE => c"LID change",
        sys::IBV_EVENT_PKEY_CHANGE => c"P_Key change",
        sys::IBV_EVENT_SM_CHANGE => c"SM change",
        sys::IBV_EVENT_SRQ_ERR => c"SRQ catastrophic error",
        sys::IBV_EVENT_SRQ_LIMIT_REACHED => c"SRQ limit reached",
        sys::IBV_EVENT_QP_LAST_WQE_REACHED => c"last WQE reached",
        sys::IBV_EVENT_CLIENT_REREGISTER => c"client reregistration",
        sys::IBV_EVENT_GID_CHANGE => c"GID table change",
        sys::IBV_EVENT_WQ_FATAL => c"WQ fatal",
        _ => c"unknown",
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_wc_status_str(status: sys::ibv_wc_status) -> *const c_char {
    static_text(match status {
        sys::IBV_WC_SUCCESS => c"success",
        sys::IBV_WC_LOC_LEN_ERR => c"local length error",
        sys::IBV_WC_LOC_QP_OP_ERR => c"local QP operation error",
        sys::IBV_WC_LOC_EEC_OP_ERR => c"local EE context operation error",
        sys::IBV_WC_LOC_PROT_ERR => c"local protection error",
        sys::IBV_WC_WR_FLUSH_ERR => c"Work Request Flushed Error",
        sys::IBV_WC_MW_BIND_ERR => c"memory bind operation error",
        sys::IBV_WC_BAD_RESP_ERR => c"bad response error",
        sys::IBV_WC_LOC_ACCESS_ERR => c"local access error",
        sys::IBV_WC_REM_INV_REQ_ERR => c"remote invalid request error",
        sys::IBV_WC_REM_ACCESS_ERR => c"remote access error",
        sys::IBV_WC_REM_OP_ERR => c"remote operation error",
        sys::IBV_WC_RETRY_EXC_ERR => c"transport retry counter exceeded",
        sys::IBV_WC_RNR_RETRY_EXC_ERR => c"RNR retry counter exceeded",
        sys::IBV_WC_REM_ABORT_ERR => c"aborted",
        sys::IBV_WC_FATAL_ERR => c"fatal error",
        sys::IBV_WC_RESP_TIMEOUT_ERR => c"response timeout error",
        sys::IBV_WC_GENERAL_ERR => c"general error",
        _ => c"unknown",
    })
}

/// Rates of InfiniBand links: the code, the multiple of 2.5 Gbit/s (0: none), and Mbit/s.
const RATES: [(sys::ibv_rate, c_int, c_int); 18] = [
    (sys::IBV_RATE_2_5_GBPS, 1, 2500),
    (sys::IBV_RATE_5_GBPS, 2, 5000),
    (sys::IBV_RATE_10_GBPS, 4, 10000),
    (sys::IBV_RATE_20_GBPS, 8, 20000),
    (sys::IBV_RATE_30_GBPS, 12, 30000),
    (sys::IBV_RATE_40_GBPS, 16, 40000),
    (sys::IBV_RATE_60_GBPS, 24, 60000),
    (sys::IBV_RATE_80_GBPS, 32, 80000),
    (sys::IBV_RATE_120_GBPS, 48, 120000),
    (sys::IBV_RATE_14_GBPS, 5, 14062),
    (sys::IBV_RATE_56_GBPS, 22, 56250),
    (sys::IBV_RATE_112_GBPS, 45, 112500),
    (sys::IBV_RATE_168_GBPS, 67, 168750),
    (sys::IBV_RATE_25_GBPS, 10, 25781),
    (sys::IBV_RATE_100_GBPS, 41, 103125),
    (sys::IBV_RATE_200_GBPS, 82, 206250),
    (sys::IBV_RATE_300_GBPS, 123, 309375),
    (sys::IBV_RATE_50_GBPS, 20, 53125),
];

#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mult(rate: sys::ibv_rate) -> c_int {
    RATES.iter().find(|row| row.0 == rate).map_or(-1, |row| row.1)
}

#[unsafe(no_mangle)]
extern "C" fn mult_to_ibv_rate(multiple: c_int) -> sys::ibv_rate {
    RATES.iter().find(|row| row.1 == multiple).map_or(sys::IBV_RATE_MAX, |row| row.0)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mbps(rate: sys::ibv_rate) -> c_int {
    RATES.iter().find(|row| row.0 == rate).map_or(-1, |row| row.2)
}

#[unsafe(no_mangle)]
extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> sys::ibv_rate {
    RATES.iter().find(|row| row.2 == mbps).map_or(sys::IBV_RATE_MAX, |row| row.0)
}
