//! The C API as a sequence of calls with handles that are right, stale, foreign or of another kind,
//! on two stacks that are linked by memory. Every pointer that a call gets keeps the promise of the
//! header and no more: lists, texts and structs are as long as they say, and registered memory is
//! freed when the library says that it is unused. So AddressSanitizer sees every access beyond
//! that, and LeakSanitizer what a closed object leaves behind.
//!
//! A panic is `IW_E_INTERNAL` in C; here it ends the run, as does an error number that no call may
//! return.

mod attributes;
mod connections;
mod host;
mod memory;
mod objects;
mod posts;
mod program;
mod split;

use crate::Input;
use program::Program;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut program = Program::open(&mut input);
    while !input.is_empty() {
        call(&mut input, &mut program);
        program.poll(usize::from(input.u8() % 16));
    }
    program.close();
}

fn call(input: &mut Input<'_>, program: &mut Program) {
    let (kind, end) = (input.u8(), usize::from(input.flag()));
    match kind % 40 {
        0..=5 => posts::send(input, program, end),
        6 | 7 => posts::receive(input, program, end),
        8 => posts::reap(input, program, end),
        9 | 10 => memory::register(input, program, end),
        11 => memory::deregister(input, program, end),
        12 => memory::query(input, program, end),
        13 => memory::create_tag(input, program, end),
        14 => memory::use_tag(input, program, end),
        15 | 16 => memory::atomic(input, program, end),
        17 => connections::connect(input, program, end),
        18 => connections::answer(input, program, end),
        19 => connections::end(input, program, end),
        20 => connections::listen(input, program, end),
        21 => connections::address_texts(input),
        22 | 23 => objects::create_qp(input, program, end),
        24 => objects::qp(input, program, end),
        25 => objects::create_cq(input, program, end),
        26 => objects::cq(input, program, end),
        27 => objects::srq(input, program, end),
        28 => objects::context(input, program, end),
        29 => objects::worker(input, program, end),
        30 => objects::counters(input, program, end),
        31 => objects::open_wrongly(input),
        32 => split::split(input, program, end),
        33 | 34 => split::send(input, program, end),
        35 => split::receive(input, program, end),
        36 => split::reap(input, program, end),
        37 => split::close(input, program, end),
        38 => attributes::create(input, program, end),
        _ => host::call(input, program, end),
    }
}
