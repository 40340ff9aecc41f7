//! Frames: writable while they have one owner, immutable once sealed.

use bitflags::bitflags;

/// A frame buffer with exactly one owner.
///
/// Received frames and freshly allocated ones are both `Frame`s: their bytes may be edited,
/// shortened and grown up to the buffer's capacity. Dropping one gives the buffer back to its pool.
pub trait Frame: Sized + 'static {
    /// The same bytes, ready to be sent.
    type Sealed: Sealed;

    /// Returns the frame, from the first byte of the link header.
    fn bytes(&self) -> &[u8];

    /// Returns the frame, writable.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Returns the longest length that [`Frame::resize`] accepts, in bytes.
    fn capacity(&self) -> usize;

    /// Sets the length in bytes. Added bytes have unspecified values: the caller overwrites
    /// them. A length above the capacity is reduced to the capacity.
    fn resize(&mut self, len: usize);

    /// Returns the device's metadata of a received frame.
    fn rx(&self) -> RxMeta;

    /// Replaces the device's receive metadata, after the bytes were changed or copied.
    fn set_rx(&mut self, rx: RxMeta);

    /// Returns whether the peer of a device may read and change the bytes before they are sent:
    /// such a frame is for that device alone.
    fn is_shared(&self) -> bool {
        false
    }

    /// Fixes the bytes and states what the device must fill in.
    fn seal(self, tx: TxMeta) -> Self::Sealed;
}

/// A frame whose bytes are fixed. Clones share the buffer, which returns to its pool when the last
/// one and the driver have released it: this is how TCP keeps what it may have to send again.
pub trait Sealed: Clone + Sized + 'static {
    /// The frame as it goes out, save for the checksums that the device fills in.
    fn bytes(&self) -> &[u8];

    /// Returns what the device must fill in.
    fn tx(&self) -> TxMeta;
}

/// The status of a checksum of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksum {
    /// The device did not verify it; software must.
    #[default]
    Unknown,
    /// The checksum is correct.
    Good,
    /// The checksum is wrong.
    Bad,
}

/// The device's metadata of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RxMeta {
    /// The receive-side-scaling hash, if the device computes one.
    pub rss_hash: Option<u32>,
    /// The IPv4 header checksum.
    pub ip_checksum: Checksum,
    /// The TCP checksum.
    pub l4_checksum: Checksum,
}

bitflags! {
    /// Checksums that the device is asked to fill in.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct TxOffloads: u8 {
        /// The IPv4 header checksum; the field is zero in the frame.
        const IPV4_CHECKSUM = 1;
        /// The TCP checksum of an IPv4 packet; the field holds the pseudo-header sum, not inverted.
        const TCP_CHECKSUM = 2;
        /// The TCP checksum of an IPv6 packet: the same.
        const TCP_CHECKSUM_IPV6 = 4;
    }
}

/// What the device needs to know to send a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxMeta {
    /// Bytes of link header.
    pub l2_bytes: u8,
    /// Bytes of network header.
    pub l3_bytes: u8,
    /// Bytes of transport header.
    pub l4_bytes: u8,
    /// What the device fills in.
    pub offloads: TxOffloads,
}
