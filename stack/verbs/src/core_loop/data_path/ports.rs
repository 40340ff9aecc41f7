//! The ports of a core: which one a peer is reached through, and what all of them have in common.
//!
//! Each port has a [`Net`] of its own: addresses, neighbours, routes, path MTUs. A flow belongs to the port that has its
//! local address, since net takes frames for no other; its path names that port, and TCP selects it before it sends. So
//! everything above net is shared: one table of flows, one set of timers, one list of senders. With one port, a constant of
//! the port's type, all of this comes down to the first net.

use core::net::IpAddr;

use ironwarp_net::{Net, Route};
use ironwarp_port::Port;
use ironwarp_types::Nanos;

use super::DataPath;

impl<P: Port> DataPath<P> {
    /// The net of the selected port.
    #[inline(always)]
    pub(in crate::core_loop) fn net(&mut self) -> &mut Net {
        self.nets.at_mut::<P>(self.wire.selected())
    }

    /// The way to a peer, through the port that leads there; that of the longest prefix where several do.
    pub(in crate::core_loop) fn route(&mut self, now: Nanos, remote: IpAddr) -> Route {
        if P::SEVERAL {
            let near = |port: &u8| self.nets.at::<P>(*port).nearness(remote);
            // The last of equals is found: the first port is asked last.
            let nearest = (0..self.wire.devices()).rev().filter(|port| near(port).is_some()).max_by_key(near);
            let Some(port) = nearest else { return Route::Unreachable };
            self.wire.select(port);
        }
        self.nets.at_mut::<P>(self.wire.selected()).route(now, remote, &mut self.wire)
    }

    /// How often the answer of [`Self::route`] may have changed, modulo 2^32.
    #[inline(always)]
    pub(in crate::core_loop) fn route_changes(&self) -> u32 {
        if !P::SEVERAL {
            return self.nets.at::<P>(0).route_changes();
        }
        self.nets.iter().map(Net::route_changes).fold(0, u32::wrapping_add)
    }

    /// When time has something to do in a net; [`Nanos::MAX`]: never.
    #[inline(always)]
    pub(in crate::core_loop) fn nets_next_deadline(&self) -> Nanos {
        if !P::SEVERAL {
            return self.nets.at::<P>(0).next_deadline().unwrap_or(Nanos::MAX);
        }
        self.nets.iter().filter_map(Net::next_deadline).min().unwrap_or(Nanos::MAX)
    }

    /// Lets time pass in every net.
    #[inline(always)]
    pub(in crate::core_loop) fn on_net_timers(&mut self, now: Nanos) {
        for port in 0..self.wire.devices() {
            self.wire.select(port);
            self.nets.at_mut::<P>(port).on_timers(now, &mut self.wire);
        }
    }

    /// Runs TCP's timers. Their events wait in `timer_events`.
    #[inline(always)]
    pub(in crate::core_loop) fn run_tcp_timers(&mut self, now: Nanos) {
        let timer_events = &mut self.timer_events;
        self.tcp.on_timers(now, &mut self.wire, &mut |conn, events| timer_events.push((conn, events)));
    }
}
