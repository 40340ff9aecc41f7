//! RDMA over SCTP in UDP (RFC 6951).

use ironwarp::{RemoteMemory, SendWr};

use super::common::{self, contents, pattern, tap::Tap};

const PORT: u16 = 9_899;

/// RFC6951-3.2-01, 5.3-03: connections work as over IP, each packet is a datagram between the two
/// ports, and none lists an address. The frames of large segments fill the MTU.
#[test]
fn connections_work_in_udp() {
    let mut pair = common::joined_with(|address| {
        let mut config = common::config(address);
        (config.sctp.udp_local_port, config.sctp.udp_encapsulation_port) = (PORT, PORT);
        config
    });
    let tap = Tap::on(&pair.near);
    let (near, _far) = pair.connect();
    let data = pattern(100_000, 3);
    let (source, target) = (pair.near.memory(&data), pair.far.memory(&vec![0; data.len()]));
    let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    let all = [source.slice(0, data.len() as u32).unwrap()];
    pair.near.ctx.post_send(near, &SendWr::write(1, &all, remote)).unwrap();
    pair.until("the Write", |pair| !pair.near.completions.is_empty());
    assert!(contents(&target) == data);
    Tap::end(&pair.near);
    let frames = tap.frames();
    let of_ip: Vec<_> = frames.iter().filter(|frame| frame[12..14] == [8, 0]).collect();
    assert!(of_ip.len() > 70);
    for frame in &of_ip {
        let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        assert_eq!((frame[23], half(34), half(36), half(38)), (17, PORT, PORT, half(16) - 20));
    }
    assert!(of_ip.iter().any(|frame| frame.len() > 14 + 1_500 - 4));
    // INIT: its only parameter is the indication of DDP.
    let init = of_ip.iter().find(|frame| frame[34 + 8 + 12] == 1).expect("an INIT");
    assert_eq!(init[34 + 8 + 12 + 20..][..2], [0xc0, 6]);
}
