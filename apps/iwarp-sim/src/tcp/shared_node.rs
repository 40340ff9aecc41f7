//! A node that the network polls and somebody else looks at.

use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;

use ironwarp_sim::Node;
use ironwarp_types::Nanos;

/// A handle to a node; clones lead to the same one. A network owns one clone, a test keeps another.
pub struct SharedNode<N>(Rc<RefCell<N>>);

impl<N> SharedNode<N> {
    /// Takes a node over.
    pub fn new(node: N) -> Self {
        SharedNode(Rc::new(RefCell::new(node)))
    }

    /// The node, to look at. Not for use from within its own poll.
    pub fn borrow(&self) -> Ref<'_, N> {
        self.0.borrow()
    }

    /// The node, to change. Not for use from within its own poll.
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
