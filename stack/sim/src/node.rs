//! What the simulator drives.

use ironwarp_types::Nanos;

/// A host: everything behind some ports, all its cores included.
pub trait Node {
    /// Does what there is to do now: receives, runs timers, sends. Answers when it wants to be polled again if
    /// nothing arrives before; a time that has passed means as soon as one turn of its loop takes.
    fn poll(&mut self, now: Nanos) -> Option<Nanos>;

    /// Examines its own state, after every poll. An error ends the run with what it says.
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
