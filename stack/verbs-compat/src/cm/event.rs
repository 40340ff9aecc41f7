//! Event channels and events.
//!
//! An event is the program's from `rdma_get_cm_event` to `rdma_ack_cm_event`. Identifiers count
//! theirs, since `rdma_destroy_id` waits for them. A channel holds few events: an identifier has a
//! fixed number in its life, and the requests to a listener are bounded by its backlog.

use core::ffi::{c_char, c_int};
use core::ptr;
use std::collections::{BTreeMap, VecDeque};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use verbs::ConnectionRequest;

use super::{CmId, IdState};
use crate::device::static_text;
use crate::engine::{
    EBADF, EBUSY, EINVAL, Errno, EventQueue, Link, Outcome, State, as_minus_one, as_pointer,
    signal_acknowledged, wait_for, wait_for_ever, with,
};
use crate::sys;

#[repr(C)]
pub(crate) struct EventChannel {
    raw: sys::rdma_event_channel,
    pub(crate) events: EventQueue<*mut sys::rdma_cm_event>,
    /// Identifiers that report here.
    pub(crate) users: u32,
}

object!(EventChannel = sys::rdma_event_channel);

#[repr(C)]
pub(crate) struct CmEvent {
    pub(crate) raw: sys::rdma_cm_event,
    /// The identifier that counts it: of a request, the listener.
    owner: Link<CmId>,
    private_data: Box<[u8]>,
}

object!(CmEvent = sys::rdma_cm_event);

impl CmEvent {
    fn is_request(&self) -> bool {
        !self.raw.listen_id.is_null()
    }

    /// Whether it is an event of an identifier, or a request to it.
    fn concerns(&self, id: *mut sys::rdma_cm_id) -> bool {
        self.raw.id == id || self.raw.listen_id == id
    }
}

/// What an event says besides its identifier.
#[derive(Default)]
pub(crate) struct EventDetails<'a> {
    pub(crate) status: c_int,
    pub(crate) private_data: &'a [u8],
    /// The reads that the recipient is asked to allow, and those that it may have outstanding.
    pub(crate) responder_resources: u16,
    pub(crate) initiator_depth: u16,
    pub(crate) qp_num: u32,
}

/// Requests whose events the program has not fetched, with the events. A peer may leave before.
#[derive(Default)]
pub(crate) struct UnseenRequests(BTreeMap<[u64; 2], *mut sys::rdma_cm_event>);

impl UnseenRequests {
    pub(crate) const fn new() -> Self {
        UnseenRequests(BTreeMap::new())
    }
}

/// A channel that was destroyed a moment ago.
pub(crate) struct ClosedChannel {
    channel: *mut sys::rdma_event_channel,
    at: Instant,
    by: ThreadId,
}

/// How long a thread may be on its way into `rdma_get_cm_event` while another destroys the channel:
/// a few time slices of a busy processor.
const LAST_WAIT: Duration = Duration::from_millis(100);
/// Channels that are remembered for such threads.
const CLOSED_MAX: usize = 16;

#[unsafe(no_mangle)]
extern "C" fn rdma_create_event_channel() -> *mut sys::rdma_event_channel {
    as_pointer(with(State::create_event_channel))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_destroy_event_channel(channel: *mut sys::rdma_event_channel) {
    as_minus_one(with(|state| {
        state.destroy_event_channel(channel)?;
        state.remember_closed(channel);
        Ok(())
    }));
}

#[unsafe(no_mangle)]
extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut sys::rdma_event_channel,
    event: *mut *mut sys::rdma_cm_event,
) -> c_int {
    if event.is_null() {
        return as_minus_one(Err(EINVAL));
    }
    as_minus_one(wait_on(channel, |_, found| {
        // SAFETY: the program passes memory for the pointer.
        unsafe { *event = found };
    }))
}

/// Waits for an event of a channel and hands it over.
pub(super) fn wait_on<T>(
    channel: *mut sys::rdma_event_channel,
    mut hand_over: impl FnMut(&mut State, *mut sys::rdma_cm_event) -> T,
) -> Outcome<T> {
    let fd = with(|state| {
        let was_closed_now = state.was_closed_now(channel);
        match state.pools.event_channels.find(channel) {
            Some(found) => Ok(Some(found.events.fd())),
            None if was_closed_now => Ok(None),
            None => Err(EINVAL),
        }
    })?;
    let Some(fd) = fd else { return wait_for_ever() };
    let taken = wait_for(fd, |state| {
        let Some(event) = state.take_event(channel)? else { return Ok(None) };
        Ok(Some(hand_over(state, event)))
    });
    match taken {
        // The channel was there at the start of this call: another thread has destroyed it since.
        Err(EINVAL | EBADF) => wait_for_ever(),
        taken => taken,
    }
}

#[unsafe(no_mangle)]
extern "C" fn rdma_ack_cm_event(event: *mut sys::rdma_cm_event) -> c_int {
    as_minus_one(with(|state| state.acknowledge(event)))
}

impl State {
    pub(super) fn create_event_channel(&mut self) -> Outcome<*mut sys::rdma_event_channel> {
        let events = EventQueue::new()?;
        let raw = sys::rdma_event_channel { fd: events.fd() };
        Ok(self.pools.event_channels.insert(EventChannel { raw, events, users: 0 }))
    }

    pub(super) fn destroy_event_channel(&mut self, channel: *mut sys::rdma_event_channel) -> Outcome {
        if self.pools.event_channels.get(channel)?.users > 0 {
            // Its identifiers would have no channel: the manual page forbids this.
            return Err(EBUSY);
        }
        self.pools.event_channels.take(channel);
        Ok(())
    }

    /// Another thread may be between two waits, as rping's is at its end. With the kernel's device
    /// it would not return from the next one, and here it does not either. A thread that comes
    /// later gets an error.
    fn remember_closed(&mut self, channel: *mut sys::rdma_event_channel) {
        if self.closed_channels.len() == CLOSED_MAX {
            self.closed_channels.pop_front();
        }
        let closed = ClosedChannel { channel, at: Instant::now(), by: thread::current().id() };
        self.closed_channels.push_back(closed);
    }

    fn was_closed_now(&self, channel: *mut sys::rdma_event_channel) -> bool {
        let is_it = |closed: &ClosedChannel| {
            closed.channel == channel
                && closed.at.elapsed() < LAST_WAIT
                && closed.by != thread::current().id()
        };
        self.closed_channels.iter().any(is_it)
    }

    /// Takes the next event of a channel, which is the program's from now on.
    fn take_event(
        &mut self,
        channel: *mut sys::rdma_event_channel,
    ) -> Outcome<Option<*mut sys::rdma_cm_event>> {
        let Some(event) = self.pools.event_channels.get(channel)?.events.pop() else { return Ok(None) };
        self.on_left_queue(event);
        let owner = self.pools.events.get(event)?.owner;
        let owner = self.pools.ids.follow(owner);
        if let Some(id) = self.pools.ids.find(owner) {
            id.unacked += 1;
        }
        Ok(Some(event))
    }

    /// An event is in no queue any more: a request makes room for the next one.
    fn on_left_queue(&mut self, event: *mut sys::rdma_cm_event) {
        let Some(found) = self.pools.events.find(event).filter(|event| event.is_request()) else { return };
        let (child, listener) = (found.raw.id, found.owner);
        if let Some(request) = self.pools.ids.find(child).and_then(|child| child.request.as_ref()) {
            self.unseen_requests.0.remove(&request.to_bits());
        }
        let listener = self.pools.ids.follow(listener);
        if let Some(listener) = self.pools.ids.find(listener) {
            listener.backlog.on_taken();
        }
    }

    pub(super) fn acknowledge(&mut self, event: *mut sys::rdma_cm_event) -> Outcome {
        let event = self.pools.events.take(event).map(|removed| (event, removed)).ok_or(EINVAL)?;
        let (event, removed) = event;
        let owner = self.pools.ids.follow(removed.owner);
        if let Some(id) = self.pools.ids.find(owner) {
            id.unacked -= 1;
        }
        // The event of a synchronous operation, which the program need not acknowledge.
        if let Some(id) = self.pools.ids.find(removed.raw.id).filter(|id| id.raw.event == event) {
            id.raw.event = ptr::null_mut();
        }
        signal_acknowledged();
        Ok(())
    }

    /// Adds an event of an identifier to its channel.
    pub(super) fn push_event(
        &mut self,
        id: *mut sys::rdma_cm_id,
        event_type: sys::rdma_cm_event_type,
        details: &EventDetails<'_>,
    ) {
        self.push_event_of(id, ptr::null_mut(), event_type, details);
    }

    /// The same; `listener` is that of a request.
    pub(super) fn push_event_of(
        &mut self,
        id: *mut sys::rdma_cm_id,
        listener: *mut sys::rdma_cm_id,
        event_type: sys::rdma_cm_event_type,
        details: &EventDetails<'_>,
    ) {
        let private_data: Box<[u8]> = details.private_data.into();
        let mut raw = sys::rdma_cm_event {
            id,
            listen_id: listener,
            event: event_type,
            status: details.status,
            ..Default::default()
        };
        raw.param.conn = sys::rdma_conn_param {
            private_data: if private_data.is_empty() { ptr::null() } else { private_data.as_ptr().cast() },
            private_data_len: private_data.len().try_into().unwrap_or(u8::MAX),
            responder_resources: details.responder_resources.try_into().unwrap_or(u8::MAX),
            initiator_depth: details.initiator_depth.try_into().unwrap_or(u8::MAX),
            qp_num: details.qp_num,
            ..Default::default()
        };
        let owner = self.pools.ids.link(if listener.is_null() { id } else { listener });
        let Some(channel) = self.pools.ids.find(id).map(|id| id.raw.channel) else { return };
        let Some(channel) = self.pools.event_channels.find(channel) else { return };
        channel.events.push(self.pools.events.insert(CmEvent { raw, owner, private_data }));
    }

    /// Adds the event of a request to the channel of its listener, where it is until the program
    /// fetches it or the peer leaves.
    pub(super) fn push_request(
        &mut self,
        id: *mut sys::rdma_cm_id,
        listener: *mut sys::rdma_cm_id,
        details: &EventDetails<'_>,
    ) {
        self.push_event_of(id, listener, sys::RDMA_CM_EVENT_CONNECT_REQUEST, details);
        let Some(found) = self.pools.ids.find(id) else { return };
        let (request, channel) = (found.request.as_ref().map(ConnectionRequest::to_bits), found.raw.channel);
        let event = self.pools.event_channels.find(channel).and_then(|channel| channel.events.last());
        if let (Some(request), Some(event)) = (request, event) {
            self.unseen_requests.0.insert(request, event);
        }
        if let Some(listener) = self.pools.ids.find(listener) {
            listener.backlog.on_added();
        }
    }

    /// The peer of a request has left. If the program has not seen the request, it never does.
    pub(super) fn on_request_ended(&mut self, request: &ConnectionRequest) {
        let Some(event) = self.unseen_requests.0.get(&request.to_bits()).copied() else { return };
        self.on_left_queue(event);
        let Some(id) = self.pools.events.find(event).map(|event| event.raw.id) else { return };
        let Some(found) = self.pools.ids.find(id) else { return };
        found.request = None;
        let channel = found.raw.channel;
        if let Some(channel) = self.pools.event_channels.find(channel) {
            channel.events.remove_unless(|other| *other != event);
        }
        self.pools.events.take(event);
        self.discard_id(id);
    }

    /// Removes the undelivered events of an identifier that is being destroyed. Requests to it are
    /// rejected.
    pub(super) fn remove_events(&mut self, id: *mut sys::rdma_cm_id) {
        for event in self.take_undelivered(id) {
            self.on_left_queue(event);
            let Some(event) = self.pools.events.take(event) else { continue };
            if event.is_request() && event.raw.id != id {
                self.discard_id(event.raw.id);
            }
        }
    }

    /// Takes the events of an identifier, and the requests to it, out of its channel.
    fn take_undelivered(&mut self, id: *mut sys::rdma_cm_id) -> Vec<*mut sys::rdma_cm_event> {
        let Some(channel) = self.pools.ids.find(id).map(|id| id.raw.channel) else { return Vec::new() };
        let Some(channel) = self.pools.event_channels.find(channel) else { return Vec::new() };
        let events = &mut self.pools.events;
        let mut concern = Vec::new();
        channel.events.for_each(|event| {
            if events.find(event).is_some_and(|event| event.concerns(id)) {
                concern.push(event);
            }
        });
        channel.events.remove_unless(|event| !concern.contains(event));
        concern
    }

    /// Moves the undelivered events of an identifier to another channel. Returns the old one.
    pub(super) fn move_events(
        &mut self,
        id: *mut sys::rdma_cm_id,
        to: *mut sys::rdma_event_channel,
    ) -> Outcome<*mut sys::rdma_event_channel> {
        self.pools.event_channels.get(to)?;
        let from = self.pools.ids.get(id)?.raw.channel;
        if from == to {
            return Ok(from);
        }
        let moved = self.take_undelivered(id);
        self.pools.ids.get(id)?.raw.channel = to;
        // The identifiers of requests report where their listener does.
        let children: Vec<_> = moved
            .iter()
            .filter_map(|event| self.pools.events.find(*event).map(|event| event.raw.id))
            .filter(|child| *child != id)
            .collect();
        for child in &children {
            if let Some(child) = self.pools.ids.find(*child) {
                child.raw.channel = to;
            }
        }
        let users = 1 + children.len() as u32;
        if let Some(from) = self.pools.event_channels.find(from) {
            from.users -= users;
        }
        let to = self.pools.event_channels.get(to)?;
        to.users += users;
        moved.into_iter().for_each(|event| to.events.push(event));
        Ok(from)
    }

    /// The connection of an identifier has ended without a report of the stack.
    pub(super) fn on_connection_lost(&mut self, id: *mut sys::rdma_cm_id) {
        let Some(found) = self.pools.ids.find(id) else { return };
        let (event, status) = match found.state {
            IdState::Connected => (sys::RDMA_CM_EVENT_DISCONNECTED, 0),
            IdState::Connecting => (sys::RDMA_CM_EVENT_CONNECT_ERROR, -libc::ECONNABORTED),
            _ => return,
        };
        found.state = IdState::Ended;
        self.push_event(id, event, &EventDetails { status, ..EventDetails::default() });
    }

    /// Returns whether an identifier's channel has an event. Only for one of its own.
    pub(super) fn has_event(&mut self, id: *mut sys::rdma_cm_id) -> bool {
        let channel = self.pools.ids.find(id).map_or(ptr::null_mut(), |id| id.raw.channel);
        self.pools.event_channels.find(channel).is_some_and(|channel| channel.events.len() > 0)
    }
}

/// Completes an operation: at once, or for a synchronous identifier when its event has arrived. An
/// event that reports a failure is the error of the call. The event is the identifier's until the
/// next call.
///
/// The thread may be cancelled while it waits: the operation goes on, and its event is that of the
/// next call.
pub(super) fn complete(id: *mut sys::rdma_cm_id) -> Outcome {
    let channel = with(|state| {
        state.release_last_event(id)?;
        let found = state.pools.ids.get(id)?;
        Ok(found.is_synchronous.then_some(found.raw.channel))
    })?;
    let Some(channel) = channel else { return Ok(()) };
    wait_on(channel, |state, event| {
        let status = state.pools.events.get(event)?.raw.status;
        match state.pools.ids.find(id) {
            Some(found) => found.raw.event = event,
            None => state.acknowledge(event)?,
        }
        if status == 0 { Ok(()) } else { Err(Errno::of_status(status)) }
    })?
}

/// Returns whether an identifier is in a state.
pub(super) fn state_of(state: &mut State, id: *mut sys::rdma_cm_id) -> Outcome<IdState> {
    Ok(state.pools.ids.get(id)?.state)
}

/// The channels that were destroyed a moment ago.
pub(crate) type ClosedChannels = VecDeque<ClosedChannel>;

#[unsafe(no_mangle)]
extern "C" fn rdma_event_str(event: sys::rdma_cm_event_type) -> *const c_char {
    static_text(match event {
        sys::RDMA_CM_EVENT_ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        sys::RDMA_CM_EVENT_ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        sys::RDMA_CM_EVENT_ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        sys::RDMA_CM_EVENT_ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        sys::RDMA_CM_EVENT_CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        sys::RDMA_CM_EVENT_CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        sys::RDMA_CM_EVENT_CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        sys::RDMA_CM_EVENT_UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        sys::RDMA_CM_EVENT_REJECTED => c"RDMA_CM_EVENT_REJECTED",
        sys::RDMA_CM_EVENT_ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        sys::RDMA_CM_EVENT_DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        sys::RDMA_CM_EVENT_DEVICE_REMOVAL => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        sys::RDMA_CM_EVENT_MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        sys::RDMA_CM_EVENT_MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        sys::RDMA_CM_EVENT_ADDR_CHANGE => c"RDMA_CM_EVENT_ADDR_CHANGE",
        sys::RDMA_CM_EVENT_TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        _ => c"UNKNOWN EVENT",
    })
}
