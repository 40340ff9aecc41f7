//! The device of a host whose frames are built by hand.

use ironwarp_port::memory::{MemoryFrame, MemoryPort};
use ironwarp_port::{Burst, Frame, TxMeta, Wire};
use ironwarp_testkit::{Frames, Route, Segment};

/// A device, with the replies to ARP requests.
pub struct RawWire {
    wire: Wire<MemoryPort>,
    received: Burst<MemoryFrame>,
    host: u8,
}

impl RawWire {
    pub fn new(host: u8, port: MemoryPort) -> Self {
        RawWire { wire: Wire::new(port), received: Burst::new(), host }
    }

    /// Takes a burst of frames. Returns the TCP segments, the number of frames, and whether more
    /// may wait.
    pub fn receive(&mut self, out: &mut Frames) -> (Vec<(Route, Segment)>, usize, bool) {
        self.wire.rx_burst(&mut self.received);
        let (count, is_full) = (self.received.len(), self.received.is_full());
        out.extend(self.received.iter().filter_map(|frame| Route::arp_reply(self.host, frame.bytes())));
        let segments = self.received.drain(..).filter_map(|frame| Segment::read(frame.bytes())).collect();
        (segments, count, is_full)
    }

    /// Sends frames, and drops those that the device has no room for.
    pub fn push(&mut self, frames: &[Vec<u8>]) {
        for bytes in frames {
            let Some(mut frame) = self.wire.alloc() else { return };
            frame.resize(bytes.len());
            frame.bytes_mut().copy_from_slice(bytes);
            self.wire.push(frame.seal(TxMeta::default()));
        }
    }

    /// Passes the frames to the device. Returns whether some still wait.
    pub fn flush(&mut self) -> bool {
        self.wire.flush();
        self.wire.waiting_frames() > 0
    }
}
