//! Deregistered memory is released by later calls of the application, and never by a core.

use super::common;

use common::Node;
use ironwarp::{Access, RemoteMemory, SendWr, StableBytes};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

/// docs/semantics.md, "Memory": a dropped region belongs to the table; calls for events release it
/// after the core was quiescent, a bounded number of regions in a call.
#[test]
fn regions_dropped_while_a_core_is_busy_are_released_by_calls_for_events() {
    let mut pair = common::joined();
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

/// Memory that records the thread that drops it.
struct Recorded {
    bytes: Vec<u8>,
    dropped_by: Arc<Mutex<Vec<ThreadId>>>,
}

// SAFETY: the bytes of a vector stay in place while the vector is neither changed nor dropped.
unsafe impl StableBytes for Recorded {
    fn stable_bytes(&mut self) -> NonNull<[u8]> {
        self.bytes.stable_bytes()
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.dropped_by.lock().expect("no panic").push(std::thread::current().id());
    }
}

/// A destructor of the application may unmap gigabytes, or wait. The core's thread never runs one.
#[test]
fn a_core_drops_no_owner_of_memory() {
    let (mut pair, dropped_by) = (common::joined(), Arc::default());
    let (near, _) = pair.connect();
    let owner = Recorded { bytes: vec![0; 64], dropped_by: Arc::clone(&dropped_by) };
    let region = pair.near.ctx.register(pair.near.pd, owner, Access::LOCAL_WRITE).expect("room");
    let (source, target) = (pair.near.memory(&[7; 64]), pair.far.memory(&[0; 64]));
    let gather = [source.slice(0, 64).expect("in bounds")];
    let to = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    pair.near.ctx.post_send(near, &SendWr::write(1, &gather, to)).expect("room");
    while pair.near.worker.poll(1).work == 0 {}
    // The core has just read memory, so the region cannot be released at once.
    drop(region);
    let Node { mut worker, mut ctx, .. } = pair.near;
    let core = std::thread::spawn(move || {
        for _ in 0..1_000 {
            worker.poll(1);
        }
        worker
    });
    let _worker = core.join().expect("no panic");
    assert_eq!(*dropped_by.lock().expect("no panic"), []);
    while ctx.poll_event().is_some() {}
    assert_eq!(*dropped_by.lock().expect("no panic"), [std::thread::current().id()]);
}
