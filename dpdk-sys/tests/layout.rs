//! What the C compiler makes of DPDK's structures is what the Rust side assumes.
#![cfg(not(dpdk_missing))]

use dpdk_sys::{dsys_pack_tx_offload, pack_tx_offload};

#[test]
fn header_lengths_pack_as_the_c_bit_field_does() {
    for (l2, l3, l4) in [(14, 20, 20), (18, 40, 60), (0x7f, 0xff, 0xff), (0, 0, 0)] {
        // SAFETY: a pure function of its arguments.
        let in_c = unsafe { dsys_pack_tx_offload(u64::from(l2), u64::from(l3), u64::from(l4)) };
        assert_eq!(pack_tx_offload(l2, l3, l4), in_c, "l2 {l2} l3 {l3} l4 {l4}");
    }
}

#[test]
fn the_library_loaded_is_the_release_compiled_against() {
    // SAFETY: both read constants of the library.
    let running = unsafe { (dpdk_sys::rte_version_year(), dpdk_sys::rte_version_month()) };
    assert_eq!(running, (dpdk_sys::DSYS_VERSION_YEAR, dpdk_sys::DSYS_VERSION_MONTH));
}
