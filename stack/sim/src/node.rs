//! The nodes that the simulator drives.

use ironwarp_types::Nanos;

/// A host: everything that owns some ports, with all its cores.
pub trait Node {
    /// Processes the work of this moment: receives, runs timers, sends. Returns when to poll again
    /// if nothing arrives before. A time in the past means after the duration of one iteration.
    fn poll(&mut self, now: Nanos) -> Option<Nanos>;

    /// Checks the node's invariants, after every poll. An error ends the run.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl<N: Node + ?Sized> Node for Box<N> {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        (**self).poll(now)
    }

    fn check(&self) -> Result<(), String> {
        (**self).check()
    }
}

/// A closure as a node.
pub struct FnNode<F>(pub F);

impl<F: FnMut(Nanos) -> Option<Nanos>> Node for FnNode<F> {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        (self.0)(now)
    }
}
