//! Which station a packet goes to first, from which address, and whether we know its link address.
//!
//! Source: RFC 1122 s3.3.1 (on-link by prefix, else a gateway; the longest prefix wins). RFC 1122 s2.3.2.2 and RFC 4861
//! s7.2.2 ask to save a packet that waits for an address: the caller here has not built one yet, and asks again when
//! [`Net::route_changes`] says so; every answer to a received segment goes back to the link address that it came from.
//! So no packet ever waits in this layer, and none is lost to waiting.

use core::net::IpAddr;

use arrayvec::ArrayVec;
use ironwarp_port::{Port, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::config::{ADDRESSES_MAX, NetConfig, Prefix, ROUTES_MAX};
use crate::family::{is_link_local, is_unicast_v6, shares_prefix};
use crate::neighbour::Lookup;
use crate::net::Net;
use crate::own::{AddressState, Source};
use crate::path::Path;

/// The way to an address, as far as it is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// Known.
    Ready(Path),
    /// The next station was asked for its link address, or our own address is still being asked for.
    /// [`Net::route_changes`] tells when to ask again.
    Pending,
    /// There is no way: no gateway, no answer, no place to remember the question, no address of ours in the family, or not
    /// an address one sends to.
    Unreachable,
}

/// Networks, and who leads there. Both gateways are among them, as networks of every address.
pub(crate) struct Routes {
    /// The longest prefix first.
    entries: ArrayVec<Entry, { ADDRESSES_MAX + ROUTES_MAX + 2 }>,
}

#[derive(Clone, Copy)]
struct Entry {
    to: Prefix,
    /// None: the network is next to us.
    via: Option<IpAddr>,
}

impl Routes {
    pub(crate) fn new(cfg: &NetConfig) -> Self {
        let on_link = cfg.addresses.iter().map(|&to| Entry { to, via: None });
        let fixed = cfg.routes.iter().map(|route| Entry { to: route.to, via: Some(route.via) });
        let gateways = [cfg.gateway.map(IpAddr::V4), cfg.gateway6.map(IpAddr::V6)];
        let everything = gateways.into_iter().flatten().map(|via| {
            // Of its own family, and no bit of it counts.
            Entry { to: Prefix { addr: via, len: 0 }, via: Some(via) }
        });
        let mut entries: ArrayVec<Entry, _> = ArrayVec::new();
        for entry in on_link.chain(fixed).chain(everything) {
            let _ = entries.try_push(entry);
        }
        // Stable: among equals a network next to us goes first.
        entries.sort_by_key(|entry| core::cmp::Reverse(entry.to.len));
        Routes { entries }
    }

    /// Who takes a packet for `dst` first.
    fn next(&self, dst: IpAddr) -> Option<IpAddr> {
        // RFC 4291 s2.5.6: the link that these addresses are on is ours.
        if is_link_local(dst) {
            return Some(dst);
        }
        let entry = self.entries.iter().find(|entry| shares_prefix(entry.to.addr, dst, entry.to.len))?;
        Some(entry.via.unwrap_or(dst))
    }

    /// How near a network with `dst` in it is: the more bits name it the nearer.
    fn nearness(&self, dst: IpAddr) -> Option<u8> {
        let entry = self.entries.iter().find(|entry| shares_prefix(entry.to.addr, dst, entry.to.len))?;
        Some(entry.to.len)
    }

    /// Whether the address is that of a router which leads somewhere.
    fn is_router(&self, addr: IpAddr) -> bool {
        self.entries.iter().any(|entry| entry.via == Some(addr))
    }
}

impl Net {
    /// How near `dst` is to this port, for who has several: the address of the port itself is nearer than any, then goes
    /// the length of the prefix of the network or route that leads there. `None`: this port does not lead there.
    ///
    /// A link-local address may be on the link of every port that has one of its family.
    pub fn nearness(&self, dst: IpAddr) -> Option<u8> {
        if self.own.has(dst) {
            return Some(u8::MAX);
        }
        if is_link_local(dst) {
            return self.addresses().any(|ours| ours.is_ipv4() == dst.is_ipv4()).then_some(0);
        }
        self.routes.nearness(dst)
    }

    /// The way to `dst`. Asks the network when it is not known. The path says which of our addresses it begins at.
    ///
    /// Frames for an address of our own go through the wire's loop, which this switches on.
    pub fn route<P: Port>(&mut self, now: Nanos, dst: IpAddr, wire: &mut Wire<P>) -> Route {
        match self.own.state_of(dst) {
            Some(AddressState::Usable) => {
                wire.loop_back(self.link.mac);
                return Route::Ready(self.path_over(dst, dst, self.link.mac));
            }
            Some(AddressState::Tentative) => return Route::Pending,
            Some(AddressState::Duplicate) | None => {}
        }
        let Some(next) = self.next_station(dst) else { return Route::Unreachable };
        match self.own.source(dst, next) {
            Source::Addr(source) => self.route_from(now, source, (dst, next), wire),
            Source::NotYet => Route::Pending,
            Source::None => Route::Unreachable,
        }
    }

    fn route_from<P: Port>(
        &mut self,
        now: Nanos,
        source: IpAddr,
        (dst, next): (IpAddr, IpAddr),
        wire: &mut Wire<P>,
    ) -> Route {
        match self.neighbours.ask(now, next) {
            Lookup::Known(mac) => Route::Ready(self.path_over(source, dst, mac)),
            Lookup::Pending => Route::Pending,
            Lookup::SendRequest => {
                self.request_neighbour(next, None, wire);
                Route::Pending
            }
            Lookup::Failed => Route::Unreachable,
            Lookup::TableFull => {
                self.stats.count(Counter::NetNeighbourTableFull);
                Route::Unreachable
            }
        }
    }

    /// Brings a path up to date, and answers whether it has changed: its neighbour may have another link address now, or
    /// the way may lead through another. A path whose neighbour is not known stays as it is; the neighbour is asked, and
    /// one that is known counts as in use, so that it is asked again before it grows stale.
    pub fn refresh<P: Port>(&mut self, now: Nanos, path: &mut Path, wire: &mut Wire<P>) -> bool {
        let dst = path.remote_addr();
        if self.own.has(dst) {
            return false;
        }
        let Some(next) = self.next_station(dst) else { return false };
        let mac = match self.neighbours.ask(now, next) {
            Lookup::Known(mac) => mac,
            Lookup::SendRequest => {
                self.request_neighbour(next, None, wire);
                return false;
            }
            Lookup::Pending | Lookup::Failed | Lookup::TableFull => return false,
        };
        let moved = mac != path.remote_mac();
        if moved {
            path.set_remote_mac(mac);
            self.stats.count(Counter::NetPathsUpdated);
        }
        moved
    }

    /// Who takes a packet for `dst` first; nobody takes one for what is no station, or is ours but not in use.
    fn next_station(&self, dst: IpAddr) -> Option<IpAddr> {
        let next = self.routes.next(dst)?;
        (self.is_unicast(dst) && self.own.state_of(dst).is_none()).then_some(next)
    }

    /// Whether the address can name one station.
    pub(crate) fn is_unicast(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(v4) => self.own.is_unicast_v4(v4),
            IpAddr::V6(v6) => is_unicast_v6(v6),
        }
    }

    /// Whether a station with this address could be next to us.
    pub(crate) fn may_be_neighbour(&self, addr: IpAddr) -> bool {
        let near = is_link_local(addr) || self.own.is_on_link(addr) || self.routes.is_router(addr);
        near && self.is_unicast(addr)
    }
}
