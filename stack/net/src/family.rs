//! What the two address families have in common: so much of them that TCP's part of the stack is written once.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum;
use crate::flow::FlowHasher;

/// An address of either family.
pub(crate) trait Address: Copy + Eq + Into<IpAddr> {
    /// The sum of its words, for pseudo-headers (RFC 9293 s3.1, RFC 8200 s8.1). At most 16 carries are not added.
    fn sum(self) -> u32;

    /// The hash of a flow between two of them: [`FlowHasher::hash`] of the same flow.
    fn hash(hasher: &FlowHasher, local: (Self, u16), remote: (Self, u16)) -> u32;
}

impl Address for Ipv4Addr {
    #[inline]
    fn sum(self) -> u32 {
        checksum::sum_addr(self)
    }

    #[inline]
    fn hash(hasher: &FlowHasher, local: (Self, u16), remote: (Self, u16)) -> u32 {
        hasher.hash_v4(local.0, remote.0, local.1, remote.1)
    }
}

impl Address for Ipv6Addr {
    #[inline]
    fn sum(self) -> u32 {
        self.segments().into_iter().map(u32::from).sum()
    }

    #[inline]
    fn hash(hasher: &FlowHasher, local: (Self, u16), remote: (Self, u16)) -> u32 {
        hasher.hash_v6(local.0, remote.0, local.1, remote.1)
    }
}

/// The first `prefix_len` bits of both addresses are the same, and so is their family.
pub(crate) fn shares_prefix(a: IpAddr, b: IpAddr, prefix_len: u8) -> bool {
    common_bits(a, b).is_some_and(|bits| bits >= u32::from(prefix_len))
}

/// How many leading bits two addresses of one family share.
pub(crate) fn common_bits(a: IpAddr, b: IpAddr) -> Option<u32> {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        (IpAddr::V6(a), IpAddr::V6(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        _ => None,
    }
}

/// RFC 4291 s2.5.6: fe80::/10, which no router passes on.
pub(crate) fn is_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(v6) if v6.to_bits() >> 118 == 0xfe80 >> 6)
}

/// Whether an IPv6 address can name one station on a network: no group, nothing of ::/64, which holds the unspecified
/// and the loopback address and the forms of IPv4 addresses that never appear on a wire (RFC 4291 s2.5).
#[inline]
pub(crate) fn is_unicast_v6(addr: Ipv6Addr) -> bool {
    let high = (addr.to_bits() >> 64) as u64;
    high != 0 && high >> 56 != 0xff
}

/// RFC 4291 s2.7.1: the group that everybody is asked in who could have the address.
pub(crate) fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = addr.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// RFC 4291 s2.7.1: every station on the link.
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

#[cfg(test)]
mod tests {
    use super::*;

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    /// RFC 4291 s2.7.1's own example.
    #[test]
    fn the_solicited_node_group_is_derived() {
        assert_eq!(solicited_node(v6("4037::1:800:200e:8c6c")), v6("ff02::1:ff0e:8c6c"));
    }

    #[test]
    fn only_addresses_of_one_station_are_unicast() {
        for addr in ["::", "::1", "ff02::1", "::ffff:10.0.0.1", "::10.0.0.1"] {
            assert!(!is_unicast_v6(v6(addr)), "{addr}");
        }
        for addr in ["fe80::1", "fd00::1", "2001:db8::1", "64:ff9b::1"] {
            assert!(is_unicast_v6(v6(addr)), "{addr}");
        }
    }

    #[test]
    fn link_local_is_a_prefix_of_ten_bits() {
        assert!(["fe80::1", "febf::1"].iter().all(|addr| is_link_local(v6(addr).into())));
        assert!(["fec0::1", "fd00::1"].iter().all(|addr| !is_link_local(v6(addr).into())));
        assert!(!is_link_local(IpAddr::from([169, 254, 0, 1])));
    }

    #[test]
    fn prefixes_are_shared_within_a_family_only() {
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 1, 1]));
        assert!(shares_prefix(a, b, 23) && !shares_prefix(a, b, 24));
        assert!(!shares_prefix(a, v6("fd00::1").into(), 0));
        assert!(shares_prefix(a, b, 0) && shares_prefix(a, a, 32));
    }
}
