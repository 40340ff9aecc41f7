//! The addresses that the contexts of a stack listen on, so that a free port can be selected
//! without asking a core.
//!
//! Takes an address of a transport, gives it with its port. The leader core decides whether an
//! address is in use; this record only keeps two requests for any port from getting the same one.
//! It is used by calls that listen, never by a core.

use core::net::SocketAddr;
use std::sync::Mutex;

use super::lock;
use crate::config::TransportKind;

/// The ports that are selected: RFC 6335 s6, the dynamic ports.
const FIRST_PORT: u16 = 49_152;
const PORTS: u16 = u16::MAX - FIRST_PORT + 1;

/// Where a context listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListenAddress {
    pub(crate) transport: TransportKind,
    pub(crate) local: SocketAddr,
}

/// The listening addresses of a stack, with the numbers of their contexts.
#[derive(Default)]
pub(crate) struct ListeningAddresses(Mutex<Bound>);

#[derive(Default)]
struct Bound {
    addresses: Vec<(u16, ListenAddress)>,
    /// The offset of the next port to try. A port is not selected again soon after its release.
    next: u16,
}

impl ListeningAddresses {
    /// Records an address and returns it; port 0 is replaced by a port that is not recorded. `None`
    /// if there is none.
    pub(crate) fn bind(&self, context: u16, mut at: ListenAddress) -> Option<ListenAddress> {
        let mut bound = lock(&self.0);
        if at.local.port() == 0 {
            at.local.set_port(bound.free_port()?);
        }
        bound.addresses.push((context, at));
        Some(at)
    }

    /// Removes one record of an address. Returns whether there was one.
    pub(crate) fn release(&self, context: u16, at: ListenAddress) -> bool {
        let mut bound = lock(&self.0);
        let index = bound.addresses.iter().position(|one| *one == (context, at));
        index.map(|index| bound.addresses.swap_remove(index)).is_some()
    }

    /// Removes the records of a context that is gone.
    pub(crate) fn release_all(&self, context: u16) {
        lock(&self.0).addresses.retain(|(owner, _)| *owner != context);
    }
}

impl Bound {
    fn free_port(&mut self) -> Option<u16> {
        for _ in 0..PORTS {
            let port = FIRST_PORT + self.next % PORTS;
            self.next = (self.next + 1) % PORTS;
            if self.addresses.iter().all(|(_, at)| at.local.port() != port) {
                return Some(port);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> ListenAddress {
        ListenAddress { transport: TransportKind::Tcp, local: text.parse().expect("an address") }
    }

    #[test]
    fn a_port_is_selected_that_no_context_listens_on() {
        let listening = ListeningAddresses::default();
        assert_eq!(listening.bind(1, at("10.0.0.1:49152")), Some(at("10.0.0.1:49152")));
        assert_eq!(listening.bind(0, at("10.0.0.1:0")), Some(at("10.0.0.1:49153")));
        assert_eq!(listening.bind(0, at("[::]:0")), Some(at("[::]:49154")));
        listening.release(0, at("10.0.0.1:49153"));
        listening.release(0, at("10.0.0.1:49152"));
        assert_eq!(
            listening.bind(0, at("10.0.0.1:0")),
            Some(at("10.0.0.1:49155")),
            "not the one just released"
        );
    }

    #[test]
    fn ports_run_out_and_come_back_with_the_end_of_their_context() {
        let listening = ListeningAddresses::default();
        let bound = (0..PORTS).filter(|_| listening.bind(0, at("0.0.0.0:0")).is_some()).count();
        assert_eq!(bound, usize::from(PORTS));
        assert_eq!(listening.bind(1, at("0.0.0.0:0")), None);
        listening.release_all(0);
        assert_eq!(listening.bind(1, at("0.0.0.0:0")), Some(at("0.0.0.0:49152")));
    }
}
