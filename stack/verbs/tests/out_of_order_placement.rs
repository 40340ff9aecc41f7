//! Out-of-order placement as an application sees it: the setting changes counters and nothing else.

use crate::common;

use common::{Pair, config, contents, pattern};
use ironwarp::instrument::{FaultRates, Faults};
use ironwarp::memory::MemoryConfig;
use ironwarp::{CompletionStatus, Config, QpAttr, RecvWr, Region, RemoteMemory, SendWr};

const BYTES: usize = 60_000;

fn marked(address: &str) -> Config {
    let mut config = config(address);
    config.mpa.markers = true;
    config
}

fn placing(address: &str) -> Config {
    let mut config = marked(address);
    config.ddp.place_out_of_order = true;
    config
}

/// Runs Writes, Sends and Reads over a wire that drops, duplicates and reorders; every octet must
/// arrive once and unchanged. Returns the number of segments that were placed early at the far node
/// and at the near node, which reads.
fn transfer(config: fn(&str) -> Config, far_setting: Option<bool>) -> [u64; 2] {
    let rates =
        FaultRates { drop_ppm: 20_000, duplicate_ppm: 20_000, reorder_ppm: 50_000, ..FaultRates::default() };
    let mut counts = [0; 2];
    for seed in 1..=3 {
        let mut pair = Pair::over(&MemoryConfig::default(), config);
        pair.near.worker.port_control().set_faults(Faults { seed, rx: rates, tx: rates });
        pair.far.worker.port_control().set_faults(Faults { seed: seed + 100, rx: rates, tx: rates });
        let far_attr = QpAttr { place_out_of_order: far_setting, ..QpAttr::new(pair.far.cq) };
        let near_attr = QpAttr::new(pair.near.cq);
        let (near, far) = pair.connect_with(&near_attr, &far_attr);
        for round in 0..4 {
            let sent = pattern(BYTES, round as u8);
            let (source, target) = (pair.near.memory(&sent), pair.far.memory(&[0; BYTES]));
            let (landing, back) = (pair.far.memory(&[0; BYTES]), pair.near.memory(&[0; BYTES]));
            let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
            let all = |region: &Region| [region.slice(0, BYTES as u32).unwrap()];
            pair.far.ctx.post_recv(far, &RecvWr::new(round, &all(&landing))).unwrap();
            pair.near.ctx.post_send(near, &SendWr::write(1, &all(&source), remote)).unwrap();
            pair.near.ctx.post_send(near, &SendWr::send(2, &all(&source))).unwrap();
            pair.near.ctx.post_send(near, &SendWr::read(3, &all(&back), remote).fenced()).unwrap();
            pair.until("the round", |pair| {
                pair.near.completions.len() == 3 && pair.far.completions.len() == 1
            });
            assert!(pair.near.completions.drain(..).all(|one| one.status == CompletionStatus::Success));
            pair.far.completions.clear();
            for region in [&target, &landing, &back] {
                assert!(contents(region) == sent, "seed {seed}, round {round}");
            }
        }
        for (count, node) in counts.iter_mut().zip([&pair.far, &pair.near]) {
            assert_eq!(
                node.counter("iwarp_out_of_order_placements"),
                node.counter("iwarp_out_of_order_copies_skipped")
            );
            *count += node.counter("iwarp_out_of_order_placements");
        }
    }
    counts
}

/// RFC5041-5.3-04, RFC5041-3-05: with markers, segments behind a lost or late segment are placed at
/// once. One side places Writes, the other side places Read Responses.
#[test]
fn segments_after_a_lost_one_are_placed_at_once() {
    let [writes, responses] = transfer(placing, None);
    assert!(writes > 0 && responses > 0, "{writes} and {responses}");
}

/// docs/semantics.md, "Placement": off by default. Markers alone change nothing.
#[test]
fn without_the_setting_markers_place_nothing_out_of_order() {
    assert_eq!(transfer(marked, None), [0, 0]);
}

/// A queue pair may enable or disable the setting of the configuration for itself.
#[test]
fn out_of_order_placement_is_a_queue_pair_setting() {
    let [writes, responses] = transfer(marked, Some(true));
    assert!(writes > 0 && responses == 0, "{writes} and {responses}");
    let [writes, responses] = transfer(placing, Some(false));
    assert!(writes == 0 && responses > 0, "{writes} and {responses}");
}

/// RFC 5044 s6: a queue pair with the setting on a connection without markers places in order.
#[test]
fn without_markers_the_setting_has_no_effect() {
    assert_eq!(transfer(config, Some(true)), [0, 0]);
}
