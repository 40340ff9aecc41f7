//! Three hosts on a switch: a client with a cable of 4 Gbit/s, a server and an attacker with 10
//! Gbit/s each.

use ironwarp_port::memory::{MemoryConfig, MemoryPort};
use ironwarp_sim::{LinkConfig, Node, PortId, SimNet};
use ironwarp_types::Nanos;

use iwarp_sim::Switch;
use iwarp_sim::tcp::link_address;

pub const CLIENT: u8 = 1;
pub const SERVER: u8 = 2;
pub const ATTACKER: u8 = 3;

/// The time that the server's core takes for an ordinary frame: it can handle ten million in a
/// second.
pub const FRAME_COST: Nanos = Nanos(100);

pub const FRAMES: usize = 8_192;
pub const RING_FRAMES: usize = 1_024;

/// A network of boxed nodes.
pub type StarNet = SimNet<Box<dyn Node>>;

pub fn device(host: u8) -> MemoryConfig {
    let mac = link_address(host);
    MemoryConfig {
        mac,
        rx_frames: FRAMES,
        tx_frames: FRAMES,
        rx_ring_frames: RING_FRAMES,
        ..MemoryConfig::default()
    }
}

/// The network, and the ports of the client, the server and the attacker.
pub fn star(seed: u64) -> (StarNet, [(PortId, MemoryPort); 3]) {
    let mut net = StarNet::new(seed);
    let hosts = [CLIENT, SERVER, ATTACKER];
    let ports = hosts.map(|host| net.add_port(&device(host)));
    let behind = hosts.map(|host| (host, net.add_port(&device(100 + host))));
    for ((port, gbit_s), (_, (switch_port, _))) in ports.iter().zip([4, 10, 10]).zip(&behind) {
        net.connect(port.0, *switch_port, cable(gbit_s));
    }
    let switch_ids = behind.each_ref().map(|(_, (id, _))| *id);
    let (ports_behind, macs) = behind.into_iter().map(|(host, (_, port))| (port, link_address(host))).unzip();
    let switch = Switch::new(ports_behind, macs);
    net.add_node(Box::new(switch), &switch_ids);
    (net, ports)
}

fn cable(gbit_s: u64) -> LinkConfig {
    let rate_bits_per_s = gbit_s * 1_000_000_000;
    LinkConfig { rate_bits_per_s, delay: Nanos::from_micros(5), ..LinkConfig::default() }
}
