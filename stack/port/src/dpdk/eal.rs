//! DPDK's environment: started once in a process, or adopted from the application that owns it.
//!
//! Takes an [`EalConfig`] and gives an [`Eal`]: a handle that every port clones, so that the
//! environment outlives them. DPDK pins the starting thread to the first lcore. Its affinity is
//! restored afterwards, because it is a control thread, and threads that it spawns would inherit
//! the pin.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::thread::{sched_getaffinity, sched_setaffinity};

use super::open_files::OpenFiles;
use super::vdev::{Buffers, require};
use super::{DpdkError, Errno, Vdev};
use super::{device, pool};
use crate::WakeSource;

/// The source of DPDK's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// Anonymous hugepages, so none remains when the process dies. Allocated on demand.
    Hugepages,
    /// Ordinary pages of a fixed total size. Devices with DMA of their own cannot use them.
    Ordinary {
        /// MiB allocated at start.
        mib: u32,
    },
}

/// The level of DPDK's log on standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// Errors.
    Error,
    /// Also warnings.
    Warning,
    /// Also information.
    Info,
    /// Everything.
    Debug,
}

/// The settings of the EAL. The process's own arguments are not used.
#[derive(Clone, Debug)]
pub struct EalConfig {
    lcores: Vec<u16>,
    memory: Memory,
    file_prefix: String,
    vdevs: Vec<Vdev>,
    pci: Vec<String>,
    log_level: LogLevel,
    extra: Vec<String>,
}

impl Default for EalConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl EalConfig {
    /// Returns the defaults: one lcore on processor 0, ordinary pages, no devices, no telemetry
    /// socket, a file prefix of this process.
    pub fn new() -> Self {
        EalConfig {
            lcores: vec![0],
            memory: Memory::Ordinary { mib: 256 },
            file_prefix: format!("ironwarp-{}", std::process::id()),
            vdevs: Vec::new(),
            pci: Vec::new(),
            log_level: LogLevel::Warning,
            extra: Vec::new(),
        }
    }

    /// Sets the processors of the EAL's lcores. The first is the calling thread's; DPDK starts a
    /// thread for each other one. Polling threads that register themselves need none.
    #[must_use]
    pub fn lcores(mut self, processors: &[u16]) -> Self {
        self.lcores = processors.to_vec();
        self
    }

    /// Sets hugepages or ordinary pages.
    #[must_use]
    pub fn memory(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    /// Sets the prefix that separates this process's files from others.
    #[must_use]
    pub fn file_prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.file_prefix);
        self
    }

    /// Adds a virtual device.
    #[must_use]
    pub fn vdev(mut self, vdev: Vdev) -> Self {
        self.vdevs.push(vdev);
        self
    }

    /// Adds a network card by its address, such as `0000:3b:00.0`. Without one the PCI bus is not
    /// scanned.
    #[must_use]
    pub fn pci(mut self, address: &str) -> Self {
        self.pci.push(address.to_owned());
        self
    }

    /// Sets the log level of DPDK.
    #[must_use]
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.log_level = level;
        self
    }

    /// Adds an argument that is passed on unchanged, after all others.
    #[must_use]
    pub fn extra(mut self, argument: &str) -> Self {
        self.extra.push(argument.to_owned());
        self
    }

    /// Returns the argument vector, program name first.
    ///
    /// # Errors
    /// [`DpdkError::Setting`] for what DPDK would misread or refuse.
    pub fn arguments(&self) -> Result<Vec<String>, DpdkError> {
        self.validate()?;
        let lcores: Vec<String> = self.lcores.iter().map(u16::to_string).collect();
        let mut arguments: Vec<String> =
            ["ironwarp", "-l", &lcores.join(","), "--no-telemetry", "--file-prefix", &self.file_prefix]
                .map(String::from)
                .into();
        arguments.push(format!("--log-level={}", self.log_level.name()));
        self.push_memory(&mut arguments);
        self.push_devices(&mut arguments);
        arguments.extend(self.extra.iter().cloned());
        Ok(arguments)
    }

    fn validate(&self) -> Result<(), DpdkError> {
        let most = dpdk_sys::DSYS_MAX_LCORE as usize;
        let allowed = "one processor or more, and not all the lcores that DPDK was built for";
        require((1..most).contains(&self.lcores.len()), "eal.lcores", format!("{:?}", self.lcores), allowed)?;
        let prefix = &self.file_prefix;
        let plain = prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let fits = (1..=64).contains(&prefix.len());
        require(plain && fits, "eal.file_prefix", prefix, "1 to 64 letters, digits, '-' or '_'")?;
        for address in &self.pci {
            let plain = address.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
            require(plain && !address.is_empty(), "pci.address", address, "a PCI address, as 0000:3b:00.0")?;
        }
        if let Memory::Ordinary { mib } = self.memory {
            require((16..=1 << 20).contains(&mib), "eal.memory_mib", mib, "16 to 1048576")?;
        }
        self.extra.iter().try_for_each(|text| {
            require(!text.contains('\0'), "eal.extra_args", text.escape_debug(), "text without a NUL byte")
        })
    }

    fn push_memory(&self, arguments: &mut Vec<String>) {
        match self.memory {
            Memory::Hugepages => arguments.push("--in-memory".into()),
            // Together with --in-memory, 22.11 refuses --no-huge; --no-shconf leaves as little
            // behind.
            Memory::Ordinary { mib } => {
                arguments.extend(["--no-huge".into(), "-m".into(), mib.to_string(), "--no-shconf".into()]);
            }
        }
    }

    fn push_devices(&self, arguments: &mut Vec<String>) {
        if self.pci.is_empty() {
            arguments.push("--no-pci".into());
        }
        for address in &self.pci {
            arguments.extend(["-a".into(), address.clone()]);
        }
        arguments.extend(self.vdevs.iter().map(|vdev| format!("--vdev={vdev}")));
    }
}

impl LogLevel {
    fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warning => "warning",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        }
    }
}

/// The running environment. Clones are handles of the same one; the last one cleans it up, unless
/// it is adopted.
#[derive(Clone)]
pub struct Eal {
    shared: Arc<Started>,
}

const VDEV_BUS: &CStr = c"vdev";

const NOT_STARTED: u8 = 0;
const OURS: u8 = 1;
const ADOPTED: u8 = 2;

/// Who started the EAL of this process. Never reset: DPDK does not start twice, even after
/// clean-up.
static STATE: AtomicU8 = AtomicU8::new(NOT_STARTED);

impl Eal {
    /// Starts DPDK.
    ///
    /// # Errors
    /// [`DpdkError::EalAlreadyStarted`] the second time in a process, whatever became of the first;
    /// [`DpdkError::Setting`], [`DpdkError::EalInit`], [`DpdkError::NotMade`],
    /// [`DpdkError::Version`].
    pub fn start(config: &EalConfig) -> Result<Self, DpdkError> {
        let arguments = config.arguments()?;
        check_version()?;
        STATE
            .compare_exchange(NOT_STARTED, OURS, Ordering::AcqRel, Ordering::Acquire)
            .map_err(|_| DpdkError::EalAlreadyStarted)?;
        let added: Vec<Added> = config.vdevs.iter().map(Added::new).collect();
        init_unpinned(&arguments)?;
        let eal = Eal { shared: Started::new(true) };
        added.into_iter().for_each(|added| eal.shared.remember(added));
        match config.vdevs.iter().find(|vdev| !device::exists(vdev.name())) {
            Some(vdev) => Err(DpdkError::NotMade { vdev: vdev.to_string() }),
            None => Ok(eal),
        }
    }

    /// Uses the EAL that the application has started. It is never cleaned up by this crate.
    ///
    /// # Errors
    /// [`DpdkError::EalNotStarted`], [`DpdkError::EalAlreadyStarted`] when it was started here,
    /// [`DpdkError::Version`].
    ///
    /// # Safety
    /// The application does not call `rte_eal_cleanup` before every port and frame made with this
    /// handle is gone.
    pub unsafe fn adopt() -> Result<Self, DpdkError> {
        check_version()?;
        // SAFETY: reads a counter that is zero before the EAL runs.
        if STATE.load(Ordering::Acquire) == NOT_STARTED && unsafe { dpdk_sys::rte_lcore_count() } == 0 {
            return Err(DpdkError::EalNotStarted);
        }
        match STATE.compare_exchange(NOT_STARTED, ADOPTED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(ADOPTED) => Ok(Eal { shared: Started::new(false) }),
            Err(_) => Err(DpdkError::EalAlreadyStarted),
        }
    }

    /// Plugs in a virtual device while the EAL runs: for an application that owns the EAL, and for
    /// a device that was closed and is opened again.
    ///
    /// # Errors
    /// [`DpdkError::Device`] with the driver's reason; a device of that name that is open is busy.
    pub fn add_vdev(&self, vdev: &Vdev) -> Result<(), DpdkError> {
        let failed = |errno| DpdkError::Device { device: vdev.name().into(), step: "be plugged in", errno };
        let name = CString::new(vdev.name()).map_err(|_| failed(Errno::INVALID))?;
        let arguments = CString::new(vdev.arguments()).map_err(|_| failed(Errno::INVALID))?;
        if device::exists(vdev.name()) {
            return Err(failed(Errno::BUSY));
        }
        let added = Added::new(vdev);
        // SAFETY: NUL-terminated texts, copied by the callees; the EAL runs while `self` lives.
        // What may be removed is the bus's memory of a device whose port was closed.
        let answer = unsafe {
            dpdk_sys::rte_eal_hotplug_remove(VDEV_BUS.as_ptr(), name.as_ptr());
            dpdk_sys::rte_eal_hotplug_add(VDEV_BUS.as_ptr(), name.as_ptr(), arguments.as_ptr())
        };
        Errno::check(answer).map_err(failed)?;
        self.shared.remember(added);
        Ok(())
    }

    /// Returns what a device's arguments determine about its buffers.
    pub(super) fn buffers_of(&self, device: &str) -> Option<Buffers> {
        self.shared.find(device, |added| Some(added.vdev.buffers))
    }

    /// Returns the files or sockets that a device has opened for its queues, in their order; `None`
    /// unless there is one for each.
    pub(super) fn new_files(&self, device: &str, queues: usize) -> Option<Vec<WakeSource>> {
        let found = self.shared.find(device, |added| added.before.as_ref()?.find_new(queues))?;
        Some(found.into_iter().map(WakeSource::Frames).collect())
    }

    /// Gives the calling thread an lcore id until it ends, unless it has one. A thread's first
    /// burst does this too; this call reports the reason of a failure.
    ///
    /// # Errors
    /// [`DpdkError::Thread`], when more threads poll than DPDK was built for.
    pub fn enter_thread(&self) -> Result<(), DpdkError> {
        // SAFETY: the EAL runs while `self` lives.
        match unsafe { dpdk_sys::dsys_enter_thread() } {
            0 => Ok(()),
            errno => Err(DpdkError::Thread(Errno(errno))),
        }
    }

    /// Returns whether the calling thread has an lcore id.
    pub fn thread_is_lcore(&self) -> bool {
        // SAFETY: reads a thread-local integer.
        unsafe { dpdk_sys::dsys_lcore_id() != dpdk_sys::DSYS_LCORE_ID_ANY }
    }

    /// Returns the running release, such as `DPDK 22.11.11`.
    pub fn version(&self) -> String {
        running_version()
    }
}

struct Started {
    ours: bool,
    /// The virtual devices created by this crate.
    vdevs: Mutex<Vec<Added>>,
}

/// A virtual device.
struct Added {
    vdev: Vdev,
    /// The process's open files before it was created, if its driver opens some for its queues.
    before: Option<OpenFiles>,
}

impl Added {
    /// Called before the device is created.
    fn new(vdev: &Vdev) -> Self {
        vdev.clear_stale_socket();
        Added { vdev: vdev.clone(), before: OpenFiles::before(vdev.name()) }
    }
}

impl Started {
    fn new(ours: bool) -> Arc<Self> {
        Arc::new(Started { ours, vdevs: Mutex::default() })
    }

    fn remember(&self, added: Added) {
        let mut vdevs = self.vdevs.lock().unwrap_or_else(PoisonError::into_inner);
        vdevs.retain(|known| known.vdev.name() != added.vdev.name());
        vdevs.push(added);
    }

    fn find<T>(&self, device: &str, look: impl FnOnce(&Added) -> Option<T>) -> Option<T> {
        let vdevs = self.vdevs.lock().unwrap_or_else(PoisonError::into_inner);
        vdevs.iter().find(|added| added.vdev.name() == device).and_then(look)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Clean-up unmaps the pools, so it must wait until no frame points into one.
        if self.ours && !pool::any_kept() {
            let folder = runtime_folder();
            // SAFETY: ports hold a handle, so none is left; and no pool has frames out.
            unsafe { dpdk_sys::rte_eal_cleanup() };
            // DPDK leaves its folder behind, empty. A folder with files belongs to another process
            // too, and stays.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Returns the folder of this process's DPDK sockets and locks.
fn runtime_folder() -> PathBuf {
    // SAFETY: a NUL-terminated text that stays as long as the process.
    let folder = unsafe { CStr::from_ptr(dpdk_sys::rte_eal_get_runtime_dir()) };
    PathBuf::from(OsStr::from_bytes(folder.to_bytes()))
}

/// Layouts and inlined burst calls are fixed within a release. So year and month must match, but
/// not the maintenance version.
fn check_version() -> Result<(), DpdkError> {
    let built = (dpdk_sys::DSYS_VERSION_YEAR, dpdk_sys::DSYS_VERSION_MONTH);
    // SAFETY: both read constants of the library.
    let running = unsafe { (dpdk_sys::rte_version_year(), dpdk_sys::rte_version_month()) };
    if built == running {
        return Ok(());
    }
    Err(DpdkError::Version { built: format!("{:02}.{:02}", built.0, built.1), running: running_version() })
}

fn running_version() -> String {
    // SAFETY: a constant text of the library.
    unsafe { CStr::from_ptr(dpdk_sys::rte_version()) }.to_string_lossy().into_owned()
}

fn init_unpinned(arguments: &[String]) -> Result<(), DpdkError> {
    let affinity = sched_getaffinity(None);
    let started = init(arguments);
    if let Ok(before) = affinity {
        // This fails only if the cpuset shrank meanwhile, and then the pin may stay.
        let _ = sched_setaffinity(None, &before);
    }
    started
}

fn init(arguments: &[String]) -> Result<(), DpdkError> {
    let refused = |errno| DpdkError::EalInit { arguments: arguments.join(" "), errno };
    let texts: Result<Vec<CString>, _> = arguments.iter().map(|text| CString::new(text.as_str())).collect();
    // DPDK keeps pointers to its arguments and starts once, so they are leaked on purpose.
    let texts: &'static [CString] = Vec::leak(texts.map_err(|_| refused(Errno::INVALID))?);
    let mut vector: Vec<*mut c_char> = texts.iter().map(|text| text.as_ptr().cast_mut()).collect();
    vector.push(core::ptr::null_mut());
    let vector = Vec::leak(vector);
    // SAFETY: a NULL-terminated vector of NUL-terminated texts that live for ever; getopt permutes
    // the pointers only.
    let answer = unsafe { dpdk_sys::rte_eal_init(texts.len() as c_int, vector.as_mut_ptr()) };
    if answer < 0 { Err(refused(Errno::last())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_pages_are_never_asked_for_together_with_in_memory() {
        let line = EalConfig::new().file_prefix("t").lcores(&[1, 3]).vdev(Vdev::ring(0)).arguments().unwrap();
        assert_eq!(
            line.join(" "),
            "ironwarp -l 1,3 --no-telemetry --file-prefix t --log-level=warning --no-huge -m 256 --no-shconf \
             --no-pci --vdev=net_ring0"
        );
    }

    #[test]
    fn a_card_switches_the_bus_on_and_hugepages_leave_no_files() {
        let config =
            EalConfig::new().file_prefix("t").memory(Memory::Hugepages).pci("0000:3b:00.0").extra("-v");
        let line = config.arguments().unwrap().join(" ");
        assert!(line.ends_with("--in-memory -a 0000:3b:00.0 -v"), "{line}");
    }

    #[test]
    fn what_dpdk_would_misread_is_refused_by_name() {
        let key = |config: EalConfig| match config.arguments() {
            Err(DpdkError::Setting { key, .. }) => key,
            other => panic!("{other:?}"),
        };
        assert_eq!(key(EalConfig::new().lcores(&[])), "eal.lcores");
        assert_eq!(key(EalConfig::new().file_prefix("../x")), "eal.file_prefix");
        assert_eq!(key(EalConfig::new().pci("eth0")), "pci.address");
        assert_eq!(key(EalConfig::new().extra("a\0b")), "eal.extra_args");
        assert_eq!(key(EalConfig::new().memory(Memory::Ordinary { mib: 0 })), "eal.memory_mib");
    }
}
