//! Recovery time after a loss at the end of a flight and after an outage. 10 Gbit/s, a round trip
//! of 50 µs.

use std::collections::BTreeSet;

use ironwarp_port::memory::Ipv4Tcp;
use ironwarp_sim::LinkConfig;
use ironwarp_stats::Counter;
use ironwarp_tcp::{Congestion, TcpConfig};
use ironwarp_types::{Entropy, Nanos, SeededEntropy};
use iwarp_sim::tcp::{EndAction, Outcome, RxFilter, Task, TwoHostRun};

use super::{CONTROLS, cable};

/// The empty cable's round trip.
const RTT: Nanos = Nanos::from_micros(50);

/// How late the timer wheel may be: one tick when set and one when it fires.
const WHEEL: Nanos = Nanos(2 << 14);

/// Drops the segments of the stream with these numbers, once each.
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

/// A transfer whose sender stays open, so that no FIN reveals a loss.
fn transfer(congestion: Congestion, bytes: u64) -> TwoHostRun {
    let mut two_host_run = TwoHostRun::new([congestion; 2], cable(), bytes);
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

/// When all bytes had arrived.
fn done_at(outcome: &Outcome) -> Nanos {
    outcome.task_progress[1].done_at.expect("all bytes")
}

/// Bytes of several flights: the round trip has been measured, and the window is open.
const BYTES: u64 = 60_000;

/// Payload of a segment with time stamps at an MTU of 1500.
const MSS_BYTES: u64 = 1_448;

/// The number of the last segment, which is not full.
const LAST: u64 = BYTES / MSS_BYTES;

/// Transmission time of all segments, which the longest round trip includes besides the cable's.
const FLIGHT: Nanos = Nanos::from_micros(50);

/// RFC 8985 s7.2: the probe is sent after two round trips, and the timer may be late. The repair
/// takes two more.
fn two_round_trips_and_the_probe_timer() -> Nanos {
    let round_trip = RTT + FLIGHT;
    round_trip.times(2) + round_trip.times(2) + WHEEL
}

/// The delay that a loss at the end of a transfer adds.
fn repair_time(congestion: Congestion, lost: &[u64]) -> Nanos {
    let two_host_run = transfer(congestion, BYTES);
    let (whole, damaged) = (run(&two_host_run, &[]), run(&two_host_run, lost));
    assert_eq!(
        damaged.hosts[0].borrow().read(Counter::TcpTimeouts),
        0,
        "{congestion:?}: a timeout repaired {lost:?}"
    );
    done_at(&damaged).since(done_at(&whole))
}

/// RFC 8985 s7: nothing follows the last segment, so only a probe can detect its loss. The probe
/// timer allows for the peer's delayed acknowledgement, because a single segment may be waiting for
/// it.
#[test]
fn a_lost_last_segment_is_repaired_by_a_probe() {
    for (name, congestion) in CONTROLS {
        let took = repair_time(congestion, &[LAST]);
        println!("{name}: the last segment {took:?} later");
        let ack_delay = TcpConfig::default().ack_delay_max;
        assert!(took <= two_round_trips_and_the_probe_timer() + ack_delay, "{name}: {took:?}");
    }
}

/// The probe repeats the last of them, and its acknowledgement reveals the loss of the other.
#[test]
fn two_lost_last_segments_are_repaired_by_a_probe() {
    for (name, congestion) in CONTROLS {
        let took = repair_time(congestion, &[LAST - 1, LAST]);
        println!("{name}: the last two segments {took:?} later");
        assert!(took <= two_round_trips_and_the_probe_timer(), "{name}: {took:?}");
    }
}

/// RFC 8985 s6: the segment after the gap reveals the loss.
#[test]
fn a_lost_second_to_last_segment_is_repaired_by_the_segment_after_it() {
    for (name, congestion) in CONTROLS {
        let took = repair_time(congestion, &[LAST - 1]);
        println!("{name}: the last but one {took:?} later");
        assert!(took <= two_round_trips_and_the_probe_timer(), "{name}: {took:?}");
    }
}

/// One segment of a flight arrives, at any position: the rest is repaired without a timeout.
#[test]
fn a_flight_with_one_delivered_segment_is_repaired_without_a_timeout() {
    for (name, congestion) in CONTROLS {
        for survivor in 0..10 {
            let lost: Vec<u64> = (LAST - 9..=LAST).filter(|at| *at != LAST - survivor).collect();
            let took = repair_time(congestion, &lost);
            println!("{name}: a flight but the last less {survivor} {took:?} later");
            assert!(took <= TcpConfig::default().rto_min, "{name}: {took:?}");
        }
    }
}

/// Any loss among the last sixteen segments: the segments that arrive or a probe reveal it.
#[test]
fn no_loss_at_the_end_of_a_transfer_causes_a_timeout() {
    for (name, congestion) in CONTROLS {
        let mut worst = Nanos::ZERO;
        for seed in 1..=60 {
            let mut rng = SeededEntropy::new(seed);
            let pattern = rng.next_u64();
            let lost: Vec<u64> = (0..16).filter(|n| pattern >> n & 1 == 1).map(|n| LAST - n).collect();
            worst = worst.max(repair_time(congestion, &lost));
        }
        println!("{name}: of sixteen some, at worst {worst:?} later");
        // A single segment may wait for a delayed acknowledgement. After that, a window of few
        // segments grows by one with each delivered segment.
        let ack_delay = TcpConfig::default().ack_delay_max;
        assert!(
            worst <= two_round_trips_and_the_probe_timer() + ack_delay + (RTT + FLIGHT).times(2),
            "{name}: {worst:?}"
        );
    }
}

/// A transfer over a cable that drops everything during these periods.
fn transfer_with_outages(
    congestion: Congestion,
    link: &LinkConfig,
    bytes: u64,
    outages: &[(Nanos, Nanos)],
) -> Outcome {
    let mut two_host_run = transfer(congestion, bytes);
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

/// RFC 6298 s5.5: the timeout doubles, so the wait after an outage is no longer than the outage and
/// one timeout.
#[test]
fn data_resumes_within_one_outage_length_and_one_timeout() {
    let rto_min = TcpConfig::default().rto_min;
    for (name, congestion) in CONTROLS {
        for outage_ms in [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000] {
            let (from, length) = (Nanos::from_millis(3), Nanos::from_millis(outage_ms));
            let end = from + length;
            let outcome = transfer_with_outages(congestion, &cable(), 20_000_000, &[(from, end)]);
            let took = first_after(&outcome, end + RTT);
            println!(
                "{name}: data flows {took:?} after {outage_ms} ms; {} black holes, {:?}",
                outcome.hosts[0].borrow().read(Counter::TcpPmtuBlackHoles),
                outcome.goodput_bits_per_s()
            );
            assert!(took <= length + rto_min + RTT + WHEEL, "{name} after {outage_ms} ms: {took:?}");
        }
    }
}

/// RFC 6298 s5.7: the first new acknowledgement ends the back-off, so the wait after a second,
/// short outage is short.
#[test]
fn the_first_new_acknowledgement_resets_the_timeout_back_off() {
    let slow = LinkConfig { rate_bits_per_s: 1_000_000_000, ..cable() };
    let rto_min = TcpConfig::default().rto_min;
    for (name, congestion) in CONTROLS {
        let first = (Nanos::from_millis(3), Nanos::from_millis(303));
        // Data has flowed again by then.
        let second = (Nanos::from_millis(615), Nanos::from_millis(635));
        let outcome = transfer_with_outages(congestion, &slow, 80_000_000, &[first, second]);
        let took = first_after(&outcome, second.1 + RTT);
        println!("{name}: data flows {took:?} after the second outage");
        // The time in the switch's queue counts in the measured round trip, from which the timeout
        // is computed.
        let queue = Nanos::from_millis(9);
        assert!(took <= second.1.since(second.0) + rto_min + queue + WHEEL, "{name}: {took:?}");
    }
}
