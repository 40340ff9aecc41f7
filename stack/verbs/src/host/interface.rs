//! Checks of kernel interfaces: a new tap, existing interfaces of sockets, and addresses.

use core::net::IpAddr;

use super::{Finding, Host};
use crate::config::{Config, DeviceConfig};

impl Host {
    /// A new tap; a persistent one without an owner is reused.
    pub(super) fn check_tap(&self, interface: &str) -> Vec<Finding> {
        let key = "port.device.tap.interface";
        if !self.exists("dev/net/tun") {
            return vec![Finding::fault("driver", "there is no /dev/net/tun", "sudo modprobe tun")];
        }
        let Some(links) = &self.links else { return Vec::new() };
        vec![match links.by_name(interface) {
            None => Finding::good("interface", format!("{interface}: can be made")),
            Some(link) if link.kind.as_deref() != Some("tun") => Finding::fault(
                "interface",
                format!("{key} = {interface}: the name is in use by an interface that is no tap"),
                "name another",
            ),
            Some(link) if !link.persistent => Finding::fault(
                "interface",
                format!("{key} = {interface}: in use by another process"),
                "end that process, or name another",
            ),
            Some(_) => Finding::good("interface", format!("{interface}: a tap that can be taken over")),
        }]
    }

    /// An existing interface: it must exist, be up, have the MTU, and not be in use.
    pub(super) fn check_interface(
        &self,
        key: &'static str,
        interface: &str,
        config: &Config,
    ) -> Vec<Finding> {
        let Some(links) = &self.links else { return Vec::new() };
        let Some(link) = links.by_name(interface) else {
            return vec![Finding::fault(
                "interface",
                format!("{key} = {interface}: does not exist"),
                format!("`ip link` shows those there are: {}", links.names().join(", ")),
            )];
        };
        let xdp = matches!(config.port.device, DeviceConfig::AfXdp { .. });
        if xdp && link.xdp {
            return vec![Finding::fault(
                "interface",
                format!("{key} = {interface}: in use, an XDP program is attached to it"),
                format!("end the process that uses it, or: sudo ip link set {interface} xdp off"),
            )];
        }
        let mtu = u32::from(config.port.mtu);
        if link.mtu < mtu && !xdp {
            return vec![Finding::fault(
                "mtu",
                format!("port.mtu = {mtu} is larger than {interface}'s, which is {}", link.mtu),
                format!("sudo ip link set {interface} mtu {mtu}, or set port.mtu = {}", link.mtu),
            )];
        }
        let mut findings = vec![if !link.up {
            let up = format!("sudo ip link set {interface} up");
            Finding::warning("link", format!("{interface} is switched off"), up)
        } else if !link.carrier {
            let plug = "plug the cable in, or bring the peer up";
            Finding::warning("link", format!("{interface} has no link"), plug)
        } else {
            Finding::good("link", format!("{interface} is up, mtu {}", link.mtu))
        }];
        if self.default_route().as_deref() == Some(interface) {
            let taken =
                if xdp { "XDP takes frames away from the kernel" } else { "both stacks hear every frame" };
            findings.push(Finding::warning(
                "interface",
                format!("{interface} carries this host's default route, and {taken}"),
                "use another interface, or a VLAN or veth on it",
            ));
        }
        findings
    }

    /// The kernel must not have an address of the stack: it would answer for it.
    pub(super) fn check_addresses(&self, config: &Config) -> Option<Finding> {
        let shares = matches!(
            config.port.device,
            DeviceConfig::Tap { .. } | DeviceConfig::AfPacket { .. } | DeviceConfig::AfXdp { .. }
        );
        let ours: Vec<IpAddr> = config.net.prefixes().ok()?.iter().map(|prefix| prefix.addr).collect();
        let links = self.links.as_ref().filter(|_| shares)?;
        let (addr, interface) = links.addresses().find(|(addr, _)| ours.contains(addr))?;
        Some(Finding::fault(
            "address",
            format!("net.address {addr} is the kernel's own, on {interface}, which would answer for us"),
            format!("give this stack another address, or: sudo ip addr del {addr} dev {interface}"),
        ))
    }

    /// Returns the interface of the IPv4 default route.
    fn default_route(&self) -> Option<String> {
        let table = self.read_trimmed("proc/self/net/route")?;
        let mut columns = table.lines().skip(1).map(|line| line.split_whitespace());
        columns.find_map(|mut line| {
            let interface = line.next()?;
            (line.next()? == "00000000").then(|| interface.to_owned())
        })
    }
}
