//! The in-memory device: rings, pools, offloads, races between its two ends.

use super::*;
use crate::sample::{segment, unfilled_segment};
use crate::{Burst, Checksum, Frame, Port, RxMeta, Sealed, Spread, TxMeta};

fn plain_pair() -> (MemoryPort, MemoryPort) {
    pair(&MemoryConfig::default(), &MemoryConfig::default())
}

fn sealed(port: &mut MemoryPort, bytes: &[u8], tx: TxMeta) -> MemorySealed {
    let mut frame = port.alloc().expect("the pool has a frame");
    frame.resize(bytes.len());
    frame.bytes_mut().copy_from_slice(bytes);
    frame.seal(tx)
}

/// Sends frames and answers how many the device took.
fn send(port: &mut MemoryPort, frames: impl IntoIterator<Item = MemorySealed>) -> usize {
    let mut burst: Burst<MemorySealed> = frames.into_iter().collect();
    let offered = burst.len();
    port.tx_burst(&mut burst);
    offered - burst.len()
}

fn send_bytes(port: &mut MemoryPort, bytes: &[u8]) {
    let frame = sealed(port, bytes, TxMeta::default());
    assert_eq!(send(port, [frame]), 1);
}

fn receive(port: &mut MemoryPort) -> Vec<MemoryFrame> {
    let mut burst = Burst::new();
    port.rx_burst(&mut burst);
    burst.into_iter().collect()
}

fn both_offloads() -> TxMeta {
    let offloads = TxOffloads::IPV4_CHECKSUM | TxOffloads::TCP_CHECKSUM;
    TxMeta { l2_bytes: 14, l3_bytes: 20, l4_bytes: 20, offloads }
}

#[test]
fn frames_cross_both_ways_in_order() {
    let (mut left, mut right) = plain_pair();
    let frames: Vec<_> = (0..20).map(|n| sealed(&mut left, &[n; 60], TxMeta::default())).collect();
    assert_eq!(send(&mut left, frames), 20);
    send_bytes(&mut right, &[99; 64]);
    let got: Vec<u8> = receive(&mut right).iter().map(|frame| frame.bytes()[0]).collect();
    assert_eq!(got, (0..20).collect::<Vec<u8>>());
    assert_eq!(receive(&mut left)[0].bytes(), [99; 64]);
}

#[test]
fn a_receive_burst_fills_the_room_that_is_left_and_no_more() {
    let (mut left, mut right) = plain_pair();
    for n in 0..40 {
        send_bytes(&mut left, &[n; 60]);
    }
    let mut burst = Burst::new();
    right.rx_burst(&mut burst);
    assert_eq!(burst.len(), burst.capacity());
    burst.truncate(burst.capacity() - 3);
    right.rx_burst(&mut burst);
    assert_eq!(burst.len(), burst.capacity());
    let last: Vec<u8> = burst.iter().rev().take(3).map(|frame| frame.bytes()[0]).collect();
    assert_eq!(last, [34, 33, 32]);
}

#[test]
fn a_received_frame_can_be_edited_while_its_sender_keeps_the_original() {
    let (mut left, mut right) = plain_pair();
    let kept = sealed(&mut left, &[1; 60], TxMeta::default());
    send(&mut left, [kept.clone()]);
    receive(&mut right)[0].bytes_mut().fill(2);
    assert_eq!(kept.bytes(), [1; 60]);
    send(&mut left, [kept]);
    assert_eq!(receive(&mut right)[0].bytes(), [1; 60]);
}

#[test]
fn every_buffer_comes_back() {
    let (mut left, mut right) = plain_pair();
    let full = left.control().free_frames();
    for _ in 0..3_000 {
        let frame = sealed(&mut left, &[5; 100], TxMeta::default());
        send(&mut left, [frame.clone(), frame]);
        assert_eq!(receive(&mut right).len(), 2);
    }
    assert_eq!((left.control().free_frames(), right.control().free_frames()), (full, full));
}

#[test]
fn a_full_far_ring_fills_the_transmit_ring_and_then_refuses() {
    let config = MemoryConfig { rx_ring_frames: 4, tx_ring_frames: 3, ..MemoryConfig::default() };
    let (mut left, mut right) = pair(&config, &config);
    let frames: Vec<_> = (0..10).map(|n| sealed(&mut left, &[n; 60], TxMeta::default())).collect();
    // The transmit ring takes three, which leave at once; then one more finds room at the far end.
    assert_eq!(send(&mut left, frames[..3].to_vec()), 3);
    assert_eq!(send(&mut left, frames[3..].to_vec()), 3);
    assert_eq!((left.tx_held_frames(), right.control().rx_waiting_frames()), (2, 4));
    assert_eq!(send(&mut left, frames[6..].to_vec()), 1);
    assert_eq!(send(&mut left, frames[7..].to_vec()), 0);
    let first: Vec<u8> = receive(&mut right).iter().map(|frame| frame.bytes()[0]).collect();
    // Polling for frames lets the held ones leave, as cleaning a transmit ring does.
    assert!(receive(&mut left).is_empty());
    let second: Vec<u8> = receive(&mut right).iter().map(|frame| frame.bytes()[0]).collect();
    assert_eq!((first, second), (vec![0, 1, 2, 3], vec![4, 5, 6]));
}

#[test]
fn a_frame_in_the_transmit_ring_keeps_its_buffer() {
    let config = MemoryConfig { rx_ring_frames: 1, tx_frames: 3, ..MemoryConfig::default() };
    let (mut left, mut right) = pair(&config, &config);
    for n in 0..3 {
        send_bytes(&mut left, &[n; 60]);
    }
    // One has left; two are the driver's, so one buffer is free.
    let spare = left.alloc();
    assert!(spare.is_some() && left.alloc().is_none());
    assert_eq!(receive(&mut right).len(), 1);
    assert!(receive(&mut left).is_empty());
    assert!(left.alloc().is_some());
}

#[test]
fn an_empty_receive_pool_loses_frames_and_says_so() {
    let config = MemoryConfig { rx_frames: 2, ..MemoryConfig::default() };
    let (mut left, mut right) = pair(&MemoryConfig::default(), &config);
    for n in 0..3 {
        send_bytes(&mut left, &[n; 60]);
    }
    let counts = right.control().counts();
    assert_eq!((counts.rx_frames, counts.rx_no_buffer), (2, 1));
    assert_eq!(receive(&mut right).len(), 2);
}

#[test]
fn what_is_too_long_for_either_end_is_lost_and_counted() {
    let jumbo = MemoryConfig { mtu_bytes: 9000, ..MemoryConfig::default() };
    let small = MemoryConfig { mtu_bytes: 1500, ..MemoryConfig::default() };
    let (mut left, mut right) = pair(&jumbo, &small);
    send_bytes(&mut left, &[1; 9000]);
    assert_eq!(right.control().counts().rx_too_long, 1);
    send_bytes(&mut left, &[1; 9024]);
    assert_eq!(left.control().counts().tx_too_long, 1);
    assert!(receive(&mut right).is_empty());
}

#[test]
fn a_frame_grows_to_its_capacity_and_no_further() {
    let (mut left, _right) = plain_pair();
    let mut frame = left.alloc().unwrap();
    assert!(frame.bytes().is_empty());
    frame.resize(usize::MAX);
    assert_eq!(frame.bytes().len(), frame.capacity());
    assert!(frame.capacity() >= 1518);
}

#[test]
fn the_device_fills_in_what_it_claims_and_the_senders_copy_stays_as_it_was() {
    let config = MemoryConfig::default().offloading();
    let (mut left, mut right) = pair(&config, &MemoryConfig::default());
    let before = unfilled_segment(b"odd length!");
    let frame = sealed(&mut left, &before, both_offloads());
    send(&mut left, [frame.clone()]);
    assert_eq!(receive(&mut right)[0].bytes(), segment(b"odd length!"));
    assert_eq!(frame.bytes(), before);
    assert_eq!(left.control().counts().tx_offloads_refused, 0);
}

#[test]
fn padding_behind_the_packet_is_not_summed() {
    let config = MemoryConfig::default().offloading();
    let (mut left, mut right) = pair(&config, &config);
    let padded = |mut frame: Vec<u8>| {
        frame.resize(60, 0xee);
        frame
    };
    let frame = sealed(&mut left, &padded(unfilled_segment(b"x")), both_offloads());
    send(&mut left, [frame]);
    let got = &receive(&mut right)[0];
    assert_eq!(got.bytes(), padded(segment(b"x")));
    assert_eq!(got.rx().l4_checksum, Checksum::Good);
}

#[test]
fn an_offload_that_is_not_claimed_is_not_done_and_counted() {
    let (mut left, mut right) = plain_pair();
    let frame = sealed(&mut left, &unfilled_segment(b"abcd"), both_offloads());
    send(&mut left, [frame]);
    assert_eq!(receive(&mut right)[0].bytes(), unfilled_segment(b"abcd"));
    assert_eq!(left.control().counts().tx_offloads_refused, 1);
}

#[test]
fn the_device_judges_checksums_when_it_claims_to() {
    let (mut port, mut far) = detached(&MemoryConfig::default().offloading());
    let good = segment(b"payload");
    let (mut bad_ip, mut bad_tcp) = (good.clone(), good.clone());
    bad_ip[22] ^= 1;
    bad_tcp[56] ^= 1;
    let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x08, 0x06], &[0; 46]].concat();
    for frame in [&good, &bad_ip, &bad_tcp, &arp] {
        assert!(far.inject(frame));
    }
    let verdicts: Vec<_> =
        receive(&mut port).iter().map(|frame| (frame.rx().ip_checksum, frame.rx().l4_checksum)).collect();
    use Checksum::{Bad, Good, Unknown};
    assert_eq!(verdicts, [(Good, Good), (Bad, Good), (Good, Bad), (Unknown, Unknown)]);
}

#[test]
fn a_device_that_claims_nothing_says_nothing() {
    let (mut port, mut far) = detached(&MemoryConfig::default());
    far.inject(&segment(b"payload"));
    assert_eq!(receive(&mut port)[0].rx(), RxMeta::default());
}

#[test]
fn every_segment_of_a_flow_has_one_hash() {
    let (mut port, mut far) = detached(&MemoryConfig::default().offloading());
    far.inject(&segment(b"one"));
    far.inject(&segment(b"another"));
    let mut other_flow = segment(b"one");
    other_flow[34] ^= 1;
    far.inject(&other_flow);
    let hashes: Vec<_> = receive(&mut port).iter().map(|frame| frame.rx().rss_hash).collect();
    assert!(hashes[0].is_some() && hashes[0] == hashes[1] && hashes[1] != hashes[2]);
}

#[test]
fn a_harness_may_lie_about_checksums() {
    let (mut port, mut far) = detached(&MemoryConfig::default());
    let lie = RxMeta { rss_hash: Some(7), ip_checksum: Checksum::Good, l4_checksum: Checksum::Bad };
    assert!(far.inject_with(&segment(b"payload"), lie));
    assert_eq!(receive(&mut port)[0].rx(), lie);
}

#[test]
fn a_harness_collects_what_the_port_sends() {
    let (mut port, mut far) = detached(&MemoryConfig::default());
    send_bytes(&mut port, &[3; 80]);
    let mut got = Burst::new();
    far.collect(&mut got);
    assert_eq!(got[0].bytes(), [3; 80]);
    let config = MemoryConfig { rx_ring_frames: 0, ..MemoryConfig::default() };
    let (_full, mut far) = detached(&config);
    assert!(!far.inject(&[0; 60]));
}

#[test]
fn allocations_fail_when_told_to() {
    let (mut left, _right) = plain_pair();
    let control = left.control();
    control.allow_allocations(2);
    let got: Vec<bool> = (0..4).map(|_| left.alloc().is_some()).collect();
    assert_eq!(got, [true, true, false, false]);
    control.allow_allocations(u64::MAX);
    assert!(left.alloc().is_some());
}

#[test]
fn the_transmit_ring_takes_fewer_when_told_to() {
    let (mut left, mut right) = plain_pair();
    left.control().limit_tx_burst(2);
    let frames: Vec<_> = (0..5).map(|n| sealed(&mut left, &[n; 60], TxMeta::default())).collect();
    let mut burst: Burst<_> = frames.into_iter().collect();
    left.tx_burst(&mut burst);
    let left_over: Vec<u8> = burst.iter().map(|frame| frame.bytes()[0]).collect();
    assert_eq!(left_over, [2, 3, 4]);
    assert_eq!(receive(&mut right).len(), 2);
    left.control().limit_tx_burst(0);
    left.tx_burst(&mut burst);
    assert_eq!(burst.len(), 3);
}

#[test]
fn segments_are_found_only_where_they_are() {
    let frame = segment(b"12345");
    assert_eq!(Ipv4Tcp::locate(&frame), Some(Ipv4Tcp { l3: 14, l4: 34, payload: 54, end: 59 }));
    let tagged = [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    assert_eq!(Ipv4Tcp::locate(&tagged), Some(Ipv4Tcp { l3: 18, l4: 38, payload: 58, end: 63 }));
    let changed = |at: usize, to: u8| {
        let mut frame = frame.clone();
        frame[at] = to;
        Ipv4Tcp::locate(&frame)
    };
    let not_ip = changed(12, 9);
    let (version, header, length) = (changed(14, 0x65), changed(14, 0x41), changed(17, 200));
    let (fragment, udp, data_offset) = (changed(21, 1), changed(23, 17), changed(46, 0xf0));
    assert_eq!([not_ip, version, header, length, fragment, udp, data_offset], [None; 7]);
    assert!((0..frame.len()).all(|cut| Ipv4Tcp::locate(&frame[..cut]).is_none()));
}

#[test]
fn two_threads_exchange_frames_without_loss() {
    let (mut left, mut right) = plain_pair();
    let sender = std::thread::spawn(move || {
        let mut sent = 0u32;
        while sent < 20_000 {
            let Some(mut frame) = left.alloc() else { continue };
            frame.resize(64);
            frame.bytes_mut()[..4].copy_from_slice(&sent.to_be_bytes());
            let mut burst = Burst::from_iter([frame.seal(TxMeta::default())]);
            while !burst.is_empty() {
                left.tx_burst(&mut burst);
                std::thread::yield_now();
            }
            sent += 1;
        }
        // What is still in the transmit ring leaves with the next polls.
        while left.tx_held_frames() > 0 {
            left.rx_burst(&mut Burst::new());
        }
    });
    let mut next = 0u32;
    while next < 20_000 {
        for frame in receive(&mut right) {
            assert_eq!(frame.bytes()[..4], next.to_be_bytes());
            next += 1;
        }
        std::thread::yield_now();
    }
    sender.join().unwrap();
    assert_eq!(right.control().counts().rx_no_buffer, 0);
}

fn marked(queues: &mut [MemoryPort]) -> Vec<Vec<u8>> {
    queues.iter_mut().map(|port| receive(port).iter().map(|frame| frame.bytes()[0]).collect()).collect()
}

#[test]
fn a_frame_goes_into_the_queue_of_the_number_that_it_left_from() {
    let config = MemoryConfig::default();
    let (mut left, mut right) = pair_of_queues((&config, 3), (&config, 2));
    for (queue, port) in left.iter_mut().enumerate() {
        send_bytes(port, &[queue as u8; 60]);
    }
    // There are fewer over there.
    assert_eq!(marked(&mut right), [vec![0, 2], vec![1]]);
    send_bytes(&mut right[1], &[9; 60]);
    assert_eq!(marked(&mut left), [vec![], vec![9], vec![]]);
}

#[test]
fn a_device_may_put_everything_into_one_queue() {
    let all = MemoryConfig { queue_rule: QueueRule::All(1), ..MemoryConfig::default() };
    let (mut left, mut right) = pair_of_queues((&all, 2), (&all, 3));
    left.iter_mut().for_each(|port| send_bytes(port, &[7; 60]));
    assert_eq!(marked(&mut right), [vec![], vec![7, 7], vec![]]);
    assert_eq!(right[0].caps().spread, Spread::Unknown);
}

/// Both directions of a flow have one hash, and what is no flow goes into the first queue.
#[test]
fn a_device_may_hash_flows_to_queues() {
    let hashing = MemoryConfig { queue_rule: QueueRule::Toeplitz, ..MemoryConfig::default() };
    let (mut ports, mut far) = detached_queues(&hashing, 4);
    let bytes = segment(b"hello");
    let mut turned = bytes.clone();
    let at = Ipv4Tcp::locate(&bytes).expect("a segment");
    turned[at.l3 + 12..at.l3 + 16].copy_from_slice(&bytes[at.l3 + 16..at.l3 + 20]);
    turned[at.l3 + 16..at.l3 + 20].copy_from_slice(&bytes[at.l3 + 12..at.l3 + 16]);
    turned[at.l4..at.l4 + 2].copy_from_slice(&bytes[at.l4 + 2..at.l4 + 4]);
    turned[at.l4 + 2..at.l4 + 4].copy_from_slice(&bytes[at.l4..at.l4 + 2]);
    assert!(far.inject(&bytes) && far.inject(&turned));
    let counts: Vec<usize> = ports.iter_mut().map(|port| receive(port).len()).collect();
    assert_eq!(counts.iter().filter(|&&count| count == 2).count(), 1, "{counts:?}");
    assert!(far.inject(&[8; 60]));
    assert_eq!(receive(&mut ports[0]).len(), 1);
}

/// A full queue holds up what its sender has behind it, not what others send elsewhere.
#[test]
fn a_full_queue_holds_frames_at_their_sender() {
    let small = MemoryConfig { rx_ring_frames: 2, ..MemoryConfig::default() };
    let (mut left, mut right) = pair_of_queues((&small, 2), (&small, 2));
    (0..5).for_each(|n| send_bytes(&mut left[0], &[n; 60]));
    send_bytes(&mut left[1], &[9; 60]);
    assert_eq!((left[0].tx_held_frames(), left[1].tx_held_frames()), (3, 0));
    assert_eq!(marked(&mut right), [vec![0, 1], vec![9]]);
    left[0].rx_burst(&mut Burst::new());
    assert_eq!(marked(&mut right), [vec![2, 3], vec![]]);
}
