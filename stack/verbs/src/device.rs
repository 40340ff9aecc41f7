//! From a configured device to a DPDK port.
//!
//! DPDK starts once in a process. The first stack starts it with its device, later ones add theirs.
//! An application that owns DPDK passes a handle. The calling thread keeps its processor.

use core::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

use ironwarp_port::dpdk::{
    DpdkPort, Eal, EalConfig, LogLevel, Memory, PortSettings, Vdev, Wakes, ring_pair_of_queues,
};
use ironwarp_stats::CoreStats;

use crate::config::{Config, DeviceConfig, DriverArgs, Hugepages, IdlePolicy};
use crate::error::SetupError;
use crate::host::{Host, needed_mib, report};

/// The process's DPDK, after a stack has started it.
static STARTED: Mutex<Option<Eal>> = Mutex::new(None);

/// Numbers of the process's virtual devices, whose names must differ.
static NEXT_DEVICE: AtomicU16 = AtomicU16::new(0);

/// Cleans DPDK up as soon as the last stack is gone. Call it at the end of a program: no later
/// stack of the process can open a device.
pub fn cleanup_dpdk() {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// Checks whether this machine has what a port needs, and with the first port what all need
/// together, before any is opened.
pub(crate) fn examine(config: &Config, number: usize, adopted: bool) -> Result<(), SetupError> {
    let host = Host::local();
    let port_config = config.for_port(number);
    let findings = match number {
        // An application that owns DPDK's environment has configured memory and processors itself.
        _ if adopted => host.check_device(&port_config),
        0 => host.examine_all(config),
        _ => host.examine_port(&port_config),
    };
    report(&findings)
}

/// Opens the device of a port, by its number, with a queue for each core.
pub(crate) fn open(
    config: &Config,
    number: usize,
    adopted: Option<Eal>,
    stats: Vec<CoreStats>,
) -> Result<Vec<DpdkPort>, SetupError> {
    let config = &config.for_port(number);
    let device = Device::from_config(config)?;
    let eal = match adopted {
        Some(eal) => hotplug(eal, &device)?,
        None => start_or_hotplug(config, &device)?,
    };
    let settings = PortSettings { wakes: wakes(config), ..settings(config) };
    Ok(DpdkPort::open_queues(&eal, device.name(), &settings, stats)?)
}

/// Returns what may wake the cores of a port. vfio gives a program one descriptor for each vector
/// of a card. A card under a uio driver has one interrupt at most, and some DPDK drivers do not
/// recover from a configuration that needs more, so none is tried there: the card is polled by a
/// timer.
fn wakes(config: &Config) -> Wakes {
    match &config.port.device {
        _ if config.core.idle != IdlePolicy::Sleep => Wakes::Nothing,
        DeviceConfig::Pci { address } if Host::local().is_vfio(address) => Wakes::Interrupts,
        DeviceConfig::Pci { address } => {
            tracing::info!("{address}: no receive interrupts: the card is not bound to vfio-pci");
            Wakes::Nothing
        }
        _ => Wakes::Files,
    }
}

/// Opens two devices that are linked back to back in this process, with a queue for each core.
pub(crate) fn open_ring(
    config: &Config,
    adopted: Option<Eal>,
    stats: [Vec<CoreStats>; 2],
) -> Result<[Vec<DpdkPort>; 2], SetupError> {
    let eal = match adopted {
        Some(eal) => eal,
        None => start_or_hotplug(config, &Device::None)?,
    };
    Ok(ring_pair_of_queues(&eal, &settings(config), stats)?)
}

/// Returns the DPDK arguments of the device.
enum Device {
    None,
    Virtual(Vdev),
    Existing(String),
    Pci(String),
}

impl Device {
    fn from_config(config: &Config) -> Result<Self, SetupError> {
        let queues = config.core.count;
        let index = NEXT_DEVICE.fetch_add(1, Ordering::Relaxed);
        Ok(match &config.port.device {
            DeviceConfig::Memory {} => return Err(SetupError::Port("memory", "is given with `memory_port`")),
            device @ (DeviceConfig::Memif { .. }
            | DeviceConfig::Tap { .. }
            | DeviceConfig::AfPacket { .. }) => {
                return Err(SetupError::Port(device.kind(), "has no driver of DPDK here"));
            }
            DeviceConfig::Ring { .. } => {
                return Err(SetupError::Port(
                    "ring",
                    "has two ends, which `Stack::ring_pair` opens together",
                ));
            }
            DeviceConfig::AfXdp { interface } => {
                Device::Virtual(Vdev::af_xdp(index, interface)?.with_queues(queues))
            }
            DeviceConfig::Dpdk { name, args: None } => Device::Existing(name.clone()),
            DeviceConfig::Dpdk { name, args: Some(DriverArgs(args)) } => {
                Device::Virtual(Vdev::parse(&format!("{name},{args}"))?)
            }
            DeviceConfig::Vhost { socket } => {
                Device::Virtual(Vdev::vhost(index, socket, config.stack.fast_path)?.with_queues(queues))
            }
            DeviceConfig::Pci { address } => Device::Pci(address.clone()),
        })
    }

    fn name(&self) -> &str {
        match self {
            Device::None => "",
            Device::Virtual(vdev) => vdev.name(),
            Device::Existing(name) | Device::Pci(name) => name,
        }
    }
}

fn hotplug(eal: Eal, device: &Device) -> Result<Eal, SetupError> {
    if let Device::Virtual(vdev) = device {
        eal.add_vdev(vdev)?;
    }
    Ok(eal)
}

fn start_or_hotplug(config: &Config, device: &Device) -> Result<Eal, SetupError> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(eal) = started.clone() {
        return hotplug(eal, device);
    }
    let eal = Eal::start(&environment(config, device))?;
    *started = Some(eal.clone());
    Ok(eal)
}

fn environment(config: &Config, device: &Device) -> EalConfig {
    let mut environment = EalConfig::new().memory(memory(config)).log_level(log_level());
    if let Some(prefix) = &config.eal.file_prefix {
        environment = environment.file_prefix(prefix);
    }
    environment = match device {
        Device::None | Device::Existing(_) => environment,
        Device::Virtual(vdev) => environment.vdev(vdev.clone()),
        Device::Pci(address) => environment.pci(address),
    };
    // DPDK looks for cards when it starts, so those of further ports are named now.
    for port in config.fabrics.iter().map(|fabric| &fabric.port) {
        if let DeviceConfig::Pci { address } = &port.device {
            environment = environment.pci(address);
        }
    }
    config.eal.extra_args.iter().fold(environment, |environment, argument| environment.extra(argument))
}

/// The level of DPDK's log follows that of the program's: its drivers warn of what they do without
/// at every start.
fn log_level() -> LogLevel {
    use tracing::level_filters::LevelFilter;
    match LevelFilter::current() {
        LevelFilter::TRACE => LogLevel::Debug,
        LevelFilter::DEBUG => LogLevel::Info,
        LevelFilter::INFO => LogLevel::Warning,
        _ => LogLevel::Error,
    }
}

fn memory(config: &Config) -> Memory {
    let mib = needed_mib(config);
    let ordinary = Memory::Ordinary { mib };
    match config.eal.hugepages {
        Hugepages::Require => Memory::Hugepages,
        Hugepages::Never => ordinary,
        Hugepages::Auto if Host::local().free_hugepages_mib() >= u64::from(mib) => Memory::Hugepages,
        Hugepages::Auto => ordinary,
    }
}

fn settings(config: &Config) -> PortSettings {
    let port = &config.port;
    // Prefixes that cannot be parsed were refused before.
    let ipv6 = config.net.prefixes().is_ok_and(|all| all.iter().any(|prefix| prefix.addr.is_ipv6()));
    PortSettings {
        multicast: ipv6,
        fast_path: config.stack.fast_path,
        mtu_bytes: port.mtu,
        rx_ring_frames: port.ring_size(),
        tx_ring_frames: port.ring_size(),
        rx_frames: port.rx_frames,
        tx_frames: port.tx_frames,
        ..PortSettings::default()
    }
}
