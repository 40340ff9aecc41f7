//! DPDK's environment: started once per process, or adopted from the application that owns it.
//!
//! Takes an [`EalConfig`], gives an [`Eal`]: a handle that every port clones, so that the environment outlives them.
//! Starting pins the calling thread to the first lcore, as DPDK does; its old affinity is put back afterwards,
//! because here the calling thread is a control thread that spawns the pollers, and they would inherit the pin.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::thread::{sched_getaffinity, sched_setaffinity};

use super::vdev::{Buffers, require};
use super::{DpdkError, Errno, Vdev};
use super::{device, pool};

/// Where DPDK's memory comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// Hugepages that no file names, so none is left behind when the process dies. Taken as they are needed.
    Hugepages,
    /// Ordinary pages, so many MiB in all. Devices that do their own DMA cannot use it.
    Ordinary {
        /// MiB taken at start.
        mib: u32,
    },
}

/// How much DPDK says on standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// What failed.
    Error,
    /// And what is suspicious.
    Warning,
    /// And what it found and did.
    Info,
    /// Everything.
    Debug,
}

/// What the EAL is started with. Nothing is taken from the process's own arguments.
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
    /// One lcore on processor 0, ordinary pages, no devices, no telemetry socket, a file prefix of this process.
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

    /// The processors of the EAL's own lcores. The first is the calling thread's; DPDK starts a thread for each other
    /// one. Polling threads that register themselves need none.
    #[must_use]
    pub fn lcores(mut self, processors: &[u16]) -> Self {
        self.lcores = processors.to_vec();
        self
    }

    /// Hugepages or ordinary pages.
    #[must_use]
    pub fn memory(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    /// The name that keeps this process's files apart from another's.
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

    /// Adds a network card by its address, as `0000:3b:00.0`. Without one the PCI bus is not looked at.
    #[must_use]
    pub fn pci(mut self, address: &str) -> Self {
        self.pci.push(address.to_owned());
        self
    }

    /// How much DPDK says.
    #[must_use]
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.log_level = level;
        self
    }

    /// An argument passed on as it is, after all others.
    #[must_use]
    pub fn extra(mut self, argument: &str) -> Self {
        self.extra.push(argument.to_owned());
        self
    }

    /// The argument vector, program name first.
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
            // Together with --in-memory, 22.11 refuses --no-huge; --no-shconf leaves as little behind.
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

/// The running environment. Clones are handles to the same one; the last to go cleans it up, unless it is adopted.
#[derive(Clone)]
pub struct Eal {
    shared: Arc<Started>,
}

const VDEV_BUS: &CStr = c"vdev";

const NOT_STARTED: u8 = 0;
const OURS: u8 = 1;
const ADOPTED: u8 = 2;

/// Who started the EAL of this process. It never goes back: DPDK does not start twice, not even after clean-up.
static STATE: AtomicU8 = AtomicU8::new(NOT_STARTED);

impl Eal {
    /// Starts DPDK.
    ///
    /// # Errors
    /// [`DpdkError::EalAlreadyStarted`] the second time in a process, whatever became of the first;
    /// [`DpdkError::Setting`], [`DpdkError::EalInit`], [`DpdkError::NotMade`], [`DpdkError::Version`].
    pub fn start(config: &EalConfig) -> Result<Self, DpdkError> {
        let arguments = config.arguments()?;
        check_version()?;
        STATE
            .compare_exchange(NOT_STARTED, OURS, Ordering::AcqRel, Ordering::Acquire)
            .map_err(|_| DpdkError::EalAlreadyStarted)?;
        init_unpinned(&arguments)?;
        let eal = Eal { shared: Started::new(true) };
        config.vdevs.iter().for_each(|vdev| eal.shared.remember(vdev));
        match config.vdevs.iter().find(|vdev| !device::exists(vdev.name())) {
            Some(vdev) => Err(DpdkError::NotMade { vdev: vdev.to_string() }),
            None => Ok(eal),
        }
    }

    /// Uses the EAL that the application has started. It is never cleaned up from here.
    ///
    /// # Errors
    /// [`DpdkError::EalNotStarted`], [`DpdkError::EalAlreadyStarted`] when it was started here, [`DpdkError::Version`].
    ///
    /// # Safety
    /// The application does not call `rte_eal_cleanup` before every port and frame made with this handle is gone.
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

    /// Plugs a virtual device in while the EAL runs: for an application that owns the EAL, and for a device that was
    /// closed and shall be opened again.
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
        // SAFETY: NUL-terminated texts, copied by the callees; the EAL runs while `self` lives. What may be removed is
        // the bus's memory of a device whose port was closed.
        let answer = unsafe {
            dpdk_sys::rte_eal_hotplug_remove(VDEV_BUS.as_ptr(), name.as_ptr());
            dpdk_sys::rte_eal_hotplug_add(VDEV_BUS.as_ptr(), name.as_ptr(), arguments.as_ptr())
        };
        Errno::check(answer).map_err(failed)?;
        self.shared.remember(vdev);
        Ok(())
    }

    /// What is known of a device's buffers beyond what its driver says.
    pub(super) fn buffers_of(&self, device: &str) -> Option<Buffers> {
        let vdevs = self.shared.vdevs.lock().unwrap_or_else(PoisonError::into_inner);
        vdevs.iter().find(|vdev| vdev.name() == device).map(|vdev| vdev.buffers)
    }

    /// Gives the calling thread an lcore id until it ends, unless it has one. A thread's first burst does this too;
    /// doing it beforehand tells why it cannot be done.
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

    /// Whether the calling thread has an lcore id.
    pub fn thread_is_lcore(&self) -> bool {
        // SAFETY: reads a thread-local integer.
        unsafe { dpdk_sys::dsys_lcore_id() != dpdk_sys::DSYS_LCORE_ID_ANY }
    }

    /// The release that runs, as it names itself: `DPDK 22.11.11`.
    pub fn version(&self) -> String {
        running_version()
    }
}

struct Started {
    ours: bool,
    /// The virtual devices that were made here, for what their arguments say of buffers.
    vdevs: Mutex<Vec<Vdev>>,
}

impl Started {
    fn new(ours: bool) -> Arc<Self> {
        Arc::new(Started { ours, vdevs: Mutex::default() })
    }

    fn remember(&self, vdev: &Vdev) {
        let mut vdevs = self.vdevs.lock().unwrap_or_else(PoisonError::into_inner);
        vdevs.retain(|known| known.name() != vdev.name());
        vdevs.push(vdev.clone());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Clean-up unmaps the pools: not while a frame somewhere still points into one.
        if self.ours && !pool::any_kept() {
            let folder = runtime_folder();
            // SAFETY: ports hold a handle, so none is left; and no pool has frames out.
            unsafe { dpdk_sys::rte_eal_cleanup() };
            // DPDK leaves its folder behind, empty. One that is not empty is somebody else's too, and stays.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Where DPDK keeps this process's sockets and locks.
fn runtime_folder() -> PathBuf {
    // SAFETY: a NUL-terminated text that stays as long as the process.
    let folder = unsafe { CStr::from_ptr(dpdk_sys::rte_eal_get_runtime_dir()) };
    PathBuf::from(OsStr::from_bytes(folder.to_bytes()))
}

/// Layouts and the inlined burst calls are fixed for a release, not for its maintenance updates: so year and month
/// must agree, the minor number need not.
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
        // A cpuset that shrank meanwhile is the only way to fail, and then the pin may as well stay.
        let _ = sched_setaffinity(None, &before);
    }
    started
}

fn init(arguments: &[String]) -> Result<(), DpdkError> {
    let refused = |errno| DpdkError::EalInit { arguments: arguments.join(" "), errno };
    let texts: Result<Vec<CString>, _> = arguments.iter().map(|text| CString::new(text.as_str())).collect();
    // DPDK keeps pointers into its arguments, and starts once: leaking them is exactly right.
    let texts: &'static [CString] = Vec::leak(texts.map_err(|_| refused(Errno::INVALID))?);
    let mut vector: Vec<*mut c_char> = texts.iter().map(|text| text.as_ptr().cast_mut()).collect();
    vector.push(core::ptr::null_mut());
    let vector = Vec::leak(vector);
    // SAFETY: a NULL-terminated vector of NUL-terminated texts that live for ever; getopt permutes the pointers only.
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
