//! The guard of a queue's place in its controller.
//!
//! Every controller that the target lists has the guard of an admin queue. Dropping that guard ends
//! the controller and takes it off the list (Fabrics 1.1, 2.5), whatever the reason: the connection
//! ended, Connect failed on the way, or the queue was never used. Dropping the guard of an I/O
//! queue makes its identifier free.

use std::sync::Arc;

use super::Target;
use super::controller::Controller;

/// A queue's place in its controller.
#[derive(Debug)]
pub(super) struct Membership {
    target: Arc<Target>,
    controller: Arc<Controller>,
    qid: u16,
}

impl Membership {
    /// The place of the admin queue of a controller that was just listed. Every controller is made
    /// with that queue.
    pub(super) fn of_admin(target: Arc<Target>, controller: Arc<Controller>) -> Self {
        Membership { target, controller, qid: 0 }
    }

    /// The place of an I/O queue. `None` if the controller has a queue of that number.
    pub(super) fn of_io(target: Arc<Target>, controller: Arc<Controller>, qid: u16) -> Option<Self> {
        let is_free = controller.state().queues.insert(qid);
        is_free.then_some(Membership { target, controller, qid })
    }

    /// Returns the controller.
    #[inline]
    pub(super) fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if self.qid == 0 {
            self.target.remove(&self.controller);
            self.controller.end();
        }
        self.controller.state().queues.remove(&self.qid);
    }
}
