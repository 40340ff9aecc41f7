//! The Ethernet header, and the VLAN tag behind its addresses.
//!
//! Source: RFC 894, RFC 2464 s7, IEEE 802.1Q s6.9 (a tag of VLAN 0 carries a priority alone: the frame counts as untagged).

use core::net::Ipv6Addr;

use ironwarp_stats::Counter;
use ironwarp_types::MacAddr;

use crate::link::{
    ETHERNET_BYTES, TAG_BYTES, TYPE_ARP, TYPE_IPV4, TYPE_IPV6, TYPE_PROVIDER_VLAN, TYPE_VLAN, VLAN_ID_MASK,
    is_group,
};
use crate::net::Net;

/// What a frame to us carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Arp,
    Ipv4,
    Ipv6,
}

/// A frame whose link header holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Arrived {
    pub(super) kind: Kind,
    /// Bytes of the link header.
    pub(super) l2_bytes: usize,
    /// Who sent it.
    pub(super) remote_mac: MacAddr,
    /// Whether it went to a group: to everybody, or to an IPv6 group of ours.
    pub(super) group: bool,
    /// Whether we sent it.
    pub(super) own: bool,
}

impl Net {
    /// What the frame carries, or why it is dropped.
    pub(super) fn arrived(&self, frame: &[u8]) -> Result<Arrived, Counter> {
        let (header, _) = frame.split_first_chunk::<ETHERNET_BYTES>().ok_or(Counter::NetDropShort)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
        let (to, from) = (MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5]));
        let for_all = to == MacAddr::BROADCAST;
        let for_group = self.in_group(to);
        if !for_all && !for_group && to != self.link.mac {
            return Err(Counter::NetDropNotOurMac);
        }
        // A group address names no station that an answer could go to.
        if is_group(from) {
            return Err(Counter::NetDropSourceMac);
        }
        let (ethertype, l2_bytes) = self.behind_own_tag(frame, u16::from_be_bytes([t0, t1]))?;
        let kind = match ethertype {
            TYPE_ARP => Kind::Arp,
            TYPE_IPV4 => Kind::Ipv4,
            TYPE_IPV6 => Kind::Ipv6,
            TYPE_VLAN | TYPE_PROVIDER_VLAN => return Err(Counter::NetDropVlan),
            _ => return Err(Counter::NetDropEthertype),
        };
        if for_group && kind != Kind::Ipv6 {
            return Err(Counter::NetDropNotOurMac);
        }
        Ok(Arrived { kind, l2_bytes, remote_mac: from, group: for_all || for_group, own: false })
    }

    /// The type of what is carried, and where it begins; `outer` is the type that the frame begins with.
    fn behind_own_tag(&self, frame: &[u8], outer: u16) -> Result<(u16, usize), Counter> {
        if outer != TYPE_VLAN {
            let untagged = self.link.vlan.is_none();
            let provider = outer == TYPE_PROVIDER_VLAN;
            return if untagged || provider {
                Ok((outer, ETHERNET_BYTES))
            } else {
                Err(Counter::NetDropUntagged)
            };
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

    /// Whether a link address is that of an IPv6 group of ours. Several groups share one: the IP header tells.
    fn in_group(&self, to: MacAddr) -> bool {
        let MacAddr([0x33, 0x33, a, b, c, d]) = to else { return false };
        let all_nodes = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]);
        let solicited = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, a, b, c, d]);
        self.own.has_ipv6() && (self.own.in_group(all_nodes) || self.own.in_group(solicited))
    }
}
