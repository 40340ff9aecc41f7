//! Limits of a case, from the command line or from another machine.

use std::ops::RangeInclusive;

use ironwarp_bench::Case;

use crate::rdma::QueueSizes;

/// The ranges of numbers, each in the units of its option.
pub const BYTES: RangeInclusive<u64> = 1..=1 << 30;
pub const QPS: RangeInclusive<i64> = 1..=1024;
pub const DEPTH: RangeInclusive<i64> = 1..=4096;
/// Connections of conn-rate at a time: the default of `limits.half_open` at the server.
pub const CONNECTIONS: RangeInclusive<u32> = 1..=256;
pub const POST_LIST: RangeInclusive<i64> = 1..=64;
pub const SIGNAL_EVERY: RangeInclusive<i64> = 1..=64;
pub const INLINE: RangeInclusive<i64> = 0..=256;
pub const WORDS: RangeInclusive<i64> = 1..=65_536;
/// Bytes of memory that an end may register for one case.
const MEMORY_MAX: u64 = 1 << 30;
/// Receives that a shared receive queue of the library may have.
const SRQ_DEPTH_MAX: u64 = 65_536;

/// Checks a case that another machine asks for like a case from the command line.
pub fn check_case(case: &Case) -> Result<(), String> {
    let is_bare_connection = case.test.is_connection_setup() && case.bytes == 0;
    let in_range = (BYTES.contains(&case.bytes) || is_bare_connection)
        && QPS.contains(&case.qps.into())
        && DEPTH.contains(&case.depth.into())
        && POST_LIST.contains(&case.post_list.into())
        && SIGNAL_EVERY.contains(&case.signal_every.into())
        && INLINE.contains(&case.inline.into())
        && WORDS.contains(&case.words.into());
    let consistent = case.post_list <= case.depth
        && case.test.fixed_bytes().is_none_or(|bytes| bytes == case.bytes)
        && case.test.is_atomic() == case.operation.is_some()
        && (!case.srq || case.test.has_receives());
    if !in_range || !consistent {
        return Err("a number of the case is out of its range".to_owned());
    }
    check_limits(case)
}

/// Checks what the numbers of a case come to together.
pub fn check_limits(case: &Case) -> Result<(), String> {
    check_size(case)?;
    check_memory(case)?;
    check_signals(case)?;
    check_connections(case)?;
    check_srq(case)
}

fn check_size(case: &Case) -> Result<(), String> {
    let (test, bytes, least) = (case.test, case.bytes, case.test.bytes_min());
    if bytes >= least || test.is_connection_setup() {
        return Ok(());
    }
    Err(format!("--size {bytes}: {test} takes {least} bytes or more, because messages hold a steering tag"))
}

fn check_memory(case: &Case) -> Result<(), String> {
    // A validated message keeps its slot until it is checked; 8 more slots are spare.
    let slots = if case.validate { u64::from(case.depth) + 8 } else { 1 };
    let bytes = case.bytes.saturating_mul(slots).saturating_mul(case.qps.into());
    if bytes <= MEMORY_MAX {
        return Ok(());
    }
    let product = if case.validate { "--size × --qps × --depth" } else { "--size × --qps" };
    Err(format!("{product} = {bytes} bytes: at most {MEMORY_MAX} bytes of memory at each end"))
}

fn check_connections(case: &Case) -> Result<(), String> {
    if !case.test.is_connection_setup() || CONNECTIONS.contains(&case.depth) {
        return Ok(());
    }
    let (test, depth, most) = (case.test, case.depth, CONNECTIONS.end());
    Err(format!("--depth {depth}: {test} takes 1 to {most} connections at a time"))
}

/// A shared receive queue holds the receives of all queue pairs.
fn check_srq(case: &Case) -> Result<(), String> {
    let receives = QueueSizes::of(case).shared_receives(case);
    if !case.srq || receives <= SRQ_DEPTH_MAX {
        return Ok(());
    }
    Err(format!(
        "--srq: --qps × --depth need {receives} receives; a shared receive queue holds {SRQ_DEPTH_MAX}"
    ))
}

fn check_signals(case: &Case) -> Result<(), String> {
    let (every, depth) = (case.signal_every, case.depth);
    if every <= depth || case.test.is_latency() {
        return Ok(());
    }
    Err(format!("--signal-every {every}: at most the depth, which is {depth}"))
}
