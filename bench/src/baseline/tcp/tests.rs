//! Linux sockets over loopback and over a veth pair, with a handful of messages.

use std::io::{self, Write as _};
use std::thread;

use super::*;
use crate::baseline::namespaces::NamespaceError;
use crate::baseline::stream;
use crate::{Budget, Case, PathKind, ServerSlice, Slice, StopCondition, StopSignal, Test};

fn stop_after(iterations: u64, warmup: u64) -> StopCondition<'static> {
    StopCondition::unhalted(Budget::iterations(iterations, warmup))
}

fn case(test: Test, bytes: u64, wait: Wait) -> Case {
    Case { wait, validate: true, ..Case::new(test, bytes, 1500, PathKind::Lo) }
}

/// Runs a case between two threads; returns what both ends found.
fn run(case: &Case, budget: StopCondition<'static>, veth: Option<&VethPair>) -> (Slice, ServerSlice) {
    let path = veth.map(VethPair::server_path);
    let listener = listen_in(path.as_deref()).expect("a listener");
    let remote = listener.local_addr().expect("bound");
    let stop = StopSignal::default();
    thread::scope(|scope| {
        let server = scope.spawn(|| -> io::Result<ServerSlice> {
            let mut conn = accept(&listener)?;
            stream::server(&mut conn, case, &stop)
        });
        let mut conn = TcpConnection::connect(remote, veth).expect("the far end listens");
        let (slice, sent) = stream::client(&mut conn, case, budget).expect("the far end serves");
        stop.raise(sent);
        let server = server.join().expect("the far end ends").expect("the stream holds");
        (slice, server)
    })
}

#[test]
fn every_message_comes_back_whole_whichever_way_the_ends_wait() {
    for wait in [Wait::Spin, Wait::Block] {
        let (slice, server) = run(&case(Test::TcpLat, 64, wait), stop_after(20, 2), None);
        assert_eq!((slice.messages, slice.bytes, slice.errors), (20, 20 * 64, 0));
        assert_eq!(slice.latency.expect("a latency test").len(), 20);
        assert_eq!((slice.verified_bytes, server.messages), (20 * 64, 22));
    }
}

#[test]
fn a_message_larger_than_a_socket_buffer_comes_back_too() {
    let (slice, _) = run(&case(Test::TcpLat, 8 << 20, Wait::Spin), stop_after(2, 0), None);
    assert_eq!((slice.messages, slice.errors), (2, 0));
}

#[test]
fn every_byte_sent_one_way_is_counted_and_checked_where_it_arrives() {
    for wait in [Wait::Spin, Wait::Block] {
        let (slice, server) = run(&case(Test::TcpBw, 65_536, wait), stop_after(50, 0), None);
        assert_eq!(server.bytes, 50 * 65_536);
        assert_eq!((server.messages, server.errors, server.verified_bytes), (50, 0, server.bytes));
        assert_eq!(slice.bytes, server.bytes);
    }
}

#[test]
fn a_far_end_that_hangs_up_is_an_error_and_not_a_hang() {
    let listener = listen_in(None).expect("a listener");
    let remote = listener.local_addr().expect("bound");
    let mut conn = TcpConnection::connect(remote, None).expect("the far end listens");
    drop(accept(&listener).expect("a connection"));
    assert!(stream::client(&mut conn, &case(Test::TcpLat, 64, Wait::Spin), stop_after(5, 0)).is_err());
}

#[test]
fn a_veth_pair_joins_two_namespaces_at_the_mtu_asked_for() {
    let veth = match VethPair::new(9000) {
        Ok(veth) => veth,
        // Without root there are no namespaces; the refusal itself is then what is tested.
        Err(error) => {
            assert!(matches!(error, NamespaceError::Denied(_)), "{error}");
            return writeln!(std::io::stderr(), "\nSKIPPED: no veth pair: {error}").expect("a terminal");
        }
    };
    let show = || std::process::Command::new("ip").args(["-o", "link", "show", "iw0"]).output();
    let shown = veth.in_client_namespace(show).expect("the namespace").expect("iproute2");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("mtu 9000"), "{shown}");
    let listener = listen_in(Some(&veth.server_path())).expect("a listener in the far namespace");
    assert_eq!(listener.local_addr().expect("bound").ip(), SERVER_ADDR);
    let (slice, server) = run(&case(Test::TcpLat, 64, Wait::Spin), stop_after(10, 0), Some(&veth));
    assert_eq!((slice.messages, slice.errors, server.messages), (10, 0, 10));
    let (_, server) = run(&case(Test::TcpBw, 1 << 20, Wait::Spin), stop_after(4, 0), Some(&veth));
    assert_eq!((server.bytes, server.errors), (4 << 20, 0));
}
