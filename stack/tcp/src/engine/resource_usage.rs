//! The resources that an engine holds, for leak checks.

use ironwarp_port::Port;

use super::Tcp;

/// The resources that an engine holds at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResourceUsage {
    /// Connections, including those in handshake and those not yet released.
    pub connections: usize,
    /// Flows in TIME-WAIT.
    pub time_wait: usize,
    /// Connections in SYN-RECEIVED that a peer opened.
    pub half_open: usize,
    /// Entries of the flow table.
    pub flows: usize,
    /// Received frames held for their payload.
    pub rx_frames: usize,
    /// Units retained until they are acknowledged.
    pub tx_units: usize,
}

impl<P: Port> Tcp<P> {
    /// Counts the resources held now. Walks the tables of frames and units.
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
