//! Echo: RFC 792, RFC 1122 s3.2.2.6.

use ironwarp_port::memory::MemoryConfig;
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{EthernetFrame, Icmpv4Packet, Icmpv4Repr, Ipv4Packet};

use super::assert_dropped;
use crate::testing::{Bench, OURS, PEER, echo_frame, v4, with_ip, with_options};

fn assert_reply(frame: &[u8], data: &[u8]) {
    let link = EthernetFrame::new_checked(frame).expect("a frame");
    assert_eq!((link.src_addr().0, link.dst_addr().0), (OURS.mac.0, PEER.mac.0));
    let ip = Ipv4Packet::new_checked(link.payload()).expect("a packet");
    assert!(ip.verify_checksum());
    assert_eq!((ip.src_addr(), ip.dst_addr(), ip.header_len()), (v4(1), v4(2), 20));
    assert_eq!(usize::from(ip.total_len()), frame.len() - 14);
    let icmp = Icmpv4Packet::new_checked(ip.payload()).expect("a message");
    let repr = Icmpv4Repr::parse(&icmp, &ChecksumCapabilities::default()).expect("a valid message");
    assert_eq!(repr, Icmpv4Repr::EchoReply { ident: 0x1234, seq_no: 7, data });
}

#[test]
fn an_echo_reply_contains_the_data_of_the_request() {
    for data in [&b""[..], b"x", b"some more data", &[0xff; 1400]] {
        let mut bench = Bench::new();
        assert!(bench.receive(&echo_frame(data)).is_none());
        assert_reply(&bench.sent()[0], data);
        assert_eq!(bench.counted(), [(Counter::NetEchoRepliesSent, 1)]);
    }
}

#[test]
fn an_echo_reply_has_no_padding_and_no_options() {
    let mut padded = echo_frame(b"1");
    padded.resize(60, 0xee);
    for frame in [padded, with_options(echo_frame(b"1"), &[0x94, 4, 0, 0])] {
        let mut bench = Bench::new();
        bench.receive(&frame);
        assert_reply(&bench.sent()[0], b"1");
    }
}

#[test]
fn an_echo_reply_has_the_type_of_service_of_the_request() {
    // RFC 1122 s3.2.2: the same type of service, which does not include the ECN bits.
    let mut bench = Bench::new();
    bench.receive(&with_ip(echo_frame(b"1"), 15, &[0xbb]));
    let sent = bench.sent();
    assert_eq!(sent[0][15], 0xb8);
    assert_reply(&sent[0], b"1");
}

#[test]
fn echo_requests_above_the_rate_are_counted() {
    let mut bench =
        Bench::with(MemoryConfig::default(), |cfg| (cfg.echo_per_second, cfg.echo_burst) = (10, 2));
    for _ in 0..5 {
        bench.receive(&echo_frame(b"1"));
    }
    assert_eq!(bench.counted(), [(Counter::NetEchoRepliesSent, 2), (Counter::NetDropEchoRateLimited, 3)]);
    bench.pass(Nanos::from_millis(100));
    bench.receive(&echo_frame(b"1"));
    assert_eq!(bench.sent().len(), 3);
}

#[test]
fn a_reply_that_finds_the_ring_full_is_counted() {
    let mut bench = Bench::new();
    bench.control.limit_tx_burst(0);
    for _ in 0..40 {
        bench.receive(&echo_frame(b"1"));
    }
    assert_eq!(bench.counted(), [(Counter::NetEchoRepliesSent, 32), (Counter::NetDropTxRingFull, 8)]);
}

#[test]
fn corrupt_short_and_other_messages_are_dropped_under_their_counters() {
    let mut corrupt = echo_frame(b"data");
    corrupt[45] ^= 1;
    assert_dropped(&corrupt, Counter::NetDropIcmpChecksum);
    assert_dropped(&with_ip(echo_frame(b""), 16, &[0, 27]), Counter::NetDropIcmpShort);
    let mut timestamp = echo_frame(b"data");
    timestamp[34] = 13;
    Icmpv4Packet::new_unchecked(&mut timestamp[34..]).fill_checksum();
    assert_dropped(&timestamp, Counter::NetDropIcmpOther);
}
