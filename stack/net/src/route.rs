//! Routes: the next hop of a destination, the source address, and the link address of the next hop.
//!
//! No packet waits here for a link address. RFC 1122 s2.3.2.2 and RFC 4861 s7.2.2 ask to save such
//! a packet. A caller builds packets only after [`Net::route`] returns a path, and calls it again
//! when [`Net::route_changes`] has changed. A reply to a received segment uses the link address
//! that the segment came from.
//!
//! Source: RFC 1122 s3.3.1 (on-link by prefix, else a gateway; the longest prefix wins).

use core::net::IpAddr;

use arrayvec::ArrayVec;
use ironwarp_port::{Port, Wire};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use crate::config::{ADDRESSES_MAX, NetConfig, Prefix, ROUTES_MAX};
use crate::family::{is_link_local, is_unicast_v6, shares_prefix};
use crate::local_addresses::{AddressState, SourceAddress};
use crate::neighbour::Lookup;
use crate::net::Net;
use crate::path::Path;

/// The result of [`Net::route`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// The path to the destination.
    Ready(Path),
    /// The link address of the next hop was requested, or the source address is still tentative.
    /// The caller tries again when [`Net::route_changes`] has changed.
    Pending,
    /// There is no route: no gateway, no reply from the next hop, a full neighbour table, no local
    /// address of the family, or a destination that is not a unicast address.
    Unreachable,
}

/// The routing table. A gateway is the route of a prefix of length 0.
pub(crate) struct Routes {
    /// Sorted by prefix length, the longest first.
    entries: ArrayVec<Entry, { ADDRESSES_MAX + ROUTES_MAX + 2 }>,
}

#[derive(Clone, Copy)]
struct Entry {
    to: Prefix,
    /// The router. `None`: the network is on the link.
    via: Option<IpAddr>,
}

impl Routes {
    pub(crate) fn new(cfg: &NetConfig) -> Self {
        let on_link = cfg.addresses.iter().map(|&to| Entry { to, via: None });
        let configured = cfg.routes.iter().map(|route| Entry { to: route.to, via: Some(route.via) });
        let gateways = [cfg.gateway.map(IpAddr::V4), cfg.gateway6.map(IpAddr::V6)].into_iter().flatten();
        // The address of the prefix selects the family.
        let default = gateways.map(|via| Entry { to: Prefix { addr: via, len: 0 }, via: Some(via) });
        let mut entries: ArrayVec<Entry, _> = on_link.chain(configured).chain(default).collect();
        // The sort is stable: of equal prefixes the on-link one is first.
        entries.sort_by_key(|entry| core::cmp::Reverse(entry.to.len));
        Routes { entries }
    }

    /// Returns the route with the longest prefix that contains `dst`.
    fn longest_match(&self, dst: IpAddr) -> Option<&Entry> {
        self.entries.iter().find(|entry| shares_prefix(entry.to.addr, dst, entry.to.len))
    }

    fn is_router(&self, addr: IpAddr) -> bool {
        self.entries.iter().any(|entry| entry.via == Some(addr))
    }
}

impl Net {
    /// Returns how well this port reaches `dst`, to choose between ports: the length of the longest
    /// matching prefix, 255 for a local address, or `None` if there is no route.
    ///
    /// A link-local address may be on the link of each port with an address of its family, so it
    /// gives 0.
    pub fn match_len(&self, dst: IpAddr) -> Option<u8> {
        if self.local.has(dst) {
            return Some(u8::MAX);
        }
        if is_link_local(dst) {
            return self.local.has_ipv6().then_some(0);
        }
        self.routes.longest_match(dst).map(|entry| entry.to.len)
    }

    /// Returns whether `addr` is a local address, usable or not yet.
    pub fn is_local(&self, addr: IpAddr) -> bool {
        self.local.state_of(addr).is_some_and(|state| state != AddressState::Duplicate)
    }

    /// Returns the path to `dst`, which contains the source address. Requests the link address of
    /// the next hop if it is unknown.
    ///
    /// Frames to a local address go through the loopback of the wire, which this call enables.
    pub fn route<P: Port>(&mut self, now: Nanos, dst: IpAddr, wire: &mut Wire<P>) -> Route {
        self.route_from(now, None, dst, wire)
    }

    /// As [`Net::route`], from a local address of the caller's choice. There is no route from an
    /// address that is not local, or is of another family.
    pub fn route_from<P: Port>(
        &mut self,
        now: Nanos,
        source: Option<IpAddr>,
        dst: IpAddr,
        wire: &mut Wire<P>,
    ) -> Route {
        match source.map(|source| (self.local.state_of(source), source.is_ipv4() == dst.is_ipv4())) {
            None | Some((Some(AddressState::Usable), true)) => {}
            Some((Some(AddressState::Tentative), true)) => return Route::Pending,
            Some(_) => return Route::Unreachable,
        }
        match self.local.state_of(dst) {
            Some(AddressState::Usable) => {
                wire.loop_back(self.link.mac);
                return Route::Ready(self.path_over(source.unwrap_or(dst), dst, self.link.mac));
            }
            Some(AddressState::Tentative) => return Route::Pending,
            Some(AddressState::Duplicate) | None => {}
        }
        let Some(next_hop) = self.next_hop(dst) else { return Route::Unreachable };
        let source = match source.map_or_else(|| self.local.source_for(dst, next_hop), SourceAddress::Addr) {
            SourceAddress::Addr(source) => source,
            SourceAddress::Tentative => return Route::Pending,
            SourceAddress::None => return Route::Unreachable,
        };
        match self.neighbours.resolve(now, next_hop) {
            Lookup::Known(mac) => Route::Ready(self.path_over(source, dst, mac)),
            Lookup::Pending => Route::Pending,
            Lookup::SendRequest => {
                self.request_neighbour(next_hop, wire);
                Route::Pending
            }
            Lookup::Failed => Route::Unreachable,
            Lookup::TableFull => {
                self.stats.count(Counter::NetNeighbourTableFull);
                Route::Unreachable
            }
        }
    }

    /// Updates the link address and the offloads in a path. Returns whether the next hop has a new
    /// link address. If the link address is unknown it is requested, and the path stays. A known
    /// neighbour counts as used, so it is probed before it expires.
    pub fn refresh<P: Port>(&mut self, now: Nanos, path: &mut Path, wire: &mut Wire<P>) -> bool {
        let dst = path.remote_addr();
        if self.local.has(dst) {
            return false;
        }
        path.set_offloads(self.transport, self.tx_offloads());
        let Some(next_hop) = self.next_hop(dst) else { return false };
        let mac = match self.neighbours.resolve(now, next_hop) {
            Lookup::Known(mac) => mac,
            Lookup::SendRequest => {
                self.request_neighbour(next_hop, wire);
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

    /// Returns the station that packets to `dst` are sent to. `None` if there is no route, or `dst`
    /// is not unicast or is a local address that is not in use.
    fn next_hop(&self, dst: IpAddr) -> Option<IpAddr> {
        if !self.is_unicast(dst) || self.local.state_of(dst).is_some() {
            return None;
        }
        // RFC 4291 s2.5.6: link-local addresses are on the link.
        if is_link_local(dst) {
            return Some(dst);
        }
        self.routes.longest_match(dst).map(|entry| entry.via.unwrap_or(dst))
    }

    fn is_unicast(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(v4) => self.local.is_unicast_v4(v4),
            IpAddr::V6(v6) => is_unicast_v6(v6),
        }
    }

    /// Returns whether the address can be that of a neighbour: unicast and on the link.
    pub(crate) fn may_be_neighbour(&self, addr: IpAddr) -> bool {
        let on_link = is_link_local(addr) || self.local.is_on_link(addr) || self.routes.is_router(addr);
        on_link && self.is_unicast(addr)
    }
}
