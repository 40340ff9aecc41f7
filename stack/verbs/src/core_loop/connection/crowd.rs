//! How many of the places for incoming connections each host has.
//!
//! Hosts are counted under a keyed hash, so that nobody can choose whom to be counted with, and two that meet there by
//! chance share one count. An IPv6 host has a whole /64 to call from, which counts as one.

use core::net::IpAddr;

/// Counts a place: with four times as many of them as places, one in five hosts shares its count when all places are
/// taken by different ones.
const COUNTS_PER_PLACE: usize = 4;

/// A host, as far as it is told from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Host(u32);

/// The places that each host has.
pub(super) struct Crowd {
    counts: Box<[u32]>,
    /// Odd.
    key: u64,
}

impl Crowd {
    pub(super) fn new(places: u32, secret: u64) -> Self {
        let counts = (places as usize * COUNTS_PER_PLACE).next_power_of_two();
        Crowd { counts: vec![0; counts].into(), key: secret | 1 }
    }

    pub(super) fn host(&self, address: IpAddr) -> Host {
        let name = match address {
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
        };
        // A secret start, mixed as SplitMix64 does.
        let mixed = name.wrapping_add(self.key);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(self.key);
        Host((mixed >> (u64::BITS - self.counts.len().ilog2())) as u32)
    }

    pub(super) fn join(&mut self, host: Host) {
        if let Some(count) = self.counts.get_mut(host.0 as usize) {
            *count += 1;
        }
    }

    pub(super) fn leave(&mut self, host: Host) {
        if let Some(count) = self.counts.get_mut(host.0 as usize) {
            *count = count.saturating_sub(1);
        }
    }

    /// Places that the host has.
    pub(super) fn of(&self, host: Host) -> u32 {
        self.counts.get(host.0 as usize).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_counted_as_one_and_apart_from_others() {
        let mut crowd = Crowd::new(256, 0x9e37_79b9_7f4a_7c15);
        let host = |crowd: &Crowd, address: &str| crowd.host(address.parse().unwrap());
        let (one, other) = (host(&crowd, "10.0.0.1"), host(&crowd, "10.0.0.2"));
        (0..3).for_each(|_| crowd.join(one));
        crowd.join(other);
        crowd.leave(one);
        assert_eq!([one, other].map(|host| crowd.of(host)), [2, 1]);
        let (first, second) = (host(&crowd, "2001:db8::1"), host(&crowd, "2001:db8::ffff"));
        assert_eq!(first, second, "one /64");
        assert_ne!(first, host(&crowd, "2001:db8:0:1::1"));
    }

    #[test]
    fn hosts_are_spread_over_the_counts() {
        let crowd = Crowd::new(256, 0x243f_6a88_85a3_08d3);
        let mut seen: Vec<u32> =
            (0..256u32).map(|last| crowd.host(IpAddr::from([10, 1, 2, last as u8])).0).collect();
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() > 180, "{} counts for 256 hosts", seen.len());
    }
}
