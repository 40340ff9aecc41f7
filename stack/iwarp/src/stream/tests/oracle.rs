//! Random traffic against a model, with any segmentation of the bytes, and hostile bytes.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Send(usize),
    Write(usize, usize),
    Read(usize, usize),
}

pub(super) const AREA: usize = 8192;

pub(super) fn ops() -> impl Strategy<Value = Vec<Op>> {
    let bytes = prop_oneof![Just(0usize), 1..100usize, 1..6000usize];
    let at = 0..AREA - 6000;
    let op = prop_oneof![
        bytes.clone().prop_map(Op::Send),
        (at.clone(), bytes.clone()).prop_map(|(at, bytes)| Op::Write(at, bytes)),
        (at, bytes).prop_map(|(at, bytes)| Op::Read(at, bytes)),
    ];
    proptest::collection::vec(op, 0..12)
}

/// The memory of one side: the source of Sends, the area that the peer writes and reads, and the
/// sinks of Reads and receives.
pub(super) struct Areas {
    pub(super) source: Region,
    pub(super) target: Region,
    sinks: Vec<Region>,
    inboxes: Vec<Region>,
}

pub(super) fn areas(side: &mut Endpoint, incoming: &[Op], outgoing: &[Op], seed: u8) -> Areas {
    let area = |add: u8| pattern(AREA).iter().map(|byte| byte.wrapping_add(add)).collect::<Vec<u8>>();
    let (source, target) = (side.region(AREA, EVERYTHING), side.region(AREA, EVERYTHING));
    source.write_at(0, &area(seed)).unwrap();
    target.write_at(0, &area(seed ^ 0x80)).unwrap();
    let mut made = Areas { source, target, sinks: Vec::new(), inboxes: Vec::new() };
    for op in incoming {
        if let Op::Send(bytes) = op {
            let inbox = side.region(bytes + 1, EVERYTHING);
            side.receive(made.inboxes.len() as u64, &[all(&inbox)]);
            made.inboxes.push(inbox);
        }
    }
    for op in outgoing {
        if let Op::Read(_, bytes) = op {
            made.sinks.push(side.region(bytes + 1, Access::LOCAL_WRITE));
        }
    }
    made
}

pub(super) fn post_all(side: &mut Endpoint, ops: &[Op], local: &Areas, peer: &Areas) {
    let (stag, base) = remote(&peer.target);
    let mut sinks = local.sinks.iter();
    for (wr_id, op) in ops.iter().enumerate() {
        let wr_id = wr_id as u64;
        let piece = |bytes: &usize| local.source.slice(0, *bytes as u32).unwrap();
        match op {
            Op::Send(bytes) => side.send(wr_id, &[piece(bytes)]),
            Op::Write(at, bytes) => side.write(wr_id, &[piece(bytes)], (stag, base + *at as u64)),
            // Reads use the peer's source area, which nothing writes, so its bytes are known.
            Op::Read(at, bytes) => {
                let sink = sinks.next().unwrap().slice(0, *bytes as u32).unwrap();
                side.read(wr_id, sink, (peer.source.stag(), peer.source.base_to() + *at as u64));
            }
        }
    }
}

/// Checks one direction against the model: `ops` from `from` to `to`.
pub(super) fn check(
    ops: &[Op],
    from: &Areas,
    to: &Areas,
    target_before: &[u8],
    sender: &Endpoint,
    receiver: &Endpoint,
) {
    let (source, peer_source) = (Endpoint::bytes(&from.source), Endpoint::bytes(&to.source));
    let mut target = target_before.to_vec();
    let (mut inboxes, mut sinks) = (to.inboxes.iter(), from.sinks.iter());
    let mut delivered = Vec::new();
    for op in ops {
        match *op {
            Op::Send(bytes) => {
                let inbox = Endpoint::bytes(inboxes.next().unwrap());
                assert_eq!((&inbox[..bytes], inbox[bytes]), (&source[..bytes], 0));
                delivered.push((delivered.len() as u64, bytes as u32));
            }
            Op::Write(at, bytes) => target[at..at + bytes].copy_from_slice(&source[..bytes]),
            Op::Read(at, bytes) => {
                let sink = Endpoint::bytes(sinks.next().unwrap());
                assert_eq!((&sink[..bytes], sink[bytes]), (&peer_source[at..at + bytes], 0));
            }
        }
    }
    assert_eq!(Endpoint::bytes(&to.target), target);
    let sent: Vec<_> = (0..ops.len() as u64).map(|wr_id| (wr_id, OK)).collect();
    assert_eq!(ids(&sender.log.sends), sent);
    let received: Vec<_> = receiver.log.receives.iter().map(|done| (done.wr_id, done.byte_len)).collect();
    assert_eq!(received, delivered);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Both directions at once, any segment size, acknowledgements late or early: every byte is
    /// placed once and correctly, every request completes once and in order. RFC 5041 s5.2.
    #[test]
    fn two_streams_agree_with_the_model(
        ops_a in ops(),
        ops_b in ops(),
        room_a in fpdu::SEGMENT_BYTES_MIN..3000,
        room_b in fpdu::SEGMENT_BYTES_MIN..3000,
        interleave_untagged: bool,
        ack_early: bool,
    ) {
        let (mut a, mut b) = pair();
        b.stream = Stream::new(StreamConfig { interleave_untagged, ..config() });
        b.stream.start(StreamStart::plain(Role::Responder, true));
        let in_a = areas(&mut a, &ops_b, &ops_a, 1);
        let in_b = areas(&mut b, &ops_a, &ops_b, 2);
        let (before_a, before_b) = (Endpoint::bytes(&in_a.target), Endpoint::bytes(&in_b.target));
        // The responder may not send first: an empty Write opens its gate, as the first message of
        // `ops_a` would.
        b.feed(&framed(&[0xc1, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])).unwrap();
        post_all(&mut a, &ops_a, &in_a, &in_b);
        post_all(&mut b, &ops_b, &in_b, &in_a);
        loop {
            let (from_a, from_b) = (a.pull(room_a), b.pull(room_b));
            if from_a.is_empty() && from_b.is_empty() {
                break;
            }
            ulpdus(&from_a);
            ulpdus(&from_b);
            if ack_early {
                a.ack_all();
                b.ack_all();
            }
            b.feed(&from_a).unwrap();
            a.feed(&from_b).unwrap();
        }
        a.ack_all();
        b.ack_all();
        check(&ops_a, &in_a, &in_b, &before_b, &a, &b);
        check(&ops_b, &in_b, &in_a, &before_a, &b, &a);
    }

    /// RFC 5044 s5.1: a receiver works for any alignment of FPDUs with segments.
    /// RFC 5041 s3.
    #[test]
    fn any_segmentation_of_the_stream_gives_the_same_result(
        ops in ops(),
        cuts in proptest::collection::vec(1..2000usize, 1..40),
    ) {
        let outcome = |cuts: &[usize]| {
            let (mut a, mut b) = pair();
            let in_a = areas(&mut a, &[], &ops, 1);
            let in_b = areas(&mut b, &ops, &[], 2);
            post_all(&mut a, &ops, &in_a, &in_b);
            let stream = a.pull_all(SEGMENT_BYTES).concat();
            let (mut rest, mut cuts) = (&stream[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, left) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                b.feed(piece).unwrap();
                rest = left;
            }
            assert_eq!(b.arrived.available(), 0);
            let inboxes: Vec<Vec<u8>> = in_b.inboxes.iter().map(Endpoint::bytes).collect();
            let received: Vec<_> = b.log.receives.iter().map(|done| (done.wr_id, done.byte_len)).collect();
            // Steering tags differ from run to run, so the pending responses are compared by their
            // lengths.
            let response_lengths: Vec<usize> = b.pull_all(SEGMENT_BYTES).iter().map(Vec::len).collect();
            (Endpoint::bytes(&in_b.target), inboxes, received, response_lengths)
        };
        prop_assert_eq!(outcome(&cuts), outcome(&[usize::MAX]));
    }

    /// Any octets, as they are on a stream without CRCs and in FPDUs with a correct CRC on one with
    /// them: the stream ends with an error or continues, each receive completes once at most, and
    /// only its memory changes.
    #[test]
    fn hostile_octets_end_the_stream_or_have_no_effect(
        crc: bool,
        octets in proptest::collection::vec(any::<u8>(), 0..400),
        cuts in proptest::collection::vec(0..60usize, 1..8),
    ) {
        let mut side = Endpoint::started(config(), Role::Responder, crc);
        let buffer = side.filled(4096, EVERYTHING);
        side.receive(1, &[buffer.slice(64, 32).unwrap()]);
        let mut stream = octets.clone();
        if crc {
            stream.clear();
            let (mut rest, mut cuts) = (&octets[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (ulpdu, left) = rest.split_at(rest.len().min(*cuts.next().unwrap() + 1));
                stream.extend(framed(ulpdu));
                rest = left;
            }
        }
        let outcome = side.feed(&stream);
        side.pull_all(SEGMENT_BYTES);
        prop_assert_eq!(outcome.is_err(), side.stream.error().is_some());
        prop_assert_eq!(outcome.is_err(), side.stream.state() == StreamState::Ended);
        // An FPDU with a correct CRC is whole, so its octets are processed, or end the stream.
        prop_assert!(!crc || outcome.is_err() || side.arrived.available() == 0);
        prop_assert!(side.log.receives.len() <= 1);
        prop_assert!(outcome.is_ok() || side.log.receives.len() == 1, "the receive is flushed");
        let (now, before) = (Endpoint::bytes(&buffer), pattern(4096));
        prop_assert_eq!((&now[..64], &now[96..]), (&before[..64], &before[96..]));
    }

    /// Like the test above, with octets that pass the CRC and look like segments.
    #[test]
    fn hostile_segments_end_the_stream_or_are_well_formed(
        segments in proptest::collection::vec(
            (0..4u8, 0..16u8, 0..4u32, 0..4u32, 0..3u32, proptest::collection::vec(any::<u8>(), 0..80)),
            1..12,
        ),
    ) {
        let mut side = Endpoint::responder();
        let buffer = side.filled(64, EVERYTHING);
        for wr_id in 0..4 {
            side.receive(wr_id, &[all(&buffer)]);
        }
        side.read(1, all(&buffer), (STag(1), 2));
        for (bits, opcode, qn, msn, mo, payload) in segments {
            let mut ulpdu = vec![bits << 6 | 1, 0x40 | opcode];
            if bits & 2 != 0 {
                ulpdu.extend(buffer.stag().0.to_be_bytes());
                ulpdu.extend((buffer.base_to() + u64::from(mo)).to_be_bytes());
            } else {
                ulpdu.extend([0; 4]);
                [qn, msn, mo].iter().for_each(|field| ulpdu.extend(field.to_be_bytes()));
            }
            ulpdu.extend(payload);
            let _ = side.feed(&framed(&ulpdu));
            ulpdus(&side.pull_all(SEGMENT_BYTES).concat());
        }
        let ended = side.stream.error().is_some();
        prop_assert_eq!(ended, side.stream.state() == StreamState::Ended);
        prop_assert!(!ended || side.log.receives.len() == 4);
    }
}

/// RFC 5044 s6: a short stream, split at every octet.
/// RFC 5041 s3; RFC 5044 sA.4 and s5.2.
#[test]
fn fpdus_may_be_split_at_every_octet() {
    let mut a = Endpoint::initiator();
    a.send_inline(1, b"abc");
    a.send_inline(2, b"defgh");
    let stream = a.pull_all(SEGMENT_BYTES).concat();
    for first in 0..=stream.len() {
        for second in first..=stream.len() {
            let mut b = Endpoint::responder();
            let sink = b.region(8, EVERYTHING);
            b.receive(1, &[all(&sink)]);
            b.receive(2, &[all(&sink)]);
            for piece in [&stream[..first], &stream[first..second], &stream[second..]] {
                b.feed(piece).unwrap();
            }
            assert_eq!(ids(&b.log.receives), [(1, OK), (2, OK)]);
            assert_eq!(Endpoint::bytes(&sink)[..5], *b"defgh");
        }
    }
}
