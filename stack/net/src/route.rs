//! Which station a packet goes to first, and whether we know it.
//!
//! Source: RFC 1122 s3.3.1.1 (on-link by prefix, else a gateway). RFC 1122 s2.3.2.2 asks to save a packet that waits
//! for an address; whoever asks here has not built one yet, and asks again.

use core::net::{IpAddr, Ipv4Addr};

use ironwarp_port::{Port, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::neighbour::Answer;
use crate::net::{Net, send_request};
use crate::path::Path;

/// The way to an address, as far as it is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// Known.
    Ready(Path),
    /// The next station was asked for its link address. [`Net::route_changes`] tells when to ask again.
    Pending,
    /// There is no way: no gateway, no answer, no place to remember the question, or not an address one sends to.
    Unreachable,
}

impl Net {
    /// The way to `dst`. Asks the network when it is not known.
    pub fn route<P: Port>(&mut self, now: Nanos, dst: IpAddr, wire: &mut Wire<P>) -> Route {
        let Some(next) = self.next_station(dst) else { return Route::Unreachable };
        match self.neighbours.ask(now, next) {
            Answer::Known(mac) => Route::Ready(self.path_through(dst, mac)),
            Answer::Asked => Route::Pending,
            Answer::AskNow => {
                send_request(self.ours, next, None, wire, &self.stats);
                Route::Pending
            }
            Answer::Failed => Route::Unreachable,
            Answer::Full => {
                self.stats.count(Counter::NetNeighboursFull);
                Route::Unreachable
            }
        }
    }

    /// Who takes a packet for `dst` first.
    fn next_station(&self, dst: IpAddr) -> Option<Ipv4Addr> {
        let IpAddr::V4(dst) = dst else { return None };
        if !self.is_unicast(dst) || dst == self.ours.addr {
            return None;
        }
        if self.is_on_link(dst) { Some(dst) } else { self.cfg.gateway }
    }

    /// Whether a station with this address could be next to us.
    pub(crate) fn may_be_neighbour(&self, addr: Ipv4Addr) -> bool {
        self.is_unicast(addr) && (self.is_on_link(addr) || self.cfg.gateway == Some(addr))
    }

    /// Whether the address lies in our own network.
    #[inline]
    pub(crate) fn is_on_link(&self, addr: Ipv4Addr) -> bool {
        (addr.to_bits() ^ self.ours.addr.to_bits()) & self.network_mask == 0
    }

    /// Whether the address can name one station: RFC 1122 s3.2.1.3. Our network's two broadcast forms cannot, save
    /// where a network has no room for them (RFC 3021).
    #[inline]
    pub(crate) fn is_unicast(&self, addr: Ipv4Addr) -> bool {
        let (first, host_mask) = (addr.to_bits() >> 24, !self.network_mask);
        let host = addr.to_bits() & host_mask;
        let broadcast = host_mask > 1 && (host == 0 || host == host_mask) && self.is_on_link(addr);
        first != 0 && first != 127 && first < 224 && !broadcast
    }
}
