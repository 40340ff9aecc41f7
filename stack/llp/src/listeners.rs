//! The table of listeners of a transport. Only the first packets of unknown flows search it, so a
//! linear scan is sufficient.

use core::net::SocketAddr;

use crate::{ListenError, ListenerId};

struct Entry {
    generation: u32,
    local: Option<SocketAddr>,
}

/// The listeners of one core.
pub struct Listeners {
    entries: Box<[Entry]>,
}

impl Listeners {
    /// Creates a table with room for so many listeners.
    pub fn new(listeners_max: u32) -> Self {
        Listeners { entries: (0..listeners_max).map(|_| Entry { generation: 0, local: None }).collect() }
    }

    /// Adds a listener.
    pub fn insert(&mut self, local: SocketAddr) -> Result<ListenerId, ListenError> {
        if local.port() == 0 {
            return Err(ListenError::InvalidAddress);
        }
        if self.entries.iter().any(|entry| entry.local == Some(local)) {
            return Err(ListenError::InUse);
        }
        let free = self.entries.iter_mut().enumerate().find(|(_, entry)| entry.local.is_none());
        let (slot, entry) = free.ok_or(ListenError::Full)?;
        entry.local = Some(local);
        Ok(ListenerId { slot: slot as u32, generation: entry.generation })
    }

    /// Removes a listener. Does nothing with a stale id.
    pub fn remove(&mut self, id: ListenerId) {
        if let Some(entry) =
            self.entries.get_mut(id.slot as usize).filter(|entry| entry.generation == id.generation)
        {
            entry.local = None;
            entry.generation = entry.generation.wrapping_add(1);
        }
    }

    /// Returns the listener for `local`: one for this exact address before one for all addresses of
    /// its family.
    pub fn find(&self, local: SocketAddr) -> Option<ListenerId> {
        self.find_exact(|at| at == local).or_else(|| {
            self.find_exact(|at| {
                at.ip().is_unspecified() && at.port() == local.port() && at.is_ipv4() == local.is_ipv4()
            })
        })
    }

    fn find_exact(&self, matches: impl Fn(SocketAddr) -> bool) -> Option<ListenerId> {
        let at = self.entries.iter().position(|entry| entry.local.is_some_and(&matches))?;
        let generation = self.entries.get(at)?.generation;
        Some(ListenerId { slot: at as u32, generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_listener_for_the_exact_address_precedes_one_for_all_addresses() {
        let mut listeners = Listeners::new(4);
        let any = listeners.insert(at("0.0.0.0:80")).expect("room");
        let exact = listeners.insert(at("10.0.0.1:80")).expect("room");
        assert_eq!(listeners.find(at("10.0.0.1:80")), Some(exact));
        assert_eq!(listeners.find(at("10.0.0.2:80")), Some(any));
        assert_eq!(listeners.find(at("10.0.0.1:81")), None);
        assert_eq!(listeners.find(at("[fd00::1]:80")), None);
    }

    #[test]
    fn an_endpoint_can_be_listened_on_again_after_unlisten() {
        let mut listeners = Listeners::new(1);
        let first = listeners.insert(at("0.0.0.0:80")).expect("room");
        assert_eq!(listeners.insert(at("0.0.0.0:80")), Err(ListenError::InUse));
        assert_eq!(listeners.insert(at("0.0.0.0:81")), Err(ListenError::Full));
        assert_eq!(listeners.insert(at("0.0.0.0:0")), Err(ListenError::InvalidAddress));
        listeners.remove(first);
        let second = listeners.insert(at("0.0.0.0:81")).expect("room");
        listeners.remove(first);
        assert_eq!(listeners.find(at("1.2.3.4:81")), Some(second));
    }
}
