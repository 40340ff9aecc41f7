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

use dpdk_sys::{Mbuf, dsys_free, pack_tx_offload, unpack_tx_offload};

use super::pool::Pool;
use crate::super_segment::SuperSegment;
use crate::{Checksum, Frame, RxMeta, Sealed, TxMeta, TxOffloads};

/// An mbuf with one owner. Dropping it returns it to its pool.
///
/// Invariant: one segment, a reference count of one, and `data_off + data_len <= buf_len`.
#[repr(transparent)]
pub struct MbufFrame(NonNull<Mbuf>);

/// An mbuf whose bytes are fixed. Cloning increments its reference count.
///
/// Invariant: this value is one of the counted owners. One segment, but for a super-segment, whose
/// first one has the headers.
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

    /// Takes an empty frame from a pool. It has no headroom, so that it may be as long as can be.
    pub(super) fn alloc(pool: &Pool) -> Option<Self> {
        let mut mbuf = core::ptr::null_mut();
        // SAFETY: room for one pointer. On success it is a new mbuf of one segment with one owner.
        unsafe {
            if dpdk_sys::dsys_alloc_bulk(pool.as_ptr(), &mut mbuf, 1) != 0 {
                return None;
            }
            (*mbuf).data_off = 0;
            NonNull::new(mbuf).map(MbufFrame)
        }
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

/// Received mbufs before they are frames: in several segments, or shared.
impl MbufFrame {
    pub(super) fn is_chain(&self) -> bool {
        // SAFETY: a live mbuf.
        unsafe { (*self.0.as_ptr()).nb_segs > 1 }
    }

    /// Returns the payload of each segment of a super-segment, in bytes, if the device says that it
    /// is one.
    pub(super) fn segment_bytes(&self) -> Option<u16> {
        // SAFETY: a live mbuf.
        let (flags, lengths) = unsafe { ((*self.0.as_ptr()).ol_flags, (*self.0.as_ptr()).tx_offload) };
        (flags & dpdk_sys::DSYS_MBUF_RX_LRO != 0).then(|| unpack_tx_offload(lengths).3)
    }

    /// A frame of a trusted sender: it is correct if it was sent with a request to fill in TCP's
    /// checksum.
    #[inline]
    pub(super) fn accept_partial_checksum(&mut self) {
        // SAFETY: a live mbuf, owned by `self` alone.
        let flags = unsafe { (*self.0.as_ptr()).ol_flags };
        if !tx_offloads(flags).is_empty() {
            self.set_rx(RxMeta { l4_checksum: Checksum::Good, ..self.rx() });
        }
    }

    /// Copies bytes and metadata to a frame of one segment. Returns `false` if they do not fit, or
    /// the segments are not as many and as long as the first of them states.
    pub(super) fn copy_to(&self, copy: &mut MbufFrame) -> bool {
        let (mut segment, rx) = (self.0.as_ptr(), self.rx());
        // SAFETY: a live mbuf, of which nobody writes these fields.
        let (len, segments, flags) =
            unsafe { ((*segment).pkt_len as usize, (*segment).nb_segs, (*segment).ol_flags) };
        if len > copy.capacity() {
            return false;
        }
        copy.resize(len);
        copy.set_rx(rx);
        // SAFETY: a live mbuf, owned by `copy` alone.
        unsafe { (*copy.0.as_ptr()).ol_flags |= flags & dpdk_sys::DSYS_MBUF_TX_TCP_CKSUM };
        let mut rest = copy.bytes_mut();
        for _ in 0..segments {
            let Some(live) = NonNull::new(segment) else { return false };
            // SAFETY: the segments of a chain live as long as the first. Others may read them, and
            // none writes.
            let bytes = unsafe { bytes_of(live) };
            let Some((to, after)) = rest.split_at_mut_checked(bytes.len()) else { return false };
            to.copy_from_slice(bytes);
            // SAFETY: as above.
            (rest, segment) = (after, unsafe { (*segment).next });
        }
        rest.is_empty()
    }
}

/// Returns the bytes of one segment of a live mbuf.
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
            (*fields).tx_offload = pack_tx_offload(tx.l2_bytes, tx.l3_bytes, tx.l4_bytes, 0);
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

    #[inline]
    fn tx(&self) -> TxMeta {
        // SAFETY: a live mbuf; these fields do not change after sealing.
        let (flags, lengths) = unsafe { ((*self.0.as_ptr()).ol_flags, (*self.0.as_ptr()).tx_offload) };
        let (l2_bytes, l3_bytes, l4_bytes, _) = unpack_tx_offload(lengths);
        TxMeta { l2_bytes, l3_bytes, l4_bytes, offloads: tx_offloads(flags) }
    }
}

impl SealedMbuf {
    /// Returns the super-segment that replaces the first of `frames`, as a chain: a buffer with its
    /// headers, and their payload by reference. `None`: the pool is empty.
    pub(super) fn join(pool: &Pool, frames: &[SealedMbuf], joined: &SuperSegment) -> Option<Self> {
        let frames = frames.get(..joined.frames)?;
        let header_bytes = joined.headers.len();
        let tx = frames.first()?.tx();
        let (l2, l3, l4) = (tx.l2_bytes, tx.l3_bytes, tx.l4_bytes);
        let family = if joined.is_v6 {
            dpdk_sys::DSYS_MBUF_TX_IPV6
        } else {
            dpdk_sys::DSYS_MBUF_TX_IPV4 | dpdk_sys::DSYS_MBUF_TX_IP_CKSUM
        };
        // SAFETY: pointers to live mbufs of one segment, to each of which the chain adds an owner.
        // The head is new and ours alone.
        unsafe {
            let sources = frames.as_ptr().cast::<*mut Mbuf>();
            let head = dpdk_sys::dsys_chain(pool.as_ptr(), sources, frames.len() as u16, header_bytes as u16);
            let mut head = MbufFrame::from_raw(NonNull::new(head)?);
            let fields = head.0.as_ptr();
            let payload_bytes = (*fields).pkt_len;
            head.resize(header_bytes);
            if head.bytes().len() == header_bytes {
                head.bytes_mut().copy_from_slice(&joined.headers);
            }
            (*fields).pkt_len = payload_bytes + u32::from((*fields).data_len);
            (*fields).ol_flags |= dpdk_sys::DSYS_MBUF_TX_TCP_SEG | dpdk_sys::DSYS_MBUF_TX_TCP_CKSUM | family;
            (*fields).tx_offload = pack_tx_offload(l2, l3, l4, joined.segment_bytes);
            Some(SealedMbuf(head.into_raw()))
        }
    }

    /// Returns the mbuf, for DPDK's calls.
    pub(super) fn as_ptr(&self) -> *mut Mbuf {
        self.0.as_ptr()
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

#[inline]
fn tx_offloads(flags: u64) -> TxOffloads {
    let mut offloads = TxOffloads::empty();
    offloads.set(TxOffloads::IPV4_CHECKSUM, flags & dpdk_sys::DSYS_MBUF_TX_IP_CKSUM != 0);
    if flags & dpdk_sys::DSYS_MBUF_TX_TCP_CKSUM == dpdk_sys::DSYS_MBUF_TX_TCP_CKSUM {
        let is_v6 = flags & dpdk_sys::DSYS_MBUF_TX_IPV6 != 0;
        offloads |= if is_v6 { TxOffloads::TCP_CHECKSUM_IPV6 } else { TxOffloads::TCP_CHECKSUM };
    }
    offloads
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
    fn offloads_survive_being_spelled_and_read() {
        for bits in 0..6 {
            let offloads = TxOffloads::from_bits_truncate(bits);
            assert_eq!(tx_offloads(tx_flags(offloads)), offloads);
        }
    }

    #[test]
    fn owners_are_counted_from_one_on() {
        let refcnt = AtomicU16::new(1);
        add_owner(&refcnt);
        add_owner(&refcnt);
        assert_eq!(refcnt.load(Ordering::Relaxed), 3);
    }
}
