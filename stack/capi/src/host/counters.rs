//! Counters by name.

use core::ffi::c_char;

use super::stack::{StackObject, iw_stack};
use crate::boundary::{ApiError, call, text, with, write_out, *};

/// Reads one counter of a stack by its name, the sum over all cores, as `iwarp-top` shows it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_counter(
    stack: *const iw_stack,
    name: *const c_char,
    value: *mut u64,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { read_counter(stack, name, value, |host| Ok(host.stack.counters())) }
}

/// Reads one counter of one core by its name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_core_counter(
    stack: *const iw_stack,
    core: u32,
    name: *const c_char,
    value: *mut u64,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        read_counter(stack, name, value, |host| {
            let number = u16::try_from(core).ok().filter(|core| usize::from(*core) < host.workers.len());
            let number = number.ok_or_else(|| fault!(IW_E_VALUE, "core = {core}: below iw_stack_cores"))?;
            Ok(host.stack.core_counters(number))
        })
    }
}

/// Reads one counter of a port's device or network by its name, the sum over all cores.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_port_counter(
    stack: *const iw_stack,
    port: u32,
    name: *const c_char,
    value: *mut u64,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        read_counter(stack, name, value, |host| {
            let number = u8::try_from(port).ok().filter(|port| *port < host.stack.ports());
            let number = number.ok_or_else(|| fault!(IW_E_VALUE, "port = {port}: below iw_ports"))?;
            Ok(host.stack.port_counters(number))
        })
    }
}

/// # Safety
/// As for every call of the library.
unsafe fn read_counter(
    stack: *const iw_stack,
    name: *const c_char,
    value: *mut u64,
    counters: impl FnOnce(&StackObject) -> Result<Vec<(&'static str, u64)>, ApiError>,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let name = text(name, "name")?;
        let all = with(stack, |host| counters(host))?;
        let found = all.iter().find(|(one, _)| *one == name);
        let (_, count) = found.ok_or_else(|| fault!(IW_E_VALUE, "no counter is called {name}"))?;
        write_out(value, "value", *count)
    })
}

/// Returns the number of counters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_counters(stack: *const iw_stack) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(stack, |host| Ok(host.stack.counters().len() as i32)) })
}

/// Returns the name and value of a counter by its number, 0 to `iw_stack_counters` - 1. `name` has
/// room for `size` bytes; 48 are always enough.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_stack_counter_at(
    stack: *const iw_stack,
    number: u32,
    name: *mut c_char,
    size: usize,
    value: *mut u64,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe {
        let all = with(stack, |host| Ok(host.stack.counters()))?;
        let (counter, count) = all
            .get(number as usize)
            .ok_or_else(|| fault!(IW_E_VALUE, "number = {number}: below iw_stack_counters, {}", all.len()))?;
        crate::boundary::write_text(name, size, "name", counter)?;
        write_out(value, "value", *count)
    })
}
