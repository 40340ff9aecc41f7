//! A link's rates, delays, queue and faults.

use super::*;
use crate::node::{FnNode, Node};

fn link(config: LinkConfig) -> Link {
    Link::new(config, SeededEntropy::new(9))
}

/// Offers `count` frames of 100 bytes, one every `gap`; answers when they arrive.
fn arrivals(link: &mut Link, count: u64, gap: Nanos) -> Vec<Nanos> {
    (0..count).flat_map(|n| link.offer(gap.times(n), &mut vec![0; 100])).collect()
}

/// How often `faulty` happens in 100 000 frames, as the link counts it.
fn happens(config: LinkConfig, fault: fn(&LinkCounts) -> u64) -> u64 {
    let mut link = link(config);
    arrivals(&mut link, 100_000, Nanos(100));
    assert_eq!(link.check(), Ok(()));
    fault(&link.counts())
}

#[test]
fn a_frame_takes_its_time_on_the_wire_and_then_the_delay() {
    let mut link =
        link(LinkConfig { rate_bits_per_s: 1_000_000_000, delay: Nanos(5_000), ..LinkConfig::default() });
    // 100 bytes and 24 of overhead at 8 ns a byte.
    assert_eq!(arrivals(&mut link, 1, Nanos(0)), [Nanos(992 + 5_000)]);
    // The next one, offered at the same time, waits for it.
    assert_eq!(arrivals(&mut link, 1, Nanos(0)), [Nanos(2 * 992 + 5_000)]);
}

#[test]
fn an_ideal_link_takes_no_time() {
    assert_eq!(arrivals(&mut link(LinkConfig::ideal()), 3, Nanos(7)), [Nanos(0), Nanos(7), Nanos(14)]);
}

#[test]
fn what_finds_the_queue_full_is_lost() {
    let config = LinkConfig { rate_bits_per_s: 1_000_000_000, queue_bytes: 350, ..LinkConfig::default() };
    let mut link = link(config);
    assert_eq!(arrivals(&mut link, 10, Nanos(0)).len(), 3);
    assert_eq!(link.counts().queue_full, 7);
    // Once some of it has left, there is room again.
    assert_eq!(link.offer(Nanos(2_000), &mut vec![0; 100]).len(), 1);
    assert_eq!(link.check(), Ok(()));
}

#[test]
fn faults_come_at_their_rates() {
    let near = |seen: u64, expected: u64| seen.abs_diff(expected) < expected / 10;
    let ideal = LinkConfig::ideal;
    assert!(near(happens(LinkConfig { loss_ppm: 20_000, ..ideal() }, |counts| counts.lost), 2_000));
    let duplicated = LinkConfig { duplicate_ppm: 50_000, ..ideal() };
    assert!(near(happens(duplicated, |counts| counts.duplicated), 5_000));
    assert!(near(happens(LinkConfig { truncate_ppm: 30_000, ..ideal() }, |counts| counts.truncated), 3_000));
    let reordered = LinkConfig { reorder_ppm: 30_000, reorder_by: Nanos(1_000), ..ideal() };
    assert!(near(happens(reordered, |counts| counts.reordered), 3_000));
    assert!(near(happens(LinkConfig { corrupt_ppm: 30_000, ..ideal() }, |counts| counts.corrupted), 3_000));
}

#[test]
fn without_faults_nothing_is_lost_and_nothing_changes() {
    let mut link = link(LinkConfig { jitter: Nanos(500), ..LinkConfig::default() });
    for n in 0..1_000u64 {
        let mut frame = n.to_be_bytes().to_vec();
        assert_eq!(link.offer(Nanos(n * 100), &mut frame).len(), 1);
        assert_eq!(frame, n.to_be_bytes());
    }
    assert_eq!(link.counts(), LinkCounts { offered: 1_000, sent: 1_000, ..LinkCounts::default() });
}

#[test]
fn jitter_spreads_over_its_range_and_no_further() {
    let config = LinkConfig { jitter: Nanos(5_000), delay: Nanos(1_000), ..LinkConfig::ideal() };
    let got = arrivals(&mut link(config), 1_000, Nanos(10_000));
    let delays: Vec<u64> = got.iter().zip(0..).map(|(at, n)| at.0 - 10_000 * n).collect();
    assert!(delays.iter().all(|delay| (1_000..=6_000).contains(delay)));
    assert!(delays.iter().any(|delay| *delay < 1_100) && delays.iter().any(|delay| *delay > 5_900));
}

#[test]
fn jitter_alone_keeps_the_order() {
    let config = LinkConfig { jitter: Nanos(5_000), ..LinkConfig::ideal() };
    let got = arrivals(&mut link(config), 1_000, Nanos(100));
    assert!(got.len() == 1_000 && got.is_sorted());
}

#[test]
fn a_reordered_frame_is_overtaken_and_holds_up_nobody() {
    let config = LinkConfig { reorder_ppm: 100_000, reorder_by: Nanos(1_000), ..LinkConfig::ideal() };
    let got = arrivals(&mut link(config), 1_000, Nanos(100));
    assert!(got.windows(2).any(|pair| pair[0] > pair[1]));
    let late = got.iter().enumerate().filter(|(n, at)| at.0 > 100 * *n as u64).count();
    assert!((50..150).contains(&late), "{late}");
}

#[test]
fn knobs_may_be_turned_while_frames_pass() {
    let mut link = link(LinkConfig::ideal());
    assert_eq!(arrivals(&mut link, 10, Nanos(1)).len(), 10);
    link.config.loss_ppm = 1_000_000;
    assert_eq!(arrivals(&mut link, 10, Nanos(1)).len(), 0);
    link.config.loss_ppm = 0;
    assert_eq!(arrivals(&mut link, 10, Nanos(1)).len(), 10);
}

#[test]
fn a_closure_is_a_node_in_a_box_too() {
    let mut polls = 0;
    let mut node: Box<dyn Node + '_> = Box::new(FnNode(|now: Nanos| {
        polls += 1;
        Some(now + Nanos(1))
    }));
    assert_eq!((node.poll(Nanos(4)), node.check()), (Some(Nanos(5)), Ok(())));
    drop(node);
    assert_eq!(polls, 1);
}
