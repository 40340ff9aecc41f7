//! Peers that connect but do not send a valid MPA request (RFC 5044 s7.1.2, s8 code 4): the stack
//! closes TCP without a message, raises no event, and serves the next peer.

use crate::common;

use common::messages::{NODE, fpdu, reply, request, send};
use common::peer::Scene;
use ironwarp_tcp::TcpEvents;

/// The first bytes of such peers, each with a name, and whether these bytes suffice to be invalid.
fn malformed_requests() -> Vec<(&'static str, Vec<u8>, bool)> {
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut octets = request(0x40, 1, b"");
        change(&mut octets);
        octets
    };
    vec![
        ("another protocol", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".to_vec(), true),
        ("zeros", vec![0; 20], true),
        ("the last octet of the key", with(&|octets| octets[15] ^= 1), true),
        ("a reply instead of a request", reply(0x40, 1, b""), true),
        ("revision 0", request(0x40, 0, b""), true),
        ("revision 3", request(0x40, 3, b""), true),
        ("513 octets of private data", with(&|octets| octets[18..20].copy_from_slice(&[2, 1])), true),
        ("65535 octets of private data", with(&|octets| octets[18..20].copy_from_slice(&[255; 2])), true),
        ("enhanced data announced but missing", request(0x50, 2, b"xyz"), true),
        ("an FPDU", fpdu(&send(1, b"too early")), true),
        ("half of a key", request(0x40, 1, b"")[..8].to_vec(), false),
        ("less private data than announced", request(0x40, 1, b"five.")[..24].to_vec(), false),
        ("nothing", Vec::new(), false),
    ]
}

/// RFC5044-7.1.2-04, RFC5044-7.1.2-21, RFC5044-8-09: invalid bytes end the connection at once;
/// missing bytes end it at the time limit.
#[test]
fn bytes_that_are_no_request_close_the_connection_silently() {
    let mut scene = Scene::new(|config| config.mpa.startup_timeout_ms = 50);
    scene.node.ctx.listen(NODE.parse().unwrap()).unwrap();
    scene.turn();
    let (mut wrong, mut late) = (0, 0);
    for (name, octets, is_wrong) in malformed_requests() {
        let before = scene.peer.connections;
        scene.peer.connect(NODE);
        scene.peer.say(&octets);
        scene.until(name, |scene| scene.peer.connections > before);
        scene.until(name, |scene| scene.peer.events.intersects(TcpEvents::ENDED | TcpEvents::PEER_CLOSED));
        scene.peer.close();
        scene.until(name, |scene| scene.node.worker.resource_usage().connections == 0);
        assert!(scene.peer.heard.is_empty() && scene.node.events.is_empty(), "{name}");
        wrong += u64::from(is_wrong);
        late += u64::from(!is_wrong);
        let counted = ["iwarp_startup_errors", "verbs_startup_timeouts"].map(|one| scene.node.counter(one));
        assert_eq!((counted, scene.node.counter("iwarp_tx_terminates")), ([wrong, late], 0), "{name}");
    }
    let (_, _, heard) = scene.answers(&request(0x40, 1, b""), 20);
    assert_eq!(heard, reply(0x40, 1, b""));
}
