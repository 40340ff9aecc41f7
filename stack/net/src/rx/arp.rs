//! ARP: replies for local addresses, updates of neighbours, and conflict detection.
//!
//! Source: RFC 826, RFC 5227 (probes and conflicts).

use core::net::IpAddr;

use ironwarp_port::{Frame, Port, TxMeta, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::Outcome;
use super::link::LinkHeader;
use crate::local_addresses::ConflictOutcome;
use crate::neighbour::arp::ReceivedArp;
use crate::neighbour::{LearnOutcome, NeighbourUpdate};
use crate::net::Net;
use crate::received::Received;

impl Net {
    /// RFC 826, "Packet Reception": update a known sender, add the sender of a packet to us, then
    /// handle a request.
    #[cold]
    pub(super) fn on_arp<P: Port>(
        &mut self,
        now: Nanos,
        mut frame: P::Frame,
        link: &LinkHeader,
        wire: &mut Wire<P>,
    ) -> Outcome<P::Frame> {
        if self.outbox.is_follower() {
            return Ok(Some(Received::ForLeader(frame)));
        }
        let arp = frame.bytes().get(link.l2_bytes..).and_then(ReceivedArp::parse);
        let arp = arp.ok_or(Counter::NetDropArpMalformed)?;
        if self.is_arp_conflict(now, &arp, wire) {
            return Err(Counter::NetDropArpConflict);
        }
        let for_us = arp.is_request && self.local.has_v4(arp.target);
        let outcome = self.learn(now, arp.sender.into(), NeighbourUpdate::from_arp(arp.sender_mac, for_us));
        if !for_us && outcome == LearnOutcome::Ignored {
            return Err(Counter::NetDropArpOther);
        }
        if !for_us {
            self.stats.count(Counter::NetArpUpdates);
            return Ok(None);
        }
        let is_written = arp.write_reply(&mut frame, &self.link);
        self.send_reply(is_written, frame, Counter::NetArpRepliesSent, wire)
    }

    /// Sends a reply in the frame of its request, and counts `sent`.
    pub(super) fn send_reply<P: Port>(
        &self,
        is_written: bool,
        frame: P::Frame,
        sent: Counter,
        wire: &mut Wire<P>,
    ) -> Outcome<P::Frame> {
        if !is_written || !wire.push(frame.seal(TxMeta::default())) {
            return Err(Counter::NetDropTxRingFull);
        }
        self.stats.count(sent);
        Ok(None)
    }

    /// RFC 5227 s2.1.1: another station has a local address, or probes for one that we probe for
    /// too. A frame of ours that a switch sends back is no conflict.
    fn is_arp_conflict<P: Port>(&mut self, now: Nanos, arp: &ReceivedArp, wire: &mut Wire<P>) -> bool {
        let claimed = if arp.is_probe() && !self.local.has_v4(arp.target) { arp.target } else { arp.sender };
        arp.sender_mac != self.link.mac && self.on_claim(now, claimed.into(), wire)
    }

    /// Another station claims an address. Returns whether it is one of ours.
    pub(super) fn on_claim<P: Port>(&mut self, now: Nanos, addr: IpAddr, wire: &mut Wire<P>) -> bool {
        match self.local.on_conflict(now, addr) {
            ConflictOutcome::NotLocal => return false,
            ConflictOutcome::GivenUp => {
                self.stats.count(Counter::NetAddressesDuplicate);
                // Callers that wait for the address try again and find it unreachable.
                self.on_route_change(1);
                self.publish_addresses();
            }
            ConflictOutcome::Defended => {
                self.stats.count(Counter::NetAddressesDefended);
                self.announce(addr, wire);
            }
            ConflictOutcome::Ignored => {}
        }
        true
    }

    /// Applies an update to the neighbour table if the address can be a neighbour's.
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
            // An unknown station is added only when it requests a local address. Then only a full
            // table ignores it.
            LearnOutcome::Ignored if update.add => self.stats.count(Counter::NetNeighbourTableFull),
            LearnOutcome::Confirmed | LearnOutcome::Added | LearnOutcome::Ignored => {}
        }
        outcome
    }
}
