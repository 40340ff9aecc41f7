//! The neighbour table of both families: bounded, aged, and refreshed before it is needed.
//!
//! ```text
//!           ask                 answer
//!   absent ----> Asking --------------------> Known <-----------.
//!     ^            | no answer                  | fresh_for     | answer
//!     |            v                            v               |
//!     '-------- Failed          unused: absent, used: Probing --'
//!                                               | no answer: absent
//! ```
//! A neighbour that has told its link address without answering us is `Known` but not sure: RFC 4861's STALE. When it is
//! used, it is asked after a short while (DELAY, then PROBE); one that answered is sure until `fresh_for` has passed
//! (REACHABLE).
//!
//! An entry is asked at most once in `retry_every`, and there are at most `entries_max`, so the table bounds the
//! rate of requests by itself (RFC 1122 s2.3.2.1). Time is an argument; requests go out through a closure.
//!
//! Source: RFC 826; RFC 1122 s2.3.2; RFC 4861 s7.2 and s7.3. Nothing here is on the way of a segment.

use core::net::{IpAddr, Ipv4Addr};

use ironwarp_types::{MacAddr, Nanos};

use crate::config::NeighbourConfig;
use crate::flow::{FlowHasher, FlowTable};

/// Slots examined for a neighbour that a request from the wire would add. An unsolicited entry gets no full scan.
const UNSOLICITED_SCAN: usize = 8;

/// The most entries: a pass over all of them, which due ones cause, stays below about 100 us.
const ENTRIES_MAX: u32 = 1 << 16;

/// What the table says about an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    /// Its link address.
    Known(MacAddr),
    /// It was asked and may still answer.
    Pending,
    /// It has just become asked: the caller sends the request.
    SendRequest,
    /// It was asked and did not answer.
    Failed,
    /// There is no place to remember it.
    TableFull,
}

/// What became of a link address that a neighbour told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LearnOutcome {
    /// Somebody may have waited for it.
    Resolved,
    /// What was known already.
    Confirmed,
    /// A known neighbour has another link address now.
    Moved,
    /// A new neighbour.
    Added,
    /// Not remembered: unknown and not to be added, or no place.
    Ignored,
}

/// What a neighbour told about itself, and how far that goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NeighbourUpdate {
    pub(crate) mac: MacAddr,
    /// Whether a neighbour that nobody asked for is remembered.
    pub(crate) add: bool,
    /// Whether another link address that is known gives way (RFC 4861 s4.4, override).
    pub(crate) overrides: bool,
    /// Whether it answers us, so that packets are known to arrive both ways (RFC 4861 s4.4, solicited).
    pub(crate) confirms: bool,
}

impl NeighbourUpdate {
    /// What ARP says, which has no finer distinctions: RFC 826 lets the newest word win.
    pub(crate) fn by_arp(mac: MacAddr, add: bool) -> NeighbourUpdate {
        NeighbourUpdate { mac, add, overrides: true, confirms: true }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Asking { tries: u8 },
    Known { mac: MacAddr, used: bool, sure: bool },
    Probing { mac: MacAddr, tries: u8 },
    Failed,
}

#[derive(Clone, Copy)]
struct Entry {
    addr: IpAddr,
    state: State,
    /// When the state has something to do next.
    due: Nanos,
}

const FREE: Entry = Entry { addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED), state: State::Free, due: Nanos::MAX };

/// The table.
pub(crate) struct Neighbours {
    cfg: NeighbourConfig,
    entries: Box<[Entry]>,
    free: Vec<u32>,
    index: FlowTable,
    hasher: FlowHasher,
    /// No entry is due before this.
    next_due: Nanos,
    /// Where the search for an entry to give up begins.
    hand: usize,
}

impl Neighbours {
    pub(crate) fn new(cfg: NeighbourConfig, hasher: FlowHasher) -> Self {
        let entries = cfg.entries_max.clamp(1, ENTRIES_MAX);
        Neighbours {
            cfg: NeighbourConfig { tries_max: cfg.tries_max.max(1), ..cfg },
            entries: vec![FREE; entries as usize].into_boxed_slice(),
            free: (0..entries).rev().collect(),
            index: FlowTable::new(entries as usize),
            hasher,
            next_due: Nanos::MAX,
            hand: 0,
        }
    }

    /// The link address of `addr`, for somebody who wants to send there.
    pub(crate) fn ask(&mut self, now: Nanos, addr: IpAddr) -> Lookup {
        let Some(at) = self.find(addr) else { return self.begin_asking(now, addr) };
        let doubt = now + self.cfg.doubt_after;
        let Some(&entry) = self.entries.get(at) else { return Lookup::TableFull };
        match entry.state {
            State::Known { mac, used, sure } => {
                // RFC 4861 s7.3.3: the first use of a stale entry starts the delay before it is probed.
                let due = if sure || used { entry.due } else { entry.due.min(doubt) };
                self.set(at, Entry { state: State::Known { mac, used: true, sure }, due, ..entry });
                Lookup::Known(mac)
            }
            State::Probing { mac, .. } => Lookup::Known(mac),
            State::Asking { .. } => Lookup::Pending,
            State::Failed => Lookup::Failed,
            State::Free => Lookup::TableFull,
        }
    }

    /// What a neighbour told about itself.
    pub(crate) fn learn(&mut self, now: Nanos, addr: IpAddr, update: NeighbourUpdate) -> LearnOutcome {
        if let Some(at) = self.find(addr) {
            return self.merge(now, at, update);
        }
        let state = State::Known { mac: update.mac, used: false, sure: update.confirms };
        let added =
            update.add && self.insert(Entry { addr, state, due: now + self.cfg.fresh_for }, UNSOLICITED_SCAN);
        if added { LearnOutcome::Added } else { LearnOutcome::Ignored }
    }

    /// A neighbour answered us without naming its link address: what is known of it is right (RFC 4861 s7.2.5).
    pub(crate) fn confirm(&mut self, now: Nanos, addr: IpAddr) -> LearnOutcome {
        let known = self.find(addr).and_then(|at| self.entries.get(at)).map(|entry| entry.state);
        match known {
            Some(State::Known { mac, .. } | State::Probing { mac, .. }) => {
                self.learn(now, addr, NeighbourUpdate { mac, add: false, overrides: false, confirms: true })
            }
            _ => LearnOutcome::Ignored,
        }
    }

    /// The link address of a neighbour, if it is known, and whether it came in reply to a request of ours.
    pub(crate) fn known(&self, addr: IpAddr) -> Option<(MacAddr, bool)> {
        match self.find(addr).and_then(|at| self.entries.get(at))?.state {
            State::Known { mac, sure, .. } => Some((mac, sure)),
            State::Probing { mac, .. } => Some((mac, false)),
            State::Asking { .. } | State::Failed | State::Free => None,
        }
    }

    /// When [`Neighbours::on_due`] has something to do.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        (self.next_due != Nanos::MAX).then_some(self.next_due)
    }

    /// Repeats requests, probes what is in use, forgets what is not. `send` asks one neighbour, at its link address
    /// where one is known. Answers how many neighbours were given up because they did not answer.
    pub(crate) fn on_due(&mut self, now: Nanos, mut send: impl FnMut(IpAddr, Option<MacAddr>)) -> u32 {
        let mut lost = 0;
        self.next_due = Nanos::MAX;
        for at in 0..self.entries.len() {
            let Some(&entry) = self.entries.get(at) else { break };
            if entry.due <= now {
                match self.next_request(entry.state) {
                    Some((state, mac)) => {
                        self.set(at, Entry { state, due: now + self.cfg.retry_every, ..entry });
                        send(entry.addr, mac);
                    }
                    None => lost += self.give_up(at, entry, now),
                }
            }
            let due = self.entries.get(at).map_or(Nanos::MAX, |entry| entry.due);
            self.next_due = self.next_due.min(due);
        }
        lost
    }

    /// The request that a due entry still has to send, and the state that sending it leads to.
    fn next_request(&self, state: State) -> Option<(State, Option<MacAddr>)> {
        match state {
            State::Asking { tries } if tries < self.cfg.tries_max => {
                Some((State::Asking { tries: tries + 1 }, None))
            }
            // RFC 1122 s2.3.2.1 (2): ask the station itself, and forget it after some requests without an answer.
            State::Known { mac, used: true, .. } => Some((State::Probing { mac, tries: 1 }, Some(mac))),
            State::Probing { mac, tries } if tries < self.cfg.tries_max => {
                Some((State::Probing { mac, tries: tries + 1 }, Some(mac)))
            }
            _ => None,
        }
    }

    /// Ends a due entry that has nothing more to send. Answers how many did not answer: one or none.
    fn give_up(&mut self, at: usize, entry: Entry, now: Nanos) -> u32 {
        match entry.state {
            State::Asking { .. } => {
                self.set(at, Entry { state: State::Failed, due: now + self.cfg.absent_for, ..entry });
                1
            }
            State::Probing { .. } => {
                self.forget(at);
                1
            }
            State::Known { .. } | State::Failed | State::Free => {
                self.forget(at);
                0
            }
        }
    }

    fn begin_asking(&mut self, now: Nanos, addr: IpAddr) -> Lookup {
        let due = now + self.cfg.retry_every;
        let entry = Entry { addr, state: State::Asking { tries: 1 }, due };
        if self.insert(entry, usize::MAX) { Lookup::SendRequest } else { Lookup::TableFull }
    }

    /// RFC 826 (merge), RFC 4861 s7.2.3 and s7.2.5.
    fn merge(&mut self, now: Nanos, at: usize, update: NeighbourUpdate) -> LearnOutcome {
        let Some(&before) = self.entries.get(at) else { return LearnOutcome::Ignored };
        let NeighbourUpdate { mac, confirms: sure, overrides, .. } = update;
        let fresh = now + self.cfg.fresh_for;
        let (outcome, state, due) = match before.state {
            State::Known { mac: old, .. } | State::Probing { mac: old, .. } if old == mac && sure => {
                (LearnOutcome::Confirmed, State::Known { mac, used: false, sure }, fresh)
            }
            State::Known { mac: old, .. } | State::Probing { mac: old, .. } if old == mac => {
                (LearnOutcome::Confirmed, before.state, before.due)
            }
            // Another link address that must not replace the known one only casts doubt on it.
            State::Known { mac: old, used, .. } if !overrides => {
                let due = if used { before.due.min(now + self.cfg.doubt_after) } else { before.due };
                (LearnOutcome::Confirmed, State::Known { mac: old, used, sure: false }, due)
            }
            State::Probing { .. } if !overrides => (LearnOutcome::Confirmed, before.state, before.due),
            State::Known { used, .. } if !sure && used => {
                (LearnOutcome::Moved, State::Known { mac, used, sure }, now + self.cfg.doubt_after)
            }
            State::Known { .. } | State::Probing { .. } => {
                (LearnOutcome::Moved, State::Known { mac, used: false, sure }, fresh)
            }
            State::Asking { .. } | State::Failed | State::Free => {
                (LearnOutcome::Resolved, State::Known { mac, used: false, sure }, fresh)
            }
        };
        self.set(at, Entry { state, due, ..before });
        outcome
    }

    /// Adds an entry, in the place of another when there is no free one and one of the next `scan` can be given up.
    fn insert(&mut self, entry: Entry, scan: usize) -> bool {
        if self.free.is_empty() {
            self.give_one_up(scan);
        }
        let Some(at) = self.free.pop() else { return false };
        if self.index.insert(self.hash(entry.addr), at).is_err() {
            self.free.push(at);
            return false;
        }
        self.set(at as usize, entry);
        true
    }

    /// Forgets a neighbour that nobody has asked for since it last answered. Asked ones stay: forgetting them would
    /// let them be asked too often.
    fn give_one_up(&mut self, scan: usize) {
        let len = self.entries.len();
        for _ in 0..scan.min(len) {
            self.hand = (self.hand + 1).checked_rem(len).unwrap_or(0);
            let state = self.entries.get(self.hand).map(|entry| entry.state);
            if let Some(State::Known { used: false, .. }) = state {
                return self.forget(self.hand);
            }
        }
    }

    fn forget(&mut self, at: usize) {
        let Some(&entry) = self.entries.get(at) else { return };
        if entry.state != State::Free && self.index.remove(self.hash(entry.addr), at as u32) {
            self.free.push(at as u32);
        }
        self.set(at, FREE);
    }

    fn find(&self, addr: IpAddr) -> Option<usize> {
        let owns = |at: u32| self.entries.get(at as usize).is_some_and(|entry| entry.addr == addr);
        self.index.lookup(self.hash(addr), owns).map(|at| at as usize)
    }

    fn set(&mut self, at: usize, to: Entry) {
        self.next_due = self.next_due.min(to.due);
        if let Some(entry) = self.entries.get_mut(at) {
            *entry = to;
        }
    }

    fn hash(&self, addr: IpAddr) -> u32 {
        self.hasher.hash_addr(addr)
    }

    /// Invariants: every entry is either free or found under its own address, and none is due before `next_due`.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let taken = || self.entries.iter().enumerate().filter(|(_, entry)| entry.state != State::Free);
        if taken().count() != self.index.len() || self.free.len() + self.index.len() != self.entries.len() {
            return Err("entries, free list and index disagree on how many there are");
        }
        if taken().any(|(at, entry)| self.find(entry.addr) != Some(at)) {
            return Err("a neighbour is not found under its address");
        }
        if taken().any(|(_, entry)| entry.due < self.next_due) {
            return Err("a neighbour is due before the table is");
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
