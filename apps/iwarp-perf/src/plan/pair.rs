//! Pairs: both ends on this machine, without a configuration file.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use clap::ValueEnum;
use ironwarp_bench::PathKind;
use ironwarp_bench::baseline::namespaces::{CLIENT_INTERFACE, SERVER_INTERFACE};

use super::{ServerPlacement, Session};

/// Addresses of the two ends, from the block that RFC 2544 reserves for benchmarks.
const CLIENT_ADDR: &str = "198.19.0.1";
const SERVER_ADDR: &str = "198.19.0.2";
/// The port of a server, as in perftest.
pub const PORT: u16 = 18515;

/// How two ends on one machine are connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PairKind {
    /// Shared memory between two processes (DPDK's memif; memif-native in a build without DPDK)
    Memif,
    /// The same without DPDK: this project's own memif, which does not trust its peer
    MemifNative,
    /// Two ports of one process connected back to back (DPDK's ring), a thread for each end
    Ring,
    /// Buffers of one process, a thread for each end: no DPDK, no device, for first tries
    Memory,
    /// A veth pair between two new network namespaces, over packet sockets; needs root
    #[value(name = "veth-af_packet")]
    VethAfPacket,
    /// The same over XDP sockets (DPDK's af_xdp), with an MTU of at most 1500; needs root
    #[value(name = "veth-af_xdp")]
    VethAfXdp,
}

impl PairKind {
    /// The pair of a run without `--pair`.
    pub fn default_kind() -> Self {
        if cfg!(feature = "dpdk") { PairKind::Memif } else { PairKind::Memory }
    }

    /// The pair of a run with both ends in one process.
    pub fn in_process() -> Self {
        if cfg!(feature = "dpdk") { PairKind::Ring } else { PairKind::Memory }
    }

    /// Whether this build supports the pair.
    pub fn is_built_in(self) -> bool {
        cfg!(feature = "dpdk") || !matches!(self, PairKind::Ring | PairKind::VethAfXdp)
    }

    pub fn path(self) -> PathKind {
        match self {
            PairKind::Memif | PairKind::MemifNative => PathKind::Memif,
            PairKind::Ring => PathKind::Ring,
            PairKind::Memory => PathKind::Memory,
            PairKind::VethAfPacket | PairKind::VethAfXdp => PathKind::Veth,
        }
    }

    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether both ends are threads of one process.
    pub fn is_one_process(self) -> bool {
        matches!(self, PairKind::Ring | PairKind::Memory)
    }

    /// The most polled cores of an end. DPDK's af_xdp sees one queue of a veth interface.
    pub fn cores_max(self) -> u16 {
        if self == PairKind::VethAfXdp { 1 } else { u16::MAX }
    }

    pub fn mtu_max(self) -> u16 {
        // A buffer of an XDP socket is at most a page.
        if self == PairKind::VethAfXdp { 1500 } else { u16::MAX }
    }

    /// Adds to a session the devices of this pair and the configurations of both ends. `folder` is
    /// private to it.
    pub fn connect(self, session: Session, folder: &Path) -> Session {
        let (client, server, device, server_placement) = match self {
            PairKind::Memif | PairKind::MemifNative => {
                let socket = folder.join("memif.sock");
                let native = self == PairKind::MemifNative || !cfg!(feature = "dpdk");
                let name = if native { "memif-native" } else { "net_memif0" };
                let end = |role: &str| {
                    if native {
                        return format!("device.memif = {{ role = \"{role}\", socket = {socket:?} }}");
                    }
                    // As the native one: buffers of a frame, rings that stay in the cache.
                    let bytes = (session.mtu + 18).next_multiple_of(64);
                    let socket = socket.display();
                    let args =
                        format!("role={role},socket={socket},socket-abstract=no,bsize={bytes},rsize=8");
                    format!("device.dpdk = {{ name = \"{name}\", args = \"{args}\" }}")
                };
                (end("client"), end("server"), name, ServerPlacement::Process)
            }
            PairKind::Ring => {
                let end = |number: u8| format!("device.ring = {{ end = {number} }}");
                (end(0), end(1), "net_ring0", ServerPlacement::Thread)
            }
            PairKind::Memory => {
                let end = || "device.memory = {}".to_owned();
                (end(), end(), "memory", ServerPlacement::Thread)
            }
            PairKind::VethAfPacket | PairKind::VethAfXdp => {
                let kind = if self == PairKind::VethAfXdp { "af_xdp" } else { "af_packet" };
                let end = |interface: &str| format!("device.{kind} = {{ interface = \"{interface}\" }}");
                let device = if self == PairKind::VethAfXdp { "net_af_xdp0" } else { "af_packet" };
                (end(CLIENT_INTERFACE), end(SERVER_INTERFACE), device, ServerPlacement::Process)
            }
        };
        Session {
            server_placement,
            veth: self.path() == PathKind::Veth,
            client_config: Some(config(&session, &client, CLIENT_ADDR, session.client_core)),
            server_config: Some(config(&session, &server, SERVER_ADDR, session.server_core)),
            peer: SERVER_ADDR.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, PORT)),
            device: Some(device.to_owned()),
            ..session
        }
    }
}

/// The configuration of one end. Threads that share a processor must yield it. A thread that sleeps
/// may wake up on a polled processor, and threads of several cores are not pinned.
fn config(session: &Session, device: &str, address: &str, processor: usize) -> String {
    let &Session { mtu, cores, app_core, events, .. } = session;
    let polled = session.processors();
    let app_core_is_free = app_core.is_none_or(|core| core != polled.client && core != polled.server);
    let exclusive = polled.is_distinct() && app_core_is_free && !events && cores == 1;
    let idle = if exclusive { "spin" } else { "yield" };
    let cores = if cores == 1 { format!("processor = {processor}") } else { format!("count = {cores}") };
    format!(
        "[port]\nmtu = {mtu}\n{device}\n[net]\naddress = \"{address}/24\"\n\
         [core]\n{cores}\nidle = \"{idle}\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::session;

    #[test]
    fn the_ends_of_a_memif_pair_have_one_socket_and_opposite_roles() {
        let session = PairKind::Memif.connect(session(9000), Path::new("/run/x"));
        let client = session.client_config.expect("a device");
        let server = session.server_config.expect("a device");
        let end = |role: &str| match cfg!(feature = "dpdk") {
            true => format!("role={role},socket=/run/x/memif.sock"),
            false => format!("role = \"{role}\", socket = \"/run/x/memif.sock\""),
        };
        assert!(client.contains(&end("client")), "{client}");
        assert!(server.contains(&end("server")), "{server}");
        assert!(
            client.contains("mtu = 9000") && client.contains("processor = 0") && client.contains("\"spin\"")
        );
        assert!(server.contains("processor = 1"));
        assert_eq!(session.peer.map(|peer| peer.to_string()).as_deref(), Some("198.19.0.2:18515"));
    }

    #[test]
    fn a_native_pair_needs_no_dpdk() {
        let session = PairKind::MemifNative.connect(session(9000), Path::new("/run/x"));
        for config in [session.client_config, session.server_config] {
            assert!(config.expect("a device").contains("device.memif"));
        }
        assert_eq!(PairKind::MemifNative.name(), "memif-native");
        assert!(PairKind::MemifNative.is_built_in() && PairKind::Memif.is_built_in());
    }

    #[test]
    fn the_ends_of_a_veth_pair_open_their_interfaces_in_two_namespaces() {
        for (pair, key) in [(PairKind::VethAfPacket, "af_packet"), (PairKind::VethAfXdp, "af_xdp")] {
            let session = pair.connect(session(1500), Path::new("/run/x"));
            let client = session.client_config.expect("a device");
            let server = session.server_config.expect("a device");
            assert!(client.contains(&format!("device.{key} = {{ interface = \"iw0\" }}")), "{client}");
            assert!(server.contains(&format!("device.{key} = {{ interface = \"iw1\" }}")), "{server}");
            assert_eq!((session.veth, session.server_placement), (true, ServerPlacement::Process));
            assert_eq!(pair.name(), format!("veth-{key}"));
        }
        assert!(!PairKind::Memif.connect(session(1500), Path::new("/run/x")).veth);
    }

    #[test]
    fn a_worker_yields_the_processor_that_an_application_may_use() {
        let idle = |core, events| {
            let session = Session { app_core: core, events, ..session(1500) };
            let session = PairKind::Ring.connect(session, Path::new("/run/x"));
            session.client_config.expect("a device")
        };
        assert!(idle(Some(1), false).contains("\"yield\"") && idle(Some(0), false).contains("\"yield\""));
        assert!(idle(Some(2), false).contains("\"spin\"") && idle(None, false).contains("\"spin\""));
        assert!(idle(None, true).contains("\"yield\"") && idle(Some(2), true).contains("\"yield\""));
    }

    #[test]
    fn workers_that_share_a_processor_yield_it() {
        let session = Session { server_core: 0, ..session(1500) };
        let session = PairKind::Ring.connect(session, Path::new("/run/x"));
        assert!(session.client_config.expect("a device").contains("idle = \"yield\""));
        assert_eq!(session.server_placement, ServerPlacement::Thread);
    }
}
