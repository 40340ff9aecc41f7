//! Deregistered memory is released without further calls of the application.

mod common;

use common::Pair;
use ironwarp::{RemoteMemory, SendWr};

/// docs/semantics.md, "Memory": a dropped region belongs to the table; the idle core releases it, a bounded number
/// of regions in an iteration.
#[test]
fn regions_dropped_while_a_core_is_busy_are_released_when_it_is_idle() {
    let mut pair = Pair::new();
    let (near, _) = pair.connect();
    let (source, target) = (pair.near.memory(&[7; 64]), pair.far.memory(&[0; 64]));
    let regions: Vec<_> = (0..40).map(|_| pair.near.memory(&[0; 64])).collect();
    // The core has just read memory, so it is online when the regions are dropped.
    let gather = [source.slice(0, 64).expect("in bounds")];
    let to = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    pair.near.ctx.post_send(near, &SendWr::write(1, &gather, to)).expect("room");
    while pair.near.worker.poll(1).work == 0 {}
    let before = pair.near.worker.resource_usage().regions;
    drop(regions);
    pair.until("everything given back", |pair| pair.near.worker.resource_usage().regions + 40 <= before);
}
