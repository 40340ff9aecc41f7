//! From a configured memif to a port of this library's own driver (`driver = "native"`), which needs no DPDK.

use ironwarp_port::memif::{MemifConfig, MemifPort};
use ironwarp_stats::CoreStats;
use ironwarp_types::MacAddr;

use crate::config::{Config, DeviceConfig, MemifDriver};
use crate::error::SetupError;
use crate::host::{Host, Severity};

/// Returns whether the ports are of this driver: all of them, or none.
pub(crate) fn is_wanted(config: &Config) -> Result<bool, SetupError> {
    let native =
        |device: &DeviceConfig| matches!(device, DeviceConfig::Memif { driver: MemifDriver::Native, .. });
    let count = config.port_configs().filter(|port| native(&port.device)).count();
    let problem = "with driver = \"native\", the default, cannot be combined with ports of DPDK in one stack: set \
                   driver = \"dpdk\", which trusts the other end";
    match count {
        0 => Ok(false),
        count if count == config.ports() => Ok(true),
        _ => Err(SetupError::Port("memif", problem)),
    }
}

/// Opens the link of a port, by its number, with a queue pair for each core.
pub(crate) fn open(
    config: &Config,
    number: usize,
    stats: Vec<CoreStats>,
) -> Result<Vec<MemifPort>, SetupError> {
    let config = &config.for_port(number);
    for finding in Host::local().check_device(config) {
        match finding.severity {
            Severity::Fault => return Err(SetupError::Host(finding)),
            Severity::Warning => tracing::warn!("{finding}"),
            Severity::Good => tracing::debug!("{finding}"),
        }
    }
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
        buffer_bytes: u16::try_from(*buffer_bytes).unwrap_or(u16::MAX),
        ring_log2: port.ring_size.trailing_zeros() as u8,
        rx_frames: port.rx_frames as usize,
        tx_frames: port.tx_frames as usize,
        queues: config.core.count,
        sparse: *sparse,
    };
    Ok(MemifPort::open_queues(&memif, stats)?)
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

    fn config(first: &str, second: &str) -> Config {
        let device = |socket: &str, driver: &str| {
            format!("device.memif = {{ role = \"server\", socket = \"/run/{socket}\"{driver} }}")
        };
        let (first, second) = (device("a", first), device("b", second));
        let text = format!(
            "[port]\n{first}\n[net]\naddress = \"10.0.0.1/24\"\n\
             [[fabrics]]\nport = {{ {second} }}\nnet = {{ address = \"10.0.1.1/24\" }}\n"
        );
        Config::from_toml(&text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn all_ports_of_a_stack_have_one_driver() {
        let (native, dpdk) = (", driver = \"native\"", ", driver = \"dpdk\"");
        assert!(is_wanted(&config(native, native)).is_ok_and(|wanted| wanted));
        assert!(is_wanted(&config(dpdk, dpdk)).is_ok_and(|wanted| !wanted));
        let mixed = is_wanted(&config(dpdk, native)).expect_err("two drivers").to_string();
        assert!(mixed.contains("cannot be combined"), "{mixed}");
        // The default trusts nobody, whatever the build has.
        assert!(is_wanted(&config("", "")).expect("one driver"));
        assert!(!config("", "").port.device.needs_dpdk());
    }

    #[test]
    fn an_unknown_driver_is_named_with_those_that_exist() {
        let text = "[port]\ndevice.memif = { role = \"client\", socket = \"/run/a\", driver = \"vpp\" }\n\
                    [net]\naddress = \"10.0.0.1/24\"\n";
        let error = Config::from_toml(text).expect_err("no such driver").to_string();
        assert!(error.contains("`vpp`") && error.contains("`native`"), "{error}");
    }

    #[test]
    fn only_a_native_server_may_take_memory_without_pages() {
        let text = |role: &str, driver: &str| {
            format!(
                "[port]\ndevice.memif = {{ role = \"{role}\", socket = \"/run/a\", driver = \"{driver}\", sparse = true }}\n\
                 [net]\naddress = \"10.0.0.1/24\"\n"
            )
        };
        assert!(Config::from_toml(&text("server", "native")).is_ok());
        for (role, driver) in [("client", "native"), ("server", "dpdk"), ("client", "dpdk")] {
            let error = Config::from_toml(&text(role, driver)).expect_err("no such end").to_string();
            assert!(
                error.contains("port.device.memif.sparse") && error.contains("driver = \"native\""),
                "{error}"
            );
        }
    }

    #[test]
    fn each_port_has_an_address_of_its_own() {
        let [one, other] = [0, 1].map(|_| random_mac().expect("random bytes").0);
        assert!(one[0] == 0x02 && one != other);
    }
}
