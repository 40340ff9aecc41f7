//! A node that the network polls and a test inspects.

use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;

use ironwarp_sim::Node;
use ironwarp_types::Nanos;

/// A handle to a node; clones refer to the same one. A network owns one clone, a test keeps
/// another.
pub struct SharedNode<N>(Rc<RefCell<N>>);

impl<N> SharedNode<N> {
    pub fn new(node: N) -> Self {
        SharedNode(Rc::new(RefCell::new(node)))
    }

    /// Borrows the node. Must not be called from within its own poll.
    pub fn borrow(&self) -> Ref<'_, N> {
        self.0.borrow()
    }

    /// Borrows the node mutably. Must not be called from within its own poll.
    pub fn borrow_mut(&self) -> RefMut<'_, N> {
        self.0.borrow_mut()
    }
}

impl<N> Clone for SharedNode<N> {
    fn clone(&self) -> Self {
        SharedNode(self.0.clone())
    }
}

impl<N: Node> Node for SharedNode<N> {
    fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        self.0.borrow_mut().poll(now)
    }

    fn check(&self) -> Result<(), String> {
        self.0.borrow().check()
    }
}
