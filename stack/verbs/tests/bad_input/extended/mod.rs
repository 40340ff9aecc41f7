//! Invalid messages of RFC 7306: Atomic Requests, Atomic Responses, Immediate Data (s8).
//!
//! RFC 7306 names codes for few of these errors. The others are those of a Read Request
//! (RFC 5040 s7.2) and of DDP (RFC 5041 s7.2). A wrong length is an unspecified error, or DDP's if
//! it passes the end of the buffer.

mod atomics;
mod immediates;
mod responses;

use ironwarp::{Access, AlignedBuf, Extensions, Region};
use proptest::prelude::*;

use crate::bad_input::bench::{Begins, Bench};
use crate::common::contents;

/// Octets of the memory with words in it.
const PAGE: usize = 4096;

/// A node whose connections have the messages of RFC 7306.
fn bench() -> Bench {
    Bench::with(|config| config.rdmap.extensions = Extensions::Rfc7306)
}

fn begins() -> impl Strategy<Value = Begins> {
    prop_oneof![Just(Begins::Node), Just(Begins::Peer)]
}

/// All rights, the right to change words by atomic operations included.
fn every() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

/// A page of words that no bad request may change.
fn filled() -> AlignedBuf {
    let mut page = AlignedBuf::pages(PAGE).unwrap();
    page.fill(0xa7);
    page
}

fn words(bench: &Bench) -> Region {
    bench.scene.node.ctx.register(bench.scene.node.pd, filled(), every()).unwrap()
}

#[track_caller]
fn is_untouched(words: &Region) {
    assert!(contents(words) == vec![0xa7; PAGE], "a word was touched");
}
