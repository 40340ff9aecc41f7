//! What is left of the throughput of others while a host attacks.
//!
//! The attacker sends a million hostile packets per second, or two million where they belong to no
//! connection, and whatever its eight connections reply; a connection whose stream it keeps valid
//! stays within its window, and where each packet ends a connection, eight connections come and go
//! at a time. Without the attacker, everything else is the same.

use std::sync::OnceLock;

use ironwarp_types::Nanos;
use iwarp_sim::adversary::{Adversary, Habit, Needs};

use super::beside::{Beside, Kept};

/// Connections of the attacker.
const CONNS: u16 = 8;

/// The hosts without an attacker.
fn calm(markers: bool) -> Kept {
    static CALM: [OnceLock<Kept>; 2] = [OnceLock::new(), OnceLock::new()];
    *CALM[usize::from(markers)].get_or_init(|| Beside::calm(markers).and_then(Beside::run).expect("a run"))
}

#[track_caller]
fn others_keep_their_throughput(kind: Adversary) {
    let calm = calm(kind == Adversary::Markers);
    let every = if kind.needs() == Needs::Nothing { Nanos(500) } else { Nanos(1_000) };
    let run = Beside::attacked(kind, every, CONNS).and_then(Beside::run);
    let kept = run.unwrap_or_else(|fault| panic!("{}: {fault}", kind.name()));
    let per_mille = kept.bytes * 1_000 / calm.bytes;
    println!("{}: {per_mille} per mille of {} bytes, {kept:?}", kind.name(), calm.bytes);
    assert!(kept.hostile >= 10_000 && kept.counted > 0, "{kept:?}");
    match kind.needs() {
        Needs::Nothing => assert_eq!(kept.conns, 0, "{kept:?}"),
        Needs::Conn => assert_eq!(kept.conns, usize::from(CONNS), "{kept:?}"),
        Needs::FreshConn => assert!(kept.ended_conns >= 1_000, "{kept:?}"),
    }
    // Half of the receive frames at most may hold data beyond gaps.
    assert!(kept.held.rx_frames <= 4_096 && kept.held.half_open <= 256, "{kept:?}");
    assert_eq!(kept.ended, 0, "an honest connection has ended: {kept:?}");
    assert!(per_mille >= 950, "{per_mille} per mille: {kept:?}");
}

macro_rules! kinds {
    ($($name:ident $adversary:expr;)*) => {
        $(#[test]
        fn $name() {
            others_keep_their_throughput($adversary);
        })*
    };
}

kinds! {
    others_keep_their_throughput_beside_garbage Adversary::Garbage;
    others_keep_their_throughput_beside_arp_requests Adversary::ArpRequests;
    others_keep_their_throughput_beside_arp_flaps Adversary::ArpFlaps;
    others_keep_their_throughput_beside_solicitations Adversary::Solicitations;
    others_keep_their_throughput_beside_echoes Adversary::Echoes;
    others_keep_their_throughput_beside_icmp_errors Adversary::IcmpErrors;
    others_keep_their_throughput_beside_unknown_segments Adversary::Unknown;
    others_keep_their_throughput_beside_syns Adversary::Syns;
    others_keep_their_throughput_beside_start_ups Adversary::Startups;
    others_keep_their_throughput_beside_bad_crcs Adversary::BadCrcs;
    others_keep_their_throughput_beside_bad_stags Adversary::BadStags;
    others_keep_their_throughput_beside_one_byte_segments Adversary::OneByteSegments;
    others_keep_their_throughput_beside_tiny_fpdus Adversary::TinyFpdus;
    others_keep_their_throughput_beside_markers Adversary::Markers;
    others_keep_their_throughput_beside_sack_split Adversary::Habit(Habit::SackSplit);
    others_keep_their_throughput_beside_one_byte_acks Adversary::Habit(Habit::OneByteAcks);
    others_keep_their_throughput_beside_zero_windows Adversary::Habit(Habit::ZeroWindow);
    others_keep_their_throughput_beside_no_reading Adversary::Habit(Habit::NoReading);
    others_keep_their_throughput_beside_gaps Adversary::Habit(Habit::Gaps);
    others_keep_their_throughput_beside_probes Adversary::Habit(Habit::Probes);
    others_keep_their_throughput_beside_repeats Adversary::Habit(Habit::Repeats);
}
