//! What an engine holds, in numbers: for whoever checks that everything came back.

use ironwarp_port::Port;

use super::Tcp;

/// What an engine holds at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResourceUsage {
    /// Connections, those in hand-shake and those not released yet included.
    pub connections: usize,
    /// Flows in TIME-WAIT.
    pub time_wait: usize,
    /// Connections of peers in SYN-RECEIVED.
    pub half_open: usize,
    /// Flows in the table.
    pub flows: usize,
    /// Received frames held for their payload.
    pub rx_frames: usize,
    /// Units kept until they are acknowledged.
    pub tx_units: usize,
}

impl<P: Port> Tcp<P> {
    /// What is held now. Walks the tables of frames and units.
    pub fn resource_usage(&self) -> ResourceUsage {
        ResourceUsage {
            connections: self.slots.len() - self.free.len(),
            time_wait: self.time_wait.len() as usize,
            half_open: self.half_open as usize,
            flows: self.flows.len(),
            rx_frames: self.shared.rx.in_use(),
            tx_units: self.shared.tx.in_use(),
        }
    }
}
