//! The whole stack over a wire that drops, duplicates, reorders and damages frames: every byte
//! arrives once and unchanged.

use crate::common;

use common::{Pair, contents, pattern};
use ironwarp::instrument::{FaultRates, Faults};
use ironwarp::{CompletionStatus, RecvWr, RemoteMemory, SendWr};

fn transfer(pair: &mut Pair, rounds: u64) {
    let (near, far) = pair.connect();
    const BYTES: usize = 40_000;
    for round in 0..rounds {
        let sent = pattern(BYTES, round as u8);
        let (source, target) = (pair.near.memory(&sent), pair.far.memory(&[0; BYTES]));
        let (landing, back) = (pair.far.memory(&[0; BYTES]), pair.near.memory(&[0; BYTES]));
        let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
        let all = |region: &ironwarp::Region| [region.slice(0, BYTES as u32).unwrap()];
        pair.far.ctx.post_recv(far, &RecvWr::new(round, &all(&landing))).unwrap();
        pair.near.ctx.post_send(near, &SendWr::write(1, &all(&source), remote)).unwrap();
        pair.near.ctx.post_send(near, &SendWr::send(2, &all(&source))).unwrap();
        pair.near.ctx.post_send(near, &SendWr::read(3, &all(&back), remote).fenced()).unwrap();
        pair.until("the round", |pair| pair.near.completions.len() == 3 && pair.far.completions.len() == 1);
        assert!(pair.near.completions.drain(..).all(|one| one.status == CompletionStatus::Success));
        pair.far.completions.clear();
        for region in [&target, &landing, &back] {
            assert!(contents(region) == sent, "round {round}");
        }
    }
    pair.near.ctx.disconnect(near).unwrap();
    pair.until("the end", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
}

fn survives(rates: FaultRates) {
    for seed in 1..=4 {
        let mut pair = Pair::new();
        pair.near.worker.port_control().set_faults(Faults { seed, rx: rates, tx: rates });
        pair.far.worker.port_control().set_faults(Faults { seed: seed + 100, rx: rates, tx: rates });
        transfer(&mut pair, 5);
    }
}

/// RFC 5041 s3; RFC 5044 s7.1.5.
#[test]
fn survives_the_loss_of_two_frames_in_a_hundred() {
    survives(FaultRates { drop_ppm: 20_000, ..FaultRates::default() });
}

/// RFC 5041 s3.
#[test]
fn survives_duplication_and_reordering() {
    survives(FaultRates { duplicate_ppm: 50_000, reorder_ppm: 50_000, ..FaultRates::default() });
}

#[test]
fn survives_corruption_that_the_checksums_detect() {
    survives(FaultRates { corrupt_ppm: 20_000, truncate_ppm: 10_000, ..FaultRates::default() });
}

/// semantics "Zero copy": the source of a Write changes while frames are lost and retransmitted. A
/// retransmission carries the same bytes as the first transmission. So no CRC fails, no connection
/// ends, and every byte that arrives is the old one or the new one.
#[test]
fn a_source_that_changes_during_loss_harms_no_other_stream() {
    let rates = FaultRates { drop_ppm: 30_000, reorder_ppm: 20_000, ..FaultRates::default() };
    for seed in 1..=3 {
        let mut pair = Pair::new();
        pair.near.worker.port_control().set_faults(Faults { seed, rx: rates, tx: rates });
        let (near, _) = pair.connect();
        const BYTES: usize = 1 << 20;
        let (source, target) = (pair.near.memory(&vec![1; BYTES]), pair.far.memory(&vec![0; BYTES]));
        let back = pair.near.memory(&vec![0; BYTES]);
        let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
        let all = |region: &ironwarp::Region| [region.slice(0, BYTES as u32).unwrap()];
        let (from, into) = (all(&source), all(&back));
        let wrs = [SendWr::write(1, &from, remote), SendWr::read(2, &into, remote).fenced()];
        pair.near.ctx.post_sends(near, &wrs).unwrap();
        let mut value = 1;
        pair.until("both", |pair| {
            value = 3 - value;
            // First change the Write's source, then the Read's source, which is shared memory as
            // well.
            let changing = if pair.near.completions.is_empty() { &source } else { &target };
            changing.fill(0, BYTES, value).unwrap();
            pair.near.completions.len() == 2
        });
        assert!(pair.near.completions.iter().all(|one| one.status == CompletionStatus::Success));
        assert!(contents(&target).iter().all(|byte| matches!(byte, 1 | 2)), "seed {seed}");
        assert!(contents(&back).iter().all(|byte| matches!(byte, 1 | 2)), "seed {seed}");
        let crcs = [&pair.near, &pair.far].map(|node| node.counter("iwarp_rx_crc_errors"));
        assert_eq!(crcs, [0, 0]);
    }
}
