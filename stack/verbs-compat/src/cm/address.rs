//! Addresses: binding to one, and resolving a peer's. Both need the configuration only and complete at once.

use core::ffi::c_int;
use core::mem::{size_of, zeroed};
use core::ptr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::event::{EventDetails, complete};
use super::{CmId, IdState};
use crate::device::default_context;
use crate::engine::{EINVAL, Errno, Outcome, State, as_minus_one, find, with};
use crate::sys;

/// Reads the program's address. A null pointer is no address.
///
/// # Safety
/// The pointer is null or to a structure of its family's length.
pub(super) unsafe fn read_address(from: *const sys::sockaddr) -> Outcome<Option<SocketAddr>> {
    // SAFETY: guaranteed by the caller; the structure may be unaligned.
    unsafe {
        if from.is_null() {
            return Ok(None);
        }
        match c_int::from((&raw const (*from).sa_family).read_unaligned()) {
            libc::AF_INET => {
                let found = from.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(found.sin_addr.s_addr.to_ne_bytes());
                Ok(Some(SocketAddr::new(ip.into(), u16::from_be(found.sin_port))))
            }
            libc::AF_INET6 => {
                let found = from.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(found.sin6_addr.s6_addr);
                Ok(Some(SocketAddr::new(ip.to_canonical(), u16::from_be(found.sin6_port))))
            }
            libc::AF_UNSPEC => Ok(None),
            _ => Err(Errno(libc::EAFNOSUPPORT)),
        }
    }
}

/// Writes an address as a structure of the system and returns its length.
pub(super) fn to_storage(address: SocketAddr) -> (libc::sockaddr_storage, u32) {
    // SAFETY: zeros are an address without a family.
    let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
    // SAFETY: the storage has room and alignment for both.
    unsafe {
        match address.ip() {
            IpAddr::V4(ip) => {
                let place = &mut *(&raw mut storage).cast::<libc::sockaddr_in>();
                place.sin_family = libc::AF_INET as _;
                place.sin_port = address.port().to_be();
                place.sin_addr.s_addr = u32::from_ne_bytes(ip.octets());
                (storage, size_of::<libc::sockaddr_in>() as u32)
            }
            IpAddr::V6(ip) => {
                let place = &mut *(&raw mut storage).cast::<libc::sockaddr_in6>();
                place.sin6_family = libc::AF_INET6 as _;
                place.sin6_port = address.port().to_be();
                place.sin6_addr.s6_addr = ip.octets();
                (storage, size_of::<libc::sockaddr_in6>() as u32)
            }
        }
    }
}

/// Writes an address into a field of the program's structure, which has the size of `sockaddr_storage`.
fn write_address<T>(into: *mut T, address: SocketAddr) {
    const { assert!(size_of::<T>() == size_of::<libc::sockaddr_storage>()) };
    let (storage, _) = to_storage(address);
    // SAFETY: the sizes are equal.
    unsafe { into.cast::<libc::sockaddr_storage>().write_unaligned(storage) };
}

impl CmId {
    pub(super) fn local(&self) -> Option<SocketAddr> {
        // SAFETY: the field is an address that this library wrote, or zeros.
        unsafe { read_address((&raw const self.raw.route.addr.__bindgen_anon_1).cast()).ok().flatten() }
    }

    pub(super) fn remote(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        unsafe { read_address((&raw const self.raw.route.addr.__bindgen_anon_2).cast()).ok().flatten() }
    }

    pub(super) fn set_local(&mut self, address: SocketAddr) {
        write_address(&raw mut self.raw.route.addr.__bindgen_anon_1, address);
    }

    pub(super) fn set_remote(&mut self, address: SocketAddr) {
        write_address(&raw mut self.raw.route.addr.__bindgen_anon_2, address);
    }
}

#[unsafe(no_mangle)]
extern "C" fn rdma_bind_addr(id: *mut sys::rdma_cm_id, address: *mut sys::sockaddr) -> c_int {
    // SAFETY: the program passes null or an address.
    as_minus_one(
        unsafe { read_address(address) }
            .and_then(|address| with(|state| state.bind(id, address.ok_or(EINVAL)?))),
    )
}

#[unsafe(no_mangle)]
extern "C" fn rdma_resolve_addr(
    id: *mut sys::rdma_cm_id,
    source: *mut sys::sockaddr,
    destination: *mut sys::sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the program passes null or an address.
    as_minus_one(unsafe { resolve_address(id, source, destination) })
}

/// # Safety
/// As for [`read_address`].
pub(super) unsafe fn resolve_address(
    id: *mut sys::rdma_cm_id,
    source: *const sys::sockaddr,
    destination: *const sys::sockaddr,
) -> Outcome {
    // SAFETY: guaranteed by the caller.
    let (source, destination) = unsafe { (read_address(source)?, read_address(destination)?.ok_or(EINVAL)?) };
    with(|state| state.resolve(id, source, destination))?;
    complete(id)
}

#[unsafe(no_mangle)]
extern "C" fn rdma_resolve_route(id: *mut sys::rdma_cm_id, _timeout_ms: c_int) -> c_int {
    as_minus_one(resolve_route(id))
}

pub(super) fn resolve_route(id: *mut sys::rdma_cm_id) -> Outcome {
    with(|state| {
        // SAFETY: the lock is held, and no reference is kept.
        let found = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
        if found.state != IdState::AddressResolved {
            return Err(EINVAL);
        }
        found.state = IdState::RouteResolved;
        state.push_event(id, sys::RDMA_CM_EVENT_ROUTE_RESOLVED, &EventDetails::default());
        Ok(())
    })?;
    complete(id)
}

#[unsafe(no_mangle)]
extern "C" fn rdma_get_src_port(id: *mut sys::rdma_cm_id) -> u16 {
    port_of(id, CmId::local)
}

#[unsafe(no_mangle)]
extern "C" fn rdma_get_dst_port(id: *mut sys::rdma_cm_id) -> u16 {
    port_of(id, CmId::remote)
}

/// Returns a port in network byte order.
fn port_of(id: *mut sys::rdma_cm_id, address: fn(&CmId) -> Option<SocketAddr>) -> u16 {
    let found = with(|_| {
        // SAFETY: the lock is held, and no reference is kept.
        Ok(unsafe { find::<CmId>(id) }.and_then(|id| address(id)))
    });
    found.ok().flatten().map_or(0, |address| address.port().to_be())
}

impl State {
    pub(super) fn bind(&mut self, id: *mut sys::rdma_cm_id, mut address: SocketAddr) -> Outcome {
        // SAFETY: the lock is held, and no reference is kept.
        if unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.state != IdState::Idle {
            return Err(EINVAL);
        }
        self.open_device()?;
        if address.ip().is_loopback() {
            address.set_ip(self.own_address(address.is_ipv4())?);
        }
        let is_any = address.ip().is_unspecified();
        if !is_any && !self.device()?.has_address(address.ip()) {
            return Err(Errno(libc::EADDRNOTAVAIL));
        }
        if address.port() == 0 {
            address.set_port(self.listeners.next_port());
        }
        let context = if is_any { ptr::null_mut() } else { default_context(self)? };
        self.attach(id, context)?;
        // SAFETY: as above.
        let found = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
        found.set_local(address);
        found.state = IdState::Bound;
        Ok(())
    }

    /// Returns the device's first address of a family.
    fn own_address(&mut self, is_ipv4: bool) -> Outcome<IpAddr> {
        let own = self.device()?.addresses.iter().find(|own| own.is_ipv4() == is_ipv4);
        own.copied().ok_or(Errno(libc::EADDRNOTAVAIL))
    }

    /// Gives an identifier the device, and its default protection domain.
    pub(super) fn attach(&mut self, id: *mut sys::rdma_cm_id, context: *mut sys::ibv_context) -> Outcome {
        if context.is_null() {
            return Ok(());
        }
        let pd = self.default_pd(context)?;
        // SAFETY: the lock is held, and no reference is kept.
        let found = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
        found.raw.verbs = context;
        found.raw.port_num = 1;
        found.raw.pd = pd;
        Ok(())
    }

    fn resolve(
        &mut self,
        id: *mut sys::rdma_cm_id,
        source: Option<SocketAddr>,
        mut destination: SocketAddr,
    ) -> Outcome {
        self.open_device()?;
        if destination.ip().is_loopback() || destination.ip().is_unspecified() {
            destination.set_ip(self.own_address(destination.is_ipv4())?);
        }
        // SAFETY: the lock is held, and no reference is kept.
        let found = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
        let mut source = match found.state {
            IdState::Idle => source,
            IdState::Bound => found.local(),
            _ => return Err(EINVAL),
        };
        if let Some(source) = source.filter(|source| !source.ip().is_unspecified())
            && !self.device()?.has_address(source.ip())
        {
            return Err(Errno(libc::EADDRNOTAVAIL));
        }
        source = source.filter(|source| !source.ip().is_unspecified());
        let ip = match source {
            Some(source) => source.ip(),
            None => self.device()?.source_for(destination.ip())?,
        };
        let context = default_context(self)?;
        self.attach(id, context)?;
        // SAFETY: as above.
        let found = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
        found.set_local(SocketAddr::new(ip, source.map_or(0, |source| source.port())));
        found.set_remote(destination);
        found.state = IdState::AddressResolved;
        self.push_event(id, sys::RDMA_CM_EVENT_ADDR_RESOLVED, &EventDetails::default());
        Ok(())
    }
}
