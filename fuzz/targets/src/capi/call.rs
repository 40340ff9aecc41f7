//! The arguments of a call, each drawn by its kind: handles, mostly live ones of the right end;
//! numbers, mostly small; and memory that is as long as the header asks for and no longer.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

use crate::Input;
use capi::*;

use super::program::{Bytes, End, Program, address, good, pick};

/// Keeps an object that a call made, if the call says so.
type Made = Box<dyn Fn(&mut End)>;

/// A call of one of the two ends. What the arguments point to lives as long as this.
pub struct Call<'c, 'i> {
    pub input: &'c mut Input<'i>,
    pub program: &'c mut Program,
    pub end: usize,
    rooms: Vec<Bytes>,
    /// Keeps what the call has made, if it succeeds.
    made: Vec<Made>,
    /// Of the list or room that was drawn last.
    count: usize,
    size: usize,
}

/// Handles of the ends: the method and the list.
macro_rules! handles {
    ($($name:ident: $type:ty, $list:ident;)*) => {
        $(pub fn $name(&mut self) -> $type {
            pick(self.input, &self.program.ends, self.end, |end| &end.$list).unwrap_or_default()
        })*
    };
}

/// Handles that are pointers. Now and then one is of another kind.
macro_rules! pointers {
    ($($name:ident: $type:ty, $list:ident;)*) => {
        $(pub fn $name(&mut self) -> *mut $type {
            let known = pick(self.input, &self.program.ends, self.end, |end| &end.$list);
            if self.input.u8() >= 250 { self.program.ends[self.end].stack.cast() } else { known.unwrap_or(null_mut()) }
        })*
    };
}

/// Memory for the handle of an object that the call makes.
macro_rules! made {
    ($($name:ident: $type:ty, $list:ident;)*) => {
        $(pub fn $name(&mut self) -> *mut $type {
            self.made(|end, made| end.$list.push(made))
        })*
    };
}

impl<'c, 'i> Call<'c, 'i> {
    pub fn new(input: &'c mut Input<'i>, program: &'c mut Program, end: usize) -> Self {
        Call { input, program, end, rooms: Vec::new(), made: Vec::new(), count: 0, size: 0 }
    }

    /// Checks the answer, and keeps what was made.
    pub fn end(&mut self, answer: i32) {
        if good(answer) {
            let made = std::mem::take(&mut self.made);
            made.iter().for_each(|keep| keep(&mut self.program.ends[self.end]));
        }
    }

    handles! {
        cq: iw_cq, cqs;
        srq: iw_srq, srqs;
        qp: iw_qp, qps;
    }

    pointers! {
        ctx: iw_ctx, ctxs;
        worker: iw_worker, workers;
        window: iw_mw, windows;
        fast: iw_fast_mr, fast;
        capture: iw_capture, captures;
        send_poster: iw_send_poster, send_posters;
        recv_poster: iw_recv_poster, recv_posters;
        srq_poster: iw_srq_poster, srq_posters;
        cq_poller: iw_cq_poller, cq_pollers;
    }

    made! {
        new_capture: *mut iw_capture, captures;
        new_worker: *mut iw_worker, workers;
        new_ctx: *mut iw_ctx, ctxs;
        new_pd: iw_pd, pds;
        new_window: *mut iw_mw, windows;
        new_fast: *mut iw_fast_mr, fast;
        new_cq: iw_cq, cqs;
        new_srq: iw_srq, srqs;
        new_qp: iw_qp, qps;
        new_send_poster: *mut iw_send_poster, send_posters;
        new_recv_poster: *mut iw_recv_poster, recv_posters;
        new_srq_poster: *mut iw_srq_poster, srq_posters;
        new_cq_poller: *mut iw_cq_poller, cq_pollers;
    }

    pub fn pd(&mut self) -> iw_pd {
        pick(self.input, &self.program.ends, self.end, |end| &end.pds).unwrap_or(iw_pd { id: 0 })
    }

    pub fn stack(&mut self) -> *mut iw_stack {
        let end = &self.program.ends[self.end];
        if self.input.u8() >= 250 { end.ctxs[0].cast() } else { end.stack }
    }

    /// A handle whose end ends much else.
    pub fn seldom_worker(&mut self) -> *mut iw_worker {
        if self.input.u8() > 200 { self.worker() } else { null_mut() }
    }

    pub fn seldom_ctx(&mut self) -> *mut iw_ctx {
        if self.input.u8() > 200 { self.ctx() } else { null_mut() }
    }

    pub fn mr(&mut self) -> *mut iw_mr {
        let memory = &self.program.ends[self.end].memory;
        memory.get(self.input.below(memory.len().max(1))).map_or(null_mut(), |memory| memory.handle)
    }

    /// The pointer, or now and then null, or one that is not aligned.
    pub fn given<T>(&mut self, pointer: *mut T) -> *mut T {
        match self.input.u8() {
            254.. => null_mut(),
            253 if align_of::<T>() > 1 => pointer.wrapping_byte_add(1),
            _ => pointer,
        }
    }

    /// Zeroed memory of this length.
    fn bytes<T>(&mut self, length: usize) -> *mut T {
        let bytes = Bytes::new(length);
        let address = bytes.address.cast();
        self.rooms.push(bytes);
        address
    }

    /// Memory with these contents.
    pub fn copied<T: Copy>(&mut self, contents: &[T]) -> *mut T {
        let address = self.bytes(size_of_val(contents));
        // SAFETY: both have as many elements.
        unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), address, contents.len()) };
        address
    }

    fn made<T: Copy + 'static>(&mut self, keep: fn(&mut End, T)) -> *mut T {
        let address = self.bytes::<T>(size_of::<T>());
        // SAFETY: the memory lives as long as the call, and zeros are a handle.
        self.made.push(Box::new(move |end| keep(end, unsafe { address.read() })));
        self.given(address)
    }

    /// Memory for a value.
    pub fn room<T>(&mut self) -> *mut T {
        let address = self.bytes(size_of::<T>());
        self.given(address)
    }

    /// Memory for a struct that states its size, now and then that of another version.
    pub fn sized<T>(&mut self) -> *mut T {
        let size = if self.input.u8() > 230 { self.input.u8().into() } else { size_of::<T>() };
        let address: *mut u32 = self.bytes(size.max(4));
        // SAFETY: there is room for the first field.
        unsafe { address.write(size as u32) };
        self.given(address).cast()
    }

    /// A struct of numbers and pointers, cut to the size that it states.
    fn of_any_size<T: Copy>(&mut self, mut whole: T) -> *mut T {
        let address = self.sized::<T>();
        if address.is_null() || !address.is_aligned() {
            return address;
        }
        // SAFETY: the memory has as many bytes as its first field says; no more are copied.
        unsafe {
            let size = address.cast::<u32>().read();
            (&raw mut whole).cast::<u32>().write(size);
            let length = size_of::<T>().min((size as usize).max(4));
            std::ptr::copy_nonoverlapping((&raw const whole).cast::<u8>(), address.cast(), length);
        }
        address
    }

    /// Memory for a struct, and its [`Call::size`], which may be too small for it.
    pub fn any_room<T>(&mut self) -> *mut T {
        self.size = if self.input.u8() < 200 { size_of::<T>() } else { self.input.below(256) };
        let address = self.bytes(self.size);
        self.given(address)
    }

    /// Memory for some values, which [`Call::count`] numbers.
    pub fn list<T>(&mut self) -> *mut T {
        self.count = self.input.below(80);
        self.size = self.count * size_of::<T>();
        self.bytes(self.size)
    }

    pub fn count(&mut self) -> u32 {
        self.count as u32
    }

    pub fn size(&mut self) -> usize {
        self.size
    }

    pub fn number(&mut self) -> u32 {
        match self.input.u8() {
            255 => self.input.u32(),
            small => small.into(),
        }
    }

    pub fn few(&mut self) -> u32 {
        match self.input.u8() {
            240.. => self.input.u32(),
            small => u32::from(small % 4),
        }
    }

    pub fn flag(&mut self) -> i32 {
        self.input.flag().into()
    }

    pub fn no_processor(&mut self) -> i32 {
        -1
    }

    pub fn deadline(&mut self) -> u64 {
        if self.input.flag() { 0 } else { u64::MAX }
    }

    pub fn offset(&mut self) -> usize {
        if self.input.u8() < 200 { usize::from(self.input.u8()) * 8 } else { self.input.u32() as usize }
    }

    /// A short text of any bytes but NUL.
    pub fn text(&mut self) -> *const c_char {
        let text = self.input.short_bytes().split(|byte| *byte == 0).next().unwrap_or_default();
        self.copied(&[text, &[0]].concat()).cast()
    }

    pub fn counter_name(&mut self) -> *const c_char {
        let stack = self.program.ends[self.end].stack;
        let room: *mut c_char = self.bytes(64);
        // SAFETY: a handle of this library, and memory for values.
        unsafe {
            let all = iw_stack_counters(stack);
            assert!(good(all) && all > 0);
            let number = u32::from(self.input.u16()) % all as u32;
            assert!(good(iw_stack_counter_at(stack, number, room, 64, &mut 0)));
        }
        room
    }

    /// A file that nobody else opens, or one that cannot be created.
    pub fn path(&mut self) -> *const c_char {
        let file = std::env::temp_dir().join(format!("ironwarp-fuzz-{}.pcapng", std::process::id()));
        // The next one is a new file.
        let _ = std::fs::remove_file(&file);
        let path = match self.input.u8() {
            0..200 => file.as_os_str().as_encoded_bytes(),
            200..220 => b"/nonexistent/folder/file",
            _ => b"",
        };
        self.copied(&[path, &[0]].concat()).cast()
    }

    /// The address of the other end, or any.
    fn any_address(&mut self) -> iw_addr {
        let mut chosen = address(2 - self.end as u8);
        match self.input.u8() {
            240.. => {
                chosen.family = self.input.u8().into();
                chosen.ip[usize::from(self.input.u8() % 16)] = self.input.u8();
                (chosen.port, chosen.scope) = (self.input.u16(), self.input.u8().into());
            }
            200..240 => chosen.port = self.input.u8().into(),
            160..200 => chosen = address(1 + self.end as u8),
            _ => {}
        }
        chosen
    }

    pub fn address(&mut self) -> *const iw_addr {
        let chosen = self.any_address();
        let address = self.copied(&[chosen]);
        self.given(address)
    }

    pub fn request(&mut self) -> *const iw_request {
        let known = pick(self.input, &self.program.ends, self.end, |end| &end.requests);
        let mut request = known.unwrap_or_default();
        if self.input.u8() > 240 {
            request.id[self.input.below(2)] = self.input.u64();
        }
        let address = self.copied(&[request]);
        self.given(address)
    }

    pub fn params(&mut self) -> *const iw_conn_params {
        let private_data = self.input.bytes(600);
        // SAFETY: the struct is made of numbers and a pointer that may be null.
        let mut params: iw_conn_params = unsafe { std::mem::zeroed() };
        // SAFETY: memory for the value.
        good(unsafe { iw_conn_params_init_sized(&mut params, size_of::<iw_conn_params>()) });
        params.private_data = self.copied(private_data);
        params.private_data_bytes = private_data.len() as u32;
        if self.input.u8() > 128 {
            (params.extensions, params.revision, params.transport) = (self.few(), self.few(), self.few());
            (params.ird, params.ord) = (i32::from(self.input.u8()) - 1, i32::from(self.input.u16()) - 1);
        }
        if self.input.u8() > 230 {
            params.source = self.any_address();
        }
        self.of_any_size(params)
    }

    pub fn cq_attr(&mut self) -> *const iw_cq_attr {
        let attr = iw_cq_attr { size: 0, depth: self.number(), core: self.core() };
        self.of_any_size(attr)
    }

    pub fn srq_attr(&mut self) -> *const iw_srq_attr {
        let (depth, max_sge, core) = (self.number(), self.number() % 20, self.core());
        self.of_any_size(iw_srq_attr { size: 0, depth, max_sge, core })
    }

    pub fn qp_attr(&mut self) -> *const iw_qp_attr {
        // SAFETY: the struct is made of numbers.
        let mut attr: iw_qp_attr = unsafe { std::mem::zeroed() };
        // SAFETY: memory for the value.
        good(unsafe { iw_qp_attr_init_sized(&mut attr, size_of::<iw_qp_attr>(), self.cq()) });
        (attr.send_depth, attr.recv_depth) = (self.input.u8().into(), self.input.u8().into());
        if self.input.u8() > 200 {
            attr.core = self.core();
            (attr.max_sge, attr.inline_bytes) = (self.input.u8().into(), self.input.u16().into());
            (attr.ird, attr.ord) = (self.input.u16(), self.input.u16());
            attr.complete_on_copy = self.input.u8().into();
        }
        if self.input.flag() {
            attr.srq = self.srq();
        }
        self.of_any_size(attr)
    }

    /// Any core, one of the first, or one that does not exist.
    fn core(&mut self) -> i32 {
        self.few() as i32 - 1
    }

    pub fn set_log(mut self) {
        let function: iw_log_fn = if self.input.flag() { Some(hear) } else { None };
        // SAFETY: the function uses no pointer of the program.
        good(unsafe { iw_set_log(function, null_mut(), self.few()) });
    }
}

/// Receives a line of the log.
unsafe extern "C" fn hear(user: *mut c_void, level: u32, text: *const c_char) {
    // SAFETY: the library passes a NUL-terminated text.
    let text = unsafe { CStr::from_ptr(text) };
    assert!(user.is_null() && (IW_LOG_ERROR..=IW_LOG_DEBUG).contains(&level));
    assert!(!text.to_bytes().contains(&b'\n'));
}
