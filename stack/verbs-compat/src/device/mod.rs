//! The device `ironwarp0`: the stack of the configuration file, opened by the first call that needs it.

mod context;
mod names;
mod query;

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

use ironwarp_port::Port;
use verbs::config::{DeviceConfig, MemifRole};
use verbs::{Completion, Config, MacAddr, PortVisit, Stack, Worker};

pub(crate) use context::{AsyncEvent, AsyncSource, Context, context_of, default_context};
pub(crate) use names::static_text;
pub(crate) use query::READS_MAX;

use crate::engine::{ENODEV, Errno, Outcome, State, start_process_hooks};

/// The environment variable that names the configuration file.
pub(crate) const CONFIG_VARIABLE: &str = "IRONWARP_CONFIG";
const LOG_VARIABLE: &str = "IRONWARP_LOG";

/// Completions that are converted at a time.
const REAPED_MAX: usize = 16;

/// An open stack of one core.
pub(crate) struct Device {
    pub(crate) worker: Worker,
    pub(crate) context: verbs::Context,
    /// Completions on their way to the program.
    pub(crate) reaped: [Completion; REAPED_MAX],
    pub(crate) mac: MacAddr,
    pub(crate) mtu: u16,
    /// Its addresses, in the order of the configuration.
    pub(crate) addresses: Vec<IpAddr>,
    /// Whether it must be closed at the end of the process: the kernel keeps the XDP program on the interface. Other devices
    /// end with the process, and a memif's peer may still receive the last frames until then.
    pub(crate) outlives_process: bool,
    /// Keeps the counters.
    _stack: Stack,
}

thread_local! {
    /// Whether this thread is opening the stack: drivers of DPDK that are loaded then look for RDMA devices themselves.
    static IS_OPENING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether there is a configuration file to open.
pub(crate) fn is_configured() -> bool {
    !IS_OPENING.get() && config_path().is_some()
}

fn config_path() -> Option<PathBuf> {
    std::env::var_os(CONFIG_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
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
        return Err(format!("{CONFIG_VARIABLE} is not set; start the program with iwarp-run"));
    };
    let in_file = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let config = Config::from_file(&path).map_err(|error| in_file(&error))?;
    let addresses = config.addresses().map_err(|error| in_file(&error))?;
    let mtu = config.port.mtu;
    let outlives_process = matches!(config.port.device, DeviceConfig::AfXdp { .. });
    // DPDK starts threads: no handler of the program shall run there.
    let signals = crate::engine::BlockedSignals::new();
    wait_for_server(&config.port.device);
    let built = Stack::builder(config).build_one();
    drop(signals);
    let (stack, mut worker) = built.map_err(|error| in_file(&error))?;
    let context = stack.context().map_err(|error| in_file(&error))?;
    let mac = worker.with_port(LinkAddress).unwrap_or(MacAddr([2, 0, 0, 0, 0, 1]));
    let reaped = [Completion::default(); REAPED_MAX];
    Ok(Device { worker, context, reaped, mac, mtu, addresses, outlives_process, _stack: stack })
}

/// How long the client's end of a memif waits for the server's: the two programs may be started together.
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
        let filter = tracing_subscriber::EnvFilter::try_from_env(LOG_VARIABLE)
            .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("error"));
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        // A program in Rust may have a log of its own.
        let _ = log.try_init();
    });
}

impl Device {
    /// Returns the GUID of the node: the EUI-64 of the link address.
    pub(crate) fn guid(&self) -> [u8; 8] {
        let MacAddr([a, b, c, d, e, f]) = self.mac;
        [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
    }

    /// Returns whether an address is one of the device's.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }

    /// Returns the address that the device uses towards `remote`: the first of its family.
    pub(crate) fn source_for(&self, remote: IpAddr) -> Outcome<IpAddr> {
        if self.has_address(remote) {
            return Ok(remote);
        }
        let source = self.addresses.iter().find(|own| own.is_ipv4() == remote.is_ipv4());
        source.copied().ok_or(Errno(libc::ENETUNREACH))
    }
}
