//! Raw frames between two in-memory ports.

use std::thread;

use ironwarp_port::memory::{self, MemoryConfig, MemoryPort};

use super::*;
use crate::{Budget, StopCondition};

fn stop_after(iterations: u64, warmup: u64) -> StopCondition<'static> {
    StopCondition::unhalted(Budget::iterations(iterations, warmup))
}

fn pair(lose_every: u64) -> (MemoryPort, MemoryPort) {
    // Room for all frames of a test: the sender leaves before the receiver has taken the last ones.
    let config =
        MemoryConfig { mtu_bytes: 9000, rx_frames: 2048, rx_ring_frames: 2048, ..MemoryConfig::default() };
    let (client, server) = memory::pair(&config, &config);
    client.control().lose_every(lose_every);
    (client, server)
}

/// Runs both ends, the far one on a thread of its own.
fn run<N>(
    lose_every: u64,
    client: impl FnOnce(&mut MemoryPort) -> (N, u64),
    server: impl FnOnce(&mut MemoryPort, &StopSignal) -> ServerSlice + Send,
) -> (N, ServerSlice) {
    let (mut client_port, mut server_port) = pair(lose_every);
    let stop = StopSignal::default();
    thread::scope(|scope| {
        let server = scope.spawn(|| server(&mut server_port, &stop));
        let (found, sent) = client(&mut client_port);
        stop.raise(sent);
        (found, server.join().expect("the far end ends"))
    })
}

#[test]
fn every_ping_comes_back_and_is_timed_once() {
    let layout = Layout::new(64, 1500);
    let (slice, server) = run(0, |port| (latency(port, layout, stop_after(100, 10), &mut 0), 0), echo);
    assert_eq!((slice.messages, slice.errors), (100, 0));
    assert_eq!(slice.latency.expect("a latency test").len(), 100);
    assert_eq!((slice.bytes, server.messages), (6400, 110));
}

#[test]
fn a_message_of_many_frames_is_back_when_its_last_frame_is() {
    let layout = Layout::new(100_000, 1500);
    let (slice, server) = run(0, |port| (latency(port, layout, stop_after(5, 0), &mut 0), 0), echo);
    assert_eq!((slice.messages, slice.errors, slice.bytes), (5, 0, 500_000));
    assert_eq!(server.messages, 5 * layout.frames);
}

#[test]
fn a_lost_message_is_an_error_and_the_next_one_is_not_confused() {
    let layout = Layout::new(64, 1500);
    let (slice, _) = run(4, |port| (latency(port, layout, stop_after(12, 0), &mut 0), 0), echo);
    assert_eq!((slice.messages, slice.errors), (9, 3));
}

#[test]
fn a_far_end_that_never_answers_ends_the_slice() {
    let layout = Layout::new(64, 1500);
    let budget = stop_after(1_000_000, 0);
    let (slice, _) = run(0, |port| (latency(port, layout, budget, &mut 0), 0), |_, _| ServerSlice::default());
    assert_eq!(slice.messages, 0);
    assert!(slice.errors > 0);
}

#[test]
fn what_is_blasted_is_counted_where_it_arrives() {
    let layout = Layout::new(65_536, 1500);
    let (sent, server) = run(
        0,
        |port| {
            let (_, sent) = send_frames(port, layout, stop_after(20, 0));
            (sent, sent)
        },
        |port, stop| receive_frames(port, layout, stop),
    );
    assert_eq!(sent, 20 * layout.frames);
    assert_eq!((server.messages, server.bytes, server.errors), (20, 20 * 65_536, 0));
}

#[test]
fn frames_lost_on_the_way_are_missed() {
    let layout = Layout::new(1500, 1500);
    let (sent, server) = run(
        10,
        |port| {
            let (_, sent) = send_frames(port, layout, stop_after(100, 0));
            (sent, sent)
        },
        |port, stop| receive_frames(port, layout, stop),
    );
    assert_eq!(sent, 100);
    assert_eq!((server.messages, server.errors, server.bytes), (90, 10, 90 * 1500));
}

/// One thread sends and receives: every frame that left is counted where it arrived.
#[test]
fn a_thread_that_plays_both_ends_counts_what_arrived() {
    let (mut client, mut server) = memory::pair(&MemoryConfig::default(), &MemoryConfig::default());
    let slice = one_core_transfer(&mut client, &mut server, Layout::new(3000, 1500), stop_after(500, 0));
    assert!(slice.messages >= 500, "{slice:?}");
    assert_eq!((slice.errors, slice.bytes), (0, slice.messages * 3000));
}

#[test]
fn a_message_is_cut_at_the_mtu_and_loses_no_byte() {
    for (bytes, mtu, frames) in [
        (64, 1500, 1),
        (1500, 1500, 1),
        (1501, 1500, 2),
        (65_536, 1500, 44),
        (1 << 20, 9000, 117),
        (0, 1500, 1),
    ] {
        let layout = Layout::new(bytes, mtu);
        assert_eq!(layout.frames, frames, "{bytes} over {mtu}");
        assert_eq!(layout.message_bytes(), bytes);
        let sum: usize = (0..frames).map(|frame_index| layout.payload_bytes(frame_index)).sum();
        assert_eq!(sum as u64, bytes);
    }
}

#[test]
fn a_short_message_is_padded_to_the_shortest_frame() {
    assert_eq!(Layout::new(1, 1500).frame_bytes(0), 60);
    assert_eq!(Layout::new(64, 1500).frame_bytes(0), 78);
}

#[test]
fn a_frame_says_what_it_is_and_others_are_not_ours() {
    let mut frame = [0; 60];
    let source = MacAddr([2, 0, 0, 0, 0, 1]);
    FrameTemplate::new(source, Kind::Data).write(&mut frame, 8);
    assert_eq!((parse_header(&frame), is_data(&frame)), (Some((Kind::Data, 8)), true));
    FrameTemplate::new(source, Kind::Ping).write(&mut frame, 7);
    assert_eq!((parse_header(&frame), is_data(&frame)), (Some((Kind::Ping, 7)), false));
    to_pong(&mut frame);
    assert_eq!(parse_header(&frame), Some((Kind::Pong, 7)));
    frame[12] = 0x08;
    assert_eq!(parse_header(&frame), None);
    assert_eq!(parse_header(&[0xff; 20]), None);
    assert!(!is_data(&frame) && !is_data(&[0xff; 20]));
}
