//! Associations with several addresses: which packets are theirs, and the routes to the peer.
//!
//! The flow table has the flow of each pair of an own address and one of the peer, so that a packet
//! is found whatever its addresses. A peer may list addresses of others, so several associations
//! may have a flow: a packet is of the one with its tag. An INIT is of one whose peer has answered
//! from the address: listing an address of another host takes nothing from it (RFC 5062 s3, address
//! camping).
//!
//! The layer above knows the routes: it asks for the addresses without one.
//!
//! Source: RFC 9260 s5.1.2, s5.2.2, s5.4 and s6.4.

use core::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use ironwarp_llp::{ConnId, ListenerId};
use ironwarp_net::{Packet, Path};
use ironwarp_port::{Port, Wires};
use ironwarp_types::{Flow, Nanos};

use super::{Sctp, association_of, encapsulated};
use crate::association::{Association, State};
use crate::packet::{Chunk, Init, Parameter, RawChunk};
use crate::paths::{PATHS_MAX, PathState};

/// How long an address waits until its route is asked for again: at first, and at most.
pub(crate) const ROUTE_INTERVAL: Nanos = Nanos::from_millis(10);
const ROUTE_INTERVAL_MAX: Nanos = Nanos::from_secs(60);

/// Addresses of a peer.
pub(crate) type Addresses = ArrayVec<IpAddr, PATHS_MAX>;

/// A path of an association, for observers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathInfo {
    /// Our address.
    pub local: IpAddr,
    /// The address of the peer.
    pub remote: IpAddr,
    /// Whether it is reachable.
    pub state: PathState,
    /// Messages go over it.
    pub is_current: bool,
    /// The smoothed round-trip time; zero before the first sample.
    pub srtt: Nanos,
    /// The retransmission timeout.
    pub rto: Nanos,
    /// The congestion window.
    pub cwnd_bytes: u32,
    /// Chunks sent and neither acknowledged nor lost, in bytes.
    pub flight_bytes: u32,
}

impl<P: Port> Sctp<P> {
    /// Returns an association that has established, with addresses of its peer that have no route,
    /// and behind them the one of the set-up. Those that get none with [`Sctp::add_route`] are
    /// returned again after 10 ms, and then less and less often.
    pub fn pop_unrouted(&mut self) -> Option<(ConnId, Addresses)> {
        loop {
            let slot = self.shared.unrouted.pop()?;
            let id = self.id_of(slot)?;
            let Some(association) = self.association(id) else { continue };
            if association.state == State::Established && association.has_unrouted() {
                let set_up = association.flow.remote.ip();
                let mut addresses = association.remotes.clone();
                addresses.retain(|remote| association.paths.find(*remote).is_none());
                // There is no room only if the peer did not list it: then it gets no other route.
                let _ = addresses.try_push(set_up);
                return Some((id, addresses));
            }
        }
    }

    /// Returns whether [`Sctp::pop_unrouted`] may return an association.
    pub fn has_unrouted(&self) -> bool {
        !self.shared.unrouted.is_empty()
    }

    /// Adds the route to an address of [`Sctp::pop_unrouted`]. A route from an address that the
    /// peer does not know is ignored.
    ///
    /// The peer may have opened the association from an address of one link to ours of another. If
    /// two paths then depend on one address of ours, the one of the set-up takes a route from an
    /// address that none depends on. It takes its first route again after a timeout.
    pub fn add_route(&mut self, now: Nanos, id: ConnId, route: Path) {
        let Some(association) = association_of(&mut self.slots, id) else { return };
        let config = &self.shared.config;
        let (local, remote) = (route.local_addr(), route.remote_addr());
        let is_known = association.remotes.contains(&remote)
            && (local == association.flow.local.ip() || config.addresses.contains(&local));
        if !is_known || association.state != State::Established {
            return;
        }
        match association.paths.find(remote) {
            None => association.paths.add(encapsulated(route, 0), now, config),
            Some(0) => association.paths.move_first(route),
            Some(_) => {}
        }
        self.shared.wheel.arm(id.slot, association.next_deadline());
    }

    /// RFC 9260 appendix C: a router reports that a packet was too large for its next link. `tag`
    /// is that of the quoted packet. Returns whether packets respect the MTU now.
    pub fn on_too_big(
        &mut self,
        now: Nanos,
        flow: &Flow,
        tag: u32,
        mtu_bytes: u16,
        wires: &mut Wires<P>,
    ) -> bool {
        let found = self.find_confirmed(self.hasher.hash(flow), flow);
        let Some((association, mut io)) = found.and_then(|slot| self.association_and_io(slot, now, wires))
        else {
            return false;
        };
        let id = association.paths.find(flow.remote.ip());
        let is_ours = tag != 0 && tag == association.peer.tag;
        id.filter(|_| is_ours).is_some_and(|id| association.on_too_big(&mut io, id, mtu_bytes))
    }

    /// Returns the paths of an association, that of its set-up first.
    pub fn paths(&self, id: ConnId) -> impl Iterator<Item = PathInfo> {
        self.association(id).into_iter().flat_map(|association| {
            association.paths.ids().map(|number| {
                let path = association.paths.at(number);
                PathInfo {
                    local: path.route.local_addr(),
                    remote: path.route.remote_addr(),
                    state: path.state,
                    is_current: number == association.paths.current_id(),
                    srtt: path.rtt.srtt(),
                    rto: path.rtt.rto(),
                    cwnd_bytes: path.congestion.cwnd(),
                    flight_bytes: path.flight_bytes,
                }
            })
        })
    }

    /// Has the layer above asked for routes, now and again until there is one to each address.
    pub(super) fn ask_for_routes(&mut self, now: Nanos, slot: u32) {
        let entry = self.slots.get_mut(slot as usize);
        let Some(association) = entry.and_then(|slot| slot.association.as_mut()) else { return };
        association.timers.routes = Nanos::MAX;
        if association.state == State::Established && association.has_unrouted() {
            association.timers.routes = now + association.route_interval;
            association.route_interval = association.route_interval.times(2).min(ROUTE_INTERVAL_MAX);
            self.shared.unrouted.push(slot);
        }
        self.shared.wheel.arm(slot, association.next_deadline());
    }

    /// Returns the listener on an address. Our addresses are one endpoint: what listens on one of
    /// them listens on all (RFC 9260 s1.2).
    pub(super) fn listener_of(&self, local: SocketAddr) -> Option<ListenerId> {
        let own = &self.shared.config.addresses;
        let others = own.iter().filter(|_| own.contains(&local.ip()));
        let others = others.map(|&addr| SocketAddr::new(addr, local.port()));
        core::iter::once(local).chain(others).find_map(|local| self.listeners.find(local))
    }

    /// Returns the addresses of the sender of an INIT or INIT ACK from `source`, which is the first
    /// one (RFC 9260 s5.1.2). Without own addresses to use beside one, others are ignored.
    pub(super) fn addresses_of(&self, source: IpAddr, init: &Init<'_>) -> Addresses {
        let mut addresses = Addresses::from_iter([source]);
        let own = &self.shared.config.addresses;
        let listed = init.parameters.recognized().filter_map(|parameter| match parameter {
            Some(Parameter::Ipv4Address(addr)) => Some(IpAddr::V4(addr)),
            Some(Parameter::Ipv6Address(addr)) => Some(IpAddr::V6(addr).to_canonical()),
            _ => None,
        });
        for addr in listed {
            let is_own = own.contains(&addr);
            let is_usable = !is_own && !addr.is_unspecified() && !addr.is_multicast() && !addr.is_loopback();
            let is_of_family = own.iter().any(|own| own.is_ipv4() == addr.is_ipv4());
            if is_usable && is_of_family && !addresses.contains(&addr) {
                let _ = addresses.try_push(addr);
            }
        }
        addresses
    }

    /// RFC 9260 s5.1.2 D: returns the association that an INIT from a flow with these addresses of
    /// the peer belongs to. An address that has not answered is nobody's.
    pub(super) fn owner_of(&self, flow: &Flow, addresses: &Addresses) -> Option<u32> {
        addresses.iter().find_map(|&remote| {
            let flow = Flow { remote: SocketAddr::new(remote, flow.remote.port()), ..*flow };
            self.find_confirmed(self.hasher.hash(&flow), &flow)
        })
    }

    /// The same of an INIT ACK with our tag, which may come from any address that it lists.
    pub(super) fn owner_of_init_ack(
        &self,
        tag: u32,
        chunk: RawChunk<'_>,
        arrived: &Packet<P::Frame>,
    ) -> Option<u32> {
        let found = self.find_tagged(arrived.hash, &arrived.flow, tag);
        found.or_else(|| match chunk.parse() {
            Some(Chunk::InitAck(init)) => {
                self.owner_of(&arrived.flow, &self.addresses_of(arrived.flow.remote.ip(), &init))
            }
            _ => None,
        })
    }

    /// Returns the association of a packet with a tag: one that accepts the tag, else the one that
    /// has the flow for certain, which drops the packet.
    pub(super) fn find_tagged(&self, hash: u32, flow: &Flow, tag: u32) -> Option<u32> {
        let tagged = self.find(hash, flow, |association| {
            association.accepts_tag(tag, false) || association.accepts_tag(tag, true)
        });
        tagged.or_else(|| self.find_confirmed(hash, flow))
    }

    /// Returns the association with a flow whose peer has answered from the address.
    pub(super) fn find_confirmed(&self, hash: u32, flow: &Flow) -> Option<u32> {
        self.find(hash, flow, |association| association.is_confirmed(flow.remote.ip()))
    }

    /// Gives an association the addresses of its peer, and their flows.
    pub(super) fn set_addresses(&mut self, slot: u32, addresses: Addresses) {
        self.remove_flows(slot);
        let Some(association) = self.in_slot_mut(slot) else { return };
        association.remotes = addresses;
        for flow in self.other_flows(slot) {
            // The table has room for all pairs.
            let _ = self.flows.insert(self.hasher.hash(&flow), slot);
        }
    }

    /// Removes the flows of an association but that of its set-up.
    pub(super) fn remove_flows(&mut self, slot: u32) {
        for flow in self.other_flows(slot) {
            self.flows.remove(self.hasher.hash(&flow), slot);
        }
    }

    /// Returns how many of the other flows of an association the flow table has.
    pub(super) fn other_flows_found(&self, slot: u32) -> usize {
        let is_found =
            |flow: &&Flow| self.flows.lookup(self.hasher.hash(flow), |found| found == slot).is_some();
        self.other_flows(slot).iter().filter(is_found).count()
    }

    /// Returns the flows of an association but that of its set-up.
    fn other_flows(&self, slot: u32) -> ArrayVec<Flow, { PATHS_MAX * (PATHS_MAX + 1) }> {
        let association = self.in_slot(slot);
        let own = &self.shared.config.addresses;
        let of = |association: &Association<P::Frame>| {
            let set_up = association.flow;
            let others = own.iter().copied().filter(|&own| own != set_up.local.ip());
            let locals = core::iter::once(set_up.local.ip()).chain(others);
            let pairs =
                locals.flat_map(|local| association.remotes.iter().map(move |&remote| (local, remote)));
            let flows =
                pairs.filter(|(local, remote)| local.is_ipv4() == remote.is_ipv4()).map(|pair| Flow {
                    local: SocketAddr::new(pair.0, set_up.local.port()),
                    remote: SocketAddr::new(pair.1, set_up.remote.port()),
                });
            flows.filter(|flow| !flow.same_as(&set_up)).collect()
        };
        association.map(of).unwrap_or_default()
    }
}
