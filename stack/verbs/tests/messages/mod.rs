//! The tests of behaviour above the lower layer, once more, over a transport that is not TCP.
//!
//! The modules are those of TCP, with another [`common::joined`]. Not here are the tests of what
//! only TCP or MPA has: resets and timeouts of a peer that is gone, start-up frames, markers, raw
//! bytes, captures, several ports and cores.

mod lower;

#[path = "../atomics.rs"]
mod atomics;
#[path = "../connections.rs"]
mod connections;
#[path = "../drain.rs"]
mod drain;
#[path = "../errors.rs"]
mod errors;
#[path = "../full_control_ring.rs"]
mod full_control_ring;
#[path = "../immediate.rs"]
mod immediate;
#[path = "../memory.rs"]
mod memory;
#[path = "../memory_release.rs"]
mod memory_release;
#[path = "../notifications.rs"]
mod notifications;
#[path = "../operations.rs"]
mod operations;
#[path = "../queues.rs"]
mod queues;
#[path = "../security.rs"]
mod security;
#[path = "../shared_receives.rs"]
mod shared_receives;
#[path = "../split.rs"]
mod split;

/// What the modules use: two stacks on a network of messages.
mod common {
    pub use crate::common::*;

    use core::sync::atomic::{AtomicU64, Ordering};
    use std::sync::Arc;

    use ironwarp::memory::{MemoryConfig, MemoryPort, pair};
    use ironwarp::{Config, MacAddr, Nanos, Stack};

    use super::lower::OverMessages;

    /// The order in which packets arrive.
    const SEED: u64 = 39;

    /// Each pair has a network of its own.
    static PAIRS: AtomicU64 = AtomicU64::new(0);

    pub const FIRST_MESSAGE_IS_AWAITED: bool = false;

    pub fn joined() -> Pair {
        joined_with(config)
    }

    pub fn joined_with(config: impl Fn(&str) -> Config) -> Pair {
        let far_port = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
        let (near, far) = pair(&MemoryConfig::default(), &far_port);
        let secret = [SEED, PAIRS.fetch_add(1, Ordering::Relaxed)];
        // Twenty microseconds from one reading to the next: a run depends on the seed alone, and
        // a timeout of half a second takes some thousand turns.
        let time = Arc::new(AtomicU64::new(0));
        let clock = move || Nanos(time.fetch_add(20_000, Ordering::Relaxed));
        let node = |address: &str, port: MemoryPort| {
            let builder = Stack::builder(config(address));
            let (stack, mut workers) = builder
                .build_over::<OverMessages<_>, _, _>(vec![vec![port]], clock.clone(), secret)
                .expect("a stack");
            Node::of((stack, workers.remove(0)))
        };
        Pair {
            near: node("10.0.0.1/24", near),
            far: node("10.0.0.2/24", far),
            at: FAR.parse().expect("an address"),
        }
    }
}

/// Streams to one address share a connection, and one of them ends apart from the others.
#[test]
fn streams_of_one_connection_end_apart() {
    let mut pair = common::joined();
    let (first, second) = (pair.connect(), pair.connect());
    let flow = |node: &mut common::Node, qp| {
        let info = node.ctx.query_qp(qp).expect("a queue pair");
        (info.local, info.remote)
    };
    assert_eq!(flow(&mut pair.near, first.0), flow(&mut pair.near, second.0));
    pair.near.ctx.disconnect(first.0).expect("disconnect");
    pair.until("the end of the first", |pair| {
        pair.near.is_disconnected(first.0) && pair.far.is_disconnected(first.1)
    });
    assert!(!pair.near.is_disconnected(second.0) && !pair.far.is_disconnected(second.1));
}
