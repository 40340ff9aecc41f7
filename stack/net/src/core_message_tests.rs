//! Two cores of one stack: an update of one reaches the other, and the network sees one station.

use super::*;
use crate::testing::*;
use crate::{DuplicateProbes, Received, Route};
use ironwarp_port::RxMeta;
use ironwarp_port::memory::MemoryConfig;
use ironwarp_stats::Counter;
use smoltcp::wire::ArpOperation;

struct Cores {
    leader: Bench,
    follower: Bench,
}

impl Cores {
    fn new(probes: DuplicateProbes) -> Self {
        let core = |role| {
            Bench::with(MemoryConfig::default(), |cfg| {
                dual(cfg);
                (cfg.role, cfg.duplicate_probes) = (role, probes);
            })
        };
        Cores { leader: core(CoreRole::Leader), follower: core(CoreRole::Follower) }
    }

    /// Advances time on both cores and exchanges their messages.
    fn pass(&mut self, span: Nanos) {
        self.leader.pass(span);
        self.follower.pass(span);
        self.exchange();
    }

    fn exchange(&mut self) {
        let (leader, follower) = (&mut self.leader, &mut self.follower);
        for _ in 0..2 {
            while let Some(message) = follower.net.take_core_message() {
                leader.net.on_core_message(leader.now, message, &mut leader.wire);
            }
            while let Some(message) = leader.net.take_core_message() {
                assert!(!message.is_for_leader());
                follower.net.on_core_message(follower.now, message, &mut follower.wire);
            }
        }
    }

    fn route(&mut self, to: IpAddr) -> Route {
        let route = self.follower.net.route(self.follower.now, to, &mut self.follower.wire);
        self.exchange();
        route
    }
}

const NO_PROBES: DuplicateProbes = DuplicateProbes { ipv4: 0, ipv6: 0 };

#[test]
fn a_follower_returns_an_arp_request_for_the_leader() {
    let mut cores = Cores::new(NO_PROBES);
    let request = arp_frame(ArpOperation::Request, PEER, v4(1));
    let received = cores.follower.receive_any(&request, RxMeta::default());
    assert!(matches!(received, Some(Received::ForLeader(_))));
    assert!(cores.follower.sent().is_empty() && cores.follower.counted().is_empty());
    cores.leader.receive(&request);
    assert_eq!(cores.leader.counted(), [(Counter::NetArpRepliesSent, 1)]);
}

/// RFC 1122 s2.3.2.1: at most one request per second, whatever the number of cores.
#[test]
fn the_leader_sends_one_request_for_all_cores() {
    let mut cores = Cores::new(NO_PROBES);
    assert_eq!(cores.leader.net.route(cores.leader.now, PEER.addr, &mut cores.leader.wire), Route::Pending);
    assert_eq!(cores.route(PEER.addr), Route::Pending);
    assert_eq!((cores.leader.sent().len(), cores.follower.sent().len()), (1, 0));
    let changes = cores.follower.net.route_changes();
    cores.leader.receive(&arp_frame(ArpOperation::Reply, PEER, v4(1)));
    cores.exchange();
    assert_ne!(cores.follower.net.route_changes(), changes);
    assert!(matches!(cores.route(PEER.addr), Route::Ready(path) if path.remote_mac() == PEER.mac));
}

#[test]
fn a_known_neighbour_is_sent_to_a_follower_on_request() {
    let mut cores = Cores::new(NO_PROBES);
    cores.leader.receive(&arp_frame(ArpOperation::Request, PEER, v4(1)));
    while cores.leader.net.take_core_message().is_some() {}
    cores.leader.sent();
    assert_eq!(cores.route(PEER.addr), Route::Pending);
    assert!(matches!(cores.route(PEER.addr), Route::Ready(_)));
    assert!(cores.leader.sent().is_empty() && cores.follower.sent().is_empty());
}

#[test]
fn a_follower_finds_a_silent_neighbour_unreachable() {
    let mut cores = Cores::new(NO_PROBES);
    assert_eq!(cores.route(PEER.addr), Route::Pending);
    (0..5).for_each(|_| cores.pass(Nanos::from_secs(1)));
    assert_eq!(cores.route(PEER.addr), Route::Unreachable);
    assert!(cores.follower.sent().is_empty());
}

/// The leader probes a neighbour that only a follower uses.
#[test]
fn a_neighbour_in_use_on_a_follower_stays_known() {
    let mut cores = Cores::new(NO_PROBES);
    cores.route(PEER.addr);
    for _ in 0..200 {
        // The requested station replies to ARP requests.
        for frame in cores.leader.sent() {
            if frame.get(12..14) == Some(&[8, 6]) {
                cores.leader.receive(&arp_frame(ArpOperation::Reply, PEER, v4(1)));
            }
        }
        cores.pass(Nanos::from_secs(1));
        assert!(matches!(cores.route(PEER.addr), Route::Ready(_)), "at {:?}", cores.follower.now);
    }
    assert!(cores.follower.sent().is_empty());
}

/// RFC 4862 s5.4, RFC 5227 s2.1: no core uses an address before the leader has probed for it.
#[test]
fn an_address_is_usable_on_all_cores_after_the_leader_has_probed() {
    let mut cores = Cores::new(DuplicateProbes { ipv4: 1, ipv6: 1 });
    cores.leader.net.on_link_up(cores.leader.now, &mut cores.leader.wire);
    assert_eq!(cores.route(PEER.addr), Route::Pending);
    let ours = OURS.addr;
    assert_eq!(cores.follower.net.local.state_of(ours), Some(AddressState::Tentative));
    (0..80).for_each(|_| cores.pass(Nanos::from_millis(100)));
    for core in [&cores.leader, &cores.follower] {
        for (prefix, state) in core.net.local.iter() {
            assert_eq!(state, AddressState::Usable, "{prefix:?}");
        }
    }
    assert!(cores.follower.receive(&tcp_frame(b"to us")).is_some());
    assert!(cores.follower.sent().is_empty());
}

#[test]
fn an_address_in_conflict_is_given_up_on_all_cores() {
    let mut cores = Cores::new(DuplicateProbes { ipv4: 1, ipv6: 0 });
    cores.leader.net.on_link_up(cores.leader.now, &mut cores.leader.wire);
    let other = crate::Station { addr: OURS.addr, ..PEER };
    cores.leader.receive(&arp_frame(ArpOperation::Request, other, v4(9)));
    cores.exchange();
    for core in [&cores.leader, &cores.follower] {
        assert_eq!(core.net.local.state_of(OURS.addr), Some(AddressState::Duplicate));
    }
}

#[test]
fn a_path_mtu_reaches_the_other_cores() {
    let mut cores = Cores::new(NO_PROBES);
    cores.follower.net.lower_path_mtu(cores.follower.now, PEER.addr, 1_400);
    cores.exchange();
    let flow = ironwarp_types::Flow { local: (OURS.addr, 1).into(), remote: (PEER.addr, 2).into() };
    assert_eq!(cores.leader.net.path_to(&flow, PEER.mac).mtu_bytes(), 1_400);
    assert!(cores.follower.net.take_core_message().is_none(), "an update is not sent back");
}

#[test]
fn a_single_core_sends_no_messages() {
    let mut bench = Bench::dual();
    bench.net.route(bench.now, PEER.addr, &mut bench.wire);
    bench.receive(&arp_frame(ArpOperation::Reply, PEER, v4(1)));
    bench.net.lower_path_mtu(bench.now, PEER.addr, 1_400);
    assert!(bench.net.take_core_message().is_none());
}
