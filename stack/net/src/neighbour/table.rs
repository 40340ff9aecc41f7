//! The neighbour table of both families: bounded, with expiry, and refreshed while a neighbour is
//! in use.
//!
//! ```text
//!           resolve             reply
//!   absent ---------> Incomplete ---------------> Known <-----------------.
//!     ^                  | no reply                 | reachable_time      | reply
//!     |                  v                          v                     |
//!     '-- hold time -- Failed        unused: absent, used: Probe ---------'
//!                                                     | no reply: absent
//! ```
//! RFC 4861 divides `Known`. Without `confirmed` it is STALE while unused and DELAY while used: the
//! first use starts `delay_first_probe`, then the neighbour is probed. With `confirmed` it is
//! REACHABLE.
//!
//! A request to one neighbour is sent at most once per `retrans_timer`, and there are at most
//! `entries_max` neighbours, so the table bounds the rate of requests (RFC 1122 s2.3.2.1). The time
//! is an argument; requests go out through a closure.
//!
//! Source: RFC 826; RFC 1122 s2.3.2; RFC 4861 s7.2 and s7.3. Cost: none on the data path, because a
//! [`Path`](crate::Path) contains the link address.

use core::net::IpAddr;

use ironwarp_types::{MacAddr, Nanos};

use crate::address_table::{self, AddressTable};
use crate::config::NeighbourConfig;
use crate::flow::FlowHasher;

/// Slots that are examined to add a neighbour that only a request from the network named.
const UNSOLICITED_SCAN: usize = 8;

/// The largest capacity. A pass over all entries, which a deadline causes, takes less than about
/// 100 us.
const ENTRIES_MAX: u32 = 1 << 16;

/// The result of [`NeighbourTable::resolve`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    Known(MacAddr),
    /// A request was sent and may still get a reply.
    Pending,
    /// The entry is new: the caller sends the request.
    SendRequest,
    /// No request got a reply.
    Failed,
    TableFull,
}

/// The result of [`NeighbourTable::learn`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LearnOutcome {
    /// An entry without a link address got one. Callers may wait for it.
    Resolved,
    /// The link address did not change.
    Confirmed,
    /// The link address of a known neighbour changed.
    Moved,
    /// A neighbour was added.
    Added,
    /// An unknown neighbour was not added, because the update does not ask for it or the table is
    /// full.
    Ignored,
}

/// The link address of a neighbour and how the table uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NeighbourUpdate {
    pub(crate) mac: MacAddr,
    /// Adds the neighbour if it is unknown.
    pub(crate) add: bool,
    /// Replaces another known link address (RFC 4861 s4.4, override flag).
    pub(crate) overrides: bool,
    /// The neighbour replied to a request, so packets arrive in both directions (RFC 4861 s4.4,
    /// solicited flag).
    pub(crate) confirms: bool,
}

impl NeighbourUpdate {
    /// Returns the update of an ARP packet. ARP has no flags: RFC 826 lets the newest packet win.
    pub(crate) fn from_arp(mac: MacAddr, add: bool) -> NeighbourUpdate {
        NeighbourUpdate { mac, add, overrides: true, confirms: true }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Incomplete { tries: u8 },
    Known { mac: MacAddr, used: bool, confirmed: bool },
    Probe { mac: MacAddr, tries: u8 },
    Failed,
}

#[derive(Clone, Copy)]
struct Entry {
    addr: IpAddr,
    state: State,
    /// When the state times out.
    due: Nanos,
}

impl address_table::Entry for Entry {
    fn addr(&self) -> IpAddr {
        self.addr
    }

    fn due(&self) -> Nanos {
        self.due
    }
}

impl Entry {
    /// Returns whether the entry may be evicted: it was not used since its last confirmation. An
    /// unresolved one may not: without it requests could be sent too often.
    fn is_unused(&self) -> bool {
        matches!(self.state, State::Known { used: false, .. })
    }
}

pub(crate) struct NeighbourTable {
    cfg: NeighbourConfig,
    table: AddressTable<Entry>,
}

impl NeighbourTable {
    pub(crate) fn new(cfg: NeighbourConfig, hasher: FlowHasher) -> Self {
        NeighbourTable {
            cfg: NeighbourConfig { solicitations_max: cfg.solicitations_max.max(1), ..cfg },
            table: AddressTable::new(cfg.entries_max.clamp(1, ENTRIES_MAX), hasher),
        }
    }

    /// Returns the link address of `addr` for a caller that sends there, which marks the entry as
    /// used.
    pub(crate) fn resolve(&mut self, now: Nanos, addr: IpAddr) -> Lookup {
        let Some((at, entry)) = self.table.find(addr) else { return self.start_resolution(now, addr) };
        match entry.state {
            State::Known { mac, used, confirmed } => {
                // RFC 4861 s7.3.3: the first use of a STALE entry starts the delay before it is
                // probed.
                let probe_at = now + self.cfg.delay_first_probe;
                let due = if confirmed || used { entry.due } else { entry.due.min(probe_at) };
                self.table
                    .set(at, Entry { state: State::Known { mac, used: true, confirmed }, due, ..entry });
                Lookup::Known(mac)
            }
            State::Probe { mac, .. } => Lookup::Known(mac),
            State::Incomplete { .. } => Lookup::Pending,
            State::Failed => Lookup::Failed,
        }
    }

    fn start_resolution(&mut self, now: Nanos, addr: IpAddr) -> Lookup {
        let due = now + self.cfg.retrans_timer;
        let entry = Entry { addr, state: State::Incomplete { tries: 1 }, due };
        let added = self.table.insert(entry, usize::MAX, Entry::is_unused);
        if added { Lookup::SendRequest } else { Lookup::TableFull }
    }

    /// Applies an update about `addr`.
    pub(crate) fn learn(&mut self, now: Nanos, addr: IpAddr, update: NeighbourUpdate) -> LearnOutcome {
        if let Some((at, entry)) = self.table.find(addr) {
            let (outcome, entry) = self.merge(now, entry, update);
            self.table.set(at, entry);
            return outcome;
        }
        let state = State::Known { mac: update.mac, used: false, confirmed: update.confirms };
        let entry = Entry { addr, state, due: now + self.cfg.reachable_time };
        let added = update.add && self.table.insert(entry, UNSOLICITED_SCAN, Entry::is_unused);
        if added { LearnOutcome::Added } else { LearnOutcome::Ignored }
    }

    /// RFC 826 (merge), RFC 4861 s7.2.3 and s7.2.5.
    fn merge(&self, now: Nanos, before: Entry, update: NeighbourUpdate) -> (LearnOutcome, Entry) {
        let NeighbourUpdate { mac, confirms: confirmed, overrides, .. } = update;
        let fresh = (State::Known { mac, used: false, confirmed }, now + self.cfg.reachable_time);
        let (outcome, (state, due)) = match before.state {
            State::Known { mac: old, .. } | State::Probe { mac: old, .. } if old == mac => {
                (LearnOutcome::Confirmed, if confirmed { fresh } else { (before.state, before.due) })
            }
            // An update without override does not replace the link address. It only starts a
            // verification.
            State::Known { mac: old, used, .. } if !overrides => {
                let probe_at = now + self.cfg.delay_first_probe;
                let due = if used { before.due.min(probe_at) } else { before.due };
                (LearnOutcome::Confirmed, (State::Known { mac: old, used, confirmed: false }, due))
            }
            State::Probe { .. } if !overrides => (LearnOutcome::Confirmed, (before.state, before.due)),
            State::Known { used: true, .. } if !confirmed => {
                let state = State::Known { mac, used: true, confirmed };
                (LearnOutcome::Moved, (state, now + self.cfg.delay_first_probe))
            }
            State::Known { .. } | State::Probe { .. } => (LearnOutcome::Moved, fresh),
            State::Incomplete { .. } | State::Failed => (LearnOutcome::Resolved, fresh),
        };
        (outcome, Entry { state, due, ..before })
    }

    /// A neighbour replied without its link address, which confirms the known one
    /// (RFC 4861 s7.2.5).
    pub(crate) fn confirm(&mut self, now: Nanos, addr: IpAddr) -> LearnOutcome {
        let Some((mac, _)) = self.known(addr) else { return LearnOutcome::Ignored };
        self.learn(now, addr, NeighbourUpdate { mac, add: false, overrides: false, confirms: true })
    }

    /// Returns the link address of a neighbour if it is known, and whether the neighbour replied to
    /// a request.
    pub(crate) fn known(&self, addr: IpAddr) -> Option<(MacAddr, bool)> {
        match self.table.find(addr)?.1.state {
            State::Known { mac, confirmed, .. } => Some((mac, confirmed)),
            State::Probe { mac, .. } => Some((mac, false)),
            State::Incomplete { .. } | State::Failed => None,
        }
    }

    /// Returns the time from which [`NeighbourTable::on_due`] has work to do.
    pub(crate) fn next_due(&self) -> Nanos {
        self.table.next_due()
    }

    /// Repeats requests, probes neighbours in use, and removes the others. `send` sends one
    /// request: by unicast if it gets a link address. Returns how many neighbours became
    /// unreachable.
    pub(crate) fn on_due(&mut self, now: Nanos, mut send: impl FnMut(IpAddr, Option<MacAddr>)) -> u32 {
        let (cfg, mut unreachable) = (self.cfg, 0);
        self.table.on_due(now, |entry| {
            let (state, mac) = match entry.state {
                State::Incomplete { tries } if tries < cfg.solicitations_max => {
                    (State::Incomplete { tries: tries + 1 }, None)
                }
                // RFC 1122 s2.3.2.1 (2): a unicast poll; the entry is removed after some requests
                // without a reply.
                State::Known { mac, used: true, .. } => (State::Probe { mac, tries: 1 }, Some(mac)),
                State::Probe { mac, tries } if tries < cfg.solicitations_max => {
                    (State::Probe { mac, tries: tries + 1 }, Some(mac))
                }
                State::Incomplete { .. } => {
                    unreachable += 1;
                    return Some(Entry { state: State::Failed, due: now + cfg.failed_hold_time, ..entry });
                }
                State::Probe { .. } => {
                    unreachable += 1;
                    return None;
                }
                State::Known { .. } | State::Failed => return None,
            };
            send(entry.addr, mac);
            Some(Entry { state, due: now + cfg.retrans_timer, ..entry })
        });
        unreachable
    }

    pub(crate) fn check(&self) -> Result<(), &'static str> {
        self.table.check()
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
