//! Initial sequence numbers and ephemeral ports that an off-path attacker cannot guess.
//!
//! Source: RFC 6528 s3 (ISN = M + F(flow, secret), where M is a 4-microsecond clock) and
//! RFC 6056 s3.3.3 (a keyed offset per destination, and a counter). F is SipHash-1-3.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use ironwarp_types::{Flow, Nanos, Seq};
use siphasher::sip::SipHasher13;

/// The first ephemeral port. The range is the upper half of all ports; services use the lower half.
const EPHEMERAL_FIRST: u16 = 32_768;

/// The number of ephemeral ports.
pub(super) const EPHEMERAL_PORTS: u16 = 32_768;

/// The generator of sequence numbers, port offsets and timestamp offsets.
pub(super) struct IsnGenerator {
    secret: [u64; 2],
    next_port: u16,
}

impl IsnGenerator {
    pub(super) fn new(secret: [u64; 2]) -> Self {
        IsnGenerator { secret, next_port: 0 }
    }

    /// Returns the initial sequence number of a connection opened now.
    pub(super) fn iss(&self, now: Nanos, flow: &Flow) -> Seq {
        let mut hasher = self.hasher(1);
        write_address(&mut hasher, flow.local);
        write_address(&mut hasher, flow.remote);
        // 2^12 ns is close enough to 4 microseconds and needs no division.
        let clock = (now.0 >> 12) as u32;
        Seq(clock.wrapping_add(hasher.finish() as u32))
    }

    /// Returns a keyed hash of a flow and the encoded fields of a SYN cookie.
    pub(super) fn cookie_hash(&self, flow: &Flow, encoded: u64) -> u32 {
        let mut hasher = self.hasher(4);
        write_address(&mut hasher, flow.local);
        write_address(&mut hasher, flow.remote);
        hasher.write_u64(encoded);
        hasher.finish() as u32
    }

    /// Returns the offset of a connection's timestamp clock: constant for two endpoints, and
    /// secret.
    pub(super) fn ts_offset(&self, flow: &Flow) -> u32 {
        let mut hasher = self.hasher(3);
        write_address(&mut hasher, flow.local);
        write_address(&mut hasher, flow.remote);
        hasher.finish() as u32
    }

    /// Returns the `attempt`th port to try for a connection to `remote`.
    pub(super) fn ephemeral_port(&mut self, local: IpAddr, remote: SocketAddr) -> u16 {
        let mut hasher = self.hasher(2);
        write_address(&mut hasher, SocketAddr::new(local, 0));
        write_address(&mut hasher, remote);
        let offset = hasher.finish() as u16;
        self.next_port = self.next_port.wrapping_add(1);
        EPHEMERAL_FIRST + (offset.wrapping_add(self.next_port) % EPHEMERAL_PORTS)
    }

    /// Returns a hasher for one purpose.
    fn hasher(&self, purpose: u64) -> SipHasher13 {
        let [a, b] = self.secret;
        SipHasher13::new_with_keys(a ^ purpose, b)
    }
}

fn write_address(hasher: &mut SipHasher13, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(v4) => hasher.write_u32(v4.to_bits()),
        IpAddr::V6(v6) => hasher.write_u128(v6.to_bits()),
    }
    hasher.write_u16(address.port());
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn flow(port: u16) -> Flow {
        Flow { local: SocketAddr::from(([10, 0, 0, 1], 80)), remote: SocketAddr::from(([10, 0, 0, 2], port)) }
    }

    /// RFC 6528 s3: the ISNs of one flow follow the clock.
    #[test]
    fn a_reopened_flow_begins_beyond_its_last_sequence_numbers() {
        let isn_generator = IsnGenerator::new([1, 2]);
        let (first, later) =
            (isn_generator.iss(Nanos::ZERO, &flow(1)), isn_generator.iss(Nanos::from_secs(60), &flow(1)));
        assert_eq!(later.since(first), (60_000_000_000u64 >> 12) as u32);
    }

    /// RFC 9293 (SHLD-1).
    #[test]
    fn different_flows_and_secrets_give_different_isns() {
        let seen: HashSet<Seq> = (0..100)
            .flat_map(|port| {
                [[1, 2], [1, 3]].map(|secret| IsnGenerator::new(secret).iss(Nanos::ZERO, &flow(port)))
            })
            .collect();
        assert_eq!(seen.len(), 200);
    }

    /// RFC 6056 s3.3.3.
    #[test]
    fn ports_to_one_destination_repeat_only_after_all_were_tried() {
        let mut isn_generator = IsnGenerator::new([3, 4]);
        let local = IpAddr::from([10, 0, 0, 1]);
        let seen: HashSet<u16> =
            (0..EPHEMERAL_PORTS).map(|_| isn_generator.ephemeral_port(local, flow(9).remote)).collect();
        assert_eq!(seen.len(), usize::from(EPHEMERAL_PORTS));
        assert!(seen.iter().all(|&port| port >= EPHEMERAL_FIRST));
    }
}
