//! The ports of a core: the choice of a port for a peer, and what all ports share.
//!
//! Each port has its own [`Net`](ironwarp_net::Net): addresses, neighbours, routes, path MTUs. A
//! flow belongs to the port with its local address; its path names that port. Everything above net
//! is shared: one flow table, one set of timers, one list of senders.

use core::net::IpAddr;

use ironwarp_llp::Transport;
use ironwarp_net::{Net, Route};
use ironwarp_port::{PerPort, Port, Wires};
use ironwarp_types::Nanos;

use super::DataPath;
use crate::core_loop::lower::Lower;

impl<L: Lower> DataPath<L> {
    /// The route to a peer: from `source` through the port that has this address, else through the
    /// port with the longest matching prefix.
    pub(crate) fn route(&mut self, now: Nanos, source: Option<IpAddr>, remote: IpAddr) -> Route {
        route(&mut self.nets, &mut self.wires, now, source, remote)
    }

    /// Gives the transport the paths to further addresses of peers.
    #[inline(always)]
    pub(crate) fn add_paths(&mut self, now: Nanos) {
        let (nets, wires) = (&mut self.nets, &mut self.wires);
        self.llp.add_paths(now, |remote| match route(nets, wires, now, None, remote) {
            Route::Ready(path) => Some(path),
            Route::Pending | Route::Unreachable => None,
        });
    }

    /// Returns whether an address is one of a port's.
    pub(crate) fn is_local(&self, addr: IpAddr) -> bool {
        self.nets.numbers().any(|port| self.nets.at(port).is_local(addr))
    }

    /// Counts changes that may change the result of [`Self::route`], modulo 2^32.
    #[inline(always)]
    pub(crate) fn route_changes(&self) -> u32 {
        self.nets.fold(0, |changes: u32, net| changes.wrapping_add(net.route_changes()))
    }

    /// The first deadline of all nets; [`Nanos::MAX`]: none is armed.
    #[inline(always)]
    pub(crate) fn nets_next_deadline(&self) -> Nanos {
        self.nets.fold(Nanos::MAX, |first, net| first.min(net.next_deadline().unwrap_or(Nanos::MAX)))
    }

    /// Runs the timers of every net.
    #[inline(always)]
    pub(crate) fn on_net_timers(&mut self, now: Nanos) {
        self.nets.for_each_mut(|port, net| net.on_timers(now, self.wires.at_mut(port)));
    }

    /// Runs TCP's timers. Their events wait in `timer_events`.
    #[inline(always)]
    pub(crate) fn run_tcp_timers(&mut self, now: Nanos) {
        self.count_connections();
        let timer_events = &mut self.timer_events;
        self.llp.on_timers(now, &mut self.wires, &mut |conn, events| timer_events.push((conn, events)));
    }
}

fn route<P: Port>(
    nets: &mut PerPort<Net>,
    wires: &mut Wires<P>,
    now: Nanos,
    source: Option<IpAddr>,
    remote: IpAddr,
) -> Route {
    let mut port = 0;
    if let Some(source) = source {
        let home = nets.numbers().find(|port| nets.at(*port).is_local(source));
        let Some(home) = home else { return Route::Unreachable };
        port = home;
    } else if nets.has_several() {
        let near = |port: &u8| nets.at(*port).match_len(remote);
        // `max_by_key` returns the last of equal ports, so the first port comes last.
        let nearest = nets.numbers().rev().filter(|port| near(port).is_some()).max_by_key(near);
        let Some(nearest) = nearest else { return Route::Unreachable };
        port = nearest;
    }
    nets.at_mut(port).route_from(now, source, remote, wires.at_mut(port))
}
