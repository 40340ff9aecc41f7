//! The addresses and ports that identifiers are bound to, listening or not.
//!
//! As the kernel's connection manager: two identifiers have the same port only if their addresses
//! differ, or both say RDMA_OPTION_ID_REUSEADDR and neither listens. An unspecified address is
//! every address of its family, and `::` also those of IPv4 unless RDMA_OPTION_ID_AFONLY is set. A
//! port that the program leaves open is selected at random (RFC 6056 s3.3.1), and not again soon
//! after its release, since a peer may remember the last connection.

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;

use crate::engine::{Errno, Outcome};
use crate::sys;

/// Ports that are selected for a program that names none. The stack selects those of connections
/// above 49152.
const PORTS: core::ops::Range<u16> = 32768..49152;

/// Released ports that are not selected again.
const RELEASED_MAX: usize = 4096;

pub(crate) struct PortTable {
    bound: Vec<Bound>,
    /// Ports that were released last.
    released: VecDeque<u16>,
}

struct Bound {
    id: *mut sys::rdma_cm_id,
    claim: Claim,
    is_listening: bool,
}

/// What an identifier is bound to, or wants to be.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    /// Without a scope.
    pub(super) address: SocketAddr,
    pub(super) reuses: bool,
    pub(super) is_one_family: bool,
}

impl Claim {
    /// Whether a peer's request could be for either.
    fn overlaps(&self, other: &Claim) -> bool {
        self.address.port() == other.address.port() && (self.covers(other) || other.covers(self))
    }

    fn covers(&self, other: &Claim) -> bool {
        let (own, its) = (self.address.ip(), other.address.ip());
        if !own.is_unspecified() {
            return own == its;
        }
        own.is_ipv4() == its.is_ipv4() || own.is_ipv6() && !self.is_one_family
    }
}

impl PortTable {
    pub(crate) const fn new() -> Self {
        PortTable { bound: Vec::new(), released: VecDeque::new() }
    }

    /// Binds an identifier, and returns the address with its port. Fails with EADDRINUSE.
    pub(super) fn bind(&mut self, id: *mut sys::rdma_cm_id, mut claim: Claim) -> Outcome<SocketAddr> {
        if claim.address.port() == 0 {
            claim.address.set_port(self.select()?);
        }
        let is_taken = |bound: &Bound| {
            let shares = claim.reuses && bound.claim.reuses && !bound.is_listening;
            !shares && bound.claim.overlaps(&claim)
        };
        if self.bound.iter().any(is_taken) {
            return Err(Errno(libc::EADDRINUSE));
        }
        self.bound.push(Bound { id, claim, is_listening: false });
        Ok(claim.address)
    }

    /// Records that a bound identifier listens. Fails with EADDRINUSE if it shares the address.
    pub(super) fn listen(&mut self, id: *mut sys::rdma_cm_id) -> Outcome {
        let Some(at) = self.bound.iter().position(|bound| bound.id == id) else { return Ok(()) };
        let claim = self.bound[at].claim;
        let is_other = |bound: &&Bound| bound.id != id && bound.claim.overlaps(&claim);
        if self.bound.iter().any(|bound| is_other(&bound)) {
            return Err(Errno(libc::EADDRINUSE));
        }
        self.bound[at].is_listening = true;
        Ok(())
    }

    pub(super) fn set_reuse(&mut self, id: *mut sys::rdma_cm_id, reuses: bool) {
        self.claims_of(id).for_each(|claim| claim.reuses = reuses);
    }

    pub(super) fn set_one_family(&mut self, id: *mut sys::rdma_cm_id, is_one_family: bool) {
        self.claims_of(id).for_each(|claim| claim.is_one_family = is_one_family);
    }

    fn claims_of(&mut self, id: *mut sys::rdma_cm_id) -> impl Iterator<Item = &mut Claim> {
        self.bound.iter_mut().filter(move |bound| bound.id == id).map(|bound| &mut bound.claim)
    }

    /// Releases what an identifier is bound to.
    pub(super) fn release(&mut self, id: *mut sys::rdma_cm_id) {
        for bound in self.bound.extract_if(.., |bound| bound.id == id) {
            if PORTS.contains(&bound.claim.address.port()) {
                self.released.push_back(bound.claim.address.port());
            }
        }
        let excess = self.released.len().saturating_sub(RELEASED_MAX);
        self.released.drain(..excess);
    }

    /// Returns a port that nobody is bound to.
    fn select(&self) -> Outcome<u16> {
        let bound = self.bound.iter().map(|bound| bound.claim.address.port());
        let taken: HashSet<u16> = bound.chain(self.released.iter().copied()).collect();
        let count = PORTS.end - PORTS.start;
        let first = random() % count;
        (0..count)
            .map(|offset| PORTS.start + first.wrapping_add(offset) % count)
            .find(|port| !taken.contains(port))
            .ok_or(Errno(libc::EADDRINUSE))
    }
}

fn random() -> u16 {
    let mut bytes = [0u8; 2];
    // SAFETY: the buffer has as many bytes. A call that fails leaves zeros, which is a valid start.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u16::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(address: &str) -> Claim {
        Claim { address: address.parse().unwrap(), reuses: false, is_one_family: false }
    }

    fn id(number: usize) -> *mut sys::rdma_cm_id {
        (number * 8) as *mut _
    }

    const IN_USE: Outcome<SocketAddr> = Err(Errno(libc::EADDRINUSE));

    #[test]
    fn addresses_that_overlap_are_in_use_until_they_are_released() {
        let mut table = PortTable::new();
        assert!(table.bind(id(1), claim("10.0.0.1:700")).is_ok());
        for other in ["10.0.0.1:700", "0.0.0.0:700", "[::]:700"] {
            assert_eq!(table.bind(id(2), claim(other)), IN_USE, "{other}");
        }
        for other in ["10.0.0.2:700", "10.0.0.1:701", "[fd00::1]:700"] {
            assert!(table.bind(id(2), claim(other)).is_ok(), "{other}");
        }
        let ipv6_only = Claim { is_one_family: true, ..claim("[::]:700") };
        assert_eq!(table.bind(id(3), ipv6_only), IN_USE, "fd00::1 is one of them");
        table.release(id(2));
        assert!(table.bind(id(3), ipv6_only).is_ok());
        table.release(id(1));
        assert!(table.bind(id(4), claim("0.0.0.0:700")).is_ok());
    }

    #[test]
    fn an_address_is_shared_if_both_say_so_and_neither_listens() {
        let mut table = PortTable::new();
        let shared = Claim { reuses: true, ..claim("10.0.0.1:700") };
        assert!(table.bind(id(1), shared).is_ok() && table.bind(id(2), shared).is_ok());
        assert_eq!(table.bind(id(3), claim("10.0.0.1:700")), IN_USE);
        assert_eq!(table.listen(id(1)), Err(Errno(libc::EADDRINUSE)));
        table.release(id(2));
        assert_eq!(table.listen(id(1)), Ok(()));
        assert_eq!(table.bind(id(2), shared), IN_USE, "it listens");
    }

    #[test]
    fn a_selected_port_is_free_and_not_the_one_just_released() {
        let mut table = PortTable::new();
        let mut ports: Vec<u16> =
            (1..=1000).map(|number| table.bind(id(number), claim("0.0.0.0:0")).unwrap().port()).collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)));
        assert!(!ports.is_sorted(), "an observer cannot predict them");
        (1..=1000).for_each(|number| table.release(id(number)));
        ports.extend((1..=1000).map(|number| table.bind(id(number), claim("0.0.0.0:0")).unwrap().port()));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 2000);
    }

    #[test]
    fn ports_run_out() {
        let mut table = PortTable::new();
        for (number, port) in PORTS.enumerate().skip(1) {
            let address = SocketAddr::from(([10, 0, 0, 1], port));
            let claim = Claim { address, ..claim("10.0.0.1:0") };
            table.bound.push(Bound { id: id(number + 1), claim, is_listening: false });
        }
        assert_eq!(
            table.bind(id(1), claim("10.0.0.1:0")),
            Ok(SocketAddr::from(([10, 0, 0, 1], PORTS.start)))
        );
        assert_eq!(table.bind(id(1), claim("10.0.0.1:0")), IN_USE);
    }
}
