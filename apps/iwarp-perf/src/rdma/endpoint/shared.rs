//! One listening stack for several clients: each gets an endpoint, for a thread of its own.
//!
//! The endpoints share the worker, and poll it in turn. Each has a context and a protection domain
//! of its own, so no client reaches the memory of another, and what one waits for delays no other.

use std::net::IpAddr;
use std::sync::Arc;

use ironwarp::Stack;

use super::driver::{Driver, SharedWorker};
use super::{Arrivals, Endpoint};
use crate::error::{Error, Result};

/// The common part of several endpoints.
pub struct SharedEndpoint {
    stack: Arc<Stack>,
    worker: Arc<SharedWorker>,
    pub arrivals: Arc<Arrivals>,
}

impl SharedEndpoint {
    /// Takes a listening endpoint that polls its only worker itself. At most `clients_max` clients
    /// are admitted at a time.
    pub fn new(endpoint: Endpoint, clients_max: usize) -> Result<Self> {
        let Endpoint { ctx, driver: Driver::Inline(worker), stack, .. } = endpoint else {
            return Err(Error::NoDevice);
        };
        let arrivals = Arc::new(Arrivals::new(ctx, clients_max));
        Ok(SharedEndpoint { stack, worker: Arc::new(SharedWorker::new(worker)), arrivals })
    }

    /// Creates the endpoint of an admitted client. Fails if the stack has no context left.
    pub fn client(&self, client: IpAddr) -> Result<Endpoint> {
        let driver = Driver::Shared(self.worker.clone());
        let endpoint = Endpoint::with_driver(self.stack.clone(), driver, self.stack.alloc_pd(), 1)?;
        let arrivals = Some((self.arrivals.clone(), client));
        Ok(Endpoint { arrivals, ..endpoint })
    }

    /// Polls once. The endpoints of clients do so themselves.
    pub fn poll(&self) {
        self.worker.poll(false);
    }
}
