//! Raw bindings to DPDK: an allow-list of its functions and the shim's wrappers for its static
//! inlines.
//!
//! What it is: FFI only, with no opinion on ownership; the safe layer is `ironwarp_port::dpdk`.
//! Functions and constants that begin with `dsys_` and `DSYS_` are ours and mean the same on every
//! release from 22.11 on; those that begin with `rte_` are DPDK's own and are documented there.
//! [`Mbuf`] is written by hand, since its layout has not moved in any release while the names of
//! its fields have.
//!
//! Without an installed DPDK the crate is empty and cfg `dpdk_missing` is set in it; dependents see
//! that `DEP_DPDK_VERSION` is missing from the environment of their build scripts.
#![no_std]

#[cfg(not(dpdk_missing))]
mod mbuf;

#[cfg(not(dpdk_missing))]
pub use bindings::*;
#[cfg(not(dpdk_missing))]
pub use mbuf::{Mbuf, pack_tx_offload, unpack_tx_offload};

#[cfg(not(dpdk_missing))]
#[allow(
    missing_docs,
    dead_code,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
