//! From a configured memif to a port of this library's own driver, which needs no DPDK.

use ironwarp_port::memif::{MemifConfig, MemifPort};
use ironwarp_stats::CoreStats;
use ironwarp_types::MacAddr;

use crate::config::{Config, DeviceConfig, memif_buffer_bytes};
use crate::error::SetupError;
use crate::host::{Host, report};

/// Opens the link of a port, by its number, with a queue pair for each core.
pub(crate) fn open(
    config: &Config,
    number: usize,
    stats: Vec<CoreStats>,
) -> Result<Vec<MemifPort>, SetupError> {
    let config = &config.for_port(number);
    report(&Host::local().check_device(config))?;
    let DeviceConfig::Memif { role, socket, id, buffer_bytes, secret, sparse, .. } = &config.port.device
    else {
        return Err(SetupError::Port(config.port.device.kind(), "is no memif"));
    };
    let port = &config.port;
    let memif = MemifConfig {
        role: *role,
        socket: socket.clone(),
        id: *id,
        secret: secret.clone(),
        mac: random_mac()?,
        mtu_bytes: port.mtu,
        buffer_bytes: u16::try_from(memif_buffer_bytes(*buffer_bytes, port.mtu)).unwrap_or(u16::MAX),
        ring_log2: port.ring_size().trailing_zeros() as u8,
        rx_frames: port.rx_frames as usize,
        tx_frames: port.tx_frames as usize,
        queues: config.core.count,
        sparse: *sparse,
        partial_checksums: config.stack.fast_path,
    };
    Ok(MemifPort::open_queues(&memif, stats)?)
}

/// Slots of a ring at least, unless configured, and at most.
const RING_SIZE: [u32; 2] = [128, 1024];

/// Returns the slots of a ring that is not configured, as a power of two. A buffer belongs to its
/// slot, so all of them are walked through. Those of a ring take a quarter of the second-level
/// cache: the other direction, private buffers and memory of the application need the rest.
pub(crate) fn ring_size(buffer_bytes: u32) -> u16 {
    slots_within(Host::local().second_level_cache_bytes() / 4, buffer_bytes)
}

fn slots_within(bytes: u32, buffer_bytes: u32) -> u16 {
    let [least, most] = RING_SIZE;
    1 << (bytes / buffer_bytes.max(1)).clamp(least, most).ilog2()
}

/// Returns a locally administered address of one station.
fn random_mac() -> Result<MacAddr, SetupError> {
    let random = getrandom::u64().map_err(|error| SetupError::Entropy(error.to_string()))?;
    let [_, _, third, fourth, fifth, sixth, _, _] = random.to_be_bytes();
    Ok(MacAddr([0x02, 0xfe, third, fourth, fifth, sixth]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DPDK: &str = "dpdk = { name = \"net_memif0\", args = \"role=server,socket=/run/b\" }";

    fn config(first: &str, second: &str) -> Result<Config, String> {
        let text = format!(
            "[port]\ndevice.{first}\n[net]\naddress = \"10.0.0.1/24\"\n\
             [[fabrics]]\nport = {{ device.{second} }}\nnet = {{ address = \"10.0.1.1/24\" }}\n"
        );
        Config::from_toml(&text).map_err(|error| error.to_string())
    }

    fn memif(socket: &str, more: &str) -> String {
        format!("memif = {{ role = \"server\", socket = \"/run/{socket}\"{more} }}")
    }

    #[test]
    fn a_choice_of_the_driver_is_refused_with_what_to_write_instead() {
        for driver in ["dpdk", "native"] {
            let error =
                config(&memif("a", &format!(", driver = \"{driver}\"")), DPDK).expect_err("no such key");
            let says = |words: &str| error.contains(words);
            assert!(says("keys in table: driver") && says("device.dpdk") && says("args = "), "{error}");
        }
    }

    #[test]
    fn only_a_server_may_take_memory_without_pages() {
        let server = memif("a", ", sparse = true");
        assert!(config(&server, DPDK).is_ok());
        let error = config(&server.replace("server", "client"), DPDK).expect_err("a client");
        assert!(error.contains("port.device.memif.sparse") && error.contains("role = \"server\""), "{error}");
    }

    #[test]
    fn a_ring_fits_the_cache() {
        for (cache_kib, buffer_bytes, slots) in [
            (2048, 1518, 256),
            (1024, 1518, 128),
            (4096, 1518, 512),
            (1 << 15, 1518, 1024),
            (2048, 9018, 128),
        ] {
            assert_eq!(slots_within((cache_kib << 10) / 4, buffer_bytes), slots);
        }
        assert_eq!(slots_within(0, 0), 128);
        let given = config(&memif("a", ""), &memif("b", "")).expect("two links").port.ring_size();
        assert!((128..=1024).contains(&given) && given.is_power_of_two(), "{given}");
        let text = memif("a", " }\nring_size = 64 #");
        assert_eq!(config(&text, &memif("b", "")).expect("two links").port.ring_size(), 64);
    }

    #[test]
    fn each_port_has_an_address_of_its_own() {
        let [one, other] = [0, 1].map(|_| random_mac().expect("random bytes").0);
        assert!(one[0] == 0x02 && one != other);
    }
}
