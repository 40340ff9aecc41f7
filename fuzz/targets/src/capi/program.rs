//! The program that calls the library: its two ends with all objects, live and stale, and the
//! checks of each answer.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};

use crate::Input;
use capi::*;

pub const PORT: u16 = 4791;
const POOL_BYTES: usize = 4096;

/// Every right.
pub const ALL_ACCESS: u32 = 31;

/// One stack and what was made on it. Stale handles stay in the lists.
pub struct End {
    pub stack: *mut iw_stack,
    pub workers: Vec<*mut iw_worker>,
    pub ctxs: Vec<*mut iw_ctx>,
    pub pds: Vec<iw_pd>,
    pub cqs: Vec<iw_cq>,
    pub srqs: Vec<iw_srq>,
    pub qps: Vec<iw_qp>,
    pub requests: Vec<iw_request>,
    pub memory: Vec<Memory>,
    pub windows: Vec<*mut iw_mw>,
    pub fast: Vec<*mut iw_fast_mr>,
    pub captures: Vec<*mut iw_capture>,
    /// The ends of split queues.
    pub send_posters: Vec<*mut iw_send_poster>,
    pub recv_posters: Vec<*mut iw_recv_poster>,
    pub srq_posters: Vec<*mut iw_srq_poster>,
    pub cq_pollers: Vec<*mut iw_cq_poller>,
    /// Connection requests are accepted at once.
    accepts: bool,
}

/// Registered memory, and the program's bytes behind it unless the library allocated them.
pub struct Memory {
    pub handle: *mut iw_mr,
    pub info: iw_mr_info,
    pub bytes: Option<Bytes>,
}

/// Bytes of the heap that are freed as soon as the library does not use them.
pub struct Bytes {
    pub address: *mut u8,
    layout: Layout,
}

impl Bytes {
    pub fn new(length: usize) -> Self {
        let layout = Layout::from_size_align(length.max(1), 8).expect("a layout");
        // SAFETY: the layout has a size.
        Bytes { address: unsafe { alloc_zeroed(layout) }, layout }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.address, self.layout) };
    }
}

pub struct Program {
    pub ends: [End; 2],
    /// Requests that were posted, and completions that were reaped.
    pub posted: u64,
    pub reaped: u64,
}

/// Checks an answer. Returns whether the call succeeded.
#[track_caller]
pub fn good(answer: i32) -> bool {
    assert!(answer >= IW_E_SPLIT && answer != IW_E_INTERNAL, "answer {answer}");
    // SAFETY: both texts are NUL-terminated.
    let (text, last) = unsafe { (CStr::from_ptr(iw_error_text(answer)), CStr::from_ptr(iw_last_error())) };
    assert!(answer >= 0 || !text.is_empty() && !last.to_bytes().contains(&b'\n'));
    answer >= 0
}

/// Checks an answer that must be a success.
#[track_caller]
pub fn must(answer: i32) {
    // SAFETY: the text is NUL-terminated.
    let last = unsafe { CStr::from_ptr(iw_last_error()) };
    assert!(good(answer), "answer {answer}: {}", last.to_string_lossy());
}

/// Returns one of a list: mostly of this end, now and then of the other.
pub fn pick<T: Copy>(
    input: &mut Input<'_>,
    ends: &[End; 2],
    end: usize,
    list: impl Fn(&End) -> &Vec<T>,
) -> Option<T> {
    let byte = usize::from(input.u8());
    let all = list(&ends[if byte >= 240 { 1 - end } else { end }]);
    all.get(byte % all.len().max(1)).copied()
}

fn toml(cores: usize, idle: &str, last: usize) -> CString {
    // The least that a configuration may have.
    let frames = 64 + 512 * cores;
    let text = format!(
        "[port]\ndevice.memory = {{}}\nring_size = 64\nrx_frames = {frames}\ntx_frames = {frames}\n[core]\ncount = {cores}\nidle = \"{idle}\"\n\
         [limits]\nqueue_pairs = 8\ncompletion_queues = 8\nshared_receive_queues = 4\nregions = 64\ncontexts = 4\n\
         half_open = 4\n[net]\naddress = \"10.0.0.{last}/24\"\n"
    );
    CString::new(text).expect("no NUL")
}

impl Program {
    /// Opens two stacks of one or two cores, connected unless the input says otherwise.
    pub fn open(input: &mut Input<'_>) -> Self {
        let flags = input.u8();
        let cores = 1 + usize::from(flags & 1);
        let (mut near, mut far) = (null_mut(), null_mut());
        // Workers on threads of the library may sleep.
        let idle = if flags & 8 == 0 { "yield" } else { "sleep" };
        let texts = [toml(cores, idle, 1), toml(cores, idle, 2)];
        // SAFETY: texts and memory for two handles.
        let opened = unsafe {
            iw_stack_open_pair(texts[0].as_ptr(), texts[1].as_ptr(), IW_PAIR_MEMORY, 0, &mut near, &mut far)
        };
        must(opened);
        let mut program =
            Program { ends: [near, far].map(|stack| End::over(stack, cores)), posted: 0, reaped: 0 };
        program.ends[1].accepts = flags & 2 == 0;
        if flags & 4 == 0 {
            program.connect();
        }
        program
    }

    fn connect(&mut self) {
        let [near, far] = &mut self.ends;
        // SAFETY: handles of this end, and values on the stack.
        unsafe {
            must(iw_listen(far.ctxs[0], &address(2)));
            must(iw_connect(near.ctxs[0], near.qps[0], &address(2), null()));
        }
        self.poll(12);
    }

    /// Runs every worker some times and takes the events.
    pub fn poll(&mut self, times: usize) {
        for _ in 0..times {
            for end in &mut self.ends {
                for &worker in &end.workers {
                    // SAFETY: a handle of this library.
                    good(unsafe { iw_worker_poll(worker, 4, null_mut()) });
                }
                end.take_events();
            }
        }
    }

    /// Ends everything. Then no memory may be in use.
    pub fn close(mut self) {
        // SAFETY: there is no function any more.
        must(unsafe { iw_set_log(None, null_mut(), IW_LOG_ERROR) });
        assert!(iw_abi_version() == IW_ABI_VERSION && iw_now_ns() > 0);
        // SAFETY: the text is NUL-terminated.
        assert!(!unsafe { CStr::from_ptr(iw_version()) }.is_empty());
        self.ends.iter_mut().for_each(End::stop_threads);
        self.ends.iter_mut().for_each(|end| end.memory.retain_mut(|memory| !memory.end()));
        self.poll(4);
        for end in &mut self.ends {
            end.close();
        }
        for end in &mut self.ends {
            end.memory.retain_mut(|memory| !memory.end());
            assert!(end.memory.is_empty(), "memory is in use although every worker is closed");
        }
        must(iw_dpdk_cleanup());
    }
}

pub fn address(last: u8) -> iw_addr {
    let mut address = iw_addr { port: PORT, family: 4, ..iw_addr::default() };
    address.ip[..4].copy_from_slice(&[10, 0, 0, last]);
    address
}

impl End {
    fn over(stack: *mut iw_stack, cores: usize) -> Self {
        let mut end = End {
            stack,
            workers: vec![null_mut(); cores],
            ctxs: vec![null_mut()],
            pds: vec![iw_pd { id: 0 }],
            cqs: vec![iw_cq::default()],
            srqs: Vec::new(),
            qps: Vec::new(),
            requests: Vec::new(),
            memory: Vec::new(),
            windows: Vec::new(),
            fast: Vec::new(),
            captures: Vec::new(),
            send_posters: Vec::new(),
            recv_posters: Vec::new(),
            srq_posters: Vec::new(),
            cq_pollers: Vec::new(),
            accepts: false,
        };
        // SAFETY: handles of this library, and memory for values.
        unsafe {
            for (core, worker) in end.workers.iter_mut().enumerate() {
                must(iw_worker_take(stack, core as u32, worker));
            }
            must(iw_ctx_open(stack, &mut end.ctxs[0]));
            must(iw_pd_alloc(end.ctxs[0], &mut end.pds[0]));
            must(iw_cq_create(end.ctxs[0], 64, &mut end.cqs[0]));
        }
        assert!(end.create_qp());
        let bytes = Bytes::new(POOL_BYTES);
        let mut mr = null_mut();
        // SAFETY: the bytes are freed when the library does not use them.
        let registered = unsafe {
            iw_mr_register(end.ctxs[0], end.pds[0], bytes.address.cast(), POOL_BYTES, ALL_ACCESS, &mut mr)
        };
        must(registered);
        end.memory.push(Memory::of(mr, Some(bytes)));
        end
    }

    /// Creates a queue pair with room for a few requests, and posts no receives.
    fn create_qp(&mut self) -> bool {
        let mut qp = iw_qp::default();
        // SAFETY: the struct is made of numbers; handles of this library and memory for values.
        let created = unsafe {
            let mut attr: iw_qp_attr = std::mem::zeroed();
            iw_qp_attr_init_sized(&mut attr, size_of::<iw_qp_attr>(), self.cqs[0]);
            (attr.send_depth, attr.recv_depth) = (16, 16);
            good(iw_qp_create(self.ctxs[0], self.pds[0], &attr, &mut qp))
        };
        if created {
            self.qps.push(qp);
        }
        created
    }

    fn take_events(&mut self) {
        for number in 0..self.ctxs.len() {
            // SAFETY: the struct is made of numbers.
            let mut event: iw_event = unsafe { std::mem::zeroed() };
            event.size = size_of::<iw_event>() as u32;
            // SAFETY: a handle of this library, and memory for an event.
            while unsafe { iw_event_poll(self.ctxs[number], &mut event) } == 1 {
                assert!((IW_EVENT_CONNECT_REQUEST..=IW_EVENT_REQUEST_ENDED).contains(&event.kind));
                assert!(event.private_data_bytes as usize <= event.private_data.len());
                if event.kind == IW_EVENT_CONNECT_REQUEST {
                    self.requests.push(event.request);
                    self.accept(event.request);
                }
            }
        }
    }

    fn accept(&mut self, request: iw_request) {
        if self.accepts && (self.qps.len() == 1 || self.create_qp()) {
            let qp = self.qps[self.qps.len() - 1];
            // SAFETY: a handle of this library and a request on the stack.
            good(unsafe { iw_accept(self.ctxs[0], &request, qp, null()) });
        }
    }

    fn stop_threads(&mut self) {
        for &worker in &self.workers {
            // SAFETY: a handle of this library.
            good(unsafe { iw_worker_stop(worker) });
        }
    }

    /// Closes every handle; most of them are live.
    fn close(&mut self) {
        // SAFETY: handles of this library.
        unsafe {
            self.captures.iter().for_each(|&capture| _ = good(iw_capture_close(capture)));
            self.windows.drain(..).for_each(|window| _ = good(iw_mw_destroy(window)));
            self.fast.drain(..).for_each(|fast| _ = good(iw_fast_mr_destroy(fast)));
            self.ctxs.iter().for_each(|&ctx| _ = good(iw_ctx_close(ctx)));
            // The ends of queues outlive their contexts.
            self.send_posters.drain(..).for_each(|end| _ = good(iw_send_poster_close(end)));
            self.recv_posters.drain(..).for_each(|end| _ = good(iw_recv_poster_close(end)));
            self.srq_posters.drain(..).for_each(|end| _ = good(iw_srq_poster_close(end)));
            self.cq_pollers.drain(..).for_each(|end| _ = good(iw_cq_poller_close(end)));
            self.workers.iter().for_each(|&worker| _ = good(iw_worker_close(worker)));
            good(iw_stack_close(self.stack));
        }
    }
}

impl Memory {
    pub fn of(handle: *mut iw_mr, bytes: Option<Bytes>) -> Self {
        let mut info = iw_mr_info {
            size: size_of::<iw_mr_info>() as u32,
            stag: 0,
            offset: 0,
            length: 0,
            access: 0,
            reserved: 0,
        };
        // SAFETY: a handle of this library, and memory for the value.
        must(unsafe { iw_mr_query(handle, &mut info) });
        Memory { handle, info, bytes }
    }

    /// Deregisters the memory and frees its bytes if they are unused. Returns whether that is so.
    pub fn end(&mut self) -> bool {
        // SAFETY: a handle of this library.
        unsafe {
            good(iw_mr_deregister(self.handle));
            let over = iw_mr_poll_deregistered(self.handle);
            // The handle ended before.
            if good(over) { over == 1 } else { true }
        }
    }
}
