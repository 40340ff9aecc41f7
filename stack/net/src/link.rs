//! The link header: Ethernet, with a VLAN tag if one is configured.
//!
//! Source: RFC 894 (Ethernet), RFC 2464 (IPv6 and its group addresses), IEEE 802.1Q s9 (tag).

use core::net::Ipv6Addr;

use ironwarp_types::MacAddr;

/// Destination, source, EtherType.
pub(crate) const ETHERNET_BYTES: usize = 14;

/// A VLAN tag, between the source and the EtherType.
pub(crate) const TAG_BYTES: usize = 4;

pub(crate) const TYPE_IPV4: u16 = 0x0800;
pub(crate) const TYPE_ARP: u16 = 0x0806;
pub(crate) const TYPE_IPV6: u16 = 0x86dd;
/// 802.1Q: a customer tag, the only supported one.
pub(crate) const TYPE_VLAN: u16 = 0x8100;
/// 802.1ad: a service tag of a provider.
pub(crate) const TYPE_PROVIDER_VLAN: u16 = 0x88a8;

/// The bits of a tag that contain the VLAN identifier.
pub(crate) const VLAN_ID_MASK: u16 = 0x0fff;

/// The VLAN of a port, and the priority of the frames that it sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VlanTag {
    /// 1 to 4094. Higher bits are ignored.
    pub id: u16,
    /// 0, the usual one, to 7. Higher bits are ignored.
    pub priority: u8,
}

impl VlanTag {
    /// Returns the tag control information: priority, drop eligible indicator (always 0), VLAN
    /// identifier.
    fn control(self) -> u16 {
        u16::from(self.priority & 7) << 13 | self.id & VLAN_ID_MASK
    }
}

/// The link header of the frames of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) mac: MacAddr,
    pub(crate) vlan: Option<VlanTag>,
}

impl Link {
    /// Returns the length of the header: 14 bytes, or 18 with a tag.
    pub(crate) fn header_bytes(&self) -> usize {
        ETHERNET_BYTES + if self.vlan.is_some() { TAG_BYTES } else { 0 }
    }

    /// Writes the header of a frame and returns the bytes after it. Changes nothing if the frame is
    /// too short.
    pub(crate) fn write<'a>(&self, frame: &'a mut [u8], to: MacAddr, ethertype: u16) -> Option<&'a mut [u8]> {
        let (header, rest) = frame.split_at_mut_checked(self.header_bytes())?;
        let (addresses, types) = header.split_first_chunk_mut::<12>()?;
        let (target, source) = addresses.split_at_mut(6);
        target.copy_from_slice(&to.0);
        source.copy_from_slice(&self.mac.0);
        let (tag, last) = types.split_at_mut_checked(types.len().saturating_sub(2))?;
        if let (Some(vlan), Some(tag)) = (self.vlan, tag.first_chunk_mut::<TAG_BYTES>()) {
            let ([t0, t1], [c0, c1]) = (TYPE_VLAN.to_be_bytes(), vlan.control().to_be_bytes());
            *tag = [t0, t1, c0, c1];
        }
        last.copy_from_slice(&ethertype.to_be_bytes());
        Some(rest)
    }
}

/// Returns whether the address is a multicast or broadcast address.
pub(crate) fn is_group(mac: MacAddr) -> bool {
    let [first, ..] = mac.0;
    first & 1 != 0
}

/// Returns the link address for packets to a multicast address (RFC 2464 s7).
pub(crate) fn group_mac(addr: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = addr.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// Returns the link-local address that is derived from a link address (RFC 4291 s2.5.1 and
/// appendix A).
pub(crate) fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const THEIRS: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    /// IEEE 802.1Q s9.6: the priority is in the three highest bits, the VLAN identifier in the
    /// twelve lowest.
    #[test]
    fn a_tag_is_written_between_the_addresses_and_the_ethertype() {
        let mut frame = [0u8; 20];
        let link = Link { mac: OURS, vlan: Some(VlanTag { id: 0x123, priority: 5 }) };
        let rest = link.write(&mut frame, THEIRS, TYPE_IPV6).expect("room");
        assert_eq!(rest.len(), 2);
        assert_eq!(frame[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        assert_eq!(frame[12..18], [0x81, 0x00, 0xa1, 0x23, 0x86, 0xdd]);
    }

    #[test]
    fn a_header_without_a_tag_needs_14_bytes() {
        let link = Link { mac: OURS, vlan: None };
        let mut frame = [9u8; 14];
        assert!(link.write(&mut frame, THEIRS, TYPE_ARP).is_some_and(|rest| rest.is_empty()));
        assert_eq!(frame[12..], [0x08, 0x06]);
        assert!(link.write(&mut [0; 13], THEIRS, TYPE_ARP).is_none());
    }

    /// RFC 2464 s7, and the example of RFC 4291 appendix A.
    #[test]
    fn multicast_and_link_local_addresses_are_derived() {
        let group = "ff02::1:ff12:3456".parse().expect("an address");
        assert_eq!(group_mac(group), MacAddr([0x33, 0x33, 0xff, 0x12, 0x34, 0x56]));
        let expected: Ipv6Addr = "fe80::3456:78ff:fe9a:bcde".parse().expect("an address");
        assert_eq!(link_local(MacAddr([0x36, 0x56, 0x78, 0x9a, 0xbc, 0xde])), expected);
    }
}
