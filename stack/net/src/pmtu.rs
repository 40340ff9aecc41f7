//! The path MTU cache: the largest packet that reaches a destination.
//!
//! Each path starts with the MTU of the local link. A router that cannot forward a packet reports
//! the MTU of its next link. After TCP has validated the report, the limit is stored here for new
//! connections. It expires after ten minutes, because routes change. The cache is bounded: a new
//! destination evicts an old one.
//!
//! Source: RFC 1191 (IPv4), RFC 8201 (IPv6). Cost: none for a segment; a look-up for each new path.

use core::net::IpAddr;

use ironwarp_types::Nanos;

use crate::address_table::{self, AddressTable};
use crate::flow::FlowHasher;

/// The lowest accepted MTU for IPv4. RFC 791 s3.1 requires every host to accept 576 octets.
/// RFC 1191 s3 allows reports down to 68, which only help an attacker (RFC 5927 s7).
const IPV4_MTU_MIN: u16 = 576;

/// RFC 8200 s5: every link carries 1280 octets.
const IPV6_MTU_MIN: u16 = 1_280;

/// RFC 1191 s6.3, RFC 8201 s5.2: a limit expires ten minutes after it was last lowered.
const LIFETIME: Nanos = Nanos::from_secs(600);

/// RFC 1191 s7.1, table 7-1: common link MTUs, for routers that report none.
const PLATEAUS: [u16; 10] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68];

/// Returns the limit from a report of `reported` bytes, 0 for none, about a packet of
/// `packet_bytes`. Returns `None` if the report is invalid: the packet fits the reported MTU, or
/// the MTU is below the minimum of IPv6 (RFC 8201 s4).
pub(crate) fn limit_from_report(dst: IpAddr, reported: u32, packet_bytes: u16) -> Option<u16> {
    let reported = u16::try_from(reported).ok()?;
    match dst {
        // RFC 1191 s5: the greatest plateau below the length of the packet.
        IpAddr::V4(_) if reported == 0 => PLATEAUS
            .into_iter()
            .find(|&plateau| plateau < packet_bytes)
            .map(|plateau| plateau.max(IPV4_MTU_MIN)),
        IpAddr::V4(_) => Some(reported.max(IPV4_MTU_MIN)),
        IpAddr::V6(_) => Some(reported).filter(|&reported| reported >= IPV6_MTU_MIN),
    }
    .filter(|&mtu_bytes| mtu_bytes < packet_bytes)
}

#[derive(Clone, Copy)]
struct PathMtu {
    dst: IpAddr,
    mtu_bytes: u16,
    expires: Nanos,
}

impl address_table::Entry for PathMtu {
    fn addr(&self) -> IpAddr {
        self.dst
    }

    fn due(&self) -> Nanos {
        self.expires
    }
}

/// The destinations with a limit below the MTU of the local link.
pub(crate) struct PathMtuCache(AddressTable<PathMtu>);

impl PathMtuCache {
    /// Returns a cache for `entries_max` destinations, at least one.
    pub(crate) fn new(entries_max: u16, hasher: FlowHasher) -> Self {
        PathMtuCache(AddressTable::new(entries_max.max(1).into(), hasher))
    }

    /// Returns the limit of a destination, if one is known.
    pub(crate) fn get(&self, dst: IpAddr) -> Option<u16> {
        // The cache is nearly always empty.
        if self.0.is_empty() {
            return None;
        }
        self.0.find(dst).map(|(_, entry)| entry.mtu_bytes)
    }

    /// Stores a limit if it is lower than the known one. Returns whether it is.
    pub(crate) fn lower(&mut self, now: Nanos, dst: IpAddr, mtu_bytes: u16) -> bool {
        let mtu_min = if dst.is_ipv4() { IPV4_MTU_MIN } else { IPV6_MTU_MIN };
        let entry = PathMtu { dst, mtu_bytes: mtu_bytes.max(mtu_min), expires: now + LIFETIME };
        match self.0.find(dst) {
            Some((_, known)) if known.mtu_bytes <= entry.mtu_bytes => return false,
            Some((at, _)) => self.0.set(at, entry),
            None => {
                self.0.insert(entry, 1, |_| true);
            }
        }
        true
    }

    /// Returns the time from which [`PathMtuCache::on_due`] has work to do.
    pub(crate) fn next_due(&self) -> Nanos {
        self.0.next_due()
    }

    /// Removes expired limits.
    pub(crate) fn on_due(&mut self, now: Nanos) {
        self.0.on_due(now, |_| None);
    }

    pub(crate) fn check(&self) -> Result<(), &'static str> {
        self.0.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    fn peer(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn cache(entries_max: u16) -> PathMtuCache {
        PathMtuCache::new(entries_max, FlowHasher::new([1, 2]))
    }

    /// RFC 1191 s5 and table 7-1.
    #[test]
    fn a_report_without_an_mtu_gives_the_next_plateau_below_the_packet() {
        for (packet, plateau) in [(9_000, 8_166), (1_500, 1_492), (1_492, 1_006), (65_535, 32_000)] {
            assert_eq!(limit_from_report(peer(2), 0, packet), Some(plateau));
        }
        assert_eq!(limit_from_report(peer(2), 0, 1_006), Some(576), "508 is below the minimum");
        assert_eq!(limit_from_report(peer(2), 0, 576), None);
    }

    /// RFC 5927 s7.2: a router does not report a packet that fits.
    #[test]
    fn a_report_about_a_packet_that_fits_is_invalid() {
        assert_eq!(limit_from_report(peer(2), 1_400, 1_500), Some(1_400));
        assert_eq!(limit_from_report(peer(2), 1_500, 1_500), None);
        assert_eq!(limit_from_report(peer(2), 70_000, 1_500), None);
        assert_eq!(limit_from_report(peer(2), 68, 1_500), Some(576));
    }

    /// RFC 8201 s4: a limit below the minimum link MTU of IPv6 is invalid.
    #[test]
    fn an_ipv6_report_below_1280_is_invalid() {
        let peer = "fd00::2".parse().expect("an address");
        assert_eq!(limit_from_report(peer, 1_280, 1_500), Some(1_280));
        assert_eq!(limit_from_report(peer, 1_279, 1_500), None);
        assert_eq!(limit_from_report(peer, 0, 1_500), None);
    }

    /// RFC 1191 s6.3.
    /// RFC 8201 s5.3.
    #[test]
    fn a_limit_expires_ten_minutes_after_it_was_last_lowered() {
        let mut cache = cache(4);
        cache.lower(SECOND, peer(2), 1_400);
        cache.lower(SECOND.times(100), peer(2), 1_300);
        cache.lower(SECOND.times(200), peer(2), 1_350);
        cache.on_due(SECOND.times(699));
        assert_eq!((cache.get(peer(2)), cache.next_due()), (Some(1_300), SECOND.times(700)));
        cache.on_due(SECOND.times(700));
        assert_eq!((cache.get(peer(2)), cache.next_due()), (None, Nanos::MAX));
        assert_eq!(cache.check(), Ok(()));
    }

    #[test]
    fn a_full_cache_evicts_the_oldest_destination() {
        let mut cache = cache(2);
        for n in 1..=3 {
            cache.lower(SECOND, peer(n), 1_400);
            assert_eq!(cache.check(), Ok(()));
        }
        assert_eq!([1, 2, 3].map(|n| cache.get(peer(n))), [None, Some(1_400), Some(1_400)]);
    }

    #[test]
    fn a_stored_limit_is_at_least_the_minimum() {
        let mut cache = cache(2);
        cache.lower(SECOND, peer(1), 68);
        assert_eq!(cache.get(peer(1)), Some(IPV4_MTU_MIN));
    }
}
