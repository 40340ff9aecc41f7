//! The device, its buffers, and DPDK's environment.

use std::path::{Path, PathBuf};

pub use ironwarp_port::memif::{MemifRole, MemifSecret};
use serde::Deserialize;

use super::{ConfigError, in_range};

/// The device and its buffers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// The kind of device.
    pub device: DeviceConfig,
    /// The largest IP packet in bytes.
    #[serde(default = "PortConfig::mtu_default")]
    pub mtu: u16,
    /// Descriptors in each of the device's rings, a power of two. Absent: what
    /// [`PortConfig::ring_size`] chooses.
    #[serde(default)]
    pub ring_size: Option<u16>,
    /// Buffers of the receive pool. More than the ring plus what TCP may hold out of order.
    #[serde(default = "PortConfig::frames_default")]
    pub rx_frames: u32,
    /// Buffers of the transmit pool. More than the ring plus what TCP may retain.
    #[serde(default = "PortConfig::frames_default")]
    pub tx_frames: u32,
}

impl PortConfig {
    fn mtu_default() -> u16 {
        1500
    }

    fn frames_default() -> u32 {
        8192
    }

    /// Returns the descriptors in each of the device's rings: 1024 unless configured, or with memif
    /// 128 to 1024, so that the buffers of a ring take a quarter of the second-level cache.
    pub fn ring_size(&self) -> u16 {
        let default = || match &self.device {
            DeviceConfig::Memif { buffer_bytes, .. } => {
                crate::memif::ring_size(memif_buffer_bytes(*buffer_bytes, self.mtu))
            }
            _ => 1024,
        };
        self.ring_size.unwrap_or_else(default)
    }

    /// Returns the bytes of buffers that the frames of one ring pass through, if each slot has one
    /// of its own, as with memif.
    pub fn ring_bytes(&self) -> Option<u64> {
        let DeviceConfig::Memif { buffer_bytes, .. } = &self.device else { return None };
        Some(u64::from(self.ring_size()) * u64::from(memif_buffer_bytes(*buffer_bytes, self.mtu)))
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let ring_size = self.ring_size();
        in_range("port.mtu", self.mtu, 576..=MTU_BYTES_MAX, "576 to 65400 bytes")?;
        if !ring_size.is_power_of_two() || !(64..=16384).contains(&ring_size) {
            let (value, allowed) = (ring_size.to_string(), "a power of two from 64 to 16384");
            return Err(ConfigError::Value { key: "port.ring_size", value, allowed });
        }
        let least = u32::from(ring_size) * 2;
        let frames = "at least twice port.ring_size, at most 1048576";
        in_range("port.rx_frames", self.rx_frames, least..=1 << 20, frames)?;
        in_range("port.tx_frames", self.tx_frames, least..=1 << 20, frames)?;
        self.device.validate(self.mtu)
    }

    /// With several cores each pool must hold the frames of all of them, since cores pass frames to
    /// each other.
    pub(super) fn validate_core_count(&self, cores: u16) -> Result<(), ConfigError> {
        let least = u32::from(self.ring_size()) + RX_FRAMES_PER_CORE_MIN * u32::from(cores);
        let allowed = "at least port.ring_size + 512 x core.count, at most 1048576";
        if cores == 1 { Ok(()) } else { in_range("port.rx_frames", self.rx_frames, least..=1 << 20, allowed) }
    }
}

/// The largest packet of a virtual device: its frame fits 16 bits with headers of a driver. Cards
/// allow less and say so when they are opened.
const MTU_BYTES_MAX: u16 = 65_400;

/// Received frames that each of several cores needs: a quarter of them may be in rings between
/// cores, and 64 KiB of out-of-order data fit into the rest.
const RX_FRAMES_PER_CORE_MIN: u32 = 512;

/// The kinds of device.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DeviceConfig {
    /// Buffers in this process, for tests: no DPDK.
    Memory {},
    /// Shared memory between two processes of one host.
    Memif {
        /// The server creates the socket and must start first.
        role: MemifRole,
        /// The Unix socket of both ends.
        socket: PathBuf,
        /// The number of the interface on that socket.
        #[serde(default)]
        id: u32,
        /// Bytes of one shared buffer. Absent: those of a frame of this end's MTU.
        #[serde(default)]
        buffer_bytes: Option<u32>,
        /// At most 23 bytes that both ends know: a server maps the memory of no other client.
        #[serde(default)]
        secret: Option<MemifSecret>,
        /// A server takes a client's memory although pages of it do not exist, and provides them.
        #[serde(default)]
        sparse: bool,
    },
    /// Two ports of one process linked back to back: this is one of them.
    Ring {
        /// The end of the pair, 0 or 1.
        #[serde(default)]
        end: u8,
    },
    /// A tap interface: the peer is the Linux kernel.
    Tap {
        /// The name of the kernel's interface.
        interface: String,
    },
    /// A raw socket on an existing interface.
    AfPacket {
        /// The interface.
        interface: String,
    },
    /// An XDP socket on an existing interface.
    AfXdp {
        /// The interface.
        interface: String,
    },
    /// A port of DPDK's, by DPDK's name: one of an application that owns DPDK, one from
    /// `eal.extra_args`, or a virtual device that is created with `args`.
    Dpdk {
        /// The name, such as `net_memif0`.
        name: String,
        /// Creates the virtual device, with these arguments of its driver: what follows the name in
        /// `--vdev`.
        #[serde(default)]
        args: Option<DriverArgs>,
    },
    /// A virtual machine's network card: its virtio queues, shared through a socket that this side
    /// creates.
    Vhost {
        /// The Unix socket that the machine monitor connects to.
        socket: PathBuf,
    },
    /// A network card by its PCI address, bound to a DPDK driver.
    Pci {
        /// The address, such as `0000:3b:00.0`.
        address: String,
    },
}

/// The longest name of a kernel interface.
const INTERFACE_NAME_BYTES_MAX: usize = 15;
/// The longest path of a Unix socket address.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// DPDK stores names of ports in 64 bytes, the last one zero.
const DPDK_NAME_BYTES_MAX: usize = 63;
/// The link header, and a VLAN tag that a peer may add.
const LINK_HEADER_BYTES: u32 = 18;

/// The arguments of a virtual device of DPDK's. They may have a secret, so they are not printed.
#[derive(Clone, Deserialize)]
pub struct DriverArgs(pub String);

impl core::fmt::Debug for DriverArgs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("…")
    }
}

impl DeviceConfig {
    /// Returns the kind's name, as in a configuration.
    pub fn kind(&self) -> &'static str {
        match self {
            DeviceConfig::Memory {} => "memory",
            DeviceConfig::Memif { .. } => "memif",
            DeviceConfig::Ring { .. } => "ring",
            DeviceConfig::Tap { .. } => "tap",
            DeviceConfig::AfPacket { .. } => "af_packet",
            DeviceConfig::AfXdp { .. } => "af_xdp",
            DeviceConfig::Dpdk { .. } => "dpdk",
            DeviceConfig::Vhost { .. } => "vhost",
            DeviceConfig::Pci { .. } => "pci",
        }
    }

    /// Returns whether DPDK drives the device.
    pub fn needs_dpdk(&self) -> bool {
        !matches!(self, DeviceConfig::Memory {} | DeviceConfig::Memif { .. }) && !self.is_kernel()
    }

    /// Returns whether the device is an interface of the kernel that this library's own driver
    /// opens.
    pub(crate) fn is_kernel(&self) -> bool {
        matches!(self, DeviceConfig::Tap { .. } | DeviceConfig::AfPacket { .. })
    }

    fn validate(&self, mtu: u16) -> Result<(), ConfigError> {
        match self {
            DeviceConfig::Memory {} => Ok(()),
            DeviceConfig::Memif { role, socket, buffer_bytes, secret, sparse, .. } => {
                let is_allowed = !sparse || *role == MemifRole::Server;
                let allowed = "true only with role = \"server\"";
                require(is_allowed, "port.device.memif.sparse", sparse, allowed)?;
                if let Some(MemifSecret(secret)) = secret
                    && (secret.is_empty() || secret.len() > 23 || secret.contains([',', '[', ']', '\0']))
                {
                    let key = "port.device.memif.secret";
                    let allowed = "1 to 23 bytes without a comma or a bracket";
                    return Err(ConfigError::Value { key, value: "(not shown)".into(), allowed });
                }
                let least = u32::from(mtu) + LINK_HEADER_BYTES;
                let range = least..=u32::from(u16::MAX);
                in_range(
                    "port.device.memif.buffer_bytes",
                    memif_buffer_bytes(*buffer_bytes, mtu),
                    range,
                    "port.mtu + 18 to 65535 bytes",
                )?;
                socket_path("port.device.memif.socket", socket)
            }
            DeviceConfig::Vhost { socket } => socket_path("port.device.vhost.socket", socket),
            DeviceConfig::Ring { end } => in_range("port.device.ring.end", *end, 0..=1, "0 or 1"),
            DeviceConfig::Tap { interface } => interface_name("port.device.tap.interface", interface),
            DeviceConfig::AfPacket { interface } => {
                interface_name("port.device.af_packet.interface", interface)
            }
            DeviceConfig::AfXdp { interface } => {
                interface_name("port.device.af_xdp.interface", interface)?;
                let allowed = "at most 1500 bytes on af_xdp, whose buffers are at most a page";
                in_range("port.mtu", mtu, 576..=1500, allowed)
            }
            DeviceConfig::Dpdk { name, args } => {
                let is_line =
                    |DriverArgs(args): &DriverArgs| args.len() <= 1024 && !args.contains(char::is_control);
                if !args.as_ref().is_none_or(is_line) {
                    // They may have a secret.
                    let (key, value) = ("port.device.dpdk.args", "(not shown)".into());
                    let allowed = "at most 1024 bytes on one line, as DPDK's --vdev has them after the name";
                    return Err(ConfigError::Value { key, value, allowed });
                }
                let plain = name.bytes().all(|b| b.is_ascii_graphic() && !b"\"'".contains(&b));
                let fits = (1..=DPDK_NAME_BYTES_MAX).contains(&name.len());
                let allowed = "a name of 1 to 63 printing characters, as DPDK lists it";
                require(plain && fits, "port.device.dpdk.name", name, allowed)
            }
            DeviceConfig::Pci { address } => {
                let ok = address.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.')
                    && (7..=12).contains(&address.len());
                require(ok, "port.device.pci.address", address, "a PCI address, as \"0000:3b:00.0\"")
            }
        }
    }
}

/// Returns the bytes of a shared buffer of a memif.
pub(crate) fn memif_buffer_bytes(configured: Option<u32>, mtu: u16) -> u32 {
    configured.unwrap_or(u32::from(mtu) + LINK_HEADER_BYTES)
}

fn socket_path(key: &'static str, socket: &Path) -> Result<(), ConfigError> {
    let path = socket.as_os_str();
    let allowed = "a path of 1 to 107 bytes without a comma";
    let fits = (1..=SOCKET_PATH_BYTES_MAX).contains(&path.len());
    let plain = !path.as_encoded_bytes().contains(&b',');
    require(fits && plain, key, &socket.display(), allowed)
}

fn interface_name(key: &'static str, name: &str) -> Result<(), ConfigError> {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let fits = (1..=INTERFACE_NAME_BYTES_MAX).contains(&name.len());
    require(plain && fits, key, &name, "an interface name of 1 to 15 letters, digits, '-', '_' or '.'")
}

fn require(
    ok: bool,
    key: &'static str,
    value: &dyn core::fmt::Display,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    if ok { Ok(()) } else { Err(ConfigError::Value { key, value: format!("\"{value}\""), allowed }) }
}

/// Whether DPDK's memory comes from hugepages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hugepages {
    /// Hugepages if enough are free.
    #[default]
    Auto,
    /// Hugepages, or the start fails.
    Require,
    /// Ordinary pages.
    Never,
}

/// DPDK's environment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EalConfig {
    /// Hugepages or ordinary pages.
    pub hugepages: Hugepages,
    /// Memory in MiB that DPDK takes with ordinary pages.
    pub memory_mib: u32,
    /// The name that separates two DPDK processes. Absent: derived from the process number.
    pub file_prefix: Option<String>,
    /// Further arguments of the EAL.
    pub extra_args: Vec<String>,
}

impl Default for EalConfig {
    fn default() -> Self {
        EalConfig { hugepages: Hugepages::Auto, memory_mib: 512, file_prefix: None, extra_args: Vec::new() }
    }
}

impl EalConfig {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        in_range("eal.memory_mib", self.memory_mib, 64..=65_536, "64 to 65536 MiB")?;
        let Some(prefix) = &self.file_prefix else { return Ok(()) };
        let plain = prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        let fits = (1..=64).contains(&prefix.len());
        require(plain && fits, "eal.file_prefix", prefix, "1 to 64 letters, digits, '-' or '_'")
    }
}
