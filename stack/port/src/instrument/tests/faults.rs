//! Every kind of fault: how often, in which direction, and what it does to a frame.

use super::*;
use crate::sample::{segment, segment6, unfilled_segment};
use crate::{Checksum, TxOffloads};

#[test]
fn with_everything_off_frames_pass_untouched() {
    let mut bench = bench();
    assert_eq!(outbound(&mut bench, 100), (0..100).collect::<Vec<_>>());
    assert_eq!(inbound(&mut bench, 100), (0..100).collect::<Vec<_>>());
    assert!(bench.near.shared.all_off());
}

#[test]
fn losses_come_at_their_rate_in_the_direction_asked_for() {
    let mut bench = bench();
    bench.control.set_faults(only_rx(FaultRates { drop_ppm: 20_000, ..FaultRates::default() }));
    let received = inbound(&mut bench, 20_000).len() as u64;
    let lost = bench.stats.read(Counter::PortFaultDrops);
    assert_eq!(received + lost, 20_000);
    assert!((300..500).contains(&lost), "{lost}");
    assert_eq!(outbound(&mut bench, 1_000).len(), 1_000);
    bench.control.set_faults(only_tx(FaultRates { drop_ppm: 1_000_000, ..FaultRates::default() }));
    assert_eq!((outbound(&mut bench, 100).len(), inbound(&mut bench, 100).len()), (0, 100));
}

#[test]
fn one_seed_loses_the_same_frames_every_time() {
    let run = |seed| {
        let mut bench = bench();
        bench.control.set_faults(Faults::loss(seed, 100_000));
        (outbound(&mut bench, 500), inbound(&mut bench, 500))
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    let (out, back) = run(7);
    assert_ne!(out, back);
}

#[test]
fn faults_of_one_direction_leave_the_chances_of_the_other_alone() {
    let rates = |ppm| FaultRates { drop_ppm: ppm, ..FaultRates::default() };
    let run = |tx_ppm| {
        let mut bench = bench();
        bench.control.set_faults(Faults { seed: 3, rx: rates(100_000), tx: rates(tx_ppm) });
        outbound(&mut bench, 200);
        inbound(&mut bench, 200)
    };
    assert_eq!(run(0), run(500_000));
}

#[test]
fn duplicates_follow_their_originals() {
    let always = FaultRates { duplicate_ppm: 1_000_000, ..FaultRates::default() };
    let mut bench = bench();
    bench.control.set_faults(Faults { seed: 1, rx: always, tx: always });
    let twice: Vec<u32> = (0..50).flat_map(|n| [n, n]).collect();
    assert_eq!((outbound(&mut bench, 50), settle(&mut bench)), (twice.clone(), vec![]));
    let mut got = inbound(&mut bench, 50);
    got.extend(settle(&mut bench));
    assert_eq!(got, twice);
    assert_eq!(bench.stats.read(Counter::PortFaultDuplicates), 100);
}

#[test]
fn a_duplicate_carries_what_the_device_said() {
    let mut bench = bench_of(&MemoryConfig::default().offloading());
    bench.control.set_faults(only_rx(FaultRates { duplicate_ppm: 1_000_000, ..FaultRates::default() }));
    send(&mut bench.far, &segment(b"data"));
    let mut got = Burst::new();
    bench.near.rx_burst(&mut got);
    assert_eq!((got.len(), got[0].rx()), (2, got[1].rx()));
    assert_eq!((got[0].rx().l4_checksum, got[0].rx().rss_hash.is_some()), (Checksum::Good, true));
}

#[test]
fn a_fault_that_finds_no_buffer_is_left_out_and_counted() {
    let rates = FaultRates { duplicate_ppm: 1_000_000, corrupt_ppm: 1_000_000, ..FaultRates::default() };
    let mut bench = bench();
    bench.control.set_faults(Faults { seed: 1, rx: FaultRates { corrupt_ppm: 0, ..rates }, tx: rates });
    let frame = sealed(&mut bench.near, &segment(b"data"), TxMeta::default());
    bench.near.port_mut().control().allow_allocations(0);
    bench.near.tx_burst(&mut Burst::from_iter([frame]));
    // Outbound, a duplicate needs no buffer, damage does.
    let got = receive(&mut bench.far);
    assert_eq!((got, bench.stats.read(Counter::PortFaultsSkipped)), (vec![segment(b"data"); 2], 1));
    assert_eq!(inbound(&mut bench, 1), [0]);
    assert_eq!(bench.stats.read(Counter::PortFaultsSkipped), 2);
}

#[test]
fn reordering_loses_nothing_and_keeps_the_distance_small() {
    let often = FaultRates { reorder_ppm: 100_000, ..FaultRates::default() };
    for direction in [only_rx(often), only_tx(often)] {
        let mut bench = bench();
        bench.control.set_faults(direction);
        let mut got =
            if direction.rx.is_none() { outbound(&mut bench, 500) } else { inbound(&mut bench, 500) };
        got.extend(settle(&mut bench));
        let moved = got.windows(2).filter(|pair| pair[0] > pair[1]).count() as u64;
        assert!(moved > 20 && moved <= bench.stats.read(Counter::PortFaultReorders));
        let far_off = got.iter().enumerate().filter(|(place, n)| place.abs_diff(**n as usize) > 12).count();
        assert_eq!(far_off, 0);
        got.sort_unstable();
        assert_eq!(got, (0..500).collect::<Vec<_>>());
    }
}

#[test]
fn the_last_frame_is_not_held_for_ever() {
    let mut bench = bench();
    bench.control.set_faults(only_tx(FaultRates { reorder_ppm: 1_000_000, ..FaultRates::default() }));
    assert!(outbound(&mut bench, 1).is_empty());
    assert_eq!(settle(&mut bench), [0]);
}

#[test]
fn delayed_frames_keep_their_order_and_come_after_the_polls_asked_for() {
    let rates = FaultRates { delay_ppm: 1_000_000, delay_polls: 10, ..FaultRates::default() };
    let mut bench = bench();
    bench.control.set_faults(only_rx(rates));
    for n in 0..3 {
        send(&mut bench.far, &numbered(n));
    }
    let polls: Vec<usize> = (0..12).map(|_| receive(&mut bench.near).len()).collect();
    assert_eq!(polls, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0]);
    bench.control.set_faults(only_tx(rates));
    let mut got = outbound(&mut bench, 40);
    assert_eq!(got, (0..31).collect::<Vec<_>>());
    got.extend(settle(&mut bench));
    assert_eq!(got, (0..40).collect::<Vec<_>>());
}

#[test]
fn frames_beyond_the_places_for_delay_pass_and_are_counted() {
    let mut bench = bench_of(&MemoryConfig { rx_frames: 2048, ..MemoryConfig::default() });
    let rates = FaultRates { delay_ppm: 1_000_000, delay_polls: 5_000, ..FaultRates::default() };
    bench.control.set_faults(only_rx(rates));
    assert_eq!(inbound(&mut bench, 600), (512..600).collect::<Vec<_>>());
    assert_eq!(bench.stats.read(Counter::PortFaultsSkipped), 88);
}

#[test]
fn switching_off_lets_held_frames_go_and_returns_to_the_short_way() {
    let rates = FaultRates { delay_ppm: 1_000_000, delay_polls: 1_000_000, ..FaultRates::default() };
    let mut bench = bench();
    bench.control.set_faults(Faults { seed: 1, rx: rates, tx: rates });
    assert!(outbound(&mut bench, 10).is_empty() && inbound(&mut bench, 10).is_empty());
    bench.control.set_faults(Faults::default());
    assert_eq!(settle(&mut bench), [(0..10).collect::<Vec<_>>(), (0..10).collect()].concat());
    assert!(bench.near.shared.all_off());
    assert_eq!(bench.control.faults(), Faults::default());
}

#[test]
fn damage_is_seen_by_the_checksum_whichever_way_the_frame_goes() {
    let mut bench = bench_of(&MemoryConfig::default().offloading());
    let rates = FaultRates { corrupt_ppm: 1_000_000, ..FaultRates::default() };
    bench.control.set_faults(Faults { seed: 1, rx: rates, tx: rates });
    let original = segment(&[7; 1000]);
    for _ in 0..200 {
        send(&mut bench.near, &original);
        let mut got = Burst::new();
        bench.far.rx_burst(&mut got);
        let changed: Vec<usize> =
            (0..original.len()).filter(|at| got[0].bytes()[*at] != original[*at]).collect();
        assert_eq!(changed.len(), 1);
        let rx = got[0].rx();
        assert!(changed[0] >= 14 && [rx.ip_checksum, rx.l4_checksum].contains(&Checksum::Bad));
    }
    send(&mut bench.far, &original);
    let mut got = Burst::new();
    bench.near.rx_burst(&mut got);
    let rx = got[0].rx();
    assert_eq!((rx.ip_checksum, rx.l4_checksum), (Checksum::Unknown, Checksum::Unknown));
    assert_ne!(got[0].bytes(), original);
    assert_eq!(bench.stats.read(Counter::PortFaultCorruptions), 201);
}

/// RFC 8200 s8.1: the checksum of TCP is all that IPv6 has, and its pseudo-header begins with the
/// addresses.
#[test]
fn damage_to_ipv6_is_done_where_a_checksum_sees_it() {
    let mut bench = bench_of(&MemoryConfig::default().offloading());
    let rates = FaultRates { corrupt_ppm: 1_000_000, ..FaultRates::default() };
    bench.control.set_faults(Faults { seed: 1, rx: FaultRates::default(), tx: rates });
    let original = segment6(&[7; 100]);
    for _ in 0..500 {
        send(&mut bench.near, &original);
        let mut got = Burst::new();
        bench.far.rx_burst(&mut got);
        let changed = (0..original.len()).find(|&at| got[0].bytes()[at] != original[at]);
        assert!(changed.is_some_and(|at| at >= 22), "{changed:?}");
        assert_eq!(got[0].rx().l4_checksum, Checksum::Bad);
    }
}

#[test]
fn damage_is_not_made_right_by_the_device_that_fills_in_checksums() {
    let mut bench = bench_of(&MemoryConfig::default().offloading());
    bench.control.set_faults(only_tx(FaultRates { corrupt_ppm: 1_000_000, ..FaultRates::default() }));
    let offloads = TxOffloads::IPV4_CHECKSUM | TxOffloads::TCP_CHECKSUM;
    let tx = TxMeta { l2_bytes: 14, l3_bytes: 20, l4_bytes: 20, offloads };
    for _ in 0..100 {
        let frame = sealed(&mut bench.near, &unfilled_segment(&[7; 1000]), tx);
        bench.near.tx_burst(&mut Burst::from_iter([frame.clone()]));
        assert_eq!(frame.bytes(), unfilled_segment(&[7; 1000]), "what TCP retains stays as it was");
        let mut got = Burst::new();
        bench.far.rx_burst(&mut got);
        assert_ne!(got[0].rx().ip_checksum, Checksum::Good);
    }
}

#[test]
fn frames_without_a_checksum_are_not_damaged() {
    let mut bench = bench();
    let rates = FaultRates { corrupt_ppm: 1_000_000, ..FaultRates::default() };
    bench.control.set_faults(Faults { seed: 1, rx: rates, tx: rates });
    assert_eq!(outbound(&mut bench, 20), (0..20).collect::<Vec<_>>());
    assert_eq!(bench.stats.read(Counter::PortFaultCorruptions), 0);
}

#[test]
fn truncated_frames_keep_their_beginning() {
    let rates = FaultRates { truncate_ppm: 1_000_000, ..FaultRates::default() };
    let mut bench = bench();
    bench.control.set_faults(Faults { seed: 1, rx: rates, tx: rates });
    let original = segment(&[7; 100]);
    for _ in 0..100 {
        send(&mut bench.near, &original);
        send(&mut bench.far, &original);
        for got in receive(&mut bench.far).iter().chain(&receive(&mut bench.near)) {
            assert!((14..original.len()).contains(&got.len()) && original.starts_with(got));
        }
    }
    assert_eq!(bench.stats.read(Counter::PortFaultTruncations), 200);
}

#[test]
fn a_full_device_leaves_frames_with_the_caller_and_nothing_is_lost_or_doubled() {
    let mut bench = bench();
    bench.control.set_faults(only_tx(FaultRates { reorder_ppm: 1, ..FaultRates::default() }));
    let device = bench.near.port_mut().control();
    device.limit_tx_burst(3);
    let frames: Vec<_> = (0..8).map(|n| sealed(&mut bench.near, &numbered(n), TxMeta::default())).collect();
    let mut burst: Burst<_> = frames.into_iter().collect();
    bench.near.tx_burst(&mut burst);
    // The injector took the burst over; the device took three of it.
    assert!(burst.is_empty());
    device.limit_tx_burst(0);
    let late = sealed(&mut bench.near, &numbered(8), TxMeta::default());
    burst.push(late);
    bench.near.tx_burst(&mut burst);
    assert_eq!(burst.len(), 1);
    device.limit_tx_burst(u64::MAX);
    bench.near.tx_burst(&mut burst);
    let got: Vec<u32> = receive(&mut bench.far).iter().map(|frame| number(frame)).collect();
    assert_eq!(got, (0..9).collect::<Vec<_>>());
}

#[test]
fn every_buffer_comes_back_from_every_fault() {
    let rates = FaultRates {
        drop_ppm: 50_000,
        duplicate_ppm: 50_000,
        reorder_ppm: 50_000,
        corrupt_ppm: 50_000,
        truncate_ppm: 50_000,
        delay_ppm: 50_000,
        delay_polls: 20,
    };
    let mut bench = bench();
    let levels = |bench: &mut Bench| {
        [bench.near.port_mut().control().free_frames(), bench.far.control().free_frames()]
    };
    let full = levels(&mut bench);
    bench.control.set_faults(Faults { seed: 1, rx: rates, tx: rates });
    for n in 0..2_000 {
        send(&mut bench.near, &numbered(n));
        send(&mut bench.far, &numbered(n));
        receive(&mut bench.near);
        receive(&mut bench.far);
    }
    bench.control.set_faults(Faults::default());
    for _ in 0..100 {
        receive(&mut bench.near);
        receive(&mut bench.far);
    }
    assert_eq!(levels(&mut bench), full);
}
