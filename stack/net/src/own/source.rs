//! Which of our addresses a packet has as its source.
//!
//! Source: RFC 1122 s3.3.4.3 (one on the network that the packet leaves through), RFC 6724 s5 (rules 2 and 8: scope, longest
//! matching prefix).

use core::net::IpAddr;

use super::addresses::{AddressState, Addresses};
use crate::family::{common_bits, is_link_local, shares_prefix};

/// The source for a packet, as far as there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Addr(IpAddr),
    /// Every address of the family is still being asked for.
    NotYet,
    /// There is no address of the family.
    None,
}

impl Addresses {
    /// The source for packets to `target` whose next station is `next`: of the right scope, then on the network of the
    /// next station, then nearest to the target; among equals the one configured first.
    pub(crate) fn source(&self, target: IpAddr, next: IpAddr) -> Source {
        let mut best: Option<((bool, bool, u32), IpAddr)> = None;
        let mut tentative = false;
        for (prefix, state) in self.iter() {
            let Some(common) = common_bits(prefix.addr, target) else { continue };
            tentative |= state == AddressState::Tentative;
            if state != AddressState::Usable {
                continue;
            }
            let in_scope = is_link_local(prefix.addr) == is_link_local(target);
            let rank = (in_scope, shares_prefix(prefix.addr, next, prefix.len), common);
            if best.is_none_or(|(known, _)| rank > known) {
                best = Some((rank, prefix.addr));
            }
        }
        match best {
            // A link-local address leads nowhere beyond the link: better to wait for another.
            Some(((true, ..), addr)) => Source::Addr(addr),
            _ if tentative => Source::NotYet,
            Some((_, addr)) => Source::Addr(addr),
            None => Source::None,
        }
    }
}
