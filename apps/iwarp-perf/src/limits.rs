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
    let &Case { test, bytes, depth, signal_every, .. } = case;
    let (is_setup, least) = (test.is_connection_setup(), test.bytes_min());
    if bytes < least && !is_setup {
        return Err(format!(
            "--size {bytes}: {test} takes {least} bytes or more, because messages hold a steering tag"
        ));
    }
    // A validated message keeps its slot until it is checked; 8 more slots are spare.
    let (slots, product) = match case.validate {
        true => (u64::from(depth) + 8, "--size × --qps × --depth"),
        false => (1, "--size × --qps"),
    };
    let memory = bytes.saturating_mul(slots).saturating_mul(case.qps.into());
    if memory > MEMORY_MAX {
        return Err(format!("{product} = {memory} bytes: at most {MEMORY_MAX} bytes of memory at each end"));
    }
    if signal_every > depth && !test.is_latency() {
        return Err(format!("--signal-every {signal_every}: at most the depth, which is {depth}"));
    }
    if is_setup && !CONNECTIONS.contains(&depth) {
        return Err(format!(
            "--depth {depth}: {test} takes 1 to {} connections at a time",
            CONNECTIONS.end()
        ));
    }
    // A shared receive queue holds the receives of all queue pairs.
    let receives = QueueSizes::of(case).shared_receives(case);
    if case.srq && receives > SRQ_DEPTH_MAX {
        return Err(format!(
            "--srq: --qps × --depth need {receives} receives; a shared receive queue holds {SRQ_DEPTH_MAX}"
        ));
    }
    Ok(())
}
