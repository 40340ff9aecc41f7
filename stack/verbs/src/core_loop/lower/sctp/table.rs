//! The associations and sessions of a core, apart from the engine: what SCTP reports goes here, and
//! what it means for sessions is kept until the transport acts on it.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::collections::VecDeque;

use ironwarp_iwarp::sctp::{Function, Session, SessionFault, Sessions};
use ironwarp_llp::{ConnId, Events, Lent, LentMessage, ListenerId, PayloadReader};
use ironwarp_sctp::{AssociationInfo, Message, PathState, SctpConfig, UpperLayer};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::{Flow, Nanos, Seq};

const NONE: u32 = u32::MAX;

/// No association has so many streams.
const NO_STREAM: u16 = u16::MAX;

/// The user data of a Terminate.
const TERMINATE_BYTES: usize = 4;

/// The flow of an association that the peer has just opened.
const UNKNOWN: Flow = Flow {
    local: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    remote: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
};

/// A session that has an owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionState {
    pub association: ConnId,
    pub stream: u16,
    /// Bytes of the first message and of segments. The Terminate is not the layer's above.
    sent_bytes: u64,
    pub acked_bytes: u64,
    pub received_bytes: u64,
    /// The segment that arrived last beyond a gap.
    early: Option<Seq>,
    events: Events,
    is_queued: bool,
    closing: bool,
    closed: bool,
}

struct AssociationState {
    id: ConnId,
    flow: Flow,
    listener: Option<ListenerId>,
    is_opener: bool,
    established: bool,
    ended: bool,
    sessions: Sessions<Seq>,
    streams: Box<[StreamState]>,
    /// Sessions that have owners.
    users: u32,
    /// When it ends without a session, if the peer opened it.
    idle_until: Nanos,
    /// It is in [`Table::idle`].
    is_watched: bool,
}

#[derive(Clone, Copy, Debug)]
struct StreamState {
    /// The slot of the session's owner.
    owner: u32,
    /// Chunks sent in the session, modulo 2^16: the DDP-SSN of the next one.
    sent_units: u16,
    /// Bytes sent and not acknowledged.
    outstanding_bytes: u32,
    /// Those of them that earlier sessions sent.
    stale_bytes: u32,
}

impl StreamState {
    const UNUSED: Self = StreamState { owner: NONE, sent_units: 0, outstanding_bytes: 0, stale_bytes: 0 };
}

impl AssociationState {
    fn stream(&self, stream: u16) -> StreamState {
        let found = self.streams.get(usize::from(stream)).copied();
        found.unwrap_or(StreamState::UNUSED)
    }

    fn owner(&self, stream: u16) -> u32 {
        self.stream(stream).owner
    }
}

struct Slot {
    generation: u32,
    session: Option<SessionState>,
}

/// See the module.
pub(super) struct Table {
    slots: Box<[Slot]>,
    free: Vec<u32>,
    associations: Box<[Option<AssociationState>]>,
    stats: CoreStats,
    streams: u16,
    held_max: usize,
    /// Requests of a peer that may wait for a decision in an association (RFC 5043 s6.4).
    requests_max: usize,
    /// Sessions with events that were not reported.
    queued: VecDeque<u32>,
    established: Vec<ConnId>,
    discarded: Vec<(ConnId, u16)>,
    resending: Vec<ConnId>,
    terminating: Vec<(ConnId, u16)>,
    /// Sessions whose Terminate waits for an acknowledgement.
    waiting: Vec<(ConnId, u16)>,
    unused: Vec<ConnId>,
    /// Addresses of peers that failed or answer again, for each session.
    path_changes: VecDeque<(ConnId, IpAddr, bool)>,
    /// How long an association of a peer may be without a session.
    idle_timeout: Nanos,
    /// Associations that have become idle, and all that were since they were last looked at, with
    /// the time of the next look. Each is here once.
    newly_idle: Vec<ConnId>,
    idle: VecDeque<(Nanos, ConnId)>,
}

impl Table {
    pub fn new(
        (sessions_max, requests_max): (u32, u32),
        idle_timeout: Nanos,
        config: &SctpConfig,
        stats: CoreStats,
    ) -> Self {
        Table {
            slots: (0..sessions_max).map(|_| Slot { generation: 0, session: None }).collect(),
            free: (0..sessions_max).rev().collect(),
            associations: (0..config.associations_max).map(|_| None).collect(),
            stats,
            streams: config.outbound_streams.min(config.inbound_streams),
            held_max: config.held_messages_shared as usize + usize::from(config.held_messages_reserve) + 1,
            requests_max: requests_max as usize,
            queued: VecDeque::new(),
            established: Vec::new(),
            discarded: Vec::new(),
            resending: Vec::new(),
            terminating: Vec::new(),
            waiting: Vec::new(),
            unused: Vec::new(),
            path_changes: VecDeque::new(),
            idle_timeout,
            newly_idle: Vec::new(),
            idle: VecDeque::new(),
        }
    }

    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn id_of(&self, slot: u32) -> Option<ConnId> {
        let entry = self.slots.get(slot as usize).filter(|entry| entry.session.is_some())?;
        Some(ConnId { slot, generation: entry.generation })
    }

    pub fn at(&self, id: ConnId) -> Option<&SessionState> {
        self.slots.get(id.slot as usize).filter(|slot| slot.generation == id.generation)?.session.as_ref()
    }

    fn at_mut(&mut self, id: ConnId) -> Option<&mut SessionState> {
        self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?.session.as_mut()
    }

    fn association(&mut self, id: ConnId) -> Option<&mut AssociationState> {
        self.associations.get_mut(id.slot as usize)?.as_mut().filter(|association| association.id == id)
    }

    pub fn session(&mut self, id: ConnId, stream: u16) -> Option<&mut Session<Seq>> {
        self.association(id)?.sessions.session(stream)
    }

    pub fn flow(&self, id: ConnId) -> Option<Flow> {
        let session = self.at(id)?;
        let association = self.associations.get(session.association.slot as usize)?.as_ref()?;
        Some(association.flow)
    }

    /// Returns the listener of a session that the peer began.
    pub fn listener(&self, id: ConnId) -> Option<ListenerId> {
        let session = self.at(id)?;
        self.associations.get(session.association.slot as usize)?.as_ref()?.listener
    }

    // Opening.

    /// Returns a free stream of an association that this side opened between these addresses.
    pub fn free_stream(&self, ends: &Flow, all_acked: impl Fn(ConnId, u16) -> bool) -> Option<(ConnId, u16)> {
        self.associations.iter().flatten().find_map(|association| {
            let Flow { local, remote } = association.flow;
            let is_same = association.is_opener
                && !association.ended
                && association.users > 0
                && remote == ends.remote
                && local.ip() == ends.local.ip()
                && (ends.local.port() == 0 || ends.local.port() == local.port());
            let free = |stream| association.owner(stream) == NONE && all_acked(association.id, stream);
            let stream = is_same.then(|| association.sessions.free_stream(free))??;
            Some((association.id, stream))
        })
    }

    /// Adds an association that this side opens. Returns its first stream.
    pub fn open(&mut self, id: ConnId, flow: Flow) -> Option<u16> {
        let streams = self.streams;
        self.add(id, flow, true, streams, None);
        self.association(id)?.sessions.free_stream(|_| true)
    }

    fn add(&mut self, id: ConnId, flow: Flow, is_opener: bool, streams: u16, listener: Option<ListenerId>) {
        let sessions = Sessions::new(streams, is_opener, self.held_max, self.requests_max);
        let streams = vec![StreamState::UNUSED; usize::from(streams)].into();
        if let Some(place) = self.associations.get_mut(id.slot as usize) {
            *place = Some(AssociationState {
                id,
                flow,
                listener,
                is_opener,
                established: false,
                ended: false,
                sessions,
                streams,
                users: 0,
                idle_until: Nanos::MAX,
                is_watched: false,
            });
        }
    }

    /// Gives a stream an owner.
    pub fn insert(&mut self, association: ConnId, stream: u16) -> Option<ConnId> {
        let slot = self.free.pop()?;
        let state = SessionState {
            association,
            stream,
            sent_bytes: 0,
            acked_bytes: 0,
            received_bytes: 0,
            early: None,
            events: Events::empty(),
            is_queued: false,
            closing: false,
            closed: false,
        };
        let established = {
            let found = self.association(association)?;
            let state = found.streams.get_mut(usize::from(stream))?;
            (state.owner, state.sent_units, state.stale_bytes) = (slot, 0, state.outstanding_bytes);
            found.users += 1;
            found.established
        };
        let entry = self.slots.get_mut(slot as usize)?;
        entry.session = Some(state);
        let id = ConnId { slot, generation: entry.generation };
        if established {
            self.add_events(slot, Events::ESTABLISHED);
        }
        Some(id)
    }

    /// An association is established, and both sides are DDP.
    pub fn begin(&mut self, id: ConnId, info: &AssociationInfo) {
        let Some(association) = self.association(id) else { return };
        association.established = true;
        (association.flow, association.listener) = (info.flow, info.listener);
        if association.users == 0 {
            self.newly_idle.push(id);
        }
        self.add_to_all(id, Events::ESTABLISHED);
    }

    /// Adds events to all sessions of an association.
    fn add_to_all(&mut self, id: ConnId, events: Events) {
        let streams = self.association(id).map_or(0, |association| association.streams.len());
        for stream in 0..streams {
            let owner = self.association(id).map_or(NONE, |association| association.owner(stream as u16));
            self.add_events(owner, events);
        }
    }

    // Events.

    fn add_events(&mut self, slot: u32, events: Events) {
        let session = self.slots.get_mut(slot as usize).and_then(|slot| slot.session.as_mut());
        let Some(session) = session.filter(|_| !events.is_empty()) else { return };
        session.events |= events;
        if !core::mem::replace(&mut session.is_queued, true) {
            self.queued.push_back(slot);
        }
    }

    pub fn pop_path_change(&mut self) -> Option<(ConnId, IpAddr, bool)> {
        self.path_changes.pop_front()
    }

    pub fn has_path_changes(&self) -> bool {
        !self.path_changes.is_empty()
    }

    pub fn has_events(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Takes the events of the next session that has any.
    pub fn pop_events(&mut self) -> Option<(ConnId, Events)> {
        loop {
            let slot = self.queued.pop_front()?;
            let entry = self.slots.get_mut(slot as usize)?;
            let id = ConnId { slot, generation: entry.generation };
            let Some(session) = &mut entry.session else { continue };
            session.is_queued = false;
            let events = core::mem::take(&mut session.events);
            if !events.is_empty() {
                return Some((id, events));
            }
        }
    }

    /// The peer of an association is not DDP.
    pub fn refuse(&mut self, id: ConnId) {
        self.stats.count(Counter::SctpDropNoDdp);
        self.end(id, Events::REFUSED);
    }

    /// Ends all sessions of an association.
    pub fn end(&mut self, id: ConnId, why: Events) {
        let Some(association) = self.association(id) else { return };
        association.ended = true;
        let users = association.users;
        self.add_to_all(id, why);
        if users == 0 {
            self.drop_association(id);
        }
    }

    fn drop_association(&mut self, id: ConnId) {
        let place = self.associations.get_mut(id.slot as usize);
        if let Some(place) = place.filter(|place| place.as_ref().is_some_and(|one| one.id == id)) {
            *place = None;
        }
        self.unused.push(id);
    }

    // Receiving.

    /// Returns the next chunk in order of a session: its function if it is a control message, and
    /// its TSN. A session that breaks a rule there ends.
    pub fn front(&mut self, id: ConnId) -> Option<(Option<Function>, Seq)> {
        let &SessionState { association, stream, .. } = self.at(id)?;
        match self.session(association, stream)?.front() {
            Ok(front) => front.map(|(function, tsn)| (function, *tsn)),
            Err(fault) => {
                self.on_fault(association, stream, fault);
                None
            }
        }
    }

    /// Takes the segment that arrived last beyond a gap, if there is still one before it: its
    /// distance from the next one in order, and its TSN.
    pub fn take_early(&mut self, id: ConnId) -> Option<(u16, Seq)> {
        let state = self.at_mut(id)?;
        let (tsn, association, stream) = (state.early.take()?, state.association, state.stream);
        let distance = self.session(association, stream)?.distance_of(&tsn)?;
        Some((distance, tsn))
    }

    /// Removes the next chunk in order, which had `bytes` octets.
    pub fn pop(&mut self, id: ConnId, bytes: usize) {
        let Some(&SessionState { association, stream, .. }) = self.at(id) else { return };
        self.session(association, stream).into_iter().for_each(Session::pop);
        if let Some(session) = self.at_mut(id) {
            session.received_bytes = session.received_bytes.wrapping_add(bytes as u64);
        }
        self.note_end(id);
    }

    /// Takes the Terminate of the peer, if it is next. Returns its TSN.
    pub fn take_terminate(&mut self, id: ConnId) -> Option<Seq> {
        let &SessionState { association, stream, .. } = self.at(id)?;
        let session = self.session(association, stream)?;
        let Ok(Some((Some(Function::Terminate), &tsn))) = session.front() else { return None };
        session.pop();
        self.add_events(id.slot, Events::PEER_CLOSED);
        self.note_end(id);
        Some(tsn)
    }

    /// A session with both Terminates has ended.
    fn note_end(&mut self, id: ConnId) {
        let Some(&SessionState { association, stream, closing, closed, .. }) = self.at(id) else { return };
        let is_free = self.session(association, stream).is_none_or(|session| session.is_free());
        if is_free && closing && !closed {
            if let Some(session) = self.at_mut(id) {
                session.closed = true;
            }
            self.add_events(id.slot, Events::CLOSED);
        }
    }

    /// A session broke a rule, or is one request too many: this side ends it.
    fn on_fault(&mut self, id: ConnId, stream: u16, fault: SessionFault) {
        tracing::debug!(stream, "session of DDP over SCTP: {fault}");
        self.stats.count(Counter::SctpSessionFaults);
        let Some(association) = self.association(id) else { return };
        let owner = association.owner(stream);
        self.discarded.push((id, stream));
        self.terminating.push((id, stream));
        self.add_events(owner, Events::RESET);
    }

    /// Lends a segment to `reader`, if it is the next one of its session and none waits. Returns
    /// what the reader returned, and whether it took the segment.
    #[inline(always)]
    pub fn lend<R>(
        &mut self,
        id: ConnId,
        message: &Message<'_>,
        reader: &mut impl for<'a> PayloadReader<LentMessage<'a>, R>,
    ) -> Option<(R, bool)> {
        let Message { header, payload, .. } = *message;
        let association = self.associations.get_mut(id.slot as usize)?.as_mut()?;
        let owner = association.owner(header.stream);
        let chunks = association.sessions.session(header.stream).filter(|_| association.id == id)?;
        let segment = chunks.next_segment((header.ppid, header.is_unordered, payload))?;
        let entry = self.slots.get_mut(owner as usize)?;
        let session = entry.session.as_mut()?;
        let mut bytes = LentMessage { octets: segment, is_taken: false };
        let outcome = reader.read(Lent {
            conn: ConnId { slot: owner, generation: entry.generation },
            events: session.events,
            acked_bytes: session.acked_bytes,
            // After a SACK the engine sends what is lost by itself.
            wants_transmit: false,
            bytes: &mut bytes,
        })?;
        session.events -= Events::ACKED | Events::WRITABLE | Events::RETRANSMIT;
        if bytes.is_taken {
            chunks.pass();
            session.received_bytes = session.received_bytes.wrapping_add(payload.len() as u64);
        }
        Some((outcome, bytes.is_taken))
    }

    // Sending and ending.

    /// Returns the number of chunks sent on a stream in its session, modulo 2^16.
    pub fn sent_units(&mut self, id: ConnId, stream: u16) -> u16 {
        self.association(id).map_or(0, |association| association.stream(stream).sent_units)
    }

    /// Chunks of a session were sent for the layer above, with so many bytes.
    pub fn on_sent(&mut self, id: ConnId, stream: u16, (units, bytes): (u16, usize)) {
        let owner = self.on_sent_below(id, stream, (units, bytes));
        if let Some(session) = self.slots.get_mut(owner as usize).and_then(|slot| slot.session.as_mut()) {
            session.sent_bytes = session.sent_bytes.wrapping_add(bytes as u64);
        }
    }

    /// Chunks were sent on a stream. Returns the slot of its owner.
    fn on_sent_below(&mut self, id: ConnId, stream: u16, (units, bytes): (u16, usize)) -> u32 {
        let association = self.association(id);
        let Some(state) = association.and_then(|one| one.streams.get_mut(usize::from(stream))) else {
            return NONE;
        };
        state.sent_units = state.sent_units.wrapping_add(units);
        state.outstanding_bytes =
            state.outstanding_bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        state.owner
    }

    /// This side closes a session.
    pub fn close(&mut self, id: ConnId) {
        let Some(session) = self.at_mut(id) else { return };
        if core::mem::replace(&mut session.closing, true) {
            return;
        }
        let (association, stream) = (session.association, session.stream);
        let may_terminate = self.session(association, stream).is_some_and(|session| session.may_terminate());
        if may_terminate {
            self.terminating.push((association, stream));
        } else {
            self.note_end(id);
        }
    }

    /// Takes CLOSED from the events of a session.
    pub fn take_closed(&mut self, id: ConnId) -> Events {
        let Some(session) = self.at_mut(id) else { return Events::empty() };
        let closed = session.events & Events::CLOSED;
        session.events -= closed;
        closed
    }

    /// Returns the session that a Terminate ends, and the DDP-SSN of the Terminate.
    pub fn ending(&mut self, id: ConnId, stream: u16) -> Option<(&mut Session<Seq>, u16)> {
        let sent_units = self.sent_units(id, stream);
        Some((self.session(id, stream)?, sent_units))
    }

    /// A Terminate was sent.
    pub fn on_terminated(&mut self, id: ConnId, stream: u16) {
        let owner = self.on_sent_below(id, stream, (1, TERMINATE_BYTES));
        if let Some(owner) = self.id_of(owner) {
            self.note_end(owner);
        }
    }

    /// A Terminate waits for an acknowledgement, or for a window.
    pub fn terminate_later(&mut self, id: ConnId, stream: u16) {
        self.waiting.push((id, stream));
    }

    /// Gives up a session: the peer gets a Terminate, and what it sends is dropped.
    pub fn abandon(&mut self, id: ConnId) {
        let Some(&SessionState { association, stream, .. }) = self.at(id) else { return };
        self.abandon_stream(association, stream);
    }

    fn abandon_stream(&mut self, id: ConnId, stream: u16) {
        let Some(session) = self.session(id, stream).filter(|session| !session.is_free()) else { return };
        session.abandon();
        self.terminating.push((id, stream));
        self.discarded.push((id, stream));
    }

    /// Separates the owner of a session that has ended from its stream.
    fn detach(&mut self, owner: u32) {
        let Some(session) = self.slots.get_mut(owner as usize).and_then(|slot| slot.session.as_mut()) else {
            return;
        };
        session.stream = NO_STREAM;
        if !core::mem::replace(&mut session.closed, true) {
            self.add_events(owner, Events::PEER_CLOSED | Events::CLOSED);
        }
    }

    /// The owner of a session is gone.
    pub fn release(&mut self, id: ConnId) {
        let Some(&SessionState { association, stream, .. }) = self.at(id) else { return };
        if let Some(entry) = self.slots.get_mut(id.slot as usize) {
            entry.session = None;
            entry.generation = entry.generation.wrapping_add(1);
            self.free.push(id.slot);
        }
        let Some(found) = self.association(association) else { return };
        if let Some(state) = found.streams.get_mut(usize::from(stream)).filter(|state| state.owner == id.slot)
        {
            state.owner = NONE;
        }
        found.users = found.users.saturating_sub(1);
        let (users, ended, is_opener) = (found.users, found.ended, found.is_opener);
        match users {
            0 if ended || is_opener => self.drop_association(association),
            0 => self.newly_idle.push(association),
            _ => {}
        }
    }

    /// Begins the time in which the peers of idle associations may begin a session.
    pub fn watch_idle(&mut self, now: Nanos) {
        let deadline = now + self.idle_timeout;
        if self.idle.len() > 2 * self.associations.len() {
            // Those that have ended leave entries behind.
            let associations = &self.associations;
            self.idle.retain(|(_, id)| {
                associations
                    .get(id.slot as usize)
                    .is_some_and(|one| one.as_ref().is_some_and(|one| one.id == *id))
            });
        }
        while let Some(id) = self.newly_idle.pop() {
            let Some(association) = self.association(id) else { continue };
            association.idle_until = deadline;
            if !core::mem::replace(&mut association.is_watched, true) {
                self.idle.push_back((deadline, id));
            }
        }
    }

    /// Returns when to call [`Table::pop_idle`] next.
    pub fn idle_deadline(&self) -> Option<Nanos> {
        self.idle.front().map(|(at, _)| *at)
    }

    /// Removes an association whose peer began no session in time.
    pub fn pop_idle(&mut self, now: Nanos) -> Option<ConnId> {
        while self.idle_deadline()? <= now {
            let (_, id) = self.idle.pop_front()?;
            let Some(association) = self.association(id) else { continue };
            association.is_watched = false;
            let idle_until = association.idle_until;
            if association.users > 0 {
                continue;
            }
            if idle_until <= now {
                self.stats.count(Counter::SctpIdleAborts);
                self.drop_association(id);
                return Some(id);
            }
            association.is_watched = true;
            self.idle.push_back((idle_until, id));
        }
        None
    }

    // What the transport has to do.

    pub fn has_work(&self) -> bool {
        !(self.established.is_empty()
            && self.newly_idle.is_empty()
            && self.discarded.is_empty()
            && self.resending.is_empty()
            && self.terminating.is_empty()
            && self.unused.is_empty())
    }

    pub fn pop_established(&mut self) -> Option<ConnId> {
        self.established.pop()
    }

    pub fn pop_discarded(&mut self) -> Option<(ConnId, u16)> {
        self.discarded.pop()
    }

    pub fn pop_resending(&mut self) -> Option<ConnId> {
        self.resending.pop()
    }

    pub fn pop_terminating(&mut self) -> Option<(ConnId, u16)> {
        self.terminating.pop()
    }

    pub fn pop_unused(&mut self) -> Option<ConnId> {
        self.unused.pop()
    }

    /// Sessions of an association may try again to send.
    fn retry(&mut self, id: ConnId) {
        if self.waiting.is_empty() {
            return;
        }
        let terminating = &mut self.terminating;
        self.waiting.retain(|&(association, stream)| {
            let is_it = association == id;
            if is_it {
                terminating.push((association, stream));
            }
            !is_it
        });
    }
}

impl UpperLayer for Table {
    fn event(&mut self, id: ConnId, events: Events) {
        if events.contains(Events::ESTABLISHED) {
            if self.association(id).is_none() {
                self.add(id, UNKNOWN, false, self.streams, None);
            }
            self.established.push(id);
        }
        if events.contains(Events::RETRANSMIT) {
            self.resending.push(id);
        }
        if events.contains(Events::WRITABLE) {
            self.retry(id);
            self.add_to_all(id, Events::WRITABLE);
        }
        let why = events & Events::ENDED;
        if !why.is_empty() {
            // The peer has shut down under its sessions.
            let why = if why == Events::CLOSED { Events::RESET } else { why };
            match self.association(id) {
                Some(_) => self.end(id, why),
                None => self.unused.push(id),
            }
        }
    }

    fn message(&mut self, id: ConnId, message: Message<'_>) -> bool {
        let Message { header, tsn, payload } = message;
        let stream = header.stream;
        let chunk = (header.ppid, header.is_unordered, payload);
        let Some(association) = self.association(id) else {
            self.stats.count(Counter::SctpDropNoSession);
            return true;
        };
        let mut owner = association.owner(stream);
        let taken = association.sessions.on_message(stream, chunk, tsn);
        let distance = match taken {
            Ok(distance) => distance,
            Err(SessionFault::NoSession) => {
                self.stats.count(Counter::SctpDropNoSession);
                return true;
            }
            Err(fault) => {
                self.on_fault(id, stream, fault);
                return true;
            }
        };
        let Some(session) = association.sessions.session(stream) else { return true };
        if session.is_broken() {
            return true;
        }
        let front = session.front().map(|front| front.map(|(function, tsn)| (function, *tsn)));
        let begins = matches!(front, Ok(Some((Some(Function::Initiate | Function::EnhancedInitiate), at))) if at == tsn);
        if begins && owner != NONE {
            // The owner of the last session has not left yet.
            self.detach(owner);
            owner = NONE;
        }
        let Some(owner) = self.id_of(owner).or_else(|| self.insert(id, stream)) else {
            // There is no room for another session.
            self.abandon_stream(id, stream);
            return true;
        };
        match front {
            Ok(Some((Some(Function::Terminate), at))) if at == tsn => {
                return self.take_terminate(owner).is_some();
            }
            Ok(Some(_)) => self.add_events(owner.slot, Events::READABLE),
            Ok(None) => {
                if let Some(session) = self.at_mut(owner).filter(|_| distance.is_some()) {
                    session.early = Some(tsn);
                    self.add_events(owner.slot, Events::OUT_OF_ORDER);
                }
            }
            Err(fault) => {
                self.on_fault(id, stream, fault);
                return true;
            }
        }
        false
    }

    fn path(&mut self, id: ConnId, remote: IpAddr, state: PathState) {
        tracing::info!(%remote, "an address of a peer is {state:?}");
        let streams = self.association(id).map_or(0, |association| association.streams.len());
        for stream in 0..streams {
            let owner = self.association(id).map_or(NONE, |association| association.owner(stream as u16));
            let session = self.id_of(owner).map(|session| (session, remote, state == PathState::Active));
            self.path_changes.extend(session);
        }
    }

    fn dropped(&mut self, id: ConnId, stream: u16, tsn: Seq) {
        self.session(id, stream).into_iter().for_each(|session| session.forget(&tsn));
    }

    fn acked(&mut self, id: ConnId, stream: u16, bytes: u32) {
        self.retry(id);
        let association = self.association(id);
        let Some(state) = association.and_then(|one| one.streams.get_mut(usize::from(stream))) else {
            return;
        };
        let stale = bytes.min(state.stale_bytes);
        state.stale_bytes -= stale;
        state.outstanding_bytes = state.outstanding_bytes.saturating_sub(bytes);
        let owner = state.owner;
        if let Some(session) = self.slots.get_mut(owner as usize).and_then(|slot| slot.session.as_mut()) {
            let acked_bytes = session.acked_bytes.wrapping_add((bytes - stale).into());
            session.acked_bytes = acked_bytes.min(session.sent_bytes);
            self.add_events(owner, Events::ACKED);
        }
    }
}
