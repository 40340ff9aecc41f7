//! Several ports under one stack, with separate networks.
//!
//! `port` and `net` are the first port; each entry of `fabrics` is one more, with tables of the
//! same keys. A connection uses the port whose network or route leads to its peer, so no two ports
//! may match equally well.

use core::net::IpAddr;

use ironwarp_net::Prefix;
use serde::Deserialize;

use super::net::on_network;
use super::{Config, ConfigError, DeviceConfig, NetSettings, PortConfig};

/// A further port and its network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricConfig {
    /// The device and its buffers.
    pub port: PortConfig,
    /// The local addresses and routes.
    pub net: NetSettings,
}

/// The largest number of ports of a stack: every iteration polls each.
pub(crate) const PORTS_MAX: usize = 8;

const COUNT: &str = "at most 7 further ports";
const ONE_KIND: &str = "memory for all ports, or for none: memory ports and devices do not go together";
const NO_RING: &str = "a device of its own: a ring has one port at each end";
const DISJOINT: &str = "a network that no address of another port is on, so that one port leads to each peer";
const ROUTE: &str = "a network that no other port leads to";
const GATEWAY: &str = "no gateway: another port has one, and packets for other networks have one way";
const DEVICE: &str = "a device that no other port has";

impl Config {
    /// Returns the number of ports.
    pub fn ports(&self) -> usize {
        1 + self.fabrics.len()
    }

    /// Returns the local addresses of all ports, the first port's first.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, ConfigError> {
        let mut all = Vec::new();
        for net in self.net_configs() {
            all.extend(net.prefixes()?.iter().map(|prefix| prefix.addr));
        }
        Ok(all)
    }

    /// Returns the configuration of one port as if it were the only one. A number beyond the last
    /// port returns the first.
    pub(crate) fn for_port(&self, number: usize) -> Config {
        let further = number.checked_sub(1).and_then(|at| self.fabrics.get(at));
        match further {
            Some(fabric) => Config {
                port: fabric.port.clone(),
                net: fabric.net.clone(),
                fabrics: Vec::new(),
                ..self.clone()
            },
            None => self.clone(),
        }
    }

    /// Returns the name of a port in messages: its device's kind, and its number if there are
    /// several.
    pub(crate) fn port_name(&self, number: usize) -> String {
        let kind = self.port_configs().nth(number).map_or("none", |port| port.device.kind());
        if self.fabrics.is_empty() { kind.to_owned() } else { format!("port {number} ({kind})") }
    }

    /// Returns the port configurations, the first port's first.
    pub(crate) fn port_configs(&self) -> impl Iterator<Item = &PortConfig> {
        core::iter::once(&self.port).chain(self.fabrics.iter().map(|fabric| &fabric.port))
    }

    /// Returns the network configurations in the same order.
    pub(crate) fn net_configs(&self) -> impl Iterator<Item = &NetSettings> {
        core::iter::once(&self.net).chain(self.fabrics.iter().map(|fabric| &fabric.net))
    }

    pub(super) fn validate_fabrics(&self) -> Result<(), ConfigError> {
        if self.ports() > PORTS_MAX {
            return Err(value_error("fabrics", self.fabrics.len(), COUNT));
        }
        for (number, fabric) in (1..).zip(&self.fabrics) {
            self.validate_fabric(number, fabric)
                .map_err(|error| ConfigError::Fabric { number, error: Box::new(error) })?;
        }
        Ok(())
    }

    fn validate_fabric(&self, number: usize, fabric: &FabricConfig) -> Result<(), ConfigError> {
        fabric.net.validate(fabric.port.mtu)?;
        fabric.port.validate()?;
        fabric.port.validate_core_count(self.core.count)?;
        let (ours, first) = (&fabric.port.device, &self.port.device);
        if matches!(ours, DeviceConfig::Ring { .. }) || matches!(first, DeviceConfig::Ring { .. }) {
            return Err(value_error("port.device", ours.kind(), NO_RING));
        }
        if matches!(ours, DeviceConfig::Memory {}) != matches!(first, DeviceConfig::Memory {}) {
            return Err(value_error("port.device", ours.kind(), ONE_KIND));
        }
        if self.port_configs().take(number).any(|other| is_same_device(&other.device, ours)) {
            return Err(value_error("port.device", ours.kind(), DEVICE));
        }
        self.net_configs().take(number).try_for_each(|other| check_disjoint(other, &fabric.net))
    }
}

/// Checks that two ports lead to different destinations.
fn check_disjoint(other: &NetSettings, net: &NetSettings) -> Result<(), ConfigError> {
    let theirs = other.prefixes()?;
    let shared =
        |one: &Prefix| theirs.iter().any(|two| on_network(two, one.addr) || on_network(one, two.addr));
    if let Some(one) = net.prefixes()?.iter().find(|one| shared(one)) {
        return Err(value_error("net.addresses", format!("{}/{}", one.addr, one.len), DISJOINT));
    }
    if let Some(to) = shared_route(other, net)? {
        return Err(value_error("net.routes.to", format!("{}/{}", to.addr, to.len), ROUTE));
    }
    let both = |key, ours: Option<IpAddr>, theirs: Option<IpAddr>| match (ours, theirs) {
        (Some(gateway), Some(_)) => Err(value_error(key, gateway, GATEWAY)),
        _ => Ok(()),
    };
    both("net.gateway", net.gateway.map(IpAddr::V4), other.gateway.map(IpAddr::V4))?;
    both("net.gateway6", net.gateway6.map(IpAddr::V6), other.gateway6.map(IpAddr::V6))
}

/// Returns a network that both reach equally well, at least one of them by a route.
fn shared_route(one: &NetSettings, two: &NetSettings) -> Result<Option<Prefix>, ConfigError> {
    let routes = |net: &NetSettings| -> Result<Vec<Prefix>, ConfigError> {
        Ok(net.static_routes()?.iter().map(|route| route.to).collect())
    };
    let same = |a: &Prefix, b: &Prefix| a.len == b.len && on_network(a, b.addr);
    let shared = |ours: &[Prefix], theirs: &[Prefix]| {
        ours.iter().copied().find(|to| theirs.iter().any(|other| same(other, to)))
    };
    let (ones, twos) = (routes(one)?, routes(two)?);
    let by_one = shared(&ones, &twos).or(shared(&ones, &two.prefixes()?));
    Ok(by_one.or(shared(&twos, &one.prefixes()?)))
}

/// Returns whether both name one device. In-memory devices are separate.
fn is_same_device(a: &DeviceConfig, b: &DeviceConfig) -> bool {
    use DeviceConfig::{AfPacket, AfXdp, Dpdk, Memif, Pci, Tap, Vhost};
    match (a, b) {
        (Memif { socket: a, id: i, .. }, Memif { socket: b, id: j, .. }) => (a, i) == (b, j),
        (
            Tap { interface: a } | AfPacket { interface: a } | AfXdp { interface: a },
            Tap { interface: b } | AfPacket { interface: b } | AfXdp { interface: b },
        ) => a == b,
        (Vhost { socket: a }, Vhost { socket: b }) => a == b,
        (Dpdk { name: a, .. }, Dpdk { name: b, .. }) => a == b,
        // DPDK identifies a card by its address.
        (Pci { address: a } | Dpdk { name: a, .. }, Pci { address: b } | Dpdk { name: b, .. }) => {
            let whole = |address: &str| address.trim_start_matches("0000:").to_ascii_lowercase();
            whole(a) == whole(b)
        }
        _ => false,
    }
}

fn value_error(key: &'static str, value: impl core::fmt::Display, allowed: &'static str) -> ConfigError {
    ConfigError::Value { key, value: value.to_string(), allowed }
}
