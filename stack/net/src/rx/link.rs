//! The Ethernet header, and ARP behind it.
//!
//! Source: RFC 894, RFC 826, RFC 5227 (probes and conflicts).

use ironwarp_port::{Frame, Port, TxMeta, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::{MacAddr, Nanos};
use smoltcp::wire::{EthernetFrame, EthernetProtocol};

use crate::neighbour::{ArpIn, Learnt};
use crate::net::Net;

/// 802.1Q and 802.1ad tags.
const VLAN_ETHERTYPES: [u16; 2] = [0x8100, 0x88a8];

/// What a frame to us carries.
pub(super) enum Kind {
    Arp,
    Ipv4 { broadcast: bool },
}

impl Net {
    /// What the frame carries, or why it is dropped.
    pub(super) fn link_kind(&self, frame: &[u8]) -> Result<Kind, Counter> {
        let link = EthernetFrame::new_checked(frame).map_err(|_| Counter::NetDropShort)?;
        let broadcast = link.dst_addr().is_broadcast();
        if !broadcast && link.dst_addr().0 != self.ours.mac.0 {
            return Err(Counter::NetDropNotOurMac);
        }
        // A group address names no station that an answer could go to.
        if !link.src_addr().is_unicast() {
            return Err(Counter::NetDropSourceMac);
        }
        match link.ethertype() {
            EthernetProtocol::Arp => Ok(Kind::Arp),
            EthernetProtocol::Ipv4 => Ok(Kind::Ipv4 { broadcast }),
            EthernetProtocol::Unknown(tag) if VLAN_ETHERTYPES.contains(&tag) => Err(Counter::NetDropVlan),
            _ => Err(Counter::NetDropEthertype),
        }
    }

    /// RFC 826, "Packet Reception": merge what is known, add when it is for us, then look at the operation.
    #[cold]
    pub(super) fn on_arp<P: Port>(&mut self, now: Nanos, frame: P::Frame, wire: &mut Wire<P>) {
        let Some(arp) = ArpIn::parse(frame.bytes()) else {
            return self.stats.count(Counter::NetDropArpMalformed);
        };
        // RFC 5227 s2.4: another station uses our address. We keep it, and say so in a counter.
        if arp.sender.addr == self.ours.addr {
            return self.stats.count(Counter::NetDropArpConflict);
        }
        let for_us = arp.is_request && arp.target == self.ours.addr;
        let learnt = self.learn(now, &arp, for_us);
        if for_us {
            self.answer_arp(frame, &arp, wire);
        } else if learnt == Learnt::Ignored {
            self.stats.count(Counter::NetDropArpOther);
        } else {
            self.stats.count(Counter::NetArpLearnt);
        }
    }

    /// A stranger is added only when it asks for us: a reply that nobody asked for teaches nothing.
    fn learn(&mut self, now: Nanos, arp: &ArpIn, for_us: bool) -> Learnt {
        if !self.may_be_neighbour(arp.sender.addr) {
            return Learnt::Ignored;
        }
        let learnt = self.neighbours.learn(now, arp.sender.addr, arp.sender.mac, for_us);
        match learnt {
            Learnt::Resolved => self.route_changes = self.route_changes.wrapping_add(1),
            Learnt::Moved => {
                self.stats.count(Counter::NetNeighboursMoved);
                self.route_changes = self.route_changes.wrapping_add(1);
            }
            Learnt::Ignored if for_us => self.stats.count(Counter::NetNeighboursFull),
            Learnt::Confirmed | Learnt::Added | Learnt::Ignored => {}
        }
        learnt
    }

    fn answer_arp<P: Port>(&mut self, mut frame: P::Frame, arp: &ArpIn, wire: &mut Wire<P>) {
        let sent = arp.reply(&mut frame, self.ours) && wire.push(frame.seal(TxMeta::default()));
        self.stats.count(if sent { Counter::NetArpRepliesSent } else { Counter::NetDropReplyRing });
    }

    /// Tells the network our link address, so that stations which knew another one learn it (RFC 5227 s2.3).
    /// Answers whether the frame was queued.
    pub fn announce<P: Port>(&self, wire: &mut Wire<P>) -> bool {
        let Some(mut frame) = wire.alloc() else {
            self.stats.count(Counter::NetNoTxFrame);
            return false;
        };
        let everybody: Option<MacAddr> = None;
        let sent = crate::neighbour::request(&mut frame, self.ours, self.ours.addr, everybody)
            && wire.push(frame.seal(TxMeta::default()));
        self.stats.count(if sent { Counter::NetArpRequestsSent } else { Counter::NetNoTxFrame });
        sent
    }
}
