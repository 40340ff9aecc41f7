//! The settings of a seed's stacks, layer by layer: those that all hosts share, and those that
//! differ.
//!
//! Two hosts reach each other only within one VLAN and one address family. They agree on at least
//! one ready-to-receive indication (RFC 6581 s9.2). Everything else may differ from host to host.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ironwarp::Config;
use ironwarp::config::{Congestion, KeepAlive, RtrKind};
use ironwarp_types::{Nanos, SeededEntropy};

/// The settings that all hosts of a run share.
#[derive(Clone, Debug)]
pub struct CommonConfig {
    pub v4: bool,
    pub v6: bool,
    /// Duplicate address detection probes per IPv6 address.
    pub dad_probes: u8,
    /// Their VLAN.
    pub vlan: Option<u16>,
    /// Whether a host may disable CRCs.
    pub may_lack_crc: bool,
    /// Whether hosts differ from the default TCP and MPA settings.
    pub vary_config: bool,
    /// A ready-to-receive indication that all of them support.
    pub rtr_kind: RtrKind,
}

impl CommonConfig {
    /// `undetected_corruption` is whether CRCs are required.
    pub fn random(undetected_corruption: bool, rng: &mut SeededEntropy) -> Self {
        let family_draw = rng.below(10);
        CommonConfig {
            v4: family_draw < 8,
            v6: family_draw >= 5,
            dad_probes: u8::from(rng.chance(100_000)),
            vlan: rng.chance(250_000).then(|| 1 + rng.below(4094) as u16),
            may_lack_crc: !undetected_corruption && rng.chance(250_000),
            vary_config: rng.chance(800_000),
            rtr_kind: [RtrKind::Send, RtrKind::Write, RtrKind::Read][rng.below(3) as usize],
        }
    }

    /// A hostile host supports only IPv4 without a VLAN.
    pub fn restrict_for_hostile(&mut self) {
        (self.v4, self.vlan) = (true, None);
    }

    pub fn use_ipv6(&self, rng: &mut SeededEntropy) -> bool {
        self.v6 && (!self.v4 || rng.chance(500_000))
    }

    /// Returns whether every Read credit could be needed to establish a connection.
    pub fn rtr_is_read(&self) -> bool {
        self.vary_config && self.rtr_kind == RtrKind::Read
    }

    /// A host's addresses in a network as text, the primary one first.
    pub fn addresses(&self, network: usize, number: usize) -> Vec<String> {
        let [v4, v6] = addresses_in(network, number);
        let v4 = self.v4.then(|| format!("{}/24", v4.ip()));
        let v6 = self.v6.then(|| format!("{}/64", v6.ip()));
        v4.into_iter().chain(v6).collect()
    }

    /// Varies the settings of `[net]`, `[tcp]` and `[mpa]`.
    pub fn vary(&self, config: &mut Config, rng: &mut SeededEntropy) {
        config.net.dad_probes_ipv6 = self.dad_probes;
        config.net.vlan = self.vlan;
        if !self.vary_config {
            return;
        }
        if self.vlan.is_some() {
            config.net.vlan_priority = rng.below(8) as u8;
        }
        config.net.dscp = rng.below(64) as u8;
        vary_tcp(config, rng);
        self.vary_mpa(config, rng);
    }

    fn vary_mpa(&self, config: &mut Config, rng: &mut SeededEntropy) {
        let mpa = &mut config.mpa;
        mpa.markers = rng.chance(350_000);
        mpa.crc = !(self.may_lack_crc && rng.chance(700_000));
        mpa.revision = 1 + u8::from(rng.chance(700_000));
        mpa.peer_to_peer = rng.chance(700_000);
        mpa.rtr_kinds = vec![self.rtr_kind];
        for other in [RtrKind::Send, RtrKind::Write, RtrKind::Read] {
            if other != self.rtr_kind && rng.chance(500_000) {
                mpa.rtr_kinds.push(other);
            }
        }
    }
}

fn vary_tcp(config: &mut Config, rng: &mut SeededEntropy) {
    let tcp = &mut config.tcp;
    tcp.ecn = rng.chance(600_000);
    let kinds = [Congestion::NewReno, Congestion::Cubic, Congestion::Dctcp];
    tcp.congestion = kinds[rng.below(if tcp.ecn { 3 } else { 2 }) as usize];
    tcp.timestamps = rng.chance(500_000);
    tcp.sack = rng.chance(600_000);
    tcp.plpmtud = rng.chance(700_000);
    tcp.syn_cookies = rng.chance(500_000);
    tcp.slow_start_after_idle = rng.chance(500_000);
    tcp.initial_window_segments = 1 + rng.below(20) as u8;
    tcp.rto_initial = Nanos::from_micros(10_000 << rng.below(6));
    tcp.ack_delay_max = Nanos::from_micros([0, 100, 1_000, 40_000][rng.below(4) as usize]);
    let probes = 5 + rng.below(5) as u8;
    let (idle, interval) = (Duration::from_secs(1 + rng.below(3)), Duration::from_secs(1));
    tcp.keep_alive = rng.chance(300_000).then_some(KeepAlive { idle, interval, probes });
}

/// A host's addresses of both families in the first network, with port 0.
pub fn addresses_of(number: usize) -> [SocketAddr; 2] {
    addresses_in(0, number)
}

fn addresses_in(network: usize, number: usize) -> [SocketAddr; 2] {
    let last = number as u16 + 1;
    let v4 = IpAddr::V4(Ipv4Addr::new(10, 0, network as u8, last as u8));
    let v6 = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, network as u16, 0, 0, 0, last));
    [SocketAddr::new(v4, 0), SocketAddr::new(v6, 0)]
}
