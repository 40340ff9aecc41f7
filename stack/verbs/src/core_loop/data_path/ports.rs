//! The ports of a core: the choice of a port for a peer, and what all ports share.
//!
//! Each port has its own [`Net`]: addresses, neighbours, routes, path MTUs. A flow belongs to the port with its local
//! address; its path names that port. Everything above net is shared: one flow table, one set of timers, one list of
//! senders. With one port, a constant of the port's type, all of this reduces to the first net.

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

    /// The route to a peer through the port with the longest matching prefix.
    pub(in crate::core_loop) fn route(&mut self, now: Nanos, remote: IpAddr) -> Route {
        if P::SEVERAL {
            let near = |port: &u8| self.nets.at::<P>(*port).nearness(remote);
            // Of equals the last is found, so the first port is asked last.
            let nearest = (0..self.wire.devices()).rev().filter(|port| near(port).is_some()).max_by_key(near);
            let Some(port) = nearest else { return Route::Unreachable };
            self.wire.select(port);
        }
        self.nets.at_mut::<P>(self.wire.selected()).route(now, remote, &mut self.wire)
    }

    /// Counts changes that may change the result of [`Self::route`], modulo 2^32.
    #[inline(always)]
    pub(in crate::core_loop) fn route_changes(&self) -> u32 {
        if !P::SEVERAL {
            return self.nets.at::<P>(0).route_changes();
        }
        self.nets.iter().map(Net::route_changes).fold(0, u32::wrapping_add)
    }

    /// The first deadline of all nets; [`Nanos::MAX`]: none is armed.
    #[inline(always)]
    pub(in crate::core_loop) fn nets_next_deadline(&self) -> Nanos {
        if !P::SEVERAL {
            return self.nets.at::<P>(0).next_deadline().unwrap_or(Nanos::MAX);
        }
        self.nets.iter().filter_map(Net::next_deadline).min().unwrap_or(Nanos::MAX)
    }

    /// Runs the timers of every net.
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
