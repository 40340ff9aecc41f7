//! The core that owns a flow: one pure function, the same on every core.
//!
//! Source: Microsoft's definition of receive-side scaling for the Toeplitz hash. With a key that repeats two bytes, both
//! directions of a flow have the same hash, and the hash depends only on the exclusive or of all 16-bit words.
//! Cost: a multiplication under the keyed hash, about 10 ns under the other.
//!
//! A card with receive-side scaling is configured with a symmetric Toeplitz key and an even indirection table, and
//! `Steering::core_of` computes that hash. Over memif and rings the sender's queue is the receiver's queue, so the same
//! hash is used: two stacks with the same number of cores agree on a flow's core and no frame is handed over. On af_packet,
//! af_xdp and tap the queue cannot be predicted, and a keyed hash of the stack selects the core; a peer cannot aim at a
//! core. Every received frame is checked against this function, so a device with another distribution costs time only.

use core::net::{IpAddr, SocketAddr};

use ironwarp_port::Spread;
use ironwarp_types::Flow;

/// The two bytes that make up the key.
const KEY: u16 = 0x6d5a;

/// Maps flows to cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steering {
    cores: u16,
    spread: Spread,
}

impl Steering {
    /// Over so many cores, at least one, behind a device that spreads flows like that.
    pub fn new(cores: u16, spread: Spread) -> Self {
        Steering { cores: cores.max(1), spread }
    }

    /// Cores that there are.
    pub fn cores(&self) -> u16 {
        self.cores
    }

    /// The core that a flow belongs to. `hash` is [`FlowHasher::hash`](crate::FlowHasher::hash) of the flow.
    pub fn home(&self, flow: &Flow, hash: u32) -> u16 {
        match self.spread {
            // The low bits choose a place in the table of flows, so the high ones choose the core.
            Spread::Unknown => ((u64::from(hash) * u64::from(self.cores)) >> 32) as u16,
            Spread::Toeplitz { entries } => {
                let entry = symmetric_toeplitz(flow) % u32::from(entries.max(1));
                (entry % u32::from(self.cores)) as u16
            }
        }
    }
}

/// The hash that a network card computes over addresses and ports of a flow.
fn symmetric_toeplitz(flow: &Flow) -> u32 {
    let words = end(flow.local) ^ end(flow.remote);
    // The key's window moves one bit for every bit of the input, and after sixteen it is where it was.
    let half =
        (0..16).filter(|bit| words >> (15 - bit) & 1 == 1).fold(0, |hash, bit| hash ^ KEY.rotate_left(bit));
    u32::from(half) << 16 | u32::from(half)
}

/// The exclusive or of the 16-bit words of an address and its port.
fn end(end: SocketAddr) -> u16 {
    let folded = match end.ip() {
        IpAddr::V4(v4) => v4.to_bits(),
        IpAddr::V6(v6) => {
            let half = (v6.to_bits() >> 64) as u64 ^ v6.to_bits() as u64;
            (half >> 32) as u32 ^ half as u32
        }
    };
    (folded >> 16) as u16 ^ folded as u16 ^ end.port()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::FlowHasher;

    fn flow(local: &str, remote: &str) -> Flow {
        let parse = |text: &str| text.parse::<SocketAddr>().expect("an address");
        Flow { local: parse(local), remote: parse(remote) }
    }

    /// The definition, bit by bit over the bytes as they lie in the packet.
    fn toeplitz(input: &[u8]) -> u32 {
        let key = |bit: usize| u32::from(KEY >> (15 - bit % 16) & 1);
        let window = |at: usize| (0..32).fold(0, |word, bit| word << 1 | key(at + bit));
        let set = (0..input.len() * 8).filter(|at| input[at / 8] >> (7 - at % 8) & 1 == 1);
        set.fold(0, |hash, at| hash ^ window(at))
    }

    fn packet(flow: &Flow) -> Vec<u8> {
        let address = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let (local, remote) = (flow.local, flow.remote);
        let ports = [remote.port().to_be_bytes(), local.port().to_be_bytes()].concat();
        [address(remote.ip()), address(local.ip()), ports].concat()
    }

    #[test]
    fn the_short_way_gives_what_the_definition_gives() {
        for port in (1..60_000).step_by(97) {
            for flow in [
                flow("10.1.2.3:4420", &format!("192.168.7.9:{port}")),
                flow("[fd00::1:2]:4420", &format!("[fd00:1:2:3:4:5:6:7]:{port}")),
            ] {
                assert_eq!(symmetric_toeplitz(&flow), toeplitz(&packet(&flow)), "{flow:?}");
            }
        }
    }

    /// Both ends of a link of equal stacks agree on the number of the core, so a frame arrives where it belongs.
    #[test]
    fn both_directions_of_a_flow_belong_to_the_core_of_one_number() {
        let steering = Steering::new(4, Spread::Toeplitz { entries: 128 });
        for port in 1..2_000 {
            let near = flow("10.0.0.1:4420", &format!("10.0.0.2:{port}"));
            let far = Flow { local: near.remote, remote: near.local };
            assert_eq!(steering.home(&near, 1), steering.home(&far, 2));
        }
    }

    #[test]
    fn every_core_gets_its_share_whatever_the_device_does() {
        let hasher = FlowHasher::new([3, 4]);
        for spread in [Spread::Unknown, Spread::Toeplitz { entries: 128 }] {
            for cores in 1..=8u16 {
                let steering = Steering::new(cores, spread);
                let mut share = vec![0u32; cores.into()];
                for port in 0..8_000u16 {
                    let flow = flow("10.0.0.1:4420", &format!("10.0.0.2:{}", 20_000 + port));
                    share[usize::from(steering.home(&flow, hasher.hash(&flow)))] += 1;
                }
                let even = 8_000 / u32::from(cores);
                assert!(share.iter().all(|&n| n > even * 3 / 4 && n < even * 5 / 4), "{cores}: {share:?}");
            }
        }
    }
}
