//! Formats: known packets, round trips, and octets of any kind.

use std::net::{Ipv4Addr, Ipv6Addr};

use ironwarp_types::Seq;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// An INIT of usrsctp, as other implementations' tests have it.
const USRSCTP_INIT: &[u8] = &[
    0x13, 0x88, 0x13, 0x88, 0x00, 0x00, 0x00, 0x00, 0x81, 0x46, 0x9d, 0xfc, 0x01, 0x00, 0x00, 0x56, 0x55,
    0xb9, 0x64, 0xa5, 0x00, 0x02, 0x00, 0x00, 0x04, 0x00, 0x08, 0x00, 0xe8, 0x6d, 0x10, 0x30, 0xc0, 0x00,
    0x00, 0x04, 0x80, 0x08, 0x00, 0x09, 0xc0, 0x0f, 0xc1, 0x80, 0x82, 0x00, 0x00, 0x00, 0x80, 0x02, 0x00,
    0x24, 0x9f, 0xeb, 0xbb, 0x5c, 0x50, 0xc9, 0xbf, 0x75, 0x9c, 0xb1, 0x2c, 0x57, 0x4f, 0xa4, 0x5a, 0x51,
    0xba, 0x60, 0x17, 0x78, 0x27, 0x94, 0x5c, 0x31, 0xe6, 0x5d, 0x5b, 0x09, 0x47, 0xe2, 0x22, 0x06, 0x80,
    0x04, 0x00, 0x06, 0x00, 0x01, 0x00, 0x00, 0x80, 0x03, 0x00, 0x06, 0x80, 0xc1, 0x00, 0x00,
];

/// Returns the packet that `write` writes into `bytes` of room.
fn packet_in(bytes: usize, tag: u32, write: impl FnOnce(&mut PacketWriter<'_>)) -> Vec<u8> {
    let mut room = vec![0xee; bytes];
    let mut writer = PacketWriter::new(&mut room, [5000, 4791], tag).expect("room for a header");
    write(&mut writer);
    let used = writer.finish();
    room.truncate(used);
    room
}

fn packet(write: impl FnOnce(&mut PacketWriter<'_>)) -> Vec<u8> {
    packet_in(2_048, 7, write)
}

/// Returns the only chunk of a packet.
fn only(packet: &[u8]) -> RawChunk<'_> {
    let mut chunks = PacketView::parse(packet).expect("a packet").chunks();
    let chunk = chunks.next().expect("a chunk");
    assert_eq!(chunks.rest(), b"");
    chunk
}

fn tlvs_of(list: Tlvs<'_>) -> Vec<(u16, Vec<u8>)> {
    list.map(|tlv| (tlv.kind, tlv.value.to_vec())).collect()
}

/// RFC 9260 s6.8 and s3.3.2: checksum, fixed part and parameters of a packet that another
/// implementation built.
#[test]
fn an_init_of_usrsctp_is_parsed() {
    let packet = PacketView::parse(USRSCTP_INIT).expect("a correct checksum");
    assert_eq!((packet.src_port, packet.dst_port, packet.tag), (5000, 5000, 0));
    let Some(Chunk::Init(init)) = only(USRSCTP_INIT).parse() else { panic!("an INIT") };
    let expected = InitFixed {
        tag: 0x55b9_64a5,
        a_rwnd: 131_072,
        outbound_streams: 1024,
        inbound_streams: 2048,
        initial_tsn: Seq(0xe86d_1030),
    };
    assert_eq!(init.fixed, expected);
    let kinds: Vec<u16> = init.parameters.map(|tlv| tlv.kind).collect();
    assert_eq!(kinds, [0xc000, 0x8008, 0x8002, 0x8004, 0x8003]);
    let mut list = init.parameters;
    assert_eq!(list.by_ref().last().map(|tlv| tlv.value), Some(&[0x80, 0xc1][..]));
    assert_eq!(list.rest(), b"");
}

/// RFC 9260 s3.3.4: the example of the section.
#[test]
fn the_sack_of_the_rfc_is_written_and_parsed() {
    let words: [[u8; 4]; 5] = [[0, 0, 0, 12], [0, 0, 0x12, 0x34], [0, 2, 0, 0], [0, 2, 0, 3], [0, 5, 0, 5]];
    let packet = packet(|writer| {
        assert!(writer.chunk(ChunkType::SACK, 0, |sack| sack.put(words.as_flattened())));
    });
    let Some(Chunk::Sack(sack)) = only(&packet).parse() else { panic!("a SACK") };
    assert_eq!((sack.cum_tsn_ack, sack.a_rwnd), (Seq(12), 4660));
    assert_eq!(sack.gap_blocks().collect::<Vec<_>>(), [(2, 3), (5, 5)]);
    assert_eq!(sack.duplicates().count(), 0);
}

/// RFC 9260 s3.3.4: the lists may not exceed the chunk.
#[test]
fn a_sack_with_more_blocks_than_octets_is_refused() {
    for (blocks, duplicates) in [(2, 0), (0, 2), (1, 1), (u8::MAX, u8::MAX)] {
        let words = [[0, 0, 0, 1], [0, 0, 0, 1], [0, blocks, 0, duplicates], [0, 1, 0, 1]];
        let packet = packet(|writer| {
            writer.chunk(ChunkType::SACK, 0, |sack| sack.put(words.as_flattened()));
        });
        assert!(only(&packet).parse().is_none(), "{blocks} {duplicates}");
    }
}

/// RFC 9260 s6.8: a receiver discards a packet with a wrong checksum.
#[test]
fn every_corrupt_octet_is_detected() {
    for at in 0..USRSCTP_INIT.len() {
        let mut octets = USRSCTP_INIT.to_vec();
        octets[at] ^= 0x10;
        assert_eq!(PacketView::parse(&octets), Err(PacketError::Checksum), "{at}");
    }
    let mut zero = USRSCTP_INIT.to_vec();
    zero[8..12].fill(0);
    assert_eq!(PacketView::parse(&zero), Err(PacketError::Checksum));
}

/// RFC 9260 s3.1: port 0 is not used.
#[test]
fn a_packet_with_a_zero_port_or_no_header_is_refused() {
    for ports in [[0, 9], [9, 0]] {
        let mut room = [0; COMMON_HEADER_BYTES];
        PacketWriter::new(&mut room, ports, 1).expect("room").finish();
        assert_eq!(PacketView::parse(&room), Err(PacketError::PortZero));
        assert_eq!(PacketView::parse(&room[..11]), Err(PacketError::Short));
    }
}

/// RFC 9260 s3.2 (table 2) and s3.2.1 (table 3).
#[test]
fn the_upper_bits_of_an_unrecognized_type_say_what_to_do() {
    for (upper, stops, reports) in
        [(0x3f, true, false), (0x7f, true, true), (0xbf, false, false), (0xff, false, true)]
    {
        let expected = IfUnrecognized { stops, reports };
        let packet = packet(|writer| {
            writer.chunk(ChunkType(upper), 9, |chunk| {
                chunk.tlv(u16::from(upper) << 8 | 0x77, |tlv| tlv.put(b"abc"))
            });
        });
        let raw = only(&packet);
        let Some(Chunk::Unrecognized(octets, action)) = raw.parse() else { panic!("{upper}") };
        assert_eq!((octets, action), (raw.octets, expected));
        let tlv = Tlvs::new(raw.value).next().expect("a parameter");
        assert_eq!(tlv.parse(), Some(Parameter::Unrecognized(&raw.value[..7], expected)));
    }
}

/// RFC 9260 s3.3.2.1 and s3.3.3.1, RFC 5061 s4.2.6.
#[test]
fn every_parameter_has_a_typed_view() {
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let cases: [(ParameterType, &[u8], Parameter<'_>); 9] = [
        (ParameterType::HEARTBEAT_INFO, b"nonce", Parameter::HeartbeatInfo(b"nonce")),
        (ParameterType::IPV4_ADDRESS, &[10, 0, 0, 1], Parameter::Ipv4Address(Ipv4Addr::new(10, 0, 0, 1))),
        (ParameterType::IPV6_ADDRESS, &v6.octets(), Parameter::Ipv6Address(v6)),
        (ParameterType::STATE_COOKIE, b"cookie", Parameter::StateCookie(b"cookie")),
        (ParameterType::UNRECOGNIZED_PARAMETER, b"tlv", Parameter::UnrecognizedParameter(b"tlv")),
        (
            ParameterType::COOKIE_PRESERVATIVE,
            &[0, 0, 1, 0],
            Parameter::CookiePreservative { increment_ms: 256 },
        ),
        (ParameterType::HOST_NAME_ADDRESS, b"host\0", Parameter::HostNameAddress),
        (ParameterType::SUPPORTED_ADDRESS_TYPES, &[0, 5], Parameter::SupportedAddressTypes(&[0, 5])),
        (ParameterType::ADAPTATION_LAYER_INDICATION, &[0, 0, 0, 1], Parameter::AdaptationLayerIndication(1)),
    ];
    for (kind, value, expected) in cases {
        assert_eq!(Tlv { kind: kind.0, value, octets: value }.parse(), Some(expected));
    }
}

/// RFC 9260 s3.3.2.1: addresses, increments and indications have one length each.
#[test]
fn a_parameter_of_a_wrong_length_has_no_typed_view() {
    for kind in [
        ParameterType::IPV4_ADDRESS,
        ParameterType::IPV6_ADDRESS,
        ParameterType::COOKIE_PRESERVATIVE,
        ParameterType::ADAPTATION_LAYER_INDICATION,
    ] {
        for value in [&b""[..], b"12345", &[0; 17]] {
            assert_eq!(Tlv { kind: kind.0, value, octets: value }.parse(), None, "{kind:?} {value:?}");
        }
    }
}

/// RFC 9260 s6.10: a partial chunk is dropped, and what is before it counts.
#[test]
fn a_list_ends_at_an_impossible_length() {
    for length in [0, 3, 9, u16::MAX] {
        let mut octets = packet(|writer| {
            writer.chunk(ChunkType::COOKIE_ACK, 0, |_| {});
            writer.chunk(ChunkType::HEARTBEAT, 0, |chunk| chunk.tlv(1, |_| {}));
        });
        octets[18..20].copy_from_slice(&length.to_be_bytes());
        reseal(&mut octets);
        let mut chunks = PacketView::parse(&octets).expect("a packet").chunks();
        assert_eq!(chunks.by_ref().map(|chunk| chunk.kind).collect::<Vec<_>>(), [ChunkType::COOKIE_ACK]);
        assert_eq!(chunks.rest().len(), 8);
    }
}

/// RFC 9260 s3.2, note: the last padding may be missing, or be counted in the length.
#[test]
fn the_padding_of_the_last_chunk_is_optional() {
    let mut octets = packet(|writer| {
        writer.chunk(ChunkType::COOKIE_ECHO, 0, |chunk| chunk.put(b"abcde"));
    });
    assert_eq!((octets.len(), &octets[21..]), (24, &[0; 3][..]));
    octets.truncate(21);
    reseal(&mut octets);
    assert_eq!(only(&octets).value, b"abcde");
}

/// A chunk that does not fit leaves the packet as it was.
#[test]
fn a_chunk_that_does_not_fit_is_left_out_as_a_whole() {
    let octets = packet_in(COMMON_HEADER_BYTES + 4 + 11, 7, |writer| {
        assert!(writer.chunk(ChunkType::COOKIE_ACK, 0, |_| {}));
        assert!(writer.has_room(4) && !writer.has_room(5));
        assert!(!writer.chunk(ChunkType::COOKIE_ECHO, 0, |chunk| chunk.put(b"12345")), "no room for padding");
        assert!(!writer.chunk(ChunkType::HEARTBEAT, 0, |chunk| chunk.tlv(1, |tlv| tlv.put(b"1"))));
        assert!(writer.chunk(ChunkType::COOKIE_ECHO, 0, |chunk| chunk.put(b"1234")));
    });
    let kinds: Vec<_> =
        PacketView::parse(&octets).expect("a packet").chunks().map(|c| (c.kind, c.value)).collect();
    assert_eq!(kinds, [(ChunkType::COOKIE_ACK, &b""[..]), (ChunkType::COOKIE_ECHO, b"1234")]);
    let long = packet_in(80_000, 7, |writer| {
        assert!(!writer.chunk(ChunkType::DATA, 0, |chunk| chunk.put(&[0; 65_532])), "no such length");
    });
    assert_eq!(long.len(), COMMON_HEADER_BYTES);
}

/// Writes the checksum again.
fn reseal(octets: &mut [u8]) {
    if let Some((header, chunks)) = octets.split_first_chunk_mut() {
        let checksum = checksum_of(header, chunks);
        header[8..].copy_from_slice(&checksum);
    }
}

/// Parses all that a packet has, as a receiver might.
fn walk(packet: PacketView<'_>) -> usize {
    let walk_list = |list: Tlvs<'_>| list.filter_map(Tlv::parse).count();
    let walk_chunk = |chunk: RawChunk<'_>| match chunk.parse() {
        Some(Chunk::Init(init) | Chunk::InitAck(init)) => walk_list(init.parameters),
        Some(Chunk::Sack(sack)) => sack.gap_blocks().count() + sack.duplicates().count(),
        Some(Chunk::Abort { causes, .. } | Chunk::Error(causes)) => walk_list(causes),
        Some(Chunk::Heartbeat(value)) => walk_list(Tlvs::new(value)),
        _ => 0,
    };
    packet.chunks().map(|chunk| 1 + walk_chunk(chunk)).sum()
}

proptest! {
    /// RFC 9260 s3.3.1.
    #[test]
    fn data_is_parsed_back(
        flags: u8, tsn: u32, stream: u16, ssn: u16, ppid: u32, payload in vec(any::<u8>(), 1..200),
    ) {
        let flags = DataFlags::from_bits_truncate(flags);
        let data = Data { flags, tsn: Seq(tsn), stream, ssn, ppid, payload: &payload };
        let octets = packet(|writer| {
            let written = writer.chunk(ChunkType::DATA, flags.bits() | 0xf0, |chunk| {
                chunk.put(&data.fixed());
                chunk.put(data.payload);
            });
            assert!(written);
        });
        prop_assert_eq!(octets.len() % 4, 0);
        let parsed = match only(&octets).parse() {
            Some(Chunk::Data(parsed)) => Some(parsed),
            _ => None,
        };
        prop_assert_eq!(parsed, Some(data));
    }

    /// RFC 9260 s3.3.2, s3.3.3 and s3.2.1: fixed part and any parameters.
    #[test]
    fn an_init_is_parsed_back(
        numbers: (u32, u32, u16, u16, u32), acknowledges: bool,
        list in vec((any::<u16>(), vec(any::<u8>(), 0..40)), 0..10),
    ) {
        let (tag, a_rwnd, outbound_streams, inbound_streams, tsn) = numbers;
        let init = InitFixed { tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn: Seq(tsn) };
        let kind = if acknowledges { ChunkType::INIT_ACK } else { ChunkType::INIT };
        let octets = packet(|writer| {
            let written = writer.chunk(kind, 0, |chunk| {
                chunk.put(&init.octets());
                list.iter().for_each(|(kind, value)| chunk.tlv(*kind, |tlv| tlv.put(value)));
            });
            assert!(written);
        });
        let ((Some(Chunk::Init(parsed)), false) | (Some(Chunk::InitAck(parsed)), true)) =
            (only(&octets).parse(), acknowledges)
        else {
            panic!("{kind:?}");
        };
        prop_assert_eq!(parsed.fixed, init);
        prop_assert_eq!(tlvs_of(parsed.parameters), list);
    }

    /// RFC 9260 s3.3.4.
    #[test]
    fn a_sack_is_parsed_back(
        cum: u32, a_rwnd: u32, blocks in vec(any::<(u16, u16)>(), 0..20), duplicates in vec(any::<u32>(), 0..20),
    ) {
        let octets = packet(|writer| {
            let written = writer.chunk(ChunkType::SACK, 0, |sack| {
                sack.put(&cum.to_be_bytes());
                sack.put(&a_rwnd.to_be_bytes());
                sack.put(&(blocks.len() as u16).to_be_bytes());
                sack.put(&(duplicates.len() as u16).to_be_bytes());
                for (first, last) in &blocks {
                    sack.put(&first.to_be_bytes());
                    sack.put(&last.to_be_bytes());
                }
                duplicates.iter().for_each(|tsn| sack.put(&tsn.to_be_bytes()));
            });
            assert!(written);
        });
        let Some(Chunk::Sack(sack)) = only(&octets).parse() else { panic!("a SACK") };
        prop_assert_eq!((sack.cum_tsn_ack, sack.a_rwnd), (Seq(cum), a_rwnd));
        prop_assert_eq!(sack.gap_blocks().collect::<Vec<_>>(), blocks);
        prop_assert_eq!(sack.duplicates().map(|tsn| tsn.0).collect::<Vec<_>>(), duplicates);
    }

    /// RFC 9260 s3.3.7 to s3.3.13: what has causes, a tag or a number, or nothing.
    #[test]
    fn control_chunks_are_parsed_back(
        kind in 4u8..15, flags: u8, cum: u32, info in vec(any::<u8>(), 0..50),
    ) {
        let octets = packet(|writer| {
            let written = writer.chunk(ChunkType(kind), flags, |chunk| {
                match ChunkType(kind) {
                    ChunkType::SHUTDOWN => chunk.put(&cum.to_be_bytes()),
                    _ => chunk.tlv(CauseCode::USER_INITIATED_ABORT.0, |cause| cause.put(&info)),
                }
            });
            assert!(written);
        });
        let (chunk, reflects) = (only(&octets), flags & FLAG_REFLECTED != 0);
        let has_cause = |causes: Tlvs<'_>| {
            causes.has_cause(CauseCode::USER_INITIATED_ABORT) && causes.last().is_some_and(|cause| cause.value == info)
        };
        let is_same = match (kind, chunk.parse().expect("a whole chunk")) {
            (4, Chunk::Heartbeat(value)) | (5, Chunk::HeartbeatAck(value)) | (10, Chunk::CookieEcho(value)) => {
                value == chunk.value
            }
            (6, Chunk::Abort { reflected, causes }) => reflected == reflects && has_cause(causes),
            (7, Chunk::Shutdown { cum_tsn_ack }) => cum_tsn_ack == Seq(cum),
            (9, Chunk::Error(causes)) => has_cause(causes),
            (14, Chunk::ShutdownComplete { reflected }) => reflected == reflects,
            (8, Chunk::ShutdownAck) | (11, Chunk::CookieAck) | (12 | 13, Chunk::Unrecognized(..)) => true,
            _ => false,
        };
        prop_assert!(is_same);
    }

    /// Octets of any kind behind a correct checksum: no panic, and no more elements than octets.
    #[test]
    fn any_octets_are_parsed(mut octets in vec(prop_oneof![any::<u8>(), 0u8..24], 0..600)) {
        reseal(&mut octets);
        let elements = PacketView::parse(&octets).map_or(0, walk);
        prop_assert!(elements <= octets.len() / 4);
    }

    /// One changed field of a packet with every kind of list.
    #[test]
    fn any_change_of_a_packet_is_parsed(at in 12usize..100, octet: u8, cut in 12usize..100) {
        let mut octets = USRSCTP_INIT.to_vec();
        octets[at] = octet;
        octets.truncate(cut);
        reseal(&mut octets);
        let packet = PacketView::parse(&octets).expect("a correct checksum");
        prop_assert!(walk(packet) <= octets.len() / 4);
    }
}
