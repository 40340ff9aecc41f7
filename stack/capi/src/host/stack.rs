//! Opening and closing of a stack, with DPDK's environment started by the library or by the
//! program.

use core::ffi::c_char;
use core::ptr::null_mut;

use verbs::memory::{MemoryConfig, MemoryPort, QueueRule, pair_of_queues};
use verbs::{Config, MacAddr, Stack, StackBuilder, Worker};

use crate::boundary::{ApiError, Slot, alloc_handle, call, close_handle, create, text, with, write_out, *};

/// A stack: one or more devices, their addresses, and the configured number of cores.
pub struct iw_stack(Slot<StackObject>);

/// The object behind the handle.
pub(crate) struct StackObject {
    pub(crate) stack: Stack,
    /// Workers that were not taken.
    pub(crate) workers: Vec<Option<Worker>>,
}

handle_kind!(iw_stack, StackObject, 1, "the stack");

/// The program has called `rte_eal_init` itself. The library uses that environment and never cleans
/// it up. It adds its device to it, unless the configuration names an existing one
/// (`port.device.dpdk`). The program closes every stack, context and worker before it calls
/// `rte_eal_cleanup`.
pub const IW_CALLER_OWNS_EAL: u32 = 1;

/// Two stacks linked by DPDK's rings.
pub const IW_PAIR_RING: u32 = 1;
/// Two stacks linked by ordinary memory, without DPDK: for tests of a program's own logic.
pub const IW_PAIR_MEMORY: u32 = 2;

/// Opens a stack from a configuration in TOML; `configs/memif-server.toml` explains the keys. Opens
/// the device and allocates all memory, which may take seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_open(toml: *const c_char, flags: u32, out: *mut *mut iw_stack) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { create(out, "out", null_mut(), || open(Config::from_toml(text(toml, "toml")?)?, flags)) }
}

/// As `iw_stack_open`, from a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_open_file(path: *const c_char, flags: u32, out: *mut *mut iw_stack) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        create(out, "out", null_mut(), || open(Config::from_file(text(path, "path")?.as_ref())?, flags))
    }
}

/// Opens two stacks in this process that are linked back to back. Both need the same `port` and
/// `core` tables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_open_pair(
    first_toml: *const c_char,
    second_toml: *const c_char,
    kind: u32,
    flags: u32,
    first_out: *mut *mut iw_stack,
    second_out: *mut *mut iw_stack,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        write_out(first_out, "first_out", null_mut())?;
        write_out(second_out, "second_out", null_mut())?;
        let first = Config::from_toml(text(first_toml, "first_toml")?)?;
        let second = Config::from_toml(text(second_toml, "second_toml")?)?;
        let [first, second] = match kind {
            IW_PAIR_MEMORY => memory_pair(first, second)?,
            IW_PAIR_RING => ring_pair(first, second, flags)?,
            other => {
                return Err(fault!(IW_E_VALUE, "kind = {other}: IW_PAIR_*"));
            }
        };
        write_out(first_out, "first_out", into_handle(first))?;
        write_out(second_out, "second_out", into_handle(second))
    })
}

/// Closes the handle. Its contexts and workers continue, and the device stays open until the last
/// worker is closed. Workers that were not taken are closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_close(stack: *mut iw_stack) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { close_handle(stack).map(drop) })
}

/// Returns the number of cores. Workers are numbered from 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_cores(stack: *const iw_stack) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(stack, |host| Ok(host.workers.len() as i32)) })
}

/// Cleans up the DPDK environment that the library started. Call it after the last stack is closed,
/// at the end of a program that does not use DPDK itself; no stack can be opened over a device
/// afterwards.
#[unsafe(no_mangle)]
pub extern "C" fn iw_dpdk_cleanup() -> i32 {
    call(|| {
        #[cfg(feature = "dpdk")]
        verbs::cleanup_dpdk();
        Ok(())
    })
}

type StackAndWorkers = (Stack, Vec<Worker>);

fn open(config: Config, flags: u32) -> Result<*mut iw_stack, ApiError> {
    Ok(into_handle(environment(Stack::builder(config), flags)?.build()?))
}

fn into_handle((stack, workers): StackAndWorkers) -> *mut iw_stack {
    tracing::info!(cores = workers.len(), "a stack is open");
    alloc_handle(StackObject { stack, workers: workers.into_iter().map(Some).collect() })
}

fn check_flags(flags: u32) -> Result<bool, ApiError> {
    match flags {
        0 => Ok(false),
        IW_CALLER_OWNS_EAL => Ok(true),
        other => Err(fault!(IW_E_VALUE, "flags = {other}: 0 or IW_CALLER_OWNS_EAL")),
    }
}

#[cfg(feature = "dpdk")]
fn adopted(flags: u32) -> Result<Option<verbs::dpdk::Eal>, ApiError> {
    if !check_flags(flags)? {
        return Ok(None);
    }
    // SAFETY: a program that sets the flag guarantees to keep its environment until it has closed
    // the returned stack.
    let eal = unsafe { verbs::dpdk::Eal::adopt() };
    eal.map(Some).map_err(|error| ApiError::with_detail(IW_E_DEVICE, error))
}

#[cfg(feature = "dpdk")]
fn environment(builder: StackBuilder, flags: u32) -> Result<StackBuilder, ApiError> {
    Ok(match adopted(flags)? {
        Some(eal) => builder.eal(eal),
        None => builder,
    })
}

#[cfg(not(feature = "dpdk"))]
fn environment(builder: StackBuilder, flags: u32) -> Result<StackBuilder, ApiError> {
    check_flags(flags)?;
    Ok(builder)
}

#[cfg(feature = "dpdk")]
fn ring_pair(first: Config, second: Config, flags: u32) -> Result<[StackAndWorkers; 2], ApiError> {
    Ok(Stack::ring_pair_of_cores(first, second, adopted(flags)?)?)
}

#[cfg(not(feature = "dpdk"))]
fn ring_pair(_: Config, _: Config, flags: u32) -> Result<[StackAndWorkers; 2], ApiError> {
    check_flags(flags)?;
    Err(ApiError::new(IW_E_UNSUPPORTED))
}

fn memory_pair(first: Config, second: Config) -> Result<[StackAndWorkers; 2], ApiError> {
    let (first_port, second_port) = (memory_port(&first, 1), memory_port(&second, 2));
    let queues = |config: &Config| usize::from(config.core.count);
    let (first_ports, second_ports) =
        pair_of_queues((&first_port, queues(&first)), (&second_port, queues(&second)));
    let build = |config, ports: Vec<MemoryPort>| Stack::builder(config).memory_ports(ports).build();
    Ok([build(first, first_ports)?, build(second, second_ports)?])
}

fn memory_port(config: &Config, last: u8) -> MemoryConfig {
    let port = &config.port;
    MemoryConfig {
        mac: MacAddr([0x02, 0, 0, 0, 0, last]),
        mtu_bytes: port.mtu,
        rx_frames: port.rx_frames as usize,
        tx_frames: port.tx_frames as usize,
        rx_ring_frames: port.ring_size().into(),
        tx_ring_frames: port.ring_size().into(),
        queue_rule: QueueRule::AsSent,
        ..MemoryConfig::default()
    }
}
