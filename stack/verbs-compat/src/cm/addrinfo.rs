//! `rdma_getaddrinfo`: names and services, by the system's resolver.

use core::ffi::{c_char, c_int};
use core::mem::zeroed;
use core::ptr;
use std::net::SocketAddr;

use super::address::{read_address, to_storage};
use crate::engine::{CancelDisabled, EINVAL, Errno, as_minus_one, last_errno};
use crate::sys;

/// The program's structure, and the addresses that it points to.
#[repr(C)]
struct AddressInfo {
    raw: sys::rdma_addrinfo,
    source: libc::sockaddr_storage,
    destination: libc::sockaddr_storage,
}

#[unsafe(no_mangle)]
extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const sys::rdma_addrinfo,
    result: *mut *mut sys::rdma_addrinfo,
) -> c_int {
    // SAFETY: the program passes null, texts and structures, and memory for the pointer.
    match unsafe { get_address_info(node, service, hints.as_ref(), result) } {
        Err(Failure::Resolver(code)) => code,
        Err(Failure::Call(error)) => as_minus_one(Err(error)),
        Ok(()) => 0,
    }
}

/// Why a call has failed. The manual page has it return -1 and set errno, or return a code of the
/// system's resolver.
enum Failure {
    Call(Errno),
    /// A code of `getaddrinfo`: EAI_NONAME and the like.
    Resolver(c_int),
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        Failure::Call(error)
    }
}

/// # Safety
/// The pointers are null or to texts and structures of the program.
unsafe fn get_address_info(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&sys::rdma_addrinfo>,
    result: *mut *mut sys::rdma_addrinfo,
) -> Result<(), Failure> {
    let flags = hints.map_or(0, |hints| hints.ai_flags as u32);
    let is_passive = flags & sys::RAI_PASSIVE != 0;
    if result.is_null() || node.is_null() && service.is_null() && hints.is_none() {
        return Err(EINVAL.into());
    }
    // SAFETY: guaranteed by the caller.
    let found = unsafe {
        match hints {
            Some(hints) if node.is_null() && service.is_null() => {
                read_address(if is_passive { hints.ai_src_addr } else { hints.ai_dst_addr })?.ok_or(EINVAL)?
            }
            _ => look_up(node, service, hints, flags)?,
        }
    };
    // SAFETY: as above.
    let hinted_source = unsafe { hints.map_or(Ok(None), |hints| read_address(hints.ai_src_addr))? };
    let (source, destination) = if is_passive { (Some(found), None) } else { (hinted_source, Some(found)) };
    // SAFETY: the caller passes memory for the pointer.
    unsafe { *result = build(hints, flags, source, destination) };
    Ok(())
}

fn build(
    hints: Option<&sys::rdma_addrinfo>,
    flags: u32,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
) -> *mut sys::rdma_addrinfo {
    let is_ipv6 = source.or(destination).is_some_and(|address| address.is_ipv6());
    let hinted = |field: fn(&sys::rdma_addrinfo) -> c_int, default: u32| {
        hints.map(field).filter(|value| *value != 0).unwrap_or(default as c_int)
    };
    let raw = sys::rdma_addrinfo {
        ai_flags: flags as c_int,
        ai_family: if is_ipv6 { libc::AF_INET6 } else { libc::AF_INET },
        ai_qp_type: hinted(|hints| hints.ai_qp_type, sys::IBV_QPT_RC),
        ai_port_space: hinted(|hints| hints.ai_port_space, sys::RDMA_PS_TCP),
        ..Default::default()
    };
    // SAFETY: zeros are addresses without a family.
    let (no_source, no_destination) = unsafe { (zeroed(), zeroed()) };
    let info = Box::leak(Box::new(AddressInfo { raw, source: no_source, destination: no_destination }));
    if let Some(address) = source {
        (info.source, info.raw.ai_src_len) = to_storage(address);
        info.raw.ai_src_addr = (&raw mut info.source).cast();
    }
    if let Some(address) = destination {
        (info.destination, info.raw.ai_dst_len) = to_storage(address);
        info.raw.ai_dst_addr = (&raw mut info.destination).cast();
    }
    &raw mut info.raw
}

/// # Safety
/// As for [`get_address_info`].
unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&sys::rdma_addrinfo>,
    flags: u32,
) -> Result<SocketAddr, Failure> {
    // SAFETY: zeros are hints that say nothing.
    let mut wanted: libc::addrinfo = unsafe { zeroed() };
    wanted.ai_socktype = libc::SOCK_STREAM;
    // With RAI_FAMILY or without, as rdma-core. Addresses of InfiniBand are none of the resolver's.
    wanted.ai_family =
        hints.map(|hints| hints.ai_family).filter(|family| *family != libc::AF_IB).unwrap_or(libc::AF_UNSPEC);
    for (flag, system) in [(sys::RAI_PASSIVE, libc::AI_PASSIVE), (sys::RAI_NUMERICHOST, libc::AI_NUMERICHOST)]
    {
        if flags & flag != 0 {
            wanted.ai_flags |= system;
        }
    }
    let mut list = ptr::null_mut();
    // The resolver reads files and the network, where a thread may be cancelled.
    let _cancel = CancelDisabled::new();
    // SAFETY: guaranteed by the caller; the list is freed below.
    unsafe {
        let code = libc::getaddrinfo(node, service, &raw const wanted, &raw mut list);
        match code {
            0 => {}
            libc::EAI_SYSTEM => return Err(last_errno().into()),
            _ => return Err(Failure::Resolver(code)),
        }
        let first = read_address((*list).ai_addr.cast());
        libc::freeaddrinfo(list);
        first?.ok_or(Failure::Resolver(libc::EAI_NODATA))
    }
}

#[unsafe(no_mangle)]
extern "C" fn rdma_freeaddrinfo(mut info: *mut sys::rdma_addrinfo) {
    while !info.is_null() {
        // SAFETY: the list is one of `rdma_getaddrinfo`, as the manual page demands.
        unsafe {
            let next = (*info).ai_next;
            drop(Box::from_raw(info.cast::<AddressInfo>()));
            info = next;
        }
    }
}
