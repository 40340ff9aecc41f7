//! What wakes a thread that waits for frames.

use std::os::fd::{AsFd, OwnedFd};

/// The receive interrupt of a device's queue. The thread that polls the queue calls it.
pub trait RxInterrupt: AsFd + Send {
    /// Enables the interrupt: each makes the descriptor readable. Frames that arrived before raise
    /// none. Returns whether it is enabled.
    fn enable(&self) -> bool;
    /// Disables the interrupt. One that was raised before may follow.
    fn disable(&self);
}

/// What makes a descriptor readable when a queue has received frames.
pub enum WakeSource {
    /// A socket or file of the driver's: readable while there are frames.
    Frames(OwnedFd),
    /// The interrupt of a card.
    Interrupt(Box<dyn RxInterrupt>),
}
