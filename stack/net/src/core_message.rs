//! Messages between the cores of one stack about neighbours, addresses and path MTUs.
//!
//! Core 0 is the leader: it replies to ARP requests and neighbour solicitations, resolves
//! neighbours, and probes and defends the stack's addresses. The other cores are followers. A
//! follower hands ARP and neighbour discovery frames to the leader, requests unknown neighbours
//! from it, and receives its updates. So the network sees one station, which sends requests at the
//! rate of one station (RFC 1122 s2.3.2.1), whatever the number of cores.
//!
//! Messages wait in a short queue until the core loop takes them. A message that finds the queue
//! full is dropped; the receiver requests it again. Changes of an address state are not requested
//! again, so the queue always has room for them.

use core::net::IpAddr;
use std::collections::VecDeque;

use ironwarp_port::{Port, Wire};
use ironwarp_types::Nanos;

use crate::local_addresses::{AddressState, LOCAL_ADDRESSES_MAX};
use crate::neighbour::{LearnOutcome, Lookup, NeighbourUpdate};
use crate::net::Net;

/// The role of a core in its stack's address resolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CoreRole {
    /// The stack has one core.
    #[default]
    Single,
    /// Sends requests and replies for all cores.
    Leader,
    /// Sends requests to the leader and receives its updates.
    Follower,
}

/// A message for other cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreMessage(MessageKind);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MessageKind {
    /// A follower requests a neighbour's link address.
    Resolve(IpAddr),
    /// The link address that a neighbour has announced.
    Neighbour(IpAddr, NeighbourUpdate),
    /// The path MTU of a destination, in bytes.
    PathMtu(IpAddr, u16),
    /// The state of one of the stack's addresses.
    Address(IpAddr, AddressState),
}

impl CoreMessage {
    /// Returns whether the message is for the leader only. Others are for every other core.
    pub fn is_for_leader(&self) -> bool {
        matches!(self.0, MessageKind::Resolve(_))
    }

    /// Returns whether the message must not be lost, because no receiver requests it again.
    pub fn is_reliable(&self) -> bool {
        matches!(self.0, MessageKind::Address(..))
    }
}

/// The messages that wait until the core loop takes them.
pub(crate) struct Outbox {
    role: CoreRole,
    queue: VecDeque<CoreMessage>,
    capacity: usize,
}

/// Slots for messages that may be dropped: one burst of replies.
const UNRELIABLE_MAX: usize = 64;

impl Outbox {
    pub(crate) fn new(role: CoreRole) -> Self {
        let capacity = if role == CoreRole::Single { 0 } else { UNRELIABLE_MAX + LOCAL_ADDRESSES_MAX };
        Outbox { role, queue: VecDeque::with_capacity(capacity), capacity }
    }

    pub(crate) fn is_follower(&self) -> bool {
        self.role == CoreRole::Follower
    }

    fn is_leader(&self) -> bool {
        self.role == CoreRole::Leader
    }

    /// Queues a follower's request for a neighbour.
    pub(crate) fn push_resolve(&mut self, addr: IpAddr) {
        self.push(MessageKind::Resolve(addr));
    }

    fn push(&mut self, message: MessageKind) {
        let message = CoreMessage(message);
        // A newer state of an address replaces the queued one, so there are never more of these
        // than addresses.
        if let MessageKind::Address(addr, _) = message.0 {
            self.queue.retain(|old| !matches!(old.0, MessageKind::Address(one, _) if one == addr));
        }
        let capacity = if message.is_reliable() { self.capacity } else { UNRELIABLE_MAX };
        if self.role != CoreRole::Single && self.queue.len() < capacity {
            self.queue.push_back(message);
        }
    }
}

impl Net {
    /// Returns the oldest message for other cores.
    pub fn take_core_message(&mut self) -> Option<CoreMessage> {
        self.outbox.queue.pop_front()
    }

    /// Applies a message from another core.
    #[cold]
    pub fn on_core_message<P: Port>(&mut self, now: Nanos, message: CoreMessage, wire: &mut Wire<P>) {
        match message.0 {
            MessageKind::Resolve(addr) => self.on_resolve(now, addr, wire),
            MessageKind::Neighbour(addr, update) => {
                self.learn(now, addr, update);
            }
            MessageKind::PathMtu(dst, mtu_bytes) => {
                self.path_mtus.lower(now, dst, mtu_bytes);
            }
            MessageKind::Address(addr, state) => {
                let changed = self.local.set_state(addr, state);
                self.on_route_change(changed.into());
            }
        }
    }

    /// A follower sends to a neighbour: the entry counts as in use, and is resolved if it is
    /// unknown.
    fn on_resolve<P: Port>(&mut self, now: Nanos, addr: IpAddr, wire: &mut Wire<P>) {
        match self.neighbours.resolve(now, addr) {
            Lookup::Known(_) => self.publish_neighbour(addr),
            Lookup::SendRequest => self.solicit(addr, None, wire),
            // The follower's own request times out if no update arrives.
            Lookup::Pending | Lookup::Failed | Lookup::TableFull => {}
        }
    }

    /// Sends the followers an update that the leader has just received.
    pub(crate) fn publish_update(&mut self, addr: IpAddr, update: NeighbourUpdate, outcome: LearnOutcome) {
        if self.outbox.is_leader() && outcome != LearnOutcome::Ignored {
            self.outbox.push(MessageKind::Neighbour(addr, update));
        }
    }

    /// Sends the followers the leader's entry of a neighbour.
    pub(crate) fn publish_neighbour(&mut self, addr: IpAddr) {
        if let Some((mac, confirms)) = self.neighbours.known(addr).filter(|_| self.outbox.is_leader()) {
            let update = NeighbourUpdate { mac, add: false, overrides: confirms, confirms };
            self.outbox.push(MessageKind::Neighbour(addr, update));
        }
    }

    /// Sends the followers the state of each address that is in use or given up.
    pub(crate) fn publish_addresses(&mut self) {
        if self.outbox.is_leader() {
            for (prefix, state) in self.local.iter().filter(|(_, state)| *state != AddressState::Tentative) {
                self.outbox.push(MessageKind::Address(prefix.addr, state));
            }
        }
    }

    /// Sends the other cores a path MTU that was just lowered.
    pub(crate) fn publish_path_mtu(&mut self, dst: IpAddr, mtu_bytes: u16) {
        self.outbox.push(MessageKind::PathMtu(dst, mtu_bytes));
    }

    /// Requests a neighbour's link address, from the network or from the leader.
    pub(crate) fn request_neighbour<P: Port>(&mut self, target: IpAddr, wire: &mut Wire<P>) {
        if self.outbox.is_follower() {
            self.outbox.push_resolve(target);
        } else {
            self.solicit(target, None, wire);
        }
    }
}

#[cfg(test)]
#[path = "core_message_tests.rs"]
mod tests;
