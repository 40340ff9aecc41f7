//! Incoming connections without a queue pair, by slot, and the listening addresses.

use core::net::IpAddr;

use super::half_open_by_host::HalfOpenByHost;
use ironwarp_llp::{ConnId, ListenerId, UnitSource};

use crate::core_loop::lower::Lower;
use crate::event::ConnectionRequest;
use crate::objects::CmParams;
use crate::shared::ListenAddress;

/// The state of an incoming connection.
pub(super) enum PassiveState<L: Lower> {
    /// Waits for the request.
    AwaitingRequest(L::Responder),
    /// Waits for the context's decision.
    AwaitingDecision(L::Request),
    /// The rejecting reply, in the parameters of the reject, is being sent.
    SendingReject(Box<CmParams>),
    /// FIN is sent.
    Closing,
}

/// An incoming connection without a queue pair.
pub(crate) struct Passive<L: Lower> {
    pub(crate) conn: ConnId,
    pub(crate) tx_queued: bool,
    pub(super) state: PassiveState<L>,
    host: IpAddr,
    pub(super) context: u16,
    pub(super) generation: u32,
}

impl<L: Lower> Passive<L> {
    /// Returns the request that the context has not answered, for the connection's core and slot.
    pub(super) fn request(&self, core: u16, slot: u32) -> Option<ConnectionRequest> {
        let PassiveState::AwaitingDecision(asked) = &self.state else { return None };
        let enhanced = L::request_info(asked).peer_reads.is_some();
        Some(ConnectionRequest { core, slot, generation: self.generation, enhanced })
    }
}

impl<L: Lower> UnitSource for Passive<L> {
    fn fill(&mut self, room: &mut [u8]) -> usize {
        match &mut self.state {
            PassiveState::SendingReject(params) => params.frame().map_or(0, |frame| frame.fill(room)),
            PassiveState::AwaitingRequest(_) | PassiveState::AwaitingDecision(_) | PassiveState::Closing => 0,
        }
    }
}

/// A listening address and the context that owns it.
pub(super) struct Listener {
    pub(super) id: ListenerId,
    pub(super) at: ListenAddress,
    pub(super) context: u16,
}

/// Incoming connections by slot, and the listeners.
pub(crate) struct PassiveTable<L: Lower> {
    pub(super) slots: Box<[Option<Passive<L>>]>,
    pub(super) free: Vec<u32>,
    half_open_by_host: HalfOpenByHost,
    /// Counts arrivals, so that a decision for an earlier occupant of a slot is recognized.
    generation: u32,
    pub(super) listeners: Vec<Listener>,
}

impl<L: Lower> PassiveTable<L> {
    pub(crate) fn new(capacity: u32, listeners: u32) -> Self {
        PassiveTable {
            slots: (0..capacity).map(|_| None).collect(),
            free: (0..capacity).rev().collect(),
            half_open_by_host: HalfOpenByHost::new(capacity),
            generation: 0,
            listeners: Vec::with_capacity(listeners as usize),
        }
    }

    pub(crate) fn at(&mut self, slot: u32) -> Option<&mut Passive<L>> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The number of incoming connections.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The number of listening addresses.
    pub(crate) fn listeners(&self) -> usize {
        self.listeners.len()
    }

    pub(super) fn insert(
        &mut self,
        conn: ConnId,
        host: IpAddr,
        context: u16,
        state: PassiveState<L>,
    ) -> Option<u32> {
        let slot = self.free.pop()?;
        self.half_open_by_host.add(host);
        self.generation = self.generation.wrapping_add(1);
        let passive = Passive { conn, tx_queued: false, state, host, context, generation: self.generation };
        *self.slots.get_mut(slot as usize)? = Some(passive);
        Some(slot)
    }

    /// Whether connections that close may take a slot: half of them stay for new ones.
    pub(super) fn has_room_for_closing(&self) -> bool {
        self.free.len() * 2 > self.slots.len()
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Passive<L>> {
        let passive = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        self.half_open_by_host.remove(passive.host);
        Some(passive)
    }

    /// The slot to free for `host` when all are in use. Of the host with the most connections, and
    /// at least two more than `host`, it is the oldest connection without a request, else the
    /// oldest.
    #[cold]
    pub(super) fn eviction_candidate(&self, host: IpAddr) -> Option<u32> {
        let largest = self.half_open_by_host.max_count();
        if largest < self.half_open_by_host.count(host) + 2 {
            return None;
        }
        let of_largest = |(slot, entry): (usize, &Option<Passive<L>>)| {
            let passive =
                entry.as_ref().filter(|passive| self.half_open_by_host.count(passive.host) == largest)?;
            let silent = matches!(passive.state, PassiveState::AwaitingRequest(_));
            Some(((silent, self.generation.wrapping_sub(passive.generation)), slot as u32))
        };
        self.slots.iter().enumerate().filter_map(of_largest).max().map(|(_, slot)| slot)
    }

    /// The request, if it is not decided yet.
    pub(super) fn pending_request(&mut self, (slot, generation): (u32, u32)) -> Option<L::Request> {
        let passive = self.at(slot).filter(|passive| passive.generation == generation)?;
        if let PassiveState::AwaitingDecision(request) = &passive.state { Some(*request) } else { None }
    }
}
