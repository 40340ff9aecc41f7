//! The path's MTU, as routers and timeouts teach it.
//!
//! Takes claims; gives a segment size. Units larger than that stay as they are and are sent again in pieces.
//!
//! Source: RFC 1191 s3 and s6, RFC 8201 s4, RFC 5927 s7.2, RFC 5044 s4.5 (MULPDU never below 128).

use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::Flow;

use super::Conn;
use crate::output::Io;

/// The smallest MTU believed of a path. RFC 791 s3.1 has every IPv4 host take 576 bytes, and a claim of less serves nobody
/// but who wants us to send headers; RFC 8200 s5 has every IPv6 link carry 1280.
fn mtu_floor(flow: &Flow) -> u16 {
    if flow.remote.is_ipv4() { 576 } else { 1_280 }
}

impl Conn {
    /// The largest packet that the path takes, by what is known.
    pub(crate) fn mtu_bytes(&self) -> u16 {
        self.path.mtu_bytes().min(self.cold.path_mtu)
    }

    /// The path takes packets of `mtu_bytes` at most. Later units are smaller; earlier ones are cut when sent again.
    #[cold]
    pub(crate) fn on_path_mtu<P: Port>(&mut self, io: &mut Io<'_, P>, mtu_bytes: u16) {
        let mtu_bytes = mtu_bytes.max(mtu_floor(&self.flow));
        if mtu_bytes >= self.mtu_bytes() {
            return;
        }
        io.count(Counter::TcpPathMtuLowered);
        self.cold.path_mtu = mtu_bytes;
        self.set_emss();
    }

    /// RFC 5927 s7.2: a claim that a timeout confirms, since what it named is still not acknowledged.
    #[cold]
    pub(crate) fn confirm_path_mtu<P: Port>(&mut self, io: &mut Io<'_, P>) {
        if let Some((seq, mtu_bytes)) = self.cold.claimed_mtu.take()
            && self.snd.snd_una.leq(seq)
        {
            self.on_path_mtu(io, mtu_bytes);
        }
    }
}
