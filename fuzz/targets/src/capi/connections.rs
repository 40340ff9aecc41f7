//! Connections and addresses.

use std::ffi::CString;
use std::ptr::null;

use crate::Input;
use capi::*;

use super::objects::shortened;
use super::program::{Program, address, good, pick, pointer};

fn any_address(input: &mut Input<'_>, usual: u8) -> iw_addr {
    let mut chosen = address(usual);
    match input.u8() {
        240.. => {
            chosen.family = input.u8().into();
            chosen.ip[usize::from(input.u8() % 16)] = input.u8();
            (chosen.port, chosen.scope) = (input.u16(), input.u8().into());
        }
        200..240 => chosen.port = input.u8().into(),
        _ => {}
    }
    chosen
}

/// Parameters as a caller of any version may give them: they and the private data are as long as
/// they say.
struct Params {
    words: Option<Box<[u64]>>,
    _private_data: Box<[u8]>,
}

impl Params {
    fn read(input: &mut Input<'_>) -> Self {
        let private_data: Box<[u8]> = input.bytes(600).into();
        // SAFETY: the struct is made of numbers and a pointer that may be null.
        let mut params: iw_conn_params = unsafe { std::mem::zeroed() };
        // SAFETY: memory for the value.
        good(unsafe { iw_conn_params_init_sized(&mut params, size_of::<iw_conn_params>()) });
        params.private_data = private_data.as_ptr();
        params.private_data_bytes = private_data.len() as u32;
        if input.u8() > 128 {
            (params.extensions, params.revision) = (input.u8() as u32 % 6, input.u8() as u32 % 4);
            (params.ird, params.ord) = (i32::from(input.u8()) - 1, i32::from(input.u16()) - 1);
        }
        if input.u8() > 230 {
            params.source = any_address(input, 1);
        }
        let size = if input.u8() > 230 { input.u8().into() } else { params.size };
        params.size = size;
        let words = (input.u8() < 200).then(|| shortened(&params, size as usize));
        Params { words, _private_data: private_data }
    }

    fn pointer(&self) -> *const iw_conn_params {
        self.words.as_ref().map_or(null(), |words| words.as_ptr().cast())
    }
}

pub fn connect(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    let Some(qp) = pick(input, &program.ends, end, |end| &end.qps) else { return };
    let (mut remote, params) = (any_address(input, 2 - end as u8), Params::read(input));
    // SAFETY: a handle of this library, and values that are as long as they say.
    good(unsafe { iw_connect(ctx, qp, pointer(input, &mut remote), params.pointer()) });
}

pub fn answer(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    let mut request = pick(input, &program.ends, end, |end| &end.requests).unwrap_or_default();
    if input.u8() > 240 {
        request.id[input.below(2)] = input.u64();
    }
    let private_data: Box<[u8]> = input.bytes(600).into();
    // SAFETY: a handle of this library, and values that are as long as they say.
    unsafe {
        good(iw_request_core(pointer(input, &mut request)));
        if input.flag() {
            let bytes = private_data.len() as u32;
            good(iw_reject(ctx, pointer(input, &mut request), private_data.as_ptr(), bytes));
        } else if let Some(qp) = pick(input, &program.ends, end, |end| &end.qps) {
            let params = Params::read(input);
            good(iw_accept(ctx, pointer(input, &mut request), qp, params.pointer()));
        }
    }
}

pub fn end(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    let Some(qp) = pick(input, &program.ends, end, |end| &end.qps) else { return };
    // SAFETY: a handle of this library.
    good(unsafe { if input.flag() { iw_disconnect(ctx, qp) } else { iw_abort(ctx, qp) } });
}

pub fn listen(input: &mut Input<'_>, program: &mut Program, end: usize) {
    let Some(ctx) = pick(input, &program.ends, end, |end| &end.ctxs) else { return };
    let mut local = any_address(input, 1 + end as u8);
    let kind = input.u8();
    let (local, mut bound) = (pointer(input, &mut local), iw_addr::default());
    // SAFETY: a handle of this library, an address, and memory for another.
    unsafe {
        match kind % 4 {
            0 => good(iw_listen(ctx, local)),
            1 => good(iw_listen_bound(ctx, local, pointer(input, &mut bound))),
            2 => good(iw_unlisten(ctx, local)),
            _ => good(iw_lacks_atomics(ctx, local)),
        };
    }
}

pub fn address_texts(input: &mut Input<'_>) {
    let text = input.short_bytes().split(|byte| *byte == 0).next().unwrap_or(b"");
    let text = CString::new(text).expect("no NUL");
    let mut parsed = iw_addr::default();
    let mut room = vec![0; usize::from(input.u8() % 80)].into_boxed_slice();
    // SAFETY: a text, and memory for values.
    unsafe {
        let known = good(iw_addr_parse(text.as_ptr(), pointer(input, &mut parsed)));
        let size = room.len();
        let written = good(iw_addr_text(&parsed, pointer(input, room.as_mut_ptr()), size));
        if known && written {
            let mut again = iw_addr::default();
            assert!(good(iw_addr_parse(room.as_ptr(), &mut again)));
            assert_eq!((again.ip, again.port, again.family), (parsed.ip, parsed.port, parsed.family));
        }
    }
}
