//! A switch: it forwards a frame to the port of its destination, and to all other ports when that
//! is a group address.

use ironwarp_port::memory::MemoryPort;
use ironwarp_port::{Burst, Frame, Port, TxMeta};
use ironwarp_sim::Node;
use ironwarp_types::{MacAddr, Nanos};

/// A switch with a static address table.
pub struct Switch {
    ports: Vec<MemoryPort>,
    macs: Vec<MacAddr>,
}

impl Switch {
    /// The host with address `macs[n]` is on `ports[n]`.
    pub fn new(ports: Vec<MemoryPort>, macs: Vec<MacAddr>) -> Self {
        Switch { ports, macs }
    }

    fn forward(&mut self, from: usize, frame: &[u8]) {
        let Some(to) = frame.first_chunk::<6>() else { return };
        if to[0] & 1 == 1 {
            (0..self.ports.len()).filter(|port| *port != from).for_each(|port| self.send(port, frame));
            return;
        }
        // A frame to an unknown destination is dropped.
        let port = self.macs.iter().position(|mac| mac.0 == *to).filter(|port| *port != from);
        port.into_iter().for_each(|port| self.send(port, frame));
    }

    fn send(&mut self, to: usize, bytes: &[u8]) {
        // A frame without room is dropped.
        let Some(mut copy) = self.ports[to].alloc() else { return };
        copy.resize(bytes.len());
        copy.bytes_mut().copy_from_slice(bytes);
        let mut out = Burst::from_iter([copy.seal(TxMeta::default())]);
        self.ports[to].tx_burst(&mut out);
    }
}

impl Node for Switch {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        let mut more = false;
        for from in 0..self.ports.len() {
            let mut burst = Burst::new();
            self.ports[from].rx_burst(&mut burst);
            more |= burst.is_full();
            for frame in burst {
                self.forward(from, frame.bytes());
            }
        }
        more.then_some(now)
    }
}
