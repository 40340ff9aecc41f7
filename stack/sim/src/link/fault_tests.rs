//! Bursts, outages, pauses, marks, packets that are too large, damage to every kind of packet.

use super::packet::checksum;
use super::*;

fn link(config: LinkConfig) -> Link {
    Link::new(config, SeededEntropy::new(5))
}

/// A TCP segment of 100 bytes of payload with right checksums, in IPv4 or IPv6, with or without a
/// VLAN tag, from a sender that understands congestion marks.
fn segment(v6: bool, tagged: bool) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if tagged {
        frame.extend([0x81, 0, 0, 7]);
    }
    let mut tcp = vec![3, 232, 7, 208, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
    tcp.extend(0..100);
    let addresses: Vec<u8> = if v6 { (0..32).collect() } else { vec![10, 0, 0, 1, 10, 0, 0, 2] };
    let sum = checksum(pseudo(&addresses, tcp.len()), &tcp);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0x20, 0, 0, 0, 120, 6, 64]);
        frame.extend(&addresses);
    } else {
        let mut header = vec![0x45, 2, 0, 140, 0, 1, 0x40, 0, 64, 6, 0, 0];
        header.extend(&addresses);
        let sum = checksum(0, &header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend([8, 0]);
        frame.extend(header);
    }
    frame.extend(tcp);
    frame
}

fn pseudo(addresses: &[u8], bytes: usize) -> u64 {
    u64::from(!checksum(6 + bytes as u64, addresses))
}

/// Whether both checksums of a frame of [`segment`]'s are right.
fn sums_hold(frame: &[u8], v6: bool, tagged: bool) -> bool {
    let l3 = if tagged { 18 } else { 14 };
    let (header, addresses) = if v6 { (40, 8..40) } else { (20, 12..20) };
    let packet = &frame[l3..];
    let tcp = checksum(pseudo(&packet[addresses], packet.len() - header), &packet[header..]);
    (v6 || checksum(0, &packet[..20]) == 0) && tcp == 0
}

const KINDS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

#[test]
fn losses_come_in_bursts_of_their_length() {
    let bursts = Bursts { begin_ppm: 10_000, end_ppm: 100_000, loss_ppm: 1_000_000 };
    let mut link = link(LinkConfig { bursts, ..LinkConfig::ideal() });
    let lost: Vec<bool> = (0..200_000).map(|n| link.offer(Nanos(n), &mut vec![0; 60]).is_empty()).collect();
    let begun = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    let count = lost.iter().filter(|lost| **lost).count();
    assert!((9..=11).contains(&(count / begun)), "{count} lost in {begun} bursts");
    assert_eq!(link.check(), Ok(()));
    link.config.bursts = Bursts::default();
    assert_eq!(link.offer(Nanos(1 << 30), &mut vec![0; 60]).len(), 1);
}

#[test]
fn nothing_passes_a_link_that_is_down() {
    let mut link = link(LinkConfig { is_down: true, ..LinkConfig::default() });
    assert!((0..100).all(|n| link.offer(Nanos(n), &mut vec![0; 60]).is_empty()));
    assert_eq!((link.counts().lost, link.check()), (100, Ok(())));
}

#[test]
fn what_is_offered_in_a_pause_leaves_after_it_in_order() {
    let config = LinkConfig { paused_until: Nanos(50_000), delay: Nanos(10), ..LinkConfig::default() };
    let mut link = link(LinkConfig { rate_bits_per_s: 1_000_000_000, ..config });
    let arrivals: Vec<u64> = (0..3).map(|n| link.offer(Nanos(n), &mut vec![0; 101])[0].0).collect();
    assert_eq!(arrivals, [51_010, 52_010, 53_010]);
}

/// RFC 3168 s5: only packets of those who can hear it are marked; their checksums stay right.
#[test]
fn marks_are_put_on_packets_that_can_carry_them() {
    for (v6, tagged) in KINDS {
        let mut link = link(LinkConfig { mark_ppm: 1_000_000, ..LinkConfig::ideal() });
        let mut frame = segment(v6, tagged);
        link.offer(Nanos(0), &mut frame);
        assert_eq!(link.counts().marked, 1);
        assert!(frame != segment(v6, tagged) && sums_hold(&frame, v6, tagged), "v6 {v6} tagged {tagged}");
        // Marked already, or not able.
        link.offer(Nanos(1), &mut frame);
        assert_eq!(link.counts().marked, 1);
    }
}

#[test]
fn a_long_queue_marks_and_a_short_one_does_not() {
    let config =
        LinkConfig { rate_bits_per_s: 1_000_000_000, mark_above_bytes: 500, ..LinkConfig::default() };
    let mut link = link(config);
    for _ in 0..6 {
        link.offer(Nanos(0), &mut segment(false, false));
    }
    // 154 bytes and 24 around them, 178 a frame: the fourth finds 534 waiting.
    assert_eq!(link.counts().marked, 3);
}

/// RFC 1191 s4 and RFC 4443 s3.2.
#[test]
fn the_sender_of_a_packet_too_large_gets_an_icmp_error() {
    for (v6, tagged) in KINDS {
        let mut link = link(LinkConfig {
            mtu_bytes: 139,
            answers_too_big: true,
            delay: Nanos(7),
            ..LinkConfig::ideal()
        });
        let frame = segment(v6, tagged);
        assert!(link.offer(Nanos(1), &mut frame.clone()).is_empty());
        let (at, answer) = link.take_answer(Nanos(1)).unwrap();
        assert_eq!((at, link.counts().too_big, link.counts().answered), (Nanos(8), 1, 1));
        assert_eq!((&answer[..6], &answer[6..12]), (&frame[6..12], &frame[..6]));
        let l3 = if tagged { 18 } else { 14 };
        let (kind, quoted) = if v6 { (l3 + 40, l3 + 48) } else { (l3 + 20, l3 + 28) };
        assert_eq!(answer[kind..kind + 2], if v6 { [2, 0] } else { [3, 4] });
        assert_eq!(answer[quoted - 2..quoted], 139u16.to_be_bytes());
        assert!(frame[l3..].starts_with(&answer[quoted..quoted + 28]), "the packet is quoted");
        let start = if v6 {
            u64::from(!checksum(58 + (answer.len() - kind) as u64, &answer[l3 + 8..kind]))
        } else {
            0
        };
        assert_eq!(checksum(start, &answer[kind..]), 0);
        assert_eq!(link.check(), Ok(()));
    }
}

#[test]
fn a_packet_that_fits_or_a_silent_link_sends_no_icmp_error() {
    let mut fits = link(LinkConfig { mtu_bytes: 140, answers_too_big: true, ..LinkConfig::ideal() });
    assert_eq!(fits.offer(Nanos(0), &mut segment(false, true)).len(), 1);
    let mut silent = link(LinkConfig { mtu_bytes: 139, ..LinkConfig::ideal() });
    assert!(silent.offer(Nanos(0), &mut segment(false, true)).is_empty());
    assert!(fits.take_answer(Nanos(0)).is_none() && silent.take_answer(Nanos(0)).is_none());
}

/// A frame crosses several links on its way through a switch.
#[test]
fn damage_on_several_links_does_not_cancel() {
    let mut link = link(LinkConfig { corrupt_ppm: 1_000_000, ..LinkConfig::ideal() });
    for (v6, tagged) in KINDS {
        for _ in 0..2_000 {
            let mut frame = segment(v6, tagged);
            link.offer(Nanos(0), &mut frame);
            for _ in 0..4 {
                link.offer(Nanos(0), &mut frame);
                assert!(!sums_hold(&frame, v6, tagged), "v6 {v6} tagged {tagged}");
            }
        }
    }
}

#[test]
fn damage_is_seen_or_not_as_it_was_asked_for() {
    for (v6, tagged) in KINDS {
        let (mut seen, mut unseen) = (
            link(LinkConfig { corrupt_ppm: 1_000_000, ..LinkConfig::ideal() }),
            link(LinkConfig { corrupt_unseen_ppm: 1_000_000, ..LinkConfig::ideal() }),
        );
        for _ in 0..500 {
            let (mut damaged, mut sly) = (segment(v6, tagged), segment(v6, tagged));
            assert_eq!(seen.offer(Nanos(0), &mut damaged).len(), 1);
            assert_eq!(unseen.offer(Nanos(0), &mut sly).len(), 1);
            let l3 = if tagged { 18 } else { 14 };
            // A wrong length or protocol hides the segment: only the header's own sum shows it
            // then.
            assert!(damaged[l3..] != segment(v6, tagged)[l3..] && !sums_hold(&damaged, v6, tagged));
            assert!(sly != segment(v6, tagged) && sums_hold(&sly, v6, tagged), "v6 {v6} tagged {tagged}");
        }
    }
}

/// RFC 9260 s6.8: the checksum covers the packet, and with IPv6 nothing before it.
#[test]
fn a_packet_of_sctp_is_damaged_where_a_checksum_shows_it() {
    let mut link = link(LinkConfig { corrupt_ppm: 1_000_000, ..LinkConfig::ideal() });
    for (v6, tagged) in KINDS {
        let l3 = if tagged { 18 } else { 14 };
        let (protocol, covered_from) = if v6 { (l3 + 6, l3 + 40) } else { (l3 + 9, l3) };
        let mut packet = segment(v6, tagged);
        packet[protocol] = 132;
        if !v6 {
            packet[l3 + 10..l3 + 12].fill(0);
            let sum = checksum(0, &packet[l3..l3 + 20]);
            packet[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        }
        for _ in 0..500 {
            let mut damaged = packet.clone();
            assert_eq!(link.offer(Nanos(0), &mut damaged).len(), 1);
            let changed: Vec<usize> = (0..packet.len()).filter(|at| damaged[*at] != packet[*at]).collect();
            assert!(changed.len() == 1 && changed[0] >= covered_from, "v6 {v6}: {changed:?}");
        }
    }
}

/// RFC 9293 s3.7: a receiver takes the bytes of a stream in any segments.
#[test]
fn regrouped_segments_have_the_same_bytes_and_right_checksums() {
    for (v6, tagged) in KINDS {
        let first = segment(v6, tagged);
        let l4 = if tagged { 18 } else { 14 } + if v6 { 40 } else { 20 };
        let headers = l4 + 20;
        let numbered = |number: u32| {
            let mut frame = first.clone();
            frame[l4 + 4..l4 + 8].copy_from_slice(&(1 + 100 * number).to_be_bytes());
            frame[l4 + 16..l4 + 18].fill(0);
            let addresses = if v6 { l4 - 32..l4 } else { l4 - 8..l4 };
            let sum = checksum(pseudo(&first[addresses], 120), &frame[l4..]);
            frame[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
            frame
        };
        let config = LinkConfig { regroup_ppm: 900_000, ..LinkConfig::ideal() };
        let (mut link, mut lengths) = (link(config), Vec::new());
        for _ in 0..200 {
            // The last one does not continue the others.
            let mut frames: Vec<_> = (0..8).chain([9]).map(numbered).collect();
            link.regroup(&mut frames, 400);
            let mut next = 1;
            let (last, others) = frames.split_last().unwrap();
            for frame in others {
                assert!(frame.len() <= 400 && sums_hold(frame, v6, tagged));
                assert_eq!(frame[l4 + 4..l4 + 8], u32::to_be_bytes(next));
                let payload = &frame[headers..];
                assert!((next - 1..).zip(payload).all(|(at, byte)| u32::from(*byte) == at % 100));
                next += payload.len() as u32;
                lengths.push(payload.len());
            }
            assert_eq!((next, last), (801, &numbered(9)));
        }
        assert_eq!(link.counts().regrouped_to, 200 + lengths.len() as u64);
        assert!(lengths.iter().any(|len| *len > 300) && lengths.iter().any(|len| len % 100 != 0));
    }
}

#[test]
fn segments_that_differ_stay_as_they_are() {
    let mut link = link(LinkConfig { regroup_ppm: 1_000_000, ..LinkConfig::ideal() });
    let frames = vec![segment(false, false), segment(false, true), segment(true, false), vec![0; 60]];
    let mut regrouped = frames.clone();
    link.regroup(&mut regrouped, 9000);
    assert_eq!((regrouped, link.counts().regrouped_to), (frames, 4));
}
