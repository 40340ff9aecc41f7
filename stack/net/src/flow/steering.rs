//! The function from a flow to the core that owns it. It is pure and the same on every core.
//!
//! A card with receive-side scaling is configured with a symmetric, secret Toeplitz key and an even
//! indirection table, and [`Steering::core_of`] computes that hash. Over memif and rings the
//! sender's queue is the receiver's queue, so the same hash is used: two stacks with the same
//! number of cores agree on a flow's core, and no frame moves between cores. On af_packet, af_xdp
//! and tap the queue cannot be predicted. There the keyed flow hash selects the core, so a peer
//! cannot choose a core. Each received frame is checked against this function, so another
//! distribution only costs time.
//!
//! An association of SCTP with several addresses has several flows, which have their ports in
//! common. All belong to one core, so the keyed hash covers the ports only. Frames that the device
//! distributes otherwise are handed over.
//!
//! Source: Microsoft's definition of receive-side scaling for the Toeplitz hash. With a key that
//! repeats two bytes, both directions of a flow have the same hash, and the hash depends only on
//! the exclusive or of all 16-bit words. Cost: one multiplication with the keyed hash, about 10 ns
//! with the Toeplitz hash.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use ironwarp_port::Spread;
use ironwarp_types::Flow;

use super::FlowHasher;

/// Maps flows to cores.
#[derive(Clone, Copy)]
pub struct Steering {
    cores: u16,
    by: By,
}

/// What selects the core.
#[derive(Clone, Copy)]
enum By {
    FlowHash,
    Toeplitz { entries: u16, key: u16 },
    Ports(FlowHasher),
}

impl Steering {
    /// Returns the map for `cores` cores, at least one, and a device that distributes flows as
    /// `spread` says.
    pub fn new(cores: u16, spread: Spread) -> Self {
        let by = match spread {
            Spread::Unknown => By::FlowHash,
            Spread::Toeplitz { entries, key } => By::Toeplitz { entries, key },
        };
        Steering { cores: cores.max(1), by }
    }

    /// Returns the map for `cores` cores, at least one, that is the same for all addresses.
    pub fn by_ports(cores: u16, hasher: FlowHasher) -> Self {
        Steering { cores: cores.max(1), by: By::Ports(hasher) }
    }

    /// Returns the number of cores.
    pub fn cores(&self) -> u16 {
        self.cores
    }

    /// Returns the core that owns a flow. `hash` is [`FlowHasher::hash`](crate::FlowHasher::hash)
    /// of the flow.
    pub fn core_of(&self, flow: &Flow, hash: u32) -> u16 {
        // The low bits select a slot of the flow table, so the high bits select the core.
        let by_hash = |hash: u32| ((u64::from(hash) * u64::from(self.cores)) >> 32) as u16;
        match self.by {
            By::FlowHash => by_hash(hash),
            By::Toeplitz { entries, key } => {
                let entry = symmetric_toeplitz(key, flow) % u32::from(entries.max(1));
                (entry % u32::from(self.cores)) as u16
            }
            By::Ports(hasher) => {
                let no_address = Ipv4Addr::UNSPECIFIED;
                by_hash(hasher.hash_v4(no_address, no_address, flow.local.port(), flow.remote.port()))
            }
        }
    }
}

/// Returns the hash that a card computes over the addresses and ports of a flow under the repeated
/// key.
fn symmetric_toeplitz(key: u16, flow: &Flow) -> u32 {
    let words = xor_words(flow.local) ^ xor_words(flow.remote);
    // The window of the key moves by one bit for each bit of the input, and repeats after sixteen
    // bits.
    let half =
        (0..16).filter(|bit| words >> (15 - bit) & 1 == 1).fold(0, |hash, bit| hash ^ key.rotate_left(bit));
    u32::from(half) << 16 | u32::from(half)
}

/// Returns the exclusive or of the 16-bit words of an address and its port.
fn xor_words(end: SocketAddr) -> u16 {
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
    use ironwarp_port::SHARED_RSS_KEY;

    fn flow(local: &str, remote: &str) -> Flow {
        let parse = |text: &str| text.parse::<SocketAddr>().expect("an address");
        Flow { local: parse(local), remote: parse(remote) }
    }

    /// The definition: bit by bit over the bytes in the order of the packet.
    fn toeplitz(repeated: u16, input: &[u8]) -> u32 {
        let key = |bit: usize| u32::from(repeated >> (15 - bit % 16) & 1);
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
    fn the_short_form_equals_the_definition() {
        for port in (1..60_000).step_by(97) {
            for flow in [
                flow("10.1.2.3:4420", &format!("192.168.7.9:{port}")),
                flow("[fd00::1:2]:4420", &format!("[fd00:1:2:3:4:5:6:7]:{port}")),
            ] {
                for key in [SHARED_RSS_KEY, 0x8000, 0xfffe, 0x1a2b | port as u16 & 1] {
                    let by_definition = toeplitz(key, &packet(&flow));
                    assert_eq!(symmetric_toeplitz(key, &flow), by_definition, "{key:#x} {flow:?}");
                }
            }
        }
    }

    /// Two stacks with the same number of cores agree on the core, so each frame arrives on its
    /// owner core.
    #[test]
    fn both_directions_of_a_flow_have_the_same_core() {
        let steering = Steering::new(4, Spread::Toeplitz { entries: 128, key: SHARED_RSS_KEY });
        for port in 1..2_000 {
            let local = flow("10.0.0.1:4420", &format!("10.0.0.2:{port}"));
            let peer = Flow { local: local.remote, remote: local.local };
            assert_eq!(steering.core_of(&local, 1), steering.core_of(&peer, 2));
        }
    }

    /// A peer that knows the key of one process, or the defaults of cards, cannot choose ports that
    /// all reach one core of another.
    #[test]
    fn ports_chosen_for_one_key_are_spread_by_another() {
        let steering = |key| Steering::new(4, Spread::Toeplitz { entries: 128, key });
        let all = (1_024..=u16::MAX).map(|port| flow("10.0.0.1:4420", &format!("10.0.0.2:{port}")));
        let chosen: Vec<Flow> = all.filter(|flow| steering(SHARED_RSS_KEY).core_of(flow, 0) == 0).collect();
        for key in [0x001f, 0x1a2c, 0x55f7, 0xc40e] {
            let mut share = [0usize; 4];
            chosen.iter().for_each(|flow| share[usize::from(steering(key).core_of(flow, 0))] += 1);
            assert!(share.iter().all(|&flows| flows < chosen.len() / 2), "{key:#x}: {share:?}");
        }
    }

    /// Whatever its addresses, an association has one core; its ports select it.
    #[test]
    fn flows_with_the_same_ports_have_one_core() {
        let steering = Steering::by_ports(8, FlowHasher::new([3, 4]));
        let mut cores = [0u32; 8];
        for port in 1..1_000 {
            let of = |local: &str, remote: &str| flow(&format!("{local}:4420"), &format!("{remote}:{port}"));
            let flows =
                [of("10.0.0.1", "10.0.0.2"), of("10.1.0.1", "10.1.0.2"), of("[fd00::1]", "[fd00::2]")];
            let [core, others @ ..] =
                flows.map(|flow| steering.core_of(&flow, FlowHasher::new([5, 6]).hash(&flow)));
            assert_eq!(others, [core; 2]);
            cores[usize::from(core)] += 1;
        }
        assert!(cores.iter().all(|&flows| flows > 90), "{cores:?}");
    }

    #[test]
    fn flows_spread_evenly_over_the_cores() {
        let hasher = FlowHasher::new([3, 4]);
        for spread in [Spread::Unknown, Spread::Toeplitz { entries: 128, key: SHARED_RSS_KEY }] {
            for cores in 1..=8u16 {
                let steering = Steering::new(cores, spread);
                let mut share = vec![0u32; cores.into()];
                for port in 0..8_000u16 {
                    let flow = flow("10.0.0.1:4420", &format!("10.0.0.2:{}", 20_000 + port));
                    share[usize::from(steering.core_of(&flow, hasher.hash(&flow)))] += 1;
                }
                let even = 8_000 / u32::from(cores);
                assert!(share.iter().all(|&n| n > even * 3 / 4 && n < even * 5 / 4), "{cores}: {share:?}");
            }
        }
    }
}
