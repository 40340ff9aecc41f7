//! The two directions, which differ in how a frame is changed and copied.

use crate::{Checksum, Frame, Port, RxMeta, Sealed, TxMeta};

/// One direction of a port's frames.
pub(super) trait Direction<P: Port> {
    /// A frame of this direction.
    type Item;

    /// Returns its bytes.
    fn bytes(item: &Self::Item) -> &[u8];

    /// Changes the frame. Returns it unchanged if that needs a buffer and none is free.
    fn change(
        port: &mut P,
        item: Self::Item,
        change: impl FnOnce(&mut P::Frame),
    ) -> Result<Self::Item, Self::Item>;

    /// Returns a duplicate.
    fn copy(port: &mut P, item: &Self::Item) -> Option<Self::Item>;
}

/// Received frames: they have one owner, so they are changed in place and copied into a new buffer.
pub(super) struct Inbound;

impl<P: Port> Direction<P> for Inbound {
    type Item = P::Frame;

    fn bytes(frame: &P::Frame) -> &[u8] {
        frame.bytes()
    }

    fn change(
        _port: &mut P,
        mut frame: P::Frame,
        change: impl FnOnce(&mut P::Frame),
    ) -> Result<P::Frame, P::Frame> {
        change(&mut frame);
        // The device's checksum status is of other bytes.
        let rss_hash = frame.rx().rss_hash;
        frame.set_rx(RxMeta { rss_hash, ip_checksum: Checksum::Unknown, l4_checksum: Checksum::Unknown });
        Ok(frame)
    }

    fn copy(port: &mut P, frame: &P::Frame) -> Option<P::Frame> {
        let mut copy = copy_of(port, frame.bytes())?;
        copy.set_rx(frame.rx());
        Some(copy)
    }
}

/// Sealed frames: their bytes are fixed, so a changed one is a copy; a duplicate shares the buffer.
pub(super) struct Outbound;

impl<P: Port> Direction<P> for Outbound {
    type Item = <P::Frame as Frame>::Sealed;

    fn bytes(sealed: &Self::Item) -> &[u8] {
        sealed.bytes()
    }

    fn change(
        port: &mut P,
        sealed: Self::Item,
        change: impl FnOnce(&mut P::Frame),
    ) -> Result<Self::Item, Self::Item> {
        let Some(mut copy) = copy_of(port, sealed.bytes()) else { return Err(sealed) };
        change(&mut copy);
        // The device must not fill in checksums, which would make the damaged bytes correct. A
        // frame with a requested offload leaves with an unfinished checksum, which is wrong on
        // purpose.
        Ok(copy.seal(TxMeta::default()))
    }

    fn copy(_port: &mut P, sealed: &Self::Item) -> Option<Self::Item> {
        Some(sealed.clone())
    }
}

/// Copies the bytes into a new buffer, if one is free and large enough.
fn copy_of<P: Port>(port: &mut P, bytes: &[u8]) -> Option<P::Frame> {
    let mut copy = port.alloc()?;
    copy.resize(bytes.len());
    if copy.bytes().len() != bytes.len() {
        return None;
    }
    copy.bytes_mut().copy_from_slice(bytes);
    Some(copy)
}
