//! The guard of a queue's place in its controller.
//!
//! Every controller that the target lists has the guard of an admin queue. Dropping that guard ends
//! the controller and takes it off the list (Fabrics 1.1, 2.5), whatever the reason: the connection
//! ended, Connect failed on the way, or the queue was never used. The guard of an I/O queue has no
//! identifier until [`Membership::take`]; dropping it makes the identifier free.

use std::sync::Arc;

use super::Target;
use super::controller::Controller;

/// A queue's place in its controller.
#[derive(Debug)]
pub(super) struct Membership {
    target: Arc<Target>,
    controller: Arc<Controller>,
    /// The queue identifier, once it is taken.
    qid: Option<u16>,
}

impl Membership {
    /// The place of the admin queue of a controller that was just listed. Every controller is made
    /// with that queue.
    pub(super) fn of_admin(target: Arc<Target>, controller: Arc<Controller>) -> Self {
        Membership { target, controller, qid: Some(0) }
    }

    /// The place of an I/O queue, which has no identifier yet.
    pub(super) fn of_io(target: Arc<Target>, controller: Arc<Controller>) -> Self {
        Membership { target, controller, qid: None }
    }

    /// Takes the identifier of an I/O queue. Returns whether it has one: not if the controller has
    /// another queue of that number.
    pub(super) fn take(&mut self, qid: u16) -> bool {
        if self.qid.is_none() && self.controller.state().queues.insert(qid) {
            self.qid = Some(qid);
        }
        self.qid.is_some()
    }

    /// Returns the controller.
    #[inline]
    pub(super) fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let Some(qid) = self.qid else { return };
        if qid == 0 {
            self.target.remove(&self.controller);
            self.controller.end();
        }
        self.controller.state().queues.remove(&qid);
    }
}
