//! What is known of the largest packet that reaches a destination.
//!
//! Every path begins with the MTU of our own link. A router that cannot pass a packet on says so; when TCP has believed
//! it, the destination's limit is remembered here for new connections, and forgotten after ten minutes, since ways
//! through a network change. The table is bounded: the destination learnt first gives way.
//!
//! Source: RFC 1191 (IPv4), RFC 8201 (IPv6). Not on the way of a segment: looked at when a path is made.

use core::net::IpAddr;

use ironwarp_types::Nanos;

use crate::flow::{FlowHasher, FlowTable};

/// The least MTU that is believed for IPv4. RFC 791 s3.1 has every host take 576 octets; RFC 1191 s3 would let a
/// report go down to 68, which only an attacker gains from (RFC 5927 s7).
const IPV4_MTU_MIN: u16 = 576;

/// RFC 8200 s5: every link carries 1280 octets.
const IPV6_MTU_MIN: u16 = 1_280;

/// RFC 1191 s6.3, RFC 8201 s5.2: a limit is believed for ten minutes after it was last lowered.
const BELIEVED_FOR: Nanos = Nanos::from_secs(600);

/// RFC 1191 s7.1, table 7-1: where link MTUs lie, for routers that do not say theirs.
const PLATEAUS: [u16; 10] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68];

/// The limit that a report of `said` bytes, 0 for none, about a packet of `packet_bytes` means, or `None` when it cannot
/// be true: the packet would have passed, or an IPv6 link may not be that narrow (RFC 8201 s4).
pub(crate) fn reported(target: IpAddr, said: u32, packet_bytes: u16) -> Option<u16> {
    let said = u16::try_from(said).ok()?;
    match target {
        // RFC 1191 s5: the greatest plateau below the packet's own length.
        IpAddr::V4(_) if said == 0 => PLATEAUS
            .into_iter()
            .find(|&plateau| plateau < packet_bytes)
            .map(|plateau| plateau.max(IPV4_MTU_MIN)),
        IpAddr::V4(_) => Some(said.max(IPV4_MTU_MIN)),
        IpAddr::V6(_) => Some(said).filter(|&said| said >= IPV6_MTU_MIN),
    }
    .filter(|&mtu_bytes| mtu_bytes < packet_bytes)
}

#[derive(Clone, Copy)]
struct Entry {
    target: IpAddr,
    mtu_bytes: u16,
    until: Nanos,
}

/// The destinations whose limit is below that of our own link.
pub(crate) struct PathMtus {
    entries: Box<[Option<Entry>]>,
    index: FlowTable,
    hasher: FlowHasher,
    /// The place that is used next.
    hand: usize,
    /// No entry is over before this.
    next_due: Nanos,
}

impl PathMtus {
    /// A table of `entries_max` destinations, at least one.
    pub(crate) fn new(entries_max: u16, hasher: FlowHasher) -> Self {
        let entries = usize::from(entries_max.max(1));
        PathMtus {
            entries: vec![None; entries].into_boxed_slice(),
            index: FlowTable::new(entries),
            hasher,
            hand: 0,
            next_due: Nanos::MAX,
        }
    }

    /// The limit to a destination, if it is below that of the link.
    pub(crate) fn to(&self, target: IpAddr) -> Option<u16> {
        // Nearly always nothing is known of anybody.
        if self.index.is_empty() {
            return None;
        }
        self.entry(self.find(target)?).map(|entry| entry.mtu_bytes)
    }

    /// Remembers a limit, if it is lower than what is known. Answers whether it was.
    pub(crate) fn lower(&mut self, now: Nanos, target: IpAddr, mtu_bytes: u16) -> bool {
        let entry = Entry { target, mtu_bytes: mtu_bytes.max(floor(target)), until: now + BELIEVED_FOR };
        match self.find(target) {
            Some(at) if self.entry(at).is_some_and(|known| known.mtu_bytes <= entry.mtu_bytes) => {
                return false;
            }
            Some(at) => self.set(at, Some(entry)),
            None => self.insert(entry),
        }
        true
    }

    /// When [`PathMtus::on_due`] has something to do.
    pub(crate) fn next_due(&self) -> Nanos {
        self.next_due
    }

    /// Forgets what has been believed for long enough.
    pub(crate) fn on_due(&mut self, now: Nanos) {
        self.next_due = Nanos::MAX;
        for at in 0..self.entries.len() {
            match self.entry(at) {
                Some(entry) if entry.until <= now => self.remove(at),
                Some(entry) => self.next_due = self.next_due.min(entry.until),
                None => {}
            }
        }
    }

    fn insert(&mut self, entry: Entry) {
        let at = self.hand;
        self.hand = (at + 1).checked_rem(self.entries.len()).unwrap_or(0);
        self.remove(at);
        if self.index.insert(self.hash(entry.target), at as u32).is_ok() {
            self.set(at, Some(entry));
        }
    }

    fn remove(&mut self, at: usize) {
        if let Some(entry) = self.entry(at) {
            self.index.remove(self.hash(entry.target), at as u32);
            self.set(at, None);
        }
    }

    fn find(&self, target: IpAddr) -> Option<usize> {
        let owns = |at: u32| self.entry(at as usize).is_some_and(|entry| entry.target == target);
        self.index.lookup(self.hash(target), owns).map(|at| at as usize)
    }

    fn entry(&self, at: usize) -> Option<Entry> {
        self.entries.get(at).copied().flatten()
    }

    fn set(&mut self, at: usize, to: Option<Entry>) {
        if let Some(entry) = self.entries.get_mut(at) {
            *entry = to;
        }
        if let Some(entry) = to {
            self.next_due = self.next_due.min(entry.until);
        }
    }

    fn hash(&self, target: IpAddr) -> u32 {
        self.hasher.hash_addr(target)
    }

    /// Invariants: every entry is found under its destination, and none ends before `next_due`.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let taken = || self.entries.iter().enumerate().filter_map(|(at, entry)| Some((at, entry.as_ref()?)));
        if taken().count() != self.index.len() {
            return Err("path MTUs and their index disagree on how many there are");
        }
        if taken().any(|(at, entry)| self.find(entry.target) != Some(at) || entry.until < self.next_due) {
            return Err("a path MTU is not found, or ends before the table is due");
        }
        Ok(())
    }
}

/// The least limit that is believed.
fn floor(target: IpAddr) -> u16 {
    if target.is_ipv4() { IPV4_MTU_MIN } else { IPV6_MTU_MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    fn peer(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn table(entries_max: u16) -> PathMtus {
        PathMtus::new(entries_max, FlowHasher::new([1, 2]))
    }

    /// RFC 1191 s5 and table 7-1.
    #[test]
    fn a_router_that_does_not_say_means_the_next_plateau_below_the_packet() {
        for (packet, plateau) in [(9_000, 8_166), (1_500, 1_492), (1_492, 1_006), (65_535, 32_000)] {
            assert_eq!(reported(peer(2), 0, packet), Some(plateau));
        }
        assert_eq!(reported(peer(2), 0, 1_006), Some(576), "508 lies below the floor");
        assert_eq!(reported(peer(2), 0, 576), None);
    }

    /// RFC 5927 s7.2: a packet that fits is never too big.
    #[test]
    fn a_limit_that_the_packet_would_have_fitted_is_no_report() {
        assert_eq!(reported(peer(2), 1_400, 1_500), Some(1_400));
        assert_eq!(reported(peer(2), 1_500, 1_500), None);
        assert_eq!(reported(peer(2), 70_000, 1_500), None);
        assert_eq!(reported(peer(2), 68, 1_500), Some(576));
    }

    /// RFC 8201 s4: a limit below the minimum link MTU of IPv6 is not believed.
    #[test]
    fn an_ipv6_limit_below_1280_is_no_report() {
        let peer = "fd00::2".parse().expect("an address");
        assert_eq!(reported(peer, 1_280, 1_500), Some(1_280));
        assert_eq!(reported(peer, 1_279, 1_500), None);
        assert_eq!(reported(peer, 0, 1_500), None);
    }

    /// RFC 1191 s6.3.
    #[test]
    fn a_limit_is_forgotten_ten_minutes_after_it_was_last_lowered() {
        let mut table = table(4);
        table.lower(SECOND, peer(2), 1_400);
        table.lower(SECOND.times(100), peer(2), 1_300);
        table.lower(SECOND.times(200), peer(2), 1_350);
        table.on_due(SECOND.times(699));
        assert_eq!((table.to(peer(2)), table.next_due()), (Some(1_300), SECOND.times(700)));
        table.on_due(SECOND.times(700));
        assert_eq!((table.to(peer(2)), table.next_due()), (None, Nanos::MAX));
        assert_eq!(table.check(), Ok(()));
    }

    #[test]
    fn a_full_table_forgets_the_destination_learnt_first() {
        let mut table = table(2);
        for n in 1..=3 {
            table.lower(SECOND, peer(n), 1_400);
            assert_eq!(table.check(), Ok(()));
        }
        assert_eq!([1, 2, 3].map(|n| table.to(peer(n))), [None, Some(1_400), Some(1_400)]);
    }

    #[test]
    fn no_limit_falls_below_the_floor() {
        let mut table = table(2);
        table.lower(SECOND, peer(1), 68);
        assert_eq!(table.to(peer(1)), Some(IPV4_MTU_MIN));
    }
}
