//! Addresses: binding to one, and resolving a peer's. Both need the configuration only and complete
//! at once.
//!
//! What an identifier is bound to is what its connection uses, and what the identifier reports. The
//! scope of an IPv6 address is the program's name for an interface; the device has one interface,
//! so it is kept for the program and not used.

use core::ffi::c_int;
use core::mem::{size_of, zeroed};
use core::ptr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::event::{EventDetails, complete, state_of};
use super::ports::Claim;
use super::{CmId, IdState};
use crate::device::default_context;
use crate::engine::{EINVAL, Errno, Outcome, State, as_minus_one, with};
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
                let (ip, port) = (Ipv6Addr::from(found.sin6_addr.s6_addr), u16::from_be(found.sin6_port));
                Ok(Some(match ip.to_canonical() {
                    // RFC 4291 s2.5.5.2: an IPv4-mapped address.
                    IpAddr::V4(ip) => SocketAddr::new(ip.into(), port),
                    IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, found.sin6_scope_id).into(),
                }))
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
        match address {
            SocketAddr::V4(address) => {
                let place = &mut *(&raw mut storage).cast::<libc::sockaddr_in>();
                place.sin_family = libc::AF_INET as _;
                place.sin_port = address.port().to_be();
                place.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
                (storage, size_of::<libc::sockaddr_in>() as u32)
            }
            SocketAddr::V6(address) => {
                let place = &mut *(&raw mut storage).cast::<libc::sockaddr_in6>();
                place.sin6_family = libc::AF_INET6 as _;
                place.sin6_port = address.port().to_be();
                place.sin6_addr.s6_addr = address.ip().octets();
                place.sin6_scope_id = address.scope_id();
                (storage, size_of::<libc::sockaddr_in6>() as u32)
            }
        }
    }
}

/// Returns an address as the stack knows it.
pub(super) fn without_scope(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

/// Writes an address into a field of the program's structure, which has the size of
/// `sockaddr_storage`.
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

    /// The stack has the addresses of the connection. A scope that the program gave stays.
    pub(super) fn set_addresses(&mut self, local: SocketAddr, remote: SocketAddr) {
        let is_known = |known: Option<SocketAddr>, found| known.map(without_scope) == Some(found);
        if !is_known(self.local(), local) {
            self.set_local(local);
        }
        if !is_known(self.remote(), remote) {
            self.set_remote(remote);
        }
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
        let found = state.pools.ids.get(id)?;
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
    let found = with(|state| Ok(state.pools.ids.find(id).and_then(|id| address(id))));
    found.ok().flatten().map_or(0, |address| address.port().to_be())
}

impl State {
    /// Binds an idle identifier to an address of the device, or to a port of all. A call that fails
    /// has changed nothing.
    pub(super) fn bind(&mut self, id: *mut sys::rdma_cm_id, mut address: SocketAddr) -> Outcome {
        if state_of(self, id)? != IdState::Idle {
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
        let found = self.pools.ids.get(id)?;
        let (reuses, is_one_family) = (found.reuses_address, found.is_one_family);
        let claim = Claim { address: without_scope(address), reuses, is_one_family };
        address.set_port(self.ports.bind(id, claim)?.port());
        let context = if is_any { Ok(ptr::null_mut()) } else { default_context(self) };
        if let Err(error) = context.and_then(|context| self.attach(id, context)) {
            self.ports.release(id);
            return Err(error);
        }
        let found = self.pools.ids.get(id)?;
        found.source = Some(without_scope(address));
        found.set_local(address);
        found.state = IdState::Bound;
        Ok(())
    }

    /// Undoes [`bind`](Self::bind).
    fn unbind(&mut self, id: *mut sys::rdma_cm_id) -> Outcome {
        self.ports.release(id);
        let found = self.pools.ids.get(id)?;
        (found.state, found.source) = (IdState::Idle, None);
        (found.raw.verbs, found.raw.pd, found.raw.port_num) = (ptr::null_mut(), ptr::null_mut(), 0);
        found.raw.route.addr = sys::rdma_addr::default();
        Ok(())
    }

    /// Returns the device's first address of a family.
    fn own_address(&mut self, is_ipv4: bool) -> Outcome<IpAddr> {
        self.device()?.first_address(is_ipv4).ok_or(Errno(libc::EADDRNOTAVAIL))
    }

    /// Gives an identifier the device, and its default protection domain.
    pub(super) fn attach(&mut self, id: *mut sys::rdma_cm_id, context: *mut sys::ibv_context) -> Outcome {
        if context.is_null() {
            return Ok(());
        }
        let pd = self.default_pd(context)?;
        let found = self.pools.ids.get(id)?;
        found.raw.verbs = context;
        found.raw.port_num = 1;
        found.raw.pd = pd;
        Ok(())
    }

    /// A call that fails has changed nothing.
    fn resolve(
        &mut self,
        id: *mut sys::rdma_cm_id,
        source: Option<SocketAddr>,
        destination: SocketAddr,
    ) -> Outcome {
        let is_idle = match state_of(self, id)? {
            IdState::Idle => true,
            IdState::Bound => false,
            _ => return Err(EINVAL),
        };
        self.open_device()?;
        // A source is the same as a call of `rdma_bind_addr`.
        let binds = source.filter(|_| is_idle);
        if let Some(source) = binds {
            self.bind(id, source)?;
        }
        let resolved = self.resolve_bound(id, destination);
        if resolved.is_err() && binds.is_some() {
            self.unbind(id)?;
        }
        resolved
    }

    fn resolve_bound(&mut self, id: *mut sys::rdma_cm_id, mut destination: SocketAddr) -> Outcome {
        if destination.ip().is_loopback() || destination.ip().is_unspecified() {
            destination.set_ip(self.own_address(destination.is_ipv4())?);
        }
        let bound = self.pools.ids.get(id)?.local();
        if bound.is_some_and(|bound| bound.is_ipv4() != destination.is_ipv4()) {
            return Err(EINVAL);
        }
        let local = match bound.filter(|bound| !bound.ip().is_unspecified()) {
            Some(local) => local,
            None => {
                let ip = self.device()?.source_for(destination.ip())?;
                SocketAddr::new(ip, bound.map_or(0, |bound| bound.port()))
            }
        };
        let context = default_context(self)?;
        self.attach(id, context)?;
        let found = self.pools.ids.get(id)?;
        found.set_local(local);
        found.set_remote(destination);
        found.state = IdState::AddressResolved;
        self.push_event(id, sys::RDMA_CM_EVENT_ADDR_RESOLVED, &EventDetails::default());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_port_and_scope() {
        for text in ["10.0.0.1:7", "[fd00::1]:65535", "[fe80::1%3]:9", "[::]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let (storage, _) = to_storage(address);
            // SAFETY: the structure is one of its family's length.
            let read = unsafe { read_address((&raw const storage).cast()) };
            assert_eq!(read, Ok(Some(address)));
        }
    }

    #[test]
    fn an_ipv4_mapped_address_is_that_of_ipv4() {
        let (storage, _) = to_storage("[::ffff:10.0.0.1]:7".parse().unwrap());
        // SAFETY: as above.
        assert_eq!(unsafe { read_address((&raw const storage).cast()) }, Ok("10.0.0.1:7".parse().ok()));
    }
}
