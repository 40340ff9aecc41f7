//! Listening addresses of identifiers, and the requests that wait for the program.

use core::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::IdState;
use super::address::without_scope;
use super::event::state_of;
use crate::device::Context;
use crate::engine::{EINVAL, Errno, Link, Outcome, State, as_minus_one, with};
use crate::objects::Pd;
use crate::sys;

/// The addresses that listen, and what belongs to librdmacm as a whole.
pub(crate) struct Listeners {
    by_address: Vec<(SocketAddr, *mut sys::rdma_cm_id)>,
    /// The address that a call is about to listen on, until the stack cannot.
    pending: Option<SocketAddr>,
    /// The context and the protection domain of identifiers.
    pub(crate) context: Link<Context>,
    pub(crate) pd: Link<Pd>,
}

/// Iterations of the worker within which a request to listen is answered.
const LISTEN_ITERATIONS: usize = 8;

/// The largest backlog, and that of a program that asks for none: as `net.rdma_ucm.max_backlog` of
/// Linux.
const BACKLOG_MAX: u32 = 1024;

/// Requests to a listener whose events the program has not fetched. Further ones are rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Backlog {
    limit: u32,
    undelivered: u32,
}

impl Default for Backlog {
    fn default() -> Self {
        Backlog { limit: BACKLOG_MAX, undelivered: 0 }
    }
}

impl Backlog {
    fn set_limit(&mut self, requested: c_int) {
        let in_range = u32::try_from(requested).ok().filter(|limit| (1..=BACKLOG_MAX).contains(limit));
        self.limit = in_range.unwrap_or(BACKLOG_MAX);
    }

    pub(super) fn is_full(&self) -> bool {
        self.undelivered >= self.limit
    }

    pub(super) fn on_added(&mut self) {
        self.undelivered += 1;
    }

    pub(super) fn on_taken(&mut self) {
        self.undelivered = self.undelivered.saturating_sub(1);
    }
}

impl Listeners {
    pub(crate) const fn new() -> Self {
        Listeners { by_address: Vec::new(), pending: None, context: Link::NONE, pd: Link::NONE }
    }

    /// Returns the identifier that listens on an address: on it alone, or on all of its family.
    pub(super) fn find(&self, address: SocketAddr) -> Option<*mut sys::rdma_cm_id> {
        let at = |address: SocketAddr| self.by_address.iter().find(|one| one.0 == address).map(|one| one.1);
        at(address).or_else(|| at(SocketAddr::new(unspecified(address.is_ipv4()), address.port())))
    }

    pub(super) fn on_failed(&mut self, address: SocketAddr) {
        self.pending.take_if(|pending| *pending == address);
    }
}

fn unspecified(is_ipv4: bool) -> IpAddr {
    if is_ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

#[unsafe(no_mangle)]
extern "C" fn rdma_listen(id: *mut sys::rdma_cm_id, backlog: c_int) -> c_int {
    as_minus_one(with(|state| state.listen(id, backlog)))
}

impl State {
    fn listen(&mut self, id: *mut sys::rdma_cm_id, backlog: c_int) -> Outcome {
        let before = state_of(self, id)?;
        match before {
            IdState::Idle => self.bind(id, SocketAddr::new(unspecified(true), 0))?,
            IdState::Bound => {}
            _ => return Err(EINVAL),
        }
        self.open_device()?;
        let addresses = self.addresses_to_listen(id)?;
        self.ports.listen(id)?;
        let found = self.pools.ids.get(id)?;
        found.backlog.set_limit(backlog);
        found.state = IdState::Listening;
        let listening = addresses.into_iter().try_for_each(|address| self.listen_on(id, address));
        if listening.is_err() {
            // The identifier is bound as before, and may try again.
            self.unlisten(id);
            self.remove_events(id);
            self.pools.ids.get(id)?.state = IdState::Bound;
        }
        listening
    }

    /// Returns the addresses of the stack that an identifier's address stands for. An unspecified
    /// address includes those that the device gets later, such as its link-local one.
    fn addresses_to_listen(&mut self, id: *mut sys::rdma_cm_id) -> Outcome<Vec<SocketAddr>> {
        let found = self.pools.ids.get(id)?;
        let local = without_scope(found.local().ok_or(EINVAL)?);
        let covers_both = local.is_ipv6() && local.ip().is_unspecified() && !found.is_one_family;
        let ipv4 = SocketAddr::new(unspecified(true), local.port());
        Ok(if covers_both { vec![local, ipv4] } else { vec![local] })
    }

    fn listen_on(&mut self, id: *mut sys::rdma_cm_id, address: SocketAddr) -> Outcome {
        // A request may arrive with the answer.
        self.listeners.by_address.push((address, id));
        self.listeners.pending = Some(address);
        let asked = self.control(|stack| stack.listen(address));
        for _ in 0..LISTEN_ITERATIONS {
            self.advance();
        }
        let listens = self.listeners.pending.take().is_some();
        if listens && asked.is_ok() {
            return Ok(());
        }
        self.listeners.by_address.retain(|entry| entry.0 != address);
        if asked.is_ok() {
            let _ = self.control(|stack| stack.unlisten(address));
        }
        asked.and(Err(Errno(libc::EADDRINUSE)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_bounds_the_requests_that_wait() {
        let mut backlog = Backlog::default();
        backlog.set_limit(2);
        assert!(!backlog.is_full());
        backlog.on_added();
        backlog.on_added();
        assert!(backlog.is_full());
        backlog.on_taken();
        assert!(!backlog.is_full());
    }

    #[test]
    fn a_backlog_of_none_or_too_many_is_the_largest() {
        for requested in [0, -1, 1025, c_int::MAX, c_int::MIN] {
            let mut backlog = Backlog::default();
            backlog.set_limit(requested);
            assert_eq!(backlog.limit, BACKLOG_MAX, "{requested}");
        }
    }
}
