//! The keyed hash that the flow table uses.
//!
//! A connection has one hash for its whole life, and an active open must know it before the first
//! segment arrives. The hash that a NIC computes for receive-side scaling is not usable for this.
//! It exists for received frames only, and predicting it requires the NIC's Toeplitz key, which
//! [`PortCaps`] does not contain. These keys are public defaults, so a peer can also craft
//! collisions. So the flow table always uses this hash; the NIC's hash only selects cores.
//!
//! The hash takes two rounds of multiply-and-fold under a key of 256 bits, and three for IPv6. IPv4
//! takes 1.2 ns, measured; SipHash takes about 10. A peer that does not see hashes cannot place
//! connections in one cluster of the table. The table's probe limit bounds accidental clusters.
//!
//! [`PortCaps`]: ironwarp_port::PortCaps

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ironwarp_types::{Flow, FlowKeyV4};

use crate::family::as_v6;

/// A keyed hash of flows. Hashers with the same secret return the same hash for the same flow.
#[derive(Clone, Copy)]
pub struct FlowHasher {
    keys: [u64; 4],
}

impl FlowHasher {
    /// Returns a hasher with a secret of 128 bits. Each process draws a new one.
    pub fn new(secret: [u64; 2]) -> Self {
        let [a, b] = secret;
        // Constants from the fractional parts of the golden ratio and of pi make the four keys
        // different.
        let keys = [
            fold(a ^ 0x9e37_79b9_7f4a_7c15, b | 1),
            fold(b ^ 0x2438_6f5d_13c3_9a77, a | 1),
            a.rotate_left(32) ^ 0x243f_6a88_85a3_08d3,
            b.rotate_left(32) | 1,
        ];
        FlowHasher { keys }
    }

    /// Returns the hash of a flow: 32 bits, all of them well mixed.
    #[inline]
    pub fn hash(&self, flow: &Flow) -> u32 {
        let (local_port, remote_port) = (flow.local.port(), flow.remote.port());
        match (flow.local.ip(), flow.remote.ip()) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => self.hash_v4(local, remote, local_port, remote_port),
            (local, remote) => self.hash_v6(as_v6(local), as_v6(remote), local_port, remote_port),
        }
    }

    /// Returns the hash of a flow as its fields lie in a received packet.
    #[inline(always)]
    pub(crate) fn hash_key_v4(&self, key: FlowKeyV4) -> u32 {
        let addresses = key.addresses.swap_bytes().rotate_left(32);
        let ports = u64::from(key.ports.swap_bytes().rotate_left(16));
        let [k0, k1, ..] = self.keys;
        self.finish(fold(addresses ^ k0, ports ^ k1))
    }

    /// Returns the hash of an IPv4 flow.
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

    /// Returns the hash of one address, for tables with addresses as keys.
    pub(crate) fn hash_addr(&self, addr: IpAddr) -> u32 {
        let unspecified = match addr {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        self.hash(&Flow { local: SocketAddr::new(addr, 0), remote: SocketAddr::new(unspecified, 0) })
    }

    /// Returns the hash of an IPv6 flow. The two halves of the addresses are mixed in parallel, so
    /// the latency is two multiplications longer than for IPv4.
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
        // Each factor includes its own key, so a peer cannot make a factor zero.
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

/// Returns the exclusive or of the halves of the 128-bit product. Each input bit affects the middle
/// of the result.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
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
    fn equal_secrets_give_equal_hashes_and_others_do_not() {
        let f = flow("10.0.0.1:4420", "10.0.0.2:50000");
        let (a, b) = (FlowHasher::new([1, 2]), FlowHasher::new([1, 2]));
        assert_eq!(a.hash(&f), b.hash(&f));
        assert_ne!(a.hash(&f), FlowHasher::new([1, 3]).hash(&f));
        assert_ne!(a.hash(&f), FlowHasher::new([2, 2]).hash(&f));
    }

    #[test]
    fn every_part_of_a_flow_changes_the_hash() {
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
    fn consecutive_ports_spread_over_the_low_bits() {
        let hasher = FlowHasher::new([0x1234_5678, 0x9abc_def0]);
        let mut filled = [0u32; 256];
        for port in 0..16_384u16 {
            let hash = hasher.hash_v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 4420, port);
            filled[(hash & 255) as usize] += 1;
        }
        // The expected count is 64 per bucket with a standard deviation of 8. The limits are six
        // deviations away.
        assert!(filled.iter().all(|&n| (16..=112).contains(&n)), "{filled:?}");
    }
}
