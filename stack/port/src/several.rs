//! Several devices that one core polls, and values kept for each device.
//!
//! Devices are numbered from 0. [`Ports`] is a [`Port`] that stands for several devices of one type, one at a time;
//! [`PerPort`] keeps a value for each. Nothing fails: a number without a device selects the first.
//!
//! With one port, `SEVERAL` is false: selecting a port compiles to nothing and `PerPort` is its first element. With
//! several ports, each access costs a comparison and an index. The binary contains the core loop twice.

use crate::{Burst, Frame, Port, PortCaps};

/// Several devices.
pub struct Ports<P> {
    all: PerPort<P>,
    at: u8,
}

impl<P: Port> Ports<P> {
    /// Combines these devices and selects the first.
    pub fn new(first: P, others: impl IntoIterator<Item = P>) -> Self {
        Ports { all: PerPort::new(first, others), at: 0 }
    }

    /// Returns the selected device.
    pub fn selected(&mut self) -> &mut P {
        self.all.at_mut::<Self>(self.at)
    }
}

impl<P: Port> Port for Ports<P> {
    type Frame = P::Frame;

    const SEVERAL: bool = true;

    fn devices(&self) -> u8 {
        self.all.count()
    }

    #[inline]
    fn select(&mut self, number: u8) {
        self.at = number;
    }

    fn caps(&self) -> &PortCaps {
        self.all.at::<Self>(self.at).caps()
    }

    #[inline]
    fn rx_burst(&mut self, into: &mut Burst<P::Frame>) {
        self.selected().rx_burst(into);
    }

    #[inline]
    fn tx_burst(&mut self, from: &mut Burst<<P::Frame as Frame>::Sealed>) {
        self.selected().tx_burst(from);
    }

    #[inline]
    fn alloc(&mut self) -> Option<P::Frame> {
        self.selected().alloc()
    }
}

/// A value for each device.
pub struct PerPort<T> {
    first: T,
    others: Box<[T]>,
}

impl<T> PerPort<T> {
    /// Stores these values in the order of the devices.
    pub fn new(first: T, others: impl IntoIterator<Item = T>) -> Self {
        PerPort { first, others: others.into_iter().collect() }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u8 {
        u8::try_from(self.others.len() + 1).unwrap_or(u8::MAX)
    }

    /// Returns the value of device `number` of `P`.
    #[inline(always)]
    pub fn at<P: Port>(&self, number: u8) -> &T {
        if !P::SEVERAL || number == 0 {
            return &self.first;
        }
        self.others.get(usize::from(number) - 1).unwrap_or(&self.first)
    }

    /// Returns the value of device `number` of `P`, writable.
    #[inline(always)]
    pub fn at_mut<P: Port>(&mut self, number: u8) -> &mut T {
        if !P::SEVERAL || number == 0 {
            return &mut self.first;
        }
        self.others.get_mut(usize::from(number) - 1).unwrap_or(&mut self.first)
    }

    /// Iterates over all values, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        core::iter::once(&self.first).chain(&self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{self, MemoryConfig, MemoryPort};
    use crate::{Frame, TxMeta, Wire};
    use ironwarp_types::MacAddr;

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    /// A wire over two devices, and what each is joined to.
    fn wire() -> (Wire<Ports<MemoryPort>>, [MemoryPort; 2]) {
        let pair = || memory::pair(&MemoryConfig::default(), &MemoryConfig::default());
        let ((first, far_first), (second, far_second)) = (pair(), pair());
        (Wire::new(Ports::new(first, [second])), [far_first, far_second])
    }

    fn push(wire: &mut Wire<Ports<MemoryPort>>, port: u8, to: MacAddr, mark: u8) -> bool {
        wire.select(port);
        let mut frame = wire.alloc().expect("the pool has a frame");
        frame.resize(60);
        frame.bytes_mut().fill(mark);
        frame.bytes_mut()[..6].copy_from_slice(&to.0);
        wire.push(frame.seal(TxMeta::default()))
    }

    fn marks(far: &mut MemoryPort) -> Vec<u8> {
        let mut got = Burst::new();
        far.rx_burst(&mut got);
        got.iter().map(|frame| frame.bytes()[59]).collect()
    }

    #[test]
    fn each_frame_leaves_through_the_device_that_was_selected() {
        let (mut wire, [mut first, mut second]) = wire();
        for mark in 0..6 {
            assert!(push(&mut wire, mark % 2, MacAddr::default(), mark));
        }
        assert_eq!(wire.waiting_frames(), 6);
        wire.flush();
        assert_eq!((marks(&mut first), marks(&mut second)), (vec![0, 2, 4], vec![1, 3, 5]));
    }

    #[test]
    fn a_device_that_takes_nothing_leaves_the_other_room() {
        let (mut wire, [_, mut second]) = wire();
        wire.select(0);
        wire.port_mut().selected().control().limit_tx_burst(0);
        while push(&mut wire, 0, MacAddr::default(), 0) {}
        assert!(!wire.has_room());
        assert!(push(&mut wire, 1, MacAddr::default(), 7) && wire.has_room());
        wire.flush();
        assert_eq!(marks(&mut second), [7]);
    }

    #[test]
    fn frames_to_ourselves_come_back_where_they_left() {
        let (mut wire, [_, mut second]) = wire();
        wire.select(1);
        wire.loop_back(OWN);
        assert!(push(&mut wire, 1, OWN, 3) && wire.has_own());
        // The other device has not been told that the address is its own.
        assert!(push(&mut wire, 0, OWN, 4) && !wire.has_own());
        wire.flush();
        wire.select(1);
        let mut got = Burst::new();
        wire.rx_own(&mut got);
        assert_eq!((got.len(), marks(&mut second).len(), wire.waiting_frames()), (1, 0, 0));
    }

    #[test]
    fn a_device_that_is_not_there_is_the_first_one() {
        let (mut wire, [mut first, _]) = wire();
        assert!(push(&mut wire, 9, MacAddr::default(), 5));
        wire.flush();
        assert_eq!((wire.devices(), marks(&mut first)), (2, vec![5]));
    }
}
