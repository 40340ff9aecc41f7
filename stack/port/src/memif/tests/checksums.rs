//! TCP checksums that two ends leave out, and that are complete for everybody else.

use super::*;
use crate::memif::region::PARTIAL_CHECKSUM;
use crate::sample::{segment, unfilled_segment};
use crate::{Checksum, TxOffloads};

/// What a segment is sealed with whose TCP checksum is left out.
const OFFLOADED: TxMeta =
    TxMeta { l2_bytes: 14, l3_bytes: 20, l4_bytes: 20, offloads: TxOffloads::TCP_CHECKSUM };

/// A segment that asks for its TCP checksum. Its IPv4 header is complete.
fn partial(payload: &[u8]) -> Vec<u8> {
    let mut frame = unfilled_segment(payload);
    frame[24..26].copy_from_slice(&segment(payload)[24..26]);
    frame
}

fn sealed(port: &mut MemifPort, bytes: &[u8], is_long: bool, tx: TxMeta) -> MemifSealed {
    let mut frame = if is_long { port.alloc_long() } else { port.alloc() }.expect("a frame");
    frame.resize(bytes.len());
    frame.bytes_mut().copy_from_slice(bytes);
    frame.seal(tx)
}

/// Sends a frame and returns what arrives: its bytes and the verdict on its checksum.
fn cross(from: &mut MemifPort, to: &mut MemifPort, frame: &MemifSealed) -> (Vec<u8>, Checksum) {
    assert!(send_sealed(from, frame));
    let mut burst = Burst::new();
    to.rx_burst(&mut burst);
    let [received] = burst.as_slice() else { panic!("one frame") };
    (received.bytes().to_vec(), received.rx().l4_checksum)
}

/// The ends of a link, client first, each with or without partial checksums.
fn ends(path: &Path, partial_checksums: [bool; 2]) -> [MemifPort; 2] {
    let [client, server] = partial_checksums;
    let open = |config, partial_checksums| {
        let config = MemifConfig { partial_checksums, ..small(config) };
        MemifPort::open(&config, CoreStats::detached()).expect("an end")
    };
    let server = open(MemifConfig::server(path), server);
    let client = open(MemifConfig::client(path), client);
    link_up(&client, &server);
    [client, server]
}

#[test]
fn two_ends_of_this_library_leave_checksums_out() {
    let folder = folder();
    let [mut client, mut server] = ends(&folder.path().join("m"), [true, true]);
    for payload in [&b"odd"[..], &[7; 1400]] {
        for is_long in [false, true] {
            for turn in 0..2 {
                assert!(
                    client.tx_offloads().contains(TxOffloads::TCP_CHECKSUM | TxOffloads::TCP_CHECKSUM_IPV6)
                );
                let frame = sealed(&mut client, &partial(payload), is_long, OFFLOADED);
                let got = cross(&mut client, &mut server, &frame);
                assert_eq!(got, (partial(payload), Checksum::Good), "in turn {turn}");
                // One that is complete is verified.
                let frame = sealed(&mut client, &segment(payload), is_long, TxMeta::default());
                assert_eq!(cross(&mut client, &mut server, &frame), (segment(payload), Checksum::Unknown));
                core::mem::swap(&mut client, &mut server);
            }
        }
    }
}

/// Frames that were made for a link without checksums, and that wait when another peer comes.
#[test]
fn an_end_that_wants_checksums_gets_them() {
    for wants in [[true, false], [false, true], [false, false]] {
        let folder = folder();
        let [mut client, mut server] = ends(&folder.path().join("m"), wants);
        for payload in [&b"odd"[..], &[7; 1400]] {
            for is_long in [false, true] {
                for _ in 0..2 {
                    assert!(client.tx_offloads().is_empty());
                    let frame = sealed(&mut client, &partial(payload), is_long, OFFLOADED);
                    let got = cross(&mut client, &mut server, &frame);
                    assert_eq!(got, (segment(payload), Checksum::Unknown));
                    assert_eq!(frame.bytes(), partial(payload), "what TCP retains stays as it was");
                    core::mem::swap(&mut client, &mut server);
                }
            }
        }
    }
}

/// A client of another name says in its descriptors that it leaves checksums out.
#[test]
fn a_peer_that_has_not_declared_itself_is_not_believed() {
    let folder = folder();
    let path = folder.path().join("m");
    let (mut port, _) = server(&path);
    let mut peer = Client::up(&path, &port);
    assert!(port.tx_offloads().is_empty());
    let good = descriptor(0, 0, 60, 0);
    peer.offer(&[good, Descriptor { flags: PARTIAL_CHECKSUM, ..good }]);
    let mut burst = Burst::new();
    port.rx_burst(&mut burst);
    let verdicts = burst.iter().map(|frame| frame.rx().l4_checksum);
    assert_eq!(verdicts.collect::<Vec<_>>(), [Checksum::Unknown; 2]);
}
