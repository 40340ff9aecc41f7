//! The order of a session's chunks: DDP-SSNs from 0 (RFC 5043 s6.1, s10).
//!
//! ```text
//!   delivered          ready                 held beyond a gap
//!   . . . . . . . . . |=======|               |=====|     |==|
//!                    next                     ssn                    next + 32766
//! ```
//! SCTP delivers unordered chunks as they arrive. A chunk is held until all before it are
//! delivered. Nothing is allocated for a DDP-SSN, only for a chunk that arrived; at most as many as
//! the lower layer holds. SCTP delivers no chunk twice, so a repeated DDP-SSN is an error of the
//! peer.

use std::collections::VecDeque;

/// RFC 5043 s10: the most chunks of a stream that may be in flight. More would make a DDP-SSN
/// ambiguous.
pub const CHUNKS_IN_FLIGHT_MAX: u16 = 32_767;

/// The chunks of one direction that were not delivered.
#[derive(Debug)]
pub(super) struct ReceiveOrder<M> {
    /// The DDP-SSN of the next chunk to deliver.
    next: u16,
    /// The chunks that are held, by DDP-SSN.
    held: VecDeque<(u16, M)>,
    /// How many of them can be delivered now.
    ready: usize,
    held_max: usize,
}

/// Why a chunk has no place in the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SsnFault {
    /// It was delivered, or is too far ahead to be in flight.
    #[error("DDP-SSN {ssn} is outside the window at {next}")]
    OutsideWindow {
        /// The DDP-SSN of the chunk.
        ssn: u16,
        /// That of the next chunk.
        next: u16,
    },
    /// A chunk with this DDP-SSN is held.
    #[error("DDP-SSN {0} is repeated")]
    Repeated(u16),
    /// As many chunks are held as the lower layer can hold.
    #[error("too many chunks are held before their predecessors arrive")]
    Full,
}

impl<M> ReceiveOrder<M> {
    pub(super) fn new(held_max: usize) -> Self {
        ReceiveOrder { next: 0, held: VecDeque::new(), ready: 0, held_max }
    }

    /// Forgets all chunks. The next one has number 0.
    pub(super) fn restart(&mut self) {
        self.held.clear();
        (self.next, self.ready) = (0, 0);
    }

    /// Holds a chunk. Returns how many chunks before it were not delivered, if one of them is
    /// missing.
    pub(super) fn insert(&mut self, ssn: u16, message: M) -> Result<Option<u16>, SsnFault> {
        let next = self.next;
        let distance = ssn.wrapping_sub(next);
        if distance >= CHUNKS_IN_FLIGHT_MAX {
            return Err(SsnFault::OutsideWindow { ssn, next });
        }
        let at = self.held.partition_point(|(held, _)| held.wrapping_sub(next) < distance);
        if self.held.get(at).is_some_and(|(held, _)| *held == ssn) {
            return Err(SsnFault::Repeated(ssn));
        }
        if self.held.len() >= self.held_max || self.held.try_reserve(1).is_err() {
            return Err(SsnFault::Full);
        }
        self.held.insert(at, (ssn, message));
        while self
            .held
            .get(self.ready)
            .is_some_and(|(held, _)| held.wrapping_sub(next) as usize == self.ready)
        {
            self.ready += 1;
        }
        Ok((usize::from(distance) >= self.ready).then_some(distance))
    }

    /// Returns whether a chunk is the next one, and none is held.
    pub(super) fn is_next(&self, ssn: u16) -> bool {
        ssn == self.next && self.held.is_empty()
    }

    /// The next chunk is delivered as it arrives.
    pub(super) fn pass(&mut self) {
        debug_assert!(self.held.is_empty());
        self.next = self.next.wrapping_add(1);
    }

    /// Returns the next chunk to deliver.
    pub(super) fn front(&self) -> Option<&M> {
        self.held.front().filter(|_| self.ready > 0).map(|(_, message)| message)
    }

    /// Removes the next chunk.
    pub(super) fn pop(&mut self) -> Option<M> {
        self.ready = self.ready.checked_sub(1)?;
        self.next = self.next.wrapping_add(1);
        self.held.pop_front().map(|(_, message)| message)
    }

    /// Returns how many chunks before a held one were not delivered, if one of them is missing.
    pub(super) fn distance_of(&self, is_it: impl Fn(&M) -> bool) -> Option<u16> {
        let (_, (ssn, _)) =
            self.held.iter().enumerate().skip(self.ready).find(|(_, (_, message))| is_it(message))?;
        Some(ssn.wrapping_sub(self.next))
    }

    /// Removes a chunk that is held. It may arrive once more.
    pub(super) fn remove(&mut self, is_it: impl Fn(&M) -> bool) {
        if let Some(at) = self.held.iter().position(|(_, message)| is_it(message)) {
            self.held.remove(at);
            self.ready = self.ready.min(at);
        }
    }

    /// Returns whether every chunk that arrived was delivered.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns whether the chunks are in order and no more than allowed.
    #[cfg(test)]
    pub(super) fn is_consistent(&self) -> bool {
        let distance = |(ssn, _): &(u16, M)| ssn.wrapping_sub(self.next);
        let mut sorted = self.held.iter().map(distance);
        self.held.iter().map(distance).is_sorted_by(|a, b| a < b)
            && (0..self.ready).all(|at| sorted.next() == Some(at as u16))
            && sorted.next() != Some(self.ready as u16)
            && self.held.len() <= self.held_max
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn delivered(order: &mut ReceiveOrder<u16>) -> Vec<u16> {
        std::iter::from_fn(|| {
            let front = order.front().copied();
            assert_eq!(order.pop(), front);
            front
        })
        .collect()
    }

    /// RFC 5043 s6.1 and s10: the order is that of the DDP-SSNs, whatever the order of arrival.
    #[test]
    fn chunks_are_delivered_by_ssn() {
        let mut order = ReceiveOrder::new(8);
        assert_eq!(order.insert(2, 2), Ok(Some(2)));
        assert_eq!(order.insert(1, 1), Ok(Some(1)));
        assert!(delivered(&mut order).is_empty());
        assert_eq!((order.distance_of(|m| *m == 2), order.distance_of(|m| *m == 3)), (Some(2), None));
        assert_eq!(order.insert(0, 0), Ok(None));
        assert_eq!(order.distance_of(|m| *m == 2), None, "nothing before it is missing any more");
        assert_eq!(order.insert(3, 3), Ok(None), "nothing before it is missing");
        assert_eq!(order.insert(5, 5), Ok(Some(5)));
        assert_eq!(delivered(&mut order), [0, 1, 2, 3]);
        assert_eq!(order.insert(4, 4), Ok(None));
        assert_eq!(delivered(&mut order), [4, 5]);
        assert!(order.is_empty());
    }

    /// RFC 5043 s10: a gap that no chunk in flight can close is found before anything is allocated.
    #[test]
    fn chunks_that_cannot_be_in_flight_are_refused() {
        let mut order = ReceiveOrder::new(usize::MAX);
        for next in 0..=u16::MAX {
            let outside = |ssn| Err(SsnFault::OutsideWindow { ssn, next });
            for ssn in [next.wrapping_sub(1), next.wrapping_add(32_767), next.wrapping_add(32_768)] {
                assert_eq!(order.insert(ssn, ssn), outside(ssn));
            }
            assert_eq!(order.insert(next, next), Ok(None));
            assert_eq!(delivered(&mut order), [next]);
        }
        assert_eq!(order.insert(32_766, 0), Ok(Some(32_766)), "the last one that may be in flight");
        assert_eq!(order.insert(32_766, 0), Err(SsnFault::Repeated(32_766)));
        assert!(order.is_consistent());
    }

    #[test]
    fn no_more_chunks_are_held_than_allowed() {
        let mut order = ReceiveOrder::new(2);
        assert_eq!((order.insert(3, 3), order.insert(2, 2)), (Ok(Some(3)), Ok(Some(2))));
        assert_eq!(order.insert(1, 1), Err(SsnFault::Full));
        order.restart();
        assert_eq!((order.insert(0, 0), order.is_consistent()), (Ok(None), true));
    }

    proptest! {
        /// Against a set: what is held, what is refused, and what is delivered.
        #[test]
        fn every_schedule_delivers_each_chunk_once(
            start: u16,
            arrivals in proptest::collection::vec((prop_oneof![0..12u16, any::<u16>()], any::<bool>()), 0..80),
        ) {
            let mut order = ReceiveOrder::new(16);
            (order.next, order.held_max) = (start, 16);
            let mut next = start;
            let mut held = std::collections::BTreeSet::new();
            for (ahead, read) in arrivals {
                let ssn = next.wrapping_add(ahead);
                let inserted = order.insert(ssn, ssn);
                prop_assert!(order.is_consistent());
                if ahead >= CHUNKS_IN_FLIGHT_MAX {
                    prop_assert_eq!(inserted, Err(SsnFault::OutsideWindow { ssn, next }));
                } else if held.contains(&ssn) {
                    prop_assert_eq!(inserted, Err(SsnFault::Repeated(ssn)));
                } else if held.len() == 16 {
                    prop_assert_eq!(inserted, Err(SsnFault::Full));
                } else {
                    held.insert(ssn);
                    let is_gap = (0..ahead).any(|before| !held.contains(&next.wrapping_add(before)));
                    prop_assert_eq!(inserted, Ok(is_gap.then_some(ahead)));
                }
                while read && held.remove(&next) {
                    prop_assert_eq!(order.pop(), Some(next));
                    next = next.wrapping_add(1);
                }
                prop_assert!(!read || order.front().is_none());
            }
        }
    }
}
