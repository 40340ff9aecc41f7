//! Events in order of time; events of the same time in order of insertion.

use core::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use ironwarp_types::Nanos;

/// A queue of events.
pub struct EventHeap<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    added: u64,
}

impl<E> EventHeap<E> {
    /// Returns an empty heap.
    pub fn new() -> Self {
        EventHeap { heap: BinaryHeap::new(), added: 0 }
    }

    /// Adds an event.
    pub fn push(&mut self, at: Nanos, event: E) {
        self.heap.push(Reverse(Entry { at, order: self.added, event }));
        self.added += 1;
    }

    /// Returns the time of the next event.
    pub fn next_at(&self) -> Option<Nanos> {
        self.heap.peek().map(|entry| entry.0.at)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(Nanos, E)> {
        self.heap.pop().map(|entry| (entry.0.at, entry.0.event))
    }

    /// Returns all waiting events, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.heap.iter().map(|entry| &entry.0.event)
    }
}

impl<E> Default for EventHeap<E> {
    fn default() -> Self {
        EventHeap::new()
    }
}

struct Entry<E> {
    at: Nanos,
    /// The pair of time and number is a total order, so that a run replays.
    order: u64,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (Nanos, u64) {
        (self.at, self.order)
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_they_were_added() {
        let mut heap = EventHeap::new();
        for (at, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b'), (5, 'e')] {
            heap.push(Nanos(at), name);
        }
        assert_eq!(heap.next_at(), Some(Nanos(1)));
        let order: Vec<_> = std::iter::from_fn(|| heap.pop()).collect();
        let expected = [(1, 'a'), (1, 'b'), (5, 'c'), (5, 'd'), (5, 'e')].map(|(at, name)| (Nanos(at), name));
        assert_eq!(order, expected);
    }
}
