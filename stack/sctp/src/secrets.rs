//! Numbers that an off-path attacker cannot guess: tags, initial TSNs, tie-tags, and the code that
//! authenticates state cookies.
//!
//! All are SipHash-1-3 under one secret of 128 bits, with a purpose for each. Source: RFC 9260
//! s5.1.3 (the code), s5.2.2 (tie-tags), s5.3.1 (tags).

use core::hash::{Hash, Hasher};

use ironwarp_types::{Flow, Seq};
use siphasher::sip::SipHasher13;

pub(crate) struct Secrets {
    key: [u64; 2],
    /// Numbers drawn so far.
    drawn: u64,
}

impl Secrets {
    pub(crate) fn new(key: [u64; 2]) -> Self {
        Secrets { key, drawn: 0 }
    }

    /// Returns an initiate tag, which is not 0, and an initial TSN.
    pub(crate) fn draw(&mut self) -> (u32, Seq) {
        self.drawn = self.drawn.wrapping_add(1);
        let mut hasher = self.hasher(1);
        hasher.write_u64(self.drawn);
        let number = hasher.finish();
        ((number as u32).max(1), Seq((number >> 32) as u32))
    }

    /// Returns both tie-tags of an association as one number, which is not 0. It depends on both
    /// tags and shows neither.
    pub(crate) fn tie(&self, local_tag: u32, peer_tag: u32) -> u64 {
        let mut hasher = self.hasher(2);
        hasher.write_u32(local_tag);
        hasher.write_u32(peer_tag);
        hasher.finish().max(1)
    }

    /// Returns the code that authenticates a cookie's octets for a flow.
    pub(crate) fn cookie_code(&self, flow: &Flow, octets: &[u8]) -> u64 {
        let mut hasher = self.hasher(3);
        flow.hash(&mut hasher);
        hasher.write(octets);
        hasher.finish()
    }

    fn hasher(&self, purpose: u64) -> SipHasher13 {
        let [a, b] = self.key;
        SipHasher13::new_with_keys(a ^ purpose, b)
    }
}
