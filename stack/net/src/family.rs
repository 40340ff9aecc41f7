//! Operations on addresses of both families. [`Address`] lets code for TCP be generic over the
//! family.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::flow::FlowHasher;

/// An address of either family.
pub(crate) trait Address: Copy + Eq + Into<IpAddr> {
    /// Returns the sum of its words, for pseudo-headers (RFC 9293 s3.1, RFC 8200 s8.1). Carries are
    /// not added.
    fn sum(self) -> u32;

    /// Returns the same as [`FlowHasher::hash`] of the flow between two addresses and ports.
    fn hash(hasher: &FlowHasher, local: (Self, u16), remote: (Self, u16)) -> u32;
}

impl Address for Ipv4Addr {
    #[inline]
    fn sum(self) -> u32 {
        let bits = self.to_bits();
        (bits >> 16) + (bits & 0xffff)
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

/// Returns whether both addresses are of one family and share their first `prefix_len` bits.
pub(crate) fn shares_prefix(a: IpAddr, b: IpAddr, prefix_len: u8) -> bool {
    common_bits(a, b).is_some_and(|bits| bits >= u32::from(prefix_len))
}

/// Returns the number of leading bits that two addresses share, or `None` if their families differ.
pub(crate) fn common_bits(a: IpAddr, b: IpAddr) -> Option<u32> {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        (IpAddr::V6(a), IpAddr::V6(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        _ => None,
    }
}

/// Returns whether the address is in fe80::/10, which routers do not forward (RFC 4291 s2.5.6).
pub(crate) fn is_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(v6) if v6.to_bits() >> 118 == 0xfe80 >> 6)
}

/// Returns whether the address is unicast and may appear on a network (RFC 4291 s2.5). Multicast
/// addresses are not, and nothing in ::/64: it holds the unspecified address, the loopback address
/// and the forms of IPv4 addresses.
#[inline]
pub(crate) fn is_unicast_v6(addr: Ipv6Addr) -> bool {
    let high = (addr.to_bits() >> 64) as u64;
    high != 0 && high >> 56 != 0xff
}

/// Returns the solicited-node multicast address of an address (RFC 4291 s2.7.1).
pub(crate) fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = addr.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The multicast address of all nodes on the link (RFC 4291 s2.7.1).
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Returns an IPv6 address itself, and the IPv4-mapped form of an IPv4 address (RFC 4291 s2.5.5.2).
pub(crate) fn as_v6(addr: IpAddr) -> Ipv6Addr {
    match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    /// The example of RFC 4291 s2.7.1.
    #[test]
    fn the_solicited_node_address_ends_with_the_last_three_bytes() {
        assert_eq!(solicited_node(v6("4037::1:800:200e:8c6c")), v6("ff02::1:ff0e:8c6c"));
    }

    #[test]
    fn unspecified_loopback_multicast_and_ipv4_forms_are_not_unicast() {
        for addr in ["::", "::1", "ff02::1", "::ffff:10.0.0.1", "::10.0.0.1"] {
            assert!(!is_unicast_v6(v6(addr)), "{addr}");
        }
        for addr in ["fe80::1", "fd00::1", "2001:db8::1", "64:ff9b::1"] {
            assert!(is_unicast_v6(v6(addr)), "{addr}");
        }
    }

    #[test]
    fn link_local_addresses_share_a_prefix_of_ten_bits() {
        assert!(["fe80::1", "febf::1"].iter().all(|addr| is_link_local(v6(addr).into())));
        assert!(["fec0::1", "fd00::1"].iter().all(|addr| !is_link_local(v6(addr).into())));
        assert!(!is_link_local(IpAddr::from([169, 254, 0, 1])));
    }

    #[test]
    fn addresses_of_different_families_share_no_prefix() {
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 1, 1]));
        assert!(shares_prefix(a, b, 23) && !shares_prefix(a, b, 24));
        assert!(!shares_prefix(a, v6("fd00::1").into(), 0));
        assert!(shares_prefix(a, b, 0) && shares_prefix(a, a, 32));
    }
}
