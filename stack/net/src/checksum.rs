//! Internet checksums as sums of big-endian words, so that sums of parts can be added
//! (RFC 1071 s2).

pub(crate) use ironwarp_arch::checksum::{fold, sum};
use ironwarp_port::Checksum;

/// Returns whether a checksum is correct. `sum` adds the data and its checksum field. It runs only
/// if the device did not verify the checksum.
#[inline(always)]
pub(crate) fn is_correct(verdict: Checksum, sum: impl FnOnce() -> u32) -> bool {
    match verdict {
        Checksum::Good => true,
        Checksum::Bad => false,
        Checksum::Unknown => fold(sum()) == 0xffff,
    }
}

/// Returns the sum of an IPv4 header without options, carries added.
#[inline(always)]
pub(crate) fn sum_header(header: &[u8; 20]) -> u32 {
    // Two words of 64 bits and one of 32: without a loop, because of which the compiler would use
    // vectors.
    let ([first, second], rest) = header.split_first_chunk::<16>().map_or(([0; 2], 0), |(front, back)| {
        let (words, _) = front.as_chunks::<8>();
        let word = |at: usize| words.get(at).map_or(0, |word| u64::from_ne_bytes(*word));
        ([word(0), word(1)], back.first_chunk().map_or(0, |word| u32::from_ne_bytes(*word)))
    });
    let (sum, carry) = first.overflowing_add(second);
    let sum = (sum & 0xffff_ffff) + (sum >> 32) + u64::from(rest) + u64::from(carry);
    // RFC 1071 s2(B): the sum in either byte order, swapped once.
    u32::from(fold(((sum & 0xffff_ffff) + (sum >> 32)) as u32).to_be())
}

/// Returns the checksum field after one of the words that it covers changed (RFC 1624 s3, equation
/// 3).
pub(crate) fn update(field: u16, from: u16, to: u16) -> u16 {
    !fold(u32::from(!field) + u32::from(!from) + u32::from(to))
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use crate::family::Address;

    #[test]
    fn an_updated_field_equals_a_recomputed_one() {
        // RFC 1624 s4: in this case the older equation of RFC 1141 gives a wrong zero.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
        let header = [0x45u8, 0, 0, 60, 1, 2, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let field = !fold(sum_header(&header));
        let mut changed = header;
        changed[2..4].copy_from_slice(&[0x05, 0xdc]);
        assert_eq!(update(field, 60, 0x05dc), !fold(sum(&changed)));
    }

    #[test]
    fn the_sums_of_headers_and_addresses_equal_the_general_sum() {
        let header: [u8; 20] = core::array::from_fn(|i| (i * 37 + 200) as u8);
        assert_eq!(fold(sum_header(&header)), fold(sum(&header)));
        let v4 = Ipv4Addr::new(192, 168, 255, 254);
        assert_eq!(fold(v4.sum()), fold(sum(&v4.octets())));
        let v6 = v4.to_ipv6_mapped();
        assert_eq!(fold(v6.sum()), fold(sum(&v6.octets())));
    }
}
