//! The local addresses and routes: the `[net]` table.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use ironwarp_net::{ADDRESSES_MAX, Prefix, ROUTES_MAX, StaticRoute};
use serde::Deserialize;

use super::{ConfigError, in_range};

/// The local addresses and routes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetSettings {
    /// An address and its prefix length, such as `10.0.0.1/24` or `fd00::1/64`. It precedes those
    /// of [`NetSettings::addresses`].
    pub address: Option<String>,
    /// Further addresses, or all of them. The first of a family is the usual source. With an IPv6
    /// address the stack also has a link-local one, derived from the link address unless one is
    /// given here.
    pub addresses: Vec<String>,
    /// The router for IPv4 packets to other networks.
    pub gateway: Option<Ipv4Addr>,
    /// The router for IPv6 packets to other networks. Router advertisements are ignored.
    pub gateway6: Option<Ipv6Addr>,
    /// Static routes. The longest prefix wins.
    pub routes: Vec<RouteConfig>,
    /// The VLAN of the port: sent frames have its tag, and other frames are dropped. Absent: no
    /// tags.
    pub vlan: Option<u16>,
    /// The VLAN priority of sent frames.
    pub vlan_priority: u8,
    /// The hop limit of sent packets.
    pub hop_limit: u8,
    /// The differentiated services code point of sent packets.
    pub dscp: u8,
    /// Probes for duplicates of an IPv4 address before it is used (RFC 5227 has 3). They delay the
    /// first connection by five to nine seconds, so the default is 0. Addresses are announced and
    /// defended in any case.
    pub dad_probes_ipv4: u8,
    /// Probes for duplicates of an IPv6 address before it is used. RFC 4862 and the default have 1,
    /// which takes one to two seconds. 0 uses addresses at once.
    pub dad_probes_ipv6: u8,
}

/// A static route through a neighbour.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// The network, such as `192.168.0.0/16`.
    pub to: String,
    /// The router, in a local network.
    pub via: IpAddr,
}

const ADDRESS: &str = "a unicast address with its prefix length, as \"10.0.0.1/24\" or \"fd00::1/64\"";
const NO_NETWORK: &str = "an address of a station, neither the first of its network (the network's own; with IPv6 that of \
                          its routers) nor the last one of an IPv4 network (its broadcast address)";
const ADDRESSES: &str = "1 to 8 addresses, here and in net.address together, each once";
const NETWORK: &str = "a network with its prefix length, as \"192.168.0.0/16\" or \"::/0\"";
const ROUTES: &str = "at most 32 routes";
const VIA: &str = "an address on a network of net.addresses, of the route's family, and none of ours";
const GATEWAY: &str = "an address on a network of net.addresses, and none of ours";

impl Default for NetSettings {
    /// Returns defaults without an address, which validation refuses.
    fn default() -> Self {
        NetSettings {
            address: None,
            addresses: Vec::new(),
            gateway: None,
            gateway6: None,
            routes: Vec::new(),
            vlan: None,
            vlan_priority: 0,
            hop_limit: 64,
            dscp: 0,
            dad_probes_ipv4: 0,
            dad_probes_ipv6: 1,
        }
    }
}

impl NetSettings {
    /// Returns the first address and its prefix length in bits.
    pub fn parse(&self) -> Result<(IpAddr, u8), ConfigError> {
        let first = self.prefixes()?.first().copied();
        first
            .map(|prefix| (prefix.addr, prefix.len))
            .ok_or_else(|| value_error("net.addresses", "[]", ADDRESSES))
    }

    /// Returns every address with its network.
    pub fn prefixes(&self) -> Result<ArrayVec<Prefix, ADDRESSES_MAX>, ConfigError> {
        let named = self.address.iter().map(|text| ("net.address", text));
        let mut all: ArrayVec<Prefix, ADDRESSES_MAX> = ArrayVec::new();
        for (key, text) in named.chain(self.addresses.iter().map(|text| ("net.addresses", text))) {
            let found = prefix(text, 1).filter(|prefix| is_host(prefix.addr));
            let prefix = found.ok_or_else(|| value_error(key, text, ADDRESS))?;
            if !is_station(prefix) {
                return Err(value_error(key, text, NO_NETWORK));
            }
            let taken = all.iter().any(|other| other.addr == prefix.addr);
            if taken || all.try_push(prefix).is_err() {
                return Err(value_error(key, text, ADDRESSES));
            }
        }
        Ok(all)
    }

    /// Returns every static route.
    pub fn static_routes(&self) -> Result<ArrayVec<StaticRoute, ROUTES_MAX>, ConfigError> {
        let mut all = ArrayVec::new();
        for route in &self.routes {
            let to = prefix(&route.to, 0).ok_or_else(|| value_error("net.routes.to", &route.to, NETWORK))?;
            let same_family = to.addr.is_ipv4() == route.via.is_ipv4();
            if !same_family || !self.is_neighbour(route.via)? {
                return Err(value_error("net.routes.via", &route.via.to_string(), VIA));
            }
            if all.try_push(StaticRoute { to, via: route.via }).is_err() {
                return Err(value_error("net.routes", &route.to, ROUTES));
            }
        }
        Ok(all)
    }

    pub(super) fn validate(&self, mtu: u16) -> Result<(), ConfigError> {
        self.parse()?;
        self.static_routes()?;
        self.check_gateway("net.gateway", self.gateway.map(IpAddr::V4))?;
        self.check_gateway("net.gateway6", self.gateway6.map(IpAddr::V6))?;
        if let Some(vlan) = self.vlan {
            in_range("net.vlan", vlan, 1..=4094, "1 to 4094, or absent for no tags")?;
        }
        let priority = if self.vlan.is_some() { 7 } else { 0 };
        let allowed = "0 to 7, and 0 without net.vlan";
        in_range("net.vlan_priority", self.vlan_priority, 0..=priority, allowed)?;
        in_range("net.hop_limit", self.hop_limit, 1..=255, "1 to 255")?;
        in_range("net.dscp", self.dscp, 0..=63, "0 to 63")?;
        in_range("net.dad_probes_ipv4", self.dad_probes_ipv4, 0..=10, "0 to 10")?;
        in_range("net.dad_probes_ipv6", self.dad_probes_ipv6, 0..=10, "0 to 10")?;
        if self.prefixes()?.iter().any(|prefix| prefix.addr.is_ipv6()) {
            // RFC 8200 s5.
            in_range("port.mtu", mtu, 1280..=u16::MAX, "at least 1280 bytes with an IPv6 address")?;
        }
        Ok(())
    }

    fn check_gateway(&self, key: &'static str, gateway: Option<IpAddr>) -> Result<(), ConfigError> {
        match gateway {
            Some(gateway) if !self.is_neighbour(gateway)? => {
                Err(value_error(key, &gateway.to_string(), GATEWAY))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether an address may be that of a neighbour.
    fn is_neighbour(&self, addr: IpAddr) -> Result<bool, ConfigError> {
        let all = self.prefixes()?;
        let link_local = matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let near = all.iter().any(|prefix| on_network(prefix, addr))
            || (link_local && all.iter().any(|prefix| prefix.addr.is_ipv6()));
        Ok(near && all.iter().all(|prefix| prefix.addr != addr))
    }
}

/// Parses an address and its prefix length, at least `least` bits.
fn prefix(text: &str, least: u8) -> Option<Prefix> {
    let (addr, len) = text.split_once('/')?;
    let (addr, len): (IpAddr, u8) = (addr.parse().ok()?, len.parse().ok()?);
    let most = if addr.is_ipv4() { 32 } else { 128 };
    (least..=most).contains(&len).then_some(Prefix { addr, len })
}

/// Returns whether the stack can use the address. For IPv6 nothing in ::/64: unspecified, loopback,
/// forms of IPv4 addresses.
fn is_host(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_multicast() && !v4.is_broadcast(),
        IpAddr::V6(v6) => !v6.is_multicast() && v6.to_bits() >> 64 != 0,
    }
}

/// Returns whether an address is that of a station on its network, and not of all of them or of the
/// network itself.
fn is_station(Prefix { addr, len }: Prefix) -> bool {
    match addr {
        // RFC 3021 s2.1: both addresses of a /31 are stations'. A /32 has one address.
        IpAddr::V4(_) if len >= 31 => true,
        // RFC 1122 s3.2.1.3: all zeros and all ones in the part of the host.
        IpAddr::V4(v4) => ![0, u32::MAX >> len].contains(&(v4.to_bits() & (u32::MAX >> len))),
        // RFC 6164 s5: both addresses of a /127 are stations'. A /128 has one address.
        IpAddr::V6(_) if len >= 127 => true,
        // RFC 4291 s2.6.1: all zeros is the anycast address of the subnet's routers. IPv6 has no
        // broadcast.
        IpAddr::V6(v6) => v6.to_bits() & (u128::MAX >> len) != 0,
    }
}

pub(super) fn on_network(prefix: &Prefix, addr: IpAddr) -> bool {
    let differs = match (prefix.addr, addr) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    differs >= u32::from(prefix.len)
}

fn value_error(key: &'static str, value: &str, allowed: &'static str) -> ConfigError {
    ConfigError::Value { key, value: format!("{value:?}"), allowed }
}
