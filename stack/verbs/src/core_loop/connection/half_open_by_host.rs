//! Incoming connections counted by host.
//!
//! An IPv6 host can use any number of addresses, so an IPv6 host is a network of 64 bits here
//! (RFC 4291 s2.5.1).
//!
//! A short sorted list: a look-up costs a binary search, an insertion moves the entries after it.

use core::net::{IpAddr, Ipv6Addr};

/// The number of connections of each host that has any.
pub(super) struct HalfOpenByHost {
    hosts: Vec<(IpAddr, u32)>,
}

impl HalfOpenByHost {
    /// With room for as many hosts as there are slots.
    pub(super) fn new(capacity: u32) -> Self {
        HalfOpenByHost { hosts: Vec::with_capacity(capacity as usize) }
    }

    pub(super) fn add(&mut self, host: IpAddr) {
        match self.find(host) {
            Ok(at) => self.adjust(at, 1),
            Err(at) => self.hosts.insert(at, (host_key(host), 1)),
        }
    }

    pub(super) fn remove(&mut self, host: IpAddr) {
        let Ok(at) = self.find(host) else { return };
        self.adjust(at, -1);
        if self.count(host) == 0 {
            self.hosts.remove(at);
        }
    }

    /// The number of connections of a host.
    pub(super) fn count(&self, host: IpAddr) -> u32 {
        let at = self.find(host).ok();
        at.and_then(|at| self.hosts.get(at)).map_or(0, |(_, connections)| *connections)
    }

    /// The maximum over all hosts.
    pub(super) fn max_count(&self) -> u32 {
        self.hosts.iter().map(|(_, connections)| *connections).max().unwrap_or_default()
    }

    fn find(&self, host: IpAddr) -> Result<usize, usize> {
        self.hosts.binary_search_by_key(&host_key(host), |(host, _)| *host)
    }

    fn adjust(&mut self, at: usize, by: i32) {
        if let Some((_, connections)) = self.hosts.get_mut(at) {
            *connections = connections.saturating_add_signed(by);
        }
    }
}

/// The key of all addresses that may be the same host.
pub(super) fn host_key(host: IpAddr) -> IpAddr {
    match host {
        IpAddr::V4(_) => host,
        IpAddr::V6(host) => Ipv6Addr::from_bits(host.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A different address for each connection gives an IPv6 host no more slots.
    #[test]
    fn the_addresses_of_one_ipv6_network_are_one_host() {
        let mut half_open_by_host = HalfOpenByHost::new(8);
        let hosts = ["2001:db8::1", "2001:db8::2:0:0:1", "2001:db8:0:1::1", "192.0.2.1", "192.0.2.2"];
        let hosts: [IpAddr; 5] = hosts.map(|host| host.parse().unwrap());
        hosts.iter().for_each(|host| half_open_by_host.add(*host));
        assert_eq!(hosts.map(|host| half_open_by_host.count(host)), [2, 2, 1, 1, 1]);
        half_open_by_host.remove(hosts[1]);
        assert_eq!(hosts.map(|host| half_open_by_host.count(host)), [1, 1, 1, 1, 1]);
    }

    #[test]
    fn each_host_has_its_own_count_as_long_as_it_has_any() {
        let mut half_open_by_host = HalfOpenByHost::new(8);
        let hosts: [IpAddr; 3] = ["10.0.0.2", "2001:db8::1", "10.0.0.1"].map(|host| host.parse().unwrap());
        for (host, times) in hosts.into_iter().zip([3, 2, 1]) {
            (0..times).for_each(|_| half_open_by_host.add(host));
        }
        assert_eq!(
            (hosts.map(|host| half_open_by_host.count(host)), half_open_by_host.max_count()),
            ([3, 2, 1], 3)
        );
        half_open_by_host.remove(hosts[0]);
        half_open_by_host.remove(hosts[0]);
        half_open_by_host.remove(hosts[2]);
        assert_eq!(
            (hosts.map(|host| half_open_by_host.count(host)), half_open_by_host.max_count()),
            ([1, 2, 0], 2)
        );
        half_open_by_host.remove(hosts[2]);
        hosts.iter().for_each(|host| half_open_by_host.remove(*host));
        half_open_by_host.remove(hosts[1]);
        assert_eq!((half_open_by_host.hosts.len(), half_open_by_host.max_count()), (0, 0));
    }
}
