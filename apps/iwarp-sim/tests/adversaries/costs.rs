//! The frames that a node sends for each hostile packet, and what it holds at most;
//! `scripts/adversary-costs.sh` checks the instructions. Each test is a row of the table in
//! `docs/security.md`.

use iwarp_sim::adversary::{Adversary, Bounds, Habit, Run};

const STEPS: u32 = 200;

#[track_caller]
fn within_bounds(adversary: Adversary) {
    let mut run = Run::new(adversary).unwrap_or_else(|fault| panic!("{}: {fault}", adversary.name()));
    let Bounds { sent_percent, rx_frames, tx_units, connections, counter, .. } = adversary.bounds();
    let before = run.counter(counter).unwrap_or_else(|| panic!("no counter {counter}"));
    let cost = run.steps(STEPS).unwrap_or_else(|fault| panic!("{}: {fault}", adversary.name()));
    println!("{} {cost:?} {counter} {:?}", adversary.name(), run.counter(counter));
    assert!(cost.packets >= 1_000, "{cost:?}");
    // Frames that the start of a node and the timers of a connection send anyway.
    let sent_max = cost.packets * sent_percent / 100 + 8;
    assert!(cost.sent <= sent_max, "more than {sent_percent} %: {cost:?}");
    assert!(cost.rx_frames <= rx_frames, "more than {rx_frames} received frames: {cost:?}");
    assert!(cost.tx_units <= tx_units, "more than {tx_units} units: {cost:?}");
    assert!(cost.connections <= connections, "more than {connections} connections: {cost:?}");
    assert!(run.counter(counter) > Some(before), "{counter} does not count them");
}

macro_rules! rows {
    ($($name:ident $adversary:expr;)*) => {
        $(#[test]
        fn $name() {
            within_bounds($adversary);
        })*

        /// The tests above are all kinds.
        #[test]
        fn every_adversary_has_a_test() {
            let tested = [$($adversary),*];
            assert!(Adversary::all().eq(tested));
        }
    };
}

rows! {
    garbage Adversary::Garbage;
    arp_requests Adversary::ArpRequests;
    arp_flaps Adversary::ArpFlaps;
    solicitations Adversary::Solicitations;
    echoes Adversary::Echoes;
    icmp_errors Adversary::IcmpErrors;
    unknown_segments Adversary::Unknown;
    syns Adversary::Syns;
    start_ups Adversary::Startups;
    bad_crcs Adversary::BadCrcs;
    bad_stags Adversary::BadStags;
    one_byte_segments Adversary::OneByteSegments;
    tiny_fpdus Adversary::TinyFpdus;
    markers Adversary::Markers;
    sack_split Adversary::Habit(Habit::SackSplit);
    one_byte_acks Adversary::Habit(Habit::OneByteAcks);
    zero_window Adversary::Habit(Habit::ZeroWindow);
    no_reading Adversary::Habit(Habit::NoReading);
    gaps Adversary::Habit(Habit::Gaps);
    probes Adversary::Habit(Habit::Probes);
    repeats Adversary::Habit(Habit::Repeats);
}

/// What the costs are compared with: every message arrives.
#[test]
fn an_honest_host_is_served() {
    let mut run = Run::new(Adversary::Honest).expect("a connection");
    let cost = run.steps(STEPS).expect("every packet fits");
    assert_eq!(run.received(), cost.packets);
}

/// The table of the documentation has the bounds that these tests assert.
#[test]
fn the_documentation_has_the_bounds() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");
    let text = std::fs::read_to_string(path).expect("the documentation");
    for adversary in Adversary::all() {
        let row = adversary.row();
        assert!(text.lines().any(|line| line.starts_with(&row)), "docs/security.md has no line\n{row}");
    }
}
