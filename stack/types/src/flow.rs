//! The endpoints of a TCP connection, and link addresses.

use core::fmt;
use core::net::SocketAddr;

/// The two endpoints of a TCP connection, as the local host sees them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Flow {
    /// The local address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
}

impl Flow {
    /// Returns whether both flows are equal. Same as `==`. Tuning: short for IPv4, so that
    /// table look-ups inline well.
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

    /// Returns the local and the remote port.
    #[inline]
    pub fn ports(&self) -> [u16; 2] {
        [self.local.port(), self.remote.port()]
    }

    #[inline(never)]
    fn same_as_ipv6(&self, other: &Flow) -> bool {
        self == other
    }
}

/// An IPv4 flow as its fields lie in received packets, for comparison without conversion. All zero
/// for IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowKeyV4 {
    /// The peer's address, then the local one, each in network order; read as a little-endian word.
    pub addresses: u64,
    /// The peer's port, then the local one, each in network order; read as a little-endian word.
    pub ports: u32,
}

impl FlowKeyV4 {
    /// Returns the local and the remote port.
    #[inline(always)]
    pub fn ports(self) -> [u16; 2] {
        let [i, j, k, l] = self.ports.to_le_bytes();
        [u16::from_be_bytes([k, l]), u16::from_be_bytes([i, j])]
    }
}

impl From<&Flow> for FlowKeyV4 {
    fn from(flow: &Flow) -> Self {
        let Flow { local: SocketAddr::V4(local), remote: SocketAddr::V4(remote) } = flow else {
            return FlowKeyV4::default();
        };
        let ([a, b, c, d], [e, f, g, h]) = (remote.ip().octets(), local.ip().octets());
        let ([i, j], [k, l]) = (remote.port().to_be_bytes(), local.port().to_be_bytes());
        FlowKeyV4 {
            addresses: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            ports: u32::from_le_bytes([i, j, k, l]),
        }
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The broadcast address.
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
