//! The configuration of a stack: the TOML files under `configs/`.
//!
//! Takes TOML text or a value built in code, and gives a [`Config`] whose numbers are all in range.
//! Errors name the key, the value and what is allowed, on one line. Unknown keys are errors: a
//! misspelt limit must not silently keep its default.

mod device;
mod fabrics;
mod limits;
mod net;
mod sctp;
mod tcp;
mod transport;

use std::path::{Path, PathBuf};

use serde::Deserialize;

pub(crate) use device::memif_buffer_bytes;
pub use device::{DeviceConfig, DriverArgs, EalConfig, Hugepages, MemifRole, MemifSecret, PortConfig};
pub use fabrics::FabricConfig;
pub use limits::{
    AtomicExecution, DdpConfig, Extensions, IdlePolicy, LimitsConfig, MpaConfig, RdmapConfig, RtrKind,
};
pub use net::{NetSettings, RouteConfig};
pub use sctp::SctpConfig;
pub use tcp::{Congestion, KeepAlive, TcpConfig};
pub use transport::{TransportKind, Transports};

/// The configuration of a stack.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// DPDK's environment: memory, processors, prefix.
    #[serde(default)]
    pub eal: EalConfig,
    /// The device and its buffers.
    pub port: PortConfig,
    /// The local addresses and routes.
    pub net: NetSettings,
    /// Further ports, each with its own network, polled by the same cores.
    #[serde(default)]
    pub fabrics: Vec<FabricConfig>,
    /// The polled cores.
    #[serde(default)]
    pub core: CoreConfig,
    /// The whole stack.
    #[serde(default)]
    pub stack: StackConfig,
    /// TCP.
    #[serde(default = "TcpConfig::configured")]
    pub tcp: TcpConfig,
    /// SCTP.
    #[serde(default)]
    pub sctp: SctpConfig,
    /// MPA start-up.
    #[serde(default)]
    pub mpa: MpaConfig,
    /// Placement.
    #[serde(default)]
    pub ddp: DdpConfig,
    /// Operations beyond RFC 5040.
    #[serde(default)]
    pub rdmap: RdmapConfig,
    /// The numbers of objects.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// The page of the counters.
    #[serde(default)]
    pub stats: StatsConfig,
}

/// The cores.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoreConfig {
    /// The number of cores: each has a worker and a queue of the device.
    pub count: u16,
    /// The processor of the worker's thread, if the stack runs the thread and there is one worker.
    pub processor: Option<usize>,
    /// The processors of the workers' threads, one for each.
    pub processors: Vec<usize>,
    /// What a worker does after an idle poll.
    pub idle: IdlePolicy,
    /// With [`IdlePolicy::Sleep`], how long a worker polls without work before it sleeps, in
    /// microseconds.
    pub sleep_after_us: u32,
    /// How long a sleeping worker leaves a device alone that cannot wake it, in microseconds.
    pub sleep_poll_us: u32,
}

/// The largest number of cores of a stack: every two of them share four rings.
const CORES_MAX: u16 = 64;

impl Default for CoreConfig {
    fn default() -> Self {
        CoreConfig {
            count: 1,
            processor: None,
            processors: Vec::new(),
            idle: IdlePolicy::default(),
            sleep_after_us: 50,
            sleep_poll_us: 1_000,
        }
    }
}

impl CoreConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        in_range("core.count", self.count, 1..=CORES_MAX, "1 to 64")?;
        let second = "0 to 1000000 microseconds";
        in_range("core.sleep_after_us", self.sleep_after_us, 0..=1_000_000, second)?;
        let second = "10 to 1000000 microseconds";
        in_range("core.sleep_poll_us", self.sleep_poll_us, 10..=1_000_000, second)?;
        let value_error = |key, value, allowed| Err(ConfigError::Value { key, value, allowed });
        match (self.processor, self.processors.as_slice()) {
            (Some(one), []) if self.count > 1 => value_error(
                "core.processor",
                one.to_string(),
                "with one core; core.processors names one for each",
            ),
            (Some(one), [_, ..]) => {
                value_error("core.processor", one.to_string(), "without core.processors, which says the same")
            }
            (_, []) => Ok(()),
            (_, all) if all.len() != usize::from(self.count) => {
                value_error("core.processors", format!("{all:?}"), "as many processors as core.count says")
            }
            (_, all) => {
                let twice =
                    all.iter().enumerate().any(|(at, one)| all.iter().take(at).any(|other| other == one));
                if twice {
                    return value_error(
                        "core.processors",
                        format!("{all:?}"),
                        "a processor for each core, no two alike",
                    );
                }
                Ok(())
            }
        }
    }

    /// Returns the processor of a worker's thread, if the configuration names one.
    pub fn processor_of(&self, core: u16) -> Option<usize> {
        self.processors.get(usize::from(core)).copied().or(self.processor)
    }
}

/// What concerns every layer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StackConfig {
    /// Takes the fast path where it applies (`docs/fast-path.md`). `false` takes the general path
    /// always, with the same results and more instructions: to compare, and to find faults.
    pub fast_path: bool,
    /// The transports below DDP. A connect or listen that names none takes the first.
    pub transport: Transports,
}

impl Default for StackConfig {
    fn default() -> Self {
        StackConfig { fast_path: true, transport: Transports::default() }
    }
}

/// How the counters are read from outside.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StatsConfig {
    /// The file of the counters' page. Absent: the page is private to the process.
    pub page: Option<PathBuf>,
}

/// Why a configuration is not valid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The text is not TOML, or a key is unknown, missing or of another type.
    #[error("{0}")]
    Parse(String),
    /// A value is out of range.
    #[error("{key} = {value}: {allowed}")]
    Value {
        /// The key, with its table.
        key: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A value of a further port is out of range.
    #[error("fabrics, entry {number}: {error}")]
    Fabric {
        /// The number of the port: the first entry of `fabrics` is 1, since 0 is `port` and `net`.
        number: usize,
        /// The error.
        error: Box<ConfigError>,
    },
}

impl Config {
    /// Reads and validates a TOML file.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::from_toml(&text).map_err(|error| match error {
            ConfigError::Parse(line) => ConfigError::Parse(format!("{}: {line}", path.display())),
            other => other,
        })
    }

    /// Parses and validates TOML text.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let config: Config =
            toml::from_str(text).map_err(|error| ConfigError::Parse(parse_error_line(&error, text)))?;
        config.validate()?;
        Ok(config)
    }

    /// Returns a configuration for the in-memory port with all defaults.
    pub fn in_memory(address: &str) -> Result<Self, ConfigError> {
        Self::from_toml(&format!("[port]\ndevice.memory = {{}}\n[net]\naddress = \"{address}\"\n"))
    }

    /// Checks every value against its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.net.validate(self.port.mtu)?;
        self.eal.validate()?;
        self.port.validate()?;
        self.core.validate()?;
        self.port.validate_core_count(self.core.count)?;
        self.validate_fabrics()?;
        tcp::validate(&self.tcp)?;
        self.validate_sctp()?;
        self.mpa.validate()?;
        self.ddp.validate(&self.mpa, self.stack.transport)?;
        self.rdmap.validate()?;
        self.limits.validate()
    }
}

/// Fails with the key, the value and the range unless `value` is in `range`.
pub(crate) fn in_range<T: PartialOrd + core::fmt::Display>(
    key: &'static str,
    value: T,
    range: core::ops::RangeInclusive<T>,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    if range.contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::Value { key, value: value.to_string(), allowed })
    }
}

/// What to write in place of a choice of memif's driver.
const NO_DRIVER: &str = "; memif has one driver, so leave the key out. DPDK's memif is device.dpdk = \
    { name = \"net_memif0\", args = \"role=server,socket=/run/a.sock,socket-abstract=no\" }";

/// Returns the parser's message with its position, on one line. A key that has moved is named with
/// its place.
fn parse_error_line(error: &toml::de::Error, text: &str) -> String {
    let line = error.span().map_or(1, |span| 1 + text.get(..span.start).unwrap_or("").matches('\n').count());
    let message = error.message().replace('\n', " ");
    if message.starts_with("unknown field `fast_path`") {
        return format!("line {line}: unknown field `fast_path`: write stack.fast_path");
    }
    let is_driver = message.starts_with("unexpected keys in table: driver,");
    format!("line {line}: {message}{}", if is_driver { NO_DRIVER } else { "" })
}

#[cfg(test)]
mod tests;
