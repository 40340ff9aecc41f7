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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{self, MemoryConfig, MemoryPort, MemorySealed};
    use crate::{Sealed, TxMeta};

    /// A wire, and the port at its other end.
    fn wire() -> (Wire<MemoryPort>, MemoryPort) {
        let (port, far) = memory::pair(&MemoryConfig::default(), &MemoryConfig::default());
        (Wire::new(port), far)
    }

    fn frame(wire: &mut Wire<MemoryPort>, mark: u8) -> MemorySealed {
        let mut frame = wire.alloc().expect("the pool has a frame");
        frame.resize(60);
        frame.bytes_mut().fill(mark);
        frame.seal(TxMeta::default())
    }

    fn push(wire: &mut Wire<MemoryPort>, mark: u8) -> bool {
        let frame = frame(wire, mark);
        wire.push(frame)
    }

    fn marks(far: &mut MemoryPort) -> Vec<u8> {
        let mut got = Burst::new();
        far.rx_burst(&mut got);
        got.iter().map(|frame| frame.bytes()[0]).collect()
    }

    fn stop_device(wire: &mut Wire<MemoryPort>, frames_a_burst: u64) {
        wire.port_mut().control().limit_tx_burst(frames_a_burst);
    }

    /// Pushes data as TCP does, until the wire has no room.
    fn fill_with_data(wire: &mut Wire<MemoryPort>) -> usize {
        let mut pushed = 0;
        while wire.has_room() {
            assert!(push(wire, b'd'));
            pushed += 1;
        }
        pushed
    }

    #[test]
    fn frames_wait_for_the_flush_and_leave_in_order() {
        let (mut wire, mut far) = wire();
        for mark in 0..5 {
            assert!(push(&mut wire, mark));
        }
        assert_eq!((wire.waiting_frames(), marks(&mut far)), (5, vec![]));
        wire.flush();
        assert_eq!((wire.waiting_frames(), marks(&mut far)), (0, vec![0, 1, 2, 3, 4]));
    }

    #[test]
    fn a_burst_that_fills_leaves_by_itself() {
        let (mut wire, mut far) = wire();
        for mark in 0..40 {
            assert!(push(&mut wire, mark));
        }
        wire.flush();
        let got = [marks(&mut far), marks(&mut far)].concat();
        assert_eq!(got, (0..40).collect::<Vec<u8>>());
    }

    #[test]
    fn a_full_transmit_ring_stops_data_before_it_stops_acks() {
        let (mut wire, _far) = wire();
        stop_device(&mut wire, 0);
        let data = fill_with_data(&mut wire);
        assert_eq!(data, Burst::<MemorySealed>::new().capacity() - RESERVE_FRAMES);
        let acks: Vec<bool> = (0..=RESERVE_FRAMES).map(|_| push(&mut wire, b'a')).collect();
        assert_eq!(acks, [vec![true; RESERVE_FRAMES], vec![false]].concat());
    }

    #[test]
    fn a_frame_that_finds_no_place_gives_its_buffer_back() {
        let (mut wire, _far) = wire();
        stop_device(&mut wire, 0);
        let free = wire.port_mut().control().free_frames().tx;
        while push(&mut wire, 0) {}
        assert_eq!(wire.port_mut().control().free_frames().tx, free - wire.waiting_frames());
    }

    #[test]
    fn what_the_device_did_not_take_leaves_first_next_time() {
        let (mut wire, mut far) = wire();
        stop_device(&mut wire, 2);
        for mark in 0..5 {
            push(&mut wire, mark);
        }
        wire.flush();
        assert_eq!((wire.waiting_frames(), marks(&mut far)), (3, vec![0, 1]));
        push(&mut wire, 5);
        stop_device(&mut wire, u64::MAX);
        wire.flush();
        assert_eq!(marks(&mut far), [2, 3, 4, 5]);
    }

    #[test]
    fn room_returns_when_the_device_takes_frames_again() {
        let (mut wire, mut far) = wire();
        stop_device(&mut wire, 0);
        fill_with_data(&mut wire);
        assert!(!wire.has_room());
        stop_device(&mut wire, 1);
        assert!(wire.has_room());
        assert_eq!(marks(&mut far), [b'd']);
    }

    #[test]
    fn received_frames_pass_through() {
        let (mut wire, mut far) = wire();
        let mut there = Burst::new();
        let mut frame = far.alloc().expect("the pool has a frame");
        frame.resize(60);
        there.push(frame.seal(TxMeta::default()));
        let sent = there[0].bytes().to_vec();
        far.tx_burst(&mut there);
        let mut got = Burst::new();
        wire.rx_burst(&mut got);
        assert_eq!(got[0].bytes(), sent);
    }
}
