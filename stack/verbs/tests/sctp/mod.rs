//! The tests of behaviour above the lower layer, once more, over SCTP (RFC 5043).
//!
//! The modules are those of TCP, with another [`common::joined`]. Not here are the tests of what
//! only TCP or MPA has: start-up frames, markers, raw bytes, captures.

mod paths;
mod udp;
mod wire;

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

/// What the modules use: two stacks over SCTP.
pub mod common {
    pub use crate::common::*;

    use core::sync::atomic::{AtomicU64, Ordering};
    use std::sync::Arc;

    use ironwarp::config::{TransportKind, Transports};
    use ironwarp::memory::{MemoryConfig, pair};
    use ironwarp::{Config, MacAddr, Nanos, Stack};

    /// Stacks so far: each has secrets of its own.
    static STACKS: AtomicU64 = AtomicU64::new(0);

    /// A ready-to-receive indication is negotiated, and its receiver waits for it.
    pub const FIRST_MESSAGE_IS_AWAITED: bool = true;

    pub fn joined() -> Pair {
        joined_with(config)
    }

    pub fn joined_with(config: impl Fn(&str) -> Config) -> Pair {
        joined_over(TransportKind::Sctp.into(), config)
    }

    /// Two stacks with these transports.
    pub fn joined_over(transports: Transports, config: impl Fn(&str) -> Config) -> Pair {
        let far_port = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
        let (near, far) = pair(&MemoryConfig::default(), &far_port);
        // Twenty microseconds from one reading to the next: a delayed SACK takes some fifty turns.
        let time = Arc::new(AtomicU64::new(0));
        let clock = move || Nanos(time.fetch_add(20_000, Ordering::Relaxed));
        let node = |address: &str, port| {
            let mut config = config(address);
            config.stack.transport = transports;
            let built = Stack::builder(config).build_replayable(
                port,
                clock.clone(),
                [STACKS.fetch_add(1, Ordering::Relaxed); 2],
            );
            Node::of(built.expect("a stack"))
        };
        let (near, far) = (node("10.0.0.1/24", near), node("10.0.0.2/24", far));
        Pair { near, far, at: FAR.parse().expect("an address") }
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

/// Returns whether two connections to one address share an association.
fn share(change: impl Fn(&mut ironwarp::config::SctpConfig)) -> bool {
    let mut pair = common::joined_with(|address| {
        let mut config = common::config(address);
        change(&mut config.sctp);
        config
    });
    let (first, second) = (pair.connect(), pair.connect());
    let [first, second] = [first, second].map(|ends| pair.near.ctx.query_qp(ends.0).unwrap().local);
    first == second
}

#[test]
fn connections_share_an_association_while_it_has_a_free_stream_unless_configured() {
    // The opener has every second stream.
    assert!(share(|sctp| sctp.outbound_streams = 3));
    assert!(!share(|sctp| sctp.outbound_streams = 2));
    assert!(!share(|sctp| sctp.share_associations = false));
}
