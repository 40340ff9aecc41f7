//! Connection requests that a core has not answered yet, in turn by host.
//!
//! To answer one is more work than a turn among several hosts: a queue pair is made, and the
//! receives of its queue are posted. So a turn answers at most one, and the turns after it pay for
//! that before the next one, while the commands of other hosts go on. A core with one active host
//! pays at once.
//!
//! The list is bounded. A host with [`PER_HOST_MAX`] requests in it gets no more; when
//! [`REQUESTS_MAX`] wait, the host with the most loses its newest. Adding and taking cost a step
//! each, a request that ends early a look at those of its host.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use ironwarp::ConnectionRequest;

use super::listener::Arrival;
use super::party::{TURN_COST_ALONE, TURN_COST_SHARED, host_key};

/// Requests that wait, of all hosts and of one: more than a host has queues.
const REQUESTS_MAX: usize = 256;
const PER_HOST_MAX: usize = 128;
/// What a turn pays for set-up among several hosts: a quarter of its commands.
const SETUP_PER_TURN: u64 = TURN_COST_SHARED / 4;

/// The requests of a core.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Hosts with requests, the next one first.
    hosts: VecDeque<IpAddr>,
    by_host: BTreeMap<IpAddr, VecDeque<Arrival>>,
    len: usize,
    /// What the last answer cost and no turn has paid for.
    debt: u64,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Begins a turn.
    pub(super) fn begin_turn(&mut self, is_shared: bool) {
        let pays = if is_shared { SETUP_PER_TURN } else { TURN_COST_ALONE };
        self.debt = self.debt.saturating_sub(pays);
    }

    /// Returns whether the turns have paid for the last answer.
    pub(super) fn may_answer(&self) -> bool {
        self.debt == 0
    }

    /// Charges the next turns for an answer.
    pub(super) fn charge(&mut self, cost: u64) {
        self.debt += cost;
    }

    /// Adds a request. Returns one that finds no room: this one, or the newest of the host with the
    /// most.
    pub(super) fn push(&mut self, arrival: Arrival) -> Option<Arrival> {
        let key = host_key(arrival.address());
        let own = self.by_host.get(&key).map_or(0, VecDeque::len);
        if own >= PER_HOST_MAX {
            return Some(arrival);
        }
        let mut refused = None;
        if self.len >= REQUESTS_MAX {
            let most = self.by_host.iter().max_by_key(|(_, waiting)| waiting.len());
            match most.map(|(&host, waiting)| (host, waiting.len())) {
                Some((host, most)) if most > own + 1 => refused = self.take_newest(host),
                _ => return Some(arrival),
            }
        }
        let waiting = self.by_host.entry(key).or_default();
        if waiting.is_empty() {
            self.hosts.push_back(key);
        }
        waiting.push_back(arrival);
        self.len += 1;
        refused
    }

    fn take_newest(&mut self, host: IpAddr) -> Option<Arrival> {
        // It has two at least, so it keeps its turn.
        let newest = self.by_host.get_mut(&host)?.pop_back()?;
        self.len -= 1;
        Some(newest)
    }

    /// Takes the next request: its host has its next turn after all others.
    pub(super) fn pop(&mut self) -> Option<Arrival> {
        let host = self.hosts.pop_front()?;
        let waiting = self.by_host.get_mut(&host)?;
        let next = waiting.pop_front();
        if waiting.is_empty() {
            self.by_host.remove(&host);
        } else {
            self.hosts.push_back(host);
        }
        self.len -= usize::from(next.is_some());
        next
    }

    /// Forgets a request that has ended.
    pub(super) fn remove(&mut self, request: &ConnectionRequest) {
        for (host, waiting) in &mut self.by_host {
            let Some(at) = waiting.iter().position(|one| one.is_of(request)) else { continue };
            waiting.remove(at);
            self.len -= 1;
            if waiting.is_empty() {
                let host = *host;
                self.hosts.retain(|&one| one != host);
                self.by_host.remove(&host);
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use super::*;

    fn arrival(host: u8, number: u64) -> Arrival {
        let remote = SocketAddr::from(([10, 0, 0, host], 1000));
        Arrival::new(ConnectionRequest::from_bits([number, 0]), remote, &[], None)
    }

    fn order(requests: &mut Requests) -> Vec<(u8, u64)> {
        let host = |one: &Arrival| match one.address() {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(_) => 0,
        };
        core::iter::from_fn(|| requests.pop()).map(|one| (host(&one), one.number())).collect()
    }

    #[test]
    fn hosts_take_turns() {
        let mut requests = Requests::default();
        for (host, number) in [(1, 0), (1, 1), (1, 2), (2, 3), (3, 4)] {
            assert!(requests.push(arrival(host, number)).is_none());
        }
        requests.remove(&ConnectionRequest::from_bits([1, 0]));
        requests.remove(&ConnectionRequest::from_bits([4, 0]));
        requests.remove(&ConnectionRequest::from_bits([99, 0]));
        assert_eq!(requests.len(), 3);
        assert_eq!(order(&mut requests), [(1, 0), (2, 3), (1, 2)]);
        assert_eq!((requests.len(), requests.by_host.len(), requests.hosts.len()), (0, 0, 0));
    }

    #[test]
    fn the_host_with_the_most_loses_when_the_list_is_full() {
        let mut requests = Requests::default();
        let refused = |requests: &mut Requests, host, number| {
            requests.push(arrival(host, number)).map(|one| (one.address(), one.number()))
        };
        let address = |host: u8| IpAddr::from([10, 0, 0, host]);
        for number in 0..PER_HOST_MAX as u64 {
            assert_eq!(refused(&mut requests, 1, number), None);
            assert_eq!(refused(&mut requests, 2, 1000 + number), None);
        }
        assert_eq!(refused(&mut requests, 1, 999), Some((address(1), 999)), "one host's bound");
        let (_, loser) = refused(&mut requests, 3, 5000).expect("the list is full");
        assert!(loser == 127 || loser == 1127, "the newest of a host with the most: {loser}");
        assert_eq!((requests.len(), requests.hosts.len()), (REQUESTS_MAX, 3));
        assert!(order(&mut requests)[..3].contains(&(3, 5000)), "it has the third turn at the latest");
    }

    #[test]
    fn the_turns_after_an_answer_pay_for_it() {
        let mut requests = Requests::default();
        requests.charge(4 * SETUP_PER_TURN);
        for _ in 0..3 {
            requests.begin_turn(true);
            assert!(!requests.may_answer());
        }
        requests.begin_turn(true);
        assert!(requests.may_answer());
        requests.charge(TURN_COST_ALONE);
        requests.begin_turn(false);
        assert!(requests.may_answer(), "nobody else is there");
    }
}
