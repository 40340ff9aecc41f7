//! Neighbour discovery: replies for local addresses, updates of neighbours, and conflict detection.
//!
//! Source: RFC 4861 s7.2, RFC 4862 s5.4. Addresses and routes are configured, so router
//! solicitations, router advertisements and redirects are counted and dropped, and the router flag
//! of advertisements is ignored.

use core::net::Ipv6Addr;

use ironwarp_port::{Frame, Port, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::{MacAddr, Nanos};

use super::ipv6::Packet;
use super::{Datagram, Outcome};
use crate::family::is_unicast_v6;
use crate::ip::HOP_LIMIT_MAX;
use crate::neighbour::nd::{self, ReceivedNd};
use crate::neighbour::{LearnOutcome, NeighbourUpdate};
use crate::net::Net;
use crate::received::Received;

impl Net {
    /// Handles a neighbour discovery message with a correct checksum.
    #[cold]
    pub(super) fn on_nd<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        packet: Packet,
        wire: &mut Wire<P>,
    ) -> Outcome<P::Frame> {
        if self.outbox.is_follower() {
            return Ok(Some(Received::ForLeader(frame)));
        }
        // RFC 4861 s7.1: the message has not passed a router. RFC 6980 s5: no extension header
        // precedes it.
        if packet.hop_limit != HOP_LIMIT_MAX || packet.has_extensions {
            return Err(Counter::NetDropNdMalformed);
        }
        let datagram = &packet.datagram;
        let message = datagram.payload(frame.bytes()).unwrap_or_default();
        if !matches!(message, [nd::SOLICITATION | nd::ADVERTISEMENT, ..]) {
            return Err(Counter::NetDropNdRouter);
        }
        match ReceivedNd::parse(message, datagram.remote, datagram.local) {
            Some(ReceivedNd::Solicitation { target, mac }) => {
                self.on_solicitation(now, frame, datagram, (target, mac), wire)
            }
            Some(ReceivedNd::Advertisement { target, mac, solicited, overrides }) => {
                let update =
                    mac.map(|mac| NeighbourUpdate { mac, add: false, overrides, confirms: solicited });
                self.on_advertisement(now, datagram.remote_mac, (target, update, solicited), wire)?;
                self.stats.count(Counter::NetNdUpdates);
                Ok(None)
            }
            None => Err(Counter::NetDropNdMalformed),
        }
    }

    /// RFC 4861 s7.2.3.
    fn on_solicitation<P: Port>(
        &mut self,
        now: Nanos,
        mut frame: P::Frame,
        datagram: &Datagram<Ipv6Addr>,
        (target, mac): (Ipv6Addr, Option<MacAddr>),
        wire: &mut Wire<P>,
    ) -> Outcome<P::Frame> {
        if !self.local.has_v6(target) {
            // RFC 4862 s5.4.3: another station probes for an address that we probe for.
            let is_probe = datagram.remote.is_unspecified() && datagram.remote_mac != self.link.mac;
            let is_conflict = is_probe && self.on_claim(now, target.into(), wire);
            return Err(if is_conflict { Counter::NetDropNdConflict } else { Counter::NetDropNdOther });
        }
        let requester = is_unicast_v6(datagram.remote).then_some(datagram.remote);
        if let (Some(requester), Some(mac)) = (requester, mac) {
            let update = NeighbourUpdate { mac, add: true, overrides: true, confirms: false };
            self.learn(now, requester.into(), update);
        }
        // Without a link address option the reply goes to the link address that the request came
        // from.
        let to = requester.map(|addr| (addr, mac.unwrap_or(datagram.remote_mac)));
        let is_written = nd::write_advertisement(&mut frame, &self.link, target, to);
        self.send_reply(is_written, frame, Counter::NetNdAdvertisementsSent, wire)
    }

    /// RFC 4861 s7.2.5, and RFC 4862 s5.4.4 for a local address. Returns the reason if the
    /// advertisement changes nothing.
    fn on_advertisement<P: Port>(
        &mut self,
        now: Nanos,
        remote_mac: MacAddr,
        (target, update, solicited): (Ipv6Addr, Option<NeighbourUpdate>, bool),
        wire: &mut Wire<P>,
    ) -> Result<(), Counter> {
        if remote_mac != self.link.mac && self.on_claim(now, target.into(), wire) {
            return Err(Counter::NetDropNdConflict);
        }
        let outcome = match update {
            Some(update) => self.learn(now, target.into(), update),
            None if solicited => {
                let outcome = self.neighbours.confirm(now, target.into());
                self.publish_neighbour(target.into());
                outcome
            }
            None => LearnOutcome::Ignored,
        };
        if outcome == LearnOutcome::Ignored { Err(Counter::NetDropNdOther) } else { Ok(()) }
    }
}
