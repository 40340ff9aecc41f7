//! Internet checksums over pieces, as sums of big-endian words (RFC 1071 s2).

use core::net::Ipv4Addr;

pub(crate) use ironwarp_arch::checksum::{fold, sum};

/// What a sum over data and its own checksum folds to when the checksum is right.
pub(crate) const RIGHT: u16 = 0xffff;

/// The sum of the ten words of an IPv4 header without options, carries not added.
#[inline]
pub(crate) fn sum_header(header: &[u8; 20]) -> u32 {
    let (words, _) = header.as_chunks::<2>();
    words.iter().map(|&word| u32::from(u16::from_be_bytes(word))).sum()
}

/// The sum of an address's words, carries not added.
#[inline]
pub(crate) fn sum_addr(addr: Ipv4Addr) -> u32 {
    let bits = addr.to_bits();
    (bits >> 16) + (bits & 0xffff)
}

/// A checksum field after one word of what it covers changed: RFC 1624 s3, equation 3.
pub(crate) fn update(field: u16, from: u16, to: u16) -> u16 {
    !fold(u32::from(!field) + u32::from(!from) + u32::from(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_from_zero_and_to_zero_agrees_with_the_sum() {
        // RFC 1624 s4: the case in which the older equation yields a wrong zero.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
        let header = [0x45u8, 0, 0, 60, 1, 2, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let field = !fold(sum_header(&header));
        let mut changed = header;
        changed[2..4].copy_from_slice(&[0x05, 0xdc]);
        assert_eq!(update(field, 60, 0x05dc), !fold(sum(&changed)));
    }

    #[test]
    fn the_short_forms_agree_with_the_general_sum() {
        let header: [u8; 20] = core::array::from_fn(|i| (i * 37 + 200) as u8);
        assert_eq!(fold(sum_header(&header)), fold(sum(&header)));
        let addr = Ipv4Addr::new(192, 168, 255, 254);
        assert_eq!(fold(sum_addr(addr)), fold(sum(&addr.octets())));
    }
}
