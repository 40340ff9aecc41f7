//! Queries of ports: the device, its link and its addresses.

use core::ffi::c_char;

use super::address::iw_addr;
use super::context::iw_ctx;
use crate::boundary::{call, out_slice, with, write_sized};

/// The state of a port. Set `size` before the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_port_info {
    /// sizeof(struct iw_port_info).
    pub size: u32,
    /// The largest IP packet, in bytes.
    pub mtu_bytes: u32,
    /// The link address.
    pub mac: [u8; 6],
    /// 1 if the device has a link, else 0; with memif: if the peer is connected.
    pub link_up: u16,
    /// The speed in Mbit/s; 0 if the device does not report one. A virtual device reports a nominal
    /// speed.
    pub speed_mbps: u32,
    /// The memory node (NUMA) of the device; -1 if it is not known.
    pub memory_node: i32,
    /// The number of configured addresses: `iw_port_addresses` returns them.
    pub addresses: u32,
    /// The kind of device, as in the configuration.
    pub device: [c_char; 16],
}

/// A local address and its network.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_port_address {
    /// The address; its port is 0.
    pub addr: iw_addr,
    /// The length of the network prefix in bits.
    pub prefix_len: u32,
    /// Not used.
    pub reserved: u32,
}

/// Returns the number of ports of the context's stack. Ports are numbered from 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_ports(ctx: *const iw_ctx) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(ctx, |context| Ok(i32::from(context.ports()))) })
}

/// Returns the state of a port. The link is what core 0 last saw, at most a quarter of a second ago
/// if it is polled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_port_query(ctx: *const iw_ctx, port: u32, out: *mut iw_port_info) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let info = with(ctx, |context| Ok(context.query_port(port_number(port))?))?;
        let mut c_info = iw_port_info {
            size: 0,
            mtu_bytes: info.mtu_bytes.into(),
            mac: info.mac.0,
            link_up: info.link.up.into(),
            speed_mbps: info.link.speed_mbps.unwrap_or_default(),
            memory_node: info.memory_node.map_or(-1, i32::from),
            addresses: info.addresses.len() as u32,
            device: [0; 16],
        };
        // The last byte stays 0.
        let (text, _) = c_info.device.split_at_mut(15);
        for (to, from) in text.iter_mut().zip(info.device.bytes()) {
            *to = from as c_char;
        }
        write_sized(out, "out", c_info)
    })
}

/// Stores up to `count` addresses of a port, in the configured order, and returns how many the port
/// has: at most 8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_port_addresses(
    ctx: *const iw_ctx,
    port: u32,
    out: *mut iw_port_address,
    count: u32,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let room = out_slice(out, count as usize, "out")?;
        let info = with(ctx, |context| Ok(context.query_port(port_number(port))?))?;
        for (to, from) in room.iter_mut().zip(&info.addresses) {
            let addr = core::net::SocketAddr::new(from.address, 0).into();
            to.write(iw_port_address { addr, prefix_len: from.prefix_len.into(), reserved: 0 });
        }
        Ok(info.addresses.len() as i32)
    })
}

/// No stack has port 255.
fn port_number(port: u32) -> u8 {
    u8::try_from(port).unwrap_or(u8::MAX)
}
