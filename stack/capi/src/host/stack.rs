//! Opening and closing a stack, over DPDK's environment of the library's own or of the program's.

use core::ffi::c_char;

use verbs::memory::{MemoryConfig, MemoryPort, QueueRule, pair_of_queues};
use verbs::{Config, MacAddr, Stack, StackBuilder, Worker};

use crate::boundary::{Fault, Slot, bury, call, give, give_out, text, with, *};

/// A stack: one device, its addresses, and as many cores as the configuration says.
pub struct iw_stack(Slot<Host>);

/// What is behind the handle.
pub(crate) struct Host {
    pub(crate) stack: Stack,
    /// Until they are taken.
    pub(crate) workers: Vec<Option<Worker>>,
}

handle_kind!(iw_stack, Host, 1, "the stack");

/// The program has called `rte_eal_init` itself. The library then uses that environment, never cleans it up, and plugs
/// its device into it, unless the configuration names one that is there (`port.device.dpdk`). The program closes every
/// stack, context and worker before it calls `rte_eal_cleanup`.
pub const IW_CALLER_OWNS_EAL: u32 = 1;

/// Two stacks joined by DPDK's rings.
pub const IW_PAIR_RING: u32 = 1;
/// Two stacks joined by ordinary memory, without DPDK: for tests of a program's own logic.
pub const IW_PAIR_MEMORY: u32 = 2;

/// Opens a stack from a configuration in TOML, as `configs/memif-server.toml` explains it. The control thread's call: it
/// opens the device and takes all memory, which may take seconds.
///
/// # Safety
/// `toml` is null or a NUL-terminated text; `out` is null or good for one pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_open(toml: *const c_char, flags: u32, out: *mut *mut iw_stack) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        give(out, "out", core::ptr::null_mut())?;
        let config = Config::from_toml(text(toml, "toml")?)?;
        give(out, "out", open(config, flags)?)?;
        Ok(IW_OK)
    })
}

/// As `iw_stack_open`, from a file.
///
/// # Safety
/// As for `iw_stack_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_open_file(path: *const c_char, flags: u32, out: *mut *mut iw_stack) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        give(out, "out", core::ptr::null_mut())?;
        let config = Config::from_file(text(path, "path")?.as_ref())?;
        give(out, "out", open(config, flags)?)?;
        Ok(IW_OK)
    })
}

/// Opens two stacks in this process that are joined back to back. Both need the same `port` and `core` tables.
///
/// # Safety
/// As for `iw_stack_open`, for each text and pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_open_pair(
    near_toml: *const c_char,
    far_toml: *const c_char,
    kind: u32,
    flags: u32,
    near_out: *mut *mut iw_stack,
    far_out: *mut *mut iw_stack,
) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        give(near_out, "near_out", core::ptr::null_mut())?;
        give(far_out, "far_out", core::ptr::null_mut())?;
        let near = Config::from_toml(text(near_toml, "near_toml")?)?;
        let far = Config::from_toml(text(far_toml, "far_toml")?)?;
        let [near, far] = match kind {
            IW_PAIR_MEMORY => memory_pair(near, far)?,
            IW_PAIR_RING => ring_pair(near, far, flags)?,
            other => return Err(Fault::said(IW_E_VALUE, format_args!("kind = {other}: IW_PAIR_*"))),
        };
        give(near_out, "near_out", host(near))?;
        give(far_out, "far_out", host(far))?;
        Ok(IW_OK)
    })
}

/// Closes the handle. Contexts and workers that came of it go on, and the device stays open until the last worker is
/// closed; workers that were never taken are closed with it.
///
/// # Safety
/// `stack` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_close(stack: *mut iw_stack) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { bury(stack).map(|_| IW_OK) })
}

/// The number of its cores: workers are numbered from 0.
///
/// # Safety
/// As for `iw_stack_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_cores(stack: *const iw_stack) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { with(stack, |host| Ok(host.workers.len() as i32)) })
}

/// Cleans up the DPDK that the library has started, once the last stack is closed; no stack can be opened over a device
/// afterwards. At the end of a program that does not own DPDK itself.
#[unsafe(no_mangle)]
pub extern "C" fn iw_dpdk_end() -> i32 {
    call(|| {
        #[cfg(feature = "dpdk")]
        verbs::end_dpdk();
        Ok(IW_OK)
    })
}

type Built = (Stack, Vec<Worker>);

fn open(config: Config, flags: u32) -> Result<*mut iw_stack, Fault> {
    let builder = environment(Stack::builder(config), flags)?;
    let built = builder.build()?;
    Ok(host(built))
}

fn host((stack, workers): Built) -> *mut iw_stack {
    tracing::info!(cores = workers.len(), "a stack is open");
    give_out(Host { stack, workers: workers.into_iter().map(Some).collect() })
}

fn check_flags(flags: u32) -> Result<bool, Fault> {
    match flags {
        0 => Ok(false),
        IW_CALLER_OWNS_EAL => Ok(true),
        other => Err(Fault::said(IW_E_VALUE, format_args!("flags = {other}: 0 or IW_CALLER_OWNS_EAL"))),
    }
}

#[cfg(feature = "dpdk")]
fn adopted(flags: u32) -> Result<Option<verbs::dpdk::Eal>, Fault> {
    if !check_flags(flags)? {
        return Ok(None);
    }
    // SAFETY: a program that sets the flag promises to keep its environment until it has closed what came of it.
    let eal = unsafe { verbs::dpdk::Eal::adopt() };
    eal.map(Some).map_err(|error| Fault::said(IW_E_DEVICE, error))
}

#[cfg(feature = "dpdk")]
fn environment(builder: StackBuilder, flags: u32) -> Result<StackBuilder, Fault> {
    Ok(match adopted(flags)? {
        Some(eal) => builder.eal(eal),
        None => builder,
    })
}

#[cfg(not(feature = "dpdk"))]
fn environment(builder: StackBuilder, flags: u32) -> Result<StackBuilder, Fault> {
    check_flags(flags)?;
    Ok(builder)
}

#[cfg(feature = "dpdk")]
fn ring_pair(near: Config, far: Config, flags: u32) -> Result<[Built; 2], Fault> {
    Ok(Stack::ring_pair_of_cores(near, far, adopted(flags)?)?)
}

#[cfg(not(feature = "dpdk"))]
fn ring_pair(_: Config, _: Config, flags: u32) -> Result<[Built; 2], Fault> {
    check_flags(flags)?;
    Err(Fault::of(IW_E_UNSUPPORTED))
}

fn memory_pair(near: Config, far: Config) -> Result<[Built; 2], Fault> {
    let (near_port, far_port) = (memory_port(&near, 1), memory_port(&far, 2));
    let queues = |config: &Config| usize::from(config.core.count);
    let (near_ports, far_ports) = pair_of_queues((&near_port, queues(&near)), (&far_port, queues(&far)));
    let build = |config, ports: Vec<MemoryPort>| Stack::builder(config).memory_ports(ports).build();
    Ok([build(near, near_ports)?, build(far, far_ports)?])
}

fn memory_port(config: &Config, last: u8) -> MemoryConfig {
    let port = &config.port;
    MemoryConfig {
        mac: MacAddr([0x02, 0, 0, 0, 0, last]),
        mtu_bytes: port.mtu,
        rx_frames: port.rx_frames as usize,
        tx_frames: port.tx_frames as usize,
        rx_ring_frames: port.ring.into(),
        tx_ring_frames: port.ring.into(),
        queue_rule: QueueRule::AsSent,
        ..MemoryConfig::default()
    }
}
