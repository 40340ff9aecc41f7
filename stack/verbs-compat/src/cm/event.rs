//! Event channels and events.
//!
//! An event is the program's from `rdma_get_cm_event` to `rdma_ack_cm_event`. Identifiers count theirs, since
//! `rdma_destroy_id` waits for them.

use core::ffi::{c_char, c_int};
use core::ptr;
use std::time::Duration;

use super::{CmId, IdState};
use crate::device::static_text;
use crate::engine::{
    EBUSY, EINVAL, EventQueue, Object, Outcome, State, as_minus_one, as_pointer, find, signal_acknowledged,
    wait_for, with,
};
use crate::sys;

#[repr(C)]
pub(crate) struct EventChannel {
    raw: sys::rdma_event_channel,
    pub(crate) events: EventQueue<*mut sys::rdma_cm_event>,
    /// Identifiers that report here.
    pub(crate) users: u32,
}

// SAFETY: the type is `repr(C)` and begins with the structure.
unsafe impl Object for EventChannel {
    type Raw = sys::rdma_event_channel;
}

#[repr(C)]
pub(crate) struct CmEvent {
    pub(crate) raw: sys::rdma_cm_event,
    private_data: Box<[u8]>,
}

// SAFETY: as above.
unsafe impl Object for CmEvent {
    type Raw = sys::rdma_cm_event;
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

/// How long a channel is kept for a thread that is about to wait.
const LAST_WAIT: Duration = Duration::from_millis(5);

#[unsafe(no_mangle)]
extern "C" fn rdma_create_event_channel() -> *mut sys::rdma_event_channel {
    as_pointer(with(State::create_event_channel))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_destroy_event_channel(channel: *mut sys::rdma_event_channel) {
    // Another thread may be between two waits, as rping's is at its end. One that waits stays there; one that comes later
    // gets an error, by which rping ends.
    std::thread::sleep(LAST_WAIT);
    as_minus_one(with(|state| state.destroy_event_channel(channel)));
}

#[unsafe(no_mangle)]
extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut sys::rdma_event_channel,
    event: *mut *mut sys::rdma_cm_event,
) -> c_int {
    as_minus_one(get_event(channel).and_then(|found| {
        if event.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: the program passes a place for the pointer.
        unsafe { *event = found };
        Ok(())
    }))
}

/// Waits for an event of a channel.
pub(super) fn get_event(channel: *mut sys::rdma_event_channel) -> Outcome<*mut sys::rdma_cm_event> {
    // SAFETY: the lock is held, and no reference is kept.
    let fd = with(|_| Ok(unsafe { find::<EventChannel>(channel) }.ok_or(EINVAL)?.events.fd()))?;
    wait_for(fd, |_| {
        // SAFETY: as above.
        let event = unsafe { find::<EventChannel>(channel) }.ok_or(EINVAL)?.events.pop();
        if let Some(event) = event {
            count(event, 1);
        }
        Ok(event)
    })
}

#[unsafe(no_mangle)]
extern "C" fn rdma_ack_cm_event(event: *mut sys::rdma_cm_event) -> c_int {
    as_minus_one(with(|state| state.acknowledge(event)))
}

/// Counts an event as delivered (1) or acknowledged (-1) with its identifier; a request with that of the listener.
fn count(event: *mut sys::rdma_cm_event, change: i32) {
    // SAFETY: the caller holds the lock, and no reference is kept.
    unsafe {
        let Some(event) = find::<CmEvent>(event) else { return };
        let id = if event.raw.listen_id.is_null() { event.raw.id } else { event.raw.listen_id };
        if let Some(id) = find::<CmId>(id) {
            id.unacked += change;
        }
    }
}

impl State {
    pub(super) fn create_event_channel(&mut self) -> Outcome<*mut sys::rdma_event_channel> {
        let events = EventQueue::new()?;
        let raw = sys::rdma_event_channel { fd: events.fd() };
        Ok(self.pools.event_channels.insert(EventChannel { raw, events, users: 0 }))
    }

    pub(super) fn destroy_event_channel(&mut self, channel: *mut sys::rdma_event_channel) -> Outcome {
        // SAFETY: the lock is held, and no reference is kept.
        if unsafe { find::<EventChannel>(channel) }.ok_or(EINVAL)?.users > 0 {
            // Its identifiers would have no channel: the manual page forbids this.
            return Err(EBUSY);
        }
        // SAFETY: as above.
        unsafe { self.pools.event_channels.remove(channel) };
        Ok(())
    }

    pub(super) fn acknowledge(&mut self, event: *mut sys::rdma_cm_event) -> Outcome {
        // SAFETY: the lock is held, and no reference is kept.
        unsafe { find::<CmEvent>(event) }.ok_or(EINVAL)?;
        count(event, -1);
        // SAFETY: as above.
        unsafe { self.pools.events.remove(event) };
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
        // SAFETY: the lock is held, and no reference is kept.
        let Some(channel) = (unsafe { find::<CmId>(id) }).map(|id| id.raw.channel) else { return };
        let event = self.pools.events.insert(CmEvent { raw, private_data });
        // SAFETY: as above.
        match unsafe { find::<EventChannel>(channel) } {
            Some(channel) => channel.events.push(event),
            // SAFETY: as above.
            None => drop(unsafe { self.pools.events.remove(event) }),
        }
    }

    /// Removes the undelivered events of an identifier that is being destroyed. Requests to it are rejected.
    pub(super) fn remove_events(&mut self, id: *mut sys::rdma_cm_id) {
        // SAFETY: the lock is held, and no reference is kept.
        let channel = unsafe { find::<CmId>(id) }.map(|id| id.raw.channel);
        // SAFETY: as above.
        let Some(channel) = channel.and_then(|channel| unsafe { find::<EventChannel>(channel) }) else {
            return;
        };
        let removed = channel.events.remove_unless(|event| {
            // SAFETY: as above.
            unsafe { find::<CmEvent>(*event) }
                .is_some_and(|event| event.raw.id != id && event.raw.listen_id != id)
        });
        for event in removed {
            // SAFETY: as above.
            let Some(event) = (unsafe { self.pools.events.remove(event) }) else { continue };
            if event.raw.listen_id == id && event.raw.id != id {
                self.discard_id(event.raw.id);
            }
        }
    }

    /// Moves the undelivered events of an identifier to another channel.
    pub(super) fn move_events(
        &mut self,
        id: *mut sys::rdma_cm_id,
        to: *mut sys::rdma_event_channel,
    ) -> Outcome {
        // SAFETY: the lock is held. The two channels are different objects.
        unsafe {
            let found = find::<CmId>(id).ok_or(EINVAL)?;
            let from = core::mem::replace(&mut found.raw.channel, to);
            let (from, to) = (find::<EventChannel>(from), find::<EventChannel>(to).ok_or(EINVAL)?);
            to.users += 1;
            let Some(from) = from else { return Ok(()) };
            from.users -= 1;
            let is_other = |event: &*mut sys::rdma_cm_event| {
                find::<CmEvent>(*event).is_some_and(|event| event.raw.id != id && event.raw.listen_id != id)
            };
            from.events.remove_unless(is_other).into_iter().for_each(|event| to.events.push(event));
        }
        Ok(())
    }

    /// Waits for the event of an operation on an identifier without a channel of the program's. Events that report a
    /// failure are errors.
    pub(super) fn is_synchronous(&mut self, id: *mut sys::rdma_cm_id) -> bool {
        // SAFETY: the lock is held, and no reference is kept.
        unsafe { find::<CmId>(id) }.is_some_and(|id| id.is_synchronous)
    }
}

/// Completes an operation: at once, or for a synchronous identifier when its event has arrived. The event is the
/// identifier's until the next one.
pub(super) fn complete(id: *mut sys::rdma_cm_id) -> Outcome {
    let waits = with(|state| {
        if !state.is_synchronous(id) {
            return Ok(None);
        }
        // SAFETY: the lock is held, and no reference is kept.
        let found = unsafe { find::<CmId>(id) }.ok_or(EINVAL)?;
        let channel = found.raw.channel;
        let last = core::mem::replace(&mut found.raw.event, ptr::null_mut());
        if !last.is_null() {
            state.acknowledge(last)?;
        }
        Ok(Some(channel))
    })?;
    let Some(channel) = waits else { return Ok(()) };
    let event = get_event(channel)?;
    with(|_| {
        // SAFETY: as above.
        let (found, raw) =
            unsafe { (find::<CmId>(id).ok_or(EINVAL)?, find::<CmEvent>(event).ok_or(EINVAL)?.raw) };
        found.raw.event = event;
        match raw.status {
            0 => Ok(()),
            status => Err(crate::engine::Errno(status.abs())),
        }
    })
}

/// Returns whether an identifier is in a state.
pub(super) fn state_of(id: *mut sys::rdma_cm_id) -> Option<IdState> {
    // SAFETY: the caller holds the lock, and no reference is kept.
    unsafe { find::<CmId>(id) }.map(|id| id.state)
}

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
