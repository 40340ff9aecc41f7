//! Parses the Ethernet header with its VLAN tag.
//!
//! Source: RFC 894, RFC 2464 s7, IEEE 802.1Q s6.9 (a tag of VLAN 0 contains only a priority: the
//! frame counts as untagged).

use core::net::Ipv6Addr;

use ironwarp_stats::Counter;
use ironwarp_types::MacAddr;

use crate::link::{
    ETHERNET_BYTES, TAG_BYTES, TYPE_ARP, TYPE_IPV4, TYPE_IPV6, TYPE_PROVIDER_VLAN, TYPE_VLAN, VLAN_ID_MASK,
    is_group,
};
use crate::net::Net;

/// The protocol in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EtherPayload {
    Arp,
    Ipv4,
    Ipv6,
}

/// A valid link header of a frame to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LinkHeader {
    pub(super) payload: EtherPayload,
    /// The length of the header.
    pub(super) l2_bytes: usize,
    pub(super) remote_mac: MacAddr,
    /// The destination is the broadcast address or an IPv6 multicast address that we receive.
    pub(super) is_group: bool,
    /// The frame comes from the loopback of the wire.
    pub(super) is_loopback: bool,
}

impl Net {
    /// Returns the link header, or the reason to drop the frame.
    #[inline(always)]
    pub(super) fn parse_link(&self, frame: &[u8], is_loopback: bool) -> Result<LinkHeader, Counter> {
        let header = frame.first_chunk::<ETHERNET_BYTES>().ok_or(Counter::NetDropShort)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
        let (to, remote_mac) = (MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5]));
        let is_broadcast = to == MacAddr::BROADCAST;
        let is_multicast = self.receives_multicast(to);
        if !is_broadcast && !is_multicast && to != self.link.mac {
            return Err(Counter::NetDropNotOurMac);
        }
        // A reply to a group address would go to several stations.
        if is_group(remote_mac) {
            return Err(Counter::NetDropSourceMac);
        }
        let (ethertype, l2_bytes) = self.skip_tag(frame, u16::from_be_bytes([t0, t1]))?;
        let payload = match ethertype {
            TYPE_ARP => EtherPayload::Arp,
            TYPE_IPV4 => EtherPayload::Ipv4,
            TYPE_IPV6 => EtherPayload::Ipv6,
            TYPE_VLAN | TYPE_PROVIDER_VLAN => return Err(Counter::NetDropVlan),
            _ => return Err(Counter::NetDropEthertype),
        };
        if is_multicast && payload != EtherPayload::Ipv6 {
            return Err(Counter::NetDropNotOurMac);
        }
        let is_group = is_broadcast || is_multicast;
        Ok(LinkHeader { payload, l2_bytes, remote_mac, is_group, is_loopback })
    }

    /// Returns the EtherType after the tag of our VLAN, and the length of the link header. `outer`
    /// is the first EtherType.
    #[inline(always)]
    fn skip_tag(&self, frame: &[u8], outer: u16) -> Result<(u16, usize), Counter> {
        if outer != TYPE_VLAN {
            // A provider tag is counted as such by the caller.
            let accepted = self.link.vlan.is_none() || outer == TYPE_PROVIDER_VLAN;
            return accepted.then_some((outer, ETHERNET_BYTES)).ok_or(Counter::NetDropUntagged);
        }
        let tag = frame.get(ETHERNET_BYTES..).and_then(<[u8]>::first_chunk::<TAG_BYTES>);
        let [c0, c1, t0, t1] = *tag.ok_or(Counter::NetDropShort)?;
        let inner = (u16::from_be_bytes([t0, t1]), ETHERNET_BYTES + TAG_BYTES);
        match (u16::from_be_bytes([c0, c1]) & VLAN_ID_MASK, self.link.vlan) {
            (0, None) => Ok(inner),
            (0, Some(_)) => Err(Counter::NetDropUntagged),
            (id, Some(vlan)) if vlan.id & VLAN_ID_MASK == id => Ok(inner),
            _ => Err(Counter::NetDropVlan),
        }
    }

    /// Returns whether the link address belongs to an IPv6 multicast address that we receive.
    /// Several multicast addresses share a link address, so the IP header is checked too.
    #[inline]
    fn receives_multicast(&self, to: MacAddr) -> bool {
        let MacAddr([0x33, 0x33, a, b, c, d]) = to else { return false };
        let all_nodes = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]);
        let solicited_node = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, a, b, c, d]);
        self.local.has_ipv6() && (self.local.in_group(all_nodes) || self.local.in_group(solicited_node))
    }
}
