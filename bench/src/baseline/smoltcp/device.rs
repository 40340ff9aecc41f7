//! A smoltcp device over a borrowed port.

use ironwarp_port::{Burst, Frame, Port, TxMeta};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// Link header, which smoltcp counts in its MTU.
const ETHERNET_BYTES: usize = 14;

/// A port, frames received but not yet processed, and frames not yet sent.
pub(super) struct PortDevice<'p, P: Port> {
    port: &'p mut P,
    rx: Burst<P::Frame>,
    tx: Burst<<P::Frame as Frame>::Sealed>,
}

impl<'p, P: Port> PortDevice<'p, P> {
    pub(super) fn new(port: &'p mut P) -> Self {
        PortDevice { port, rx: Burst::new(), tx: Burst::new() }
    }

    pub(super) fn port(&self) -> &P {
        self.port
    }

    /// Passes waiting frames to the device. Those that it does not take remain.
    pub(super) fn flush(&mut self) {
        if !self.tx.is_empty() {
            self.port.tx_burst(&mut self.tx);
        }
    }
}

impl<P: Port> Device for PortDevice<'_, P> {
    type RxToken<'a>
        = ReceivedFrame<P::Frame>
    where
        Self: 'a;
    type TxToken<'a>
        = FrameWriter<'a, P>
    where
        Self: 'a;

    fn receive(&mut self, _at: Instant) -> Option<(ReceivedFrame<P::Frame>, FrameWriter<'_, P>)> {
        if self.rx.is_empty() {
            self.port.rx_burst(&mut self.rx);
            // Frames are taken from the end of the list.
            self.rx.reverse();
        }
        let frame = self.rx.pop()?;
        Some((ReceivedFrame(frame), FrameWriter { port: self.port, tx: &mut self.tx }))
    }

    fn transmit(&mut self, _at: Instant) -> Option<FrameWriter<'_, P>> {
        if self.tx.is_full() {
            self.flush();
        }
        let has_room = !self.tx.is_full();
        has_room.then_some(FrameWriter { port: self.port, tx: &mut self.tx })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = usize::from(self.port.caps().mtu_bytes) + ETHERNET_BYTES;
        capabilities
    }
}

/// A received frame.
pub(super) struct ReceivedFrame<F>(F);

impl<F: Frame> RxToken for ReceivedFrame<F> {
    fn consume<R, U: FnOnce(&[u8]) -> R>(self, use_frame: U) -> R {
        use_frame(self.0.bytes())
    }
}

/// Builds the next frame.
pub(super) struct FrameWriter<'a, P: Port> {
    port: &'a mut P,
    tx: &'a mut Burst<<P::Frame as Frame>::Sealed>,
}

impl<P: Port> TxToken for FrameWriter<'_, P> {
    fn consume<R, U: FnOnce(&mut [u8]) -> R>(self, len: usize, write: U) -> R {
        if self.tx.is_full() {
            self.port.tx_burst(self.tx);
        }
        // Without a buffer or a slot the frame is lost, as on a card with a full ring; TCP sends it again.
        let Some(mut frame) = self.port.alloc().filter(|_| !self.tx.is_full()) else {
            return write(&mut vec![0; len]);
        };
        frame.resize(len);
        let result = write(frame.bytes_mut());
        self.tx.push(frame.seal(TxMeta::default()));
        result
    }
}
