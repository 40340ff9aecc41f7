//! smoltcp between two in-memory ports.

use std::thread;

use ironwarp_port::memory::{self, MemoryConfig, MemoryPort};

use crate::{Budget, Case, PathKind, ServerSlice, Slice, StopCondition, StopSignal, Test};

fn case(test: Test, bytes: u64) -> Case {
    Case { validate: true, ..Case::new(test, bytes, 1500, PathKind::Memory) }
}

fn stop_after(iterations: u64, warmup: u64) -> StopCondition<'static> {
    StopCondition::unhalted(Budget::iterations(iterations, warmup))
}

/// Runs both ends for as many slices as there are budgets, over the same ports; each `lose_every`th
/// frame is lost.
fn run(case: &Case, lose_every: u64, budgets: &[StopCondition<'static>]) -> Vec<(Slice, ServerSlice)> {
    let config = MemoryConfig { rx_frames: 2048, rx_ring_frames: 2048, ..MemoryConfig::default() };
    let (mut client, mut server) = memory::pair(&config, &config);
    client.control().lose_every(lose_every);
    let mut number = 0;
    budgets.iter().map(|&until| slice(case, until, &mut client, &mut server, &mut number)).collect()
}

fn slice(
    case: &Case,
    until: StopCondition<'static>,
    client: &mut MemoryPort,
    server: &mut MemoryPort,
    number: &mut u64,
) -> (Slice, ServerSlice) {
    let stop = StopSignal::default();
    thread::scope(|scope| {
        let server = scope.spawn(|| super::server(server, case, &stop));
        let (slice, sent) = super::client(client, case, until, number);
        stop.raise(sent);
        (slice, server.join().expect("the server ends"))
    })
}

#[test]
fn every_message_comes_back_whole_in_every_slice() {
    for bytes in [1, 64, 1460, 4096, 1 << 20] {
        let case = case(Test::SmoltcpLat, bytes);
        for (slice, server) in run(&case, 0, &[stop_after(20, 2), stop_after(5, 0)]) {
            assert!(slice.messages == 20 || slice.messages == 5, "{bytes}");
            assert_eq!((slice.errors, slice.verified_bytes), (0, slice.messages * bytes), "{bytes}");
            let recorded = slice.latency.expect("a latency test").len();
            assert!(recorded == slice.messages && server.messages >= recorded, "{bytes}");
        }
    }
}

#[test]
fn every_byte_of_a_stream_is_counted_and_checked_where_it_arrives() {
    let case = case(Test::SmoltcpBw, 65_536);
    for (slice, server) in run(&case, 0, &[stop_after(50, 0), stop_after(3, 0)]) {
        assert_eq!((slice.errors, server.errors), (0, 0));
        assert_eq!((server.bytes, server.verified_bytes), (slice.messages * 65_536, server.bytes));
        assert_eq!(server.messages, slice.messages);
    }
}

/// smoltcp retransmits: a lost frame costs time and no byte.
#[test]
fn lost_frames_are_sent_again() {
    for (slice, server) in run(&case(Test::SmoltcpBw, 10_000), 50, &[stop_after(20, 0)]) {
        assert_eq!((slice.errors, server.errors, server.bytes), (0, 0, 20 * 10_000));
    }
}

#[test]
fn a_slice_without_a_server_is_an_error_and_ends() {
    let (mut client, _server) = memory::pair(&MemoryConfig::default(), &MemoryConfig::default());
    let mut number = 7;
    let (slice, _) = super::client(&mut client, &case(Test::SmoltcpLat, 64), stop_after(1, 0), &mut number);
    assert_eq!((slice.messages, slice.errors, number), (0, 1, 8));
    let (slice, sent) = super::client(&mut client, &case(Test::SmoltcpBw, 64), stop_after(1, 0), &mut number);
    assert_eq!((slice.messages, slice.errors, sent), (0, 1, 0));
}
