//! A port together with the frames that wait to leave through it.
//!
//! Takes sealed frames one at a time, gives them to the device in bursts. The last [`RESERVE_FRAMES`] places of the
//! waiting burst are kept for acknowledgements and control frames, so a full transmit ring stops data before it
//! stops ACKs.

use crate::{Burst, Frame, Port, PortCaps};

/// Places kept back from data for acknowledgements, ARP and resets.
pub const RESERVE_FRAMES: usize = 8;

/// A port and its frames in waiting.
pub struct Wire<P: Port> {
    port: P,
    waiting: Burst<<P::Frame as Frame>::Sealed>,
}

impl<P: Port> Wire<P> {
    /// Takes the port over.
    pub fn new(port: P) -> Self {
        Wire { port, waiting: Burst::new() }
    }

    /// What the device can do.
    pub fn caps(&self) -> &PortCaps {
        self.port.caps()
    }

    /// Appends received frames to `into`.
    pub fn rx_burst(&mut self, into: &mut Burst<P::Frame>) {
        self.port.rx_burst(into);
    }

    /// An empty frame to fill, or `None` when the transmit pool is empty.
    pub fn alloc(&mut self) -> Option<P::Frame> {
        self.port.alloc()
    }

    /// Whether a data frame may be pushed now. Flushes first when the burst is full.
    pub fn has_room(&mut self) -> bool {
        if self.waiting.remaining_capacity() <= RESERVE_FRAMES {
            self.flush();
        }
        self.waiting.remaining_capacity() > RESERVE_FRAMES
    }

    /// Queues a frame. Answers `false`, and drops the frame, when even the reserve is taken: TCP will send again.
    pub fn push(&mut self, frame: <P::Frame as Frame>::Sealed) -> bool {
        if self.waiting.is_full() {
            self.flush();
        }
        self.waiting.try_push(frame).is_ok()
    }

    /// Hands the waiting frames to the device.
    pub fn flush(&mut self) {
        if !self.waiting.is_empty() {
            self.port.tx_burst(&mut self.waiting);
        }
    }

    /// Frames that the device has not taken yet.
    pub fn waiting_frames(&self) -> usize {
        self.waiting.len()
    }

    /// The port itself, for control.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }
}
