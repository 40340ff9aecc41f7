//! The diagram is the specification: a test reads its table of edges and walks all of them, and all
//! pairs without one.

use core::net::{Ipv4Addr, SocketAddr};

use ironwarp_iwarp::mpa::startup::{Initiator, Markers, Negotiated, Proposal};
use ironwarp_iwarp::setup::{Enhanced, Offer, READS_UNNEGOTIATED, ReadDepths, RtrKinds, Terms};

use super::Lifecycle as LifecycleOf;
use super::*;
use crate::core_loop::MpaOverTcp;
use crate::core_loop::connection::setup::ConnectTarget;
use ironwarp_port::memory::MemoryPort;

type Lifecycle = LifecycleOf<MpaOverTcp<MemoryPort>>;

/// The edges of the diagram.
const EDGES: usize = 31;

const STAGES: [StateName; 12] = [
    StateName::Idle,
    StateName::Resolving,
    StateName::Opening,
    StateName::Requesting,
    StateName::Replying,
    StateName::AwaitingRtr,
    StateName::Running,
    StateName::Draining,
    StateName::HalfClosed,
    StateName::Terminating,
    StateName::Closing,
    StateName::Ended,
];

/// The states that the diagram's table names after `from`.
fn edges_of(from: StateName) -> Vec<String> {
    let start = format!("//! {from:?} ");
    let line =
        include_str!("../lifecycle.rs").lines().find(|line| line.starts_with(&start) && line.contains("->"));
    let (_, next) = line.and_then(|line| line.split_once("->")).expect("the table has a line for each state");
    next.split_whitespace().map(str::to_owned).collect()
}

fn target() -> ConnectTarget {
    ConnectTarget::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1), Box::default())
}

fn initiator() -> Initiator {
    let reads = ReadDepths { ird: 1, ord: 1 };
    let enhanced = Enhanced { peer_to_peer: false, rtr: RtrKinds::empty(), reads };
    let offer = Offer { enhanced: Some(enhanced), reads, ird_max: 1 };
    Initiator::start(Proposal { crc: true, markers: false, offer }, &[])
        .expect("no private data is not too long")
        .0
}

fn negotiated() -> Negotiated {
    let reads = ReadDepths { ird: READS_UNNEGOTIATED, ord: READS_UNNEGOTIATED };
    let markers = Markers { sent: false, received: false };
    let terms = Terms { peer_reads: None, reads, rtr_to_send: None, rtr_awaited: RtrKinds::empty() };
    Negotiated { crc: true, markers, revision: 1, terms }
}

/// A connection in a state.
fn sample(state: StateName) -> Lifecycle {
    let established = true;
    let running = Lifecycle::Running(Running::default());
    match state {
        StateName::Idle => Lifecycle::Idle,
        StateName::Resolving => Lifecycle::Setup(Setup::Resolving { target: target() }),
        StateName::Opening => Lifecycle::Setup(Setup::Opening { target: target() }),
        StateName::Requesting => {
            Lifecycle::Setup(Setup::Requesting { initiator: initiator(), target: target() })
        }
        StateName::Replying => {
            Lifecycle::Setup(Setup::Replying { params: Box::default(), agreed: negotiated() })
        }
        StateName::AwaitingRtr => Lifecycle::AwaitingRtr,
        StateName::Running => running,
        StateName::Draining => running.draining(Nanos::MAX, ProgressMark::default()),
        StateName::HalfClosed => running.half_closed(Nanos::MAX),
        StateName::Terminating => running.terminating(DisconnectReason::Terminated),
        StateName::Closing => Lifecycle::Closing { cause: None, established },
        StateName::Ended => Lifecycle::Ended,
    }
}

#[test]
fn every_edge_of_the_diagram_can_be_walked() {
    let mut walked = 0;
    for from in STAGES {
        for next in STAGES.into_iter().filter(|next| edges_of(from).contains(&format!("{next:?}"))) {
            let mut lifecycle = sample(from);
            assert!(lifecycle.may_enter(&sample(next)), "{from:?} -> {next:?}");
            let before = lifecycle.enter(sample(next));
            assert_eq!((before.name(), lifecycle.name()), (from, next));
            walked += 1;
        }
    }
    assert_eq!(
        walked,
        STAGES.into_iter().map(|from| edges_of(from).len()).sum::<usize>(),
        "no name is misspelt"
    );
    assert_eq!(walked, EDGES);
}

#[test]
fn every_pair_of_states_without_an_edge_is_refused() {
    let mut refused = 0;
    for from in STAGES {
        for next in STAGES.into_iter().filter(|next| !edges_of(from).contains(&format!("{next:?}"))) {
            assert!(!sample(from).may_enter(&sample(next)), "{from:?} -> {next:?}");
            refused += 1;
        }
    }
    assert_eq!(refused, 12 * 12 - EDGES);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "Ended -> Running")]
fn a_refused_state_cannot_be_entered() {
    sample(StateName::Ended).enter(sample(StateName::Running));
}

#[test]
fn set_up_keeps_the_target_until_the_reply() {
    let mut lifecycle = sample(StateName::Resolving);
    lifecycle.advance_setup(Setup::open);
    assert_eq!(lifecycle.name(), StateName::Opening);
    lifecycle.advance_setup(|setup| setup.request(initiator()));
    assert_eq!(lifecycle.name(), StateName::Requesting);
    lifecycle.advance_setup(Setup::with_revision_1);
    let Lifecycle::Setup(Setup::Resolving { target }) = lifecycle else { panic!("resolves again") };
    assert_eq!(target.revision(), 1);
}

#[test]
fn set_up_is_not_advanced_in_other_states() {
    for state in STAGES.into_iter().filter(|state| !matches!(sample(*state), Lifecycle::Setup(_))) {
        let mut lifecycle = sample(state);
        lifecycle.advance_setup(Setup::open);
        assert_eq!(lifecycle.name(), state);
    }
}

/// RFC 6581 s5: a connection that ends before the RTR was never up.
#[test]
fn a_connection_without_its_rtr_is_never_established() {
    let mut lifecycle = sample(StateName::AwaitingRtr);
    for next in [
        |from: &Lifecycle| from.draining(Nanos::ZERO, ProgressMark::default()),
        |from: &Lifecycle| from.half_closed(Nanos::ZERO),
        |from: &Lifecycle| from.terminating(DisconnectReason::Terminated),
        |from: &Lifecycle| from.closing(),
    ] {
        lifecycle.enter(next(&lifecycle));
        assert!(!lifecycle.established(), "{:?}", lifecycle.name());
    }
}

#[test]
fn an_rtr_after_a_disconnect_establishes_the_connection() {
    let mut lifecycle = sample(StateName::AwaitingRtr);
    assert!(!lifecycle.on_rtr_after_disconnect());
    lifecycle.enter(lifecycle.draining(Nanos::ZERO, ProgressMark::default()));
    assert!(lifecycle.on_rtr_after_disconnect());
    assert!(lifecycle.established() && lifecycle.qp_state() == QpState::Draining);
}

#[test]
fn a_cause_stays_from_terminate_to_fin() {
    let mut lifecycle = sample(StateName::Running);
    assert_eq!(lifecycle.closing().cause(), None);
    lifecycle.enter(lifecycle.terminating(DisconnectReason::Terminated));
    lifecycle.enter(lifecycle.closing());
    assert_eq!(lifecycle.cause(), Some(DisconnectReason::Terminated));
}

#[test]
fn the_application_sees_five_states() {
    let seen = STAGES.map(|state| sample(state).qp_state());
    assert_eq!(seen[..1], [QpState::Idle]);
    assert_eq!(seen[1..6], [QpState::Connecting; 5]);
    assert_eq!(seen[6..7], [QpState::Established]);
    assert_eq!(seen[7..9], [QpState::Draining; 2]);
    assert_eq!(seen[9..], [QpState::Error; 3]);
}
