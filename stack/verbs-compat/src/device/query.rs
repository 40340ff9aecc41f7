//! Attributes of the device and of its one port.

use core::ffi::{c_int, c_uint};
use core::mem::{size_of, size_of_val};

use verbs::MacAddr;

use super::Device;
use crate::engine::{EINVAL, EOPNOTSUPP, Outcome, State, as_minus_one, as_number, set_errno, with};
use crate::objects::{SEND_DEPTH_MAX, clamp_int};
use crate::sys;

/// Reads that a queue pair may have outstanding: the structures of librdmacm have eight bits for
/// it.
pub(crate) const READS_MAX: u16 = 128;

/// The number of a manufacturer is an OUI; this is nobody's, as with Linux's soft RoCE. Programs
/// take 0 for an error.
const VENDOR_NONE: u32 = 0xff_ffff;

const PORT: u32 = 1;
/// Codes of InfiniBand for the state of a link.
const PHYS_STATE_POLLING: u8 = 2;
const PHYS_STATE_LINK_UP: u8 = 5;
/// 4 lanes of 10 Gbit/s: software has no rate of its own, and programs want one.
const WIDTH_4X: u8 = 2;
const SPEED_10_GBPS: u8 = 4;

pub(super) fn device_attr(device: &Device) -> sys::ibv_device_attr {
    let limits = device.context.limits();
    let mut attr = sys::ibv_device_attr {
        node_guid: u64::from_ne_bytes(device.guid),
        sys_image_guid: u64::from_ne_bytes(device.guid),
        max_mr_size: u64::MAX >> 1,
        page_size_cap: 0xffff_f000,
        vendor_id: VENDOR_NONE,
        max_qp: clamp_int(limits.queue_pairs),
        // A Write with Immediate Data takes two slots.
        max_qp_wr: clamp_int(SEND_DEPTH_MAX),
        device_cap_flags: sys::IBV_DEVICE_PORT_ACTIVE_EVENT | sys::IBV_DEVICE_MEM_WINDOW,
        max_sge: clamp_int(limits.max_sge),
        max_sge_rd: clamp_int(limits.max_read_sge),
        max_cq: clamp_int(limits.completion_queues),
        max_cqe: clamp_int(limits.cq_depth / 4),
        // Regions and windows share one table.
        max_mr: clamp_int(limits.regions),
        max_mw: clamp_int(limits.regions),
        max_pd: c_int::MAX,
        max_qp_rd_atom: READS_MAX.min(limits.read_depth).into(),
        max_res_rd_atom: c_int::MAX,
        max_qp_init_rd_atom: READS_MAX.min(limits.read_depth).into(),
        // Atomic among all connections of this process's stack, not with other processes or with
        // the processor's own stores.
        atomic_cap: if limits.atomics { sys::IBV_ATOMIC_HCA } else { sys::IBV_ATOMIC_NONE },
        max_srq: clamp_int(limits.shared_receive_queues),
        max_srq_wr: clamp_int(limits.srq_depth),
        max_srq_sge: clamp_int(limits.max_sge),
        max_pkeys: 1,
        phys_port_cnt: 1,
        ..Default::default()
    };
    for (place, byte) in attr.fw_ver.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *place = byte as _;
    }
    attr
}

/// Attributes that are not set here are those of hardware.
pub(super) unsafe extern "C" fn query_device_ex(
    context: *mut sys::ibv_context,
    _input: *const sys::ibv_query_device_ex_input,
    into: *mut sys::ibv_device_attr_ex,
    bytes: usize,
) -> c_int {
    as_number(with_port(context, PORT, |device| {
        let orig_attr = device_attr(device);
        let attr = sys::ibv_device_attr_ex {
            device_cap_flags_ex: orig_attr.device_cap_flags.into(),
            phys_port_cnt_ex: orig_attr.phys_port_cnt.into(),
            orig_attr,
            ..Default::default()
        };
        // SAFETY: the program passes memory of as many bytes.
        unsafe { copy_prefix(&attr, into, bytes) }
    }))
}

fn port_attr(device: &mut Device) -> sys::ibv_port_attr {
    let limits = device.context.limits();
    let is_up = device.worker.link_up();
    let mtu = mtu_code(device.mtu);
    sys::ibv_port_attr {
        // A peer's process that starts later is normal, and programs refuse other states.
        state: sys::IBV_PORT_ACTIVE,
        max_mtu: mtu,
        active_mtu: mtu,
        gid_tbl_len: 1,
        max_msg_sz: limits.message_bytes,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        active_width: WIDTH_4X,
        active_speed: SPEED_10_GBPS,
        phys_state: if is_up { PHYS_STATE_LINK_UP } else { PHYS_STATE_POLLING },
        link_layer: sys::IBV_LINK_LAYER_ETHERNET as u8,
        ..Default::default()
    }
}

/// Returns the largest of InfiniBand's MTUs that fits.
fn mtu_code(mtu: u16) -> sys::ibv_mtu {
    match mtu {
        4096.. => sys::IBV_MTU_4096,
        2048.. => sys::IBV_MTU_2048,
        1024.. => sys::IBV_MTU_1024,
        512.. => sys::IBV_MTU_512,
        _ => sys::IBV_MTU_256,
    }
}

/// Siw and cxgb4 make the GID of the link address in the same way.
fn gid(device: &Device) -> sys::ibv_gid {
    let MacAddr(mac) = device.mac;
    let mut raw = [0; 16];
    raw[..mac.len()].copy_from_slice(&mac);
    sys::ibv_gid { raw }
}

/// Calls `body` with the device, for a context and a port that exist.
fn with_port<T>(
    context: *mut sys::ibv_context,
    port: u32,
    body: impl FnOnce(&mut Device) -> Outcome<T>,
) -> Outcome<T> {
    with(|state: &mut State| {
        state.context(context)?;
        if port == PORT { body(state.device()?) } else { Err(EINVAL) }
    })
}

/// Newer programs pass the size of their structure.
pub(super) unsafe extern "C" fn query_port_ex(
    context: *mut sys::ibv_context,
    port: u8,
    into: *mut sys::ibv_port_attr,
    bytes: usize,
) -> c_int {
    as_number(with_port(context, port.into(), |device| {
        let attr = port_attr(device);
        // SAFETY: the program passes memory of as many bytes.
        unsafe { copy_prefix(&attr, into, bytes) }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_query_port(
    context: *mut sys::ibv_context,
    port: u8,
    into: *mut sys::ibv_port_attr,
) -> c_int {
    // Programs of before rdma-core 19 have a structure without the last field.
    let bytes = core::mem::offset_of!(sys::ibv_port_attr, port_cap_flags2);
    // SAFETY: as the caller promises.
    unsafe { query_port_ex(context, port, into, bytes) }
}

/// Copies the first bytes of a structure to the program's, which may be older and shorter, or newer
/// and longer.
///
/// # Safety
/// `into` is null or memory of as many bytes.
unsafe fn copy_prefix<T>(from: &T, into: *mut T, bytes: usize) -> Outcome {
    if into.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        core::ptr::write_bytes(into.cast::<u8>(), 0, bytes);
        core::ptr::copy_nonoverlapping(
            (&raw const *from).cast::<u8>(),
            into.cast(),
            bytes.min(size_of_val(from)),
        );
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn ibv_query_gid(
    context: *mut sys::ibv_context,
    port: u8,
    index: c_int,
    into: *mut sys::ibv_gid,
) -> c_int {
    as_minus_one(with_port(context, port.into(), |device| {
        if index != 0 || into.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: the program passes memory for the GID.
        unsafe { *into = gid(device) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn _ibv_query_gid_ex(
    context: *mut sys::ibv_context,
    port: u32,
    index: u32,
    into: *mut sys::ibv_gid_entry,
    flags: u32,
    bytes: usize,
) -> c_int {
    as_number(with_port(context, port, |device| {
        // The manual page has ENODATA for an empty entry of the table. This one has no empty
        // entries.
        if index != 0 || flags != 0 {
            return Err(if flags != 0 { EOPNOTSUPP } else { EINVAL });
        }
        // SAFETY: the program passes memory of as many bytes.
        unsafe { copy_prefix(&gid_entry(device), into, bytes) }
    }))
}

fn gid_entry(device: &Device) -> sys::ibv_gid_entry {
    sys::ibv_gid_entry {
        gid: gid(device),
        port_num: PORT,
        gid_type: sys::IBV_GID_TYPE_IB,
        ..Default::default()
    }
}

#[unsafe(no_mangle)]
extern "C" fn _ibv_query_gid_table(
    context: *mut sys::ibv_context,
    into: *mut sys::ibv_gid_entry,
    places: usize,
    flags: u32,
    bytes: usize,
) -> isize {
    let outcome = with_port(context, PORT, |device| {
        if flags != 0 {
            return Err(EOPNOTSUPP);
        }
        if places == 0 || bytes < size_of::<sys::ibv_gid_entry>() {
            return Err(EINVAL);
        }
        // SAFETY: the program passes memory of as many bytes.
        unsafe { copy_prefix(&gid_entry(device), into, bytes) }
    });
    outcome.map_or_else(|errno| -(errno.0 as isize), |()| 1)
}

/// The type of a GID as `ibv_devinfo` shows it.
#[unsafe(no_mangle)]
extern "C" fn ibv_query_gid_type(
    context: *mut sys::ibv_context,
    port: u8,
    index: c_uint,
    into: *mut c_uint,
) -> c_int {
    as_minus_one(with_port(context, port.into(), |_| {
        if index != 0 || into.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: the program passes memory for the number.
        unsafe { *into = sys::IBV_GID_TYPE_IB };
        Ok(())
    }))
}

/// The default partition.
const PKEY: u16 = 0xffff;

#[unsafe(no_mangle)]
extern "C" fn ibv_query_pkey(
    context: *mut sys::ibv_context,
    port: u8,
    index: c_int,
    into: *mut u16,
) -> c_int {
    as_minus_one(with_port(context, port.into(), |_| {
        if index != 0 || into.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: the program passes memory for the key.
        unsafe { *into = PKEY };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_pkey_index(context: *mut sys::ibv_context, port: u8, pkey: u16) -> c_int {
    let found = with_port(context, port.into(), |_| if pkey == PKEY { Ok(()) } else { Err(EINVAL) });
    found.map_or_else(
        |errno| {
            set_errno(errno.0);
            -1
        },
        |()| 0,
    )
}
