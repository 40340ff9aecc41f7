//! What the C compiler makes of DPDK's structures is what the Rust side assumes.
#![cfg(not(dpdk_missing))]

use dpdk_sys::{dsys_pack_tx_offload, pack_tx_offload, unpack_tx_offload};

#[test]
fn lengths_pack_as_the_c_bit_field_does() {
    for lengths @ (l2, l3, l4, segment) in
        [(14, 20, 20, 0), (18, 40, 60, 1448), (0x7f, 0xff, 0xff, u16::MAX), (0, 0, 0, 0)]
    {
        // SAFETY: a pure function of its arguments.
        let in_c = unsafe { dsys_pack_tx_offload(l2.into(), l3.into(), l4.into(), segment.into()) };
        assert_eq!(pack_tx_offload(l2, l3, l4, segment), in_c, "{lengths:?}");
        assert_eq!(unpack_tx_offload(in_c), lengths);
    }
}

#[test]
fn the_library_loaded_is_the_release_compiled_against() {
    // SAFETY: both read constants of the library.
    let running = unsafe { (dpdk_sys::rte_version_year(), dpdk_sys::rte_version_month()) };
    assert_eq!(running, (dpdk_sys::DSYS_VERSION_YEAR, dpdk_sys::DSYS_VERSION_MONTH));
}
