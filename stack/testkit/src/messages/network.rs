//! The network of [`Messages`](super::Messages): packets in memory, which arrive in an order that
//! the seed determines.
//!
//! All transports that are created with one secret are on one network. Nothing is lost and nothing
//! is copied twice.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use ironwarp_types::{Flow, SeededEntropy};

/// A packet of one stream.
pub(super) struct Packet {
    /// Both ends, as the sender names them.
    pub(super) flow: Flow,
    /// The stream of the connection.
    pub(super) stream: u16,
    pub(super) kind: Kind,
}

/// What a packet says.
pub(super) enum Kind {
    /// Opens a stream, and the connection with the first one.
    Open,
    Opened,
    /// Nobody listens.
    Refused,
    /// The message with a number of the stream.
    Data(u32, Vec<u8>),
    /// The stream's bytes that arrived in order.
    Acked(u64),
    /// The sender sends no message with this number, nor a later one.
    Close(u32),
    Abort,
}

/// The packets that have not arrived.
pub(super) struct Network {
    in_flight: Vec<Packet>,
    /// The addresses of all listeners.
    pub(super) listeners: Vec<SocketAddr>,
    order: SeededEntropy,
}

impl Network {
    pub(super) fn send(&mut self, packet: Packet) {
        self.in_flight.push(packet);
    }

    /// Returns whether somebody listens on an address.
    pub(super) fn has_listener(&self, at: SocketAddr) -> bool {
        self.listeners.iter().any(|listener| hears(*listener, at))
    }

    /// Removes one of the packets to an address that `is_local` accepts: any of them.
    pub(super) fn receive(&mut self, is_local: impl Fn(SocketAddr) -> bool) -> Option<Packet> {
        let ours: Vec<usize> =
            (0..self.in_flight.len()).filter(|at| is_local(self.in_flight[*at].flow.remote)).collect();
        let chosen = self.order.below(ours.len() as u64);
        ours.get(chosen as usize).map(|at| self.in_flight.swap_remove(*at))
    }
}

/// Returns whether a listener on `at` is one for `local`.
pub(super) fn hears(at: SocketAddr, local: SocketAddr) -> bool {
    at == local || (at.ip().is_unspecified() && at.port() == local.port())
}

type Entry = ([u64; 2], Weak<Mutex<Network>>);

/// The networks in use, by secret.
static NETWORKS: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Returns the network of a secret, whose first word is the seed.
pub(super) fn network(secret: [u64; 2]) -> Arc<Mutex<Network>> {
    let mut networks = lock(&NETWORKS);
    networks.retain(|(_, network)| network.strong_count() > 0);
    let there = networks.iter().find(|(key, _)| *key == secret).and_then(|(_, network)| network.upgrade());
    there.unwrap_or_else(|| {
        let network = Arc::new(Mutex::new(Network {
            in_flight: Vec::new(),
            listeners: Vec::new(),
            order: SeededEntropy::new(secret[0]),
        }));
        networks.push((secret, Arc::downgrade(&network)));
        network
    })
}

/// A test that failed meanwhile does not fail others.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
