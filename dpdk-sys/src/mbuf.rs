//! DPDK's packet buffer, seen through the fields that we touch.
//!
//! Source: `rte_mbuf_core.h`. The offsets are the same in every release from 22.11 to 25.11; both
//! compilers check them, this one below and the C compiler in `csrc/shim.c`, so a release that
//! moves a field stops the build.

use core::ffi::c_void;
use core::mem::{offset_of, size_of};
use core::sync::atomic::AtomicU16;

use crate::bindings::rte_mempool;

/// One segment of a frame. DPDK allocates these; they are only ever seen behind pointers.
#[repr(C, align(64))]
pub struct Mbuf {
    /// Start of the buffer, head room included.
    pub buf_addr: *mut c_void,
    buf_iova: u64,
    /// Bytes of head room before the frame's first byte.
    pub data_off: u16,
    /// Owners of this segment.
    pub refcnt: AtomicU16,
    /// Segments in the chain that starts here.
    pub nb_segs: u16,
    /// The device it came in through.
    pub port: u16,
    /// Offload flags and buffer kind: `DSYS_MBUF_*`.
    pub ol_flags: u64,
    packet_type: u32,
    /// Bytes in all segments.
    pub pkt_len: u32,
    /// Bytes in this segment.
    pub data_len: u16,
    vlan_tci: u16,
    /// The receive-side-scaling hash, when `DSYS_MBUF_RX_RSS_HASH` is set.
    pub rss_hash: u32,
    rest_of_hash: [u8; 6],
    /// Size of the buffer in bytes, head room included.
    pub buf_len: u16,
    /// The pool it returns to.
    pub pool: *mut rte_mempool,
    /// The next segment, null in the last.
    pub next: *mut Mbuf,
    /// Header lengths for the device: see [`pack_tx_offload`].
    pub tx_offload: u64,
    rest: [u8; 48],
}

/// The header lengths of a frame and the payload of each segment that a device cuts it to, in
/// bytes, as `tx_offload` holds them: 7, 9, 8 and 16 bits from the lowest on. Bits that do not fit
/// are cut off.
pub const fn pack_tx_offload(l2_bytes: u8, l3_bytes: u8, l4_bytes: u8, segment_bytes: u16) -> u64 {
    (l2_bytes as u64 & 0x7f) | (l3_bytes as u64) << 7 | (l4_bytes as u64) << 16 | (segment_bytes as u64) << 24
}

/// Returns what [`pack_tx_offload`] packed.
pub const fn unpack_tx_offload(packed: u64) -> (u8, u8, u8, u16) {
    (packed as u8 & 0x7f, (packed >> 7) as u8, (packed >> 16) as u8, (packed >> 24) as u16)
}

const _: () = {
    assert!(size_of::<Mbuf>() == 128);
    assert!(offset_of!(Mbuf, buf_addr) == 0);
    assert!(offset_of!(Mbuf, data_off) == 16);
    assert!(offset_of!(Mbuf, refcnt) == 18);
    assert!(offset_of!(Mbuf, nb_segs) == 20);
    assert!(offset_of!(Mbuf, port) == 22);
    assert!(offset_of!(Mbuf, ol_flags) == 24);
    assert!(offset_of!(Mbuf, packet_type) == 32);
    assert!(offset_of!(Mbuf, pkt_len) == 36);
    assert!(offset_of!(Mbuf, data_len) == 40);
    assert!(offset_of!(Mbuf, rss_hash) == 44);
    assert!(offset_of!(Mbuf, buf_len) == 54);
    assert!(offset_of!(Mbuf, pool) == 56);
    assert!(offset_of!(Mbuf, next) == 64);
    assert!(offset_of!(Mbuf, tx_offload) == 72);
};
