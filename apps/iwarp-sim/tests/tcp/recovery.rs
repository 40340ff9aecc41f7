//! How soon what was lost is there: the end of a flight, and the time after an outage. 10 Gbit/s, a round trip of 50 µs.

use std::collections::BTreeSet;

use ironwarp_port::memory::Ipv4Tcp;
use ironwarp_sim::LinkConfig;
use ironwarp_stats::Counter;
use ironwarp_tcp::TcpConfig;
use ironwarp_types::{Entropy, Nanos, SeededEntropy};
use iwarp_sim::tcp::{EndAction, Outcome, RxFilter, Stack, Task, TwoHostRun};

use crate::{CONTROLS, cable};

/// The empty cable's round trip.
const RTT: Nanos = Nanos::from_micros(50);

/// How late the timer wheel may be: a tick to be set and a tick to fire.
const WHEEL: Nanos = Nanos(2 << 14);

/// Loses, once each, the segments of the stream with these numbers.
fn lose(segments: &[u64]) -> RxFilter {
    let mut lost: BTreeSet<u64> = segments.iter().copied().collect();
    let mut first = None;
    Box::new(move |_now, frame| {
        if lost.is_empty() {
            return false;
        }
        let Some(segment) = Ipv4Tcp::locate(frame).filter(|segment| !segment.payload_range().is_empty())
        else {
            return false;
        };
        let number: [u8; 4] = frame[segment.l4 + 4..segment.l4 + 8].try_into().expect("four bytes");
        let number = u32::from_be_bytes(number);
        let offset = u64::from(number.wrapping_sub(*first.get_or_insert(number)));
        assert_eq!(offset % MSS_BYTES, 0, "segments stay whole");
        lost.remove(&(offset / MSS_BYTES))
    })
}

/// A transfer whose sender stays open, so that no FIN tells of a loss.
fn transfer(stack: Stack, bytes: u64) -> TwoHostRun {
    let mut two_host_run = TwoHostRun::new([stack; 2], cable(), bytes);
    two_host_run.tasks[0].end = EndAction::Stay;
    two_host_run.tasks[1] = Task { notes_arrivals: true, ..two_host_run.tasks[1].clone() };
    two_host_run.check_every = 1;
    two_host_run
}

fn run(two_host_run: &TwoHostRun, lost: &[u64]) -> Outcome {
    let outcome = two_host_run.run_with([None, Some(lose(lost))]);
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(outcome.finished);
    outcome
}

/// When all bytes were there.
fn done_at(outcome: &Outcome) -> Nanos {
    outcome.task_progress[1].done_at.expect("all bytes")
}

/// Bytes of a transfer of some flights: the round trip has been measured, and the window is open.
const BYTES: u64 = 60_000;

/// Payload of a segment with time stamps at an MTU of 1500.
const MSS_BYTES: u64 = 1_448;

/// The number of the last segment, which is a short one.
const LAST: u64 = BYTES / MSS_BYTES;

/// The time that all segments take on the wire, which the longest round trip has on top of the cable's.
const FLIGHT: Nanos = Nanos::from_micros(50);

/// RFC 8985 s7.2: the probe goes out after two round trips, and the timer may be late. The repair takes two more.
fn two_round_trips_and_the_probe_timer() -> Nanos {
    let round_trip = RTT + FLIGHT;
    round_trip.times(2) + round_trip.times(2) + WHEEL
}

/// What is lost at the end of a transfer comes this much later than it would have.
fn repair_time(stack: Stack, lost: &[u64]) -> Nanos {
    let two_host_run = transfer(stack, BYTES);
    let (whole, damaged) = (run(&two_host_run, &[]), run(&two_host_run, lost));
    assert_eq!(damaged.hosts[0].read(Counter::TcpTimeouts), 0, "{stack:?}: a timeout repaired {lost:?}");
    done_at(&damaged).since(done_at(&whole))
}

/// RFC 8985 s7: nothing follows the last segment, so only a probe can tell. It allows for the delay of the peer's
/// acknowledgement, since one segment alone may be waiting for that.
#[test]
fn a_lost_last_segment_is_repaired_by_a_probe() {
    for (name, stack) in CONTROLS {
        let took = repair_time(stack, &[LAST]);
        println!("{name}: the last segment {took:?} later");
        let ack_delay = TcpConfig::default().ack_delay_max;
        assert!(took <= two_round_trips_and_the_probe_timer() + ack_delay, "{name}: {took:?}");
    }
}

/// The probe repeats the last of them, and its acknowledgement tells of the other.
#[test]
fn two_lost_last_segments_are_repaired_by_a_probe() {
    for (name, stack) in CONTROLS {
        let took = repair_time(stack, &[LAST - 1, LAST]);
        println!("{name}: the last two segments {took:?} later");
        assert!(took <= two_round_trips_and_the_probe_timer(), "{name}: {took:?}");
    }
}

/// RFC 8985 s6: the segment behind the hole tells by itself.
#[test]
fn a_lost_last_but_one_is_repaired_by_what_follows_it() {
    for (name, stack) in CONTROLS {
        let took = repair_time(stack, &[LAST - 1]);
        println!("{name}: the last but one {took:?} later");
        assert!(took <= two_round_trips_and_the_probe_timer(), "{name}: {took:?}");
    }
}

/// One of a flight arrives, wherever it stands: the rest follows without a timeout.
#[test]
fn a_flight_of_which_one_segment_arrives_is_repaired_without_a_timeout() {
    for (name, stack) in CONTROLS {
        for survivor in 0..10 {
            let lost: Vec<u64> = (LAST - 9..=LAST).filter(|at| *at != LAST - survivor).collect();
            let took = repair_time(stack, &lost);
            println!("{name}: a flight but the last less {survivor} {took:?} later");
            assert!(took <= TcpConfig::default().rto_min, "{name}: {took:?}");
        }
    }
}

/// Whatever is lost of the last sixteen segments, some or all: what arrives tells of it, or else a probe.
#[test]
fn no_loss_at_the_end_of_a_transfer_waits_for_a_timeout() {
    for (name, stack) in CONTROLS {
        let mut worst = Nanos::ZERO;
        for seed in 1..=60 {
            let mut rng = SeededEntropy::new(seed);
            let pattern = rng.next_u64();
            let lost: Vec<u64> = (0..16).filter(|n| pattern >> n & 1 == 1).map(|n| LAST - n).collect();
            worst = worst.max(repair_time(stack, &lost));
        }
        println!("{name}: of sixteen some, at worst {worst:?} later");
        // One segment alone may wait for a delayed acknowledgement. After that a window of few segments grows by one
        // with each that is delivered.
        let ack_delay = TcpConfig::default().ack_delay_max;
        assert!(
            worst <= two_round_trips_and_the_probe_timer() + ack_delay + (RTT + FLIGHT).times(2),
            "{name}: {worst:?}"
        );
    }
}

/// A transfer over a cable that is dead during these spans.
fn transfer_with_outages(stack: Stack, link: &LinkConfig, bytes: u64, outages: &[(Nanos, Nanos)]) -> Outcome {
    let mut two_host_run = transfer(stack, bytes);
    two_host_run.links = [link.clone(), link.clone()];
    two_host_run.check_every = 0;
    for (from, to) in outages {
        for direction in [0, 1] {
            let dead = LinkConfig { is_down: true, ..link.clone() };
            two_host_run.changes.push((*from, direction, dead));
            two_host_run.changes.push((*to, direction, link.clone()));
        }
    }
    run(&two_host_run, &[])
}

/// When the first new bytes arrived after `at`.
fn first_after(outcome: &Outcome, at: Nanos) -> Nanos {
    let arrivals = &outcome.task_progress[1].arrivals;
    arrivals.iter().map(|(when, _)| *when).find(|when| *when > at).expect("more bytes").since(at)
}

/// RFC 6298 s5.5: the timeout doubles, so the wait after an outage is no longer than the outage and one timeout.
#[test]
fn data_flows_again_within_an_outage_and_a_timeout_of_its_end() {
    let rto_min = TcpConfig::default().rto_min;
    for (name, stack) in CONTROLS {
        for outage_ms in [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000] {
            let (from, length) = (Nanos::from_millis(3), Nanos::from_millis(outage_ms));
            let end = from + length;
            let outcome = transfer_with_outages(stack, &cable(), 20_000_000, &[(from, end)]);
            let took = first_after(&outcome, end + RTT);
            println!(
                "{name}: data flows {took:?} after {outage_ms} ms; {} black holes, {:?}",
                outcome.hosts[0].read(Counter::TcpPmtuBlackHoles),
                outcome.goodput_bits_per_s()
            );
            assert!(took <= length + rto_min + RTT + WHEEL, "{name} after {outage_ms} ms: {took:?}");
        }
    }
}

/// RFC 6298 s5.7: the first new acknowledgement ends the back-off, so a second, short outage costs a short wait.
#[test]
fn the_timeout_falls_back_with_the_first_new_acknowledgement() {
    let slow = LinkConfig { rate_bits_per_s: 1_000_000_000, ..cable() };
    let rto_min = TcpConfig::default().rto_min;
    for (name, stack) in CONTROLS {
        let first = (Nanos::from_millis(3), Nanos::from_millis(303));
        // By now data has flowed again.
        let second = (Nanos::from_millis(615), Nanos::from_millis(635));
        let outcome = transfer_with_outages(stack, &slow, 80_000_000, &[first, second]);
        let took = first_after(&outcome, second.1 + RTT);
        println!("{name}: data flows {took:?} after the second outage");
        // What stood in the switch's queue counts to the round trip that the timeout is made of.
        let queue = Nanos::from_millis(9);
        assert!(took <= second.1.since(second.0) + rto_min + queue + WHEEL, "{name}: {took:?}");
    }
}
