//! The transports of a stack: the key `stack.transport`.

use core::fmt;

use ironwarp_net::TransportProtocol;
use serde::Deserialize;

/// A transport below DDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransportKind {
    /// MPA over TCP (RFC 5044).
    #[default]
    Tcp,
    /// SCTP (RFC 5043).
    Sctp,
}

impl TransportKind {
    /// Returns the number of the IP protocol.
    pub(crate) fn protocol(self) -> u8 {
        match self {
            TransportKind::Tcp => TransportProtocol::TCP.number,
            TransportKind::Sctp => TransportProtocol::SCTP.number,
        }
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransportKind::Tcp => "TCP",
            TransportKind::Sctp => "SCTP",
        })
    }
}

/// The transports of a stack: one, or both. In a configuration a name, or a list of names with the
/// default first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(try_from = "Names")]
pub struct Transports {
    first: TransportKind,
    both: bool,
}

impl Transports {
    /// Returns both transports, with this one as the default.
    pub fn both(first: TransportKind) -> Self {
        Transports { first, both: true }
    }

    /// Returns the transport of connections and listeners that name none.
    pub fn first(self) -> TransportKind {
        self.first
    }

    /// Returns whether the stack has a transport.
    pub fn has(self, kind: TransportKind) -> bool {
        self.both || self.first == kind
    }

    /// Returns whether the stack has both transports.
    pub fn are_both(self) -> bool {
        self.both
    }
}

impl From<TransportKind> for Transports {
    fn from(only: TransportKind) -> Self {
        Transports { first: only, both: false }
    }
}

/// The value of the key.
#[derive(Deserialize)]
#[serde(untagged, expecting = "stack.transport is \"tcp\", \"sctp\", or a list of both")]
enum Names {
    One(TransportKind),
    List(Vec<TransportKind>),
}

impl TryFrom<Names> for Transports {
    type Error = &'static str;

    fn try_from(names: Names) -> Result<Self, Self::Error> {
        match names {
            Names::One(only) => Ok(only.into()),
            Names::List(list) => match *list.as_slice() {
                [only] => Ok(only.into()),
                [first, second] if first != second => Ok(Transports::both(first)),
                _ => Err("stack.transport lists \"tcp\", \"sctp\", or both, each once"),
            },
        }
    }
}
