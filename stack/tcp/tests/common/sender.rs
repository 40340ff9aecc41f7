//! Scripts about sending: a peer with SACK and a measured round trip.

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

/// A connection with SACK, and with ECN if `config` enables it. The handshake and a first unit of
/// 100 bytes gave a round-trip sample of [`RTT`], so the next byte is 101.
pub fn sacking(config: TcpConfig) -> Script {
    let echo = if config.ecn { "E" } else { "" };
    measured(Script::with_options(config), &format!("S.{echo} 0 ack 1 win 64000 <mss 1460,sackOK>"))
}

/// The same without SACK.
pub fn plain(config: TcpConfig) -> Script {
    measured(Script::new(config), "S. 0 ack 1 win 64000 <mss 1460>")
}

fn measured(mut s: Script, syn_ack: &str) -> Script {
    s.connect();
    s.sent();
    s.advance(RTT);
    s.peer(syn_ack);
    s.sent();
    s.transmit(&mut Pattern::new(100, 100), 1);
    s.sent();
    s.advance(RTT);
    s.peer(". 1 ack 101 win 64000");
    s.events();
    s
}

/// Sends `units` units of 100 bytes. The first one follows `sent` bytes.
pub fn send(s: &mut Script, sent: u64, units: u64) {
    let mut source = Pattern { next: sent, ..Pattern::new(100 * units, 100) };
    assert_eq!(s.transmit(&mut source, 32).units as u64, units);
    assert_eq!(s.sent().len() as u64, units);
}
