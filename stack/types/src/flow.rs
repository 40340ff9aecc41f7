//! The addresses that name a TCP connection, and link addresses.

use core::fmt;
use core::net::SocketAddr;

/// A TCP connection's two ends, seen from here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Flow {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
}

impl Flow {
    /// Whether both are one. The same as `==`, and short for IPv4, so that a look-up stays small.
    #[inline]
    pub fn same_as(&self, other: &Flow) -> bool {
        match (self, other) {
            (
                Flow { local: SocketAddr::V4(local), remote: SocketAddr::V4(remote) },
                Flow { local: SocketAddr::V4(other_local), remote: SocketAddr::V4(other_remote) },
            ) => local == other_local && remote == other_remote,
            _ => self.same_as_ipv6(other),
        }
    }

    #[inline(never)]
    fn same_as_ipv6(&self, other: &Flow) -> bool {
        self == other
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The address every station listens to.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
