//! The device `ironwarp0`: the stack of the configuration file, opened by the first call that needs
//! it.

mod context;
mod names;
mod query;

use core::ffi::CStr;
use std::cell::Cell;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

use ironwarp_port::Port;
use verbs::config::{DeviceConfig, MemifRole};
use verbs::{Completion, Config, InterfaceAddress, MacAddr, PortInfo, PortVisit, Stack, Worker};

pub(crate) use context::{AsyncEvent, AsyncSource, Context, default_context};
pub(crate) use names::static_text;
pub(crate) use query::READS_MAX;

use crate::engine::{ENODEV, Errno, Outcome, State, start_process_hooks, variable};

/// The environment variable that names the configuration file.
const CONFIG_VARIABLE: &CStr = c"IRONWARP_CONFIG";
const LOG_VARIABLE: &CStr = c"IRONWARP_LOG";

/// Completions that are converted at a time.
const REAPED_MAX: usize = 16;

/// An open stack of one core.
pub(crate) struct Device {
    pub(crate) worker: Worker,
    pub(crate) context: verbs::Context,
    /// Completions on their way to the program.
    pub(crate) reaped: [Completion; REAPED_MAX],
    pub(crate) mac: MacAddr,
    /// The GUID of the node.
    pub(crate) guid: [u8; 8],
    pub(crate) mtu: u16,
    /// Whether accesses to registered memory that is gone are caught.
    pub(crate) catches_faults: bool,
    /// Its addresses, in the order of the configuration, and the link-local one.
    addresses: Vec<InterfaceAddress>,
    /// Whether it must be closed at the end of the process: the kernel keeps the XDP program on the
    /// interface. Other devices end with the process, and a memif's peer may still receive the last
    /// frames until then.
    pub(crate) outlives_process: bool,
    /// What a child process must know of it: the file that it was opened with, whether DPDK drives
    /// it, and the socket of a memif.
    pub(crate) config_path: PathBuf,
    pub(crate) uses_dpdk: bool,
    pub(crate) memif_socket: Option<PathBuf>,
    /// Keeps the counters.
    _stack: Stack,
}

thread_local! {
    /// Whether this thread is opening the stack: drivers of DPDK that are loaded then look for RDMA
    /// devices themselves.
    static IS_OPENING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether there is a configuration file to open.
pub(crate) fn is_configured() -> bool {
    !IS_OPENING.get() && config_path().is_some()
}

/// Returns the configuration file that the environment names.
pub(crate) fn config_path() -> Option<PathBuf> {
    variable(CONFIG_VARIABLE).map(PathBuf::from)
}

impl State {
    /// Opens the stack, unless it is open. Fails with ENODEV, and prints why, once.
    pub(crate) fn open_device(&mut self) -> Outcome<&mut Device> {
        if self.device.is_none() {
            if self.is_broken || IS_OPENING.get() {
                return Err(ENODEV);
            }
            IS_OPENING.set(true);
            let opened = open();
            IS_OPENING.set(false);
            match opened {
                Ok(device) => self.device = Some(device),
                Err(reason) => {
                    self.is_broken = true;
                    eprintln!("ironwarp: {reason}");
                    return Err(ENODEV);
                }
            }
            start_process_hooks()?;
        }
        self.device()
    }
}

fn open() -> Result<Device, String> {
    start_log();
    let Some(path) = config_path() else {
        return Err("IRONWARP_CONFIG is not set; start the program with iwarp-run".to_string());
    };
    let in_file = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let config = Config::from_file(&path).map_err(|error| in_file(&error))?;
    let (mtu, guid) = (config.port.mtu, guid_of(&config));
    let catches_faults = match config.ddp.catch_memory_faults {
        Some(catches) => catches,
        // On where it is possible: programs were written for pages that are pinned.
        None => verbs::catch_memory_faults().is_ok(),
    };
    let outlives_process = matches!(config.port.device, DeviceConfig::AfXdp { .. });
    let uses_dpdk = config.port.device.needs_dpdk();
    let memif_socket = match &config.port.device {
        DeviceConfig::Memif { socket, .. } => Some(socket.clone()),
        _ => None,
    };
    // DPDK starts threads: no handler of the program shall run there.
    let signals = crate::engine::BlockedSignals::new();
    wait_for_server(&config.port.device);
    let built = Stack::builder(config).build_one();
    drop(signals);
    let (stack, mut worker) = built.map_err(|error| in_file(&error))?;
    let context = stack.context().map_err(|error| in_file(&error))?;
    let mac = worker.with_port(LinkAddress).unwrap_or(MacAddr([2, 0, 0, 0, 0, 1]));
    let addresses = all_addresses(context.query_port(0).map_err(|error| in_file(&error))?);
    let reaped = [Completion::default(); REAPED_MAX];
    Ok(Device {
        worker,
        context,
        reaped,
        mac,
        guid,
        mtu,
        catches_faults,
        addresses,
        outlives_process,
        config_path: path,
        uses_dpdk,
        memif_socket,
        _stack: stack,
    })
}

/// Returns the GUID that the device has, or will have once it is open.
pub(crate) fn guid(state: &mut State) -> Option<[u8; 8]> {
    let opened = state.device().ok().map(|device| device.guid);
    let configured = || Config::from_file(config_path()?.as_path()).ok();
    opened.or_else(|| configured().as_ref().map(guid_of))
}

/// Makes a GUID of what identifies the device in its configuration: programs ask for it before they
/// open the device, and expect the same one in each run. It is a locally assigned one, since nobody
/// has given it a number.
fn guid_of(config: &Config) -> [u8; 8] {
    let identity = format!("{:?} {:?}", config.port.device, config.addresses().unwrap_or_default());
    // FNV-1a.
    let hash = identity
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut guid = hash.to_be_bytes();
    guid[0] &= !3;
    guid
}

/// How long the client's end of a memif waits for the server's: the two programs may be started
/// together.
const SERVER_WAIT: Duration = Duration::from_secs(5);

fn wait_for_server(device: &DeviceConfig) {
    let DeviceConfig::Memif { role: MemifRole::Client, socket, .. } = device else { return };
    let deadline = Instant::now() + SERVER_WAIT;
    while nobody_listens(socket) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A listener of another type of socket, such as DPDK's driver, gives a different error.
fn nobody_listens(socket: &Path) -> bool {
    let is_absent = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::ConnectionRefused);
    UnixStream::connect(socket).is_err_and(|error| is_absent(error.kind()))
}

/// Reads the link address of a port.
struct LinkAddress;

impl PortVisit for LinkAddress {
    type Output = MacAddr;

    fn visit<P: Port>(self, port: &mut P) -> MacAddr {
        port.caps().mac
    }
}

/// Writes the log to the standard error output: errors, or what `IRONWARP_LOG` says.
fn start_log() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let chosen = variable(LOG_VARIABLE).and_then(|filter| filter.into_string().ok());
        let filter = chosen.and_then(|filter| tracing_subscriber::EnvFilter::try_new(filter).ok());
        let filter = filter.unwrap_or_else(|| tracing_subscriber::EnvFilter::new("error"));
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        // A program in Rust may have a log of its own.
        let _ = log.try_init();
    });
}

impl Device {
    /// Returns whether an address is one of the device's.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// Returns the first address of a family.
    pub(crate) fn first_address(&self, is_ipv4: bool) -> Option<IpAddr> {
        self.addresses.iter().map(|own| own.address).find(|own| own.is_ipv4() == is_ipv4)
    }

    /// Returns the address that the device uses towards `remote`.
    pub(crate) fn source_for(&self, remote: IpAddr) -> Outcome<IpAddr> {
        if self.has_address(remote) {
            return Ok(remote);
        }
        source_among(&self.addresses, remote).ok_or(Errno(libc::ENETUNREACH))
    }
}

/// Returns the addresses of a port, with the link-local one that a stack with IPv6 has besides
/// (RFC 4291 s2.5.6).
fn all_addresses(port: PortInfo) -> Vec<InterfaceAddress> {
    let mut addresses = port.addresses;
    let is_ipv6 = addresses.iter().any(|own| own.address.is_ipv6());
    if is_ipv6 && !addresses.iter().any(|own| is_link_local(own.address)) {
        let [a, b, c, d, e, f, g, h] = interface_id(port.mac);
        let octets = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h];
        addresses.push(InterfaceAddress { address: Ipv6Addr::from(octets).into(), prefix_len: 64 });
    }
    addresses
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// As the stack selects it (RFC 6724 s5, rules 2 and 8): the right scope counts first, then a
/// network of the peer's, then the longest common prefix, then the order of the configuration.
fn source_among(addresses: &[InterfaceAddress], remote: IpAddr) -> Option<IpAddr> {
    let rank = |own: &InterfaceAddress| {
        let common = common_bits(own.address, remote);
        (is_link_local(own.address) == is_link_local(remote), common >= u32::from(own.prefix_len), common)
    };
    let same_family = addresses.iter().filter(|own| own.address.is_ipv4() == remote.is_ipv4());
    // The first of several with the same rank.
    same_family.rev().max_by_key(|own| rank(own)).map(|own| own.address)
}

fn common_bits(one: IpAddr, other: IpAddr) -> u32 {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        _ => 0,
    }
}

/// RFC 4291 appendix A: the modified EUI-64 of a link address.
fn interface_id(MacAddr([a, b, c, d, e, f]): MacAddr) -> [u8; 8] {
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(text: &str, prefix_len: u8) -> InterfaceAddress {
        InterfaceAddress { address: text.parse().unwrap(), prefix_len }
    }

    #[test]
    fn the_source_is_of_the_peers_network_and_scope() {
        let addresses = [own("10.0.0.1", 24), own("10.1.0.1", 24), own("fd00::1", 64), own("fe80::1", 64)];
        let source =
            |remote: &str| source_among(&addresses, remote.parse().unwrap()).map(|own| own.to_string());
        assert_eq!(source("10.1.0.9").as_deref(), Some("10.1.0.1"));
        assert_eq!(source("10.0.0.9").as_deref(), Some("10.0.0.1"));
        assert_eq!(source("192.0.2.1").as_deref(), Some("10.0.0.1"), "the first of the configuration");
        assert_eq!(source("fe80::9").as_deref(), Some("fe80::1"));
        assert_eq!(source("2001:db8::1").as_deref(), Some("fd00::1"));
        assert_eq!(source_among(&addresses[..2], "fd00::2".parse().unwrap()), None);
    }
}
