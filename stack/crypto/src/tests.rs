//! Known answers, and properties of every suite.

use super::*;
use AesBits::{Aes128, Aes256};

/// The bytes that `digits` says in hexadecimal.
fn hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn material(suite: Suite) -> KeyMaterial {
    let bytes: Vec<u8> = (1..=suite.key_bytes() as u8).collect();
    KeyMaterial::new(suite, &bytes).unwrap()
}

fn keys(suite: Suite, extended: bool) -> (SealingKey, OpeningKey) {
    let sealing = SealingKey::new(suite, material(suite), 0x1234_5678, extended).unwrap();
    (sealing, OpeningKey::new(suite, material(suite), extended).unwrap())
}

/// Seals a text of `length` bytes, of which the last 4 are the trailer.
fn seal(key: &mut SealingKey, length: usize) -> (Vec<u8>, Vec<u8>) {
    let suite = key.suite;
    let text: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
    let mut packet =
        vec![0xa5; HEADROOM_BYTES + ESP_HEADER_BYTES + suite.iv_bytes() + length + suite.icv_bytes()];
    let (front, trailer) = text.split_at(length - 4);
    key.seal(front, trailer, &mut packet).unwrap();
    (text, packet)
}

/// Opens a packet, which is an ESP packet without the headroom.
fn open(suite: Suite, key: &str, high: Option<u32>, esp: &str) -> Result<Vec<u8>, BadIcv> {
    let key = KeyMaterial::new(suite, &hex(key)).unwrap();
    let mut packet = [vec![0xa5; HEADROOM_BYTES], hex(esp)].concat();
    let text = OpeningKey::new(suite, key, high.is_some()).unwrap().open(high.unwrap_or(0), &mut packet)?;
    assert_eq!(packet[..HEADROOM_BYTES], [0xa5; HEADROOM_BYTES], "the headroom is restored");
    Ok(packet[text].to_vec())
}

/// RFC 4106 s9: draft-mcgrew-gcm-test-01, cases 1, 2, 3 and 9. MUST: the salt, the IV, both formats
/// of the authenticated data and the ICV of 16 bytes are those of the RFC.
#[test]
fn gcm_has_the_known_answers() {
    let cases = [
        (
            Aes128,
            "4c80cdefbb5d10da906ac73c3613a6342e443b68",
            // SPI, the lower half of the sequence number, IV, ciphertext, ICV.
            "00004321000000004956ed7e3b244cfefecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34\
             cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce61bc17d768fd9732\
             459018148f6cbe722fd04796562dfdb4",
            Some(0x8765_4321),
            "45000048699a000080114db7c0a80102c0a801010a9bf15638d301000001000000000000045f736970045f7564700373\
             69700963796265726369747902646b000021000101020201",
        ),
        (
            Aes128,
            "feffe9928665731c6d6a8f9467308308cafebabe",
            "0000a5f80000000afacedbaddecaf888deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d114d2a5c\
             3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd183b70d3aa8bc6ee4c309e9d85a41ad4a",
            None,
            "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d0010000010000000000000373697009637962\
             65726369747902646b00000100010001",
        ),
        (
            Aes256,
            "abbccddef00112233445566778899aababbccddef00112233445566778899aab11223344",
            "4a2cbfe3000000020102030405060708ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763\
             748a637985771d347f0545659f14e99def842d8eb335f4eecfdbf831824b4c4915956c96",
            None,
            "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee0000000007002400020bf0000020405b401010402\
             01020201",
        ),
        (
            Aes256,
            "abbccddef00112233445566778899aababbccddef00112233445566778899aab73616c74",
            "17405e67dd0db99b616e640169766563f2d69ecdbd5a0d5b8d5ef38bad4da58d1f278fde98ef67549d524a3018d9a57f\
             f4d3a31ce673119e451626c2415771e3b7eebca614c89b35",
            Some(0x156f_3126),
            "45080028732c00004006e9f90a0106120a01038f06b88023dd6bafbecb71260250101f646d540001",
        ),
    ];
    for (aes, key, esp, high, text) in cases {
        assert_eq!(open(Suite::AesGcm(aes), key, high, esp), Ok(hex(text)), "{key}");
    }
}

/// RFC 4543 s6: a case of draft-mcgrew-gcm-test-01.
#[test]
fn gmac_has_the_known_answer() {
    let text = "45000030da3a00008001df3bc0a80005c0a800010800c6cd020007006162636465666768696a6b6c6d6e6f7071727374\
                01020201";
    let esp = format!("0000432100000007{}{text}f2a9a836e155106aa8dcd618e4099aaa", "00".repeat(8));
    let key = "4c80cdefbb5d10da906ac73c3613a63422433c64";
    assert_eq!(open(Suite::AesGmac(Aes128), key, None, &esp), Ok(hex(text)));
}

/// RFC 4868 s2.7.2.1, cases 1 and 2, and RFC 2202 s3, case 1, whose data are the packets.
#[test]
fn hmac_has_the_known_answers() {
    let cases = [
        (Hmac::Sha256, "0b".repeat(32), "4869205468657265", "198a607eb44bfbc69903a0f1cf2bbdc5"),
        (
            Hmac::Sha256,
            "4a656665".repeat(8),
            "7768617420646f2079612077616e7420666f72206e6f7468696e673f",
            "167f928588c5cc2eef8e3093caa0e87c",
        ),
        (Hmac::Sha1, "0b".repeat(20), "4869205468657265", "b617318655057264e28bc0b6"),
    ];
    for (hmac, key, data, icv) in cases {
        let opened = open(Suite::Null(hmac), &key, None, &format!("{data}{icv}"));
        assert_eq!(opened, Ok(hex(&data[16..])), "{data}");
    }
}

/// RFC 3602 s4, cases 6 and 8, which have no ICV: the test adds one.
#[test]
fn cbc_has_the_known_answers() {
    let cases = [
        (
            "90d382b410eeba7ad938c46cec1a82bf",
            "000043210000000869d08df7d203329db093fc4924e5bd80f51995881ec4e0c4488987ce742e8109689bb379d2d750c0\
             d915dca346a89f75",
            "0800b5e8a80a0500a69c083d0b660e0077777777777777777777777701020201",
        ),
        (
            "0123456789abcdef0123456789abcdef",
            "000087650000000585d47224b5f3dd5d2101d4ea8dffab2215b92683819596a8047232cc00f7048fe45318e11f8a0f62\
             ede3c3fc61203bb50f980a08c9843fd3a1b06d5c07ff9639b7eb7dfb3512e5de435e7207ed971ef3d2726d9b5ef6affc\
             6d17a0decbb13892",
            "45000044090c00004001f990c0a87b03c0a87bc80800d63caa0a0200c69c083da3de0300ffffffffffffffffffffffff\
             ffffffffffffffffffffffffffffffffffffffff0102030405060708090a0a04",
        ),
    ];
    let integrity = "0b".repeat(32);
    let hmac_key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &hex(&integrity));
    for (key, esp, text) in cases {
        let tag = aws_lc_rs::hmac::sign(&hmac_key, &hex(esp));
        let icv: String = tag.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let opened = open(
            Suite::AesCbc(Aes128, Hmac::Sha256),
            &format!("{key}{integrity}"),
            None,
            &format!("{esp}{icv}"),
        );
        assert_eq!(opened, Ok(hex(text)), "{key}");
    }
}

#[test]
fn a_packet_opens_to_what_was_sealed() {
    for suite in Suite::ALL {
        for extended in [false, true] {
            let (mut sealing, opening) = keys(suite, extended);
            for (sequence, length) in (1..).zip([16, 32, 48, 64, 240, 1456, 8944]) {
                let (text, mut packet) = seal(&mut sealing, length);
                let header = [&[0xa5; 4][..], &[0x12, 0x34, 0x56, 0x78, 0, 0, 0, sequence as u8]].concat();
                assert_eq!(packet[..12], header, "{suite:?}: the SPI and the sequence number are sent");
                let place = opening.open(0, &mut packet).unwrap();
                assert_eq!(packet[place], text, "{suite:?}, {length} bytes");
            }
        }
    }
}

/// RFC 4303 s3.4.4.1: a packet whose ICV is wrong is invalid, whichever byte was altered.
#[test]
fn an_altered_or_truncated_packet_does_not_open() {
    for suite in Suite::ALL {
        for extended in [false, true] {
            let (mut sealing, opening) = keys(suite, extended);
            let (_, packet) = seal(&mut sealing, 32);
            for place in HEADROOM_BYTES..packet.len() {
                for bit in [1, 0x80] {
                    let mut altered = packet.clone();
                    altered[place] ^= bit;
                    assert_eq!(opening.open(0, &mut altered), Err(BadIcv), "{suite:?}, byte {place}");
                }
            }
            for length in 0..packet.len() {
                assert_eq!(
                    opening.open(0, &mut packet[..length].to_vec()),
                    Err(BadIcv),
                    "{suite:?}, {length}"
                );
            }
        }
    }
}

/// RFC 4303 s2.2.1, RFC 4106 s5, RFC 4543 s3.3: the upper half is authenticated, though not sent.
#[test]
fn the_upper_half_of_an_extended_sequence_number_is_authenticated() {
    for suite in Suite::ALL {
        let (mut sealing, opening) = keys(suite, true);
        let (_, packet) = seal(&mut sealing, 32);
        assert_eq!(opening.open(1, &mut packet.clone()), Err(BadIcv), "{suite:?}");
        assert!(opening.open(0, &mut packet.clone()).is_ok(), "{suite:?}");
    }
}

/// RFC 4303 s2.2.1: the upper half follows the packet in the sum of HMAC. RFC 4543 s3.3: it lies
/// between the SPI and the lower half in the authenticated data of GMAC.
#[test]
fn the_upper_half_lies_where_the_rfcs_say() {
    use aws_lc_rs::{aead, hmac};
    let numbers = (7_u32, 9_u32);
    for suite in [Suite::Null(Hmac::Sha256), Suite::AesGmac(Aes128)] {
        let (mut sealing, _) = keys(suite, true);
        sealing.sequence = u64::from(numbers.0) << 32 | u64::from(numbers.1 - 1);
        let (_, packet) = seal(&mut sealing, 32);
        let (esp, icv) = packet[HEADROOM_BYTES..].split_at(packet.len() - HEADROOM_BYTES - 16);
        let (spi, rest) = esp.split_at(4);
        let key: Vec<u8> = (1..=suite.key_bytes() as u8).collect();
        let high = numbers.0.to_be_bytes();
        let expected = if let Suite::Null(_) = suite {
            let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
            hmac::sign(&key, &[esp, &high].concat()).as_ref()[..16].to_vec()
        } else {
            let nonce: [u8; 12] = [&key[16..], &rest[4..12]].concat().try_into().unwrap();
            let key = aead::LessSafeKey::new(aead::UnboundKey::new(&aead::AES_128_GCM, &key[..16]).unwrap());
            let aad = aead::Aad::from([spi, &high, rest].concat());
            let nonce = aead::Nonce::assume_unique_for_key(nonce);
            key.seal_in_place_separate_tag(nonce, aad, &mut []).unwrap().as_ref().to_vec()
        };
        assert_eq!(rest[..4], numbers.1.to_be_bytes());
        assert_eq!(icv, expected, "{suite:?}");
    }
}

/// RFC 3602 s3, RFC 4106 s3.1, RFC 4543 s3.1: no IV repeats. That of CBC is not a counter either.
#[test]
fn no_iv_repeats_and_that_of_cbc_is_no_counter() {
    for suite in Suite::ALL.into_iter().filter(|suite| suite.iv_bytes() > 0) {
        let (mut sealing, _) = keys(suite, true);
        let place = 12..12 + suite.iv_bytes();
        let ivs: Vec<Vec<u8>> = (0..100).map(|_| seal(&mut sealing, 32).1[place.clone()].to_vec()).collect();
        let distinct: std::collections::BTreeSet<_> = ivs.iter().collect();
        assert_eq!(distinct.len(), 100, "{suite:?}");
        let prefixes: std::collections::BTreeSet<_> = ivs.iter().map(|iv| &iv[..iv.len() - 2]).collect();
        let expected = if matches!(suite, Suite::AesCbc(..)) { 100 } else { 1 };
        assert_eq!(prefixes.len(), expected, "{suite:?}: all bytes of an IV of CBC change");
    }
}

/// RFC 4303 s3.3.3: a static key that starts again after a reboot has other IVs than before.
#[test]
fn a_key_of_cbc_that_starts_again_repeats_no_iv() {
    let suite = Suite::AesCbc(Aes128, Hmac::Sha256);
    let [first, again] = [(); 2].map(|()| seal(&mut keys(suite, false).0, 32).1[12..28].to_vec());
    assert_ne!(first, again);
}

/// RFC 4303 s3.3.3: no number is used twice, and none follows the last.
#[test]
fn the_sequence_number_moves_before_the_seal_and_never_wraps() {
    for (extended, last) in [(false, u64::from(u32::MAX)), (true, u64::MAX)] {
        let (mut sealing, _) = keys(Suite::AesGcm(Aes128), extended);
        assert_eq!(sealing.seal(&[0; 4], &[], &mut [0; 3]), Err(SealError::Length));
        assert_eq!(sealing.sequence, 1, "a number of a failed seal is not used again");
        sealing.sequence = last - 1;
        seal(&mut sealing, 16);
        assert_eq!(sealing.sequence, last);
        assert_eq!(sealing.seal(&[0; 4], &[], &mut [0; 40]), Err(SealError::SequenceEnded));
        assert_eq!(sealing.sequence, last);
    }
}

#[test]
fn a_text_that_is_not_a_multiple_of_the_block_is_refused() {
    for suite in Suite::ALL {
        let (mut sealing, _) = keys(suite, false);
        let mut packet = vec![0; 12 + suite.iv_bytes() + 18 + suite.icv_bytes()];
        assert_eq!(sealing.seal(&[0; 16], &[0; 2], &mut packet), Err(SealError::Length), "{suite:?}");
    }
}

#[test]
fn keys_of_another_length_are_refused() {
    for suite in Suite::ALL {
        let expected = suite.key_bytes();
        for found in (0..=80).filter(|found| *found != expected) {
            let error = KeyMaterial::new(suite, &vec![1; found]).unwrap_err();
            assert_eq!(error, KeyError::Length { found, expected });
        }
    }
    // Material of one suite is not that of another.
    let material = material(Suite::AesGcm(Aes128));
    let error = OpeningKey::new(Suite::AesGcm(Aes256), material, false).unwrap_err();
    assert_eq!(error, KeyError::Length { found: 20, expected: 36 });
}

#[test]
fn equal_keys_have_equal_fingerprints() {
    let suite = Suite::AesGcm(Aes128);
    let fingerprint = |byte| KeyMaterial::new(suite, &[byte; 20]).unwrap().fingerprint();
    assert_eq!(fingerprint(1), fingerprint(1));
    assert_ne!(fingerprint(1), fingerprint(2));
}

#[test]
fn no_key_is_printed() {
    for suite in Suite::ALL {
        let key = || KeyMaterial::new(suite, &vec![0xd3; suite.key_bytes()]).unwrap();
        let sealing = SealingKey::new(suite, key(), 1, true).unwrap();
        let opening = OpeningKey::new(suite, key(), true).unwrap();
        let key = key();
        let text = format!("{key:?} {sealing:?} {opening:?}").to_lowercase();
        assert!(!text.contains("211") && !text.contains("d3"), "{text}");
    }
}
