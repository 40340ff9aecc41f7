//! The list of devices, open contexts with their tables of functions, and asynchronous events.

use core::ffi::{CStr, c_char, c_int};
use core::mem::{offset_of, size_of};
use core::ptr;
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use super::{is_configured, query};
use crate::engine::{
    EINVAL, ENODEV, EventQueue, Outcome, State, as_minus_one, as_number, as_pointer, lock, set_errno,
    signal_acknowledged, variable, wait_for, with,
};
use crate::objects;
use crate::sys;

/// An open context.
#[repr(C)]
pub(crate) struct Context {
    raw: sys::verbs_context,
    events: EventQueue<AsyncEvent>,
}

// The program's pointer is to the field `context` in it.
object!(Context = sys::verbs_context);

/// An asynchronous event, as the program gets it.
#[derive(Clone, Copy)]
pub(crate) struct AsyncEvent {
    pub(crate) event_type: sys::ibv_event_type,
    pub(crate) source: AsyncSource,
}

/// The object of an asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsyncSource {
    Qp(*mut sys::ibv_qp),
    Cq(*mut sys::ibv_cq),
    Srq(*mut sys::ibv_srq),
    Port,
}

/// Events that a context keeps for a program that does not fetch them. Later ones are dropped.
const ASYNC_EVENTS_MAX: usize = 4096;

/// The device, which programs compare pointers of.
struct TheDevice(sys::ibv_device);

// SAFETY: the structure is not changed after its initialisation.
unsafe impl Sync for TheDevice {}
// SAFETY: as above.
unsafe impl Send for TheDevice {}

fn the_device() -> *mut sys::ibv_device {
    static DEVICE: std::sync::LazyLock<TheDevice> = std::sync::LazyLock::new(|| {
        let mut device = sys::ibv_device {
            node_type: sys::IBV_NODE_RNIC,
            transport_type: sys::IBV_TRANSPORT_IWARP,
            ..Default::default()
        };
        copy_text(&mut device.name, c"ironwarp0");
        copy_text(&mut device.dev_name, c"uverbs0");
        // Programs look for files below these; there are none.
        copy_text(&mut device.dev_path, c"/sys/class/infiniband_verbs/ironwarp0");
        copy_text(&mut device.ibdev_path, c"/sys/class/infiniband/ironwarp0");
        TheDevice(device)
    });
    (&raw const DEVICE.0).cast_mut()
}

fn copy_text(into: &mut [c_char], text: &CStr) {
    for (place, byte) in into.iter_mut().zip(text.to_bytes_with_nul()) {
        *place = *byte as c_char;
    }
}

/// Returns the program's pointer of a context.
fn program_pointer(raw: *mut sys::verbs_context) -> *mut sys::ibv_context {
    raw.wrapping_byte_add(offset_of!(sys::verbs_context, context)).cast()
}

/// The reverse.
fn raw_pointer(context: *mut sys::ibv_context) -> *mut sys::verbs_context {
    context.wrapping_byte_sub(offset_of!(sys::verbs_context, context)).cast()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut sys::ibv_device {
    let devices = if is_configured() { 1 } else { 0 };
    if !count.is_null() {
        // SAFETY: the program passes null or memory for the number.
        unsafe { *count = devices };
    }
    let list: Box<[*mut sys::ibv_device; 2]> =
        Box::new([if devices == 1 { the_device() } else { ptr::null_mut() }, ptr::null_mut()]);
    Box::into_raw(list).cast()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_free_device_list(list: *mut *mut sys::ibv_device) {
    if !list.is_null() {
        // SAFETY: the list is one of `ibv_get_device_list`, as the manual page demands.
        drop(unsafe { Box::from_raw(list.cast::<[*mut sys::ibv_device; 2]>()) });
    }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_name(device: *mut sys::ibv_device) -> *const c_char {
    if device == the_device() { c"ironwarp0".as_ptr() } else { ptr::null() }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_guid(device: *mut sys::ibv_device) -> sys::__be64 {
    let of_device = |state: &mut State| if device == the_device() { super::guid(state) } else { None };
    let guid = with(|state| of_device(state).ok_or(ENODEV));
    u64::from_ne_bytes(guid.unwrap_or_default())
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_index(_device: *mut sys::ibv_device) -> c_int {
    -1
}

#[unsafe(no_mangle)]
extern "C" fn ibv_open_device(device: *mut sys::ibv_device) -> *mut sys::ibv_context {
    as_pointer(with(|state| if device == the_device() { state.open_context() } else { Err(ENODEV) }))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_close_device(context: *mut sys::ibv_context) -> c_int {
    as_minus_one(with(|state| state.close_context(context)))
}

/// Returns the context that librdmacm opens for its identifiers.
pub(crate) fn default_context(state: &mut State) -> Outcome<*mut sys::ibv_context> {
    let known = state.pools.contexts.follow(state.listeners.context);
    if !known.is_null() {
        return Ok(program_pointer(known));
    }
    let context = state.open_context()?;
    state.listeners.context = state.pools.contexts.link(raw_pointer(context));
    Ok(context)
}

impl State {
    /// Returns the context at a program's pointer. Fails with EINVAL if there is none.
    pub(crate) fn context(&mut self, context: *mut sys::ibv_context) -> Outcome<&mut Context> {
        self.pools.contexts.get(raw_pointer(context))
    }

    fn open_context(&mut self) -> Outcome<*mut sys::ibv_context> {
        self.open_device()?;
        let events = EventQueue::new()?;
        let mut raw = sys::verbs_context {
            query_port: Some(query::query_port_ex),
            query_device_ex: Some(query::query_device_ex),
            sz: size_of::<sys::verbs_context>() as _,
            ..Default::default()
        };
        raw.context = sys::ibv_context {
            device: the_device(),
            ops: sys::ibv_context_ops {
                alloc_mw: Some(objects::alloc_mw),
                bind_mw: Some(objects::bind_mw),
                dealloc_mw: Some(objects::dealloc_mw),
                poll_cq: Some(objects::poll_cq),
                req_notify_cq: Some(objects::req_notify_cq),
                post_srq_recv: Some(objects::post_srq_recv),
                post_send: Some(objects::post_send),
                post_recv: Some(objects::post_recv),
                ..Default::default()
            },
            cmd_fd: -1,
            async_fd: events.fd(),
            num_comp_vectors: 1,
            // Marks the structure as a part of `verbs_context`.
            abi_compat: usize::MAX as *mut _,
            ..Default::default()
        };
        let raw = self.pools.contexts.insert(Context { raw, events });
        self.contexts.push(raw);
        Ok(program_pointer(raw))
    }

    fn close_context(&mut self, context: *mut sys::ibv_context) -> Outcome {
        self.context(context)?;
        let raw = raw_pointer(context);
        self.contexts.retain(|other| *other != raw);
        self.pools.contexts.take(raw);
        Ok(())
    }

    /// Adds an asynchronous event to a context, or to all of them.
    pub(crate) fn push_async(&mut self, owner: Option<*mut sys::ibv_context>, event: AsyncEvent) {
        let is_owner =
            |raw: &&*mut sys::verbs_context| owner.is_none_or(|owner| program_pointer(**raw) == owner);
        let Self { contexts, pools, .. } = self;
        for raw in contexts.iter().filter(is_owner) {
            let context = pools.contexts.find(*raw);
            if let Some(context) = context.filter(|context| context.events.len() < ASYNC_EVENTS_MAX) {
                context.events.push(event);
            }
        }
    }

    /// Removes the events of an object that is being destroyed.
    pub(crate) fn remove_async(&mut self, source: AsyncSource) {
        let Self { contexts, pools, .. } = self;
        for raw in contexts.iter() {
            if let Some(context) = pools.contexts.find(*raw) {
                context.events.remove_unless(|event| event.source != source);
            }
        }
    }
}

impl AsyncEvent {
    fn to_raw(self) -> sys::ibv_async_event {
        let mut element = sys::ibv_async_event__bindgen_ty_1::default();
        match self.source {
            AsyncSource::Qp(qp) => element.qp = qp,
            AsyncSource::Cq(cq) => element.cq = cq,
            AsyncSource::Srq(srq) => element.srq = srq,
            AsyncSource::Port => element.port_num = 1,
        }
        sys::ibv_async_event { element, event_type: self.event_type }
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn ibv_get_async_event(
    context: *mut sys::ibv_context,
    event: *mut sys::ibv_async_event,
) -> c_int {
    // Before an event is taken, which would be lost.
    if event.is_null() {
        return as_minus_one(Err(EINVAL));
    }
    as_minus_one(get_async_event(context).map(|found| {
        // SAFETY: the program passes memory for the event.
        unsafe { *event = found.to_raw() };
    }))
}

fn get_async_event(context: *mut sys::ibv_context) -> Outcome<AsyncEvent> {
    let fd = with(|state| Ok(state.context(context)?.events.fd()))?;
    wait_for(fd, |state| {
        let event = state.context(context)?.events.pop();
        if let Some(event) = event {
            state.count_async(event.source, 1);
        }
        Ok(event)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_ack_async_event(event: *mut sys::ibv_async_event) {
    if event.is_null() {
        return;
    }
    // SAFETY: the program passes an event that it got.
    let event = unsafe { *event };
    // SAFETY: the type of the event says which field is in use.
    let source = unsafe {
        match event.event_type {
            sys::IBV_EVENT_CQ_ERR => AsyncSource::Cq(event.element.cq),
            sys::IBV_EVENT_SRQ_ERR | sys::IBV_EVENT_SRQ_LIMIT_REACHED => AsyncSource::Srq(event.element.srq),
            sys::IBV_EVENT_PORT_ACTIVE | sys::IBV_EVENT_PORT_ERR => AsyncSource::Port,
            _ => AsyncSource::Qp(event.element.qp),
        }
    };
    let Ok(mut state) = lock() else { return };
    state.count_async(source, -1);
    signal_acknowledged();
}

#[unsafe(no_mangle)]
extern "C" fn ibv_query_device(context: *mut sys::ibv_context, attr: *mut sys::ibv_device_attr) -> c_int {
    as_number(with(|state| {
        state.context(context)?;
        if attr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: as above.
        unsafe { *attr = query::device_attr(state.device()?) };
        Ok(())
    }))
}

/// The folder of the kernel's files. As in rdma-core, the environment may name another one.
const SYSFS_VARIABLE: &CStr = c"SYSFS_PATH";

/// Open MPI requires the folder `class/infiniband` in it.
#[unsafe(no_mangle)]
extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<CString> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        variable(SYSFS_VARIABLE)
            .and_then(|path| CString::new(path.into_vec()).ok())
            .unwrap_or_else(|| c"/sys".into())
    });
    path.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_read_sysfs_file(
    _folder: *const c_char,
    _file: *const c_char,
    _buffer: *mut c_char,
    _size: usize,
) -> c_int {
    set_errno(libc::ENOENT);
    -1
}
