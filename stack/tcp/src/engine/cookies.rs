//! SYN cookies: handshakes without state while too many connections are half open.
//!
//! ```text
//!   31      30..28   27..0
//!   | time | MSS   | keyed hash of endpoints, time and MSS, + the peer's ISN |       our initial sequence number (ISN)
//!
//!   31..6   5..2           1      0
//!   | clock | window scale | SACK | ECN |                                          our timestamp, if the peer offers them
//! ```
//!
//! While the queue of half-open connections is full, takes a SYN and gives the sequence number and
//! timestamp of a stateless SYN-ACK. Takes the ACK of that SYN-ACK and gives the options that the
//! SYN offered. A cookie is valid for 34 to 68 seconds. Cookies are accepted only while a valid one
//! exists, so guessing is impossible at other times. A guess succeeds with a probability of 2^-28.
//! A segment that overtook the first one is recognised, since the peer's ISN is added to the hash:
//! a reset would end a connection that the first segment opens.
//!
//! Source: RFC 4987 s3.6 and its appendix A; RFC 7323 s5.4 for the timestamp. The encoding replaces
//! the low 6 bits of the clock and never exceeds the connection's clock. Without timestamps, window
//! scale, SACK and ECN are not used. Cost: one keyed hash per SYN or ACK.

use ironwarp_types::{Flow, Nanos, Seq};

use super::isn::IsnGenerator;
use crate::header::{Flags, Segment, SynOptions, Timestamps};

/// A period is 2^35 ns, 34 s. Cookies of the current and the previous period are valid.
const PERIOD_SHIFT: u32 = 35;

/// The segment sizes that a cookie can encode: the smallest accepted size, the defaults of IPv4 and
/// IPv6, common tunnels, Ethernet, and jumbo frames over IPv6 and IPv4.
const MSS: [u16; 8] = [144, 536, 1_220, 1_360, 1_440, 1_460, 8_940, 8_960];

const HASH_BITS: u32 = (1 << 28) - 1;

/// Bits of a timestamp that encode the other options.
const OFFER_BITS: u32 = 0x3f;

/// The most bytes that a peer sends after our SYN-ACK, whose window is not scaled.
const INITIAL_WINDOW_MAX: u32 = 65_535;

/// A shift that no SYN has; encodes "windows are not scaled".
const NO_SCALE: u32 = 15;

/// What an ACK without a connection has.
pub(super) enum Returned {
    /// A cookie, and the options of the SYN.
    Valid(SynOptions),
    /// A cookie, and data behind the first byte: an earlier segment is lost or late.
    Early,
    /// No cookie of ours.
    Invalid,
}

/// The validity of the cookies that were sent.
#[derive(Default)]
pub(super) struct Cookies {
    /// When the last cookie expires.
    valid_until: Nanos,
}

impl Cookies {
    /// Returns whether any sent cookie is still valid.
    pub(super) fn any_valid(&self, now: Nanos) -> bool {
        now < self.valid_until
    }

    /// Returns an initial sequence number that encodes the SYN.
    pub(super) fn encode_cookie(
        &mut self,
        now: Nanos,
        isn_generator: &IsnGenerator,
        flow: &Flow,
        syn: &Segment,
        mss: Option<u16>,
    ) -> Seq {
        let period = now.0 >> PERIOD_SHIFT;
        self.valid_until = Nanos((period + 2) << PERIOD_SHIFT);
        let mss = mss.unwrap_or(536);
        let at = MSS.iter().rposition(|&size| size <= mss).unwrap_or(0) as u32;
        Seq(cookie(isn_generator, flow, syn.seq, period, at))
    }

    /// Returns whether the ACK returns a cookie, and the options of the SYN.
    pub(super) fn decode_cookie(
        &self,
        now: Nanos,
        isn_generator: &IsnGenerator,
        flow: &Flow,
        ack: &Segment,
    ) -> Returned {
        let (irs, seq) = (ack.seq.minus(1), ack.ack.minus(1).0);
        let (newest, at) = (now.0 >> PERIOD_SHIFT, seq >> 28 & 7);
        let Some(period) = newest.checked_sub((newest ^ u64::from(seq >> 31)) & 1) else {
            return Returned::Invalid;
        };
        // The bytes between the first one and this segment.
        match cookie(isn_generator, flow, irs, period, at).wrapping_sub(seq) & HASH_BITS {
            0 => {}
            1..=INITIAL_WINDOW_MAX => return Returned::Early,
            _ => return Returned::Invalid,
        }
        let mss = MSS.get(at as usize).copied();
        let Some(stamps) = ack.options.timestamps else {
            return Returned::Valid(SynOptions { mss, ..SynOptions::default() });
        };
        let shift = stamps.tsecr >> 2 & 0xf;
        Returned::Valid(SynOptions {
            mss,
            window_scale: (shift < NO_SCALE).then_some(shift as u8),
            sack_permitted: stamps.tsecr & 2 != 0,
            timestamps: Some(Timestamps { tsval: stamps.tsval, tsecr: 0 }),
        })
    }
}

/// Returns the flags of the SYN before this ACK, as far as ECN is concerned.
pub(super) fn syn_flags(ack: &Segment) -> Flags {
    let ecn = ack.options.timestamps.is_some_and(|stamps| stamps.tsecr & 1 != 0);
    if ecn { Flags::SYN | Flags::ECE | Flags::CWR } else { Flags::SYN }
}

/// Returns the timestamp of a SYN-ACK that encodes an offer: the latest value with these bits that
/// is not ahead of `clock`.
pub(super) fn cookie_timestamp(clock: u32, offer: &SynOptions, ecn: bool) -> u32 {
    let scale = offer.window_scale.map_or(NO_SCALE, u32::from);
    let bits = scale << 2 | u32::from(offer.sack_permitted) << 1 | u32::from(ecn);
    clock.wrapping_sub(clock.wrapping_sub(bits) & OFFER_BITS)
}

fn cookie(isn_generator: &IsnGenerator, flow: &Flow, irs: Seq, period: u64, mss_at: u32) -> u32 {
    let hash = isn_generator.cookie_hash(flow, period << 3 | u64::from(mss_at));
    ((period & 1) as u32) << 31 | mss_at << 28 | (hash.wrapping_add(irs.0) & HASH_BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// RFC 7323 s5.4: the clock never runs backwards, so a timestamp must not be ahead of it.
        #[test]
        fn a_timestamp_encodes_the_offer_and_lags_by_less_than_64_ticks(
            clock in any::<u32>(),
            scale in prop::option::of(0u8..15),
            sack in any::<bool>(),
            ecn in any::<bool>(),
        ) {
            let offer = SynOptions { window_scale: scale, sack_permitted: sack, ..SynOptions::default() };
            let stamp = cookie_timestamp(clock, &offer, ecn);
            prop_assert!(clock.wrapping_sub(stamp) < 64);
            prop_assert_eq!(stamp >> 2 & 0xf, scale.map_or(15, u32::from));
            prop_assert_eq!((stamp & 2 != 0, stamp & 1 != 0), (sack, ecn));
        }
    }
}
