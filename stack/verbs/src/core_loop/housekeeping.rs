//! Network housekeeping: links, announcements of our addresses, address conflicts, and the paths of
//! connections.
//!
//! Nothing here is on the path of a frame. The tables of the network belong to the data path, which
//! reads them for every frame; this part borrows them. Results that concern contexts are returned
//! to the core loop.

use std::sync::Arc;

use ironwarp_llp::Transport;
use ironwarp_net::Path;
use ironwarp_port::{LinkState, Port};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::cores::LEADER;
use super::data_path::DataPath;
use super::lower::Lower;
use super::path_refresh::PathRefresh;
use crate::config::Config;
use crate::shared::StackShared;

/// The state of network housekeeping on one core.
pub(super) struct NetHousekeeping {
    shared: Arc<StackShared>,
    /// [`Nanos::MAX`]: a link that is up stays up.
    link_poll_interval: Nanos,
    /// Ports whose link is down, one bit each.
    links_down: u8,
    /// Whether an address conflict was logged.
    conflict_reported: bool,
    /// Whether our addresses were announced on a link.
    announced: bool,
    paths: PathRefresh,
}

impl NetHousekeeping {
    /// A core that does not lead announces nothing: for it `announced` is true at once.
    pub(super) fn new(
        shared: Arc<StackShared>,
        now: Nanos,
        link_poll_interval: Nanos,
        announced: bool,
    ) -> Self {
        NetHousekeeping {
            shared,
            link_poll_interval,
            links_down: 0,
            conflict_reported: false,
            announced,
            paths: PathRefresh::new(now),
        }
    }

    #[inline]
    pub(super) fn announced(&self) -> bool {
        self.announced
    }

    /// Returns whether routes changed since the last refresh.
    #[inline]
    pub(super) fn routes_changed<L: Lower>(&self, dp: &DataPath<L>) -> bool {
        self.paths.is_outdated(dp.route_changes())
    }

    /// Returns whether a refresh is in progress.
    #[inline]
    pub(super) fn is_refreshing(&self) -> bool {
        self.paths.is_in_progress()
    }

    #[inline]
    pub(super) fn path_refresh_due(&self) -> Nanos {
        self.paths.due()
    }

    #[inline]
    pub(super) fn wants_path_refresh<L: Lower>(&self, dp: &DataPath<L>, now: Nanos) -> bool {
        self.routes_changed(dp) || now >= self.paths.due() || self.is_refreshing()
    }

    /// Refreshes the paths of the next connections, if it is time.
    pub(super) fn refresh_paths<L: Lower>(&mut self, dp: &mut DataPath<L>, now: Nanos) {
        self.paths.request(now, dp.route_changes());
        let (nets, wires) = (&mut dp.nets, &mut dp.wires);
        let update = |path: &mut Path, mtu_bytes: u16| {
            let net = nets.at_mut(path.port());
            net.refresh(now, path, wires.at_mut(path.port()));
            if mtu_bytes < path.mtu_bytes() {
                net.lower_path_mtu(now, path.remote_addr(), mtu_bytes);
            }
        };
        self.paths.run(now, |from, count| dp.llp.update_paths(from, count, update));
    }

    /// Announces our addresses once a link is up, since a peer may remember another station for
    /// them, and returns whether it did. Links that are down then are announced on when they come
    /// up.
    #[cold]
    pub(super) fn announce_on_links<L: Lower>(&mut self, dp: &mut DataPath<L>, now: Nanos) -> bool {
        let ports = dp.wires.numbers();
        self.links_down =
            ports.clone().filter(|port| !self.is_link_up(dp, *port)).fold(0, |all, port| all | 1 << port);
        if ports.len() == self.links_down.count_ones() as usize {
            self.links_down = 0;
            return false;
        }
        self.announced = true;
        for port in ports.filter(|port| self.links_down & 1 << port == 0) {
            announce(dp, now, port);
        }
        true
    }

    pub(super) fn is_link_up<L: Lower>(&self, dp: &mut DataPath<L>, port: u8) -> bool {
        self.link(dp, port).up
    }

    /// Reads the state of a link. Core 0 records it for contexts.
    fn link<L: Lower>(&self, dp: &mut DataPath<L>, port: u8) -> LinkState {
        let link = match self.link_poll_interval {
            Nanos::MAX => LinkState { up: true, speed_mbps: None },
            _ => {
                let device = dp.wires.at_mut(port).port_mut();
                dp.nets.at_mut(port).set_tx_offloads(device.tx_offloads());
                device.link()
            }
        };
        if dp.core == LEADER
            && let Some(state) = self.shared.ports().get(usize::from(port))
        {
            state.link.store(link);
        }
        link
    }

    /// When the links are checked next; `None` if they stay up.
    pub(super) fn next_link_check(&self, now: Nanos) -> Option<Nanos> {
        (self.link_poll_interval != Nanos::MAX).then(|| now + self.link_poll_interval)
    }

    /// Returns the new state of a port's link if it changed. Connections live on until TCP's user
    /// timeout.
    pub(super) fn check_link<L: Lower>(
        &mut self,
        dp: &mut DataPath<L>,
        now: Nanos,
        port: u8,
    ) -> Option<bool> {
        let (up, lost) = (self.is_link_up(dp, port), self.links_down & 1 << port != 0);
        if !up {
            // Some drivers take nothing without a link, and a core with waiting frames would never
            // sleep.
            let dropped = dp.wires.at_mut(port).discard_waiting();
            dp.stats.add(Counter::PortTxLinkDown, dropped as u64);
        }
        if up != lost {
            return None;
        }
        self.links_down ^= 1 << port;
        dp.stats.count(Counter::VerbsLinkChanges);
        tracing::info!(core = dp.core, port, "the link is {}", if up { "up" } else { "down" });
        if up {
            // Another station may be at the other end now.
            announce(dp, now, port);
        }
        Some(up)
    }

    /// Logs once that another station has an address of ours: frames would reach one of the two, or
    /// neither.
    pub(super) fn warn_of_address_conflicts<L: Lower>(&mut self, dp: &DataPath<L>, config: &Config) {
        let signs = [Counter::NetAddressesDuplicate, Counter::NetDropArpConflict, Counter::NetDropNdConflict];
        if self.conflict_reported
            || dp.nets.iter().all(|net| signs.iter().all(|sign| net.counter(*sign) == 0))
        {
            return;
        }
        self.conflict_reported = true;
        let configured = config.net_configs().filter_map(|net| net.prefixes().ok()).flatten();
        let ours: Vec<String> = configured.map(|prefix| prefix.addr.to_string()).collect();
        tracing::warn!(
            "another station on the link claims an address of net.address or net.addresses ({}); give each node an \
             address of its own",
            ours.join(", ")
        );
    }
}

/// Announces our addresses on a link.
fn announce<L: Lower>(dp: &mut DataPath<L>, now: Nanos, port: u8) {
    dp.nets.at_mut(port).on_link_up(now, dp.wires.at_mut(port));
}
