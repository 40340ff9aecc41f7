//! Long payloads, which are copied, checked and summed in one pass where the processor can.
//! `Endpoint::pull` compares the sum of each unit, `ulpdus` the CRC of each FPDU (RFC 5044 s4.4).

use ironwarp_arch::crc32c;
use ironwarp_arch::one_pass::PrefixCrc;

use super::*;
use crate::ddp::{TAGGED_BYTES, UNTAGGED_BYTES};

/// Lengths around the shortest long payload, and one of each remainder by four up to two segments.
fn lengths() -> impl Iterator<Item = usize> {
    (250..262).chain((300..2 * SEGMENT_BYTES).step_by(97))
}

/// Cuts a region into elements of these lengths and the rest.
fn elements(region: &Region, first: &[u32]) -> Vec<Sge> {
    let mut at = 0;
    let mut list = Vec::new();
    for &bytes in first {
        list.push(region.slice(at as usize, bytes).unwrap());
        at += bytes;
    }
    list.push(region.slice(at as usize, region.len() as u32 - at).unwrap());
    list
}

fn payload(units: &[Vec<u8>], header_bytes: usize) -> Vec<u8> {
    units.iter().flat_map(|unit| ulpdus(unit)).flat_map(|ulpdu| ulpdu[header_bytes..].to_vec()).collect()
}

/// RFC 5041 s5.2: the segments of a message carry its octets, whatever elements they come from.
#[test]
fn long_messages_of_any_list_carry_their_octets() {
    for bytes in lengths() {
        for cuts in [&[][..], &[1], &[3, 64, 99]] {
            let mut a = Endpoint::initiator();
            let source = a.filled(bytes, Access::empty());
            let list = elements(&source, cuts);
            a.write(1, &list, (STag(9), 0));
            assert_eq!(
                payload(&a.pull_all(SEGMENT_BYTES), TAGGED_BYTES),
                pattern(bytes),
                "{bytes} of {cuts:?}"
            );
            a.send(2, &list);
            assert_eq!(
                payload(&a.pull_all(SEGMENT_BYTES), UNTAGGED_BYTES),
                pattern(bytes),
                "{bytes} of {cuts:?}"
            );
        }
    }
}

/// RFC 5040 s5.2.2.
#[test]
fn long_responses_carry_the_octets_of_the_source() {
    for bytes in lengths() {
        let (mut a, mut b) = (Endpoint::initiator(), Endpoint::responder());
        let sink = a.region(bytes, Access::LOCAL_WRITE);
        let source = b.filled(bytes, Access::REMOTE_READ);
        a.read(1, all(&sink), remote(&source));
        run(&mut a, &mut b);
        assert_eq!(Endpoint::bytes(&sink), pattern(bytes), "{bytes}");
    }
}

/// A list that names memory which is gone fails the request, and its segment is not sent.
#[test]
fn a_long_message_of_revoked_memory_is_not_sent() {
    let mut a = Endpoint::initiator();
    let (kept, gone) = (a.filled(300, Access::empty()), a.filled(300, Access::empty()));
    let list = [all(&kept), all(&gone)];
    drop(gone);
    a.write(1, &list, (STag(9), 0));
    let units = a.pull_all(SEGMENT_BYTES);
    assert!(units.iter().flat_map(|unit| ulpdus(unit)).all(|ulpdu| ulpdu.len() < 300), "a Terminate at most");
    assert_eq!(a.log.sends.first().map(|one| one.status), Some(CompletionStatus::LocalProtection));
}

/// RFC 5044 s4.4: the CRC that the checksum's pass computed decides like one that is computed here;
/// one of other octets is not used.
#[test]
fn a_known_crc_decides_only_for_its_own_octets() {
    let good = framed(&[0x5a; 300]);
    let mut bad = good.clone();
    bad[100] ^= 1;
    let known = |fpdu: &[u8], bytes: usize| PrefixCrc { bytes: bytes as u32, crc: crc32c(&fpdu[..bytes]) };
    let covered = fpdu::covered_bytes(&good);
    assert_eq!(covered, good.len() - 4);
    assert_eq!(fpdu::covered_bytes(&good[..good.len() - 1]), 0);
    for bytes in [0, covered - 4, covered] {
        assert!(fpdu::decode_with(&good, true, known(&good, bytes)).is_ok(), "{bytes}");
        assert!(fpdu::decode_with(&bad, true, known(&bad, bytes)).is_err(), "{bytes}");
    }
    let wrong = PrefixCrc { bytes: covered as u32, crc: 0 };
    assert!(fpdu::decode_with(&good, true, wrong).is_err() && fpdu::decode_with(&good, false, wrong).is_ok());
}
