//! A port together with the frames that wait to leave through it.
//!
//! Takes sealed frames one at a time, gives them to the device in bursts. The last [`RESERVE_FRAMES`] places of the
//! waiting burst are kept for acknowledgements and control frames, so a full transmit ring stops data before it
//! stops ACKs.
//!
//! Frames to ourselves never reach the device, which would send them out and not back in: once somebody has switched the
//! loop on, they wait here until the receive stage fetches them, as many as [`LOOP_FRAMES`]. While it is off, which is
//! nearly always, a frame costs one test of a flag.
//!
//! Frames to an own address never reach the device. The first route to an own address switches the loop on: frames with our
//! link address as destination return at the next receive stage, copied into fresh frames, through the same checks. Until then
//! the cost is one test of a flag for each frame.

use arrayvec::ArrayVec;
use ironwarp_types::MacAddr;

use crate::{Burst, Frame, PerPort, Port, PortCaps, RxMeta, Sealed};

/// Places kept back from data for acknowledgements, ARP and resets.
pub const RESERVE_FRAMES: usize = 8;

/// Frames to ourselves that may wait: two bursts.
pub const LOOP_FRAMES: usize = 64;

/// A port and its frames in waiting.
///
/// A port of several devices is asked about one at a time, see [`Wire::select`]; each has its own frames in waiting.
pub struct Wire<P: Port> {
    port: P,
    port_queues: PerPort<PortQueues<<P::Frame as Frame>::Sealed>>,
    at: u8,
}

/// What waits for one device.
struct PortQueues<S> {
    waiting: Burst<S>,
    /// Frames for this address come back. [`None`] sends them out like any other.
    own: Option<MacAddr>,
    looped: ArrayVec<S, LOOP_FRAMES>,
}

impl<S> PortQueues<S> {
    fn new() -> Self {
        PortQueues { waiting: Burst::new(), own: None, looped: ArrayVec::new() }
    }
}

impl<P: Port> Wire<P> {
    /// Takes the port over.
    pub fn new(port: P) -> Self {
        let others = (1..port.devices()).map(|_| PortQueues::new());
        Wire { port_queues: PerPort::new(PortQueues::new(), others), port, at: 0 }
    }

    /// From now on everything is about the device of this number. One device is always selected.
    #[inline(always)]
    pub fn select(&mut self, number: u8) {
        if P::SEVERAL && number != self.at {
            self.at = number;
            self.port.select(number);
        }
    }

    /// The number of the selected device.
    #[inline(always)]
    pub fn selected(&self) -> u8 {
        if P::SEVERAL { self.at } else { 0 }
    }

    /// How many devices there are.
    #[inline(always)]
    pub fn devices(&self) -> u8 {
        if P::SEVERAL { self.port.devices() } else { 1 }
    }

    #[inline(always)]
    fn queues(&self) -> &PortQueues<<P::Frame as Frame>::Sealed> {
        self.port_queues.at::<P>(self.at)
    }

    #[inline(always)]
    fn parts(&mut self) -> (&mut P, &mut PortQueues<<P::Frame as Frame>::Sealed>) {
        (&mut self.port, self.port_queues.at_mut::<P>(self.at))
    }

    /// What the device can do.
    pub fn caps(&self) -> &PortCaps {
        self.port.caps()
    }

    /// Appends received frames to `into`.
    pub fn rx_burst(&mut self, into: &mut Burst<P::Frame>) {
        self.port.rx_burst(into);
    }

    /// From now on frames for the link address `own` come back through [`Wire::rx_own`].
    pub fn loop_back(&mut self, own: MacAddr) {
        self.parts().1.own = Some(own);
    }

    /// Whether frames to ourselves wait.
    #[inline]
    pub fn has_own(&self) -> bool {
        !self.queues().looped.is_empty()
    }

    /// Appends frames to ourselves to `into`, up to its room: copies in frames of the transmit pool, since what was sent
    /// stays as it is until it is acknowledged. While the pool is empty they wait. No device has looked at them.
    #[cold]
    pub fn rx_own(&mut self, into: &mut Burst<P::Frame>) {
        let (port, queues) = self.parts();
        let room = into.remaining_capacity().min(queues.looped.len());
        let copied = queues.looped.iter().take(room).map_while(|sealed| {
            let mut frame = port.alloc()?;
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
        queues.looped.drain(..into.len() - before);
    }

    /// An empty frame to fill, or `None` when the transmit pool is empty.
    pub fn alloc(&mut self) -> Option<P::Frame> {
        self.port.alloc()
    }

    /// Whether a data frame may be pushed now. Flushes first when the burst is full.
    pub fn has_room(&mut self) -> bool {
        let (port, queues) = self.parts();
        if queues.waiting.remaining_capacity() <= RESERVE_FRAMES {
            port.tx_burst(&mut queues.waiting);
        }
        queues.waiting.remaining_capacity().min(queues.looped.remaining_capacity()) > RESERVE_FRAMES
    }

    /// Queues a frame. Answers `false`, and drops the frame, when even the reserve is taken: TCP will send again.
    pub fn push(&mut self, frame: <P::Frame as Frame>::Sealed) -> bool {
        let (port, queues) = self.parts();
        if queues.own.is_some() && queues.is_own(&frame) {
            return queues.looped.try_push(frame).is_ok();
        }
        if queues.waiting.is_full() {
            port.tx_burst(&mut queues.waiting);
        }
        queues.waiting.try_push(frame).is_ok()
    }

    /// Hands the waiting frames to the device, of several devices to each.
    pub fn flush(&mut self) {
        if !P::SEVERAL {
            return self.flush_selected();
        }
        for number in 0..self.devices() {
            self.select(number);
            self.flush_selected();
        }
    }

    #[inline(always)]
    fn flush_selected(&mut self) {
        let (port, queues) = self.parts();
        if !queues.waiting.is_empty() {
            port.tx_burst(&mut queues.waiting);
        }
    }

    /// Frames that no device has taken yet, and those to ourselves that nobody has fetched.
    pub fn waiting_frames(&self) -> usize {
        if P::SEVERAL {
            self.port_queues.iter().map(PortQueues::frames).sum()
        } else {
            self.queues().frames()
        }
    }

    /// The port itself, for control.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }
}

impl<S: Sealed> PortQueues<S> {
    fn frames(&self) -> usize {
        self.waiting.len() + self.looped.len()
    }

    /// Whether a frame goes to ourselves.
    #[cold]
    fn is_own(&self, frame: &S) -> bool {
        frame.bytes().first_chunk::<6>().is_some_and(|to| self.own == Some(MacAddr(*to)))
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
        wire.rx_own(&mut got);
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
        assert!(wire.has_own());
        wire.flush();
        assert_eq!((own_marks(&mut wire), marks(&mut far).len()), (vec![2, 4], 2));
        assert!(!wire.has_own());
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
        assert_eq!((own_marks(&mut wire), wire.has_own()), (vec![0, 1], true));
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
}
