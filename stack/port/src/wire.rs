//! A port together with the frames that wait to leave through it.
//!
//! Takes sealed frames one at a time and gives them to the device in bursts. The last
//! [`RESERVE_FRAMES`] entries of the waiting burst are kept for acknowledgements and control
//! frames, so a full transmit ring stops data before it stops ACKs.
//!
//! A device does not return frames for this host's own address, so they are looped back here, at
//! most [`LOOP_FRAMES`] at a time. The first route to an own address switches the loop on; until
//! then it costs one test of a flag for each frame. Looped frames return at the next receive stage,
//! copied into fresh frames, through the same checks.

use arrayvec::ArrayVec;
use ironwarp_types::MacAddr;
use ironwarp_types::limits::BURST_FRAMES;

use crate::{Burst, Frame, PerPort, Port, PortCaps, RxMeta, Sealed};

/// Entries that are kept from data for acknowledgements, ARP and resets.
pub const RESERVE_FRAMES: usize = 8;

/// Entries of the waiting burst for data.
const DATA_FRAMES: usize = BURST_FRAMES - RESERVE_FRAMES;

/// Frames from this host to itself that may wait: two bursts.
pub const LOOP_FRAMES: usize = 64;

/// A port and the frames that wait to leave through it.
pub struct Wire<P: Port> {
    port: P,
    waiting: Burst<SealedOf<P>>,
    /// Frames for this address are looped back. [`None`] sends them out like any other.
    loopback_addr: Option<MacAddr>,
    looped: ArrayVec<SealedOf<P>, LOOP_FRAMES>,
}

type SealedOf<P> = <<P as Port>::Frame as Frame>::Sealed;

/// All ports of a core.
pub type Wires<P> = PerPort<Wire<P>>;

impl<P: Port> Wires<P> {
    /// Hands the waiting frames of every port to its device.
    #[inline(always)]
    pub fn flush(&mut self) {
        self.for_each_mut(|_, wire| wire.flush());
    }

    /// Returns whether a port takes a data frame now. Flushes a port whose burst is full.
    #[inline(always)]
    pub fn any_has_room(&mut self) -> bool {
        let mut any = false;
        self.for_each_mut(|_, wire| any |= wire.has_room());
        any
    }

    /// Returns the number of frames that wait in all ports.
    #[inline(always)]
    pub fn waiting_frames(&self) -> usize {
        self.fold(0, |frames, wire| frames + wire.waiting_frames())
    }
}

impl<P: Port> Wire<P> {
    /// Takes ownership of the port.
    pub fn new(port: P) -> Self {
        Wire { port, waiting: Burst::new(), loopback_addr: None, looped: ArrayVec::new() }
    }

    /// Returns what the device can do.
    pub fn caps(&self) -> &PortCaps {
        self.port.caps()
    }

    /// Appends received frames to `into`.
    #[inline(always)]
    pub fn rx_burst(&mut self, into: &mut Burst<P::Frame>) {
        self.port.rx_burst(into);
    }

    /// Loops frames for the link address `addr` back from now on; [`Wire::rx_looped`] returns them.
    pub fn loop_back(&mut self, addr: MacAddr) {
        self.loopback_addr = Some(addr);
    }

    /// Returns whether looped frames wait.
    #[inline]
    pub fn has_looped_frames(&self) -> bool {
        !self.looped.is_empty()
    }

    /// Appends looped frames to `into`, up to its room. They are copied into frames of the transmit
    /// pool, since a sent frame stays unchanged until it is acknowledged. While the pool is empty
    /// they wait. No device has checked them.
    #[cold]
    pub fn rx_looped(&mut self, into: &mut Burst<P::Frame>) {
        let room = into.remaining_capacity().min(self.looped.len());
        let copied = self.looped.iter().take(room).map_while(|sealed| {
            let mut frame = self.port.alloc()?;
            frame.resize(sealed.bytes().len());
            // A frame that came from the same pool fits.
            if frame.bytes().len() == sealed.bytes().len() {
                frame.bytes_mut().copy_from_slice(sealed.bytes());
            }
            frame.set_rx(RxMeta::default());
            Some(frame)
        });
        let before = into.len();
        into.extend(copied);
        self.looped.drain(..into.len() - before);
    }

    /// Returns an empty frame to fill, or `None` when the transmit pool is empty.
    #[inline]
    pub fn alloc(&mut self) -> Option<P::Frame> {
        self.port.alloc()
    }

    /// [`Wire::alloc`] of a frame that will be long; see [`Port::alloc_long`].
    #[inline]
    pub fn alloc_long(&mut self) -> Option<P::Frame> {
        self.port.alloc_long()
    }

    /// Returns whether a data frame may be pushed now. Flushes first when the burst is full.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        if self.waiting.len() >= DATA_FRAMES {
            self.port.tx_burst(&mut self.waiting);
        }
        self.waiting.len() < DATA_FRAMES && self.looped.len() < LOOP_FRAMES - RESERVE_FRAMES
    }

    /// Queues a frame. Returns `false` and drops the frame when even the reserve is used up; TCP
    /// sends it again.
    #[inline(always)]
    pub fn push(&mut self, frame: SealedOf<P>) -> bool {
        if self.loopback_addr.is_some() && self.is_own(&frame) {
            return self.looped.try_push(frame).is_ok();
        }
        if self.waiting.is_full() {
            self.port.tx_burst(&mut self.waiting);
        }
        self.waiting.try_push(frame).is_ok()
    }

    /// [`Wire::push`] where [`Wire::has_room`] has just returned true.
    #[inline(always)]
    pub fn push_fast(&mut self, frame: SealedOf<P>) -> bool {
        if self.loopback_addr.is_some() {
            return self.push_or_loop(frame);
        }
        self.waiting.try_push(frame).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn push_or_loop(&mut self, frame: SealedOf<P>) -> bool {
        self.push(frame)
    }

    /// Hands the waiting frames to the device.
    #[inline]
    pub fn flush(&mut self) {
        if !self.waiting.is_empty() {
            self.port.tx_burst(&mut self.waiting);
        }
    }

    /// Drops the frames that wait for the device and returns their number. TCP sends them again.
    #[cold]
    pub fn discard_waiting(&mut self) -> usize {
        let count = self.waiting.len();
        self.waiting.clear();
        count
    }

    /// Returns the number of frames that wait for the device, and of looped frames.
    #[inline]
    pub fn waiting_frames(&self) -> usize {
        self.waiting.len() + self.looped.len()
    }

    /// Returns the port itself, for control.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Returns whether a frame is addressed to this host.
    #[cold]
    fn is_own(&self, frame: &SealedOf<P>) -> bool {
        frame.bytes().first_chunk::<6>().is_some_and(|to| self.loopback_addr == Some(MacAddr(*to)))
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

    /// A frame for `to`.
    fn push_to(wire: &mut Wire<MemoryPort>, to: MacAddr, mark: u8) -> bool {
        let mut frame = wire.alloc().expect("the pool has a frame");
        frame.resize(60);
        frame.bytes_mut().fill(mark);
        frame.bytes_mut()[..6].copy_from_slice(&to.0);
        wire.push(frame.seal(TxMeta::default()))
    }

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn own_marks(wire: &mut Wire<MemoryPort>) -> Vec<u8> {
        let mut got = Burst::new();
        wire.rx_looped(&mut got);
        got.iter().map(|frame| frame.bytes()[6]).collect()
    }

    #[test]
    fn frames_to_ourselves_come_back_once_the_loop_is_on() {
        let (mut wire, mut far) = wire();
        push_to(&mut wire, OWN, 1);
        wire.loop_back(OWN);
        push_to(&mut wire, OWN, 2);
        push_to(&mut wire, MacAddr([2, 0, 0, 0, 0, 2]), 3);
        push_to(&mut wire, OWN, 4);
        assert!(wire.has_looped_frames());
        wire.flush();
        assert_eq!((own_marks(&mut wire), marks(&mut far).len()), (vec![2, 4], 2));
        assert!(!wire.has_looped_frames());
    }

    #[test]
    fn a_full_loop_stops_data_and_refuses_more() {
        let (mut wire, _far) = wire();
        wire.loop_back(OWN);
        let taken = (0..100).filter(|&mark| push_to(&mut wire, OWN, mark)).count();
        assert_eq!((taken, wire.has_room(), wire.waiting_frames()), (LOOP_FRAMES, false, LOOP_FRAMES));
        let back = [own_marks(&mut wire), own_marks(&mut wire)].concat();
        assert_eq!(back, (0..64).collect::<Vec<u8>>());
        assert!(wire.has_room());
    }

    #[test]
    fn frames_to_ourselves_wait_while_the_pool_is_empty() {
        let (mut wire, _far) = wire();
        wire.loop_back(OWN);
        (0..3).for_each(|mark| assert!(push_to(&mut wire, OWN, mark)));
        wire.port_mut().control().allow_allocations(2);
        assert_eq!((own_marks(&mut wire), wire.has_looped_frames()), (vec![0, 1], true));
        wire.port_mut().control().allow_allocations(u64::MAX);
        assert_eq!(own_marks(&mut wire), [2]);
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

    /// All ports of a core with two, and the peer of each.
    fn two_wires() -> (Wires<MemoryPort>, [MemoryPort; 2]) {
        let ((first, first_peer), (second, second_peer)) = (wire(), wire());
        (Wires::new(first, [second]), [first_peer, second_peer])
    }

    #[test]
    fn each_frame_leaves_through_the_port_it_was_pushed_to() {
        let (mut wires, [mut first, mut second]) = two_wires();
        for mark in 0..6 {
            assert!(push(wires.at_mut(mark % 2), mark));
        }
        assert_eq!((wires.numbers(), wires.waiting_frames()), (0..2, 6));
        wires.flush();
        assert_eq!((marks(&mut first), marks(&mut second)), (vec![0, 2, 4], vec![1, 3, 5]));
    }

    #[test]
    fn a_stopped_device_does_not_stop_another_port() {
        let (mut wires, [_, mut second]) = two_wires();
        stop_device(wires.first_mut(), 0);
        fill_with_data(wires.first_mut());
        assert!(!wires.at_mut(0).has_room() && wires.any_has_room());
        assert!(push(wires.at_mut(1), 7));
        wires.flush();
        assert_eq!(marks(&mut second), [7]);
    }

    #[test]
    fn the_loop_is_switched_on_for_each_port_by_itself() {
        let (mut wires, _) = two_wires();
        wires.at_mut(1).loop_back(OWN);
        assert!(push_to(wires.at_mut(1), OWN, 3) && push_to(wires.at_mut(0), OWN, 4));
        assert!(wires.at(1).has_looped_frames() && !wires.at(0).has_looped_frames());
        assert_eq!(own_marks(wires.at_mut(1)), [3]);
    }

    #[test]
    fn a_number_without_a_port_names_the_first_port() {
        let (mut wires, [mut first, _]) = two_wires();
        assert!(push(wires.at_mut(9), 5));
        wires.flush();
        assert_eq!(marks(&mut first), [5]);
    }
}
