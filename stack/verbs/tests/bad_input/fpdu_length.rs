//! FPDUs that claim more octets than they carry, or fewer (RFC 5044 s4.1, s6, s8). Only the length
//! field determines the end of an FPDU. So the receiver waits for missing octets, and the CRC
//! detects wrong ones.

use ironwarp::DisconnectReason;
use proptest::prelude::*;

use crate::bad_input::bench::{BUFFER, Begins, Bench, RECEIVE, Victim};
use crate::bad_input::cases;
use crate::common::contents;
use crate::common::messages::{fpdu, place, send, tagged};

fn begins() -> impl Strategy<Value = Begins> {
    prop_oneof![Just(Begins::Node), Just(Begins::Peer)]
}

/// A Write that would change the buffer.
fn write(victim: &Victim, bytes: usize) -> Vec<u8> {
    let (stag, to) = place(&victim.buffer);
    fpdu(&tagged(0, stag, to, &vec![0xff; bytes]))
}

fn is_untouched(victim: &Victim) -> bool {
    contents(&victim.buffer) == [0xb0; BUFFER] && contents(&victim.inbox) == [0x1b; RECEIVE]
}

proptest! {
    #![proptest_config(cases(32))]

    /// The receiver waits for the missing octets and uses nothing of the partial FPDU. The peer's
    /// FIN or reset ends the connection without a Terminate, because there is no error to report.
    #[test]
    fn an_fpdu_that_never_completes(
        begins in begins(),
        bytes in 1..1400usize,
        at in any::<prop::sample::Index>(),
        resets: bool,
    ) {
        let mut bench = Bench::new();
        let victim = bench.victim(begins);
        let octets = write(&victim, bytes);
        let cut = 1 + at.index(octets.len() - 1);
        bench.scene.peer.say(&octets[..cut]);
        bench.scene.turns(40);
        prop_assert!(bench.scene.node.events.is_empty() && is_untouched(&victim));
        if resets {
            bench.scene.peer.reset();
            prop_assert_eq!(bench.scene.disconnected(), DisconnectReason::Reset);
            prop_assert!(bench.scene.peer.heard.is_empty() && is_untouched(&victim));
            bench.leaves_nothing(&victim);
        } else {
            bench.scene.peer.close();
            bench.scene.hears_fin();
            prop_assert!(is_untouched(&victim));
            bench.is_over(victim, DisconnectReason::Closed);
        }
    }

    /// The length field is too large: the next FPDUs count as its rest until it is complete. Then
    /// the CRC is wrong.
    #[test]
    fn a_length_that_reaches_into_the_next_fpdu(begins in begins(), bytes in 1..300usize, more in 1..300u16) {
        let mut bench = Bench::new();
        let victim = bench.victim(begins);
        let mut octets = write(&victim, bytes);
        let claimed = (bytes as u16 + 14) + more;
        octets[..2].copy_from_slice(&claimed.to_be_bytes());
        while octets.len() < usize::from(claimed) + 10 {
            octets.extend(fpdu(&send(1, b"behind it")));
        }
        bench.scene.peer.say(&octets);
        bench.ends_with(victim, "MPA: CRC", &[]);
    }

    /// The length field is too small: the receiver takes octets of the payload for the CRC.
    #[test]
    fn a_length_that_ends_within_the_payload(
        begins in begins(),
        bytes in 8..300usize,
        at in any::<prop::sample::Index>(),
    ) {
        let mut bench = Bench::new();
        let victim = bench.victim(begins);
        let mut octets = write(&victim, bytes);
        // At least a word less, because a smaller difference changes only the padding, and the CRC
        // detects that too.
        let claimed = at.index(bytes + 14 - 4);
        octets[..2].copy_from_slice(&(claimed as u16).to_be_bytes());
        bench.scene.peer.say(&octets);
        bench.ends_with(victim, "MPA: CRC", &[]);
    }

    /// Without CRCs a wrong length cannot be detected. The octets are still placed only where a
    /// checked header says, and the node survives.
    #[test]
    fn wrong_lengths_without_crc_access_no_other_memory(
        claims in prop::collection::vec((0..700u16, 0..200usize), 1..8),
    ) {
        let mut bench = Bench::with(|config| config.mpa.crc = false);
        let victim = bench.victim(Begins::Peer);
        let secret = bench.scene.node.memory(&[0x7a; 256]);
        for (claimed, carried) in claims {
            let mut octets = fpdu(&send(1, &vec![0xee; carried]));
            octets[..2].copy_from_slice(&claimed.to_be_bytes());
            bench.scene.peer.say(&octets);
        }
        bench.scene.turns(60);
        prop_assert_eq!(contents(&secret), [0x7a; 256]);
        prop_assert_eq!(contents(&victim.buffer), [0xb0; BUFFER]);
        bench.scene.peer.reset();
        bench.scene.disconnected();
        bench.scene.node.events.clear();
        bench.leaves_nothing(&victim);
    }
}

/// RFC 5044 s4.1: the longest length with almost no octets behind it. The receiver holds no more
/// than it received, and sends nothing.
#[test]
fn the_longest_length_without_payload() {
    let mut bench = Bench::new();
    for carried in [0, 1, 2, 18, 1000] {
        let victim = bench.victim(Begins::Node);
        bench.scene.peer.say(&[&[0xff, 0xff][..], &vec![0x41; carried]].concat());
        bench.scene.turns(40);
        assert!(bench.scene.node.events.is_empty() && is_untouched(&victim));
        bench.scene.peer.close();
        bench.is_over(victim, DisconnectReason::Closed);
    }
}
