//! The configuration of a stack: what a TOML file under `configs/` may say.
//!
//! Takes TOML text or a value built in code; gives a [`Config`] whose every number lies in its stated range.
//! Errors name the key, the value and what is allowed, on one line. Unknown keys are errors: a misspelt limit must
//! not silently keep its default.

mod device;
mod fabrics;
mod limits;
mod net;
mod tcp;

use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use device::{DeviceConfig, EalConfig, Hugepages, MemifRole, PortConfig};
pub use fabrics::FabricConfig;
pub use limits::{
    AtomicExecution, DdpConfig, Extensions, IdlePolicy, LimitsConfig, MpaConfig, RdmapConfig, RtrKind,
};
pub use net::{NetSettings, RouteConfig};
pub use tcp::{Congestion, KeepAliveConfig, TcpSettings};

/// Everything that a stack is started with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// DPDK's environment: memory, processors, prefix.
    #[serde(default)]
    pub eal: EalConfig,
    /// The device and its buffers.
    pub port: PortConfig,
    /// Our addresses on it, and the ways from there.
    pub net: NetSettings,
    /// Further ports, each with a network of its own, that the same cores poll.
    #[serde(default)]
    pub fabrics: Vec<FabricConfig>,
    /// The polled cores.
    #[serde(default)]
    pub core: CoreConfig,
    /// TCP.
    #[serde(default)]
    pub tcp: TcpSettings,
    /// MPA start-up.
    #[serde(default)]
    pub mpa: MpaConfig,
    /// Placement.
    #[serde(default)]
    pub ddp: DdpConfig,
    /// Operations beyond RFC 5040.
    #[serde(default)]
    pub rdmap: RdmapConfig,
    /// How many of everything.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// The counters' page.
    #[serde(default)]
    pub stats: StatsConfig,
}

/// How the cores run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoreConfig {
    /// Cores: each is a worker with a queue pair of the device.
    pub count: u16,
    /// The processor that the worker's thread is pinned to, where the stack runs the thread and there is one worker.
    pub processor: Option<usize>,
    /// The processors that the workers' threads are pinned to, one for each.
    pub processors: Vec<usize>,
    /// What a worker does when it found nothing to do.
    pub idle: IdlePolicy,
}

/// The most cores of one stack: every two of them share four rings.
const CORES_MAX: u16 = 64;

impl Default for CoreConfig {
    fn default() -> Self {
        CoreConfig { count: 1, processor: None, processors: Vec::new(), idle: IdlePolicy::default() }
    }
}

impl CoreConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        in_range("core.count", self.count, 1..=CORES_MAX, "1 to 64")?;
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

    /// The processor of a worker's thread, where the configuration names one.
    pub fn processor_of(&self, core: u16) -> Option<usize> {
        self.processors.get(usize::from(core)).copied().or(self.processor)
    }
}

/// Where the counters can be read from outside.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StatsConfig {
    /// The file that holds the counters' page. Absent: the page is private to the process.
    pub page: Option<PathBuf>,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
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
        /// What it was set to.
        value: String,
        /// What it may be set to.
        allowed: &'static str,
    },
    /// A value of a further port is out of range.
    #[error("fabrics, entry {number}: {error}")]
    Fabric {
        /// Its number: the first entry of `fabrics` is 1, since 0 is `port` and `net` themselves.
        number: usize,
        /// What is wrong.
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

    /// A configuration for the in-memory port, with every default.
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
        self.tcp.validate()?;
        self.mpa.validate()?;
        self.ddp.validate(&self.mpa)?;
        self.rdmap.validate()?;
        self.limits.validate()
    }
}

/// Fails with the key, the value and the range unless `value` lies in `range`.
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

/// The parser's message with its place, on one line.
fn parse_error_line(error: &toml::de::Error, text: &str) -> String {
    let line = error.span().map_or(1, |span| 1 + text.get(..span.start).unwrap_or("").matches('\n').count());
    format!("line {line}: {}", error.message().replace('\n', " "))
}

#[cfg(test)]
mod tests;
