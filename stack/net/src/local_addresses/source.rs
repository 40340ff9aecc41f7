//! Source address selection.
//!
//! Source: RFC 1122 s3.3.4.3 (an address on the network of the next hop), RFC 6724 s5 (rules 2 and
//! 8: scope, longest matching prefix).

use core::net::IpAddr;

use super::table::{AddressState, LocalAddresses};
use crate::family::{common_bits, is_link_local, shares_prefix};

/// The result of [`LocalAddresses::source_for`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SourceAddress {
    Addr(IpAddr),
    /// An address that fits is still tentative.
    Tentative,
    /// There is no address of the family.
    None,
}

impl LocalAddresses {
    /// Returns the source address of packets to `dst` through `next_hop`. The right scope counts
    /// first, then the network of the next hop, then the longest prefix shared with the
    /// destination, then the configured order.
    pub(crate) fn source_for(&self, dst: IpAddr, next_hop: IpAddr) -> SourceAddress {
        let mut best: Option<((bool, bool, u32), IpAddr)> = None;
        let mut any_tentative = false;
        for (prefix, state) in self.iter() {
            let Some(common) = common_bits(prefix.addr, dst) else { continue };
            any_tentative |= state == AddressState::Tentative;
            if state != AddressState::Usable {
                continue;
            }
            let in_scope = is_link_local(prefix.addr) == is_link_local(dst);
            let rank = (in_scope, shares_prefix(prefix.addr, next_hop, prefix.len), common);
            if best.is_none_or(|(known, _)| rank > known) {
                best = Some((rank, prefix.addr));
            }
        }
        match best {
            Some(((true, ..), addr)) => SourceAddress::Addr(addr),
            // An address of the wrong scope does not reach the destination. It is used only if no
            // other one is tentative.
            _ if any_tentative => SourceAddress::Tentative,
            Some((_, addr)) => SourceAddress::Addr(addr),
            None => SourceAddress::None,
        }
    }
}
