//! Our addresses and their lives: asked for where that is wanted, used, announced, defended.
//!
//! ```text
//!            link up                 no answer
//!   Resting --------> Probing{left} -----------> Usable{announcements left}
//!      |                   | somebody has it          | somebody claims it: defended, at most once in 10 s
//!      '- no probes ->     '-> Duplicate              '
//! ```
//! Only usable addresses are in the two short lists that received packets are compared with.
//!
//! Source: RFC 5227 (IPv4), RFC 4862 s5.4 (IPv6). Time is an argument; what must be said goes out through a closure.
//!
//! IPv4 addresses are announced and defended (RFC 5227). They are probed only if `net.probe_ipv4` asks for it, because probing
//! takes five to nine seconds. IPv6 addresses are probed by default (RFC 4862), which takes one to two seconds. An address that
//! another station has is not used; `net_addresses_duplicate` counts it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use ironwarp_types::Nanos;

use crate::config::{ADDRESSES_MAX, DuplicateProbes, NetConfig, Prefix};
use crate::family::{is_link_local, shares_prefix, solicited_node};
use crate::flow::FlowHasher;
use crate::link;

/// The configured ones and a link-local one.
pub(crate) const OWN_MAX: usize = ADDRESSES_MAX + 1;

/// RFC 5227 s1.1 (ANNOUNCE_NUM), RFC 4861 s7.2.6 allows three.
const ANNOUNCEMENTS: u8 = 2;
/// RFC 5227 s1.1: ANNOUNCE_INTERVAL and ANNOUNCE_WAIT.
const ANNOUNCE_INTERVAL: Nanos = Nanos::from_secs(2);
/// RFC 5227 s1.1: PROBE_MIN; RFC 4861 s10: RETRANS_TIMER.
const PROBE_INTERVAL: Nanos = Nanos::from_secs(1);
/// RFC 5227 s1.1: DEFEND_INTERVAL.
const DEFEND_INTERVAL: Nanos = Nanos::from_secs(10);

/// How an address of ours stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressState {
    /// It is being asked for, or the link has not come up: not in use yet.
    Tentative,
    /// In use.
    Usable,
    /// Somebody else has it: not in use.
    Duplicate,
}

/// What is said about an address to everybody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Say {
    /// Who has it?
    Probe,
    /// We have it.
    Announce,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Resting,
    Probing { left: u8 },
    Usable { announcements: u8 },
    Duplicate,
}

struct Own {
    prefix: Prefix,
    state: State,
    due: Nanos,
    /// No defence before this.
    quiet_until: Nanos,
}

/// A usable IPv4 address.
#[derive(Clone, Copy)]
struct Local4 {
    addr: Ipv4Addr,
    /// The two broadcast forms of its network, as bits. 0 where it has no room for them (RFC 3021).
    broadcasts: [u32; 2],
}

/// In the place of an address where there is none.
const NONE_4: Local4 = Local4 { addr: Ipv4Addr::UNSPECIFIED, broadcasts: [0; 2] };

impl Local4 {
    fn new(addr: Ipv4Addr, prefix_len: u8) -> Self {
        let host_mask = u32::MAX.checked_shr(prefix_len.into()).unwrap_or(0);
        let bits = addr.to_bits();
        let broadcasts = if host_mask > 1 { [bits & !host_mask, bits | host_mask] } else { [0; 2] };
        Local4 { addr, broadcasts }
    }

    #[inline]
    fn is_broadcast(&self, bits: u32) -> bool {
        self.broadcasts.contains(&bits)
    }
}

/// All addresses of a port.
pub(crate) struct Addresses {
    /// The first that is usable: nearly always the only one.
    first_v4: Local4,
    /// Its bits, or more than an address has where there is none.
    first_v4_key: u64,
    /// The others.
    v4: ArrayVec<Local4, ADDRESSES_MAX>,
    v6: ArrayVec<Ipv6Addr, OWN_MAX>,
    all: ArrayVec<Own, OWN_MAX>,
    probes: DuplicateProbes,
    hasher: FlowHasher,
    next_due: Nanos,
}

impl Addresses {
    /// The configured addresses, and a link-local one where there is IPv6 and none is configured. Those that are not
    /// asked for are usable at once.
    pub(crate) fn new(cfg: &NetConfig, hasher: FlowHasher) -> Self {
        let mut addresses = Addresses {
            first_v4: NONE_4,
            first_v4_key: u64::MAX,
            v4: ArrayVec::new(),
            v6: ArrayVec::new(),
            all: ArrayVec::new(),
            probes: cfg.duplicate_probes,
            hasher,
            next_due: Nanos::MAX,
        };
        let has_link_local = cfg.addresses.iter().any(|prefix| is_link_local(prefix.addr));
        let made = Prefix { addr: link::link_local(cfg.mac).into(), len: 64 };
        let wanted = cfg.addresses.iter().any(|prefix| prefix.addr.is_ipv6()) && !has_link_local;
        for prefix in cfg.addresses.iter().copied().chain(wanted.then_some(made)) {
            let own = Own { prefix, state: State::Resting, due: Nanos::MAX, quiet_until: Nanos::ZERO };
            if addresses.probes_of(prefix.addr) == 0 {
                addresses.admit(prefix);
            }
            // A port with every address taken and no place left does without.
            let _ = addresses.all.try_push(own);
        }
        addresses
    }

    fn probes_of(&self, addr: IpAddr) -> u8 {
        if addr.is_ipv4() { self.probes.ipv4 } else { self.probes.ipv6 }
    }

    /// From now on packets for the address are ours.
    fn admit(&mut self, prefix: Prefix) {
        // The lists are as long as there can be addresses.
        let _ = match prefix.addr {
            IpAddr::V4(addr) => {
                let local = Local4::new(addr, prefix.len);
                if self.first_v4.addr.is_unspecified() {
                    (self.first_v4, self.first_v4_key) = (local, addr.to_bits().into());
                    true
                } else {
                    self.v4.try_push(local).is_ok()
                }
            }
            IpAddr::V6(addr) => self.v6.try_push(addr).is_ok(),
        };
    }

    /// Whether packets for the address are ours.
    #[inline]
    pub(crate) fn has_v4(&self, addr: Ipv4Addr) -> bool {
        u64::from(addr.to_bits()) == self.first_v4_key || self.is_further_v4(addr)
    }

    #[inline]
    fn is_further_v4(&self, addr: Ipv4Addr) -> bool {
        !self.v4.is_empty() && self.v4.iter().any(|local| local.addr == addr)
    }

    /// Whether a packet may come from `remote` to `local`: from one station, not from us, and to us.
    #[inline]
    pub(crate) fn admits_v4(&self, remote: Ipv4Addr, local: Ipv4Addr) -> bool {
        if remote == self.first_v4.addr || !self.is_unicast_beside_further(remote) {
            return false;
        }
        let to_first = u64::from(local.to_bits()) == self.first_v4_key;
        if self.v4.is_empty() { to_first } else { self.admits_further(remote, local, to_first) }
    }

    /// The same where there are more addresses than the first.
    #[inline(never)]
    fn admits_further(&self, remote: Ipv4Addr, local: Ipv4Addr, to_first: bool) -> bool {
        !self.is_further_v4(remote) && self.is_unicast_v4(remote) && (to_first || self.is_further_v4(local))
    }

    /// [`Addresses::is_unicast_v4`] as far as the first address goes.
    #[inline]
    fn is_unicast_beside_further(&self, addr: Ipv4Addr) -> bool {
        let bits = addr.to_bits();
        // From 1.0.0.0 up to 223.255.255.255, without 127/8.
        let possible = bits.wrapping_sub(1 << 24) < 223 << 24 && bits >> 24 != 127;
        possible && !self.first_v4.is_broadcast(bits)
    }

    /// Whether packets for the address are ours.
    #[inline]
    pub(crate) fn has_v6(&self, addr: Ipv6Addr) -> bool {
        self.v6.contains(&addr)
    }

    /// Whether packets for the address are ours.
    pub(crate) fn has(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(v4) => self.has_v4(v4),
            IpAddr::V6(v6) => self.has_v6(v6),
        }
    }

    /// Whether the address can name one station: RFC 1122 s3.2.1.3. The two broadcast forms of a network of ours cannot,
    /// save where it has no room for them (RFC 3021).
    #[inline]
    pub(crate) fn is_unicast_v4(&self, addr: Ipv4Addr) -> bool {
        let further = self.v4.iter().any(|local| local.is_broadcast(addr.to_bits()));
        self.is_unicast_beside_further(addr) && !further
    }

    /// Whether there is any IPv6 address, in use or not.
    pub(crate) fn has_ipv6(&self) -> bool {
        self.all.iter().any(|own| own.prefix.addr.is_ipv6())
    }

    /// Whether the group is one that we must listen to: RFC 4861 s7.2.1, RFC 4862 s5.4.2.
    pub(crate) fn in_group(&self, group: Ipv6Addr) -> bool {
        let own = |own: &Own| matches!(own.prefix.addr, IpAddr::V6(v6) if solicited_node(v6) == group);
        group == crate::family::ALL_NODES || self.all.iter().any(own)
    }

    /// Every address with its network, in the configured order, and how it stands.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Prefix, AddressState)> + '_ {
        self.all.iter().map(|own| (own.prefix, self.state(own)))
    }

    fn state(&self, own: &Own) -> AddressState {
        match own.state {
            State::Resting if self.has(own.prefix.addr) => AddressState::Usable,
            State::Resting | State::Probing { .. } => AddressState::Tentative,
            State::Usable { .. } => AddressState::Usable,
            State::Duplicate => AddressState::Duplicate,
        }
    }

    /// How an address of ours stands; `None` for any other.
    pub(crate) fn state_of(&self, addr: IpAddr) -> Option<AddressState> {
        self.all.iter().find(|own| own.prefix.addr == addr).map(|own| self.state(own))
    }

    /// Whether the address lies in a network of ours.
    pub(crate) fn is_on_link(&self, addr: IpAddr) -> bool {
        self.all.iter().any(|own| shares_prefix(own.prefix.addr, addr, own.prefix.len))
    }

    /// The link is up: addresses are asked for, or announced.
    pub(crate) fn begin(&mut self, now: Nanos) {
        for at in 0..self.all.len() {
            let Some(own) = self.all.get(at) else { break };
            let addr = own.prefix.addr;
            let left = self.probes_of(addr);
            let (state, due) = match left {
                0 => (State::Usable { announcements: ANNOUNCEMENTS }, now),
                // RFC 5227 s2.1.1, RFC 4862 s5.4.2: hosts that start together do not ask together.
                _ => (State::Probing { left }, now + self.jitter(addr, left)),
            };
            self.set(at, state, due);
        }
    }

    /// Another core found out how an address stands. Answers whether that is new here.
    pub(crate) fn follow(&mut self, addr: IpAddr, state: AddressState) -> bool {
        let Some(at) = self.all.iter().position(|own| own.prefix.addr == addr) else { return false };
        let Some(prefix) = self.all.get(at).map(|own| own.prefix) else { return false };
        if self.state_of(addr) == Some(state) {
            return false;
        }
        match state {
            AddressState::Usable => {
                self.admit(prefix);
                self.set(at, State::Usable { announcements: 0 }, Nanos::MAX);
            }
            AddressState::Duplicate => self.set(at, State::Duplicate, Nanos::MAX),
            AddressState::Tentative => {}
        }
        true
    }

    /// When [`Addresses::on_due`] has something to do.
    pub(crate) fn next_due(&self) -> Nanos {
        self.next_due
    }

    /// Asks and announces what is due through `say`. Answers how many addresses have become usable.
    pub(crate) fn on_due(&mut self, now: Nanos, mut say: impl FnMut(Say, IpAddr)) -> u32 {
        let mut usable = 0;
        self.next_due = Nanos::MAX;
        for at in 0..self.all.len() {
            let Some(own) = self.all.get(at) else { break };
            let (prefix, due) = (own.prefix, own.due);
            if due > now {
                self.next_due = self.next_due.min(due);
                continue;
            }
            match own.state {
                State::Probing { left: 0 } => {
                    self.admit(prefix);
                    usable += 1;
                    say(Say::Announce, prefix.addr);
                    self.set(at, State::Usable { announcements: ANNOUNCEMENTS - 1 }, now + ANNOUNCE_INTERVAL);
                }
                State::Probing { left } => {
                    say(Say::Probe, prefix.addr);
                    let left = left - 1;
                    self.set(at, State::Probing { left }, now + self.probe_wait(prefix.addr, left));
                }
                State::Usable { announcements } => {
                    say(Say::Announce, prefix.addr);
                    let announcements = announcements.saturating_sub(1);
                    let due = if announcements == 0 { Nanos::MAX } else { now + ANNOUNCE_INTERVAL };
                    self.set(at, State::Usable { announcements }, due);
                }
                State::Resting | State::Duplicate => self.set(at, own.state, Nanos::MAX),
            }
        }
        usable
    }

    /// The pause behind a probe, `left` of which remain.
    fn probe_wait(&self, addr: IpAddr, left: u8) -> Nanos {
        match (addr, left) {
            (IpAddr::V6(_), _) => PROBE_INTERVAL,
            (IpAddr::V4(_), 0) => ANNOUNCE_INTERVAL,
            (IpAddr::V4(_), _) => PROBE_INTERVAL + self.jitter(addr, left),
        }
    }

    /// Less than a second, another for every address, host and turn.
    fn jitter(&self, addr: IpAddr, turn: u8) -> Nanos {
        let bits = self.hasher.hash_addr(addr).rotate_left(turn.into());
        Nanos((u64::from(bits) * 1_000_000_000) >> 32)
    }

    /// Somebody else claims an address that may be ours: RFC 5227 s2.1.1 and s2.4, RFC 4862 s5.4.3 and s5.4.4. A
    /// tentative one is given up. One in use is kept and announced again, but not more often than once in ten seconds:
    /// connections lean on it (RFC 5227 s2.4 (c)).
    pub(crate) fn on_claim(&mut self, now: Nanos, addr: IpAddr) -> Claim {
        let Some(at) = self.all.iter().position(|own| own.prefix.addr == addr) else { return Claim::NotOurs };
        let in_use = self.has(addr);
        let Some(own) = self.all.get_mut(at) else { return Claim::NotOurs };
        match own.state {
            State::Probing { .. } => {
                self.set(at, State::Duplicate, Nanos::MAX);
                Claim::Lost
            }
            State::Usable { .. } | State::Resting if in_use && now >= own.quiet_until => {
                own.quiet_until = now + DEFEND_INTERVAL;
                Claim::Defend
            }
            State::Usable { .. } | State::Resting => Claim::Ignored,
            // It is the other station's, which is a neighbour like any other.
            State::Duplicate => Claim::NotOurs,
        }
    }

    fn set(&mut self, at: usize, state: State, due: Nanos) {
        self.next_due = self.next_due.min(due);
        if let Some(own) = self.all.get_mut(at) {
            (own.state, own.due) = (state, due);
        }
    }
}

/// What a claim to an address means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// Nothing: the address is none of ours.
    NotOurs,
    /// We give the address up.
    Lost,
    /// We announce it.
    Defend,
    /// We have announced it just now, or do not use it yet.
    Ignored,
}
