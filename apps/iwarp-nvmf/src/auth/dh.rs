//! Diffie-Hellman in the finite-field groups of RFC 7919, with keys of one exchange.
//!
//! Takes and returns numbers as big-endian bytes of the length of the group. A public value outside
//! of 2 to p - 2 has no shared secret. The time depends on the group alone, not on the numbers. An
//! exponentiation takes 1 to 40 ms, so no core that polls calls this.

use std::sync::OnceLock;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Resize};
use zeroize::Zeroizing;

use super::SecretBytes;

/// [2^8062 e]: the digits of Euler's number from which RFC 7919, appendix A, makes its primes.
const E: &str = "\
    adf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce249b3ef97d2fe363630c75d8\
    f681b202aec4617ad3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3b557135e7f57c935984f0c70e0e68b77\
    e2a689daf3efe8721df158a136ade73530acca4f483a797abc0ab182b324fb61d108a94bb2c8e3fbb96adab760d7f468\
    1d4f42a3de394df4ae56ede76372bb190b07a7c8ee0a6d709e02fce1cdf7e2ecc03404cd28342f619172fe9ce98583ff\
    8e4f1232eef28183c3fe3b1b4c6fad733bb5fcbc2ec22005c58ef1837d1683b2c6f34a26c1b2effa886b4238611fcfdc\
    de355b3b6519035bbc34f4def99c023861b46fc9d6e6c9077ad91d2691f7f7ee598cb0fac186d91caefe130985139270\
    b4130c93bc437944f4fd4452e2d74dd364f2e21e71f54bff5cae82ab9c9df69ee86d2bc522363a0dabc521979b0deada\
    1dbf9a42d5c4484e0abcd06bfa53ddef3c1b20ee3fd59d7c25e41d2b669e1ef16e6f52c3164df4fb7930e9e4e58857b6\
    ac7d5f42d69f6d187763cf1d5503400487f55ba57e31cc7a7135c886efb4318aed6a1e012d9e6832a907600a918130c4\
    6dc778f971ad0038092999a333cb8b7a1a1db93d7140003c2a4ecea9f98d0acc0a8291cdcec97dcf8ec9b55a7f88a46b\
    4db5a851f44182e1c68a007e5e0dd9020bfd64b645036c7a4e677d2c38532a3a23ba4442caf53ea63bb454329b7624c8\
    917bdd64b1c0fd4cb38e8c334c701c3acdad0657fccfec719b1f5c3e4e46041f388147fb4cfdb477a52471f7a9a96910\
    b855322edb6340d8a00ef092350511e30abec1fff9e3a26e7fb29f8c183023c3587e38da0077d9b4763e4e4b94b2bbc1\
    94c6651e77caf992eeaac0232a281bf6b3a739c1226116820ae8db5847a67cbef9c9091b462d538cd72b03746ae77f5e\
    62292c311562a846505dc82db854338ae49f5235c95b91178ccf2dd5cacef403ec9d1810c6272b045b3b71f9dc6b80d6\
    3fdd4a8e9adb1e6962a69526d43161c1a41d570d7938dad4a40e329ccff46aaa36ad004cf600c8381e425a31d951ae64\
    fdb23fcec9509d43687feb69edd1cc5e0b8cc3bdf64b10ef86b63142a3ab8829555b2f747c932665cb2c0f1cc01bd702\
    29388839d2af05e454504ac78b7582822846c0ba35c35f5c59160cc046fd8251541fc68c9c86b022bb7099876a460e74\
    51a8a93109703fee1c217e6c3826e52c51aa691e0e423cfc99e9e31650c1217b624816cdad9a95f9d5b8019488d9c0a0\
    a1fe3075a577e23183f81d4a3f2fa4571efc8ce0ba8a4fe8b6855dfe72b0a66eded2fbabfbe58a30fafabe1c5d71a87e\
    2f741ef8c1fe86fea6bbfde530677f0d97d11d49f7a8443d0822e506a9f4614e011e2a94838ff88cd68c8bb7c51eef6d";

/// A Diffie-Hellman group, by its identifier on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Group {
    /// No Diffie-Hellman.
    Null = 0,
    /// ffdhe2048.
    Ffdhe2048 = 1,
    /// ffdhe3072.
    Ffdhe3072 = 2,
    /// ffdhe4096.
    Ffdhe4096 = 3,
    /// ffdhe6144.
    Ffdhe6144 = 4,
    /// ffdhe8192.
    Ffdhe8192 = 5,
}

impl Group {
    /// All of them, the weakest first.
    pub const ALL: [Group; 6] = [
        Group::Null,
        Group::Ffdhe2048,
        Group::Ffdhe3072,
        Group::Ffdhe4096,
        Group::Ffdhe6144,
        Group::Ffdhe8192,
    ];

    /// Returns the group with an identifier.
    pub fn of(identifier: u8) -> Option<Self> {
        Self::ALL.get(usize::from(identifier)).copied()
    }

    /// Returns the bytes of a public value and of the shared secret.
    pub fn bytes(self) -> usize {
        [0, 256, 384, 512, 768, 1024][self as usize]
    }

    /// Returns the bytes of an exponent: as long as RFC 7919, appendix A, recommends, or longer.
    fn exponent_bytes(self) -> usize {
        [0, 32, 40, 48, 48, 56][self as usize]
    }

    /// RFC 7919, appendix A: p = 2^b - 2^(b-64) + ([2^(b-130) e] + X) 2^64 - 1.
    pub(super) fn prime(self) -> Option<Vec<u8>> {
        let x: u64 = [0, 560_316, 2_625_351, 5_736_041, 15_705_020, 10_965_728][self as usize];
        let digits = E.get(..(2 * self.bytes()).checked_sub(32)?)?;
        let middle = BoxedUint::from_be_hex(digits, 4 * digits.len() as u32).into_option()? + (x - 1);
        Some([&[0xff; 8], &*middle.to_be_bytes(), &[0xff; 8]].concat())
    }

    /// Returns the prime, prepared for multiplications. `None`: the NULL group.
    fn params(self) -> Option<&'static BoxedMontyParams> {
        static PARAMS: [OnceLock<Option<BoxedMontyParams>>; 6] = [const { OnceLock::new() }; 6];
        let make = || {
            let p = BoxedUint::from_be_slice_vartime(&self.prime()?).into_odd().into_option()?;
            Some(BoxedMontyParams::new_vartime(p))
        };
        PARAMS[self as usize].get_or_init(make).as_ref()
    }
}

/// The private exponent and the public value of one side.
pub struct DhKey {
    group: Group,
    exponent: SecretBytes,
    public: Vec<u8>,
}

impl DhKey {
    /// A key with an exponent of the system's random numbers. The NULL group has an empty one.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub fn generate(group: Group) -> Result<Self, getrandom::Error> {
        let mut exponent = Zeroizing::new(vec![0; group.exponent_bytes()]);
        getrandom::fill(&mut exponent)?;
        Ok(Self::new(group, exponent))
    }

    /// A key with an exponent, big-endian.
    pub(crate) fn new(group: Group, exponent: SecretBytes) -> Self {
        // RFC 7919 s3: the generator of every group is 2.
        let two = BoxedUint::from(2u8);
        let public = power(group, &two, &exponent).map_or_else(Vec::new, |value| value.to_vec());
        DhKey { group, exponent, public }
    }

    /// Returns the public value.
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// Returns the shared secret with the peer's public value; an empty one in the NULL group.
    /// `None`: no side may use this value.
    pub fn agree(&self, peer: &[u8]) -> Option<SecretBytes> {
        if peer.len() != self.group.bytes() {
            return None;
        }
        let Some(params) = self.group.params() else { return Some(Zeroizing::default()) };
        // RFC 7919 s5.1: 1 < Y < p - 1.
        let (value, one) = (BoxedUint::from_be_slice_vartime(peer), BoxedUint::one());
        let largest = params.modulus().as_ref() - &one;
        (value > one && value < largest).then(|| power(self.group, &value, &self.exponent))?
    }
}

/// Returns a power modulo the group's prime, as long as the group. `None`: the NULL group.
fn power(group: Group, base: &BoxedUint, exponent: &[u8]) -> Option<SecretBytes> {
    let params = group.params()?;
    let bits = 8 * exponent.len() as u32;
    let exponent = Zeroizing::new(BoxedUint::from_be_slice_truncated(exponent, bits));
    let base = BoxedMontyForm::new(base.resize(params.bits_precision()), params);
    let power = Zeroizing::new(base.pow_bounded_exp(&exponent, bits));
    let value = Zeroizing::new(power.retrieve());
    Some(Zeroizing::new(value.to_be_bytes().into_vec()))
}
