//! What the cores of one stack tell each other about the network.
//!
//! The first core leads: it answers ARP and neighbour solicitations, asks for neighbours, probes for and defends the
//! stack's addresses. The others follow: frames of ARP and neighbour discovery that reach them are handed to the leader,
//! a neighbour that they do not know they ask the leader for, and they are told what it learns. So the network sees one
//! station, which asks as often as one station may (RFC 1122 s2.3.2.1), however many cores there are.
//!
//! News wait in a short list until the core loop fetches them. What finds the list full is left out: whoever misses
//! something asks for it again. Only what an address has become is not repeated; for that there are places enough.

use core::net::IpAddr;
use std::collections::VecDeque;

use ironwarp_port::{Port, Wire};
use ironwarp_types::{MacAddr, Nanos};

use crate::neighbour::{Answer, Learnt, Told};
use crate::net::Net;
use crate::own::AddressState;

/// The part that a core has in what its stack knows of the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Part {
    /// There is no other core.
    #[default]
    Alone,
    /// Speaks for all of them.
    Leads,
    /// Asks the leader and is told.
    Follows,
}

/// News for other cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetNews(News);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum News {
    /// A follower wants to know a neighbour's link address.
    Ask(IpAddr),
    /// What a neighbour has told.
    Neighbour(IpAddr, Told),
    /// Packets to a destination may have this many bytes.
    PathMtu(IpAddr, u16),
    /// How an address of ours stands now.
    Address(IpAddr, AddressState),
}

impl NetNews {
    /// Whether only the leader is concerned, and not every other core.
    pub fn is_for_leader(&self) -> bool {
        matches!(self.0, News::Ask(_))
    }

    /// Whether it must not be lost: nobody would ask for it again.
    pub fn must_arrive(&self) -> bool {
        matches!(self.0, News::Address(..))
    }
}

/// News that wait to be fetched.
pub(crate) struct Outbox {
    part: Part,
    waiting: VecDeque<NetNews>,
    places: usize,
}

/// Places for news that may be left out: a burst of answers.
const WAITING_MAX: usize = 64;

impl Outbox {
    pub(crate) fn new(part: Part) -> Self {
        let places = if part == Part::Alone { 0 } else { WAITING_MAX + crate::own::OWN_MAX };
        Outbox { part, waiting: VecDeque::with_capacity(places), places }
    }

    pub(crate) fn follows(&self) -> bool {
        self.part == Part::Follows
    }

    pub(crate) fn leads(&self) -> bool {
        self.part == Part::Leads
    }

    /// A follower wants to know where a neighbour is.
    pub(crate) fn ask(&mut self, addr: IpAddr) {
        self.put(News::Ask(addr));
    }

    fn put(&mut self, news: News) {
        let news = NetNews(news);
        // A later word about the same address takes the earlier one's place, so that there are never more of these than
        // addresses.
        if let News::Address(addr, _) = news.0 {
            self.waiting.retain(|old| !matches!(old.0, News::Address(one, _) if one == addr));
        }
        let places = if news.must_arrive() { self.places } else { WAITING_MAX };
        if self.part != Part::Alone && self.waiting.len() < places {
            self.waiting.push_back(news);
        }
    }
}

impl Net {
    /// News for other cores, one at a time, oldest first.
    pub fn take_news(&mut self) -> Option<NetNews> {
        self.outbox.waiting.pop_front()
    }

    /// News from another core.
    #[cold]
    pub fn on_news<P: Port>(&mut self, now: Nanos, news: NetNews, wire: &mut Wire<P>) {
        match news.0 {
            News::Ask(addr) => self.on_asked(now, addr, wire),
            News::Neighbour(addr, told) => {
                self.learn(now, addr, told);
            }
            News::PathMtu(dst, mtu_bytes) => {
                self.path_mtus.lower(now, dst, mtu_bytes);
            }
            News::Address(addr, state) => {
                let changed = self.own.follow(addr, state);
                self.on_route_change(changed.into());
            }
        }
    }

    /// A follower wants to send to a neighbour: it counts as in use here, and is asked where it is not known.
    fn on_asked<P: Port>(&mut self, now: Nanos, addr: IpAddr, wire: &mut Wire<P>) {
        match self.neighbours.ask(now, addr) {
            Answer::Known(_) => self.tell_neighbour(addr, false),
            Answer::AskNow => self.solicit(addr, None, wire),
            // Whoever asked gives up by itself when nothing comes.
            Answer::Asked | Answer::Failed | Answer::Full => {}
        }
    }

    /// Passes on what the leader has just learnt.
    pub(crate) fn tell_learnt(&mut self, addr: IpAddr, told: Told, learnt: Learnt) {
        if self.outbox.leads() && learnt != Learnt::Ignored {
            self.outbox.put(News::Neighbour(addr, told));
        }
    }

    /// Passes on what the leader knows of a neighbour.
    pub(crate) fn tell_neighbour(&mut self, addr: IpAddr, overrides: bool) {
        if let Some((mac, confirms)) = self.neighbours.known(addr).filter(|_| self.outbox.leads()) {
            let told = Told { mac, add: false, overrides: overrides || confirms, confirms };
            self.outbox.put(News::Neighbour(addr, told));
        }
    }

    /// Passes on how the addresses stand that are in use or lost.
    pub(crate) fn tell_addresses(&mut self) {
        if self.outbox.leads() {
            for (prefix, state) in self.own.iter().filter(|(_, state)| *state != AddressState::Tentative) {
                self.outbox.put(News::Address(prefix.addr, state));
            }
        }
    }

    /// Passes on a path MTU that has just been lowered.
    pub(crate) fn tell_path_mtu(&mut self, dst: IpAddr, mtu_bytes: u16) {
        self.outbox.put(News::PathMtu(dst, mtu_bytes));
    }

    /// Asks for a neighbour's link address: the network, or the leader.
    pub(crate) fn inquire<P: Port>(&mut self, target: IpAddr, mac: Option<MacAddr>, wire: &mut Wire<P>) {
        if self.outbox.follows() {
            self.outbox.ask(target);
        } else {
            self.solicit(target, mac, wire);
        }
    }
}

#[cfg(test)]
#[path = "news_tests.rs"]
mod tests;
