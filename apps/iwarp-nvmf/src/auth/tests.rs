//! Known answers. Those of responses and transforms were computed with hashlib, hmac and pow of
//! Python, and equal the output of SPDK's function for the same inputs.

use super::*;

const HOSTNQN: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
const SUBNQN: &str = "nqn.2024-01.org.example:sub1";

/// Keys of 32, 48 and 64 bytes: 00 01 02 .. of the host, 80 81 82 .. of the controller.
const SHORT: [&str; 2] =
    ["AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR", "gIGCg4SFhoeIiYqLjI2Oj5CRkpOUlZaXmJmam5ydnp9vmVbU"];
const MIDDLE: [&str; 2] = [
    "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==",
    "gIGCg4SFhoeIiYqLjI2Oj5CRkpOUlZaXmJmam5ydnp+goaKjpKWmp6ipqqusra6vkk6Jzw==",
];
const LONG: [&str; 2] = [
    "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P4zODhA=",
    "gIGCg4SFhoeIiYqLjI2Oj5CRkpOUlZaXmJmam5ydnp+goaKjpKWmp6ipqqusra6vsLGys7S1tre4ubq7vL2+v6rfDIU=",
];

fn secrets(transform: &str, encoded: [&str; 2]) -> [Secret; 2] {
    encoded.map(|one| Secret::parse(&format!("DHHC-1:{transform}:{one}:")).expect("a secret"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key of an exponent that is `count` bytes from `first` on.
fn dh_key(group: Group, first: u8, count: u8) -> DhKey {
    DhKey::new(group, Zeroizing::new((first..first + count).collect()))
}

#[test]
fn transformed_keys_are_those_of_other_implementations() {
    for (transform, encoded, host, controller) in [
        (
            "01",
            SHORT,
            "6ce1e4ea31e8331a4fe5826bfde17a5cd386b8f0338748919e279ba6c55bf727",
            "ab534c46a2c3dc021863ec745283b401d4c69e8e70224abe8f8ee107a91466d9",
        ),
        (
            "02",
            MIDDLE,
            "273824c90ec8051360660a152504d1a8367ad879e3e7f919fafaebaa3884e13ce8659bf9c9c552e5c38b0a26756d07d5",
            "6ce5d1e38eacddd5004a383fe9ec7576d3535dafeb246a3def076dec4a4687a6e40bd7d997789dee5a44e5f547bbf5ba",
        ),
        (
            "03",
            LONG,
            "0fe51c89d86bf4e874d3268a0ab30b076b3673f86ca23972c709e2d76a79f5467bf1fe1843a50ca447101b8c9a3e72c91649632be7aecadaf2bef41edab61286",
            "585301b03fe53e7edb597729a11c9cc0d865967876cb552bf8b5d8cb97b80ed50bbee88dd2066da24d29c0208efdd36eed7ea55aede1940b20946e6cb816b3ac",
        ),
    ] {
        let [own, other] = secrets(transform, encoded);
        assert_eq!(hex(&own.transformed(HOSTNQN)), host);
        assert_eq!(hex(&other.transformed(SUBNQN)), controller);
    }
}

/// R1 and R2. Without a transform the key is as long as it is; with one, the key and the response
/// may have different lengths.
#[test]
fn responses_are_those_of_other_implementations() {
    use Group::{Ffdhe2048, Null};
    let (host, controller) = (dh_key(Ffdhe2048, 1, 32), dh_key(Ffdhe2048, 0x41, 32));
    let shared = host.agree(controller.public()).expect("a valid value");
    assert_eq!(controller.agree(host.public()).expect("a valid value"), shared);
    for (number, public) in [
        ("53b37a098c5882b9f56495d787706d354ac8ebc273e680a7047c70228ce24ad3", host.public()),
        ("afa5814419c17efff05f9fcd2219dfa79c60bf077ca3e9ac4fa7edaf55cbd4bb", controller.public()),
        ("e0f9e5c4e867239e3fd9a2355b463030e7dfd5cb449c3bac1e2c30b6f8fd4804", &shared),
    ] {
        assert_eq!(hex(&Hash::Sha256.digest(public)), number);
    }
    for (transform, encoded, hash, group, r1, r2) in [
        (
            "00",
            SHORT,
            Hash::Sha256,
            Null,
            "9660fc03440d98d5cca8113e14b2bc154f7e7a94be5039799930ef38a6c70698",
            "3af4c47833ac480e2b896ccd431d73378f60acca4fb92e0c7fcd518f5e9a2f9c",
        ),
        (
            "01",
            SHORT,
            Hash::Sha256,
            Ffdhe2048,
            "171c5f665710e8215f1ef34bf97ddcd56a1f7505345bda854dac3302ee40cc04",
            "f8d772e5b3955f3c212d4183996cda65856fb28f39213513ade1bba9958bc710",
        ),
        (
            "01",
            SHORT,
            Hash::Sha384,
            Ffdhe2048,
            "0fd3036e255ae907a0dfcef88c165ff514e8374c5829332dd7ea0aea44c553a91148d52bcc9ac13ff97566a72f6da1f1",
            "ae533e6865570740b4fe8c2252d2636aac4b3d936cb553be81f4c9d047195102779ebd4f82afba6ce9b7fccc1446e0d2",
        ),
        (
            "03",
            LONG,
            Hash::Sha512,
            Ffdhe2048,
            "5ff3c7ae4a73312148d7a7a83631bb3fff05d595f01ce7e1e59e8715e7c1829736ead529903242858a44e6283be4fc83cd760e9745d2cd91ae47fe40b3380583",
            "dd68d8df764c5999018f14c21e424500adb6151b58862c851c9d3cdd3bc499407816666afd3a7143c088c3dc3ad3a8b239bea6f4cc3a8a80cade2f610db053c2",
        ),
    ] {
        let [own, other] = secrets(transform, encoded);
        let (hostnqn, subnqn) = (HOSTNQN.to_owned(), SUBNQN.to_owned());
        let exchange = Exchange { hash, group, t_id: 7, hostnqn, subnqn };
        let nonce =
            |first: u8, seqnum| Nonce { challenge: (first..first + hash.bytes() as u8).collect(), seqnum };
        let shared: &[u8] = if group == Null { &[] } else { &shared };
        assert_eq!(hex(&exchange.host_response(&own, shared, &nonce(0x10, 0x0102_0304))), r1);
        assert_eq!(hex(&exchange.controller_response(&other, shared, &nonce(0xa0, 0x0506_0708))), r2);
    }
}

/// The shared secret with its leading zeros: this one begins with a zero byte.
#[test]
fn a_shared_secret_keeps_its_leading_zeros() {
    let mut exponent: Vec<u8> = (1..=32).collect();
    exponent[31] += 219;
    let host = DhKey::new(Group::Ffdhe2048, Zeroizing::new(exponent));
    let shared = host.agree(dh_key(Group::Ffdhe2048, 0x41, 32).public()).expect("a valid value");
    assert_eq!(hex(&shared[..4]), "0082d219");
    let (hostnqn, subnqn) = (HOSTNQN.to_owned(), SUBNQN.to_owned());
    let exchange = Exchange { hash: Hash::Sha256, group: Group::Ffdhe2048, t_id: 7, hostnqn, subnqn };
    let nonce = Nonce { challenge: (0x10..0x30).collect(), seqnum: 0x0102_0304 };
    let response = exchange.host_response(&secrets("01", SHORT)[0], &shared, &nonce);
    assert_eq!(hex(&response), "897d79ebc80ebaf11c93d74e62b0a5e4f9449348de09367b55d5ce44533e844f");
}

/// SHA-256 of 2^x and of 2^xy modulo the primes of RFC 7919, where x is the bytes 01 to 38 and y is
/// 41 to 78.
const PYTHON: [(Group, &str, &str); 5] = [
    (
        Group::Ffdhe2048,
        "714d10b0c7ac786ab0ba4d0692fdba6db46525a19efd67fdf5536f4edbb33bc9",
        "612cf8d33adb5da229cd3b9ba7bb3f4f49d0c3d6628e84752e7e25bb109ccc43",
    ),
    (
        Group::Ffdhe3072,
        "3ee0b10b57988747a21d16be72291123a8a532acc9fc933948f77ee4306b6b50",
        "032db2f73a720659c4026c1cefdc03e4dea46f0a0887aedae51be4ef0f0d78cc",
    ),
    (
        Group::Ffdhe4096,
        "795256358d260bd218f1618a313f37852a0435821053ee59b50095548d1d4e01",
        "e407cab8f1cec409640c850d098899755bd896543a56fa8c2eb27fcb6bb9331f",
    ),
    (
        Group::Ffdhe6144,
        "2f4ff100f04d366b8cd4b05707c192fe5655c6d44eb805ebd208201aedc9fc83",
        "7258739095f3e860de77a9075b0f385006bb350077edb4a10d1ed5c091a2e66d",
    ),
    (
        Group::Ffdhe8192,
        "0ecefa35bd91aa41e336cbd6c082e484b8ec1743b382ac5c9978b4c67643fb3f",
        "8786fbcf14169c91579ded206f6a4347bb37f6e2fc708acd480d51dd14996bda",
    ),
];

#[test]
fn public_values_and_shared_secrets_are_those_of_python() {
    for (group, public, secret) in PYTHON {
        let (one, other) = (dh_key(group, 1, 56), dh_key(group, 0x41, 56));
        let shared = one.agree(other.public()).expect("a valid value");
        assert_eq!(shared.len(), group.bytes());
        assert_eq!(hex(&Hash::Sha256.digest(one.public())), public, "{group:?}");
        assert_eq!(hex(&Hash::Sha256.digest(&shared)), secret, "{group:?}");
    }
}

/// RFC 7919 s5.1, and lengths.
#[test]
fn values_without_a_secret_are_refused() {
    for group in [Group::Ffdhe2048, Group::Ffdhe3072] {
        let key = DhKey::generate(group).expect("random numbers");
        let of = |last: &[u8]| [&vec![0; group.bytes() - last.len()], last].concat();
        // p ends with 64 ones (appendix A), so p - 1 ends with a zero bit.
        let prime = group.prime().expect("a group");
        let (mut below, mut above) = (prime.clone(), prime.clone());
        below[group.bytes() - 1] -= 1;
        above[group.bytes() - 9] += 1;
        for value in [of(&[]), of(&[1]), below.clone(), prime, above, vec![0xff; group.bytes()]] {
            assert!(key.agree(&value).is_none(), "{}", hex(&value));
        }
        below[group.bytes() - 1] -= 1;
        assert!(key.agree(&of(&[2])).is_some() && key.agree(&below).is_some());
        assert!(key.agree(&of(&[2])[1..]).is_none() && key.agree(&[]).is_none());
        assert!(key.agree(&[of(&[]), vec![2]].concat()).is_none());
    }
    let none = DhKey::generate(Group::Null).expect("random numbers");
    assert!(none.public().is_empty() && none.agree(&[]).is_some() && none.agree(&[2]).is_none());
}

#[test]
fn damaged_secrets_are_named_and_not_shown() {
    use secret::SecretError::{Base64, Crc, Form, Length};
    let good = format!("DHHC-1:01:{}:", SHORT[0]);
    assert!(Secret::parse(&good).is_ok());
    for (text, error) in [
        (good.replace("DHHC-1", "DHHC-2"), Form),
        (good.replace(":01:", ":04:"), Form),
        (good.replace(":01:", ":1:"), Form),
        (good.trim_end_matches(':').to_owned(), Form),
        (String::new(), Form),
        ("DHHC-1:01::".to_owned(), Length(0)),
        (good.replace("AAEC", "AA!C"), Base64),
        (format!("DHHC-1:01:{}:", "A".repeat(400)), Base64),
        (good.replace("AAEC", "ABEC"), Crc),
        ("DHHC-1:00:AAECAwQFBgc=:".to_owned(), Length(4)),
    ] {
        assert_eq!(Secret::parse(&text).expect_err(&text), error, "{text}");
    }
    let [own, other] = secrets("01", SHORT);
    assert_eq!(format!("{own:?}"), "Secret");
    assert!(own != other && own.has_key_of(&secrets("00", SHORT)[0]) && own != secrets("00", SHORT)[0]);
}
