//! Who gets a connection, and who loses one for it.
//!
//! An address has at most [`super::CoreLimits::connections_per_address`] connections on a core.
//! When the core has no slot or no capsules left, a newcomer takes the place of a greedier host:
//!
//! 1. A connection that belongs to no controller of a storage subsystem yet: of the host with the
//!    most of those, more than the newcomer has, the oldest. Such connections cost their host
//!    nothing.
//! 2. Else, if there are none, the youngest connection of the host with the most, at least two more
//!    than the newcomer has.
//!
//! The newcomer then waits until the slot is free, and is rejected if there is nobody to take it
//! from.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use super::Reactor;
use super::connection::Connection;
use super::connection::wr_id::CONNECTIONS_MAX;
use super::listener::{Arrival, entries_reserved};
use super::party::host_key;
use crate::NvmfError;
use crate::target::TargetCounter;

/// Requests that wait for a slot, of all hosts and of one.
const DEFERRED_MAX: usize = 32;
const DEFERRED_PER_ADDRESS_MAX: usize = 4;
/// How long a request waits for the slot of a connection that was ended for it.
const DEFER_MS: u64 = 1000;

/// Requests that wait for a slot, with the time at which they are rejected.
pub(super) type Deferred = VecDeque<(Arrival, u64)>;

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// There is room.
    Accept,
    /// Room is being made.
    Wait,
    /// A limit is reached.
    Refuse(TargetCounter),
}

impl Reactor {
    /// Decides whether a host gets a connection with this many entries. Those that wait for a slot
    /// go before others.
    pub(super) fn admit(
        &mut self,
        address: IpAddr,
        entries: u16,
        has_waited: bool,
    ) -> Result<Admission, NvmfError> {
        let own = self.io.parties.connections_of(address) as usize;
        if own >= self.limits.connections_per_address {
            return Ok(Admission::Refuse(TargetCounter::ConnectionsPerAddressFull));
        }
        if !has_waited && !self.deferred.is_empty() {
            return Ok(Admission::Wait);
        }
        if self.has_room(entries) {
            return Ok(Admission::Accept);
        }
        if self.connections.iter().flatten().any(|one| one.must_end) {
            return Ok(Admission::Wait);
        }
        let Some(victim) = self.victim(address) else {
            return Ok(Admission::Refuse(TargetCounter::ConnectionsFull));
        };
        self.io.count(TargetCounter::ConnectionsEvicted);
        if let Some(connection) = self.connections.get_mut(victim).and_then(Option::as_mut) {
            connection.end(&mut self.io)?;
        }
        Ok(Admission::Wait)
    }

    /// Returns the first free slot.
    pub(super) fn free_place(&self) -> usize {
        self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len())
    }

    fn has_room(&self, entries: u16) -> bool {
        let reserved = u64::from(entries_reserved(entries.into()));
        self.free_place() < self.limits.connections.min(CONNECTIONS_MAX)
            && self.reserved + reserved <= u64::from(self.limits.completions)
            && self.io.memory.free_capsule_count() >= entries.into()
    }

    /// Lets a request wait for its slot. Returns it if too many do.
    pub(super) fn defer(&mut self, arrival: Arrival, reject_at_ms: Option<u64>) -> Option<Arrival> {
        let key = host_key(arrival.address());
        let same = self.deferred.iter().filter(|(one, _)| host_key(one.address()) == key).count();
        if self.deferred.len() >= DEFERRED_MAX || same >= DEFERRED_PER_ADDRESS_MAX {
            return Some(arrival);
        }
        self.deferred.push_back((arrival, reject_at_ms.unwrap_or(self.io.now_ms + DEFER_MS)));
        None
    }

    /// Returns the connection that ends for a newcomer.
    fn victim(&self, newcomer: IpAddr) -> Option<usize> {
        let all = || self.connections.iter().flatten().map(Box::as_ref);
        let live = || all().filter(|one: &&Connection| !one.is_ended && !one.must_end);
        let loose = || live().filter(|one| !one.serves_storage());
        let mut by_party = BTreeMap::new();
        loose().for_each(|one| *by_party.entry(one.who.party).or_insert(0) += 1);
        if let Some(&most) = by_party.values().max() {
            let party = self.io.parties.number_of(newcomer);
            let own = party.and_then(|party| by_party.get(&party)).copied().unwrap_or(0);
            let of_greediest = |one: &&Connection| by_party.get(&one.who.party) == Some(&most);
            let oldest = loose().filter(of_greediest).min_by_key(|one| one.accepted_ms);
            return oldest.filter(|_| most > own).map(|one| one.who.connection as usize);
        }
        let count = |party: u32| self.io.parties.connections(party);
        let most = live().map(|one| count(one.who.party)).max()?;
        let youngest = live().filter(|one| count(one.who.party) == most).max_by_key(|one| one.accepted_ms);
        let own = self.io.parties.connections_of(newcomer);
        youngest.filter(|_| most >= own + 2).map(|one| one.who.connection as usize)
    }
}
