//! Requirements of RFC 9293 that the other files leave open, one script each: they are named in `docs/conformance.csv`.

mod common;

use common::script::Script;
use ironwarp_tcp::{TcpConfig, TcpEvents};

fn script() -> Script {
    Script::accepted(TcpConfig::default(), 64_000)
}

/// RFC 9293 s3.10.7.4, eighth step in FIN-WAIT-1, and figure 13: the peer's FIN is acknowledged although our own is in the
/// same burst, and the connection with it over before ACKs leave.
#[test]
fn a_fin_is_acknowledged_when_the_ack_of_ours_follows_in_the_same_burst() {
    let mut s = script();
    s.close();
    s.expect(&["F. 1 ack 1"]);
    s.peer("F. 1 ack 1 win 64000");
    s.peer(". 2 ack 2 win 64000");
    assert_eq!(s.events(), TcpEvents::PEER_CLOSED | TcpEvents::CLOSED);
    s.expect(&[". 2 ack 2"]);
}
