//! How many of the places for incoming connections each host has.
//!
//! A host of IPv6 has as many addresses as it likes, so there a host is a network of 64 bits
//! (RFC 4291 s2.5.1).
//!
//! A short list in the order of addresses: finding a host costs a binary search, and a new one moves those behind it.

use core::net::{IpAddr, Ipv6Addr};

/// The places that each host has, where it has any.
pub(super) struct Crowd {
    hosts: Vec<(IpAddr, u32)>,
}

impl Crowd {
    /// For as many hosts as there are places.
    pub(super) fn new(places: u32) -> Self {
        Crowd { hosts: Vec::with_capacity(places as usize) }
    }

    pub(super) fn join(&mut self, host: IpAddr) {
        match self.find(host) {
            Ok(at) => self.change(at, 1),
            Err(at) => self.hosts.insert(at, (counted_as(host), 1)),
        }
    }

    pub(super) fn leave(&mut self, host: IpAddr) {
        let Ok(at) = self.find(host) else { return };
        self.change(at, -1);
        if self.of(host) == 0 {
            self.hosts.remove(at);
        }
    }

    /// Places that the host has.
    pub(super) fn of(&self, host: IpAddr) -> u32 {
        let at = self.find(host).ok();
        at.and_then(|at| self.hosts.get(at)).map_or(0, |(_, places)| *places)
    }

    /// The most that a host has.
    pub(super) fn most(&self) -> u32 {
        self.hosts.iter().map(|(_, places)| *places).max().unwrap_or_default()
    }

    fn find(&self, host: IpAddr) -> Result<usize, usize> {
        self.hosts.binary_search_by_key(&counted_as(host), |(host, _)| *host)
    }

    fn change(&mut self, at: usize, by: i32) {
        if let Some((_, places)) = self.hosts.get_mut(at) {
            *places = places.saturating_add_signed(by);
        }
    }
}

/// What stands for everything that may be the same host.
fn counted_as(host: IpAddr) -> IpAddr {
    match host {
        IpAddr::V4(_) => host,
        IpAddr::V6(host) => Ipv6Addr::from_bits(host.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address of its own for each connection gives a host of IPv6 no more places.
    #[test]
    fn the_addresses_of_one_ipv6_network_are_one_host() {
        let mut crowd = Crowd::new(8);
        let hosts = ["2001:db8::1", "2001:db8::2:0:0:1", "2001:db8:0:1::1", "192.0.2.1", "192.0.2.2"];
        let hosts: [IpAddr; 5] = hosts.map(|host| host.parse().unwrap());
        hosts.iter().for_each(|host| crowd.join(*host));
        assert_eq!(hosts.map(|host| crowd.of(host)), [2, 2, 1, 1, 1]);
        crowd.leave(hosts[1]);
        assert_eq!(hosts.map(|host| crowd.of(host)), [1, 1, 1, 1, 1]);
    }

    #[test]
    fn each_host_has_its_own_count_as_long_as_it_has_any() {
        let mut crowd = Crowd::new(8);
        let hosts: [IpAddr; 3] = ["10.0.0.2", "2001:db8::1", "10.0.0.1"].map(|host| host.parse().unwrap());
        for (host, times) in hosts.into_iter().zip([3, 2, 1]) {
            (0..times).for_each(|_| crowd.join(host));
        }
        assert_eq!((hosts.map(|host| crowd.of(host)), crowd.most()), ([3, 2, 1], 3));
        crowd.leave(hosts[0]);
        crowd.leave(hosts[0]);
        crowd.leave(hosts[2]);
        assert_eq!((hosts.map(|host| crowd.of(host)), crowd.most()), ([1, 2, 0], 2));
        crowd.leave(hosts[2]);
        hosts.iter().for_each(|host| crowd.leave(*host));
        crowd.leave(hosts[1]);
        assert_eq!((crowd.hosts.len(), crowd.most()), (0, 0));
    }
}
