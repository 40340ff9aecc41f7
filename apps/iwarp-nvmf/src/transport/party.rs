//! The hosts that a core serves, and what each of them takes.
//!
//! A party is a host, known by its address: names can be claimed by anyone. All addresses of an
//! IPv6 network of 64 bits are one party, since a host can use any of them (RFC 4291 s2.5.1).
//!
//! A turn of the core has [`TURN_COST_SHARED`] to spend while several hosts are active. Each of
//! them may spend its share of it at once; commands beyond that wait until the end of the turn,
//! when the party that has spent least goes first until nothing is left. What a party spent beyond
//! its share is a debt that its shares of the next turns pay. So what others leave is used, and a
//! host that uses it gives way when they come: a burst of a host that was below its share is served
//! at once.

use core::net::{IpAddr, Ipv6Addr};

/// What a core spends in a turn for one host, in bytes touched: some tens of microseconds.
pub const TURN_COST_ALONE: u64 = 128 << 10;
/// The same with several active hosts: a command or two. In a turn the stack sends little of each
/// queue pair, two segments beside small messages, and takes a burst of frames. The longer a turn
/// is, the longer one host's data and frames wait for another's commands.
pub const TURN_COST_SHARED: u64 = 8 << 10;
/// The largest debt: a host that was alone for long is not kept waiting for as long.
pub const DEBT_MAX: u64 = 512 << 10;
/// What a command costs apart from its bytes.
pub const COMMAND_COST: u64 = 4096;
/// What a connection costs: a queue pair, its receives, and its end.
pub const CONNECTION_COST: u64 = 32 << 10;
/// The least that a step costs, so that every turn ends.
pub const STEP_COST: u64 = 512;

/// How much work counts against the share of its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    /// Commands that move data.
    Io = 1,
    /// Connections, admin commands, and fills of memory: they give way to data. Among several hosts
    /// that are never content, one that asks for nothing else gets a fifth of the core beside one
    /// that moves data.
    Background = 4,
}

/// A host.
#[derive(Clone, Copy, Debug)]
struct Party {
    address: IpAddr,
    /// Its connections.
    connections: u32,
    /// What it has spent beyond the shares of the turns that are over.
    spent: u64,
    /// The turn in which `spent` was right.
    turn: u64,
    /// Whether it has spent something since the last but one [`Parties::recount`], and since the
    /// last.
    is_active: bool,
    is_recent: bool,
}

/// The hosts of a core by number, and what is left of this turn.
#[derive(Debug, Default)]
pub struct Parties {
    all: Vec<Option<Party>>,
    /// Active parties.
    active: u64,
    /// The share of a turn that each of them may spend at once.
    share: u64,
    turn: u64,
    left: u64,
    /// What was spent in all turns.
    spent: u64,
}

impl Parties {
    /// Begins a turn.
    pub fn begin_turn(&mut self) {
        self.turn += 1;
        self.left = self.turn_cost();
    }

    /// Returns whether several hosts are active.
    pub fn are_several(&self) -> bool {
        self.active > 1
    }

    fn turn_cost(&self) -> u64 {
        if self.are_several() { TURN_COST_SHARED } else { TURN_COST_ALONE }
    }

    /// Counts a connection. Returns the number of its host.
    pub fn join(&mut self, address: IpAddr) -> u32 {
        let key = host_key(address);
        let found = self.number_of(address).map(|party| party as usize);
        let free = || self.all.iter().position(Option::is_none);
        let at = found.or_else(free).unwrap_or(self.all.len());
        if at == self.all.len() {
            self.all.push(None);
        }
        let (connections, spent, turn, is_active, is_recent) = (0, 0, self.turn, false, false);
        let new = Party { address: key, connections, spent, turn, is_active, is_recent };
        if let Some(place) = self.all.get_mut(at) {
            place.get_or_insert(new).connections += 1;
        }
        at as u32
    }

    /// Ends a connection of a host. Without one it is forgotten by [`Parties::recount`]: it must
    /// not lose its debt by coming back at once.
    pub fn leave(&mut self, party: u32) {
        if let Some(Some(one)) = self.all.get_mut(party as usize) {
            one.connections = one.connections.saturating_sub(1);
        }
    }

    /// Forgets which hosts are active, except those that have spent something since the last call,
    /// and hosts that are gone.
    pub fn recount(&mut self) {
        for place in &mut self.all {
            let Some(party) = place else { continue };
            if party.connections == 0 && !party.is_recent {
                *place = None;
                continue;
            }
            party.is_active = core::mem::take(&mut party.is_recent);
        }
        self.set_share();
    }

    #[cold]
    fn set_share(&mut self) {
        self.active = self.all.iter().flatten().filter(|party| party.is_active).count() as u64;
        self.share = self.turn_cost() / self.active.max(1);
    }

    /// Returns the connections of the host at an address.
    pub fn connections_of(&self, address: IpAddr) -> u32 {
        self.number_of(address).map_or(0, |party| self.connections(party))
    }

    /// Returns the number of the host at an address.
    pub fn number_of(&self, address: IpAddr) -> Option<u32> {
        let key = host_key(address);
        let is_same = |one: &Option<Party>| one.is_some_and(|party| party.address == key);
        self.all.iter().position(is_same).map(|at| at as u32)
    }

    /// Returns the connections of a host.
    pub fn connections(&self, party: u32) -> u32 {
        self.at(party).map_or(0, |party| party.connections)
    }

    fn at(&self, party: u32) -> Option<&Party> {
        self.all.get(party as usize)?.as_ref()
    }

    /// Returns what a host has spent of this turn, and too much of the turns before.
    #[inline]
    pub fn spent(&self, party: u32) -> u64 {
        let paid = |one: &Party| (self.turn - one.turn).saturating_mul(self.share);
        self.at(party).map_or(0, |one| one.spent.saturating_sub(paid(one)))
    }

    /// Returns whether a host may spend at once.
    #[inline]
    pub fn admits(&self, party: u32) -> bool {
        self.left > 0 && (self.active == 0 || self.spent(party) < self.share)
    }

    /// Returns what is left of this turn.
    #[inline]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns what all hosts have spent since the start.
    pub fn total(&self) -> u64 {
        self.spent
    }

    /// Charges a host for work.
    #[inline]
    pub fn charge(&mut self, party: u32, cost: u64, weight: Weight) {
        let (cost, before, turn) = (cost.max(STEP_COST), self.spent(party), self.turn);
        self.left = self.left.saturating_sub(cost);
        self.spent = self.spent.wrapping_add(cost);
        if let Some(Some(one)) = self.all.get_mut(party as usize) {
            (one.spent, one.turn, one.is_recent) =
                ((before + cost * weight as u64).min(DEBT_MAX), turn, true);
            if !core::mem::replace(&mut one.is_active, true) {
                self.set_share();
            }
        }
    }
}

/// Returns the key of all addresses that may be the same host.
pub fn host_key(host: IpAddr) -> IpAddr {
    match host {
        IpAddr::V4(_) => host,
        IpAddr::V6(host) => Ipv6Addr::from_bits(host.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one_party() {
        let mut parties = Parties::default();
        let hosts = ["2001:db8::1", "2001:db8::2:0:0:1", "2001:db8:0:1::1", "192.0.2.1", "192.0.2.2"];
        assert_eq!(hosts.map(|one| parties.join(address(one))), [0, 0, 1, 2, 3]);
        assert_eq!(hosts.map(|one| parties.connections_of(address(one))), [2, 2, 1, 1, 1]);
        parties.leave(1);
        parties.recount();
        assert_eq!(parties.join(address("192.0.2.3")), 1, "a free number is used again");
    }

    #[test]
    fn a_host_spends_its_share_and_pays_later_for_more() {
        let mut parties = Parties::default();
        let (a, b) = (parties.join(address("10.0.0.1")), parties.join(address("10.0.0.2")));
        parties.charge(b, 1, Weight::Io);
        parties.begin_turn();
        parties.begin_turn();
        parties.charge(a, TURN_COST_SHARED / 2 + 1000, Weight::Io);
        assert!(!parties.admits(a) && parties.admits(b));
        parties.begin_turn();
        assert_eq!((parties.spent(a), parties.spent(b), parties.left()), (1000, 0, TURN_COST_SHARED));
        parties.begin_turn();
        assert_eq!(parties.spent(a), 0);
        parties.charge(a, 1, Weight::Io);
        assert_eq!(parties.spent(a), STEP_COST, "every step costs something");
        (0..1000).for_each(|_| parties.charge(a, TURN_COST_SHARED, Weight::Io));
        assert_eq!(parties.spent(a), DEBT_MAX);
    }

    /// Each of its connections ends as soon as it is made.
    #[test]
    fn a_host_that_leaves_and_comes_back_keeps_its_debt() {
        let mut parties = Parties::default();
        let (a, b) = (parties.join(address("10.0.0.1")), parties.join(address("10.0.0.2")));
        parties.charge(a, 1, Weight::Io);
        parties.charge(b, CONNECTION_COST, Weight::Background);
        let debt = parties.spent(b);
        parties.leave(b);
        assert!(parties.are_several(), "it has just been here");
        assert_eq!((parties.join(address("10.0.0.2")), parties.spent(b)), (b, debt));
        parties.leave(b);
        parties.recount();
        assert_eq!(parties.number_of(address("10.0.0.2")), Some(b), "what it spent is recent");
        parties.recount();
        assert_eq!(parties.number_of(address("10.0.0.2")), None);
        assert!(!parties.are_several());
    }

    /// A host that is connected and silent does not shorten the turns.
    #[test]
    fn a_host_alone_has_the_whole_turn() {
        let mut parties = Parties::default();
        let (a, b) = (parties.join(address("10.0.0.1")), parties.join(address("10.0.0.2")));
        parties.begin_turn();
        parties.charge(a, TURN_COST_ALONE - 1, Weight::Io);
        assert!(parties.admits(a));
        parties.charge(a, STEP_COST, Weight::Io);
        assert!(!parties.admits(a) && parties.left() == 0);
        parties.charge(b, 1, Weight::Io);
        parties.begin_turn();
        assert_eq!(parties.left(), TURN_COST_SHARED);
        (0..2).for_each(|_| parties.recount());
        parties.begin_turn();
        assert!(parties.admits(a) && parties.left() == TURN_COST_ALONE, "nobody was active");
        parties.leave(b);
    }
}
