//! Commands that wait: a list for each resource, in turn by host and then by connection.
//!
//! A slot waits in one list at a time. A slot that cannot go on keeps its position, and never stops
//! the others: lists of other resources, other hosts and other connections go on. Adding and taking
//! cost a step each; a list allocates only when it becomes longer than ever before.

use std::collections::VecDeque;

/// The owner of a slot: the host, by its number among the core's parties, and the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    /// The party.
    pub party: u32,
    /// The connection.
    pub connection: u32,
}

/// What a slot waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Resource {
    /// Its host's share of a turn.
    Turn,
    /// An RDMA Read less than the connection may have outstanding.
    Reads,
    /// Room in the connection's send queue.
    Send,
    /// A data buffer.
    Buffers,
    /// The computation of an authentication.
    Job,
    /// Room in the queue of a device.
    Device(usize),
}

/// The slots that wait for one resource.
#[derive(Debug, Default)]
pub(super) struct WaitList {
    /// Parties with waiting slots, the next one first.
    parties: VecDeque<u32>,
    /// Connections with waiting slots of each party.
    by_party: Vec<VecDeque<u32>>,
    /// Waiting slots of each connection, the oldest first.
    by_connection: Vec<VecDeque<u16>>,
    len: usize,
}

impl WaitList {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether slots of a party wait.
    pub(super) fn has_party(&self, party: u32) -> bool {
        self.by_party.get(party as usize).is_some_and(|one| !one.is_empty())
    }

    /// Returns whether slots of another party wait.
    pub(super) fn has_other_than(&self, party: u32) -> bool {
        self.parties.iter().any(|&one| one != party)
    }

    /// Returns the number of connections with waiting slots.
    pub(super) fn connections(&self) -> usize {
        self.parties.iter().filter_map(|&party| self.by_party.get(party as usize)).map(VecDeque::len).sum()
    }

    /// Adds a slot behind those of its connection.
    pub(super) fn push(&mut self, who: Who, slot: u16) {
        self.slots(who).push_back(slot);
    }

    /// Puts the slot that was added last before the others of its connection: it had its turn and
    /// could not go on.
    pub(super) fn put_first(&mut self, who: Who) {
        if let Some(slots) = self.by_connection.get_mut(who.connection as usize).filter(|one| !one.is_empty())
        {
            slots.rotate_right(1);
        }
    }

    /// Returns whether slots of a connection wait.
    pub(super) fn has_connection(&self, who: Who) -> bool {
        self.by_connection.get(who.connection as usize).is_some_and(|one| !one.is_empty())
    }

    /// Returns the slots of a connection, one more of which is about to wait.
    fn slots(&mut self, who: Who) -> &mut VecDeque<u16> {
        let (party, connection) = (who.party as usize, who.connection as usize);
        grow(&mut self.by_party, party);
        grow(&mut self.by_connection, connection);
        if self.by_connection[connection].is_empty() {
            if self.by_party[party].is_empty() {
                self.parties.push_back(who.party);
            }
            self.by_party[party].push_back(who.connection);
        }
        self.len += 1;
        &mut self.by_connection[connection]
    }

    /// Takes the next slot: the party and the connection have their next turn after all others.
    pub(super) fn pop(&mut self) -> Option<(Who, u16)> {
        let party = self.parties.pop_front()?;
        self.pop_of(party)
    }

    /// Takes a slot of the party for which `key` is least.
    pub(super) fn pop_least(&mut self, key: impl Fn(u32) -> u64) -> Option<(Who, u16)> {
        let least =
            (0..self.parties.len()).min_by_key(|&at| self.parties.get(at).map(|&party| key(party)))?;
        let party = self.parties.remove(least)?;
        self.pop_of(party)
    }

    /// Takes a slot of a party that was taken from the order.
    fn pop_of(&mut self, party: u32) -> Option<(Who, u16)> {
        let connections = self.by_party.get_mut(party as usize)?;
        let connection = connections.pop_front()?;
        let slots = self.by_connection.get_mut(connection as usize)?;
        let slot = slots.pop_front()?;
        if !slots.is_empty() {
            connections.push_back(connection);
        }
        if !connections.is_empty() {
            self.parties.push_back(party);
        }
        self.len -= 1;
        Some((Who { party, connection }, slot))
    }

    /// Removes all slots of a connection.
    pub(super) fn remove(&mut self, who: Who) {
        let Some(slots) = self.by_connection.get_mut(who.connection as usize) else { return };
        self.len -= slots.len();
        slots.clear();
        if let Some(connections) = self.by_party.get_mut(who.party as usize) {
            connections.retain(|&one| one != who.connection);
            if connections.is_empty() {
                self.parties.retain(|&one| one != who.party);
            }
        }
    }
}

fn grow<T>(lists: &mut Vec<VecDeque<T>>, number: usize) {
    if lists.len() <= number {
        lists.resize_with(number + 1, VecDeque::new);
    }
}

/// The lists of a core.
#[derive(Debug, Default)]
pub(super) struct Waits {
    pub(super) turn: WaitList,
    pub(super) reads: WaitList,
    pub(super) send: WaitList,
    pub(super) buffers: WaitList,
    pub(super) jobs: WaitList,
    /// By the number of the device.
    pub(super) devices: Vec<WaitList>,
}

impl Waits {
    pub(super) fn list(&mut self, resource: Resource) -> &mut WaitList {
        match resource {
            Resource::Turn => &mut self.turn,
            Resource::Reads => &mut self.reads,
            Resource::Send => &mut self.send,
            Resource::Buffers => &mut self.buffers,
            Resource::Job => &mut self.jobs,
            Resource::Device(at) => {
                if self.devices.len() <= at {
                    self.devices.resize_with(at + 1, WaitList::default);
                }
                &mut self.devices[at]
            }
        }
    }

    /// Returns the number of waiting slots.
    pub(super) fn len(&self) -> usize {
        let single = [&self.turn, &self.reads, &self.send, &self.buffers, &self.jobs];
        single.into_iter().chain(&self.devices).map(WaitList::len).sum()
    }

    /// Removes all slots of a connection.
    pub(super) fn remove(&mut self, who: Who) {
        for list in [&mut self.turn, &mut self.reads, &mut self.send, &mut self.buffers, &mut self.jobs] {
            list.remove(who);
        }
        self.devices.iter_mut().for_each(|list| list.remove(who));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A1: Who = Who { party: 0, connection: 0 };
    const A2: Who = Who { party: 0, connection: 1 };
    const B: Who = Who { party: 1, connection: 2 };

    fn order(list: &mut WaitList) -> Vec<(u32, u16)> {
        core::iter::from_fn(|| list.pop()).map(|(who, slot)| (who.connection, slot)).collect()
    }

    #[test]
    fn hosts_take_turns_and_so_do_the_connections_of_a_host() {
        let mut list = WaitList::default();
        (0..3).for_each(|slot| list.push(A1, slot));
        (0..2).for_each(|slot| list.push(A2, slot));
        (0..2).for_each(|slot| list.push(B, slot));
        assert_eq!((list.len(), list.connections()), (7, 3));
        assert_eq!(order(&mut list), [(0, 0), (2, 0), (1, 0), (2, 1), (0, 1), (1, 1), (0, 2)]);
        assert!(list.is_empty());
    }

    #[test]
    fn a_slot_that_is_put_back_is_the_first_of_its_connection() {
        let mut list = WaitList::default();
        (0..2).for_each(|slot| list.push(A1, slot));
        list.push(B, 0);
        let (who, slot) = list.pop().expect("a slot");
        list.push(who, slot);
        list.put_first(who);
        assert_eq!(order(&mut list), [(2, 0), (0, 0), (0, 1)]);
    }

    #[test]
    fn the_host_with_the_least_key_is_next() {
        let mut list = WaitList::default();
        list.push(A1, 0);
        list.push(B, 1);
        assert_eq!(list.pop_least(|party| 10 - u64::from(party)), Some((B, 1)));
        assert_eq!(list.pop_least(|_| 0), Some((A1, 0)));
        assert_eq!(list.pop_least(|_| 0), None);
    }

    #[test]
    fn the_slots_of_a_connection_that_ends_are_gone() {
        let mut list = WaitList::default();
        (0..3).for_each(|slot| list.push(A1, slot));
        list.push(A2, 7);
        list.push(B, 9);
        list.remove(A1);
        list.remove(B);
        assert!(list.has_party(0) && !list.has_party(1) && !list.has_other_than(0));
        assert_eq!((list.len(), order(&mut list)), (1, vec![(1, 7)]));
    }
}
