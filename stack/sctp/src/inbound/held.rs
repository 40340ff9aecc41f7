//! Received messages that wait: for an earlier one of their stream, or for their reader.
//!
//! A message lies in its frame. Messages of one packet share the frame, which is released with the
//! last of them. All associations of a core share one arena of messages, in which each has a
//! reserve. There are as many frames as messages. Nothing is allocated after construction.

use ironwarp_llp::{Arena, List, NIL};
use ironwarp_port::Frame;
use ironwarp_types::Seq;

use crate::message::{Message, MessageHeader};

/// A received message and its octets in a frame.
pub(crate) struct Held {
    pub(crate) header: MessageHeader,
    pub(crate) tsn: Seq,
    /// The stream sequence number, if it is ordered.
    pub(crate) ssn: u16,
    frame: u32,
    start: u16,
    end: u16,
}

/// A frame with held messages.
struct Shelf<F> {
    /// `None` while its packet is processed.
    frame: Option<F>,
    messages: u16,
    /// What the frame takes of the receive window, in bytes: its whole buffer.
    cost_bytes: u32,
}

/// The held messages of all associations.
pub(crate) struct HeldMessages<F> {
    messages: Arena<Held>,
    shelves: Box<[Shelf<F>]>,
    free: Vec<u32>,
}

/// The frame of a packet that is processed. It gets a shelf with its first message.
pub(crate) struct Carrier {
    capacity: usize,
    shelf: Option<u32>,
}

impl Carrier {
    pub(crate) fn new<F: Frame>(frame: &F) -> Self {
        Carrier { capacity: frame.capacity(), shelf: None }
    }
}

impl<F: Frame> HeldMessages<F> {
    /// Creates room for `reserved` messages, the sum of all reserves, and `shared` more.
    pub(crate) fn new(reserved: u32, shared: u32) -> Self {
        let count = reserved.saturating_add(shared);
        HeldMessages {
            messages: Arena::new(reserved, shared),
            shelves: (0..count).map(|_| Shelf { frame: None, messages: 0, cost_bytes: 0 }).collect(),
            free: (0..count).rev().collect(),
        }
    }

    /// Holds a message of `bytes` from `start` in the frame of `carrier`. Returns what it takes of
    /// the receive window, or `None` if there is no room.
    pub(crate) fn push(
        &mut self,
        list: &mut List,
        carrier: &mut Carrier,
        message: (MessageHeader, Seq, u16),
        (start, bytes): (u16, u16),
    ) -> Option<u32> {
        let at = carrier.shelf.or(self.free.last().copied())?;
        let (header, tsn, ssn) = message;
        let held = Held { header, tsn, ssn, frame: at, start, end: start.checked_add(bytes)? };
        self.messages.push_back(list, held).ok()?;
        let shelf = self.shelves.get_mut(at as usize)?;
        if carrier.shelf.is_none() {
            self.free.pop();
            carrier.shelf = Some(at);
            shelf.cost_bytes = u32::try_from(carrier.capacity).unwrap_or(u32::MAX);
        }
        shelf.messages += 1;
        Some(if shelf.messages == 1 { shelf.cost_bytes } else { 0 })
    }

    /// The packet of `carrier` is processed: keeps its frame if a message of it is held.
    pub(crate) fn keep(&mut self, carrier: Carrier, frame: F) {
        let Some(at) = carrier.shelf else { return };
        match self.shelves.get_mut(at as usize) {
            Some(shelf) if shelf.messages > 0 => shelf.frame = Some(frame),
            _ => self.free.push(at),
        }
    }

    /// Returns the node before the first message of `list` that `is_wanted`, or [`NIL`] if it is
    /// the first of all, and the message.
    pub(crate) fn find(&self, list: &List, is_wanted: impl Fn(&Held) -> bool) -> Option<(u32, &Held)> {
        let (mut prev, mut at) = (NIL, list.head());
        while let Some(held) = self.messages.value(at) {
            if is_wanted(held) {
                return Some((prev, held));
            }
            (prev, at) = (at, self.messages.next(at));
        }
        None
    }

    /// Returns the octets of a message.
    pub(crate) fn message(&self, held: &Held) -> Message<'_> {
        let frame = self.shelves.get(held.frame as usize).and_then(|shelf| shelf.frame.as_ref());
        let octets =
            frame.and_then(|frame| frame.bytes().get(usize::from(held.start)..usize::from(held.end)));
        Message { header: held.header, tsn: held.tsn, payload: octets.unwrap_or_default() }
    }

    /// Removes the message behind the node `prev`. Returns what the receive window gets back.
    pub(crate) fn remove_after(&mut self, list: &mut List, prev: u32) -> u32 {
        let Some(held) = self.messages.remove_after(list, prev) else { return 0 };
        let Some(shelf) = self.shelves.get_mut(held.frame as usize) else { return 0 };
        shelf.messages = shelf.messages.saturating_sub(1);
        if shelf.messages > 0 {
            return 0;
        }
        // Without its frame yet, `keep` frees it.
        if shelf.frame.take().is_some() {
            self.free.push(held.frame);
        }
        shelf.cost_bytes
    }

    /// Removes all messages of an association.
    pub(crate) fn clear(&mut self, list: &mut List) {
        while !list.is_empty() {
            self.remove_after(list, NIL);
        }
    }

    pub(crate) fn iter(&self, list: &List) -> impl Iterator<Item = &Held> {
        self.messages.iter(list)
    }

    /// Returns the number of frames held.
    pub(crate) fn frames(&self) -> usize {
        self.shelves.len() - self.free.len()
    }

    /// Returns the window that the frames of a list take.
    pub(crate) fn cost_bytes(&self, list: &List) -> u32 {
        let shelf = |held: &Held| self.shelves.get(held.frame as usize);
        // A frame counts for its first message: those of a packet may not be neighbours any more.
        let mut seen = Vec::new();
        let costs = self.iter(list).filter(|held| {
            let is_new = !seen.contains(&held.frame);
            seen.push(held.frame);
            is_new
        });
        costs.filter_map(shelf).map(|shelf| shelf.cost_bytes).sum()
    }
}
