//! Pairs: both ends on this machine, set up without a word of configuration.

use std::net::SocketAddr;
use std::path::Path;

use clap::ValueEnum;
use ironwarp_bench::PathKind;
use ironwarp_bench::host::CorePair;

use super::{Applications, FarPlace, FarSetup, Session};

/// Addresses on a link that leads nowhere else: from the block that RFC 2544 keeps for benchmarks.
const NEAR: &str = "198.19.0.1";
const FAR: &str = "198.19.0.2";
/// Where the far end listens: the port that perftest listens at.
pub const PORT: u16 = 18515;

/// Ways to join two ends on one machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PairKind {
    /// Shared memory between two processes (DPDK's memif)
    Memif,
    /// Two ports of one process joined back to back (DPDK's ring), an end a thread
    Ring,
    /// Buffers of one process, an end a thread: no DPDK, no device, for trying things out
    Memory,
}

impl PairKind {
    /// The pair that a run without `--pair` uses.
    pub fn usual() -> Self {
        if cfg!(feature = "dpdk") { PairKind::Memif } else { PairKind::Memory }
    }

    /// The pair of a run whose ends lie in one process.
    pub fn within() -> Self {
        if cfg!(feature = "dpdk") { PairKind::Ring } else { PairKind::Memory }
    }

    /// Whether this build can make it.
    pub fn is_built_in(self) -> bool {
        cfg!(feature = "dpdk") || self == PairKind::Memory
    }

    /// What lies between the ends.
    pub fn path(self) -> PathKind {
        match self {
            PairKind::Memif => PathKind::Memif,
            PairKind::Ring => PathKind::Ring,
            PairKind::Memory => PathKind::Memory,
        }
    }

    /// A session without groups. `folder` is private to it.
    pub fn session(self, mtu: u16, cores: CorePair, applications: Applications, folder: &Path) -> Session {
        let Applications { core: app_core, events, cores: count } = applications;
        let count = count.unwrap_or(1);
        let elsewhere = app_core.is_none_or(|core| core != cores.near && core != cores.far);
        // Who wakes up may do so on a polled processor, and so may the threads of several cores and who waits for them.
        let apart = cores.is_apart() && elsewhere && !events && count == 1;
        let (near, far, device, place) = match self {
            PairKind::Memif => {
                let socket = folder.join("memif.sock");
                let end = |role: &str| format!("device.memif = {{ role = \"{role}\", socket = {socket:?} }}");
                (end("client"), end("server"), "net_memif0", FarPlace::Process)
            }
            PairKind::Ring => {
                let end = |number: u8| format!("device.ring = {{ end = {number} }}");
                (end(0), end(1), "net_ring0", FarPlace::RingThread)
            }
            PairKind::Memory => {
                let end = || "device.memory = {}".to_owned();
                (end(), end(), "memory", FarPlace::MemoryThread)
            }
        };
        Session {
            far: place,
            near_core: cores.near,
            far_core: cores.far,
            app_core,
            events,
            cores: count,
            near_config: Some(config(&near, NEAR, mtu, (count, cores.near), apart)),
            far_setup: FarSetup {
                config: Some(config(&far, FAR, mtu, (count, cores.far), apart)),
                core: cores.far,
                listen: address(FAR),
                events,
                cores: count,
            },
            peer: address(FAR),
            device: Some(device.to_owned()),
            mtu,
            pcap: None,
            groups: Vec::new(),
        }
    }
}

/// One end's configuration. Threads that share a processor must yield it to each other; several cores run wherever the
/// system puts them.
fn config(device: &str, address: &str, mtu: u16, (count, processor): (u16, usize), apart: bool) -> String {
    let idle = if apart { "spin" } else { "yield" };
    let cores = if count == 1 { format!("processor = {processor}") } else { format!("count = {count}") };
    format!(
        "[port]\nmtu = {mtu}\n{device}\n[net]\naddress = \"{address}/24\"\n\
         [core]\n{cores}\nidle = \"{idle}\"\n"
    )
}

fn address(ip: &str) -> Option<SocketAddr> {
    Some(SocketAddr::new(ip.parse().ok()?, PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_ends_of_a_memif_pair_name_one_socket_and_take_opposite_roles() {
        let cores = CorePair { near: 0, far: 1 };
        let session = PairKind::Memif.session(9000, cores, Applications::default(), Path::new("/run/x"));
        let near = session.near_config.expect("a device");
        let far = session.far_setup.config.expect("a device");
        assert!(near.contains("role = \"client\", socket = \"/run/x/memif.sock\""), "{near}");
        assert!(far.contains("role = \"server\", socket = \"/run/x/memif.sock\""), "{far}");
        assert!(near.contains("mtu = 9000") && near.contains("processor = 0") && near.contains("\"spin\""));
        assert!(far.contains("processor = 1"));
        assert_eq!(session.peer.map(|peer| peer.to_string()).as_deref(), Some("198.19.0.2:18515"));
    }

    #[test]
    fn an_application_on_a_polled_processor_is_let_in() {
        let cores = CorePair { near: 0, far: 1 };
        let idle = |core, events| {
            let applications = Applications { core, events, cores: None };
            let session = PairKind::Ring.session(1500, cores, applications, Path::new("/run/x"));
            session.near_config.expect("a device")
        };
        assert!(idle(Some(1), false).contains("\"yield\"") && idle(Some(0), false).contains("\"yield\""));
        assert!(idle(Some(2), false).contains("\"spin\"") && idle(None, false).contains("\"spin\""));
        assert!(idle(None, true).contains("\"yield\"") && idle(Some(2), true).contains("\"yield\""));
    }

    #[test]
    fn ends_that_share_a_processor_yield_it() {
        let cores = CorePair { near: 0, far: 0 };
        let session = PairKind::Ring.session(1500, cores, Applications::default(), Path::new("/run/x"));
        assert!(session.near_config.expect("a device").contains("idle = \"yield\""));
        assert_eq!(session.far, FarPlace::RingThread);
    }
}
