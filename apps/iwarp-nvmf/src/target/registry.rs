//! The controllers of a target, and who may have how many.
//!
//! Discovery controllers, which any host may make, have a limit of their own. A host, by NQN and by
//! address, has at most [`TargetLimits::controllers_per_host`]. The addresses of an IPv6 /64 are one.
//!
//! When all controllers of a kind are in use, those whose hosts have not proved themselves give
//! way: the address with the most of them loses its oldest one. If there are none, the address with
//! the most controllers, at least two more than the newcomer's, loses its oldest one. A newcomer
//! that still has to prove itself ends no other's that was admitted, and is refused.

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::TargetLimits;
use super::controller::Controller;
use super::counters::TargetCounter;
use crate::transport::party::host_key;

/// The largest CNTLID of a dynamic controller.
const CNTLID_MAX: u16 = 0xffef;

/// A controller that is to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer<'a> {
    pub(super) hostnqn: &'a str,
    pub(super) address: IpAddr,
    pub(super) is_discovery: bool,
    /// Its host need not prove itself.
    pub(super) is_admitted: bool,
}

/// The controllers by CNTLID.
#[derive(Debug, Default)]
pub(super) struct Registry {
    by_cntlid: BTreeMap<u16, Arc<Controller>>,
    last: u16,
    /// The number of controllers that were made: the order of their ages.
    made: u64,
}

impl Registry {
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Controller>> {
        self.by_cntlid.values()
    }

    pub(super) fn get(&self, cntlid: u16) -> Option<&Arc<Controller>> {
        self.by_cntlid.get(&cntlid)
    }

    pub(super) fn remove(&mut self, controller: &Arc<Controller>) {
        if self.get(controller.cntlid()).is_some_and(|one| Arc::ptr_eq(one, controller)) {
            self.by_cntlid.remove(&controller.cntlid());
        }
    }

    /// Makes room for a controller. Returns the one that has to end for it, if one has.
    ///
    /// # Errors
    ///
    /// The counter of the limit that is reached.
    pub(super) fn make_room(
        &mut self,
        newcomer: Newcomer<'_>,
        limits: &TargetLimits,
    ) -> Result<Option<Arc<Controller>>, TargetCounter> {
        let of_kind = |one: &&Arc<Controller>| one.subsystem().is_discovery() == newcomer.is_discovery;
        let (mut kind, mut same_nqn, mut same_address, mut unproven) = (0, 0, 0, 0);
        let address = host_key(newcomer.address);
        for one in self.all().filter(of_kind) {
            kind += 1;
            // Anyone can claim an NQN, so one that has to be proved does not count before.
            same_nqn += usize::from(one.hostnqn() == newcomer.hostnqn && one.is_admitted());
            same_address += usize::from(host_key(one.address()) == address);
            unproven += usize::from(!one.is_admitted());
        }
        let (most, full) = match newcomer.is_discovery {
            true => (limits.discovery_controllers, TargetCounter::DiscoveryControllersFull),
            false => (limits.controllers, TargetCounter::ControllersFull),
        };
        if same_nqn.max(same_address) >= limits.controllers_per_host {
            return Err(TargetCounter::ControllersPerHostFull);
        }
        if kind < most {
            return Ok(None);
        }
        let gives_way = |one: &&Arc<Controller>| of_kind(one) && (unproven == 0 || !one.is_admitted());
        let mut by_address: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for one in self.all().filter(gives_way) {
            *by_address.entry(host_key(one.address())).or_default() += 1;
        }
        let largest = by_address.values().copied().max().unwrap_or(0);
        if unproven == 0 && (!newcomer.is_admitted || largest < same_address + 2) {
            return Err(full);
        }
        let greedy = |one: &&Arc<Controller>| by_address.get(&host_key(one.address())) == Some(&largest);
        let oldest = self.all().filter(gives_way).filter(greedy).min_by_key(|one| one.number()).cloned();
        if let Some(oldest) = &oldest {
            self.by_cntlid.remove(&oldest.cntlid());
        }
        oldest.map(Some).ok_or(full)
    }

    /// Lists a controller under a free CNTLID. The caller has made room.
    pub(super) fn add(&mut self, make: impl FnOnce((u16, u64)) -> Controller) -> Arc<Controller> {
        // A number that was used a moment ago is not used again: a late queue of its host must not
        // find another's.
        let after = |last: u16| if last >= CNTLID_MAX { 1 } else { last + 1 };
        let mut cntlid = after(self.last);
        while self.by_cntlid.contains_key(&cntlid) {
            cntlid = after(cntlid);
        }
        self.last = cntlid;
        self.made += 1;
        let controller = Arc::new(make((cntlid, self.made)));
        self.by_cntlid.insert(cntlid, controller.clone());
        controller
    }

    /// Returns whether every controller has its admin queue.
    pub(super) fn all_have_owners(&self) -> bool {
        self.all().all(|one| one.state().queues.contains(&0))
    }
}
