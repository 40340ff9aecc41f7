//! A switch between stacks of one process. It forwards by link address and drops what does not fit
//! the receive ring of the destination, as a switch with one queue for each port.

use ironwarp::memory::{FarEnd, MemoryConfig, MemoryPort, detached};
use ironwarp_port::{Burst, Frame};
use ironwarp_types::MacAddr;

/// Ports from 0. The link address of a port contains its number.
#[derive(Default)]
pub struct Switch {
    ports: Vec<FarEnd>,
    /// Frames that did not fit the queue of their destination.
    pub dropped: u64,
}

impl Switch {
    /// Adds a port whose device has a receive ring of `queue_frames`.
    pub fn port(&mut self, queue_frames: usize) -> MemoryPort {
        let mac = mac_of(self.ports.len());
        let rx_frames = MemoryConfig::default().rx_frames + queue_frames;
        let config = MemoryConfig { mac, rx_frames, rx_ring_frames: queue_frames, ..MemoryConfig::default() };
        let (port, far_end) = detached(&config);
        self.ports.push(far_end);
        port
    }

    /// Forwards one burst of each port. Every turn begins with another port, so that no port is
    /// always first in line.
    pub fn forward(&mut self, turn: usize) {
        let ports = self.ports.len();
        let mut burst = Burst::new();
        for from in (0..ports).map(|port| (port + turn) % ports) {
            self.ports[from].collect(&mut burst);
            burst.drain(..).for_each(|frame| self.forward_frame(from, frame.bytes()));
        }
    }

    fn forward_frame(&mut self, from: usize, frame: &[u8]) {
        let Some(&destination) = frame.first_chunk() else { return };
        for (number, port) in self.ports.iter_mut().enumerate() {
            let is_for = mac_of(number).0 == destination || is_group(destination);
            if number != from && is_for && !port.inject(frame) {
                self.dropped += 1;
            }
        }
    }
}

/// Returns the link address of a port, locally administered.
fn mac_of(port: usize) -> MacAddr {
    let [high, low] = (port as u16).to_be_bytes();
    MacAddr([0x02, 0, 0, 1, high, low])
}

/// Multicast and broadcast addresses have the lowest bit of the first byte set (IEEE 802, clause
/// 8.2.2).
fn is_group(address: [u8; 6]) -> bool {
    address[0] & 1 != 0
}

#[cfg(test)]
mod tests {
    use ironwarp_port::Port;

    use super::*;

    fn frame_to(destination: [u8; 6]) -> Vec<u8> {
        [&destination[..], &mac_of(0).0, &[0x88, 0xb5], &[0; 46]].concat()
    }

    #[test]
    fn frames_beyond_the_queue_are_dropped_and_counted() {
        let mut switch = Switch::default();
        let _ports = [switch.port(4), switch.port(4)];
        (0..6).for_each(|_| switch.forward_frame(0, &frame_to(mac_of(1).0)));
        assert_eq!(switch.dropped, 2);
    }

    #[test]
    fn a_broadcast_reaches_every_port_but_the_sender() {
        let mut switch = Switch::default();
        let mut ports = [switch.port(4), switch.port(4), switch.port(4)];
        switch.forward_frame(0, &frame_to([0xff; 6]));
        switch.forward_frame(0, &frame_to(mac_of(2).0));
        let received = ports.each_mut().map(|port| {
            let mut burst = Burst::new();
            port.rx_burst(&mut burst);
            burst.len()
        });
        assert_eq!((received, switch.dropped), ([0, 1, 2], 0));
    }
}
