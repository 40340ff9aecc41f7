//! Listening addresses of identifiers.

use core::ffi::c_int;
use std::net::SocketAddr;

use super::event::state_of;
use super::{CmId, IdState};
use crate::engine::{EINVAL, Errno, Outcome, State, as_minus_one, find, with};
use crate::sys;

/// The addresses that listen, and what belongs to librdmacm as a whole.
pub(crate) struct Listeners {
    by_address: Vec<(SocketAddr, *mut sys::rdma_cm_id)>,
    /// Addresses that the stack could not listen on.
    failed: Vec<SocketAddr>,
    last_port: u16,
    /// The context and the protection domain of identifiers.
    pub(crate) context: Option<*mut sys::ibv_context>,
    pub(crate) pd: Option<*mut sys::ibv_pd>,
}

/// Ports that are chosen for a program that names none. The stack chooses those of connections above 49152.
const PORTS: core::ops::Range<u16> = 32768..49152;

/// Iterations of the worker within which a request to listen is answered.
const LISTEN_ITERATIONS: usize = 8;

impl Listeners {
    pub(crate) const fn new() -> Self {
        Listeners {
            by_address: Vec::new(),
            failed: Vec::new(),
            last_port: PORTS.start,
            context: None,
            pd: None,
        }
    }

    pub(super) fn next_port(&mut self) -> u16 {
        for _ in PORTS {
            self.last_port =
                if PORTS.contains(&(self.last_port + 1)) { self.last_port + 1 } else { PORTS.start };
            if !self.by_address.iter().any(|(address, _)| address.port() == self.last_port) {
                break;
            }
        }
        self.last_port
    }

    pub(super) fn find(&self, address: SocketAddr) -> Option<*mut sys::rdma_cm_id> {
        self.by_address.iter().find(|entry| entry.0 == address).map(|entry| entry.1)
    }

    pub(super) fn on_failed(&mut self, address: SocketAddr) {
        self.failed.push(address);
    }
}

#[unsafe(no_mangle)]
extern "C" fn rdma_listen(id: *mut sys::rdma_cm_id, _backlog: c_int) -> c_int {
    as_minus_one(with(|state| state.listen(id)))
}

impl State {
    fn listen(&mut self, id: *mut sys::rdma_cm_id) -> Outcome {
        match state_of(id).ok_or(EINVAL)? {
            IdState::Idle => self.bind(id, SocketAddr::from(([0, 0, 0, 0], 0)))?,
            IdState::Bound => {}
            _ => return Err(EINVAL),
        }
        for address in self.addresses_to_listen(id)? {
            if let Err(error) = self.listen_on(id, address) {
                self.unlisten(id);
                return Err(error);
            }
        }
        // SAFETY: the lock is held, and no reference is kept.
        unsafe { find::<CmId>(id) }.ok_or(EINVAL)?.state = IdState::Listening;
        Ok(())
    }

    /// Returns the addresses of the device that an identifier's address stands for.
    fn addresses_to_listen(&mut self, id: *mut sys::rdma_cm_id) -> Outcome<Vec<SocketAddr>> {
        // SAFETY: the lock is held, and no reference is kept.
        let found = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
        let (local, is_one_family) = (found.local().ok_or(EINVAL)?, found.is_one_family);
        if !local.ip().is_unspecified() {
            return Ok(vec![local]);
        }
        let is_meant =
            |own: &&std::net::IpAddr| own.is_ipv4() == local.is_ipv4() || local.is_ipv6() && !is_one_family;
        let own = self.device()?.addresses.iter().filter(is_meant);
        Ok(own.map(|own| SocketAddr::new(*own, local.port())).collect())
    }

    fn listen_on(&mut self, id: *mut sys::rdma_cm_id, address: SocketAddr) -> Outcome {
        if self.listeners.find(address).is_some() {
            return Err(Errno(libc::EADDRINUSE));
        }
        self.control(|stack| stack.listen(address))?;
        self.listeners.by_address.push((address, id));
        for _ in 0..LISTEN_ITERATIONS {
            self.advance();
        }
        let failed = self.listeners.failed.len();
        self.listeners.failed.retain(|other| *other != address);
        if self.listeners.failed.len() == failed {
            return Ok(());
        }
        self.listeners.by_address.retain(|entry| entry.0 != address);
        Err(Errno(libc::EADDRINUSE))
    }

    /// Stops listening for an identifier.
    pub(super) fn unlisten(&mut self, id: *mut sys::rdma_cm_id) {
        let addresses: Vec<_> =
            self.listeners.by_address.iter().filter(|entry| entry.1 == id).map(|entry| entry.0).collect();
        for address in addresses {
            let _ = self.control(|stack| stack.unlisten(address));
        }
        self.listeners.by_address.retain(|entry| entry.1 != id);
    }
}
