//! Scripts about sending: a peer with SACK, a round trip that was measured.

use ironwarp_tcp::TcpConfig;
use ironwarp_types::Nanos;

use super::pattern::Pattern;
use super::script::Script;

/// The round trip of these scripts.
pub const RTT: Nanos = Nanos::from_millis(1);
pub const RTO: Nanos = Nanos::from_millis(10);

pub fn config() -> TcpConfig {
    TcpConfig { rto_initial: RTO, rto_min: RTO, timestamps: false, ecn: false, ..TcpConfig::default() }
}

/// A connection with SACK whose round trip of [`RTT`] was measured by a first unit of 100 bytes: the next byte is 101.
pub fn sacking(config: TcpConfig) -> Script {
    let ack = if config.ecn { "SEW" } else { "S" };
    let syn = format!("{ack} 0 win 65535 <mss 1460,sackOK>");
    measured(Script::accepted_with(config, &syn, ". 1 ack 1 win 64000"))
}

fn measured(mut s: Script) -> Script {
    // The handshake of a script takes no time; what follows makes up for it.
    let mut source = Pattern::new(100, 100);
    s.transmit(&mut source, 1);
    s.sent();
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000");
    s.events();
    s
}

/// Sends so many units of 100 bytes, the next of which begins behind `sent` bytes.
pub fn send(s: &mut Script, sent: u64, units: u64) {
    let mut source = Pattern { next: sent, ..Pattern::new(100 * units, 100) };
    assert_eq!(s.transmit(&mut source, 32).units as u64, units);
    assert_eq!(s.sent().len() as u64, units);
}
