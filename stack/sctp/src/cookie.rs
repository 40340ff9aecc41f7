//! State cookies: an association between INIT ACK and COOKIE ECHO, without state here.
//!
//! ```text
//!  0      8         16    24          40         56            64
//!  | code | expires | tie | our INIT  | peer's   | indication  | addresses that the peer lists |
//! ```
//!
//! An address has 16 octets, an IPv4 one as the IPv6 address that it is mapped to. INITs are stored
//! as their fixed parts. The code covers the rest and both endpoints, which are not in the cookie:
//! a cookie from another address or port is invalid. The tie is that of the association that
//! existed when the cookie was made, or 0.
//!
//! Source: RFC 9260 s5.1.3 to s5.1.5. Cost: one keyed hash of 56 octets.

use core::net::IpAddr;

use arrayvec::ArrayVec;
use ironwarp_types::{Flow, Nanos};

use crate::engine::Addresses;
use crate::packet::{INIT_FIXED_BYTES, InitFixed};
use crate::paths::PATHS_MAX;
use crate::secrets::Secrets;

const CODE_BYTES: usize = 8;
const ADDRESS_BYTES: usize = 16;

/// The length of a cookie without addresses.
const FIXED_BYTES: usize = CODE_BYTES + 16 + 2 * INIT_FIXED_BYTES + 8;

/// The length of a cookie at most, in bytes.
const COOKIE_BYTES_MAX: usize = FIXED_BYTES + (PATHS_MAX - 1) * ADDRESS_BYTES;

/// The state that a cookie holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cookie {
    pub(crate) expires_at: Nanos,
    /// The tie-tags of the association that existed, or 0.
    pub(crate) tie: u64,
    pub(crate) local: InitFixed,
    pub(crate) peer: InitFixed,
    pub(crate) adaptation_code_point: Option<u32>,
    /// The addresses of the peer beside that of its INIT.
    pub(crate) others: ArrayVec<IpAddr, { PATHS_MAX - 1 }>,
}

impl Cookie {
    /// Returns the addresses of the peer, that of the flow first.
    pub(crate) fn addresses(&self, flow: &Flow) -> Addresses {
        core::iter::once(flow.remote.ip()).chain(self.others.iter().copied()).collect()
    }

    pub(crate) fn encode(&self, secrets: &Secrets, flow: &Flow) -> ArrayVec<u8, COOKIE_BYTES_MAX> {
        let (has_indication, indication) = match self.adaptation_code_point {
            Some(code_point) => (1u32, code_point),
            None => (0, 0),
        };
        let words = [self.expires_at.0, self.tie, u64::from(has_indication) << 32 | u64::from(indication)];
        let [expires_at, tie, indication] = words.map(u64::to_be_bytes);
        let [local, peer] = [self.local, self.peer].map(|init| init.octets());
        let fields = [&[0; CODE_BYTES][..], &expires_at, &tie, &local, &peer, &indication];
        let others = self.others.iter().flat_map(|&addr| match addr {
            IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
            IpAddr::V6(addr) => addr.octets(),
        });
        let mut cookie: ArrayVec<u8, COOKIE_BYTES_MAX> =
            fields.into_iter().flatten().copied().chain(others).collect();
        if let Some((code, state)) = cookie.split_first_chunk_mut::<CODE_BYTES>() {
            *code = secrets.cookie_code(flow, state).to_be_bytes();
        }
        cookie
    }

    /// Returns the state of a cookie that was made here for this flow, expired or not.
    pub(crate) fn decode(secrets: &Secrets, flow: &Flow, cookie: &[u8]) -> Option<Self> {
        let (code, state) = cookie.split_first_chunk::<CODE_BYTES>()?;
        let (expires_at, rest) = state.split_first_chunk()?;
        let (tie, rest) = rest.split_first_chunk()?;
        let (local, rest) = rest.split_first_chunk()?;
        let (peer, rest) = rest.split_first_chunk()?;
        let (indication, others) = rest.split_first_chunk()?;
        let indication = u64::from_be_bytes(*indication);
        let others = others.as_chunks::<ADDRESS_BYTES>().0.iter().take(PATHS_MAX - 1);
        let is_ours = secrets.cookie_code(flow, state) == u64::from_be_bytes(*code);
        is_ours.then(|| Cookie {
            expires_at: Nanos(u64::from_be_bytes(*expires_at)),
            tie: u64::from_be_bytes(*tie),
            local: InitFixed::parse(*local),
            peer: InitFixed::parse(*peer),
            adaptation_code_point: (indication >> 32 != 0).then_some(indication as u32),
            others: others.map(|octets| IpAddr::from(*octets).to_canonical()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddr};

    use ironwarp_types::Seq;
    use proptest::prelude::*;

    use super::*;

    fn flow(port: u16) -> Flow {
        Flow { local: SocketAddr::from(([10, 0, 0, 1], 80)), remote: SocketAddr::from(([10, 0, 0, 2], port)) }
    }

    fn init(tag: u32, tsn: u32) -> InitFixed {
        InitFixed { tag, a_rwnd: 9_000, outbound_streams: 5, inbound_streams: 6, initial_tsn: Seq(tsn) }
    }

    proptest! {
        /// RFC 9260 s5.1.5: a cookie is accepted from the endpoint that it was made for, and only
        /// as it was made.
        #[test]
        fn a_cookie_is_decoded_only_unchanged_and_for_its_flow(
            numbers: (u64, u64, u32, u32), adaptation_code_point: Option<u32>, at: prop::sample::Index,
            bit in 0u32..8, v4: [u8; 4], v6 in 1u128 << 100.., count in 0usize..PATHS_MAX,
        ) {
            let (expires, tie, tag, tsn) = numbers;
            let (local, peer) = (init(tag, tsn), init(tsn, tag));
            let others = [v4.into(), Ipv6Addr::from_bits(v6).into(), v4.into()].into_iter().take(count).collect();
            let cookie = Cookie { expires_at: Nanos(expires), tie, local, peer, adaptation_code_point, others };
            let secrets = Secrets::new([1, 2]);
            let mut octets = cookie.encode(&secrets, &flow(7));
            let at = at.index(octets.len());
            prop_assert_eq!(Cookie::decode(&secrets, &flow(7), &octets), Some(cookie));
            prop_assert_eq!(Cookie::decode(&secrets, &flow(8), &octets), None);
            prop_assert_eq!(Cookie::decode(&Secrets::new([1, 3]), &flow(7), &octets), None);
            prop_assert_eq!(Cookie::decode(&secrets, &flow(7), &octets[..at]), None);
            octets[at] ^= 1 << bit;
            prop_assert_eq!(Cookie::decode(&secrets, &flow(7), &octets), None);
        }
    }

    /// RFC 9260 s5.3.1: tags are not 0 and do not repeat.
    #[test]
    fn tags_differ() {
        let mut secrets = Secrets::new([1, 2]);
        let tags: std::collections::HashSet<_> = (0..1_000).map(|_| secrets.draw().0).collect();
        assert!(tags.len() == 1_000 && !tags.contains(&0));
        assert_ne!(secrets.tie(1, 2), secrets.tie(2, 1));
    }
}
