//! Neighbour discovery: answering for our addresses, learning those of neighbours, noticing who else claims ours.
//!
//! Source: RFC 4861 s7.2, RFC 4862 s5.4. Router solicitations and advertisements and redirects are counted and ignored:
//! addresses and routes are configured. So the router flag of advertisements has nobody to inform.

use core::net::Ipv6Addr;

use ironwarp_port::{Frame, Port, TxMeta, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::{MacAddr, Nanos};

use super::Datagram;
use crate::family::is_unicast_v6;
use crate::neighbour::nd::{self, NdIn};
use crate::neighbour::{LearnOutcome, NeighbourUpdate};
use crate::net::Net;

impl Net {
    /// A message of neighbour discovery whose checksum and hop limit hold.
    #[cold]
    pub(super) fn on_nd<P: Port>(
        &mut self,
        now: Nanos,
        frame: P::Frame,
        datagram: &Datagram<Ipv6Addr>,
        wire: &mut Wire<P>,
    ) {
        let span = usize::from(datagram.l4_offset)..usize::from(datagram.l4_end);
        let message = frame.bytes().get(span).unwrap_or_default();
        match NdIn::parse(message, datagram.remote, datagram.local) {
            Some(NdIn::Solicitation { target, mac }) => {
                self.on_solicitation(now, frame, datagram, (target, mac), wire);
            }
            Some(NdIn::Advertisement { target, mac, solicited, overrides }) => {
                let update =
                    mac.map(|mac| NeighbourUpdate { mac, add: false, overrides, confirms: solicited });
                self.on_advertisement(now, datagram.remote_mac, (target, update, solicited), wire);
            }
            None => self.stats.count(Counter::NetDropNdMalformed),
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
    ) {
        if !self.own.has_v6(target) {
            // RFC 4862 s5.4.3: somebody wants the address that we want.
            let probe = datagram.remote.is_unspecified() && datagram.remote_mac != self.link.mac;
            let conflict = probe && self.on_claim(now, target.into(), wire);
            return self.stats.count(if conflict {
                Counter::NetDropNdConflict
            } else {
                Counter::NetDropNdOther
            });
        }
        let asker = is_unicast_v6(datagram.remote).then_some(datagram.remote);
        if let (Some(asker), Some(mac)) = (asker, mac) {
            self.learn(
                now,
                asker.into(),
                NeighbourUpdate { mac, add: true, overrides: true, confirms: false },
            );
        }
        // An asker that does not say where it is gets its answer where its question came from.
        let to = asker.map(|addr| (addr, mac.unwrap_or(datagram.remote_mac)));
        let sent =
            nd::advertisement(&mut frame, &self.link, target, to) && wire.push(frame.seal(TxMeta::default()));
        self.stats.count(if sent { Counter::NetNdAdvertisementsSent } else { Counter::NetDropTxRingFull });
    }

    /// RFC 4861 s7.2.5; RFC 4862 s5.4.4 for an address that is ours.
    fn on_advertisement<P: Port>(
        &mut self,
        now: Nanos,
        from: MacAddr,
        (target, update, solicited): (Ipv6Addr, Option<NeighbourUpdate>, bool),
        wire: &mut Wire<P>,
    ) {
        if from != self.link.mac && self.on_claim(now, target.into(), wire) {
            return self.stats.count(Counter::NetDropNdConflict);
        }
        let outcome = match update {
            Some(update) => self.learn(now, target.into(), update),
            None if solicited => {
                let outcome = self.neighbours.confirm(now, target.into());
                self.publish_neighbour(target.into(), false);
                outcome
            }
            None => LearnOutcome::Ignored,
        };
        let ignored = outcome == LearnOutcome::Ignored;
        self.stats.count(if ignored { Counter::NetDropNdOther } else { Counter::NetNdUpdates });
    }
}
