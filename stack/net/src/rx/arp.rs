//! ARP: answering for our addresses, learning those of neighbours, noticing who else claims ours.
//!
//! Source: RFC 826, RFC 5227 (probes and conflicts).

use core::net::IpAddr;

use ironwarp_port::{Frame, Port, TxMeta, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::link::Arrived;
use crate::neighbour::arp::ArpIn;
use crate::neighbour::{LearnOutcome, NeighbourUpdate};
use crate::net::Net;
use crate::own::Claim;

impl Net {
    /// RFC 826, "Packet Reception": merge what is known, add when it is for us, then look at the operation.
    #[cold]
    pub(super) fn on_arp<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        arrived: &Arrived,
        wire: &mut Wire<P>,
    ) {
        let Some(arp) = frame.bytes().get(arrived.l2_bytes..).and_then(ArpIn::parse) else {
            return self.stats.count(Counter::NetDropArpMalformed);
        };
        if self.claims_ours(now, &arp, wire) {
            return self.stats.count(Counter::NetDropArpConflict);
        }
        let for_us = arp.is_request && self.own.has_v4(arp.target);
        let outcome = self.learn(now, arp.sender.into(), NeighbourUpdate::by_arp(arp.mac, for_us));
        if for_us {
            self.answer_arp(frame, &arp, wire);
        } else if outcome == LearnOutcome::Ignored {
            self.stats.count(Counter::NetDropArpOther);
        } else {
            self.stats.count(Counter::NetArpUpdates);
        }
    }

    /// RFC 5227 s2.1.1: somebody has our address, or asks for one that we ask for too. What we sent ourselves, and a
    /// switch gave back, is no claim.
    fn claims_ours<P: Port>(&mut self, now: Nanos, arp: &ArpIn, wire: &mut Wire<P>) -> bool {
        let claimed = if arp.is_probe() && !self.own.has_v4(arp.target) { arp.target } else { arp.sender };
        arp.mac != self.link.mac && self.on_claim(now, claimed.into(), wire)
    }

    /// Somebody claims an address. Answers whether it is one of ours.
    pub(super) fn on_claim<P: Port>(&mut self, now: Nanos, addr: IpAddr, wire: &mut Wire<P>) -> bool {
        match self.own.on_claim(now, addr) {
            Claim::NotOurs => return false,
            Claim::Lost => {
                self.stats.count(Counter::NetAddressesDuplicate);
                // Callers that wait for the address learn that it is lost.
                self.on_route_change(1);
                self.publish_addresses();
            }
            Claim::Defend => {
                self.stats.count(Counter::NetAddressesDefended);
                self.announce(addr, wire);
            }
            Claim::Ignored => {}
        }
        true
    }

    /// Remembers what a station told about itself, where it can be a neighbour.
    pub(crate) fn learn(&mut self, now: Nanos, addr: IpAddr, update: NeighbourUpdate) -> LearnOutcome {
        if !self.may_be_neighbour(addr) {
            return LearnOutcome::Ignored;
        }
        let outcome = self.neighbours.learn(now, addr, update);
        self.publish_update(addr, update, outcome);
        match outcome {
            LearnOutcome::Resolved => self.on_route_change(1),
            LearnOutcome::Moved => {
                self.stats.count(Counter::NetNeighboursChanged);
                self.on_route_change(1);
            }
            // An unknown station is added only when it requests our address: an unsolicited reply adds nothing.
            LearnOutcome::Ignored if update.add => self.stats.count(Counter::NetNeighbourTableFull),
            LearnOutcome::Confirmed | LearnOutcome::Added | LearnOutcome::Ignored => {}
        }
        outcome
    }

    fn answer_arp<P: Port>(&self, mut frame: P::Frame, arp: &ArpIn, wire: &mut Wire<P>) {
        let sent = arp.reply(&mut frame, &self.link) && wire.push(frame.seal(TxMeta::default()));
        self.stats.count(if sent { Counter::NetArpRepliesSent } else { Counter::NetDropTxRingFull });
    }
}
