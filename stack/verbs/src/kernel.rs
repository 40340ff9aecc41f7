//! From a configured tap or packet socket to a port of this library's own driver, which needs no
//! DPDK.

use ironwarp_port::kernel::{KernelConfig, KernelDevice, KernelPort};
use ironwarp_stats::CoreStats;

use crate::config::{Config, DeviceConfig};
use crate::error::SetupError;
use crate::host::{Host, report};

/// Opens the interface of a port, by its number, with a queue for each core.
pub(crate) fn open(
    config: &Config,
    number: usize,
    stats: Vec<CoreStats>,
) -> Result<Vec<KernelPort>, SetupError> {
    let (host, config) = (Host::local(), &config.for_port(number));
    report(&if number == 0 { host.examine_all(config) } else { host.examine_port(config) })?;
    let (device, interface) = match &config.port.device {
        DeviceConfig::Tap { interface } => (KernelDevice::Tap, interface),
        DeviceConfig::AfPacket { interface } => (KernelDevice::Packet, interface),
        other => return Err(SetupError::Port(other.kind(), "is no interface of the kernel")),
    };
    let port = &config.port;
    let kernel = KernelConfig {
        device,
        interface: interface.clone(),
        mtu_bytes: port.mtu,
        rx_frames: port.rx_frames as usize,
        tx_frames: port.tx_frames as usize,
        joins_segments: config.stack.fast_path,
    };
    Ok(KernelPort::open_queues(&kernel, stats)?)
}
