//! Linux sockets over loopback and over a veth pair, with a handful of messages.

use std::io;
use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;
use crate::baseline::namespaces::{FAR, NamespaceError, VethPair};
use crate::{Budget, Case, FarSlice, Pace, PathKind, Slice, StopSignal, Test, Wait};

fn pace(iterations: u64, warmup: u64) -> Pace<'static> {
    static NEVER: AtomicBool = AtomicBool::new(false);
    Pace { budget: Budget::iterations(iterations, warmup), halt: &NEVER }
}

fn case(test: Test, bytes: u64, wait: Wait) -> Case {
    Case { wait, validate: true, ..Case::new(test, bytes, 1500, PathKind::Lo) }
}

/// Runs a case between two threads; returns what both ends found.
fn run(case: &Case, budget: Pace<'static>, veth: Option<&VethPair>) -> (Slice, FarSlice) {
    let path = veth.map(VethPair::far_path);
    let listener = listen_in(path.as_deref()).expect("a listener");
    let remote = listener.local_addr().expect("bound");
    let stop = StopSignal::default();
    thread::scope(|scope| {
        let far = scope.spawn(|| -> io::Result<FarSlice> {
            let mut link = accept(&listener)?;
            if case.test.is_latency() { echo(&mut link, case, &stop) } else { sink(&mut link, case, &stop) }
        });
        let mut link = Link::connect(remote, veth).expect("the far end listens");
        let (slice, sent) = match case.test.is_latency() {
            true => (latency(&mut link, case, budget).expect("the far end echoes"), 0),
            false => bandwidth(&mut link, case, budget).expect("the far end reads"),
        };
        stop.raise(sent);
        let far = far.join().expect("the far end ends").expect("the stream holds");
        (slice, far)
    })
}

#[test]
fn every_message_comes_back_whole_whichever_way_the_ends_wait() {
    for wait in [Wait::Spin, Wait::Block] {
        let (slice, far) = run(&case(Test::TcpLat, 64, wait), pace(20, 2), None);
        assert_eq!((slice.messages, slice.bytes, slice.errors), (20, 20 * 64, 0));
        assert_eq!(slice.latency.expect("a latency test").len(), 20);
        assert_eq!((slice.verified_bytes, far.messages), (20 * 64, 22));
    }
}

#[test]
fn a_message_larger_than_a_socket_buffer_comes_back_too() {
    let (slice, _) = run(&case(Test::TcpLat, 8 << 20, Wait::Spin), pace(2, 0), None);
    assert_eq!((slice.messages, slice.errors), (2, 0));
}

#[test]
fn every_byte_sent_one_way_is_counted_and_checked_where_it_arrives() {
    for wait in [Wait::Spin, Wait::Block] {
        let (slice, far) = run(&case(Test::TcpBw, 65_536, wait), pace(50, 0), None);
        assert_eq!(far.bytes, 50 * 65_536);
        assert_eq!((far.messages, far.errors, far.verified_bytes), (50, 0, far.bytes));
        assert_eq!(slice.bytes, far.bytes);
    }
}

#[test]
fn a_far_end_that_hangs_up_is_an_error_and_not_a_hang() {
    let listener = listen_in(None).expect("a listener");
    let remote = listener.local_addr().expect("bound");
    let mut link = Link::connect(remote, None).expect("the far end listens");
    drop(accept(&listener).expect("a connection"));
    assert!(latency(&mut link, &case(Test::TcpLat, 64, Wait::Spin), pace(5, 0)).is_err());
}

#[test]
fn a_veth_pair_joins_two_namespaces_at_the_mtu_asked_for() {
    let veth = match VethPair::new(9000) {
        Ok(veth) => veth,
        // Without root there are no namespaces; the refusal itself is then what is tested.
        Err(error) => return assert!(matches!(error, NamespaceError::Refused(_)), "{error}"),
    };
    let show = || std::process::Command::new("ip").args(["-o", "link", "show", "iw0"]).output();
    let shown = veth.near(show).expect("the namespace").expect("iproute2");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("mtu 9000"), "{shown}");
    let listener = listen_in(Some(&veth.far_path())).expect("a listener in the far namespace");
    assert_eq!(listener.local_addr().expect("bound").ip(), FAR);
    let (slice, far) = run(&case(Test::TcpLat, 64, Wait::Spin), pace(10, 0), Some(&veth));
    assert_eq!((slice.messages, slice.errors, far.messages), (10, 0, 10));
    let (_, far) = run(&case(Test::TcpBw, 1 << 20, Wait::Spin), pace(4, 0), Some(&veth));
    assert_eq!((far.bytes, far.errors), (4 << 20, 0));
}
