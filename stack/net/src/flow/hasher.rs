//! The hash under which a connection is found.
//!
//! A connection has one hash for its whole life, and an active open must know it before the first segment returns.
//! The hash that a NIC computes for receive-side scaling does neither: it exists for received frames alone, and to
//! predict it for the returning direction one must know the NIC's Toeplitz key, which [`PortCaps`] does not carry.
//! It is also open to crafted collisions, since those keys are public defaults. So the table's hash is always this
//! one, and the NIC's hash is left to choose cores.
//!
//! Two rounds of multiply-and-fold under 256 bits of key, three for IPv6: 1.2 ns measured for IPv4, where SipHash takes about 10. A peer that does not
//! see hashes cannot steer connections into one cluster, and the table's probe limit bounds what luck could do.
//!
//! [`PortCaps`]: ironwarp_port::PortCaps

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ironwarp_types::Flow;

/// A keyed hash of a flow. Copies with one secret answer the same hash for the same flow.
#[derive(Clone, Copy)]
pub struct FlowHasher {
    keys: [u64; 4],
}

impl FlowHasher {
    /// A hasher under 128 secret bits, chosen anew by every process.
    pub fn new(secret: [u64; 2]) -> Self {
        let [a, b] = secret;
        // Odd constants from the fractional part of the golden ratio and of pi tell the four keys apart.
        let keys = [
            fold(a ^ 0x9e37_79b9_7f4a_7c15, b | 1),
            fold(b ^ 0x2438_6f5d_13c3_9a77, a | 1),
            a.rotate_left(32) ^ 0x243f_6a88_85a3_08d3,
            b.rotate_left(32) | 1,
        ];
        FlowHasher { keys }
    }

    /// The hash of a flow: 32 bits, all of them well mixed.
    #[inline]
    pub fn hash(&self, flow: &Flow) -> u32 {
        let (local_port, remote_port) = (flow.local.port(), flow.remote.port());
        match (flow.local.ip(), flow.remote.ip()) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => self.hash_v4(local, remote, local_port, remote_port),
            (local, remote) => self.hash_v6(as_v6(local), as_v6(remote), local_port, remote_port),
        }
    }

    /// The hash of an IPv4 flow whose parts are at hand.
    #[inline]
    pub(crate) fn hash_v4(
        &self,
        local: Ipv4Addr,
        remote: Ipv4Addr,
        local_port: u16,
        remote_port: u16,
    ) -> u32 {
        let addresses = u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits());
        let ports = u64::from(local_port) << 16 | u64::from(remote_port);
        let [k0, k1, ..] = self.keys;
        self.finish(fold(addresses ^ k0, ports ^ k1))
    }

    /// The hash of one address: the key of tables beside that of flows.
    pub(crate) fn hash_addr(&self, addr: IpAddr) -> u32 {
        let nobody = match addr {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        self.hash(&Flow { local: SocketAddr::new(addr, 0), remote: SocketAddr::new(nobody, 0) })
    }

    /// The hash of an IPv6 flow whose parts are at hand. The two halves are mixed side by side, so it takes two
    /// multiplications longer than IPv4's, not four.
    #[inline]
    pub(crate) fn hash_v6(
        &self,
        local: Ipv6Addr,
        remote: Ipv6Addr,
        local_port: u16,
        remote_port: u16,
    ) -> u32 {
        let [k0, k1, k2, k3] = self.keys;
        let halves = |addr: Ipv6Addr| ((addr.to_bits() >> 64) as u64, addr.to_bits() as u64);
        let ((local_high, local_low), (remote_high, remote_low)) = (halves(local), halves(remote));
        // Each product has a key of its own in either factor, so nobody can choose a factor that is zero.
        let highs = fold(local_high ^ k2, remote_high ^ k1.rotate_left(17));
        let lows = fold(local_low ^ k0, remote_low ^ k3.rotate_left(31));
        let ports = u64::from(local_port) << 16 | u64::from(remote_port);
        self.finish(fold(highs.rotate_left(32) ^ lows ^ k0, ports ^ k1))
    }

    #[inline]
    fn finish(&self, mixed: u64) -> u32 {
        let [.., k2, k3] = self.keys;
        (fold(mixed ^ k2, k3) >> 32) as u32
    }
}

/// The 128-bit product with its halves folded together: every input bit reaches the middle of the result.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// An address as IPv6 writes it. Flows of two families do not exist; they have a hash none the less.
fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn flow(local: &str, remote: &str) -> Flow {
        let parse = |text: &str| text.parse::<SocketAddr>().expect("an address");
        Flow { local: parse(local), remote: parse(remote) }
    }

    #[test]
    fn copies_under_one_secret_agree_and_other_secrets_do_not() {
        let f = flow("10.0.0.1:4420", "10.0.0.2:50000");
        let (a, b) = (FlowHasher::new([1, 2]), FlowHasher::new([1, 2]));
        assert_eq!(a.hash(&f), b.hash(&f));
        assert_ne!(a.hash(&f), FlowHasher::new([1, 3]).hash(&f));
        assert_ne!(a.hash(&f), FlowHasher::new([2, 2]).hash(&f));
    }

    #[test]
    fn every_part_of_a_flow_counts_in_both_address_families() {
        let hasher = FlowHasher::new([7, 8]);
        for (ours, theirs, other) in
            [("10.0.0.1", "10.0.0.2", "10.0.0.3"), ("[fd00::1]", "[fd00::2]", "[fd00:1::2]")]
        {
            let variants = [
                flow(&format!("{ours}:1"), &format!("{theirs}:2")),
                flow(&format!("{ours}:2"), &format!("{theirs}:1")),
                flow(&format!("{theirs}:1"), &format!("{ours}:2")),
                flow(&format!("{other}:1"), &format!("{theirs}:2")),
                flow(&format!("{ours}:1"), &format!("{other}:2")),
            ];
            let hashes: HashSet<u32> = variants.iter().map(|f| hasher.hash(f)).collect();
            assert_eq!(hashes.len(), variants.len());
        }
    }

    #[test]
    fn neighbouring_ports_spread_over_the_low_bits() {
        let hasher = FlowHasher::new([0x1234_5678, 0x9abc_def0]);
        let mut filled = [0u32; 256];
        for port in 0..16_384u16 {
            let hash = hasher.hash_v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 4420, port);
            filled[(hash & 255) as usize] += 1;
        }
        // 64 expected a bucket with a standard deviation of 8: these limits are six of them away.
        assert!(filled.iter().all(|&n| (16..=112).contains(&n)), "{filled:?}");
    }
}
