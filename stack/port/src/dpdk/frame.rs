//! Frames that are mbufs.
//!
//! [`MbufFrame`] owns one mbuf of one segment exclusively, so its bytes may be edited.
//! [`SealedMbuf`] shares one and only reads. Both are one pointer wide, as the array elements of
//! DPDK's burst calls. Sharing uses the mbuf's reference count, which drivers respect too: a frame
//! that a driver holds stays out of its pool.

use core::fmt;
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{AtomicU16, Ordering};

use dpdk_sys::{Mbuf, dsys_free, pack_tx_offload};

use crate::{Checksum, Frame, RxMeta, Sealed, TxMeta, TxOffloads};

/// An mbuf with one owner. Dropping it returns it to its pool.
///
/// Invariant: one segment, a reference count of one, and `data_off + data_len <= buf_len`.
#[repr(transparent)]
pub struct MbufFrame(NonNull<Mbuf>);

/// An mbuf whose bytes are fixed. Cloning increments its reference count.
///
/// Invariant: one segment, and this value is one of the counted owners.
#[repr(transparent)]
pub struct SealedMbuf(NonNull<Mbuf>);

// SAFETY: an mbuf may be read, written and freed by any thread that owns it; only the pool's cache
// is per thread, and DPDK chooses it at the time of the call.
unsafe impl Send for MbufFrame {}
// SAFETY: as above. Owners on other threads are counted atomically. Not Sync: `clone` relies on one
// caller at a time.
unsafe impl Send for SealedMbuf {}

impl MbufFrame {
    /// Takes ownership of an mbuf.
    ///
    /// # Safety
    /// The caller owns it, alone, and it has one segment.
    pub(super) unsafe fn from_raw(mbuf: NonNull<Mbuf>) -> Self {
        MbufFrame(mbuf)
    }

    /// Gives up ownership without freeing the mbuf.
    pub(super) fn into_raw(self) -> NonNull<Mbuf> {
        let mbuf = self.0;
        core::mem::forget(self);
        mbuf
    }

    /// Returns whether a received mbuf can be owned as it is: one segment with one owner. A ring
    /// delivers the sender's own buffers, which the sender may hold for a retransmission.
    #[inline]
    pub(super) fn is_exclusive(&self) -> bool {
        let mbuf = self.0.as_ptr();
        // SAFETY: a live mbuf. Acquire pairs with the release of another owner's share.
        unsafe { (*mbuf).nb_segs == 1 && (*mbuf).refcnt.load(Ordering::Acquire) == 1 }
    }
}

/// Returns the bytes of a live mbuf's only segment.
///
/// # Safety
/// `mbuf` is live, and its bytes are not written during `'a`.
#[inline]
unsafe fn bytes_of<'a>(mbuf: NonNull<Mbuf>) -> &'a [u8] {
    let mbuf = mbuf.as_ptr();
    // SAFETY: by the types' invariant the range lies in the segment's buffer, which the caller
    // keeps alive.
    unsafe {
        let start = (*mbuf).buf_addr.cast::<u8>().add((*mbuf).data_off.into());
        slice::from_raw_parts(start, (*mbuf).data_len.into())
    }
}

impl Frame for MbufFrame {
    type Sealed = SealedMbuf;

    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: `self` owns the mbuf and is borrowed, so its bytes are not written.
        unsafe { bytes_of(self.0) }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        let mbuf = self.0.as_ptr();
        // SAFETY: `self` owns the mbuf alone and is borrowed exclusively; the range lies in its
        // buffer.
        unsafe {
            let start = (*mbuf).buf_addr.cast::<u8>().add((*mbuf).data_off.into());
            slice::from_raw_parts_mut(start, (*mbuf).data_len.into())
        }
    }

    #[inline]
    fn capacity(&self) -> usize {
        let mbuf = self.0.as_ptr();
        // SAFETY: a live mbuf, owned by `self`.
        unsafe { usize::from((*mbuf).buf_len.saturating_sub((*mbuf).data_off)) }
    }

    #[inline]
    fn resize(&mut self, len: usize) {
        let len = len.min(self.capacity());
        let mbuf = self.0.as_ptr();
        // SAFETY: a live mbuf, owned by `self`; the capacity fits 16 bits, and pool memory is
        // initialised by the EAL.
        unsafe {
            (*mbuf).data_len = len as u16;
            (*mbuf).pkt_len = len as u32;
        }
    }

    fn rx(&self) -> RxMeta {
        let mbuf = self.0.as_ptr();
        // SAFETY: a live mbuf, owned by `self`.
        let (flags, hash) = unsafe { ((*mbuf).ol_flags, (*mbuf).rss_hash) };
        RxMeta {
            rss_hash: (flags & dpdk_sys::DSYS_MBUF_RX_RSS_HASH != 0).then_some(hash),
            ip_checksum: verdict(flags, &IP_VERDICTS),
            l4_checksum: verdict(flags, &L4_VERDICTS),
        }
    }

    fn set_rx(&mut self, rx: RxMeta) {
        let told = rx_flags(rx);
        let mbuf = self.0.as_ptr();
        // SAFETY: a live mbuf, owned by `self` alone.
        unsafe {
            (*mbuf).ol_flags = ((*mbuf).ol_flags & !RX_FLAGS) | told;
            (*mbuf).rss_hash = rx.rss_hash.unwrap_or_default();
        }
    }

    #[inline]
    fn seal(self, tx: TxMeta) -> SealedMbuf {
        let mbuf = self.into_raw();
        // SAFETY: a live mbuf, owned by `self` alone until here. The flags of the buffer's kind
        // must survive, since they decide how it is freed. The receive flags must not.
        unsafe {
            let fields = mbuf.as_ptr();
            (*fields).ol_flags = ((*fields).ol_flags & BUFFER_KIND) | tx_flags(tx.offloads);
            (*fields).tx_offload = pack_tx_offload(tx.l2_bytes, tx.l3_bytes, tx.l4_bytes);
        }
        SealedMbuf(mbuf)
    }
}

impl Drop for MbufFrame {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this value owned the mbuf and is gone after this.
        unsafe { dsys_free(self.0.as_ptr()) }
    }
}

impl Sealed for SealedMbuf {
    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: every owner only reads from sealing on, drivers included.
        unsafe { bytes_of(self.0) }
    }
}

impl Clone for SealedMbuf {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: a live mbuf, since `self` is one of its owners.
        add_owner(unsafe { &self.0.as_ref().refcnt });
        SealedMbuf(self.0)
    }
}

impl Drop for SealedMbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this value was one of the owners and is gone after this.
        unsafe { dsys_free(self.0.as_ptr()) }
    }
}

/// Adds an owner. A sole owner needs no locked instruction, since no other thread can count (DPDK's
/// own rule).
#[inline]
fn add_owner(refcnt: &AtomicU16) {
    if refcnt.load(Ordering::Relaxed) == 1 {
        return refcnt.store(2, Ordering::Relaxed);
    }
    if refcnt.fetch_add(1, Ordering::Relaxed) == u16::MAX {
        too_many_owners();
    }
}

/// As in `Arc`: a count that wraps would free a frame in use.
#[cold]
fn too_many_owners() -> ! {
    std::process::abort()
}

/// Flags of the buffer's kind.
const BUFFER_KIND: u64 = dpdk_sys::DSYS_MBUF_INDIRECT | dpdk_sys::DSYS_MBUF_EXTERNAL;
/// Flags of the receive status.
const RX_FLAGS: u64 = dpdk_sys::DSYS_MBUF_RX_RSS_HASH
    | dpdk_sys::DSYS_MBUF_RX_IP_CKSUM_MASK
    | dpdk_sys::DSYS_MBUF_RX_L4_CKSUM_MASK;

/// The two bits of a checksum status. `none` means: not correct in the bytes, but the device
/// vouches for the content.
struct Verdicts {
    mask: u64,
    good: u64,
    none: u64,
    bad: u64,
}

const IP_VERDICTS: Verdicts = Verdicts {
    mask: dpdk_sys::DSYS_MBUF_RX_IP_CKSUM_MASK,
    good: dpdk_sys::DSYS_MBUF_RX_IP_CKSUM_GOOD,
    none: dpdk_sys::DSYS_MBUF_RX_IP_CKSUM_NONE,
    bad: dpdk_sys::DSYS_MBUF_RX_IP_CKSUM_BAD,
};

const L4_VERDICTS: Verdicts = Verdicts {
    mask: dpdk_sys::DSYS_MBUF_RX_L4_CKSUM_MASK,
    good: dpdk_sys::DSYS_MBUF_RX_L4_CKSUM_GOOD,
    none: dpdk_sys::DSYS_MBUF_RX_L4_CKSUM_NONE,
    bad: dpdk_sys::DSYS_MBUF_RX_L4_CKSUM_BAD,
};

#[inline]
fn verdict(flags: u64, verdicts: &Verdicts) -> Checksum {
    let said = flags & verdicts.mask;
    if said == verdicts.good || said == verdicts.none {
        Checksum::Good
    } else if said == verdicts.bad {
        Checksum::Bad
    } else {
        Checksum::Unknown
    }
}

fn rx_flags(rx: RxMeta) -> u64 {
    let hash = if rx.rss_hash.is_some() { dpdk_sys::DSYS_MBUF_RX_RSS_HASH } else { 0 };
    hash | spell(rx.ip_checksum, &IP_VERDICTS) | spell(rx.l4_checksum, &L4_VERDICTS)
}

fn spell(checksum: Checksum, verdicts: &Verdicts) -> u64 {
    match checksum {
        Checksum::Unknown => 0,
        Checksum::Good => verdicts.good,
        Checksum::Bad => verdicts.bad,
    }
}

#[inline]
fn tx_flags(offloads: TxOffloads) -> u64 {
    let mut flags = 0;
    if offloads.contains(TxOffloads::IPV4_CHECKSUM) {
        flags |= dpdk_sys::DSYS_MBUF_TX_IP_CKSUM | dpdk_sys::DSYS_MBUF_TX_IPV4;
    }
    if offloads.contains(TxOffloads::TCP_CHECKSUM) {
        flags |= dpdk_sys::DSYS_MBUF_TX_TCP_CKSUM | dpdk_sys::DSYS_MBUF_TX_IPV4;
    }
    if offloads.contains(TxOffloads::TCP_CHECKSUM_IPV6) {
        flags |= dpdk_sys::DSYS_MBUF_TX_TCP_CKSUM | dpdk_sys::DSYS_MBUF_TX_IPV6;
    }
    flags
}

impl fmt::Debug for MbufFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MbufFrame").field("len", &self.bytes().len()).field("rx", &self.rx()).finish()
    }
}

impl fmt::Debug for SealedMbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedMbuf").field("len", &self.bytes().len()).finish()
    }
}

const _: () = {
    // The burst calls treat arrays of these as arrays of pointers.
    assert!(size_of::<MbufFrame>() == size_of::<*mut Mbuf>());
    assert!(size_of::<SealedMbuf>() == size_of::<*mut Mbuf>());
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_survives_being_spelled_and_read() {
        for checksum in [Checksum::Unknown, Checksum::Good, Checksum::Bad] {
            assert_eq!(verdict(spell(checksum, &IP_VERDICTS), &IP_VERDICTS), checksum);
            assert_eq!(verdict(spell(checksum, &L4_VERDICTS), &L4_VERDICTS), checksum);
        }
    }

    #[test]
    fn content_that_the_device_vouches_for_counts_as_good() {
        assert_eq!(verdict(IP_VERDICTS.none, &IP_VERDICTS), Checksum::Good);
        assert_eq!(verdict(L4_VERDICTS.none, &L4_VERDICTS), Checksum::Good);
    }

    #[test]
    fn a_tcp_checksum_alone_still_says_that_the_packet_is_ipv4() {
        let flags = tx_flags(TxOffloads::TCP_CHECKSUM);
        assert_eq!(flags, dpdk_sys::DSYS_MBUF_TX_TCP_CKSUM | dpdk_sys::DSYS_MBUF_TX_IPV4);
    }

    #[test]
    fn a_tcp_checksum_behind_ipv6_says_so_and_nothing_of_ipv4() {
        let flags = tx_flags(TxOffloads::TCP_CHECKSUM_IPV6);
        assert_eq!(flags, dpdk_sys::DSYS_MBUF_TX_TCP_CKSUM | dpdk_sys::DSYS_MBUF_TX_IPV6);
    }

    #[test]
    fn owners_are_counted_from_one_on() {
        let refcnt = AtomicU16::new(1);
        add_owner(&refcnt);
        add_owner(&refcnt);
        assert_eq!(refcnt.load(Ordering::Relaxed), 3);
    }
}
